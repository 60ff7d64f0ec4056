/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_graph.c - communicators put together from all ranks' views, and who waits for whom. A rank waits in a collective for
 * every member that has not called it (absence is evidence) or cannot go on, and in a send or receive for its peer. Inside a
 * collective that all have called nobody is said to wait for anybody: there data moves, in both directions.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

#define REAL_ERROR_NS 100000000ull  /* clocks of hosts that keep time differ by less */
#define UNKNOWN_ERROR_NS UINT64_MAX

/* ---- time ---------------------------------------------------------------------------------------------------------- */

uint64_t at_judge(const struct judge *j, int rank, uint64_t own_ns)
{
    if (own_ns == 0)
        return 0;
    int64_t t = (int64_t)(own_ns + (uint64_t)j->offset_ns[rank]);
    return t < 1 ? 1 : (uint64_t)t;
}

uint64_t age_of(const struct judge *j, uint64_t judge_ns)
{
    return judge_ns && judge_ns < j->now_ns ? j->now_ns - judge_ns : 0;
}

static int64_t minus(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b);
}

/* Known offset, else a host mate's, else the wall clock, else none. */
static void offset_of(struct judge *j, int rank, const int *known_on_host, int64_t judge_real_ns)
{
    const struct verdict_facts *f = j->f;
    const struct verdict_rank *r = &f->ranks[rank];
    int mate = r->host_index >= 0 && r->host_index < j->size ? known_on_host[r->host_index] : -1;
    if (f->offsets[rank].known) {
        j->offset_ns[rank] = f->offsets[rank].offset_ns;
        j->error_ns[rank] = f->offsets[rank].error_ns;
    } else if (mate >= 0) {
        j->offset_ns[rank] = f->offsets[mate].offset_ns;
        j->error_ns[rank] = f->offsets[mate].error_ns;
    } else if (r->taken_real_ns && judge_real_ns != INT64_MIN) {
        j->offset_ns[rank] = minus(r->taken_real_ns, r->taken_ns) - judge_real_ns;
        j->error_ns[rank] = REAL_ERROR_NS;
    } else {
        j->offset_ns[rank] = 0;
        j->error_ns[rank] = UNKNOWN_ERROR_NS;
    }
}

static uno_err set_clocks(struct judge *j)
{
    const struct verdict_facts *f = j->f;
    int *known = mem_array((size_t)j->size, sizeof *known);
    if (!known)
        return UNO_ERR_MEMORY;
    memset(known, -1, (size_t)j->size * sizeof *known);
    for (int i = 0; i < j->size; i++)
        if (f->offsets[i].known && f->ranks[i].host_index >= 0 && f->ranks[i].host_index < j->size)
            known[f->ranks[i].host_index] = i;
    /* After the fact there is no judge's clock: the wall clock is taken, and the latest record is now. */
    bool post_mortem = f->now_ns == 0;
    int64_t real = post_mortem ? 0 : f->now_real_ns ? minus(f->now_real_ns, f->now_ns) : INT64_MIN;
    for (int i = 0; i < j->size; i++)
        offset_of(j, i, known, real);
    free(known);
    j->now_ns = f->now_ns;
    for (int i = 0; i < j->size && post_mortem; i++)
        j->now_ns = MAX(j->now_ns, at_judge(j, i, MAX(f->ranks[i].taken_ns, f->ranks[i].status_since_ns)));
    return UNO_OK;
}

/* ---- ranks and events ---------------------------------------------------------------------------------------------- */

