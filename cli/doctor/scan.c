/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - see scan.h. */
#include "scan.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

bool has(const char *s, const char *part)
{
    return strstr(s, part) != NULL;
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

const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t')
        s++;
    return s;
}

static bool ends_word(char c)
{
    return c == 0 || strchr(" \t,;)]'\"", c) != NULL;
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
    size_t n = strcspn(pattern, "% ");
    if (n >= sizeof head)
        n = sizeof head - 1;
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
