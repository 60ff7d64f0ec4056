/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.c - the ledger of a rank: reading events that their owner may be writing, the ring of sends and receives, the notes. Used
 * by waiters on the same host and by whoever asks what a rank is doing. tests/models/ledger_event.pml checks the protocol.
 */
#include "watch/watch.h"

#include <stddef.h>
#include <string.h>

/* A sequence lock with the event's number as the sequence. If any field copied here is of a newer event, the fence pairs with
 * the release fence in ledger_begin and the second look sees 0 or that newer number. A number never returns to a place. The
 * thread sanitizer knows no such protocol. State, start_ns, end_ns and waits_for change later without the number: each is one
 * word. */
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

bool ledger_newest(const struct ledger_event *ring, struct ledger_event *copy)
{
    bool found = false;
    for (uint32_t i = 0; i < NET_LEDGER_EVENTS; i++) {
        uint32_t number = atomic_load_explicit(&ring[i].number, memory_order_relaxed); /* ledger_read looks properly */
        struct ledger_event e;
        if (number == 0 || (found && (int32_t)(number - copy->number) <= 0) || !ledger_read(ring, i, &e))
            continue;
        *copy = e;
        found = true;
    }
    return found;
}

/* ---- sends and receives ------------------------------------------------------------------------------------------------ */

static bool p2p_ended(const struct ledger_p2p *e)
{
    return atomic_load_explicit(&e->number, memory_order_relaxed) == 0 || e->state == LEDGER_P2P_DONE || e->state == LEDGER_P2P_FAILED;
}

struct ledger_p2p *ledger_p2p_begin(struct ledger_p2p *ring, uint32_t *last, const struct ledger_p2p *fields)
{
    enum { TRIES = 16 }; /* a receive that waits for ever costs its place, not a search through all */
    if (++*last == 0)
        *last = 1;
    struct ledger_p2p *e = &ring[*last % NET_LEDGER_EVENTS];
    for (uint32_t i = 1; i < TRIES && !p2p_ended(e); i++)
        e = &ring[(*last + i) % NET_LEDGER_EVENTS];
    atomic_store_explicit(&e->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* number 0 before the fields; pairs with the reader's second look */
    e->pair_number = fields->pair_number;
    e->peer = fields->peer;
    e->tag = fields->tag;
    e->send = fields->send;
    e->state = LEDGER_P2P_ISSUED;
    e->type = fields->type;
    e->strict = fields->strict;
    e->any = fields->any;
    e->waited = fields->waited;
    e->bytes = fields->bytes;
    e->call_site = fields->call_site;
    e->start_ns = e->since_ns = clock_coarse_ns();
    atomic_store_explicit(&e->number, *last, memory_order_release); /* pairs with the acquire in ledger_p2p_read */
    return e;
}

void ledger_p2p_state(struct ledger_p2p *e, uint32_t number, enum ledger_p2p_state state)
{
    if (!e || atomic_load_explicit(&e->number, memory_order_relaxed) != number)
        return;
    e->since_ns = clock_coarse_ns();
    e->state = (uint8_t)state;
}

SEQLOCK_READER bool ledger_p2p_read(const struct ledger_p2p *place, struct ledger_p2p *copy)
{
    uint32_t before = atomic_load_explicit(&place->number, memory_order_acquire); /* pairs with the release in ledger_p2p_begin */
    if (before == 0)
        return false;
    copy->pair_number = place->pair_number;
    copy->peer = place->peer;
    copy->tag = place->tag;
    copy->send = place->send;
    copy->state = place->state;
    copy->type = place->type;
    copy->strict = place->strict;
    copy->any = place->any;
    copy->waited = place->waited;
    copy->bytes = place->bytes;
    copy->call_site = place->call_site;
    copy->start_ns = place->start_ns;
    copy->since_ns = place->since_ns;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&place->number, memory_order_relaxed) != before)
        return false;
    atomic_store_explicit(&copy->number, before, memory_order_relaxed); /* the caller's own memory */
    return true;
}

/* ---- notes ------------------------------------------------------------------------------------------------------------- */

/* Copy [from, from + bytes) while seq is even and stays as it is. Writers keep it odd for less than a microsecond, unless they were
 * stopped there. */
SEQLOCK_READER static bool part_read(const _Atomic uint32_t *seq, const void *from, void *to, size_t bytes)
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load_explicit(seq, memory_order_acquire); /* pairs with the release in notes_end */
        if (before & 1)
            continue;
        const volatile char *src = from;
        for (size_t b = 0; b < bytes; b++)
            ((char *)to)[b] = src[b];
        atomic_thread_fence(memory_order_acquire); /* pairs with the release fence in notes_begin */
        if (atomic_load_explicit(seq, memory_order_relaxed) == before)
            return true;
    }
    memset(to, 0, bytes);
    return false;
}

