/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_region.c - the control region of a rank: small ring, ledgers, released counters, places of slots, segments. One per rank
 * and communicator, mapped by every rank of the host. Most of it is never touched, and so never resident.
 */
#include "net_private.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const char *const net_carrier_names[NET_CARRIER_COUNT] = {"self", "shm", "thread", "tcp"};

#define LEDGER_BYTES (NET_LEDGER_EVENTS * 64)

size_t net_slate_bytes(int size)
{
    return 64 + ((size_t)size + 31) / 32 * 8;
}

static size_t lay_out(int size, struct net_region *r)
{
    size_t at = (sizeof(struct net_region) + 4095) / 4096 * 4096;
    size_t ring = at;
    size_t blocks = ring + NET_RING_ENTRIES * sizeof(struct net_entry);
    size_t ledger = blocks + NET_RING_ENTRIES * sizeof(struct net_block);
    size_t p2p_ledger = ledger + LEDGER_BYTES;
    size_t notes = p2p_ledger + LEDGER_BYTES;
    size_t released = notes + NET_NOTES_BYTES + ((size_t)size * sizeof(int32_t) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    size_t places = released + (size_t)size * REGION_COUNTERS_PER_RANK * sizeof(struct net_counter);
    size_t segments = places + ((size_t)size * NET_PAIR_ENDS + 1) * sizeof(struct net_place);
    size_t slate = segments + NET_MAX_SEGMENTS * sizeof(struct net_segment_ref);
    size_t passed = slate + sizeof(struct net_slate) + net_slate_bytes(size);
    size_t end = passed + sizeof(struct net_passed) + (size_t)size * sizeof(uint64_t);
    if (r) {
        r->offset_ring = (uint32_t)ring;
        r->offset_blocks = (uint32_t)blocks;
        r->offset_ledger = (uint32_t)ledger;
        r->offset_p2p_ledger = (uint32_t)p2p_ledger;
        r->offset_notes = (uint32_t)notes;
        r->offset_released = (uint32_t)released;
        r->offset_places = (uint32_t)places;
        r->offset_segments = (uint32_t)segments;
        r->offset_slate = (uint32_t)slate;
        r->offset_passed = (uint32_t)passed;
    }
    return end;
}

size_t net_region_bytes(int size)
{
    return lay_out(size, NULL);
}

void net_region_init(struct net_region *r, int size, uint32_t first)
{
    r->bytes = lay_out(size, r);
    r->version = UNO_VERSION;
    r->self = (uint64_t)(uintptr_t)r;
    r->size = (uint32_t)size;
    struct net_counter *released = (struct net_counter *)((char *)r + r->offset_released);
    for (size_t i = 0; first && i < (size_t)size * REGION_COUNTERS_PER_RANK; i++)
        atomic_store_explicit(&released[i].value, first, memory_order_relaxed);
    r->magic = NET_REGION_MAGIC;
}

bool net_region_check(const struct net_region *r, int size)
{
    struct net_region want;
    size_t bytes = lay_out(size, &want);
    return r->magic == NET_REGION_MAGIC && r->version == UNO_VERSION && r->size == (uint32_t)size && r->bytes == bytes &&
           r->offset_ring == want.offset_ring && r->offset_blocks == want.offset_blocks && r->offset_ledger == want.offset_ledger &&
           r->offset_p2p_ledger == want.offset_p2p_ledger && r->offset_notes == want.offset_notes && r->offset_released == want.offset_released &&
           r->offset_places == want.offset_places && r->offset_segments == want.offset_segments &&
           r->offset_slate == want.offset_slate && r->offset_passed == want.offset_passed;
}

bool net_region_locate(struct net_region *r, uint64_t bytes, struct net_region_parts *parts)
{
    struct net_region want;
    char *base = (char *)r;
    int size = bytes < sizeof *r ? 0 : (int)*(volatile uint32_t *)&r->size;
    if (size < 1 || bytes < lay_out(size, &want) || !net_region_check(r, size))
        return false;
    *parts = (struct net_region_parts){.size = size, .ledger = base + want.offset_ledger, .p2p_ledger = base + want.offset_p2p_ledger,
                                       .notes = base + want.offset_notes, .job_ranks = (int32_t *)(base + want.offset_notes + NET_NOTES_BYTES),
                                       .passed = (struct net_passed *)(base + want.offset_passed)};
    return true;
}

void net_ring_sleeper(struct net_region *r)
{
    atomic_fetch_add_explicit(&r->bell, 1, memory_order_release); /* pairs with the acquire in net_doze_begin */
    syscall(SYS_futex, &r->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static _Atomic int barrier_works; /* set once, before any sleep; relaxed */

void net_doze_register(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0)
        atomic_store_explicit(&barrier_works, 1, memory_order_relaxed);
}

uint32_t net_doze_begin(struct net_region *own)
{
    atomic_store_explicit(&own->sleeping, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&barrier_works, memory_order_relaxed))
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    /* acquire: pairs with the release in net_ring_region */
    return atomic_load_explicit(&own->bell, memory_order_acquire);
}

void net_doze(struct net_region *own, uint32_t bell, uint64_t timeout_ns)
{
    /* Without membarrier a wake can be lost; then the sleep is kept so short that it does not matter. */
    if (!atomic_load_explicit(&barrier_works, memory_order_relaxed))
        timeout_ns = MIN(timeout_ns, 200000);
    struct timespec ts = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    syscall(SYS_futex, &own->bell, FUTEX_WAIT, bell, &ts, NULL, 0);
}

void net_doze_end(struct net_region *own)
{
    atomic_store_explicit(&own->sleeping, 0, memory_order_relaxed);
}
