/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_events.c - what sockets and the steward report about processes (control messages, deaths, goodbyes, aborts), taken to the
 * communicators of a job. Everything here runs in the steward's thread, but job_watch, with which join.c starts it.
 */
#include "comm.h"

void job_on_control(void *arg, int from, const void *data, size_t bytes)
{
    struct job *job = arg;
    if (job->watch)
        watch_on_control(job->watch, from, data, bytes);
}

void job_on_down(void *arg, int from, enum net_down how, const char *text)
{
    struct job *job = arg;
    if (job->watch)
        watch_on_down(job->watch, from, how, text);
}

static void tell_gone(struct job *job, int process, bool in_order, const char *text)
{
    pthread_mutex_lock(&job->lock);
    for (uno_comm *c = job->comms; c; c = c->next_in_job)
        for (int r = 0; r < c->size && atomic_load_explicit(&c->ready, memory_order_acquire); r++) /* pairs with comm_assemble */
            if (job->members[c->job_rank[r]].process == process && r != c->rank)
                comm_rank_gone(c, r, in_order, text);
    pthread_mutex_unlock(&job->lock);
}

static void on_dead(void *arg, int process, const char *text)
{
    struct job *job = arg;
    shrinks_gone(job->shrinks, process, false);
    tell_gone(job, process, false, text);
}

static void on_left(void *arg, int process, const char *text)
{
    tell_gone(arg, process, true, text);
}

/* Who gives up while a communicator is made may be heard before it is made here. The caller holds the job's lock. */
static void note_early(struct job *job, uint64_t comm_id, uno_err code, int rank, const char *text)
{
    struct early_abort *e = &job->early[job->nearly++ % ARRAY_LEN(job->early)];
    *e = (struct early_abort){.comm_id = comm_id, .code = code, .rank = rank};
    snprintf(e->text, sizeof e->text, "%s", text);
}

static void on_abort(void *arg, uint64_t comm_id, uno_err code, int rank, const char *text)
{
    struct job *job = arg;
    pthread_mutex_lock(&job->lock);
    uno_comm *c = job->comms;
    while (c && !(c->id == comm_id && atomic_load_explicit(&c->ready, memory_order_acquire))) /* pairs with comm_assemble */
        c = c->next_in_job;
    if (c)
        comm_hold(c);
    else
        note_early(job, comm_id, code, rank, text);
    pthread_mutex_unlock(&job->lock);
    if (!c)
        return;
    (void)comm_told(c, code, rank, text);
    comm_release(c);
}

void job_abort_early(uno_comm *c)
{
    struct job *job = c->job;
    struct early_abort e = {0};
    pthread_mutex_lock(&job->lock);
    for (size_t i = 0; i < ARRAY_LEN(job->early); i++)
        if (job->early[i].code != UNO_OK && job->early[i].comm_id == c->id)
            e = job->early[i];
    pthread_mutex_unlock(&job->lock);
    if (e.code != UNO_OK)
        (void)comm_told(c, e.code, e.rank, e.text);
}

static bool is_of_process(const struct job *job, int job_rank, int process)
{
    return job->members[job_rank].process == process;
}

static bool is_of_host(const struct job *job, int job_rank, int host)
{
    return job->host_of[job_rank] == host;
}

/* A communicator that has not failed and has such a rank, *rank. Held: failing may take long, and the job's lock is wanted meanwhile. NULL = none. */
static uno_comm *whole_with(struct job *job, bool (*is)(const struct job *job, int job_rank, int which), int which, int *rank)
{
    uno_comm *found = NULL;
    pthread_mutex_lock(&job->lock);
    for (uno_comm *c = job->comms; c && !found; c = c->next_in_job) { /* acquire: pairs with comm_assemble */
        bool whole = atomic_load_explicit(&c->ready, memory_order_acquire) != 0 && atomic_load_explicit(&c->failed, memory_order_relaxed) == UNO_OK;
        for (*rank = 0; whole && *rank < c->size && !is(job, c->job_rank[*rank], which); ++*rank)
            ;
        if (whole && *rank < c->size)
            found = c;
    }
    if (found)
        comm_hold(found);
    pthread_mutex_unlock(&job->lock);
    return found;
}

