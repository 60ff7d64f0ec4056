/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_check.c - one case on one rank. Inputs are such that every order of reduction gives the same bits, so the expected
 * result comes from the plain kernel over all contributions, whatever plan ran.
 */
#include "conform.h"
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

/* Element i of what rank q contributes: sums over 8 ranks stay exact even in three mantissa bits. */
static void put_value(const struct conform_case *c, uint64_t seed, int q, size_t i, unsigned char *at)
{
    uint64_t h = hash_mix(hash_mix(seed, (uint64_t)q), i);
    unsigned v = c->op == UNO_PROD ? 1 + (unsigned)(h >> 7) % 2 : (unsigned)(h >> 7) % 2;
    if (c->op == UNO_OP_DYNAMIC && ((size_t)q + i) % 3) /* scaled contributions are larger, so there are fewer of them */
        v = 0;
    size_t bytes = uno_type_bytes(c->type);
    switch (c->type) {
    case UNO_FLOAT32: { float f = (float)v; memcpy(at, &f, 4); break; }
    case UNO_FLOAT64: { double f = v; memcpy(at, &f, 8); break; }
    case UNO_FLOAT16: { uint16_t f = v == 0 ? 0 : v == 1 ? 0x3c00 : 0x4000; memcpy(at, &f, 2); break; }
    case UNO_BFLOAT16: { uint16_t f = v == 0 ? 0 : v == 1 ? 0x3f80 : 0x4000; memcpy(at, &f, 2); break; }
    case UNO_FLOAT8E4M3: *at = v == 0 ? 0 : v == 1 ? 0x38 : 0x40; break;
    case UNO_FLOAT8E5M2: *at = v == 0 ? 0 : v == 1 ? 0x3c : 0x40; break;
    case UNO_COMPLEX64: { float f[2] = {(float)v, (float)(h >> 20 & 1)}; if (c->op == UNO_PROD) f[1] = 0; memcpy(at, f, 8); break; }
    case UNO_COMPLEX128: { double f[2] = {v, (double)(h >> 20 & 1)}; if (c->op == UNO_PROD) f[1] = 0; memcpy(at, f, 16); break; }
    case UNO_BOOL: *at = (unsigned char)(h >> 9 & 1); break;
    default: memcpy(at, &h, bytes); break; /* integers wrap: any bits will do */
    }
}

/* 1 on even ranks, 2 on odd ones, in any type. */
static void put_scalar(const struct conform_case *c, int q, unsigned char *at)
{
    struct conform_case one = *c;
    one.op = UNO_PROD;
    uint64_t seed = 0;
    while (1 + (hash_mix(hash_mix(seed, 0), 0) >> 7) % 2 != (uint64_t)(1 + q % 2))
        seed++;
    memset(at, 0, 16);
    if (c->type <= UNO_UINT64 || c->type == UNO_INT16 || c->type == UNO_UINT16)
        at[0] = (unsigned char)(1 + q % 2); /* little-endian */
    else
        put_value(&one, seed, 0, 0, at);
    if (c->type == UNO_COMPLEX64)
        memset(at + 4, 0, 4);
    if (c->type == UNO_COMPLEX128)
        memset(at + 8, 0, 8);
}

/* Block sizes of the v forms differ by rank; some are 0. */
static size_t block_count(const struct conform_case *c, int q)
{
    return q % 3 == 1 ? 0 : c->count / (size_t)(1 + q % 4);
}

static void fill(const struct conform_case *c, uint64_t seed, int q, size_t count, unsigned char *buf)
{
    size_t e = uno_type_bytes(c->type);
    for (size_t i = 0; i < count; i++)
        put_value(c, seed, q, i, buf + i * e);
}

static uno_err get_memory(bool shared, unsigned char **p, size_t bytes)
{
    void *v = NULL;
    if (shared)
        TRY(uno_mem_alloc(&v, bytes + 64));
    else if (!(v = mem_zalloc(bytes + 64)))
        return UNO_ERR_MEMORY;
    *p = v;
    memset(*p, 0xA5, bytes + 64);
    return UNO_OK;
}

static void put_memory(bool shared, unsigned char *p)
{
    if (shared)
        (void)uno_mem_free(p);
    else
        free(p);
}

