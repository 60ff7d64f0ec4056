/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_engine.c - runs a number of tiles in virtual time. Each lane has at most one firing that is ready, in a heap ordered
 * by the time at which all it waits for is there (ties: lower lane first); it then starts as soon as its rank's thread and a
 * processor of its host are free. What follows from a firing is never ready before it, so taking the earliest is enough.
 */
#include "sim_engine.h"

#include <stdlib.h>

struct slot {
    uint64_t arrives, released;
    int unread;
};
struct wire {
    uint64_t sent;
    int slot0;       /* k slots */
    int taken0;      /* by reader */
    bool net;
};
struct lane {
    int node;        /* next, or past the last */
    size_t tile;
    uint64_t free;   /* when its last firing was done */
    bool queued;
};
struct processor {
    uint64_t free;
    int rank;        /* that ran last, -1 */
};
struct ready {
    uint64_t at;
    int lane;
};
struct host {
    int ranks, processor0, processors;
    uint64_t out_free, in_free;
};

struct engine {
    const struct sim_input *in;
    const struct plan_graph *g;
    struct wire *wires;
    struct slot *slots;
    uint64_t *taken;
    struct lane *lanes;
    uint64_t *rank_free;
    size_t *rank_tile;        /* by rank x S: lanes that have finished this tile (mod S) */
    uint64_t *tile_done;      /* by rank x S: when the last of them had */
    uint64_t *step_done;      /* by step x S */
    struct processor *processors;
    struct host *hosts;
    struct ready *heap;
    int nheap;
    uint64_t *rank_done;
    int left;                 /* lanes that have not finished their last tile */
};

static int host_index(const struct engine *e, int rank)
{
    return e->g->plan->host_of ? e->g->plan->host_of[rank] : 0;
}

/* ---- the heap --------------------------------------------------------------------------------------------- */

static bool earlier(const struct ready *a, const struct ready *b)
{
    return a->at != b->at ? a->at < b->at : a->lane < b->lane;
}

