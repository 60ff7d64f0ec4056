/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt.c - signals of a language that handles them between its own instructions: while a thread waits in here nobody does,
 * so its binding is asked from time to time. Called by engine_wait.c; knows no communicator.
 */
#include "comm.h"

#define ASK_NS 100000000ull

_Atomic int interrupts;
static struct { pthread_mutex_t lock; uno_interrupt_fn ask; void *arg; } binding = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local bool taken, inside;

void uno_set_interrupt_callback(uno_interrupt_fn interrupt, void *arg)
{
    pthread_mutex_lock(&binding.lock);
    binding.ask = interrupt;
    binding.arg = arg;
    atomic_store_explicit(&interrupts, interrupt != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&binding.lock);
}

bool interrupt_asked(uint64_t *next_ns)
{
    if (atomic_load_explicit(&interrupts, memory_order_relaxed) == 0)
        return false;
    uint64_t now = clock_ns();
    if (*next_ns == 0)
        *next_ns = now + ASK_NS;
    if (now < *next_ns)
        return false;
    *next_ns = now + ASK_NS;
    pthread_mutex_lock(&binding.lock); /* not while it runs: it may wait for an interpreter whose holder sets another one */
    uno_interrupt_fn ask = binding.ask;
    void *arg = binding.arg;
    pthread_mutex_unlock(&binding.lock);
    inside = true;
    bool wanted = ask && ask(arg) != 0;
    inside = false;
    return wanted;
}

uno_err interrupt_check(void)
{
    return inside ? err_set(UNO_ERR_USAGE, "called from within the interrupt callback, or a signal handler that it runs: this thread waits in another call") : UNO_OK;
}

bool interrupt_taken(void)
{
    return taken;
}

void interrupt_take(bool yes)
{
    taken = yes;
}
