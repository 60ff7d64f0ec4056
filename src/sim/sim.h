/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - plan + costs -> time. Runs the same marked graph that verify checks, in virtual time, with the costs (topo.h)
 * that the planner's closed form uses. Integers only: the same answer on every machine.
 *
 * What is modelled: lanes of a rank share one thread; ranks of a host share its processors, and where there are fewer
 * than ranks a change of rank costs a scheduler's hand-over; slots and credits; one link in and one out a host; tiles,
 * shorter chunks, the wait for scratch. What is not: caches, lent memory, other programs.
 */
#ifndef UNO_SIM_H
#define UNO_SIM_H

#include "base/base.h"
#include "plan/plan.h"
#include "topo/topo.h"

struct sim_options {
    struct topo_costs costs;
    int k;                  /* slots a connection; 0 = the plan's k_claimed */
    uint32_t tile_bytes;    /* > 0 */
    int scratch_tiles;      /* S; 0 = 2 */
};
struct sim_result {
    uint64_t total_ps;      /* until the last rank is done */
    uint64_t bytes_shm, bytes_net; /* payload moved between ranks of a host, between hosts */
    int critical_rank;      /* the one that is done last */
    uint64_t tiles;         /* of the longest chunk */
    bool extrapolated;      /* so many firings that only the first tiles were run */
};
/* The plan must have been verified. UNO_ERR_PLAN when it cannot end (with a sentence), UNO_ERR_ARG for options that make no
 * sense, UNO_ERR_MEMORY. */
uno_err sim_run(const struct plan *plan, const struct request *req, const struct sim_options *opt, struct sim_result *result);

#endif
