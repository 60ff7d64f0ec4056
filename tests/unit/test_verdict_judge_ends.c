/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causes outside the calls, as facts alone, and what the verdict says of them: ends, processes that stand, paths; and what is no fault.
 */
#include "verdict_judged.h"

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
        {VERDICT_ENDED_AGENT, 15, false, "ended with the agent of unisono run on its host, which was ended by signal 15 (SIGTERM), 2.0 s ago"},
        {VERDICT_ENDED_AGENT, 0, false, "ended with the agent of unisono run on its host, 2.0 s ago"},
        {VERDICT_ENDED_UNKNOWN, 0, false, "ended, status unknown here, 2.0 s ago"},
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

/* What a rank stood in may be a message. */
static void test_dead_in_a_message(void **state)
{
    (void)state;
    EVERY_STAGE(st, c) {
        int rank = *c, peer = (rank + 1) % 8;
        open_stage(st);
        scene_p2p(&s, rank, WORLD, VERDICT_SEND, peer, 3, 1 << 20, SCENE_NOW - 2.5);
        for (int r = 0; r < 8; r++)
            if (r != rank)
                scene_p2p(&s, r, WORLD, VERDICT_RECV, rank, 3, 1 << 20, SCENE_NOW - 2.6);
        scene_ended(&s, rank, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 9, SCENE_NOW - 2);
        close_stage(st);
        must_say(VERDICT_KIND_DEAD, rank, name(rank), "its last operation was send to rank ", "(tag 3, 1 MB, #1 of the pair) of comm", ", not finished", NULL);
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
    assert_int_equal(v.nothers, 0);

    open_stage(&stages[2]); /* the same of one that said goodbye first, once nobody lives */
    scene_ended(&s, 6, VERDICT_LEFT, VERDICT_ENDED_EXIT, 3, SCENE_NOW - 8);
    for (int r = 0; r < 8; r++)
        if (r != 6)
            scene_ended(&s, r, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 15, SCENE_NOW - 6);
    must_say(VERDICT_KIND_DEAD, 6, name(6), "exited with status 3", NULL);
    assert_int_equal(v.nothers, 0);
}

/* Somebody ends a job that stands: why it stood is told. One that did not is told as ended. */
static void test_ended_while_stuck(void **state)
{
    (void)state;
    EVERY_STAGE(st, c) {
        open_stage(st);
        all_but(*c);
        scene_syscall(&s, *c, "read", "", 0);
        close_stage(st);
        for (int r = 0; r < 8; r++)
            scene_ended(&s, r, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 2, SCENE_NOW - 0.1);
        must_say(VERDICT_KIND_RANK_ABSENT, *c, name(*c), "before all ranks were ended by signal 2 (SIGINT): ", "never called it", NULL);
        assert_non_null(strstr(v.what_next, "the job is over"));
    }
    for (int killed = 1; killed < 3; killed++) { /* the launcher was faster with the rest; one alone is what happened first */
        open_stage(&stages[2]);
        all_but(5);
        scene_syscall(&s, 5, "read", "", 0);
        close_stage(&stages[2]);
        for (int r = 0; r < 8; r++)
            scene_ended(&s, r, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, r < killed ? 9 : 15, SCENE_NOW - 0.1);
        if (killed == 1)
            must_say(VERDICT_KIND_DEAD, 0, "killed by signal 9 (SIGKILL)", NULL);
        else
            must_say(VERDICT_KIND_RANK_ABSENT, 5, "before all ranks were ended by signal 9 (SIGKILL): ", NULL);
    }
    open_stage(&stages[2]);
    for (int r = 0; r < 8; r++)
        scene_ended(&s, r, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 2, SCENE_NOW - 0.1);
    must_say(VERDICT_KIND_DEAD, 0, "killed by signal 2 (SIGINT)", NULL);
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

/* Its communicator has failed, at this rank, and how its process ended afterwards. */
static void failed_and_ended(int r, int at, const char *text, enum verdict_status status, enum verdict_ended how, int code, double when)
{
    struct verdict_comm *m = scene_of(&s, r, WORLD);
    scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 9, SCENE_NOW - 7.9)->state = VERDICT_FAILED;
    m->failed = UNO_ERR_PEER_DEAD;
    m->failed_rank = at;
    m->failed_ns = scene_own(&s, r, SCENE_NOW - 7.9);
    snprintf(m->failed_text, sizeof m->failed_text, "%s", text);
    if (status != VERDICT_REPORTED)
        scene_ended(&s, r, status, how, code, when);
}

/* A rank leaves in order, in the middle of the others' work, and they end because of it: by a status, by abort(), by the launcher. Nobody has
 * seen more of it than their error says. */
static void test_left_and_the_others_ended(void **state)
{
    static const struct { enum verdict_status status; enum verdict_ended how; int code; } ends[] = {
        {VERDICT_LEFT, VERDICT_ENDED_EXIT, 1}, {VERDICT_DEAD, VERDICT_ENDED_EXIT, 1}, {VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 6},
        {VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 15}};
    static const char *const text = "rank %d exited with status 0 before all_reduce #17, which needs it";
    (void)state;
    EVERY_STAGE(st, c) for (size_t i = 0; i < ARRAY_LEN(ends); i++) for (int lives = 0; lives < 2; lives++) {
        int rank = *c;
        open_stage(st);
        for (int r = 0; r < 8; r++)
            if (r != rank)
                failed_and_ended(r, rank, fmt(text, rank), lives && r == 5 ? VERDICT_REPORTED : ends[i].status, ends[i].how, ends[i].code,
                                 SCENE_NOW - 7.5 + 0.3 * r);
        scene_ended(&s, rank, VERDICT_LEFT, VERDICT_ENDED_EXIT, 0, SCENE_NOW - 8);
        close_stage(st);
        must_say(VERDICT_KIND_LEFT, rank, fmt(text, rank), "first at ", name(rank), NULL);
        assert_int_equal(v.nculprits, 1);
        assert_int_equal(v.nothers, 0);
        assert_non_null(strstr(v.lines[0].text, "exited with status 0, 8.0 s ago"));
    }
}

/* Its record is lost: what the others' error says of it is more than that they ended. */
static void test_others_ended_of_one_unheard(void **state)
{
    (void)state;
    for (const struct stage *st = stages; st < stages + ARRAY_LEN(stages); st++) for (int known = 0; known < 2; known++) {
        open_stage(st);
        for (int r = 0; r < 8; r++)
            if (r != 3)
                failed_and_ended(r, known ? 3 : -1, "rank 3 has ended", VERDICT_DEAD, VERDICT_ENDED_EXIT, 1, SCENE_NOW - 7.5);
        close_stage(st);
        scene_lost(&s, 3, VERDICT_UNKNOWN, 0);
        must_say(VERDICT_KIND_DEAD, known ? 3 : -1, "\"dp\" failed 7.9 s ago", "rank 3 has ended", NULL);
        assert_int_equal(v.nothers, 0);
    }
}

/* A failed communicator is no reason for an end of another kind, for one long overcome, and for that of the rank it names; and it comes
 * before a rank that merely computes. */
static void test_ended_for_another_reason(void **state)
{
    static const char *const text = "rank 3 exited with status 0 before all_reduce #17, which needs it";
    enum { CRASHED, KILLED, WENT_ON, NAMED, COMPUTES, CASES };
    (void)state;
    for (int what = 0; what < CASES; what++) {
        open_stage(&stages[2]);
        if (what == COMPUTES) {
            scene_comm(&s, TP, "tp", 4, 1, 2);
            scene_call(&s, 5, TP, UNO_ALL_REDUCE, 64, SCENE_NOW - 7, 0);
            scene_computes(&s, 4, "");
        }
        for (int r = 0; r < 8; r++)
            if (r != 3 || what == NAMED)
                failed_and_ended(r, 3, text, r == 6 || r == 3 ? VERDICT_DEAD : VERDICT_REPORTED, VERDICT_ENDED_EXIT, 1, SCENE_NOW - 5);
        if (what != NAMED)
            scene_ended(&s, 3, VERDICT_LEFT, VERDICT_ENDED_EXIT, 0, SCENE_NOW - 8);
        struct verdict_rank *r = &s.f.ranks[6];
        if (what == CRASHED || what == KILLED) {
            r->ended = VERDICT_ENDED_SIGNAL;
            r->ended_code = what == CRASHED ? 11 : 9;
        }
        if (what == WENT_ON) {
            scene_comm(&s, PP, "dp", 6, 1, 1);
            scene_of(&s, 6, PP)->epoch = 1;
        }
        scene_sign(&s, WORLD);
        if (what == COMPUTES)
            must_say(VERDICT_KIND_LEFT, 3, text, NULL);
        else if (what == NAMED)
            must_say(VERDICT_KIND_DEAD, 3, name(3), "exited with status 1", NULL);
        else
            must_say(VERDICT_KIND_DEAD, 6, name(6), what == CRASHED ? "signal 11" : what == KILLED ? "signal 9" : "exited with status 1", NULL);
    }
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

/* Uneven ranks of a job that is large for its machines: who still computes wants for processors, wherever it runs, and who waits does not. */
static void test_oversubscribed(void **state)
{
    (void)state;
    for (int late = 1; late < 3; late++) {
        scene_begin(&s, 6, 2, 0);
        scene_comm(&s, WORLD, "dp", 0, 1, 6);
        scene_history(&s, WORLD, UNO_ALL_REDUCE, 1024, 16, SCENE_NOW - 11);
        for (int r = 0; r < 6; r++) {
            bool computes = r == 0 || (r == 4 && late == 2);
            if (!computes)
                scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 6, 0);
            s.f.ranks[r].process = (struct verdict_process){.run = computes ? VERDICT_RUN_RUNS : VERDICT_RUN_SLEEPS, .in_library = !computes,
                                                           .sample_ns = SEC(5), .cpu_permille = computes ? 120 : 10, .queue_permille = computes ? 870 : 220};
        }
        scene_sign(&s, WORLD);
        if (late == 1)
            must_say(VERDICT_KIND_SLOW_RANK, 0, name(0), "had no processor for 87 % of the last 5.0 s", NULL);
        else
            must_say(VERDICT_KIND_COMPUTING, 0, name(0), name(4), "it is ready to run but had no processor for 87 %", NULL);
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

/* Who looks from outside sees who joins, and not who will come on another host. */
static void open_joining(double since)
{
    scene_begin(&s, 4, 4, 0);
    for (int r = 0; r < 4; r++)
        s.f.ranks[r].status_since_ns = scene_own(&s, r, SCENE_NOW - since + 0.1 * r);
}

static void test_joining(void **state)
{
    (void)state;
    open_joining(7);
    scene_lost(&s, 2, VERDICT_UNKNOWN, 0);
    must_say(VERDICT_KIND_NEVER_JOINED, 2, "cannot start for 7.0 s: 3 of 4 ranks wait in joining, rank 2 is not seen to join on this host", NULL);
    assert_non_null(strstr(v.what_next, "ask `unisono why` there"));
    assert_int_equal(v.sure, VERDICT_LIKELY);
    open_joining(7);
    s.f.ranks[1].process.run = VERDICT_RUN_STOPPED;
    must_say(VERDICT_KIND_STOPPED, 1, "cannot start for 7.0 s: 4 of 4 ranks wait in joining; rank 1 (pid 801 on n0) is stopped by a signal", NULL);
    open_joining(3); /* not for long */
    scene_lost(&s, 2, VERDICT_UNKNOWN, 0);
    quiet();
    open_joining(30); /* all are there */
    judged();
    assert_false(v.fault);
    assert_non_null(strstr(v.headline, "nothing is wrong yet: the job has been starting for 30.0 s: 4 of 4 ranks wait in joining"));
    open_joining(30); /* somebody has joined, so all have */
    scene_comm(&s, 7, "dp", 0, 1, 1);
    scene_lost(&s, 2, VERDICT_UNKNOWN, 0);
    quiet();
}

/* ---- communicators that are made ----------------------------------------------------------------------------------------------------------- */

/* Of "dp", which all eight are in: everybody but `missing` waits for the ranks in `set`. */
static void open_making(enum verdict_makes kind, uint64_t set, int missing)
{
    scene_begin(&s, 8, 4, 0);
    scene_comm(&s, 7, "dp", 0, 1, 8);
    scene_history(&s, 7, UNO_ALL_REDUCE, 1000, 16, SCENE_NOW - 10);
    for (int r = 0; r < 8; r++)
        if (r != missing && (set >> r & 1))
            scene_of(&s, r, 7)->making = (struct verdict_making){.kind = (uint8_t)kind, .id = 5, .since_ns = scene_own(&s, r, SCENE_NOW - 7 + 0.1 * r), .set = {set}};
}

static void test_making(void **state)
{
    (void)state;
    open_making(VERDICT_MAKES_GROUP, 0x0e, 3);
    scene_syscall(&s, 3, "read", "load() at data.py:10", SCENE_NOW - 30);
    must_say(VERDICT_KIND_RANK_ABSENT, 3, "uno_comm_create_group of comm \"dp\" waits for 6.9 s: ", name(3), "has not called it; it waits in the system call read",
             "; ranks 1, 2 wait for it", NULL);
    open_making(VERDICT_MAKES_GROUP, 0x0e, 3);
    scene_computes(&s, 3, "step() at train.py:9");
    must_say(VERDICT_KIND_COMPUTING, 3, "waits for 6.9 s", "train.py:9", NULL);
    open_making(VERDICT_MAKES_GROUP, 0x0e, 3); /* its call has returned already */
    scene_of(&s, 3, 7)->making = (struct verdict_making){.kind = VERDICT_MAKES_GROUP, .id = 5, .set = {0x0e}};
    quiet();
    open_making(VERDICT_MAKES_SHRUNK, 0xff, 3);
    scene_computes(&s, 3, "step() at train.py:9");
    for (int r = 0; r < 8; r++)
        if (r != 3) {
            struct verdict_comm *c = scene_of(&s, r, 7);
            c->failed = UNO_ERR_ABORTED;
            c->failed_rank = 2;
            c->failed_ns = scene_own(&s, r, SCENE_NOW - 7);
            snprintf(c->failed_text, sizeof c->failed_text, "rank 2 has called uno_comm_shrink");
        }
    must_say(VERDICT_KIND_RANK_ABSENT, 3, "uno_comm_shrink of comm \"dp\" waits for 7.0 s: ", name(3), "has not called it", "ranks 0-2, 4-7 wait for it, and after UNISONO_SHRINK_TIMEOUT go on without", NULL);
    assert_int_equal(v.nothers, 0);
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

/* Operations go on, but at the pace of a path that takes far less than is ready; nobody waits for long. */
static void test_path_behind(void **state)
{
    (void)state;
    enum { ALONE, ONLY_THE_OTHERS_KNOWN, SHORT, HALF_AS_FAST, SHARED_OUT, SHARED_IN, HOST_STARVES, NOBODY_WAITS, CASES };
    for (int what = 0; what < CASES; what++) {
        scene_begin(&s, 8, 2, 0);
        scene_comm(&s, WORLD, "dp", 0, 1, 8);
        for (int r = 0; r < 8; r++) {
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 0.3, SCENE_NOW - 0.2);
            if (what != NOBODY_WAITS)
                scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 0.1, 0)->moved_ns = scene_own(&s, r, SCENE_NOW - 0.01);
        }
        for (int h = 0; h < 4; h++) {
            struct verdict_link *l = scene_link(&s, 2 * h, (h + 1) % 4, VERDICT_PATH_OK, 0);
            l->measured_bps = h == 1 ? 12000000 : 118000000;
            l->lately_bps = h == 1 ? 11000000 : 10000000;
            l->expected_bps = h == 1 && what != ONLY_THE_OTHERS_KNOWN ? 125000000 : 0;
            l->behind_ns = h == 1 ? SEC(what == SHORT ? 4 : 6) : 0;
            l->behind_bps = h == 1 ? (what == HALF_AS_FAST ? 60000000 : 12000000) : 0;
        }
        if (what == SHARED_OUT || what == SHARED_IN) /* n1 -> n2 is no slower than its share of what n1 sends or n2 takes */
            scene_link(&s, what == SHARED_OUT ? 2 : 6, what == SHARED_OUT ? 3 : 2, VERDICT_PATH_OK, 0)->lately_bps = 90000000;
        for (int r = 4; r < 6 && what == HOST_STARVES; r++) {
            s.f.ranks[r].process.sample_ns = SEC(1);
            s.f.ranks[r].process.queue_permille = 700;
        }
        scene_sign(&s, WORLD);
        if (what <= ONLY_THE_OTHERS_KNOWN)
            must_say(VERDICT_KIND_SLOW_LINK, -1, "path between n1 (eth0", "and n2", "holds the others up: it moves 12.0 MB/s for 6.0 s",
                     "other paths move up to 118.0 MB/s", what == ALONE ? "expected 125.0 MB/s (10 % of it)" : "rank 2 (pid 802 on n1)", NULL);
        else
            must_say(VERDICT_KIND_NONE, -1, "nothing is wrong", NULL);
    }
}

/* Who has not answered for a moment only may answer over a slow path. */
static void test_hardly_silent(void **state)
{
    (void)state;
    open_stage(&stages[1]);
    all_but(3);
    scene_lost(&s, 3, VERDICT_SILENT, SCENE_NOW - 1);
    must_say(VERDICT_KIND_NONE, -1, "nothing is wrong", NULL);
}

/* ---- nothing of all that ------------------------------------------------------------------------------------------------------------ */

static void test_ours(void **state)
{
    (void)state;
    for (int starved = 0; starved < 2; starved++) { /* nobody moves who gets no processor */
        open_stage(&stages[1]);
        all_but(-1);
        for (int r = 0; r < 8; r++) {
            struct verdict_event *e = &scene_of(&s, r, WORLD)->events[16];
            e->moved_ns = scene_own(&s, r, SCENE_NOW - 6);
            e->waits_for = (r + 1) % 8;
            e->step = 4;
            e->tile = 2;
            s.f.ranks[r].process.sample_ns = SEC(1);
            s.f.ranks[r].process.queue_permille = starved ? 700 : 20;
        }
        scene_sign(&s, WORLD);
        if (starved)
            must_say(VERDICT_KIND_SLOW, -1, "all 8 ranks", NULL);
        else
            must_say(VERDICT_KIND_FAULT_OF_OURS, -1, "all 8 ranks have made the same call", "waits for rank 1 (pid 801 on n0) in step 4, tile 2",
                     "fault of the library", NULL);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead), cmocka_unit_test(test_dead_in_a_message), cmocka_unit_test(test_all_stopped), cmocka_unit_test(test_first_death),
        cmocka_unit_test(test_ended_while_stuck), cmocka_unit_test(test_left),
        cmocka_unit_test(test_left_and_the_others_ended), cmocka_unit_test(test_others_ended_of_one_unheard), cmocka_unit_test(test_ended_for_another_reason),
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_starved),
        cmocka_unit_test(test_starved_goes_on), cmocka_unit_test(test_oversubscribed), cmocka_unit_test(test_silent), cmocka_unit_test(test_never_joined), cmocka_unit_test(test_joining), cmocka_unit_test(test_making),
        cmocka_unit_test(test_cut), cmocka_unit_test(test_quiet_host_is_stopped), cmocka_unit_test(test_slow_link), cmocka_unit_test(test_path_behind), cmocka_unit_test(test_hardly_silent),
        cmocka_unit_test(test_ours), cmocka_unit_test(test_told), cmocka_unit_test(test_near_misses),
        cmocka_unit_test(test_near_misses_2), cmocka_unit_test(test_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
