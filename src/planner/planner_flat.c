/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_flat.c - the generators "flat" (one round: everybody sends to everybody who needs it) and "flat2" (a round that
 * deals the work out, one chunk a rank, and a round that collects the results). Lowest latency; flat is also what the
 * small target compiles. Peers are served in the order r+1, r+2, ... so that no rank is everyone's first.
 */
#include "planner_gen.h"

/* All other ranks' connections on the last step, in rank order, with the own contribution at its place. */
static void operands_of_all(struct plan_build *b, int channel, bool group)
{
    int r = b->prog->rank;
    for (int peer = 0; peer < b->plan->nranks; peer++)
        if (peer != r)
            build_on_recv(b, group ? build_recv_group(b, peer) : build_recv_from(b, peer, channel));
    build_self(b, r);
}

/* One message to all others; returns the last step. */
static int send_to_all(struct plan_build *b, enum plan_buf buf, int chunk, bool group)
{
    int n = b->plan->nranks, r = b->prog->rank, last = 0;
    if (group)
        return gen_send(b, buf, chunk, 1, build_send_group(b));
    for (int i = 1; i < n; i++)
        last = gen_send(b, buf, chunk, 1, build_send_to(b, (r + i) % n, 0));
    return last;
}

static void recv_from_all(struct plan_build *b, int channel, bool group, int first_peer)
{
    int n = b->plan->nranks, r = b->prog->rank;
    build_lane(b);
    for (int i = 1; i < n; i++) {
        int peer = (r + i) % n;
        if (peer >= first_peer)
            gen_recv(b, PLAN_OUT, peer - first_peer, 1,
                     group ? build_recv_group(b, peer) : build_recv_from(b, peer, channel));
    }
}

/* ---- flat ------------------------------------------------------------------------------------------------- */

int planner_flat_parts(const struct plan_params *p)
{
    return 1;
}

static void flat_all_reduce(struct plan_build *b)
{
    bool group = gen_group(b->plan);
    int sends = build_lane(b);
    int last = send_to_all(b, PLAN_IN, 0, group);
    build_lane(b);
    gen_step(b, PLAN_RECV_REDUCE_COPY, PLAN_IN, 0, PLAN_OUT, 0, 1);
    build_flags(b, PLAN_COMPLETES);
    operands_of_all(b, 0, group);
    build_wait(b, sends, last); /* in place the result replaces what is sent */
}

static void flat_reduce(struct plan_build *b)
{
    if (b->prog->rank != b->plan->root) {
        gen_send(b, PLAN_IN, 0, 1, build_send_to(b, b->plan->root, 0));
        return;
    }
    gen_step(b, PLAN_RECV_REDUCE_COPY, PLAN_IN, 0, PLAN_OUT, 0, 1);
    build_flags(b, PLAN_COMPLETES);
    operands_of_all(b, 0, false);
}

static void flat_broadcast(struct plan_build *b)
{
    int root = b->plan->root;
    bool group = gen_group(b->plan);
    if (b->prog->rank == root) {
        send_to_all(b, PLAN_IN, 0, group);
        gen_copy(b, 0, 0, 1);
    } else {
        gen_recv(b, PLAN_OUT, 0, 1, group ? build_recv_group(b, root) : build_recv_from(b, root, 0));
    }
}

static void flat_all_gather(struct plan_build *b)
{
    bool group = gen_group(b->plan);
    build_lane(b);
    send_to_all(b, PLAN_IN, 0, group);
    gen_copy(b, 0, b->prog->rank, 1);
    recv_from_all(b, 0, group, 0);
}

static void flat_reduce_scatter(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank;
    build_lane(b);
    for (int i = 1; i < n; i++)
        gen_send(b, PLAN_IN, (r + i) % n, 1, build_send_to(b, (r + i) % n, 0));
    build_lane(b);
    gen_step(b, PLAN_RECV_REDUCE_COPY, PLAN_IN, r, PLAN_OUT, 0, 1);
    build_flags(b, PLAN_COMPLETES);
    operands_of_all(b, 0, false);
}

/* A lane for each peer and direction, so that no pair's full slots hold up another pair's tiles. */
static void flat_all_to_all(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank;
    for (int i = 1; i < n; i++) {
        int to = (r + i) % n, from = gen_mod(r - i, n);
        build_lane(b);
        gen_send(b, PLAN_IN, to, 1, build_send_to(b, to, 0));
        build_lane(b);
        gen_recv(b, PLAN_OUT, from, 1, build_recv_from(b, from, 0));
    }
    build_lane(b);
    gen_copy(b, r, r, 1);
}

static void flat_gather(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank, root = b->plan->root;
    if (r != root) {
        gen_send(b, PLAN_IN, 0, 1, build_send_to(b, root, 0));
        return;
    }
    for (int i = 1; i < n; i++) {
        build_lane(b);
        gen_recv(b, PLAN_OUT, (r + i) % n, 1, build_recv_from(b, (r + i) % n, 0));
    }
    build_lane(b);
    gen_copy(b, 0, r, 1);
}

