/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - plan + costs -> time. Runs the same marked graph that verify checks, in virtual time, with the one cost
 * function that the planner uses.
 */
#ifndef UNO_SIM_H
#define UNO_SIM_H

#include "base/base.h"
#include "plan/plan.h"
#include "topo/topo.h"

struct sim_options {
    struct topo_costs costs;
    int k;
    uint32_t tile_bytes;
};
struct sim_result {
    uint64_t total_ps;      /* until the last rank is done */
    uint64_t bytes_shm, bytes_net; /* payload moved between ranks of a host, between hosts */
    int critical_rank;
};
uno_err sim_run(const struct plan *plan, const struct request *req, const struct sim_options *opt, struct sim_result *result);

#endif
