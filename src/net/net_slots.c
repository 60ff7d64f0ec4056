/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_slots.c - slot memory of one communicator: carved from sealed segments of at least 1 MB when an end is first used,
 * given back when the end grows, freed with the communicator. Also: which segments of ours peers may open, and theirs.
 */
#include "net_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXTENT_BYTES ((size_t)1 << 20)

uno_err region_publish(struct net_comm *c, const struct net_segment_ref *ref, uint32_t *index)
{
    struct net_region *r = c->opt.region;
    uint32_t n = atomic_load_explicit(&r->nsegments, memory_order_relaxed); /* only the owner writes it */
    if (n == NET_MAX_SEGMENTS)
        return err_set(UNO_ERR_MEMORY, "more than %d shared segments in one communicator", NET_MAX_SEGMENTS);
    region_segments(r)[n] = *ref;
    atomic_store_explicit(&r->nsegments, n + 1, memory_order_release); /* pairs with the acquire in peer_segment */
    *index = n;
    return UNO_OK;
}

static uno_err add_extent(struct net_comm *c, size_t bytes)
{
    struct slot_extent *x = mem_zalloc(sizeof *x);
    if (!x)
        return UNO_ERR_MEMORY;
    void *base;
    x->bytes = MAX(bytes, EXTENT_BYTES);
    uno_err err = net_segment_new(x->bytes, "unisono-slots", &x->seg, &base);
    if (err != UNO_OK) {
        free(x);
        return err;
    }
    x->base = base;
    struct net_segment_ref ref;
    net_segment_ref(x->seg, &ref);
    err = region_publish(c, &ref, &x->index);
    if (err != UNO_OK) {
        net_segment_free(x->seg);
        free(x);
        return err;
    }
    x->next = c->extents;
    c->extents = x;
    return UNO_OK;
}

static bool take_free_block(struct net_comm *c, size_t bytes, struct slot_extent **extent, size_t *offset)
{
    for (struct slot_block **p = &c->free_blocks; *p; p = &(*p)->next) {
        struct slot_block *b = *p;
        if (b->bytes < bytes)
            continue;
        *extent = b->extent;
        *offset = b->offset;
        b->offset += bytes;
        b->bytes -= bytes;
        if (b->bytes == 0) {
            *p = b->next;
            free(b);
        }
        return true;
    }
    return false;
}

/* Blocks of a page or more are whole pages, so that nothing of them stays when they are given back. */
static size_t rounded(size_t bytes)
{
    size_t page = mem_page(), unit = bytes >= page ? page : CACHE_LINE;
    return (bytes + unit - 1) / unit * unit;
}

uno_err slots_carve(struct net_comm *c, size_t bytes, struct slot_extent **extent, size_t *offset)
{
    size_t page = mem_page();
    bytes = rounded(bytes);
    c->slot_bytes += bytes;
    if (take_free_block(c, bytes, extent, offset))
        return UNO_OK;
    if (c->extents && bytes >= page)
        c->extents->used = (c->extents->used + page - 1) / page * page;
    if (!c->extents || c->extents->bytes - c->extents->used < bytes) {
        uno_err err = add_extent(c, bytes);
        if (err != UNO_OK) {
            c->slot_bytes -= bytes;
            return err;
        }
    }
    *extent = c->extents;
    *offset = c->extents->used;
    c->extents->used += bytes;
    return UNO_OK;
}

/* Its pages leave our memory and that of the peers who mapped them; who still looks there reads zeros. Whole pages of the kernel
 * only: it would round the length up, into the next block. */
static void forget_pages(const struct slot_extent *extent, size_t offset, size_t bytes)
{
    size_t page = mem_page(), from = (offset + page - 1) / page * page, to = (offset + bytes) / page * page;
    if (to > from)
        (void)madvise(extent->base + from, to - from, MADV_REMOVE); /* refused: they stay, nothing worse */
}

void slots_give_back(struct net_comm *c, struct slot_extent *extent, size_t offset, size_t bytes)
{
    bytes = rounded(bytes);
    c->slot_bytes -= bytes;
    forget_pages(extent, offset, bytes);
    struct slot_block *b = mem_zalloc(sizeof *b);
    if (!b)
        return; /* the block is lost until the communicator ends, nothing worse */
    *b = (struct slot_block){c->free_blocks, extent, offset, bytes};
    c->free_blocks = b;
}

/* A peer's segment was freed, and another one may stand in its place. */
static void forget_if_gone(struct peer_segment *s, const struct net_segment_ref *now)
{
    if (!s->base || (now->bytes == s->ref.bytes && now->token[0] == s->ref.token[0] && now->token[1] == s->ref.token[1]))
        return;
    net_segment_unmap(&s->ref);
    s->base = NULL;
}

static void forget_gone(struct net_comm *c, int peer)
{
    struct peer_map *m = &c->maps[peer];
    struct net_region *r = c->peers[peer].region;
    if (m->cap == 0)
        return; /* nothing of it was mapped */
    uint32_t gone = atomic_load_explicit(&r->segments_gone, memory_order_acquire); /* pairs with the release in net_comm_begin */
    for (size_t i = 0; gone != m->gone && i < m->cap; i++)
        forget_if_gone(&m->segments[i], &region_segments(r)[i]);
    m->gone = gone;
}

void lent_look(struct net_comm *c)
{
    struct net_region *own = c->opt.region;
    uint32_t freed = net_mem_freed();
    for (size_t i = 0; freed != c->freed_seen && i < c->nlent; i++)
        if (c->lent[i].ref.bytes && !net_segment_lendable(&c->lent[i].ref)) {
            c->lent[i].ref = (struct net_segment_ref){0};
            region_segments(own)[c->lent[i].index].bytes = 0;
            /* release: the entry first; only the owner writes this word */
            uint32_t gone = atomic_load_explicit(&own->segments_gone, memory_order_relaxed);
            atomic_store_explicit(&own->segments_gone, gone + 1, memory_order_release);
        }
    c->freed_seen = freed;
}

void net_comm_begin(struct net_comm *c)
{
    lent_look(c);
    for (int r = 0; r < c->opt.size; r++)
        forget_gone(c, r);
}

void net_forget_freed(struct net_end *e)
{
    forget_gone(e->comm, e->peer);
}

uno_err peer_segment(struct net_comm *c, int peer, uint32_t index, char **base, uint64_t *bytes)
{
    struct net_region *r = c->peers[peer].region;
    struct peer_map *m = &c->maps[peer];
    /* acquire: pairs with the release in region_publish */
    uint32_t n = atomic_load_explicit(&r->nsegments, memory_order_acquire);
    if (index >= n || n > NET_MAX_SEGMENTS)
        return err_set(UNO_ERR_INTERNAL, "rank %d points to a shared segment %u of %u", peer, index, n);
    size_t had = m->cap;
    TRY(mem_grow(&m->segments, &m->cap, index + 1, sizeof *m->segments));
    for (size_t i = had; i < m->cap; i++)
        m->segments[i].base = NULL;
    struct peer_segment *s = &m->segments[index];
    forget_if_gone(s, &region_segments(r)[index]);
    if (!s->base) {
        s->ref = region_segments(r)[index]; /* read once, checked by net_segment_map */
        uno_err err = net_segment_map(&s->ref, &s->base);
        if (err != UNO_OK)
            return err_wrap(err, "rank %d", peer);
    }
    *base = s->base;
    *bytes = s->ref.bytes;
    return UNO_OK;
}