/* Reduce element range [from, from + count) over all ranks' contributions with the plain kernel. */
static uno_err expect_reduced(const struct conform_case *c, uint64_t seed, int n, size_t from, size_t count, unsigned char *out)
{
    size_t e = uno_type_bytes(c->type);
    const void *operands[64];
    unsigned char *all = mem_zalloc((size_t)n * count * e + 16);
    if (!all)
        return UNO_ERR_MEMORY;
    for (int q = 0; q < n; q++) {
        for (size_t i = 0; i < count; i++)
            put_value(c, seed, q, from + i, all + ((size_t)q * count + i) * e);
        operands[q] = all + (size_t)q * count * e;
        if (c->op == UNO_OP_DYNAMIC) {
            struct reduce_scale s = {.scaled_operand = 0};
            put_scalar(c, q, s.scalar);
            reduce_scale_copy(c->type, c->op, (void *)(uintptr_t)operands[q], operands[q], count, &s);
        }
    }
    struct reduce_scale s = {.scaled_operand = -1, .divide_by = c->op == UNO_AVG ? (uint32_t)n : 0};
    reduce_find(c->type, c->op, false)(out, NULL, operands, n, count, &s, 0);
    free(all);
    return UNO_OK;
}

static uno_err compare(const struct conform_case *c, const unsigned char *got, const unsigned char *want, size_t bytes, int rank)
{
    if (memcmp(got, want, bytes) == 0)
        return UNO_OK;
    size_t e = uno_type_bytes(c->type), i = 0;
    while (got[i] == want[i])
        i++;
    return err_set(UNO_ERR_INTERNAL, "rank %d: element %zu is wrong (byte %zu is 0x%02x, expected 0x%02x)", rank, i / e, i, got[i], want[i]);
}

static uno_err guard(const unsigned char *p, size_t bytes, const char *what)
{
    for (size_t i = 0; i < 64; i++)
        if (p[bytes + i] != 0xA5)
            return err_set(UNO_ERR_INTERNAL, "wrote behind the end of %s", what);
    return UNO_OK;
}

static uno_err call(uno_comm *comm, const struct conform_case *c, const void *s, void *r, int op, const size_t *counts)
{
    switch (c->coll) {
    case UNO_ALL_REDUCE: return uno_all_reduce(s, r, c->count, c->type, (uno_op)op, comm, NULL);
    case UNO_BROADCAST: return uno_broadcast(s, r, c->count, c->type, c->root, comm, NULL);
    case UNO_REDUCE: return uno_reduce(s, r, c->count, c->type, (uno_op)op, c->root, comm, NULL);
    case UNO_ALL_GATHER: return uno_all_gather(s, r, c->count, c->type, comm, NULL);
    case UNO_REDUCE_SCATTER: return uno_reduce_scatter(s, r, c->count, c->type, (uno_op)op, comm, NULL);
    case UNO_ALL_TO_ALL: return uno_all_to_all(s, r, c->count, c->type, comm, NULL);
    case UNO_GATHER: return uno_gather(s, r, c->count, c->type, c->root, comm, NULL);
    case UNO_SCATTER: return uno_scatter(s, r, c->count, c->type, c->root, comm, NULL);
    case UNO_BARRIER: return uno_barrier(comm, NULL);
    case UNO_ALL_GATHER_V: return uno_all_gather_v(s, r, counts, NULL, c->type, comm, NULL);
    case UNO_REDUCE_SCATTER_V: return uno_reduce_scatter_v(s, r, counts, NULL, c->type, (uno_op)op, comm, NULL);
    default: break;
    }
    int n = uno_comm_size(comm), me = uno_comm_rank(comm);
    size_t sc[64], rc[64];
    for (int q = 0; q < n; q++) {
        sc[q] = block_count(c, me + 2 * q);
        rc[q] = block_count(c, q + 2 * me);
    }
    return uno_all_to_all_v(s, sc, NULL, r, rc, NULL, c->type, comm, NULL);
}

static size_t sum_blocks(const struct conform_case *c, int n, int upto)
{
    size_t s = 0;
    for (int q = 0; q < MIN(n, upto); q++)
        s += block_count(c, q);
    return s;
}

/* Elements sent and received by `me`, and where the in-place counterpart lies in the larger buffer. */
static void sizes_of(const struct conform_case *c, int n, int me, size_t *in, size_t *out, size_t *place)
{
    size_t k = c->count, N = (size_t)n;
    *place = 0;
    switch (c->coll) {
    case UNO_ALL_GATHER: case UNO_GATHER: *in = k; *out = N * k; *place = (size_t)me * k; break;
    case UNO_REDUCE_SCATTER: case UNO_SCATTER: *in = N * k; *out = k; *place = (size_t)me * k; break;
    case UNO_ALL_TO_ALL: *in = *out = N * k; break;
    case UNO_BARRIER: *in = *out = 0; break;
    case UNO_ALL_GATHER_V: *in = block_count(c, me); *out = sum_blocks(c, n, n); *place = sum_blocks(c, n, me); break;
    case UNO_REDUCE_SCATTER_V: *in = sum_blocks(c, n, n); *out = block_count(c, me); *place = sum_blocks(c, n, me); break;
    case UNO_ALL_TO_ALL_V:
        *in = *out = 0;
        for (int q = 0; q < n; q++) {
            *in += block_count(c, me + 2 * q);
            *out += block_count(c, q + 2 * me);
        }
        break;
    default: *in = *out = k;
    }
}

