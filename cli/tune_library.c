/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_library.c - `unisono tune`: what calls of the library take. Buffers change from call to call, as in `unisono perf`, and are not in
 * the second-level cache; what is read in place, copied or streamed is decided by the code that decides it for every job. Of sixteen
 * samples the second lowest counts: a lucky moment is not this machine, nor is what other programs take.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "tune.h"
#include "unisono.h"

#define TRY(expr)               \
    do {                        \
        uno_err try_ = (expr);  \
        if (try_ != UNO_OK)     \
            return try_;        \
    } while (0)

/* Virtual processors change their places, and with them all times: what is measured is measured in passes that lie apart. */
enum { SAMPLES = 800, PASSES = 5, LEAST_SAMPLES = 1, AREA = 4 << 20, AREA_MOST = 16 << 20, SHORT_BYTES = 8, SHORT_CALLS = 20 };
#define PASS_PS 0.03e12

static const int calls_a_sample[TUNE_CLASSES] = {16, 4, 1, 1};

struct calls {
    uno_comm *comm;
    int rank, ranks;
    char *in, *out;
    struct tune_times *times;
};

static double now_ps(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e12 + (double)t.tv_nsec * 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The n-th call: the buffers behind those of the one before. */
static uno_err call(const struct calls *c, uno_coll coll, size_t bytes, size_t n)
{
    size_t area = 2 * bytes > AREA ? 2 * bytes : AREA, at = n % ((area > AREA_MOST ? AREA_MOST : area) / bytes) * bytes;
    if (coll == UNO_ALL_GATHER)
        return uno_all_gather(c->in + at, c->out + at * (size_t)c->ranks, bytes, UNO_UINT8, c->comm, NULL);
    return uno_all_reduce(c->in + at, c->out + at, bytes / sizeof(float), UNO_FLOAT32, UNO_SUM, c->comm, NULL);
}

struct series {
    double ps[SAMPLES];
    size_t count;
};

/* A part of a series' samples: of `each` calls at a time, one call's. */
static uno_err sample(const struct calls *c, uno_coll coll, size_t bytes, int each, struct series *series)
{
    double begun = now_ps();
    size_t n = 0, taken = 0;
    for (int warm = each; warm > 0; warm--)
        TRY(call(c, coll, bytes, n++));
    for (int go_on = 1; go_on;) {
        double start = now_ps();
        for (int i = 0; i < each; i++)
            TRY(call(c, coll, bytes, n++));
        series->ps[series->count++] = (now_ps() - start) / each;
        go_on = ++taken < SAMPLES / PASSES && (taken < LEAST_SAMPLES || now_ps() - begun < PASS_PS);
        TRY(uno_broadcast(&go_on, &go_on, 1, UNO_INT32, 0, c->comm, NULL));
    }
    return UNO_OK;
}

/* Of sixteen samples one is lower. */
static double low(struct series *s)
{
    qsort(s->ps, s->count, sizeof *s->ps, by_value);
    return s->count ? s->ps[s->count / 16] : 0;
}

static uno_err sample_classes(const struct calls *c, uno_coll coll, struct series *series)
{
    for (int i = 0; i < TUNE_CLASSES; i++)
        TRY(sample(c, coll, tune_bytes[i], calls_a_sample[i], &series[i]));
    return UNO_OK;
}

/* ---- communicators ------------------------------------------------------------------------------------------------ */

/* Settings are read when a communicator is made. */
static uno_err join(struct calls *c, const uno_id *id, const char *lend, const char *small)
{
    uno_config config = UNO_CONFIG_INIT;
    config.name = "tune";
    setenv("UNISONO_ALGO", "all_reduce:flat;all_gather:flat", 1);
    setenv("UNISONO_COSTS", "none", 1);
    setenv("UNISONO_LEND", lend, 1);
    setenv("UNISONO_SMALL", small, 1);
    return uno_comm_init_rank(&c->comm, c->ranks, id, c->rank, &config);
}

/* Two ranks, everything through slots. */
static uno_err time_slots(struct calls *c, const uno_id *id)
{
    struct series brief = {0}, gather[TUNE_CLASSES] = {0};
    TRY(join(c, id, "0", "0"));
    for (int pass = 0; pass < PASSES; pass++) {
        TRY(sample(c, UNO_ALL_REDUCE, SHORT_BYTES, SHORT_CALLS, &brief));
        TRY(sample_classes(c, UNO_ALL_GATHER, gather));
    }
    c->times->call_by_slots = low(&brief);
    for (int i = 0; i < TUNE_CLASSES; i++)
        c->times->gather_slots[i] = low(&gather[i]);
    return uno_comm_destroy(c->comm);
}

/* The same as every job has it, in ordinary memory and in memory that the other maps. */
static uno_err time_direct(struct calls *c, const uno_id *id)
{
    struct series brief = {0}, gather[TUNE_CLASSES] = {0}, reduce[TUNE_CLASSES] = {0}, map[TUNE_CLASSES] = {0};
    void *memory = NULL;
    TRY(join(c, id, "1", "1"));
    TRY(uno_mem_alloc(&memory, 3 * (size_t)AREA_MOST));
    memset(memory, 0, 3 * (size_t)AREA_MOST);
    struct calls mapped = *c;
    mapped.in = memory;
    mapped.out = mapped.in + AREA_MOST;
    for (int pass = 0; pass < PASSES; pass++) {
        TRY(sample(c, UNO_ALL_REDUCE, SHORT_BYTES, SHORT_CALLS, &brief));
        TRY(sample_classes(c, UNO_ALL_GATHER, gather));
        TRY(sample_classes(c, UNO_ALL_REDUCE, reduce));
        TRY(sample_classes(&mapped, UNO_ALL_GATHER, map));
    }
    c->times->call_by_lines = low(&brief);
    for (int i = 0; i < TUNE_CLASSES; i++) {
        c->times->gather[i] = low(&gather[i]);
        c->times->reduce[i] = low(&reduce[i]);
        c->times->gather_mapped[i] = low(&map[i]);
    }
    TRY(uno_comm_destroy(c->comm));
    return uno_mem_free(memory);
}

/* Rank 0 says where to join; the others wait for it. */
static uno_err meet(struct tune_meeting *m, int rank, uno_id *id)
{
    if (rank == 0) {
        uno_err err = uno_get_id(&m->id);
        atomic_store_explicit(&m->state, err == UNO_OK ? TUNE_OPEN : TUNE_FAILED, memory_order_release); /* pairs with the acquire below */
        *id = m->id;
        return err;
    }
    int state;
    while ((state = atomic_load_explicit(&m->state, memory_order_acquire)) == TUNE_CLOSED)
        usleep(200);
    *id = m->id;
    return state == TUNE_OPEN ? UNO_OK : UNO_ERR_SYSTEM;
}

static uno_err time_two(struct calls *c, struct tune_shared *shared)
{
    uno_id id;
    TRY(meet(&shared->slots, c->rank, &id));
    TRY(time_slots(c, &id));
    TRY(meet(&shared->direct, c->rank, &id));
    return time_direct(c, &id);
}

static uno_err time_many(struct calls *c, struct tune_shared *shared)
{
    struct series brief = {0};
    uno_id id;
    TRY(meet(&shared->turns, c->rank, &id));
    TRY(join(c, &id, "1", "1"));
    for (int pass = 0; pass < PASSES; pass++) {
        usleep(50000); /* the passes lie apart */
        TRY(sample(c, UNO_ALL_REDUCE, SHORT_BYTES, SHORT_CALLS, &brief));
    }
    c->times->call_in_turns = low(&brief);
    return uno_comm_destroy(c->comm);
}

bool tune_calls(struct tune_shared *shared, int rank, int ranks, bool turns)
{
    struct tune_shared aside = {0}; /* only rank 0's times count */
    size_t bytes = turns ? 2 * (size_t)AREA : 3 * (size_t)AREA_MOST;
    char *memory = aligned_alloc(4096, bytes);
    if (!memory)
        return false;
    memset(memory, 0, bytes);
    struct calls c = {.rank = rank, .ranks = ranks, .in = memory, .out = memory + (turns ? AREA : AREA_MOST),
                      .times = rank == 0 ? &shared->times : &aside.times};
    uno_err err = turns ? time_many(&c, shared) : time_two(&c, shared);
    free(memory);
    return err == UNO_OK;
}
