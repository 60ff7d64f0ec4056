/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_wait.c - waiting in three stages: poll, then yield as long as it helps, then sleep on the own region's futex (or on
 * the sockets, when some peers are behind them). Called after a poll that moved nothing.
 */
#include "exec.h"

#include <sched.h>

enum { SPIN = EXEC_SPUN, YIELD, ARMED };

#define POLLS 64
#define FAR_POLLS 4           /* each with a look at the sockets, which takes as long as 64 looks at memory */
#define CROWDED_POLLS 4       /* 4 and 8 ranks on 2 processors at 8 bytes: 4.7 and 11 us, with 192 polls 11 and 28 */
#define YIELD_NS 50000        /* a yield pays while others get to run; after this long, sleep */
#define STRANGER_NS 1000000   /* a yield of so long went to a program that is none of ours, and ended with its slice of time */
#define STRANGERS_MOST 4096   /* waits that sleep at once before a yield is tried again */
#define OTHERS_NS 4000        /* a yield of so long let somebody run: */
#define OTHERS_WAITS 32       /* so many waits more yield soon */
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

/* Other programs want these processors: who yields to them comes back milliseconds later, who sleeps is woken as soon as there is
 * something to do. How many waits go without yields, and how many more the next time that one is tried in vain. Hints of all threads
 * of the process; relaxed: a lost count is a wait that yields. */
static _Atomic uint32_t sleep_at_once, back_off;

static bool strangers_about(void)
{
    uint32_t left = atomic_load_explicit(&sleep_at_once, memory_order_relaxed);
    if (__builtin_expect(left == 0, 1))
        return false;
    atomic_store_explicit(&sleep_at_once, left - 1, memory_order_relaxed);
    return true;
}

/* Ranks that take themselves for alone (as hosts that are containers of one machine) share a processor: so many waits more do not keep it for
 * long. Hints, as above. */
static _Atomic uint32_t yield_soon_left;

static bool others_about(void)
{
    return atomic_load_explicit(&yield_soon_left, memory_order_relaxed) != 0;
}

static void learn_from_yield(uint64_t took_ns)
{
    if (took_ns >= OTHERS_NS)
        atomic_store_explicit(&yield_soon_left, OTHERS_WAITS, memory_order_relaxed);
    uint32_t n = atomic_load_explicit(&back_off, memory_order_relaxed);
    if (__builtin_expect(took_ns >= STRANGER_NS, 0)) {
        n = MIN(2 * n + 16, STRANGERS_MOST);
        atomic_store_explicit(&sleep_at_once, n, memory_order_relaxed);
    } else if (n == 0) {
        return;
    } else {
        n--;
    }
    atomic_store_explicit(&back_off, n, memory_order_relaxed);
}

static void next_stage(struct exec_wait *w, int stage, uint64_t end_ns)
{
    w->stage = (uint8_t)stage;
    w->stage_end_ns = end_ns;
}

static void arm(struct exec_env *env, struct exec_wait *w)
{
    next_stage(w, ARMED, 0);
    w->bell = net_doze_begin(env->region);
}

static void stop_polling(struct exec_env *env, struct exec_wait *w, uint64_t now, bool may_sleep)
{
    uint32_t left = atomic_load_explicit(&yield_soon_left, memory_order_relaxed);
    if (left && !env->crowded)
        atomic_store_explicit(&yield_soon_left, left - 1, memory_order_relaxed);
    if (may_sleep && strangers_about()) {
        arm(env, w);
        return;
    }
    next_stage(w, YIELD, now + YIELD_NS);
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
    if (env->proc && (env->far || (w->polls & 3) == 0) && net_progress(env->proc))
        return UNO_OK;
    if (w->stage == SPIN) {
        /* whom we wait for may need this processor: polling on wins nothing */
        bool yield_soon = (env->crowded || others_about()) && !spin_given;
        exec_relax();
        if (w->polls % (env->far ? (yield_soon ? 1 : FAR_POLLS) : yield_soon ? CROWDED_POLLS : POLLS))
            return UNO_OK;
        uint64_t now = clock_ns();
        if (yield_soon)
            stop_polling(env, w, now, may_sleep);
        else if (w->stage_end_ns == 0)
            w->stage_end_ns = now + spin_ns;
        else if (now >= w->stage_end_ns)
            stop_polling(env, w, now, may_sleep);
        return env->look(env->look_arg, number, deadline_ns);
    }
    if (w->stage == YIELD) {
        uint64_t before = clock_ns();
        sched_yield();
        uint64_t now = clock_ns();
        learn_from_yield(now - before);
        if (w->polls % 16)
            return UNO_OK;
        if (now >= w->stage_end_ns && may_sleep)
            arm(env, w);
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