bool is_ahead(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

bool stands(const struct verdict_rank *r)
{
    uint8_t run = r->process.run;
    return !(r->status == VERDICT_DEAD || r->status == VERDICT_LEFT) &&
           (run == VERDICT_RUN_STOPPED || run == VERDICT_RUN_TRACED || run == VERDICT_RUN_FROZEN);
}

bool replaced(const struct verdict_rank *r)
{
    return r->status != VERDICT_DEAD && r->status != VERDICT_LEFT && r->process.run == VERDICT_RUN_REPLACED;
}

bool joins(const struct verdict_rank *r)
{
    return r->status == VERDICT_REPORTED && r->status_since_ns && r->ncomms == 0;
}

bool gone(const struct verdict_rank *r)
{
    return r->status != VERDICT_REPORTED;
}

const struct verdict_event *event_at(const struct verdict_comm *c, uint32_t number)
{
    uint32_t back = c->newest - number;
    return back < c->nevents ? &c->events[c->nevents - 1 - back] : NULL;
}

const struct verdict_event *running(const struct verdict_comm *c)
{
    const struct verdict_event *e = c->nevents ? &c->events[c->nevents - 1] : NULL;
    return e && e->state == VERDICT_RUNNING ? e : NULL;
}

int member_of(const struct group *g, int comm_rank)
{
    if (comm_rank < 0 || comm_rank >= g->size)
        return -1;
    return g->members ? g->members[comm_rank] : comm_rank;
}

const struct seat *seat_of(const struct group *g, int job_rank)
{
    uint32_t guess = (uint32_t)job_rank; /* right where all members of the whole job have reported */
    if (guess < g->nseats && g->seats[guess].rank == job_rank)
        return &g->seats[guess];
    for (uint32_t i = 0; i < g->nseats; i++)
        if (g->seats[i].rank == job_rank)
            return &g->seats[i];
    return NULL;
}

/* ---- groups --------------------------------------------------------------------------------------------------------- */

static int compare_seats(const void *a, const void *b)
{
    const struct seat *x = a, *y = b;
    if (x->comm->id != y->comm->id)
        return x->comm->id < y->comm->id ? -1 : 1;
    if (x->comm->epoch != y->comm->epoch)
        return x->comm->epoch < y->comm->epoch ? -1 : 1;
    if (x->comm->rank != y->comm->rank)
        return x->comm->rank < y->comm->rank ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static uno_err collect_seats(struct judge *j, uint32_t *nseats)
{
    size_t n = 0;
    for (int r = 0; r < j->size; r++)
        n += j->f->ranks[r].ncomms;
    j->seats = mem_array(MAX(n, (size_t)1), sizeof *j->seats);
    if (!j->seats)
        return UNO_ERR_MEMORY;
    n = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].ncomms; i++)
            j->seats[n++] = (struct seat){&j->f->ranks[r].comms[i], r};
    qsort(j->seats, n, sizeof *j->seats, compare_seats);
    *nseats = (uint32_t)n;
    return UNO_OK;
}

