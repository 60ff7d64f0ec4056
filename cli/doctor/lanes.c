/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.c - see lanes.h: gather, say where each stands, put together what stands alike, find the axis. */
#include "lanes.h"

#include <stdlib.h>
#include <string.h>

#include "scene.h"

const struct lane_look lane_looks[LANE_STATES] = {
#define LANE_STATE(name, class, words) {class, words},
#include "lanes.def"
#undef LANE_STATE
};

enum { LANES_MOST = 1 << 16 };
static const double CLOCKS_APART_S = 10 * 86400.0; /* two events further apart than any job stands are of two clocks */

struct gather {
    struct judge *j;
    struct lane *v;
    int count, cap;
    struct names keys;      /* of lanes */
    struct names processes; /* of communicators' lines: host, pid and GPU */
    int *process_ranks, process_cap;
};

/* ---- who it is ------------------------------------------------------------------------------------------------------------------- */

static const char *process_key(struct model *m, const struct fact *f, bool with_gpu)
{
    return model_say(m, "%s/%lld/%d", f->host, (long long)f->pid, with_gpu ? f->dev : NOBODY);
}

static void keep_process(struct gather *g, const char *key, int rank)
{
    if (names_has(&g->processes, key))
        return;
    names_add(g->j->m, &g->processes, key);
    if (g->processes.n > g->process_cap) {
        int cap = g->process_cap ? 2 * g->process_cap : 64;
        int *v = model_alloc(g->j->m, (size_t)cap * sizeof *v);
        if (g->process_cap)
            memcpy(v, g->process_ranks, (size_t)g->process_cap * sizeof *v);
        g->process_ranks = v;
        g->process_cap = cap;
    }
    g->process_ranks[g->processes.n - 1] = rank;
}

static void know_processes(struct gather *g)
{
    EACH_FACT(g->j->m, F_INIT, f)
        if (f->pid != NOBODY && f->rank != NOBODY) {
            keep_process(g, process_key(g->j->m, f, true), f->rank);
            keep_process(g, process_key(g->j->m, f, false), f->rank);
        }
}

static int rank_of_fact(struct gather *g, const struct fact *f)
{
    if (f->rank != NOBODY || f->pid == NOBODY)
        return f->rank;
    int at = names_index(&g->processes, process_key(g->j->m, f, true));
    if (at < 0)
        at = names_index(&g->processes, process_key(g->j->m, f, false));
    return at < 0 ? NOBODY : g->process_ranks[at];
}

static struct lane *lane_named(struct gather *g, const char *key, int rank)
{
    int at = names_index(&g->keys, key);
    if (at >= 0)
        return &g->v[at];
    if (g->count == LANES_MOST)
        return NULL;
    if (g->count == g->cap) {
        int cap = g->cap ? 2 * g->cap : 64;
        struct lane *v = model_alloc(g->j->m, (size_t)cap * sizeof *v);
        if (g->count)
            memcpy(v, g->v, (size_t)g->count * sizeof *v);
        g->v = v;
        g->cap = cap;
    }
    names_add(g->j->m, &g->keys, key);
    g->v[g->count] = (struct lane){.key = key, .rank = rank, .name = key, .place = "", .does = "", .site = "", .number = NOBODY};
    return &g->v[g->count++];
}

static struct lane *lane_of_rank(struct gather *g, int rank)
{
    return rank == NOBODY ? NULL : lane_named(g, model_say(g->j->m, "rank %d", rank), rank);
}

/* NULL for what nobody in particular said. */
static struct lane *lane_of(struct gather *g, const struct fact *f)
{
    struct model *m = g->j->m;
    int rank = rank_of_fact(g, f);
    bool host = *f->host && !begins(f->host, "rank ");
    struct lane *l = rank != NOBODY       ? lane_of_rank(g, rank)
                     : f->pid != NOBODY   ? lane_named(g, model_say(m, "process %lld%s%s", (long long)f->pid, host ? " on " : "", host ? f->host : ""), NOBODY)
                     : host               ? lane_named(g, f->host, NOBODY)
                                          : NULL;
    if (l && rank != NOBODY && !*l->place && host)
        l->place = f->dev != NOBODY ? model_say(m, "GPU %d on %s", f->dev, f->host) : f->host;
    return l;
}

/* ---- what it does ---------------------------------------------------------------------------------------------------------------- */

static void stands(struct lane *l, enum lane_state state, const char *does, int64_t number)
{
    if (!l || state <= l->state)
        return;
    l->state = state;
    l->does = does;
    l->number = number != NOBODY ? number : l->number;
}

static double began(const struct fact *f)
{
    if (f->kind == F_WATCHDOG)
        return f->time_s > 0 && f->d > 0 ? f->time_s - (double)f->d / 1000 : 0;
    return f->time_s;
}

