/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assemble.c - a communicator as an object: its own memory, the mapped regions of others, its parts put together once peers and
 * hosts are known, and all of it freed. Called by join.c, join_local.c, split.c and shrink.c; it exchanges nothing with other ranks.
 */
#include "comm.h"

#include <stdlib.h>
#include <unistd.h>

/* UNISONO_FAULT=wrap:n lets numbers wrap around after n operations and messages. */
static uint32_t first_number(void)
{
    return (uint32_t)-fault_value("wrap");
}

uno_err comm_alloc(int rank, int size, const struct config *cfg, const char *name, uno_comm **comm)
{
    uno_comm *c = mem_zalloc(sizeof *c);
    if (!c)
        return UNO_ERR_MEMORY;
    size_t n = (size_t)size;
    c->magic = COMM_MAGIC;
    c->fork_generation = fork_generation();
    c->rank = rank;
    c->gone_suspect.rank = c->left_suspect.rank = c->mover_suspect.rank = -1;
    c->size = size;
    c->cfg = *cfg;
    comm_timeout_set(c, cfg->timeout);
    snprintf(c->name, sizeof c->name, "%s", name ? name : "");
    pthread_mutex_init(&c->issue, NULL);
    pthread_mutex_init(&c->fail_lock, NULL);
    c->job_rank = mem_array(n, sizeof *c->job_rank);
    c->host_of = mem_array(n, sizeof *c->host_of);
    c->regions = mem_array(n, sizeof *c->regions);
    c->region_refs = mem_array(n, sizeof *c->region_refs);
    c->peers = mem_array(n, sizeof *c->peers);
    c->gone = mem_array(n, sizeof *c->gone);
    c->movers = mem_array(n, sizeof *c->movers);
    void *base;
    uno_err err = UNO_ERR_MEMORY;
    if (c->job_rank && c->host_of && c->regions && c->region_refs && c->peers && c->gone && c->movers)
        err = net_segment_new(net_region_bytes(size), "unisono-region", &c->segment, &base);
    if (err != UNO_OK) {
        comm_free(c);
        return err;
    }
    c->region = base;
    net_region_init(c->region, size, first_number());
    c->notes = ledger_notes(c->region);
    c->number = first_number();
    c->regions[rank] = c->region;
    *comm = c;
    return UNO_OK;
}

uno_err comm_map_region(uno_comm *c, int r)
{
    void *base;
    TRY(net_segment_map(&c->region_refs[r], &base));
    struct net_region *region = base;
    if (c->region_refs[r].bytes < net_region_bytes(c->size) || !net_region_check(region, c->size)) {
        net_segment_unmap(&c->region_refs[r]);
        return err_set(UNO_ERR_UNREACHABLE, "rank %d has another memory layout", r);
    }
    c->regions[r] = region;
    return UNO_OK;
}

static uno_err add_shrink(uno_comm *c)
{
    int *process = mem_array((size_t)c->size, sizeof *process);
    if (!process)
        return UNO_ERR_MEMORY;
    for (int r = 0; r < c->size; r++) /* init_all: no process ends before the others */
        process[r] = c->job->rank < 0 ? -1 : c->peers[r].process;
    uno_err err = shrink_add(c->job->shrinks, c->id, c->rank, c->size, process, c->regions, &c->shrink);
    free(process);
    return err;
}

static void rank_name(const void *arg, int rank, char *buf, size_t buf_bytes)
{
    comm_rank_name(arg, rank, buf, buf_bytes);
}

uno_err comm_assemble(uno_comm *c)
{
    bool tcp = false, near = false;
    for (int r = 0; r < c->size; r++) {
        struct net_peer *p = &c->peers[r];
        p->host = c->host_of[r];
        p->pid = c->region_refs[r].pid;
        p->process = c->job->members[c->job_rank[r]].process;
        p->region = c->regions[r];
        p->link = c->job->links ? c->job->links[c->job_rank[r]] : NULL;
        bool same_process = c->regions[r] && c->region_refs[r].pid == getpid();
        p->carrier = r == c->rank ? NET_SELF : same_process ? NET_THREAD : c->regions[r] ? NET_SHM : NET_TCP;
        tcp = tcp || p->carrier == NET_TCP;
        near = near || p->carrier == NET_SHM || p->carrier == NET_THREAD;
    }
    struct net_comm_options opt = {.id = c->id, .rank = c->rank, .size = c->size, .peers = c->peers, .region = c->region,
                                   .lend = c->cfg.lend, .first = first_number()};
    TRY(net_comm_new(&opt, &c->net));
    struct planner_settings s = {.algo = c->cfg.algo, .buffsize = c->cfg.buffsize, .memory_limit = c->cfg.memory_limit,
                                 .channels = (int)c->cfg.channels, .small = c->cfg.small && c->nhosts == 1, .nranks = c->size,
                                 .host_of = c->host_of, .costs = c->costs};
    TRY(planner_new(&s, &c->planner));
    TRY(plancache_new(&c->cache));
    c->env.rank = c->rank;
    c->env.size = c->size;
    c->env.net = c->net;
    c->env.region = c->region;
    c->env.regions = c->regions;
    c->env.proc = tcp ? c->job->net : NULL;
    c->env.far = c->env.proc && !near;
    c->env.look = engine_look;
    c->env.look_arg = c;
    c->env.name = rank_name;
    c->env.ring_limit = first_number() + NET_RING_ENTRIES;
    TRY(p2p_new(&c->env, &c->p2p));
    note_made(c);
    TRY(add_shrink(c));
    atomic_store_explicit(&c->ready, 1, memory_order_release);
    job_abort_early(c);
    return UNO_OK;
}

void comm_free(uno_comm *c)
{
    if (!c)
        return;
    if (c->job && c->job->board)
        watch_board_remove(c->job->board, c->id, c->rank);
    job_unlist(c); /* first: whom jobs_snapshot still finds, it may hold again */
    engine_wait_unused(c);
    p2p_free(c->p2p);
    net_comm_free(c->net);
    if (shrink_remove(c->shrink, c->segment, c->regions, c->region_refs)) { /* others may still ask what was agreed */
        c->segment = NULL;
        c->regions = NULL;
        c->region_refs = NULL;
    }
    job_detach(c);
    plancache_free(c->cache);
    planner_free(c->planner);
    if (c->regions)
        for (int r = 0; r < c->size; r++)
            if (c->regions[r] && r != c->rank)
                net_segment_unmap(&c->region_refs[r]);
    net_segment_free(c->segment);
    free(c->env.scratch);
    free(c->run);
    ops_free(c);
    free(c->gone);
    free(c->movers);
    free(c->verdict);
    free(c->peers);
    free(c->region_refs);
    free(c->regions);
    free(c->host_of);
    free(c->job_rank);
    pthread_mutex_destroy(&c->issue);
    pthread_mutex_destroy(&c->fail_lock);
    c->magic = 0;
    free(c);
}
