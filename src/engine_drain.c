/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_drain.c - waiting for everything: until nothing that was issued on a communicator is left, for finalize, shrink and destroy, and
 * until all operations of a group are done, whatever communicators they are of.
 */
#include "comm.h"

#include <sched.h>
#include <time.h>

#define SEEN_S 1.0 /* who finalizes waits so long for readers that are elsewhere */

/* ---- one communicator ------------------------------------------------------------------------------------------- */

/* Will it read nothing any more, because it has ended or called uno_comm_shrink? */
static bool reader_gone(void *arg, int rank)
{
    const uno_comm *c = arg;
    bool moves = false;
    int n = atomic_load_explicit(&c->nmovers, memory_order_acquire); /* pairs with the release in note_gone */
    for (int i = 0; i < n; i++)
        moves = moves || c->movers[i].rank == rank;
    return moves || comm_gone_rank(c, rank);
}

bool engine_seen(void *arg)
{
    uno_comm *c = arg;
    return atomic_load_explicit(&c->failed, memory_order_relaxed) || !net_comm_unseen(c->net, reader_gone, c);
}

static bool drained(void *arg)
{
    uno_comm *c = arg;
    if (atomic_load_explicit(&c->failed, memory_order_relaxed))
        return true; /* what stands behind events of others would never start */
    return !c->current && !p2p_busy(c->p2p) && !c->p2p_running && atomic_load_explicit(&c->queued, memory_order_relaxed) == 0;
}

uno_err engine_settle(uno_comm *c, double seconds)
{
    TRY(engine_wait_alone(c, drained, clock_after(seconds)));
    (void)engine_wait_alone(c, engine_seen, clock_after(MIN(seconds, SEEN_S)));
    return UNO_OK;
}

uno_err engine_drain(uno_comm *c)
{
    walk_wait(c);
    c->draining = true;
    walk_leave(c);
    double timeout_s = comm_timeout_s(c); /* it may be another one when this one has passed */
    if (engine_wait_alone(c, drained, comm_deadline_ns(c, clock_ns())) != UNO_OK) {
        char text[ERR_TEXT_BYTES], why[ERR_TEXT_BYTES - 160];
        bool known = stall_reason(c, why, sizeof why);
        snprintf(text, sizeof text, "rank %d waited %.1f s in uno_comm_finalize for operations that it had issued (UNISONO_TIMEOUT)%s%s",
                 c->rank, timeout_s, known ? ": " : "", known ? why : "");
        (void)comm_fail(c, UNO_ERR_TIMEOUT, c->rank, true, text);
    }
    if (comm_cause(c) != UNO_OK) {
        engine_fail_all(c);
    } else {
        (void)engine_wait_alone(c, engine_seen, clock_after(SEEN_S));
        fail_look_back(c);
    }
    return comm_cause(c);
}

bool engine_busy(uno_comm *c)
{
    walk_wait(c);
    bool busy = c->current || c->p2p_running || atomic_load_explicit(&c->queued, memory_order_relaxed) != 0;
    walk_leave(c);
    return busy;
}

void engine_wait_unused(uno_comm *c)
{
    while (atomic_load_explicit(&c->active, memory_order_acquire) != 0) /* pairs with the release in comm_release */
        sched_yield();
}

/* ---- several communicators ------------------------------------------------------------------------------------------- */

static uno_err look_elsewhere(void *arg, uint32_t number, uint64_t deadline_ns)
{
    (void)arg, (void)number, (void)deadline_ns;
    return UNO_OK;
}

/* Several regions cannot be slept on at once: spin, then yield. Looking needs the walk lock and is the caller's. */
static void pause_group(uno_comm *c, struct exec_wait *wait)
{
    struct exec_env env = {.crowded = c->env.crowded, .far = c->env.far, .proc = c->env.proc, .look = look_elsewhere};
    (void)exec_pause(&env, wait, 0, UINT64_MAX, false);
}

/* What a receive was matched with may wait for a word that did not fit yet; nobody else here sends it. */
static void kick_if_owing(struct op *first)
{
    for (struct op *op = first; op; op = op->next_in_group) {
        if (!op->p2p || !walk_try(op->comm))
            continue;
        bool owes = p2p_owes(op->comm->p2p);
        walk_leave(op->comm);
        if (owes) {
            engine_kick();
            return;
        }
    }
}

void engine_wait_group(struct op *first)
{
    struct exec_wait wait = {0};
    bool kicked = false;
    for (;;) {
        bool moved = false, pending = false;
        uno_comm *blocked = NULL;
        for (struct op *op = first; op; op = op->next_in_group) {
            if (op_done(op))
                continue;
            pending = true;
            uno_comm *c = op->comm;
            if (!walk_try(c))
                continue;
            engine_step(c, &moved);
            if (!moved && (wait.polls & 63) == 0)
                engine_look_now(c);
            blocked = c;
            walk_leave(c);
        }
        if (!pending) {
            kick_if_owing(first);
            return;
        }
        if (moved)
            wait = (struct exec_wait){0};
        else if (blocked)
            pause_group(blocked, &wait);
        else
            sched_yield();
        if (wait.stage != 0 && !kicked)
            kicked = requests_go_on(NULL);
        if (wait.stage != 0 && wait.polls > 4096)
            nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}
