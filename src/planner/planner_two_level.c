/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_two_level.c - the generator "two_level": inside hosts, between hosts, inside hosts. The data is shared out over as
 * many leaders a host as the smallest host has ranks, so that all of them use the links; leader l of a host talks to
 * leaders l of the others. Blocks (all_gather, reduce_scatter) go by local number instead: what belongs to local rank l
 * is brought into a host by its local rank l modulo its size.
 *
 * A connection that carries several messages a tile has a lane of its own at its receiver, and one at its sender unless all
 * of its receivers consume in one order; with a single slot two shared lanes could wait for each other.
 */
#include "planner_places.h"

int planner_two_level_parts(const struct plan_params *params)
{
    if (params->coll >= UNO_ALL_GATHER)
        return 1; /* blocks, and the barrier, are not cut */
    struct plan plan = {.nranks = params->nranks, .host_of = (int *)params->host_of};
    struct places p;
    if (places_make(&p, &plan, 0) != UNO_OK)
        return 0;
    int parts = params->coll == UNO_ALL_REDUCE ? p.least * p.hosts : p.least;
    places_free(&p);
    return parts;
}

bool planner_two_level_fits(const struct plan_params *p)
{
    bool several = false, shared = false;
    for (int r = 1; p->host_of && r < p->nranks; r++) {
        several = several || p->host_of[r] != p->host_of[0];
        for (int q = 0; q < r && !shared; q++)
            shared = p->host_of[q] == p->host_of[r];
    }
    if (p->channels == 1 && several && shared)
        return true;
    err_set(UNO_ERR_UNSUPPORTED, p->channels > 1 ? "two_level has one channel"
                                                 : "two_level needs ranks on several hosts, and several on one of them");
    return false;
}

/* ---- steps that several of them have ------------------------------------------------------------------------ */

/* Receive `chunk` and pass it on inside the host, if somebody else is there. */
static void bring_in(struct places *p, int chunk, int recv, int inside)
{
    if (inside >= 0)
        gen_recv_copy_send(&p->b, PLAN_OUT, chunk, 1, recv, inside);
    else
        gen_recv(&p->b, PLAN_OUT, chunk, 1, recv);
}

/* The sum of this host's contributions to `chunk`, sent to rank `to`. */
static void sum_inside(struct places *p, int chunk, int to)
{
    int send = build_send_to(&p->b, to, 0);
    if (p->size == 1) {
        gen_send(&p->b, PLAN_IN, chunk, 1, send);
        return;
    }
    gen_step(&p->b, PLAN_RECV_REDUCE_SEND, PLAN_IN, chunk, PLAN_NONE, 0, 1);
    places_operands_inside(p);
    build_on_send(&p->b, send);
}

/* ---- all_reduce: chunk l * hosts + h is finished by leader l of host h ---------------------------------------- */

static void all_reduce_leader(struct places *p)
{
    struct plan_build *b = &p->b;
    int hosts = p->hosts, first = p->local * hosts, mine = first + p->host, summing = -1, summed = -1;
    int lane = build_lane(b); /* sums of this host, away ones first */
    for (int i = 1; i < hosts; i++) {
        int h = (p->host + i) % hosts;
        sum_inside(p, first + h, rank_at(p, h, p->local));
    }
    if (p->size > 1) {
        summing = lane;
        summed = gen_step(b, PLAN_RECV_REDUCE_COPY, PLAN_IN, mine, PLAN_OUT, mine, 1);
        places_operands_inside(p);
    }
    int finishing = build_lane(b); /* the own chunk: sum of all hosts, sent to its like elsewhere */
    gen_step(b, PLAN_RECV_REDUCE_COPY_SEND, p->size > 1 ? PLAN_OUT : PLAN_IN, mine, PLAN_OUT, mine, 1);
    build_flags(b, PLAN_COMPLETES);
    places_operands_between(p, p->local);
    build_on_send(b, build_send_to(b, rank_at(p, (p->host + 1) % hosts, p->local), 1));
    if (summing >= 0)
        build_wait(b, summing, summed);
    for (int i = 2; i < hosts; i++)
        gen_send(b, PLAN_OUT, mine, 1, build_send_to(b, rank_at(p, (p->host + i) % hosts, p->local), 1));
    int inside = places_send_inside(p);
    build_lane(b); /* finished chunks, own first, go round the host */
    if (inside >= 0) {
        gen_send(b, PLAN_OUT, mine, 1, inside);
        build_wait(b, finishing, 0);
    }
    for (int i = 1; i < hosts; i++) {
        int h = (p->host + i) % hosts;
        bring_in(p, first + h, build_recv_from(b, rank_at(p, h, p->local), 1), inside);
    }
}

