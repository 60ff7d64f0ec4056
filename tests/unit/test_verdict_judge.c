/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every cause that a job can stand still for, as facts alone, and what the verdict says of it: kind, ranks, and the words that the
 * sentence must hold. Each scene is judged as it is and again after its records went over the wire; the sentence must be the same.
 * VERDICT_SHOW=1 prints the verdicts.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <time.h>

#include "verdict_scene.h"

enum { WORLD = 1, TP = 2, PP = 3 };
static struct scene s;
static struct verdict v;

/* ---- judging a scene ------------------------------------------------------------------------------------------------------ */

/* The same facts, but every rank's record was encoded and decoded. */
static void over_the_wire(struct verdict *out)
{
    static unsigned char buf[VERDICT_RECORD_LIMIT];
    struct verdict_facts f;
    size_t bytes;
    assert_int_equal(verdict_facts_new(&f, s.f.size), UNO_OK);
    f.now_ns = s.f.now_ns;
    f.now_real_ns = s.f.now_real_ns;
    f.stall_ns = s.f.stall_ns;
    f.joining = s.f.joining;
    memcpy(f.what_job, s.f.what_job, sizeof f.what_job);
    for (int i = 0; i < s.f.size; i++) {
        const struct verdict_rank *r = &s.f.ranks[i];
        f.offsets[i] = s.f.offsets[i];
        if (r->reporter < 0) { /* what the judge knows itself */
            verdict_facts_note(&f, i, (enum verdict_status)r->status,
                               r->status_since_ns ? (uint64_t)((int64_t)r->status_since_ns + s.skew_ns[i]) : 0, r->host, r->host_index,
                               r->pid);
            continue;
        }
        assert_int_equal(verdict_encode(r, buf, sizeof buf, &bytes), UNO_OK);
        if (verdict_facts_add(&f, buf, bytes) != UNO_OK)
            fail_msg("%s", err_text());
    }
    assert_int_equal(verdict_judge(&f, out), UNO_OK);
    verdict_facts_free(&f);
}

static void judged(void)
{
    static struct verdict wired;
    static char text[16384];
    assert_int_equal(verdict_judge(&s.f, &v), UNO_OK);
    over_the_wire(&wired);
    assert_string_equal(v.headline, wired.headline);
    assert_int_equal(v.identity, wired.identity);
    if (getenv("VERDICT_SHOW")) {
        verdict_print(&v, text, sizeof text);
        print_message("[%s%s] %s", verdict_kind_name(v.kind), v.fault ? "" : ", a fact", text);
    }
    verdict_facts_free(&s.f);
}

/* The verdict must be of this kind, with this culprit (-1: not looked at), and say all these words; NULL ends them. */
static void must_say(enum verdict_kind kind, int culprit, ...)
{
    va_list ap;
    judged();
    if (v.kind != kind)
        fail_msg("%s instead of %s: %s", verdict_kind_name(v.kind), verdict_kind_name(kind), v.headline);
    if (culprit >= 0 && (v.nculprits < 1 || v.culprits[0] != culprit))
        fail_msg("rank %d instead of %d: %s", v.nculprits ? v.culprits[0] : -1, culprit, v.headline);
    va_start(ap, culprit);
    for (const char *word = va_arg(ap, const char *); word; word = va_arg(ap, const char *))
        if (!strstr(v.headline, word))
            fail_msg("it does not say \"%s\": %s", word, v.headline);
    va_end(ap);
    assert_true(kind == VERDICT_KIND_NONE || kind == VERDICT_KIND_UNKNOWN || v.what_next[0] != 0);
    for (const char *c = v.headline; *c; c++)
        assert_true((unsigned char)*c >= 0x20);
    assert_null(strstr(v.headline, "; ;"));
    assert_null(strstr(v.headline, "  "));
}

/* No alarm, and no fact either. */
static void quiet(void)
{
    judged();
    if (v.kind != VERDICT_KIND_NONE)
        fail_msg("a false alarm, %s: %s", verdict_kind_name(v.kind), v.headline);
    assert_int_equal(v.nculprits, 0);
    assert_non_null(strstr(v.headline, "nothing is wrong"));
}

static const char *fmt(const char *f, ...)
{
    static char bufs[8][256];
    static int next;
    char *buf = bufs[next++ % 8];
    va_list ap;
    va_start(ap, f);
    vsnprintf(buf, sizeof bufs[0], f, ap);
    va_end(ap);
    return buf;
}
static const char *name(int rank)
{
    return fmt("rank %d (pid %d on n%d)", rank, 800 + rank, rank / s.ranks_per_host);
}

/* Eight ranks; how they are spread, how their clocks differ, whose report is missing. Rank 7 is never a culprit below. */
static const struct stage { int per_host; double skew; int lost; } stages[] = {
    {8, 0, -1}, {4, 0, -1}, {2, 5000, -1}, {1, -100, -1}, {4, 12345, 7}, {8, 0, 7},
};
static const int some_ranks[] = {0, 1, 3, 6};

static void open_stage(const struct stage *st)
{
    scene_begin(&s, 8, st->per_host, st->skew);
    scene_comm(&s, WORLD, "dp", 0, 1, 8);
    scene_history(&s, WORLD, UNO_ALL_REDUCE, 1024, 16, SCENE_NOW - 61.4);
}
static void close_stage(const struct stage *st)
{
    scene_sign(&s, WORLD);
    if (st->lost >= 0)
        scene_lost(&s, st->lost, VERDICT_UNKNOWN, 0);
}

/* All but one call #17, 6.2 s ago and a little later each. */
static void all_but(int culprit)
{
    for (int r = 0; r < 8; r++)
        if (r != culprit)
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 6.2 + 0.01 * r, 0);
}
#define EVERY_STAGE(st, culprit)                                                     \
    for (const struct stage *st = stages; st < stages + ARRAY_LEN(stages); st++)     \
        for (const int *culprit = some_ranks; culprit < some_ranks + ARRAY_LEN(some_ranks); culprit++)

/* ---- a rank never calls it -------------------------------------------------------------------------------------------------- */

static void test_absent_computes(void **state)
{
    (void)state;
    EVERY_STAGE(st, c) {
        int rank = *c;
        open_stage(st);
        all_but(rank);
        scene_computes(&s, rank, "train.py:212 in step()");
        close_stage(st);
        must_say(VERDICT_KIND_COMPUTING, rank, "all_reduce #17 of comm \"dp\" is stuck for 6.", name(rank), "computes (99 % of a processor)",
                 "in step() at train.py:212", "its last operation all_reduce #16", "ended 61.4 s ago", NULL);
        assert_false(v.fault);
        assert_int_equal(v.nvictims, st->lost < 0 ? 7 : 6);
    }
}

