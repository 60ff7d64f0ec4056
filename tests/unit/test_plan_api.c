/* SPDX-License-Identifier: Apache-2.0 */
/* unisono_plan.h as a tool sees it: linked with the shared library alone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "unisono_plan.h"

static uno_plan *made(uno_coll coll, int nranks, const char *algo, int root, const char *hosts)
{
    uno_plan_params params = UNO_PLAN_PARAMS_INIT;
    uno_plan *plan;
    params.coll = coll;
    params.nranks = nranks;
    params.algo = algo;
    params.root = root;
    params.hosts = hosts;
    if (uno_plan_make(&params, &plan) != UNO_OK)
        fail_msg("%s", uno_plan_last_error());
    return plan;
}

static void check_proved(const uno_plan *plan)
{
    uno_plan_verdict verdict;
    uno_plan_facts facts;
    uno_plan_verify_options opt = UNO_PLAN_VERIFY_INIT;
    uno_plan_facts_of(plan, &facts);
    for (opt.in_place = 0; opt.in_place < 2; opt.in_place++) {
        if (!(opt.in_place ? facts.in_place : facts.out_of_place))
            continue;
        assert_int_equal(uno_plan_verify(plan, &opt, &verdict), UNO_OK);
        if (!verdict.proved)
            fail_msg("%s %s: %s", facts.name, uno_plan_coll_name(facts.coll), verdict.reason);
        assert_string_equal(verdict.kind, "ok");
        assert_string_equal(verdict.reason, "");
    }
}

/* Every algorithm, every root: what is made is right, with the root where it was asked for. */
static void plans_are_made_for_any_root(void **state)
{
    static const uno_coll colls[] = {UNO_BROADCAST, UNO_REDUCE, UNO_GATHER, UNO_SCATTER};
    static const char *const hosts[] = {NULL, "2x3", "1,4,1"};
    uno_plan_algo_info algo;
    int plans = 0;
    for (int a = 0; uno_plan_algo(a, &algo) == UNO_OK; a++)
        for (size_t c = 0; c < sizeof colls / sizeof colls[0]; c++)
            for (int i = 0; i < 18; i++) {
                uno_plan_params params = UNO_PLAN_PARAMS_INIT;
                uno_plan_facts facts;
                uno_plan *plan;
                params.coll = colls[c];
                params.nranks = 6;
                params.algo = algo.name;
                params.root = i % 6;
                params.hosts = hosts[i / 6];
                uno_err err = uno_plan_make(&params, &plan);
                if (err == UNO_ERR_UNSUPPORTED)
                    continue;
                assert_int_equal(err, UNO_OK);
                check_proved(plan);
                uno_plan_facts_of(plan, &facts);
                assert_int_equal(facts.root, i % 6);
                assert_int_equal(facts.imported, 0);
                uno_plan_free(plan);
                plans++;
            }
    assert_true(plans > 6 * 8);
}

static void a_plan_is_written_and_loaded(void **state)
{
    static const uno_plan_form forms[] = {UNO_PLAN_JSON, UNO_PLAN_XML_UNICAST};
    for (int i = 0; i < 2; i++) {
        char path[] = "/tmp/unisono_plan_XXXXXX", *text, *again;
        uno_plan *plan = made(UNO_ALL_REDUCE, 6, "two_level", 0, "2x3"), *back;
        uno_plan_facts facts;
        assert_int_equal(uno_plan_show(plan, forms[i], -1, &text), UNO_OK);
        FILE *file = fdopen(mkstemp(path), "w");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
        uno_err err = uno_plan_load(path, &back);
        unlink(path);
        if (err != UNO_OK)
            fail_msg("%s", uno_plan_last_error());
        check_proved(back);
        uno_plan_facts_of(back, &facts);
        assert_int_equal(facts.imported, 1);
        assert_int_equal(facts.hosts, forms[i] == UNO_PLAN_JSON ? 2 : 1);
        if (forms[i] == UNO_PLAN_JSON) {
            assert_int_equal(uno_plan_show(back, UNO_PLAN_JSON, -1, &again), UNO_OK);
            assert_string_equal(text, again);
            uno_text_free(again);
        }
        uno_text_free(text);
        uno_plan_free(back);
        uno_plan_free(plan);
    }
}

