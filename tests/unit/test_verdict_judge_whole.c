/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which fault comes first, what makes two verdicts the same, verdicts from files, and of large jobs; words.
 */
#include <time.h>

#include "verdict_judged.h"

#define MOST_NS 1000000000ull /* of processor time, also under a sanitizer: some milliseconds are usual, squares of a thousand take seconds */

/* ---- order, identity, files, size --------------------------------------------------------------------------------------------------- */

/* Two independent faults: the earlier one speaks, the other one is told too. A fact never hides a fault. */
static void test_earliest_first(void **state)
{
    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        scene_begin(&s, 8, 4, 0);
        scene_comm(&s, TP, "tp", 0, 1, 4);
        scene_comm(&s, PP, "pp", 4, 1, 4);
        for (int r = 0; r < 8; r++)
            if (r != 1 && r != 6)
                scene_call(&s, r, r < 4 ? TP : PP, UNO_BARRIER, 0, SCENE_NOW - ((r < 4) ^ swap ? 30 : 20), 0);
        scene_syscall(&s, 1, "read", "", 0);
        scene_syscall(&s, 6, "read", "", 0);
        must_say(VERDICT_KIND_RANK_ABSENT, swap ? 6 : 1, swap ? "comm \"pp\"" : "comm \"tp\"", NULL);
        assert_int_equal(v.nothers, 1);
        assert_non_null(strstr(v.others[0], swap ? "comm \"tp\"" : "comm \"pp\""));
    }
    open_stage(&stages[1]);
    all_but(3);
    scene_computes(&s, 3, "");
    s.f.ranks[5].process.run = VERDICT_RUN_STOPPED;
    must_say(VERDICT_KIND_STOPPED, 5, "is in it and is stopped", NULL);
}

static void test_identity(void **state)
{
    (void)state;
    uint64_t seen[3];
    for (int i = 0; i < 3; i++) {
        open_stage(&stages[1]);
        all_but(i == 2 ? 4 : 3);
        scene_syscall(&s, i == 2 ? 4 : 3, "read", "", 0);
        s.f.now_ns += SEC(i * 10); /* later, the same */
        must_say(VERDICT_KIND_RANK_ABSENT, i == 2 ? 4 : 3, NULL);
        seen[i] = v.identity;
    }
    assert_int_equal(seen[0], seen[1]);
    assert_int_not_equal(seen[0], seen[2]);
}

/* After the fact: no offsets, no judge's clock; records of two hosts are aligned by the wall clock. */
static void test_post_mortem(void **state)
{
    (void)state;
    open_stage(&stages[4]); /* hosts' clocks differ by hours */
    all_but(3);
    scene_ended(&s, 6, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 9, SCENE_NOW - 1);
    scene_ended(&s, 3, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 7, SCENE_NOW - 2);
    for (int r = 0; r < 8; r++) {
        s.f.offsets[r].known = false;
        s.f.ranks[r].taken_real_ns = SEC(1.7e9 + SCENE_NOW);
    }
    s.f.now_ns = 0;
    must_say(VERDICT_KIND_DEAD, 3, name(3), "signal 7 (SIGBUS), 2.0 s ago", NULL);
    assert_int_equal(v.nothers, 1);
}