/* Who has issued the call on a stream has called it: the stream is what holds it up. */
static void test_absent_queued(void **state)
{
    (void)state;
    for (int behind = 0; behind < 3; behind++) {
        open_stage(&stages[0]);
        all_but(5);
        if (behind == 1)
            scene_queued(&s, 5, WORLD, UNO_ALL_REDUCE, 64, 40, SCENE_NOW - 7)->coll = -1;
        scene_queued(&s, 5, WORLD, UNO_ALL_REDUCE, 1024, 41, SCENE_NOW - 6.1);
        if (behind == 2) /* a later call in the queue is not this one */
            scene_of(&s, 5, WORLD)->calls[0].coll = -1;
        scene_computes(&s, 5, "train.py:88");
        close_stage(&stages[0]);
        if (behind == 2)
            must_say(VERDICT_KIND_COMPUTING, 5, "all_reduce #17", name(5), "has not called it yet", NULL);
        else
            must_say(VERDICT_KIND_COMPUTING, 5, "all_reduce #17", name(5), "has issued it, 6.1 s ago",
                     behind ? "in the queue of this communicator behind a send or receive" : "on a stream that has not come to it", NULL);
    }
}

static void test_absent_waits_elsewhere(void **state)
{
    (void)state;
    EVERY_STAGE(st, c) {
        int rank = *c;
        open_stage(st);
        all_but(rank);
        scene_syscall(&s, rank, "read", "data.py:10 in load()", SCENE_NOW - 30);
        snprintf(s.f.ranks[rank].process.wchan, 40, "pipe_read");
        close_stage(st);
        must_say(VERDICT_KIND_RANK_ABSENT, rank, name(rank), "never called it", "waits in the system call read (pipe_read) for 30.0 s",
                 "in load() at data.py:10", NULL);
        assert_true(v.fault);
    }
}

/* The frame of the program tells more than that of a library beneath it; the system call stands beside it. */
static void test_absent_telling_frame(void **state)
{
    static const struct { const char *stack, *says; } cases[] = {
        {"read+0x4a (libc.so.6)\n_dl_x+0x2 (ld-linux-x86-64.so.2)\nload+0x10 (libcustom.so)\nmain+0x1 (program)",
         "waits in the system call read in load+0x10 (libcustom.so);"},
        {"read+0x4a (libc.so.6)\nlibc.so.6+0x99\nprogram+0x10\nmain+0x1 (program)", "in program+0x10;"},
        {"read+0x4a (libc.so.6)\nclone+0x1 (libc.so.6)\nmain thread:\nmain+0x1 (program)", "in read+0x4a (libc.so.6);"},
        {"main thread:\nmain+0x1 (program)", "waits in the system call read;"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        open_stage(&stages[1]);
        all_but(3);
        struct verdict_process *p = &s.f.ranks[3].process;
        p->in_library = false;
        p->run = VERDICT_RUN_SYSCALL;
        snprintf(p->syscall, sizeof p->syscall, "read");
        snprintf(p->stack, sizeof p->stack, "%s", cases[i].stack);
        close_stage(&stages[1]);
        must_say(VERDICT_KIND_RANK_ABSENT, 3, cases[i].says, NULL);
    }
}

static void test_absent_native_stack(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    all_but(3);
    struct verdict_process *p = &s.f.ranks[3].process;
    p->in_library = false;
    snprintf(p->stack, sizeof p->stack, "step+0x2c (program)\nmain+0x100 (program)");
    close_stage(&stages[1]);
    must_say(VERDICT_KIND_RANK_ABSENT, 3, "sleeps in step+0x2c (program)", "ranks 0-2, 4-7 wait for it", NULL);
    assert_non_null(strstr(v.lines[0].text, "step+0x2c (program) < main+0x100 (program)"));
    open_stage(&stages[1]);
    all_but(3);
    s.f.ranks[3].process.in_library = false;
    snprintf(scene_of(&s, 3, WORLD)->events[15].site, VERDICT_SITE_BYTES, "train.py:212");
    must_say(VERDICT_KIND_RANK_ABSENT, 3, "last seen at train.py:212", NULL);
}

/* A job that falls down after a death, killed from outside: one cause. Two that are killed at once are told together. */
static void test_killed_after_a_death(void **state)
{
    (void)state;
    for (int together = 0; together < 2; together++) {
        open_stage(&stages[2]);
        for (int r = 0; r < 8; r++) {
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 9, 0)->state = r == 3 ? VERDICT_RUNNING : VERDICT_FAILED;
            struct verdict_comm *m = scene_of(&s, r, WORLD);
            m->failed = r == 3 ? UNO_OK : UNO_ERR_PEER_DEAD;
            m->failed_rank = 3;
            m->failed_ns = r == 3 ? 0 : scene_own(&s, r, SCENE_NOW - 7.98);
        }
        scene_ended(&s, 3, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 9, SCENE_NOW - 8);
        scene_ended(&s, 2, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 9, SCENE_NOW - (together ? 7.9 : 5));
        must_say(VERDICT_KIND_DEAD, together ? 2 : 3, name(3), "signal 9", NULL);
        assert_int_equal(v.nculprits, together ? 2 : 1);
        assert_int_equal(v.nothers, 0);
    }
}

static void test_several_absent(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    for (int r = 0; r < 3; r++)
        scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 8, 0);
    for (int r = 3; r < 8; r++)
        scene_syscall(&s, r, "nanosleep", "", 0);
    must_say(VERDICT_KIND_RANK_ABSENT, 3, "ranks 3-7 have not called it", "nanosleep", "ranks 0-2 wait for them", NULL);
    assert_int_equal(v.nculprits, 5);
}

/* Rank 3 is waited for in "dp", but waits itself in "tp" for rank 6: the root is told, the middle is folded. */
static void test_chain(void **state)
{
    (void)state;
    open_stage(&stages[2]);
    scene_comm(&s, TP, "tp", 3, 3, 2);
    scene_call(&s, 3, TP, UNO_ALL_GATHER, 8, SCENE_NOW - 9, 0);
    scene_syscall(&s, 6, "futex", "", 0);
    for (int r = 0; r < 8; r++)
        if (r != 3 && r != 6)
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 6, 0);
    must_say(VERDICT_KIND_RANK_ABSENT, 6, name(6), "never called it", "ranks 0-5, 7 wait for it", NULL);
    assert_int_equal(v.nculprits, 1);
    assert_int_equal(v.nothers, 0);
}

/* ---- calls that do not fit ---------------------------------------------------------------------------------------------------- */

static void differ_in(int rank, int what, uint32_t signature_only)
{
    for (int r = 0; r < 8; r++) {
        struct verdict_event *e = scene_call(&s, r, WORLD, what == 3 ? UNO_BROADCAST : UNO_ALL_REDUCE, 2048, SCENE_NOW - 2, 0);
        snprintf(e->site, sizeof e->site, r == rank ? "train.py:300" : "train.py:212");
        if (r != rank)
            continue;
        if (what == 0)
            e->count = 1024;
        else if (what == 1)
            e->type = UNO_FLOAT64;
        else if (what == 2)
            e->op = UNO_MAX;
        else if (what == 3)
            e->root = 5;
        else if (what == 4)
            e->coll = UNO_BROADCAST;
    }
    scene_sign(&s, WORLD);
    if (signature_only)
        scene_of(&s, rank, WORLD)->events[16].signature ^= signature_only;
}

