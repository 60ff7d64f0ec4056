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
 * dst[i] = a0[i] op a1[i] op ... in the listed order, with one rounding (float accumulators for narrow floats). Every
 * instruction set gives the same bits:
 *   integers wrap; avg divides the wrapped sum and truncates towards zero;
 *   a NaN result is the canonical quiet one (sign 0, only the first mantissa bit set; 0x7f in e4m3), also with one operand;
 *   min and max: NaN if any operand is NaN; equal operands, -0 and +0 among them: the earlier one;
 *   narrowing rounds to nearest even; e4m3 has no infinity: what rounds beyond 448 is NaN; e5m2, float16, bfloat16 overflow to
 *   infinity;
 *   bool: any non-zero byte is true, results are 0 or 1, also with one operand.
 * dst may equal any operand (same index), must not overlap otherwise. dst2, if not NULL, receives the same values and
 * overlaps nothing. Operands, dst and dst2 are aligned to their element (complex: its half). noperands >= 1. With count 0
 * nothing is looked at. */
struct reduce_scale {
    int scaled_operand;      /* premulsum: this operand (the raw own contribution) is multiplied by scalar; -1 = none */
    unsigned char scalar[16];/* one element of the type */
    uint32_t divide_by;      /* avg: the finished value is divided by this; 0 or 1 = no */
};
/* Non-temporal stores: for outputs of arrays beyond reduce_stream_bytes() that nobody reads soon. A gain of about 30 % there,
 * a loss inside the caches. REDUCE_STREAM_DST has no effect where dst is an operand. Streamed data is ordered before any
 * later store of this thread. */
enum reduce_flags { REDUCE_STREAM_DST = 1, REDUCE_STREAM_DST2 = 2 };
/* scale is looked at by sum, avg and premulsum only; NULL = nothing to scale or divide. flags: enum reduce_flags. */
typedef void (*reduce_fn)(void *dst, void *dst2, const void *const *operands, int noperands, size_t count,
                          const struct reduce_scale *scale, unsigned flags);
/* NULL when op is not defined for type. op >= UNO_OP_DYNAMIC is premulsum. best = false: the plain C version that tests
 * compare with. */
reduce_fn reduce_find(uno_type type, int op, bool best);
/* Whole arrays from this size on are worth streaming (twice the second-level cache). */
size_t reduce_stream_bytes(void);
/* Copy; stream = the destination will not be read soon and is large: non-temporal stores. */
void copy_bytes(void *dst, const void *src, size_t bytes, bool stream);
/* dst = src scaled and/or divided (for sends of a raw contribution under premulsum, and n = 1); dst may be src. */
void reduce_scale_copy(uno_type type, int op, void *dst, const void *src, size_t count, const struct reduce_scale *scale);
/* Name of the instruction set in use: "plain" "avx2" "avx512". */
const char *reduce_isa(void);

#endif
