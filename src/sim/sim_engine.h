/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_engine.h - private to sim: one run of so many tiles.
 */
#ifndef UNO_SIM_ENGINE_H
#define UNO_SIM_ENGINE_H

#include "sim.h"

struct sim_input {
    const struct plan_graph *graph;
    const struct plan_chunks *chunks;
    struct topo_costs costs;
    int k, scratch_tiles;
    size_t tile_elems;
    size_t tiles;        /* to run */
};
uno_err sim_engine_run(const struct sim_input *in, uint64_t *total_ps, int *critical_rank);

#endif
