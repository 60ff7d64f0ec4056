/* SPDX-License-Identifier: Apache-2.0 */
/* scene.c - see scene.h. */
#include "scene.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct group *group_named(struct judge *j, struct scene *s, const char *name, const char *words)
{
    struct group **slot = &s->hash[((uintptr_t)name >> 4) % (sizeof s->hash / sizeof *s->hash)];
    for (struct group *g = *slot; g; g = g->same_hash)
        if (g->name == name) {
            if (*words && same_text(g->words, g->name))
                g->words = words;
            return g;
        }
    struct group *g = model_alloc(j->m, sizeof *g);
    g->name = name;
    g->words = *words ? words : name;
    g->index = s->group_count++;
    g->lowest = NOBODY;
    g->next = s->groups;
    g->same_hash = *slot;
    *slot = s->groups = g;
    return g;
}

static void add_wait(struct judge *j, struct scene *s, struct wait w)
{
    if (s->wait_count == s->wait_cap) {
        int cap = s->wait_cap ? 2 * s->wait_cap : 64;
        struct wait *v = model_alloc(j->m, (size_t)cap * sizeof *v);
        if (s->wait_count)
            memcpy(v, s->waits, (size_t)s->wait_count * sizeof *v);
        s->waits = v;
        s->wait_cap = cap;
    }
    s->waits[s->wait_count++] = w;
}

/* ---- order, so that nothing is searched from end to end -------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct wait *x = a, *y = b;
    if (x->group != y->group)
        return x->group->index < y->group->index ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->p2p != y->p2p)
        return x->p2p ? 1 : -1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->fact->order < y->fact->order ? -1 : x->fact->order > y->fact->order;
}

static void order_waits(struct judge *j, struct scene *s)
{
    if (s->wait_count)
        qsort(s->waits, (size_t)s->wait_count, sizeof *s->waits, by_place);
    int kept = 0;
    for (int i = 0; i < s->wait_count; i++) { /* the same wait, told twice */
        const struct wait *w = &s->waits[i], *k = kept ? &s->waits[kept - 1] : NULL;
        if (!k || k->rank != w->rank || k->group != w->group || k->number != w->number || k->p2p != w->p2p)
            s->waits[kept++] = *w;
    }
    s->wait_count = kept;
    for (int i = 0; i < kept; i++) {
        struct group *g = s->waits[i].group;
        if (g->to == 0)
            g->from = i;
        g->to = i + 1;
        if (!s->waits[i].p2p && (g->lowest == NOBODY || s->waits[i].number < g->lowest))
            g->lowest = s->waits[i].number;
        ranks_add(j->m, &s->waiting, s->waits[i].rank);
    }
}

static int by_pace(const void *a, const void *b)
{
    const struct pace *x = a, *y = b;
    return x->group != y->group ? (x->group < y->group ? -1 : 1) : x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void take_paces(struct judge *j, struct scene *s)
{
    size_t most = j->m->counted[F_PROGRESS] + j->m->counted[F_OP];
    struct pace *v = s->paces = model_alloc(j->m, most * sizeof *v);
    int n = 0;
    EACH_FACT(j->m, F_PROGRESS, p)
        if (p->rank != NOBODY)
            v[n++] = (struct pace){group_named(j, s, p->name, "")->index, p->rank, p->a, p->b};
    EACH_FACT(j->m, F_OP, o)
        if (o->rank != NOBODY && !(o->d & 1))
            v[n++] = (struct pace){group_named(j, s, o->name, "")->index, o->rank, o->a, o->c == 2 ? o->a : NOBODY};
    if (n)
        qsort(v, (size_t)n, sizeof *v, by_pace);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (kept && by_pace(&v[kept - 1], &v[i]) == 0) {
            v[kept - 1].issued = v[i].issued > v[kept - 1].issued ? v[i].issued : v[kept - 1].issued;
            v[kept - 1].completed = v[i].completed > v[kept - 1].completed ? v[i].completed : v[kept - 1].completed;
        } else {
            v[kept++] = v[i];
        }
    }
    s->pace_count = kept;
}

static const struct pace *pace_of(const struct scene *s, int rank, const struct group *g)
{
    struct pace key = {g->index, rank, 0, 0};
    return s->pace_count ? bsearch(&key, s->paces, (size_t)s->pace_count, sizeof key, by_pace) : NULL;
}

static struct wait wait_of(struct group *g, const struct fact *op)
{
    return (struct wait){.rank = op->rank, .group = g, .number = op->a, .op = op->value, .elements = op->b, .state = (int)op->c, .p2p = op->d & 1,
                         .on_host = op->d & 2, .peer = op->peer, .site = op->more, .shape = op->extra, .fact = op};
}

/* ---- from dumps ---------------------------------------------------------------------------------------------------------------- */

static void take_dumps(struct judge *j, struct scene *s)
{
    EACH_FACT(j->m, F_DUMP, f)
        ranks_add(j->m, &s->dumps, f->rank);
    s->recorded = s->dumps.n > 0;
    EACH_FACT(j->m, F_GROUP, f) {
        struct group *g = group_named(j, s, f->name, f->extra);
        ranks_add_list(j->m, &g->members, f->value);
        g->whole = g->whole || *f->value;
        g->everyone = g->everyone || same_text(f->extra, "default_pg");
    }
    EACH_FACT(j->m, F_OP, f) {
        if (f->rank == NOBODY)
            continue;
        struct group *g = group_named(j, s, f->name, "");
        if (!g->whole)
            ranks_add(j->m, &g->members, f->rank);
        if (f->c == 2)
            continue;
        add_wait(j, s, wait_of(g, f));
    }
}

