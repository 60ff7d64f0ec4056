/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_say_calls.c - the sentences of calls that do not fit together, of circles, and of sends and receives without partner.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

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
    if (coll_has_root((uno_coll)e->coll) && e->root != other->root) {
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

static const uint64_t *passed_at(const struct verdict_comm *c, uint32_t number)
{
    return c->npassed && c->passed_number == number ? c->passed : NULL;
}

/* The first rank for which two classes pass different counts; both sides are said. false: nobody's counts tell it. */
static bool say_passed(struct out *o, const struct judge *j, const struct fault *x, const struct call_class *classes, int n)
{
    const struct verdict_comm *a = n > 0 ? classes[0].seat->comm : NULL;
    const uint64_t *most = a ? passed_at(a, x->number) : NULL;
    for (int k = 1; most && k < n; k++) {
        const struct verdict_comm *b = classes[k].seat->comm;
        const uint64_t *other = passed_at(b, x->number);
        for (uint32_t i = 0; other && i < MIN(a->npassed, b->npassed); i++) {
            if (most[i] == other[i])
                continue;
            say(o, "for rank %d, ", member_of(x->group, (int)i));
            say_rank(o, j, classes[k].seat->rank);
            say(o, " passes %llu elements", (unsigned long long)other[i]);
            if (classes[k].event->site[0])
                say(o, " at %s", classes[k].event->site);
            say(o, ", ");
            say_rank(o, j, classes[0].seat->rank);
            say(o, classes[0].n > 1 ? " and others pass %llu" : " passes %llu", (unsigned long long)most[i]);
            if (classes[0].event->site[0])
                say(o, " at %s", classes[0].event->site);
            return true;
        }
    }
    return false;
}

/* Signatures differ, the calls that can be seen do not. */
static void say_unseen(struct out *o, const struct judge *j, const struct fault *x, const struct call_class *classes, int n)
{
    const char *others = n > 1 && classes[0].n == classes[1].n ? "each other" : "the others"; /* no side has the majority */
    const struct verdict_event *e = classes[0].event;
    if (coll_is_v((uno_coll)e->coll) && say_passed(o, j, x, classes, n))
        return;
    say_ranks(o, j, x->culprits, x->nculprits);
    if (coll_is_v((uno_coll)e->coll))
        say(o, " passed other counts per rank than %s", others);
    else
        say(o, " made this call with another plan or after other calls than %s (settings, library, or an operation before the ones still "
            "recorded)", others);
}

static bool visible(const struct call_class *a, const struct call_class *b)
{
    return calls_differ(a->event, b->event);
}

void say_mismatch(struct out *o, struct judge *j, const struct fault *x)
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
        say_unseen(o, j, x, classes, n);
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
    if (coll_has_root((uno_coll)e->coll)) {
        say_job_root(o, g, e->root);
        say(o, ", ");
    }
    say(o, "count %llu)", (unsigned long long)e->count);
    if (e->site[0])
        say(o, " at %s", e->site);
}

/* The call of that number of somebody who is no culprit. */
static const struct verdict_event *others_call(const struct fault *x, uint32_t number)
{
    for (uint32_t i = 0; i < x->group->nseats; i++) {
        bool culprit = false;
        for (int k = 0; k < x->nculprits; k++)
            culprit = culprit || x->culprits[k] == x->group->seats[i].rank;
        if (!culprit && event_at(x->group->seats[i].comm, number))
            return event_at(x->group->seats[i].comm, number);
    }
    return NULL;
}

void say_off_by_one(struct out *o, struct judge *j, const struct fault *x)
{
    int rank = x->culprits[0];
    const struct seat *s = seat_of(x->group, rank);
    const struct verdict_event *own = s ? event_at(s->comm, x->number) : NULL, *theirs = others_call(x, x->number);
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
        if (others_call(x, x->number + 1))
            say(o, ", is what the others call as #%u", x->number + 1);
        else
            say(o, ", is what comes after that one");
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

void say_wait(struct out *o, const struct judge *j, const struct wait *w)
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

void say_comm_order(struct out *o, struct judge *j, const struct fault *x)
{
    say(o, "communicators are used in different order: ");
    say_circle(o, j, x);
    add_victims(o, j, x);
}

static void say_tags(struct out *o, int sender, int sent, int receiver, int received)
{
    say(o, "; the tags differ: rank %d sends tag %d, rank %d receives tag %d", sender, sent, receiver, received);
}

/* A message of another tag that waits for this wait's rank, at the given member. */
static bool near_miss_at(struct out *o, const struct wait *w, const struct seat *own, const struct seat *peer)
{
    bool send = sends(w->p2p);
    for (uint32_t i = 0; i < peer->comm->np2p; i++) {
        const struct verdict_p2p *p = &peer->comm->p2p[i];
        if (p->matched || sends(p) == send || p->tag == w->p2p->tag ||
            (p->peer != own->comm->rank && p->peer != UNO_ANY))
            continue;
        say_tags(o, send ? w->rank : peer->rank, send ? w->p2p->tag : p->tag, send ? peer->rank : w->rank, send ? p->tag : w->p2p->tag);
        return true;
    }
    return false;
}

/* A receive there that fits but for its tag, or a send there. */
static void say_near_miss(struct out *o, const struct wait *w)
{
    const struct seat *own = seat_of(w->group, w->rank);
    for (uint32_t i = 0; own && i < w->group->nseats; i++) {
        const struct seat *peer = &w->group->seats[i];
        if (peer != own && (w->on < 0 || peer->rank == w->on) && near_miss_at(o, w, own, peer))
            return;
    }
}

void say_unmatched(struct out *o, struct judge *j, const struct fault *x)
{
    if (x->cycle) {
        bool crossed = x->ncycle == 2 && x->cycle[0]->p2p && x->cycle[1]->p2p;
        if (crossed && sends(x->cycle[0]->p2p) && sends(x->cycle[1]->p2p))
            say(o, "crossed sends: ");
        else if (crossed && !sends(x->cycle[0]->p2p) && !sends(x->cycle[1]->p2p))
            say(o, "both receive first: ");
        else if (!crossed)
            say(o, sends(x->cycle[0]->p2p) ? "send without receive: " : "receive without send: ");
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
