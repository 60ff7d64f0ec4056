/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail.c - what goes wrong with a communicator: first causes, deaths, deadlines, and how every rank learns of them. Called by
 * whoever waits (engine_look), by the steward's callbacks, and by uno_comm_abort.
 */
#include "comm.h"

#include <sched.h>
#include <string.h>

#define SETTLE_NS 1000000          /* the winner writes its sentence within microseconds, unless it was killed */
#define GONE_PATIENCE_NS 500000000 /* what a dead rank of another host sent arrives within this, or never */
#define MOVER_PATIENCE_NS 2000000000 /* what a rank of another host sent before it called uno_comm_shrink arrives within this */
#define EXPLAIN_NS 800000000       /* longer than the steward takes to believe in an end, within the second that ranks have */
#define LEDGER_FIRST_NS 50000      /* a wait this long is worth a look at other ranks' ledgers */
#define LEDGER_AGAIN_NS 1000000
/* Of a rank that left one operation before the others; when the calls look alike, nothing else tells of a skipped one. */
#define ONE_SHORT "; it made one call less: if its program was complete, it is off by one since an earlier call that looks alike"

static uno_err adopt_mark(uno_comm *c);

uno_err comm_cause(uno_comm *c)
{
    /* acquire: the text before the code; pairs with the release in comm_fail */
    int code = atomic_load_explicit(&c->failed, memory_order_acquire);
    if (code == UNO_OK)
        return UNO_OK;
    return err_set((uno_err)code, "%s", c->fail_text);
}

uno_err comm_adopt(uno_comm *c)
{
    if (__builtin_expect(atomic_load_explicit(&c->region->abort_code, memory_order_relaxed) != 0, 0))
        (void)adopt_mark(c);
    return comm_cause(c);
}

static int lowest_here(const uno_comm *c)
{
    int lowest = 0;
    while (!c->regions[lowest])
        lowest++;
    return lowest;
}

/* An end is the first cause of every communicator that the rank was in: it is printed once. What the program does on purpose is for it to say. */
static void print_cause(uno_comm *c, uno_err code, int culprit, const char *text)
{
    bool meant = code == UNO_ERR_ABORTED || code == UNO_ERR_EXCLUDED;
    bool ends = (code == UNO_ERR_PEER_DEAD || code == UNO_ERR_UNREACHABLE) && culprit >= 0 && culprit < c->size && culprit != c->rank;
    uint64_t gone = ends ? (uint64_t)c->job_rank[culprit] + 1 : 0;
    if (!ends || atomic_exchange_explicit(&c->job->said_gone, gone, memory_order_relaxed) != gone)
        LOG(meant ? LOG_INFO : LOG_WARN, LOG_COLL, "%s", text);
}

/* Leave the first cause where a rank of this host finds it while it waits. false: another one stands there. */
static bool mark_region(uno_comm *c, int where, uno_err code, int culprit, const char *text)
{
    struct net_region *r = c->regions[where];
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&r->abort_code, &none, (uint32_t)code))
        return false;
    r->abort_rank = culprit;
    r->abort_by = c->rank;
    r->abort_ns = clock_ns();
    snprintf(r->abort_text, sizeof r->abort_text, "%.511s", text);
    atomic_store_explicit(&r->abort_ready, 1, memory_order_release); /* pairs with the acquire in read_mark */
    return true;
}

/* Somebody has marked it, or is about to. false: he does not come to the end of it. */
static bool mark_comes(const struct net_region *r)
{
    uint64_t patience = clock_ns() + SETTLE_NS; /* acquire: pairs with the release in mark_region */
    while (atomic_load_explicit(&r->abort_ready, memory_order_acquire) == 0)
        if (clock_ns() >= patience)
            return false;
        else
            sched_yield();
    return true;
}

/* Is that rank of the job in this communicator, and does it live? */
static bool can_print(void *arg, int job_rank)
{
    const uno_comm *c = arg;
    for (int r = 0; r < c->size; r++)
        if (c->job_rank[r] == job_rank)
            return !comm_gone_rank(c, r);
    return false;
}

/* Logs that are files of their own would not have what another process prints, who has marked the lowest rank of the host. */
static void print_apart(uno_comm *c, uno_err code, int culprit, const char *text)
{
    const struct net_region *r = c->regions[lowest_here(c)];
    int by = mark_comes(r) ? r->abort_by : -1;
    if (by >= 0 && by < c->size && by != c->rank && watch_prints_too(c->job->members, c->job_rank[c->rank], c->job_rank[by], can_print, c))
        print_cause(c, code, culprit, text);
}

/* What another rank marked. false: nothing, or not completely (it may have died while writing). */
static bool read_mark(const struct net_region *r, uno_err *code, int *rank, char *text, size_t text_bytes)
{
    uint32_t mark = atomic_load_explicit(&r->abort_code, memory_order_relaxed);
    if (mark == 0 || atomic_load_explicit(&r->abort_ready, memory_order_acquire) == 0)
        return false;
    *code = mark < 64 ? (uno_err)mark : UNO_ERR_INTERNAL;
    *rank = r->abort_rank;
    snprintf(text, text_bytes, "%.*s", (int)sizeof r->abort_text - 1, r->abort_text);
    return true;
}

