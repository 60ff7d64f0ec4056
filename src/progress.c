/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - the one progress thread of the process: moves the operations of all communicators that no caller moves. Started
 * by the first call that does not wait for itself (engine_kick); sleeps when nothing is unfinished.
 */
#include "comm.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool running, kicked;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static _Thread_local bool is_progress;

bool engine_is_progress(void)
{
    return is_progress;
}

/* Progress thread: room for all communicators of the process. */
struct snapshot { uno_comm **comms; size_t cap; };

/* One round over all communicators of the process. busy: something is unfinished. */
static void progress_round(struct snapshot *all, bool *moved, bool *busy, bool look)
{
    size_t n = jobs_snapshot(all->comms, all->cap);
    if (n > all->cap) { /* more than fitted: come back with more room */
        *busy = true;
        size_t held = all->cap;
        if (mem_grow(&all->comms, &all->cap, n, sizeof *all->comms) == UNO_OK)
            *moved = true;
        n = held;
    }
    for (size_t i = 0; i < n; i++) {
        uno_comm *c = all->comms[i];
        if (!walk_try(c)) {
            *busy = true; /* its holder moves it; come back */
        } else {
            engine_step(c, moved);
            if (c->current || c->p2p_running || p2p_busy(c->p2p) || atomic_load_explicit(&c->queued, memory_order_relaxed)) {
                *busy = true;
                if (look)
                    engine_look_now(c);
            }
            walk_leave(c);
        }
        comm_release(c);
    }
}

static void *progress_main(void *arg)
{
    (void)arg;
    is_progress = true;
    watch_own_thread(1);
    unsigned idle = 0;
    struct snapshot all = {NULL, 0};
    for (;;) {
        bool moved = false, busy = false;
        progress_round(&all, &moved, &busy, idle % 64 == 63);
        if (moved) {
            idle = 0;
        } else if (busy) {
            idle++;
            if (idle > 2000)
                nanosleep(&(struct timespec){0, idle > 20000 ? 500000 : 50000}, NULL);
            else if (idle > 50)
                sched_yield();
        } else {
            pthread_mutex_lock(&progress.lock);
            while (!progress.kicked)
                pthread_cond_wait(&progress.wake, &progress.lock);
            progress.kicked = false;
            pthread_mutex_unlock(&progress.lock);
            idle = 0;
        }
    }
    return NULL;
}

void engine_kick(void)
{
    pthread_mutex_lock(&progress.lock);
    if (!progress.running) {
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        progress.running = pthread_create(&progress.thread, &attr, progress_main, NULL) == 0;
        pthread_attr_destroy(&attr);
    }
    progress.kicked = true;
    pthread_cond_signal(&progress.wake);
    pthread_mutex_unlock(&progress.lock);
}

void engine_forked(void)
{
    pthread_mutex_init(&progress.lock, NULL); /* the thread that slept in them is not here and would take others' wakes */
    pthread_cond_init(&progress.wake, NULL);
    if (progress.running)
        watch_own_thread(-1);
    progress.running = progress.kicked = false;
}
