/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - operations move: issued calls wait in their communicator's queue, one at a time becomes current, is walked to its
 * end, and its call returns. Calls that do not wait for themselves are moved by the progress thread (progress.c).
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

/* ---- one communicator ------------------------------------------------------------------------------------------- */

void op_free(struct op *op)
{
    free(op->arrays);
    free(op->text);
    if (op->heap)
        free(op);
}

static void finish(struct op *op, uno_err err)
{
    op->err = err;
    if (err != UNO_OK)
        op->text = strdup(err_text());
    if (op->stream) {
        if (err != UNO_OK) /* nobody returns it to a caller; before somebody who waits for the stream asks for it */
            comm_keep_error(op->comm);
        stream_op_done(op, err);
    }
    if (op->heap && !op->group_waits) {
        op_free(op);
        return;
    }
    atomic_store_explicit(&op->state, OP_DONE, memory_order_release); /* pairs with the acquire in op_done */
}

static uno_err find_program(uno_comm *c, const struct op *op, const struct cached **found)
{
    if ((*found = op->cached) != NULL)
        return UNO_OK;
    if (op->req.counts && op->req.coll != UNO_ALL_TO_ALL_V)
        fail_passed_write(c, op->req.counts);
    if (op->req.coll != UNO_ALL_TO_ALL_V)
        return plancache_get(c, &op->req, NULL, found);
    struct request recv_req = op->req;
    recv_req.counts = op->recv_counts;
    recv_req.displs = op->recv_displs;
    return plancache_get(c, &op->req, &recv_req, found);
}

static NOINLINE uno_err grow_run(uno_comm *c, size_t bytes)
{
    free(c->run);
    c->run_bytes = 0;
    c->run = mem_zalloc(bytes);
    if (!c->run)
        return UNO_ERR_MEMORY;
    c->run_bytes = bytes;
    return UNO_OK;
}

static inline __attribute__((always_inline)) uno_err begin_found(uno_comm *c, const struct op *op, const struct cached *found, bool small)
{
    if (++c->number == 0) /* 0 marks an event that is being written */
        c->number = 1;
    c->chain = hash_mix(c->chain, found->hash + c->number);
    struct exec_op *run = c->run;
    run->program = found->program;
    run->env = &c->env;
    run->base[PLAN_IN] = op->send;
    run->base[PLAN_OUT] = op->recv;
    exec_op_name(run, c->number, (uint32_t)(c->chain >> 32));
    run->scalar = op->req.op >= UNO_OP_DYNAMIC ? op->scalar_copy : NULL;
    c->event = ledger_begin(net_region_ledger(c->region), c->number, run->signature, &found->fields, op->call_site, c->started_ns);
    uno_err err = UNO_OK;
    if (small)
        exec_start_small(run);
    else
        err = exec_start(run);
    prefetch_to_write((struct ledger_event *)net_region_ledger(c->region) + (c->number + 1) % NET_LEDGER_EVENTS);
    c->event->start_ns = c->started_ns = ledger_clock(); /* only now: the first line is on its way */
    run->deadline_ns = comm_deadline_ns(c, c->started_ns);
    if (small)
        c->small_operations++;
    else
        c->tiled_operations++;
    return err;
}

static uno_err begin(uno_comm *c, struct op *op)
{
    const struct cached *found;
    TRY(comm_cause(c));
    TRY(find_program(c, op, &found));
    if (found->run_bytes > c->run_bytes)
        TRY(grow_run(c, found->run_bytes));
    return begin_found(c, op, found, found->small);
}

/* What the ledger says of the operation that has ended. */
static inline void end_event(uno_comm *c, uno_err err)
{
    if (__builtin_expect(c->look_number == c->number, 0))
        note_waited(c);
    if (c->look_number == c->number || c->event->target != CHOICE_SMALL)
        c->event->end_ns = clock_coarse_ns(); /* others end as they begin, for a clock of milliseconds */
    c->event->state = err == UNO_OK ? LEDGER_DONE : LEDGER_FAILED;
    if (__builtin_expect(c->stall.said, 0))
        stall_over(c, err == UNO_OK);
}

static void end_current(uno_comm *c, uno_err err)
{
    struct op *op = c->current;
    c->current = NULL;
    if (c->size == 2 && err == UNO_OK && op->req.coll == UNO_ALL_REDUCE && c->event->target == CHOICE_TILED &&
        exec_left_lying(c->run) != c->lent) {
        c->lent = !c->lent; /* both ranks know it now, and choose by it from the next one on */
        c->last = c->again.cached = NULL;
    }
    end_event(c, err);
    finish(op, err);
}

