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

static uno_err say_both(const uno_comm *c, int peer, uint32_t number, const struct ledger_event *own, const struct ledger_event *e)
{
    if (e->coll >= UNO_COLL_COUNT)
        return err_set(UNO_ERR_MISMATCH, "operation #%u: rank %d's ledger makes no sense", number, peer);
    if (own->coll != e->coll)
        return err_set(UNO_ERR_MISMATCH, "operation #%u: rank %d calls %s, rank %d calls %s", number, c->rank,
                       coll_name((uno_coll)own->coll), peer, coll_name((uno_coll)e->coll));
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
    uint32_t number = own->number;
    int shift = history ? verdict_skipped(history, calls_before(c, number, history), &mine, &others) : 0;
    free(history);
    if (shift == 0)
        return;
    const struct ledger_event *ahead = shift > 0 ? own : theirs, *behind = shift > 0 ? theirs : own;
    int ahead_rank = shift > 0 ? c->rank : peer, behind_rank = shift > 0 ? peer : c->rank;
    char a[64], b[64];
    size_t len = strlen(text);
    call_text(ahead, a, sizeof a);
    call_text(behind, b, sizeof b);
    if (supporters(c, ahead) > MAX(supporters(c, behind), 1))
        snprintf(text + len, text_bytes - len, "; rank %d is off by one from operation #%u on: its %s is one call more than the others make, "
                 "who go on with %s", behind_rank, number, b, a);
    else
        snprintf(text + len, text_bytes - len, "; rank %d is off by one from operation #%u on: it skipped %s, and its #%u, %s, is what came "
                 "after that call whenever it was made before", ahead_rank, number, b, number, a);
}

uno_err fail_say_mismatch(const uno_comm *c, int peer, uint32_t number, const struct ledger_event *own, const struct ledger_event *e)
{
    char text[ERR_TEXT_BYTES];
    if (say_both(c, peer, number, own, e) == UNO_OK || e->coll >= UNO_COLL_COUNT)
        return UNO_ERR_MISMATCH;
    snprintf(text, sizeof text, "%s", err_text());
    add_shift(c, peer, own, e, text, sizeof text);
    return err_set(UNO_ERR_MISMATCH, "%s", text);
}
