/* SPDX-License-Identifier: Apache-2.0 */
/* counts.c - the reading side of unisono_watch.h for one communicator. Blocks on nothing but a short lock. */
#include "comm.h"

#include <string.h>

uno_err uno_comm_counts(uno_comm *comm, uno_counts *counts)
{
    if (!counts)
        return err_set(UNO_ERR_ARG, "uno_comm_counts: counts is NULL");
    TRY(comm_enter(comm));
    struct net_counts n = {0};
    memset(counts, 0, sizeof *counts);
    walk_wait(comm);
    net_comm_count(comm->net, &n);
    static const enum net_carrier carriers[UNO_CARRIER_COUNT] = {NET_SHM, NET_THREAD, NET_TCP};
    for (int i = 0; i < UNO_CARRIER_COUNT; i++) {
        counts->messages[i] = n.messages[carriers[i]];
        counts->bytes[i] = n.bytes[carriers[i]];
    }
    counts->lent_bytes = n.lent_bytes;
    counts->small_operations = comm->small_operations;
    counts->tiled_operations = comm->tiled_operations;
    counts->slot_memory_bytes = net_comm_slot_bytes(comm->net);
    walk_leave(comm);
    counts->waits_spin = atomic_load_explicit(&comm->env.waits[0], memory_order_relaxed);
    counts->waits_yield = atomic_load_explicit(&comm->env.waits[1], memory_order_relaxed);
    counts->waits_sleep = atomic_load_explicit(&comm->env.waits[2], memory_order_relaxed);
    return comm_leave(comm, UNO_OK);
}

const char *uno_carrier_name(uno_carrier carrier)
{
    static const char *const names[] = {"shm", "thread", "tcp"};
    return (unsigned)carrier < UNO_CARRIER_COUNT ? names[carrier] : "?";
}

int uno_comm_hosts(const uno_comm *comm)
{
    return comm && comm->magic == COMM_MAGIC ? comm->nhosts : -1;
}

int uno_comm_host_of(const uno_comm *comm, int rank)
{
    return comm && comm->magic == COMM_MAGIC && rank >= 0 && rank < comm->size ? comm->host_of[rank] : -1;
}
