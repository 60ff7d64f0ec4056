/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - what this process has joined: the list of jobs and their communicators, forks, and leaving in order when the
 * program ends. Called by assemble.c, the ways to join, the engine's progress thread and the steward's callbacks.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct job *jobs;
_Atomic uint32_t process_forks;

/* In the child nothing of the parent's jobs may be used: sockets are closed, so that the parent's death is still seen. */
static void in_child(void)
{
    atomic_fetch_add_explicit(&process_forks, 1, memory_order_relaxed);
    pthread_mutex_init(&list_lock, NULL); /* another thread may have held it */
    engine_forked();
    streams_forked();
    watch_boards_forked();
    net_segments_forked();
    for (struct job *j = jobs; j; j = j->next) {
        if (j->watch)
            watch_forked(j->watch);
        if (j->net)
            net_proc_forked(j->net);
    }
    jobs = NULL;
}

static int exit_status = -1; /* this process exits with it; -1 = not known */

#ifdef __GLIBC__
/* Registered after at_exit, and so called before it. The library is never unloaded (-z nodelete): this may be called at any exit. */
static void note_exit(int status, void *arg)
{
    (void)arg;
    exit_status = status & 0xff;
}
#endif

void comm_hold(uno_comm *c)
{
    atomic_fetch_add(&c->active, 1);
}

void comm_release(uno_comm *c)
{
    atomic_fetch_sub_explicit(&c->active, 1, memory_order_release); /* pairs with the acquire in engine_wait_unused */
}