static void two_level_all_reduce(struct places *p)
{
    struct plan_build *b = &p->b;
    int hosts = p->hosts;
    for (int l = 0; l < p->least; l++) { /* raw to the leaders, in the order in which they sum: own host's chunk last */
        if (l == p->local)
            continue;
        int send = build_send_to(b, rank_at(p, p->host, l), 0), after = hosts - 1 - p->host;
        build_lane(b);
        if (after > 0)
            gen_send(b, PLAN_IN, l * hosts + p->host + 1, after, send);
        gen_send(b, PLAN_IN, l * hosts, p->host + 1, send);
    }
    if (p->local < p->least)
        all_reduce_leader(p);
    for (int l = 0; l < p->least; l++)
        if (l != p->local) {
            int recv = places_recv_inside(p, l);
            build_lane(b);
            gen_recv(b, PLAN_OUT, l * hosts + p->host, hosts - p->host, recv);
            if (p->host > 0)
                gen_recv(b, PLAN_OUT, l * hosts, p->host, recv);
        }
}

/* ---- reduce_scatter, all_gather ------------------------------------------------------------------------------------ */

static void two_level_reduce_scatter(struct places *p)
{
    struct plan_build *b = &p->b;
    int summing = -1, summed = -1;
    for (int l = 0; l < p->size; l++) {
        if (l == p->local)
            continue;
        int send = build_send_to(b, rank_at(p, p->host, l), 0);
        build_lane(b);
        for (int t = 0; t < p->n; t++)
            if (p->nth[t] % p->size == l)
                gen_send(b, PLAN_IN, t, 1, send);
    }
    int lane = build_lane(b);
    for (int t = 0; t < p->n; t++) {
        if (p->nth[t] % p->size != p->local)
            continue;
        if (b->plan->host_of[t] != p->host) {
            sum_inside(p, t, t);
        } else if (p->size > 1) {
            summing = lane;
            summed = gen_step(b, PLAN_RECV_REDUCE_COPY, PLAN_IN, t, PLAN_SCRATCH, 0, 1);
            build_shape(b, t);
            places_operands_inside(p);
        }
    }
    build_lane(b);
    gen_step(b, PLAN_RECV_REDUCE_COPY, p->size > 1 ? PLAN_SCRATCH : PLAN_IN, p->size > 1 ? 0 : p->r, PLAN_OUT, 0, 1);
    build_flags(b, PLAN_COMPLETES);
    places_operands_between(p, p->local);
    if (summing >= 0)
        build_wait(b, summing, summed);
}

static void two_level_all_gather(struct places *p)
{
    struct plan_build *b = &p->b;
    build_lane(b);
    for (int i = 1; i < p->hosts; i++) {
        int h = (p->host + i) % p->hosts;
        gen_send(b, PLAN_IN, 0, 1, build_send_to(b, rank_at(p, h, p->local % host_size(p, h)), 0));
    }
    gen_copy(b, 0, p->r, 1);
    int inside = places_send_inside(p);
    build_lane(b);
    if (inside >= 0)
        gen_send(b, PLAN_IN, 0, 1, inside);
    for (int t = 0; t < p->n; t++)
        if (b->plan->host_of[t] != p->host && p->nth[t] % p->size == p->local)
            bring_in(p, t, build_recv_from(b, t, 0), inside);
    for (int l = 0; l < p->size; l++) {
        if (l == p->local)
            continue;
        int recv = places_recv_inside(p, l);
        build_lane(b);
        gen_recv(b, PLAN_OUT, rank_at(p, p->host, l), 1, recv);
        for (int t = 0; t < p->n; t++)
            if (b->plan->host_of[t] != p->host && p->nth[t] % p->size == l)
                gen_recv(b, PLAN_OUT, t, 1, recv);
    }
}

/* ---- broadcast, reduce: chunk l is leader l's ------------------------------------------------------------------------ */

/* A leader's chunk to its likes on the other hosts, once step `got` of `lane` has it (lane < 0: it is there). */
static void send_to_likes(struct places *p, enum plan_buf buf, int lane, int got)
{
    build_lane(&p->b);
    for (int i = 1; i < p->hosts; i++) {
        gen_send(&p->b, buf, p->local, 1, build_send_to(&p->b, rank_at(p, (p->host + i) % p->hosts, p->local), 0));
        if (i == 1 && lane >= 0)
            build_wait(&p->b, lane, got);
    }
}

