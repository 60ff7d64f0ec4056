/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_headline.c - the sentences, for somebody who is tired and was not there: which function tells which kind, and the sentences
 * of ranks that ended, stand or do not come. The others are in verdict_say_calls.c and verdict_say_paths.c.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

#define NAMED 3 /* so many culprits are described one by one */

/* ---- what waits ------------------------------------------------------------------------------------------------------ */

bool sends(const struct verdict_p2p *p)
{
    return p->kind == VERDICT_SEND || p->kind == VERDICT_ISEND;
}

/* 'all_reduce #17 of comm "dp" is stuck for 6.2 s: ' */
void say_stuck(struct out *o, const struct judge *j, const struct fault *x)
{
    if (x->wait) {
        say_rank(o, j, x->wait->rank);
        say(o, " is stuck for ");
        say_age(o, age_of(j, x->wait->since_ns));
        say(o, " in ");
        say_p2p(o, j, x->wait);
        if (x->wait->p2p->site[0])
            say(o, " at %s", x->wait->p2p->site);
    } else {
        say_operation(o, j, x->group, x->group->number);
        say(o, " is stuck for ");
        say_age(o, age_of(j, x->group->since_ns));
    }
    say(o, ": ");
}

/* What the others miss from it: "it" is the collective, or the send or receive. */
const char *missing(const struct fault *x, bool for_good)
{
    if (x->wait)
        return sends(x->wait->p2p) ? "has posted no receive for it" : "has sent nothing for it";
    return for_good ? "never called it" : "has not called it yet";
}

void victims(struct out *o, const struct judge *j, int nculprits)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    int n = 0;
    for (int r = 0; list && r < j->size; r++)
        if (j->mark[r] == 1)
            list[n++] = r;
    if (n > 0) {
        say_plain_ranks(o, list, n);
        say(o, " wait%s for %s", n == 1 ? "s" : "", nculprits == 1 ? "it" : "them");
    }
    free(list);
}

#define ELSEWHERE 2 /* so many other communicators are named */

/* Of the ranks that reach() has marked: those that stand in collective g->number, and those who are missing there only because they wait. */
static int waiting_in(const struct judge *j, const struct group *g, int32_t *in, int32_t *on, int *non)
{
    int n = 0;
    *non = 0;
    for (uint32_t i = 0; i < j->nwaits; i++)
        if (!j->waits[i].p2p && j->waits[i].group == g && j->mark[j->waits[i].rank] == 1)
            in[n++] = j->waits[i].rank;
    for (int i = 0; i < g->nabsent; i++)
        if (j->mark[g->absent[i]] == 1)
            on[(*non)++] = g->absent[i];
    return n;
}

/* Who waits for a rank in one communicator, which itself waits in another one: ', ranks 0-1 in all_reduce #1 of comm "dp" for rank 2' */
static void say_elsewhere(struct out *o, const struct judge *j, const struct fault *x)
{
    int32_t *in = mem_array((size_t)j->size, sizeof *in), *on = mem_array((size_t)j->size, sizeof *on);
    int named = 0;
    for (uint32_t k = 0; in && on && k < j->ngroups && named < ELSEWHERE; k++) {
        const struct group *g = &j->groups[k];
        int non, n = g == x->group ? 0 : waiting_in(j, g, in, on, &non);
        if (n == 0 || (!x->group && non == 0)) /* which collective needs the rank itself is said of no fault that begins with the rank */
            continue;
        say(o, named++ ? ", " : ": ");
        say_plain_ranks(o, in, n);
        say(o, " in ");
        say_operation(o, j, g, g->number);
        if (non) {
            say(o, " for ");
            say_plain_ranks(o, on, non);
        }
    }
    free(in);
    free(on);
}

void add_victims(struct out *o, struct judge *j, const struct fault *x)
{
    char buf[256];
    struct out v = out_of(buf, sizeof buf);
    if (x->nculprits > 0 && reach(j, x->culprits, x->nculprits) > 0) {
        victims(&v, j, x->nculprits);
        say(o, "; %s", buf);
        say_elsewhere(o, j, x);
    }
}

/* How long it has been so, where the sentence does not begin with it. */
void say_so_for(struct out *o, const struct judge *j, const struct fault *x)
{
    uint64_t age = age_of(j, x->since_ns);
    if (age) {
        say(o, "; it is so for ");
        say_age(o, age);
    }
}

