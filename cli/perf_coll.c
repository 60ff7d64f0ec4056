/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_coll.c - the collectives of the benchmark: what a size means as a count, the call, what must come out where, and
 * the bandwidth formulas of nccl-tests. A new collective is a new row of the table at the end.
 */
#include "perf.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static size_t block(const struct job *j, int rank)
{
    return (size_t)rank * j->count;
}

/* ---- places in the buffer of an in-place call ------------------------------------------------------------- */

static void same_place(const struct job *j, int rank, size_t *send_at, size_t *recv_at)
{
    *send_at = *recv_at = 0;
}

static void own_block_sent(const struct job *j, int rank, size_t *send_at, size_t *recv_at)
{
    *send_at = block(j, rank);
    *recv_at = 0;
}

static void own_block_received(const struct job *j, int rank, size_t *send_at, size_t *recv_at)
{
    *send_at = 0;
    *recv_at = block(j, rank);
}

/* ---- calls ---------------------------------------------------------------------------------------------------- */

#define CALL(name)                                                                                                \
    static uno_err name(const struct job *j, int rank, int step, uno_op op, struct ends e, uno_comm *c, uno_stream *s)

CALL(call_all_reduce)
{
    return uno_all_reduce(e.send, e.recv, j->count, (uno_type)j->type, op, c, s);
}
CALL(call_broadcast)
{
    return uno_broadcast(e.send, e.recv, j->count, (uno_type)j->type, j->root, c, s);
}
CALL(call_reduce)
{
    return uno_reduce(e.send, e.recv, j->count, (uno_type)j->type, op, j->root, c, s);
}
CALL(call_all_gather)
{
    return uno_all_gather(e.send, e.recv, j->count, (uno_type)j->type, c, s);
}
CALL(call_reduce_scatter)
{
    return uno_reduce_scatter(e.send, e.recv, j->count, (uno_type)j->type, op, c, s);
}
CALL(call_all_to_all)
{
    return uno_all_to_all(e.send, e.recv, j->count, (uno_type)j->type, c, s);
}
CALL(call_gather)
{
    return uno_gather(e.send, rank == j->root ? e.recv : NULL, j->count, (uno_type)j->type, j->root, c, s);
}
CALL(call_scatter)
{
    return uno_scatter(rank == j->root ? e.send : NULL, e.recv, j->count, (uno_type)j->type, j->root, c, s);
}
CALL(call_barrier)
{
    return uno_barrier(c, s);
}
CALL(call_all_to_all_v)
{
    size_t row = (size_t)rank * (size_t)j->ranks;
    return uno_all_to_all_v(e.send, j->sends + row, j->send_at + row, e.recv, j->recvs + row, j->recv_at + row,
                            (uno_type)j->type, c, s);
}

/* A send and a receive that may need each other. */
static uno_err exchange(const struct job *j, const void *out, int to, void *in, int from, size_t count, uno_comm *c,
                        uno_stream *s)
{
    uno_err err = uno_group_start();
    if (err != UNO_OK)
        return err;
    err = uno_send(out, count, (uno_type)j->type, to, c, s);
    if (err == UNO_OK)
        err = uno_recv(in, count, (uno_type)j->type, from, c, s);
    uno_err end = uno_group_end();
    return err != UNO_OK ? err : end;
}

CALL(call_sendrecv)
{
    return exchange(j, e.send, (rank + 1) % j->ranks, e.recv, (rank + j->ranks - 1) % j->ranks, j->count, c, s);
}

static int hypercube_steps(const struct job *j)
{
    int steps = 0;
    while (1 << steps < j->ranks)
        steps++;
    return steps > 0 ? steps : 1;
}

/* In step k the ranks whose numbers differ in bit k exchange what they have so far. */
CALL(call_hypercube)
{
    size_t bytes = j->count * j->type_bytes;
    char *own = (char *)e.recv + (size_t)rank * bytes;
    if (step == 0 && own != e.send && bytes > 0)
        memcpy(own, e.send, bytes);
    int mask = 1 << step;
    if (mask >= j->ranks)
        return UNO_OK;
    int have = rank & ~(mask - 1), partner = rank ^ mask;
    return exchange(j, (char *)e.recv + (size_t)have * bytes, partner,
                    (char *)e.recv + (size_t)(have ^ mask) * bytes, partner, j->count * (size_t)mask, c, s);
}

/* ---- what must come out -------------------------------------------------------------------------------------------- */

static bool copied(struct segment *s, int source, size_t from, size_t to, size_t count)
{
    *s = (struct segment){SEGMENT_COPY, source, from, to, count};
    return true;
}

static bool reduced(struct segment *s, size_t from, size_t count)
{
    *s = (struct segment){SEGMENT_REDUCE, 0, from, 0, count};
    return true;
}

