/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From real processes to the sentence: four ranks do something wrong, their facts are gathered from outside as a steward gathers them,
 * go through records, and are judged. What is injected must be named; nothing must be said of ranks that are merely at work. The
 * stall limit is short here. VERDICT_SHOW=1 prints the verdicts.
 */
#include "live.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STALL_NS 400000000ull

enum doing { IDLE = LIVE_IDLE, WORLD, BIG, TP, BARRIER, READS, BURNS, LESS, DOUBLES, ROOT_1, SEND_NEXT, SEND_LEFT, RECV_NEXT, TAG_5, ANY_TAG_6, ASYNC_BURN,
             EXITS_0, LEAVES, FINALIZES, GATHER_V, GATHER_V_OTHER, LOOPS, LOOPS_AND_SKIPS, STREAM_DP_TP, STREAM_TP_DP, WORKS, NAPS, EVENT_BURN,
             STREAM_BURN };

static uno_comm *tp;
static struct verdict v;

/* ---- the ranks -------------------------------------------------------------------------------------------------------------- */

static void must(uno_err err, uno_comm *c)
{
    if (err != UNO_OK && getenv("VERDICT_SHOW"))
        fprintf(stderr, "%s\n", uno_last_error(c));
}

static void isend(uno_comm *c, int to, int tag)
{
    static float big[1 << 18];
    uno_request *r;
    if (uno_isend(big, sizeof big / 4, UNO_FLOAT32, to, tag, c, &r) == UNO_OK)
        must(uno_wait(&r, NULL), c);
}

static void irecv(uno_comm *c, int from, int tag)
{
    static float big[1 << 18];
    uno_request *r;
    if (uno_irecv(big, sizeof big / 4, UNO_FLOAT32, from, tag, c, &r) == UNO_OK)
        must(uno_wait(&r, NULL), c);
}

static void gather_v(uno_comm *c, size_t third)
{
    static float in[8], out[64];
    size_t counts[RANKS] = {2, 2, third, 2}, displs[RANKS] = {0, 8, 16, 24};
    must(uno_all_gather_v(in, out, counts, displs, UNO_FLOAT32, c, NULL), c);
}

/* A loop of three different calls; skips: the second one of the fourth round is left out. */
static void loops(uno_comm *c, bool skips)
{
    static float x[64], y[64 * RANKS];
    for (int i = 0; i < 6; i++) {
        must(uno_all_reduce(x, y, 10, UNO_FLOAT32, UNO_SUM, c, NULL), c);
        if (!skips || i != 3)
            must(uno_all_gather(x, y, 20, UNO_FLOAT32, c, NULL), c);
        must(uno_broadcast(x, y, 30, UNO_FLOAT32, 0, c, NULL), c);
    }
}

/* Two calls on one stream, and the program waits for both. */
static void on_stream(uno_comm *first, uno_comm *second)
{
    static float x[64], y[64];
    uno_stream *stream;
    if (uno_stream_create(&stream) != UNO_OK)
        _exit(9);
    must(uno_all_reduce(x, y, 64, UNO_FLOAT32, UNO_SUM, first, stream), first);
    must(uno_all_reduce(x, y, 64, UNO_FLOAT32, UNO_SUM, second, stream), second);
    must(uno_stream_synchronize(stream), first);
}

/* A call on a stream that waits for a message that never comes, before it there or, through an event, on another stream. */
static void behind_message(uno_comm *c, bool on_another)
{
    static float x[64], y[64], message[8];
    uno_stream *first, *second;
    uno_event *event;
    if (uno_stream_create(&first) != UNO_OK || uno_stream_create(&second) != UNO_OK || uno_event_create(&event) != UNO_OK)
        _exit(9);
    must(uno_recv(message, 8, UNO_FLOAT32, 3, tp, on_another ? first : second), tp);
    must(uno_event_record(event, first), tp);
    must(uno_stream_wait_event(second, event), c);
    must(uno_all_reduce(x, y, 64, UNO_FLOAT32, UNO_SUM, c, second), c);
}

