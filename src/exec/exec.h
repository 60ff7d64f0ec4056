/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - plan -> done: compile, walk, wait, reduce. Sees plans and connection ends, never a policy.
 */
#ifndef UNO_EXEC_H
#define UNO_EXEC_H

#include "base/base.h"
#include "net/net.h"
#include "plan/plan.h"
#include "watch/watch.h"

/* ---- reductions (exec_reduce.c, kernels in exec_kernels.c compiled once per instruction set) ---------------------
 * dst[i] = a0[i] op a1[i] op ... in the listed order, with one rounding (float accumulators for narrow floats).
 * dst may equal any operand (same index), must not overlap otherwise. dst2, if not NULL, receives the same values. */
struct reduce_scale {
    int scaled_operand;      /* premulsum: this operand (the raw own contribution) is multiplied by scalar; -1 = none */
    unsigned char scalar[16];/* one element of the type */
    uint32_t divide_by;      /* avg: the finished value is divided by this; 0 or 1 = no */
};
typedef void (*reduce_fn)(void *dst, void *dst2, const void *const *operands, int noperands, size_t count,
                          const struct reduce_scale *scale);
/* NULL when op is not defined for type. best = false: the plain C version that tests compare with. */
reduce_fn reduce_find(uno_type type, int op, bool best);
/* Copy; stream = the destination will not be read soon and is large: non-temporal stores. */
void copy_bytes(void *dst, const void *src, size_t bytes, bool stream);
/* dst = src scaled and/or divided (for sends of a raw contribution under premulsum, and n = 1). */
void reduce_scale_copy(uno_type type, int op, void *dst, const void *src, size_t count, const struct reduce_scale *scale);
/* Name of the instruction set in use: "plain" "avx2" "avx512". */
const char *reduce_isa(void);

#endif
