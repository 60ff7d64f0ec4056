/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - a growing string, and numbers as people write them. */
#include "base.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void text_add(struct text *t, const char *fmt, ...)
{
    if (t->failed)
        return;
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || mem_grow(&t->s, &t->cap, t->len + (size_t)n + 1, 1) != UNO_OK) {
        t->failed = true;
    } else {
        vsnprintf(t->s + t->len, (size_t)n + 1, fmt, again);
        t->len += (size_t)n;
    }
    va_end(again);
}

void text_free(struct text *t)
{
    free(t->s);
    *t = (struct text){0};
}

#define NOT_A_SIZE "\"%.40s\" is not a size; write a number with K, M, G or T, such as 64K"
#define NOT_A_TIME "\"%.40s\" is not a time; write seconds, or a number with ms, s, m or h, such as 250ms"

/* A number >= 0 followed by a unit; *unit points behind the blanks after the number. */
static bool parse_number(const char *s, double *value, const char **unit)
{
    char *end;
    errno = 0;
    *value = strtod(s, &end);
    if (end == s || !isfinite(*value) || *value < 0 || errno == ERANGE || isalpha((unsigned char)s[0]))
        return false;
    while (*end == ' ')
        end++;
    *unit = end;
    return true;
}

uno_err text_parse_bytes(const char *s, uint64_t *bytes)
{
    double value;
    const char *unit;
    if (!parse_number(s, &value, &unit))
        return err_set(UNO_ERR_PARSE, NOT_A_SIZE, s);
    static const char letters[] = "KMGT";
    int shift = 0;
    if (*unit) {
        const char *at = strchr(letters, toupper((unsigned char)*unit));
        if (at) {
            shift = 10 * (int)(at - letters + 1);
            unit++;
            if (*unit == 'i')
                unit++;
        }
        if (toupper((unsigned char)*unit) == 'B')
            unit++;
        if (*unit)
            return err_set(UNO_ERR_PARSE, NOT_A_SIZE, s);
    }
    value = ldexp(value, shift);
    if (value >= 18446744073709551615.0)
        return err_set(UNO_ERR_PARSE, "\"%.40s\" is more than 64 bits can hold", s);
    *bytes = (uint64_t)value;
    if (shift == 0 && value != (double)*bytes)
        return err_set(UNO_ERR_PARSE, "\"%.40s\" is not a whole number of bytes", s);
    if (shift == 0) { /* exact beyond 2^53 */
        errno = 0;
        char *end;
        uint64_t exact = strtoull(s, &end, 10);
        if (errno == 0 && (*end == 0 || *end == ' ' || toupper((unsigned char)*end) == 'B'))
            *bytes = exact;
    }
    return UNO_OK;
}

uno_err text_parse_seconds(const char *s, double *seconds)
{
    static const struct { const char *unit; double factor; } units[] = {
        {"", 1}, {"s", 1}, {"sec", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"m", 60}, {"min", 60}, {"h", 3600}};
    double value;
    const char *unit;
    if (!parse_number(s, &value, &unit))
        return err_set(UNO_ERR_PARSE, NOT_A_TIME, s);
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (strcmp(unit, units[i].unit) == 0) {
            *seconds = value * units[i].factor;
            return UNO_OK;
        }
    return err_set(UNO_ERR_PARSE, NOT_A_TIME, s);
}

uno_err text_parse_int(const char *s, int64_t min, int64_t max, int64_t *value)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end || isspace((unsigned char)s[0]))
        return err_set(UNO_ERR_PARSE, "\"%.40s\" is not a whole number; legal is %lld to %lld", s, (long long)min, (long long)max);
    if (errno == ERANGE || v < min || v > max)
        return err_set(UNO_ERR_PARSE, "%.40s is outside %lld to %lld", s, (long long)min, (long long)max);
    *value = v;
    return UNO_OK;
}

uno_err text_parse_bool(const char *s, bool *value)
{
    static const char *const words[][2] = {{"0", "1"}, {"false", "true"}, {"no", "yes"}, {"off", "on"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        for (int b = 0; b < 2; b++)
            if (strcasecmp(s, words[i][b]) == 0) {
                *value = b;
                return UNO_OK;
            }
    return err_set(UNO_ERR_PARSE, "\"%.40s\" is not yes or no; write one of 1 0 true false yes no on off", s);
}

char *text_bytes(char *buf, size_t buf_bytes, uint64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 1024 && u + 1 < ARRAY_LEN(units)) {
        v /= 1024;
        u++;
    }
    snprintf(buf, buf_bytes, v == floor(v) ? "%.0f %s" : "%.1f %s", v, units[u]);
    return buf;
}

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= ARRAY_LEN(row))
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t cost = diagonal + (toupper((unsigned char)a[i]) != toupper((unsigned char)b[j]));
            diagonal = row[j + 1];
            row[j + 1] = MIN(cost, MIN(row[j], row[j + 1]) + 1);
        }
    }
    return row[n];
}

const char *text_nearest(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 2;
    for (size_t i = 0; i < count; i++) {
        size_t d = edit_distance(word, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

/* Length of the UTF-8 character at s, 0 if it is none or one that a terminal might obey. */
static size_t printable(const unsigned char *s, size_t n, bool lines)
{
    if (s[0] < 0x80)
        return (s[0] >= 0x20 && s[0] != 0x7f) || (lines && s[0] == '\n');
    size_t len = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : 0;
    if (len == 0 || len > n || (s[0] == 0xc2 && s[1] < 0xa0))
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

void text_clean(char *text, size_t n, bool lines)
{
    for (size_t i = 0; i < n;) {
        size_t len = printable((unsigned char *)text + i, n - i, lines);
        if (len == 0)
            text[i] = '?';
        i += len ? len : 1;
    }
}