/* A healthy program: calls of all sizes on both communicators, uneven computing between them, messages to the neighbours. */
static void works(uno_comm *c, int rank)
{
    static float big[1 << 18], other[1 << 18];
    struct rng same, own;
    rng_seed(&same, 7);
    rng_seed(&own, (uint64_t)rank);
    for (int i = 0; i < 400; i++) {
        uno_comm *where_to = rng_below(&same, 2) ? c : tp;
        size_t n = (size_t)1 << rng_below(&same, 19);
        usleep((useconds_t)rng_below(&own, rng_below(&own, 40) ? 3000 : 100000));
        if (rng_below(&same, 5) == 0) {
            must(uno_group_start(), c);
            must(uno_send(big, n, UNO_FLOAT32, (rank + 1) % RANKS, where_to, NULL), c);
            must(uno_recv(other, n, UNO_FLOAT32, (rank + RANKS - 1) % RANKS, where_to, NULL), c);
            must(uno_group_end(), c);
        } else {
            must(uno_all_reduce(big, other, n, UNO_FLOAT32, UNO_SUM, where_to, NULL), where_to);
        }
    }
}

static void act(int what, uno_comm *c, int rank)
{
    static float x[64], y[64];
    static float big[1 << 18];
    uno_stream *stream;
    switch ((enum doing)what) {
    case WORLD: must(uno_all_reduce(x, y, 64, UNO_FLOAT32, UNO_SUM, c, NULL), c); break;
    case BIG: must(uno_all_reduce(big, big, sizeof big / 4, UNO_FLOAT32, UNO_SUM, c, NULL), c); break;
    case LESS: must(uno_all_reduce(x, y, 32, UNO_FLOAT32, UNO_SUM, c, NULL), c); break;
    case DOUBLES: must(uno_all_reduce(x, y, 16, UNO_FLOAT64, UNO_SUM, c, NULL), c); break;
    case TP: must(uno_all_reduce(x, y, 64, UNO_FLOAT32, UNO_SUM, tp, NULL), tp); break;
    case BARRIER: must(uno_barrier(c, NULL), c); break;
    case NAPS: {
        uint64_t began = clock_ns();
        unsigned left = sleep(12);
        atomic_store(&live.shared->told[rank], left ? 1 : clock_ns() - began);
        break;
    }
    case READS: (void)sleeps_in_a_read(); break;
    case BURNS: burns_processor_time(); break;
    case ROOT_1: must(uno_broadcast(x, x, 64, UNO_FLOAT32, rank, c, NULL), c); break;
    case SEND_NEXT: must(uno_send(big, sizeof big / 4, UNO_FLOAT32, (rank + 1) % RANKS, c, NULL), c); break;
    case SEND_LEFT: must(uno_send(big, sizeof big / 4, UNO_FLOAT32, (rank + RANKS - 1) % RANKS, c, NULL), c); break;
    case RECV_NEXT: must(uno_recv(big, sizeof big / 4, UNO_FLOAT32, (rank + 1) % RANKS, c, NULL), c); break;
    case TAG_5: isend(c, (rank + 1) % RANKS, 5); break;
    case ANY_TAG_6: irecv(c, UNO_ANY, 6); break;
    case ASYNC_BURN:
        if (uno_stream_create(&stream) == UNO_OK)
            must(uno_all_reduce(x, y, 64, UNO_FLOAT32, UNO_SUM, c, stream), c);
        burns_processor_time();
        break;
    case EVENT_BURN:
    case STREAM_BURN:
        behind_message(c, what == EVENT_BURN);
        burns_processor_time();
        break;
    case EXITS_0: _exit(0);
    case LEAVES: exit(0);
    case FINALIZES:
        must(uno_comm_finalize(c), c);
        break;
    case LOOPS: loops(c, false); break;
    case LOOPS_AND_SKIPS: loops(c, true); break;
    case STREAM_DP_TP: on_stream(c, tp); break;
    case STREAM_TP_DP: on_stream(tp, c); break;
    case WORKS: works(c, rank); break;
    case GATHER_V: gather_v(c, 2); break;
    case GATHER_V_OTHER: gather_v(c, 3); break;
    default: break;
    }
}

static bool split(uno_comm *comm, int rank)
{
    uno_config config = UNO_CONFIG_INIT;
    config.name = "tp";
    return uno_comm_split(comm, 0, rank, &tp, &config) == UNO_OK;
}

/* ---- the stage -------------------------------------------------------------------------------------------------------------- */

