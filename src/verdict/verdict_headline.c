/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_headline.c - the sentences: one function a kind of fault for the headline, one line of advice each, and the evidence
 * behind it. Written for somebody who is tired and was not there.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

#define NAMED 3 /* so many culprits are described one by one */

/* ---- what waits ------------------------------------------------------------------------------------------------------ */

static bool sends(const struct verdict_p2p *p)
{
    return p->kind == VERDICT_SEND || p->kind == VERDICT_ISEND;
}

/* 'all_reduce #17 of comm "dp" is stuck for 6.2 s: ' */
static void say_stuck(struct out *o, const struct judge *j, const struct fault *x)
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
static const char *missing(const struct fault *x, bool for_good)
{
    if (x->wait)
        return x->wait->p2p->kind == VERDICT_ANNOUNCED || sends(x->wait->p2p) ? "has posted no receive for it" : "has sent nothing for it";
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

static void add_victims(struct out *o, struct judge *j, const struct fault *x)
{
    char buf[256];
    struct out v = out_of(buf, sizeof buf);
    if (x->nculprits > 0 && reach(j, x->culprits, x->nculprits) > 0) {
        victims(&v, j, x->nculprits);
        say(o, "; %s", buf);
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
}

static void say_silent(struct out *o, const struct judge *j, int rank)
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

static void say_culprit(struct out *o, const struct judge *j, const struct fault *x, int rank)
{
    say_rank(o, j, rank);
    say(o, " ");
    switch (x->kind) {
    case VERDICT_KIND_LEFT: say_left(o, j, x, rank); break;
    case VERDICT_KIND_SILENT: say_silent(o, j, rank); break;
    case VERDICT_KIND_STOPPED:
        say_doing(o, j, rank);
        say(o, inside(x, rank) ? ", in the middle of it" : " and %s", missing(x, false));
        break;
    default:
        if (inside(x, rank))
            say(o, "is in it and ");
        else
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

static void say_late(struct out *o, struct judge *j, const struct fault *x)
{
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

static void say_never_joined(struct out *o, struct judge *j, const struct fault *x)
{
    say(o, "the job%s%s%s cannot start", j->f->what_job[0] ? " \"" : "", j->f->what_job, j->f->what_job[0] ? "\"" : "");
    uint64_t age = age_of(j, x->since_ns);
    if (age) {
        say(o, " for ");
        say_age(o, age);
    }
    say(o, ": ");
    say_ranks(o, j, x->culprits, x->nculprits);
    say(o, " of %d never joined", j->size);
    if (x->nculprits > NAMED || j->f->ranks[x->culprits[0]].host[0] == 0)
        return;
    say(o, "; look at the output there");
}

/* ---- calls that do not fit ------------------------------------------------------------------------------------------- */

static void say_job_root(struct out *o, const struct group *g, int32_t root)
{
    int rank = member_of(g, root);
    if (rank >= 0)
        say(o, "root rank %d", rank);
    else
        say(o, "root %d", root);
}

/* The arguments in which e differs from the other call, or all that matter when the collectives differ. */
static void say_arguments(struct out *o, const struct group *g, const struct verdict_event *e, const struct verdict_event *other)
{
    const char *comma = "";
    if (e->count != other->count) {
        say(o, " count %llu", (unsigned long long)e->count);
        comma = ",";
    }
    if (e->type != other->type) {
        say(o, "%s type %s", comma, type_name((uno_type)e->type));
        comma = ",";
    }
    if (e->op != other->op) {
        say(o, "%s op %s", comma, op_name(e->op));
        comma = ",";
    }
    bool has_root = e->coll == UNO_BROADCAST || e->coll == UNO_REDUCE || e->coll == UNO_GATHER || e->coll == UNO_SCATTER;
    if (has_root && e->root != other->root) {
        say(o, "%s ", comma);
        say_job_root(o, g, e->root);
    }
}

static void say_class(struct out *o, const struct judge *j, const struct fault *x, const struct call_class *c, int k, const signed char *of,
                      const struct verdict_event *other)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    int n = 0;
    for (uint32_t i = 0; list && i < x->group->nseats; i++)
        if (of[i] == k)
            list[n++] = x->group->seats[i].rank;
    if (n > 0)
        say_ranks(o, j, list, n);
    free(list);
    if (c->event->coll != other->coll)
        say(o, " call%s %s", n == 1 ? "s" : "", coll_name((uno_coll)c->event->coll));
    else {
        say(o, " pass%s", n == 1 ? "es" : "");
        say_arguments(o, x->group, c->event, other);
    }
    if (c->event->site[0])
        say(o, " at %s", c->event->site);
}

/* Signatures differ, the calls that can be seen do not. */
static void say_unseen(struct out *o, const struct judge *j, const struct fault *x, const struct verdict_event *e)
{
    bool v = e->coll == UNO_ALL_GATHER_V || e->coll == UNO_REDUCE_SCATTER_V || e->coll == UNO_ALL_TO_ALL_V;
    say_ranks(o, j, x->culprits, x->nculprits);
    say(o, v ? " passed other counts per rank than the others" : " made this call with another plan or after other calls than the others "
                                                               "(settings, library, or an operation before the ones still recorded)");
}

static bool visible(const struct call_class *a, const struct call_class *b)
{
    return calls_differ(a->event, b->event);
}

static void say_so_for(struct out *o, const struct judge *j, const struct fault *x)
{
    uint64_t age = age_of(j, x->since_ns);
    if (age) {
        say(o, "; it is so for ");
        say_age(o, age);
    }
}

static void say_mismatch(struct out *o, struct judge *j, const struct fault *x)
{
    struct call_class classes[MOST_CLASSES];
    signed char *of = mem_array((size_t)MAX(j->size, (int)x->group->nseats), 1);
    if (!of)
        return;
    bool by_signature;
    (void)first_difference(x->group, &by_signature);
    int n = classes_of(x->group, x->number, by_signature, classes, of);
    bool seen = n >= 2 && visible(&classes[0], &classes[1]), same = true;
    for (int k = 1; k < n; k++)
        same = same && classes[k].event->coll == classes[0].event->coll;
    say(o, "%s #%u", same && n ? coll_name((uno_coll)classes[0].event->coll) : "operation", x->number);
    say_group(o, j, x->group);
    say(o, " does not fit together: ");
    if (!seen)
        say_unseen(o, j, x, classes[0].event);
    for (int k = 1; seen && k < MIN(n, 4); k++) {
        say_class(o, j, x, &classes[k], k, of, classes[0].event);
        say(o, ", ");
    }
    if (seen)
        say_class(o, j, x, &classes[0], 0, of, classes[1].event);
    say_so_for(o, j, x);
    free(of);
}

static void say_call(struct out *o, const struct group *g, const struct verdict_event *e)
{
    say(o, "%s (", coll_name((uno_coll)e->coll));
    if (e->coll == UNO_BROADCAST || e->coll == UNO_REDUCE || e->coll == UNO_GATHER || e->coll == UNO_SCATTER) {
        say_job_root(o, g, e->root);
        say(o, ", ");
    }
    say(o, "count %llu)", (unsigned long long)e->count);
    if (e->site[0])
        say(o, " at %s", e->site);
}

/* Somebody else's call of that number. */
static const struct verdict_event *others_call(const struct fault *x, int rank, uint32_t number)
{
    for (uint32_t i = 0; i < x->group->nseats; i++)
        if (x->group->seats[i].rank != rank && event_at(x->group->seats[i].comm, number))
            return event_at(x->group->seats[i].comm, number);
    return NULL;
}

static void say_off_by_one(struct out *o, struct judge *j, const struct fault *x)
{
    int rank = x->culprits[0];
    const struct seat *s = seat_of(x->group, rank);
    const struct verdict_event *own = s ? event_at(s->comm, x->number) : NULL, *theirs = others_call(x, rank, x->number);
    say_ranks(o, j, x->culprits, x->nculprits);
    say(o, " %s off by one from operation #%u", x->nculprits == 1 ? "is" : "are", x->number);
    say_group(o, j, x->group);
    say(o, " on: ");
    if (x->shift > 0) {
        say(o, "it skipped ");
        if (theirs)
            say_call(o, x->group, theirs);
        say(o, ", and its #%u, ", x->number);
        if (own)
            say_call(o, x->group, own);
        say(o, ", is what the others call as #%u", x->number + 1);
    } else {
        say(o, "its #%u, ", x->number);
        if (own)
            say_call(o, x->group, own);
        say(o, ", is one call more than the others make; their #%u is its #%u", x->number, x->number + 1);
    }
    say_so_for(o, j, x);
    say(o, "; ");
    say_last(o, j, rank);
    add_victims(o, j, x);
}

/* ---- circles ------------------------------------------------------------------------------------------------------------ */

static void say_wait(struct out *o, const struct judge *j, const struct wait *w)
{
    if (w->p2p) {
        say_p2p(o, j, w);
        if (w->p2p->site[0])
            say(o, " at %s", w->p2p->site);
        return;
    }
    const struct seat *s = seat_of(w->group, w->rank);
    const struct verdict_event *e = s ? running(s->comm) : NULL;
    say_operation(o, j, w->group, e ? e->number : w->group->number);
    if (e && e->site[0])
        say(o, " at %s", e->site);
}

static void say_circle(struct out *o, const struct judge *j, const struct fault *x)
{
    for (int i = 0; i < MIN(x->ncycle, 4); i++) {
        const struct wait *w = x->cycle[i];
        say(o, "%s", i ? ", " : "");
        say_rank(o, j, w->rank);
        say(o, " waits in ");
        say_wait(o, j, w);
        if (!w->p2p)
            say(o, " for rank %d", x->cycle[(i + 1) % x->ncycle]->rank);
    }
    if (x->ncycle > 4)
        say(o, ", and so on through %d ranks back to rank %d", x->ncycle, x->cycle[0]->rank);
    say_so_for(o, j, x);
}

static void say_comm_order(struct out *o, struct judge *j, const struct fault *x)
{
    say(o, "communicators are used in different order: ");
    say_circle(o, j, x);
    add_victims(o, j, x);
}

/* A receive here that a send of another tag waits for, or the other way round. */
static void say_near_miss(struct out *o, const struct wait *w)
{
    const struct seat *peer = w->on >= 0 ? seat_of(w->group, w->on) : NULL, *own = seat_of(w->group, w->rank);
    bool send = sends(w->p2p);
    for (uint32_t i = 0; peer && own && i < peer->comm->np2p; i++) {
        const struct verdict_p2p *p = &peer->comm->p2p[i];
        if (p->kind == VERDICT_ANNOUNCED || sends(p) == send || p->peer != own->comm->rank || p->tag == w->p2p->tag)
            continue;
        say(o, "; the tags differ: rank %d %s tag %d, rank %d %s tag %d", w->rank, send ? "sends" : "receives", w->p2p->tag, w->on,
            send ? "receives" : "sends", p->tag);
        return;
    }
    for (uint32_t i = 0; own && !send && i < own->comm->np2p; i++) {
        const struct verdict_p2p *p = &own->comm->p2p[i];
        if (p->kind != VERDICT_ANNOUNCED || p->tag == w->p2p->tag || (w->p2p->peer != UNO_ANY && p->peer != w->p2p->peer))
            continue;
        say(o, "; the tags differ: rank %d sends tag %d, rank %d receives tag %d", member_of(w->group, p->peer), p->tag, w->rank,
            w->p2p->tag);
        return;
    }
}

static void say_unmatched(struct out *o, struct judge *j, const struct fault *x)
{
    if (x->cycle) {
        bool crossed = x->ncycle == 2 && x->cycle[0]->p2p && x->cycle[1]->p2p;
        if (crossed && sends(x->cycle[0]->p2p) && sends(x->cycle[1]->p2p))
            say(o, "crossed sends: ");
        else if (crossed && !sends(x->cycle[0]->p2p) && !sends(x->cycle[1]->p2p))
            say(o, "both receive first: ");
        say_circle(o, j, x);
        for (int i = 0; i < x->ncycle; i++)
            if (x->cycle[i]->p2p) {
                say_near_miss(o, x->cycle[i]);
                break;
            }
    } else if (x->wait->on >= 0) {
        say_stuck(o, j, x);
        say_rank(o, j, x->wait->on);
        say(o, " %s; it ", missing(x, true));
        say_doing(o, j, x->wait->on);
        say_near_miss(o, x->wait);
        say(o, "; ");
        say_last(o, j, x->wait->on);
    } else {
        say_stuck(o, j, x);
        say(o, "no rank has sent it anything that fits");
        say_near_miss(o, x->wait);
    }
    add_victims(o, j, x);
}

/* ---- paths ---------------------------------------------------------------------------------------------------------------- */

static const char *host_name(const struct judge *j, int host)
{
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host && j->f->ranks[r].host[0])
            return j->f->ranks[r].host;
    return NULL;
}

static void say_end(struct out *o, const struct judge *j, int host, const char *ifname, const char *addr)
{
    const char *name = host_name(j, host);
    if (name)
        say(o, "%s", name);
    else
        say(o, "host %d", host);
    if (ifname[0] && addr[0])
        say(o, " (%s, %s)", ifname, addr);
    else if (ifname[0] || addr[0])
        say(o, " (%s%s)", ifname, addr);
}

static void say_pair(struct out *o, const struct judge *j, const struct verdict_link *l)
{
    say_end(o, j, l->from_host, l->from_if, l->from_addr);
    say(o, " and ");
    say_end(o, j, l->to_host, l->to_if, l->to_addr);
}

static int ranks_on(const struct judge *j, int host, int32_t *list)
{
    int n = 0;
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host)
            list[n++] = r;
    return n;
}

static void say_ranks_on(struct out *o, const struct judge *j, int host)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    int n = list ? ranks_on(j, host, list) : 0;
    if (n > 0)
        say_ranks(o, j, list, n);
    free(list);
}

static void say_unreachable(struct out *o, struct judge *j, const struct fault *x)
{
    static const char *const how[] = {"is well", "nothing comes back", "connections are reset", "connections are refused",
                                      "there is no route", "nobody answers"};
    const struct verdict_link *l = x->link;
    say(o, "no path between ");
    say_pair(o, j, l);
    uint64_t age = age_of(j, x->since_ns);
    if (age) {
        say(o, " for ");
        say_age(o, age);
    }
    say(o, ": %s", how[MIN(l->state, (int)ARRAY_LEN(how) - 1)]);
    if (l->from_if_down)
        say(o, ", interface %s is down", l->from_if[0] ? l->from_if : "there");
    say(o, "; ");
    say_ranks_on(o, j, l->from_host);
    say(o, " cannot reach ");
    say_ranks_on(o, j, l->to_host);
    say(o, "; no process is known to have died");
    add_victims(o, j, x);
}

static void say_rate(struct out *o, uint64_t bps)
{
    say(o, bps >= 1000000000u ? "%.1f GB/s" : "%.1f MB/s", (double)bps / (bps >= 1000000000u ? 1e9 : 1e6));
}

static void say_slow_link(struct out *o, struct judge *j, const struct fault *x)
{
    const struct verdict_link *l = x->link;
    say_operation(o, j, x->group, x->number);
    say(o, " runs for ");
    say_age(o, age_of(j, x->since_ns));
    say(o, ": the path between ");
    say_pair(o, j, l);
    say(o, " moves ");
    say_rate(o, l->measured_bps);
    if (l->expected_bps) {
        say(o, ", expected ");
        say_rate(o, l->expected_bps);
        say(o, " (%.0f %% of it)", 100.0 * (double)l->measured_bps / (double)l->expected_bps);
    }
    uint64_t best = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++)
            if (&j->f->ranks[r].links[i] != l)
                best = MAX(best, j->f->ranks[r].links[i].measured_bps);
    if (best) {
        say(o, "; other paths move up to ");
        say_rate(o, best);
    }
    say(o, "; ");
    say_ranks_on(o, j, l->from_host);
    say(o, " and ");
    say_ranks_on(o, j, l->to_host);
    say(o, " use it, all others wait for them");
}

