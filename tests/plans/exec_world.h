/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_world.h - a communicator without joining: all ranks in one process, each with its own region, net_comm and exec_env,
 * so that the executor runs a given plan. Carriers are threads of one process, or shared memory mapped by its own process.
 */
#ifndef UNO_EXEC_WORLD_H
#define UNO_EXEC_WORLD_H

#include "exec/exec.h"

struct world_rank {
    struct world *world;
    struct exec_env env;
    struct net_segment *segment;
    struct net_region *region;
    struct exec_program *program;
    struct exec_op *op;
    uno_err result;             /* of the last operation; UNO_ERR_IN_PROGRESS where it stood still */
    char text[300];             /* where and why */
};
struct world {
    int size;
    struct world_rank *ranks;
    struct net_region **regions;
    uint32_t number;            /* of the last operation */
    const struct world_call *call;
    struct rng rng;
};
struct world_options {
    int size;
    const int *host_of;
    enum net_carrier carrier;   /* NET_THREAD or NET_SHM */
    bool lend;
    uint32_t first;             /* numbers begin behind it */
    uint64_t seed;              /* of the order in which ranks are moved */
};
uno_err world_make(struct world *w, const struct world_options *opt);
void world_free(struct world *w);

struct world_call {
    struct exec_choice choice;
    const struct request *req;
    char *const *in, *const *out;       /* by rank */
    const void *const *scalar;          /* by rank; NULL = none */
    void (*returned)(void *arg, int rank); /* as soon as a rank is done with success; in its thread */
    void *arg;
};
/* Compile and run one operation on all ranks. threads: a thread a rank that waits as callers do; else the calling thread moves
 * them in random order until nothing moves. What compiling returns; a rank's own end is in its result. *stuck: some rank can
 * never finish (without threads), or did not within the deadline. After a failure the world can only be freed. */
uno_err world_run(struct world *w, const struct world_call *call, bool threads, bool *stuck);
void world_count(const struct world *w, struct net_counts *counts);

#endif
