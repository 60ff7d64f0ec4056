/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every generator for every collective, ranks, channels and placement that it fits is proved: with one slot, hence any
 * number, out of place, in place and mixed; with lent memory, or marked as right with copies only.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/planner.h"

static int proved, copies_only;
static uint64_t seed;

/* Copies only is what in place costs a plan whose own result overwrites what others may still read: nothing else may. */
static void lent_out_of_place(const struct plan *plan)
{
    struct verify_options opt = {.k = 1, .lent = true};
    struct verify_result result;
    assert_int_equal(verify_plan(plan, &opt, &result), UNO_OK);
    if (result.kind != VERIFY_OK)
        fail_msg("%s %s %d ranks, lent: %s", plan->name, coll_name(plan->coll), plan->nranks, result.reason);
    if (!result.same_bits)
        fail_msg("%s %s %d ranks: ranks reduce in different orders", plan->name, coll_name(plan->coll), plan->nranks);
}

static void prove(const struct plan_params *params)
{
    struct plan *plan = NULL;
    uno_err err = planner_make(params, &plan);
    if (err == UNO_ERR_UNSUPPORTED)
        return;
    if (err != UNO_OK)
        fail_msg("%s %s %d ranks: %s", params->algo, coll_name(params->coll), params->nranks, err_text());
    if (verify_for_use(plan, 1) != UNO_OK)
        fail_msg("%s %s %d ranks %d channels root %d: %s", params->algo, coll_name(params->coll), params->nranks,
                 params->channels, params->root, err_text());
    assert_true(plan->out_of_place_ok);
    assert_true(plan->in_place_ok == (plan->coll != UNO_ALL_TO_ALL));
    lent_out_of_place(plan);
    proved++;
    copies_only += plan->copies_only;
    plan_free(plan);
}

static void prove_on(const int *hosts, int n, int channels, int root)
{
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_COLL_COUNT; coll++) {
            struct plan_params params = {.coll = (uno_coll)coll, .nranks = n, .channels = channels, .root = root, .host_of = hosts};
            snprintf(params.algo, sizeof params.algo, "%s", planner_algos[a].name);
            prove(&params);
        }
}

/* All algorithms and collectives for n ranks on hosts of `per_host` ranks (0: one host). */
static void prove_all(int n, int per_host, int channels, int root)
{
    int hosts[64];
    for (int r = 0; r < n; r++)
        hosts[r] = per_host ? r / per_host : 0;
    prove_on(hosts, n, channels, root);
}

static void up_to_16_ranks(void **state)
{
    proved = 0;
    for (int n = 1; n <= 16; n++)
        prove_all(n, 0, 1, 0);
    assert_true(proved >= 16 * 9); /* flat alone gives as many */
    print_message("%d plans proved, %d of them with copies only\n", proved, copies_only);
}

static void several_hosts(void **state)
{
    for (int n = 2; n <= 16; n++)
        for (int per_host = 1; per_host <= 4; per_host++)
            prove_all(n, per_host, 1, 0);
}

/* Every root, whoever shares a host with whom. */
static void prove_rooted(const int *hosts, int n)
{
    for (int root = 0; root < n; root++)
        prove_on(hosts, n, 1, root);
}

/* Nothing above is passed by in silence: two_level has a plan for each collective, wherever its ranks are. */
static void two_level_serves_every_collective(void **state)
{
    static const int placed[][5] = {{0, 0, 1, 1, 1}, {0, 1, 0, 1, 0}, {0, 1, 1, 1, 1}, {0, 1, 2, 3, 3}, {4, 3, 2, 4, 4}};
    for (size_t i = 0; i < ARRAY_LEN(placed); i++)
        for (int coll = 0; coll <= UNO_BARRIER; coll++)
            for (int root = 0; root < 5; root++) {
                struct plan_params params = {.algo = "two_level", .coll = (uno_coll)coll, .nranks = 5, .channels = 1, .root = root,
                                             .host_of = placed[i]};
                proved = 0;
                prove(&params);
                assert_int_equal(proved, 1);
            }
}

static void ranks_dealt_round_the_hosts(void **state)
{
    int hosts[64];
    for (int n = 2; n <= 13; n++)
        for (int count = 2; count <= MIN(n, 5); count++) {
            for (int r = 0; r < n; r++)
                hosts[r] = r % count;
            prove_rooted(hosts, n);
        }
}

static void hosts_of_unequal_sizes(void **state)
{
    static const int placed[][11] = {{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, {0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 4},
                                     {2, 2, 2, 2, 0, 0, 0, 1, 1, 3, 3}};
    for (size_t i = 0; i < ARRAY_LEN(placed); i++)
        prove_rooted(placed[i], 11);
}

static void ranks_placed_at_random(void **state)
{
    int hosts[64];
    struct rng rng;
    rng_seed(&rng, seed);
    for (int i = 0; i < 40; i++) {
        int n = 2 + (int)rng_below(&rng, 15), count = 1 + (int)rng_below(&rng, 6);
        for (int r = 0; r < n; r++)
            hosts[r] = (int)rng_below(&rng, (uint64_t)count);
        prove_on(hosts, n, 1, (int)rng_below(&rng, (uint64_t)n));
    }
}

static void several_channels(void **state)
{
    for (int n = 2; n <= 8; n++)
        for (int channels = 2; channels <= 4; channels++)
            prove_all(n, 0, channels, 0);
}

static void many_ranks(void **state)
{
    static const int sizes[] = {31, 32, 48, 64};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        prove_all(sizes[i], 0, 1, 0);
        prove_all(sizes[i], 8, 1, 0);
    }
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : clock_ns();
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(up_to_16_ranks), cmocka_unit_test(several_hosts), cmocka_unit_test(two_level_serves_every_collective),
        cmocka_unit_test(ranks_dealt_round_the_hosts),
        cmocka_unit_test(hosts_of_unequal_sizes), cmocka_unit_test(ranks_placed_at_random), cmocka_unit_test(several_channels),
        cmocka_unit_test(many_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