/* ---- from watchdogs -------------------------------------------------------------------------------------------------------------- */

/* A watchdog's line need not name its group; the status line of the same rank and number does. */
static const struct fact *status_of(const struct judge *j, const struct fact *w)
{
    const struct fact *loose = NULL;
    EACH_FACT(j->m, F_PROGRESS, p) {
        if (p->rank != w->rank || (*w->name && !same_text(w->name, p->name)))
            continue;
        if (p->c == w->a)
            return p;
        if (p->a >= w->a && p->b < w->a)
            loose = p;
    }
    return loose;
}

static void take_watchdogs(struct judge *j, struct scene *s)
{
    EACH_FACT(j->m, F_PROGRESS, p) {
        if (same_text(p->value, "dump") || p->rank == NOBODY)
            continue;
        struct group *g = group_named(j, s, p->name, p->more);
        ranks_add(j->m, &g->members, p->rank);
    }
    EACH_FACT(j->m, F_WATCHDOG, w) {
        const struct fact *p = status_of(j, w);
        const char *name = *w->name ? w->name : p ? p->name : "";
        struct group *g = group_named(j, s, name, *w->more ? w->more : p ? p->more : "");
        if (!g->whole)
            ranks_add(j->m, &g->members, w->rank);
        add_wait(j, s, (struct wait){.rank = w->rank, .group = g, .number = w->a, .op = w->value, .elements = w->b, .state = NOBODY, .peer = NOBODY,
                                     .p2p = same_text(w->value, "SEND") || same_text(w->value, "RECV") || same_text(w->value, "COALESCED"), .site = "", .shape = "", .fact = w});
    }
}

/* The default group has every rank from 0 on; where only lines are known, a gap in them is somebody who said nothing. */
static void fill_default(struct judge *j, struct scene *s)
{
    for (struct group *g = s->groups; g; g = g->next) {
        g->everyone = g->everyone || same_text(g->words, "default_pg") || !*g->name;
        if (!g->everyone || g->whole || g->members.n < 2)
            continue;
        int top = g->members.v[g->members.n - 1];
        EACH_FACT(j->m, F_INIT, f)
            if (f->a - 1 > top && f->a < 1 << 16)
                top = (int)f->a - 1;
        for (int r = 0; r <= top; r++)
            ranks_add(j->m, &g->members, r);
    }
}

struct scene *scene_of(struct judge *j)
{
    if (j->scene)
        return j->scene;
    struct scene *s = j->scene = model_alloc(j->m, sizeof *s);
    take_dumps(j, s);
    take_watchdogs(j, s);
    fill_default(j, s);
    take_paces(j, s);
    order_waits(j, s);
    for (int i = 0; i < s->waiting.n; i++)
        ranks_add(j->m, &s->speakers, s->waiting.v[i]);
    EACH_FACT(j->m, F_PROGRESS, p)
        ranks_add(j->m, &s->speakers, p->rank);
    return s;
}

struct wait ended_there(const struct scene *s, const struct fact *op)
{
    struct group *g = s->hash[((uintptr_t)op->name >> 4) % (sizeof s->hash / sizeof *s->hash)];
    while (g && g->name != op->name)
        g = g->same_hash;
    return wait_of(g, op);
}

const struct wait *first_wait(const struct scene *s, int rank, const struct group *g)
{
    int lo = g->from, hi = g->to;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (s->waits[mid].rank < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < g->to && s->waits[lo].rank == rank && !s->waits[lo].p2p ? &s->waits[lo] : NULL;
}

const struct wait *any_wait(const struct scene *s, int rank)
{
    if (!ranks_has(&s->waiting, rank))
        return NULL;
    for (int i = 0; i < s->wait_count; i++)
        if (s->waits[i].rank == rank)
            return &s->waits[i];
    return NULL;
}

static bool issued_before(const struct wait *a, const struct wait *b)
{
    double x = a->fact->time_s, y = b->fact->time_s;
    return x > 0 && y > 0 && x != y ? x < y : a->fact->order < b->fact->order;
}

const struct wait *oldest_wait(const struct scene *s, int rank)
{
    const struct wait *oldest = NULL;
    for (const struct group *g = s->groups; g && ranks_has(&s->waiting, rank); g = g->next) {
        const struct wait *w = g->from < g->to ? first_wait(s, rank, g) : NULL;
        if (w && (!oldest || issued_before(w, oldest)))
            oldest = w;
    }
    return oldest;
}

bool has_completed(const struct scene *s, int rank, const struct group *g, int64_t number)
{
    const struct wait *w = first_wait(s, rank, g);
    if (w)
        return w->number > number; /* operations of a group end in their order */
    const struct pace *p = pace_of(s, rank, g);
    return p && p->completed >= number;
}

int64_t last_issued(const struct scene *s, int rank, const struct group *g)
{
    const struct pace *p = pace_of(s, rank, g);
    return p ? p->issued : NOBODY;
}

const char *operation_says(struct judge *j, const struct wait *w)
{
    char op[48];
    snprintf(op, sizeof op, "%s", w->op);
    for (char *p = op; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    if (same_text(op, "allreduce"))
        snprintf(op, sizeof op, "all_reduce");
    const char *group = *w->group->words ? model_say(j->m, " of group %s", w->group->words) : "";
    const char *meaning = w->elements == 1 && same_text(op, "all_reduce") ? " (of one element: a barrier)" : "";
    return model_say(j->m, "operation %lld, %s%s%s", (long long)w->number, op, group, meaning);
}
