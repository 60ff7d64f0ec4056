/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_wait.c - waiting in three stages: poll, then yield as long as it helps, then sleep on the own region's futex (or on
 * the sockets, when some peers are behind them). Called after a poll that moved nothing.
 */
#include "exec.h"

#include <sched.h>

enum { SPIN = EXEC_SPUN, YIELD, ARMED };

#define CROWDED_POLLS 4       /* 4 and 8 ranks on 2 processors at 8 bytes: 4.7 and 11 us, with 192 polls 11 and 28 */
#define YIELD_NS 50000        /* a yield pays while others get to run; after this long, sleep */
#define DOZE_FIRST_US 200
#define DOZE_MOST_US 20000    /* aborts written by others ring the bell; this bounds what a lost ring costs */
#define SOCKET_DOZE_NS 1000000 /* a peer on this host cannot ring somebody who sleeps on sockets */

static uint64_t spin_ns = 20000;         /* about twice the slowest hand-over seen between idle cores */
static bool spin_given;

void exec_wait_configure(double spin_s)
{
    spin_given = spin_s >= 0;
    if (spin_given)
        spin_ns = (uint64_t)(spin_s * 1e9);
}

static void next_stage(struct exec_wait *w, int stage, uint64_t end_ns)
{
    w->stage = (uint8_t)stage;
    w->stage_end_ns = end_ns;
}

static void doze(struct exec_env *env, struct exec_wait *w, uint64_t deadline_ns)
{
    if (w->doze_us == 0)
        w->doze_us = DOZE_FIRST_US;
    uint64_t now = clock_ns(), ns = (uint64_t)w->doze_us * 1000;
    if (deadline_ns != UINT64_MAX)
        ns = MIN(ns, deadline_ns > now ? deadline_ns - now : 1);
    if (env->proc)
        net_sleep(env->proc, MIN(ns, SOCKET_DOZE_NS));
    else
        net_doze(env->region, w->bell, ns);
    w->doze_us = MIN(w->doze_us * 2, DOZE_MOST_US);
}

uno_err exec_pause(struct exec_env *env, struct exec_wait *w, uint32_t number, uint64_t deadline_ns, bool may_sleep)
{
    w->polls++;
    if (env->proc && (w->polls & 3) == 0 && net_progress(env->proc))
        return UNO_OK;
    if (w->stage == SPIN) {
        bool yield_soon = env->crowded && !spin_given; /* whom we wait for may need this processor: polling on wins nothing */
        exec_relax();
        if (w->polls % (yield_soon ? CROWDED_POLLS : 64))
            return UNO_OK;
        uint64_t now = clock_ns();
        if (yield_soon)
            next_stage(w, YIELD, now + YIELD_NS);
        else if (w->stage_end_ns == 0)
            w->stage_end_ns = now + spin_ns;
        else if (now >= w->stage_end_ns)
            next_stage(w, YIELD, now + YIELD_NS);
        return env->look(env->look_arg, number, deadline_ns);
    }
    if (w->stage == YIELD) {
        sched_yield();
        if (w->polls % 16)
            return UNO_OK;
        if (clock_ns() >= w->stage_end_ns && may_sleep) {
            next_stage(w, ARMED, 0);
            w->bell = net_doze_begin(env->region);
        }
        return env->look(env->look_arg, number, deadline_ns);
    }
    /* ARMED: the caller has looked once more since net_doze_begin, and nothing moved. */
    doze(env, w, deadline_ns);
    w->bell = net_doze_begin(env->region);
    return env->look(env->look_arg, number, deadline_ns);
}

void exec_wait_end(struct exec_env *env, struct exec_wait *w)
{
    exec_wait_count(env, w->stage);
    if (w->stage == ARMED)
        net_doze_end(env->region);
    *w = (struct exec_wait){0};
}
