/* SPDX-License-Identifier: Apache-2.0 */
/*
 * note.c - what a communicator's ledger says beside its events: for whom the running operation waits and since when, what is queued,
 * where the program is. Written when a wait has left the spinning, so that fast operations pay nothing; read from other processes.
 */
#include "comm.h"

#include <string.h>
#include <unistd.h>

#define FIRST_NS 50000   /* as the first look into ledgers */
#define AGAIN_NS 1000000
#define STANDS_NS 5000000
#define STANDS_AGAIN_NS 20000000

void note_made(uno_comm *c)
{
    struct ledger_notes *n = c->notes;
    int32_t *job_ranks = net_region_job_ranks(c->region);
    n->rank = c->rank;
    n->size = c->size;
    n->job_rank = c->job_rank[c->rank];
    n->epoch = c->epoch;
    n->comm_id = c->id;
    n->job_id = c->job->id;
    n->made_ns = clock_ns();
    n->tid = gettid();
    n->waits_for = -1;
    memcpy(n->name, c->name, sizeof n->name);
    for (int r = 0; r < c->size; r++)
        job_ranks[r] = c->job_rank[r];
    atomic_store_explicit(&n->ready, 1, memory_order_release); /* pairs with the acquire in notes_read */
    struct net_segment_ref region;
    net_segment_ref(c->segment, &region);
    if (c->job->board)
        watch_board_add(c->job->board, c->id, c->rank, &region);
}

/* Calls that run at once need no number until somebody asks in which order they and queued ones were issued. */
static uint64_t next_order(void)
{
    static _Atomic uint64_t order; /* relaxed: only the values matter */
    return atomic_fetch_add_explicit(&order, 1, memory_order_relaxed) + 1;
}

/* What the progress thread moves, a thread of the program waits for on a stream, or nobody does: then the program's thread stays
 * noted, as a negative number. */
static int32_t who_waits(const struct ledger_notes *n)
{
    if (!engine_is_progress())
        return gettid();
    int32_t tid = stream_waiter();
    return tid ? tid : n->tid > 0 ? -n->tid : n->tid;
}

static void write_wait(uno_comm *c, const struct exec_progress *p, uint64_t now)
{
    struct ledger_notes *n = c->notes;
    const char *what;
    int rank = exec_blame(c->run, &what);
    if (c->current->order == 0)
        c->current->order = next_order();
    notes_begin(&n->wait_seq);
    n->wait_number = c->number;
    n->waits_for = rank;
    snprintf(n->what, sizeof n->what, "%s", what);
    n->since_ns = n->seen_ns;
    n->noted_ns = now;
    n->step = p->step;
    n->steps = p->steps;
    n->bytes = p->bytes;
    n->bytes_all = p->bytes_all;
    n->order = c->current->order;
    n->tid = who_waits(n);
    notes_end(&n->wait_seq);
    c->event->waits_for = rank;
}

static void count_wait(struct ledger_notes *n, uint64_t now)
{
    uint64_t more = now > n->counted_ns ? now - n->counted_ns : 0;
    atomic_store_explicit(&n->waited_ns, atomic_load_explicit(&n->waited_ns, memory_order_relaxed) + more, memory_order_relaxed);
}

void note_waited(uno_comm *c)
{
    if (c->notes->wait_number == c->number)
        count_wait(c->notes, clock_ns());
}

void note_wait(uno_comm *c, uint64_t now)
{
    struct ledger_notes *n = c->notes;
    if (!p2p_busy(c->p2p)) {
        c->p2p_waited = 0;
    } else if (now >= c->p2p_noted_ns + AGAIN_NS) {
        c->p2p_noted_ns = now;
        c->p2p_waited = p2p_note_waits(c->p2p, c->draining);
        n->tid = who_waits(n);
        n->noted_ns = now;
    }
    if (!c->current)
        return;
    if (n->seen_number != c->number) { /* the first look at this operation: it may just be on its way */
        n->seen_number = c->number;
        n->seen_ns = n->counted_ns = now;
        n->again_ns = now + FIRST_NS;
        n->seen_step = UINT64_MAX;
    }
    if (now < n->again_ns)
        return;
    n->again_ns = now + AGAIN_NS;
    struct exec_progress p;
    exec_progress(c->run, &p);
    if (n->seen_step != UINT64_MAX && n->seen_step != p.step)
        n->seen_ns = now; /* it moved since the last note */
    else
        count_wait(n, now);
    n->counted_ns = now;
    n->seen_step = p.step;
    write_wait(c, &p, now);
}

