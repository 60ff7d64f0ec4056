/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail.c - what goes wrong with a communicator: first causes, ends of ranks, and how every rank learns of them. Called by whoever
 * waits (fail_look.c), by the steward's callbacks, and by uno_comm_abort.
 */
#include "comm.h"

#include <sched.h>
#include <string.h>

#define SETTLE_NS 1000000          /* the winner writes its sentence within microseconds, unless it was killed */

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
        (void)fail_adopt_mark(c);
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

uno_err fail_adopt_mark(uno_comm *c)
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
