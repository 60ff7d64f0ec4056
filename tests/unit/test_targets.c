/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two targets of compiled plans give the same bits: the small one and tiles of the flat plan reduce in the same order, whatever
 * the root. Inputs are random bits of every magnitude, so that every other order rounds differently somewhere.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "unisono.h"
#include "unisono_watch.h"

enum { RANKS = 5, MOST_BYTES = 4096 };
static uno_comm *comms[2][RANKS]; /* with the small target, without */
static unsigned char in[RANKS][RANKS * MOST_BYTES], out[2][RANKS][MOST_BYTES], scalars[RANKS][16];

static void open_both(void **state)
{
    (void)state;
    alarm(100);
    assert_int_equal(uno_comm_init_all(comms[0], RANKS, NULL), UNO_OK);
    setenv("UNISONO_SMALL", "0", 1);
    setenv("UNISONO_ALGO", "flat", 1);
    assert_int_equal(uno_comm_init_all(comms[1], RANKS, NULL), UNO_OK);
}

static uno_err call(uno_coll coll, int target, int rank, size_t count, uno_type type, uno_op op, int root)
{
    void *to = out[target][rank];
    if (coll == UNO_REDUCE)
        return uno_reduce(in[rank], to, count, type, op, root, comms[target][rank], NULL);
    if (coll == UNO_ALL_REDUCE)
        return uno_all_reduce(in[rank], to, count, type, op, comms[target][rank], NULL);
    return uno_reduce_scatter(in[rank], to, count, type, op, comms[target][rank], NULL);
}

static void on_all_ranks(uno_coll coll, int target, size_t count, uno_type type, int op, int root)
{
    uno_op ops[RANKS];
    assert_int_equal(uno_group_start(), UNO_OK);
    for (int r = 0; r < RANKS; r++) {
        ops[r] = (uno_op)op;
        if (op == UNO_OP_DYNAMIC)
            assert_int_equal(uno_op_create_premulsum(&ops[r], scalars[r], type, comms[target][r]), UNO_OK);
        assert_int_equal(call(coll, target, r, count, type, ops[r], root), UNO_OK);
    }
    assert_int_equal(uno_group_end(), UNO_OK);
    for (int r = 0; r < RANKS && op == UNO_OP_DYNAMIC; r++)
        assert_int_equal(uno_op_destroy(ops[r], comms[target][r]), UNO_OK);
}

/* Bits of numbers near 1, of either sign: exponents differ a little, so every sum rounds. */
static void random_values(struct rng *rng, uno_type type, unsigned char *to, size_t count)
{
    bool wide = type == UNO_FLOAT64 || type == UNO_COMPLEX128, single = type == UNO_FLOAT32 || type == UNO_COMPLEX64;
    size_t parts = type == UNO_COMPLEX64 || type == UNO_COMPLEX128 ? 2 * count : count;
    for (size_t i = 0; i < parts; i++) {
        uint64_t h = rng_next(rng);
        double v = ldexp(1 + (double)(h >> 12) * 0x1p-52, (int)(h % 7) - 3) * (h & 64 ? -1 : 1);
        float f = (float)v;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        uint16_t bf = (uint16_t)(bits >> 16), half = (uint16_t)((h & 64) << 9 | (15 - 3 + h % 7) << 10 | (h >> 20 & 0x3ff));
        uint8_t e4m3 = (uint8_t)((h & 64) << 1 | (7 - 3 + h % 7) << 3 | (h >> 20 & 7)), e5m2 = (uint8_t)((h & 64) << 1 | (15 - 3 + h % 7) << 2 | (h >> 20 & 3));
        const void *from = wide ? (void *)&v : single ? (void *)&f : type == UNO_BFLOAT16 ? (void *)&bf : type == UNO_FLOAT16 ? (void *)&half
                         : type == UNO_FLOAT8E4M3 ? (void *)&e4m3 : (void *)&e5m2;
        size_t bytes = wide ? 8 : single ? 4 : type == UNO_BFLOAT16 || type == UNO_FLOAT16 ? 2 : 1;
        memcpy(to + i * bytes, from, bytes);
    }
}

static const uno_type types[] = {UNO_FLOAT8E4M3, UNO_FLOAT8E5M2, UNO_FLOAT16, UNO_BFLOAT16, UNO_FLOAT32, UNO_FLOAT64, UNO_COMPLEX64, UNO_COMPLEX128};

static void compare(struct rng *rng, uno_coll coll, uno_type type, int op, size_t count, int root)
{
    size_t bytes = count * uno_type_bytes(type);
    for (int r = 0; r < RANKS; r++) {
        random_values(rng, type, in[r], count * RANKS);
        random_values(rng, type, scalars[r], 1);
    }
    for (int target = 0; target < 2; target++)
        on_all_ranks(coll, target, count, type, op, root);
    for (int r = 0; r < RANKS; r++)
        if ((coll != UNO_REDUCE || r == root) && memcmp(out[0][r], out[1][r], bytes) != 0)
            fail_msg("%s %s %s, %zu elements, root %d: rank %d has other bits on the two targets", coll_name(coll), type_name(type),
                     op_name(op), count, root, r);
    for (int r = 1; r < RANKS && coll == UNO_ALL_REDUCE; r++)
        if (memcmp(out[0][0], out[0][r], bytes) != 0)
            fail_msg("all_reduce %s %s, %zu elements: ranks 0 and %d have different bits", type_name(type), op_name(op), count, r);
}

static void same_bits(void **state)
{
    static const uno_coll colls[] = {UNO_REDUCE, UNO_ALL_REDUCE, UNO_REDUCE_SCATTER};
    static const int ops[] = {UNO_SUM, UNO_PROD, UNO_AVG, UNO_OP_DYNAMIC};
    struct rng rng;
    uno_counts counts[2];
    (void)state;
    rng_seed(&rng, 7);
    for (size_t c = 0; c < ARRAY_LEN(colls); c++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            for (size_t o = 0; o < ARRAY_LEN(ops); o++)
                for (int root = 0; root < (colls[c] == UNO_REDUCE ? RANKS : 1); root++) {
                    size_t most = MOST_BYTES / (colls[c] == UNO_REDUCE_SCATTER ? RANKS : 1) / uno_type_bytes(types[t]);
                    compare(&rng, colls[c], types[t], ops[o], 1, root);
                    compare(&rng, colls[c], types[t], ops[o], most, root);
                }
    for (int target = 0; target < 2; target++)
        assert_int_equal(uno_comm_counts(comms[target][0], &counts[target]), UNO_OK);
    assert_true(counts[0].tiled_operations == 0 && counts[0].small_operations > 0);
    assert_true(counts[1].small_operations == 0 && counts[1].tiled_operations > 0);
    for (int target = 0; target < 2; target++)
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(uno_comm_destroy(comms[target][r]), UNO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(open_both), cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