static int setup(void **state)
{
    static const struct live_play play = {.name = "dp", .position = "step()", .joined = split, .act = act};
    (void)state;
    if (live_start(&play) != 0)
        return -1;
    for (int r = 0; r < RANKS; r++) { /* a first look maps what is there, as a steward's does every second */
        struct verdict_rank report;
        live_report(r, REPORT_EVENTS, &report);
        verdict_rank_free(&report);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    live_end();
    return 0;
}

/* All do it, and it ends. */
static void together(enum doing what)
{
    int before[RANKS];
    for (int r = 0; r < RANKS; r++) {
        before[r] = atomic_load(&live.shared->done[r]);
        atomic_store(&live.shared->todo[r], what);
    }
    for (int r = 0; r < RANKS; r++)
        live_await(r, before[r] + 1);
}

/* How many calls has it made? */
static uint32_t calls_of(int rank)
{
    struct verdict_rank r;
    uint32_t n = 0;
    live_report(rank, REPORT_EVENTS, &r);
    for (uint32_t i = 0; i < r.ncomms; i++)
        n += r.comms[i].newest;
    verdict_rank_free(&r);
    return n;
}

/* Order a call, and wait until it was made, whether or not it ends. */
static void order_call(int rank, enum doing what)
{
    uint32_t before = calls_of(rank);
    live_order(rank, what);
    for (uint64_t until = clock_ns() + LIMIT_NS; calls_of(rank) == before; usleep(500))
        assert_true(clock_ns() < until);
}

/* ---- judging ---------------------------------------------------------------------------------------------------------------- */

static void judge_now(void)
{
    static char text[16384];
    struct verdict_facts f;
    live_look();
    assert_int_equal(verdict_facts_new(&f, RANKS + 1), UNO_OK);
    for (int r = 0; r < RANKS; r++) {
        struct verdict_rank report;
        live_report(r, REPORT_EVENTS, &report);
        if (verdict_facts_take(&f, &report) != UNO_OK)
            fail_msg("%s", err_text());
        f.offsets[r].known = true;
    }
    f.now_ns = clock_ns();
    f.stall_ns = STALL_NS;
    assert_int_equal(verdict_judge(&f, &v), UNO_OK);
    verdict_facts_free(&f);
    if (getenv("VERDICT_SHOW")) {
        verdict_print(&v, text, sizeof text);
        print_message("[%s%s] %s", verdict_kind_name(v.kind), v.fault ? "" : ", a fact", text);
    }
}

/* Look until this kind is told of this rank; no other fault may be told meanwhile. Words end with NULL. */
static void becomes(enum verdict_kind kind, int culprit, ...)
{
    for (uint64_t until = clock_ns() + LIMIT_NS; clock_ns() < until;) {
        judge_now();
        if (v.kind == kind)
            break;
        if (v.fault && v.kind != VERDICT_KIND_SLOW_RANK) /* this machine may be busy */
            fail_msg("%s instead of %s: %s", verdict_kind_name(v.kind), verdict_kind_name(kind), v.headline);
    }
    if (v.kind != kind)
        fail_msg("after all, %s instead of %s: %s", verdict_kind_name(v.kind), verdict_kind_name(kind), v.headline);
    bool named = culprit < 0;
    for (int i = 0; i < v.nculprits; i++)
        named = named || v.culprits[i] == culprit;
    if (!named)
        fail_msg("rank %d is not named: %s", culprit, v.headline);
    va_list ap;
    va_start(ap, culprit);
    for (const char *word = va_arg(ap, const char *); word; word = va_arg(ap, const char *))
        if (!strstr(v.headline, word))
            fail_msg("it does not say \"%s\": %s", word, v.headline);
    va_end(ap);
}

static const char *name(int rank)
{
    static char buf[64];
    snprintf(buf, sizeof buf, "rank %d (pid %d on hostA)", rank, (int)live.pids[rank]);
    return buf;
}

static void begin(int culprit, enum doing others, enum doing does)
{
    for (int i = 0; i < 5; i++)
        together(WORLD);
    for (int r = 0; r < RANKS; r++)
        if (r != culprit && others != IDLE)
            order_call(r, others); /* when calls do not fit, those of the others have been made */
    live_order(culprit, does);
}

static void absent_reads(void **state)
{
    (void)state;
    begin(2, WORLD, READS);
    becomes(VERDICT_KIND_RANK_ABSENT, 2, "all_reduce #9 of comm \"dp\"", name(2), "never called it", "its last operation all_reduce #8",
            "ranks 0, 1, 3 wait for it", NULL);
}

/* It is told what it does, and sleeps on as it would have. */
static void absent_sleeps(void **state)
{
    (void)state;
    begin(2, WORLD, NAPS);
    becomes(VERDICT_KIND_RANK_ABSENT, 2, "all_reduce #9 of comm \"dp\"", name(2), "never called it", "nanosleep",
            "ranks 0, 1, 3 wait for it", NULL);
    for (uint64_t until = clock_ns() + LIMIT_NS; atomic_load(&live.shared->told[2]) == 0 && clock_ns() < until;)
        judge_now();
    assert_true(atomic_load(&live.shared->told[2]) >= 11990000000ull);
}

static void absent_burns(void **state)
{
    (void)state;
    begin(1, WORLD, BURNS);
    becomes(VERDICT_KIND_COMPUTING, 1, name(1), "in step() at train.py:212", "ranks 0, 2, 3 wait for it", NULL);
    for (int i = 0; i < 100 && !strstr(v.lines[0].text, "burns_processor_time"); i++)
        judge_now(); /* on a busy machine a stack is not told in time, at first */
    assert_non_null(strstr(v.lines[0].text, "burns_processor_time"));
}

static void absent_with_its_own_asynchronous_call(void **state)
{
    (void)state;
    begin(1, IDLE, ASYNC_BURN); /* all have issued it, so it ends although rank 1 computes */
    for (int r = 0; r < RANKS; r++)
        if (r != 1)
            live_order(r, WORLD);
    for (int r = 0; r < RANKS; r++)
        if (r != 1)
            live_order(r, WORLD);
    becomes(VERDICT_KIND_COMPUTING, 1, "all_reduce #10", name(1), NULL);
}

/* The program has done its part and goes on; what it has issued waits for a message, and its sender for that. */
static void issued_behind_a_message(int how)
{
    begin(2, WORLD, how);
    becomes(VERDICT_KIND_P2P_UNMATCHED, 2, "receive without send: ", "waits in recv from rank 3", "of comm \"tp\"", name(3),
            "all_reduce #9 of comm \"dp\"", NULL);
}
static void issued_behind_an_event(void **state)
{
    (void)state;
    issued_behind_a_message(EVENT_BURN);
}
static void issued_behind_a_receive(void **state)
{
    (void)state;
    issued_behind_a_message(STREAM_BURN);
}

static void other_count(void **state)
{
    (void)state;
    begin(3, WORLD, LESS);
    becomes(VERDICT_KIND_MISMATCH, 3, "all_reduce #9", name(3), "passes count 32", "pass count 64", NULL);
}

static void other_type(void **state)
{
    (void)state;
    begin(0, WORLD, DOUBLES);
    becomes(VERDICT_KIND_MISMATCH, 0, "all_reduce #9", "type float64", "type float32", NULL);
}

static void other_collective(void **state)
{
    (void)state;
    begin(0, WORLD, BARRIER);
    becomes(VERDICT_KIND_MISMATCH, 0, "operation #9", "calls barrier", "call all_reduce", NULL);
}

static void other_root(void **state)
{
    (void)state;
    begin(0, ROOT_1, ROOT_1);
    for (int r = 0; r < RANKS; r++)
        live_order(r, WORLD);
    becomes(VERDICT_KIND_MISMATCH, -1, "broadcast #9", "root rank 1", "root rank 2", NULL);
}

static void other_counts_v(void **state)
{
    (void)state;
    begin(2, GATHER_V, GATHER_V_OTHER);
    becomes(VERDICT_KIND_MISMATCH, 2, "all_gather_v #9", "for rank 2", name(2), "passes 3 elements", "and others pass 2", NULL);
}

static void skips_one(void **state)
{
    (void)state;
    begin(1, LOOPS, LOOPS_AND_SKIPS); /* #9 to #17 are three rounds, #18 is the fourth one's first call */
    becomes(VERDICT_KIND_OFF_BY_ONE, 1, name(1), "off by one from operation #19", "skipped all_gather", "broadcast (root rank 0, count 30)",
            "is what comes after that one", NULL);
}

static void opposite_order_on_streams(void **state)
{
    (void)state;
    begin(2, STREAM_DP_TP, STREAM_TP_DP);
    becomes(VERDICT_KIND_COMM_ORDER, 2, "all_reduce #9 of comm \"dp\"", "all_reduce #1 of comm \"tp\"", name(2), NULL);
}

static void at_work(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++)
        live_order(r, WORKS);
    int looks = 0;
    for (uint64_t until = clock_ns() + LIMIT_NS; looks < 60 && clock_ns() < until && atomic_load(&live.shared->done[0]) == 0; looks++) {
        judge_now();
        if (v.fault && v.kind != VERDICT_KIND_SLOW_RANK)
            fail_msg("a false alarm, %s: %s", verdict_kind_name(v.kind), v.headline);
    }
    assert_true(looks > 5);
}