/* ---- ranks that do not come ------------------------------------------------------------------------------------------ */

/* Was it inside the operation when it was stopped, or had it not come? */
static bool inside(const struct fault *x, int rank)
{
    const struct seat *s = x->group && !x->wait ? seat_of(x->group, rank) : NULL;
    return s && !is_ahead(x->group->number, s->comm->newest);
}

static void say_left(struct out *o, const struct judge *j, const struct fault *x, int rank)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    if (r->status == VERDICT_LEFT)
        say_ended(o, j, r, 1);
    else
        say(o, "finalized or destroyed this communicator");
    say(o, " and %s", missing(x, true));
    const struct seat *s = x->wait ? NULL : seat_of(x->group, rank);
    if (s && x->group->number - s->comm->newest == 1)
        say(o, " (it made %u calls, the others %u: if its program was complete, it is off by one since an earlier call that looks alike)",
            s->comm->newest, x->group->number);
}

void say_silent(struct out *o, const struct judge *j, int rank)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    uint64_t age = age_of(j, at_judge(j, rank, r->status_since_ns));
    say(o, r->status == VERDICT_UNKNOWN ? "gave no report" : "does not answer");
    if (age) {
        say(o, " for ");
        say_age(o, age);
    }
    say(o, "; whether its process stands or its host is cut off cannot be told from here");
}

/* Is call `number` in the queue of this rank? Only collectives have numbers. */
static const struct verdict_call *queued(const struct verdict_comm *c, uint32_t number)
{
    uint32_t ahead = number - c->newest;
    for (uint32_t i = 0; is_ahead(number, c->newest) && i < c->ncalls; i++)
        if (c->calls[i].coll >= 0 && --ahead == 0)
            return &c->calls[i];
    return NULL;
}

/* What the queue's first call waits for on its stream. */
static void say_behind(struct out *o, const struct judge *j, int rank, const struct verdict_comm *c)
{
    const struct verdict_behind *b = &c->behind;
    const struct group *g = group_of(j, &(struct verdict_comm){.id = b->comm_id, .epoch = b->epoch});
    if (b->before == VERDICT_BEFORE_NOTHING) {
        say(o, "an event, or an operation before it in that stream, is not complete");
        return;
    }
    say(o, b->before == VERDICT_BEFORE_EVENT ? "there it waits for an event that comes after " : "before it there stands ");
    if (b->p2p)
        say(o, b->p2p == VERDICT_SEND ? "a send to rank %d" : "a receive from rank %d", g ? member_of(g, b->call.root) : b->call.root);
    else
        say(o, "%s (count %llu)", coll_name((uno_coll)b->call.coll), (unsigned long long)b->call.count);
    if (g)
        say_group(o, j, g);
    if (b->before == VERDICT_BEFORE_EVENT)
        say(o, " of another stream");
    if (b->call.site[0])
        say(o, " at %s", b->call.site);
    if (b->call.since_ns) {
        say(o, ", issued ");
        say_age(o, age_of(j, at_judge(j, rank, b->call.since_ns)));
        say(o, " ago");
    }
}

/* Issued on a stream, and not begun: the program has done its part. */
static bool say_queued(struct out *o, const struct judge *j, const struct fault *x, int rank)
{
    const struct seat *s = x->group && !x->wait ? seat_of(x->group, rank) : NULL;
    const struct verdict_call *q = s ? queued(s->comm, x->group->number) : NULL, *head = q ? s->comm->calls : NULL;
    if (!q)
        return false;
    say(o, "has issued it");
    if (q->site[0])
        say(o, " at %s", q->site);
    if (q->since_ns) {
        say(o, ", ");
        say_age(o, age_of(j, at_judge(j, rank, q->since_ns)));
        say(o, " ago");
    }
    if (head == q)
        say(o, ", on a stream that has not come to it: ");
    else
        say(o, ", and it waits in the queue of this communicator behind %s, whose stream has not come to it: ",
            head->coll >= 0 ? coll_name((uno_coll)head->coll) : "a send or receive");
    say_behind(o, j, rank, s->comm);
    say(o, "; it ");
    return true;
}