/* Others hold it for moments only; but who ends the program from a signal handler may have it itself. */
static bool lock_until(pthread_mutex_t *lock, uint64_t deadline_ns)
{
    while (pthread_mutex_trylock(lock) != 0) {
        if (clock_ns() >= deadline_ns)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return true;
}

/* Every communicator, held: another thread may be destroying one. The caller holds the list's lock. */
static size_t hold_all(uno_comm ***comms, uint64_t deadline_ns)
{
    size_t n = 0, cap = 0;
    *comms = NULL;
    for (struct job *j = jobs; j; j = j->next) {
        if (!lock_until(&j->lock, deadline_ns))
            continue;
        for (uno_comm *c = j->comms; c && mem_grow(comms, &cap, n + 1, sizeof **comms) == UNO_OK; c = c->next_in_job) {
            comm_hold(c);
            (*comms)[n++] = c;
        }
        pthread_mutex_unlock(&j->lock);
    }
    return n;
}

static void say_goodbye(uno_comm *c)
{
    if (atomic_load_explicit(&c->region->goodbye, memory_order_relaxed) == 0) /* release: pairs with the acquire in said_goodbye */
        atomic_store_explicit(&c->region->goodbye,
                              exit_status < 0 ? NET_GOODBYE_FINALIZED : NET_GOODBYE_EXIT | (uint32_t)exit_status,
                              memory_order_release);
}

static void job_goodbye(struct job *j)
{
    if (j->net && exit_status >= 0)
        net_proc_exits(j->net, exit_status);
    if (j->shrinks)
        shrinks_goodbye(j->shrinks);
    if (j->watch)
        watch_goodbye(j->watch, j->failed);
}

/* Until the ranks of this host can read what we sent, at most until the deadline. */
static void wait_seen(uno_comm *c, uint64_t deadline_ns)
{
    if (!atomic_load_explicit(&c->ready, memory_order_acquire) || !walk_try(c))
        return; /* somebody is still inside: nothing it does can be waited for */
    while (!engine_seen(c) && clock_ns() < deadline_ns)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    walk_leave(c);
}

/* The program ends without finalize: that is no death. What was sent gets a moment. */
static void at_exit(void)
{
    uint64_t deadline = clock_ns() + 1000000000u;
    uno_comm **comms;
    if (!lock_until(&list_lock, deadline))
        return;
    size_t n = hold_all(&comms, deadline);
    for (size_t i = 0; i < n; i++)
        wait_seen(comms[i], deadline);
    for (size_t i = 0; i < n; i++) {
        say_goodbye(comms[i]);
        comms[i]->job->failed |= atomic_load_explicit(&comms[i]->failed, memory_order_relaxed) != UNO_OK;
        comm_release(comms[i]);
    }
    free(comms);
    for (struct job *j = jobs; j; j = j->next) {
        job_goodbye(j);
        if (j->net)
            net_proc_drain(j->net, 1000000000u);
    }
    pthread_mutex_unlock(&list_lock);
}

void job_add(struct job *job)
{
    static bool registered;
    pthread_mutex_lock(&list_lock);
    if (!registered) {
        registered = true;
        pthread_atfork(NULL, NULL, in_child);
        atexit(at_exit);
#ifdef __GLIBC__
        on_exit(note_exit, NULL);
#endif
    }
    job->next = jobs;
    jobs = job;
    pthread_mutex_unlock(&list_lock);
}

void job_attach(struct job *job, uno_comm *comm)
{
    pthread_mutex_lock(&job->lock);
    job->refs++;
    comm->job = job;
    comm->next_in_job = job->comms;
    job->comms = comm;
    pthread_mutex_unlock(&job->lock);
}

void job_drop(struct job *job)
{
    pthread_mutex_lock(&list_lock);
    for (struct job **p = &jobs; *p; p = &(*p)->next)
        if (*p == job) {
            *p = job->next;
            break;
        }
    pthread_mutex_unlock(&list_lock);
    if (job->watch)
        watch_goodbye(job->watch, false); /* watch_stop saves what is due */
    watch_stop(job->watch); /* first: an abort that it was just told of still goes out with what is drained */
    job->watch = NULL;
    shrinks_free(job->shrinks);
    job->shrinks = NULL;
    if (job->net) {
        net_proc_drain(job->net, 1000000000u);
        net_proc_free(job->net);
    }
    watch_board_free(job->board);
    pthread_mutex_destroy(&job->lock);
    free(job->links);
    free(job->members);
    free(job->host_of);
    free(job);
}

/* The caller holds the job's lock. */
static void unlist_locked(struct job *job, uno_comm *comm)
{
    for (uno_comm **p = &job->comms; *p; p = &(*p)->next_in_job)
        if (*p == comm) {
            *p = comm->next_in_job;
            return;
        }
}

void job_unlist(uno_comm *comm)
{
    struct job *job = comm->job;
    if (!job)
        return;
    pthread_mutex_lock(&job->lock);
    unlist_locked(job, comm);
    pthread_mutex_unlock(&job->lock);
}

void job_detach(uno_comm *comm)
{
    struct job *job = comm->job;
    if (!job)
        return;
    pthread_mutex_lock(&job->lock);
    unlist_locked(job, comm);
    bool last = --job->refs == 0;
    pthread_mutex_unlock(&job->lock);
    comm->job = NULL;
    if (last)
        job_drop(job);
}

size_t jobs_snapshot(uno_comm **comms, size_t cap)
{
    size_t n = 0;
    pthread_mutex_lock(&list_lock);
    for (struct job *j = jobs; j; j = j->next) {
        pthread_mutex_lock(&j->lock);
        for (uno_comm *c = j->comms; c; c = c->next_in_job)
            if (atomic_load_explicit(&c->ready, memory_order_acquire) && n++ < cap) {
                comm_hold(c);
                comms[n - 1] = c;
            }
        pthread_mutex_unlock(&j->lock);
    }
    pthread_mutex_unlock(&list_lock);
    return n;
}

bool job_knows(const uno_comm *comm)
{
    bool found = false;
    pthread_mutex_lock(&list_lock);
    for (struct job *j = jobs; j && !found; j = j->next) {
        pthread_mutex_lock(&j->lock);
        for (const uno_comm *c = j->comms; c && !found; c = c->next_in_job)
            found = c == comm;
        pthread_mutex_unlock(&j->lock);
    }
    pthread_mutex_unlock(&list_lock);
    return found;
}

uno_comm *job_find(struct job *job, uint64_t comm_id)
{
    uno_comm *found = NULL;
    pthread_mutex_lock(&job->lock);
    for (uno_comm *c = job->comms; c && !found; c = c->next_in_job)
        if (c->id == comm_id)
            found = c;
    if (found)
        comm_hold(found);
    pthread_mutex_unlock(&job->lock);
    return found;
}

uno_comm *job_find_rank(struct job *job, uint64_t comm_id, int rank)
{
    uno_comm *found = NULL;
    pthread_mutex_lock(&job->lock);
    for (uno_comm *c = job->comms; c && !found; c = c->next_in_job)
        if (c->id == comm_id && c->rank == rank && atomic_load_explicit(&c->ready, memory_order_acquire)) /* pairs with comm_assemble */
            found = c;
    if (found)
        comm_hold(found);
    pthread_mutex_unlock(&job->lock);
    return found;
}
