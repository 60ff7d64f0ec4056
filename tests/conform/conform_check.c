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

static uno_err call(const struct conform_call *k, const void *s, void *r)
{
    const struct conform_case *c = k->c;
    uno_comm *comm = k->comm;
    switch (c->coll) {
    case UNO_ALL_REDUCE: return uno_all_reduce(s, r, c->count, c->type, k->op, comm, k->stream);
    case UNO_BROADCAST: return uno_broadcast(s, r, c->count, c->type, c->root, comm, k->stream);
    case UNO_REDUCE: return uno_reduce(s, r, c->count, c->type, k->op, c->root, comm, k->stream);
    case UNO_ALL_GATHER: return uno_all_gather(s, r, c->count, c->type, comm, k->stream);
    case UNO_REDUCE_SCATTER: return uno_reduce_scatter(s, r, c->count, c->type, k->op, comm, k->stream);
    case UNO_ALL_TO_ALL: return uno_all_to_all(s, r, c->count, c->type, comm, k->stream);
    case UNO_GATHER: return uno_gather(s, r, c->count, c->type, c->root, comm, k->stream);
    case UNO_SCATTER: return uno_scatter(s, r, c->count, c->type, c->root, comm, k->stream);
    case UNO_BARRIER: return uno_barrier(comm, k->stream);
    default: break;
    }
    int n = uno_comm_size(comm), me = uno_comm_rank(comm);
    size_t sc[64], rc[64];
    for (int q = 0; q < n; q++)
        sc[q] = case_block(c, q);
    if (c->coll == UNO_ALL_GATHER_V)
        return uno_all_gather_v(s, r, sc, NULL, c->type, comm, k->stream);
    if (c->coll == UNO_REDUCE_SCATTER_V)
        return uno_reduce_scatter_v(s, r, sc, NULL, c->type, k->op, comm, k->stream);
    for (int q = 0; q < n; q++) {
        sc[q] = case_block(c, me + 2 * q);
        rc[q] = case_block(c, q + 2 * me);
    }
    return uno_all_to_all_v(s, sc, NULL, r, rc, NULL, c->type, comm, k->stream);
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

static uno_err issue(struct conform_call *k)
{
    const struct conform_case *c = k->c;
    size_t e = uno_type_bytes(c->type), place;
    int me = uno_comm_rank(k->comm);
    sizes_of(c, uno_comm_size(k->comm), me, &k->in, &k->out, &place);
    struct conform_buffer *send = &k->room->send[c->shared], *recv = &k->room->recv[c->shared];
    TRY(get_memory(k->room, send, c->shared, k->in * e));
    TRY(get_memory(k->room, recv, c->shared, k->out * e));
    TRY(get_memory(k->room, &k->room->want, false, MAX(k->in, k->out) * e));
    unsigned char *s = send->base;
    k->received = recv->base;
    if (c->in_place && k->in >= k->out)
        k->received = send->base + place * e;
    else if (c->in_place)
        s = recv->base + place * e;
    if (sends(c, me))
        values_put(&k->room->values, k->seed, me, 0, k->in, s);
    return call(k, sends(c, me) || c->in_place ? s : NULL, receives(c, me) || c->in_place ? k->received : NULL);
}

uno_err conform_issue(struct conform_call *k)
{
    TRY(values_for(&k->room->values, k->c));
    k->op = (uno_op)k->c->op;
    if (k->c->op == UNO_OP_DYNAMIC) {
        unsigned char scalar[16];
        values_scalar(k->c, uno_comm_rank(k->comm), scalar);
        TRY(uno_op_create_premulsum(&k->op, scalar, k->c->type, k->comm));
    }
    uno_err err = issue(k);
    return err == UNO_OK ? err : conform_end(k, err);
}

/* Look at everything that it may and may not have touched. */
static uno_err look(struct conform_call *k)
{
    const struct conform_case *c = k->c;
    const unsigned char *send = k->room->send[c->shared].base, *recv = k->room->recv[c->shared].base;
    unsigned char *want = k->room->want.base;
    int n = uno_comm_size(k->comm), me = uno_comm_rank(k->comm);
    size_t e = uno_type_bytes(c->type);
    if (receives(c, me)) {
        TRY(values_expected(&k->room->values, c, k->seed, n, me, want));
        TRY(compare(c, k->received, want, k->out * e, me));
    }
    TRY(guard(send, k->in * e, "send"));
    TRY(guard(recv, k->out * e, "recv"));
    if (!c->in_place && sends(c, me)) { /* out of place leaves the input alone */
        values_put(&k->room->values, k->seed, me, 0, k->in, want);
        TRY(compare(c, send, want, k->in * e, me));
    }
    return UNO_OK;
}

uno_err conform_end(struct conform_call *k, uno_err err)
{
    if (err == UNO_OK)
        err = look(k);
    if (k->c->op == UNO_OP_DYNAMIC) {
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", err_text());
        (void)uno_op_destroy(k->op, k->comm);
        if (err != UNO_OK)
            (void)err_set(err, "%s", text);
    }
    return err;
}

uno_err conform_run(uno_comm *comm, struct conform_room *room, const struct conform_case *c, uint64_t seed)
{
    struct conform_call k = {.comm = comm, .room = room, .c = c, .seed = seed};
    TRY(conform_issue(&k));
    return conform_end(&k, UNO_OK);
}