/* ---- all inside ---------------------------------------------------------------------------------------------------------- */

static void say_moved(struct out *o, const struct group *g)
{
    uint64_t moved = 0, total = 0;
    char a[32], b[32];
    for (uint32_t i = 0; i < g->nseats; i++) {
        const struct verdict_event *e = event_at(g->seats[i].comm, g->number);
        if (e && e->bytes_total) {
            moved += e->bytes_moved;
            total += e->bytes_total;
        }
    }
    if (total)
        say(o, ", %s of %s moved", text_bytes(a, sizeof a, moved), text_bytes(b, sizeof b, total));
}

static void say_slow(struct out *o, struct judge *j, const struct fault *x)
{
    say_operation(o, j, x->group, x->number);
    say(o, " runs for ");
    say_age(o, age_of(j, x->since_ns));
    say_moved(o, x->group);
    say(o, ": all %d ranks have called it%s", x->group->size,
        x->group->moved_ns ? " and it moves on" : "; whether it moves is not counted here");
}

static void say_ours(struct out *o, struct judge *j, const struct fault *x)
{
    say_operation(o, j, x->group, x->number);
    say(o, " is stuck for ");
    say_age(o, age_of(j, x->group->moved_ns));
    say_moved(o, x->group);
    say(o, ": all %d ranks have made the same call, all processes run and all paths work, yet nothing moves", x->group->size);
    for (uint32_t i = 0; i < x->group->nseats; i++) {
        const struct verdict_event *e = running(x->group->seats[i].comm);
        if (!e || e->waits_for < 0)
            continue;
        say(o, "; ");
        say_rank(o, j, x->group->seats[i].rank);
        say(o, " waits for ");
        say_rank(o, j, member_of(x->group, e->waits_for));
        if (e->step >= 0)
            say(o, " in step %d, tile %u", e->step, e->tile);
        break;
    }
    say(o, "; this is a fault of the library");
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
    if (x->nculprits) {
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
    case VERDICT_KIND_SLOW_RANK:
    case VERDICT_KIND_STOPPED:
    case VERDICT_KIND_LEFT:
    case VERDICT_KIND_SILENT:
    case VERDICT_KIND_RANK_ABSENT:
    case VERDICT_KIND_COMPUTING: say_late(o, j, x); break;
    default: break; /* NONE, ABORTED and UNKNOWN are not found by a rule that comes here */
    }
}

