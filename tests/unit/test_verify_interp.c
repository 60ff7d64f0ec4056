/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What verify proves never fails in the reference interpreter: all generators, several tiles with uneven chunks and V
 * forms, random schedules, one slot, any mixture of in place, lent memory where the proof covers it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "planner/planner.h"
#include "ref/ref_try.h"

static uint64_t seed0 = 1;
static int runs;

static void never_fails(const struct plan *plan, enum ref_place place, bool lent, int seeds)
{
    struct ref_case c = {.plan = plan, .place = place, .lent = lent, .k = 1 + runs % 3, .seed = seed0 + (uint64_t)runs * 1000};
    enum ref_fault fault;
    char why[400];
    assert_int_equal(ref_try_many(c, seeds, &fault, why, sizeof why), UNO_OK);
    if (fault != REF_RIGHT)
        fail_msg("%s %s %d ranks, place %d, lent %d, k %d was proved, but %s", plan->name, coll_name(plan->coll), plan->nranks,
                 place, lent, c.k, why);
    runs++;
}

static void run_all(int n, int per_host, int channels, int seeds)
{
    int hosts[64];
    for (int r = 0; r < n; r++)
        hosts[r] = per_host ? r / per_host : 0;
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_COLL_COUNT; coll++) {
            struct plan_params params = {.coll = (uno_coll)coll, .nranks = n, .channels = channels, .host_of = hosts};
            snprintf(params.algo, sizeof params.algo, "%s", planner_algos[a].name);
            struct plan *plan = NULL;
            if (planner_make(&params, &plan) != UNO_OK)
                continue;
            assert_int_equal(verify_for_use(plan, 1), UNO_OK);
            never_fails(plan, REF_OUT_OF_PLACE, true, seeds); /* copies only is only for in place, see verify_generators */
            never_fails(plan, REF_IN_PLACE, !plan->copies_only, seeds);
            never_fails(plan, REF_MIXED, !plan->copies_only, seeds);
            never_fails(plan, REF_MIXED, false, seeds);
            plan_free(plan);
        }
}

static void one_host(void **state)
{
    for (int n = 1; n <= 9; n++)
        run_all(n, 0, 1, n < 6 ? 100 : 30);
}

static void several_hosts(void **state)
{
    for (int n = 2; n <= 8; n++)
        for (int per_host = 1; per_host <= 3; per_host++)
            run_all(n, per_host, 1, 6);
}

static void several_channels(void **state)
{
    for (int n = 2; n <= 5; n++)
        run_all(n, 0, 3, 10);
}

/* Seeing nothing must mean something: the same trials do show a plan that is wrong. */
static void a_wrong_plan_is_seen(void **state)
{
    struct plan_params params = {.algo = "ring", .coll = UNO_ALL_REDUCE, .nranks = 3, .channels = 1};
    struct plan *plan = NULL;
    assert_int_equal(planner_make(&params, &plan), UNO_OK);
    plan->progs = calloc(3, sizeof *plan->progs);
    for (int r = 0; r < 3; r++)
        assert_int_equal(plan_rank(plan, r, &plan->progs[r]), UNO_OK);
    plan->generate = NULL;
    for (int s = 0; s < plan->progs[1].nsteps; s++)
        if (plan->progs[1].steps[s].op == PLAN_RECV_REDUCE_SEND)
            plan->progs[1].steps[s].src = (plan->progs[1].steps[s].src + 1) % plan->parts;
    struct ref_case c = {.plan = plan, .k = 2, .seed = seed0};
    enum ref_fault fault;
    char why[400];
    assert_int_equal(ref_try_many(c, 50, &fault, why, sizeof why), UNO_OK);
    assert_int_equal(fault, REF_WRONG_DATA);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_host), cmocka_unit_test(several_hosts),
                                       cmocka_unit_test(several_channels), cmocka_unit_test(a_wrong_plan_is_seen)};
    if (getenv("UNISONO_TEST_SEED"))
        seed0 = strtoull(getenv("UNISONO_TEST_SEED"), NULL, 0);
    print_message("seed %llu\n", (unsigned long long)seed0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
