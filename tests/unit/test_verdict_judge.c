/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causes in what ranks call, as facts alone, and what the verdict says of them: calls that are not made, that do not fit together,
 * circles, messages without partner.
 */
#include "verdict_judged.h"

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

/* What the stream waits for is named: an operation before it there, or one of another stream that an event follows. */
static void test_absent_behind(void **state)
{
    (void)state;
    static const struct { struct verdict_behind behind; const char *says; } cases[] = {
        {{.before = VERDICT_BEFORE_STREAM, .comm_id = PP, .call = {.coll = UNO_BROADCAST, .count = 40, .site = "train.py:80"}},
         "on a stream that has not come to it: before it there stands broadcast (count 40) of comm \"pp\" at train.py:80, issued 7.0 s ago; it computes"},
        {{.before = VERDICT_BEFORE_EVENT, .comm_id = PP, .call = {.coll = UNO_BARRIER}},
         "on a stream that has not come to it: there it waits for an event that comes after barrier (count 0) of comm \"pp\" of another stream, issued 7.0"},
        {{.before = VERDICT_BEFORE_STREAM, .comm_id = WORLD, .p2p = VERDICT_SEND, .call = {.coll = -1, .root = 2}},
         "before it there stands a send to rank 2 of comm \"dp\", issued 7.0 s ago; it computes"},
        {{.before = VERDICT_BEFORE_EVENT, .comm_id = 999, .p2p = VERDICT_RECV, .call = {.coll = -1, .root = 6}}, /* nobody tells of that one */
         "waits for an event that comes after a receive from rank 6 of another stream"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        open_stage(&stages[0]);
        all_but(5);
        scene_comm(&s, PP, "pp", 0, 1, 8);
        scene_queued(&s, 5, WORLD, UNO_ALL_REDUCE, 1024, 41, SCENE_NOW - 6.1);
        scene_of(&s, 5, WORLD)->behind = cases[i].behind;
        scene_of(&s, 5, WORLD)->behind.call.since_ns = scene_own(&s, 5, SCENE_NOW - 7);
        scene_computes(&s, 5, "train.py:88");
        close_stage(&stages[0]);
        must_say(VERDICT_KIND_COMPUTING, 5, "all_reduce #17", name(5), "has issued it, 6.1 s ago", cases[i].says, NULL);
    }
}

/* The program goes on, but what it has issued does not: a receive before it on its stream waits for somebody who waits for that. */
static void test_queued_behind_a_message(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        open_stage(&stages[0]);
        all_but(5);
        scene_p2p(&s, 5, WORLD, VERDICT_RECV, 3, 0, 64, SCENE_NOW - 7)->waited = false;
        scene_queued(&s, 5, WORLD, UNO_ALL_REDUCE, 1024, 41, SCENE_NOW - 6.1);
        if (known)
            scene_of(&s, 5, WORLD)->behind = (struct verdict_behind){.before = VERDICT_BEFORE_EVENT, .p2p = VERDICT_RECV, .comm_id = WORLD,
                                                                      .call = {.coll = -1, .root = 3}};
        scene_computes(&s, 5, "train.py:88");
        close_stage(&stages[0]);
        if (known)
            must_say(VERDICT_KIND_P2P_UNMATCHED, 3, "receive without send: rank 5", "waits in recv from rank 3", "all_reduce #17", NULL);
        else
            must_say(VERDICT_KIND_COMPUTING, 5, "has issued it", NULL);
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
        assert_non_null(strstr(v.what_next, "`gdb -p ")); /* `unisono why` would not disturb it either */
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

/* A name that is too long for the sentence loses its middle, not the module. */
static void test_absent_long_name(void **state)
{
    static const struct { int letters; const char *tail, *says; } cases[] = {
        {9, "+0x2c (libmodel.so)", "f+0x2c (libmodel.so);"}, {77, "+0x2c (libmodel.so)", "f+0x2c (libmodel.so);"}, {78, "+0x2c (libmodel.so)", "f...+0x2c (libmodel.so);"},
        {200, "+0x2c (libmodel.so)", "f...+0x2c (libmodel.so);"}, {200, "", "f;"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        open_stage(&stages[1]);
        all_but(3);
        struct verdict_process *p = &s.f.ranks[3].process;
        char letters[256] = "";
        memset(letters, 'f', (size_t)cases[i].letters);
        p->in_library = false;
        p->run = VERDICT_RUN_SYSCALL;
        snprintf(p->stack, sizeof p->stack, "%s%s\nmain+0x1 (program)", letters, cases[i].tail);
        close_stage(&stages[1]);
        must_say(VERDICT_KIND_RANK_ABSENT, 3, cases[i].says, " in fff", NULL);
        const char *from = strstr(v.headline, " in fff") + 4;
        assert_int_equal(strcspn(from, ";"), MIN(96, cases[i].letters + (int)strlen(cases[i].tail)));
        assert_non_null(strstr(v.lines[0].text, letters)); /* the evidence has all of it */
    }
}

/* By exec: at once, whatever the other program does, and also in the middle of a call. */
static void test_absent_replaced(void **state)
{
    (void)state;
    for (int inside = 0; inside < 2; inside++) {
        open_stage(&stages[1]);
        all_but(inside ? -1 : 3);
        struct verdict_process *p = &s.f.ranks[3].process;
        *p = (struct verdict_process){.run = VERDICT_RUN_REPLACED, .sample_ns = 60000000, .cpu_permille = 1000, .state = 'R'};
        snprintf(p->successor, sizeof p->successor, "sleep");
        close_stage(&stages[1]);
        must_say(VERDICT_KIND_RANK_ABSENT, 3, inside ? "is in it and runs another program now (sleep), which took its place by exec"
                 : "never called it; it runs another program now (sleep), which took its place by exec", NULL);
        assert_non_null(strstr(v.what_next, "look for a call of exec in the program of rank 3"));
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
    assert_non_null(strstr(v.what_next, "`unisono why "));
    open_stage(&stages[1]);
    all_but(3);
    s.f.ranks[3].process.in_library = false;
    snprintf(scene_of(&s, 3, WORLD)->events[15].site, VERDICT_SITE_BYTES, "train.py:212");
    must_say(VERDICT_KIND_RANK_ABSENT, 3, "last seen at train.py:212", NULL);
}

/* Who runs and gave no stack blocks the signal for it, and will not give one to the next who asks; who had no processor may. */
static void test_absent_computes_without_a_stack(void **state)
{
    static const struct { bool waits, stack; uint32_t cpu; const char *shows; } cases[] = {
        {false, false, 990, "gdb -p"}, {false, false, 200, "gdb -p"}, {false, false, 0, "unisono why"}, {false, true, 990, "unisono why"},
        {true, false, 990, "gdb -p"}, {true, true, 990, "unisono why"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        open_stage(&stages[1]);
        all_but(3);
        if (cases[i].waits)
            scene_syscall(&s, 3, "futex", "", 0);
        else
            scene_computes(&s, 3, "");
        s.f.ranks[3].process.cpu_permille = cases[i].cpu;
        snprintf(s.f.ranks[3].process.stack, sizeof s.f.ranks[3].process.stack, "%s", cases[i].stack ? "main+0x1 (program)" : "");
        close_stage(&stages[1]);
        must_say(VERDICT_KIND_COMPUTING, 3, name(3), NULL);
        assert_string_equal(v.what_next, fmt("nothing, if the program may be uneven there; `%s 803` on n0 shows its stack", cases[i].shows));
    }
}

/* The thread that calls us waits for others of its process, or for a child: if they compute, the rank is late, and no more. */
static void test_absent_while_others_compute(void **state)
{
    static const struct { const char *syscall; uint32_t cpu; double sample_s; bool late; } cases[] = {
        {"futex", 980, 0.06, true}, {"futex", 500, 1, true}, {"wait4", 7990, 1, true}, {"waitid", 600, 0.1, true},
        {"futex", 490, 1, false}, {"futex", 980, 0.02, false}, {"futex", 20, 1, false}, {"read", 980, 1, false}, {"clock_nanosleep", 980, 1, false}};
    (void)state;
    EVERY_STAGE(st, c) for (size_t i = 0; i < ARRAY_LEN(cases); i++) for (int message = 0; message < 2; message++) {
        int rank = *c, peer = (rank + 1) % 7;
        open_stage(st);
        if (message)
            scene_p2p(&s, peer, WORLD, VERDICT_SEND, rank, 3, 4096, SCENE_NOW - 6.5);
        else
            all_but(rank);
        scene_syscall(&s, rank, cases[i].syscall, "", 0);
        struct verdict_process *p = &s.f.ranks[rank].process;
        snprintf(p->wchan, sizeof p->wchan, "futex_do_wait");
        snprintf(p->stack, sizeof p->stack, "libc.so.6+0x85f14\nmain+0x80b (misc)");
        p->cpu_permille = cases[i].cpu;
        p->sample_ns = SEC(cases[i].sample_s);
        close_stage(st);
        if (cases[i].late)
            must_say(VERDICT_KIND_COMPUTING, rank, name(rank), message ? "has posted no receive for it" : "has not called it yet",
                     fmt("it waits in the system call %s (futex_do_wait) in main+0x80b (misc) while its other threads compute (%u %% of a processor)",
                         cases[i].syscall, cases[i].cpu / 10), NULL);
        else if (message)
            must_say(VERDICT_KIND_P2P_UNMATCHED, -1, name(rank), NULL);
        else
            must_say(VERDICT_KIND_RANK_ABSENT, rank, name(rank), "never called it", NULL);
        assert_int_equal(v.fault, !cases[i].late);
        assert_int_equal(!strstr(v.headline, "while its other threads compute"), !cases[i].late);
    }
}

/* The line of the last call is no place where the rank is now: it stands last, whole, whatever the process does. */
static void test_last_seen(void **state)
{
    static const struct { enum verdict_run run; const char *seen, *says; } cases[] = {
        {VERDICT_RUN_STOPPED, "t.py:31 in <module>", "is stopped by a signal (SIGSTOP or from the terminal) for 2.1 s; last seen at t.py:31 in <module>; its last"},
        {VERDICT_RUN_RUNS, "t.py:31 in f", "it computes (99 % of a processor); last seen at t.py:31 in f; its last"},
        {VERDICT_RUN_RUNS, "t.py:31", "it computes (99 % of a processor); last seen at t.py:31; its last"},
        {VERDICT_RUN_SLEEPS, "t.py:31", "it sleeps; last seen at t.py:31; its last"}};
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        size_t k = i / 2;
        open_stage(&stages[1]);
        all_but(3);
        struct verdict_process *p = &s.f.ranks[3].process;
        scene_computes(&s, 3, i % 2 ? "" : fmt("last seen at %s", cases[k].seen));
        p->run = (uint8_t)cases[k].run;
        if (p->run == VERDICT_RUN_STOPPED)
            p->run_since_ns = scene_own(&s, 3, SCENE_NOW - 2.1);
        if (i % 2) /* as the ledger has it */
            snprintf(scene_of(&s, 3, WORLD)->events[15].site, VERDICT_SITE_BYTES, "%s", cases[k].seen);
        close_stage(&stages[1]);
        must_say(p->run == VERDICT_RUN_STOPPED ? VERDICT_KIND_STOPPED : p->run == VERDICT_RUN_RUNS ? VERDICT_KIND_COMPUTING : VERDICT_KIND_RANK_ABSENT, 3,
                 cases[k].says, NULL);

        open_stage(&stages[1]);
        all_but(3);
        scene_computes(&s, 3, i % 2 ? "" : fmt("last seen at %s", cases[k].seen));
        p = &s.f.ranks[3].process;
        p->queue_permille = 1000;
        if (i % 2)
            snprintf(scene_of(&s, 3, WORLD)->events[15].site, VERDICT_SITE_BYTES, "%s", cases[k].seen);
        close_stage(&stages[1]);
        must_say(VERDICT_KIND_SLOW_RANK, 3, fmt("is ready to run but had no processor for 100 %% of the last 0.1 s; last seen at %s; ", cases[k].seen), NULL);
    }
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
    must_say(VERDICT_KIND_RANK_ABSENT, 6, name(6), "never called it",
             "; ranks 0-5, 7 wait for it: ranks 0-2, 4, 5, 7 in all_reduce #17 of comm \"dp\" for rank 3", NULL);
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
    differ_in(1, 9, 0x100);
    must_say(VERDICT_KIND_MISMATCH, 1, "all_reduce #17", name(1), "another plan or after other calls", NULL);
}

/* Its own count may differ between ranks, the chain may not. Where the counts for all ranks are known, both sides are said. */
static void test_mismatch_v(void **state)
{
    (void)state;
    for (uint32_t known = 15; known <= 17; known++) { /* 15: none; 16: those of an older call */
        uint64_t counts[8] = {2, 2, 2, 2, 2, 2, 2, 2};
        open_stage(&stages[1]);
        for (int r = 0; r < 8; r++) {
            counts[3] = r == 6 ? 30 : 20;
            scene_call(&s, r, WORLD, UNO_ALL_GATHER_V, (uint64_t)r, SCENE_NOW - 1, 0);
            for (uint32_t k = 0; k < 17; k++)
                scene_of(&s, r, WORLD)->events[k].signature = 1000 + k + (r == 6 && k == 16 ? 1 : 0);
            if (known > 15)
                scene_passed(&s, r, WORLD, known, counts);
        }
        if (known == 17)
            must_say(VERDICT_KIND_MISMATCH, 6, "all_gather_v #17 of comm \"dp\" does not fit together: for rank 3, rank 6 (",
                     "passes 30 elements, rank 0 (", "and others pass 20;", NULL);
        else
            must_say(VERDICT_KIND_MISMATCH, 6, "all_gather_v #17", name(6), "other counts per rank", NULL);
        assert_int_equal(v.sure, VERDICT_LIKELY);
    }
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
                 "all_reduce (count 20)", "is what comes after that one", NULL);
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
    struct verdict_event two[6]; /* in a loop of two, too, it is known which one comes next */
    for (uint32_t k = 0; k < ARRAY_LEN(two); k++)
        two[k] = (struct verdict_event){.coll = UNO_ALL_REDUCE, .count = k % 2 ? 20 : 10};
    a.count = 20;
    assert_int_equal(verdict_skipped(two, 6, &a, &b), 1);
    assert_int_equal(verdict_skipped(two, 5, &a, &b), -1);
    struct verdict_event many[61]; /* 20 alike and one other; the last one of the 20 is skipped, by b, and by nobody else */
    for (uint32_t k = 0; k < ARRAY_LEN(many); k++)
        many[k] = k % 21 == 20 ? (struct verdict_event){.coll = UNO_BARRIER} : (struct verdict_event){.coll = UNO_ALL_REDUCE, .count = 8};
    a = many[0];
    b = many[20];
    assert_int_equal(verdict_skipped(many, 61, &a, &b), -1);
    assert_int_equal(verdict_skipped(many, 61, &b, &a), 1);
    assert_int_equal(verdict_skipped(many, 30, &a, &b), 0); /* not once as a whole */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent_computes), cmocka_unit_test(test_absent_queued),
        cmocka_unit_test(test_absent_behind), cmocka_unit_test(test_queued_behind_a_message),
        cmocka_unit_test(test_absent_waits_elsewhere), cmocka_unit_test(test_absent_telling_frame),
        cmocka_unit_test(test_absent_replaced), cmocka_unit_test(test_absent_native_stack), cmocka_unit_test(test_last_seen), cmocka_unit_test(test_absent_long_name), cmocka_unit_test(test_absent_computes_without_a_stack), cmocka_unit_test(test_absent_while_others_compute), cmocka_unit_test(test_killed_after_a_death),
        cmocka_unit_test(test_several_absent), cmocka_unit_test(test_chain), cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_mismatch_found_late), cmocka_unit_test(test_mismatch_odd), cmocka_unit_test(test_mismatch_v), cmocka_unit_test(test_off_by_one),
        cmocka_unit_test(test_off_by_one_of_two), cmocka_unit_test(test_skipped), cmocka_unit_test(test_off_by_one_by_queue),
        cmocka_unit_test(test_off_by_one_by_sites), cmocka_unit_test(test_one_call_more), cmocka_unit_test(test_own_reductions),
        cmocka_unit_test(test_comm_order), cmocka_unit_test(test_long_circle), cmocka_unit_test(test_p2p),
        cmocka_unit_test(test_p2p_tags), cmocka_unit_test(test_p2p_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