static void opposite_order(void **state)
{
    (void)state;
    begin(2, WORLD, TP);
    becomes(VERDICT_KIND_COMM_ORDER, 2, "all_reduce #9 of comm \"dp\"", "all_reduce #1 of comm \"tp\"", name(2), NULL);
}

static void send_alone(void **state)
{
    (void)state;
    begin(1, IDLE, SEND_NEXT);
    live_order(2, READS);
    becomes(VERDICT_KIND_P2P_UNMATCHED, 1, name(1), "send to rank 2", "has posted no receive", NULL);
}

static void receive_alone(void **state)
{
    (void)state;
    begin(1, IDLE, RECV_NEXT);
    live_order(2, READS);
    becomes(VERDICT_KIND_P2P_UNMATCHED, 1, name(1), "recv from rank 2", "has sent nothing", NULL);
}

static void crossed(void **state)
{
    (void)state;
    begin(1, IDLE, SEND_NEXT);
    live_order(2, SEND_LEFT);
    becomes(VERDICT_KIND_P2P_UNMATCHED, 1, "crossed sends", "send to rank 2", "send to rank 1", NULL);
}

static void tags(void **state)
{
    (void)state;
    begin(1, IDLE, TAG_5);
    live_order(2, ANY_TAG_6);
    becomes(VERDICT_KIND_P2P_UNMATCHED, 2, name(2), "rank 1", "tag 5", NULL);
}

