/* SPDX-License-Identifier: Apache-2.0 */
/* perf_scale_say.c - what the runs of `unisono perf --sweep` mean: where throughput stops growing, and what limits it there. */
#include "perf_scale.h"

#include <string.h>
#include <unistd.h>

#include "output.h"

#define KNEE 0.9         /* of the highest throughput */
#define NEAR_LIMIT 0.6   /* plain copies and sums take at least this share of the time: they are what it is spent on */

/* The limit was measured with one communicator; those that run at the same time share the machine. */
static double limit_of(const struct scale *s, const struct scale_series *r, int point)
{
    for (int i = 0; i < s->count; i++) {
        const struct scale_series *alone = &s->series[i];
        if (alone->comms == 1 && alone->ranks == r->ranks && alone->bound == r->bound && point < alone->count)
            return alone->points[point].limit_us * r->comms;
    }
    return 0;
}

static double cache_bytes(void)
{
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return l3 > 0 ? (double)l3 : l2 > 0 ? (double)l2 : 32e6;
}

const char *scale_limited_by(const struct scale *s, const struct scale_series *r, int point)
{
    const struct scale_point *p = &r->points[point];
    double limit = limit_of(s, r, point);
    if (r->net_share > 0.5)
        return "link";
    bool busy = limit > NEAR_LIMIT * p->time_us;
    if (busy && (double)p->bytes * 2 * r->ranks * r->comms > cache_bytes())
        return "memory";
    if (busy || r->ranks * r->comms > s->processors)
        return "processor";
    return "waiting";
}

static int highest(const struct scale_series *r)
{
    int best = 0;
    for (int i = 1; i < r->count; i++)
        if (r->points[i].gb_s > r->points[best].gb_s)
            best = i;
    return best;
}

int scale_knee(const struct scale_series *r)
{
    int knee = 0;
    while (r->points[knee].gb_s < KNEE * r->points[highest(r)].gb_s)
        knee++;
    return knee;
}

void scale_name(const struct scale *s, const struct scale_series *r, char *buf, size_t bytes)
{
    int n = snprintf(buf, bytes, "%d ranks", r->ranks);
    if (r->comms > 1)
        n += snprintf(buf + n, bytes - (size_t)n, " x %d", r->comms);
    if (s->nodes > 1 || s->o->bind_both)
        snprintf(buf + n, bytes - (size_t)n, ", %s", r->bound ? "bound" : "free");
}

static void print_matrix(const struct scale *s, FILE *f)
{
    char name[64], size[32];
    fprintf(f, "%10s", "size");
    for (int i = 0; i < s->count; i++) {
        scale_name(s, &s->series[i], name, sizeof name);
        fprintf(f, "  %16s", name);
    }
    fputc('\n', f);
    for (int p = 0; p < s->series[0].count; p++) {
        fprintf(f, "%10s", out_bytes(size, sizeof size, s->series[0].points[p].bytes));
        for (int i = 0; i < s->count; i++) {
            const struct scale_series *r = &s->series[i];
            fprintf(f, "  %15.3f%s", p < r->count ? r->points[p].gb_s : 0, p < r->count && p == scale_knee(r) ? "*" : " ");
        }
        fputc('\n', f);
    }
}

static void print_series(const struct scale *s, const struct scale_series *r, FILE *f)
{
    char name[64], at[32], size[32];
    int knee = scale_knee(r), top = highest(r);
    scale_name(s, r, name, sizeof name);
    out_bytes(at, sizeof at, r->points[knee].bytes);
    if (knee == r->count - 1)
        fprintf(f, "%-22s %8.3f GB/s at %s, and still growing; limited by %s\n", name, r->points[knee].gb_s, at, scale_limited_by(s, r, knee));
    else
        fprintf(f, "%-22s %8.3f GB/s at %s, from there on no more than %.3f (at %s); limited by %s\n", name, r->points[knee].gb_s, at,
                r->points[top].gb_s, out_bytes(size, sizeof size, r->points[top].bytes), scale_limited_by(s, r, knee));
}

void scale_print(const struct scale *s, FILE *f)
{
    const struct scale_series *best = &s->series[0];
    char name[64];
    fprintf(f, "%s, busbw of all communicators together in GB/s, out of place; * = from here on it grows by less than a tenth\n",
            s->o->coll->name);
    fprintf(f, "%d processors, %d NUMA node%s%s\n\n", s->processors, s->nodes, s->nodes == 1 ? "" : "s",
            s->nodes == 1 && !s->o->bind_both ? ": binding makes no difference that is worth comparing (--bind both compares it)" : "");
    print_matrix(s, f);
    fputc('\n', f);
    for (int i = 0; i < s->count; i++) {
        print_series(s, &s->series[i], f);
        if (s->series[i].points[highest(&s->series[i])].gb_s > best->points[highest(best)].gb_s)
            best = &s->series[i];
    }
    scale_name(s, best, name, sizeof name);
    fprintf(f, "\nmost: %.3f GB/s with %s\n", best->points[highest(best)].gb_s, name);
    fprintf(f, "link: most bytes went over TCP. memory, processor: plain copies and sums of the same bytes take most of the time, out of memory\n"
               "or in caches; or ranks share processors. waiting: else, ranks wait for each other's flags.\n");
}

void scale_json(const struct scale *s, FILE *f)
{
    fprintf(f, "{\n  \"collective\": \"%s\", \"processors\": %d, \"numa_nodes\": %d,\n  \"series\": [", s->o->coll->name, s->processors, s->nodes);
    for (int i = 0; i < s->count; i++) {
        const struct scale_series *r = &s->series[i];
        int knee = scale_knee(r);
        fprintf(f, "%s\n    {\"ranks\": %d, \"communicators\": %d, \"bound\": %s, \"stops_growing_at\": ", i ? "," : "", r->ranks, r->comms,
                r->bound ? "true" : "false");
        if (knee == r->count - 1)
            fprintf(f, "null");
        else
            fprintf(f, "%llu", (unsigned long long)r->points[knee].bytes);
        fprintf(f, ", \"limited_by\": \"%s\", \"points\": [", scale_limited_by(s, r, knee));
        for (int p = 0; p < r->count; p++)
            fprintf(f, "%s\n      {\"size\": %llu, \"time_us\": %.3f, \"limit_us\": %.3f, \"gb_s\": %.6f, \"limited_by\": \"%s\"}", p ? "," : "",
                    (unsigned long long)r->points[p].bytes, r->points[p].time_us, r->points[p].limit_us, r->points[p].gb_s,
                    scale_limited_by(s, r, p));
        fprintf(f, "]}");
    }
    fprintf(f, "\n  ]\n}\n");
}