static uint64_t cpu_ns(void) /* other programs may have the processor meanwhile */
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void test_thousand(void **state)
{
    (void)state;
    enum { N = 1000 };
    scene_begin(&s, N, 8, 11);
    scene_comm(&s, WORLD, "dp", 0, 1, N);
    for (int h = 0; h < N / 8; h++)
        scene_comm(&s, 100 + (uint64_t)h, "tp", 8 * h, 1, 8);
    scene_history(&s, WORLD, UNO_ALL_REDUCE, 1024, 16, SCENE_NOW - 60);
    for (int h = 0; h < N / 8; h++)
        scene_history(&s, 100 + (uint64_t)h, UNO_ALL_GATHER, 99, 16, SCENE_NOW - 50);
    for (int r = 0; r < N; r++) {
        if (r / 8 != 77 && r % 3 == 0)
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 9, 0);
        else if (r != 620)
            scene_call(&s, r, 100 + (uint64_t)(r / 8), UNO_ALL_GATHER, 99, SCENE_NOW - 10, 0);
        scene_link(&s, r, (r / 8 + 1) % (N / 8), VERDICT_PATH_OK, 0);
    }
    scene_syscall(&s, 620, "read", "", 0);
    scene_sign(&s, WORLD);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t begin = cpu_ns();
        assert_int_equal(verdict_judge(&s.f, &v), UNO_OK);
        best = MIN(best, cpu_ns() - begin);
    }
    print_message("1000 ranks: %.1f ms\n", (double)best / 1e6);
    assert_true(best < MOST_NS);
    bool named = false;
    for (int i = 0; i < v.nculprits; i++)
        named = named || v.culprits[i] == 620;
    for (int i = 0; i < v.nothers; i++)
        named = named || strstr(v.others[i], "rank 620");
    assert_true(named);
    judged();
}

/* Worlds that are hard on the judge: long chains, a large circle, a cluster that goes down, everybody on hosts of their own. */
static void in_time(const char *what, enum verdict_kind kind, int culprit)
{
    uint64_t begin = cpu_ns();
    assert_int_equal(verdict_judge(&s.f, &v), UNO_OK);
    uint64_t took = cpu_ns() - begin;
    print_message("%s: %.1f ms\n", what, (double)took / 1e6);
    if (v.kind != kind || (culprit >= 0 && v.culprits[0] != culprit))
        fail_msg("%s told as %s: %s", what, verdict_kind_name(v.kind), v.headline);
    assert_true(took < MOST_NS);
    verdict_facts_free(&s.f);
}

static void test_thousand_hard(void **state)
{
    (void)state;
    enum { N = 1000 };
    for (int way = 0; way < 5; way++) {
        scene_begin(&s, N, way == 3 ? 8 : 1, 0.5);
        scene_comm(&s, WORLD, "dp", 0, 1, N);
        scene_history(&s, WORLD, UNO_ALL_REDUCE, 8, 4, SCENE_NOW - 60);
        scene_sign(&s, WORLD);
        if (way == 0) { /* a pipeline: everybody waits for the next, the last one reads a file */
            for (int r = 0; r + 1 < N; r++)
                scene_p2p(&s, r, WORLD, VERDICT_RECV, r + 1, 0, 8, SCENE_NOW - 20);
            scene_syscall(&s, N - 1, "read", "", 0);
            in_time("pipeline", VERDICT_KIND_P2P_UNMATCHED, N - 2);
        } else if (way == 1) {
            for (int r = 0; r < N; r++)
                scene_p2p(&s, r, WORLD, VERDICT_SEND, (r + 1) % N, 0, 8, SCENE_NOW - 20);
            in_time("ring of sends", VERDICT_KIND_P2P_UNMATCHED, 0);
        } else if (way == 2) { /* half never come */
            for (int r = 0; r < N; r += 2)
                scene_call(&s, r, WORLD, UNO_BARRIER, 0, SCENE_NOW - 20, 0);
            for (int r = 1; r < N; r += 2)
                scene_syscall(&s, r, "read", "", 0);
            in_time("half absent", VERDICT_KIND_RANK_ABSENT, 1);
        } else if (way == 3) { /* rank 777 dies first, then all hosts one after the other */
            for (int r = 0; r < N; r++)
                scene_ended(&s, r, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, r == 777 ? 11 : 15, SCENE_NOW - (r == 777 ? 30 : 20 - 0.1 * (r / 8)));
            in_time("cluster down", VERDICT_KIND_DEAD, 777);
        } else { /* every host measures the path to its next eight ones, all call the same */
            for (int r = 0; r < N; r++) {
                scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 8, SCENE_NOW - 20, 0)->moved_ns = scene_own(&s, r, SCENE_NOW - 0.1);
                for (int k = 1; k <= 8; k++)
                    scene_link(&s, r, (r + k) % N, VERDICT_PATH_OK, 0)->measured_bps = r == 500 && k == 3 ? 1000000 : 100000000;
            }
            in_time("slow path among 8000", VERDICT_KIND_SLOW_LINK, -1);
            assert_non_null(strstr(v.headline, "n500"));
        }
    }
}