static void take_bar(struct lane *l, struct model *m, struct lane_bar bar)
{
    if (!l || bar.from <= 0 || l->bar_count == LANE_BARS)
        return;
    if (l->bar_count == l->bar_cap) {
        int cap = l->bar_cap ? 2 * l->bar_cap : 8;
        struct lane_bar *v = model_alloc(m, (size_t)cap * sizeof *v);
        if (l->bar_count)
            memcpy(v, l->bars, (size_t)l->bar_count * sizeof *v);
        l->bars = v;
        l->bar_cap = cap;
    }
    l->bars[l->bar_count++] = bar;
}

/* Of what it waits in, the oldest: the rest waits behind it. */
static void take_waits(struct gather *g, const struct scene *s)
{
    struct model *m = g->j->m;
    for (int i = 0; i < s->wait_count; i++) {
        const struct wait *w = &s->waits[i];
        struct lane *l = lane_of_rank(g, w->rank);
        double since = began(w->fact);
        if (!l)
            continue;
        const char *does = model_say(m, "in %s", operation_says(g->j, w));
        enum lane_state state = w->state == 1 ? LANE_RUNNING : LANE_CALLED;
        take_bar(l, m, (struct lane_bar){since, 0, state, does});
        if (*l->does && (l->since == 0 || since == 0 || l->since <= since))
            continue;
        l->state = state;
        l->does = does;
        l->site = w->site;
        l->number = w->number;
        l->since = since;
    }
    EACH_FACT(m, F_OP, f)
        if (f->c == 2)
            take_bar(lane_of(g, f), m, (struct lane_bar){f->time_s, f->x > 0 ? f->time_s + f->x : f->time_s, LANE_DONE, f->text});
}

/* Of the groups that miss it, the smallest says most. */
static void miss(struct lane *l, const char *does, int64_t number, int of)
{
    l->state = LANE_ABSENT;
    l->does = does;
    l->number = number;
    l->of = of;
}

static void take_absent(struct gather *g, const struct scene *s)
{
    for (const struct group *p = s->groups; p; p = p->next) {
        const struct wait *one = NULL;
        for (int i = p->from; i < p->to && !one; i++)
            one = !s->waits[i].p2p && s->waits[i].number == p->lowest ? &s->waits[i] : NULL;
        for (int i = 0; i < p->members.n; i++) {
            int r = p->members.v[i];
            struct lane *l = lane_of_rank(g, r);
            bool dumped = ranks_has(&s->dumps, r);
            if (!l || ranks_has(&s->waiting, r))
                continue;
            if (s->recorded && !dumped)
                stands(l, LANE_SEEN, "wrote no dump", NOBODY);
            else if (one && (l->state != LANE_ABSENT || p->members.n < l->of) && !first_wait(s, r, p) && !has_completed(s, r, p, p->lowest) && last_issued(s, r, p) < p->lowest)
                miss(l, model_say(g->j->m, "never came to %s, where others wait", operation_says(g->j, one)), last_issued(s, r, p), p->members.n);
        }
    }
}

static void take_seen(struct gather *g)
{
    struct model *m = g->j->m;
    EACH_FACT(m, F_PROGRESS, f)
        stands(lane_of(g, f), LANE_DONE, model_say(m, "ended operation %lld", (long long)f->b), f->b);
    EACH_FACT(m, F_DUMP, f)
        stands(lane_of(g, f), LANE_DONE, f->a ? "nothing unfinished in its dump" : "its dump is empty", NOBODY);
    EACH_FACT(m, F_LAST_OP, f)
        stands(lane_of(g, f), LANE_SEEN, model_say(m, "called %s %lld last", f->last_word, (long long)f->last_number), f->last_number);
    EACH_FACT(m, F_INIT, f)
        if (f->b == 1)
            stands(lane_of(g, f), LANE_SEEN, "joined its communicator", NOBODY);
    EACH_FACT(m, F_INIT, f)
        if (f->b == 0)
            stands(lane_of(g, f), LANE_SEEN, "began to join a communicator", NOBODY);
    EACH_FACT(m, F_RAS_COUNT, f) {
        struct ranks listed = {0};
        ranks_add_list(m, &listed, f->extra);
        const char *does = model_say(m, "launched %s up to operation %lld", f->value, (long long)f->a);
        for (int i = 0; i < listed.n; i++)
            stands(lane_of_rank(g, listed.v[i]), LANE_SEEN, does, f->a);
        if (f->b > listed.n)
            stands(lane_named(g, model_say(m, "%lld that are not listed, of %s", (long long)f->b - listed.n, f->name), NOBODY), LANE_SEEN, does, f->a);
    }
}

static void mark(struct gather *g, const struct fact *f, const char *words, enum lane_state state)
{
    struct lane *l = lane_of(g, f);
    if (!l)
        return;
    if (l->mark_count < LANE_MARKS)
        l->marks[l->mark_count++] = (struct lane_mark){words, f, f->time_s};
    else
        l->marks_more++;
    if (state > l->state)
        l->state = state;
}