/* Its connection is closed for good: communicators with ranks of it cannot go on. */
static void on_broken(void *arg, int process, const char *text)
{
    int rank;
    for (uno_comm *c; (c = whole_with(arg, is_of_process, process, &rank)) != NULL; comm_release(c)) {
        char name[100], said[ERR_TEXT_BYTES];
        comm_rank_name(c, rank, name, sizeof name);
        snprintf(said, sizeof said, "%s %.700s; a member of the job is faulty, or a program that is none has its secret", name, text);
        (void)comm_fail(c, UNO_ERR_UNREACHABLE, rank, true, said);
    }
}

/* Nothing goes between this host and another one: communicators with ranks on both cannot go on. */
static void on_unreachable(void *arg, int host, const char *text)
{
    char said[ERR_TEXT_BYTES];
    int rank;
    snprintf(said, sizeof said, "%.900s (UNISONO_SUSPECT_TIMEOUT)", text);
    for (uno_comm *c; (c = whole_with(arg, is_of_host, host, &rank)) != NULL; comm_release(c))
        (void)comm_fail(c, UNO_ERR_UNREACHABLE, rank, true, said);
}

/* Communicators that a verdict is not about may stand because of it: it is the best that is known of them, too. */
static void on_verdict(void *arg, uint64_t comm_id, const char *text)
{
    struct job *job = arg;
    (void)comm_id;
    pthread_mutex_lock(&job->lock);
    for (uno_comm *c = job->comms; c; c = c->next_in_job)
        stall_verdict(c, text);
    pthread_mutex_unlock(&job->lock);
}

static void on_message(void *arg, int from, enum watch_message kind, const void *data, size_t bytes)
{
    struct job *job = arg;
    if (kind == WATCH_MESSAGE_ASK)
        fail_asked(job, from, data, bytes);
    else if (kind == WATCH_MESSAGE_SHRINK)
        shrinks_message(job->shrinks, from, data, bytes);
}

static void on_ended(void *arg, int process)
{
    struct job *job = arg;
    shrinks_gone(job->shrinks, process, true);
}

static uint64_t on_tick(void *arg, uint64_t now)
{
    struct job *job = arg;
    return shrinks_tick(job->shrinks, now);
}

/* Did this process say goodbye in all regions that we can read? Who left only some communicators may still die in the others. */
static bool said_goodbye(void *arg, int process)
{
    struct job *job = arg;
    int said = 0, silent = 0;
    pthread_mutex_lock(&job->lock);
    for (uno_comm *c = job->comms; c && !silent; c = c->next_in_job)
        for (int r = 0; r < c->size && atomic_load_explicit(&c->ready, memory_order_acquire); r++) { /* pairs with comm_assemble */
            if (!c->regions[r] || job->members[c->job_rank[r]].process != process)
                continue;
            bool yes = atomic_load_explicit(&c->regions[r]->goodbye, memory_order_acquire) != 0; /* pairs with say_goodbye */
            said += yes;
            silent += !yes;
        }
    pthread_mutex_unlock(&job->lock);
    return said && !silent;
}

uno_err job_watch(uno_comm *c)
{
    struct watch_options opt = {.cfg = &c->cfg, .rank = c->job_rank[c->rank], .size = c->size, .members = c->job->members, .board = c->job->board,
                                .net = c->job->net, .on_dead = on_dead, .on_left = on_left, .on_abort = on_abort,
                                .said_goodbye = said_goodbye, .on_unreachable = on_unreachable, .on_broken = on_broken, .on_verdict = on_verdict,
                                .on_message = on_message,
                                .on_ended = on_ended, .on_tick = on_tick, .arg = c->job};
    return watch_start(&opt, &c->job->watch);
}

void job_watch_if_possible(uno_comm *c)
{
    if (job_watch(c) != UNO_OK)
        LOG(LOG_INFO, LOG_INIT, "nobody will say why operations do not go on: %s", err_text());
}
