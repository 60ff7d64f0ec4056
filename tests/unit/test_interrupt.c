/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a language binding sets: deadlines that change, and the question whether a waiting thread is wanted elsewhere. Ranks are
 * threads of this process; what would hang is ended by the alarm.
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

static uno_comm *comms[2];
static _Thread_local int wanted_after;   /* this many questions; 0 = never */
static _Atomic int asked;

static int ask(void *arg)
{
    assert_ptr_equal(arg, &asked);
    atomic_fetch_add(&asked, 1);
    return wanted_after > 0 && --wanted_after == 0;
}

static void make(void)
{
    alarm(60);
    assert_int_equal(uno_comm_init_all(comms, 2, NULL), UNO_OK);
    atomic_store(&asked, 0);
    uno_set_interrupt_callback(ask, &asked);
}

static void destroy(void)
{
    uno_set_interrupt_callback(NULL, NULL);
    for (int r = 0; r < 2; r++)
        assert_int_equal(uno_comm_destroy(comms[r]), UNO_OK);
    alarm(0);
}

/* A collective cannot be taken back: it fails on all ranks, and they know why. */
static void collective(void **state)
{
    (void)state;
    float x = 1;
    make();
    wanted_after = 2;
    uint64_t start = clock_ns();
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_FLOAT32, UNO_SUM, comms[0], NULL), UNO_ERR_ABORTED);
    assert_true(clock_ns() - start > 150000000u);
    assert_int_equal(atomic_load(&asked), 2);
    assert_non_null(strstr(uno_last_error(NULL), "rank 0 was interrupted by a signal in all_reduce"));
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_FLOAT32, UNO_SUM, comms[1], NULL), UNO_ERR_ABORTED);
    assert_non_null(strstr(uno_last_error(NULL), "rank 0 was interrupted"));
    destroy();
}

/* A request can: it is kept, and the communicator goes on. */
static void request(void **state)
{
    (void)state;
    int32_t x = 0, y = 7;
    uno_request *r, *s;
    make();
    assert_int_equal(uno_irecv(&x, 1, UNO_INT32, 1, 3, comms[0], &r), UNO_OK);
    wanted_after = 1;
    assert_int_equal(uno_wait(&r, NULL), UNO_ERR_IN_PROGRESS);
    assert_non_null(r);
    wanted_after = 1;
    assert_int_equal(uno_wait_until(&r, 30, NULL), UNO_ERR_IN_PROGRESS);
    assert_non_null(strstr(uno_last_error(NULL), "signal"));
    assert_int_equal(uno_isend(&y, 1, UNO_INT32, 0, 3, comms[1], &s), UNO_OK);
    assert_int_equal(uno_wait(&r, NULL), UNO_OK);
    assert_int_equal(uno_wait(&s, NULL), UNO_OK);
    assert_int_equal(x, 7);
    destroy();
}

/* A signal handler of the program calls the library: it is refused, for it would wait for the call it interrupts; an abort works. */
static int handler(void *arg)
{
    uno_request **r = arg;
    uno_err async;
    float x = 1;
    if (uno_all_reduce(&x, &x, 1, UNO_FLOAT32, UNO_SUM, comms[0], NULL) != UNO_ERR_USAGE || !strstr(uno_last_error(NULL), "interrupt callback") ||
        uno_wait(r, NULL) != UNO_ERR_USAGE || uno_comm_finalize(comms[0]) != UNO_ERR_USAGE || uno_comm_destroy(comms[0]) != UNO_ERR_USAGE ||
        uno_comm_set_timeout(comms[0], 5) != UNO_ERR_USAGE || uno_comm_async_error(comms[0], &async) != UNO_OK)
        return 0; /* the alarm ends it */
    return uno_comm_abort(comms[0]) == UNO_OK;
}

