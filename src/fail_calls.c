/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail_calls.c - the sentence for two ranks whose calls of one number do not fit together: what each of them calls, and, when the
 * calls before tell it, that one of the two is a whole program that runs one operation ahead. Called by fail.c and fail_ask.c.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

#include "verdict/verdict.h"

enum { HISTORY = 256 }; /* so many calls before are looked at */

static void add_difference(struct text *t, bool rooted, const struct ledger_event *e, const struct ledger_event *other)
{
    if (e->count != other->count)
        text_add(t, " count %llu", (unsigned long long)e->count);
    if (e->type != other->type)
        text_add(t, " type %s", type_name((uno_type)e->type));
    if (e->op != other->op)
        text_add(t, " op %s", op_name(e->op));
    if (rooted && e->root != other->root)
        text_add(t, " root %d", e->root);
}

void fail_passed_write(uno_comm *c, const size_t *counts)
{
    struct net_passed *p = net_region_passed(c->region);
    uint32_t number = c->number + 1;
    atomic_store_explicit(&p->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* no count before the 0; pairs with the fence in fail_passed_read */
    for (int r = 0; r < c->size; r++)
        atomic_store_explicit(&p->counts[r], counts[r], memory_order_relaxed);
    atomic_store_explicit(&p->number, number ? number : 1, memory_order_release); /* pairs with the acquire in fail_passed_read */
}

bool fail_passed_read(const uno_comm *c, int rank, uint32_t number, uint64_t *counts)
{
    struct net_passed *p = c->regions[rank] ? net_region_passed(c->regions[rank]) : NULL;
    if (!p || atomic_load_explicit(&p->number, memory_order_acquire) != number) /* pairs with the release in fail_passed_write */
        return false;
    for (int r = 0; r < c->size; r++)
        counts[r] = atomic_load_explicit(&p->counts[r], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire); /* pairs with the fence in fail_passed_write */
    return atomic_load_explicit(&p->number, memory_order_relaxed) == number;
}

/* The first rank for whom the two pass different counts. false: their counts are not known any more, or alike. */
static bool say_counts(const uno_comm *c, int peer, const struct ledger_event *own, const struct fail_told *told)
{
    bool said = false;
    const uint64_t *passed = told ? told->passed : NULL;
    uint64_t *mine = mem_array((size_t)c->size, sizeof *mine), *theirs = mem_array((size_t)c->size, sizeof *theirs);
    if (mine && theirs && fail_passed_read(c, c->rank, own->number, mine) && (passed || fail_passed_read(c, peer, own->number, theirs))) {
        const uint64_t *other = passed ? passed : theirs;
        for (int r = 0; r < c->size && !said; r++)
            if (mine[r] != other[r]) {
                err_set(UNO_ERR_MISMATCH, "%s #%u: for rank %d, rank %d passes %llu elements, rank %d passes %llu", coll_name((uno_coll)own->coll),
                        own->number, r, c->rank, (unsigned long long)mine[r], peer, (unsigned long long)other[r]);
                said = true;
            }
    }
    free(mine);
    free(theirs);
    return said;
}

static uno_err say_both(const uno_comm *c, int peer, uint32_t number, const struct ledger_event *own, const struct ledger_event *e,
                        const struct fail_told *told)
{
    if (e->coll >= COLL_NAMED)
        return err_set(UNO_ERR_MISMATCH, "operation #%u: rank %d's ledger makes no sense", number, peer);
    if (own->coll != e->coll)
        return err_set(UNO_ERR_MISMATCH, "operation #%u: rank %d calls %s, rank %d calls %s", number, c->rank,
                       coll_name((uno_coll)own->coll), peer, coll_name((uno_coll)e->coll));
    bool v = own->coll == UNO_ALL_GATHER_V || own->coll == UNO_REDUCE_SCATTER_V;
    if (v && own->type == e->type && own->op == e->op && say_counts(c, peer, own, told))
        return UNO_ERR_MISMATCH;
    struct text mine = {0}, theirs = {0};
    uno_coll coll = (uno_coll)own->coll;
    add_difference(&mine, coll_has_root(coll), own, e);
    add_difference(&theirs, coll_has_root(coll), e, own);
    uno_err err;
    if (mine.s && theirs.s)
        err = err_set(UNO_ERR_MISMATCH, "%s #%u: rank %d passes%s, rank %d passes%s", coll_name(coll), number, c->rank, mine.s, peer,
                      theirs.s);
    else
        err = err_set(UNO_ERR_MISMATCH, "%s #%u: rank %d and rank %d pass different counts per rank, or their earlier operations differ",
                      coll_name(coll), number, c->rank, peer);
    text_free(&mine);
    text_free(&theirs);
    return err;
}

/* ---- one call ahead --------------------------------------------------------------------------------------------------- */

static struct verdict_event call_of(const struct ledger_event *e)
{
    return (struct verdict_event){.number = e->number, .coll = e->coll, .type = e->type, .op = e->op, .root = e->root, .count = e->count};
}

/* Our calls before `number`, oldest first: signatures are chained, the other rank has made the same ones. */
static uint32_t calls_before(const uno_comm *c, uint32_t number, struct verdict_event *history)
{
    const struct ledger_event *ring = net_region_ledger(c->region);
    struct ledger_event e;
    uint32_t n = 0;
    while (n < HISTORY && n + 1 < number && ledger_read(ring, number - 1 - n, &e) && e.number == number - 1 - n)
        history[HISTORY - ++n] = call_of(&e);
    memmove(history, history + HISTORY - n, n * sizeof *history);
    return n;
}

/* How many ranks of this host have made this very call? */
static int supporters(const uno_comm *c, const struct ledger_event *call)
{
    int n = 0;
    for (int r = 0; r < c->size; r++) {
        struct ledger_event e;
        n += c->regions[r] && ledger_read(net_region_ledger(c->regions[r]), call->number, &e) && e.number == call->number &&
             e.signature == call->signature;
    }
    return n;
}

static const char *call_text(const struct ledger_event *e, char *buf, size_t buf_bytes)
{
    if (e->coll == UNO_BARRIER)
        snprintf(buf, buf_bytes, "barrier");
    else
        snprintf(buf, buf_bytes, "%s (count %llu)", coll_name((uno_coll)e->coll), (unsigned long long)e->count);
    return buf;
}

/* Has one of the two skipped an operation, or made one more? Adds it to `text`. */
static void add_shift(const uno_comm *c, int peer, const struct ledger_event *own, const struct ledger_event *theirs, char *text, size_t text_bytes)
{
    struct verdict_event *history = mem_array(HISTORY, sizeof *history), mine = call_of(own), others = call_of(theirs);
    uint32_t number = own->number, n = history ? calls_before(c, number, history) : 0;
    int shift = history ? verdict_skipped(history, n, &mine, &others) : 0;
    bool again = shift && verdict_same_call(&history[n - 1], shift > 0 ? &mine : &others);
    free(history);
    if (shift == 0)
        return;
    const struct ledger_event *ahead = shift > 0 ? own : theirs, *behind = shift > 0 ? theirs : own;
    int ahead_rank = shift > 0 ? c->rank : peer, behind_rank = shift > 0 ? peer : c->rank;
    char a[64], b[64];
    size_t len = strlen(text);
    call_text(ahead, a, sizeof a);
    call_text(behind, b, sizeof b);
    if (2 * supporters(c, ahead) > c->size)
        snprintf(text + len, text_bytes - len, "; rank %d is off by one from operation #%u on: its %s is one call more than the others make, "
                 "who go on with %s", behind_rank, number, b, a);
    else if (again)
        snprintf(text + len, text_bytes - len, "; rank %d is off by one from operation #%u on: it skipped %s, or made %s once more",
                 ahead_rank, number, b, a);
    else
        snprintf(text + len, text_bytes - len, "; rank %d is off by one from operation #%u on: it skipped %s, and its #%u, %s, is what comes "
                 "after that one", ahead_rank, number, b, number, a);
}

/* Where operation `number` of a rank of this host stands in its program. Returns site. */
static const char *site_by_region(struct net_region *region, uint32_t number, char site[LEDGER_SITE_BYTES])
{
    struct ledger_event e;
    bool there = ledger_read(net_region_ledger(region), number, &e) && e.number == number;
    return ledger_site(ledger_notes(region), there ? e.call_site : 0, site);
}

/* Where the two calls stand in their programs, if a binding has said it. */
static void add_sites(const uno_comm *c, int peer, uint32_t number, const struct fail_told *told, char *text, size_t bytes)
{
    const char *before = "; ";
    const int ranks[] = {c->rank, peer};
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        char buf[LEDGER_SITE_BYTES];
        struct net_region *region = c->regions[ranks[i]];
        const char *site = region ? site_by_region(region, number, buf) : told ? told->site : "";
        size_t len = strlen(text);
        if (!site[0] || len >= bytes)
            continue;
        snprintf(text + len, bytes - len, "%srank %d at %s", before, ranks[i], site);
        before = ", ";
    }
}

