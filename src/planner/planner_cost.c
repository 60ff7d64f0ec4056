/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_cost.c - the planner's closed form: a plan's load is counted once from its programs, and a request then costs
 *
 *     the longest way of the first tile + (tiles - 1) x the work of the busiest rank, host or link,
 *
 * or the time that slots need to come back, if that is longer. Stays near sim_run, at a thousandth of its time.
 * Above COST_SAMPLE ranks a sample of programs stands for all, so that the count stays linear in the ranks.
 */
#include "planner_cost.h"
#include "planner_gen.h"

#include <stdlib.h>
#include <string.h>

#define COST_SAMPLE 32

/* First values of the slot sizes (design section 2). */
#define SLOTS_K 2
#define TILE_LEAST 4096u
#define TILE_MOST 1048576u
#define TILE_MOST_NET 262144u
#define TILE_LEAST_NET 32768u
#define TILES_A_CHUNK 4u     /* over TCP at least */
#define SLOTS_MOST 128u
#define ROOM_MOST 2097152u /* about twice a second-level cache, see net_end.c */

struct work { uint64_t firings, copies, reduces, out, in; };

static void add_step(const struct plan *plan, const struct plan_prog *prog, const struct plan_step *s, struct work *w)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    uint64_t count = (uint64_t)s->count;
    const int *host_of = plan->host_of;
    w->firings += count;
    w->copies += count * (op->sends || (op->writes_dst && !op->receives));
    if (op->reduces)
        w->reduces += count * (uint64_t)MAX(1, s->nrecv);
    else
        w->copies += count * op->receives;
    if (s->send >= 0 && !prog->sends[s->send].group && host_of[prog->sends[s->send].peer] != host_of[prog->rank])
        w->out += count;
    for (int i = 0; i < s->nrecv; i++)
        w->in += count * (host_of[prog->recvs[prog->recv_list[s->recv + i]].peer] != host_of[prog->rank]);
}

/* Messages of one tile on each sending connection; the fullest counts. */
static uno_err count_messages(const struct plan *plan, const struct plan_prog *prog, struct plan_load *load)
{
    uint64_t *messages = mem_array((size_t)MAX(1, prog->nsends), sizeof *messages);
    if (!messages)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < prog->nsteps; i++)
        if (prog->steps[i].send >= 0)
            messages[prog->steps[i].send] += (uint64_t)prog->steps[i].count;
    uint64_t readers = 0;
    for (int i = 0; i < prog->nsends; i++) {
        const struct plan_conn *c = &prog->sends[i];
        readers += c->group ? (uint64_t)plan_host_ranks(plan, prog->rank) - 1 : 1;
        bool net = !c->group && plan->host_of[c->peer] != plan->host_of[prog->rank];
        uint64_t *fullest = net ? &load->messages_net : &load->messages_shm;
        *fullest = MAX(*fullest, messages[i]);
    }
    load->connections = MAX(load->connections, readers);
    free(messages);
    return UNO_OK;
}

/* Ranks whose programs are read: all, or a sample with both ends and the root. */
static bool sampled(const struct plan *plan, int rank)
{
    int n = plan->nranks;
    return n <= COST_SAMPLE || rank == 0 || rank == n - 1 || rank == plan->root ||
           rank * (int64_t)COST_SAMPLE % n < COST_SAMPLE;
}

static uint64_t log2_up(uint64_t n)
{
    uint64_t bits = 0;
    while (1ull << bits < n)
        bits++;
    return bits;
}

/* Rounds of halving or doubling in which some pair of ranks lies on two hosts. */
static uint64_t rounds_between(const struct plan *plan)
{
    uint64_t rounds = 0;
    for (int mask = 1; mask <= plan->nranks / 2; mask *= 2) {
        bool crosses = false;
        for (int r = 0; r + mask < plan->nranks && !crosses; r++)
            crosses = !(r & mask) && plan->host_of[r] != plan->host_of[r + mask];
        rounds += crosses;
    }
    return rounds;
}

