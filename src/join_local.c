/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join_local.c - communicators whose ranks are all threads of this process: nothing is exchanged, and there is no steward, since
 * they die together. Called by join.c.
 */
#include "comm.h"

#include <stdlib.h>
#include <unistd.h>

static uno_err fill_local_job(struct job *job, int n)
{
    job->members = mem_array((size_t)n, sizeof *job->members);
    job->host_of = mem_array((size_t)n, sizeof *job->host_of);
    if (!job->members || !job->host_of)
        return UNO_ERR_MEMORY;
    job->rank = -1;
    job->size = n;
    job->nhosts = 1;
    for (int r = 0; r < n; r++) {
        job->members[r].pid = getpid();
        job->members[r].launched = -1; /* nobody else could say how one of them ended */
        gethostname(job->members[r].hostname, sizeof job->members[r].hostname - 1);
    }
    return auth_random(&job->id, sizeof job->id);
}

uno_err join_local(uno_comm **comms, int n, const struct config *cfg, const char *name)
{
    struct job *job = mem_zalloc(sizeof *job);
    if (!job)
        return UNO_ERR_MEMORY;
    pthread_mutex_init(&job->lock, NULL);
    uno_err err = shrink_new_job(job, cfg);
    if (err != UNO_OK) {
        pthread_mutex_destroy(&job->lock);
        free(job);
        return err;
    }
    job_add(job);
    job->refs = 1; /* so that a failure half way does not free it under us */
    err = fill_local_job(job, n);
    if (err == UNO_OK)
        note_board(job, cfg);
    for (int r = 0; r < n && err == UNO_OK && job->board; r++)
        watch_board_ref(job->board, &job->members[r].board);
    for (int r = 0; r < n && err == UNO_OK; r++) {
        err = comm_alloc(r, n, cfg, name, &comms[r]);
        if (err == UNO_OK)
            job_attach(job, comms[r]);
    }
    struct topo_costs costs = join_costs(cfg);
    costs.processors = (uint64_t)topo_processors();
    for (int r = 0; r < n && err == UNO_OK; r++) {
        uno_comm *c = comms[r];
        c->id = hash_mix(job->id, 1);
        c->nhosts = 1;
        c->env.crowded = n > topo_processors();
        c->env.cache_bytes = topo_cache_share(n);
        c->costs = costs;
        for (int q = 0; q < n && err == UNO_OK; q++) {
            c->job_rank[q] = q;
            net_segment_ref(comms[q]->segment, &c->region_refs[q]);
            if (q != r)
                err = comm_map_region(c, q);
        }
        if (err == UNO_OK)
            err = comm_assemble(c);
    }
    if (err == UNO_OK)
        job_watch_if_possible(comms[0]);
    pthread_mutex_lock(&job->lock);
    bool unused = --job->refs == 0;
    pthread_mutex_unlock(&job->lock);
    if (unused)
        job_drop(job);
    return err;
}