static void test_mismatch(void **state)
{
    (void)state;
    static const char *const own[] = {"passes count 1024", "passes type float64", "passes op max", "passes root rank 5", "calls broadcast"};
    static const char *const theirs[] = {"pass count 2048", "pass type float32", "pass op sum", "pass root rank 0", "call all_reduce"};
    EVERY_STAGE(st, c) {
        int rank = *c;
        for (int what = 0; what < 5; what++) {
            open_stage(st);
            differ_in(rank, what, 0);
            if (st->lost >= 0)
                scene_lost(&s, st->lost, VERDICT_UNKNOWN, 0);
            must_say(VERDICT_KIND_MISMATCH, rank, what == 4 ? "operation #17 of comm \"dp\"" : "#17 of comm \"dp\"", name(rank), own[what],
                     "at train.py:300", theirs[what], "at train.py:212", "it is so for 2.0 s", NULL);
            assert_int_equal(v.nculprits, 1);
            assert_true(v.sure == VERDICT_SURE && v.number == 17);
            assert_null(strstr(v.headline, what == 1 ? "count" : "type"));
        }
    }
}

/* Two ranks, each its own root; one has returned already; and three later operations have followed. */
static void test_mismatch_found_late(void **state)
{
    (void)state;
    scene_begin(&s, 2, 1, 50);
    scene_comm(&s, WORLD, "", 0, 1, 2);
    scene_history(&s, WORLD, UNO_ALL_REDUCE, 4, 5, SCENE_NOW - 20);
    for (int r = 0; r < 2; r++) {
        scene_call(&s, r, WORLD, UNO_BROADCAST, 4, SCENE_NOW - 10, SCENE_NOW - 9)->root = r;
        scene_call(&s, r, WORLD, UNO_REDUCE, 4, SCENE_NOW - 8, SCENE_NOW - 7);
        scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 4, SCENE_NOW - 6, 0);
    }
    scene_sign(&s, WORLD);
    must_say(VERDICT_KIND_MISMATCH, 0, "broadcast #6", "rank 1 (pid 801 on n1) passes root rank 1", "rank 0 (pid 800 on n0) passes root rank 0",
             NULL);
    assert_int_equal(v.nculprits, 2);
}

/* 0 elements against some; v-forms by their pairs' counts, which only the signature and the failure tell. */
static void test_mismatch_odd(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    for (int r = 0; r < 8; r++)
        scene_call(&s, r, WORLD, UNO_ALL_REDUCE, r == 2 ? 0 : 8, SCENE_NOW - 1, r == 2 ? SCENE_NOW - 1 : 0);
    scene_sign(&s, WORLD);
    must_say(VERDICT_KIND_MISMATCH, 2, "passes count 0", "pass count 8", NULL);

    open_stage(&stages[1]);
    for (int r = 0; r < 8; r++)
        scene_call(&s, r, WORLD, UNO_ALL_GATHER_V, (uint64_t)r, SCENE_NOW - 1, 0);
    for (int r = 0; r < 8; r++) /* own counts may differ, the chain may not */
        for (uint32_t k = 0; k < 17; k++)
            scene_of(&s, r, WORLD)->events[k].signature = 1000 + k + (r == 6 && k == 16 ? 1 : 0);
    must_say(VERDICT_KIND_MISMATCH, 6, "all_gather_v #17", name(6), "other counts per rank", NULL);
    assert_int_equal(v.sure, VERDICT_LIKELY);

    open_stage(&stages[1]);
    differ_in(1, 9, 0x100);
    must_say(VERDICT_KIND_MISMATCH, 1, "all_reduce #17", name(1), "another plan or after other calls", NULL);
}

static void test_off_by_one(void **state)
{
    (void)state;
    static const uint64_t counts[3] = {10, 20, 30}; /* a loop of three calls */
    EVERY_STAGE(st, c) {
        int rank = *c;
        scene_begin(&s, 8, st->per_host, st->skew);
        scene_comm(&s, WORLD, "dp", 0, 1, 8);
        for (int r = 0; r < 8; r++)
            for (int k = 0; k < 10; k++) {
                bool last = k == 9;
                uint64_t count = counts[(k + (last && r == rank)) % 3];
                scene_call(&s, r, WORLD, UNO_ALL_REDUCE, count, SCENE_NOW - 20 + k, last ? 0 : SCENE_NOW - 20 + k + 0.5);
            }
        close_stage(st);
        must_say(VERDICT_KIND_OFF_BY_ONE, rank, name(rank), "off by one from operation #10", "skipped all_reduce (count 10)",
                 "all_reduce (count 20)", "what the others call as #11", NULL);
    }
}

/* Two ranks, and no majority: the calls before tell who has skipped one. */
static void test_off_by_one_of_two(void **state)
{
    (void)state;
    static const uint64_t counts[3] = {10, 20, 30};
    for (int rank = 0; rank < 2; rank++) {
        scene_begin(&s, 2, 2, 0);
        scene_comm(&s, WORLD, "dp", 0, 1, 2);
        for (int r = 0; r < 2; r++)
            for (int k = 0; k < 10; k++)
                scene_call(&s, r, WORLD, UNO_ALL_REDUCE, counts[(k + (k == 9 && r == rank)) % 3], SCENE_NOW - 20 + k,
                           k == 9 ? 0 : SCENE_NOW - 20 + k + 0.5);
        scene_sign(&s, WORLD);
        must_say(VERDICT_KIND_OFF_BY_ONE, rank, name(rank), "off by one from operation #10", "skipped all_reduce (count 10)", NULL);
    }
}

static void test_skipped(void **state)
{
    (void)state;
    struct verdict_event loop[9], a = {.coll = UNO_ALL_REDUCE, .count = 20}, b = {.coll = UNO_ALL_REDUCE, .count = 10};
    for (uint32_t k = 0; k < ARRAY_LEN(loop); k++)
        loop[k] = (struct verdict_event){.coll = UNO_ALL_REDUCE, .count = 10 * (k % 3 + 1)};
    assert_int_equal(verdict_skipped(loop, 9, &a, &b), 1);
    assert_int_equal(verdict_skipped(loop, 9, &b, &a), -1);
    assert_int_equal(verdict_skipped(loop, 3, &a, &b), 0); /* once may be chance */
    assert_int_equal(verdict_skipped(loop, 0, &a, &b), 0);
    a.count = 40; /* never came after b's */
    assert_int_equal(verdict_skipped(loop, 9, &a, &b), 0);
    struct verdict_event two[6]; /* in a loop of two either may have skipped one */
    for (uint32_t k = 0; k < ARRAY_LEN(two); k++)
        two[k] = (struct verdict_event){.coll = UNO_ALL_REDUCE, .count = k % 2 ? 20 : 10};
    a.count = 20;
    assert_int_equal(verdict_skipped(two, 6, &a, &b), 0);
}

