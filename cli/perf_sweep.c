/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_sweep.c - one crew's walk over types, operations, roots and sizes. Every crew makes the same calls in the same order;
 * only the crew with rank 0 has a report. One line: warm up at this size, time, check, first out of place, then in place.
 */
#include "perf.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

enum { PAGE = 4096, POISON = 0xa5 };

struct buffers { char *send, *recv; };

struct sweep {
    struct crew *c;
    const struct perf_options *o;
    struct report *report;    /* NULL without rank 0 */
    struct limit *limit;
    size_t max_bytes;         /* -e, or what memory allows */
    size_t buffer_bytes;      /* of each buffer */
    struct buffers *buffers;  /* one pair a rank of this crew */
    uno_op *ops;              /* the operation of each rank: mulsum has one a communicator */
    size_t stride, shift;     /* where the next iteration's data are */
    double *times;            /* per iteration, us; NULL when not asked */
    uint64_t seed;
};

#define TRY(expr)                  \
    do {                           \
        uno_err try_err_ = (expr); \
        if (try_err_ != UNO_OK)    \
            return try_err_;       \
    } while (0)

/* ---- memory -------------------------------------------------------------------------------------------------- */

static long status_kb(const char *path, const char *field)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kb = strtol(line + strlen(field), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

/* The largest size whose buffers fit: two a rank, twice that for --limit, all ranks of this host. All crews agree. */
static uno_err agree_max_bytes(struct sweep *s)
{
    int hosts = uno_comm_hosts(s->c->comms[0]);
    double here = ceil((double)s->c->ranks / (hosts > 0 ? hosts : 1));
    double memory = 1024.0 * (double)status_kb("/proc/meminfo", "MemAvailable:") * 0.9;
    double each = here * 2.0 * (s->o->limit ? 2.0 : 1.0);
    double max_bytes = (double)s->o->max_bytes;
    while (memory > 0 && max_bytes * each > memory && max_bytes > (double)PAGE)
        max_bytes = floor(max_bytes / 2);
    double least = -max_bytes;
    TRY(perf_max(s->c, &least, 1));
    s->max_bytes = (size_t)-least;
    return UNO_OK;
}

static size_t last_cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0)
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : (size_t)32 << 20;
}

/* Cold buffers: all ranks' rounds together are twice the last cache, at most 512 MB a buffer. */
static size_t buffer_size(const struct sweep *s)
{
    size_t bytes = s->max_bytes;
    if (s->o->buffers == BUFFERS_COLD) {
        size_t round = 2 * last_cache_bytes(), most = (size_t)512 << 20;
        bytes = bytes * 2 > round ? bytes * 2 : round;
        if (bytes > most)
            bytes = most > s->max_bytes ? most : s->max_bytes;
    }
    return (bytes + (size_t)s->o->unalign * 16 + PAGE) / PAGE * PAGE + PAGE;
}

static bool get_memory(struct sweep *s, char **p)
{
    void *memory = NULL;
    if (s->o->shared_memory) {
        if (uno_mem_alloc(&memory, s->buffer_bytes) != UNO_OK)
            return false;
    } else if (posix_memalign(&memory, PAGE, s->buffer_bytes) != 0) {
        return false;
    }
    memset(memory, 0, s->buffer_bytes); /* touched before anything is timed */
    *p = memory;
    return true;
}

static void free_buffers(struct sweep *s)
{
    for (int i = 0; s->buffers && i < s->c->mine; i++) {
        char *both[2] = {s->buffers[i].send, s->buffers[i].recv};
        for (int b = 0; b < 2; b++)
            if (s->o->shared_memory)
                uno_mem_free(both[b]);
            else
                free(both[b]);
    }
    free(s->buffers);
    free(s->ops);
    free(s->times);
}

static int get_buffers(struct sweep *s)
{
    s->buffer_bytes = buffer_size(s);
    s->buffers = calloc((size_t)s->c->mine, sizeof *s->buffers);
    s->ops = calloc((size_t)s->c->mine, sizeof *s->ops);
    bool ok = s->buffers && s->ops;
    if (s->o->per_iter || s->o->percentiles) {
        s->times = calloc((size_t)s->o->iters, sizeof *s->times);
        ok = ok && s->times;
    }
    for (int i = 0; ok && i < s->c->mine; i++)
        ok = get_memory(s, &s->buffers[i].send) && get_memory(s, &s->buffers[i].recv);
    char size[32];
    return ok ? CLI_GOOD
              : perf_fail_text(s->c, "rank %d: no memory for two buffers of %s; make -e smaller", s->c->first,
                               out_bytes(size, sizeof size, s->buffer_bytes));
}

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

