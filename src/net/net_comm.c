/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_comm.c - the ends of one communicator: made when first asked for, counted, freed together. Also lending: whether a
 * range of the caller's memory can be read by everyone behind an end.
 */
#include "net_private.h"
#include "net_tcp.h"

#include <stdlib.h>
#include <string.h>

uno_err net_comm_new(const struct net_comm_options *opt, struct net_comm **comm)
{
    struct net_comm *c = mem_zalloc(sizeof *c);
    if (!c)
        return UNO_ERR_MEMORY;
    size_t n = (size_t)opt->size;
    c->opt = *opt;
    c->nends = 2 * n * NET_PAIR_ENDS + n + 1;
    c->peers = mem_array(n, sizeof *c->peers);
    c->ends = mem_array(c->nends, sizeof *c->ends);
    c->maps = mem_array(n, sizeof *c->maps);
    c->group = mem_array(n, sizeof *c->group);
    if (!c->peers || !c->ends || !c->maps || !c->group) {
        net_comm_free(c);
        return UNO_ERR_MEMORY;
    }
    memcpy(c->peers, opt->peers, n * sizeof *c->peers);
    c->opt.peers = c->peers;
    for (int r = 0; r < opt->size; r++)
        if (r != opt->rank && c->peers[r].host == c->peers[opt->rank].host)
            c->group[c->ngroup++] = r;
    net_read_probe(c);
    *comm = c;
    return UNO_OK;
}

static void end_free(struct net_end *e)
{
    if (!e)
        return;
    if (e->tcp)
        tcp_end_free(e);
    free(e->placed);
    free(e->aside);
    free(e->taste);
    free(e->released);
    free(e->readers);
    free(e);
}

void net_comm_free(struct net_comm *c)
{
    if (!c)
        return;
    if (c->ends)
        for (size_t i = 0; i < c->nends; i++)
            end_free(c->ends[i]);
    if (c->maps)
        for (int r = 0; r < c->opt.size; r++) {
            for (size_t i = 0; i < c->maps[r].cap; i++)
                if (c->maps[r].segments[i].base)
                    net_segment_unmap(&c->maps[r].segments[i].ref);
            free(c->maps[r].segments);
        }
    while (c->extents) {
        struct slot_extent *x = c->extents;
        c->extents = x->next;
        net_segment_free(x->seg);
        free(x);
    }
    while (c->free_blocks) {
        struct slot_block *b = c->free_blocks;
        c->free_blocks = b->next;
        free(b);
    }
    free(c->lent);
    free(c->group);
    free(c->maps);
    free(c->ends);
    free(c->peers);
    free(c);
}

uint64_t net_comm_slot_bytes(const struct net_comm *c)
{
    return c->slot_bytes;
}

static size_t end_row(const struct net_comm *c, bool sending, int peer, int channel, bool group)
{
    size_t n = (size_t)c->opt.size;
    if (group)
        return 2 * n * NET_PAIR_ENDS + (sending ? n : (size_t)peer);
    return ((sending ? n : 0) + (size_t)peer) * NET_PAIR_ENDS + (size_t)channel;
}

static enum net_carrier end_carrier(const struct net_comm *c, const struct net_end *e)
{
    if (e->peer >= 0)
        return c->peers[e->peer].carrier;
    for (int i = 0; i < c->ngroup; i++) /* a group is threads only if every reader is one */
        if (c->peers[c->group[i]].carrier != NET_THREAD)
            return NET_SHM;
    return NET_THREAD;
}

/* Where readers say what they released, and whom to wake. */
static uno_err attach_memory(struct net_comm *c, struct net_end *e)
{
    e->nreaders = e->sending && e->group ? c->ngroup : 1;
    e->released = mem_array((size_t)MAX(e->nreaders, 1), sizeof *e->released);
    e->readers = mem_array((size_t)MAX(e->nreaders, 1), sizeof *e->readers);
    if (!e->released || !e->readers)
        return UNO_ERR_MEMORY;
    if (!e->sending) {
        e->released[0] = region_counter(c->opt.region, e->peer, e->channel, e->group);
        e->readers[0] = c->peers[e->peer].region;
        e->offers = e->group ? NULL : region_offers(c->opt.region, e->peer, e->channel);
        e->wish = e->group ? NULL : &region_credit(c->opt.region, e->peer, e->channel)->wish;
        return UNO_OK;
    }
    for (int i = 0; i < e->nreaders; i++) {
        struct net_region *r = c->peers[e->group ? c->group[i] : e->peer].region;
        e->released[i] = region_counter(r, c->opt.rank, e->channel, e->group);
        e->readers[i] = r;
    }
    if (!e->group) {
        e->offers = region_offers(c->peers[e->peer].region, c->opt.rank, e->channel);
        e->wish = &region_credit(c->peers[e->peer].region, c->opt.rank, e->channel)->wish;
    }
    return UNO_OK;
}

uno_err net_end_get(struct net_comm *c, bool sending, int peer, int channel, bool group, struct net_end **end)
{
    struct net_end **row = &c->ends[end_row(c, sending, peer, channel, group)];
    if (*row) {
        *end = *row;
        return UNO_OK;
    }
    struct net_end *e = mem_zalloc(sizeof *e);
    if (!e)
        return UNO_ERR_MEMORY;
    e->comm = c;
    e->sending = sending;
    e->group = group;
    e->peer = sending && group ? -1 : peer;
    e->channel = channel;
    e->next = 1;
    e->carrier = end_carrier(c, e);
    if (e->carrier != NET_TCP) {
        e->next += c->opt.first;
        e->freed = e->next - 1;
    }
    uno_err err = e->carrier == NET_TCP ? tcp_end_new(e, c->peers[peer].link, c->opt.id, c->opt.rank, peer) : attach_memory(c, e);
    if (err != UNO_OK) {
        end_free(e);
        return err;
    }
    *end = *row = e;
    return UNO_OK;
}

static bool end_unseen(const struct net_end *e, bool (*gone)(void *arg, int rank), void *arg)
{
    if (!e || !e->sending || e->carrier == NET_TCP || !e->mapped || e->next - 1 == e->shaped_at)
        return false;
    for (int i = 0; i < e->nreaders; i++)
        if ((int32_t)(atomic_load_explicit(e->released[i], memory_order_relaxed) - e->shaped_at) <= 0 &&
            atomic_load_explicit(&e->readers[i]->goodbye, memory_order_relaxed) == 0 &&
            !gone(arg, e->group ? e->comm->group[i] : e->peer))
            return true;
    return false;
}

bool net_comm_unseen(const struct net_comm *c, bool (*gone)(void *arg, int rank), void *arg)
{
    for (size_t i = 0; i < c->nends; i++)
        if (end_unseen(c->ends[i], gone, arg))
            return true;
    return false;
}

int net_comm_lost(const struct net_comm *c)
{
    for (size_t i = 0; i < c->nends; i++)
        if (c->ends[i] && c->ends[i]->failed == UNO_ERR_UNREACHABLE)
            return c->ends[i]->peer;
    return -1;
}

void net_comm_count(const struct net_comm *c, struct net_counts *counts)
{
    for (size_t i = 0; i < c->nends; i++)
        if (c->ends[i]) {
            counts->messages[c->ends[i]->carrier] += c->ends[i]->messages;
            counts->bytes[c->ends[i]->carrier] += c->ends[i]->bytes;
            counts->lent_bytes += c->ends[i]->lent_bytes;
            counts->placements += c->ends[i]->placements;
        }
}
