/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_cost.h - inside the planner: what one plan costs for one request, in closed form, and its slots. Integers only,
 * so that every rank computes the same.
 */
#ifndef UNO_PLANNER_COST_H
#define UNO_PLANNER_COST_H

#include "planner.h"

/* What a plan asks of its ranks for one tile. Byte work is counted in chunks: "copies" are passes of one side over a slot
 * (or of a plain copy), "reduces" are operands reduced. */
struct plan_load {
    uint64_t rank_firings, rank_copies, rank_reduces; /* of the busiest rank */
    uint64_t host_firings, host_copies, host_reduces; /* summed over a host's ranks, the busiest host */
    uint64_t host_out, host_in;                       /* chunks that leave or enter a host */
    uint64_t host_ranks;                              /* on the fullest host */
    uint64_t hops_shm, hops_net;                      /* messages that follow each other on the longest way */
    uint64_t relays;                                  /* chunk firings that follow each other on it, on several ranks */
    uint64_t connections;                             /* sending, of the rank that has most; a group's slots become resident in each reader */
    uint64_t messages_shm, messages_net;              /* a tile on one connection, the fullest */
    uint64_t turns;                                   /* such rows of messages that follow each other */
    bool neighbours;                                  /* each rank waits for one other only */
    bool one_way;                                     /* who sends waits for nobody, and nobody passes on what he receives */
};
uno_err planner_load(const struct plan *plan, struct plan_load *load);

/* What a predicted time is made of; the parts add up to it. */
enum planner_part { PART_HOPS, PART_WORK, PART_LINK, PART_RELAYS, PART_SLOTS, PLANNER_PARTS };
extern const char *const planner_part_words[PLANNER_PARTS]; /* "hand-overs that follow each other", ... */
struct planner_parts { uint64_t ps[PLANNER_PARTS]; };

/* What one connection has; as in struct choice. */
struct planner_slots { int k; uint32_t tile_bytes; uint64_t room_bytes; };

/* Predicted time of `tiles` tiles of `tile_bytes` a chunk. */
uint64_t planner_cost_ps(const struct plan_load *load, const struct topo_costs *costs, const struct planner_slots *slots, uint64_t tile_bytes,
                         uint64_t tiles, struct planner_parts *parts); /* parts: NULL = not asked */

/* One hand-over on the fullest host, by connections of so many slots. */
uint64_t planner_hop_ps(const struct plan_load *load, const struct topo_costs *costs, uint64_t slots);

/* Bytes of the longest chunk -> the cheapest slots that the settings allow. Returns the predicted time. costs: those of the request's size. */
uint64_t planner_slots(const struct plan_load *load, const struct planner_settings *settings, const struct topo_costs *costs,
                       uint64_t chunk_bytes, struct planner_slots *slots, struct planner_parts *parts);

#endif
