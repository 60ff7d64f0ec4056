/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_proof.h - private to the verify room: what one proof carries from stage to stage.
 */
#ifndef UNO_VERIFY_PROOF_H
#define UNO_VERIFY_PROOF_H

#include "verify.h"

struct proof {
    const struct plan *plan;
    struct plan_graph g;
    int k;
    int32_t *order;      /* nodes, topologically */
    int32_t *at;         /* place of each node in order */
    int32_t *cell0;      /* nranks + 1: first cell of each rank: its in, out, scratch */
    struct verify_result *result;
    bool one_class;      /* shapes are not known: take all chunks as equally long */
};

/* verify.c: the graph, matched and sorted. Free in every case. shapes = false: imports before they are labelled. */
uno_err proof_begin(struct proof *p, const struct plan *plan, int k, bool shapes, struct verify_result *result);
void proof_free(struct proof *p);
/* Record the verdict at a node, or at a rank (-1: none); returns UNO_ERR_PLAN. */
uno_err proof_refute(struct proof *p, enum verify_kind kind, int node, const char *fmt, ...) UNO_PRINTF(4, 5);
uno_err proof_refute_rank(struct proof *p, enum verify_kind kind, int rank, const char *fmt, ...) UNO_PRINTF(4, 5);
/* The cell of a chunk; with in_place, in chunks that alias an out chunk have that one's cell. */
int proof_cell(const struct proof *p, int rank, enum plan_buf buf, int chunk, bool in_place);
/* "out chunk 3 of rank 2" */
const char *proof_chunk_text(int rank, enum plan_buf buf, int chunk, char *buf_text, size_t bytes);
static inline int proof_class(const struct proof *p, int node)
{
    return p->one_class ? 0 : plan_class(p->plan, p->g.nodes[node].shape);
}
static inline int proof_rank(const struct proof *p, int node)
{
    return p->g.lanes[p->g.nodes[node].lane].rank;
}

/* verify_order.c: sort, or name a cycle. */
uno_err proof_order(struct proof *p);
/* verify_order.c: no rank leaves a barrier before all have entered. */
uno_err proof_barrier(struct proof *p);
/* verify_race.c */
uno_err proof_races(struct proof *p, bool in_place, bool lent);

/* verify_data.c: symbolic execution. */
struct data_pass {
    bool in_place;
    uint64_t *sent;      /* by message: what it held; filled, or compared with when `compare` */
    bool compare;
    uint8_t *flags;      /* not NULL: by node, filled with what the flags should be instead of checking them */
    bool same_bits;      /* out */
};
uno_err proof_data(struct proof *p, struct data_pass *pass);

#endif
