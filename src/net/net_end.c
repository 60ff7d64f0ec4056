/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_end.c - the slow paths of an end: changing the number and size of its slots, finding the peer's memory, credit, waking.
 *
 * Geometry. Both ends call net_end_shape in the same order (the choice is the same on all ranks), so they count the changes
 * alike. The sender, once all earlier messages are released, carves and clears the slots and publishes their place with the
 * count; the receiver waits for that count. That wait is a credit wait with k = 1 at the seam between two operations; the
 * schedule "operation by operation" satisfies it, so it adds no deadlock. tests/models/slots.pml checks it.
 *
 * The room. Payloads go round a room that is larger than k of them where memory allows: a message that was written long ago has
 * left the writer's inner caches for the one that both sides share, and is read from there two to five times as fast as line by
 * line out of the writer's. Each payload takes a power of two and begins at a multiple of it, so every message lies within one
 * block of `stride` bytes; one that takes no room counts as a point of a block. The room has k blocks or more: while fewer than k
 * messages are under way, a whole block is free, and the next one always fits. That is the credit that the plan was proved with;
 * to wait for longer messages of an earlier operation is to wait for a change of geometry. Messages up to NEAR_UNIT stay at the
 * beginning of the room, in the innermost caches.
 *
 * Reach. The first touch of a page costs microseconds, as much as the message in it. So the room is not used whole from the
 * start: k blocks, and after each time round an eighth more, touched in one go.
 */
#include "net_private.h"
#include "net_tcp.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; glibc before 2.35 does not name it */
#endif

#define NEAR_UNIT 4096u
#define NEAR_ROOM (8 * NEAR_UNIT) /* the beginning of the room, where they stay */
#define MOST_SLOTS 128    /* beyond what a plan asks for */

static size_t block_bytes(int k, size_t room)
{
    return (size_t)k * sizeof(struct net_slot) + room;
}

