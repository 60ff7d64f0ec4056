/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_ring.c - the generator "ring": every rank sends to the next only. Moves the least bytes a rank, and is deaf to
 * the number of ranks for long messages. Each channel is a ring of its own over its own chunks.
 *
 * Reducing and gathering halves of all_reduce have a connection and a lane each, so that one tile is gathered while the
 * next is reduced. A ring of fused steps needs a free slot more than it has messages: with one slot a connection, step i of
 * all ranks would wait for each other in a circle. So at each step i one rank, the *seam*, receives first and sends then;
 * seams move on with i, and a rank pays for at most about one of them a tile.
 */
#include "planner_gen.h"

int planner_ring_parts(const struct plan_params *p)
{
    return p->coll == UNO_ALL_REDUCE ? p->channels * p->nranks : p->channels;
}

static bool seam(const struct plan_build *b, int channel, int i)
{
    int n = b->plan->nranks;
    return b->prog->rank == (i - 1 + channel * (n / 2)) % n;
}

/* received first, then the own contribution: the sum runs along the ring. */
static int reduce_step(struct plan_build *b, enum plan_op op, int in_chunk, enum plan_buf dst_buf, int dst, int recv)
{
    int step = gen_step(b, op, PLAN_IN, in_chunk, dst_buf, dst, 1);
    build_on_recv(b, recv);
    build_self(b, 1);
    return step;
}

/* Reduce `in_chunk` on its way: into the next slot, or, at a seam, into (hold_buf, hold) and from there. */
static void pass_reduced(struct plan_build *b, bool at_seam, int in_chunk, enum plan_buf hold_buf, int hold, int shape,
                         int recv, int send)
{
    if (!at_seam) {
        reduce_step(b, PLAN_RECV_REDUCE_SEND, in_chunk, PLAN_NONE, 0, recv);
        build_on_send(b, send);
        return;
    }
    reduce_step(b, PLAN_RECV_REDUCE_COPY, in_chunk, hold_buf, hold, recv);
    build_shape(b, shape);
    gen_send(b, hold_buf, hold, 1, send);
    build_shape(b, shape);
}

static void pass_on(struct plan_build *b, bool at_seam, int out_chunk, int recv, int send)
{
    if (!at_seam) {
        gen_recv_copy_send(b, PLAN_OUT, out_chunk, 1, recv, send);
        return;
    }
    gen_recv(b, PLAN_OUT, out_chunk, 1, recv);
    gen_send(b, PLAN_OUT, out_chunk, 1, send);
}

/* Two ranks: the direct exchange, each reduces its half. */
static void pair_all_reduce(struct plan_build *b, int channel)
{
    int r = b->prog->rank, other = 1 - r, first = 2 * channel;
    build_lane(b);
    gen_send(b, PLAN_IN, first + other, 1, build_send_to(b, other, 2 * channel));
    build_lane(b);
    gen_step(b, PLAN_RECV_REDUCE_COPY_SEND, PLAN_IN, first + r, PLAN_OUT, first + r, 1);
    build_flags(b, PLAN_COMPLETES);
    build_on_recv(b, build_recv_from(b, other, 2 * channel));
    build_self(b, r);
    build_on_send(b, build_send_to(b, other, 2 * channel + 1));
    build_lane(b);
    gen_recv(b, PLAN_OUT, first + other, 1, build_recv_from(b, other, 2 * channel + 1));
}

static void ring_all_reduce(struct plan_build *b, int channel)
{
    int n = b->plan->nranks, r = b->prog->rank, first = channel * n;
    int next = (r + 1) % n, prev = gen_mod(r - 1, n);
    int send = build_send_to(b, next, 2 * channel), recv = build_recv_from(b, prev, 2 * channel);
    int reducing = build_lane(b);
    gen_send(b, PLAN_IN, first + r, 1, send);
    for (int i = 1; i < n - 1; i++) {
        int c = first + gen_mod(r - i, n);
        /* A seam holds the partial sum in `out`: what comes there later descends from it. */
        pass_reduced(b, seam(b, channel, i), c, PLAN_OUT, c, c, recv, send);
    }
    int mine = first + next;
    int reduced = reduce_step(b, PLAN_RECV_REDUCE_COPY, mine, PLAN_OUT, mine, recv);
    build_flags(b, PLAN_COMPLETES);

    send = build_send_to(b, next, 2 * channel + 1);
    recv = build_recv_from(b, prev, 2 * channel + 1);
    build_lane(b);
    gen_send(b, PLAN_OUT, mine, 1, send);
    build_wait(b, reducing, reduced);
    for (int i = 1; i < n - 1; i++)
        pass_on(b, seam(b, channel, i), first + gen_mod(r + 1 - i, n), recv, send);
    gen_recv(b, PLAN_OUT, first + gen_mod(r + 2, n), 1, recv);
}