/* ---- what to do ------------------------------------------------------------------------------------------------------------- */

void what_next(struct out *o, const struct judge *j, const struct fault *x)
{
    const struct verdict_rank *r = x->nculprits ? &j->f->ranks[x->culprits[0]] : NULL;
    const char *host = r && r->host[0] ? r->host : "its host";
    switch (x->kind) {
    case VERDICT_KIND_NEVER_JOINED: say(o, "look whether it was started, and at its first lines of output"); break;
    case VERDICT_KIND_DEAD:
        if (r && r->oom_kill)
            say(o, "give the process more memory, or use less; dmesg and memory.events on %s tell more", host);
        else
            say(o, "read the last output of rank %d on %s; the others can go on with uno_comm_shrink", r ? r->rank : -1, host);
        break;
    case VERDICT_KIND_MISMATCH: say(o, "make the ranks' calls alike at the places named; data of this operation was not used"); break;
    case VERDICT_KIND_OFF_BY_ONE: say(o, "look for a branch before that call that this rank takes differently"); break;
    case VERDICT_KIND_ABORTED: say(o, "read the cause named; it came first"); break;
    case VERDICT_KIND_UNREACHABLE: say(o, "look at that interface, its cable or switch port, and firewalls on both hosts"); break;
    case VERDICT_KIND_STOPPED:
        if (r && r->process.run == VERDICT_RUN_TRACED)
            say(o, "let the debugger go on (continue, or detach)");
        else if (r && r->process.run == VERDICT_RUN_FROZEN)
            say(o, "thaw its cgroup (echo 0 > cgroup.freeze), or ask who suspended the container");
        else
            say(o, "kill -CONT %d on %s lets it go on", r ? r->pid : 0, host);
        break;
    case VERDICT_KIND_COMM_ORDER: say(o, "use communicators in one order on all ranks, or their calls in one group"); break;
    case VERDICT_KIND_P2P_UNMATCHED:
        say(o, "post the missing partner; exchanges both ways belong in one group, or use uno_isend and uno_irecv");
        break;
    case VERDICT_KIND_LEFT: say(o, "look why this rank makes fewer calls than the others: uneven input is the usual reason"); break;
    case VERDICT_KIND_SILENT: say(o, "look on %s whether the process runs and the host answers", host); break;
    case VERDICT_KIND_RANK_ABSENT: say(o, "look at rank %d where it stands: `unisono why %d` on %s shows its stack", r ? r->rank : -1,
                                       r ? r->pid : 0, host); break;
    case VERDICT_KIND_SLOW_RANK: say(o, "look what else runs on the processors of %s, and at CPU quotas and affinity", host); break;
    case VERDICT_KIND_SLOW_LINK: say(o, "look at that interface: negotiated speed, errors (ethtool -S), other traffic"); break;
    case VERDICT_KIND_COMPUTING:
        say(o, "nothing, if the program may be uneven there; `unisono why %d` on %s shows its stack", r ? r->pid : 0, host);
        break;
    case VERDICT_KIND_SLOW: say(o, "nothing, if the operation is that large"); break;
    case VERDICT_KIND_FAULT_OF_OURS: say(o, "report it with the files of `unisono why --export-flight-recorder DIR`"); break;
    default: break;
    }
}

