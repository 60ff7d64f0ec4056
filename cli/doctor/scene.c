/* SPDX-License-Identifier: Apache-2.0 */
/* scene.c - see scene.h. */
#include "scene.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct group *group_named(struct judge *j, struct scene *s, const char *name, const char *words)
{
    for (struct group *g = s->groups; g; g = g->next)
        if (same_text(g->name, name)) {
            if (*words && same_text(g->words, g->name))
                g->words = words;
            return g;
        }
    struct group *g = model_alloc(j->m, sizeof *g);
    g->name = name;
    g->words = *words ? words : name;
    g->next = s->groups;
    s->groups = g;
    return g;
}

static struct wait *add_wait(struct judge *j, struct scene *s, struct wait w)
{
    for (int i = 0; i < s->wait_count; i++) {
        struct wait *k = &s->waits[i];
        if (k->rank == w.rank && k->group == w.group && k->number == w.number && k->p2p == w.p2p)
            return k;
    }
    if (s->wait_count == s->wait_cap) {
        int cap = s->wait_cap ? 2 * s->wait_cap : 64;
        struct wait *v = model_alloc(j->m, (size_t)cap * sizeof *v);
        if (s->wait_count)
            memcpy(v, s->waits, (size_t)s->wait_count * sizeof *v);
        s->waits = v;
        s->wait_cap = cap;
    }
    s->waits[s->wait_count] = w;
    return &s->waits[s->wait_count++];
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
        g->whole = true;
        g->everyone = g->everyone || same_text(f->extra, "default_pg");
    }
    EACH_FACT(j->m, F_OP, f) {
        if (f->c == 2 || f->rank == NOBODY || begins(f->name, "comm "))
            continue;
        struct group *g = group_named(j, s, f->name, "");
        if (!g->whole)
            ranks_add(j->m, &g->members, f->rank);
        add_wait(j, s, (struct wait){.rank = f->rank, .group = g, .number = f->a, .op = f->value, .elements = f->b, .state = (int)f->c, .p2p = f->d & 1,
                                     .peer = f->peer, .site = f->more, .shape = f->extra, .fact = f});
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
    for (int i = 0; i < s->wait_count; i++)
        ranks_add(j->m, &s->speakers, s->waits[i].rank);
    EACH_FACT(j->m, F_PROGRESS, p)
        ranks_add(j->m, &s->speakers, p->rank);
    return s;
}

const struct wait *first_wait(const struct scene *s, int rank, const struct group *g)
{
    const struct wait *best = NULL;
    for (int i = 0; i < s->wait_count; i++) {
        const struct wait *w = &s->waits[i];
        if (w->rank == rank && w->group == g && !w->p2p && (!best || w->number < best->number))
            best = w;
    }
    return best;
}

const struct wait *any_wait(const struct scene *s, int rank)
{
    for (int i = 0; i < s->wait_count; i++)
        if (s->waits[i].rank == rank)
            return &s->waits[i];
    return NULL;
}

int64_t lowest_wait(const struct scene *s, const struct group *g)
{
    int64_t lowest = NOBODY;
    for (int i = 0; i < s->wait_count; i++)
        if (s->waits[i].group == g && !s->waits[i].p2p && (lowest == NOBODY || s->waits[i].number < lowest))
            lowest = s->waits[i].number;
    return lowest;
}

bool has_completed(const struct judge *j, const struct scene *s, int rank, const struct group *g, int64_t number)
{
    const struct wait *w = first_wait(s, rank, g);
    if (w)
        return w->number > number; /* operations of a group end in their order */
    EACH_FACT(j->m, F_PROGRESS, p)
        if (p->rank == rank && same_text(p->name, g->name) && p->b >= number)
            return true;
    EACH_FACT(j->m, F_OP, o)
        if (o->rank == rank && o->c == 2 && !o->d && o->a >= number && same_text(o->name, g->name))
            return true;
    return false;
}

int64_t last_issued(const struct judge *j, const struct scene *s, int rank, const struct group *g)
{
    int64_t last = NOBODY;
    EACH_FACT(j->m, F_PROGRESS, p)
        if (p->rank == rank && same_text(p->name, g->name) && p->a > last)
            last = p->a;
    EACH_FACT(j->m, F_OP, o)
        if (o->rank == rank && !o->d && o->a > last && same_text(o->name, g->name))
            last = o->a;
    return last;
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