static void a_refutation_names_the_step(void **state)
{
    static const char text[] =
        "{\"unisono_plan\": 1, \"collective\": \"all_reduce\", \"ranks\": 2, \"parts\": 1, \"programs\": ["
        "{\"rank\": 0, \"lanes\": [[{\"op\": \"copy\", \"src\": [\"in\", 0], \"dst\": [\"out\", 7]}]]},"
        "{\"rank\": 1, \"lanes\": []}]}";
    char path[] = "/tmp/unisono_plan_XXXXXX";
    uno_plan_verdict verdict;
    uno_plan *plan;
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    uno_err err = uno_plan_load(path, &plan);
    unlink(path);
    assert_int_equal(err, UNO_OK);
    assert_int_equal(uno_plan_verify(plan, NULL, &verdict), UNO_OK);
    assert_int_equal(verdict.proved, 0);
    assert_string_equal(verdict.kind, "bounds");
    assert_int_equal(verdict.rank, 0);
    assert_int_equal(verdict.lane, 0);
    assert_int_equal(verdict.step, 0);
    assert_true(verdict.reason[0] != 0);
    uno_plan_free(plan);
}

static void the_planner_chooses_and_explains(void **state)
{
    uno_plan_params params = UNO_PLAN_PARAMS_INIT;
    uno_plan_time small, large;
    uno_plan *plan;
    char *text;
    params.nranks = 8;
    params.bytes = 64u << 20;
    assert_int_equal(uno_plan_explain(&params, &text), UNO_OK);
    assert_non_null(strstr(text, "all_reduce 64 MB"));
    assert_non_null(strstr(text, "ring"));
    uno_text_free(text);
    assert_int_equal(uno_plan_make(&params, &plan), UNO_OK);
    check_proved(plan);
    assert_int_equal(uno_plan_simulate(plan, 1024, &small), UNO_OK);
    assert_int_equal(uno_plan_simulate(plan, 64u << 20, &large), UNO_OK);
    assert_true(small.total_ps > 0 && large.total_ps > 100 * small.total_ps);
    assert_true(large.shm_bytes >= 64u << 20);
    assert_int_equal(large.net_bytes, 0);
    uno_plan_free(plan);
}

static void make_refused(uno_plan_params params, uno_err code, const char *said)
{
    uno_plan *plan = (uno_plan *)&params;
    assert_int_equal(uno_plan_make(&params, &plan), code);
    assert_null(plan);
    if (!strstr(uno_plan_last_error(), said))
        fail_msg("\"%s\" does not say \"%s\"", uno_plan_last_error(), said);
}

static void wrong_arguments_are_named(void **state)
{
    uno_plan_params good = UNO_PLAN_PARAMS_INIT, p;
    good.nranks = 4;
    p = good, p.size = 1;
    make_refused(p, UNO_ERR_ARG, "UNO_PLAN_PARAMS_INIT");
    p = good, p.algo = "rings";
    make_refused(p, UNO_ERR_ARG, "legal are flat");
    p = good, p.algo = "a_name_that_is_far_too_long";
    make_refused(p, UNO_ERR_ARG, "legal are flat");
    p = good, p.nranks = 0;
    make_refused(p, UNO_ERR_ARG, "0 ranks; legal are 1 to 4096");
    p = good, p.root = 4;
    make_refused(p, UNO_ERR_ARG, "root 4");
    p = good, p.coll = UNO_ALL_TO_ALL_V;
    make_refused(p, UNO_ERR_ARG, "all_to_all_v");
    p = good, p.hosts = "2x3";
    make_refused(p, UNO_ERR_ARG, "do not hold 4 ranks");
    p = good, p.hosts = "3,";
    make_refused(p, UNO_ERR_ARG, "do not hold 4 ranks");
    p = good, p.hosts = "99999999999,1";
    make_refused(p, UNO_ERR_ARG, "do not hold 4 ranks");
    p = good, p.hosts = "4294967297x4";
    make_refused(p, UNO_ERR_ARG, "do not hold 4 ranks");
    static const char *const none[] = {"2x0", "64x65", "2,,2", "x", ""};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        p = good, p.nranks = 0, p.hosts = none[i];
        make_refused(p, UNO_ERR_ARG, "do not hold 1 to 4096 ranks; legal are \"2x4\"");
    }
    p = good, p.coll = UNO_ALL_TO_ALL, p.algo = "ring";
    make_refused(p, UNO_ERR_UNSUPPORTED, "ring has no plan for all_to_all");
    uno_plan *plan = made(UNO_ALL_REDUCE, 4, "flat", 0, NULL);
    char *text;
    assert_int_equal(uno_plan_show(plan, UNO_PLAN_XML, -1, &text), UNO_ERR_UNSUPPORTED);
    assert_null(text);
    assert_int_equal(uno_plan_show(plan, UNO_PLAN_TEXT, 4, &text), UNO_ERR_ARG);
    assert_int_equal(uno_plan_show(plan, UNO_PLAN_JSON, 1, &text), UNO_ERR_ARG);
    uno_plan_free(plan);
    uno_plan_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_made_for_any_root), cmocka_unit_test(a_plan_is_written_and_loaded),
        cmocka_unit_test(a_refutation_names_the_step), cmocka_unit_test(the_planner_chooses_and_explains),
        cmocka_unit_test(wrong_arguments_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