/* What the others have queued is what the culprit calls now. */
static void test_off_by_one_by_queue(void **state)
{
    (void)state;
    open_stage(&stages[2]);
    for (int r = 0; r < 8; r++) {
        scene_call(&s, r, WORLD, UNO_BROADCAST, r == 5 ? 7 : 3, SCENE_NOW - 1, 0);
        if (r != 5) {
            scene_queued(&s, r, WORLD, UNO_BROADCAST, 7, 9, SCENE_NOW - 1);
            scene_queued(&s, r, WORLD, UNO_BARRIER, 0, 10, SCENE_NOW - 1);
        } else {
            scene_queued(&s, r, WORLD, UNO_BARRIER, 0, 9, SCENE_NOW - 1);
        }
    }
    scene_sign(&s, WORLD);
    must_say(VERDICT_KIND_OFF_BY_ONE, 5, name(5), "off by one from operation #17", "skipped broadcast (root rank 0, count 3)", NULL);
    assert_int_equal(v.sure, VERDICT_SURE);
}

/* All calls look alike, so nothing mismatches; only call sites tell that rank 2 has skipped #12, and now it is missing at the end. */
static void test_off_by_one_by_sites(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    for (int r = 0; r < 8; r++)
        for (uint32_t k = 0; k < 16; k++)
            snprintf(scene_of(&s, r, WORLD)->events[k].site, VERDICT_SITE_BYTES, "train.py:%u", 100 + (k + (r == 2 && k >= 11)) % 4);
    for (int r = 0; r < 8; r++)
        if (r != 2)
            snprintf(scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 6, 0)->site, VERDICT_SITE_BYTES, "train.py:100");
    scene_syscall(&s, 2, "read", "", 0);
    close_stage(&stages[1]);
    must_say(VERDICT_KIND_OFF_BY_ONE, 2, "off by one from operation #12", "it skipped all_reduce (count 1024) at train.py:103", NULL);
}

/* Rank 2 makes #12 twice. Nobody else comes to its last call; the sites tell who is wrong. */
static void test_one_call_more(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    for (int r = 0; r < 8; r++)
        for (uint32_t k = 0; k < 16; k++)
            snprintf(scene_of(&s, r, WORLD)->events[k].site, VERDICT_SITE_BYTES, "train.py:%u", 100 + (k - (r == 2 && k >= 12)) % 4);
    snprintf(scene_call(&s, 2, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 6, 0)->site, VERDICT_SITE_BYTES, "train.py:103");
    for (int r = 0; r < 8; r++)
        if (r != 2)
            scene_computes(&s, r, "");
    close_stage(&stages[1]);
    must_say(VERDICT_KIND_OFF_BY_ONE, 2, "off by one from operation #13", "at train.py:103, is one call more than the others make",
             "their #13 is its #14", NULL);
}

/* Reductions of the program's own have other handles on other ranks; equal signatures say that they are the same. */
static void test_own_reductions(void **state)
{
    (void)state;
    for (int signed_too = 0; signed_too < 2; signed_too++) {
        open_stage(&stages[1]);
        for (int r = 0; r < 8; r++)
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 8, SCENE_NOW - 3, 0);
        if (signed_too)
            scene_sign(&s, WORLD);
        for (int r = 0; r < 8; r++)
            scene_of(&s, r, WORLD)->events[16].op = UNO_OP_DYNAMIC + r;
        quiet();
    }
}

/* ---- circles --------------------------------------------------------------------------------------------------------------------- */

static void test_comm_order(void **state)
{
    (void)state;
    for (int queued = 0; queued < 2; queued++)
        for (int per_host = 1; per_host <= 8; per_host *= 2) {
            scene_begin(&s, 8, per_host, 77);
            scene_comm(&s, TP, "tp", 0, 1, 8);
            scene_comm(&s, PP, "pp", 1, 2, 4); /* 1 3 5 7 */
            for (int r = 0; r < 8; r++) {
                bool other_first = r == 5;
                if (r % 2 == 0 || !other_first) {
                    scene_call(&s, r, TP, UNO_ALL_REDUCE, 8, SCENE_NOW - 7, 0)->blocks =
                        queued ? VERDICT_PROGRAM_GOES_ON : VERDICT_PROGRAM_WAITS;
                    if (queued && r % 2)
                        scene_queued(&s, r, PP, UNO_BARRIER, 0, 2, SCENE_NOW - 7);
                } else {
                    scene_call(&s, r, PP, UNO_BARRIER, 0, SCENE_NOW - 6, 0);
                }
            }
            must_say(VERDICT_KIND_COMM_ORDER, -1, "different order", "all_reduce #1 of comm \"tp\"", "barrier #1 of comm \"pp\"", name(5), NULL);
            assert_int_equal(v.nculprits, 2);
            assert_int_equal(v.culprits[1], 5);
        }
}

/* A circle through three communicators of two ranks each. */
static void test_long_circle(void **state)
{
    (void)state;
    scene_begin(&s, 3, 1, 0);
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 2; i++)
        scene_comm(&s, 10 + (uint64_t)i, names[i], i, 1, 2);
    scene_comm(&s, 12, names[2], 0, 2, 2);
    scene_call(&s, 0, 10, UNO_BARRIER, 0, SCENE_NOW - 9, 0);
    scene_call(&s, 1, 11, UNO_BARRIER, 0, SCENE_NOW - 8, 0);
    scene_call(&s, 2, 12, UNO_BARRIER, 0, SCENE_NOW - 7, 0);
    must_say(VERDICT_KIND_COMM_ORDER, 0, "comm \"a\"", "comm \"b\"", "comm \"c\"", "for 7.0 s", NULL);
    assert_int_equal(v.nculprits, 3);
}

static void test_p2p(void **state)
{
    (void)state;
    for (int per_host = 1; per_host <= 4; per_host *= 2) {
        scene_begin(&s, 4, per_host, 3);
        scene_comm(&s, WORLD, "dp", 0, 1, 4);
        scene_p2p(&s, 2, WORLD, VERDICT_SEND, 1, 3, 4096, SCENE_NOW - 6.5);
        scene_syscall(&s, 1, "poll", "", 0);
        must_say(VERDICT_KIND_P2P_UNMATCHED, 1, name(2), "is stuck for 6.5 s in send to rank 1 (tag 3, 4 KB", name(1), "posted no receive for it",
                 "system call poll", NULL);

        scene_begin(&s, 4, per_host, 3);
        scene_comm(&s, WORLD, "dp", 0, 1, 4);
        scene_p2p(&s, 2, WORLD, VERDICT_RECV, 1, 3, 4096, SCENE_NOW - 6.5);
        s.f.ranks[1].process.in_library = false;
        must_say(VERDICT_KIND_P2P_UNMATCHED, 1, name(2), "in recv from rank 1 (tag 3", name(1), "has sent nothing for it", NULL);

        scene_begin(&s, 4, per_host, 3);
        scene_comm(&s, WORLD, "dp", 0, 1, 4);
        scene_p2p(&s, 2, WORLD, VERDICT_SEND, 1, 0, 1 << 20, SCENE_NOW - 7);
        scene_p2p(&s, 1, WORLD, VERDICT_SEND, 2, 0, 1 << 20, SCENE_NOW - 6);
        must_say(VERDICT_KIND_P2P_UNMATCHED, 1, "crossed sends", name(1), name(2), "for 6.0 s", NULL);

        /* the receiver went on to a collective that the sender never reaches */
        scene_begin(&s, 4, per_host, 3);
        scene_comm(&s, WORLD, "dp", 0, 1, 4);
        scene_p2p(&s, 2, WORLD, VERDICT_SEND, 1, 0, 8, SCENE_NOW - 7);
        for (int r = 0; r < 4; r++)
            if (r != 2)
                scene_call(&s, r, WORLD, UNO_BARRIER, 0, SCENE_NOW - 6, 0);
        must_say(VERDICT_KIND_P2P_UNMATCHED, 1, "send without receive: rank 2 (pid 802", "send to rank 1", "barrier #1", "ranks 0, 3 wait for them", NULL);
    }
}