static void say_culprit(struct out *o, const struct judge *j, const struct fault *x, int rank)
{
    say_rank(o, j, rank);
    say(o, " ");
    switch (x->kind) {
    case VERDICT_KIND_LEFT: say_left(o, j, x, rank); break;
    case VERDICT_KIND_SILENT: say_silent(o, j, rank); break;
    default:
        if (inside(x, rank))
            say(o, "is in it and ");
        else if (!say_queued(o, j, x, rank))
            say(o, "%s; it ", missing(x, x->kind == VERDICT_KIND_RANK_ABSENT));
        say_doing(o, j, rank);
    }
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Waiting for a processor, measured against the communicator's other ranks. */
static void say_others_share(struct out *o, const struct judge *j, const struct fault *x)
{
    uint32_t *share = mem_array((size_t)j->size, sizeof *share);
    size_t n = 0;
    for (uint32_t i = 0; share && i < x->group->nseats; i++) {
        const struct verdict_process *p = &j->f->ranks[x->group->seats[i].rank].process;
        if (p->sample_ns && x->group->seats[i].rank != x->culprits[0])
            share[n++] = p->queue_permille;
    }
    if (n > 0) {
        qsort(share, n, sizeof *share, compare_u32);
        say(o, "; the others' median is %u %%", share[n / 2] / 10);
    }
    free(share);
}

/* Nothing stands for long, so that the rank comes first, not the operation. */
static void say_holds_up(struct out *o, struct judge *j, const struct fault *x)
{
    say_rank(o, j, x->culprits[0]);
    say(o, " holds the others up: it ");
    say_doing(o, j, x->culprits[0]);
    say_others_share(o, j, x);
    say(o, "; ");
    say_last(o, j, x->culprits[0]);
    add_victims(o, j, x);
}

static void say_late(struct out *o, struct judge *j, const struct fault *x)
{
    if (x->holds_up) {
        say_holds_up(o, j, x);
        return;
    }
    say_stuck(o, j, x);
    if (x->nculprits > NAMED) {
        say_ranks(o, j, x->culprits, x->nculprits);
        say(o, x->kind == VERDICT_KIND_STOPPED ? " are stopped: " : x->kind == VERDICT_KIND_SILENT ? " do not answer: "
               : x->kind == VERDICT_KIND_LEFT ? " have left: " : x->kind == VERDICT_KIND_SLOW_RANK ? " get no processor: "
               : " have not called it: ");
    }
    for (int i = 0; i < (x->nculprits > NAMED ? 1 : x->nculprits); i++) {
        say(o, "%s", i ? "; " : "");
        say_culprit(o, j, x, x->culprits[i]);
    }
    if (x->kind == VERDICT_KIND_SLOW_RANK)
        say_others_share(o, j, x);
    if (x->nculprits == 1 && x->kind != VERDICT_KIND_SILENT) {
        say(o, "; ");
        say_last(o, j, x->culprits[0]);
    }
    add_victims(o, j, x);
}

static void say_nobody_runs(struct out *o, struct judge *j, const struct fault *x)
{
    uint64_t age = age_of(j, x->since_ns);
    bool unheard = false;
    for (int r = 0; r < j->size; r++)
        unheard = unheard || j->f->ranks[r].status == VERDICT_UNKNOWN || j->f->ranks[r].status == VERDICT_SILENT;
    say(o, unheard ? "nobody who reported runs" : "nobody runs");
    if (age) {
        say(o, " for ");
        say_age(o, age);
    }
    say(o, ": ");
    if (x->nculprits > NAMED) {
        say_ranks(o, j, x->culprits, x->nculprits);
        say(o, " are stopped; ");
    }
    for (int i = 0; i < (x->nculprits > NAMED ? 1 : x->nculprits); i++) {
        say(o, "%s", i ? "; " : "");
        say_rank(o, j, x->culprits[i]);
        say(o, " ");
        say_doing(o, j, x->culprits[i]);
    }
}

static void say_dead(struct out *o, struct judge *j, const struct fault *x)
{
    say_ranks(o, j, x->culprits, x->nculprits);
    say(o, " ");
    say_ended(o, j, &j->f->ranks[x->culprits[0]], x->nculprits);
    if (x->nculprits > 1)
        say(o, "; of rank %d: ", x->culprits[0]);
    else
        say(o, "; ");
    say_last(o, j, x->culprits[0]);
    add_victims(o, j, x);
}

void say_joining(struct out *o, const struct judge *j)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    int joining = 0, n = 0;
    for (int r = 0; list && r < j->size; r++) {
        joining += joins(&j->f->ranks[r]);
        if (j->f->ranks[r].status == VERDICT_UNKNOWN)
            list[n++] = r;
    }
    say(o, "%d of %d ranks wait%s in joining", joining, j->size, joining == 1 ? "s" : "");
    if (n) {
        say(o, ", ");
        say_plain_ranks(o, list, n);
        say(o, " %s not seen to join on this host", n == 1 ? "is" : "are");
    }
    free(list);
}