/* Whose processes they are; only where it keeps its room in what the others are told (mark_region). */
static void add_processes(const uno_comm *c, int peer, char *text)
{
    const struct watch_member *m = &c->job->members[c->job_rank[c->rank]], *p = &c->job->members[c->job_rank[peer]];
    char both[220];
    size_t len = strlen(text);
    int more = snprintf(both, sizeof both, " (rank %d: pid %d on %.60s; rank %d: pid %d on %.60s)", c->rank, m->pid, m->hostname, peer, p->pid, p->hostname);
    if (len + (size_t)more < sizeof c->region->abort_text)
        memcpy(text + len, both, (size_t)more + 1);
}

uno_err fail_say_mismatch(const uno_comm *c, int peer, uint32_t number, const struct ledger_event *own, const struct ledger_event *e,
                          const struct fail_told *told)
{
    char text[ERR_TEXT_BYTES];
    if (say_both(c, peer, number, own, e, told) == UNO_OK || e->coll >= COLL_NAMED)
        return UNO_ERR_MISMATCH;
    snprintf(text, sizeof text, "%s", err_text());
    add_shift(c, peer, own, e, text, sizeof text);
    add_sites(c, peer, own->number, told, text, sizeof text);
    add_processes(c, peer, text);
    return err_set(UNO_ERR_MISMATCH, "%s", text);
}
