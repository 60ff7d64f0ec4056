/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_limit.c - what the machine allows for one collective at one size: the same result made by plain copies and sums in
 * memory that all ranks have mapped, by as many workers as there are crews, between barriers of flags. No protocol can be
 * much faster on the same memory. All workers must be on one host; reductions are timed as float32 sums of as many bytes.
 */
#include "perf.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "floor_kernels.h"

enum { LINE = 64, MAX_WORKERS = 1024, POLLS = 2000 };

/* Each worker counts the barriers it has entered on a line of its own: release store, pairs with the acquire loads of
 * the others in limit_barrier. */
struct flag { _Alignas(LINE) _Atomic uint64_t entered; };

struct limit {
    struct flag *flags;      /* of all workers; first in the mapped memory */
    char *memory;            /* then an input and an output of area_bytes for each rank */
    size_t mapped_bytes, area_bytes;
    int workers, worker, ranks;
    int polls;               /* before the processor is given away; 0 with more workers than processors */
    uint64_t entered;
    int fd;
};

static void limit_barrier(struct limit *l)
{
    l->entered++;
    atomic_store_explicit(&l->flags[l->worker].entered, l->entered, memory_order_release);
    for (int w = 0; w < l->workers; w++)
        for (int polls = 0; atomic_load_explicit(&l->flags[w].entered, memory_order_acquire) < l->entered; polls++)
            if (polls >= l->polls)
                sched_yield();
            else
                floor_pause();
}

static char *input(const struct limit *l, int rank)
{
    return l->memory + (size_t)rank * 2 * l->area_bytes;
}

static char *output(const struct limit *l, int rank)
{
    return input(l, rank) + l->area_bytes;
}

/* ---- set up ------------------------------------------------------------------------------------------------- */

struct place { int pid, fd, error; };

/* Rank 0's crew makes the memory; the others open it through /proc, which one user's processes on one host may. */
static int make_memory(struct limit *l)
{
    l->fd = memfd_create("perf-limit", MFD_CLOEXEC);
    if (l->fd < 0 || ftruncate(l->fd, (off_t)l->mapped_bytes) != 0)
        return errno;
    return 0;
}

static int map_memory(struct limit *l, const struct place *from, bool own)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", from->pid, from->fd);
    int fd = own ? l->fd : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    void *p = mmap(NULL, l->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = p == MAP_FAILED ? errno : 0;
    if (!own)
        close(fd);
    if (error)
        return error;
    l->flags = p;
    l->memory = (char *)p + (sizeof(struct flag) * (size_t)l->workers + 4095) / 4096 * 4096;
    return 0;
}

/* Touch the areas of this crew's ranks from this crew, as their user buffers are. */
static void fill_areas(struct limit *l, const struct crew *c)
{
    for (int r = c->first; r < c->first + c->mine; r++) {
        float *in = (float *)input(l, r);
        for (size_t i = 0; i < l->area_bytes / sizeof(float); i++)
            in[i] = (float)(r + 1);
        memset(output(l, r), 0, l->area_bytes);
    }
}

/* Does every rank say 0? Gives the first other value. */
static uno_err all_zero(struct crew *c, int mine, int *first)
{
    int *all = calloc((size_t)c->ranks + (size_t)c->mine, sizeof *all);
    if (!all)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < c->mine; i++)
        all[c->ranks + i] = mine;
    uno_err err = perf_gather(c, all + c->ranks, sizeof *all, all);
    *first = 0;
    for (int r = 0; r < c->ranks && *first == 0; r++)
        *first = all[r];
    free(all);
    return err;
}

static uno_err share_place(struct crew *c, struct place mine, struct place *first)
{
    struct place *all = calloc((size_t)c->ranks + (size_t)c->mine, sizeof *all);
    if (!all)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < c->mine; i++)
        all[c->ranks + i] = mine;
    uno_err err = perf_gather(c, all + c->ranks, sizeof *all, all);
    *first = all[0];
    free(all);
    return err;
}

uno_err perf_limit_open(struct crew *c, size_t max_bytes, struct limit **limit, char *note, size_t note_bytes)
{
    *limit = NULL;
    if (uno_comm_hosts(c->comms[0]) > 1) {
        snprintf(note, note_bytes, "limit: not measured, the ranks are on %d hosts and share no memory",
                 uno_comm_hosts(c->comms[0]));
        return UNO_OK;
    }
    struct limit *l = calloc(1, sizeof *l);
    if (!l)
        return UNO_ERR_MEMORY;
    l->fd = -1;
    l->ranks = c->ranks;
    l->workers = c->ranks / c->mine; /* crews are of one size */
    l->worker = c->first / c->mine;
    l->polls = l->workers > (int)sysconf(_SC_NPROCESSORS_ONLN) ? 0 : POLLS;
    l->area_bytes = (max_bytes + 4095) / 4096 * 4096 + 4096;
    l->mapped_bytes = (sizeof(struct flag) * (size_t)l->workers + 4095) / 4096 * 4096 + (size_t)c->ranks * 2 * l->area_bytes;
    struct place mine = {.pid = (int)getpid()}, from = {0};
    if (c->first == 0)
        mine.error = make_memory(l);
    mine.fd = l->fd;
    uno_err err = share_place(c, mine, &from);
    int error = from.error;
    if (err == UNO_OK && error == 0) {
        error = map_memory(l, &from, c->first == 0);
        err = all_zero(c, error, &error);
    }
    if (err == UNO_OK && error == 0) {
        fill_areas(l, c);
        err = perf_barrier(c);
    }
    if (err != UNO_OK || error) {
        snprintf(note, note_bytes, "limit: not measured, the ranks cannot share memory for it: %s", strerror(error));
        perf_limit_close(l);
        return err;
    }
    *limit = l;
    return UNO_OK;
}