static void test_p2p_tags(void **state)
{
    (void)state;
    scene_begin(&s, 2, 1, 3);
    scene_comm(&s, WORLD, "dp", 0, 1, 2);
    scene_p2p(&s, 0, WORLD, VERDICT_SEND, 1, 5, 8, SCENE_NOW - 7);
    scene_p2p(&s, 1, WORLD, VERDICT_RECV, 0, 6, 8, SCENE_NOW - 6);
    must_say(VERDICT_KIND_P2P_UNMATCHED, 0, "tags differ", "sends tag 5", "receives tag 6", NULL);

    scene_begin(&s, 2, 1, 3);
    scene_comm(&s, WORLD, "dp", 0, 1, 2);
    scene_p2p(&s, 0, WORLD, VERDICT_IRECV, UNO_ANY, 6, 8, SCENE_NOW - 6);
    scene_p2p(&s, 1, WORLD, VERDICT_ISEND, 0, 5, 8, SCENE_NOW - 7)->waited = false;
    must_say(VERDICT_KIND_P2P_UNMATCHED, 0, "irecv from any rank (tag 6", "rank 1 sends tag 5", NULL);
}

/* The peer of a send or receive that will not come, or not soon: told as what it is, with the pair. */
static void test_p2p_peers(void **state)
{
    (void)state;
    for (int way = 0; way < 5; way++) {
        scene_begin(&s, 4, 2, 3);
        scene_comm(&s, WORLD, "dp", 0, 1, 4);
        scene_p2p(&s, 3, WORLD, VERDICT_RECV, 0, 0, 64, SCENE_NOW - (way < 2 ? 0.5 : 8));
        struct verdict_process *p = &s.f.ranks[0].process;
        if (way == 0) {
            scene_ended(&s, 0, VERDICT_LEFT, VERDICT_ENDED_EXIT, 0, SCENE_NOW - 1);
            must_say(VERDICT_KIND_LEFT, 0, name(3), "recv from rank 0 (tag 0, 64 B", "exited with status 0, 1.0 s ago and has sent nothing for it", NULL);
        } else if (way == 1) {
            scene_ended(&s, 0, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 9, SCENE_NOW - 1);
            must_say(VERDICT_KIND_DEAD, 0, "signal 9", "rank 3 waits for it", NULL);
        } else if (way == 2) {
            p->run = VERDICT_RUN_STOPPED;
            must_say(VERDICT_KIND_STOPPED, 0, name(3), name(0), "has sent nothing for it; it is stopped by a signal", NULL);
        } else if (way == 3) {
            scene_computes(&s, 0, "");
            must_say(VERDICT_KIND_COMPUTING, 0, name(3), name(0), "has sent nothing for it; it computes", NULL);
        } else {
            scene_lost(&s, 0, VERDICT_SILENT, SCENE_NOW - 5);
            must_say(VERDICT_KIND_SILENT, 0, name(3), name(0), "does not answer for 5.0 s", NULL);
        }
    }
}

/* ---- ends -------------------------------------------------------------------------------------------------------------------------- */

static void test_dead(void **state)
{
    (void)state;
    static const struct { enum verdict_ended how; int code; bool oom; const char *says; } ends[] = {
        {VERDICT_ENDED_SIGNAL, 9, false, "was killed by signal 9 (SIGKILL), 2.0 s ago"},
        {VERDICT_ENDED_SIGNAL, 9, true, "2.0 s ago, for the kernel was out of memory (oom_kill in memory.events of /job)"},
        {VERDICT_ENDED_SIGNAL, 6, false, "signal 6 (SIGABRT)"},
        {VERDICT_ENDED_EXIT, 0, false, "exited with status 0 before the end"},
        {VERDICT_ENDED_EXIT, 1, false, "exited with status 1, 2.0 s ago"},
        {VERDICT_ENDED_UNKNOWN, 0, false, "ended, how is unknown here, 2.0 s ago"},
    };
    EVERY_STAGE(st, c) for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        int rank = *c;
        open_stage(st);
        struct verdict_event *e;
        for (int r = 0; r < 8; r++) {
            e = scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 2.5, 0);
            e->bytes_moved = 1 << 20;
            e->bytes_total = 8 << 20;
        }
        struct verdict_rank *r = scene_ended(&s, rank, VERDICT_DEAD, ends[i].how, ends[i].code, SCENE_NOW - 2);
        r->oom_kill = ends[i].oom;
        if (ends[i].oom)
            snprintf(r->process.cgroup, sizeof r->process.cgroup, "/job");
        r->children_left = 4;
        for (int k = 0; k < 4; k++)
            r->children[k] = 31 + k;
        close_stage(st);
        must_say(VERDICT_KIND_DEAD, rank, name(rank), ends[i].says, "its last operation was all_reduce #17", "not finished (1 MB of 8 MB moved)",
                 "4 processes that it had forked live on and hold what it had open (pids 31, 32, 33, 34)", NULL);
        assert_int_equal(v.nculprits, 1);
    }
}

/* Who is stopped waits for nobody: when all are, that is the verdict; one alone is told beside it. */
static void test_all_stopped(void **state)
{
    static const uint8_t ways[] = {VERDICT_RUN_STOPPED, VERDICT_RUN_TRACED, VERDICT_RUN_FROZEN};
    static const char *const says[] = {"is stopped by a signal (SIGSTOP or from the terminal) for 8.0 s", "is held by a debugger", "is frozen"};
    (void)state;
    EVERY_STAGE(st, c) for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        int runs = *c;
        open_stage(st);
        int n = 8, heard = st->lost < 0 ? 8 : 7;
        for (int r = 0; r < n; r++) {
            s.f.ranks[r].process.run = ways[i];
            s.f.ranks[r].process.run_since_ns = scene_own(&s, r, SCENE_NOW - (r == 0 ? 8 : 7));
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 9, 0);
        }
        close_stage(st);
        must_say(VERDICT_KIND_STOPPED, 0, fmt("nobody %sruns for 7.0 s: ranks 0-%d", heard < 8 ? "who reported " : "", heard - 1), " are stopped; ", name(0), says[i],
                 NULL);
        assert_int_equal(v.nculprits, heard);
        assert_true(v.fault);

        open_stage(st);
        for (int r = 0; r < n; r++)
            if (r != runs)
                s.f.ranks[r].process.run = ways[i];
        close_stage(st);
        quiet();
        assert_non_null(strstr(v.headline, "ranks reported, nobody waits; but rank "));
    }
}

