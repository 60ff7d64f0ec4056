/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h - picking numbers and words out of a line: what readers would use regular expressions for, at the speed of strstr. */
#ifndef UNO_DOCTOR_SCAN_H
#define UNO_DOCTOR_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
    const char *p;
    size_t n;
};

/* Find `pattern` anywhere in s. Its literal beginning is searched; then:
 *   %d  whole number      -> int64_t *          %x  hexadecimal, 0x or not -> int64_t *       %f  number -> double *
 *   %w  a word: up to blank , ; ) ] ' " or end  -> struct span *, not empty
 *   %t  text up to the character that follows in the pattern, or the end -> struct span *, may be empty
 *   %*  anything, up to where what follows matches (the shortest)
 *   ' ' any number of blanks and tabs, none too
 * Returns true when all of it matched; targets of a failed match may have been written. */
bool scan(const char *s, const char *pattern, ...);

bool span_is(struct span s, const char *word);
bool begins(const char *s, const char *with);
bool has(const char *s, const char *part);      /* case matters */
bool has_nocase(const char *s, const char *part);
const char *skip_blanks(const char *s);

/* The whole number nearest below, whatever a torn line says: at most 2^62, NaN is 0. */
int64_t whole(double v);

#endif