static void two_level_broadcast(struct places *p)
{
    struct plan_build *b = &p->b;
    int root = b->plan->root, home = b->plan->host_of[root], leaders = p->least;
    bool leader = p->local < leaders;
    if (p->r == root) {
        if (leader)
            send_to_likes(p, PLAN_IN, -1, 0);
        int inside = places_send_inside(p);
        build_lane(b);
        if (inside >= 0)
            gen_send(b, PLAN_IN, 0, leaders, inside);
        gen_copy(b, 0, 0, leaders);
    } else if (p->host == home) { /* all from the root; a leader's own chunk is a step of its own, to wait for */
        int recv = places_recv_inside(p, p->nth[root]), lane = build_lane(b), got = 0;
        int before = leader ? p->local : leaders, after = leader ? leaders - p->local - 1 : 0;
        if (before > 0)
            gen_recv(b, PLAN_OUT, 0, before, recv);
        if (leader)
            got = gen_recv(b, PLAN_OUT, p->local, 1, recv);
        if (after > 0)
            gen_recv(b, PLAN_OUT, p->local + 1, after, recv);
        if (leader)
            send_to_likes(p, PLAN_OUT, lane, got);
    } else {
        if (leader) {
            int inside = places_send_inside(p);
            build_lane(b);
            bring_in(p, p->local, build_recv_from(b, rank_at(p, home, p->local), 0), inside);
        }
        for (int l = 0; l < leaders; l++)
            if (l != p->local) {
                int recv = places_recv_inside(p, l);
                build_lane(b);
                gen_recv(b, PLAN_OUT, l, 1, recv);
            }
    }
}

/* Leaders of the root's host add the other hosts' sums to the raw contributions of their own in one pass. */
static void reduce_at_home(struct places *p)
{
    struct plan_build *b = &p->b;
    bool here = p->r == b->plan->root;
    build_lane(b);
    gen_step(b, here ? PLAN_RECV_REDUCE_COPY : PLAN_RECV_REDUCE_SEND, PLAN_IN, p->local, here ? PLAN_OUT : PLAN_NONE,
             here ? p->local : 0, 1);
    build_flags(b, PLAN_COMPLETES);
    places_operands_inside(p);
    for (int h = 0; h < p->hosts; h++)
        if (h != p->host)
            build_on_recv(b, build_recv_from(b, rank_at(p, h, p->local), 0));
    if (!here)
        build_on_send(b, build_send_to(b, b->plan->root, 1));
}

static void two_level_reduce(struct places *p)
{
    struct plan_build *b = &p->b;
    int root = b->plan->root, home = b->plan->host_of[root], leaders = p->least;
    if (leaders > 1 || p->local != 0)
        build_lane(b);
    for (int i = 0; i < leaders; i++) {
        int l = (p->local + 1 + i) % leaders;
        if (l != p->local)
            gen_send(b, PLAN_IN, l, 1, build_send_to(b, rank_at(p, p->host, l), 0));
    }
    if (p->local < leaders && p->host == home) {
        reduce_at_home(p);
    } else if (p->local < leaders) {
        build_lane(b);
        sum_inside(p, p->local, rank_at(p, home, p->local));
    }
    if (p->r == root && (leaders > 1 || p->local != 0)) {
        build_lane(b);
        for (int l = 0; l < leaders; l++)
            if (l != p->local)
                gen_recv(b, PLAN_OUT, l, 1, build_recv_from(b, rank_at(p, home, l), 1));
    }
}

uno_err planner_two_level_generate(const struct plan *plan, int rank, struct plan_prog *prog)
{
    struct places p;
    *prog = (struct plan_prog){0};
    TRY(places_make(&p, plan, rank));
    build_begin(&p.b, plan, rank, prog);
    switch (plan->coll) {
    case UNO_ALL_REDUCE: two_level_all_reduce(&p); break;
    case UNO_REDUCE_SCATTER: two_level_reduce_scatter(&p); break;
    case UNO_ALL_GATHER: two_level_all_gather(&p); break;
    case UNO_BROADCAST: two_level_broadcast(&p); break;
    case UNO_REDUCE: two_level_reduce(&p); break;
    case UNO_ALL_TO_ALL: two_level_all_to_all(&p); break;
    case UNO_GATHER: two_level_gather(&p); break;
    case UNO_SCATTER: two_level_scatter(&p); break;
    case UNO_BARRIER: two_level_barrier(&p); break;
    default: break;
    }
    places_free(&p);
    bool summed = plan->coll == UNO_REDUCE_SCATTER || (plan->coll == UNO_BARRIER && p.local == 0);
    return build_end(&p.b, summed && p.size > 1 ? 1 : 0);
}
