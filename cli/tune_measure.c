/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_measure.c - what things cost between processes of this machine: starts and pins them, measures how long a flag takes from one to
 * the other, and has tune_library.c measure the rest.
 */
#include "tune.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "floor_kernels.h"
#include "output.h"
#include "unisono.h"

enum { LIMIT_S = 60, LINE = 64, WRITER = 0, READER = 1, POLLS = 2000, MOST_PROCESSES = 4 };

struct page { /* shared by all */
    struct { _Alignas(LINE) _Atomic uint64_t count; } turn[2]; /* steps that each has done; release, pairs with the acquire in await */
    _Alignas(LINE) int pid[2];
    int can_read, go_on;
    uint64_t latency_ps;        /* the reader's */
    struct tune_shared shared;
};

enum { PAGE_BYTES = (sizeof(struct page) + 4095) / 4096 * 4096 };

struct side {
    struct page *page;
    int me, cpu[2];             /* of each; -1 = any */
    uint64_t step;
    int polls;
};

static double now_ps(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e12 + (double)t.tv_nsec * 1e3;
}

/* I have done my part of a step; until the other has done its. */
static void done(struct side *s)
{
    atomic_store_explicit(&s->page->turn[s->me].count, ++s->step, memory_order_release);
}

static void await(struct side *s, uint64_t step)
{
    for (int polls = 0; atomic_load_explicit(&s->page->turn[!s->me].count, memory_order_acquire) < step; polls++)
        if (polls >= s->polls)
            sched_yield();
        else
            floor_pause();
}

static void meet(struct side *s)
{
    done(s);
    await(s, s->step);
}

/* Refused: the scheduler decides. */
static void pin_to(int a, int b)
{
    cpu_set_t set;
    if (a < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(a, &set);
    CPU_SET(b, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* ---- rounds: as many as asked, or as there is time for; the writer says so to both ------------------------------------- */

enum { ROUNDS = 40, LEAST_ROUNDS = 3 };
#define ROUNDS_PS 0.3e12

static bool next_round(struct side *s, int round, double since_ps)
{
    if (s->me == WRITER)
        s->page->go_on = round < ROUNDS && (round < LEAST_ROUNDS || now_ps() - since_ps < ROUNDS_PS);
    meet(s);
    bool go_on = s->page->go_on;
    meet(s);
    return go_on;
}

/* ---- handing over ---------------------------------------------------------------------------------------------- */

/* Half of there and back. */
static uint64_t hand_over(struct side *s, int count)
{
    double best = 1e18, begun = now_ps();
    for (int round = 0; next_round(s, round, begun); round++) {
        double start = now_ps();
        for (int i = 0; i < count; i++) {
            if (s->me == WRITER)
                done(s);
            await(s, s->step + (s->me == READER));
            if (s->me == READER)
                done(s);
        }
        double each = (now_ps() - start) / count / 2;
        best = each < best ? each : best;
    }
    return (uint64_t)best;
}

/* ---- both sides ----------------------------------------------------------------------------------------------------- */

static bool can_read_other(const struct side *s)
{
    char word[LINE];
    struct iovec here = {word, sizeof word}, there = {s->page, sizeof word};
    return process_vm_readv(s->page->pid[WRITER], &here, 1, &there, 1, 0) == (ssize_t)sizeof word;
}

/* One of two processes, each on a processor of its own. */
static bool run_side(struct side *s)
{
    s->page->pid[s->me] = (int)getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* as the library's processes are each other's siblings */
    meet(s);
    if (s->me == READER)
        s->page->can_read = can_read_other(s);
    meet(s);
    pin_to(s->cpu[s->me], s->cpu[s->me]);
    uint64_t latency_ps = hand_over(s, s->polls ? 100 : 20);
    if (s->me == READER)
        s->page->latency_ps = latency_ps;
    return tune_calls(&s->page->shared, s->me, 2, false);
}

/* One of as many as share two processors. */
static bool run_turns(struct side *s)
{
    pin_to(s->cpu[0], s->cpu[1]);
    return tune_calls(&s->page->shared, s->me, s->page->shared.times.ranks_in_turns, true);
}

static void choose_cpus(struct side *s)
{
    cpu_set_t set;
    int found = 0;
    s->cpu[0] = s->cpu[1] = -1;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &set))
            s->cpu[found++] = cpu;
    if (found == 1)
        s->cpu[1] = s->cpu[0];
    s->polls = found == 2 ? POLLS : 0;
}

/* All of them end well, or those that are left are ended: they would wait for ever. */
static bool run_all(struct side *s, int n, bool (*run)(struct side *))
{
    pid_t child[MOST_PROCESSES];
    bool ok = true;
    fflush(NULL);
    for (s->me = 0; s->me < n; s->me++) {
        child[s->me] = fork();
        if (child[s->me] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(LIMIT_S);
            _exit(run(s) ? 0 : 1);
        }
        ok = ok && child[s->me] > 0;
    }
    for (int left = n; left > 0; left--) {
        int status = 0;
        for (int k = 0; k < n && !ok; k++)
            if (child[k] > 0)
                kill(child[k], SIGKILL);
        pid_t ended = waitpid(-1, &status, 0);
        ok = ok && ended > 0 && status == 0;
        for (int k = 0; k < n; k++)
            child[k] = child[k] == ended ? -1 : child[k];
    }
    return ok;
}

bool tune_measure(struct tuned *result)
{
    struct page *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        out_error("tune", "no memory to measure with: %s", strerror(errno));
        return false;
    }
    struct side side = {.page = page};
    struct tune_times *times = &page->shared.times;
    choose_cpus(&side);
    times->ranks_a_processor = 2;
    times->ranks_in_turns = side.polls ? 4 : 2;
    bool ok = run_all(&side, 2, run_side) && run_all(&side, times->ranks_in_turns, run_turns);
    *result = (struct tuned){.latency_ps = page->latency_ps};
    if (ok)
        tune_costs(times, page->can_read, result);
    if (!page->can_read)
        snprintf(result->note, sizeof result->note,
                 "processes may not read each other's memory here (kernel.yama.ptrace_scope, or a container)");
    munmap(page, PAGE_BYTES);
    if (!ok)
        out_error("tune", "the measuring processes did not come to their end");
    return ok;
}
