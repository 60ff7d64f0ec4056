/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_data.h - made-up data for a plan: sizes around the boundaries, buffers of all ranks, and what the collective means,
 * computed from its definition and not from the plan. Two made from equal fields have equal contents.
 */
#ifndef UNO_REF_DATA_H
#define UNO_REF_DATA_H

#include "plan/plan.h"

enum ref_place { REF_OUT_OF_PLACE, REF_IN_PLACE, REF_MIXED };

struct ref_data {
    /* Set before ref_data_make. */
    const struct plan *plan;
    enum ref_place place;
    uno_type type;              /* int32, int64, float32 */
    int op;                     /* sum, avg, min, max; UNO_OP_DYNAMIC: a sum of scaled contributions */
    size_t most_count, tile;    /* elements; tile: to have sizes around whole tiles */
    bool no_v;                  /* blocks are equal; else some requests are V forms */
    struct rng rng;             /* goes on after it */
    uno_err (*alloc)(void **ptr, size_t bytes); /* buffers; both NULL: malloc and free */
    uno_err (*release)(void *ptr);
    /* Made. */
    struct request req;
    size_t counts[256], displs[256], total;  /* blocks, where the collective has blocks */
    size_t elem;
    char **own;                 /* by rank: what it contributes, safe from being overwritten */
    char **in, **out;           /* what the plan works on; may alias; NULL where a rank has none */
    void **blocks;              /* allocations: 2 a rank */
    void **results;             /* room for a copy of each */
    size_t *block_bytes;
    double *scale;
};
/* Free in every case. UNO_ERR_MEMORY, UNO_ERR_UNSUPPORTED (too many ranks). */
uno_err ref_data_make(struct ref_data *d);
void ref_data_free(struct ref_data *d);
/* Elements of a rank's in or out. */
size_t ref_data_elems(const struct ref_data *d, int rank, enum plan_buf buf);
/* Is every output what the collective means? Integers exactly, floats within rounding. why: the first that is not. */
bool ref_data_right(const struct ref_data *d, char *why, size_t why_bytes);

#endif