/* Its ledger is lost, nobody waits yet: it is dead nevertheless. Others died of it, or were killed afterwards. */
static void test_first_death(void **state)
{
    (void)state;
    open_stage(&stages[2]);
    scene_lost(&s, 3, VERDICT_DEAD, SCENE_NOW - 0.5);
    must_say(VERDICT_KIND_DEAD, 3, name(3), "0.5 s ago", NULL);

    open_stage(&stages[2]);
    for (int r = 0; r < 8; r++) {
        scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 9, 0)->state = r == 3 ? VERDICT_RUNNING : VERDICT_FAILED;
        struct verdict_comm *m = scene_of(&s, r, WORLD);
        if (r != 3) {
            m->failed = UNO_ERR_PEER_DEAD;
            m->failed_rank = 3;
            m->failed_ns = scene_own(&s, r, SCENE_NOW - 7.9);
            snprintf(m->failed_text, sizeof m->failed_text, "rank 3 was killed by signal 11");
            scene_ended(&s, r, VERDICT_DEAD, VERDICT_ENDED_EXIT, 1, SCENE_NOW - 7.5 - 0.01 * r);
        } else {
            scene_ended(&s, r, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 11, SCENE_NOW - 8);
        }
    }
    must_say(VERDICT_KIND_DEAD, 3, name(3), "signal 11 (SIGSEGV)", NULL);
    assert_int_equal(v.nothers, 0);

    open_stage(&stages[2]); /* the launcher kills the rest */
    scene_ended(&s, 6, VERDICT_DEAD, VERDICT_ENDED_EXIT, 3, SCENE_NOW - 8);
    for (int r = 0; r < 6; r++)
        scene_ended(&s, r, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 15, SCENE_NOW - 6);
    must_say(VERDICT_KIND_DEAD, 6, "exited with status 3", NULL);
    assert_true(v.nothers > 0);
}

static void test_left(void **state)
{
    (void)state;
    EVERY_STAGE(st, c) {
        int rank = *c;
        open_stage(st);
        for (int r = 0; r < 8; r++)
            if (r != rank)
                scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 0.2, 0);
        scene_ended(&s, rank, VERDICT_LEFT, VERDICT_ENDED_EXIT, 0, SCENE_NOW - 1);
        close_stage(st);
        must_say(VERDICT_KIND_LEFT, rank, name(rank), "exited with status 0", "never called it", "its last operation was all_reduce #16",
                 "it made 16 calls, the others 17", "wait for it", NULL);
    }
    open_stage(&stages[0]);
    all_but(4);
    scene_of(&s, 4, WORLD)->destroyed = true;
    must_say(VERDICT_KIND_LEFT, 4, "finalized or destroyed this communicator", NULL);
}

/* ---- processes that stand, or get no processor ------------------------------------------------------------------------------------ */

static void test_stopped(void **state)
{
    (void)state;
    static const struct { enum verdict_run run; const char *says; } ways[] = {
        {VERDICT_RUN_STOPPED, "is stopped by a signal (SIGSTOP or from the terminal) for 7.0 s"},
        {VERDICT_RUN_TRACED, "is held by a debugger (gdb, pid 99) for 7.0 s"},
        {VERDICT_RUN_FROZEN, "is frozen with its cgroup /job for 7.0 s"},
    };
    EVERY_STAGE(st, c) for (size_t i = 0; i < ARRAY_LEN(ways); i++) for (int within = 0; within < 3; within++) {
        int rank = *c;
        open_stage(st);
        all_but(within ? -1 : rank);
        struct verdict_rank *r = &s.f.ranks[rank];
        struct verdict_process *p = &r->process;
        p->run = (uint8_t)ways[i].run;
        p->run_since_ns = scene_own(&s, rank, SCENE_NOW - 7);
        p->tracer_pid = 99;
        snprintf(p->tracer, sizeof p->tracer, "gdb");
        snprintf(p->cgroup, sizeof p->cgroup, "/job");
        if (within == 2) /* its steward stands too: the hub tells of it */
            r->status = VERDICT_SILENT;
        close_stage(st);
        must_say(VERDICT_KIND_STOPPED, rank, name(rank), ways[i].says, within ? "is in it and is" : "has not called it yet; it is",
                 "wait for it", NULL);
        assert_null(strstr(v.headline, "died"));
    }
}

static void test_starved(void **state)
{
    (void)state;
    for (int within = 0; within < 2; within++) {
        open_stage(&stages[2]);
        all_but(within ? -1 : 3);
        for (int r = 0; r < 8; r++) {
            s.f.ranks[r].process.sample_ns = SEC(1);
            s.f.ranks[r].process.queue_permille = 20;
        }
        struct verdict_process *p = &s.f.ranks[3].process;
        p->run = VERDICT_RUN_RUNS;
        p->in_library = within;
        p->cpu_permille = 60;
        p->queue_permille = 930;
        must_say(VERDICT_KIND_SLOW_RANK, 3, name(3), "had no processor for 93 % of the last 1.0 s", "the others' median is 2 %", NULL);
    }
}

/* Operations go on, but at the pace of a rank that gets no processor; nobody waits for long. */
static void test_starved_goes_on(void **state)
{
    (void)state;
    enum { ALONE, SHORT, EVERYBODY, NOBODY_WAITS, ONE_QUOTA, CASES };
    for (int what = 0; what < CASES; what++) {
        scene_begin(&s, 8, 4, 0);
        scene_comm(&s, WORLD, "dp", 0, 1, 8);
        for (int r = 0; r < 8; r++) {
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 0.3, SCENE_NOW - 0.2);
            if (r != 3 && what != NOBODY_WAITS)
                scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 0.1, 0);
            struct verdict_process *p = &s.f.ranks[r].process;
            p->queue_permille = what == EVERYBODY ? 900 : 10;
        }
        struct verdict_process *p = &s.f.ranks[3].process;
        *p = (struct verdict_process){.run = VERDICT_RUN_RUNS, .sample_ns = SEC(what == SHORT ? 1 : 6), .queue_permille = 970};
        snprintf(p->cgroup, sizeof p->cgroup, "/job (a quota of 1 %% of a processor)");
        if (what == ONE_QUOTA) /* the whole job has it */
            memcpy(s.f.ranks[1].process.cgroup, p->cgroup, sizeof p->cgroup);
        scene_sign(&s, WORLD);
        if (what == ALONE)
            must_say(VERDICT_KIND_SLOW_RANK, 3, name(3), "holds the others up", "had no processor for 97 % of the last 6.0 s",
                     "/job (a quota of 1 % of a processor)", "the others' median is 1 %", "ranks 0-2, 4-7 wait for it", NULL);
        else
            must_say(VERDICT_KIND_NONE, -1, "nothing is wrong", NULL);
    }
}