/* Of the hops from each rank to the next, round the ring, how many change the host. */
static uint64_t ring_crossings(const struct plan *plan)
{
    uint64_t crossings = 0;
    for (int r = 0; r < plan->nranks; r++)
        crossings += plan->host_of[r] != plan->host_of[(r + 1) % plan->nranks];
    return crossings;
}

/* How many messages follow each other, how many of them pass between hosts, and how many firings relay a whole chunk. */
static void count_hops(const struct plan *plan, uint64_t hosts, struct plan_load *load)
{
    uint64_t n = (uint64_t)plan->nranks, deep = log2_up(n), hops = 1, net = 1;
    const char *algo = plan->params.algo;
    bool one_way = plan->coll == UNO_ALL_GATHER || plan->coll == UNO_REDUCE_SCATTER;
    uint64_t ways = plan->coll == UNO_ALL_REDUCE || plan->coll == UNO_BARRIER ? 2 : 1;
    load->turns = 1;
    load->neighbours = strcmp(algo, "ring") == 0;
    load->one_way = coll_has_root(plan->coll) && strcmp(algo, "flat") == 0;
    if (strcmp(algo, "ring") == 0) {
        hops = (n - 1) * ways;
        load->turns = ways;
        net = hops * ring_crossings(plan) / n;
        if (ways == 1 && !one_way)
            load->relays = hops;
    } else if (strcmp(algo, "tree") == 0) {
        hops = deep * ways;
        net = MIN(hops, (log2_up(hosts) + 1) * ways); /* ranks of a host are mostly neighbours */
        load->relays = 2 * hops;
    } else if (strcmp(algo, "hd") == 0) {
        uint64_t times = one_way || plan->coll == UNO_BARRIER ? 1 : 2;
        bool folds = (n & (n - 1)) != 0;
        hops = (folds ? deep - 1 : deep) * times + (folds ? 2 : 0);
        net = MIN(hops, rounds_between(plan) * times + (folds ? 2 : 0));
        if (coll_has_root(plan->coll))
            load->relays = 2 * (n - 1); /* all chunks but one are scattered or summed, then brought together */
    } else if (strcmp(algo, "flat2") == 0) {
        hops = net = 2;
        load->relays = coll_has_root(plan->coll) ? 2 : 0;
    } else if (strcmp(algo, "flat") == 0) {
        load->relays = coll_has_root(plan->coll) ? 1 : 0; /* who receives begins when the sender has ended its tile */
    } else if (strcmp(algo, "two_level") == 0) {
        bool passes = plan->coll == UNO_ALL_TO_ALL || plan->coll == UNO_GATHER || plan->coll == UNO_SCATTER;
        hops = passes ? 2 : plan->coll == UNO_ALL_REDUCE ? 4 : 3;
        net = plan->coll == UNO_ALL_REDUCE ? 2 : 1;
        load->relays = passes ? 2 : 0;
    }
    hops = n == 1 ? 0 : hops;
    load->hops_net = hosts > 1 ? net : 0;
    load->hops_shm = hops - MIN(hops, load->hops_net);
}

uno_err planner_load(const struct plan *plan, struct plan_load *load)
{
    int n = plan->nranks, hosts = 0;
    *load = (struct plan_load){0};
    for (int r = 0; r < n; r++)
        hosts = MAX(hosts, plan->host_of[r] + 1);
    struct host { struct work w; uint64_t ranks, seen; } *host = mem_array((size_t)hosts, sizeof *host);
    if (!host)
        return UNO_ERR_MEMORY;
    uno_err err = UNO_OK;
    for (int r = 0; r < n && err == UNO_OK; r++) {
        struct host *h = &host[plan->host_of[r]];
        h->ranks++;
        if (!sampled(plan, r))
            continue;
        struct plan_prog prog;
        err = plan_rank(plan, r, &prog);
        if (err != UNO_OK)
            break;
        struct work w = {0};
        for (int i = 0; i < prog.nsteps; i++)
            add_step(plan, &prog, &prog.steps[i], &w);
        err = count_messages(plan, &prog, load);
        plan_prog_free(&prog);
        load->rank_firings = MAX(load->rank_firings, w.firings);
        load->rank_copies = MAX(load->rank_copies, w.copies);
        load->rank_reduces = MAX(load->rank_reduces, w.reduces);
        h->seen++;
        h->w = (struct work){h->w.firings + w.firings, h->w.copies + w.copies, h->w.reduces + w.reduces, h->w.out + w.out,
                             h->w.in + w.in};
    }
    for (int i = 0; i < hosts && err == UNO_OK; i++) {
        const struct host *h = &host[i];
        load->host_ranks = MAX(load->host_ranks, h->ranks);
        if (h->seen == 0)
            continue;
        load->host_firings = MAX(load->host_firings, h->w.firings * h->ranks / h->seen);
        load->host_copies = MAX(load->host_copies, h->w.copies * h->ranks / h->seen);
        load->host_reduces = MAX(load->host_reduces, h->w.reduces * h->ranks / h->seen);
        load->host_out = MAX(load->host_out, h->w.out * h->ranks / h->seen);
        load->host_in = MAX(load->host_in, h->w.in * h->ranks / h->seen);
    }
    free(host);
    if (err == UNO_OK)
        count_hops(plan, (uint64_t)hosts, load);
    return err;
}

