/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.c - the entry point: how many tiles to run, and what a run of fewer says about all.
 */
#include "sim_engine.h"

#define SIM_MOST_FIRINGS 2000000 /* about a second; more tiles than that follow the rhythm of those before */
#define SIM_LEAST_TILES 16

static int host_of(const struct plan *plan, int rank)
{
    return plan->host_of ? plan->host_of[rank] : 0;
}

static void count_bytes(const struct plan_graph *g, const struct plan_chunks *chunks, struct sim_result *result)
{
    for (int m = 0; m < g->nmessages; m++) {
        const struct plan_link *link = &g->links[g->link_of[m]];
        uint64_t bytes = (uint64_t)chunks->len[g->nodes[g->sender[m]].shape] * chunks->elem_bytes;
        if (link->dst >= 0 && host_of(g->plan, link->src) != host_of(g->plan, link->dst))
            result->bytes_net += bytes;
        else
            result->bytes_shm += bytes * (uint64_t)link->readers;
    }
}

/* Run half and all of what fits; the difference is the pace at which the other tiles follow. */
static uno_err run_and_extend(struct sim_input *in, size_t fits, struct sim_result *result)
{
    uint64_t half, all;
    in->tiles = fits / 2;
    TRY(sim_engine_run(in, &half, &result->critical_rank));
    in->tiles = fits;
    TRY(sim_engine_run(in, &all, &result->critical_rank));
    uint64_t rest = mul_div(all - MIN(half, all), result->tiles - fits, fits - fits / 2);
    result->total_ps = rest > UINT64_MAX - all ? UINT64_MAX : all + rest;
    result->extrapolated = true;
    return UNO_OK;
}

static uno_err run(struct sim_input *in, struct sim_result *result)
{
    size_t fits = MAX(SIM_MOST_FIRINGS / (size_t)MAX(in->graph->nnodes, 1), SIM_LEAST_TILES);
    result->tiles = plan_tiles(in->chunks->max_len, in->tile_elems);
    if (result->tiles > fits)
        return run_and_extend(in, fits, result);
    in->tiles = result->tiles;
    return sim_engine_run(in, &result->total_ps, &result->critical_rank);
}

static uno_err run_plan(const struct plan_graph *g, const struct request *req, const struct sim_options *opt,
                        struct sim_result *result)
{
    struct plan_chunks chunks;
    TRY(plan_chunks_make(g->plan, req, 0, &chunks));
    struct sim_input in = {.graph = g, .chunks = &chunks, .costs = opt->costs,
                           .k = opt->k > 0 ? opt->k : MAX(g->plan->k_claimed, 1),
                           .scratch_tiles = opt->scratch_tiles > 0 ? opt->scratch_tiles : 2,
                           .tile_elems = MAX(opt->tile_bytes / chunks.elem_bytes, 1)};
    count_bytes(g, &chunks, result);
    uno_err err = run(&in, result);
    plan_chunks_free(&chunks);
    return err;
}

uno_err sim_run(const struct plan *plan, const struct request *req, const struct sim_options *opt, struct sim_result *result)
{
    *result = (struct sim_result){0};
    if (opt->tile_bytes == 0 || opt->costs.processors == 0)
        return err_set(UNO_ERR_ARG, "a simulation needs tiles of at least 1 byte and at least 1 processor a host");
    struct plan_graph g;
    struct plan_fault fault;
    uno_err err = plan_graph_make(plan, true, &g, &fault);
    if (err == UNO_OK)
        err = run_plan(&g, req, opt, result);
    plan_graph_free(&g);
    return err;
}
