/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - see scan.h. */
#include "scan.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is not there ------------------------------------------------------------------------------------------------------------------ */

enum { PAIRS = 4096 };

static struct {
    const char *from, *to; /* the text that `seen` is of */
    uint8_t turn, seen[PAIRS]; /* a pair of letters occurs in it where seen[pair] is turn */
} hint;

static unsigned pair_of(const char *p)
{
    return ((unsigned)(unsigned char)p[0] << 5 ^ (unsigned)(unsigned char)p[1]) % PAIRS;
}

void scan_hint(const char *text, size_t bytes)
{
    hint.from = text;
    hint.to = text ? text + bytes : NULL;
    if (++hint.turn == 0) {
        memset(hint.seen, 0, sizeof hint.seen);
        hint.turn = 1;
    }
    for (const char *p = text; p && p + 1 < hint.to; p++)
        hint.seen[pair_of(p)] = hint.turn;
}

/* Surely no `part` in s: one of its pairs of letters does not occur in the text that s is the end of. */
static bool is_out(const char *s, const char *part, size_t bytes)
{
    if (s < hint.from || s > hint.to || !hint.from)
        return false;
    for (const char *p = part; p + 1 < part + bytes; p++)
        if (hint.seen[pair_of(p)] != hint.turn)
            return true;
    return false;
}

bool has(const char *s, const char *part)
{
    return !is_out(s, part, strlen(part)) && strstr(s, part) != NULL;
}

bool has_nocase(const char *s, const char *part)
{
    return strcasestr(s, part) != NULL;
}

bool span_is(struct span s, const char *word)
{
    return strlen(word) == s.n && memcmp(s.p, word, s.n) == 0;
}

int64_t whole(double v)
{
    const double most = 4611686018427387904.0;
    return !(v == v) ? 0 : v > most ? (int64_t)most : v < -most ? -(int64_t)most : (int64_t)v;
}

int64_t numbers_listed(const char *list)
{
    int64_t n = 0;
    for (const char *p = list; isdigit((unsigned char)*p);) {
        char *end;
        long from = strtol(p, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        n += to >= from && to < 1 << 20 ? to - from + 1 : 0;
        p = *end == ',' ? end + 1 : end;
    }
    return n;
}

const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t')
        s++;
    return s;
}

size_t name_bytes(const char *s, const char *also)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || (s[n] && strchr(also, s[n])))
        n++;
    return n;
}

static bool ends_word(char c)
{
    switch (c) {
    case 0: case ' ': case '\t': case ',': case ';': case ')': case ']': case '\'': case '"':
        return true;
    default:
        return false;
    }
}

static bool take_number(const char **s, int base, int64_t *to)
{
    const char *p = *s;
    if (base == 16 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
        p += 2;
    if (base == 16 ? !isxdigit((unsigned char)*p) : !(isdigit((unsigned char)*p) || (*p == '-' && isdigit((unsigned char)p[1]))))
        return false;
    char *end;
    errno = 0;
    *to = base == 16 ? (int64_t)strtoull(p, &end, 16) : strtoll(p, &end, 10);
    *s = end;
    return errno == 0;
}

/* One target each kind of place in a pattern; collected first, because the search for the beginning may try several places. */
struct targets {
    void *to[16];
    int count;
};

static const char *match(const char *s, const char *p, const struct targets *t, int next);

static const char *match_skip(const char *s, const char *p, const struct targets *t, int next)
{
    for (;; s++) {
        if (*p && *p != '%' && *p != ' ' && !(s = strchr(s, *p)))
            return NULL;
        const char *end = match(s, p, t, next);
        if (end || !*s)
            return end;
    }
}

static const char *match(const char *s, const char *p, const struct targets *t, int next)
{
    for (; *p; p++) {
        if (*p == ' ') {
            s = skip_blanks(s);
        } else if (*p != '%') {
            if (*s++ != *p)
                return NULL;
        } else if (*++p == '*') {
            return match_skip(s, p + 1, t, next);
        } else if (*p == 'd' || *p == 'x') {
            if (!take_number(&s, *p == 'x' ? 16 : 10, t->to[next++]))
                return NULL;
        } else if (*p == 'f') {
            char *end;
            *(double *)t->to[next++] = strtod(s, &end);
            if (end == s)
                return NULL;
            s = end;
        } else {
            const char *from = s;
            if (*p == 'w')
                while (!ends_word(*s))
                    s++;
            else
                while (*s && *s != p[1])
                    s++;
            if (*p == 'w' && s == from)
                return NULL;
            *(struct span *)t->to[next++] = (struct span){from, (size_t)(s - from)};
        }
    }
    return s;
}

bool scan(const char *s, const char *pattern, ...)
{
    char head[96];
    size_t n = 0;
    while (n < sizeof head - 1 && pattern[n] && pattern[n] != '%' && pattern[n] != ' ')
        n++;
    if (is_out(s, pattern, n))
        return false;
    memcpy(head, pattern, n);
    head[n] = 0;
    const char *at = n ? strstr(s, head) : s;
    if (!at)
        return false;
    struct targets t = {.count = 0};
    va_list ap;
    va_start(ap, pattern);
    for (const char *p = pattern; *p; p++)
        if (*p == '%' && *++p != '*' && t.count < 16)
            t.to[t.count++] = va_arg(ap, void *);
    va_end(ap);
    for (; at; at = n ? strstr(at + 1, head) : NULL)
        if (match(at + n, pattern + n, &t, 0))
            return true;
    return false;
}
