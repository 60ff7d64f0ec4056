/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_values.c - what ranks contribute and what has to come out. Inputs are such that every order of reduction gives the same
 * bits, so the expected result comes from the plain kernel over all contributions, whatever plan ran.
 *
 * A rank's contribution repeats a table of random values from an offset of its own. Its length is a prime (times 3), so no block,
 * page or tile that lands in a wrong place finds the same values there; and what is expected needs one period's work only.
 */
#include "conform.h"
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

#define PERIOD 4093

/* A value in 0..1, for products 1..2: sums over 8 ranks stay exact even in three mantissa bits. */
static void put_value(uno_type type, bool product, uint64_t h, unsigned char *at)
{
    unsigned v = (unsigned)(h >> 7) % 2 + product;
    switch (type) {
    case UNO_FLOAT32: { float f = (float)v; memcpy(at, &f, 4); break; }
    case UNO_FLOAT64: { double f = v; memcpy(at, &f, 8); break; }
    case UNO_FLOAT16: { uint16_t f = v == 0 ? 0 : v == 1 ? 0x3c00 : 0x4000; memcpy(at, &f, 2); break; }
    case UNO_BFLOAT16: { uint16_t f = v == 0 ? 0 : v == 1 ? 0x3f80 : 0x4000; memcpy(at, &f, 2); break; }
    case UNO_FLOAT8E4M3: *at = v == 0 ? 0 : v == 1 ? 0x38 : 0x40; break;
    case UNO_FLOAT8E5M2: *at = v == 0 ? 0 : v == 1 ? 0x3c : 0x40; break;
    case UNO_COMPLEX64: { float f[2] = {(float)v, product ? 0 : (float)(h >> 20 & 1)}; memcpy(at, f, 8); break; }
    case UNO_COMPLEX128: { double f[2] = {v, product ? 0 : (double)(h >> 20 & 1)}; memcpy(at, f, 16); break; }
    case UNO_BOOL: *at = (unsigned char)(h >> 9 & 1); break;
    default: memcpy(at, &h, uno_type_bytes(type)); break; /* integers wrap: any bits will do */
    }
}

/* 1 on even ranks, 2 on odd ones, in any type. */
void values_scalar(const struct conform_case *c, int q, unsigned char *at)
{
    memset(at, 0, 16);
    if (c->type <= UNO_UINT64 || c->type == UNO_INT16 || c->type == UNO_UINT16)
        at[0] = (unsigned char)(1 + q % 2); /* little-endian */
    else
        put_value(c->type, true, (uint64_t)(q % 2) << 7, at);
}

uno_err values_for(struct conform_values *v, const struct conform_case *c)
{
    bool scaled = c->op == UNO_OP_DYNAMIC, product = c->op == UNO_PROD;
    if (v->table && v->type == c->type && v->scaled == scaled && v->product == product)
        return UNO_OK;
    size_t e = uno_type_bytes(c->type);
    free(v->table);
    *v = (struct conform_values){.type = c->type, .scaled = scaled, .product = product, .period = scaled ? 3 * PERIOD : PERIOD};
    v->table = mem_array(v->period, e);
    if (!v->table)
        return UNO_ERR_MEMORY;
    for (size_t i = 0; i < v->period; i++)
        if (!scaled || i % 3 == 0) /* scaled contributions are larger, so there are fewer of them */
            put_value(c->type, product, hash_mix(1, i), v->table + i * e);
    return UNO_OK;
}

void values_put(const struct conform_values *v, uint64_t seed, int q, size_t from, size_t count, unsigned char *out)
{
    size_t e = uno_type_bytes(v->type), at = (size_t)(hash_mix(seed, (uint64_t)q) % PERIOD);
    if (v->scaled) /* one in three ranks has a value at an element */
        at = 3 * at + (size_t)q % 3;
    at = (at + from) % v->period;
    while (count > 0) {
        size_t n = MIN(count, v->period - at);
        memcpy(out, v->table + at * e, n * e);
        out += n * e;
        count -= n;
        at = 0;
    }
}

/* Reduce element range [from, from + count) over all ranks' contributions with the plain kernel. */
static uno_err put_reduced(const struct conform_values *v, const struct conform_case *c, uint64_t seed, int n, size_t from, size_t count,
                           unsigned char *out)
{
    size_t e = uno_type_bytes(c->type), some = MIN(count, v->period);
    const void *operands[64];
    unsigned char *all = mem_zalloc((size_t)n * some * e + 16);
    if (!all)
        return UNO_ERR_MEMORY;
    for (int q = 0; q < n; q++) {
        unsigned char *mine = all + (size_t)q * some * e;
        values_put(v, seed, q, from, some, mine);
        if (c->op == UNO_OP_DYNAMIC) {
            struct reduce_scale s = {.scaled_operand = 0};
            values_scalar(c, q, s.scalar);
            reduce_scale_copy(c->type, c->op, mine, mine, some, &s);
        }
        operands[q] = mine;
    }
    struct reduce_scale s = {.scaled_operand = -1, .divide_by = c->op == UNO_AVG ? (uint32_t)n : 0};
    reduce_find(c->type, c->op, false)(out, NULL, operands, n, some, &s, 0);
    free(all);
    for (size_t i = some; i < count; i += some)
        memcpy(out + i * e, out, MIN(some, count - i) * e);
    return UNO_OK;
}

uno_err values_expected(const struct conform_values *v, const struct conform_case *c, uint64_t seed, int n, int me, unsigned char *out)
{
    size_t e = uno_type_bytes(c->type), k = c->count;
    switch (c->coll) {
    case UNO_ALL_REDUCE: case UNO_REDUCE: return put_reduced(v, c, seed, n, 0, k, out);
    case UNO_REDUCE_SCATTER: return put_reduced(v, c, seed, n, (size_t)me * k, k, out);
    case UNO_REDUCE_SCATTER_V: return put_reduced(v, c, seed, n, case_blocks(c, n, me), case_block(c, me), out);
    case UNO_BROADCAST: values_put(v, seed, c->root, 0, k, out); return UNO_OK;
    case UNO_SCATTER: values_put(v, seed, c->root, (size_t)me * k, k, out); return UNO_OK;
    default: break;
    }
    for (int q = 0; q < n; q++) {
        size_t from = 0, count = k, at = (size_t)q * k;
        if (c->coll == UNO_ALL_TO_ALL) {
            from = (size_t)me * k;
        } else if (c->coll == UNO_ALL_GATHER_V) {
            count = case_block(c, q);
            at = case_blocks(c, n, q);
        } else if (c->coll == UNO_ALL_TO_ALL_V) {
            count = case_block(c, q + 2 * me);
            at = 0;
            for (int z = 0; z < q; z++)
                at += case_block(c, z + 2 * me);
            for (int z = 0; z < me; z++)
                from += case_block(c, q + 2 * z);
        }
        values_put(v, seed, q, from, count, out + at * e);
    }
    return UNO_OK;
}