/* Somebody waits, and the reports do not tell for whom: said as what it is. */
static void test_unknown(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    all_but(3);
    verdict_rank_free(&(struct verdict_rank){.ncomms = s.f.ranks[3].ncomms, .comms = s.f.ranks[3].comms});
    s.f.ranks[3].comms = NULL;
    s.f.ranks[3].ncomms = 0;
    s.f.ranks[3].comms_left_out = 40; /* its record had no room for this communicator */
    s.f.now_ns += SEC(10);
    must_say(VERDICT_KIND_UNKNOWN, -1, "waits for 16.1 s in all_reduce #17", "does not tell why", NULL);
    assert_true(v.fault && v.sure == VERDICT_GUESS);
}

/* Several ranks of a host share too few processors: the one that computes is late, not slow by itself. */
static void test_oversubscribed(void **state)
{
    (void)state;
    open_stage(&stages[0]);
    all_but(3);
    for (int r = 0; r < 8; r++) {
        s.f.ranks[r].process.sample_ns = SEC(1);
        s.f.ranks[r].process.queue_permille = 600;
    }
    scene_computes(&s, 3, "");
    must_say(VERDICT_KIND_COMPUTING, 3, "had no processor for 60 %", NULL);
}

/* Memory ends at any moment: the verdict is late, never wrong. */
static void test_memory(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    scene_comm(&s, TP, "tp", 0, 1, 4);
    scene_call(&s, 0, TP, UNO_BARRIER, 0, SCENE_NOW - 8, 0);
    for (int r = 1; r < 8; r++)
        scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 6, 0);
    static char whole[sizeof v.headline];
    assert_int_equal(verdict_judge(&s.f, &v), UNO_OK);
    memcpy(whole, v.headline, sizeof whole);
    int failures = 0;
    for (long nth = 1;; nth++) {
        fault_arm("alloc", nth);
        uno_err err = verdict_judge(&s.f, &v);
        fault_arm("alloc", 0);
        failures += err != UNO_OK;
        assert_true(err == UNO_OK || err == UNO_ERR_MEMORY);
        if (nth > 100) /* more than are made */
            break;
    }
    assert_true(failures > 10);
    assert_string_equal(v.headline, whole);
    verdict_facts_free(&s.f);
}

static void test_words(void **state)
{
    (void)state;
    static const int32_t ranks[] = {0, 1, 2, 4, 6, 7};
    char buf[64];
    assert_string_equal(verdict_ranks_text(buf, sizeof buf, ranks, 6), "ranks 0-2, 4, 6, 7");
    assert_string_equal(verdict_ranks_text(buf, sizeof buf, ranks, 1), "rank 0");
    int32_t odd[100];
    for (int i = 0; i < 100; i++)
        odd[i] = 2 * i + 1;
    assert_non_null(strstr(verdict_ranks_text(buf, sizeof buf, odd, 100), " more"));
    assert_string_equal(verdict_age_text(buf, sizeof buf, 6249000000ull), "6.2 s");
    assert_string_equal(verdict_age_text(buf, sizeof buf, SEC(725)), "12 min 5 s");
    assert_string_equal(verdict_age_text(buf, sizeof buf, SEC(11400)), "3 h 10 min");
    assert_string_equal(verdict_signal_text(buf, sizeof buf, 9), "signal 9 (SIGKILL)");
    assert_string_equal(verdict_signal_text(buf, sizeof buf, 44), "signal 44");
    for (int k = 0; k < VERDICT_KIND_COUNT; k++)
        assert_true(strlen(verdict_kind_name((enum verdict_kind)k)) > 3);
    struct verdict_facts none = {0};
    assert_int_equal(verdict_judge(&none, &v), UNO_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_earliest_first), cmocka_unit_test(test_identity), cmocka_unit_test(test_post_mortem),
        cmocka_unit_test(test_thousand), cmocka_unit_test(test_thousand_hard), cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_oversubscribed), cmocka_unit_test(test_memory), cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
