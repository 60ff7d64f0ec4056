/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_wait.c - how a thread waits for operations of a communicator: who moves them meanwhile (the walk lock), deadlines, and signals that
 * want the thread back.
 */
#include "comm.h"

#include <sched.h>
#include <time.h>

/* ---- the walk lock ------------------------------------------------------------------------------------------------- */

static void walk_pause(unsigned tries)
{
    if (tries < 100)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, 50000}, NULL);
}

void walk_wait(uno_comm *c)
{
    for (unsigned tries = 0; !walk_try(c); tries++)
        walk_pause(tries);
}

/* ---- waiting for one communicator --------------------------------------------------------------------------------- */

bool engine_call_done(void *arg)
{
    return op_done(arg);
}

/* A signal wants the waiting thread back. A call cannot be taken back: its communicator fails, and so ends the call. */
static NOINLINE bool give_up(uno_comm *c, bool (*done)(void *arg), void *arg)
{
    interrupt_take(true);
    if (done != engine_call_done)
        return true;
    char text[160];
    snprintf(text, sizeof text, "rank %d was interrupted by a signal in %s", c->rank, op_word(arg));
    (void)comm_fail(c, UNO_ERR_ABORTED, c->rank, true, text);
    return false;
}

uno_err engine_walk_until(uno_comm *c, bool (*done)(void *arg), void *arg, uint64_t deadline_ns, bool ask)
{
    uint64_t ask_ns = 0;
    struct exec_wait wait = {0};
    uno_err result = UNO_OK;
    bool kicked = false;
    c->stall.until_ns = deadline_ns;
    while (!done(arg)) {
        bool moved = false;
        engine_step(c, &moved);
        if (moved) {
            exec_wait_reset(&c->env, &wait);
            continue;
        }
        uint32_t number = c->current ? c->run->number : 0;
        if (exec_pause(&c->env, &wait, number, c->current ? c->run->deadline_ns : UINT64_MAX, true) != UNO_OK)
            engine_look_now(c);
        if (__builtin_expect(wait.stage != 0 && !kicked, 0)) {
            kicked = true;
            (void)requests_go_on(c);
        }
        bool give = false;
        if (__builtin_expect(wait.stage != 0 && ask, 0) && interrupt_asked(&ask_ns)) {
            ask = false;
            give = give_up(c, done, arg);
        }
        if ((give || (deadline_ns != UINT64_MAX && clock_ns() >= deadline_ns)) && !done(arg)) {
            result = UNO_ERR_IN_PROGRESS;
            break;
        }
    }
    c->stall.until_ns = UINT64_MAX;
    exec_wait_end(&c->env, &wait);
    if (__builtin_expect(p2p_owes(c->p2p), 0))
        engine_kick(); /* the answer did not fit now; nobody else here waits for it */
    return result;
}

/* Whoever has the walk lock moves everybody's operations, and may keep it long after ours have ended: do not wait for the lock
 * alone. false: done, the deadline has passed, or a signal wants this thread. */
static bool take_walk(uno_comm *c, bool (*done)(void *arg), void *arg, uint64_t deadline_ns)
{
    uint64_t ask_ns = 0;
    for (unsigned tries = 0; !walk_try(c); tries++) {
        if (tries > 100 && interrupt_asked(&ask_ns) && give_up(c, done, arg))
            return false;
        if (done(arg) || (deadline_ns != UINT64_MAX && clock_ns() >= deadline_ns))
            return false;
        walk_pause(tries);
    }
    return true;
}

uno_err engine_wait(uno_comm *c, bool (*done)(void *arg), void *arg, uint64_t deadline_ns)
{
    interrupt_take(false);
    if (c->env.proc)
        net_enter(c->env.proc);
    uno_err err = UNO_ERR_IN_PROGRESS;
    if (take_walk(c, done, arg, deadline_ns)) {
        err = engine_walk_until(c, done, arg, deadline_ns, true);
        walk_leave(c);
    } else if (done(arg)) {
        err = UNO_OK;
    }
    if (c->env.proc)
        net_leave(c->env.proc);
    return err;
}

uno_err engine_wait_alone(uno_comm *c, bool (*done)(void *arg), uint64_t deadline_ns)
{
    if (c->env.proc)
        net_enter(c->env.proc);
    walk_wait(c);
    uno_err err = engine_walk_until(c, done, c, deadline_ns, false);
    walk_leave(c);
    if (c->env.proc)
        net_leave(c->env.proc);
    return err;
}
