/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that share a processor with programs that are none of theirs: a yield there is lost for a slice of time, so waits sleep.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "unisono.h"
#include "unisono_watch.h"

enum { STRANGERS = 2, OPERATIONS = 300, COUNT = 4096 };

static uno_comm *comms[2];
static pid_t strangers[STRANGERS];
static float in[2][COUNT], out[2][COUNT];

static void *rank_main(void *arg)
{
    int r = (int)(intptr_t)arg;
    for (int i = 0; i < OPERATIONS; i++)
        if (uno_all_reduce(in[r], out[r], COUNT, UNO_FLOAT32, UNO_SUM, comms[r], NULL) != UNO_OK)
            return comms[r];
    return NULL;
}

/* Everything on one processor from here on, with programs that never give it away. */
static void share_processor(void)
{
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; c++)
        if (CPU_ISSET(c, &all))
            CPU_SET(c, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < STRANGERS; i++)
        if ((strangers[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                __asm__ volatile("" ::: "memory");
        }
}

static int end_strangers(void **state)
{
    (void)state;
    for (int i = 0; i < STRANGERS; i++)
        if (strangers[i] > 0) {
            kill(strangers[i], SIGKILL);
            waitpid(strangers[i], NULL, 0);
        }
    return 0;
}

/* Does a yield go to the others for long, once they have begun? Not every scheduler does so. */
static bool yields_are_lost(void)
{
    uint64_t until = clock_ns() + 500000000;
    for (int lost = 0; clock_ns() < until;) {
        uint64_t start = clock_ns();
        sched_yield();
        lost += clock_ns() - start > 1500000;
        if (lost == 15)
            return true;
    }
    return false;
}

static void waits_sleep(void **state)
{
    (void)state;
    share_processor();
    if (!yields_are_lost())
        skip();
    assert_int_equal(uno_comm_init_all(comms, 2, NULL), UNO_OK);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, rank_main, (void *)(intptr_t)1), 0);
    void *failed[2] = {rank_main(NULL), NULL};
    pthread_join(other, &failed[1]);
    assert_true(!failed[0] && !failed[1]);
    uint64_t yields = 0, sleeps = 0;
    for (int r = 0; r < 2; r++) {
        uno_counts counts;
        assert_int_equal(uno_comm_counts(comms[r], &counts), UNO_OK);
        yields += counts.waits_yield;
        sleeps += counts.waits_sleep;
        assert_int_equal(uno_comm_destroy(comms[r]), UNO_OK);
    }
    if (sleeps < 4 * yields)
        fail_msg("%llu waits ended in a yield, %llu in sleep", (unsigned long long)yields, (unsigned long long)sleeps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(waits_sleep, end_strangers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
