/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - how tools speak: colour only on a terminal, errors as sentences with the tool's name in front, JSON strings
 * quoted, words that are nearly right recognised.
 */
#ifndef UNO_CLI_OUTPUT_H
#define UNO_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum out_colour { OUT_PLAIN, OUT_BOLD, OUT_RED, OUT_GREEN, OUT_YELLOW, OUT_DIM };

/* Return the escape sequence that starts a colour on `file`, "" when it is no terminal, NO_COLOR is set or TERM is dumb.
 * OUT_PLAIN ends a colour. Static string. */
const char *out_colour(FILE *file, enum out_colour colour);

/* Print "unisono COMMAND: sentence" on stderr; returns CLI_ERROR, so that a command can `return out_error(...)`. */
int out_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Return what follows the system's words for why a process could not be started: which limit to look at, "" where none is meant. Static. */
const char *out_start_hint(int error);

/* Return the nearest of `names` to `word` by edit distance, NULL if none is near. */
const char *out_nearest(const char *word, const char *const *names, size_t count);

/* Write s as a JSON string with its quotes. Bytes that are no valid UTF-8 become U+FFFD. NULL becomes null. */
void out_json_string(FILE *file, const char *s);

/* Return the bytes of the character that s begins with, 0 when they are no valid UTF-8. */
int out_utf8_bytes(const char *s);

/* Format bytes as people write them, binary units: "8 B", "1.5 MB". Writes into buf and returns it. */
char *out_bytes(char *buf, size_t buf_bytes, uint64_t bytes);

/* "8", "4K", "1.5M", "2GiB" -> bytes. False when s is not a size, or not a whole number of bytes. */
bool out_parse_bytes(const char *s, uint64_t *bytes);

/* Decimal number within [min, max]; false otherwise. */
bool out_parse_int(const char *s, int64_t min, int64_t max, int64_t *value);

#endif