static uno_err timed_loop(struct sweep *s, const struct job *j, int half, double *total_s, double *issued_s)
{
    const struct perf_options *o = s->o;
    double excluded = 0, start = perf_now(), last = start;
    for (int n = 0; n < o->iters; n++) {
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

static uno_err time_half(struct sweep *s, const struct job *j, int half, struct half *h)
{
    double own[2], calls = (double)s->o->iters * s->o->agg_iters;
    start_buffers(s, j);
    for (int n = 0; n < s->o->warmup; n++)
        TRY(issue(s, j, half, s->o->agg_iters));
    TRY(wait_streams(s));
    TRY(perf_barrier(s->c));
    TRY(timed_loop(s, j, half, &own[0], &own[1]));
    double (*all)[2] = calloc((size_t)s->c->ranks + (size_t)s->c->mine, sizeof *all);
    if (!all)
        return UNO_ERR_MEMORY;
    double (*mine)[2] = all + s->c->ranks;
    for (int i = 0; i < s->c->mine; i++)
        memcpy(mine[i], own, sizeof own);
    uno_err err = perf_gather(s->c, mine, sizeof own, all);
    double seconds = combine(s->o->average, (const double (*)[2])all, s->c->ranks, 0) / calls;
    h->time_us = seconds * 1e6;
    h->cpu_us = combine(s->o->average, (const double (*)[2])all, s->c->ranks, 1) / calls * 1e6;
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

static uno_err check_half(struct sweep *s, const struct job *j, int half, struct half *h)
{
    int64_t *all = calloc((size_t)s->c->ranks + (size_t)s->c->mine, sizeof *all), *mine = all + s->c->ranks;
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
    for (int r = 0; r < s->c->ranks; r++)
        h->wrong += all[r];
    free(all);
    return err;
}

/* ---- one line -------------------------------------------------------------------------------------------------------------- */

static void explain(struct sweep *s, const struct job *j, struct line *line)
{
    char text[1024];
    if (!s->report || !s->o->explain)
        return;
    if (j->coll->explains < 0)
        snprintf(text, sizeof text, "sends and receives in a group: one lane a peer and direction, no algorithm to choose");
    else if (uno_comm_explain(s->c->comms[0], (uno_coll)j->coll->explains, j->count, (uno_type)j->type,
                              j->op < 0 ? UNO_SUM : s->ops[0], j->root < 0 ? 0 : j->root, text, sizeof text) != UNO_OK)
        snprintf(text, sizeof text, "not explained: %s", uno_last_error(s->c->comms[0]));
    line->explained = strdup(text);
}

static uno_err run_line(struct sweep *s, const struct job *j)
{
    struct line line = {.bytes = j->shown_bytes, .count = j->count, .type = j->type, .op = j->op, .root = j->root};
    char size[32];
    for (int half = 0; half < 2; half++) {
        line.halves[half].wrong = -1;
        if (s->report)
            report_progress(s->report, "measuring %s %s, %s", out_bytes(size, sizeof size, j->shown_bytes),
                            perf_type_word(j->type), half == 0 ? "first half of the line" : "second half of the line");
        TRY(time_half(s, j, half, &line.halves[half]));
        if (s->o->check > 0)
            TRY(check_half(s, j, half, &line.halves[half]));
    }
    if (s->limit) {
        if (s->report)
            report_progress(s->report, "measuring what the machine allows at %s", out_bytes(size, sizeof size, j->shown_bytes));
        TRY(perf_limit_measure(s->limit, s->c, j, &line.limit_us, &line.limit_how));
    }
    explain(s, j, &line);
    if (s->report)
        report_line(s->report, &line);
    return UNO_OK;
}

/* ---- all lines --------------------------------------------------------------------------------------------------------------- */

static uint64_t next_size(const struct perf_options *o, uint64_t size)
{
    if (o->step_factor <= 1)
        return size + (o->step_bytes ? o->step_bytes : 1);
    return size == 0 ? 1 : size > UINT64_MAX / (uint64_t)o->step_factor ? UINT64_MAX : size * (uint64_t)o->step_factor;
}

static uno_err run_sizes(struct sweep *s, int type, int op, int root)
{
    bool barrier = s->o->coll->explains == UNO_BARRIER;
    for (uint64_t size = s->o->min_bytes; size <= s->max_bytes; size = next_size(s->o, size)) {
        struct job j;
        if (!perf_job_init(&j, s->o->coll, s->c->ranks, type, op, root, size))
            return UNO_ERR_MEMORY;
        uno_err err = run_line(s, &j);
        perf_job_free(&j);
        TRY(err);
        if (barrier)
            break;
    }
    return UNO_OK;
}

/* The operation of each rank; mulsum is made on each communicator, with its rank's factor. */
static uno_err run_op(struct sweep *s, int type, int op)
{
    uno_err err = UNO_OK;
    int made = 0;
    for (; made < s->c->mine && err == UNO_OK; made++) {
        char factor[16];
        s->ops[made] = (uno_op)op;
        if (op != PERF_MULSUM)
            continue;
        perf_data_factor(type, s->c->first + made, factor);
        err = uno_op_create_premulsum(&s->ops[made], factor, (uno_type)type, s->c->comms[made]);
    }
    int first = s->o->root == PERF_ALL ? 0 : s->o->root, last = s->o->root == PERF_ALL ? s->c->ranks - 1 : s->o->root;
    if (!s->o->coll->rooted)
        first = last = 0;
    for (int root = first; root <= last && err == UNO_OK; root++)
        err = run_sizes(s, type, op, root);
    for (int i = 0; op == PERF_MULSUM && i < made; i++)
        uno_op_destroy(s->ops[i], s->c->comms[i]);
    return err;
}

static uno_err run_all(struct sweep *s)
{
    static const int all_types[] = {UNO_INT8, UNO_UINT8, UNO_INT32, UNO_UINT32, UNO_INT64, UNO_UINT64, UNO_FLOAT16,
                                    UNO_FLOAT32, UNO_FLOAT64, UNO_BFLOAT16, UNO_FLOAT8E4M3, UNO_FLOAT8E5M2};
    static const int all_ops[] = {UNO_SUM, UNO_PROD, UNO_MIN, UNO_MAX, UNO_AVG, PERF_MULSUM};
    bool reduces = s->o->coll->reduces;
    static const int one_type = UNO_FLOAT32;
    const int *types = s->o->coll->explains == UNO_BARRIER ? &one_type : s->o->type == PERF_ALL ? all_types : &s->o->type;
    const int *ops = reduces && s->o->op == PERF_ALL ? all_ops : &s->o->op;
    size_t type_count = types == all_types ? sizeof all_types / sizeof *all_types : 1;
    size_t op_count = ops == all_ops ? sizeof all_ops / sizeof *all_ops : 1;
    for (int cycle = 0; s->o->cycles == 0 || cycle < s->o->cycles; cycle++)
        for (size_t t = 0; t < type_count; t++)
            for (size_t o = 0; o < op_count; o++)
                if (!reduces || perf_op_fits(ops[o], types[t]))
                    TRY(run_op(s, types[t], ops[o]));
    return UNO_OK;
}

/* ---- who and where --------------------------------------------------------------------------------------------------------------- */

static void processors_text(char *buf, size_t bytes)
{
    cpu_set_t set;
    size_t n = 0;
    buf[0] = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int end = cpu;
        while (end < CPU_SETSIZE && CPU_ISSET(end, &set))
            end++;
        if (end == cpu || n + 16 > bytes)
            continue;
        n += (size_t)snprintf(buf + n, bytes - n, end - cpu == 1 ? "%s%d" : "%s%d-%d", n ? "," : "", cpu, end - 1);
        cpu = end;
    }
}

static uno_err gather_ranks(struct sweep *s, struct rank_info *all, long rss_start_kb)
{
    struct rank_info *mine = calloc((size_t)s->c->mine, sizeof *mine);
    if (!mine)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < s->c->mine; i++) {
        struct rank_info *r = &mine[i];
        r->pid = (int)getpid();
        gethostname(r->host, sizeof r->host - 1);
        processors_text(r->processors, sizeof r->processors);
        r->rss_start_kb = rss_start_kb;
        r->rss_end_kb = status_kb("/proc/self/status", "VmRSS:");
        r->own_kb = (long)(2 * s->buffer_bytes * (size_t)(s->o->threads ? s->o->threads : 1) * (size_t)s->c->mine / 1024);
    }
    uno_err err = perf_gather(s->c, mine, sizeof *mine, all);
    free(mine);
    for (int r = 0; r < s->c->ranks; r++) /* its place among the ranks of its host */
        for (int q = 0; q < r; q++)
            all[r].local += strcmp(all[q].host, all[r].host) == 0;
    return err;
}

/* What can only be judged when the number of ranks is known. */
static int check_ranks(struct sweep *s)
{
    const struct perf_options *o = s->o;
    int n = s->c->ranks;
    if (o->coll->rooted && o->root >= n)
        return perf_fail_text(s->c, "-r %d: there are %d ranks, so a root is 0 to %d, or all", o->root, n, n - 1);
    if (strcmp(o->coll->name, "hypercube") == 0 && (n & (n - 1)))
        return perf_fail_text(s->c, "hypercube needs a power of two ranks, and there are %d", n);
    if (o->coll->reduces && o->op != PERF_ALL && o->type != PERF_ALL && !perf_op_fits(o->op, o->type))
        return perf_fail_text(s->c, "%s is not defined for %s", perf_op_word(o->op), perf_type_word(o->type));
    return CLI_GOOD;
}

static int finish(struct sweep *s, long rss_start_kb)
{
    struct report *r = s->report;
    struct rank_info *all = calloc((size_t)s->c->ranks, sizeof *all);
    uno_err err = all ? gather_ranks(s, all, rss_start_kb) : UNO_ERR_MEMORY;
    int bad = r ? r->bad_lines : 0;
    if (r && err == UNO_OK) {
        free(r->ranks);
        r->ranks = all;
        all = NULL;
        if (uno_comm_counts(s->c->comms[0], &r->counts) != UNO_OK)
            memset(&r->counts, 0, sizeof r->counts);
    }
    free(all);
    if (err != UNO_OK)
        return perf_fail(s->c, err, "gathering the end");
    return r ? report_close(r) : bad ? CLI_BAD : CLI_GOOD;
}

static int open_all(struct sweep *s, struct report *report, long rss_start_kb)
{
    bool first = s->c->first == 0;
    char note[sizeof report->limit_note] = "";
    struct rank_info *all = calloc((size_t)s->c->ranks, sizeof *all);
    uno_err err = all ? gather_ranks(s, all, rss_start_kb) : UNO_ERR_MEMORY;
    if (err == UNO_OK)
        err = agree_max_bytes(s);
    report->ranks = all;
    report->rank_count = s->c->ranks;
    if (err != UNO_OK)
        return perf_fail(s->c, err, "gathering who is there");
    int status = get_buffers(s);
    if (status != CLI_GOOD)
        return status;
    if (s->o->limit) {
        err = perf_limit_open(s->c, s->max_bytes, &s->limit, note, sizeof note);
        if (err != UNO_OK)
            return perf_fail(s->c, err, "preparing the limit");
    }
    if (first && !report_open(report, s->c))
        return CLI_ERROR;
    if (first) {
        memcpy(report->limit_note, note, sizeof note);
        s->report = report;
        report_header(report, s->c, s->max_bytes);
    }
    return CLI_GOOD;
}

int perf_sweep(struct crew *c)
{
    struct report report = {0};
    struct sweep s = {.c = c, .o = c->o, .seed = 1};
    long rss_start_kb = status_kb("/proc/self/status", "VmRSS:");
    int status = check_ranks(&s);
    if (status == CLI_GOOD)
        status = open_all(&s, &report, rss_start_kb);
    if (status == CLI_GOOD) {
        uno_err err = run_all(&s);
        status = err == UNO_OK ? finish(&s, rss_start_kb) : perf_fail(c, err, c->o->coll->name);
    }
    perf_limit_close(s.limit);
    free_buffers(&s);
    report_free(&report);
    return status;
}
