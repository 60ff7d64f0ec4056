/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail_look.c - what whoever waits looks at meanwhile (engine_look): others' first causes, ranks that are gone, the ledgers of this host,
 * deadlines. What it finds fails the communicator (fail.c). Walk lock held.
 */
#include "comm.h"

#include <sched.h>
#include <string.h>

#define GONE_PATIENCE_NS 500000000 /* what a dead rank of another host sent arrives within this, or never */
#define MOVER_PATIENCE_NS 2000000000 /* what a rank of another host sent before it called uno_comm_shrink arrives within this */
#define EXPLAIN_NS 800000000       /* longer than the steward takes to believe in an end, within the second that ranks have */
#define LEDGER_FIRST_NS 50000      /* a wait this long is worth a look at other ranks' ledgers */
#define LEDGER_AGAIN_NS 1000000
/* Of a rank that left one operation before the others; when the calls look alike, nothing else tells of a skipped one. */
#define ONE_SHORT "; it made one call less: if its program was complete, it is off by one since an earlier call that looks alike"

/* ---- ranks that are gone ------------------------------------------------------------------------------------------- */

/* Does the running collective need a rank that ended? Its ledger says what it had finished. Of other hosts' ranks only the wait
 * itself tells: what they sent before they left in order has arrived, what a dead one sent may still be on its way. */
static bool collective_needs(uno_comm *c, const struct gone_rank *g, uint32_t number, uint64_t now)
{
    const char *what;
    if (!c->current)
        return false;
    if (c->regions[g->rank])
        return !g->finished_any || (int32_t)(number - g->finished) > 0;
    if (g->moves) /* it may be slow to arrive, and is not lost */
        return exec_blame(c->run, &what) == g->rank && now - g->since_ns > MOVER_PATIENCE_NS;
    return exec_blame(c->run, &what) == g->rank || (!g->in_order && now - g->since_ns > GONE_PATIENCE_NS);
}

/* What a rank sent before it ended may have come since the last poll: it is missed only if it still is at the next look. So nobody looks
 * before a poll has found nothing to move. Each look has its own suspect, and stops at the first: two that took turns would never be missed twice. */
static bool missed_twice(const uno_comm *c, struct suspect *s, int rank)
{
    bool before = s->rank == rank && s->number == c->number;
    *s = (struct suspect){rank, c->number};
    return before;
}

static bool messages_need(const uno_comm *c, int rank, int ngone)
{
    return p2p_needs(c->p2p, rank) || (ngone == c->size - 1 && p2p_needs(c->p2p, UNO_ANY));
}

static const char *current_name(const uno_comm *c)
{
    return coll_name(request_call(&c->current->req));
}

/* A rank of another host that left in order is waited for in `number`. Did the call before it end with something of every rank? Then that
 * one made it, too, and made one call less. */
static bool made_the_one_before(const uno_comm *c, uint32_t number)
{
    static const bool needs_all[UNO_COLL_COUNT] = {[UNO_ALL_REDUCE] = true, [UNO_ALL_GATHER] = true, [UNO_REDUCE_SCATTER] = true,
                                                   [UNO_ALL_TO_ALL] = true, [UNO_BARRIER] = true};
    const struct ledger_event *ring = net_region_ledger(c->region);
    struct ledger_event e;
    return number > 1 && ledger_read(ring, number - 1, &e) && e.number == number - 1 && e.coll < UNO_COLL_COUNT && needs_all[e.coll] &&
           (e.count > 0 || e.coll == UNO_BARRIER);
}

/* Its status says enough? */
static bool left_badly(const struct gone_rank *g)
{
    static const char words[] = "exited with status ";
    const char *status = strstr(g->text, words);
    return status && status[sizeof words - 1] != '0';
}

