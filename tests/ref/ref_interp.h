/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_interp.h - the reference interpreter: a plan on real data, all ranks in one thread, the simplest thing that follows
 * design section 2. Tests compare verify's verdicts and the executor's results with it.
 */
#ifndef UNO_REF_INTERP_H
#define UNO_REF_INTERP_H

#include "plan/plan.h"

struct ref_run {
    const struct plan *plan;
    const struct request *req;  /* type int32, int64, float32 or float64; op sum, prod, min, max, avg */
    const void *const *in;      /* by rank (virtual); in place: the caller lets them point into out, or the reverse */
    void *const *out;
    const double *scale;        /* by rank: what a raw contribution is multiplied with (premulsum); NULL = 1 */
    int k;                      /* slots a connection */
    size_t tile_elems;
    int scratch_tiles;          /* S */
    bool lent;                  /* a send carries a pointer, also that of a fused step's destination */
    uint64_t seed;              /* of the schedule */
};
struct ref_outcome {
    bool stuck;                 /* lanes are left and none can go on */
    char where[300];            /* one of them, and what it waits for */
    uint64_t firings;
};
/* UNO_OK also when stuck. UNO_ERR_MEMORY, or what making programs and chunks returns. */
uno_err ref_interpret(const struct ref_run *run, struct ref_outcome *outcome);

#endif
