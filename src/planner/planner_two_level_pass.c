/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_two_level_pass.c - the generator "two_level" where data is passed on as it is, and the barrier. In all_to_all, rank l of
 * a host hands all that it has for another host to that host's rank l (modulo its size), who deals it out: so a rank talks to one
 * rank of each other host, not to all. Gather and scatter have one rank a host that talks to the root; the first of a host is its
 * leader. In the barrier leaders wait for their host, then for each other, then let their host go.
 *
 * Who passes on has one lane for it, in the order in which it comes; everyone else has a lane a connection. The receivers of what
 * is passed on wait for nothing else, so that one slot a connection suffices.
 */
#include "planner_places.h"

/* How many of the host's ranks from local number `l` on, below `end`, have numbers in a row: one step of so many chunks. */
static int run_of(const struct places *p, int host, int l, int end)
{
    int first = rank_at(p, host, l), count = 1;
    while (l + count < end && rank_at(p, host, l + count) == first + count)
        count++;
    return count;
}

static void send_blocks(struct places *p, int host, int l, int end, int send)
{
    for (int count; l < end; l += count) {
        count = run_of(p, host, l, end);
        gen_send(&p->b, PLAN_IN, rank_at(p, host, l), count, send);
    }
}

static void recv_blocks(struct places *p, int host, int l, int end, int recv)
{
    for (int count; l < end; l += count) {
        count = run_of(p, host, l, end);
        gen_recv(&p->b, PLAN_OUT, rank_at(p, host, l), count, recv);
    }
}

static void pass_on(struct places *p, int shape, int recv, int send)
{
    gen_step(&p->b, PLAN_RECV_SEND, PLAN_NONE, 0, PLAN_NONE, 0, 1);
    build_shape(&p->b, shape);
    build_on_recv(&p->b, recv);
    build_on_send(&p->b, send);
}

/* ---- all_to_all --------------------------------------------------------------------------------------------------- */

/* Local numbers of `host` whose blocks for this host come in through its local number `through`: through, through + size, ... */
#define FOR_SERVED(p, host, l, through) for (int l = (through); l < host_size(p, host); l += (p)->size)

/* One rank of each other host gets what that host's ranks are to have: those behind it first, itself last. */
static void send_between(struct places *p)
{
    struct plan_build *b = &p->b;
    for (int i = 1; i < p->hosts; i++) {
        int h = (p->host + i) % p->hosts, size = host_size(p, h), l = p->local % size;
        int send = build_send_to(b, rank_at(p, h, l), 0);
        build_lane(b);
        send_blocks(p, h, l + 1, size, send);
        send_blocks(p, h, 0, l + 1, send);
    }
}

static void deal_out(struct places *p)
{
    struct plan_build *b = &p->b;
    build_lane(b);
    for (int i = 1; i < p->hosts; i++) {
        int h = gen_mod(p->host - i, p->hosts);
        FOR_SERVED(p, h, l, p->local) {
            int from = rank_at(p, h, l), recv = build_recv_from(b, from, 0);
            for (int j = 1; j < p->size; j++) {
                int to = rank_at(p, p->host, (p->local + j) % p->size);
                pass_on(p, to, recv, build_send_to(b, to, 1));
            }
            gen_recv(b, PLAN_OUT, from, 1, recv);
        }
    }
}

/* What local rank `through` of this host passes on to this rank, in its order. */
static void recv_dealt(struct places *p, int through)
{
    struct plan_build *b = &p->b;
    int peer = rank_at(p, p->host, through);
    build_lane(b);
    for (int i = 1; i < p->hosts; i++) {
        int h = gen_mod(p->host - i, p->hosts);
        FOR_SERVED(p, h, l, through)
            gen_recv(b, PLAN_OUT, rank_at(p, h, l), 1, build_recv_from(b, peer, 1));
    }
}

/* Does local rank `through` of this host bring anything in? */
static bool brings_in(const struct places *p, int through)
{
    for (int h = 0; h < p->hosts; h++)
        if (h != p->host && through < host_size(p, h))
            return true;
    return false;
}