static void calls_from_within(void **state)
{
    (void)state;
    float x = 1;
    int32_t y = 0;
    uno_request *r;
    make();
    assert_int_equal(uno_irecv(&y, 1, UNO_INT32, 1, 3, comms[0], &r), UNO_OK);
    uno_set_interrupt_callback(handler, &r);
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_FLOAT32, UNO_SUM, comms[0], NULL), UNO_ERR_ABORTED);
    uno_set_interrupt_callback(NULL, NULL);
    assert_int_equal(uno_wait(&r, NULL), UNO_ERR_ABORTED);
    destroy();
}

static void no_question_when_quick(void **state)
{
    (void)state;
    int32_t x = 0, y = 7;
    uno_request *r, *s;
    make();
    assert_int_equal(uno_irecv(&x, 1, UNO_INT32, 1, 3, comms[0], &r), UNO_OK);
    assert_int_equal(uno_isend(&y, 1, UNO_INT32, 0, 3, comms[1], &s), UNO_OK);
    assert_int_equal(uno_wait(&r, NULL), UNO_OK);
    assert_int_equal(uno_wait(&s, NULL), UNO_OK);
    assert_int_equal(atomic_load(&asked), 0);
    destroy();
}

/* While rank 0 waits: once the first call has begun. */
static void *more_time(void *arg)
{
    (void)arg;
    usleep(100000);
    return uno_comm_set_timeout(comms[0], 50) == UNO_OK ? NULL : comms[0];
}

static void deadlines(void **state)
{
    (void)state;
    float x = 1;
    make();
    assert_int_equal(uno_comm_set_timeout(comms[0], 0), UNO_ERR_ARG);
    assert_non_null(strstr(uno_last_error(comms[0]), "more than 0"));
    assert_int_equal(uno_comm_set_timeout(NULL, 1), UNO_ERR_ARG);
    setenv("UNISONO_TIMEOUT", "0.2", 1); /* wins */
    assert_int_equal(uno_comm_set_timeout(comms[0], 500), UNO_OK);
    unsetenv("UNISONO_TIMEOUT");
    uint64_t start = clock_ns();
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_FLOAT32, UNO_SUM, comms[0], NULL), UNO_ERR_TIMEOUT);
    assert_in_range(clock_ns() - start, 190000000u, 5000000000u);
    assert_non_null(strstr(uno_last_error(NULL), "waited 0.2 s"));
    destroy();
    make();
    assert_int_equal(uno_comm_set_timeout(comms[0], 100), UNO_OK);
    setenv("NCCL_TIMEOUT", "1", 1); /* less than the program, more than the default */
    assert_int_equal(uno_comm_set_timeout(comms[0], -1), UNO_OK);
    unsetenv("NCCL_TIMEOUT");
    start = clock_ns();
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_FLOAT32, UNO_SUM, comms[0], NULL), UNO_ERR_TIMEOUT);
    assert_in_range(clock_ns() - start, 990000000u, 9000000000u);
    destroy();
    make();
    assert_int_equal(uno_comm_set_timeout(comms[0], 0.3), UNO_OK);
    start = clock_ns();
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_FLOAT32, UNO_SUM, comms[0], NULL), UNO_ERR_TIMEOUT);
    assert_in_range(clock_ns() - start, 290000000u, 5000000000u);
    destroy();
    make();
    assert_int_equal(uno_comm_set_timeout(comms[0], 0.3), UNO_OK);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, more_time, NULL), 0);
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_FLOAT32, UNO_SUM, comms[0], NULL), UNO_ERR_TIMEOUT);
    assert_non_null(strstr(uno_last_error(comms[0]), "waited 0.3 s")); /* not the time-out that came later */
    pthread_join(other, NULL);
    destroy();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(collective), cmocka_unit_test(request), cmocka_unit_test(no_question_when_quick),
                                       cmocka_unit_test(deadlines), cmocka_unit_test(calls_from_within)};
    unsetenv("UNISONO_TIMEOUT");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