/* Copy `count` elements of rank q's contribution from `from` on. */
static void expect_copy(const struct conform_case *c, uint64_t seed, int q, size_t from, size_t count, unsigned char *out)
{
    size_t e = uno_type_bytes(c->type);
    for (size_t i = 0; i < count; i++)
        put_value(c, seed, q, from + i, out + i * e);
}

static uno_err expect(const struct conform_case *c, uint64_t seed, int n, int me, unsigned char *out)
{
    size_t e = uno_type_bytes(c->type), k = c->count;
    switch (c->coll) {
    case UNO_ALL_REDUCE: case UNO_REDUCE: return expect_reduced(c, seed, n, 0, k, out);
    case UNO_REDUCE_SCATTER: return expect_reduced(c, seed, n, (size_t)me * k, k, out);
    case UNO_REDUCE_SCATTER_V: return expect_reduced(c, seed, n, sum_blocks(c, n, me), block_count(c, me), out);
    case UNO_BROADCAST: expect_copy(c, seed, c->root, 0, k, out); return UNO_OK;
    case UNO_SCATTER: expect_copy(c, seed, c->root, (size_t)me * k, k, out); return UNO_OK;
    default: break;
    }
    for (int q = 0; q < n; q++) {
        size_t from = 0, count = k, at = (size_t)q * k;
        if (c->coll == UNO_ALL_TO_ALL) {
            from = (size_t)me * k;
        } else if (c->coll == UNO_ALL_GATHER_V) {
            count = block_count(c, q);
            at = sum_blocks(c, n, q);
        } else if (c->coll == UNO_ALL_TO_ALL_V) {
            count = block_count(c, q + 2 * me);
            at = 0;
            for (int z = 0; z < q; z++)
                at += block_count(c, z + 2 * me);
            for (int z = 0; z < me; z++)
                from += block_count(c, q + 2 * z);
        }
        expect_copy(c, seed, q, from, count, out + at * e);
    }
    return UNO_OK;
}

static bool receives(const struct conform_case *c, int me)
{
    bool root_only = c->coll == UNO_REDUCE || c->coll == UNO_GATHER;
    return c->coll != UNO_BARRIER && (!root_only || me == c->root);
}

static bool sends(const struct conform_case *c, int me)
{
    bool root_only = c->coll == UNO_BROADCAST || c->coll == UNO_SCATTER;
    return c->coll != UNO_BARRIER && (!root_only || me == c->root);
}

uno_err conform_run(uno_comm *comm, const struct conform_case *c, uint64_t seed)
{
    int n = uno_comm_size(comm), me = uno_comm_rank(comm);
    size_t e = uno_type_bytes(c->type), in, out, place, counts[64];
    sizes_of(c, n, me, &in, &out, &place);
    for (int q = 0; q < n; q++)
        counts[q] = block_count(c, q);
    bool in_larger = in >= out;
    unsigned char *send = NULL, *recv = NULL, *want = NULL;
    uno_err err = get_memory(c->shared, &send, in * e);
    if (err == UNO_OK)
        err = get_memory(c->shared, &recv, out * e);
    if (err == UNO_OK)
        err = get_memory(false, &want, out * e);
    uno_op op = (uno_op)c->op;
    unsigned char scalar[16] = {0};
    if (err == UNO_OK && c->op == UNO_OP_DYNAMIC) {
        put_scalar(c, me, scalar);
        err = uno_op_create_premulsum(&op, scalar, c->type, comm);
    }
    if (err == UNO_OK) {
        unsigned char *s = send, *r = recv;
        if (c->in_place && in_larger)
            r = send + place * e;
        else if (c->in_place)
            s = recv + place * e;
        if (sends(c, me))
            fill(c, seed, me, in, s);
        err = call(comm, c, sends(c, me) ? s : (c->in_place ? s : NULL), receives(c, me) ? r : (c->in_place ? r : NULL), (int)op, counts);
        if (err == UNO_OK && receives(c, me)) {
            err = expect(c, seed, n, me, want);
            if (err == UNO_OK)
                err = compare(c, r, want, out * e, me);
        }
        if (err == UNO_OK)
            err = guard(send, in * e, "send");
        if (err == UNO_OK)
            err = guard(recv, out * e, "recv");
        if (err == UNO_OK && !c->in_place && sends(c, me)) { /* out of place leaves the input alone */
            fill(c, seed, me, MIN(in, out), want);
            err = compare(c, send, want, MIN(in, out) * e, me);
        }
    }
    if (op >= UNO_OP_DYNAMIC && c->op == UNO_OP_DYNAMIC)
        (void)uno_op_destroy(op, comm);
    put_memory(c->shared, send);
    put_memory(c->shared, recv);
    put_memory(false, want);
    return err;
}