static void take_marks(struct gather *g)
{
#define MARK(kind, words, state) \
    EACH_FACT(g->j->m, F_##kind, f) \
        mark(g, f, words, LANE_##state);
#include "lanes.def"
#undef MARK
}

/* ---- order, and those that stand alike ---------------------------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b)
{
    const struct lane *x = a, *y = b;
    if ((x->rank == NOBODY) != (y->rank == NOBODY))
        return x->rank == NOBODY ? 1 : -1;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : strcmp(x->name, y->name);
}

/* What is seldom stands first; then by rank. */
static int by_interest(const void *a, const void *b)
{
    const struct lane *x = a, *y = b;
    int nx = x->ranks.n + x->others, ny = y->ranks.n + y->others;
    return nx != ny ? (nx < ny ? -1 : 1) : x->state != y->state ? (x->state > y->state ? -1 : 1) : by_rank(a, b);
}

static const char *alike_key(struct model *m, const struct lane *l)
{
    const char *key = model_say(m, "%d|%s|%s", l->state, l->does, l->site);
    for (int i = 0; i < l->mark_count; i++)
        key = model_say(m, "%s|%s", key, l->marks[i].words);
    return key;
}

static void put_together(struct gather *g)
{
    struct names keys = {0};
    int kept = 0;
    for (int i = 0; i < g->count; i++) {
        const char *key = alike_key(g->j->m, &g->v[i]);
        int at = names_index(&keys, key);
        if (at < 0) {
            names_add(g->j->m, &keys, key);
            g->v[kept++] = g->v[i];
            continue;
        }
        struct lane *first = &g->v[at], *l = &g->v[i];
        if (l->rank != NOBODY)
            ranks_add(g->j->m, &first->ranks, l->rank);
        else
            first->others++;
        if (l->since > 0 && (first->since == 0 || l->since < first->since))
            first->since = l->since;
    }
    g->count = kept;
    qsort(g->v, (size_t)kept, sizeof *g->v, by_interest);
}

/* ---- the axis ------------------------------------------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Logs with dates, logs without a year, a kernel's seconds and a recorder's do not share a zero: the clock that says most is drawn. */
static void find_times(struct lanes *ls, struct model *m)
{
    size_t n = 0, most = 0;
    for (int i = 0; i < ls->count; i++)
        most += 2 * (size_t)ls->v[i].bar_count + (size_t)ls->v[i].mark_count;
    double *t = model_alloc(m, (most + 1) * sizeof *t);
    for (int i = 0; i < ls->count; i++) {
        for (int k = 0; k < ls->v[i].bar_count; k++) {
            t[n++] = ls->v[i].bars[k].from;
            if (ls->v[i].bars[k].to > 0)
                t[n++] = ls->v[i].bars[k].to;
        }
        for (int k = 0; k < ls->v[i].mark_count; k++)
            if (ls->v[i].marks[k].at > 0)
                t[n++] = ls->v[i].marks[k].at;
    }
    if (n < 2)
        return;
    qsort(t, n, sizeof *t, by_size);
    size_t best = 0, best_n = 0;
    for (size_t from = 0, i = 1; i <= n; i++)
        if (i == n || t[i] - t[i - 1] > CLOCKS_APART_S) {
            if (i - from > best_n)
                best = from, best_n = i - from;
            from = i;
        }
    ls->from = t[best];
    ls->to = t[best + best_n - 1];
    ls->timed = ls->to > ls->from;
}

static void find_numbers(struct lanes *ls)
{
    ls->low = ls->high = NOBODY;
    for (int i = 0; i < ls->count; i++) {
        int64_t n = ls->v[i].number;
        if (n == NOBODY)
            continue;
        ls->low = ls->low == NOBODY || n < ls->low ? n : ls->low;
        ls->high = n > ls->high ? n : ls->high;
    }
}

struct lanes *lanes_of(struct judge *j)
{
    struct gather g = {.j = j};
    const struct scene *s = scene_of(j);
    know_processes(&g);
    take_waits(&g, s);
    take_absent(&g, s);
    take_seen(&g);
    take_marks(&g);
    if (!g.count)
        return NULL;
    qsort(g.v, (size_t)g.count, sizeof *g.v, by_rank);
    struct lanes *ls = model_alloc(j->m, sizeof *ls);
    ls->heard = g.count;
    ls->cells = model_alloc(j->m, (size_t)g.count * sizeof *ls->cells);
    for (int i = 0; i < g.count; i++) {
        ls->cells[i] = (struct lane_cell){g.v[i].name, g.v[i].state};
        if (g.v[i].rank != NOBODY)
            ranks_add(j->m, &g.v[i].ranks, g.v[i].rank);
        else
            g.v[i].others = 1;
    }
    if (g.count > LANES_APART)
        put_together(&g);
    ls->v = g.v;
    ls->count = g.count;
    find_times(ls, j->m);
    find_numbers(ls);
    return ls;
}
