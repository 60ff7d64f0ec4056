/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floors_proto.c - prototypes of a float32 sum all-reduce between two processes: the simplest code that moves the bytes in
 * each of the ways there are. Both processes run the same function; steps and chunks are counted in step.
 */
#include "floors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "floor_kernels.h"

static void sum2(float *dst, const float *a, const float *b, size_t bytes, bool stream)
{
    floor_sum(&dst, 1, (const float *const[]){a, b}, 2, bytes / sizeof(float), stream);
}

/* Own contribution first on rank 0, second on rank 1: both get the same bits. */
static void sum_ordered(struct worker *w, float *dst, const float *own, const float *peer, size_t bytes, bool stream)
{
    if (w->rank == 0)
        sum2(dst, own, peer, bytes, stream);
    else
        sum2(dst, peer, own, bytes, stream);
}

/* Up to 56 bytes and their flag in one line. A line is written again after two more operations, which the peer can only
 * have begun when it had read it. */
static void run_line(struct worker *w, size_t bytes, size_t chunk)
{
    uint64_t n = ++w->lines;
    struct small_line *mine = &w->s->line[w->rank][n % SLOTS], *theirs = &w->s->line[w->peer][n % SLOTS];
    memcpy(mine->payload, w->send, bytes);
    atomic_store_explicit(&mine->flag, n, memory_order_release);
    wait_for(w, &theirs->flag, n);
    const float *peer = (const float *)theirs->payload;
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        w->recv[i] = w->rank == 0 ? w->send[i] + peer[i] : peer[i] + w->send[i];
}

static float *slot(struct worker *w, int rank, int way, uint64_t n)
{
    return (float *)w->s->slot[rank][way][n % SLOTS];
}

static void tell(struct worker *w)
{
    atomic_store_explicit(&w->s->chunk[w->rank].value, ++w->chunks, memory_order_release);
}

/* The peer has told as much as we have. A slot is reused two chunks later: by then the peer has told the next chunk, which
 * it does after reading this one. */
static void hear(struct worker *w)
{
    wait_for(w, &w->s->chunk[w->peer].value, w->chunks);
}

/* A: everybody's whole vector goes through slots; sum out of the peer's slot. */
static void full_through_slots(struct worker *w, size_t bytes, size_t chunk, bool stream)
{
    for (size_t at = 0; at < bytes; at += chunk) {
        size_t some = bytes - at < chunk ? bytes - at : chunk, i = at / sizeof(float);
        uint64_t n = w->chunks;
        memcpy(slot(w, w->rank, 0, n), w->send + i, some);
        tell(w);
        hear(w);
        sum_ordered(w, w->recv + i, w->send + i, slot(w, w->peer, 0, n), some, stream);
    }
}

static void run_copy_full(struct worker *w, size_t bytes, size_t chunk)
{
    full_through_slots(w, bytes, chunk, false);
}

static void run_copy_full_stream(struct worker *w, size_t bytes, size_t chunk)
{
    full_through_slots(w, bytes, chunk, true);
}

static size_t half_of(size_t bytes)
{
    return bytes / 2 / LINE * LINE;
}

/* B: rank 0 reduces the first half, rank 1 the second; both halves travel through slots twice. */
static void run_copy_rsag(struct worker *w, size_t bytes, size_t chunk)
{
    size_t half = half_of(bytes), mine_at = w->rank == 0 ? 0 : half, theirs_at = half - mine_at;
    size_t mine = w->rank == 0 ? half : bytes - half, theirs = bytes - mine, longest = bytes - half;
    for (size_t at = 0; at < longest; at += chunk) {
        size_t m = at >= mine ? 0 : mine - at < chunk ? mine - at : chunk;
        size_t t = at >= theirs ? 0 : theirs - at < chunk ? theirs - at : chunk;
        size_t i = (mine_at + at) / sizeof(float), k = (theirs_at + at) / sizeof(float);
        uint64_t n = at / chunk; /* the same in both: every chunk tells twice */
        memcpy(slot(w, w->rank, 0, n), w->send + k, t);
        tell(w);
        hear(w);
        sum_ordered(w, w->recv + i, w->send + i, slot(w, w->peer, 0, n), m, false);
        memcpy(slot(w, w->rank, 1, n), w->recv + i, m);
        tell(w);
        hear(w);
        memcpy(w->recv + k, slot(w, w->peer, 1, n), t);
    }
    step_together(w);
}

static void read_peer(struct worker *w, void *to, const void *from, size_t bytes)
{
    while (bytes > 0) {
        struct iovec here = {to, bytes}, there = {(void *)from, bytes};
        ssize_t got = process_vm_readv(w->s->pid[w->peer], &here, 1, &there, 1, 0);
        if (got <= 0) {
            atomic_store(&w->s->failed, 1);
            return;
        }
        to = (char *)to + got;
        from = (const char *)from + got;
        bytes -= (size_t)got;
    }
}