static void killed_inside(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        together(WORLD);
    order_call(1, BIG);
    kill(live.pids[1], SIGKILL);
    live_ended(1, PEER_DEAD);
    live_order(0, BIG);
    becomes(VERDICT_KIND_DEAD, 1, "rank 1", "its last operation was all_reduce #9", "not finished", NULL);
}

static void exits_0(void **state)
{
    (void)state;
    begin(3, IDLE, EXITS_0);
    live_ended(3, PEER_DEAD);
    live_order(0, WORLD);
    becomes(VERDICT_KIND_DEAD, 3, "rank 3", "its last operation was all_reduce #8", NULL);
}

static void leaves(void **state)
{
    (void)state;
    begin(3, IDLE, LEAVES);
    live_ended(3, PEER_LEFT);
    judge_now();
    assert_int_equal(v.kind, VERDICT_KIND_NONE);
}

static void finalizes(void **state)
{
    (void)state;
    begin(3, IDLE, FINALIZES);
    live_await(3, 6);
    judge_now();
    assert_int_equal(v.kind, VERDICT_KIND_NONE);
    live_order(0, WORLD); /* fails at once, the program need not be told why by a stall */
    becomes(VERDICT_KIND_LEFT, 3, "rank 3", "left the communicator before", NULL);
}

static void stopped_before(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        together(WORLD);
    kill(live.pids[2], SIGSTOP);
    for (int r = 0; r < RANKS; r++)
        if (r != 2)
            live_order(r, WORLD);
    becomes(VERDICT_KIND_STOPPED, 2, name(2), "has not called it yet", "is stopped by a signal", "ranks 0, 1, 3 wait for it", NULL);
}

static void stopped_inside(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        together(WORLD);
    order_call(2, BIG);
    kill(live.pids[2], SIGSTOP);
    live_order(0, BIG);
    live_order(1, BIG);
    live_order(3, BIG);
    becomes(VERDICT_KIND_STOPPED, 2, name(2), "is in it and is stopped by a signal", NULL);
}

/* A healthy job is looked at again and again, at work, resting, and with one rank that computes while nobody waits. */
static void healthy(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        live_order_all(i % 3 == 0 ? BARRIER : i % 3 == 1 ? WORLD : TP);
        judge_now();
        if (v.fault && v.kind != VERDICT_KIND_SLOW_RANK)
            fail_msg("a false alarm, %s: %s", verdict_kind_name(v.kind), v.headline);
    }
    live_order(1, BURNS);
    for (int i = 0; i < 8; i++) {
        judge_now();
        assert_int_equal(v.kind, VERDICT_KIND_NONE);
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(absent_reads), CASE(absent_sleeps), CASE(absent_burns), CASE(absent_with_its_own_asynchronous_call), 
        CASE(issued_behind_an_event), CASE(issued_behind_a_receive), CASE(other_count), CASE(other_type),
        CASE(other_collective), CASE(other_root), CASE(other_counts_v), CASE(skips_one), CASE(opposite_order), CASE(opposite_order_on_streams), CASE(at_work), CASE(send_alone), CASE(receive_alone),
        CASE(crossed), CASE(tags), CASE(killed_inside), CASE(exits_0), CASE(leaves), CASE(finalizes), CASE(stopped_before),
        CASE(stopped_inside), CASE(healthy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
