/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_report_comm.c - one communicator of one rank: from its region, as shared memory holds it, to facts for the verdict. What is
 * read may be half written or nonsense, if the owner was killed or is broken: numbers are checked where they lead somewhere.
 */
#include "watch/watch_report.h"

#include <stdlib.h>
#include <string.h>

#define MOST_P2P 256
#define NOTED_NS 1000000000ull
#define QUEUE_STANDS_NS 50000000ull

/* What tells where a call stands: the modules of its program, and the places that a binding has named. */
struct places {
    const struct board_page *page; /* may be NULL */
    const struct ledger_notes *notes;
};

static void site_of(const struct places *places, uint64_t call_site, char *site)
{
    char named[LEDGER_SITE_BYTES];
    snprintf(site, VERDICT_SITE_BYTES, "%.47s", ledger_site(places->notes, call_site, named));
    if (!site[0] && places->page && call_site > LEDGER_SITE_NUMBERS)
        board_site(places->page, call_site, site, VERDICT_SITE_BYTES);
}

static void fill_event(struct verdict_event *v, const struct ledger_event *e, const struct places *places)
{
    *v = (struct verdict_event){.number = atomic_load_explicit(&e->number, memory_order_relaxed), .signature = e->signature,
                                .coll = e->coll, .type = e->type, .state = e->state, .op = e->op, .root = e->root,
                                .waits_for = e->waits_for, .step = -1, .count = e->count, .start_ns = e->start_ns,
                                .end_ns = e->end_ns, .call_site = e->call_site};
    if (e->state != LEDGER_RUNNING && e->end_ns == 0)
        v->end_ns = e->start_ns; /* over at once */
    if (e->state != LEDGER_RUNNING)
        v->waits_for = -1;
    site_of(places, e->call_site, v->site);
}

/* The running operation: what its waits noted. */
static void add_wait(struct verdict_event *v, const struct ledger_notes *n, const struct net_region *r)
{
    if (v->state != LEDGER_RUNNING || n->wait_number != v->number)
        return;
    bool sleeps = atomic_load_explicit(&r->sleeping, memory_order_relaxed) != 0;
    v->wait = sleeps ? VERDICT_WAIT_SLEEP : VERDICT_WAIT_SPIN;
    v->waits_for = n->waits_for;
    v->step = (int32_t)MIN(n->step, (uint64_t)INT32_MAX);
    v->bytes_moved = n->bytes;
    v->bytes_total = n->bytes_all;
    v->wait_since_ns = v->moved_ns = n->since_ns;
    if (n->noted_ns + NOTED_NS > clock_ns()) /* waits note themselves many times a second, the program's and ours */
        v->blocks = n->tid > 0 ? VERDICT_PROGRAM_WAITS : n->tid < 0 ? VERDICT_PROGRAM_GOES_ON : VERDICT_BLOCKS_UNKNOWN;
}

static uno_err fill_events(const struct record_comm *c, const struct ledger_notes *n, const struct places *places, uint32_t most,
                           struct verdict_comm *out)
{
    const struct ledger_event *ring = c->parts.ledger;
    struct ledger_event newest, e;
    if (!ledger_newest(ring, &newest))
        return UNO_OK;
    out->newest = atomic_load_explicit(&newest.number, memory_order_relaxed);
    most = MIN(most, (uint32_t)NET_LEDGER_EVENTS - 1);
    out->events = mem_array(most, sizeof *out->events);
    if (!out->events)
        return UNO_ERR_MEMORY;
    uint32_t count = 1;
    while (count < most && ledger_read(ring, out->newest - count, &e) &&
           atomic_load_explicit(&e.number, memory_order_relaxed) == out->newest - count)
        count++;
    for (uint32_t i = count - 1; i > 0; i--) /* the owner may go on meanwhile and write over the oldest */
        if (ledger_read(ring, out->newest - i, &e) && atomic_load_explicit(&e.number, memory_order_relaxed) == out->newest - i)
            fill_event(&out->events[out->nevents++], &e, places);
        else
            out->nevents = 0;
    struct verdict_event *last = &out->events[out->nevents++];
    fill_event(last, &newest, places);
    add_wait(last, n, c->region);
    if (last->wait_since_ns)
        out->newest_order = n->order;
    return UNO_OK;
}

static int by_number(const void *a, const void *b)
{
    const struct ledger_p2p *x = a, *y = b;
    int32_t d = (int32_t)(atomic_load_explicit(&x->number, memory_order_relaxed) - atomic_load_explicit(&y->number, memory_order_relaxed));
    return (d > 0) - (d < 0);
}

