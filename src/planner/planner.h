/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner.h - graph + request -> choice: propose, cost, choose. A pure function of what all ranks know alike, so that
 * every rank chooses the same without talking. Never looks at pointers, alignment, in place or not, local clocks.
 */
#ifndef UNO_PLANNER_H
#define UNO_PLANNER_H

#include "base/base.h"
#include "plan/plan.h"
#include "sim/sim.h"
#include "topo/topo.h"
#include "verify/verify.h"

/* ---- generators: one row each in planner_algos ------------------------------------------------ */
struct planner_algo {
    const char *name;
    uint32_t colls;                 /* bit per uno_coll it fits */
    bool (*fits)(const struct plan_params *p); /* false with the sentence that says why */
    int (*parts)(const struct plan_params *p); /* chunks per block; 0 = no memory */
    uno_err (*generate)(const struct plan *plan, int rank, struct plan_prog *prog);
    const char *help;
};
extern const struct planner_algo planner_algos[];
extern const int planner_algo_count;

/* Make a generated plan. UNO_ERR_ARG (unknown algo, lists the legal), UNO_ERR_UNSUPPORTED (does not fit, says why). */
uno_err planner_make(const struct plan_params *params, struct plan **plan);

/* ---- choosing ------------------------------------------------------------------------------------ */
enum choice_target { CHOICE_SMALL, CHOICE_TILED };

struct choice {
    const struct plan *plan;   /* owned by the planner, lives as long as it */
    enum choice_target target;
    int shift;                 /* virtual rank v is real rank (v + shift) mod n */
    int k;                     /* slots a connection */
    uint32_t tile_bytes;       /* payload of a message at most; a multiple of 4096, or of 64 below */
    uint64_t room_bytes;       /* in memory: what messages of one connection may use */
    int scratch_tiles;         /* S */
    uint64_t cost_ps;          /* predicted */
};

struct planner_settings {      /* equal on all ranks */
    const char *algo;          /* config.algo */
    uint64_t buffsize, memory_limit;
    int channels;
    bool small;                /* config.small, and all ranks on one host with mapped memory */
    int nranks;
    const int *host_of;        /* nranks entries */
    struct topo_costs costs;
};

struct planner;
uno_err planner_new(const struct planner_settings *settings, struct planner **planner); /* copies settings */
void planner_free(struct planner *planner);
/* The choice for a request. Plans are made and verified (verify_for_use) once and kept. A list of algorithms without a
 * collective's name that leaves none for this request is set aside (explain says so: barriers and the like must go on); one
 * that names the collective is UNO_ERR_CONFIG then. For UNO_ALL_TO_ALL_V the one fixed plan. Also: UNO_ERR_ARG (root),
 * UNO_ERR_PLAN, UNO_ERR_MEMORY. Not thread-safe: the caller holds the walk lock. */
uno_err planner_choose(struct planner *planner, const struct request *req, struct choice *choice);
/* One line: what was chosen and why; with `all`, a table of every candidate and its predicted cost. */
uno_err planner_explain(struct planner *planner, const struct request *req, bool all, struct text *out);
/* Largest payload of the small target in bytes (the sum of what one rank writes): a block, 8 lines where there are many to read. */
#define PLANNER_SMALL_BYTES(nranks) ((nranks) <= 8 ? 4096 : 448)
#define PLANNER_SLOTS_FAR 4u     /* over TCP connections have so many times as many slots: releases wait there for a message to travel with */
#define PLANNER_LINES_BYTES 1120 /* up to here it goes by lines, whose bytes count for nothing beside their number */

#endif
