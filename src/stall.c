/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stall.c - who waits without progress asks its steward what is going on, once more when the deadline is near, and what comes out is
 * kept: it is the sentence of the error when that has passed. Looking: walk lock held, now and then while something waits. Verdicts come on the steward's thread.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_NS 100000000ull
#define SAY_NS 1000000000ull
#define HURRY_NS 1500000000ull /* what an error says of others is asked for so long before it is made, or in the middle of a shorter wait */

/* Changes when something moves: operations, their steps, messages of sends and receives. */
static uint64_t marker_of(const uno_comm *c)
{
    struct net_counts n = {0};
    struct exec_progress p = {0};
    if (c->current)
        exec_progress(c->run, &p);
    net_comm_count(c->net, &n);
    uint64_t m = hash_mix(c->number, p.step);
    for (int i = 0; i < NET_CARRIER_COUNT; i++)
        m = hash_mix(hash_mix(m, n.messages[i]), n.bytes[i]);
    return m;
}

void stall_over(uno_comm *c, bool well)
{
    c->stall.said = c->stall.asked = false;
    if (well)
        watch_resumed(c->job->watch);
}

static uint64_t sooner(uint64_t nearest, uint64_t until, uint64_t now)
{
    return until > now ? MIN(nearest, until) : nearest;
}

static uint64_t nearest_deadline(const uno_comm *c, uint64_t now, uint64_t deadline_ns)
{
    uint64_t nearest = sooner(UINT64_MAX, c->current ? deadline_ns : 0, now);
    nearest = sooner(nearest, c->stall.until_ns, now);
    for (const struct op *op = c->p2p_running; op; op = op->next_in_comm)
        nearest = sooner(nearest, op->deadline_ns, now);
    return nearest;
}

/* What is known then is in the error. A verdict was asked for before, if the wait is longer than a stall; it says how things were then. */
static void look_ahead(uno_comm *c, uint64_t now, uint64_t deadline_ns)
{
    struct stall *s = &c->stall;
    uint64_t until = nearest_deadline(c, now, deadline_ns);
    if (s->hurried_ns == until || now + MIN(HURRY_NS, (until - s->since_ns) / 2) < until)
        return;
    s->hurried_ns = until;
    s->asked = true;
    watch_hurry(c->job->watch, MIN((uint64_t)(c->cfg.stall * 1e9), (now - s->since_ns) / 4 * 3));
}

void stall_look(uno_comm *c, uint64_t now, uint64_t deadline_ns)
{
    struct stall *s = &c->stall;
    if (now < s->look_ns)
        return;
    s->look_ns = now + LOOK_NS;
    bool waits = c->current || c->p2p_running || c->p2p_waited;
    uint64_t marker = waits ? marker_of(c) : 0;
    if (!waits || marker != s->marker || !s->waits) {
        if (s->said)
            stall_over(c, true);
        s->since_ns = now;
        s->marker = marker;
        s->waits = waits;
        s->asked = false;
        return;
    }
    look_ahead(c, now, deadline_ns);
    if ((double)(now - s->since_ns) < c->cfg.stall * 1e9 || now < s->say_ns)
        return;
    s->said = s->asked = true;
    s->say_ns = now + SAY_NS;
    watch_stalled(c->job->watch);
}

/* ---- what the steward says ------------------------------------------------------------------------------------------------ */

void stall_verdict(uno_comm *c, const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    pthread_mutex_lock(&c->fail_lock);
    free(c->verdict);
    c->verdict = copy;
    c->verdict_ns = clock_ns();
    pthread_mutex_unlock(&c->fail_lock);
}

bool stall_reason(uno_comm *c, char *buf, size_t buf_bytes)
{
    pthread_mutex_lock(&c->fail_lock);
    bool there = c->verdict && c->stall.asked && c->verdict_ns >= c->stall.since_ns;
    if (there)
        snprintf(buf, buf_bytes, "%s", c->verdict);
    pthread_mutex_unlock(&c->fail_lock);
    return there;
}