void perf_limit_close(struct limit *l)
{
    if (!l)
        return;
    if (l->flags)
        munmap(l->flags, l->mapped_bytes);
    if (l->fd >= 0)
        close(l->fd);
    free(l);
}

/* ---- one operation by each kernel ---------------------------------------------------------------------------- */

/* alone: a rank makes its own whole output. shared: each rank makes its part of all outputs, between two barriers. */
enum kernel { ALONE = 0, SHARED = 1, STREAM = 2, KERNELS = 4 };
static const char *const kernel_names[KERNELS] = {
    "each rank makes its own result", "each rank makes its share of all results",
    "each rank makes its own result, streaming stores", "each rank makes its share of all results, streaming stores"};

/* part: bytes from .. from + bytes of the inputs, summed into outputs of ranks first .. last. */
static void sum_into(struct limit *l, size_t from, size_t to, size_t bytes, int first, int last, bool stream)
{
    const float *in[MAX_WORKERS];
    float *out[MAX_WORKERS];
    for (int r = 0; r < l->ranks; r++)
        in[r] = (const float *)(input(l, r) + from);
    for (int r = first; r <= last; r++)
        out[r - first] = (float *)(output(l, r) + to);
    floor_sum(out, last - first + 1, in, l->ranks, bytes / sizeof(float), stream);
}

static size_t cut(size_t bytes, int part, int parts)
{
    return bytes / LINE * (size_t)part / (size_t)parts * LINE;
}

static void reduce_share(struct limit *l, const struct job *j, int rank, enum kernel k)
{
    size_t bytes = j->count * j->type_bytes, block = bytes;
    bool stream = k & STREAM, rooted = j->coll->rooted;
    if (j->coll->split) /* reduce_scatter: the share is the own block */
        sum_into(l, cut(block * (size_t)l->ranks, rank, l->ranks), 0, block, rank, rank, stream);
    else if (k & SHARED) {
        size_t from = cut(bytes, rank, l->ranks), end = rank + 1 == l->ranks ? bytes : cut(bytes, rank + 1, l->ranks);
        sum_into(l, from, from, end - from, rooted ? j->root : 0, rooted ? j->root : l->ranks - 1, stream);
    } else if (!rooted || rank == j->root)
        sum_into(l, 0, 0, bytes, rank, rank, stream);
}

/* What only moves: every segment of the expected result is a copy. */
static void copy_share(struct limit *l, const struct job *j, int rank, enum kernel k)
{
    struct segment s;
    for (int i = 0; j->coll->expect(j, rank, i, &s); i++)
        floor_copy(output(l, rank) + s.to * j->type_bytes, input(l, s.source) + s.from * j->type_bytes,
                   s.count * j->type_bytes, k & STREAM);
}

static void one_operation(struct limit *l, const struct crew *c, const struct job *j, enum kernel k)
{
    limit_barrier(l); /* everybody's input is there */
    for (int r = c->first; r < c->first + c->mine; r++)
        if (j->coll->reduces)
            reduce_share(l, j, r, k);
        else
            copy_share(l, j, r, k);
    if (k & SHARED)
        limit_barrier(l); /* everybody's share is done */
}

static bool kernel_fits(const struct job *j, enum kernel k)
{
    if ((k & STREAM) && (j->shown_bytes < 65536 || !floor_can_stream()))
        return false;
    return !(k & SHARED) || (j->coll->reduces && !j->coll->split);
}

/* Seconds of `n` operations, the slowest worker's, by everybody's clock alike: workers start and end together. */
static double timed(struct limit *l, const struct crew *c, const struct job *j, enum kernel k, int n)
{
    one_operation(l, c, j, k);
    limit_barrier(l);
    double start = perf_now();
    for (int i = 0; i < n; i++)
        one_operation(l, c, j, k);
    limit_barrier(l);
    return (perf_now() - start) / n;
}

uno_err perf_limit_measure(struct limit *l, struct crew *c, const struct job *j, double *time_us, const char **how)
{
    enum { BATCHES = 3 };
    double best = 0;
    *time_us = 0;
    *how = j->shown_bytes == 0 ? "flags only" : "";
    if (j->extent * j->type_bytes > l->area_bytes || l->ranks > MAX_WORKERS) {
        *how = "does not fit";
        return UNO_OK;
    }
    for (int k = 0; k < KERNELS; k++) {
        if (!kernel_fits(j, (enum kernel)k))
            continue;
        double once = timed(l, c, j, (enum kernel)k, 2);
        int n = once > 0 ? (int)(10e-3 / once) : 1000;
        double pick[1] = {-(double)n}; /* all must do the same number: the least */
        uno_err err = perf_max(c, pick, 1);
        if (err != UNO_OK)
            return err;
        n = (int)-pick[0];
        n = n < 2 ? 2 : n > 2000 ? 2000 : n;
        for (int b = 0; b < BATCHES; b++) {
            double seconds = timed(l, c, j, (enum kernel)k, n);
            if (best == 0 || seconds < best) {
                best = seconds;
                *how = j->shown_bytes ? kernel_names[k] : "flags only";
            }
        }
    }
    double slowest[1] = {best};
    uno_err err = perf_max(c, slowest, 1);
    *time_us = slowest[0] * 1e6;
    return err;
}
