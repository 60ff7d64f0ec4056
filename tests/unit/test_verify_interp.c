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

static void run_on(const int *hosts, int n, int channels, int root, int seeds)
{
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_COLL_COUNT; coll++) {
            struct plan_params params = {.coll = (uno_coll)coll, .nranks = n, .channels = channels, .root = root, .host_of = hosts};
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

static void run_all(int n, int per_host, int channels, int seeds)
{
    int hosts[64];
    for (int r = 0; r < n; r++)
        hosts[r] = per_host ? r / per_host : 0;
    run_on(hosts, n, channels, 0, seeds);
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

static void hosts_of_any_kind(void **state)
{
    static const int placed[][8] = {{0, 1, 0, 1, 0, 1, 0, 1}, {0, 1, 2, 0, 1, 2, 0, 1}, {0, 1, 1, 1, 2, 2, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 1}};
    for (size_t i = 0; i < ARRAY_LEN(placed); i++)
        for (int n = 3; n <= 8; n++)
            for (int root = 0; root < n; root += n / 2)
                run_on(placed[i], n, 1, root, 3);
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

/* ---- plans broken at random: verdict and interpreter agree ------------------------------------------------------ */

static struct plan *written_out(const char *algo, uno_coll coll, int n)
{
    struct plan_params params = {.coll = coll, .nranks = n, .channels = 1};
    snprintf(params.algo, sizeof params.algo, "%s", algo);
    struct plan *plan = NULL;
    if (planner_make(&params, &plan) != UNO_OK)
        return NULL;
    plan->progs = calloc((size_t)n, sizeof *plan->progs);
    for (int r = 0; r < n; r++)
        assert_int_equal(plan_rank(plan, r, &plan->progs[r]), UNO_OK);
    plan->generate = NULL;
    return plan;
}

static void swap_steps(struct plan_prog *p, struct rng *rng)
{
    struct plan_lane *l = &p->lanes[rng_below(rng, (uint64_t)p->nlanes)];
    if (l->nsteps < 2)
        return;
    int at = l->first + (int)rng_below(rng, (uint64_t)l->nsteps - 1);
    struct plan_step s = p->steps[at];
    p->steps[at] = p->steps[at + 1];
    p->steps[at + 1] = s;
}

/* Two lanes become one, or the first step of a lane goes to the end of the one before it. */
static void join_lanes(struct plan_prog *p, struct rng *rng, bool whole)
{
    if (p->nlanes < 2 || p->ndeps > 0)
        return;
    int at = 1 + (int)rng_below(rng, (uint64_t)p->nlanes - 1);
    struct plan_lane *a = &p->lanes[at - 1], *b = &p->lanes[at];
    int moved = whole ? b->nsteps : MIN(1, b->nsteps);
    a->nsteps += moved;
    b->first += moved;
    b->nsteps -= moved;
}

static void break_plan(struct plan *plan, struct rng *rng)
{
    struct plan_prog *p = &plan->progs[rng_below(rng, (uint64_t)plan->nranks)];
    struct plan_step *s = &p->steps[rng_below(rng, (uint64_t)p->nsteps)];
    switch (rng_below(rng, 8)) {
    case 0: s->ndep = 0; break;
    case 1: swap_steps(p, rng); break;
    case 2: s->src += (int)rng_below(rng, 3) - 1; break;
    case 3: s->dst += (int)rng_below(rng, 3) - 1; break;
    case 4: join_lanes(p, rng, true); break;
    case 5: join_lanes(p, rng, false); break;
    case 6: s->src_buf = (uint8_t)(s->src_buf == PLAN_IN ? PLAN_OUT : s->src_buf == PLAN_OUT ? PLAN_IN : s->src_buf); break;
    default: s->dst_buf = (uint8_t)(s->dst_buf == PLAN_OUT ? PLAN_IN : s->dst_buf); break;
    }
}

static int count_by_kind[VERIFY_KINDS], races_shown;

static void agree(const struct plan *plan, enum ref_place place, bool lent, uint64_t seed)
{
    struct ref_case c = {.plan = plan, .place = place, .lent = lent, .k = 1 + (int)(seed % 3), .seed = seed};
    struct verify_options opt = {.k = c.k, .in_place = place == REF_IN_PLACE, .lent = lent};
    struct verify_result r;
    enum ref_fault fault;
    char why[400];
    assert_int_equal(verify_plan(plan, &opt, &r), UNO_OK);
    count_by_kind[r.kind]++;
    if (r.kind == VERIFY_BOUNDS || r.kind == VERIFY_CONNECTION)
        return;
    assert_int_equal(ref_try_many(c, 25, &fault, why, sizeof why), UNO_OK);
    races_shown += r.kind == VERIFY_RACE && fault != REF_RIGHT;
    bool wrong = r.kind == VERIFY_OK         ? fault != REF_RIGHT
                 : r.kind == VERIFY_DEADLOCK ? fault != REF_STUCK
                 : r.kind == VERIFY_RACE     ? false /* it may show or not */
                                             : fault != REF_WRONG_DATA;
    if (wrong)
        fail_msg("%s %s %d ranks place %d lent %d k %d seed %llu: verify says %s (%s), the interpreter %d (%s)", plan->name,
                 coll_name(plan->coll), plan->nranks, place, lent, c.k, (unsigned long long)seed, verify_kind_names[r.kind],
                 r.reason, fault, why);
}

static void broken_plans_are_judged_alike(void **state)
{
    static const uno_coll colls[] = {UNO_ALL_REDUCE, UNO_REDUCE_SCATTER, UNO_ALL_GATHER, UNO_BROADCAST, UNO_REDUCE, UNO_GATHER,
                                     UNO_SCATTER, UNO_ALL_TO_ALL};
    struct rng rng;
    for (uint64_t i = 0; i < 4000; i++) {
        rng_seed(&rng, seed0 * 1000003 + i);
        const char *algo = planner_algos[rng_below(&rng, (uint64_t)planner_algo_count)].name;
        uno_coll coll = colls[rng_below(&rng, ARRAY_LEN(colls))];
        struct plan *plan = written_out(algo, coll, 2 + (int)rng_below(&rng, 4));
        if (!plan)
            continue;
        for (uint64_t cuts = 1 + rng_below(&rng, 2); cuts > 0; cuts--)
            break_plan(plan, &rng);
        enum ref_place place = rng_below(&rng, 2) && coll != UNO_ALL_TO_ALL ? REF_IN_PLACE : REF_OUT_OF_PLACE;
        plan->out_of_place_ok = place == REF_OUT_OF_PLACE; /* what labels are made for */
        assert_int_equal(verify_label_shapes(plan), UNO_OK);
        agree(plan, place, rng_below(&rng, 2), i * 100 + 1);
        plan_free(plan);
    }
    for (int k = 0; k < VERIFY_KINDS; k++)
        print_message("%s %d  ", verify_kind_names[k], count_by_kind[k]);
    print_message("(races shown: %d)\n", races_shown);
    for (int k = 0; k < VERIFY_KINDS; k++)
        assert_true(count_by_kind[k] > 0 || k == VERIFY_TWICE); /* tests/plans has that one */
    assert_true(races_shown > count_by_kind[VERIFY_RACE] / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_host), cmocka_unit_test(several_hosts),
                                       cmocka_unit_test(hosts_of_any_kind), cmocka_unit_test(several_channels), cmocka_unit_test(a_wrong_plan_is_seen),
                                       cmocka_unit_test(broken_plans_are_judged_alike)};
    if (getenv("UNISONO_TEST_SEED"))
        seed0 = strtoull(getenv("UNISONO_TEST_SEED"), NULL, 0);
    print_message("seed %llu\n", (unsigned long long)seed0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
