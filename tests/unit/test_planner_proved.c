/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of plans that are not proved again at run time: its fingerprints are those of today's generators, it is
 * complete, and a random sample of it proves. Arguments: a seed; or "prove": prove all and print the table.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/planner_choose.h"

static uint64_t seed;
static const int channel_counts[] = {1, 2, 4};

static uint64_t mix_ints(uint64_t h, const int *v, int count)
{
    for (int i = 0; i < count; i++)
        h = hash_mix(h, (uint32_t)v[i]);
    return h;
}

static uint64_t mix_conns(uint64_t h, const struct plan_conn *c, int count)
{
    for (int i = 0; i < count; i++)
        h = mix_ints(h, (int[]){c[i].peer, c[i].channel, c[i].group}, 3);
    return h;
}

static uint64_t mix_prog(uint64_t h, const struct plan_prog *p)
{
    h = mix_ints(h, (int[]){p->rank, p->scratch_chunks, p->nlanes, p->nsteps, p->nsends, p->nrecvs, p->nrecv_list, p->ndeps}, 8);
    for (int i = 0; i < p->nlanes; i++)
        h = mix_ints(h, (int[]){p->lanes[i].first, p->lanes[i].nsteps}, 2);
    for (int i = 0; i < p->nsteps; i++) {
        const struct plan_step *s = &p->steps[i];
        h = mix_ints(h, (int[]){s->op, s->src_buf, s->dst_buf, s->flags, s->src, s->dst, s->count, s->shape, s->send, s->recv,
                                s->nrecv, s->self, s->dep, s->ndep}, 14);
    }
    h = mix_conns(mix_conns(h, p->sends, p->nsends), p->recvs, p->nrecvs);
    h = mix_ints(h, p->recv_list, p->nrecv_list);
    for (int i = 0; i < p->ndeps; i++)
        h = mix_ints(h, (int[]){p->deps[i].lane, p->deps[i].step}, 2);
    return h;
}

/* NULL: the algorithm does not fit. */
static struct plan *make(const char *algo, uno_coll coll, int n, int channels)
{
    struct plan_params params = {.coll = coll, .nranks = n, .channels = channels};
    snprintf(params.algo, sizeof params.algo, "%s", algo);
    struct plan *plan = NULL;
    uno_err err = planner_make(&params, &plan);
    if (err != UNO_OK && err != UNO_ERR_UNSUPPORTED)
        fail_msg("%s", err_text());
    return plan;
}

static uint64_t fingerprint(const char *algo, uno_coll coll)
{
    uint64_t h = 1;
    for (int n = 1; n <= PLANNER_PROVED_RANKS; n++)
        for (size_t c = 0; c < ARRAY_LEN(channel_counts); c++) {
            struct plan *plan = make(algo, coll, n, channel_counts[c]);
            if (!plan)
                continue;
            h = mix_ints(h, (int[]){plan->parts, plan->channels}, 2);
            for (int r = 0; r < n; r++) {
                struct plan_prog prog;
                if (plan_rank(plan, r, &prog) != UNO_OK)
                    fail_msg("%s", err_text());
                h = mix_prog(h, &prog);
                plan_prog_free(&prog);
            }
            plan_free(plan);
        }
    return h;
}

/* Does it fit one host at all? */
static bool has_plans(const struct planner_algo *algo, uno_coll coll)
{
    struct plan *plan = algo->colls & 1u << coll ? make(algo->name, coll, 2, 1) : NULL;
    plan_free(plan);
    return plan != NULL;
}

static const struct planner_proof *find(const char *algo, uno_coll coll)
{
    for (int i = 0; i < planner_proof_count; i++)
        if (planner_proofs[i].coll == coll && strcmp(planner_proofs[i].algo, algo) == 0)
            return &planner_proofs[i];
    return NULL;
}

