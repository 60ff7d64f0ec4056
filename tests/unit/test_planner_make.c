/* SPDX-License-Identifier: Apache-2.0 */
/* Generated plans: structure (balanced messages, bounds, short programs), ids, refusals. Their proof is verify's test. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/planner.h"

#define MAX_RANKS 17
#define CHANNELS 8

/* messages[kind][source][destination][channel] of one tile; kind 0: sent, 1: received */
static int messages[2][MAX_RANKS][MAX_RANKS][CHANNELS + 1]; /* the last: groups */

static void count_rank(const struct plan *plan, int rank, const struct plan_prog *prog)
{
    for (int i = 0; i < prog->nsteps; i++) {
        const struct plan_step *s = &prog->steps[i];
        assert_true(s->count >= 1 && s->shape >= 0 && s->shape + s->count <= plan_shapes(plan));
        if (s->src_buf == PLAN_IN || s->src_buf == PLAN_OUT)
            assert_true(s->src >= 0 && s->src + s->count <= plan_buf_chunks(plan, s->src_buf));
        if (s->dst_buf == PLAN_IN || s->dst_buf == PLAN_OUT)
            assert_true(s->dst >= 0 && s->dst + s->count <= plan_buf_chunks(plan, s->dst_buf));
        if (s->src_buf == PLAN_SCRATCH)
            assert_true(s->src >= 0 && s->src + s->count <= prog->scratch_chunks);
        if (s->dst_buf == PLAN_SCRATCH)
            assert_true(s->dst >= 0 && s->dst + s->count <= prog->scratch_chunks);
        assert_int_not_equal(s->dst_buf, PLAN_IN);
        assert_true(plan_ops[s->op].sends == (s->send >= 0));
        assert_true(plan_ops[s->op].receives == (s->nrecv > 0));
        if (s->send >= 0) {
            const struct plan_conn *c = &prog->sends[s->send];
            assert_true(c->channel >= 0 && c->channel < plan->channels);
            if (c->group)
                for (int to = 0; to < plan->nranks; to++)
                    messages[0][rank][to][CHANNELS] += to != rank && plan->host_of[to] == plan->host_of[rank] ? s->count : 0;
            else
                messages[0][rank][c->peer][c->channel] += s->count;
        }
        for (int j = 0; j < s->nrecv; j++) {
            const struct plan_conn *c = &prog->recvs[prog->recv_list[s->recv + j]];
            assert_true(c->channel >= 0 && c->channel < plan->channels);
            messages[1][c->peer][rank][c->group ? CHANNELS : c->channel] += s->count;
        }
    }
}

static void check_plan(const char *algo, uno_coll coll, int n, int channels, const int *host_of, int root)
{
    struct plan_params params = {.coll = coll, .nranks = n, .channels = channels, .host_of = host_of, .root = root};
    snprintf(params.algo, sizeof params.algo, "%s", algo);
    struct plan *plan;
    uno_err err = planner_make(&params, &plan);
    if (err == UNO_ERR_UNSUPPORTED)
        return;
    assert_int_equal(err, UNO_OK);
    memset(messages, 0, sizeof messages);
    for (int r = 0; r < n; r++) {
        struct plan_prog prog;
        assert_int_equal(plan_rank(plan, r, &prog), UNO_OK);
        assert_true(prog.nsteps >= 1 && prog.nsteps <= 8 * channels * (n + 2));
        count_rank(plan, r, &prog);
        plan_prog_free(&prog);
    }
    if (memcmp(messages[0], messages[1], sizeof messages[0]) != 0)
        fail_msg("%s %s on %d ranks: sends and receives do not balance", algo, coll_name(coll), n);
    plan_free(plan);
}

static void sends_and_receives_balance(void **state)
{
    (void)state;
    static const int hosts[][MAX_RANKS] = {
        {0}, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4}, {0, 1, 0, 1, 0, 1, 2, 2, 2, 2, 2, 0, 0, 3, 3, 3, 4},
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
    int plans = 0;
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_COLL_COUNT; coll++)
            for (int n = 1; n <= MAX_RANKS; n++)
                for (int channels = 1; channels <= 4; channels *= 2)
                    for (size_t h = 0; h < ARRAY_LEN(hosts) && planner_algos[a].colls & 1u << coll; h++, plans++)
                        for (int root = 0; root < (strcmp(planner_algos[a].name, "two_level") == 0 ? n : 1); root++)
                            check_plan(planner_algos[a].name, (uno_coll)coll, n, channels, hosts[h], root);
    assert_true(plans > 1000);
}

