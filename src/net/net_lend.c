/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_lend.c - messages that stay where they are: lent by the sender (the receiver reads its memory) or placed by it (the
 * receiver offered the destination). Both where the other side can map the memory; what it may only read is lent by net_read.c.
 * Else messages are copied into slots.
 * tests/models/offers.pml checks that nobody writes to offered memory when the receiver's operation has returned.
 */
#include "net_private.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_LENT (NET_MAX_SEGMENTS - 1024) /* at once; the rest of the table is for slots */

static bool lent_index(struct net_comm *c, const struct net_segment_ref *ref, uint32_t *index)
{
    lent_look(c);
    for (size_t i = 0; i < c->nlent; i++)
        if (c->lent[i].ref.token[0] == ref->token[0] && c->lent[i].ref.token[1] == ref->token[1]) {
            *index = c->lent[i].index;
            return true;
        }
    for (size_t i = 0; i < c->nlent; i++)
        if (c->lent[i].ref.bytes == 0) { /* seen by peers with the message or offer that names it, see peer_segment */
            c->lent[i].ref = region_segments(c->opt.region)[c->lent[i].index] = *ref;
            *index = c->lent[i].index;
            return true;
        }
    if (c->nlent >= MOST_LENT || mem_grow(&c->lent, &c->cap_lent, c->nlent + 1, sizeof *c->lent) != UNO_OK || region_publish(c, ref, index) != UNO_OK)
        return false;
    c->lent[c->nlent++] = (struct lent_segment){*ref, *index};
    return true;
}

bool net_try_lend(struct net_end *e, struct net_slot *head, const void *ptr, uint64_t bytes)
{
    struct net_comm *c = e->comm;
    if (!c->opt.lend || bytes < NET_LEND_MIN_BYTES || e->carrier == NET_TCP)
        return false;
    if (e->carrier == NET_THREAD) {
        head->lent_segment = 0;
        head->address = (uint64_t)(uintptr_t)ptr;
    } else {
        struct net_segment_ref ref;
        uint32_t index;
        if (net_segment_find(ptr, bytes, &ref, &head->address) && lent_index(c, &ref, &index)) {
            head->lent_segment = index + 1;
        } else if (net_read_next(e, bytes)) {
            head->lent_segment = NET_LENT_READ;
            head->address = (uint64_t)(uintptr_t)ptr;
        } else {
            return false;
        }
    }
    head->kind = NET_SLOT_LENT;
    atomic_store_explicit(&head->withdrawn, 0, memory_order_relaxed); /* published by the flag */
    e->last_lent = e->next;
    e->any_lent = true;
    e->lent_bytes += bytes;
    return true;
}

const void *net_recv_elsewhere(struct net_end *e, const struct net_slot *head, uint64_t bytes)
{
    uint64_t segment = head->lent_segment, address = head->address, segment_bytes;
    if (head->kind == NET_SLOT_BYTES) {
        err_set(UNO_ERR_INTERNAL, "rank %d points outside its slots", e->peer);
        return NULL;
    }
    if (head->kind != NET_SLOT_LENT) {
        err_set(UNO_ERR_INTERNAL, "rank %d says that it wrote to a place that was not offered", e->peer);
        return NULL;
    }
    if (segment == NET_LENT_READ && e->carrier == NET_SHM)
        return net_read_aside(e, head, bytes);
    e->lent_bytes += bytes;
    if (segment == 0 && e->carrier == NET_THREAD) {
        /* Sequentially consistent, as the other side: it withdraws, then looks at reading; we count, then look at withdrawn. */
        atomic_fetch_add(&e->heads[e->slot].reading, 1);
        e->reading = true;
        if (atomic_load(&head->withdrawn) == 0)
            return (const void *)(uintptr_t)address;
        net_loan_end(e);
        e->failed = err_set(UNO_ERR_ABORTED, "rank %d took back memory that it had lent", e->peer);
        return NULL;
    }
    char *base;
    if (segment == 0 || segment > NET_MAX_SEGMENTS) {
        err_set(UNO_ERR_INTERNAL, "rank %d lends memory in a way that does not exist between these two ranks", e->peer);
        return NULL;
    }
    uno_err err = peer_segment(e->comm, e->peer, (uint32_t)segment - 1, &base, &segment_bytes);
    if (err != UNO_OK) {
        e->failed = err; /* not a mismatch: its process has ended, or the kernel refuses */
        return NULL;
    }
    if (address > segment_bytes || bytes > segment_bytes - address) {
        err_set(UNO_ERR_INTERNAL, "rank %d lends memory outside its segment", e->peer);
        return NULL;
    }
    return base + address;
}