static void heap_add(struct engine *e, struct ready r)
{
    int i = e->nheap++;
    for (; i > 0 && earlier(&r, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = r;
}

static struct ready heap_take(struct engine *e)
{
    struct ready first = e->heap[0], last = e->heap[--e->nheap];
    int i = 0;
    for (int child = 1; child < e->nheap; child = 2 * i + 1) {
        if (child + 1 < e->nheap && earlier(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!earlier(&e->heap[child], &last))
            break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = last;
    return first;
}

/* ---- what a firing waits for -------------------------------------------------------------------------------- */

static bool fires(const struct engine *e, int node, size_t tile)
{
    return plan_node_step(e->g, node)->op != PLAN_NOP &&
           tile < plan_tiles(e->in->chunks->len[e->g->nodes[node].shape], e->in->tile_elems);
}

static uint64_t *step_done(const struct engine *e, int step, size_t tile)
{
    return &e->step_done[(size_t)step * (size_t)e->in->scratch_tiles + tile % (size_t)e->in->scratch_tiles];
}

static int reader_of(const struct engine *e, const struct plan_link *link, int node, int message)
{
    int j = 0;
    while (e->g->reader_list[link->reader0 + (message - link->first) * link->readers + j] != node)
        j++;
    return j;
}

static bool waits_done(const struct engine *e, int node, size_t tile, uint64_t *at)
{
    const struct plan_graph *g = e->g;
    int rank = g->lanes[g->nodes[node].lane].rank;
    const struct plan_step *s = plan_node_step(g, node);
    for (int d = 0; g->nodes[node].i == 0 && d < s->ndep; d++) {
        const struct plan_dep *dep = &g->progs[rank].deps[s->dep + d];
        int step = g->rank_step[rank] + g->progs[rank].lanes[dep->lane].first + dep->step;
        const struct lane *other = &e->lanes[g->rank_lane[rank] + dep->lane];
        if (other->tile < tile || (other->tile == tile && other->node < g->step_node[step + 1]))
            return false;
        *at = MAX(*at, *step_done(e, step, tile));
    }
    return true;
}

static bool slots_there(const struct engine *e, int node, uint64_t *at)
{
    const struct plan_graph *g = e->g;
    const struct plan_node *n = &g->nodes[node];
    for (int i = 0; i < plan_node_step(g, node)->nrecv; i++) {
        int m = g->in_list[n->in + i], l = g->link_of[m];
        const struct wire *w = &e->wires[l];
        uint64_t taken = e->taken[w->taken0 + reader_of(e, &g->links[l], node, m)];
        if (taken == w->sent)
            return false;
        *at = MAX(*at, e->slots[w->slot0 + (int)(taken % (uint64_t)e->in->k)].arrives);
    }
    if (n->out < 0)
        return true;
    const struct wire *w = &e->wires[g->link_of[n->out]];
    const struct slot *slot = &e->slots[w->slot0 + (int)(w->sent % (uint64_t)e->in->k)];
    *at = MAX(*at, slot->released);
    return slot->unread == 0;
}

static bool tile_free(const struct engine *e, int rank, size_t tile, uint64_t *at)
{
    size_t s = (size_t)e->in->scratch_tiles, lanes = (size_t)e->g->progs[rank].nlanes;
    if (tile < s)
        return true;
    *at = MAX(*at, e->tile_done[(size_t)rank * s + tile % s]);
    return e->rank_tile[(size_t)rank * s + tile % s] >= (tile / s) * lanes;
}

/* Queue the lane's next firing if all it waits for is known. */
static void look_at(struct engine *e, int l)
{
    struct lane *lane = &e->lanes[l];
    const struct plan_graph_lane *gl = &e->g->lanes[l];
    if (lane->queued || lane->tile >= e->in->tiles || gl->count == 0)
        return;
    uint64_t at = lane->free;
    if (lane->node == gl->first && !tile_free(e, gl->rank, lane->tile, &at))
        return;
    if (!waits_done(e, lane->node, lane->tile, &at))
        return;
    if (fires(e, lane->node, lane->tile) && !slots_there(e, lane->node, &at))
        return;
    lane->queued = true;
    heap_add(e, (struct ready){at, l});
}

/* ---- a firing ---------------------------------------------------------------------------------------------- */

static uint64_t cost_of(const struct engine *e, const struct plan_step *s, uint64_t bytes)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    const struct topo_costs *c = &e->in->costs;
    uint64_t copies = (op->sends || (op->writes_dst && !op->receives)) + (op->receives && !op->reduces);
    uint64_t reduces = op->reduces ? (uint64_t)MAX(1, s->nrecv) : 0;
    return topo_work_ps(c, 1, copies, reduces, bytes);
}

/* Start on the processor where the rank ran last if that is free first, else on the one that is; returns the end. */
static uint64_t occupy(struct engine *e, int rank, uint64_t at, uint64_t cost)
{
    const struct host *h = &e->hosts[host_index(e, rank)];
    at = MAX(at, e->rank_free[rank]);
    struct processor *best = NULL;
    for (int i = h->processor0; i < h->processor0 + h->processors; i++) {
        struct processor *p = &e->processors[i];
        uint64_t starts = MAX(p->free, at), others = best ? MAX(best->free, at) : UINT64_MAX;
        if (starts < others || (starts == others && p->rank == rank && best->rank != rank))
            best = p;
    }
    uint64_t change = best->rank != rank && h->ranks > h->processors && best->rank >= 0 ? e->in->costs.switch_ps : 0;
    best->free = MAX(best->free, at) + change + cost;
    best->rank = rank;
    e->rank_free[rank] = best->free;
    return best->free;
}

static void send_message(struct engine *e, int node, uint64_t done, uint64_t bytes)
{
    const struct plan_graph *g = e->g;
    const struct plan_link *link = &g->links[g->link_of[g->nodes[node].out]];
    struct wire *w = &e->wires[g->link_of[g->nodes[node].out]];
    struct slot *slot = &e->slots[w->slot0 + (int)(w->sent++ % (uint64_t)e->in->k)];
    slot->arrives = done + e->in->costs.shm_latency_ps;
    slot->unread = link->readers;
    if (w->net) {
        struct host *from = &e->hosts[host_index(e, link->src)], *to = &e->hosts[host_index(e, link->dst)];
        uint64_t takes = topo_bytes_ps(e->in->costs.net_ps_per_kb, bytes);
        uint64_t start = MAX(MAX(done, from->out_free), to->in_free);
        from->out_free = to->in_free = start + takes;
        slot->arrives = start + takes + e->in->costs.net_latency_ps;
    }
    for (int j = 0; j < link->readers; j++)
        look_at(e, g->nodes[g->reader_list[link->reader0 + (g->nodes[node].out - link->first) * link->readers + j]].lane);
}

static void release_messages(struct engine *e, int node, uint64_t done)
{
    const struct plan_graph *g = e->g;
    for (int i = 0; i < plan_node_step(g, node)->nrecv; i++) {
        int m = g->in_list[g->nodes[node].in + i], l = g->link_of[m];
        struct wire *w = &e->wires[l];
        uint64_t *taken = &e->taken[w->taken0 + reader_of(e, &g->links[l], node, m)];
        struct slot *slot = &e->slots[w->slot0 + (int)((*taken)++ % (uint64_t)e->in->k)];
        uint64_t known = done + (w->net ? e->in->costs.net_latency_ps : e->in->costs.shm_latency_ps);
        slot->released = MAX(slot->released, known);
        if (--slot->unread == 0)
            look_at(e, g->links[l].lane);
    }
}

/* The lane has done its node: go to the next, and on from the last to the next tile. */
static void advance(struct engine *e, int l, uint64_t done)
{
    const struct plan_graph *g = e->g;
    struct lane *lane = &e->lanes[l];
    const struct plan_graph_lane *gl = &g->lanes[l];
    int node = lane->node++, step = g->rank_step[gl->rank] + g->nodes[node].step;
    size_t tile = lane->tile, s = (size_t)e->in->scratch_tiles;
    lane->free = done;
    *step_done(e, step, tile) = done;
    bool last = lane->node == gl->first + gl->count;
    if (last) {
        lane->node = gl->first;
        lane->tile++;
        e->rank_tile[(size_t)gl->rank * s + tile % s]++;
        uint64_t *tile_done = &e->tile_done[(size_t)gl->rank * s + tile % s];
        *tile_done = MAX(*tile_done, done);
        e->left -= lane->tile == e->in->tiles;
    }
    look_at(e, l);
    for (int i = g->waiter0[step]; i < g->waiter0[step + 1]; i++)
        look_at(e, g->nodes[g->waiters[i]].lane);
    for (int other = g->rank_lane[gl->rank]; last && other < g->rank_lane[gl->rank + 1]; other++)
        look_at(e, other);
}

static void fire(struct engine *e, struct ready r)
{
    const struct plan_graph *g = e->g;
    struct lane *lane = &e->lanes[r.lane];
    int node = lane->node, rank = g->lanes[r.lane].rank;
    lane->queued = false;
    uint64_t done = r.at;
    if (fires(e, node, lane->tile)) {
        size_t tile = e->in->tile_elems, len = e->in->chunks->len[g->nodes[node].shape], at = lane->tile * tile;
        uint64_t bytes = (uint64_t)(len > at ? MIN(tile, len - at) : 0) * e->in->chunks->elem_bytes;
        done = occupy(e, rank, r.at, cost_of(e, plan_node_step(g, node), bytes));
        release_messages(e, node, done);
        if (g->nodes[node].out >= 0)
            send_message(e, node, done, bytes);
    }
    e->rank_done[rank] = MAX(e->rank_done[rank], done);
    advance(e, r.lane, done);
}

/* ---- setting up ---------------------------------------------------------------------------------------------- */

static uno_err make_hosts(struct engine *e)
{
    int n = e->g->plan->nranks, hosts = 0, used = 0;
    for (int r = 0; r < n; r++)
        hosts = MAX(hosts, host_index(e, r) + 1);
    e->hosts = mem_array((size_t)hosts, sizeof *e->hosts);
    e->processors = mem_array((size_t)n, sizeof *e->processors);
    if (!e->hosts || !e->processors)
        return UNO_ERR_MEMORY;
    for (int r = 0; r < n; r++) {
        e->processors[r].rank = -1;
        e->hosts[host_index(e, r)].ranks++;
    }
    for (int h = 0; h < hosts; h++) {
        e->hosts[h].processor0 = used;
        e->hosts[h].processors = (int)MIN(e->in->costs.processors, (uint64_t)e->hosts[h].ranks);
        used += e->hosts[h].processors;
    }
    return UNO_OK;
}

static void make_wires(struct engine *e)
{
    int slots = 0, taken = 0;
    for (int i = 0; i < e->g->nlinks; i++) {
        const struct plan_link *link = &e->g->links[i];
        bool net = link->dst >= 0 && host_index(e, link->src) != host_index(e, link->dst);
        e->wires[i] = (struct wire){.slot0 = slots, .taken0 = taken, .net = net};
        slots += e->in->k;
        taken += link->readers;
    }
}

static uno_err begin(struct engine *e)
{
    const struct plan_graph *g = e->g;
    size_t n = (size_t)g->plan->nranks, s = (size_t)e->in->scratch_tiles, lanes = (size_t)MAX(g->nlanes, 1), readers = 1;
    for (int i = 0; i < g->nlinks; i++)
        readers += (size_t)g->links[i].readers;
    TRY(make_hosts(e));
    e->wires = mem_array((size_t)MAX(g->nlinks, 1), sizeof *e->wires);
    e->slots = mem_array((size_t)MAX(g->nlinks, 1) * (size_t)e->in->k, sizeof *e->slots);
    e->taken = mem_array(readers, sizeof *e->taken);
    e->lanes = mem_array(lanes, sizeof *e->lanes);
    e->heap = mem_array(lanes, sizeof *e->heap);
    e->rank_free = mem_array(n, sizeof *e->rank_free);
    e->rank_done = mem_array(n, sizeof *e->rank_done);
    e->rank_tile = mem_array(n * s, sizeof *e->rank_tile);
    e->tile_done = mem_array(n * s, sizeof *e->tile_done);
    e->step_done = mem_array((size_t)MAX(g->nsteps, 1) * s, sizeof *e->step_done);
    if (!e->wires || !e->slots || !e->taken || !e->lanes || !e->heap || !e->rank_free || !e->rank_done || !e->rank_tile ||
        !e->tile_done || !e->step_done)
        return UNO_ERR_MEMORY;
    make_wires(e);
    for (int l = 0; l < g->nlanes; l++) {
        e->lanes[l].node = g->lanes[l].first;
        e->left += g->lanes[l].count > 0;
        if (g->lanes[l].count > 0)
            continue;
        e->lanes[l].tile = e->in->tiles; /* a lane without steps holds nobody up */
        for (size_t t = 0; t < s; t++)
            e->rank_tile[(size_t)g->lanes[l].rank * s + t] += e->in->tiles;
    }
    for (int l = 0; l < g->nlanes; l++)
        look_at(e, l);
    return UNO_OK;
}

static uno_err stuck(const struct engine *e)
{
    for (int l = 0; l < e->g->nlanes; l++) {
        char who[160];
        if (e->g->lanes[l].count > 0 && e->lanes[l].tile < e->in->tiles)
            return err_set(UNO_ERR_PLAN, "plan %s cannot end with %d slots a connection: %s never gets on", e->g->plan->name,
                           e->in->k, plan_node_text(e->g, e->lanes[l].node, who, sizeof who));
    }
    return UNO_OK;
}

uno_err sim_engine_run(const struct sim_input *in, uint64_t *total_ps, int *critical_rank)
{
    struct engine e = {.in = in, .g = in->graph};
    uno_err err = begin(&e);
    while (err == UNO_OK && e.nheap > 0)
        fire(&e, heap_take(&e));
    if (err == UNO_OK && e.left > 0)
        err = stuck(&e);
    *total_ps = 0;
    *critical_rank = 0;
    for (int r = 0; err == UNO_OK && r < in->graph->plan->nranks; r++)
        if (e.rank_done[r] > *total_ps) {
            *total_ps = e.rank_done[r];
            *critical_rank = r;
        }
    void *all[] = {e.wires, e.slots, e.taken, e.lanes, e.rank_free, e.rank_tile, e.tile_done, e.step_done, e.processors, e.hosts,
                   e.heap, e.rank_done};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
    return err;
}