static void ring_reduce_scatter(struct plan_build *b, int channel)
{
    int n = b->plan->nranks, r = b->prog->rank, parts = b->plan->parts;
    int send = build_send_to(b, (r + 1) % n, channel), recv = build_recv_from(b, gen_mod(r - 1, n), channel);
    build_lane(b);
    gen_send(b, PLAN_IN, gen_mod(r - 1, n) * parts + channel, 1, send);
    if (n == 2)
        build_lane(b);
    for (int i = 1; i < n - 1; i++) {
        int c = gen_mod(r - 1 - i, n) * parts + channel;
        pass_reduced(b, seam(b, channel, i), c, PLAN_SCRATCH, channel, c, recv, send);
    }
    reduce_step(b, PLAN_RECV_REDUCE_COPY, r * parts + channel, PLAN_OUT, channel, recv);
    build_flags(b, PLAN_COMPLETES);
}

static void ring_all_gather(struct plan_build *b, int channel)
{
    int n = b->plan->nranks, r = b->prog->rank, parts = b->plan->parts;
    int send = build_send_to(b, (r + 1) % n, channel), recv = build_recv_from(b, gen_mod(r - 1, n), channel);
    build_lane(b);
    gen_send(b, PLAN_IN, channel, 1, send);
    gen_copy(b, channel, r * parts + channel, 1);
    if (n == 2)
        build_lane(b);
    for (int i = 1; i < n - 1; i++)
        pass_on(b, seam(b, channel, i), gen_mod(r - i, n) * parts + channel, recv, send);
    gen_recv(b, PLAN_OUT, gen_mod(r + 1, n) * parts + channel, 1, recv);
}

/* A chain from virtual root 0 to the last rank. */
static void chain_broadcast(struct plan_build *b, int channel)
{
    int n = b->plan->nranks, r = b->prog->rank;
    build_lane(b);
    if (r == 0) {
        gen_send(b, PLAN_IN, channel, 1, build_send_to(b, 1, channel));
        gen_copy(b, channel, channel, 1);
    } else if (r < n - 1) {
        gen_recv_copy_send(b, PLAN_OUT, channel, 1, build_recv_from(b, r - 1, channel), build_send_to(b, r + 1, channel));
    } else {
        gen_recv(b, PLAN_OUT, channel, 1, build_recv_from(b, r - 1, channel));
    }
}

/* The same chain backwards. */
static void chain_reduce(struct plan_build *b, int channel)
{
    int n = b->plan->nranks, r = b->prog->rank;
    build_lane(b);
    if (r == n - 1) {
        gen_send(b, PLAN_IN, channel, 1, build_send_to(b, r - 1, channel));
        return;
    }
    gen_step(b, r ? PLAN_RECV_REDUCE_SEND : PLAN_RECV_REDUCE_COPY, PLAN_IN, channel, r ? PLAN_NONE : PLAN_OUT,
             r ? 0 : channel, 1);
    build_on_recv(b, build_recv_from(b, r + 1, channel));
    if (r)
        build_on_send(b, build_send_to(b, r - 1, channel));
    else
        build_flags(b, PLAN_COMPLETES);
}

uno_err planner_ring_generate(const struct plan *plan, int rank, struct plan_prog *prog)
{
    struct plan_build b;
    build_begin(&b, plan, rank, prog);
    for (int channel = 0; channel < plan->params.channels; channel++)
        switch (plan->coll) {
        case UNO_ALL_REDUCE:
            if (plan->nranks == 2)
                pair_all_reduce(&b, channel);
            else
                ring_all_reduce(&b, channel);
            break;
        case UNO_REDUCE_SCATTER: ring_reduce_scatter(&b, channel); break;
        case UNO_ALL_GATHER: ring_all_gather(&b, channel); break;
        case UNO_BROADCAST: chain_broadcast(&b, channel); break;
        case UNO_REDUCE: chain_reduce(&b, channel); break;
        default: break;
        }
    bool seams = plan->coll == UNO_REDUCE_SCATTER && plan->nranks > 2; /* those hold their sums in scratch */
    return build_end(&b, seams ? plan->params.channels : 0);
}
