/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_hd.c - the generator "hd": recursive halving and doubling. Few rounds and few bytes. With p the largest power of two
 * in n, the e = n - p excess ranks p + i fold onto rank i: they hand in what they have and get the result back.
 *
 * Two lanes: one receives, in the order of the rounds, the other sends, each round after what it sends has come. Sending
 * never holds up receiving, so one slot a connection suffices. Blocks are numbered by rank; block p + i belongs to fold i,
 * so a range of folds [lo, lo + m) is one or two ranges of blocks.
 */
#include "planner_gen.h"

struct hd {
    struct plan_build *b;
    int n, p, excess, r;
    bool blocks;             /* block p + i travels with block i (reduce_scatter, all_gather) */
    bool folded;             /* rank p + r exists */
    int receiving;           /* number of the receiving lane */
    int last;                /* its step that the next send waits for; -1 = none */
};

static int largest_power(int n)
{
    int p = 1;
    while (p <= n / 2)
        p *= 2;
    return p;
}

int planner_hd_parts(const struct plan_params *p)
{
    return p->coll == UNO_ALL_REDUCE || p->coll == UNO_BROADCAST || p->coll == UNO_REDUCE ? largest_power(p->nranks) : 1;
}

static int aligned(int r, int mask) { return r & ~(mask - 1); }

/* Second range of blocks that travels with folds [lo, lo + mask): its length. */
static int excess_blocks(const struct hd *h, int lo, int mask)
{
    return h->blocks ? MAX(0, MIN(lo + mask, h->excess) - lo) : 0;
}

static void send_range(struct hd *h, enum plan_buf buf, int first, int count, int peer)
{
    if (count <= 0)
        return;
    gen_send(h->b, buf, first, count, build_send_to(h->b, peer, 0));
    build_shape(h->b, first);
    if (h->last >= 0)
        build_wait(h->b, h->receiving, h->last);
}

static void send_folds(struct hd *h, enum plan_buf buf, int lo, int mask, int peer)
{
    send_range(h, buf, lo, mask, peer);
    send_range(h, buf, h->p + lo, excess_blocks(h, lo, mask), peer);
}

static int recv_range(struct hd *h, enum plan_buf buf, int first, int count, int peer)
{
    int step = gen_recv(h->b, buf, first, count, build_recv_from(h->b, peer, 0));
    build_shape(h->b, first);
    return step;
}

static int recv_folds(struct hd *h, enum plan_buf buf, int lo, int mask, int peer)
{
    int step = recv_range(h, buf, lo, mask, peer);
    int more = excess_blocks(h, lo, mask);
    return more ? recv_range(h, buf, h->p + lo, more, peer) : step;
}

static int reduce_range(struct hd *h, enum plan_buf src, enum plan_buf dst, int first, int dst_first, int count, int peer,
                        bool completes)
{
    int step = gen_step(h->b, PLAN_RECV_REDUCE_COPY, src, first, dst, dst_first, count);
    build_shape(h->b, first);
    build_on_recv(h->b, build_recv_from(h->b, peer, 0));
    build_self(h->b, peer < h->r);
    build_flags(h->b, completes ? PLAN_COMPLETES : 0);
    return step;
}

/* ---- halving: partial sums are kept in `acc`; steps[i] = last step of round i ----------------------------- */

#define ROUNDS 31

static int halving_receive(struct hd *h, enum plan_buf acc, int steps[ROUNDS])
{
    int round = 0;
    if (h->folded)
        steps[round++] = reduce_range(h, PLAN_IN, acc, 0, 0, h->blocks ? h->n : h->p, h->p + h->r, false);
    for (int mask = h->p / 2; mask >= 1; mask /= 2, round++) {
        enum plan_buf src = round ? acc : PLAN_IN;
        int lo = aligned(h->r, mask), peer = h->r ^ mask;
        bool own = h->blocks && mask == 1; /* reduce_scatter: the own block is the output */
        steps[round] = reduce_range(h, src, own ? PLAN_OUT : acc, lo, own ? 0 : lo, mask, peer, mask == 1);
        int more = excess_blocks(h, lo, mask);
        if (more)
            steps[round] = reduce_range(h, src, acc, h->p + lo, h->p + lo, more, peer, mask == 1);
    }
    return round;
}

