/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_reduce.c - which reduction and copy functions run on this processor. The choice is made once, from what the processor
 * says; the kernels themselves are in exec_kernels.c.
 */
#include "exec/exec_kernels.h"

#include <assert.h>
#include <string.h>

extern const struct kernel_set kernel_set_plain;
#if defined(__x86_64__)
extern const struct kernel_set kernel_set_avx2, kernel_set_avx512;
const struct kernel_set *const kernel_sets[] = {&kernel_set_plain, &kernel_set_avx2, &kernel_set_avx512};
#else
const struct kernel_set *const kernel_sets[] = {&kernel_set_plain};
#endif
const int kernel_sets_count = ARRAY_LEN(kernel_sets);

static const struct kernel_set *best_set(void)
{
    static _Atomic(const struct kernel_set *) chosen; /* every thread would store the same: relaxed is enough */
    const struct kernel_set *set = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (set)
        return set;
    for (int i = 0; i < kernel_sets_count; i++)
        if (kernel_sets[i]->usable())
            set = kernel_sets[i];
    atomic_store_explicit(&chosen, set, memory_order_relaxed);
    return set;
}

const char *reduce_isa(void)
{
    return best_set()->isa;
}

reduce_fn reduce_find(uno_type type, int op, bool best)
{
    if ((unsigned)type >= UNO_TYPE_COUNT || op < 0)
        return NULL;
    if (op >= UNO_OP_DYNAMIC)
        op = type == UNO_BOOL ? UNO_OP_COUNT : UNO_SUM; /* premulsum is sum with a scaled operand */
    if (op >= UNO_OP_COUNT)
        return NULL;
    return (best ? best_set() : &kernel_set_plain)->reduce[type][op];
}

void reduce_scale_copy(uno_type type, int op, void *dst, const void *src, size_t count, const struct reduce_scale *scale)
{
    reduce_fn fn = reduce_find(type, op, true);
    assert(fn); /* callers have asked uno_op_check */
    fn(dst, NULL, &src, 1, count, scale, 0);
}

void copy_bytes(void *dst, const void *src, size_t bytes, bool stream)
{
    if (bytes == 0 || dst == src)
        return;
    if (stream)
        best_set()->stream(dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}