static bool expect_all_reduce(const struct job *j, int rank, int i, struct segment *s)
{
    return i == 0 && reduced(s, 0, j->count);
}
static bool expect_reduce(const struct job *j, int rank, int i, struct segment *s)
{
    return i == 0 && rank == j->root && reduced(s, 0, j->count);
}
static bool expect_reduce_scatter(const struct job *j, int rank, int i, struct segment *s)
{
    return i == 0 && reduced(s, block(j, rank), j->count);
}
static bool expect_broadcast(const struct job *j, int rank, int i, struct segment *s)
{
    return i == 0 && copied(s, j->root, 0, 0, j->count);
}
static bool expect_all_gather(const struct job *j, int rank, int i, struct segment *s)
{
    return i < j->ranks && copied(s, i, 0, block(j, i), j->count);
}
static bool expect_gather(const struct job *j, int rank, int i, struct segment *s)
{
    return rank == j->root && expect_all_gather(j, rank, i, s);
}
static bool expect_scatter(const struct job *j, int rank, int i, struct segment *s)
{
    return i == 0 && copied(s, j->root, block(j, rank), 0, j->count);
}
static bool expect_all_to_all(const struct job *j, int rank, int i, struct segment *s)
{
    return i < j->ranks && copied(s, i, block(j, rank), block(j, i), j->count);
}
static bool expect_sendrecv(const struct job *j, int rank, int i, struct segment *s)
{
    return i == 0 && copied(s, (rank + j->ranks - 1) % j->ranks, 0, 0, j->count);
}
static bool expect_all_to_all_v(const struct job *j, int rank, int i, struct segment *s)
{
    if (i >= j->ranks)
        return false;
    size_t there = (size_t)i * (size_t)j->ranks + (size_t)rank, here = (size_t)rank * (size_t)j->ranks + (size_t)i;
    return copied(s, i, j->send_at[there], j->recv_at[here], j->recvs[here]);
}
static bool expect_nothing(const struct job *j, int rank, int i, struct segment *s)
{
    return false;
}

/* ---- how much goes in ------------------------------------------------------------------------------------------------ */

static size_t input_count(const struct job *j, int rank)
{
    return j->count;
}
static size_t input_all_blocks(const struct job *j, int rank)
{
    return j->count * (size_t)j->ranks;
}
static size_t input_root_count(const struct job *j, int rank)
{
    return rank == j->root ? j->count : 0;
}
static size_t input_root_blocks(const struct job *j, int rank)
{
    return rank == j->root ? input_all_blocks(j, rank) : 0;
}
static size_t input_none(const struct job *j, int rank)
{
    return 0;
}
static size_t input_all_to_all_v(const struct job *j, int rank)
{
    size_t last = (size_t)rank * (size_t)j->ranks + (size_t)j->ranks - 1;
    return j->send_at[last] + j->sends[last];
}

/* ---- bandwidth --------------------------------------------------------------------------------------------------------- */

static double moved_count(const struct job *j)
{
    return (double)j->count * (double)j->type_bytes;
}
static double moved_blocks(const struct job *j)
{
    return moved_count(j) * j->ranks;
}
static double moved_others(const struct job *j)
{
    return moved_count(j) * (j->ranks - 1);
}
static double moved_shown(const struct job *j)
{
    return (double)j->shown_bytes;
}
static double factor_one(const struct job *j)
{
    return 1.0;
}
static double factor_others(const struct job *j)
{
    return (double)(j->ranks - 1) / j->ranks;
}
static double factor_all_reduce(const struct job *j)
{
    return 2.0 * (j->ranks - 1) / j->ranks;
}

/* ---- the table ------------------------------------------------------------------------------------------------------------ */