static void wake_region(struct net_region *r)
{
    atomic_thread_fence(memory_order_seq_cst); /* not on a fast path: make sure that a sleeper's word is seen */
    net_ring_region(r);
}

bool comm_tell_host(uno_comm *c, uno_err code, int culprit, const char *text)
{
    bool prints = false;
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank || !c->regions[r])
            continue;
        bool marked = mark_region(c, r, code, culprit, text);
        prints = prints || (marked && r == lowest_here(c));
        wake_region(c->regions[r]); /* also where settle has marked it */
    }
    return prints;
}

static bool tell_others(uno_comm *c, uno_err code, int culprit, const char *text)
{
    bool elsewhere = false, prints = comm_tell_host(c, code, culprit, text);
    for (int r = 0; r < c->size; r++)
        elsewhere = elsewhere || (r != c->rank && !c->regions[r]);
    if (elsewhere && c->job->watch)
        watch_abort(c->job->watch, c->id, code, culprit, text, c->job_rank, c->size);
    return prints;
}

void comm_tell_excluded(uno_comm *c, bool (*excluded)(const uno_comm *c, int rank), bool elsewhere)
{
    for (int r = 0; r < c->size; r++) {
        char text[128];
        if (!excluded(c, r))
            continue;
        snprintf(text, sizeof text, "the other ranks went on without rank %d (uno_comm_shrink)", r);
        if (c->regions[r]) {
            (void)mark_region(c, r, UNO_ERR_EXCLUDED, r, text);
            wake_region(c->regions[r]);
        } else if (elsewhere && c->job->watch) {
            watch_abort(c->job->watch, c->id, UNO_ERR_EXCLUDED, r, text, &c->job_rank[r], 1);
        }
    }
}

/* Ranks of a host that fail at the same moment settle on one cause: whoever marks the lowest rank's region first. true: this rank has. */
static bool settle(uno_comm *c, uno_err *code, int *culprit, char *text, size_t text_bytes)
{
    int lowest = lowest_here(c);
    if (mark_region(c, lowest, *code, *culprit, text))
        return true;
    if (mark_comes(c->regions[lowest]))
        (void)read_mark(c->regions[lowest], code, culprit, text, text_bytes);
    return false;
}

/* prints: this rank has marked the lowest one, and says so for its host, last of all, since who reads the log may be slow. */
static uno_err fail(uno_comm *c, uno_err code, int culprit, bool spread, bool prints, const char *said)
{
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", said);
    if (spread && atomic_load_explicit(&c->failed, memory_order_relaxed) == UNO_OK)
        prints = settle(c, &code, &culprit, text, sizeof text);
    pthread_mutex_lock(&c->fail_lock);
    bool first = atomic_load_explicit(&c->failed, memory_order_relaxed) == UNO_OK;
    if (first) {
        snprintf(c->fail_text, sizeof c->fail_text, "%s", text);
        atomic_store_explicit(&c->failed, code, memory_order_release); /* pairs with the acquire in comm_cause */
        atomic_store_explicit(&c->attention, 1, memory_order_release);
    }
    pthread_mutex_unlock(&c->fail_lock);
    if (first) {
        bool marked = mark_region(c, c->rank, code, culprit, text);
        prints = prints || (marked && c->rank == lowest_here(c));
        prints = (spread && tell_others(c, code, culprit, text)) || prints;
        wake_region(c->region);
        if (prints)
            print_cause(c, code, culprit, text);
        else
            print_apart(c, code, culprit, text);
    }
    return comm_cause(c);
}

uno_err comm_fail(uno_comm *c, uno_err code, int culprit, bool spread, const char *text)
{
    return fail(c, code, culprit, spread, false, text);
}

uno_err comm_told(uno_comm *c, uno_err code, int culprit, const char *text)
{
    /* EXCLUDED is one rank's matter. Else: who tells may die in the middle of telling */
    bool prints = code != UNO_ERR_EXCLUDED && comm_tell_host(c, code, culprit, text);
    return fail(c, code, culprit, false, prints, text);
}

/* Which collectives had it finished? Its own ledger says so, where we can read it. */
static void read_finished(const uno_comm *c, struct gone_rank *g)
{
    const struct ledger_event *ring = c->regions[g->rank] ? net_region_ledger(c->regions[g->rank]) : NULL;
    for (uint32_t i = 0; ring && i < NET_LEDGER_EVENTS; i++) {
        struct ledger_event e;
        if (ledger_read(ring, i, &e) && e.state == LEDGER_DONE && (!g->finished_any || (int32_t)(e.number - g->finished) > 0)) {
            g->finished = e.number;
            g->finished_any = true;
        }
    }
}

static void note_gone(uno_comm *c, struct gone_rank *list, _Atomic int *count, const struct gone_rank *what)
{
    struct gone_rank g = *what;
    read_finished(c, &g);
    g.since_ns = clock_ns();
    pthread_mutex_lock(&c->fail_lock);
    int n = atomic_load_explicit(count, memory_order_relaxed);
    bool known = false;
    for (int i = 0; i < n; i++)
        known = known || list[i].rank == g.rank;
    if (!known && n < c->size) {
        list[n] = g;
        atomic_store_explicit(count, n + 1, memory_order_release); /* pairs with the acquire in look_gone */
        atomic_store_explicit(&c->attention, 1, memory_order_release);
    }
    pthread_mutex_unlock(&c->fail_lock);
    wake_region(c->region);
}