static uno_err look_gone(uno_comm *c, const struct gone_rank *list, const _Atomic int *count, struct suspect *suspect, uint32_t number)
{
    int n = atomic_load_explicit(count, memory_order_acquire);
    uint64_t now = clock_ns();
    for (int i = 0; i < n; i++) {
        const struct gone_rank *g = &list[i];
        char text[ERR_TEXT_BYTES];
        if (!collective_needs(c, g, number, now) && !messages_need(c, g->rank, n))
            continue;
        if (!missed_twice(c, suspect, g->rank))
            return UNO_OK;
        bool well = g->in_order && !g->moves && !left_badly(g);
        if (collective_needs(c, g, number, now) && c->regions[g->rank])
            snprintf(text, sizeof text, "%s; %s #%u needs it (its last finished operation was #%u)%s", g->text, current_name(c), number,
                     g->finished, well && number - g->finished == 1 ? ONE_SHORT : "");
        else if (collective_needs(c, g, number, now))
            snprintf(text, sizeof text, "%s; %s #%u of rank %d needs it%s", g->text, current_name(c), number, c->rank,
                     well && made_the_one_before(c, number) ? ONE_SHORT : "");
        else
            snprintf(text, sizeof text, "%s; a send or receive of rank %d needs it", g->text, c->rank);
        return comm_fail(c, g->moves ? UNO_ERR_ABORTED : UNO_ERR_PEER_DEAD, g->rank, true, text);
    }
    return UNO_OK;
}

uno_err fail_explain_unreachable(uno_comm *c)
{
    const struct gone_rank *gone;
    int lost = net_comm_lost(c->net); /* others may have ended as well, and be no reason */
    /* The connection may know of a goodbye a moment before the steward does. */
    for (uint64_t until = clock_ns() + EXPLAIN_NS; (gone = comm_gone_rank(c, lost)) == NULL; sched_yield())
        if (clock_ns() > until)
            return UNO_ERR_UNREACHABLE;
    char why[ERR_TEXT_BYTES];
    snprintf(why, sizeof why, "%s", err_text());
    return err_set(UNO_ERR_PEER_DEAD, "%s (%.700s)", gone->text, why);
}

uno_err fail_explain_withdrawn(uno_comm *c)
{
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", err_text());
    for (uint64_t until = clock_ns() + EXPLAIN_NS; comm_adopt(c) == UNO_OK && clock_ns() < until; sched_yield())
        ;
    return comm_cause(c) != UNO_OK ? comm_cause(c) : err_set(UNO_ERR_ABORTED, "%s", text);
}

/* ---- what the ledgers of this host say about the operation that is waited for --------------------------------------- */

/* Signatures are chained: the operation where they began to differ is the one to speak of. */
static uno_err mismatch_with(const uno_comm *c, int peer, uint32_t number)
{
    const struct ledger_event *ring = net_region_ledger(c->region), *theirs = net_region_ledger(c->regions[peer]);
    struct ledger_event own, e, first_own, first;
    bool found = false;
    /* It may not have come so far, and differ all the same in what it is in. */
    uint32_t at = ledger_newest(theirs, &e) && (int32_t)(number - e.number) > 0 ? e.number : number;
    for (uint32_t back = 0; back < NET_LEDGER_EVENTS - 1 && at; back++, at--) {
        if (!ledger_read(ring, at, &own) || !ledger_read(theirs, at, &e) || own.number != at || e.number != at ||
            own.signature == e.signature)
            break;
        first_own = own;
        first = e;
        found = true;
    }
    return found ? fail_say_mismatch(c, peer, at + 1, &first_own, &first, NULL) : UNO_OK;
}

void fail_explain_mismatch(uno_comm *c)
{
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && c->regions[r] && mismatch_with(c, r, c->number) != UNO_OK)
            return;
    char text[ERR_TEXT_BYTES]; /* seen by its signature alone: the other side may say more, and then it is the first cause */
    snprintf(text, sizeof text, "%s", err_text());
    fail_ask_everyone(c, c->number);
    err_set(UNO_ERR_MISMATCH, "%s", text);
}

