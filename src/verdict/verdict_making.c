/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_making.c - ranks that wait in uno_comm_create_group or uno_comm_shrink for others that have not called it. No collective
 * tells of it: each notes in the ledger of the communicator it was called on who shall take part, and since when it waits.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

static bool same_making(const struct verdict_making *a, const struct verdict_making *b)
{
    return a->kind == b->kind && a->id == b->id;
}

static bool takes_part(const struct verdict_making *m, int comm_rank)
{
    return comm_rank < VERDICT_MAKING_RANKS && (m->set[comm_rank / 64] >> (comm_rank % 64) & 1);
}

/* Who waits longest. NULL: nobody does. */
static const struct seat *first_maker(const struct judge *j, const struct group *g)
{
    const struct seat *first = NULL;
    uint64_t since = 0;
    for (uint32_t i = 0; i < g->nseats; i++) {
        const struct seat *s = &g->seats[i];
        uint64_t t = s->comm->making.kind && !gone(&j->f->ranks[s->rank]) ? at_judge(j, s->rank, s->comm->making.since_ns) : 0;
        if (t && (!first || t < since)) {
            first = s;
            since = t;
        }
    }
    return first;
}

/* DEAD and LEFT are not waited for: the one call fails with it, the other goes on without. */
static enum verdict_kind why_missing(const struct judge *j, const struct group *g, const struct verdict_making *m, int rank)
{
    enum verdict_kind kind = absent_kind(j, g, rank, false);
    if (kind == VERDICT_KIND_DEAD || kind == VERDICT_KIND_LEFT)
        return VERDICT_KIND_NONE;
    /* Who computes and does not know that the communicator has failed is the one that the others wait for all the same. */
    return kind == VERDICT_KIND_COMPUTING && m->kind == VERDICT_MAKES_SHRUNK ? VERDICT_KIND_RANK_ABSENT : kind;
}

static void missing_of_kind(struct judge *j, const struct group *g, const struct seat *first, enum verdict_kind kind, int32_t *list)
{
    const struct verdict_making *m = &first->comm->making;
    int n = 0;
    for (int r = 0; r < g->size; r++) {
        int rank = takes_part(m, r) ? member_of(g, r) : -1;
        const struct seat *s = rank >= 0 ? seat_of(g, rank) : NULL;
        if (rank >= 0 && !(s && same_making(&s->comm->making, m)) && why_missing(j, g, m, rank) == kind)
            list[n++] = rank;
    }
    sort_ranks(list, n);
    struct fault *x = n ? fault_add(j, kind, list, n) : NULL;
    if (!x)
        return;
    x->group = g;
    x->maker = first;
    x->since_ns = at_judge(j, first->rank, m->since_ns);
    x->sure = kind == VERDICT_KIND_SILENT ? VERDICT_LIKELY : VERDICT_SURE;
}

void find_making(struct judge *j)
{
    static const enum verdict_kind kinds[] = {VERDICT_KIND_STOPPED, VERDICT_KIND_SILENT, VERDICT_KIND_RANK_ABSENT, VERDICT_KIND_SLOW_RANK,
                                              VERDICT_KIND_COMPUTING};
    int32_t *list = rank_list(j);
    for (uint32_t i = 0; list && i < j->ngroups; i++) {
        const struct seat *first = first_maker(j, &j->groups[i]);
        if (!first || !old_enough(j, at_judge(j, first->rank, first->comm->making.since_ns)))
            continue;
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
            missing_of_kind(j, &j->groups[i], first, kinds[k], list);
    }
    free(list);
}

int reach_making(struct judge *j, const struct fault *x)
{
    int n = 0;
    memset(j->mark, 0, (size_t)j->size);
    for (uint32_t i = 0; i < x->group->nseats; i++) {
        const struct seat *s = &x->group->seats[i];
        bool waits = same_making(&s->comm->making, &x->maker->comm->making) && s->comm->making.since_ns && !gone(&j->f->ranks[s->rank]);
        j->mark[s->rank] = waits;
        n += waits;
    }
    for (int i = 0; i < x->nculprits; i++)
        j->mark[x->culprits[i]] = 2;
    return n;
}

void say_making(struct out *o, struct judge *j, const struct fault *x)
{
    enum { NAMED = 3 };
    bool shrinks = x->maker->comm->making.kind == VERDICT_MAKES_SHRUNK;
    say(o, shrinks ? "uno_comm_shrink" : "uno_comm_create_group");
    say_group(o, j, x->group);
    say(o, " waits for ");
    say_age(o, age_of(j, x->since_ns));
    say(o, ": ");
    for (int i = 0; i < MIN(x->nculprits, NAMED); i++) {
        say(o, "%s", i ? "; " : "");
        say_rank(o, j, x->culprits[i]);
        if (x->kind == VERDICT_KIND_SILENT) {
            say(o, " ");
            say_silent(o, j, x->culprits[i]);
            continue;
        }
        say(o, " has not called it; it ");
        say_doing(o, j, x->culprits[i]);
    }
    if (x->nculprits > NAMED) {
        say(o, "; all that are missing: ");
        say_plain_ranks(o, x->culprits, x->nculprits);
    }
    char buf[256];
    struct out v = out_of(buf, sizeof buf);
    if (reach_making(j, x) > 0) {
        victims(&v, j, x->nculprits);
        say(o, "; %s", buf);
    }
    if (shrinks)
        say(o, ", and after UNISONO_SHRINK_TIMEOUT go on without");
}