void net_loan_end(struct net_end *e)
{
    if (e->reading) /* release: our reads come before; pairs with the acquire in net_withdraw_loans */
        atomic_fetch_sub_explicit(&e->heads[e->slot].reading, 1, memory_order_release);
    e->reading = false;
}

bool net_loans_out(struct net_end *e)
{
    if (!e->any_lent)
        return false;
    (void)net_end_freed(e);
    if ((int32_t)(e->freed - e->last_lent) >= 0)
        e->any_lent = false;
    return e->any_lent;
}

void net_withdraw_loans(struct net_end *e)
{
    if (!e->any_lent)
        return;
    for (int i = 0; i < e->k; i++)
        if (e->heads[i].kind == NET_SLOT_LENT)
            atomic_store_explicit(&e->heads[i].withdrawn, 1, memory_order_relaxed);
    /* Whatever is written to that memory from now on comes after; pairs with the fence in net_loan_withdrawn. A release store
     * would hold back only what comes before it. */
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < e->k && e->carrier == NET_THREAD; i++) /* the caller may unmap what is being read */
        while (atomic_load_explicit(&e->heads[i].reading, memory_order_acquire) != 0)
            sched_yield();
    e->any_lent = false;
}

/* ---- offers ------------------------------------------------------------------------------------------------------- */

static uint64_t offer_key(uint32_t number, enum net_offer_state state)
{
    return (uint64_t)number << 8 | state;
}

bool net_offer(struct net_end *e, uint32_t number, char *ptr, uint64_t bytes)
{
    struct net_comm *c = e->comm;
    size_t page = mem_page(); /* of the kernel: make_private replaces whole ones, whatever else lies in them */
    if (!e->offers || !c->opt.lend || bytes < page || bytes % page || bytes > UINT32_MAX || (uintptr_t)ptr % page)
        return false;
    struct net_offer *o = &e->offers[number % NET_OFFERS];
    if (e->carrier == NET_THREAD) {
        o->segment = 0;
        o->offset = (uint64_t)(uintptr_t)ptr;
    } else {
        struct net_segment_ref ref;
        uint32_t index;
        if (!net_segment_find(ptr, bytes, &ref, &o->offset) || !lent_index(c, &ref, &index))
            return false;
        o->segment = index + 1;
    }
    o->bytes = (uint32_t)bytes;
    e->offered_bytes[number % NET_OFFERS] = (uint32_t)bytes;
    e->offered_at[number % NET_OFFERS] = ptr;
    /* release: the place before the key; pairs with the acquire in net_take_offer */
    atomic_store_explicit(&o->key, offer_key(number, NET_OFFER_OPEN), memory_order_release);
    return true;
}

/* Where an offer points, once it is claimed; NULL if it is nonsense. */
static char *offer_target(struct net_end *e, uint32_t segment, uint64_t offset, uint64_t bytes)
{
    if (e->carrier == NET_THREAD)
        return (char *)(uintptr_t)offset;
    char *base;
    uint64_t segment_bytes;
    if (segment == 0 || segment > NET_MAX_SEGMENTS || peer_segment(e->comm, e->peer, segment - 1, &base, &segment_bytes) != UNO_OK ||
        offset > segment_bytes || bytes > segment_bytes - offset)
        return NULL;
    return base + offset;
}