static void halving_send(struct hd *h, enum plan_buf acc, const int steps[ROUNDS])
{
    int round = 0;
    h->last = -1;
    if (h->folded)
        h->last = steps[round++];
    for (int mask = h->p / 2; mask >= 1; mask /= 2) {
        send_folds(h, round ? acc : PLAN_IN, aligned(h->r ^ mask, mask), mask, h->r ^ mask);
        h->last = steps[round++];
    }
}

/* ---- collectives ----------------------------------------------------------------------------------------------- */

static void hd_all_reduce(struct hd *h)
{
    struct plan_build *b = h->b;
    int steps[ROUNDS], doubling[ROUNDS], round = 0;
    h->receiving = build_lane(b);
    if (h->r >= h->p) {
        recv_range(h, PLAN_OUT, 0, h->p, h->r - h->p);
        build_lane(b);
        send_range(h, PLAN_IN, 0, h->p, h->r - h->p);
        return;
    }
    halving_receive(h, PLAN_OUT, steps);
    for (int mask = 1; mask < h->p; mask *= 2)
        doubling[round++] = recv_range(h, PLAN_OUT, aligned(h->r ^ mask, mask), mask, h->r ^ mask);
    build_lane(b);
    halving_send(h, PLAN_OUT, steps);
    round = 0;
    for (int mask = 1; mask < h->p; mask *= 2) {
        send_range(h, PLAN_OUT, aligned(h->r, mask), mask, h->r ^ mask);
        h->last = doubling[round++];
    }
    if (h->folded)
        send_range(h, PLAN_OUT, 0, h->p, h->p + h->r);
}

static void hd_reduce_scatter(struct hd *h)
{
    struct plan_build *b = h->b;
    int steps[ROUNDS];
    h->blocks = true;
    h->receiving = build_lane(b);
    if (h->r >= h->p) {
        gen_recv(b, PLAN_OUT, 0, 1, build_recv_from(b, h->r - h->p, 0));
        build_lane(b);
        send_range(h, PLAN_IN, 0, h->n, h->r - h->p);
        return;
    }
    halving_receive(h, PLAN_SCRATCH, steps);
    build_lane(b);
    halving_send(h, PLAN_SCRATCH, steps);
    if (h->folded)
        send_range(h, PLAN_SCRATCH, h->p + h->r, 1, h->p + h->r);
}

static void hd_all_gather(struct hd *h)
{
    struct plan_build *b = h->b;
    int doubling[ROUNDS], round = 0;
    h->blocks = true;
    h->receiving = build_lane(b);
    h->last = gen_copy(b, 0, h->r, 1);
    if (h->r >= h->p) {
        int peer = h->r - h->p;
        recv_range(h, PLAN_OUT, 0, h->r, peer);
        if (h->r + 1 < h->n)
            recv_range(h, PLAN_OUT, h->r + 1, h->n - h->r - 1, peer);
        build_lane(b);
        gen_send(b, PLAN_IN, 0, 1, build_send_to(b, peer, 0));
        return;
    }
    if (h->folded)
        h->last = recv_range(h, PLAN_OUT, h->p + h->r, 1, h->p + h->r);
    for (int mask = 1; mask < h->p; mask *= 2)
        doubling[round++] = recv_folds(h, PLAN_OUT, aligned(h->r ^ mask, mask), mask, h->r ^ mask);
    build_lane(b);
    round = 0;
    for (int mask = 1; mask < h->p; mask *= 2) {
        send_folds(h, PLAN_OUT, aligned(h->r, mask), mask, h->r ^ mask);
        h->last = doubling[round++];
    }
    if (h->folded) {
        int guest = h->p + h->r;
        send_range(h, PLAN_OUT, 0, guest, guest);
        send_range(h, PLAN_OUT, guest + 1, h->n - guest - 1, guest);
    }
}