static void ids_tell_plans_apart(void **state)
{
    (void)state;
    id128 seen[4096];
    int count = 0;
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_COLL_COUNT; coll++)
            for (int n = 1; n <= 12; n++)
                for (int channels = 1; channels <= 2; channels++)
                    for (int spread = 0; spread < 2; spread++) {
                        int host_of[12];
                        for (int r = 0; r < n; r++)
                            host_of[r] = 40 + spread * r / 3;
                        struct plan_params p = {.coll = (uno_coll)coll, .nranks = n, .channels = channels, .host_of = host_of};
                        snprintf(p.algo, sizeof p.algo, "%s", planner_algos[a].name);
                        struct plan *plan, *again;
                        if (host_of[n - 1] == 40 && spread)
                            continue; /* the same placement */
                        if (planner_make(&p, &plan) != UNO_OK)
                            continue;
                        for (int i = 0; i < count; i++)
                            assert_false(id128_equal(seen[i], plan->id));
                        assert_int_equal(planner_make(&p, &again), UNO_OK);
                        assert_true(id128_equal(again->id, plan->id));
                        assert_true(count < (int)ARRAY_LEN(seen));
                        seen[count++] = plan->id;
                        plan_free(again);
                        plan_free(plan);
                    }
    assert_true(count > 300);
}

static void impossible_plans_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct plan *plan;
    struct plan_params p = {.algo = "rings", .coll = UNO_ALL_REDUCE, .nranks = 4, .channels = 1};
    assert_int_equal(planner_make(&p, &plan), UNO_ERR_ARG);
    assert_non_null(strstr(err_text(), "legal are flat flat2 ring"));
    p = (struct plan_params){.algo = "ring", .coll = UNO_ALL_TO_ALL, .nranks = 4, .channels = 1};
    assert_int_equal(planner_make(&p, &plan), UNO_ERR_UNSUPPORTED);
    assert_non_null(strstr(err_text(), "these have: flat"));
    p = (struct plan_params){.algo = "flat", .coll = UNO_BROADCAST, .nranks = 4, .channels = 2};
    assert_int_equal(planner_make(&p, &plan), UNO_ERR_UNSUPPORTED);
    p = (struct plan_params){.algo = "ring", .coll = UNO_BROADCAST, .nranks = 4, .channels = 1, .root = 4};
    assert_int_equal(planner_make(&p, &plan), UNO_ERR_ARG);
    p.root = 3;
    assert_int_equal(planner_make(&p, &plan), UNO_ERR_UNSUPPORTED);
    assert_non_null(strstr(err_text(), "renumbered for root 3"));
    p = (struct plan_params){.algo = "ring", .coll = UNO_BROADCAST, .nranks = 0, .channels = 1};
    assert_int_equal(planner_make(&p, &plan), UNO_ERR_ARG);
    p = (struct plan_params){.algo = "ring", .coll = UNO_BROADCAST, .nranks = 3, .channels = 9};
    assert_int_equal(planner_make(&p, &plan), UNO_ERR_ARG);
}

static void making_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct plan_params p = {.algo = "ring", .coll = UNO_ALL_REDUCE, .nranks = 6, .channels = 2};
    struct plan *plan = NULL;
    int n = 0;
    for (uno_err err = UNO_ERR_MEMORY; err != UNO_OK; n++) {
        fault_arm("alloc", n + 1);
        err = planner_make(&p, &plan);
        fault_arm("alloc", 0);
        assert_true(err == UNO_OK || err == UNO_ERR_MEMORY);
    }
    assert_true(n > 5);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_and_receives_balance), cmocka_unit_test(ids_tell_plans_apart),
        cmocka_unit_test(impossible_plans_are_refused_with_a_reason),
        cmocka_unit_test(making_survives_every_failed_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
