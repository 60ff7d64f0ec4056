/* SPDX-License-Identifier: Apache-2.0 */
/* read_bench.c - tables of nccl-tests and rccl-tests (and of `unisono perf`, which prints the same columns), and of Gloo's benchmark. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

/* Where the times begin: after the type come an operation, a root, both or none; then time, two rates and a count, once or twice, or eight a side
 * with -I. -1: the row was cut. */
static int first_number(char *const *at, int n)
{
    int first = isalpha((unsigned char)at[3][0]) ? 4 : 3;
    bool root = first < n && (strcmp(at[first], "-1") == 0 || (at[first][strspn(at[first], "0123456789")] == 0 && (n - first) % 4 == 1));
    first += root;
    return (n - first) % 4 == 0 ? first : -1;
}

/* A row: size count type [op root] time alg bus wrong, time alg bus wrong. Newer ones have more columns, which are not needed here. */
static bool row(struct model *m, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    if (!isdigit((unsigned char)*s))
        return false;
    char copy[512], *at[24], *save = NULL;
    int n = 0;
    if (strlen(s) >= sizeof copy)
        return false;
    memcpy(copy, s, strlen(s) + 1);
    for (char *w = strtok_r(copy, " \t", &save); w && n < 24; w = strtok_r(NULL, " \t", &save))
        at[n++] = w;
    if (n < 7 || !isdigit((unsigned char)at[1][0]) || !isalpha((unsigned char)at[2][0]))
        return false;
    int first = first_number(at, n);
    if (first < 0 || first + 2 >= n)
        return false;
    char *end;
    double bus = strtod(at[first + 2], &end);
    if (*end)
        return false;
    struct fact f = fact_at(l, F_BENCH);
    f.a = strtoll(at[0], NULL, 10);
    f.x = bus;
    f.b = first + 3 < n ? whole(strtod(at[first + 3], NULL)) : 0;
    f.c = first + 7 < n ? whole(strtod(at[first + 7], NULL)) : 0;
    f.value = model_words(m, at[2]);
    model_add(m, &f);
    return true;
}

/* ---- Gloo's benchmark -------------------------------------------------------------------------------------------------------------------- */

/* "elements min (us) p50 (us) p99 (us) max (us) avg (GB/s) samples", later "size (B) elements ... bandwidth (GB/s) iterations". */
static bool gloo_header(struct model *m, struct context *c, const struct line *l, const char *s)
{
    struct span name;
    int64_t speed;
    if (has(s, "p50 (") && has(s, "p99 (") && has(s, "(GB/s)")) {
        c->bench_columns = has(s, "size (B)") ? 8 : 7;
        return true;
    }
    if (begins(s, "Algorithm:") && scan(s, "Algorithm: %w", &name)) {
        snprintf(c->bench_algorithm, sizeof c->bench_algorithm, "%.*s", (int)name.n, name.p);
        return true;
    }
    if (begins(s, "Options:") && scan(s, "processes=%d", &c->bench_processes))
        return true;
    if (!scan(s, "tcp,%*iface=%w", &name) || !scan(s, "speed=%d,", &speed))
        return false;
    struct fact f = fact_at(l, F_GLOO_DEVICE);
    f.name = span_words(m, name);
    f.a = speed;
    return fact_add(m, f);
}

/* Numbers alone: bytes, elements (of four bytes), four times, GiB a second, how often. */
static bool gloo_row(struct model *m, struct context *c, const struct line *l, const char *s)
{
    double v[8];
    int n = 0;
    for (char *end; *s && n < 8; s = skip_blanks(end)) {
        v[n++] = strtod(s, &end);
        if (end == s)
            return false;
    }
    if (*s || n != c->bench_columns)
        return false;
    struct fact f = fact_at(l, F_GLOO_BENCH);
    f.a = whole(n == 8 ? v[0] : v[0] * 4);
    f.x = v[n - 2] * 1.073741824;
    f.name = model_words(m, c->bench_algorithm);
    f.c = c->bench_processes;
    f.b = whole(v[n - 2] * 1e6); /* rows of one size that differ are two */
    return fact_add(m, f);
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    int64_t v, dev;
    double average;
    struct span host, bus;
    if (*s != '#' && !isdigit((unsigned char)*s))
        return has(s, "tcp,") || has(s, "p50 (") || has(s, "Algorithm:") || has(s, "processes=") ? gloo_header(m, c, l, s) : false;
    if (*s != '#')
        return (c->bench_columns && gloo_row(m, c, l, s)) || row(m, l);
    if (scan(s, "# Out of bounds values : %d", &v)) {
        struct fact f = fact_at(l, F_BENCH_END);
        f.a = v;
        f.b = has(s, "FAILED");
        model_add(m, &f);
        return true;
    }
    if (scan(s, "# Avg bus bandwidth : %f", &average))
        return true;
    int64_t rank, pid;
    if (scan(s, "# Rank %d %*Pid %d on %w device %d [%t]", &rank, &pid, &host, &dev, &bus)) {
        struct fact f = fact_at(l, F_BENCH_RANK);
        f.rank = (int)rank;
        f.pid = pid;
        f.host = model_string(m, host.p, host.n);
        f.dev = (int)dev;
        f.value = model_string(m, bus.p, bus.n);
        model_add(m, &f);
        return true;
    }
    return begins(s, "#  ") && (has(s, "busbw") || has(s, "(GB/s)"));
}

const struct reader reader_bench = {.name = "a table of nccl-tests", .line = read_line};
