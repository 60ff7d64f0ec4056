/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same small call once more takes a shorter way (engine_again): what may differ from one to the next, buffers and who calls, what
 * must be refused on it as on the long one, and what comes between: other calls, streams, groups, failures.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"

#define RANKS 3
#define MOST_COUNT 12
#define ROUNDS 3000

static uno_comm *comms[RANKS];
static uno_err failed[RANKS]; /* the first wrong thing of each thread */
static int failed_at[RANKS];
static _Atomic int aborted;

struct buffers { int32_t in[4 * MOST_COUNT], out[4 * RANKS * MOST_COUNT]; };

static unsigned next_random(unsigned *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 16;
}

/* What rank r gives in place i of round n; what comes out is right only if every rank's part of this very round is in it. */
static int32_t given(int n, int r, size_t i) { return (int32_t)(n * 1000 + r * 100 + (int)i); }

static bool came_out(uno_coll coll, int n, int root, int rank, size_t count, const int32_t *out)
{
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (int r = 0; r < RANKS; r++) {
            sum += given(n, r, i);
            if (coll == UNO_ALL_GATHER && out[(size_t)r * count + i] != given(n, r, i))
                return false;
        }
        if ((coll == UNO_ALL_REDUCE || (coll == UNO_REDUCE && rank == root)) && out[i] != sum)
            return false;
        if (coll == UNO_BROADCAST && out[i] != given(n, root, i))
            return false;
    }
    return true;
}

static uno_err one_call(uno_coll coll, const void *in, void *out, size_t count, int root, uno_comm *c, uno_stream *s)
{
    switch (coll) {
    case UNO_ALL_REDUCE: return uno_all_reduce(in, out, count, UNO_INT32, UNO_SUM, c, s);
    case UNO_REDUCE: return uno_reduce(in, out, count, UNO_INT32, UNO_SUM, root, c, s);
    case UNO_BROADCAST: return uno_broadcast(in, out, count, UNO_INT32, root, c, s);
    case UNO_ALL_GATHER: return uno_all_gather(in, out, count, UNO_INT32, c, s);
    default: return uno_barrier(c, s);
    }
}

/* Refused, whatever came before, and nobody else learns of it. */
static bool bad_ones_are_refused(uno_coll coll, struct buffers *b, size_t count, int root, uno_comm *c)
{
    if (coll == UNO_BARRIER)
        return true;
    bool root_here = comms[root] == c, needs_in = coll != UNO_BROADCAST || root_here, needs_out = coll != UNO_REDUCE || root_here;
    return (!needs_in || (one_call(coll, (char *)b->in + 1, b->out, count, root, c, NULL) == UNO_ERR_ARG &&
                          one_call(coll, NULL, b->out, count, root, c, NULL) == UNO_ERR_ARG)) &&
           (!needs_out || (one_call(coll, b->in, (char *)b->out + 2, count, root, c, NULL) == UNO_ERR_ARG &&
                           one_call(coll, b->in, NULL, count, root, c, NULL) == UNO_ERR_ARG)) &&
           (!needs_in || !needs_out || count < 2 || one_call(coll, b->in, b->in + 1, count, root, c, NULL) == UNO_ERR_ARG);
}

static void note(int rank, int n, uno_err err)
{
    if (failed[rank] == UNO_OK) {
        failed[rank] = err;
        failed_at[rank] = n;
    }
}

static void *mixed(void *arg)
{
    int rank = (int)(intptr_t)arg;
    uno_comm *c = comms[rank];
    unsigned x = 5, own = 77u + (unsigned)rank; /* x: what all do; own: what only this rank does */
    struct buffers *b = calloc(1, sizeof *b);
    uno_stream *s = NULL;
    if (uno_stream_create(&s) != UNO_OK)
        note(rank, 0, UNO_ERR_MEMORY);
    for (int n = 1; n <= ROUNDS && failed[rank] == UNO_OK;) {
        static const uno_coll colls[] = {UNO_ALL_REDUCE, UNO_ALL_REDUCE, UNO_REDUCE, UNO_BROADCAST, UNO_ALL_GATHER, UNO_BARRIER};
        uno_coll coll = colls[next_random(&x) % ARRAY_LEN(colls)];
        size_t count = 1 + next_random(&x) % MOST_COUNT;
        int root = (int)(next_random(&x) % RANKS), how = (int)(next_random(&x) % 8);
        for (unsigned again = 1 + next_random(&x) % 6; again > 0 && failed[rank] == UNO_OK; again--, n++) {
            int32_t *in = b->in + next_random(&own) % (2 * MOST_COUNT), *out = b->out + next_random(&own) % MOST_COUNT;
            if (next_random(&own) % 16 == 0 && !bad_ones_are_refused(coll, b, count, root, c))
                note(rank, n, UNO_ERR_ARG);
            for (size_t i = 0; i < count; i++)
                in[i] = given(n, rank, i);
            if (coll == UNO_ALL_REDUCE && next_random(&own) % 4 == 0) { /* in place: on this rank alone */
                memcpy(out, in, count * sizeof *in);
                in = out;
            }
            uno_err err = UNO_OK;
            if (how == 1) {
                err = one_call(coll, in, out, count, root, c, s);
                err = err == UNO_OK ? uno_stream_synchronize(s) : err;
            } else if (how == 2) {
                (void)uno_group_start();
                err = one_call(coll, in, out, count, root, c, NULL);
                uno_err end = uno_group_end();
                err = err == UNO_OK ? end : err;
            } else {
                err = one_call(coll, in, out, count, root, c, NULL);
            }
            if (err != UNO_OK)
                note(rank, n, err);
            else if (!came_out(coll, n, root, rank, count, out))
                note(rank, n, UNO_ERR_INTERNAL);
        }
    }
    if (failed[rank] != UNO_OK)
        (void)uno_comm_abort(c);
    (void)uno_stream_destroy(s);
    free(b);
    return NULL;
}

