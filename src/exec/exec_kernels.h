/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_kernels.h - what exec_kernels.c offers, once per instruction set. Private to exec_reduce.c and the tests: everyone
 * else asks reduce_find() and copy_bytes().
 */
#ifndef UNO_EXEC_KERNELS_H
#define UNO_EXEC_KERNELS_H

#include "exec/exec.h"

/* avg and premulsum are the sum kernel with a reduce_scale, so only static operations have a column. */
#define KERNEL_OPS UNO_OP_COUNT

/* A narrow float type: conversions of n elements, the ones that the kernels use. */
struct kernel_narrow {
    void (*widen)(float *out, const void *in, size_t n);
    void (*narrow)(void *out, const float *in, size_t n); /* round to nearest even, NaN becomes the canonical one */
};

struct kernel_set {
    const char *isa;
    bool (*usable)(void);                      /* on this processor */
    reduce_fn reduce[UNO_TYPE_COUNT][KERNEL_OPS]; /* NULL = not defined */
    struct kernel_narrow narrow[UNO_TYPE_COUNT];  /* set for the types narrower than float */
    void (*stream)(void *dst, const void *src, size_t bytes); /* copy with non-temporal stores, ordered before later stores */
};

/* The sets in this build, plain first, best last. */
extern const struct kernel_set *const kernel_sets[];
extern const int kernel_sets_count;

#endif
