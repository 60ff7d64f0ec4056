/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.c - read one event of a ledger that its owner may be writing. Used by waiters on the same host and by whoever asks
 * what a rank is doing. tests/models/ledger_event.pml checks the protocol.
 */
#include "watch/watch.h"

#include <string.h>

#if defined(__has_attribute)
#if __has_attribute(no_sanitize_thread)
#define SEQLOCK_READER __attribute__((no_sanitize_thread))
#endif
#endif
#ifndef SEQLOCK_READER
#define SEQLOCK_READER
#endif

/* A sequence lock with the event's number as the sequence. If any field copied here is of a newer event, the fence pairs with
 * the release fence in ledger_begin and the second look sees 0 or that newer number. A number never returns to a place. The
 * thread sanitizer knows no such protocol. State, end_ns and waits_for change later without the number: each is one word. */
SEQLOCK_READER bool ledger_read(const struct ledger_event *ring, uint32_t number, struct ledger_event *copy)
{
    const struct ledger_event *e = &ring[number % NET_LEDGER_EVENTS];
    uint32_t before = atomic_load_explicit(&e->number, memory_order_acquire); /* pairs with the release in ledger_begin */
    if (before == 0)
        return false;
    copy->signature = e->signature;
    copy->coll = e->coll;
    copy->type = e->type;
    copy->state = e->state;
    copy->target = e->target;
    copy->root = e->root;
    copy->op = e->op;
    copy->waits_for = e->waits_for;
    copy->count = e->count;
    copy->call_site = e->call_site;
    copy->start_ns = e->start_ns;
    copy->end_ns = e->end_ns;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&e->number, memory_order_relaxed) != before)
        return false;
    atomic_store_explicit(&copy->number, before, memory_order_relaxed); /* the caller's own memory */
    return true;
}
