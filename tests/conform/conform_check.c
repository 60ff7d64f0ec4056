/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_check.c - one case on one rank: buffers, the call, and whether everything came out and nothing else was touched.
 */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 0xA5
#define GUARD_BYTES 64

/* Block sizes of the v forms differ by rank; some are 0. */
size_t case_block(const struct conform_case *c, int q)
{
    return q % 3 == 1 ? 0 : c->count / (size_t)(1 + q % 4);
}

size_t case_blocks(const struct conform_case *c, int n, int upto)
{
    size_t s = 0;
    for (int q = 0; q < MIN(n, upto); q++)
        s += case_block(c, q);
    return s;
}

/* A buffer of `bytes` and a guard of 64 behind it, overwritten with one pattern. With room->keep it is the one of the last case. */
static uno_err get_memory(struct conform_room *room, struct conform_buffer *b, bool shared, size_t bytes)
{
    if (b->base && (!room->keep || b->bytes < bytes))
        conform_buffer_free(b);
    if (!b->base) {
        void *p = NULL;
        b->bytes = room->keep ? MAX(2 * bytes, 65536) : bytes;
        b->shared = shared;
        if (shared)
            TRY(uno_mem_alloc(&p, b->bytes + GUARD_BYTES));
        else if (!(p = mem_zalloc(b->bytes + GUARD_BYTES)))
            return UNO_ERR_MEMORY;
        b->base = p;
    }
    memset(b->base, GUARD, bytes + GUARD_BYTES);
    return UNO_OK;
}

void conform_buffer_free(struct conform_buffer *b)
{
    if (b->shared && b->base)
        (void)uno_mem_free(b->base);
    else
        free(b->base);
    *b = (struct conform_buffer){0};
}

void conform_room_free(struct conform_room *room)
{
    for (int i = 0; i < 2; i++) {
        conform_buffer_free(&room->send[i]);
        conform_buffer_free(&room->recv[i]);
    }
    conform_buffer_free(&room->want);
    free(room->values.table);
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
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (p[bytes + i] != GUARD)
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
        sc[q] = case_block(c, me + 2 * q);
        rc[q] = case_block(c, q + 2 * me);
    }
    return uno_all_to_all_v(s, sc, NULL, r, rc, NULL, c->type, comm, NULL);
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
    case UNO_ALL_GATHER_V: *in = case_block(c, me); *out = case_blocks(c, n, n); *place = case_blocks(c, n, me); break;
    case UNO_REDUCE_SCATTER_V: *in = case_blocks(c, n, n); *out = case_block(c, me); *place = case_blocks(c, n, me); break;
    case UNO_ALL_TO_ALL_V:
        *in = *out = 0;
        for (int q = 0; q < n; q++) {
            *in += case_block(c, me + 2 * q);
            *out += case_block(c, q + 2 * me);
        }
        break;
    default: *in = *out = k;
    }
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

/* Call, and look at everything that it may and may not have touched. */
static uno_err call_and_check(uno_comm *comm, struct conform_room *room, const struct conform_case *c, uint64_t seed, int op)
{
    int n = uno_comm_size(comm), me = uno_comm_rank(comm);
    size_t e = uno_type_bytes(c->type), in, out, place, counts[64];
    sizes_of(c, n, me, &in, &out, &place);
    for (int q = 0; q < n; q++)
        counts[q] = case_block(c, q);
    struct conform_buffer *send = &room->send[c->shared], *recv = &room->recv[c->shared], *want = &room->want;
    TRY(get_memory(room, send, c->shared, in * e));
    TRY(get_memory(room, recv, c->shared, out * e));
    TRY(get_memory(room, want, false, MAX(in, out) * e));
    unsigned char *s = send->base, *r = recv->base;
    if (c->in_place && in >= out)
        r = send->base + place * e;
    else if (c->in_place)
        s = recv->base + place * e;
    if (sends(c, me))
        values_put(&room->values, seed, me, 0, in, s);
    TRY(call(comm, c, sends(c, me) || c->in_place ? s : NULL, receives(c, me) || c->in_place ? r : NULL, op, counts));
    if (receives(c, me)) {
        TRY(values_expected(&room->values, c, seed, n, me, want->base));
        TRY(compare(c, r, want->base, out * e, me));
    }
    TRY(guard(send->base, in * e, "send"));
    TRY(guard(recv->base, out * e, "recv"));
    if (!c->in_place && sends(c, me)) { /* out of place leaves the input alone */
        values_put(&room->values, seed, me, 0, in, want->base);
        TRY(compare(c, send->base, want->base, in * e, me));
    }
    return UNO_OK;
}

uno_err conform_run(uno_comm *comm, struct conform_room *room, const struct conform_case *c, uint64_t seed)
{
    uno_op op = (uno_op)c->op;
    TRY(values_for(&room->values, c));
    if (c->op == UNO_OP_DYNAMIC) {
        unsigned char scalar[16];
        values_scalar(c, uno_comm_rank(comm), scalar);
        TRY(uno_op_create_premulsum(&op, scalar, c->type, comm));
    }
    uno_err err = call_and_check(comm, room, c, seed, (int)op);
    if (c->op == UNO_OP_DYNAMIC) {
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", err_text());
        (void)uno_op_destroy(op, comm);
        if (err != UNO_OK)
            (void)err_set(err, "%s", text);
    }
    return err;
}
