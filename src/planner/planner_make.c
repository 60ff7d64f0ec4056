/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_make.c - the table of generators, and making a plan from one of them. Called by choosing, by `unisono plan make`
 * and by tests.
 */
#include "planner_gen.h"

#include <stdlib.h>
#include <string.h>

#define BIT(coll) (1u << UNO_##coll)

/* Channels are parallel copies; only the ring and the tree have them. */
static bool one_channel(const struct plan_params *p)
{
    if (p->channels == 1)
        return true;
    err_set(UNO_ERR_UNSUPPORTED, "%s has one channel, not %d; ring and tree can have more", p->algo, p->channels);
    return false;
}

static bool some_channels(const struct plan_params *p)
{
    /* both ways of a chunk, or both trees, have a connection each */
    bool one_tree = p->coll == UNO_GATHER || p->coll == UNO_SCATTER || p->coll == UNO_BARRIER;
    bool two_each = p->coll == UNO_ALL_REDUCE || strcmp(p->algo, "tree") == 0;
    int most = one_tree ? 1 : two_each ? GEN_MAX_CHANNELS / 2 : GEN_MAX_CHANNELS;
    if (p->channels <= most)
        return true;
    err_set(UNO_ERR_UNSUPPORTED, "%s has at most %d channel%s for %s, not %d", p->algo, most, most == 1 ? "" : "s",
            coll_name(p->coll), p->channels);
    return false;
}

/* The order breaks ties of predicted cost. */
const struct planner_algo planner_algos[] = {
    {"flat", BIT(ALL_REDUCE) | BIT(BROADCAST) | BIT(REDUCE) | BIT(ALL_GATHER) | BIT(REDUCE_SCATTER) | BIT(ALL_TO_ALL) |
             BIT(GATHER) | BIT(SCATTER) | BIT(BARRIER), one_channel, planner_flat_parts, planner_flat_generate,
     "one round: every rank sends to every rank that needs it; lowest latency"},
    {"flat2", BIT(ALL_REDUCE) | BIT(BROADCAST) | BIT(REDUCE), one_channel, planner_flat2_parts, planner_flat2_generate,
     "two rounds: each rank works on its share of the data, then the shares are exchanged"},
    {"ring", BIT(ALL_REDUCE) | BIT(BROADCAST) | BIT(REDUCE) | BIT(ALL_GATHER) | BIT(REDUCE_SCATTER), some_channels,
     planner_ring_parts, planner_ring_generate,
     "every rank sends to the next only; least bytes, latency grows with the number of ranks"},
    {"tree", BIT(ALL_REDUCE) | BIT(BROADCAST) | BIT(REDUCE) | BIT(GATHER) | BIT(SCATTER) | BIT(BARRIER), some_channels,
     planner_tree_parts, planner_tree_generate,
     "double binary tree (one for barrier, binomial for gather and scatter); latency grows with the logarithm of the ranks"},
    {"hd", BIT(ALL_REDUCE) | BIT(BROADCAST) | BIT(REDUCE) | BIT(ALL_GATHER) | BIT(REDUCE_SCATTER) | BIT(BARRIER), one_channel,
     planner_hd_parts, planner_hd_generate, "recursive halving and doubling; logarithmically many rounds and few bytes"},
    {"two_level", BIT(ALL_REDUCE) | BIT(BROADCAST) | BIT(REDUCE) | BIT(ALL_GATHER) | BIT(REDUCE_SCATTER) | BIT(ALL_TO_ALL) |
                  BIT(GATHER) | BIT(SCATTER) | BIT(BARRIER), planner_two_level_fits, planner_two_level_parts,
     planner_two_level_generate,
     "inside hosts, between hosts (few ranks of each talk to few of the others), inside hosts; needs several ranks on a host"},
};
const int planner_algo_count = ARRAY_LEN(planner_algos);

static const struct planner_algo *find_algo(const char *name)
{
    for (int i = 0; i < planner_algo_count; i++)
        if (strncmp(planner_algos[i].name, name, sizeof((struct plan_params *)0)->algo) == 0)
            return &planner_algos[i];
    return NULL;
}

static uno_err unknown_algo(const char *name)
{
    struct text legal = {0};
    for (int i = 0; i < planner_algo_count; i++)
        text_add(&legal, " %s", planner_algos[i].name);
    uno_err err = err_set(UNO_ERR_ARG, "\"%.15s\" is not an algorithm; legal are%s", name, legal.s ? legal.s : "");
    text_free(&legal);
    return err;
}

static uno_err unfit_coll(const struct planner_algo *algo, uno_coll coll)
{
    struct text others = {0};
    for (int i = 0; i < planner_algo_count; i++)
        if (planner_algos[i].colls & 1u << coll)
            text_add(&others, " %s", planner_algos[i].name);
    uno_err err = err_set(UNO_ERR_UNSUPPORTED, "%s has no plan for %s; these have:%s", algo->name, coll_name(coll),
                          others.s ? others.s : " none (V forms use the plain collective's plan)");
    text_free(&others);
    return err;
}

