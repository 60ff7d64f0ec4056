/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - the worker of every MPI library. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "worker.h"

static int me, n;

int peer_join(int *rank, int *size)
{
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    *rank = me;
    *size = n;
    return 0;
}

const char *peer_prepare(const struct call *c)
{
    return c->coll == ALL_TO_ALL && c->in_place ? "in place" : NULL;
}

int peer_call(const struct call *c)
{
    const void *send = c->in_place ? MPI_IN_PLACE : c->send;
    int count = (int)c->count;
    switch (c->coll) {
    case ALL_REDUCE: return MPI_Allreduce(send, c->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case ALL_GATHER: return MPI_Allgather(send, count, MPI_FLOAT, c->recv, count, MPI_FLOAT, MPI_COMM_WORLD);
    case REDUCE_SCATTER: /* in place, MPI's result is at the start of the buffer */
        return MPI_Reduce_scatter_block(send, c->in_place ? c->recv - (size_t)me * c->count : c->recv, count, MPI_FLOAT, MPI_SUM,
                                        MPI_COMM_WORLD);
    case BROADCAST: return MPI_Bcast(me == 0 ? (void *)c->send : c->recv, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case ALL_TO_ALL: return MPI_Alltoall(send, count, MPI_FLOAT, c->recv, count, MPI_FLOAT, MPI_COMM_WORLD);
    case SEND_RECV:
        return MPI_Sendrecv(c->send, count, MPI_FLOAT, (me + 1) % n, 0, c->recv, count, MPI_FLOAT, (me + n - 1) % n, 0,
                            MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    default: return MPI_Barrier(MPI_COMM_WORLD);
    }
}

void peer_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

const char *peer_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == ',' || *p == '\t') {
            *p = *p == '\t' ? ' ' : 0;
        }
    return text;
}

void peer_leave(void)
{
    MPI_Finalize();
}