/* C: read the peer's part of one's half and reduce it, then read the peer's finished half. */
static void run_read_rsag(struct worker *w, size_t bytes, size_t chunk)
{
    size_t half = half_of(bytes), mine_at = w->rank == 0 ? 0 : half, mine = w->rank == 0 ? half : bytes - half;
    size_t theirs_at = half - mine_at, theirs = bytes - mine;
    step_together(w);
    for (size_t at = 0; at < mine; at += chunk) {
        size_t some = mine - at < chunk ? mine - at : chunk, i = (mine_at + at) / sizeof(float);
        read_peer(w, w->temp, (const float *)w->s->send[w->peer] + i, some);
        sum_ordered(w, w->recv + i, w->send + i, w->temp, some, false);
    }
    step_together(w);
    read_peer(w, w->recv + theirs_at / sizeof(float), (const float *)w->s->recv[w->peer] + theirs_at / sizeof(float), theirs);
    step_together(w);
}

/* D: read the peer's whole vector, piece by piece, and sum. */
static void run_read_full(struct worker *w, size_t bytes, size_t chunk)
{
    step_together(w);
    for (size_t at = 0; at < bytes; at += chunk) {
        size_t some = bytes - at < chunk ? bytes - at : chunk, i = at / sizeof(float);
        read_peer(w, w->temp, (const float *)w->s->send[w->peer] + i, some);
        sum_ordered(w, w->recv + i, w->send + i, w->temp, some, false);
    }
    step_together(w);
}

/* Both can load and store all buffers: each sums one half and writes it into both outputs. */
static void store_in_both(struct worker *w, size_t bytes, bool stream)
{
    size_t half = half_of(bytes), i = (w->rank == 0 ? 0 : half) / sizeof(float), mine = w->rank == 0 ? half : bytes - half;
    step_together(w);
    floor_sum((float *const[]){w->map_recv[0] + i, w->map_recv[1] + i}, 2,
              (const float *const[]){w->map_send[0] + i, w->map_send[1] + i}, 2, mine / sizeof(float), stream);
    step_together(w);
}

static void run_mapped(struct worker *w, size_t bytes, size_t chunk)
{
    store_in_both(w, bytes, false);
}

static void run_mapped_stream(struct worker *w, size_t bytes, size_t chunk)
{
    store_in_both(w, bytes, true);
}

const struct proto protos[] = {
    {"line", .most_bytes = 56, .run = run_line},
    {"copy_full", .chunked = true, .run = run_copy_full},
    {"copy_full_nt", .chunked = true, .run = run_copy_full_stream},
    {"copy_rsag", .chunked = true, .run = run_copy_rsag},
    {"read_full", .chunked = true, .reads_peer = true, .run = run_read_full},
    {"read_rsag", .chunked = true, .reads_peer = true, .run = run_read_rsag},
    {"mapped", .mapped = true, .run = run_mapped},
    {"mapped_nt", .mapped = true, .run = run_mapped_stream},
};
const int proto_count = sizeof protos / sizeof protos[0];

/* ---- checked and timed ----------------------------------------------------------------------------------------- */

/* Small whole numbers: sums are exact. */
static float input_value(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13 + i / 1021) % 4093);
}

static void fill(struct worker *w, const struct proto *p, size_t bytes)
{
    float *send = p->mapped ? w->map_send[w->rank] : w->send, *recv = p->mapped ? w->map_recv[w->rank] : w->recv;
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        send[i] = input_value(w->rank, i);
        recv[i] = -1.0f;
    }
    step_together(w);
}

static uint64_t count_wrong(struct worker *w, const struct proto *p, size_t bytes)
{
    const float *recv = p->mapped ? w->map_recv[w->rank] : w->recv;
    uint64_t wrong = 0;
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        wrong += recv[i] != input_value(0, i) + input_value(1, i);
    return wrong;
}

/* Seconds of n runs, the slower process's; the same value in both. */
static double batch(struct worker *w, const struct proto *p, size_t bytes, size_t chunk, int n)
{
    step_together(w);
    double start = now_seconds();
    for (int i = 0; i < n; i++)
        p->run(w, bytes, chunk);
    w->s->seconds[w->rank] = now_seconds() - start;
    step_together(w);
    double slowest = w->s->seconds[0] > w->s->seconds[1] ? w->s->seconds[0] : w->s->seconds[1];
    step_together(w);
    return slowest;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double proto_time(struct worker *w, const struct proto *p, size_t bytes, size_t chunk, int batches, uint64_t *wrong)
{
    double means[64], target = 10e-3;
    fill(w, p, bytes);
    p->run(w, bytes, chunk);
    *wrong = count_wrong(w, p, bytes);
    int n = 1;
    double once = batch(w, p, bytes, chunk, 2) / 2;
    n = once > 0 && target / once > 2 ? (int)(target / once) : 2;
    n = n > 20000 ? 20000 : n;
    for (int b = 0; b < batches && b < 64; b++)
        means[b] = batch(w, p, bytes, chunk, n) / n;
    *wrong += count_wrong(w, p, bytes);
    qsort(means, (size_t)batches, sizeof *means, by_value);
    return means[batches / 2] * 1e6;
}
