/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_calls.c - do the calls of a communicator's ranks fit together, and if not: since which number, who differs, and is it a
 * whole program that is one operation ahead or behind?
 */
#include "verdict/verdict_inner.h"

#include <string.h>

/* Handles of the program's own reductions are numbered by each rank for itself. */
static bool ops_differ(const struct verdict_event *a, const struct verdict_event *b)
{
    return a->op != b->op && (a->op < UNO_OP_DYNAMIC || b->op < UNO_OP_DYNAMIC);
}

bool calls_differ(const struct verdict_event *a, const struct verdict_event *b)
{
    if (a->coll != b->coll)
        return true;
    if (a->coll == UNO_BARRIER)
        return false;
    return a->type != b->type || (!coll_is_v((uno_coll)a->coll) && a->count != b->count) ||
           (coll_reduces((uno_coll)a->coll) && ops_differ(a, b)) ||
           (coll_has_root((uno_coll)a->coll) && a->root != b->root);
}

static bool signatures_differ(const struct verdict_event *a, const struct verdict_event *b)
{
    return a->signature && b->signature && a->signature != b->signature;
}

/* Equal signatures cover everything that must agree, whatever the fields look like. */
static bool differ(const struct verdict_event *a, const struct verdict_event *b, bool by_signature)
{
    if (by_signature)
        return signatures_differ(a, b);
    return calls_differ(a, b) && !(a->signature && a->signature == b->signature);
}

/* Lowest and highest number that somebody still tells of. */
static bool window(const struct group *g, uint32_t *low, uint32_t *high)
{
    bool any = false;
    for (uint32_t i = 0; i < g->nseats; i++) {
        const struct verdict_comm *c = g->seats[i].comm;
        if (c->nevents == 0)
            continue;
        uint32_t first = c->newest - (c->nevents - 1);
        if (!any || is_ahead(*low, first))
            *low = first;
        if (!any || is_ahead(c->newest, *high))
            *high = c->newest;
        any = true;
    }
    return any;
}

static bool differs_at(const struct group *g, uint32_t number, bool by_signature)
{
    const struct verdict_event *model = NULL;
    for (uint32_t i = 0; i < g->nseats; i++) {
        const struct verdict_event *e = event_at(g->seats[i].comm, number);
        if (e && model && differ(model, e, by_signature))
            return true;
        if (e && (!by_signature || e->signature))
            model = model ? model : e;
    }
    return false;
}

uint32_t first_difference(const struct group *g, bool *by_signature)
{
    uint32_t low = 0, high = 0, by_fields = 0, by_chain = 0;
    if (!window(g, &low, &high) || high - low > 4096)
        return 0;
    for (uint32_t k = low; !is_ahead(k, high) && by_fields == 0; k++) {
        by_fields = differs_at(g, k, false) ? k : 0;
        by_chain = by_chain == 0 && differs_at(g, k, true) ? k : by_chain;
    }
    /* Signatures are chained. If they part where they can be seen to part, it began there; else older calls are to blame, of which
     * nothing but a later difference is left. */
    *by_signature = by_chain && (by_fields == 0 || (by_chain != by_fields && by_chain != low));
    return *by_signature ? by_chain : by_fields;
}

int classes_of(const struct group *g, uint32_t number, bool by_signature, struct call_class *classes, signed char *of)
{
    int n = 0;
    for (uint32_t i = 0; i < g->nseats; i++) {
        const struct verdict_event *e = event_at(g->seats[i].comm, number);
        of[i] = -1;
        if (!e)
            continue;
        int k = 0;
        while (k < n && differ(classes[k].event, e, by_signature))
            k++;
        if (k == MOST_CLASSES)
            k--; /* too many opinions: the rest is thrown together */
        if (k == n)
            classes[n++] = (struct call_class){&g->seats[i], e, 0};
        classes[k].n++;
        of[i] = (signed char)k;
    }
    for (int k = 1; k < n; k++) /* the largest to the front */
        if (classes[k].n > classes[0].n) {
            struct call_class keep = classes[0];
            classes[0] = classes[k];
            classes[k] = keep;
            for (uint32_t i = 0; i < g->nseats; i++)
                of[i] = of[i] == 0 ? (signed char)k : of[i] == k ? 0 : of[i];
        }
    return n;
}

/* ---- shifted by one ---------------------------------------------------------------------------------------------------- */

/* Are both sites of one kind, lines of a script or offsets in a module? An address cannot be compared with a line. */
static bool sites_compare(const struct verdict_event *a, const struct verdict_event *b)
{
    return a->site[0] && b->site[0] && !strstr(a->site, "+0x") == !strstr(b->site, "+0x");
}

static bool sites_differ(const struct verdict_event *a, const struct verdict_event *b)
{
    return sites_compare(a, b) && strcmp(a->site, b->site) != 0;
}

