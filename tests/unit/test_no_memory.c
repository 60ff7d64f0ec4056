/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No memory for a call that is to be queued: the caller is told, and the other ranks, which made their part of it, do not wait for
 * the deadline. All ranks in this process; the faults are armed while one rank issues.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "unisono.h"

enum { N = 3000 };
static uno_comm *comms[2];
static uno_stream *stream;
static int in[N], out[2][N];

static uno_err on_stream(int rank)
{
    return uno_all_reduce(in, out[rank], N, UNO_INT32, UNO_SUM, comms[rank], rank == 0 ? stream : NULL);
}

static uno_err in_group(int rank)
{
    uno_err err = uno_group_start();
    if (err != UNO_OK)
        return err;
    err = on_stream(rank);
    uno_err end = uno_group_end();
    return err != UNO_OK ? err : end;
}

static uno_err send_on_stream(int rank)
{
    return rank == 0 ? uno_send(in, N, UNO_INT32, 1, comms[0], stream) : uno_recv(out[1], N, UNO_INT32, 0, comms[1], NULL);
}

static uno_err receive_on_stream(int rank)
{
    return rank == 0 ? uno_recv(out[0], N, UNO_INT32, 1, comms[0], stream) : uno_send(in, N, UNO_INT32, 0, comms[1], NULL);
}

static uno_err request(int rank)
{
    uno_request *r = NULL;
    uno_err err = rank == 0 ? uno_isend(in, 100, UNO_INT32, 1, 7, comms[0], &r) : uno_irecv(out[1], 100, UNO_INT32, 0, 7, comms[1], &r);
    return err == UNO_OK ? uno_wait(&r, NULL) : err;
}

static void make(void)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 60;
    alarm(100);
    assert_int_equal(uno_comm_init_all(comms, 2, &config), UNO_OK);
    assert_int_equal(uno_stream_create(&stream), UNO_OK);
}

static void destroy(void)
{
    (void)uno_stream_destroy(stream);
    for (int r = 0; r < 2; r++)
        assert_int_equal(uno_comm_destroy(comms[r]), UNO_OK);
}

/* Rank 0 first, with the nth allocation of its call failing, then rank 1. Returns whether rank 0 was told. *more: there was an nth. */
static bool try_one(uno_err (*side)(int rank), long nth, bool *more)
{
    fault_arm_here("alloc", nth);
    uno_err first = side(0);
    *more = fault_value("alloc") <= 0;
    fault_arm_here(NULL, 0);
    uno_err second = side(1);
    assert_int_equal(first, second);
    assert_true(first == UNO_OK || first == UNO_ERR_MEMORY);
    if (first == UNO_OK) {
        assert_int_equal(uno_stream_synchronize(stream), UNO_OK);
        return false;
    }
    for (int r = 0; r < 2; r++)
        if (!strstr(uno_last_error(comms[r]), "rank 0"))
            fail_msg("rank %d: \"%s\" (allocation %ld)", r, uno_last_error(comms[r]), nth);
    return true;
}

static uno_err (*const sides[])(int) = {on_stream, in_group, send_on_stream, receive_on_stream, request};

static void all_ranks_learn_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        int told = 0;
        bool more = true;
        for (long nth = 1; more; nth++) {
            make();
            told += try_one(sides[i], nth, &more);
            destroy();
        }
        assert_true(told >= 2); /* the copy of the call, its place in the queue or the request */
    }
    alarm(0);
}

/* The allocation may be one of the other rank's call, or of the threads that run what was queued: nobody waits for the deadline, and
 * of a collective both ranks come to the same end. (A send may have ended well before its receive fails.) */
static void nobody_waits_whoever_has_no_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sides); i++)
        for (long nth = 1; nth <= 12; nth++) {
            make();
            fault_arm("alloc", nth);
            uno_err first = sides[i](0), second = sides[i](1);
            fault_arm(NULL, 0);
            if (first == UNO_OK)
                first = uno_stream_synchronize(stream);
            bool collective = sides[i] == on_stream || sides[i] == in_group;
            bool legal = (first == UNO_OK || first == UNO_ERR_MEMORY) && (second == UNO_OK || second == UNO_ERR_MEMORY);
            if (!legal || (collective && first != second))
                fail_msg("allocation %ld of case %zu: rank 0: %s, rank 1: %s: %s", nth, i, uno_err_name(first), uno_err_name(second),
                         uno_last_error(comms[1]));
            destroy();
        }
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ranks_learn_it),
                                       cmocka_unit_test(nobody_waits_whoever_has_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
