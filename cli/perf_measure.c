/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_measure.c - one half of a line: warm up at this size, time, and check that every element is right. Every crew makes the same
 * calls in the same order.
 */
#include "perf_sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5 };

/* ---- calls ---------------------------------------------------------------------------------------------------------- */

/* half 0: out of place. half 1: in place, or exchanged buffers where there is no such form. */
static struct ends ends_of(const struct sweep *s, const struct job *j, int i, int half)
{
    const struct buffers *b = &s->buffers[i];
    size_t off = s->shift + (size_t)s->o->unalign * j->type_bytes, send_at, recv_at;
    if (half == 0)
        return (struct ends){b->send + off, b->recv + off};
    if (j->coll->exchanges)
        return (struct ends){b->recv + off, b->send + off};
    j->coll->in_place(j, s->c->first + i, &send_at, &recv_at);
    return (struct ends){b->recv + off + send_at * j->type_bytes, b->recv + off + recv_at * j->type_bytes};
}

static void next_buffers(struct sweep *s)
{
    s->shift += s->stride;
    if (s->stride == 0 || s->shift + s->stride > s->buffer_bytes - (size_t)s->o->unalign * 16 - PAGE)
        s->shift = 0;
}

/* nccl-tests' step from iteration to iteration is the size itself; cold data must not share a line or a page either. */
static void start_buffers(struct sweep *s, const struct job *j)
{
    size_t extent = j->extent * j->type_bytes;
    s->shift = s->stride = 0;
    if (s->o->buffers == BUFFERS_SHIFTED && 2 * extent <= s->max_bytes)
        s->stride = extent;
    else if (s->o->buffers == BUFFERS_COLD)
        s->stride = (extent + PAGE) / PAGE * PAGE;
}

/* One iteration: `calls` calls for each rank of the crew, grouped where there are several. */
static uno_err issue(struct sweep *s, const struct job *j, int half, int calls)
{
    int steps = j->coll->steps ? j->coll->steps(j) : 1;
    bool group = s->c->mine > 1 || calls > 1;
    size_t shift = s->shift;
    for (int step = 0; step < steps; step++) {
        s->shift = shift;
        if (group)
            TRY(uno_group_start());
        uno_err err = UNO_OK;
        for (int call = 0; call < calls; call++) {
            for (int i = 0; i < s->c->mine && err == UNO_OK; i++)
                err = j->coll->call(j, s->c->first + i, step, s->ops[i], ends_of(s, j, i, half), s->c->comms[i],
                                    s->c->streams[i]);
            next_buffers(s);
        }
        uno_err end = group ? uno_group_end() : UNO_OK;
        TRY(err);
        TRY(end);
    }
    return UNO_OK;
}

static uno_err wait_streams(struct sweep *s)
{
    for (int i = 0; s->o->use_stream && i < s->c->mine; i++)
        TRY(uno_stream_synchronize(s->c->streams[i]));
    return UNO_OK;
}

/* ---- timing ------------------------------------------------------------------------------------------------------------ */

/* Nothing changes from iteration to iteration, so that only the call itself is timed: a small one takes no longer than finding its
 * buffers. */
static bool calls_alone(const struct sweep *s, const struct job *j)
{
    return s->c->mine == 1 && s->o->agg_iters == 1 && s->stride == 0 && !j->coll->steps && !s->o->blocking && !s->times;
}

static uno_err call_loop(struct sweep *s, const struct job *j, int half)
{
    struct ends e = ends_of(s, j, 0, half);
    for (int n = 0; n < s->o->iters; n++)
        TRY(j->coll->call(j, s->c->first, 0, s->ops[0], e, s->c->comms[0], s->c->streams[0]));
    return UNO_OK;
}

static uno_err timed_loop(struct sweep *s, const struct job *j, int half, double *total_s, double *issued_s)
{
    const struct perf_options *o = s->o;
    double excluded = 0, start = perf_now(), last = start;
    bool alone = calls_alone(s, j);
    if (alone)
        TRY(call_loop(s, j, half));
    for (int n = 0; n < o->iters && !alone; n++) {
        TRY(issue(s, j, half, o->agg_iters));
        if (o->blocking || s->times)
            TRY(wait_streams(s));
        if (s->times) {
            double now = perf_now();
            s->times[n] = (now - last) / o->agg_iters * 1e6;
            last = now;
        }
        if (o->blocking == 1 || o->blocking == 3) {
            double before = perf_now();
            TRY(perf_barrier(s->c));
            last = perf_now();
            excluded += o->blocking == 3 ? last - before : 0;
        }
    }
    *issued_s = perf_now() - start - excluded;
    TRY(wait_streams(s));
    *total_s = perf_now() - start - excluded;
    return UNO_OK;
}

static double combine(enum perf_average how, const double (*pairs)[2], int ranks, int column)
{
    double value = pairs[0][column];
    for (int r = 1; r < ranks; r++) {
        double x = pairs[r][column];
        if (how == AVERAGE_MEAN)
            value += x;
        else if ((how == AVERAGE_MIN && x < value) || (how == AVERAGE_MAX && x > value))
            value = x;
    }
    return how == AVERAGE_MEAN ? value / ranks : value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, int n, int percent)
{
    int index = (n * percent + 99) / 100 - 1;
    return sorted[index < 0 ? 0 : index >= n ? n - 1 : index];
}