void comm_rank_gone(uno_comm *c, int rank, bool in_order, const char *text)
{
    struct gone_rank g = {.rank = rank, .in_order = in_order};
    /* acquire: pairs with say_goodbye. What it said itself is known sooner than what its parent learns. */
    uint32_t goodbye = c->regions[rank] ? atomic_load_explicit(&c->regions[rank]->goodbye, memory_order_acquire) : 0;
    char name[100];
    comm_rank_name(c, rank, name, sizeof name);
    if (in_order && (goodbye & NET_GOODBYE_EXIT))
        snprintf(g.text, sizeof g.text, "%s exited with status %u", name, goodbye & 0xff);
    else
        snprintf(g.text, sizeof g.text, "%s", text);
    note_gone(c, c->gone, &c->ngone, &g);
}

const struct gone_rank *comm_gone_rank(const uno_comm *c, int rank)
{
    int n = atomic_load_explicit(&c->ngone, memory_order_acquire); /* pairs with the release in note_gone */
    for (int i = 0; i < n; i++)
        if (rank < 0 || c->gone[i].rank == rank)
            return &c->gone[i];
    return NULL;
}

void comm_rank_moves(uno_comm *c, int rank)
{
    struct gone_rank g = {.rank = rank, .in_order = true, .moves = true};
    char name[100];
    comm_rank_name(c, rank, name, sizeof name);
    snprintf(g.text, sizeof g.text, "%s has called uno_comm_shrink", name);
    note_gone(c, c->movers, &c->nmovers, &g);
}

/* Later ends reach the child as they reach every communicator of the job. */
void comm_inherit_gone(uno_comm *parent, uno_comm *child)
{
    pthread_mutex_lock(&parent->job->lock);
    int n = atomic_load_explicit(&parent->ngone, memory_order_acquire);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < child->size; r++)
            if (child->job_rank[r] == parent->job_rank[parent->gone[i].rank])
                comm_rank_gone(child, r, parent->gone[i].in_order, parent->gone[i].text);
    pthread_mutex_unlock(&parent->job->lock);
}

static uno_err adopt_mark(uno_comm *c)
{
    char text[ERR_TEXT_BYTES];
    uno_err code;
    int rank;
    return read_mark(c->region, &code, &rank, text, sizeof text) ? comm_fail(c, code, rank, false, text) : UNO_OK;
}

void comm_rank_name(const uno_comm *c, int rank, char *buf, size_t buf_bytes)
{
    const struct watch_member *m = &c->job->members[c->job_rank[rank]];
    snprintf(buf, buf_bytes, "rank %d (pid %d on %.60s)", rank, m->pid, m->hostname);
}

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
        TRY(adopt_mark(c));
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

/* ---- calls ------------------------------------------------------------------------------------------------------------ */

uno_err comm_check(const uno_comm *c)
{
    if (!c || c->magic != COMM_MAGIC)
        return err_set(UNO_ERR_ARG, "the call needs a communicator, and comm is %s", c ? "none (destroyed?)" : "NULL (did making it fail?)");
    if (c->fork_generation != fork_generation())
        return err_set(UNO_ERR_USAGE, "this communicator was made before fork() and is used in a forked child; join again there");
    return UNO_OK;
}

static uno_err not_finalized(const uno_comm *c)
{
    if (!atomic_load(&c->finalized))
        return UNO_OK;
    return err_set(UNO_ERR_USAGE, "rank %d: this communicator was finalized; what is legal now is uno_comm_destroy, uno_last_error and the queries of "
                   "rank, size and errors", c->rank);
}

uno_err comm_usable(uno_comm *c)
{
    TRY(interrupt_check());
    TRY(not_finalized(c));
    return comm_adopt(c);
}

uno_err comm_enter_failed(uno_comm *c)
{
    TRY(comm_check(c));
    TRY(interrupt_check());
    atomic_fetch_add(&c->active, 1); /* sequentially consistent, as the other side: finalized is set before active is read */
    uno_err err = not_finalized(c);
    return err == UNO_OK ? UNO_OK : comm_leave(c, err);
}

uno_err comm_enter(uno_comm *c)
{
    TRY(comm_enter_failed(c));
    uno_err err = comm_adopt(c);
    if (err != UNO_OK)
        return comm_leave(c, err);
    return UNO_OK;
}

void comm_keep_error(uno_comm *c)
{
    pthread_mutex_lock(&c->fail_lock);
    snprintf(c->last_error, sizeof c->last_error, "%s", err_text());
    pthread_mutex_unlock(&c->fail_lock);
}

uno_err comm_leave(uno_comm *c, uno_err err)
{
    if (err != UNO_OK && err != UNO_ERR_IN_PROGRESS)
        comm_keep_error(c);
    comm_release(c);
    return err;
}
