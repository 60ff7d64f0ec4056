/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_rules_calls.c - rules about calls that do not fit together, and about communicators that have failed.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls ----------------------------------------------------------------------------------------------------------------- */

/* All that do not call what most call; when opinions are even, everybody. */
static int minority(const struct group *g, const struct call_class *classes, int nclasses, const signed char *of, int32_t *list)
{
    bool even = classes[0].n == classes[1].n;
    int n = 0;
    for (uint32_t i = 0; i < g->nseats; i++)
        if (of[i] >= 0 && (even || of[i] > 0) && of[i] < nclasses)
            list[n++] = g->seats[i].rank;
    return n;
}

/* A disagreement exists from the moment the last of the classes was called. */
static uint64_t disagree_since(const struct judge *j, const struct group *g, uint32_t number, int nclasses, const signed char *of)
{
    uint64_t since = 0;
    for (int k = 0; k < nclasses; k++) {
        uint64_t first = 0;
        for (uint32_t i = 0; i < g->nseats; i++) {
            const struct verdict_event *e = of[i] == k ? event_at(g->seats[i].comm, number) : NULL;
            uint64_t t = e ? at_judge(j, g->seats[i].rank, e->start_ns) : 0;
            first = first == 0 || (t && t < first) ? t : first;
        }
        since = MAX(since, first);
    }
    return since;
}

/* Opinions are even: their calls before tell which of the two classes has skipped one. Then only its ranks are left in `list`. */
static int even_shift(const struct group *g, const struct call_class *classes, uint32_t number, const signed char *of, int32_t *list, int *n)
{
    const struct verdict_comm *c = classes[0].seat->comm;
    const struct verdict_event *e = event_at(c, number);
    int skipped = verdict_skipped(c->events, (uint32_t)(e - c->events), classes[1].event, classes[0].event);
    *n = skipped ? 0 : *n;
    for (uint32_t i = 0; skipped && i < g->nseats; i++)
        if (of[i] == (skipped > 0 ? 1 : 0))
            list[(*n)++] = g->seats[i].rank;
    return skipped ? 1 : 0;
}

static void mismatch_in(struct judge *j, struct group *g, signed char *of, int32_t *list)
{
    bool by_signature, strong = false;
    uint32_t number = first_difference(g, &by_signature);
    if (number == 0)
        return;
    struct call_class classes[MOST_CLASSES];
    int n = classes_of(g, number, by_signature, classes, of);
    if (n < 2)
        return;
    int culprits = minority(g, classes, n, of, list);
    int shift = 0;
    if (n == 2 && classes[0].n > classes[1].n)
        shift = shifted(classes[1].seat->comm, classes[0].seat->comm, number, &strong);
    else if (n == 2 && !by_signature)
        shift = even_shift(g, classes, number, of, list, &culprits);
    sort_ranks(list, culprits);
    struct fault *x = fault_add(j, shift ? VERDICT_KIND_OFF_BY_ONE : VERDICT_KIND_MISMATCH, list, culprits);
    if (!x)
        return;
    g->mismatched = true;
    x->group = g;
    x->number = number;
    x->shift = shift;
    x->since_ns = disagree_since(j, g, number, n, of);
    x->sure = by_signature || (shift && !strong) ? VERDICT_LIKELY : VERDICT_SURE;
}

void find_mismatches(struct judge *j)
{
    signed char *of = mem_array((size_t)j->size, 1);
    int32_t *list = rank_list(j);
    j->no_memory = j->no_memory || !of;
    for (uint32_t i = 0; of && list && i < j->ngroups; i++)
        if (j->groups[i].nseats > 1)
            mismatch_in(j, &j->groups[i], of, list);
    free(of);
    free(list);
}

/* Who left in order, or finalized, is not dead, though the others' error has one code for both. */
static enum verdict_kind kind_of_error(const struct judge *j, const struct group *g, const struct verdict_comm *c)
{
    int32_t rank = c->failed_rank;
    const struct seat *s = rank >= 0 && rank < j->size ? seat_of(g, rank) : NULL;
    if (c->failed == UNO_ERR_PEER_DEAD && s && (s->comm->destroyed || j->f->ranks[rank].status == VERDICT_LEFT))
        return VERDICT_KIND_LEFT;
    return c->failed == UNO_ERR_PEER_DEAD ? VERDICT_KIND_DEAD : c->failed == UNO_ERR_UNREACHABLE ? VERDICT_KIND_UNREACHABLE
           : c->failed == UNO_ERR_MISMATCH ? VERDICT_KIND_MISMATCH : VERDICT_KIND_ABORTED;
}

/* Communicators that have failed: the earliest cause of each, as its rank told it. Counts where no rule sees the reason itself. */
void find_failed(struct judge *j)
{
    for (uint32_t i = 0; i < j->ngroups; i++) {
        struct group *g = &j->groups[i];
        const struct seat *first = NULL;
        uint64_t since = 0;
        for (uint32_t k = 0; k < g->nseats; k++) {
            uint64_t t = at_judge(j, g->seats[k].rank, g->seats[k].comm->failed_ns);
            if (g->seats[k].comm->failed != UNO_OK && (!first || (t && t < since))) {
                first = &g->seats[k];
                since = t;
            }
        }
        if (!first)
            continue;
        int32_t rank = first->comm->failed_rank;
        bool known = rank >= 0 && rank < j->size;
        struct fault *x = fault_add(j, kind_of_error(j, g, first->comm), &rank, known ? 1 : 0);
        if (!x)
            return;
        x->told = true;
        x->group = g;
        x->failed = first->comm;
        x->since_ns = since;
        x->sure = VERDICT_LIKELY;
    }
}