const struct perf_coll perf_colls[] = {
    {.name = "all_reduce", .explains = UNO_ALL_REDUCE, .reduces = true, .in_place = same_place, .call = call_all_reduce,
     .expect = expect_all_reduce, .input = input_count, .moved = moved_count, .bus_factor = factor_all_reduce},
    {.name = "all_gather", .explains = UNO_ALL_GATHER, .split = true, .in_place = own_block_sent, .call = call_all_gather,
     .expect = expect_all_gather, .input = input_count, .moved = moved_blocks, .bus_factor = factor_others},
    {.name = "reduce_scatter", .explains = UNO_REDUCE_SCATTER, .reduces = true, .split = true,
     .in_place = own_block_received, .call = call_reduce_scatter, .expect = expect_reduce_scatter,
     .input = input_all_blocks, .moved = moved_blocks, .bus_factor = factor_others},
    {.name = "broadcast", .explains = UNO_BROADCAST, .rooted = true, .in_place = same_place, .call = call_broadcast,
     .expect = expect_broadcast, .input = input_root_count, .moved = moved_count, .bus_factor = factor_one},
    {.name = "reduce", .explains = UNO_REDUCE, .reduces = true, .rooted = true, .in_place = same_place,
     .call = call_reduce, .expect = expect_reduce, .input = input_count, .moved = moved_count, .bus_factor = factor_one},
    {.name = "alltoall", .same = "all_to_all", .explains = UNO_ALL_TO_ALL, .split = true, .exchanges = true,
     .in_place = same_place, .call = call_all_to_all, .expect = expect_all_to_all, .input = input_all_blocks,
     .moved = moved_blocks, .bus_factor = factor_others},
    {.name = "alltoallv", .same = "all_to_all_v", .explains = UNO_ALL_TO_ALL_V, .split = true, .exchanges = true,
     .in_place = same_place, .call = call_all_to_all_v, .expect = expect_all_to_all_v, .input = input_all_to_all_v,
     .moved = moved_shown, .bus_factor = factor_others},
    {.name = "gather", .explains = UNO_GATHER, .rooted = true, .split = true, .in_place = own_block_sent,
     .call = call_gather, .expect = expect_gather, .input = input_count, .moved = moved_blocks,
     .bus_factor = factor_others},
    {.name = "scatter", .explains = UNO_SCATTER, .rooted = true, .split = true, .in_place = own_block_received,
     .call = call_scatter, .expect = expect_scatter, .input = input_root_blocks, .moved = moved_blocks,
     .bus_factor = factor_others},
    {.name = "sendrecv", .same = "send_recv", .explains = -1, .exchanges = true, .in_place = same_place,
     .call = call_sendrecv, .expect = expect_sendrecv, .input = input_count, .moved = moved_count,
     .bus_factor = factor_one},
    {.name = "hypercube", .explains = -1, .split = true, .in_place = own_block_sent, .steps = hypercube_steps,
     .call = call_hypercube, .expect = expect_all_gather, .input = input_count, .moved = moved_others,
     .bus_factor = factor_one},
    {.name = "barrier", .explains = UNO_BARRIER, .in_place = same_place, .call = call_barrier, .expect = expect_nothing,
     .input = input_none, .moved = moved_shown, .bus_factor = factor_one},
};
const int perf_coll_count = sizeof perf_colls / sizeof perf_colls[0];

/* Compare without case, '_' and '-'. */
static bool same_word(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, "_-");
        b += strspn(b, "_-");
        if (strncasecmp(a, b, 1) != 0)
            return false;
        if (*a == 0)
            return true;
    }
}

const struct perf_coll *perf_coll_find(const char *word)
{
    char name[64];
    size_t n = strlen(word);
    if (n >= sizeof name)
        return NULL;
    memcpy(name, word, n + 1);
    char *tail = strstr(name, "_perf");
    if (tail)
        *tail = 0;
    for (int i = 0; i < perf_coll_count; i++)
        if (same_word(name, perf_colls[i].name) || (perf_colls[i].same && same_word(name, perf_colls[i].same)))
            return &perf_colls[i];
    return NULL;
}

static bool init_pairs(struct job *j)
{
    size_t n = (size_t)j->ranks, total = j->extent * j->type_bytes;
    j->sends = calloc(4 * n * n, sizeof(size_t));
    if (!j->sends)
        return false;
    j->recvs = j->sends + n * n;
    j->send_at = j->recvs + n * n;
    j->recv_at = j->send_at + n * n;
    for (size_t s = 0; s < n; s++)
        for (size_t d = 0; d < n; d++)
            j->sends[s * n + d] = j->recvs[d * n + s] = perf_pairs_bytes((int)s, (int)d, j->ranks, total) / j->type_bytes;
    if (perf_pairs_fixed())
        j->count = 0;
    size_t most = 0;
    for (size_t r = 0; r < n; r++) {
        size_t sent = 0, received = 0;
        for (size_t p = 0; p < n; p++) {
            j->send_at[r * n + p] = sent;
            j->recv_at[r * n + p] = received;
            sent += j->sends[r * n + p];
            received += j->recvs[r * n + p];
        }
        most = sent > most ? sent : most;
        most = received > most ? received : most;
    }
    j->extent = most;
    j->shown_bytes = most * j->type_bytes;
    return true;
}

bool perf_job_init(struct job *j, const struct perf_coll *coll, int ranks, int type, int op, int root, uint64_t bytes)
{
    *j = (struct job){.coll = coll, .ranks = ranks, .type = type, .op = coll->reduces ? op : -1,
                      .root = coll->rooted ? root : -1, .type_bytes = uno_type_bytes((uno_type)type)};
    size_t n = (size_t)ranks, elements = bytes / j->type_bytes;
    if (coll->call == call_barrier)
        return true;
    if (coll->split) {
        size_t line = j->type_bytes < 16 ? 16 / j->type_bytes : 1;
        j->count = elements / n / line * line; /* nccl-tests: blocks of whole 16 bytes */
        j->extent = j->count * n;
    } else {
        j->count = j->extent = elements;
    }
    j->shown_bytes = j->extent * j->type_bytes;
    return coll->call != call_all_to_all_v || init_pairs(j);
}

void perf_job_free(struct job *j)
{
    free(j->sends);
    *j = (struct job){0};
}