void fail_look_back(uno_comm *c)
{
    struct ledger_event own, e;
    if (!c->number || !ledger_read(net_region_ledger(c->region), c->number, &own))
        return;
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank || !c->regions[r] || /* most have come as far, and made the same calls */
            (ledger_read(net_region_ledger(c->regions[r]), c->number, &e) && e.number == c->number && e.signature == own.signature))
            continue;
        if (mismatch_with(c, r, c->number) != UNO_OK) {
            char text[ERR_TEXT_BYTES];
            snprintf(text, sizeof text, "%s", err_text());
            (void)comm_fail(c, UNO_ERR_MISMATCH, r, true, text);
            return;
        }
    }
}

/* Its event has our number: the call must be ours. It has said goodbye before it came so far: it never will. */
static uno_err look_at_peer(uno_comm *c, int peer, uint32_t number)
{
    struct ledger_event e;
    /* acquire, and before the ledger: whoever said goodbye has written its last event; pairs with the release in finalize */
    uint32_t goodbye = atomic_load_explicit(&c->regions[peer]->goodbye, memory_order_acquire);
    bool there = ledger_read(net_region_ledger(c->regions[peer]), number, &e);
    if (there && e.number == number && e.signature != c->event->signature) {
        TRY(mismatch_with(c, peer, number));
        return UNO_OK;
    }
    if (goodbye && (!there || (int32_t)(e.number - number) < 0)) {
        char name[100], how[64] = "left the communicator";
        struct ledger_event last;
        bool badly = (goodbye & NET_GOODBYE_EXIT) && (goodbye & 0xff); /* its status says enough */
        bool one_short = !badly && ledger_newest(net_region_ledger(c->regions[peer]), &last) && number - last.number == 1;
        comm_rank_name(c, peer, name, sizeof name);
        if (goodbye & NET_GOODBYE_EXIT)
            snprintf(how, sizeof how, "exited with status %u", goodbye & 0xff);
        return err_set(UNO_ERR_PEER_DEAD, "%s %s before %s #%u, which needs it%s", name, how, current_name(c), number,
                       one_short ? ONE_SHORT : "");
    }
    return UNO_OK;
}

static uno_err look_ledgers(uno_comm *c, uint32_t number, uint64_t now)
{
    if (c->look_number != number) { /* the first look at this operation: it may just be on its way */
        c->look_number = number;
        c->look_ns = now + LEDGER_FIRST_NS;
    }
    if (now < c->look_ns)
        return UNO_OK;
    c->look_ns = now + LEDGER_AGAIN_NS;
    for (int r = 0; r < c->size; r++) {
        uno_err err = r == c->rank || !c->regions[r] ? UNO_OK : look_at_peer(c, r, number);
        if (err == UNO_OK)
            continue;
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", err_text());
        return comm_fail(c, err, r, true, text);
    }
    return UNO_OK;
}

/* A rank of this host may finalize while its process goes on: sends and receives will never be answered. */
static uno_err look_goodbyes(uno_comm *c)
{
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank || !c->regions[r] || !p2p_needs(c->p2p, r) || /* acquire: pairs with the release in finalize */
            atomic_load_explicit(&c->regions[r]->goodbye, memory_order_acquire) == 0)
            continue;
        if (!missed_twice(c, &c->left_suspect, r))
            return UNO_OK;
        char name[100], text[ERR_TEXT_BYTES];
        comm_rank_name(c, r, name, sizeof name);
        snprintf(text, sizeof text, "%s left the communicator; a send or receive of rank %d needs it", name, c->rank);
        return comm_fail(c, UNO_ERR_PEER_DEAD, r, true, text);
    }
    return UNO_OK;
}

/* ---- deadlines ----------------------------------------------------------------------------------------------------- */

