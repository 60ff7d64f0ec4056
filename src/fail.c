/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail.c - what goes wrong with a communicator: first causes, deaths, deadlines, and how every rank learns of them. Called by
 * whoever waits (engine_look), by the steward's callbacks, and by uno_comm_abort.
 */
#include "comm.h"

#include <string.h>

uno_err comm_cause(uno_comm *c)
{
    /* acquire: the text before the code; pairs with the release in comm_fail */
    int code = atomic_load_explicit(&c->failed, memory_order_acquire);
    if (code == UNO_OK)
        return UNO_OK;
    return err_set((uno_err)code, "%s", c->fail_text);
}

/* Leave the first cause where a rank of this host finds it while it waits. */
static void mark_region(struct net_region *r, uno_err code, int rank, const char *text)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&r->abort_code, &none, (uint32_t)code))
        return;
    r->abort_rank = rank;
    snprintf(r->abort_text, sizeof r->abort_text, "%s", text);
    atomic_store_explicit(&r->abort_ready, 1, memory_order_release); /* pairs with the acquire in adopt_mark */
}

static void wake_region(struct net_region *r)
{
    atomic_thread_fence(memory_order_seq_cst); /* not on a fast path: make sure that a sleeper's word is seen */
    net_ring_region(r);
}

static void tell_others(uno_comm *c, uno_err code, int culprit, const char *text)
{
    bool elsewhere = false;
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            continue;
        if (c->regions[r]) {
            mark_region(c->regions[r], code, culprit, text);
            wake_region(c->regions[r]);
        } else {
            elsewhere = true;
        }
    }
    if (elsewhere && c->job->watch)
        watch_abort(c->job->watch, c->id, code, culprit, text, c->job_rank, c->size);
}

uno_err comm_fail(uno_comm *c, uno_err code, int culprit, bool spread, const char *text)
{
    pthread_mutex_lock(&c->fail_lock);
    bool first = atomic_load_explicit(&c->failed, memory_order_relaxed) == UNO_OK;
    if (first) {
        snprintf(c->fail_text, sizeof c->fail_text, "%s", text);
        atomic_store_explicit(&c->failed, code, memory_order_release); /* pairs with the acquire in comm_cause */
        atomic_store_explicit(&c->attention, 1, memory_order_release);
    }
    pthread_mutex_unlock(&c->fail_lock);
    if (first) {
        mark_region(c->region, code, culprit, text);
        if (spread)
            tell_others(c, code, culprit, text);
        wake_region(c->region);
    }
    return comm_cause(c);
}

void comm_rank_gone(uno_comm *c, int rank, bool in_order, const char *text)
{
    /* Which collectives had it finished? Its own ledger says so, where we can read it. */
    uint32_t finished = 0;
    if (c->regions[rank]) {
        const struct ledger_event *ring = net_region_ledger(c->regions[rank]);
        for (uint32_t i = 0; i < NET_LEDGER_EVENTS; i++) {
            struct ledger_event e;
            if (ledger_read(ring, i, &e) && e.state == LEDGER_DONE && (int32_t)(e.number - finished) > 0)
                finished = e.number;
        }
    }
    pthread_mutex_lock(&c->fail_lock);
    int n = atomic_load_explicit(&c->ngone, memory_order_relaxed);
    bool known = false;
    for (int i = 0; i < n; i++)
        known = known || c->gone[i].rank == rank;
    if (!known && n < c->size) {
        struct gone_rank *g = &c->gone[n];
        g->rank = rank;
        g->finished = finished;
        g->in_order = in_order;
        snprintf(g->text, sizeof g->text, "%s", text);
        atomic_store_explicit(&c->ngone, n + 1, memory_order_release); /* pairs with the acquire in look_gone */
        atomic_store_explicit(&c->attention, 1, memory_order_release);
    }
    pthread_mutex_unlock(&c->fail_lock);
    wake_region(c->region);
}

