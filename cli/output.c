/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - colour, error sentences, JSON strings, sizes and numbers for the tools. */
#include "output.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

const char *out_colour(FILE *file, enum out_colour colour)
{
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[31m", "\033[32m", "\033[33m", "\033[2m"};
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    if (!isatty(fileno(file)) || (no && *no) || !term || strcmp(term, "dumb") == 0)
        return "";
    return codes[colour];
}

int out_error(const char *command, const char *fmt, ...)
{
    char sentence[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    /* One call, so that lines of several ranks on one stderr do not mix. */
    fprintf(stderr, "%sunisono%s%s:%s %s\n", out_colour(stderr, OUT_RED), *command ? " " : "", command,
            out_colour(stderr, OUT_PLAIN), sentence);
    return CLI_ERROR;
}

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= sizeof row / sizeof row[0])
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t replace = diagonal + (tolower((unsigned char)a[i]) != tolower((unsigned char)b[j]));
            size_t change = (row[j + 1] < row[j] ? row[j + 1] : row[j]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = replace < change ? replace : change;
        }
    }
    return row[n];
}

const char *out_start_hint(int error)
{
    return error == EAGAIN   ? "; as many processes run as are allowed: see ulimit -u, and pids.max of the container or cgroup"
           : error == EMFILE ? "; as many files are open as are allowed: see ulimit -n"
           : error == EFBIG  ? "; shared memory counts as a file, and may not be as large as it must: see ulimit -f"
                             : "";
}

const char *out_nearest(const char *word, const char *const *names, size_t count)
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

/* Bytes of the valid UTF-8 character at s, 0 if there is none. */
int out_utf8_bytes(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    if (s[0] > 0xf4)
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

void out_json_string(FILE *file, const char *string)
{
    if (!string) {
        fputs("null", file);
        return;
    }
    putc('"', file);
    for (const unsigned char *s = (const unsigned char *)string; *s;) {
        int n = out_utf8_bytes((const char *)s);
        if (n == 0)
            fputs("\\ufffd", file);
        else if (*s == '"' || *s == '\\')
            fprintf(file, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(file, "\\u%04x", *s);
        else
            fwrite(s, 1, (size_t)n, file);
        s += n ? n : 1;
    }
    putc('"', file);
}

char *out_bytes(char *buf, size_t buf_bytes, uint64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 6) {
        v /= 1024;
        u++;
    }
    snprintf(buf, buf_bytes, v == floor(v) ? "%.0f %s" : "%.1f %s", v, units[u]);
    return buf;
}

bool out_parse_bytes(const char *s, uint64_t *bytes)
{
    static const char letters[] = "KMGT";
    if (!isdigit((unsigned char)s[0]) && s[0] != '.')
        return false;
    char *end;
    errno = 0;
    double value = strtod(s, &end);
    if (end == s || errno == ERANGE || !isfinite(value) || strpbrk(s, "xXpPnN"))
        return false;
    int shift = 0;
    const char *at = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    if (at) {
        shift = 10 * (int)(at - letters + 1);
        end++;
        if (*end == 'i')
            end++;
    }
    if (toupper((unsigned char)*end) == 'B')
        end++;
    value = ldexp(value, shift);
    if (*end || value >= 9223372036854775808.0)
        return false;
    *bytes = (uint64_t)value;
    return shift > 0 || value == (double)*bytes;
}

bool out_parse_int(const char *s, int64_t min, int64_t max, int64_t *value)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end || errno == ERANGE || isspace((unsigned char)s[0]) || v < min || v > max)
        return false;
    *value = v;
    return true;
}
