/* SPDX-License-Identifier: Apache-2.0 */
/* unisono.c - the worker of this library. */
#include <stdio.h>
#include <unisono.h>

#include "worker.h"

static uno_comm *comm;
static int me, n;

int peer_join(int *rank, int *size)
{
    if (uno_comm_init_env(&comm, NULL) != UNO_OK) {
        fprintf(stderr, "unisono: %s\n", uno_last_error(NULL));
        return -1;
    }
    *rank = me = uno_comm_rank(comm);
    *size = n = uno_comm_size(comm);
    return 0;
}

const char *peer_prepare(const struct call *c)
{
    return c->coll == ALL_TO_ALL && c->in_place ? "in place" : NULL;
}

static uno_err send_recv(const struct call *c)
{
    uno_err err = uno_group_start();
    if (err == UNO_OK)
        err = uno_send(c->send, c->count, UNO_FLOAT32, (me + 1) % n, comm, NULL);
    if (err == UNO_OK)
        err = uno_recv(c->recv, c->count, UNO_FLOAT32, (me + n - 1) % n, comm, NULL);
    uno_err end = uno_group_end();
    return err == UNO_OK ? end : err;
}

static uno_err dispatch(const struct call *c)
{
    switch (c->coll) {
    case ALL_REDUCE: return uno_all_reduce(c->send, c->recv, c->count, UNO_FLOAT32, UNO_SUM, comm, NULL);
    case ALL_GATHER: return uno_all_gather(c->send, c->recv, c->count, UNO_FLOAT32, comm, NULL);
    case REDUCE_SCATTER: return uno_reduce_scatter(c->send, c->recv, c->count, UNO_FLOAT32, UNO_SUM, comm, NULL);
    /* As in MPI, whose one buffer is sent from on the root and written elsewhere. */
    case BROADCAST:
        return uno_broadcast(c->send, me == 0 ? (void *)c->send : c->recv, c->count, UNO_FLOAT32, 0, comm, NULL);
    case ALL_TO_ALL: return uno_all_to_all(c->send, c->recv, c->count, UNO_FLOAT32, comm, NULL);
    case SEND_RECV: return send_recv(c);
    default: return uno_barrier(comm, NULL);
    }
}

int peer_call(const struct call *c)
{
    uno_err err = dispatch(c);
    if (err == UNO_OK)
        return 0;
    fprintf(stderr, "unisono: rank %d: %s\n", me, uno_last_error(comm));
    return -1;
}

void peer_barrier(void)
{
    struct call barrier = {.coll = BARRIER};
    peer_call(&barrier);
}

void *peer_memory(size_t bytes)
{
    void *p;
    return uno_mem_alloc(&p, bytes) == UNO_OK ? p : NULL;
}

void peer_memory_free(void *p)
{
    uno_mem_free(p);
}

const char *peer_version(void)
{
    static char text[64];
    int v = uno_version();
    snprintf(text, sizeof text, "Unisono %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return text;
}

void peer_leave(void)
{
    (void)uno_comm_destroy(comm);
}
