/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - what programs that are ranks of each other do alike: conform.c, resident.c and the endurance run. From the public header
 * alone.
 */
#ifndef CONFORM_SHARE_H
#define CONFORM_SHARE_H

#include <stdbool.h>
#include <unistd.h>

#include "unisono.h"

/* In a process forked as `rank`: rank 0 makes the job's id and gives it to the others through the pipe. false: it cannot be had. */
static inline bool share_id(int rank, int ranks, const int ids[2], uno_id *id)
{
    if (rank != 0)
        return read(ids[0], id, sizeof *id) == (ssize_t)sizeof *id;
    if (uno_get_id(id) != UNO_OK)
        return false;
    for (int r = 1; r < ranks; r++)
        if (write(ids[1], id, sizeof *id) != (ssize_t)sizeof *id)
            return false;
    return true;
}

/* A send and a receive of as many elements, issued in either order: for a group. */
struct share_pass { const void *out; void *in; size_t count; uno_type type; int to, from; bool receive_first; };
static inline uno_err share_pass(const struct share_pass *p, uno_comm *comm, uno_stream *stream)
{
    uno_err err = p->receive_first ? uno_recv(p->in, p->count, p->type, p->from, comm, stream) : UNO_OK;
    if (err == UNO_OK)
        err = uno_send(p->out, p->count, p->type, p->to, comm, stream);
    return err != UNO_OK || p->receive_first ? err : uno_recv(p->in, p->count, p->type, p->from, comm, stream);
}

#endif