const struct group *group_of(const struct judge *j, const struct verdict_comm *c)
{
    uint32_t low = 0, high = j->ngroups; /* groups stand in the order of compare_seats */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const struct verdict_comm *m = j->groups[mid].seats[0].comm;
        if (m->id == c->id && m->epoch == c->epoch)
            return &j->groups[mid];
        if (m->id < c->id || (m->id == c->id && m->epoch < c->epoch))
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static bool same_comm(const struct verdict_comm *a, const struct verdict_comm *b)
{
    return a->id == b->id && a->epoch == b->epoch;
}

/* Seats first..last-1 are one communicator. Those that contradict the first, or the member list, are not believed. */
static void make_group(struct judge *j, struct group *g, uint32_t first, uint32_t last)
{
    const struct verdict_comm *model = j->seats[first].comm;
    *g = (struct group){.seats = &j->seats[first], .size = MIN(model->size, j->size), .members = model->members};
    for (uint32_t i = first; i < last; i++) {
        struct seat s = j->seats[i];
        bool twice = g->nseats > 0 && g->seats[g->nseats - 1].comm->rank == s.comm->rank;
        if (!twice && s.comm->size == model->size && s.comm->rank < g->size && (i == first || member_of(g, s.comm->rank) == s.rank))
            j->seats[first + g->nseats++] = s;
    }
}

static uno_err make_groups(struct judge *j)
{
    uint32_t n;
    TRY(collect_seats(j, &n));
    j->groups = mem_array(MAX(n, 1u), sizeof *j->groups);
    if (!j->groups)
        return UNO_ERR_MEMORY;
    for (uint32_t first = 0, last; first < n; first = last) {
        for (last = first + 1; last < n && same_comm(j->seats[last].comm, j->seats[first].comm);)
            last++;
        make_group(j, &j->groups[j->ngroups++], first, last);
    }
    return UNO_OK;
}

/* The lowest running number, who waits in it since when. Numbers above it are reached only through it. */
static void find_stuck(struct judge *j, struct group *g)
{
    for (uint32_t i = 0; i < g->nseats; i++) {
        const struct seat *s = &g->seats[i];
        const struct verdict_event *e = running(s->comm);
        if (!e || gone(&j->f->ranks[s->rank]))
            continue;
        uint64_t start = at_judge(j, s->rank, e->start_ns);
        if (g->number == 0 || is_ahead(g->number, e->number))
            g->number = e->number;
        if (!g->sample || start < g->since_ns) {
            g->since_ns = start;
            g->sample = e;
        }
        g->moved_ns = MAX(g->moved_ns, at_judge(j, s->rank, e->moved_ns));
        g->waited = g->waited || e->blocks != VERDICT_PROGRAM_GOES_ON;
    }
    for (uint32_t i = 0; i < g->nseats && g->number; i++) {
        const struct verdict_event *e = event_at(g->seats[i].comm, g->number);
        if (e)
            g->full_ns = MAX(g->full_ns, at_judge(j, g->seats[i].rank, e->start_ns));
    }
    if (g->sample && g->sample->number != g->number) /* the longest wait is in a later one: then the lowest speaks */
        for (uint32_t i = 0; i < g->nseats; i++) {
            const struct verdict_event *e = running(g->seats[i].comm);
            if (e && e->number == g->number) {
                g->sample = e;
                break;
            }
        }
}

/* Has this member made the call and ended it? */
static bool past(const struct seat *s, uint32_t number)
{
    const struct verdict_event *e = event_at(s->comm, number);
    return is_ahead(s->comm->newest, number) || (e && e->state == VERDICT_DONE);
}

static bool is_absent(const struct judge *j, const struct group *g, const struct seat *s, int rank)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    if (!s) /* of whom nothing was heard nothing is claimed, yet */
        return r->status != VERDICT_UNKNOWN && (r->status != VERDICT_REPORTED || r->comms_left_out == 0);
    if (is_ahead(g->number, s->comm->newest))
        return true;
    return !past(s, g->number) && (stands(r) || gone(r) || replaced(r));
}

/* When everybody who reported has called, those who did not report are the ones that are missed. */
static void unheard_are_absent(const struct judge *j, struct group *g)
{
    uint32_t at = 0;
    for (int k = 0; k < g->size && g->nseats < (uint32_t)g->size; k++) {
        int rank = member_of(g, k);
        while (at < g->nseats && g->seats[at].comm->rank < k)
            at++;
        bool seated = at < g->nseats && g->seats[at].comm->rank == k;
        if (!seated && rank >= 0 && rank < j->size && j->f->ranks[rank].status == VERDICT_UNKNOWN)
            g->absent[g->nabsent++] = rank;
    }
}

static uno_err find_absent(struct judge *j, struct group *g)
{
    if (g->number == 0)
        return UNO_OK;
    g->absent = mem_array((size_t)g->size, sizeof *g->absent);
    if (!g->absent)
        return UNO_ERR_MEMORY;
    uint32_t at = 0;
    for (int k = 0; k < g->size; k++) {
        while (at < g->nseats && g->seats[at].comm->rank < k)
            at++;
        const struct seat *s = at < g->nseats && g->seats[at].comm->rank == k ? &g->seats[at] : NULL;
        int rank = member_of(g, k);
        if (rank >= 0 && rank < j->size && is_absent(j, g, s, rank))
            g->absent[g->nabsent++] = rank;
    }
    if (g->nabsent == 0)
        unheard_are_absent(j, g);
    return UNO_OK;
}

/* ---- waits ----------------------------------------------------------------------------------------------------------- */

static bool has_queued(const struct verdict_rank *r)
{
    for (uint32_t i = 0; i < r->ncomms; i++)
        if (r->comms[i].ncalls > 0)
            return true;
    return false;
}