/* ---- evidence ----------------------------------------------------------------------------------------------------------------- */

static struct verdict_line *line_add(struct verdict *v, int rank, uint64_t age_ns, struct out *o)
{
    if (v->nlines == VERDICT_MAX_LINES)
        return NULL;
    struct verdict_line *l = &v->lines[v->nlines++];
    l->rank = rank;
    l->age_ns = age_ns;
    *o = out_of(l->text, sizeof l->text);
    return l;
}

static void say_stack(struct out *o, const char *stack)
{
    say(o, "; stack: ");
    for (const char *s = stack; *s; s++)
        if (*s != '\n')
            say(o, "%c", *s);
        else if (s[1])
            say(o, " < ");
}

static void culprit_line(struct verdict *v, const struct judge *j, int rank)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    struct out o;
    if (!line_add(v, rank, age_of(j, at_judge(j, rank, r->status_since_ns)), &o))
        return;
    say_rank(&o, j, rank);
    say(&o, " ");
    if (r->status == VERDICT_DEAD || r->status == VERDICT_LEFT)
        say_ended(&o, j, r, 1);
    else if (r->status == VERDICT_NEVER_JOINED)
        say(&o, "never joined");
    else if (gone(r) && r->process.run == VERDICT_RUN_UNKNOWN)
        say_silent(&o, j, rank);
    else
        say_doing(&o, j, rank);
    if (r->ncomms) {
        say(&o, "; ");
        say_last(&o, j, rank);
    }
    if (r->process.stack[0])
        say_stack(&o, r->process.stack);
}