/* The same place in the program, as far as one can see. */
bool verdict_same_call(const struct verdict_event *a, const struct verdict_event *b)
{
    return !calls_differ(a, b) && !sites_differ(a, b);
}

/* Call `number` of a rank, made or still in its queue; NULL = not known. *made: room for one from the queue. */
static const struct verdict_event *call_at(const struct verdict_comm *c, uint32_t number, struct verdict_event *made)
{
    uint32_t ahead = number - c->newest;
    for (uint32_t i = 0; is_ahead(number, c->newest) && i < c->ncalls; i++) {
        const struct verdict_call *q = &c->calls[i];
        if (q->coll < 0 || --ahead > 0)
            continue;
        *made = (struct verdict_event){.number = number, .coll = (uint8_t)q->coll, .type = q->type, .op = q->op, .root = q->root,
                                       .count = q->count};
        memcpy(made->site, q->site, sizeof made->site);
        return made;
    }
    return event_at(c, number);
}

/* How often a[number + i] is b[number + i + by]; -1 when once it is not. */
static int agree(const struct verdict_comm *a, const struct verdict_comm *b, uint32_t number, int by)
{
    struct verdict_event made_a, made_b;
    int hits = 0;
    for (uint32_t k = number; !is_ahead(k, a->newest + a->ncalls); k++) {
        const struct verdict_event *x = call_at(a, k, &made_a), *y = call_at(b, k + (uint32_t)by, &made_b);
        if (!x || !y)
            continue;
        if (!verdict_same_call(x, y))
            return -1;
        hits++;
    }
    return hits;
}

/* Programs are loops: was a call like `skipped` followed by one like `next`, whenever it came before? Counts how often; -1 if once not. */
static int followed(const struct verdict_event *history, uint32_t n, const struct verdict_event *skipped, const struct verdict_event *next)
{
    int hits = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (!verdict_same_call(&history[i], skipped))
            continue;
        if (!verdict_same_call(&history[i + 1], next))
            return -1;
        hits++;
    }
    return hits;
}

/* After how many calls the history repeats itself: the length for which it has done so for longest, and at least once as a whole. 0: none. */
static uint32_t period_of(const struct verdict_event *history, uint32_t n)
{
    uint32_t period = 0, longest = 0;
    for (uint32_t t = 1; t <= n / 2; t++) {
        uint32_t run = 0;
        while (run + t < n && verdict_same_call(&history[n - 1 - run], &history[n - 1 - run - t]))
            run++;
        if (run >= t && run > longest) {
            longest = run;
            period = t;
        }
    }
    return period;
}

/* May `call` come next, as far as what followed the last call before tells? */
static bool comes_next(const struct verdict_event *history, uint32_t n, const struct verdict_event *call)
{
    return n && followed(history, n, &history[n - 1], call) > 0;
}

int verdict_skipped(const struct verdict_event *history, uint32_t n, const struct verdict_event *a, const struct verdict_event *b)
{
    uint32_t period = period_of(history, n);
    if (period > 1) {
        const struct verdict_event *next = &history[n - period], *after = next + 1;
        if (verdict_same_call(b, next) && verdict_same_call(a, after))
            return 1;
        if (verdict_same_call(a, next) && verdict_same_call(b, after))
            return -1;
    }
    int by_a = comes_next(history, n, b) ? followed(history, n, b, a) : 0, by_b = comes_next(history, n, a) ? followed(history, n, a, b) : 0;
    return by_a > 1 && by_b <= 0 ? 1 : by_b > 1 && by_a <= 0 ? -1 : 0;
}

int shifted(const struct verdict_comm *a, const struct verdict_comm *b, uint32_t number, bool *strong)
{
    int ahead = agree(a, b, number, 1), behind = agree(b, a, number, 1);
    *strong = false;
    if (ahead > 0 && behind <= 0) {
        *strong = ahead > 1;
        return 1;
    }
    if (behind > 0 && ahead <= 0) {
        *strong = behind > 1;
        return -1;
    }
    const struct verdict_event *next = event_at(a, number), *other = event_at(b, number);
    int skipped = next && other ? verdict_skipped(b->events, (uint32_t)(other - b->events), next, other) : 0;
    *strong = skipped != 0;
    return skipped;
}

uint32_t site_shift(const struct verdict_comm *a, const struct verdict_comm *b, int *shift)
{
    for (uint32_t i = 0; i < a->nevents; i++) {
        const struct verdict_event *x = &a->events[i], *y = event_at(b, x->number);
        if (!y || !sites_differ(x, y))
            continue;
        /* from here on every call must be the other's next (or last) one, and there must be more than one */
        int ahead = agree(a, b, x->number, 1), behind = agree(b, a, x->number, 1);
        *shift = ahead > 1 && behind <= 0 ? 1 : behind > 1 && ahead <= 0 ? -1 : 0;
        return *shift ? x->number : 0;
    }
    return 0;
}