/* Virtual root 0 deals halves down, then ranges double; whoever passed a range down in the first part has it already. */
static void hd_broadcast(struct hd *h)
{
    struct plan_build *b = h->b;
    int p = h->p, r = h->r, low = r ? r & -r : p, doubling[ROUNDS], round = 0;
    enum plan_buf buf = r ? PLAN_OUT : PLAN_IN;
    h->receiving = build_lane(b);
    if (r >= p) {
        recv_range(h, PLAN_OUT, 0, p, r - p);
        return;
    }
    h->last = r ? recv_range(h, PLAN_OUT, r, low, r - low) : -1;
    if (r == 0)
        gen_copy(b, 0, 0, p);
    int latest = h->last;
    for (int mask = 1; mask < p; mask *= 2) {
        if (r % (2 * mask))
            latest = recv_range(h, PLAN_OUT, aligned(r ^ mask, mask), mask, r ^ mask);
        doubling[round++] = latest;
    }
    build_lane(b);
    for (int mask = low / 2; mask >= 1; mask /= 2)
        send_range(h, buf, r + mask, mask, r + mask);
    round = 0;
    for (int mask = 1; mask < p; mask *= 2) {
        if ((r ^ mask) % (2 * mask))
            send_range(h, buf, aligned(r, mask), mask, r ^ mask);
        h->last = doubling[round++];
    }
    if (h->folded)
        send_range(h, buf, 0, p, p + r);
}

/* Halving, then the finished ranges are collected up to virtual root 0. */
static void hd_reduce(struct hd *h)
{
    struct plan_build *b = h->b;
    int p = h->p, r = h->r, low = r ? r & -r : p, steps[ROUNDS];
    enum plan_buf acc = r ? PLAN_SCRATCH : PLAN_OUT;
    if (r >= p) {
        build_lane(b);
        send_range(h, PLAN_IN, 0, p, r - p);
        return;
    }
    h->receiving = build_lane(b);
    int rounds = halving_receive(h, acc, steps), latest = steps[rounds - 1];
    for (int mask = 1; mask < low; mask *= 2)
        latest = recv_range(h, acc, r + mask, mask, r + mask);
    build_lane(b);
    halving_send(h, acc, steps);
    h->last = latest;
    if (r)
        send_range(h, acc, r, low, r - low);
}

/* Barrier: p ranks double what they know; the sums of no data stand for "has entered". */
static void hd_barrier(struct hd *h)
{
    struct plan_build *b = h->b;
    int held = 0;
    build_lane(b);
    if (h->r >= h->p) {
        send_range(h, PLAN_IN, 0, 1, h->r - h->p);
        recv_range(h, PLAN_OUT, 0, 1, h->r - h->p);
        return;
    }
    if (h->folded)
        reduce_range(h, PLAN_IN, PLAN_SCRATCH, 0, 0, 1, h->p + h->r, false);
    else
        gen_step(b, PLAN_COPY, PLAN_IN, 0, PLAN_SCRATCH, 0, 1);
    for (int mask = 1; mask < h->p; mask *= 2, held++) {
        int peer = h->r ^ mask;
        bool end = mask * 2 == h->p;
        gen_send(b, PLAN_SCRATCH, held, 1, build_send_to(b, peer, 0));
        gen_step(b, PLAN_RECV_REDUCE_COPY, PLAN_SCRATCH, held, end ? PLAN_OUT : PLAN_SCRATCH, end ? 0 : held + 1, 1);
        build_shape(b, 0);
        build_on_recv(b, build_recv_from(b, peer, 0));
        build_self(b, peer < h->r);
        build_flags(b, end ? PLAN_COMPLETES : 0);
    }
    if (h->folded)
        send_range(h, PLAN_OUT, 0, 1, h->p + h->r);
}

static int scratch_needed(const struct hd *h, uno_coll coll)
{
    if (h->r >= h->p)
        return 0;
    if (coll == UNO_REDUCE_SCATTER)
        return h->n;
    if (coll == UNO_BARRIER)
        return __builtin_ctz((unsigned)h->p) + 1; /* one more than the rounds */
    return coll == UNO_REDUCE && h->r ? h->p : 0;
}

uno_err planner_hd_generate(const struct plan *plan, int rank, struct plan_prog *prog)
{
    struct plan_build b;
    int n = plan->nranks, p = largest_power(n);
    struct hd h = {.b = &b, .n = n, .p = p, .excess = n - p, .r = rank, .folded = rank < n - p, .last = -1};
    build_begin(&b, plan, rank, prog);
    switch (plan->coll) {
    case UNO_ALL_REDUCE: hd_all_reduce(&h); break;
    case UNO_REDUCE_SCATTER: hd_reduce_scatter(&h); break;
    case UNO_ALL_GATHER: hd_all_gather(&h); break;
    case UNO_BROADCAST: hd_broadcast(&h); break;
    case UNO_REDUCE: hd_reduce(&h); break;
    case UNO_BARRIER: hd_barrier(&h); break;
    default: break;
    }
    return build_end(&b, scratch_needed(&h, plan->coll));
}