char *net_take_offer(struct net_end *e, uint64_t bytes)
{
    if (!e->offers)
        return NULL;
    struct net_offer *o = &e->offers[e->next % NET_OFFERS];
    uint64_t open = offer_key(e->next, NET_OFFER_OPEN);
    if (atomic_load_explicit(&o->key, memory_order_acquire) != open)
        return NULL;
    uint32_t segment = o->segment, offered = o->bytes;
    uint64_t offset = o->offset;
    char *to = offered == bytes ? offer_target(e, segment, offset, bytes) : NULL;
    if (!to || !atomic_compare_exchange_strong(&o->key, &open, offer_key(e->next, NET_OFFER_CLAIMED)))
        return NULL;
    e->lent_bytes += bytes;
    e->placements++;
    return to;
}

void net_drop_claim(struct net_end *e)
{
    uint64_t claimed = offer_key(e->next, NET_OFFER_CLAIMED);
    if (e->offers) /* release: our writes come before; pairs with the loop in net_detach_offers */
        atomic_compare_exchange_strong(&e->offers[e->next % NET_OFFERS].key, &claimed, 0);
}

bool net_offer_used(struct net_end *e, const struct net_slot *head)
{
    uint32_t *offered = &e->offered_bytes[e->next % NET_OFFERS];
    if (!e->offers || *offered == 0)
        return false;
    bool used = head->kind == NET_SLOT_PLACED && head->bytes == *offered;
    *offered = 0;
    atomic_store_explicit(&e->offers[e->next % NET_OFFERS].key, 0, memory_order_relaxed); /* the sender has passed this number */
    if (used)
        e->lent_bytes += head->bytes;
    return used;
}

/* A private copy moves over shared pages: who still writes to the shared ones writes to nobody's memory. */
static void make_private(char *at, size_t bytes)
{
    char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        LOG(LOG_WARN, LOG_MEM, "no memory to detach %zu offered bytes: a rank that left may still write to %p", bytes, (void *)at);
        return;
    }
    memcpy(copy, at, bytes);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
        munmap(copy, bytes);
        LOG(LOG_WARN, LOG_MEM, "%zu offered bytes at %p cannot be detached", bytes, (void *)at);
    }
}

/* Is a thread of this process still writing where message `number` was offered? Its end is the message's flag or, when its
 * operation fails, another key. */
static bool copy_in_hand(struct net_end *e, struct net_offer *o, uint64_t key)
{
    uint32_t number = (uint32_t)(key >> 8);
    /* acquire: pairs with net_drop_claim */
    if (atomic_load_explicit(&o->key, memory_order_acquire) != key || e->failed)
        return false;
    if (!e->mapped && !net_end_ready_slow(e, 0)) /* offered before a first message; the sender had slots before it claimed */
        return true;
    const struct net_slot *head = &e->heads[((uint32_t)e->slot + number - e->next) % (uint32_t)e->k];
    /* acquire: pairs with the release in net_post */
    return (uint32_t)atomic_load_explicit(&head->flag, memory_order_acquire) != number;
}

void net_detach_offers(struct net_end *e)
{
    for (uint32_t i = 0; e->offers && i < NET_OFFERS; i++) {
        uint32_t bytes = e->offered_bytes[i];
        if (bytes == 0)
            continue;
        e->offered_bytes[i] = 0;
        struct net_offer *o = &e->offers[i];
        uint64_t key = atomic_load_explicit(&o->key, memory_order_acquire); /* pairs with net_drop_claim */
        bool taken_back = (key & 0xff) == NET_OFFER_OPEN && atomic_compare_exchange_strong(&o->key, &key, 0);
        if (taken_back || (key & 0xff) != NET_OFFER_CLAIMED) /* not claimed, or the claim was dropped */
            continue;
        if (e->carrier == NET_THREAD) {
            while (copy_in_hand(e, o, key))
                sched_yield();
            continue;
        }
        net_segment_retire(e->offered_at[i]);
        make_private(e->offered_at[i], bytes);
        LOG(LOG_INFO, LOG_MEM, "%u bytes at %p were detached; that allocation is copied from now on", bytes, (void *)e->offered_at[i]);
    }
}