/* A slot comes back one hop after its message went out: k messages may be under way in two hops. */
static uint64_t credit_ps(uint64_t messages, uint64_t hop_ps, uint64_t k)
{
    return messages * 2 * hop_ps / k;
}

/* In memory a connection has k slots at least, and as many more as its room holds (net_end.c). */
static uint64_t shm_slots(const struct planner_slots *s, uint64_t message_bytes)
{
    return MAX((uint64_t)s->k, MIN(SLOTS_MOST, s->room_bytes / MAX(message_bytes, TILE_LEAST)));
}

const char *const planner_part_words[PLANNER_PARTS] = {
    [PART_HOPS] = "hand-overs that follow each other", [PART_WORK] = "copies and sums of the busiest rank",
    [PART_LINK] = "bytes over the link between hosts", [PART_RELAYS] = "chunks that are passed on whole, one rank after the other",
    [PART_SLOTS] = "waiting for slots to come back"};

/* Ranks that share a processor take turns. Who waits for all others waits for the turns of all; in a ring each waits for one other only,
 * on average half of them. Of calls that go one way, and over no other rank, a sender is ahead as far as its slots. */
uint64_t planner_hop_ps(const struct plan_load *l, const struct topo_costs *c, uint64_t slots)
{
    uint64_t turns = topo_turns_ps(c, l->host_ranks) / (l->neighbours ? 2 : 1);
    return c->shm_latency_ps + turns / (l->one_way ? MAX(1, slots) : 1);
}

uint64_t planner_cost_ps(const struct plan_load *l, const struct topo_costs *c, const struct planner_slots *s, uint64_t tile_bytes,
                         uint64_t tiles, struct planner_parts *parts)
{
    uint64_t processors = MAX(1, c->processors), k = (uint64_t)s->k, slots = shm_slots(s, tile_bytes);
    uint64_t rank = topo_work_ps(c, l->rank_firings, l->rank_copies, l->rank_reduces, tile_bytes);
    uint64_t host = topo_work_ps(c, l->host_firings, l->host_copies, l->host_reduces, tile_bytes);
    uint64_t link = MAX(l->host_out, l->host_in) * topo_bytes_ps(c->net_ps_per_kb, tile_bytes);
    uint64_t work = MAX(rank, host / processors), busiest = MAX(work, link);
    uint64_t shm_hop = planner_hop_ps(l, c, slots), net_hop = c->net_latency_ps;
    uint64_t relay = c->step_ps + topo_bytes_ps(MAX(c->shm_ps_per_kb, c->reduce_ps_per_kb), tile_bytes);
    if (l->hops_net)
        relay = MAX(relay, topo_bytes_ps(c->net_ps_per_kb, tile_bytes));
    uint64_t held_up = MAX(credit_ps(l->messages_shm - MIN(l->messages_shm, slots), shm_hop, slots),
                           credit_ps(l->messages_net - MIN(l->messages_net, k), net_hop, k));
    uint64_t hops = l->hops_shm * shm_hop + l->hops_net * net_hop, relays = l->relays * relay;
    if (l->one_way) /* the more slots, the more a sender is at the next call while this one is received */
        relays = relays / 2 + relays / 2 / slots;
    uint64_t free_way = hops + MAX(work + link, relays), way = MAX(free_way, l->turns * held_up + MIN(free_way, shm_hop + net_hop));
    uint64_t period = MAX(busiest, MAX(credit_ps(l->messages_shm, shm_hop, slots), credit_ps(l->messages_net, net_hop, k)));
    uint64_t rest = mul_div(period, tiles - 1, 1);
    if (parts) {
        bool passes = relays > work + link;
        *parts = (struct planner_parts){{[PART_HOPS] = hops, [PART_WORK] = passes ? 0 : work, [PART_LINK] = passes ? 0 : link,
                                         [PART_RELAYS] = passes ? relays : 0, [PART_SLOTS] = way - free_way}};
        parts->ps[period > busiest ? PART_SLOTS : link > work ? PART_LINK : PART_WORK] += rest;
    }
    return rest > UINT64_MAX - way ? UINT64_MAX : rest + way;
}

