/* SPDX-License-Identifier: Apache-2.0 */
/* floors_machine.c - what the prototypes are made of: copies, sums, and handing over from one process to the other. */
#include "floors.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "floor_kernels.h"

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
    syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

enum way { BY_POLL, BY_YIELD, BY_FUTEX };

/* One-way time of a hand-over: the two processes take turns on one word. Acquire and release: each turn sees all before. */
static double hand_over(struct worker *w, enum way way, bool same_cpu, int turns)
{
    _Atomic uint32_t *word = &w->s->word.value;
    pin(w->cpu[same_cpu ? 0 : w->rank]);
    if (w->rank == 0)
        atomic_store(word, 0);
    step_together(w);
    double start = now_seconds();
    for (uint32_t turn = (uint32_t)w->rank; turn < (uint32_t)turns; turn += RANKS) {
        for (uint32_t seen; (seen = atomic_load_explicit(word, memory_order_acquire)) != turn;)
            if (way == BY_YIELD)
                sched_yield();
            else if (way == BY_FUTEX)
                futex(word, FUTEX_WAIT, seen);
            else
                floor_pause();
        atomic_store_explicit(word, turn + 1, memory_order_release);
        if (way == BY_FUTEX)
            futex(word, FUTEX_WAKE, 1);
    }
    double seconds = now_seconds() - start;
    pin(w->cpu[w->rank]);
    step_together(w);
    return seconds / turns;
}

/* GB/s of payload, both processes together: bytes of one array per second. */
static double rate(struct worker *w, bool sum, bool stream, size_t bytes)
{
    int n = (int)(((size_t)192 << 20) / bytes);
    n = n < 1 ? 1 : n;
    float *third = w->map_recv[w->rank];
    step_together(w);
    double start = now_seconds();
    for (int i = 0; i < n; i++)
        if (sum)
            floor_sum(&w->recv, 1, (const float *const[]){w->send, third}, 2, bytes / sizeof(float), stream);
        else
            floor_copy(w->recv, w->send, bytes, stream);
    step_together(w);
    return (double)RANKS * n * (double)bytes / (now_seconds() - start) / 1e9;
}

int machine_facts(struct worker *w, struct machine_fact *facts, int most)
{
    static const struct { const char *name; enum way way; bool same_cpu; int turns; } hands[] = {
        {"flag hand-over, two processors", BY_POLL, false, 200000},
        {"yield hand-over, one processor", BY_YIELD, true, 20000},
        {"futex wake, one processor", BY_FUTEX, true, 20000},
        {"futex wake, two processors", BY_FUTEX, false, 5000},
    };
    static const struct { const char *name; bool sum, stream; size_t bytes; } rates[] = {
        {"copy, 256 KB arrays, 2 processes", false, false, 256 << 10},
        {"copy, 64 MB arrays, 2 processes", false, false, 64 << 20},
        {"copy, 64 MB arrays, 2 processes, streaming stores", false, true, 64 << 20},
        {"sum, 256 KB arrays, 2 processes", true, false, 256 << 10},
        {"sum, 64 MB arrays, 2 processes", true, false, 64 << 20},
        {"sum, 64 MB arrays, 2 processes, streaming stores", true, true, 64 << 20},
    };
    int n = 0;
    for (size_t i = 0; i < sizeof hands / sizeof hands[0] && n < most; i++)
        facts[n++] = (struct machine_fact){hands[i].name, "us",
                                           hand_over(w, hands[i].way, hands[i].same_cpu, hands[i].turns) * 1e6};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0] && n < most; i++)
        facts[n++] = (struct machine_fact){rates[i].name, "GB/s", rate(w, rates[i].sum, rates[i].stream, rates[i].bytes)};
    return n;
}