void note_board(struct job *job, const struct config *cfg)
{
    if (watch_board_new(job->id, job->rank, job->size, cfg->stacks, &job->board) != UNO_OK)
        LOG(LOG_INFO, LOG_WATCH, "verdicts will tell less of this process: %s", err_text());
}

static void describe(struct ledger_call *call, const struct op *op)
{
    *call = (struct ledger_call){.call_site = (uint64_t)(uintptr_t)op->call_site, .order = op->order, .since_ns = op->issued_ns};
    if (op->p2p) {
        call->coll = op->p2p->send ? LEDGER_SEND : LEDGER_RECV;
        call->type = (uint8_t)op->p2p->type;
        call->root = op->p2p->peer;
        call->count = op->p2p->bytes;
    } else {
        call->coll = (uint8_t)request_call(&op->req);
        call->type = (uint8_t)op->req.type;
        call->op = MIN(op->req.op, UNO_OP_DYNAMIC);
        call->root = op->req.root;
        call->count = op->req.count;
    }
}

void note_issued(struct op *op)
{
    op->order = next_order();
    op->issued_ns = clock_coarse_ns();
}

void note_queue(uno_comm *c)
{
    struct ledger_notes *n = c->notes;
    uint32_t queued = (uint32_t)atomic_load_explicit(&c->queued, memory_order_relaxed);
    if (queued > LEDGER_QUEUED && n->queued == queued - 1) { /* one more at the end of a long queue */
        n->queued = queued;
        return;
    }
    notes_begin(&n->queue_seq);
    n->queued = queued;
    const struct op *op = c->queue_head;
    for (int i = 0; i < LEDGER_QUEUED && op; i++, op = op->next_in_comm)
        describe(&n->queue[i], op);
    notes_end(&n->queue_seq);
}

void note_making(uno_comm *c, enum ledger_makes kind, uint64_t id, const uint64_t *set)
{
    struct ledger_notes *n = c->notes;
    pthread_mutex_lock(&c->issue);
    notes_begin(&n->making_seq);
    n->making = (struct ledger_making){.kind = kind, .id = id, .since_ns = clock_ns()};
    memcpy(n->making.set, set, sizeof n->making.set);
    notes_end(&n->making_seq);
    pthread_mutex_unlock(&c->issue);
}

void note_making_ends(uno_comm *c)
{
    struct ledger_notes *n = c->notes;
    pthread_mutex_lock(&c->issue);
    notes_begin(&n->making_seq);
    n->making.since_ns = 0;
    notes_end(&n->making_seq);
    pthread_mutex_unlock(&c->issue);
}

uno_err uno_comm_set_call_site(uno_comm *c, const char *text)
{
    if (!c || c->magic != COMM_MAGIC)
        return err_set(UNO_ERR_ARG, "uno_comm_set_call_site: comm is %s", c ? "not a communicator (destroyed?)" : "NULL");
    if (c->fork_generation != fork_generation())
        return err_set(UNO_ERR_USAGE, "uno_comm_set_call_site: this communicator was made before fork() and is used in a forked child");
    pthread_mutex_lock(&c->issue);
    uintptr_t number = ledger_site_set(c->notes, text ? text : "");
    atomic_store_explicit(&c->site, number, memory_order_relaxed);
    pthread_mutex_unlock(&c->issue);
    return UNO_OK;
}

void uno_set_position_callback(uno_position_fn position, void *arg)
{
    watch_set_position(position, arg);
}

static void tell_before(void *arg, const struct op *before, bool by_event)
{
    struct ledger_behind *b = arg;
    b->before = by_event ? LEDGER_BEFORE_EVENT : LEDGER_BEFORE_STREAM;
    b->comm_id = before->comm->id;
    b->epoch = before->comm->epoch;
    describe(&b->call, before);
}

/* Asked at every poll: what stands for a moment only is nobody's concern. */
void note_not_ready(uno_comm *c, struct op *head)
{
    uint64_t now = clock_coarse_ns();
    if (c->stands_order != head->order) {
        c->stands_order = head->order;
        c->stands_note_ns = now + STANDS_NS;
    }
    if (now < c->stands_note_ns)
        return;
    c->stands_note_ns = now + STANDS_AGAIN_NS;
    struct ledger_behind b = {.order = head->order};
    stream_before(head, tell_before, &b);
    notes_begin(&c->notes->queue_seq);
    c->notes->behind = b;
    notes_end(&c->notes->queue_seq);
}