static void statistics(const double *times, int n, struct iter_stats *out)
{
    double *sorted = malloc((size_t)n * sizeof *sorted), sum = 0, square = 0;
    if (!sorted)
        return;
    memcpy(sorted, times, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    for (int i = 0; i < n; i++)
        sum += sorted[i];
    for (int i = 0; i < n; i++)
        square += (sorted[i] - sum / n) * (sorted[i] - sum / n);
    *out = (struct iter_stats){.min_us = sorted[0], .max_us = sorted[n - 1], .avg_us = sum / n,
                               .p50_us = percentile(sorted, n, 50), .p95_us = percentile(sorted, n, 95),
                               .p99_us = percentile(sorted, n, 99), .stdev_us = sqrt(square / n)};
    out->cv_pct = out->avg_us > 0 ? 100 * out->stdev_us / out->avg_us : 0;
    free(sorted);
}

/* Iterations of the slowest rank; the report keeps them. */
static uno_err combine_iterations(struct sweep *s, struct half *h)
{
    int skip = s->o->per_iter_skip < s->o->iters ? s->o->per_iter_skip : 0, n = s->o->iters - skip;
    TRY(perf_max(s->c, s->times, (size_t)s->o->iters));
    statistics(s->times + skip, n, &h->stats);
    if (s->report) {
        h->times_us = malloc((size_t)n * sizeof(double));
        h->times = h->times_us ? n : 0;
        if (h->times_us)
            memcpy(h->times_us, s->times + skip, (size_t)n * sizeof(double));
    }
    return UNO_OK;
}

uno_err sweep_time(struct sweep *s, const struct job *j, int half, struct half *h)
{
    double own[2], calls = (double)s->o->iters * s->o->agg_iters;
    start_buffers(s, j);
    for (int n = 0; n < s->o->warmup; n++)
        TRY(issue(s, j, half, s->o->agg_iters));
    TRY(wait_streams(s));
    TRY(perf_barrier(s->c));
    TRY(timed_loop(s, j, half, &own[0], &own[1]));
    double (*all)[2] = calloc((size_t)s->c->world + (size_t)s->c->mine, sizeof *all);
    if (!all)
        return UNO_ERR_MEMORY;
    double (*mine)[2] = all + s->c->world;
    for (int i = 0; i < s->c->mine; i++)
        memcpy(mine[i], own, sizeof own);
    uno_err err = perf_gather(s->c, mine, sizeof own, all);
    double seconds = combine(s->o->average, (const double (*)[2])all, s->c->world, 0) / calls;
    h->time_us = seconds * 1e6;
    h->cpu_us = combine(s->o->average, (const double (*)[2])all, s->c->world, 1) / calls * 1e6;
    h->alg_bw = j->coll->moved(j) / seconds / 1e9;
    h->bus_bw = h->alg_bw * j->coll->bus_factor(j);
    free(all);
    TRY(err);
    return s->times ? combine_iterations(s, h) : UNO_OK;
}

/* ---- checking ------------------------------------------------------------------------------------------------------------ */

static struct data_rule rule_of(const struct sweep *s, const struct job *j)
{
    return (struct data_rule){.type = j->type, .op = j->op, .ranks = j->ranks, .seed = s->seed};
}

/* Poison what may be written, then write the input: in place they overlap. */
static void prepare(struct sweep *s, const struct job *j, int half)
{
    struct data_rule rule = rule_of(s, j);
    size_t bytes = j->extent * j->type_bytes, off = s->shift + (size_t)s->o->unalign * j->type_bytes;
    for (int i = 0; i < s->c->mine; i++) {
        struct ends e = ends_of(s, j, i, half);
        memset(s->buffers[i].recv + off, POISON, bytes);
        memset(s->buffers[i].send + off, POISON, bytes);
        perf_data_fill(&rule, s->c->first + i, (void *)e.send, j->coll->input(j, s->c->first + i));
    }
}

static uint64_t count_wrong(const struct sweep *s, const struct job *j, int half, int i)
{
    struct data_rule rule = rule_of(s, j);
    struct segment segment;
    struct ends e = ends_of(s, j, i, half);
    uint64_t wrong = 0;
    for (int k = 0; j->coll->expect(j, s->c->first + i, k, &segment); k++)
        wrong += perf_data_wrong(&rule, &segment, e.recv);
    return wrong;
}

uno_err sweep_check(struct sweep *s, const struct job *j, int half, struct half *h)
{
    int64_t *all = calloc((size_t)s->c->world + (size_t)s->c->mine, sizeof *all), *mine = all + s->c->world;
    if (!all)
        return UNO_ERR_MEMORY;
    uno_err err = UNO_OK;
    start_buffers(s, j);
    for (int round = 0; round < s->o->check && err == UNO_OK; round++) {
        s->seed++;
        prepare(s, j, half);
        size_t shift = s->shift;
        err = issue(s, j, half, 1);
        if (err == UNO_OK)
            err = wait_streams(s);
        s->shift = shift;
        for (int i = 0; i < s->c->mine && err == UNO_OK; i++)
            mine[i] += (int64_t)count_wrong(s, j, half, i);
    }
    if (err == UNO_OK)
        err = perf_gather(s->c, mine, sizeof *mine, all);
    h->wrong = 0;
    for (int r = 0; r < s->c->world; r++)
        h->wrong += all[r];
    free(all);
    return err;
}
