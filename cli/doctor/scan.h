/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h - picking numbers and words out of a line: what readers would use regular expressions for, at the speed of strstr. */
#ifndef UNO_DOCTOR_SCAN_H
#define UNO_DOCTOR_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* The text of `bytes` bytes is going to be searched by many: from now on has() and scan() know without a search most of what does not occur in it
 * (a table of its pairs of letters). It may be made shorter, and not be changed otherwise, until the next call; NULL ends it. For one thread. */
void scan_hint(const char *text, size_t bytes);

bool span_is(struct span s, const char *word);
static inline bool begins(const char *s, const char *with)
{
    return s[0] == with[0] && strncmp(s, with, strlen(with)) == 0;
}
bool has(const char *s, const char *part);      /* case matters */
bool has_nocase(const char *s, const char *part);
const char *skip_blanks(const char *s);
/* How many letters and digits, or of `also`, s begins with. */
size_t name_bytes(const char *s, const char *also);

/* How many numbers a list names: "0-7,16-23" -> 16; 0 = it is no such list. */
int64_t numbers_listed(const char *list);

/* The whole number nearest below, whatever a torn line says: at most 2^62, NaN is 0. */
int64_t whole(double v);

#endif
