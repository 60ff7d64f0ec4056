/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_pairs.c - how much each rank sends to each other in alltoallv, as nccl-tests: from a file with a square matrix of bytes, or
 * made: the further away a rank's number, the more, all ranks alike. Read once by perf_options.c, asked by perf_coll.c.
 */
#include "perf.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

#define BLOCK 16 /* a pair's bytes are rounded down to it */

static struct {
    const char *file;     /* NULL: made */
    size_t ranks;         /* rows of the matrix */
    double *bytes;        /* rows x rows, not scaled */
    double scale, spread; /* spread: 0 = the same to each, 1 = in proportion to the distance */
    bool summary;
} pairs = {.scale = 1, .spread = 1};

static bool parse_factor(const char *name, double most, double *to)
{
    const char *text = getenv(name);
    char *end;
    if (!text)
        return true;
    *to = strtod(text, &end);
    if (end != text && *end == 0 && *to >= 0 && *to <= most)
        return true;
    out_error("perf", "%s=\"%s\": legal is a number from 0 to %g", name, text, most);
    return false;
}

static char *read_all(const char *path)
{
    enum { MOST = 64 << 20 };
    FILE *f = fopen(path, "re");
    char *text = f ? malloc(MOST) : NULL;
    size_t n = text ? fread(text, 1, MOST, f) : 0;
    if (!text || ferror(f))
        out_error("perf", "traffic matrix %s: %s", path, strerror(errno));
    else if (n == MOST)
        out_error("perf", "traffic matrix %s has more than %d MB; that is none", path, MOST >> 20);
    else {
        text[n] = 0;
        fclose(f);
        return text;
    }
    if (f)
        fclose(f);
    free(text);
    return NULL;
}

/* One row into pairs.bytes, which holds *n numbers; a row may be empty. False: a sentence was printed. */
static bool read_row(char *line, size_t row, size_t *n, size_t *cap, size_t *columns)
{
    *columns = 0;
    for (char *s = line, *end;; s = end) {
        s += strspn(s, " \t\r,");
        if (*s == 0)
            return true;
        double v = strtod(s, &end);
        if (end == s || !strchr(" \t\r,", *end) || !(v >= 0 && v <= 1e15)) {
            out_error("perf", "traffic matrix %s, row %zu, column %zu: \"%.*s\" is not a number of bytes (0 to 1e15)", pairs.file, row,
                      *columns + 1, (int)strcspn(s, " \t\r,"), s);
            return false;
        }
        if (*n == *cap) {
            size_t more = *cap ? 2 * *cap : 64;
            double *bytes = realloc(pairs.bytes, more * sizeof *bytes);
            if (!bytes) {
                out_error("perf", "traffic matrix %s: no memory for %zu numbers", pairs.file, more);
                return false;
            }
            pairs.bytes = bytes;
            *cap = more;
        }
        pairs.bytes[(*n)++] = v;
        ++*columns;
    }
}

static bool read_matrix(char *text)
{
    size_t n = 0, cap = 0, rows = 0, width = 0, columns;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        if (!read_row(line, rows + 1, &n, &cap, &columns))
            return false;
        if (columns == 0)
            continue;
        if (rows > 0 && columns != width) {
            out_error("perf", "traffic matrix %s: row %zu has %zu columns and row 1 has %zu", pairs.file, rows + 1, columns, width);
            return false;
        }
        width = columns;
        rows++;
    }
    if (rows == 0 || rows != width) {
        out_error("perf", "traffic matrix %s has %zu rows and %zu columns; it must be square", pairs.file, rows, width);
        return false;
    }
    pairs.ranks = rows;
    return true;
}

