/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_net.c - what it costs to bring something to another host: measured where a launcher has started `unisono tune` as ranks on several
 * hosts, between rank 0 and the first rank of another one. The least of some rounds counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "tune.h"
#include "unisono.h"

enum { NAME = 64, SHORT_ROUNDS = 400, LONG_ROUNDS = 20, LONG_BYTES = 4 << 20 };

static double now_ps(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e12 + (double)t.tv_nsec * 1e3;
}

/* The first rank whose host has another name than rank 0's; 0: there is none. */
static uno_err find_other(uno_comm *comm, int *other)
{
    int size = uno_comm_size(comm);
    const char *named = getenv("UNISONO_HOST");
    char mine[NAME] = "", *all = calloc((size_t)size, NAME);
    *other = 0;
    if (!all)
        return UNO_ERR_MEMORY;
    if (named && *named)
        snprintf(mine, sizeof mine, "%s", named);
    else
        gethostname(mine, sizeof mine - 1);
    uno_err err = uno_all_gather(mine, all, NAME, UNO_UINT8, comm, NULL);
    for (int r = size - 1; r > 0 && err == UNO_OK; r--)
        if (memcmp(all, all + (size_t)r * NAME, NAME) != 0)
            *other = r;
    free(all);
    return err;
}

/* There with `bytes`, back with 8; the least time of all rounds. */
static uno_err there_and_back(uno_comm *comm, int peer, char *buf, size_t bytes, int rounds, double *best)
{
    bool first = uno_comm_rank(comm) == 0;
    uno_err err = UNO_OK;
    *best = 1e18;
    for (int i = 0; i < rounds && err == UNO_OK; i++) {
        double start = now_ps();
        err = first ? uno_send(buf, bytes, UNO_UINT8, peer, comm, NULL) : uno_recv(buf, bytes, UNO_UINT8, peer, comm, NULL);
        if (err == UNO_OK)
            err = first ? uno_recv(buf, 8, UNO_UINT8, peer, comm, NULL) : uno_send(buf, 8, UNO_UINT8, peer, comm, NULL);
        double took = now_ps() - start;
        *best = took < *best ? took : *best;
    }
    return err;
}

static uno_err measure(uno_comm *comm, struct tuned *t)
{
    int other, rank = uno_comm_rank(comm);
    double brief = 0, whole = 0;
    uno_err err = find_other(comm, &other);
    if (err != UNO_OK || other == 0 || (rank != 0 && rank != other))
        return err;
    char *buf = calloc(1, LONG_BYTES);
    if (!buf)
        return UNO_ERR_MEMORY;
    err = there_and_back(comm, rank == 0 ? other : 0, buf, 8, SHORT_ROUNDS, &brief);
    if (err == UNO_OK)
        err = there_and_back(comm, rank == 0 ? other : 0, buf, LONG_BYTES, LONG_ROUNDS, &whole);
    free(buf);
    t->net_latency_ps = (uint64_t)(brief / 2);
    t->net_ps_per_kb = whole > brief ? (uint64_t)((whole - brief) / (LONG_BYTES / 1024)) : 0;
    return err;
}

bool tune_net(struct tuned *t, int *rank)
{
    uno_comm *comm = NULL;
    uno_err err = uno_comm_init_env(&comm, NULL);
    if (err == UNO_OK) {
        *rank = uno_comm_rank(comm);
        err = measure(comm, t);
        uno_err end = uno_barrier(comm, NULL);
        err = err != UNO_OK ? err : end;
    }
    if (err != UNO_OK)
        out_error("tune", "measuring between hosts: %s", uno_last_error(comm));
    uno_err end = comm ? uno_comm_destroy(comm) : UNO_OK;
    return err == UNO_OK && end == UNO_OK;
}
