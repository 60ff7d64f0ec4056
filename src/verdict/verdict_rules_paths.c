/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_rules_paths.c - rules about paths that are cut or slow, and about operations that all ranks have called and that do not
 * end all the same.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- paths ------------------------------------------------------------------------------------------------------------------- */

/* Does everything of this host stand, so that its silence says nothing of the network? */
static bool host_stands(const struct judge *j, int host)
{
    bool any = false;
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host) {
            if (!stands(&j->f->ranks[r]))
                return false;
            any = true;
        }
    return any;
}

static bool pair_known(const struct judge *j, const struct verdict_link *l)
{
    for (int i = 0; i < j->nfaults; i++) {
        const struct verdict_link *o = j->faults[i].kind == VERDICT_KIND_UNREACHABLE ? j->faults[i].link : NULL;
        if (o && ((o->from_host == l->from_host && o->to_host == l->to_host) ||
                  (o->from_host == l->to_host && o->to_host == l->from_host)))
            return true;
    }
    return false;
}

static bool host_silent(const struct judge *j, int host)
{
    bool any = false;
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host) {
            if (!gone(&j->f->ranks[r]))
                return false;
            any = true;
        }
    return any;
}

/* The ranks of a pair's silent host; none when both sides speak. */
static int silent_side(const struct judge *j, const struct verdict_link *l, int32_t *list)
{
    int n = 0;
    int host = host_silent(j, l->to_host) ? l->to_host : host_silent(j, l->from_host) ? l->from_host : -1;
    for (int r = 0; host >= 0 && r < j->size; r++)
        if (j->f->ranks[r].host_index == host)
            list[n++] = r;
    return n;
}

void find_unreachable(struct judge *j)
{
    int32_t *list = rank_list(j);
    for (int r = 0; list && r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++) {
            const struct verdict_link *l = &j->f->ranks[r].links[i];
            if (l->state == VERDICT_PATH_OK || l->state == VERDICT_PATH_MUTE || pair_known(j, l) || host_stands(j, l->to_host))
                continue;
            struct fault *x = fault_add(j, VERDICT_KIND_UNREACHABLE, list, silent_side(j, l, list));
            if (!x)
                break;
            x->link = l;
            x->link_reporter = r;
            x->since_ns = at_judge(j, r, l->since_ns);
        }
    free(list);
}

/* ---- all have called, and it does not end -------------------------------------------------------------------------------------- */

static bool all_inside(const struct judge *j, const struct group *g)
{
    return g->number != 0 && g->nabsent == 0 && !g->mismatched && g->nseats == (uint32_t)g->size && somebody_waits(j, g) &&
           old_enough(j, g->full_ns);
}

static struct fault *inside_fault(struct judge *j, struct group *g, enum verdict_kind kind, const int32_t *culprits, int n)
{
    struct fault *x = fault_add(j, kind, culprits, n);
    if (x) {
        x->group = g;
        x->number = g->number;
        x->since_ns = g->full_ns;
        x->sure = VERDICT_LIKELY;
    }
    return x;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Ranks that get far fewer processors than the group's others. */
static bool slow_ranks_inside(struct judge *j, struct group *g)
{
    int32_t *list = rank_list(j);
    uint64_t *share = mem_array(g->nseats, sizeof *share);
    int n = 0;
    bool found = false;
    j->no_memory = j->no_memory || !share;
    if (list && share) {
        for (uint32_t i = 0; i < g->nseats; i++)
            share[i] = j->f->ranks[g->seats[i].rank].process.queue_permille;
        qsort(share, g->nseats, sizeof *share, compare_u64);
        uint64_t median = share[(g->nseats - 1) / 2];
        for (uint32_t i = 0; i < g->nseats; i++) {
            const struct verdict_process *p = &j->f->ranks[g->seats[i].rank].process;
            if (starved(p) && p->queue_permille >= 3 * median)
                list[n++] = g->seats[i].rank;
        }
        sort_ranks(list, n);
        found = n > 0 && !job_wants(n, (int)g->nseats) && inside_fault(j, g, VERDICT_KIND_SLOW_RANK, list, n);
    }
    free(list);
    free(share);
    return found;
}

/* Median of what paths move, so that one slow path stands out even where nothing is known of what it should do. */
uint64_t usual_rate(const struct judge *j)
{
    uint64_t rates[256];
    size_t n = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks && n < ARRAY_LEN(rates); i++)
            if (j->f->ranks[r].links[i].measured_bps)
                rates[n++] = j->f->ranks[r].links[i].measured_bps;
    qsort(rates, n, sizeof *rates, compare_u64);
    return n >= 3 ? rates[n / 2] : 0;
}

bool host_in(const struct judge *j, const struct group *g, int host)
{
    for (uint32_t i = 0; i < g->nseats; i++)
        if (j->f->ranks[g->seats[i].rank].host_index == host)
            return true;
    return false;
}

static bool slow_link_of(struct judge *j, struct group *g, uint64_t usual)
{
    const struct verdict_link *worst = NULL;
    double worst_share = 1.0 / 3;
    int reporter = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++) {
            const struct verdict_link *l = &j->f->ranks[r].links[i];
            if (l->measured_bps == 0 || !host_in(j, g, l->from_host) || !host_in(j, g, l->to_host))
                continue;
            uint64_t should = MAX(l->expected_bps, usual);
            double share = should ? (double)l->measured_bps / (double)should : 1;
            if (share < worst_share) {
                worst_share = share;
                worst = l;
                reporter = r;
            }
        }
    struct fault *x = worst ? inside_fault(j, g, VERDICT_KIND_SLOW_LINK, NULL, 0) : NULL;
    if (x) {
        x->link = worst;
        x->link_reporter = reporter;
    }
    return x != NULL;
}

/* Does every rank that is in it tell when something last moved? Who does not is at work in it. */
static bool all_counted(const struct group *g)
{
    for (uint32_t i = 0; i < g->nseats; i++) {
        const struct verdict_event *e = event_at(g->seats[i].comm, g->number);
        if (e && e->state == VERDICT_RUNNING && e->moved_ns == 0)
            return false;
    }
    return true;
}

/* Nothing moves where nobody gets a processor. */
static bool some_starve(const struct judge *j, const struct group *g)
{
    for (uint32_t i = 0; i < g->nseats; i++)
        if (starved(&j->f->ranks[g->seats[i].rank].process))
            return true;
    return false;
}

void find_inside(struct judge *j)
{
    uint64_t usual = usual_rate(j);
    for (uint32_t i = 0; i < j->ngroups; i++) {
        struct group *g = &j->groups[i];
        if (!all_inside(j, g) || slow_ranks_inside(j, g) || slow_link_of(j, g, usual))
            continue;
        bool still = old_enough(j, g->moved_ns) && all_counted(g) && !some_starve(j, g);
        struct fault *x = inside_fault(j, g, still ? VERDICT_KIND_FAULT_OF_OURS : VERDICT_KIND_SLOW, NULL, 0);
        if (x && still)
            x->sure = VERDICT_GUESS; /* it is what remains when nothing else explains it */
    }
}
