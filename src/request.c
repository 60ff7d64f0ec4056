/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - what lives longer than a call: requests of isend and irecv, and a communicator's own reductions.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

struct uno_request {
    uno_comm *comm; /* NULL when it was destroyed before the request was waited for */
    struct uno_request *next, **link; /* comm->requests, under its issue lock */
    struct p2p_request p2p;
};

static _Atomic int all_requests; /* of the process; relaxed: whoever acts on it is the thread that made them, or comes too early */

bool requests_go_on(const uno_comm *c)
{
    int own = c ? atomic_load_explicit(&c->nrequests, memory_order_relaxed) : 0;
    if (atomic_load_explicit(&all_requests, memory_order_relaxed) <= own)
        return false;
    engine_kick();
    return true;
}

static void count_requests(uno_comm *c, int more)
{
    atomic_fetch_add_explicit(&c->nrequests, more, memory_order_relaxed);
    atomic_fetch_add_explicit(&all_requests, more, memory_order_relaxed);
}

static void enlist(struct uno_request *r)
{
    uno_comm *c = r->comm;
    count_requests(c, 1);
    pthread_mutex_lock(&c->issue);
    r->next = c->requests;
    r->link = &c->requests;
    if (r->next)
        r->next->link = &r->next;
    c->requests = r;
    pthread_mutex_unlock(&c->issue);
}

static void unlist(struct uno_request *r)
{
    uno_comm *c = r->comm;
    count_requests(c, -1);
    pthread_mutex_lock(&c->issue);
    *r->link = r->next;
    if (r->next)
        r->next->link = r->link;
    pthread_mutex_unlock(&c->issue);
}

void requests_orphan(uno_comm *c)
{
    walk_wait(c);
    p2p_abandon(c->p2p);
    walk_leave(c);
    pthread_mutex_lock(&c->issue);
    for (struct uno_request *r = c->requests; r; r = r->next)
        r->comm = NULL;
    c->requests = NULL;
    pthread_mutex_unlock(&c->issue);
    count_requests(c, -atomic_load_explicit(&c->nrequests, memory_order_relaxed));
}

uno_err request_start(uno_comm *comm, const struct p2p_request *what, uno_request **request)
{
    struct uno_request *r = mem_zalloc(sizeof *r);
    if (!r)
        return engine_not_issued(comm, p2p_word(what), UNO_ERR_MEMORY);
    r->comm = comm;
    r->p2p = *what;
    struct op call = {.comm = comm, .p2p = &r->p2p, .call_site = what->call_site}, *op;
    uno_err err = engine_copy_call(&call, &op);
    if (err == UNO_OK && (err = engine_queue(op)) != UNO_OK)
        op_free(op);
    if (err != UNO_OK) {
        err = engine_not_issued(comm, p2p_word(what), err);
        free(r);
        return err;
    }
    enlist(r);
    if (walk_try(comm)) { /* start it now, unless somebody is moving things anyway */
        bool moved = false;
        engine_step(comm, &moved);
        if (p2p_owes(comm->p2p))
            engine_kick();
        walk_leave(comm);
    }
    *request = r;
    return UNO_OK;
}

static bool request_done(void *arg)
{
    return p2p_done(arg);
}

static uno_err release(uno_request **request, uno_status *status)
{
    struct uno_request *r = *request;
    uno_err err = r->p2p.err;
    if (err != UNO_OK)
        err_set(err, "%s", r->p2p.text);
    if (err >= UNO_ERR_PEER_DEAD && r->comm && comm_cause(r->comm) != UNO_OK)
        err = comm_cause(r->comm);
    if (status) {
        status->peer = r->p2p.send ? r->p2p.peer : r->p2p.got_peer;
        status->tag = r->p2p.send ? r->p2p.tag : r->p2p.got_tag;
        status->count = (r->p2p.send ? r->p2p.bytes : r->p2p.got_bytes) / uno_type_bytes(r->p2p.type);
    }
    *request = NULL;
    uno_comm *c = r->comm;
    if (c)
        unlist(r);
    free(r);
    return c ? comm_leave(c, err) : err;
}

static uno_err check_request(const char *call, uno_request **request)
{
    if (!request || !*request)
        return err_set(UNO_ERR_ARG, "%s: the request is NULL (waited for before?)", call);
    uno_comm *c = (*request)->comm;
    if (!c) /* its communicator is gone; its result stands in the request */
        return UNO_OK;
    if (c->fork_generation != fork_generation())
        return err_set(UNO_ERR_USAGE, "%s: the request was made before fork()", call);
    TRY(interrupt_check());
    atomic_fetch_add(&c->active, 1); /* destroy waits for us */
    return UNO_OK;
}

#define TEST_ROUNDS 256 /* each takes a piece of a message */