static uno_err adopt_mark(uno_comm *c)
{
    struct net_region *r = c->region;
    uint32_t code = atomic_load_explicit(&r->abort_code, memory_order_acquire);
    if (code == 0 || atomic_load_explicit(&r->abort_ready, memory_order_acquire) == 0)
        return UNO_OK;
    char text[sizeof r->abort_text];
    snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, r->abort_text);
    return comm_fail(c, code < 64 ? (uno_err)code : UNO_ERR_INTERNAL, r->abort_rank, false, text);
}

static uno_err look_gone(uno_comm *c, uint32_t number)
{
    int n = atomic_load_explicit(&c->ngone, memory_order_acquire);
    const char *what = NULL;
    for (int i = 0; i < n; i++) {
        const struct gone_rank *g = &c->gone[i];
        bool needed = c->current ? (int32_t)(number - g->finished) > 0 : p2p_blame(c->p2p, &what) == g->rank;
        if (!needed)
            continue;
        char text[ERR_TEXT_BYTES];
        if (c->current)
            snprintf(text, sizeof text, "%s; %s #%u needs it (its last finished operation was #%u)", g->text,
                     coll_name(c->current->req.coll), number, g->finished);
        else
            snprintf(text, sizeof text, "%s; a send or receive of rank %d needs it", g->text, c->rank);
        return comm_fail(c, UNO_ERR_PEER_DEAD, g->rank, true, text);
    }
    return UNO_OK;
}

static uno_err look_deadline(uno_comm *c, uint32_t number, uint64_t deadline_ns)
{
    uint64_t now = clock_ns();
    if (now < deadline_ns)
        return UNO_OK;
    const char *what = "data from";
    int rank = exec_blame(c->run, &what);
    char who[128] = "its own progress";
    if (rank >= 0) {
        const struct watch_member *m = &c->job->members[c->job_rank[rank]];
        snprintf(who, sizeof who, "%s rank %d (pid %d on %.60s)", what, rank, m->pid, m->hostname);
    }
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s #%u: rank %d waited %.1f s for %s (UNISONO_TIMEOUT)", coll_name(c->current->req.coll), number,
             c->rank, c->cfg.timeout, who);
    return comm_fail(c, UNO_ERR_TIMEOUT, rank, true, text);
}

uno_err engine_look(void *arg, uint32_t number, uint64_t deadline_ns)
{
    uno_comm *c = arg;
    if (__builtin_expect(atomic_load_explicit(&c->region->abort_code, memory_order_relaxed) != 0, 0))
        TRY(adopt_mark(c));
    if (__builtin_expect(atomic_load_explicit(&c->attention, memory_order_acquire) != 0, 0)) {
        TRY(comm_cause(c));
        TRY(look_gone(c, number));
    }
    if (deadline_ns != UINT64_MAX && c->current)
        return look_deadline(c, number, deadline_ns);
    return UNO_OK;
}

uno_err comm_enter(uno_comm *c)
{
    if (!c || c->magic != COMM_MAGIC)
        return err_set(UNO_ERR_ARG, "comm is %s", c ? "not a communicator (destroyed?)" : "NULL");
    if (c->fork_generation != fork_generation())
        return err_set(UNO_ERR_USAGE, "this communicator was made before fork() and is used in a forked child; join again there");
    atomic_fetch_add(&c->active, 1); /* sequentially consistent, as the other side: finalized is set before active is read */
    if (atomic_load(&c->finalized)) {
        comm_release(c);
        return err_set(UNO_ERR_USAGE, "the communicator was finalized");
    }
    uno_err err = comm_cause(c);
    if (err != UNO_OK)
        return comm_leave(c, err);
    return UNO_OK;
}

uno_err comm_leave(uno_comm *c, uno_err err)
{
    if (err != UNO_OK && err != UNO_ERR_IN_PROGRESS) {
        pthread_mutex_lock(&c->fail_lock);
        snprintf(c->last_error, sizeof c->last_error, "%s", err_text());
        pthread_mutex_unlock(&c->fail_lock);
    }
    comm_release(c);
    return err;
}
