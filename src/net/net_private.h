/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_private.h - what the files of src/net share. Rows of the tables in a region: a receiver has one released counter for
 * every (source, channel) and one for every source's group; a sender has one place for every (destination, channel) and one
 * for its group.
 */
#ifndef UNO_NET_PRIVATE_H
#define UNO_NET_PRIVATE_H

#include "net.h"

#define REGION_COUNTERS_PER_RANK (NET_PAIR_ENDS + 2) /* the groups' row takes the place of two channels */
_Static_assert(NET_PAIR_ENDS % 2 == 0, "rows come in pairs");

struct slot_extent {              /* a segment of this rank that slots are carved from */
    struct slot_extent *next;
    struct net_segment *seg;
    char *base;
    size_t bytes, used;
    uint32_t index;               /* in the region's segment table */
};
struct slot_block {               /* given back by an end that grew */
    struct slot_block *next;
    struct slot_extent *extent;
    size_t offset, bytes;
};

struct net_comm {
    struct net_comm_options opt;
    struct net_peer *peers;
    struct net_end **ends;        /* [sending][peer][channel], then groups: see end_row */
    size_t nends;
    struct slot_extent *extents;
    struct slot_block *free_blocks;
    uint64_t slot_bytes;          /* now held */
    /* Peers' segments that this communicator has mapped: per peer a growing array, base NULL where it has not. */
    struct peer_map { struct peer_segment { void *base; struct net_segment_ref ref; } *segments; size_t cap; uint32_t gone; } *maps;
    /* Own lendable segments already in the table; ref.bytes 0: it was freed, its place may be used anew. */
    struct lent_segment { struct net_segment_ref ref; uint32_t index; } *lent;
    size_t nlent, cap_lent;
    uint32_t freed_seen;          /* net_mem_freed() when lent was looked through */
    uint64_t warm;                /* bytes an end receives by slots before it looks at reading */
    bool read_on;                 /* for tests: whatever can be read is read, once that was looked at */
    uint32_t copy_ns[NET_READ_CLASSES]; /* into slots, by length class (net_read.c); 0 = not known */
    int *group;                   /* other ranks of this host */
    int ngroup;
};

/* By pairs of channels, then by peer: channels that nobody uses so take no memory, and neighbouring lines, which processors
 * like to fetch together, belong to one peer. */
static inline size_t region_row(const struct net_region *r, int peer, int channel)
{
    return ((size_t)(channel / 2) * r->size + (size_t)peer) * 2 + (size_t)(channel % 2);
}
static inline struct net_counter *region_credit(struct net_region *r, int source, int channel)
{
    return (struct net_counter *)((char *)r + r->offset_released) + region_row(r, source, channel);
}
static inline _Atomic uint32_t *region_counter(struct net_region *r, int source, int channel, bool group)
{
    return &region_credit(r, source, group ? NET_PAIR_ENDS : channel)->value;
}
static inline struct net_offer *region_offers(struct net_region *r, int source, int channel)
{
    return region_credit(r, source, channel)->offer;
}
static inline struct net_place *region_place(struct net_region *r, int dest, int channel, bool group)
{
    struct net_place *p = (struct net_place *)((char *)r + r->offset_places);
    return group ? &p[(size_t)r->size * NET_PAIR_ENDS] : &p[region_row(r, dest, channel)];
}
static inline struct net_segment_ref *region_segments(struct net_region *r)
{
    return (struct net_segment_ref *)((char *)r + r->offset_segments);
}

size_t net_segment_rounded(size_t bytes); /* to whole pages: the token of a segment lies there */
/* The allocation of uno_mem_alloc that holds ptr is not lent or offered again. */
void net_segment_retire(const void *ptr);
/* Carve `bytes` of slot memory (64-byte aligned, not zeroed). */
uno_err slots_carve(struct net_comm *c, size_t bytes, struct slot_extent **extent, size_t *offset);
void slots_give_back(struct net_comm *c, struct slot_extent *extent, size_t offset, size_t bytes);
void lent_look(struct net_comm *c); /* own memory that was lent and is freed is lent no more, and its place is free */
/* Put one of our segments into our region's table; *index: its place there. */
uno_err region_publish(struct net_comm *c, const struct net_segment_ref *ref, uint32_t *index);
/* Base of segment `index` of a peer, mapped when first asked for. */
uno_err peer_segment(struct net_comm *c, int peer, uint32_t index, char **base, uint64_t *bytes);

#endif