uno_err uno_test(uno_request **request, uno_status *status)
{
    TRY(check_request("uno_test", request));
    uno_comm *c = (*request)->comm;
    if (!c)
        return release(request, status);
    if (!p2p_done(&(*request)->p2p) && walk_try(c)) {
        bool moved = true;
        if (c->env.proc)
            net_progress(c->env.proc);
        for (int rounds = TEST_ROUNDS; moved && rounds > 0 && !p2p_done(&(*request)->p2p); rounds--) {
            moved = false;
            engine_step(c, &moved);
        }
        if (!moved) /* else there may be more here of what a look would miss */
            engine_look_now(c);
        if (p2p_owes(c->p2p))
            engine_kick(); /* the caller may not come again soon */
        walk_leave(c);
    }
    if (!p2p_done(&(*request)->p2p)) {
        comm_release(c);
        return err_set(UNO_ERR_IN_PROGRESS, "the request is not finished");
    }
    return release(request, status);
}

static uno_err interrupted(uno_comm *c, struct p2p_request *p)
{
    atomic_store_explicit(&p->waited, 0, memory_order_relaxed);
    comm_release(c);
    return err_set(UNO_ERR_IN_PROGRESS, "the request is not finished, and a signal interrupted the wait for it");
}

uno_err uno_wait_until(uno_request **request, double timeout_s, uno_status *status)
{
    TRY(check_request("uno_wait", request));
    uno_comm *c = (*request)->comm;
    atomic_store_explicit(&(*request)->p2p.waited, 1, memory_order_relaxed);
    if (c && engine_wait(c, request_done, &(*request)->p2p, clock_after(timeout_s)) != UNO_OK) {
        if (interrupt_taken())
            return interrupted(c, &(*request)->p2p);
        atomic_store_explicit(&(*request)->p2p.waited, 0, memory_order_relaxed);
        comm_release(c);
        return err_set(UNO_ERR_IN_PROGRESS, "the request is not finished after %.3f s", timeout_s);
    }
    return release(request, status);
}

uno_err uno_wait(uno_request **request, uno_status *status)
{
    TRY(check_request("uno_wait", request));
    uno_comm *c = (*request)->comm;
    struct p2p_request *p = &(*request)->p2p;
    double timeout_s = c ? comm_timeout_s(c) : 0; /* it may be another one when this one has passed */
    atomic_store_explicit(&p->waited, 1, memory_order_relaxed);
    if (c && engine_wait(c, request_done, p, comm_deadline_ns(c, clock_ns())) != UNO_OK) {
        if (interrupt_taken())
            return interrupted(c, p);
        char who[40] = "any rank", text[ERR_TEXT_BYTES], why[ERR_TEXT_BYTES - 160];
        if (p->peer >= 0)
            snprintf(who, sizeof who, "rank %d", p->peer);
        if (stall_reason(c, why, sizeof why))
            snprintf(text, sizeof text, "rank %d waited %.1f s in uno_wait (UNISONO_TIMEOUT): %s", c->rank, timeout_s, why);
        else
            snprintf(text, sizeof text, "rank %d waited %.1f s in uno_wait for %s %s, tag %d (UNISONO_TIMEOUT)", c->rank,
                     timeout_s, p->send ? "a receive of" : "a message of", who, p->tag);
        (void)comm_fail(c, UNO_ERR_TIMEOUT, p->peer, true, text);
        while (!p2p_done(p)) /* a failed communicator ends its requests at the next look; a signal waits for that */
            (void)engine_wait(c, request_done, p, UINT64_MAX);
    }
    return release(request, status);
}

/* ---- own reductions --------------------------------------------------------------------------------------------------- */

uno_err ops_add(uno_comm *c, const void *scalar, uno_type type, uno_op *op)
{
    pthread_mutex_lock(&c->issue);
    size_t i = 0;
    while (i < c->nops && c->ops[i]->used)
        i++;
    uno_err err = UNO_OK;
    if (i == c->nops) {
        err = mem_grow(&c->ops, &c->cap_ops, i + 1, sizeof *c->ops);
        if (err == UNO_OK && !(c->ops[i] = mem_zalloc(sizeof **c->ops)))
            err = UNO_ERR_MEMORY;
        if (err == UNO_OK)
            c->nops++;
    }
    if (err == UNO_OK) {
        c->ops[i]->used = true;
        c->ops[i]->type = type;
        memcpy(c->ops[i]->scalar, scalar, uno_type_bytes(type));
        *op = (uno_op)(UNO_OP_DYNAMIC + (int)i);
    }
    pthread_mutex_unlock(&c->issue);
    return err;
}

uno_err ops_remove(uno_comm *c, uno_op op)
{
    int i = (int)op - UNO_OP_DYNAMIC;
    uno_err err = UNO_OK;
    pthread_mutex_lock(&c->issue);
    if (i >= 0 && (size_t)i < c->nops && c->ops[i]->used)
        c->ops[i]->used = false;
    else
        err = err_set(UNO_ERR_ARG, "uno_op_destroy: %d is not an operation of this communicator", (int)op);
    pthread_mutex_unlock(&c->issue);
    return err;
}

void ops_free(uno_comm *c)
{
    for (size_t i = 0; i < c->nops; i++)
        free(c->ops[i]);
    free(c->ops);
}