static uno_err shape_tcp(struct net_end *e, int k, uint32_t stride)
{
    stride = (stride + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    if (e->promised == k && stride <= e->stride)
        return UNO_OK;
    return tcp_end_shape(e, k, MAX(stride, e->stride));
}

uno_err net_end_shape(struct net_end *e, int k, uint32_t stride, size_t room)
{
    if (e->carrier == NET_TCP)
        return shape_tcp(e, k, stride);
    int slots = MAX(k, (int)MIN(room / NEAR_UNIT, MOST_SLOTS));
    e->promised = k;
    stride = MAX((uint32_t)net_unit(stride), e->stride);
    room = MAX(MAX(room, e->room) / stride, (size_t)k) * stride;
    if (slots <= e->k && stride == e->stride && room <= e->room)
        return UNO_OK;
    e->k = MAX(e->k, slots);
    e->stride = stride;
    e->room = room;
    e->shape_no++;
    e->mapped = false;
    return UNO_OK;
}

uint32_t net_end_freed(struct net_end *e)
{
    if (e->carrier == NET_TCP) {
        (void)tcp_end_ready(e);
        return e->freed;
    }
    uint32_t least = e->next - 1;
    for (int i = 0; i < e->nreaders; i++) {
        /* acquire: the reader's use of the slot comes before; pairs with the release in net_release */
        uint32_t v = atomic_load_explicit(e->released[i], memory_order_acquire);
        if ((int32_t)(v - least) < 0)
            least = v;
    }
    if ((int32_t)(least - e->freed) > 0)
        e->freed = least; /* a reader's word is believed only within what was sent */
    return e->freed;
}

int net_slowest_reader(const struct net_end *e)
{
    if (!e->group)
        return e->peer;
    int slowest = 0;
    for (int i = 1; i < e->nreaders; i++)
        if ((int32_t)(atomic_load_explicit(e->released[i], memory_order_relaxed) -
                      atomic_load_explicit(e->released[slowest], memory_order_relaxed)) < 0)
            slowest = i;
    return e->nreaders ? e->comm->group[slowest] : -1;
}

/* Use more of the room. A kernel without MADV_POPULATE_WRITE (before 5.14) leaves it to the first touch of each page. */
static void reach_further(struct net_end *e)
{
    uintptr_t page = mem_page(), from = (uintptr_t)e->payload + e->reach;
    size_t step = MAX(e->reach / 8 / e->stride, 1) * e->stride, least = (size_t)e->promised * e->stride;
    e->reach = MIN(MAX(e->reach + step, least), e->room);
    from = (from + page - 1) / page * page; /* what is before, somebody has touched */
    if ((uintptr_t)e->payload + e->reach > from)
        (void)madvise((void *)from, (uintptr_t)e->payload + e->reach - from, MADV_POPULATE_WRITE);
}

/* Sender: carve and publish the new slots once the old ones are all free. */
static bool publish_slots(struct net_end *e)
{
    if (net_end_freed(e) != e->next - 1)
        return false;
    struct net_comm *c = e->comm;
    size_t need = block_bytes(e->k, e->room);
    /* Always: the number of slots may grow while the room shrinks to whole blocks, and both fit where the old ones were. */
    struct net_range *placed = realloc(e->placed, (size_t)e->k * sizeof *placed);
    if (!placed) {
        e->failed = err_set(UNO_ERR_MEMORY, "no memory for the places of %d slots", e->k);
        return false;
    }
    e->placed = placed;
    if (need > e->capacity) {
        struct slot_extent *x;
        size_t offset;
        if ((e->failed = slots_carve(c, need, &x, &offset)) != UNO_OK)
            return false;
        if (e->capacity)
            slots_give_back(c, e->extent, e->offset, e->capacity);
        e->extent = x;
        e->offset = offset;
        e->capacity = need;
        e->reach = 0;
    }
    e->heads = (struct net_slot *)(e->extent->base + e->offset);
    e->payload = (char *)(e->heads + e->k);
    memset(e->heads, 0, (size_t)e->k * sizeof *e->heads);
    for (int i = 0; i < e->k; i++) /* a number that is not expected soon, also when numbers have wrapped around to 0 */
        atomic_store_explicit(&e->heads[i].flag, net_flag(e->next - 1, 0), memory_order_relaxed);
    e->slot = 0;
    e->at = e->clear = 0;
    e->reach = MIN(e->reach, e->room) / e->stride * e->stride; /* has been touched */
    if (e->reach < (size_t)e->promised * e->stride)
        reach_further(e);
    e->shaped_at = e->next - 1;
    struct net_place *p = region_place(c->opt.region, e->peer, e->channel, e->group);
    p->k = (uint32_t)e->k;
    p->stride = e->stride;
    p->room = e->room;
    p->segment = e->extent->index;
    p->offset = e->offset;
    atomic_store_explicit(&p->shape_no, e->shape_no, memory_order_release); /* pairs with the acquire in find_slots */
    for (int i = 0; i < e->nreaders; i++)
        net_ring_region(e->readers[i]);
    return true;
}

/* Receiver: map the slots that the sender has published for this geometry. */
static bool find_slots(struct net_end *e)
{
    struct net_comm *c = e->comm;
    struct net_place *p = region_place(c->peers[e->peer].region, c->opt.rank, e->channel, e->group);
    /* acquire: pairs with the release in publish_slots */
    if (atomic_load_explicit(&p->shape_no, memory_order_acquire) != e->shape_no)
        return false;
    uint32_t k = p->k, stride = p->stride, segment = p->segment;
    uint64_t offset = p->offset, room = p->room, bytes;
    char *base;
    if (k != (uint32_t)e->k || stride != e->stride || room != e->room) {
        e->failed = err_set(UNO_ERR_MISMATCH, "rank %d uses %u slots of %u bytes in %llu where this rank expects %d of %u in %zu",
                            e->peer, k, stride, (unsigned long long)room, e->k, e->stride, e->room);
        return false;
    }
    if ((e->failed = peer_segment(c, e->peer, segment, &base, &bytes)) != UNO_OK)
        return false;
    if (offset % CACHE_LINE || offset > bytes || block_bytes(e->k, e->room) > bytes - offset) {
        e->failed = err_set(UNO_ERR_INTERNAL, "rank %d points outside its slots", e->peer);
        return false;
    }
    e->heads = (struct net_slot *)(base + offset);
    e->payload = (char *)(e->heads + e->k);
    e->slot = 0;
    return true;
}

/* As far as the room is free from `at` on: to the first payload that somebody may still read. */
static size_t clear_from(const struct net_end *e, size_t at)
{
    size_t clear = e->reach;
    uint32_t under_way = e->next - 1 - e->freed;
    int slot = e->slot;
    for (uint32_t i = 0; i < under_way; i++) {
        slot = slot ? slot - 1 : e->k - 1;
        const struct net_range *r = &e->placed[slot];
        if ((size_t)r->to * CACHE_LINE > at)
            clear = MIN(clear, MAX((size_t)r->from * CACHE_LINE, at));
    }
    return clear;
}

/* The next place, and as far as that the room is free: round and round, but a gap anywhere is taken rather than to break the
 * promise of k messages. */
static bool find_room(struct net_end *e, uint64_t bytes)
{
    size_t unit = net_unit(bytes), at = net_place_at(e, bytes);
    bool near = unit <= NEAR_UNIT;
    bool round = at + unit > e->reach;
    if (round || (near && at == NEAR_ROOM))
        at = 0;
    size_t clear = clear_from(e, at);
    if (at + unit > clear && e->next - 1 - e->freed < (uint32_t)e->promised)
        for (at = 0; at + unit <= e->reach && at + unit > (clear = clear_from(e, at)); at += unit)
            ;
    if (at + unit > clear)
        return false;
    if (round && e->reach < e->room)
        reach_further(e); /* from the next time round on */
    e->at = at;
    e->clear = near && at < NEAR_ROOM ? MIN(clear, NEAR_ROOM) : clear;
    return true;
}

bool net_end_ready_slow(struct net_end *e, uint64_t bytes)
{
    if (e->carrier == NET_TCP)
        return tcp_end_ready(e);
    if (e->failed)
        return false;
    if (!e->mapped && !(e->mapped = e->sending ? publish_slots(e) : find_slots(e)))
        return false;
    return !e->sending || ((uint32_t)(e->next - 1 - net_end_freed(e)) < (uint32_t)e->k && find_room(e, bytes));
}

void net_post_slow(struct net_end *e)
{
    if (e->carrier == NET_TCP) {
        tcp_end_post(e);
        return;
    }
    for (int i = 0; i < e->nreaders; i++)
        net_ring_region(e->readers[i]);
}

void net_release_slow(struct net_end *e)
{
    if (e->carrier == NET_TCP)
        tcp_end_release(e);
    else
        net_ring_region(e->readers[0]);
}