/* The thread's sentence as the other ranks shall read it: what failed here says where. */
static void sentence_for_all(const uno_comm *c, uno_err err, char *text, size_t bytes)
{
    if (err >= UNO_ERR_MEMORY)
        snprintf(text, bytes, "rank %d: %.1000s", c->rank, err_text());
    else
        snprintf(text, bytes, "%s", err_text());
}

/* An operation of this communicator failed here: all ranks learn it, and everything queued fails with the same cause. */
static NOINLINE void fail_current(uno_comm *c, uno_err err)
{
    char text[ERR_TEXT_BYTES];
    if (err == UNO_ERR_MISMATCH)
        fail_explain_mismatch(c);
    else if (err == UNO_ERR_UNREACHABLE)
        err = fail_explain_unreachable(c);
    else if (err == UNO_ERR_ABORTED)
        err = fail_explain_withdrawn(c);
    sentence_for_all(c, err, text, sizeof text);
    exec_cancel(c->run);
    err = comm_fail(c, err, c->rank, true, text);
    end_current(c, err);
}

/* Take the oldest issued operation if its stream lets it start. */
static struct op *take_ready(uno_comm *c)
{
    if (atomic_load_explicit(&c->queued, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&c->issue);
    struct op *op = c->queue_head;
    if (op && op->stream && !stream_ready(op)) {
        note_not_ready(c, op);
        op = NULL;
    }
    if (op) {
        c->queue_head = op->next_in_comm;
        if (!c->queue_head)
            c->queue_tail = NULL;
        atomic_fetch_sub_explicit(&c->queued, 1, memory_order_relaxed);
        note_queue(c);
    }
    pthread_mutex_unlock(&c->issue);
    return op;
}

/* The next request (isend, irecv) behind collectives that are not done: it has no place in their order, and a peer may want it
 * first. Only uno_send and uno_recv are not overtaken: messages match in the order of issue. */
static struct op *take_request(uno_comm *c)
{
    if (atomic_load_explicit(&c->queued, memory_order_relaxed) == 0)
        return NULL;
    struct op *op, *before = NULL;
    pthread_mutex_lock(&c->issue);
    for (op = c->queue_head; op && !op->p2p; op = op->next_in_comm)
        before = op;
    if (op && op->group_owns_p2p)
        op = NULL;
    if (op) {
        *(before ? &before->next_in_comm : &c->queue_head) = op->next_in_comm;
        if (c->queue_tail == op)
            c->queue_tail = before;
        atomic_fetch_sub_explicit(&c->queued, 1, memory_order_relaxed);
        note_queue(c);
    }
    pthread_mutex_unlock(&c->issue);
    return op;
}

/* uno_send, uno_recv: the call ends with the transfer. */
static void wait_for_p2p(uno_comm *c, struct op *op)
{
    op->timeout_s = comm_timeout_s(c);
    op->deadline_ns = comm_deadline_ns(c, clock_ns());
    op->next_in_comm = c->p2p_running;
    c->p2p_running = op;
}

/* Point-to-point calls do not occupy the communicator: they are handed over and finish on their own. */
static NOINLINE void start_p2p(uno_comm *c, struct op *op)
{
    uno_err err = comm_cause(c);
    if (err != UNO_OK) {
        op->p2p->err = err;
        snprintf(op->p2p->text, sizeof op->p2p->text, "%s", err_text());
        atomic_store_explicit(&op->p2p->done, 1, memory_order_release);
    } else {
        p2p_issue(c->p2p, op->p2p);
    }
    if (op->group_owns_p2p)
        wait_for_p2p(c, op);
    else
        finish(op, UNO_OK);
}

static NOINLINE void fail_to_begin(uno_comm *c, struct op *op, uno_err err)
{
    if (c->event) {
        fail_current(c, err);
        return;
    }
    c->current = NULL; /* nothing was sent */
    if (err >= UNO_ERR_PEER_DEAD && comm_cause(c) != UNO_OK) {
        err = comm_cause(c); /* everyone's first cause, which may have come while we tried */
    } else if (err >= UNO_ERR_PEER_DEAD) {
        /* The call was right and the other ranks have made it too: they must not wait for this one. */
        char text[ERR_TEXT_BYTES];
        if (err == UNO_ERR_UNREACHABLE)
            err = fail_explain_unreachable(c);
        snprintf(text, sizeof text, "rank %d could not begin %s: %.900s", c->rank, coll_name(request_call(&op->req)), err_text());
        err = comm_fail(c, err, c->rank, true, text);
    }
    finish(op, err);
}

static void start_op(uno_comm *c, struct op *op)
{
    atomic_store_explicit(&op->state, OP_RUNNING, memory_order_relaxed);
    if (op->p2p) {
        start_p2p(c, op);
        return;
    }
    c->current = op;
    c->event = NULL;
    uno_err err = begin(c, op);
    if (__builtin_expect(err != UNO_OK, 0))
        fail_to_begin(c, op, err);
}

static void finish_p2p(uno_comm *c)
{
    for (struct op **p = &c->p2p_running; *p;) {
        struct op *op = *p;
        if (!p2p_done(op->p2p)) {
            p = &op->next_in_comm;
            continue;
        }
        *p = op->next_in_comm;
        uno_err err = op->p2p->err;
        if (err != UNO_OK)
            err_set(err, "%s", op->p2p->text);
        if (err >= UNO_ERR_PEER_DEAD && comm_cause(c) != UNO_OK)
            err = comm_cause(c); /* everyone's first cause, of which this may be a consequence */
        finish(op, err);
    }
}

void engine_step(uno_comm *c, bool *moved)
{
    for (;;) {
        if (c->current) {
            uno_err err = exec_poll(c->run, moved);
            if (err == UNO_ERR_IN_PROGRESS)
                break;
            *moved = true;
            if (err == UNO_OK)
                end_current(c, UNO_OK);
            else
                fail_current(c, err);
        }
        struct op *op = take_ready(c);
        if (!op)
            break;
        *moved = true;
        start_op(c, op);
    }
    for (struct op *op; (op = take_request(c)) != NULL; *moved = true)
        start_op(c, op);
    if (p2p_busy(c->p2p))
        p2p_poll(c->p2p, moved);
    uno_err err = p2p_broken(c->p2p);
    if (__builtin_expect(err != UNO_OK, 0) && atomic_load_explicit(&c->failed, memory_order_relaxed) == UNO_OK) {
        char text[ERR_TEXT_BYTES];
        if (err == UNO_ERR_UNREACHABLE)
            err = fail_explain_unreachable(c);
        else if (err == UNO_ERR_ABORTED)
            err = fail_explain_withdrawn(c);
        sentence_for_all(c, err, text, sizeof text);
        (void)comm_fail(c, err, c->rank, true, text);
        p2p_fail(c->p2p, -1, comm_cause(c));
        *moved = true;
    }
    if (c->p2p_running)
        finish_p2p(c);
}

/* Failed communicator: what was issued and not started ends with the cause, whatever its streams wait for. */
static void fail_queued(uno_comm *c)
{
    pthread_mutex_lock(&c->issue);
    struct op *op = c->queue_head;
    c->queue_head = c->queue_tail = NULL;
    atomic_store_explicit(&c->queued, 0, memory_order_relaxed);
    note_queue(c);
    pthread_mutex_unlock(&c->issue);
    while (op) {
        struct op *next = op->next_in_comm;
        if (op->p2p)
            start_op(c, op);
        else
            finish(op, comm_cause(c));
        op = next;
    }
}

/* Called while something waits: has the communicator failed under it? */
void engine_look_now(uno_comm *c)
{
    uint32_t number = c->current ? c->run->number : 0;
    uint64_t deadline = c->current ? c->run->deadline_ns : UINT64_MAX;
    uno_err err = engine_look(c, number, deadline);
    if (err == UNO_OK)
        return;
    if (c->current)
        fail_current(c, err);
    fail_queued(c);
    p2p_fail(c->p2p, -1, err);
    if (c->p2p_running)
        finish_p2p(c);
}

void engine_fail_all(uno_comm *c)
{
    walk_wait(c); /* whoever holds it is looking, and leaves: the communicator has failed */
    engine_look_now(c);
    walk_leave(c);
}

/* ---- issuing ---------------------------------------------------------------------------------------------------------- */

uno_err engine_queue(struct op *op)
{
    uno_comm *c = op->comm;
    atomic_store_explicit(&op->state, OP_QUEUED, memory_order_relaxed);
    op->next_in_comm = NULL;
    note_issued(op);
    pthread_mutex_lock(&c->issue);
    uno_err err = op->stream ? stream_append(op) : UNO_OK;
    if (err != UNO_OK) {
        pthread_mutex_unlock(&c->issue);
        return err;
    }
    if (c->queue_tail)
        c->queue_tail->next_in_comm = op;
    else
        c->queue_head = op;
    c->queue_tail = op;
    atomic_fetch_add_explicit(&c->queued, 1, memory_order_relaxed);
    note_queue(c);
    pthread_mutex_unlock(&c->issue);
    return UNO_OK;
}

static uno_err copy_arrays(const struct op *call, struct op *op)
{
    if (!call->req.counts)
        return UNO_OK;
    size_t n = (size_t)call->comm->size, at = 0;
    const size_t **parts[] = {&op->req.counts, &op->req.displs, &op->recv_counts, &op->recv_displs};
    op->arrays = mem_array(4 * n, sizeof *op->arrays);
    if (!op->arrays)
        return UNO_ERR_MEMORY;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (*parts[i]) {
            memcpy(op->arrays + at, *parts[i], n * sizeof(size_t));
            *parts[i] = op->arrays + at;
            at += n;
        }
    return UNO_OK;
}

uno_err engine_copy_call(const struct op *call, struct op **copy)
{
    struct op *op = mem_alloc(sizeof *op + (call->group_owns_p2p ? sizeof *op->p2p : 0));
    if (!op)
        return UNO_ERR_MEMORY;
    memcpy(op, call, sizeof *op);
    if (call->group_owns_p2p) {
        op->p2p = (struct p2p_request *)(op + 1);
        memcpy(op->p2p, call->p2p, sizeof *op->p2p);
    }
    op->heap = true;
    uno_err err = copy_arrays(call, op);
    if (err != UNO_OK) {
        free(op);
        return err;
    }
    *copy = op;
    return UNO_OK;
}

/* Polls before anything else is looked at: a short operation ends within them. */
#define SOON_POLLS 64
#define SOON_CROWDED 2
#define SOON_FAR 1

static inline int soon_polls(const uno_comm *c)
{
    return c->env.far ? SOON_FAR : c->env.crowded ? SOON_CROWDED : SOON_POLLS;
}

static inline void walk_soon(uno_comm *c)
{
    uno_err err = exec_poll_soon(c->run, soon_polls(c));
    if (err == UNO_ERR_IN_PROGRESS)
        return;
    exec_wait_count(&c->env, EXEC_SPUN);
    if (__builtin_expect(err == UNO_OK, 1))
        end_current(c, UNO_OK);
    else
        fail_current(c, err);
}

/* Walk lock held, nothing was issued before: the call need not be queued. */
static void run_at_once(struct op *op)
{
    uno_comm *c = op->comm;
    if (c->env.proc)
        net_enter(c->env.proc);
    start_op(c, op);
    if (c->current && !p2p_busy(c->p2p))
        walk_soon(c);
    if (!op_done(op))
        (void)engine_walk_until(c, engine_call_done, op, UINT64_MAX, true);
    if (c->env.proc)
        net_leave(c->env.proc);
    /* While this one waited, another thread's call may have run. */
    if (!c->again.cached && c->last && c->last->small && !c->env.proc && !op->p2p && same_request(&c->last->req, &op->req)) {
        op_init(&c->again, c, op->req, NULL, NULL, NULL, NULL);
        c->again.cached = c->last;
    }
}

static NOINLINE uno_err failed_result(struct op *op)
{
    err_set(op->err, "%s", op->text ? op->text : "no memory for the sentence of this error");
    free(op->text);
    op->text = NULL;
    return op->err;
}

static inline uno_err result_of(struct op *op)
{
    return __builtin_expect(op->err == UNO_OK, 1) ? UNO_OK : failed_result(op);
}

uno_err engine_again(uno_comm *c, const void *send, void *recv, const void *call_site)
{
    struct op *op = &c->again;
    op->send = send;
    op->recv = recv;
    op->call_site = call_site;
    op->order = op->issued_ns = 0;
    atomic_store_explicit(&op->state, OP_RUNNING, memory_order_relaxed);
    c->current = op;
    c->event = NULL;
    (void)begin_found(c, op, op->cached, true);
    uno_err err = p2p_busy(c->p2p) ? UNO_ERR_IN_PROGRESS : exec_poll_small(c->run, soon_polls(c));
    if (__builtin_expect(err == UNO_OK, 1)) { /* nobody else knows of this op */
        exec_wait_count(&c->env, EXEC_SPUN);
        c->current = NULL;
        end_event(c, UNO_OK);
        return UNO_OK;
    }
    if (err != UNO_ERR_IN_PROGRESS)
        fail_current(c, err);
    if (!op_done(op))
        (void)engine_walk_until(c, engine_call_done, op, UINT64_MAX, true);
    return result_of(op);
}

static NOINLINE uno_err p2p_wait(uno_comm *c, struct p2p_request *r)
{
    struct op op;
    op_init(&op, c, (struct request){0}, NULL, NULL, NULL, r->call_site);
    op.p2p = r;
    atomic_store_explicit(&op.state, OP_RUNNING, memory_order_relaxed);
    wait_for_p2p(c, &op);
    (void)engine_walk_until(c, engine_call_done, &op, UINT64_MAX, true);
    return result_of(&op);
}

/* What a receive was matched with at once: its sender waits for our word, and nobody may come here again soon. */
static inline void answer_owed(uno_comm *c)
{
    if (__builtin_expect(!p2p_owes(c->p2p), 1))
        return;
    bool moved = false;
    p2p_poll(c->p2p, &moved);
    if (p2p_owes(c->p2p))
        engine_kick();
}

uno_err engine_p2p(uno_comm *c, struct p2p_request *r)
{
    if (c->env.proc)
        net_enter(c->env.proc);
    p2p_issue(c->p2p, r);
    uno_err err = UNO_OK;
    if (__builtin_expect(p2p_poll_soon(c->p2p, r, soon_polls(c)) && r->err == UNO_OK, 1))
        exec_wait_count(&c->env, EXEC_SPUN);
    else
        err = p2p_wait(c, r); /* of an error, too, others may have to hear */
    answer_owed(c);
    if (c->env.proc)
        net_leave(c->env.proc);
    return err;
}

static bool goes_at_once(const struct op *first)
{
    for (const struct op *op = first; op; op = op->next_in_group)
        if (op->comm != first->comm || op->stream || !op->group_owns_p2p)
            return false;
    return true;
}

bool engine_group_p2p(struct op *first)
{
    uno_comm *c = first->comm;
    if (!goes_at_once(first) || !walk_try(c))
        return false;
    if (!walk_clear(c) || c->p2p_running) {
        walk_leave(c);
        return false;
    }
    if (c->env.proc)
        net_enter(c->env.proc);
    for (struct op *op = first; op; op = op->next_in_group) {
        atomic_store_explicit(&op->state, OP_RUNNING, memory_order_relaxed);
        op->group_waits = true;
        p2p_issue(c->p2p, op->p2p);
    }
    bool pending = true;
    for (int polls = soon_polls(c); pending && polls > 0; polls--) {
        pending = false;
        for (struct op *op = first; op; op = op->next_in_group)
            pending |= !p2p_poll_soon(c->p2p, op->p2p, 1);
    }
    for (struct op *op = first; op; op = op->next_in_group)
        pending |= op->p2p->err != UNO_OK; /* the others may have to hear of it */
    for (struct op *op = first; op; op = op->next_in_group)
        if (pending) {
            note_issued(op);
            wait_for_p2p(c, op);
        } else {
            atomic_store_explicit(&op->state, OP_DONE, memory_order_relaxed); /* only this thread knows of it */
        }
    if (!pending)
        exec_wait_count(&c->env, EXEC_SPUN);
    answer_owed(c);
    if (c->env.proc)
        net_leave(c->env.proc);
    walk_leave(c);
    return true;
}

uno_err engine_not_issued(uno_comm *c, const char *what, uno_err err)
{
    char text[ERR_TEXT_BYTES];
    if (err != UNO_ERR_MEMORY || atomic_load_explicit(&c->failed, memory_order_relaxed) != UNO_OK)
        return err;
    snprintf(text, sizeof text, "rank %d had no memory to issue %s; the others may have made their part of it", c->rank, what);
    return comm_fail(c, err, c->rank, true, text);
}

static uno_err issue_later(struct op *call)
{
    struct op *op;
    uno_err err = engine_copy_call(call, &op);
    if (err != UNO_OK)
        return engine_not_issued(call->comm, op_word(call), err);
    if (group_open()) {
        group_note(op);
        return UNO_OK;
    }
    err = engine_queue(op);
    if (err != UNO_OK) {
        err = engine_not_issued(op->comm, op_word(op), err);
        op_free(op);
        return err;
    }
    engine_kick();
    return UNO_OK;
}

static NOINLINE uno_err issue_behind_others(struct op *call)
{
    if (call->stream || group_open())
        return issue_later(call);
    (void)engine_queue(call); /* fails only in streams */
    (void)engine_wait(call->comm, engine_call_done, call, UINT64_MAX);
    return result_of(call);
}

uno_err engine_issue(struct op *call)
{
    if (!call->walks)
        return issue_behind_others(call);
    run_at_once(call);
    return result_of(call);
}
