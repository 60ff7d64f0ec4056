/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_sweep.c - one crew's walk over types, operations, roots and sizes. Every crew makes the same calls in the same order;
 * only the crew with rank 0 has a report. One line: measure out of place, then in place (perf_measure.c).
 */
#include "perf_sweep.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

/* ---- one line -------------------------------------------------------------------------------------------------------------- */

static void explain(struct sweep *s, const struct job *j, struct line *line)
{
    char text[1024];
    if (!s->report || (!s->o->explain && !s->o->choices))
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
        TRY(sweep_time(s, j, half, &line.halves[half]));
        if (s->o->check > 0)
            TRY(sweep_check(s, j, half, &line.halves[half]));
    }
    if (s->limit) {
        if (s->report)
            report_progress(s->report, "measuring what the machine allows at %s", out_bytes(size, sizeof size, j->shown_bytes));
        TRY(perf_limit_measure(s->limit, s->c, j, &line.limit_us, &line.limit_how));
    }
    if (s->choices)
        TRY(perf_choices_measure(s, j, s->choices, &line.choices));
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
    const char *named = getenv("UNISONO_HOST"); /* several hosts of a launcher may be one machine's namespaces */
    struct rank_info *mine = calloc((size_t)s->c->mine, sizeof *mine);
    if (!mine)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < s->c->mine; i++) {
        struct rank_info *r = &mine[i];
        r->pid = (int)getpid();
        r->group = s->c->color;
        if (named && *named)
            snprintf(r->host, sizeof r->host, "%s", named);
        else
            gethostname(r->host, sizeof r->host - 1);
        processors_text(r->processors, sizeof r->processors);
        r->rss_start_kb = rss_start_kb;
        r->rss_end_kb = sweep_status_kb("/proc/self/status", "VmRSS:");
        r->own_kb = (long)(2 * s->buffer_bytes * (size_t)(s->o->threads ? s->o->threads : 1) * (size_t)s->c->mine / 1024);
    }
    uno_err err = perf_gather(s->c, mine, sizeof *mine, all);
    free(mine);
    for (int r = 0; r < s->c->world; r++) /* its place among the ranks of its host */
        for (int q = 0; q < r; q++)
            all[r].local += strcmp(all[q].host, all[r].host) == 0;
    return err;
}

/* What can only be judged when the number of ranks is known. */
static int check_ranks(struct sweep *s)
{
    const struct perf_options *o = s->o;
    int n = s->c->ranks, least = s->c->least; /* of the smallest group: all groups must walk the same lines */
    if (o->coll->rooted && o->root >= least)
        return perf_fail_text(s->c, "-r %d: there are %d ranks, so a root is 0 to %d, or all", o->root, least, least - 1);
    if (o->coll->rooted && o->root == PERF_ALL && n != least)
        return perf_fail_text(s->c, "-r all: the groups of the split have %d and %d ranks; give one root", n, least);
    if (strcmp(o->coll->name, "hypercube") == 0 && (n & (n - 1)))
        return perf_fail_text(s->c, "hypercube needs a power of two ranks, and there are %d", n);
    if (o->coll->reduces && o->op != PERF_ALL && o->type != PERF_ALL && !perf_op_fits(o->op, o->type))
        return perf_fail_text(s->c, "%s is not defined for %s", perf_op_word(o->op), perf_type_word(o->type));
    return CLI_GOOD;
}

static int finish(struct sweep *s, long rss_start_kb)
{
    struct report *r = s->report;
    struct rank_info *all = calloc((size_t)s->c->world, sizeof *all);
    uno_err err = all ? gather_ranks(s, all, rss_start_kb) : UNO_ERR_MEMORY;
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
    return r ? report_close(r) : CLI_GOOD;
}

static int open_all(struct sweep *s, struct report *report, long rss_start_kb)
{
    bool first = s->c->place == 0;
    char note[sizeof report->limit_note] = "";
    struct rank_info *all = calloc((size_t)s->c->world, sizeof *all);
    uno_err err = all ? gather_ranks(s, all, rss_start_kb) : UNO_ERR_MEMORY;
    if (err == UNO_OK)
        err = sweep_max_bytes(s);
    report->ranks = all;
    report->rank_count = s->c->world;
    if (err != UNO_OK)
        return perf_fail(s->c, err, "gathering who is there");
    int status = CLI_GOOD;
    if (s->o->coll == perf_coll_find("alltoallv"))
        err = perf_pairs_check(s->c, s->max_bytes, &status);
    if (err != UNO_OK)
        return perf_fail(s->c, err, "comparing the traffic matrix");
    if (status == CLI_GOOD)
        status = sweep_buffers(s);
    if (status != CLI_GOOD)
        return status;
    if (s->o->limit && s->c->groups > 1) {
        snprintf(note, sizeof note, "limit: not measured while %d groups run at the same time", s->c->groups);
    } else if (s->o->limit) {
        err = perf_limit_open(s->c, s->max_bytes, &s->limit, note, sizeof note);
        if (err != UNO_OK)
            return perf_fail(s->c, err, "preparing the limit");
    }
    if (s->o->choices && (status = perf_choices_open(s, &s->choices)) != CLI_GOOD)
        return status;
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
    long rss_start_kb = sweep_status_kb("/proc/self/status", "VmRSS:");
    int status = check_ranks(&s);
    if (status == CLI_GOOD)
        status = open_all(&s, &report, rss_start_kb);
    if (status == CLI_GOOD) {
        uno_err err = run_all(&s);
        status = err == UNO_OK ? finish(&s, rss_start_kb) : perf_fail(c, err, c->o->coll->name);
    }
    perf_limit_close(s.limit);
    perf_choices_close(s.choices);
    sweep_buffers_free(&s);
    report_free(&report);
    return status;
}