static void flat_scatter(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank, root = b->plan->root;
    if (r != root) {
        gen_recv(b, PLAN_OUT, 0, 1, build_recv_from(b, root, 0));
        return;
    }
    for (int i = 1; i < n; i++) {
        build_lane(b);
        gen_send(b, PLAN_IN, (r + i) % n, 1, build_send_to(b, (r + i) % n, 0));
    }
    build_lane(b);
    gen_copy(b, r, 0, 1);
}

uno_err planner_flat_generate(const struct plan *plan, int rank, struct plan_prog *prog)
{
    struct plan_build b;
    build_begin(&b, plan, rank, prog);
    switch (plan->coll) {
    case UNO_ALL_REDUCE:
    case UNO_BARRIER: flat_all_reduce(&b); break;
    case UNO_REDUCE: flat_reduce(&b); break;
    case UNO_BROADCAST: flat_broadcast(&b); break;
    case UNO_ALL_GATHER: flat_all_gather(&b); break;
    case UNO_REDUCE_SCATTER: flat_reduce_scatter(&b); break;
    case UNO_ALL_TO_ALL: flat_all_to_all(&b); break;
    case UNO_GATHER: flat_gather(&b); break;
    case UNO_SCATTER: flat_scatter(&b); break;
    default: break; /* the table names no other */
    }
    return build_end(&b, 0);
}

/* ---- flat2: chunk j is rank j's work; broadcast leaves the root out ------------------------------------- */

int planner_flat2_parts(const struct plan_params *p)
{
    return p->coll == UNO_BROADCAST ? MAX(1, p->nranks - 1) : p->nranks;
}

/* Lane of the first round: what each rank works on goes to it raw. */
static void deal_out(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank;
    build_lane(b);
    for (int i = 1; i < n; i++)
        gen_send(b, PLAN_IN, (r + i) % n, 1, build_send_to(b, (r + i) % n, 0));
}

static void flat2_all_reduce(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank;
    bool group = gen_group(b->plan);
    deal_out(b);
    build_lane(b);
    gen_step(b, PLAN_RECV_REDUCE_COPY_SEND, PLAN_IN, r, PLAN_OUT, r, 1);
    build_flags(b, PLAN_COMPLETES);
    operands_of_all(b, 0, false);
    build_on_send(b, group ? build_send_group(b) : build_send_to(b, (r + 1) % n, 1));
    for (int i = 2; i < n && !group; i++)
        gen_send(b, PLAN_OUT, r, 1, build_send_to(b, (r + i) % n, 1));
    recv_from_all(b, 1, group, 0);
}

static void flat2_reduce(struct plan_build *b)
{
    int r = b->prog->rank, root = b->plan->root;
    bool here = r == root;
    deal_out(b);
    build_lane(b);
    gen_step(b, here ? PLAN_RECV_REDUCE_COPY : PLAN_RECV_REDUCE_SEND, PLAN_IN, r, here ? PLAN_OUT : PLAN_NONE,
             here ? r : 0, 1);
    build_flags(b, PLAN_COMPLETES);
    operands_of_all(b, 0, false);
    if (here)
        recv_from_all(b, 1, false, 0);
    else
        build_on_send(b, build_send_to(b, root, 1));
}

/* Virtual root 0 deals chunk j-1 to rank j, which passes it on to all but the root. */
static void flat2_broadcast(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank;
    build_lane(b);
    if (r == 0) {
        for (int j = 1; j < n; j++)
            gen_send(b, PLAN_IN, j - 1, 1, build_send_to(b, j, 0));
        gen_copy(b, 0, 0, n - 1);
        return;
    }
    if (n == 2) {
        gen_recv(b, PLAN_OUT, 0, 1, build_recv_from(b, 0, 0));
        return;
    }
    bool first = true;
    for (int i = 1; i < n; i++) {
        int to = (r + i) % n;
        if (to == 0)
            continue;
        if (first)
            gen_recv_copy_send(b, PLAN_OUT, r - 1, 1, build_recv_from(b, 0, 0), build_send_to(b, to, 0));
        else
            gen_send(b, PLAN_OUT, r - 1, 1, build_send_to(b, to, 0));
        first = false;
    }
    recv_from_all(b, 0, false, 1);
}

uno_err planner_flat2_generate(const struct plan *plan, int rank, struct plan_prog *prog)
{
    struct plan_build b;
    build_begin(&b, plan, rank, prog);
    switch (plan->coll) {
    case UNO_ALL_REDUCE: flat2_all_reduce(&b); break;
    case UNO_REDUCE: flat2_reduce(&b); break;
    case UNO_BROADCAST: flat2_broadcast(&b); break;
    default: break;
    }
    return build_end(&b, 0);
}