static void test_silent(void **state)
{
    (void)state;
    EVERY_STAGE(st, c) {
        int rank = *c;
        open_stage(st);
        all_but(rank);
        close_stage(st);
        scene_lost(&s, rank, VERDICT_SILENT, SCENE_NOW - 4);
        must_say(VERDICT_KIND_SILENT, rank, name(rank), "does not answer for 4.0 s", NULL);
        assert_int_equal(v.sure, VERDICT_LIKELY);
    }
    open_stage(&stages[1]); /* no report, and everybody else has called */
    all_but(3);
    scene_lost(&s, 3, VERDICT_UNKNOWN, 0);
    must_say(VERDICT_KIND_SILENT, 3, name(3), "gave no report", NULL);
}

static void test_never_joined(void **state)
{
    (void)state;
    scene_begin(&s, 8, 4, 0);
    s.f.joining = true;
    snprintf(s.f.what_job, sizeof s.f.what_job, "llm");
    for (int r = 0; r < 8; r++)
        if (r == 5)
            scene_lost(&s, r, VERDICT_NEVER_JOINED, SCENE_NOW - 20);
    s.f.ranks[5].pid = 0;
    must_say(VERDICT_KIND_NEVER_JOINED, 5, "job \"llm\" cannot start for 20.0 s", "rank 5 (on n1) of 8 never joined", NULL);
    scene_begin(&s, 8, 4, 0);
    s.f.joining = true;
    for (int r = 2; r < 8; r++) {
        scene_lost(&s, r, VERDICT_NEVER_JOINED, 0);
        s.f.ranks[r].host[0] = 0;
    }
    must_say(VERDICT_KIND_NEVER_JOINED, 2, "ranks 2-7 of 8 never joined", NULL);
}

/* ---- paths -------------------------------------------------------------------------------------------------------------------------- */

static void test_cut(void **state)
{
    (void)state;
    static const struct { enum verdict_path how; const char *says; } ways[] = {
        {VERDICT_PATH_SILENT, "nothing comes back"}, {VERDICT_PATH_RESET, "connections are reset"},
        {VERDICT_PATH_REFUSED, "connections are refused"}, {VERDICT_PATH_NO_ROUTE, "there is no route"}};
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        for (int both = 0; both < 2; both++) {
            /* three hosts; n0 and n1 do not hear each other any more; both still talk to n2, or n1 is lost altogether */
            scene_begin(&s, 6, 2, 100);
            scene_comm(&s, WORLD, "dp", 0, 1, 6);
            for (int r = 0; r < 6; r++) {
                struct verdict_event *e = scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1 << 20, SCENE_NOW - 9, 0);
                e->moved_ns = scene_own(&s, r, SCENE_NOW - 8);
                e->waits_for = (r + 5) % 6;
            }
            scene_link(&s, 0, 1, ways[i].how, SCENE_NOW - 8)->from_if_down = i == 3;
            if (both) {
                scene_link(&s, 2, 0, ways[i].how, SCENE_NOW - 7.5);
            } else {
                scene_lost(&s, 2, VERDICT_SILENT, SCENE_NOW - 5);
                scene_lost(&s, 3, VERDICT_SILENT, SCENE_NOW - 5);
            }
            must_say(VERDICT_KIND_UNREACHABLE, both ? -1 : 2, "no path between n0 (eth0, 10.0.0.1) and n1", "for 8.0 s", ways[i].says,
                     "rank 0 (pid 800 on n0) and rank 1 (pid 801 on n0) cannot reach rank 2 (pid 802 on n1)", i == 3 ? "interface eth0 is down" : "no process is known to have died", NULL);
            assert_int_equal(v.nothers, 0);
        }
}

/* A stopped program keeps its host quiet: that is no fault of the network. */
static void test_quiet_host_is_stopped(void **state)
{
    (void)state;
    scene_begin(&s, 4, 2, 0);
    scene_comm(&s, WORLD, "dp", 0, 1, 4);
    for (int r = 0; r < 2; r++)
        scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 8, SCENE_NOW - 9, 0);
    for (int r = 2; r < 4; r++)
        s.f.ranks[r].process.run = VERDICT_RUN_FROZEN;
    scene_link(&s, 0, 1, VERDICT_PATH_SILENT, SCENE_NOW - 6);
    must_say(VERDICT_KIND_STOPPED, 2, "is frozen", NULL);
}

static void test_slow_link(void **state)
{
    (void)state;
    for (int expected = 0; expected < 2; expected++) {
        scene_begin(&s, 8, 2, 0);
        scene_comm(&s, WORLD, "dp", 0, 1, 8);
        for (int r = 0; r < 8; r++) {
            struct verdict_event *e = scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1 << 30, SCENE_NOW - 12, 0);
            e->moved_ns = scene_own(&s, r, SCENE_NOW - 0.01);
            e->bytes_moved = 1 << 30;
            e->bytes_total = 4ull << 30;
        }
        for (int h = 0; h < 4; h++) {
            struct verdict_link *l = scene_link(&s, 2 * h, (h + 1) % 4, VERDICT_PATH_OK, 0);
            l->measured_bps = h == 1 ? 12000000 : 118000000;
            l->expected_bps = expected ? 125000000 : 0;
        }
        must_say(VERDICT_KIND_SLOW_LINK, -1, "path between n1 (eth0", "and n2", "moves 12.0 MB/s", "other paths move up to 118.0 MB/s",
                 expected ? "expected 125.0 MB/s (10 % of it)" : "rank 2 (pid 802 on n1)", NULL);
    }
}

/* ---- nothing of all that ------------------------------------------------------------------------------------------------------------ */

static void test_ours(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    all_but(-1);
    for (int r = 0; r < 8; r++) {
        struct verdict_event *e = &scene_of(&s, r, WORLD)->events[16];
        e->moved_ns = scene_own(&s, r, SCENE_NOW - 6);
        e->waits_for = (r + 1) % 8;
        e->step = 4;
        e->tile = 2;
    }
    scene_sign(&s, WORLD);
    must_say(VERDICT_KIND_FAULT_OF_OURS, -1, "all 8 ranks have made the same call", "waits for rank 1 (pid 801 on n0) in step 4, tile 2",
             "fault of the library", NULL);
}

/* A communicator failed for a reason that no rule can see. */
static void test_told(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    for (int r = 0; r < 8; r++) {
        struct verdict_comm *m = scene_of(&s, r, WORLD);
        m->failed = UNO_ERR_ABORTED;
        m->failed_rank = 2;
        m->failed_ns = scene_own(&s, r, SCENE_NOW - 3 + 0.01 * r);
        snprintf(m->failed_text, sizeof m->failed_text, "uno_comm_abort was called");
    }
    must_say(VERDICT_KIND_ABORTED, 2, "\"dp\" failed 3.0 s ago", name(2), "UNO_ERR_ABORTED", "uno_comm_abort was called", NULL);
}