/* Does the program stand still for this operation? Calls queued behind it stand still with it. */
static bool stands_still(const struct verdict_rank *r, const struct verdict_event *e)
{
    if (e->blocks != VERDICT_BLOCKS_UNKNOWN)
        return e->blocks == VERDICT_PROGRAM_WAITS || has_queued(r);
    return r->process.run == VERDICT_RUN_UNKNOWN || r->process.in_library;
}

/* Does this send or receive stand on a stream before calls that have been issued? The program may go on, but they do not. */
static bool keeps_calls(const struct verdict_rank *r, const struct verdict_comm *c, const struct verdict_p2p *p)
{
    for (uint32_t i = 0; i < r->ncomms; i++) {
        const struct verdict_behind *b = &r->comms[i].behind;
        if (r->comms[i].ncalls > 0 && b->before && b->p2p == p->kind && b->comm_id == c->id && b->epoch == c->epoch && b->call.root == p->peer)
            return true;
    }
    return false;
}

static void add_wait(struct judge *j, const struct wait *w)
{
    j->waits[j->nwaits++] = *w;
    /* A wait of a moment does not explain why others have waited long. */
    if (age_of(j, w->since_ns) >= j->stall_ns / 2)
        j->blocked[w->rank] = true;
}

static void add_waits_of(struct judge *j, int rank)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    if (gone(r) || stands(r) || replaced(r))
        return;
    for (uint32_t i = 0; i < r->ncomms; i++) {
        const struct verdict_comm *c = &r->comms[i];
        const struct verdict_event *e = running(c);
        struct group *g = c->nevents + c->np2p ? (struct group *)(uintptr_t)group_of(j, c) : NULL;
        if (!g || c->failed != UNO_OK)
            continue;
        if (e && stands_still(r, e))
            add_wait(j, &(struct wait){.rank = rank, .group = g, .on = -1, .since_ns = at_judge(j, rank, e->start_ns)});
        for (uint32_t k = 0; k < c->np2p; k++) {
            const struct verdict_p2p *p = &c->p2p[k];
            if ((p->waited || keeps_calls(r, c, p)) && !p->matched)
                add_wait(j, &(struct wait){.rank = rank, .group = g, .p2p = p, .on = member_of(g, p->peer),
                                           .since_ns = at_judge(j, rank, p->since_ns)});
        }
    }
}

static uno_err make_waits(struct judge *j)
{
    size_t most = 1;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].ncomms; i++)
            most += 1 + j->f->ranks[r].comms[i].np2p;
    j->waits = mem_array(most, sizeof *j->waits);
    j->first_wait = mem_array((size_t)j->size + 1, sizeof *j->first_wait);
    j->blocked = mem_array((size_t)j->size, sizeof *j->blocked);
    j->mark = mem_array((size_t)j->size, 1);
    if (!j->waits || !j->first_wait || !j->blocked || !j->mark)
        return UNO_ERR_MEMORY;
    for (int r = 0; r < j->size; r++) {
        j->first_wait[r] = j->nwaits;
        add_waits_of(j, r);
    }
    j->first_wait[j->size] = j->nwaits;
    return UNO_OK;
}

uno_err graph_build(struct judge *j)
{
    j->offset_ns = mem_array((size_t)j->size, sizeof *j->offset_ns);
    j->error_ns = mem_array((size_t)j->size, sizeof *j->error_ns);
    if (!j->offset_ns || !j->error_ns)
        return UNO_ERR_MEMORY;
    TRY(set_clocks(j));
    TRY(make_groups(j));
    for (uint32_t i = 0; i < j->ngroups; i++) {
        find_stuck(j, &j->groups[i]);
        TRY(find_absent(j, &j->groups[i]));
    }
    return make_waits(j);
}

void graph_free(struct judge *j)
{
    for (uint32_t i = 0; i < j->ngroups; i++)
        free(j->groups[i].absent);
    free(j->groups);
    free(j->seats);
    free(j->waits);
    free(j->first_wait);
    free(j->blocked);
    free(j->mark);
    free(j->offset_ns);
    free(j->error_ns);
}