static void on_threads(void *(*run)(void *arg), double timeout_s)
{
    pthread_t threads[RANKS];
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = timeout_s;
    memset(failed, 0, sizeof failed);
    alarm(100);
    assert_int_equal(uno_comm_init_all(comms, RANKS, &config), UNO_OK);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run, (void *)(intptr_t)r), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++)
        if (failed[r] != UNO_OK)
            print_error("rank %d, round %d: %s: %s\n", r, failed_at[r], uno_err_name(failed[r]), uno_last_error(comms[r]));
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(uno_comm_destroy(comms[r]), UNO_OK);
    alarm(0);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(failed[r], UNO_OK);
}

static void calls_of_all_kinds_between(void **state)
{
    (void)state;
    on_threads(mixed, 60);
}

/* An operation of one's own that was used before is no licence for a number that is none. */
static void *an_operation_that_is_none(void *arg)
{
    int rank = (int)(intptr_t)arg;
    float in = 2, out = 0, scalar = 3;
    uno_op own;
    uno_err err = uno_op_create_premulsum(&own, &scalar, UNO_FLOAT32, comms[rank]);
    for (int n = 0; n < 4 && err == UNO_OK; n++)
        err = uno_all_reduce(&in, &out, 1, UNO_FLOAT32, own, comms[rank], NULL);
    if (err != UNO_OK || out != 6 * RANKS)
        note(rank, 1, err == UNO_OK ? UNO_ERR_INTERNAL : err);
    for (int op = -3; op < 0; op++)
        if (uno_all_reduce(&in, &out, 1, UNO_FLOAT32, (uno_op)op, comms[rank], NULL) != UNO_ERR_ARG)
            note(rank, op, UNO_ERR_ARG);
    return NULL;
}

static void operations_that_are_none(void **state)
{
    (void)state;
    on_threads(an_operation_that_is_none, 5);
}

/* Rank 1 aborts while the others are at it: the short way ends with the same cause, and stays closed. */
static void *until_aborted(void *arg)
{
    int rank = (int)(intptr_t)arg;
    int32_t in = 1, out = 0;
    uno_err err = UNO_OK;
    for (int n = 0; err == UNO_OK && n < 100000000; n++) {
        if (rank == 1 && n == 2000)
            (void)uno_comm_abort(comms[1]);
        err = uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, comms[rank], NULL);
        if (err == UNO_OK && out != RANKS)
            note(rank, n, UNO_ERR_INTERNAL);
    }
    if (err != UNO_ERR_ABORTED || uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, comms[rank], NULL) != UNO_ERR_ABORTED)
        note(rank, -1, err == UNO_OK ? UNO_ERR_INTERNAL : err);
    atomic_fetch_add(&aborted, 1);
    return NULL;
}

static void an_abort_on_the_short_way(void **state)
{
    (void)state;
    on_threads(until_aborted, 60);
    assert_int_equal(aborted, RANKS);
}

/* Rank 2 does not come: the deadline counts there as elsewhere, and says who was missing. */
static void *until_missed(void *arg)
{
    int rank = (int)(intptr_t)arg;
    int32_t in = 1, out = 0;
    uno_err err = UNO_OK;
    for (int n = 0; n < 50 && err == UNO_OK; n++)
        err = uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, comms[rank], NULL);
    if (err == UNO_OK && rank != 2)
        err = uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, comms[rank], NULL);
    if (rank != 2 && (err != UNO_ERR_TIMEOUT || !strstr(uno_last_error(comms[rank]), "all_reduce #51")))
        note(rank, 51, err == UNO_OK ? UNO_ERR_INTERNAL : err);
    return NULL;
}

static void a_deadline_on_the_short_way(void **state)
{
    (void)state;
    on_threads(until_missed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_all_kinds_between),
        cmocka_unit_test(operations_that_are_none),
        cmocka_unit_test(an_abort_on_the_short_way),
        cmocka_unit_test(a_deadline_on_the_short_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