static uno_err check_params(const struct plan_params *p, const struct planner_algo **algo)
{
    *algo = find_algo(p->algo);
    if (!*algo)
        return unknown_algo(p->algo);
    if ((unsigned)p->coll >= UNO_COLL_COUNT)
        return err_set(UNO_ERR_ARG, "%d is not a collective", (int)p->coll);
    if (p->nranks < 1)
        return err_set(UNO_ERR_ARG, "a plan needs at least 1 rank, not %d", p->nranks);
    if (p->channels < 1 || p->channels > GEN_MAX_CHANNELS)
        return err_set(UNO_ERR_ARG, "a plan has 1 to %d channels, not %d", GEN_MAX_CHANNELS, p->channels);
    if (p->root < 0 || p->root >= p->nranks)
        return err_set(UNO_ERR_ARG, "root %d is not one of the ranks 0 to %d", p->root, p->nranks - 1);
    if (!((*algo)->colls & 1u << p->coll))
        return unfit_coll(*algo, p->coll);
    if (p->root != 0 && coll_has_root(p->coll) && strcmp(p->algo, "flat") != 0 && strcmp(p->algo, "two_level") != 0)
        return err_set(UNO_ERR_UNSUPPORTED, "%s is made for root 0; ranks are renumbered for root %d", p->algo, p->root);
    return (*algo)->fits && !(*algo)->fits(p) ? UNO_ERR_UNSUPPORTED : UNO_OK;
}

/* One rank: the own contribution is the result. */
static uno_err alone_generate(const struct plan *plan, int rank, struct plan_prog *prog)
{
    struct plan_build b;
    build_begin(&b, plan, rank, prog);
    gen_copy(&b, 0, 0, plan->parts);
    if (plan->needs_reduce)
        build_flags(&b, PLAN_COMPLETES);
    return build_end(&b, 0);
}

static id128 params_id(const struct plan_params *p, const int *host_of)
{
    char name[sizeof p->algo] = {0};
    snprintf(name, sizeof name, "%s", p->algo);
    int64_t words[] = {p->coll, p->nranks, p->channels, p->root};
    id128 a = hash128(name, sizeof name, 1), b = hash128(words, sizeof words, a.lo);
    id128 c = hash128(host_of, (size_t)p->nranks * sizeof *host_of, b.lo);
    return (id128){hash_mix(b.lo, c.lo), hash_mix(b.hi ^ a.hi, c.hi)};
}

/* Hosts numbered in the order in which ranks meet them, so that equal placements give equal ids. */
static uno_err number_hosts(struct plan *plan, const int *host_of)
{
    plan->host_of = mem_array((size_t)plan->nranks, sizeof *plan->host_of);
    if (!plan->host_of)
        return UNO_ERR_MEMORY;
    int hosts = 0;
    for (int r = 0; host_of && r < plan->nranks; r++) {
        int same = 0;
        while (same < r && host_of[same] != host_of[r])
            same++;
        plan->host_of[r] = same < r ? plan->host_of[same] : hosts++;
    }
    return UNO_OK;
}

/* Connections tell which channels a plan uses. Rank 0's suffice where all ranks use the same; two_level has two. */
static uno_err count_channels(struct plan *plan)
{
    struct plan_prog prog;
    TRY(plan_rank(plan, 0, &prog));
    plan->channels = strcmp(plan->params.algo, "two_level") == 0 ? 2 : 1;
    for (int i = 0; i < prog.nsends; i++)
        plan->channels = MAX(plan->channels, prog.sends[i].channel + 1);
    for (int i = 0; i < prog.nrecvs; i++)
        plan->channels = MAX(plan->channels, prog.recvs[i].channel + 1);
    plan_prog_free(&prog);
    return UNO_OK;
}

uno_err planner_make(const struct plan_params *params, struct plan **plan_out)
{
    const struct planner_algo *algo;
    *plan_out = NULL;
    TRY(check_params(params, &algo));
    struct plan *plan = mem_zalloc(sizeof *plan);
    if (!plan)
        return UNO_ERR_MEMORY;
    plan->coll = params->coll;
    plan->nranks = params->nranks;
    plan->root = coll_has_root(params->coll) ? params->root : 0;
    plan->in_place_ok = params->coll != UNO_ALL_TO_ALL;
    plan->out_of_place_ok = true;
    plan->needs_reduce = coll_reduces(params->coll) || params->coll == UNO_BARRIER;
    plan->k_claimed = 2;
    plan->generate = params->nranks == 1 ? alone_generate : algo->generate;
    plan->params = *params;
    plan->params.root = plan->root;
    snprintf(plan->params.algo, sizeof plan->params.algo, "%s", algo->name);
    snprintf(plan->name, sizeof plan->name, "%s", algo->name);
    uno_err err = number_hosts(plan, params->host_of);
    if (err == UNO_OK) {
        plan->params.host_of = plan->host_of;
        plan->id = params_id(&plan->params, plan->host_of);
        plan->parts = algo->parts(&plan->params);
        err = plan->parts > 0 ? count_channels(plan) : UNO_ERR_MEMORY;
    }
    if (err != UNO_OK) {
        plan_free(plan);
        return err;
    }
    *plan_out = plan;
    return UNO_OK;
}