static void the_table_is_complete_and_current(void **state)
{
    (void)state;
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_COLL_COUNT; coll++) {
            const struct planner_algo *algo = &planner_algos[a];
            const struct planner_proof *proof = find(algo->name, (uno_coll)coll);
            assert_true((proof != NULL) == has_plans(algo, (uno_coll)coll));
            if (proof && fingerprint(algo->name, (uno_coll)coll) != proof->fingerprint)
                fail_msg("%s %s: the programs are not those that were proved; run this test with \"prove\" and renew "
                         "planner_proved.c", algo->name, coll_name((uno_coll)coll));
        }
}

/* Prove one plan with one slot, hence any number, and compare its claim with the table's. */
static void prove(const char *algo, uno_coll coll, int n, int channels, const bool *copies_only)
{
    struct plan *plan = make(algo, coll, n, channels);
    if (!plan)
        return;
    if (verify_for_use(plan, 1) != UNO_OK)
        fail_msg("%s %s on %d ranks: %s", algo, coll_name(coll), n, err_text());
    bool proved = plan->copies_only;
    assert_int_equal(plan->lends_out_of_place, plan->copies_only);
    if (copies_only)
        assert_int_equal(proved, *copies_only && n > 1);
    else {
        plan->copies_only = !proved;
        assert_true(planner_is_proved(plan));
        assert_int_equal(plan->copies_only, proved);
    }
    plan_free(plan);
}

static void a_sample_of_it_proves(void **state)
{
    (void)state;
    struct rng rng;
    print_message("seed %llu\n", (unsigned long long)seed);
    rng_seed(&rng, seed);
    for (int i = 0; i < planner_proof_count; i++)
        for (int times = 0; times < 3; times++)
            prove(planner_proofs[i].algo, planner_proofs[i].coll, 1 + (int)rng_below(&rng, PLANNER_PROVED_RANKS),
                  channel_counts[rng_below(&rng, 3)], NULL);
}

static void others_are_not_in_it(void **state)
{
    (void)state;
    struct plan *plan = make("ring", UNO_ALL_REDUCE, 3, 3);
    assert_false(planner_is_proved(plan));
    plan_free(plan);
    plan = make("flat", UNO_ALL_REDUCE, PLANNER_PROVED_RANKS + 1, 1);
    assert_false(planner_is_proved(plan));
    plan_free(plan);
    struct plan_params spread = {.algo = "flat", .coll = UNO_ALL_REDUCE, .nranks = 3, .channels = 1,
                                 .host_of = (int[]){0, 0, 1}};
    assert_int_equal(planner_make(&spread, &plan), UNO_OK);
    assert_false(planner_is_proved(plan));
    plan_free(plan);
}

static void prove_all(void **state)
{
    (void)state;
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_COLL_COUNT; coll++) {
            const struct planner_algo *algo = &planner_algos[a];
            if (!has_plans(algo, (uno_coll)coll))
                continue;
            struct plan *two = make(algo->name, (uno_coll)coll, 2, 1);
            assert_int_equal(verify_for_use(two, 1), UNO_OK);
            bool copies_only = two->copies_only;
            plan_free(two);
            for (int n = 1; n <= PLANNER_PROVED_RANKS; n++)
                for (size_t c = 0; c < ARRAY_LEN(channel_counts); c++)
                    prove(algo->name, (uno_coll)coll, n, channel_counts[c], &copies_only);
            char name[32];
            snprintf(name, sizeof name, "%s", coll_name((uno_coll)coll));
            for (char *s = name; *s; s++)
                *s = (char)(*s >= 'a' && *s <= 'z' ? *s - 32 : *s);
            printf("    {\"%s\", UNO_%s, %s, 0x%016llx},\n", algo->name, name, copies_only ? "true" : "false",
                   (unsigned long long)fingerprint(algo->name, (uno_coll)coll));
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(prove_all)};
    if (argc > 1 && strcmp(argv[1], "prove") == 0)
        return cmocka_run_group_tests(all, NULL, NULL);
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : clock_ns();
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_table_is_complete_and_current),
                                       cmocka_unit_test(a_sample_of_it_proves), cmocka_unit_test(others_are_not_in_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