static void victim_lines(struct verdict *v, const struct judge *j, int most)
{
    int told = -1;
    for (uint32_t i = 0; i < j->nwaits && most > 0; i++) {
        const struct wait *w = &j->waits[i];
        struct out o;
        if (j->mark[w->rank] != 1 || w->rank == told || !line_add(v, w->rank, age_of(j, w->since_ns), &o))
            continue;
        told = w->rank;
        most--;
        say_rank(&o, j, w->rank);
        say(&o, " waits in ");
        say_wait(&o, j, w);
        say(&o, " for ");
        say_age(&o, age_of(j, w->since_ns));
    }
}

static void link_lines(struct verdict *v, const struct judge *j)
{
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++) {
            const struct verdict_link *l = &j->f->ranks[r].links[i];
            uint64_t age = age_of(j, at_judge(j, r, l->since_ns));
            struct out o;
            if (l->state == VERDICT_PATH_OK || !line_add(v, -1, age, &o))
                continue;
            say(&o, "rank %d says: path between ", r);
            say_pair(&o, j, l);
            say(&o, l->state == VERDICT_PATH_MUTE ? " acknowledges, nobody answers" : " is cut");
            if (age) {
                say(&o, " for ");
                say_age(&o, age);
            }
        }
}

static void missing_line(struct verdict *v, const struct judge *j)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    int n = 0;
    for (int r = 0; list && r < j->size; r++)
        if (j->f->ranks[r].status == VERDICT_UNKNOWN || j->f->ranks[r].status == VERDICT_SILENT)
            list[n++] = r;
    struct out o;
    if (n > 0 && line_add(v, n == 1 ? list[0] : -1, 0, &o)) {
        say(&o, "no report of ");
        say_ranks(&o, j, list, n);
    }
    free(list);
}

void evidence(struct verdict *v, struct judge *j, const struct fault *x)
{
    for (int i = 0; i < MIN(x->nculprits, 6); i++)
        if (!x->ncycle || j->f->ranks[x->culprits[i]].process.stack[0])
            culprit_line(v, j, x->culprits[i]);
    for (int i = 0; i < MIN(x->ncycle, 6); i++) {
        struct out o;
        if (!line_add(v, x->cycle[i]->rank, age_of(j, x->cycle[i]->since_ns), &o))
            break;
        say_rank(&o, j, x->cycle[i]->rank);
        say(&o, " waits in ");
        say_wait(&o, j, x->cycle[i]);
        say(&o, " for ");
        say_age(&o, age_of(j, x->cycle[i]->since_ns));
    }
    if (x->nculprits)
        (void)reach(j, x->culprits, x->nculprits);
    else
        memset(j->mark, 0, (size_t)j->size);
    victim_lines(v, j, 4);
    link_lines(v, j);
    missing_line(v, j);
}