/* Ranks that have not come, or that stand while they join. */
static void say_never_joined(struct out *o, struct judge *j, const struct fault *x)
{
    say(o, "the job%s%s%s cannot start", j->f->what_job[0] ? " \"" : "", j->f->what_job, j->f->what_job[0] ? "\"" : "");
    uint64_t age = age_of(j, x->since_ns);
    if (age) {
        say(o, " for ");
        say_age(o, age);
    }
    say(o, ": ");
    if (x->kind == VERDICT_KIND_STOPPED || x->sure != VERDICT_SURE) {
        say_joining(o, j);
        for (int i = 0; i < MIN(x->nculprits, NAMED) && x->kind == VERDICT_KIND_STOPPED; i++) {
            say(o, "; ");
            say_rank(o, j, x->culprits[i]);
            say(o, " ");
            say_doing(o, j, x->culprits[i]);
        }
        return;
    }
    say_ranks(o, j, x->culprits, x->nculprits);
    say(o, " of %d never joined", j->size);
    if (x->nculprits > NAMED || j->f->ranks[x->culprits[0]].host[0] == 0)
        return;
    say(o, "; look at the output there");
}

/* What only a failed communicator tells. */
static void say_told(struct out *o, struct judge *j, const struct fault *x)
{
    const struct verdict_comm *c = x->failed;
    say(o, "the communicator%s%s%s failed", c->name[0] ? " \"" : "", c->name, c->name[0] ? "\"" : "");
    uint64_t age = age_of(j, x->since_ns);
    if (age) {
        say(o, " ");
        say_age(o, age);
        say(o, " ago");
    }
    if (x->nculprits && c->failed != UNO_ERR_TIMEOUT) { /* of a deadline it is who was waited for */
        say(o, ", first at ");
        say_rank(o, j, x->culprits[0]);
    }
    say(o, " (%s)", uno_err_name((uno_err)c->failed));
    if (c->failed_text[0])
        say(o, ": %s", c->failed_text);
}

void headline(struct out *o, struct judge *j, const struct fault *x)
{
    if (x->told) {
        say_told(o, j, x);
        return;
    }
    if (x->maker) {
        say_making(o, j, x);
        return;
    }
    switch (x->kind) {
    case VERDICT_KIND_NEVER_JOINED: say_never_joined(o, j, x); break;
    case VERDICT_KIND_DEAD: say_dead(o, j, x); break;
    case VERDICT_KIND_MISMATCH: say_mismatch(o, j, x); break;
    case VERDICT_KIND_OFF_BY_ONE: say_off_by_one(o, j, x); break;
    case VERDICT_KIND_UNREACHABLE: say_unreachable(o, j, x); break;
    case VERDICT_KIND_COMM_ORDER: say_comm_order(o, j, x); break;
    case VERDICT_KIND_P2P_UNMATCHED: say_unmatched(o, j, x); break;
    case VERDICT_KIND_SLOW_LINK: say_slow_link(o, j, x); break;
    case VERDICT_KIND_SLOW: say_slow(o, j, x); break;
    case VERDICT_KIND_FAULT_OF_OURS: say_ours(o, j, x); break;
    case VERDICT_KIND_STOPPED:
        if (x->group)
            say_late(o, j, x);
        else if (j->joining)
            say_never_joined(o, j, x);
        else
            say_nobody_runs(o, j, x);
        break;
    case VERDICT_KIND_SLOW_RANK:
    case VERDICT_KIND_LEFT:
    case VERDICT_KIND_SILENT:
    case VERDICT_KIND_RANK_ABSENT:
    case VERDICT_KIND_COMPUTING: say_late(o, j, x); break;
    default: break; /* NONE, ABORTED and UNKNOWN are not found by a rule that comes here */
    }
}
