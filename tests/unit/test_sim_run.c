/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time: what must be longer is longer, who should win wins, and the same run gives the same number. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/planner.h"

static struct sim_options options(void)
{
    return (struct sim_options){.costs = topo_costs_default, .k = 2, .tile_bytes = 65536};
}

static struct sim_result simulate(const char *algo, uno_coll coll, int n, int per_host, size_t bytes, struct sim_options opt)
{
    int hosts[64];
    for (int r = 0; r < n; r++)
        hosts[r] = per_host ? r / per_host : 0;
    struct plan_params params = {.coll = coll, .nranks = n, .channels = 1, .host_of = hosts};
    snprintf(params.algo, sizeof params.algo, "%s", algo);
    struct plan *plan = NULL;
    struct sim_result result = {0};
    struct request req = {.coll = coll, .type = UNO_FLOAT32, .op = UNO_SUM, .count = bytes / 4};
    if (planner_make(&params, &plan) != UNO_OK || sim_run(plan, &req, &opt, &result) != UNO_OK)
        fail_msg("%s: %s", algo, err_text());
    plan_free(plan);
    return result;
}

static uint64_t time_of(const char *algo, int n, size_t bytes)
{
    return simulate(algo, UNO_ALL_REDUCE, n, 0, bytes, options()).total_ps;
}

static void time_grows_with_bytes_and_ranks(void **state)
{
    for (int a = 0; a < planner_algo_count; a++) {
        if (!(planner_algos[a].colls & 1u << UNO_ALL_REDUCE) || strcmp(planner_algos[a].name, "two_level") == 0)
            continue; /* two_level is for several hosts */
        const char *algo = planner_algos[a].name;
        uint64_t before = 0;
        for (size_t bytes = 4096; bytes <= 64u << 20; bytes *= 4) {
            uint64_t t = time_of(algo, 8, bytes);
            assert_true(t > before);
            before = t;
        }
        assert_true(time_of(algo, 8, 1024) > time_of(algo, 2, 1024));
    }
}

static void a_tree_wins_small_and_a_ring_wins_large(void **state)
{
    assert_true(time_of("tree", 16, 256) < time_of("ring", 16, 256));
    assert_true(time_of("ring", 16, 64u << 20) < time_of("tree", 16, 64u << 20));
    assert_true(time_of("flat", 8, 64) < time_of("ring", 8, 64));
    assert_true(time_of("ring", 8, 64u << 20) < time_of("flat", 8, 64u << 20));
}

/* Two ranks, one firing each way: the number can be worked out by hand. */
static void one_message_costs_what_it_must(void **state)
{
    struct sim_options opt = options();
    opt.costs = (struct topo_costs){.shm_latency_ps = 1000, .shm_ps_per_kb = 2000, .reduce_ps_per_kb = 3000, .step_ps = 7,
                                    .net_latency_ps = 50000, .net_ps_per_kb = 10000, .processors = 64};
    struct sim_result r = simulate("flat", UNO_BROADCAST, 2, 0, 1024, opt);
    /* root: send, then copy; the other: receive */
    assert_int_equal(r.total_ps, (7 + 1000) + 1000 + (7 + 1000));
    assert_int_equal(r.bytes_shm, 1024);
    assert_int_equal(r.bytes_net, 0);
    r = simulate("flat", UNO_BROADCAST, 2, 1, 1024, opt);
    assert_int_equal(r.total_ps, (7 + 1000) + 10000 + 50000 + (7 + 1000));
    assert_int_equal(r.bytes_net, 1024);
    assert_int_equal(r.critical_rank, 1);
}

static void fewer_processors_take_longer(void **state)
{
    struct sim_options many = options(), two = options();
    two.costs.processors = 2;
    uint64_t a = simulate("ring", UNO_ALL_REDUCE, 8, 0, 1u << 20, many).total_ps;
    uint64_t b = simulate("ring", UNO_ALL_REDUCE, 8, 0, 1u << 20, two).total_ps;
    assert_true(b > 3 * a); /* a quarter of the processors, and changes between ranks */
}

static void two_levels_spare_the_network(void **state)
{
    struct sim_result flat = simulate("ring", UNO_ALL_REDUCE, 8, 1, 1u << 20, options());
    struct sim_result hosts = simulate("two_level", UNO_ALL_REDUCE, 8, 4, 1u << 20, options());
    assert_true(flat.bytes_net > hosts.bytes_net && hosts.bytes_net > 0 && flat.bytes_shm == 0);
}

static void long_runs_are_extended_by_their_pace(void **state)
{
    struct sim_options opt = options();
    opt.tile_bytes = 4096;
    struct sim_result r = simulate("ring", UNO_ALL_REDUCE, 32, 0, 1u << 30, opt);
    assert_true(r.extrapolated);
    struct sim_result half = simulate("ring", UNO_ALL_REDUCE, 32, 0, 1u << 29, opt);
    assert_true(r.total_ps > half.total_ps * 19 / 10 && r.total_ps < half.total_ps * 21 / 10);
}

static void the_same_run_gives_the_same_number(void **state)
{
    for (int n = 2; n < 12; n++)
        assert_int_equal(time_of("ring", n, 100000), time_of("ring", n, 100000));
}

/* A plan that cannot end is an error, not an endless loop. */
static void a_deadlock_is_said(void **state)
{
    struct plan_params params = {.algo = "flat", .coll = UNO_ALL_GATHER, .nranks = 2, .channels = 1};
    struct plan *plan = NULL;
    assert_int_equal(planner_make(&params, &plan), UNO_OK);
    plan->progs = calloc(2, sizeof *plan->progs);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(plan_rank(plan, r, &plan->progs[r]), UNO_OK);
        struct plan_prog *p = &plan->progs[r];
        struct plan_build b = {.prog = p, .plan = plan, .cap_deps = 0};
        p->steps[0].dep = 0; /* the first step waits for the last of its own lane */
        p->steps[0].ndep = 1;
        free(p->deps);
        p->deps = NULL;
        p->ndeps = 0;
        assert_int_equal(mem_grow(&p->deps, &b.cap_deps, 1, sizeof *p->deps), UNO_OK);
        p->deps[p->ndeps++] = (struct plan_dep){.lane = 0, .step = p->lanes[0].nsteps - 1};
    }
    plan->generate = NULL;
    struct request req = {.coll = UNO_ALL_GATHER, .type = UNO_INT32, .count = 5};
    struct sim_options opt = options();
    struct sim_result result;
    assert_int_equal(sim_run(plan, &req, &opt, &result), UNO_ERR_PLAN);
    assert_non_null(strstr(err_text(), "never gets on"));
    opt.tile_bytes = 0;
    assert_int_equal(sim_run(plan, &req, &opt, &result), UNO_ERR_ARG);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_grows_with_bytes_and_ranks), cmocka_unit_test(a_tree_wins_small_and_a_ring_wins_large),
        cmocka_unit_test(one_message_costs_what_it_must), cmocka_unit_test(fewer_processors_take_longer),
        cmocka_unit_test(two_levels_spare_the_network), cmocka_unit_test(long_runs_are_extended_by_their_pace),
        cmocka_unit_test(the_same_run_gives_the_same_number), cmocka_unit_test(a_deadlock_is_said)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