static void fill_message(struct verdict_p2p *v, const struct ledger_p2p *e, const struct places *places)
{
    uint8_t kind = e->send ? (e->strict ? VERDICT_SEND : VERDICT_ISEND) : e->strict ? VERDICT_RECV : VERDICT_IRECV;
    *v = (struct verdict_p2p){.kind = kind, .waited = e->waited, .matched = e->state == LEDGER_P2P_MOVING,
                              .peer = e->peer < 0 ? UNO_ANY : e->peer, .tag = e->tag, .type = e->type, .number = e->pair_number,
                              .bytes = e->bytes, .since_ns = e->start_ns};
    site_of(places, e->call_site, v->site);
}

/* Sends and receives that have not ended. */
static uno_err fill_p2p(const struct record_comm *c, const struct places *places, struct verdict_comm *out)
{
    const struct ledger_p2p *ring = c->parts.p2p_ledger;
    struct ledger_p2p *open = NULL;
    size_t n = 0, cap = 0;
    for (int i = 0; i < NET_LEDGER_EVENTS; i++) {
        struct ledger_p2p e;
        if (atomic_load_explicit(&ring[i].number, memory_order_relaxed) == 0 || !ledger_p2p_read(&ring[i], &e) || /* looks properly */
            e.state == LEDGER_P2P_DONE || e.state == LEDGER_P2P_FAILED)
            continue;
        if (mem_grow(&open, &cap, n + 1, sizeof *open) != UNO_OK)
            break;
        open[n++] = e;
    }
    if (n)
        qsort(open, n, sizeof *open, by_number);
    uint32_t keep = (uint32_t)MIN(n, (size_t)MOST_P2P);
    out->left_out += (uint32_t)n - keep;
    out->p2p = keep ? mem_array(keep, sizeof *out->p2p) : NULL;
    for (uint32_t i = 0; out->p2p && i < keep; i++)
        fill_message(&out->p2p[out->np2p++], &open[i], places);
    free(open);
    return keep && !out->p2p ? UNO_ERR_MEMORY : UNO_OK;
}

/* Queue and events are not read at one moment, and the judge takes the first of the queue for the event after the newest. So it is
 * where the same operation ran before and after, or where the queue has stood for long. */
static bool queue_follows(const struct ledger_notes *n, uint32_t newest_before, const struct verdict_comm *out)
{
    if (n->queued == 0 || newest_before != out->newest)
        return n->queued == 0;
    bool runs = out->nevents && out->events[out->nevents - 1].state == VERDICT_RUNNING;
    return runs || n->queue[0].since_ns + QUEUE_STANDS_NS < clock_ns();
}

static void fill_call(struct verdict_call *v, const struct ledger_call *c, const struct places *places)
{
    *v = (struct verdict_call){.order = c->order, .coll = c->coll < COLL_NAMED ? (int8_t)c->coll : -1, .type = c->type,
                               .op = c->op, .root = c->root, .count = c->count, .since_ns = c->since_ns};
    site_of(places, c->call_site, v->site);
}

static void fill_behind(const struct ledger_notes *n, const struct places *places, struct verdict_behind *v)
{
    const struct ledger_behind *b = &n->behind;
    if (b->before == LEDGER_BEFORE_NOTHING || b->before > LEDGER_BEFORE_EVENT || b->order != n->queue[0].order)
        return;
    v->before = (uint8_t)b->before;
    v->comm_id = b->comm_id;
    v->epoch = b->epoch;
    v->p2p = b->call.coll == LEDGER_SEND ? VERDICT_SEND : b->call.coll == LEDGER_RECV ? VERDICT_RECV : 0;
    fill_call(&v->call, &b->call, places);
}

static uno_err fill_calls(const struct ledger_notes *n, const struct places *places, struct verdict_comm *out)
{
    uint32_t count = MIN(n->queued, (uint32_t)LEDGER_QUEUED);
    out->left_out += n->queued - count;
    if (count == 0)
        return UNO_OK;
    out->calls = mem_array(count, sizeof *out->calls);
    if (!out->calls)
        return UNO_ERR_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        fill_call(&out->calls[out->ncalls++], &n->queue[i], places);
    fill_behind(n, places, &out->behind);
    return UNO_OK;
}