bool perf_pairs_load(const struct perf_options *o)
{
    const char *summary = getenv("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY");
    pairs.summary = summary && atoi(summary) != 0;
    pairs.file = getenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE");
    if (!parse_factor("NCCL_TESTS_ALLTOALLV_SPREAD", 1, &pairs.spread) ||
        !parse_factor("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", 1e9, &pairs.scale))
        return false;
    if (!pairs.file)
        return true;
    if (o->min_bytes != o->max_bytes) {
        out_error("perf", "a traffic matrix says all sizes, so -b and -e must be equal; -e is the room of a rank's buffers");
        return false;
    }
    char *text = read_all(pairs.file);
    bool good = text && read_matrix(text);
    free(text);
    return good;
}

bool perf_pairs_fixed(void)
{
    return pairs.file != NULL;
}

size_t perf_pairs_bytes(int from, int to, int ranks, size_t total)
{
    double bytes;
    if (pairs.file) {
        bytes = pairs.bytes[(size_t)from * pairs.ranks + (size_t)to] * pairs.scale;
    } else {
        double n = ranks, away = (to - from + ranks) % ranks, even = (double)total / n;
        double far = ranks > 1 ? away * (double)total / (n * (n - 1) / 2) : even;
        bytes = (1 - pairs.spread) * even + pairs.spread * far;
    }
    return bytes >= 1e18 ? (size_t)1e18 : (size_t)bytes / BLOCK * BLOCK;
}

uno_err perf_pairs_check(struct crew *c, size_t max_bytes, int *status)
{
    *status = 0;
    if (!pairs.file)
        return UNO_OK;
    if ((size_t)c->ranks > pairs.ranks) {
        *status = perf_fail_text(c, "traffic matrix %s is for %zu ranks, and there are %d", pairs.file, pairs.ranks, c->ranks);
        return UNO_OK;
    }
    size_t most = 0;
    double sum = pairs.scale; /* of everything, so that every rank sees whether all have read the same */
    for (int i = 0; i < c->ranks; i++) {
        size_t sent = 0, received = 0;
        for (int j = 0; j < c->ranks; j++) {
            sent += perf_pairs_bytes(i, j, c->ranks, 0);
            received += perf_pairs_bytes(j, i, c->ranks, 0);
            sum = sum * 1.0009765625 + (double)perf_pairs_bytes(i, j, c->ranks, 0);
        }
        most = sent > most ? sent : most;
        most = received > most ? received : most;
    }
    if (most > max_bytes) {
        *status = perf_fail_text(c, "traffic matrix %s: a rank sends or receives %zu bytes and the buffers have %zu; give -b %zu -e %zu",
                                 pairs.file, most, max_bytes, most, most);
        return UNO_OK;
    }
    double ends[2] = {sum, -sum};
    uno_err err = perf_max(c, ends, 2);
    if (err == UNO_OK && c->groups == 1 && ends[0] != -ends[1])
        *status = perf_fail_text(c, "traffic matrix %s is not the same for all ranks", pairs.file);
    return err;
}

void perf_pairs_summary(FILE *f, const struct line *l, int ranks)
{
    if (!pairs.summary)
        return;
    size_t total = l->count * (size_t)ranks * uno_type_bytes((uno_type)l->type);
    if (pairs.file)
        fprintf(f, "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=matrix nranks=%d matrix_dim=%zu scale=%.3f time_usec=%.2f\n", ranks,
                pairs.ranks, pairs.scale, l->halves[0].time_us);
    else
        fprintf(f, "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=%d total_bytes=%zu spread=%.3f time_usec=%.2f\n", ranks,
                total, pairs.spread, l->halves[0].time_us);
    for (int i = 0; i < ranks; i++) {
        size_t sent = 0, received = 0;
        for (int j = 0; j < ranks; j++) {
            sent += perf_pairs_bytes(i, j, ranks, total);
            received += perf_pairs_bytes(j, i, ranks, total);
        }
        double alg = (double)(sent > received ? sent : received) / l->halves[0].time_us / 1e3;
        fprintf(f, "#   rank=%d send_bytes=%zu recv_bytes=%zu alg_bw=%.2f bus_bw=%.2f\n", i, sent, received, alg, alg * (ranks - 1) / ranks);
    }
    fprintf(f, "#\n");
}