/* A rank of this host that has not made the call is the reason, whoever it is that we wait for because of it; -1. */
static int not_begun(const uno_comm *c, uint32_t number)
{
    for (int r = 0; r < c->size; r++) {
        struct ledger_event e;
        if (r != c->rank && c->regions[r] &&
            (!ledger_read(net_region_ledger(c->regions[r]), number, &e) || (int32_t)(e.number - number) < 0))
            return r;
    }
    return -1;
}

static uno_err look_deadline(uno_comm *c, uint32_t number, uint64_t deadline_ns, uint64_t now)
{
    if (now < deadline_ns)
        return UNO_OK;
    const char *what = "data from";
    int rank = exec_blame(c->run, &what), absent = not_begun(c, number);
    if (absent >= 0) {
        rank = absent;
        what = "the call of";
    }
    char name[100], who[128] = "its own progress", text[ERR_TEXT_BYTES];
    if (rank >= 0) {
        comm_rank_name(c, rank, name, sizeof name);
        snprintf(who, sizeof who, "%s %s", what, name);
    }
    char why[ERR_TEXT_BYTES - 160];
    double waited_s = (double)(deadline_ns - c->started_ns) * 1e-9; /* the time-out may be another one by now */
    if (stall_reason(c, why, sizeof why))
        snprintf(text, sizeof text, "%s #%u: rank %d waited %.1f s (UNISONO_TIMEOUT): %s", current_name(c), number, c->rank,
                 waited_s, why);
    else
        snprintf(text, sizeof text, "%s #%u: rank %d waited %.1f s for %s (UNISONO_TIMEOUT)", current_name(c), number,
                 c->rank, waited_s, who);
    return comm_fail(c, UNO_ERR_TIMEOUT, rank, true, text);
}

static uno_err look_p2p_deadlines(uno_comm *c, uint64_t now)
{
    for (const struct op *op = c->p2p_running; op; op = op->next_in_comm) {
        if (now < op->deadline_ns || p2p_done(op->p2p))
            continue;
        char name[100], text[ERR_TEXT_BYTES], why[ERR_TEXT_BYTES - 160];
        comm_rank_name(c, op->p2p->peer, name, sizeof name);
        if (stall_reason(c, why, sizeof why))
            snprintf(text, sizeof text, "%s: rank %d waited %.1f s (UNISONO_TIMEOUT): %s", op->p2p->send ? "send" : "recv", c->rank,
                     op->timeout_s, why);
        else
            snprintf(text, sizeof text, "%s: rank %d waited %.1f s for %s %s (UNISONO_TIMEOUT)", op->p2p->send ? "send" : "recv", c->rank,
                     op->timeout_s, op->p2p->send ? "a receive of" : "a message of", name);
        return comm_fail(c, UNO_ERR_TIMEOUT, op->p2p->peer, true, text);
    }
    return UNO_OK;
}

uno_err engine_look(void *arg, uint32_t number, uint64_t deadline_ns)
{
    uno_comm *c = arg;
    if (__builtin_expect(atomic_load_explicit(&c->region->abort_code, memory_order_relaxed) != 0, 0))
        TRY(fail_adopt_mark(c));
    if (__builtin_expect(atomic_load_explicit(&c->attention, memory_order_acquire) != 0, 0)) {
        TRY(comm_cause(c));
        TRY(look_gone(c, c->gone, &c->ngone, &c->gone_suspect, number));
        TRY(look_gone(c, c->movers, &c->nmovers, &c->mover_suspect, number));
    }
    uint64_t now = clock_ns();
    note_wait(c, now);
    stall_look(c, now, deadline_ns);
    if (c->current) {
        TRY(look_ledgers(c, number, now));
        if (c->env.proc)
            fail_ask(c, number, now);
        TRY(look_deadline(c, number, deadline_ns, now));
    }
    if (p2p_busy(c->p2p))
        TRY(look_goodbyes(c));
    return c->p2p_running ? look_p2p_deadlines(c, now) : UNO_OK;
}