void two_level_all_to_all(struct places *p)
{
    struct plan_build *b = &p->b;
    send_between(p);
    if (brings_in(p, p->local))
        deal_out(p);
    for (int i = 1; i < p->size; i++) {
        int to = rank_at(p, p->host, (p->local + i) % p->size), l = gen_mod(p->local - i, p->size), from = rank_at(p, p->host, l);
        build_lane(b);
        gen_send(b, PLAN_IN, to, 1, build_send_to(b, to, 0));
        build_lane(b);
        gen_recv(b, PLAN_OUT, from, 1, build_recv_from(b, from, 0));
        if (brings_in(p, l))
            recv_dealt(p, l);
    }
    build_lane(b);
    gen_copy(b, p->r, p->r, 1);
}

/* ---- gather, scatter ------------------------------------------------------------------------------------------------ */

void two_level_gather(struct places *p)
{
    struct plan_build *b = &p->b;
    int root = b->plan->root, home = b->plan->host_of[root];
    if (p->r != root) {
        int send = build_send_to(b, p->host == home ? root : p->local > 0 ? rank_at(p, p->host, 0) : root, 0);
        build_lane(b);
        gen_send(b, PLAN_IN, 0, 1, send);
        for (int l = 1; l < p->size && p->host != home && p->local == 0; l++) {
            int from = rank_at(p, p->host, l);
            pass_on(p, from, build_recv_from(b, from, 0), send);
        }
        return;
    }
    for (int i = 1; i < p->hosts; i++) {
        int h = (home + i) % p->hosts;
        build_lane(b);
        recv_blocks(p, h, 0, host_size(p, h), build_recv_from(b, rank_at(p, h, 0), 0));
    }
    for (int i = 1; i < p->size; i++) {
        int from = rank_at(p, home, (p->local + i) % p->size);
        build_lane(b);
        gen_recv(b, PLAN_OUT, from, 1, build_recv_from(b, from, 0));
    }
    build_lane(b);
    gen_copy(b, 0, root, 1);
}

void two_level_scatter(struct places *p)
{
    struct plan_build *b = &p->b;
    int root = b->plan->root, home = b->plan->host_of[root];
    if (p->r != root) {
        int recv = build_recv_from(b, p->host == home ? root : p->local > 0 ? rank_at(p, p->host, 0) : root, 0);
        build_lane(b);
        for (int l = 1; l < p->size && p->host != home && p->local == 0; l++) {
            int to = rank_at(p, p->host, l);
            pass_on(p, to, recv, build_send_to(b, to, 0));
        }
        gen_recv(b, PLAN_OUT, 0, 1, recv);
        return;
    }
    for (int i = 1; i < p->hosts; i++) { /* a leader's own block last: it has others to serve first */
        int h = (home + i) % p->hosts, send = build_send_to(b, rank_at(p, h, 0), 0);
        build_lane(b);
        send_blocks(p, h, 1, host_size(p, h), send);
        send_blocks(p, h, 0, 1, send);
    }
    for (int i = 1; i < p->size; i++) {
        int to = rank_at(p, home, (p->local + i) % p->size);
        build_lane(b);
        gen_send(b, PLAN_IN, to, 1, build_send_to(b, to, 0));
    }
    build_lane(b);
    gen_copy(b, root, 0, 1);
}

/* ---- barrier: sums of no data stand for "has entered" -------------------------------------------------------------- */

void two_level_barrier(struct places *p)
{
    struct plan_build *b = &p->b;
    enum plan_buf host_sum = p->size > 1 ? PLAN_SCRATCH : PLAN_IN;
    build_lane(b);
    if (p->local > 0) {
        gen_send(b, PLAN_IN, 0, 1, build_send_to(b, rank_at(p, p->host, 0), 0));
        gen_recv(b, PLAN_OUT, 0, 1, places_recv_inside(p, 0));
        return;
    }
    for (int i = 1; i < p->hosts; i++) {
        int send = build_send_to(b, rank_at(p, (p->host + i) % p->hosts, 0), 0);
        if (i == 1 && p->size > 1) {
            gen_step(b, PLAN_RECV_REDUCE_COPY_SEND, PLAN_IN, 0, PLAN_SCRATCH, 0, 1);
            build_shape(b, 0);
            places_operands_inside(p);
            build_on_send(b, send);
        } else {
            gen_send(b, host_sum, 0, 1, send);
        }
    }
    int inside = places_send_inside(p);
    gen_step(b, inside >= 0 ? PLAN_RECV_REDUCE_COPY_SEND : PLAN_RECV_REDUCE_COPY, host_sum, 0, PLAN_OUT, 0, 1);
    build_flags(b, PLAN_COMPLETES);
    places_operands_between(p, 0);
    build_on_send(b, inside);
}