/* ---- slots ------------------------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t v, uint64_t unit) { return (v + unit - 1) / unit * unit; }

/* Largest power of two from `least` that is at most `limit`; `least` if none is. */
static uint64_t power_below(uint64_t limit, uint64_t least)
{
    uint64_t v = least;
    while (v <= limit / 2)
        v *= 2;
    return v;
}

static uint64_t cost_with_tile(const struct plan_load *load, const struct topo_costs *costs, const struct planner_slots *slots, uint64_t chunk,
                               uint64_t tile, struct planner_parts *parts)
{
    return planner_cost_ps(load, costs, slots, MIN(chunk, tile), MAX(1, chunk / tile + (chunk % tile != 0)), parts);
}

/* The cheapest power of two; of equals the largest, which has the fewest hand-overs. */
static uint64_t cheapest_tile(const struct plan_load *load, const struct topo_costs *costs, const struct planner_slots *slots, uint64_t chunk,
                              uint64_t most)
{
    uint64_t best = most, best_ps = cost_with_tile(load, costs, slots, chunk, most, NULL);
    for (uint64_t tile = most / 2; tile >= TILE_LEAST; tile /= 2) {
        uint64_t ps = tile < chunk ? cost_with_tile(load, costs, slots, chunk, tile, NULL) : best_ps;
        if (ps < best_ps) {
            best = tile;
            best_ps = ps;
        }
    }
    return best;
}

/* Over TCP a message costs more than its bytes, and how much is not measured: the largest that leaves some tiles a chunk, but none whose bytes
 * take no longer than a system call at each end. */
static uint64_t large_tile(uint64_t chunk, uint64_t most)
{
    return MIN(power_below(most, 64), power_below(chunk / TILES_A_CHUNK, TILE_LEAST_NET));
}

uint64_t planner_slots(const struct plan_load *load, const struct planner_settings *settings, const struct topo_costs *costs,
                       uint64_t chunk_bytes, struct planner_slots *slots, struct planner_parts *parts)
{
    uint64_t room = settings->memory_limit / MAX(1, load->connections); /* one connection's share */
    room = MAX(64 * SLOTS_K, MIN(room, settings->buffsize ? settings->buffsize : ROOM_MOST));
    uint64_t most = power_below(room / (load->messages_net ? PLANNER_SLOTS_FAR : 1) / SLOTS_K, 64), tile = most;
    *slots = (struct planner_slots){.k = SLOTS_K, .room_bytes = room / 64 * 64};
    if (!settings->buffsize && load->messages_net)
        tile = large_tile(chunk_bytes, MIN(most, TILE_MOST_NET));
    else if (!settings->buffsize)
        tile = cheapest_tile(load, costs, slots, chunk_bytes, MIN(most, TILE_MOST));
    uint64_t whole = MAX(64, chunk_bytes <= 4096 ? round_up(chunk_bytes, 64) : round_up(chunk_bytes, 4096));
    slots->tile_bytes = (uint32_t)MIN(MIN(tile, 1u << 30), whole);
    return cost_with_tile(load, costs, slots, chunk_bytes, slots->tile_bytes, parts);
}
