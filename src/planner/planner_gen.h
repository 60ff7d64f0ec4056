/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_gen.h - what generators share: short forms for the steps they write, and their table's entries. Only the files
 * of this folder include it.
 *
 * All of them keep one rule that makes lent memory and in-place calls right without further waits: a chunk that was sent
 * raw is overwritten only with a value that descends from the message it went out in. Where that is impossible
 * (one-round all_reduce) the proof says "copies only".
 */
#ifndef UNO_PLANNER_GEN_H
#define UNO_PLANNER_GEN_H

#include "planner.h"

#define GEN_MAX_CHANNELS 8 /* of a pair of ranks */

/* ---- entries of the table, one pair a file ------------------------------------------------------ */
int planner_flat_parts(const struct plan_params *p);
uno_err planner_flat_generate(const struct plan *plan, int rank, struct plan_prog *prog);
int planner_flat2_parts(const struct plan_params *p);
uno_err planner_flat2_generate(const struct plan *plan, int rank, struct plan_prog *prog);
int planner_ring_parts(const struct plan_params *p);
uno_err planner_ring_generate(const struct plan *plan, int rank, struct plan_prog *prog);
int planner_tree_parts(const struct plan_params *p);
uno_err planner_tree_generate(const struct plan *plan, int rank, struct plan_prog *prog);
int planner_hd_parts(const struct plan_params *p);
uno_err planner_hd_generate(const struct plan *plan, int rank, struct plan_prog *prog);
bool planner_two_level_fits(const struct plan_params *p);
int planner_two_level_parts(const struct plan_params *p);
uno_err planner_two_level_generate(const struct plan *plan, int rank, struct plan_prog *prog);

/* ---- short forms -------------------------------------------------------------------------------------- */
static inline int gen_mod(int a, int n) { return (a % n + n) % n; }

/* True when one message can be written once and read by all others: they share the host, and are several. */
static inline bool gen_group(const struct plan *plan)
{
    for (int r = 1; r < plan->nranks; r++)
        if (plan->host_of[r] != plan->host_of[0])
            return false;
    return plan->nranks > 2;
}

/* Every step that reads `in` reads a raw contribution. */
static inline int gen_step(struct plan_build *b, enum plan_op op, enum plan_buf src_buf, int src, enum plan_buf dst_buf,
                           int dst, int count)
{
    int step = build_step(b, op, src_buf, src, dst_buf, dst, count);
    if (b->plan->needs_reduce && src_buf == PLAN_IN)
        build_flags(b, PLAN_RAW_SRC);
    return step;
}

static inline int gen_send(struct plan_build *b, enum plan_buf buf, int chunk, int count, int send)
{
    int step = gen_step(b, PLAN_SEND, buf, chunk, PLAN_NONE, 0, count);
    build_on_send(b, send);
    return step;
}

static inline int gen_recv(struct plan_build *b, enum plan_buf buf, int chunk, int count, int recv)
{
    int step = gen_step(b, PLAN_RECV, PLAN_NONE, 0, buf, chunk, count);
    build_on_recv(b, recv);
    return step;
}

static inline int gen_recv_copy_send(struct plan_build *b, enum plan_buf buf, int chunk, int count, int recv, int send)
{
    int step = gen_step(b, PLAN_RECV_COPY_SEND, PLAN_NONE, 0, buf, chunk, count);
    build_on_recv(b, recv);
    build_on_send(b, send);
    return step;
}

static inline int gen_copy(struct plan_build *b, int in_chunk, int out_chunk, int count)
{
    return gen_step(b, PLAN_COPY, PLAN_IN, in_chunk, PLAN_OUT, out_chunk, count);
}

#endif