#define PART(first, last) \
    &n->first, &copy->first, offsetof(struct ledger_notes, last) + sizeof n->last - offsetof(struct ledger_notes, first)

void notes_read(const struct ledger_notes *n, struct ledger_notes *copy)
{
    memset(copy, 0, sizeof *copy);
    copy->waits_for = -1;
    if (atomic_load_explicit(&n->ready, memory_order_acquire) == 0) /* pairs with the release in note_made */
        return;
    atomic_store_explicit(&copy->ready, 1, memory_order_relaxed);
    copy->rank = n->rank;
    copy->size = n->size;
    copy->job_rank = n->job_rank;
    copy->epoch = n->epoch;
    copy->comm_id = n->comm_id;
    copy->job_id = n->job_id;
    copy->made_ns = n->made_ns;
    memcpy(copy->name, n->name, sizeof copy->name);
    copy->name[sizeof copy->name - 1] = 0;
    if (!part_read(&n->wait_seq, PART(wait_number, tid)))
        copy->waits_for = -1;
    copy->what[sizeof copy->what - 1] = 0;
    atomic_store_explicit(&copy->moves, atomic_load_explicit(&n->moves, memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(&copy->waited_ns, atomic_load_explicit(&n->waited_ns, memory_order_relaxed), memory_order_relaxed);
    struct { const struct ledger_moved *from; struct ledger_moved *to; } moved[] = {{&n->sent, &copy->sent}, {&n->received, &copy->received}};
    for (size_t i = 0; i < ARRAY_LEN(moved); i++) {
        atomic_store_explicit(&moved[i].to->messages, atomic_load_explicit(&moved[i].from->messages, memory_order_relaxed), memory_order_relaxed);
        atomic_store_explicit(&moved[i].to->bytes, atomic_load_explicit(&moved[i].from->bytes, memory_order_relaxed), memory_order_relaxed);
    }
    (void)part_read(&n->queue_seq, PART(queued, behind));
    (void)part_read(&n->making_seq, PART(making, making));
    atomic_store_explicit(&copy->site, atomic_load_explicit(&n->site, memory_order_relaxed), memory_order_relaxed);
}

/* ---- named places --------------------------------------------------------------------------------------------------------- */

static const struct ledger_site *sites_of(const struct ledger_notes *n) { return ((const struct ledger_noted *)n)->sites; }

static uint32_t site_find(const struct ledger_notes *n, const char *text)
{
    for (uint32_t i = 0; i < LEDGER_SITES; i++)
        if (strncmp(sites_of(n)[i].text, text, LEDGER_SITE_BYTES - 1) == 0)
            return atomic_load_explicit(&sites_of(n)[i].number, memory_order_relaxed);
    return 0;
}

static uint32_t site_add(struct ledger_notes *n, const char *text)
{
    n->site_made = n->site_made % LEDGER_SITE_NUMBERS + 1;
    struct ledger_site *s = &((struct ledger_noted *)n)->sites[n->site_made % LEDGER_SITES];
    atomic_store_explicit(&s->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* number 0 before the text; pairs with the reader's second look */
    snprintf(s->text, sizeof s->text, "%s", text);
    atomic_store_explicit(&s->number, n->site_made, memory_order_release); /* pairs with the acquire in ledger_site */
    return n->site_made;
}

uint32_t ledger_site_set(struct ledger_notes *n, const char *text)
{
    uint32_t number = text[0] ? site_find(n, text) : 0;
    if (text[0] && !number)
        number = site_add(n, text);
    atomic_store_explicit(&n->site, number, memory_order_relaxed);
    return number;
}

SEQLOCK_READER char *ledger_site(const struct ledger_notes *n, uint64_t call_site, char buf[LEDGER_SITE_BYTES])
{
    const struct ledger_site *s = &sites_of(n)[call_site % LEDGER_SITES];
    buf[0] = 0;
    if (call_site == 0 || call_site > LEDGER_SITE_NUMBERS ||
        atomic_load_explicit(&s->number, memory_order_acquire) != call_site) /* pairs with the release in site_add */
        return buf;
    for (size_t i = 0; i < LEDGER_SITE_BYTES - 1; i++)
        buf[i] = ((const volatile char *)s->text)[i];
    buf[LEDGER_SITE_BYTES - 1] = 0;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&s->number, memory_order_relaxed) != call_site)
        buf[0] = 0;
    return buf;
}
