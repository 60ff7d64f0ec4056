/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_tree.c - the generator "tree": double binary trees for all_reduce, broadcast and reduce, one of them for barrier, a
 * binomial tree for gather and scatter. Both trees hang below virtual rank 0, which has one child in each; inner ranks of one are leaves of the
 * other, so that every rank moves about as much as in a ring, in logarithmically many hops (Sanders, Speck, Träff 2009).
 * Up and down have a lane each, so that tiles go up while earlier ones come down.
 */
#include "planner_gen.h"

int planner_tree_parts(const struct plan_params *p)
{
    return p->coll == UNO_GATHER || p->coll == UNO_SCATTER || p->coll == UNO_BARRIER ? 1 : 2 * p->channels;
}

/* ---- shape of the trees --------------------------------------------------------------------------------- */

/* Node of `rank` in tree 0 or 1, and back: odd nodes are leaves, and tree 1 gives odd ranks even nodes. */
static int node_of(int tree, int rank, int n)
{
    if (tree == 0 || rank == 0)
        return rank;
    return n % 2 ? n - rank : rank == 1 ? n - 1 : rank - 1;
}

static int rank_of(int tree, int node, int n)
{
    if (tree == 0 || node == 0)
        return node;
    return n % 2 ? n - node : node == n - 1 ? 1 : node + 1;
}

struct family { int parent, child[2], children; }; /* ranks; children in rank order */

static struct family family_of(int tree, int rank, int n)
{
    struct family f = {.parent = -1};
    int node = node_of(tree, rank, n), bit = 1;
    while (bit < n && !(node & bit))
        bit *= 2;
    if (node != 0) {
        int up = (node ^ bit) | bit * 2;
        f.parent = rank_of(tree, up < n ? up : node ^ bit, n);
    }
    if (node != 0 && bit > 1)
        f.child[f.children++] = rank_of(tree, node - bit / 2, n);
    int half = bit / 2, right = node + half;
    while (half > 0 && right >= n) {
        half /= 2;
        right = node + half;
    }
    if (half > 0)
        f.child[f.children++] = rank_of(tree, right, n);
    if (f.children == 2 && f.child[0] > f.child[1]) {
        int swap = f.child[0];
        f.child[0] = f.child[1];
        f.child[1] = swap;
    }
    return f;
}

/* ---- up and down ------------------------------------------------------------------------------------------ */

static void reduce_children(struct plan_build *b, const struct family *f, enum plan_op op, int chunk, bool keep, int channel)
{
    int self = 0;
    gen_step(b, op, PLAN_IN, chunk, keep ? PLAN_OUT : PLAN_NONE, keep ? chunk : 0, 1);
    for (int i = 0; i < f->children; i++) {
        build_on_recv(b, build_recv_from(b, f->child[i], channel));
        self += f->child[i] < b->prog->rank;
    }
    build_self(b, self);
}

static void go_up(struct plan_build *b, const struct family *f, int chunk, int channel)
{
    build_lane(b);
    if (f->parent >= 0) {
        int send = build_send_to(b, f->parent, channel);
        if (f->children == 0) {
            gen_send(b, PLAN_IN, chunk, 1, send);
            return;
        }
        reduce_children(b, f, PLAN_RECV_REDUCE_SEND, chunk, false, channel);
        build_on_send(b, send);
        return;
    }
    bool turn = b->plan->coll != UNO_REDUCE; /* the finished sum goes down at once */
    reduce_children(b, f, turn ? PLAN_RECV_REDUCE_COPY_SEND : PLAN_RECV_REDUCE_COPY, chunk, true, channel);
    build_flags(b, PLAN_COMPLETES);
    if (turn)
        build_on_send(b, build_send_to(b, f->child[0], channel));
}

static void go_down(struct plan_build *b, const struct family *f, int chunk, int channel)
{
    if (f->parent < 0 && b->plan->coll != UNO_BROADCAST)
        return; /* the top has turned it round already */
    build_lane(b);
    if (f->parent < 0) {
        gen_send(b, PLAN_IN, chunk, 1, build_send_to(b, f->child[0], channel));
        gen_copy(b, chunk, chunk, 1);
        return;
    }
    int recv = build_recv_from(b, f->parent, channel);
    if (f->children == 0)
        gen_recv(b, PLAN_OUT, chunk, 1, recv);
    for (int i = 0; i < f->children; i++)
        if (i == 0)
            gen_recv_copy_send(b, PLAN_OUT, chunk, 1, recv, build_send_to(b, f->child[i], channel));
        else
            gen_send(b, PLAN_OUT, chunk, 1, build_send_to(b, f->child[i], channel));
}

/* ---- gather and scatter: rank r hangs below r without its lowest bit, and serves ranks r .. r + span - 1 -------- */

static int lowest_bit(int r, int n) { return r ? r & -r : n; }

static int span(int r, int n) { return MIN(lowest_bit(r, n), n - r); }

/* What comes from below, or goes there, passes through, block by block. */
static void pass_on(struct plan_build *b, int child, int recv, int send)
{
    gen_step(b, PLAN_RECV_SEND, PLAN_NONE, 0, PLAN_NONE, 0, span(child, b->plan->nranks));
    build_shape(b, child);
    build_on_recv(b, recv);
    build_on_send(b, send);
}

static void keep_own(struct plan_build *b)
{
    if (b->prog->rank == 0) {
        build_lane(b);
        gen_copy(b, 0, 0, 1);
    }
}

static void binomial_gather(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank;
    int send = r ? build_send_to(b, r - lowest_bit(r, n), 0) : -1;
    if (r) {
        build_lane(b);
        gen_send(b, PLAN_IN, 0, 1, send);
    }
    for (int step = 1; step < lowest_bit(r, n) && r + step < n; step *= 2) {
        int child = r + step, recv = build_recv_from(b, child, 0);
        if (r) {
            pass_on(b, child, recv, send);
        } else {
            build_lane(b);
            gen_recv(b, PLAN_OUT, child, span(child, n), recv);
        }
    }
    keep_own(b);
}

static void binomial_scatter(struct plan_build *b)
{
    int n = b->plan->nranks, r = b->prog->rank;
    int recv = r ? build_recv_from(b, r - lowest_bit(r, n), 0) : -1;
    if (r) {
        build_lane(b);
        gen_recv(b, PLAN_OUT, 0, 1, recv);
    }
    for (int step = 1; step < lowest_bit(r, n) && r + step < n; step *= 2) {
        int child = r + step, send = build_send_to(b, child, 0);
        if (r) {
            pass_on(b, child, recv, send);
        } else {
            build_lane(b);
            gen_send(b, PLAN_IN, child, span(child, n), send);
        }
    }
    keep_own(b);
}

uno_err planner_tree_generate(const struct plan *plan, int rank, struct plan_prog *prog)
{
    struct plan_build b;
    build_begin(&b, plan, rank, prog);
    if (plan->coll == UNO_GATHER)
        binomial_gather(&b);
    else if (plan->coll == UNO_SCATTER)
        binomial_scatter(&b);
    else
        for (int chunk = 0; chunk < plan->parts; chunk++) { /* chunk, tree and channel go together */
            struct family f = family_of(chunk % 2, rank, plan->nranks);
            if (plan->coll != UNO_BROADCAST)
                go_up(&b, &f, chunk, chunk);
            if (plan->coll != UNO_REDUCE)
                go_down(&b, &f, chunk, chunk);
        }
    return build_end(&b, 0);
}