static void test_near_misses(void **state)
{
    (void)state;
    for (const struct stage *st = stages; st < stages + ARRAY_LEN(stages); st++) {
        open_stage(st); /* idle */
        close_stage(st);
        quiet();
        open_stage(st); /* all compute for a minute, nobody waits */
        for (int r = 0; r < 8; r++)
            scene_computes(&s, r, "");
        close_stage(st);
        quiet();
        open_stage(st); /* one late, not for long */
        for (int r = 0; r < 7; r++)
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 4.5, 0);
        close_stage(st);
        quiet();
        open_stage(st); /* asynchronous: no program stands still for it */
        for (int r = 0; r < 7; r++) {
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 45, 0)->blocks = VERDICT_PROGRAM_GOES_ON;
            scene_computes(&s, r, "");
        }
        close_stage(st);
        quiet();
        open_stage(st); /* root of a broadcast has finished and gone ahead; the others follow */
        for (int r = 0; r < 8; r++) {
            scene_call(&s, r, WORLD, UNO_BROADCAST, 8, SCENE_NOW - 1, r == 0 ? SCENE_NOW - 0.9 : 0);
            if (r == 0)
                scene_call(&s, r, WORLD, UNO_BROADCAST, 9, SCENE_NOW - 0.9, 0);
        }
        close_stage(st);
        quiet();
        open_stage(st); /* 0 elements, v-forms with own counts, barriers whose type says nothing */
        for (int r = 0; r < 8; r++) {
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 0, SCENE_NOW - 9, SCENE_NOW - 8);
            scene_call(&s, r, WORLD, UNO_ALL_GATHER_V, (uint64_t)r * 5, SCENE_NOW - 8, SCENE_NOW - 7);
            scene_call(&s, r, WORLD, UNO_BARRIER, 0, SCENE_NOW - 7, SCENE_NOW - 6)->type = (uint8_t)r;
            scene_call(&s, r, WORLD, UNO_BROADCAST, 4, SCENE_NOW - 6, SCENE_NOW - 6)->op = r;
        }
        quiet();
    }
}

static void test_near_misses_2(void **state)
{
    (void)state;
    scene_begin(&s, 8, 4, 999); /* split communicators, one a step ahead on another one */
    scene_comm(&s, WORLD, "dp", 0, 1, 8);
    scene_comm(&s, TP, "tp", 0, 2, 4);
    scene_comm(&s, PP, "tp", 1, 2, 4);
    for (int r = 0; r < 8; r++) {
        scene_call(&s, r, r % 2 ? PP : TP, UNO_ALL_REDUCE, 64, SCENE_NOW - 3, SCENE_NOW - 2);
        if (r == 4)
            scene_call(&s, r, TP, UNO_ALL_REDUCE, 32, SCENE_NOW - 2, 0);
    }
    scene_sign(&s, TP);
    scene_sign(&s, PP);
    quiet();

    open_stage(&stages[1]); /* some have finished and left in order, nobody waits for them */
    for (int r = 0; r < 4; r++)
        scene_ended(&s, r, VERDICT_LEFT, VERDICT_ENDED_EXIT, 0, SCENE_NOW - 30);
    quiet();

    open_stage(&stages[1]); /* old sends nobody waits for, receives posted early */
    scene_p2p(&s, 1, WORLD, VERDICT_ISEND, 2, 0, 8, SCENE_NOW - 60)->waited = false;
    scene_p2p(&s, 5, WORLD, VERDICT_IRECV, UNO_ANY, 0, 8, SCENE_NOW - 60)->waited = false;
    quiet();

    open_stage(&stages[1]); /* a large message is on its way */
    scene_p2p(&s, 1, WORLD, VERDICT_SEND, 2, 0, 1ull << 33, SCENE_NOW - 60)->matched = true;
    scene_p2p(&s, 2, WORLD, VERDICT_RECV, 1, 0, 1ull << 33, SCENE_NOW - 60)->matched = true;
    quiet();

    open_stage(&stages[1]); /* a debugger holds a rank that nobody needs now */
    s.f.ranks[2].process.run = VERDICT_RUN_TRACED;
    quiet();
}

/* A large operation moves: a fact. A late start of one rank: computing, a fact. */
static void test_facts(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    all_but(-1);
    for (int r = 0; r < 8; r++)
        scene_of(&s, r, WORLD)->events[16].moved_ns = scene_own(&s, r, SCENE_NOW - 0.2);
    must_say(VERDICT_KIND_SLOW, -1, "all 8 ranks have called it and it moves on", NULL);
    assert_false(v.fault);

    scene_begin(&s, 8, 4, 0); /* slow start: rank 6 has not called anything yet */
    scene_comm(&s, WORLD, "dp", 0, 1, 8);
    all_but(6);
    scene_computes(&s, 6, "");
    must_say(VERDICT_KIND_COMPUTING, 6, "it has called no collective yet", NULL);
    assert_false(v.fault);
}

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
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(best < 50000000);
#endif
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
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(took < 50000000);
#endif
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
        cmocka_unit_test(test_absent_computes), cmocka_unit_test(test_absent_waits_elsewhere), cmocka_unit_test(test_absent_queued), cmocka_unit_test(test_absent_native_stack), cmocka_unit_test(test_killed_after_a_death),
        cmocka_unit_test(test_absent_telling_frame),
        cmocka_unit_test(test_several_absent), cmocka_unit_test(test_chain), cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_mismatch_found_late), cmocka_unit_test(test_mismatch_odd), cmocka_unit_test(test_off_by_one),
        cmocka_unit_test(test_off_by_one_of_two), cmocka_unit_test(test_skipped),
        cmocka_unit_test(test_off_by_one_by_sites), cmocka_unit_test(test_off_by_one_by_queue), cmocka_unit_test(test_one_call_more),
        cmocka_unit_test(test_own_reductions), cmocka_unit_test(test_p2p_peers), cmocka_unit_test(test_comm_order), cmocka_unit_test(test_long_circle),
        cmocka_unit_test(test_p2p), cmocka_unit_test(test_p2p_tags), cmocka_unit_test(test_dead), cmocka_unit_test(test_all_stopped), cmocka_unit_test(test_first_death),
        cmocka_unit_test(test_left), cmocka_unit_test(test_stopped), cmocka_unit_test(test_starved),
        cmocka_unit_test(test_starved_goes_on), cmocka_unit_test(test_silent),
        cmocka_unit_test(test_never_joined), cmocka_unit_test(test_cut), cmocka_unit_test(test_quiet_host_is_stopped),
        cmocka_unit_test(test_slow_link), cmocka_unit_test(test_ours), cmocka_unit_test(test_told), cmocka_unit_test(test_near_misses),
        cmocka_unit_test(test_near_misses_2), cmocka_unit_test(test_facts), cmocka_unit_test(test_earliest_first),
        cmocka_unit_test(test_identity), cmocka_unit_test(test_post_mortem), cmocka_unit_test(test_thousand),
        cmocka_unit_test(test_thousand_hard), cmocka_unit_test(test_unknown), cmocka_unit_test(test_oversubscribed),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