/* The counts per rank of its newest v-form, if it passed all the same everywhere; of as many ranks as a record tells. */
static uno_err fill_passed(const struct record_comm *c, struct verdict_comm *out)
{
    const struct net_passed *p = c->parts.passed;
    uint32_t number = atomic_load_explicit(&p->number, memory_order_acquire); /* pairs with the release in fail_passed_write */
    uint32_t n = MIN((uint32_t)out->size, VERDICT_MOST_PASSED);
    if (number == 0)
        return UNO_OK;
    out->passed = mem_array(n, sizeof *out->passed);
    if (!out->passed)
        return UNO_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++)
        out->passed[i] = atomic_load_explicit(&p->counts[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire); /* pairs with the fence in fail_passed_write */
    if (atomic_load_explicit(&p->number, memory_order_relaxed) != number)
        return UNO_OK; /* the next ones are being written */
    out->passed_number = number;
    out->npassed = n;
    return UNO_OK;
}

static uno_err fill_members(const struct record_comm *c, struct verdict_comm *out)
{
    const int32_t *job_ranks = c->parts.job_ranks;
    out->members = mem_array((size_t)out->size, sizeof *out->members);
    if (!out->members)
        return UNO_ERR_MEMORY;
    for (int32_t i = 0; i < out->size; i++)
        out->members[i] = job_ranks[i];
    return UNO_OK;
}

static void fill_failure(const struct net_region *r, struct verdict_comm *out)
{
    out->failed_rank = -1;
    uint32_t code = atomic_load_explicit(&r->abort_code, memory_order_relaxed);
    if (code == 0 || atomic_load_explicit(&r->abort_ready, memory_order_acquire) == 0) /* pairs with the release in mark_region */
        return;
    out->failed = code < 64 ? (int32_t)code : UNO_ERR_INTERNAL;
    if (r->abort_rank >= 0 && r->abort_rank < out->size)
        out->failed_rank = out->members[r->abort_rank];
    out->failed_ns = r->abort_ns; /* any rank of the host wrote it, by the same clock */
    snprintf(out->failed_text, sizeof out->failed_text, "%.*s", (int)sizeof out->failed_text - 1, r->abort_text);
}

static uint32_t newest_number(const struct record_comm *c)
{
    struct ledger_event e;
    bool any = ledger_newest(c->parts.ledger, &e);
    return any ? atomic_load_explicit(&e.number, memory_order_relaxed) : 0; /* this function's own */
}

uno_err report_comm(const struct record_comm *c, const struct board_page *page, uint32_t events, struct verdict_comm *out)
{
    const struct places places = {page, c->notes};
    struct ledger_notes n;
    memset(out, 0, sizeof *out);
    out->failed_rank = -1;
    uint32_t newest = newest_number(c);
    notes_read(c->notes, &n);
    if (!atomic_load_explicit(&n.ready, memory_order_relaxed) || n.size != c->parts.size || n.rank < 0 || n.rank >= n.size)
        return UNO_OK; /* not whole yet: nothing is said of it */
    out->id = n.comm_id;
    out->epoch = n.epoch;
    out->rank = n.rank;
    out->size = n.size;
    snprintf(out->name, sizeof out->name, "%s", n.name);
    out->waited_ns = atomic_load_explicit(&n.waited_ns, memory_order_relaxed);
    out->sends = atomic_load_explicit(&n.sent.messages, memory_order_relaxed);
    out->sent_bytes = atomic_load_explicit(&n.sent.bytes, memory_order_relaxed);
    out->receives = atomic_load_explicit(&n.received.messages, memory_order_relaxed);
    out->received_bytes = atomic_load_explicit(&n.received.bytes, memory_order_relaxed);
    /* acquire: the last event before it; pairs with the release of who finalizes */
    out->destroyed = atomic_load_explicit(&c->region->goodbye, memory_order_acquire) != 0;
    TRY(fill_members(c, out));
    TRY(fill_events(c, &n, &places, MAX(events, 1u), out));
    TRY(fill_passed(c, out));
    TRY(fill_p2p(c, &places, out));
    if (queue_follows(&n, newest, out))
        TRY(fill_calls(&n, &places, out));
    else
        out->left_out += n.queued;
    out->making = (struct verdict_making){.kind = (uint8_t)MIN(n.making.kind, LEDGER_MAKES_SHRUNK), .id = n.making.id, .since_ns = n.making.since_ns};
    memcpy(out->making.set, n.making.set, sizeof n.making.set);
    fill_failure(c->region, out);
    return UNO_OK;
}
