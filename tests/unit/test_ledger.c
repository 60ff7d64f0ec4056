/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ledger of a communicator tells while something waits, ranks as threads: for whom and since when, what is queued, sends
 * and receives with their partners, call sites; and that nothing stays behind when it is over.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"

#define MOST 4
#define LIMIT_NS 5000000000ull

static uno_comm *comms[MOST];

static int make(void **state)
{
    (void)state;
    alarm(30);
    return uno_comm_init_all(comms, MOST, NULL) != UNO_OK;
}

static int unmake(void **state)
{
    (void)state;
    int bad = 0;
    for (int r = 0; r < MOST; r++)
        bad += uno_comm_destroy(comms[r]) != UNO_OK;
    alarm(0);
    return bad;
}

static const struct ledger_event *ring_of(int rank) { return net_region_ledger(comms[rank]->region); }

static struct ledger_notes notes_of(int rank)
{
    struct ledger_notes n;
    notes_read(comms[rank]->notes, &n);
    return n;
}

static bool soon(bool (*yes)(void))
{
    for (uint64_t until = clock_ns() + LIMIT_NS; clock_ns() < until; nanosleep(&(struct timespec){0, 200000}, NULL))
        if (yes())
            return true;
    return false;
}

/* ---- a collective that waits ---------------------------------------------------------------------------------------------- */

static pid_t waiter;
static size_t count;

static void *reduces(void *arg)
{
    int rank = (int)(intptr_t)arg;
    float *buf = calloc(count, sizeof *buf);
    if (rank == 0)
        waiter = (pid_t)syscall(SYS_gettid);
    uno_err err = uno_all_reduce(buf, buf, count, UNO_FLOAT32, UNO_SUM, comms[rank], NULL);
    free(buf);
    return (void *)(intptr_t)err;
}

static bool rank_0_waits(void)
{
    struct ledger_notes n = notes_of(0);
    return n.wait_number == comms[0]->number && n.wait_number != 0 && n.noted_ns > n.since_ns + 5000000;
}

static void waits_for_absent(size_t elements)
{
    pthread_t thread[MOST];
    struct ledger_event e;
    count = elements;
    uint64_t before = clock_ns();
    for (int r = 0; r < 2; r++)
        pthread_create(&thread[r], NULL, reduces, (void *)(intptr_t)r);
    assert_true(soon(rank_0_waits));
    struct ledger_notes n = notes_of(0);
    assert_true(n.waits_for == 1 || n.waits_for == 2 || n.waits_for == 3);
    assert_true(n.since_ns >= before && n.since_ns < n.noted_ns);
    assert_int_equal(n.tid, waiter);
    assert_true(n.steps > n.step);
    assert_true(n.order > 0);
    assert_true(strlen(n.what) > 3);
    assert_int_equal(n.rank, 0);
    assert_int_equal(n.size, MOST);
    assert_true(n.comm_id == comms[3]->id);
    assert_true(ledger_newest(ring_of(0), &e));
    assert_int_equal(e.state, LEDGER_RUNNING);
    assert_int_equal(e.count, elements);
    assert_true(e.waits_for > 0);
    assert_true(e.call_site != 0);
    for (int r = 2; r < MOST; r++)
        pthread_create(&thread[r], NULL, reduces, (void *)(intptr_t)r);
    for (int r = 0; r < MOST; r++) {
        void *err;
        pthread_join(thread[r], &err);
        assert_null(err);
    }
    uint32_t number = e.number;
    assert_true(ledger_newest(ring_of(0), &e));
    assert_int_equal(e.number, number);
    assert_int_equal(e.state, LEDGER_DONE);
    assert_true(e.end_ns + 10000000 >= n.since_ns); /* it waited, so its end is known, by a clock that counts ticks */
}

static void small_waits(void **state)
{
    (void)state;
    waits_for_absent(2);
}

static void tiled_waits(void **state)
{
    (void)state;
    uint64_t moves = atomic_load(&comms[0]->notes->moves);
    waits_for_absent(1 << 18);
    assert_true(atomic_load(&comms[0]->notes->moves) > moves);
}

/* ---- calls that are queued -------------------------------------------------------------------------------------------------- */

static bool six_queued(void) { return notes_of(0).queued == 6; }
static bool none_queued(void) { return notes_of(0).queued == 0; }

static void queued_calls(void **state)
{
    (void)state;
    uno_stream *stream[MOST];
    int in[MOST] = {0}, out[MOST][MOST];
    for (int r = 0; r < MOST; r++)
        assert_int_equal(uno_stream_create(&stream[r]), UNO_OK);
    for (int i = 0; i < 7; i++) /* the first one begins and waits */
        assert_int_equal(uno_all_reduce(in, out[0], (size_t)(i % 4) + 1, UNO_INT32, i % 2 ? UNO_MAX : UNO_SUM, comms[0], stream[0]), UNO_OK);
    assert_true(soon(six_queued));
    struct ledger_notes n = notes_of(0);
    for (int i = 0; i < LEDGER_QUEUED; i++) {
        assert_int_equal(n.queue[i].coll, UNO_ALL_REDUCE);
        assert_int_equal(n.queue[i].count, (i + 1) % 4 + 1);
        assert_int_equal(n.queue[i].op, (i + 1) % 2 ? UNO_MAX : UNO_SUM);
        assert_true(n.queue[i].order > (i ? n.queue[i - 1].order : 0));
        assert_true(n.queue[i].since_ns > 0);
    }
    for (int r = 1; r < MOST; r++)
        for (int i = 0; i < 7; i++)
            assert_int_equal(uno_all_reduce(in, out[r], (size_t)(i % 4) + 1, UNO_INT32, i % 2 ? UNO_MAX : UNO_SUM, comms[r], stream[r]), UNO_OK);
    for (int r = 0; r < MOST; r++) {
        assert_int_equal(uno_stream_synchronize(stream[r]), UNO_OK);
        assert_int_equal(uno_stream_destroy(stream[r]), UNO_OK);
    }
    assert_true(soon(none_queued));
}

/* ---- sends and receives --------------------------------------------------------------------------------------------------- */

/* The newest event of rank with that tag. */
static bool find_p2p(int rank, int tag, struct ledger_p2p *found)
{
    const struct ledger_p2p *ring = net_region_p2p_ledger(comms[rank]->region);
    bool any = false;
    for (int i = 0; i < NET_LEDGER_EVENTS; i++) {
        struct ledger_p2p e;
        if (ledger_p2p_read(&ring[i], &e) && e.tag == tag && (!any || e.number > found->number)) {
            *found = e;
            any = true;
        }
    }
    return any;
}

static struct ledger_p2p told;
static bool rank_0_told(void) { return find_p2p(0, 7, &told) && told.state == LEDGER_P2P_TOLD; }

static void *moves(void *arg) { return (void *)(intptr_t)uno_wait(arg, NULL); }

static struct ledger_p2p wanted;
static bool rank_1_waits(void) { return find_p2p(1, 9, &wanted) && wanted.waited; }

static void sends_and_receives(void **state)
{
    (void)state;
    static char big[1 << 16], small[100], got[1 << 16];
    uno_request *send, *early, *recv;
    struct ledger_p2p e;
    assert_int_equal(uno_isend(small, 10, UNO_INT8, 1, 6, comms[0], &early), UNO_OK);
    assert_int_equal(uno_isend(big, sizeof big, UNO_INT8, 1, 7, comms[0], &send), UNO_OK);
    assert_true(soon(rank_0_told));
    assert_int_equal(told.send, 1);
    assert_int_equal(told.peer, 1);
    assert_int_equal(told.pair_number, 2);
    assert_int_equal(told.bytes, sizeof big);
    assert_true(told.since_ns >= told.start_ns);
    assert_int_equal(uno_wait(&early, NULL), UNO_OK);
    assert_true(find_p2p(0, 6, &e));
    assert_int_equal(e.state, LEDGER_P2P_DONE);
    assert_int_equal(e.pair_number, 1);

    assert_int_equal(uno_irecv(got, sizeof got, UNO_INT8, UNO_ANY, 7, comms[1], &recv), UNO_OK);
    pthread_t thread;
    pthread_create(&thread, NULL, moves, &send);
    assert_int_equal(uno_wait(&recv, NULL), UNO_OK);
    pthread_join(thread, NULL);
    assert_true(find_p2p(1, 7, &e));
    assert_int_equal(e.state, LEDGER_P2P_DONE);
    assert_int_equal(e.peer, 0);
    assert_int_equal(e.pair_number, 2);
    assert_true(e.any);

    assert_int_equal(uno_irecv(got, sizeof got, UNO_INT8, 3, 9, comms[1], &recv), UNO_OK);
    pthread_create(&thread, NULL, moves, &recv);
    assert_true(soon(rank_1_waits));
    assert_int_equal(wanted.state, LEDGER_P2P_ISSUED);
    assert_int_equal(wanted.peer, 3);
    assert_int_equal(wanted.pair_number, 0);
    assert_int_equal(uno_send(small, 0, UNO_INT8, 1, comms[3], NULL), UNO_OK); /* another tag */
    assert_int_equal(uno_isend(small, 5, UNO_INT8, 1, 9, comms[3], &send), UNO_OK);
    pthread_join(thread, NULL);
    assert_int_equal(uno_wait(&send, NULL), UNO_OK);
    assert_int_equal(uno_recv(got, 0, UNO_INT8, 3, comms[1], NULL), UNO_OK);
}

/* More than a ring of them: what is unfinished keeps its place. */
static void unfinished_stays(void **state)
{
    (void)state;
    int x = 0, y;
    uno_request *open;
    struct ledger_p2p e;
    assert_int_equal(uno_irecv(&y, 1, UNO_INT32, 3, 77, comms[2], &open), UNO_OK);
    for (int i = 0; i < 3000; i++) {
        uno_request *s, *r;
        assert_int_equal(uno_isend(&x, 1, UNO_INT32, 2, 5, comms[2], &s), UNO_OK);
        assert_int_equal(uno_irecv(&y, 1, UNO_INT32, 2, 5, comms[2], &r), UNO_OK);
        assert_int_equal(uno_wait(&s, NULL), UNO_OK);
        assert_int_equal(uno_wait(&r, NULL), UNO_OK);
    }
    assert_true(find_p2p(2, 77, &e));
    assert_int_equal(e.state, LEDGER_P2P_ISSUED);
    uno_request *s;
    assert_int_equal(uno_isend(&x, 1, UNO_INT32, 2, 77, comms[3], &s), UNO_OK);
    assert_int_equal(uno_wait(&open, NULL), UNO_OK);
    assert_int_equal(uno_wait(&s, NULL), UNO_OK);
    assert_true(find_p2p(2, 77, &e));
    assert_int_equal(e.state, LEDGER_P2P_DONE);
}

/* ---- call sites --------------------------------------------------------------------------------------------------------------- */

static char text[LEDGER_SITE_BYTES];

static const char *site_now(int rank)
{
    const struct ledger_notes *n = comms[rank]->notes;
    return ledger_site(n, atomic_load(&n->site), text);
}

static void call_sites(void **state)
{
    (void)state;
    char longer[300];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(uno_comm_set_call_site(comms[1], "train.py:212 in step"), UNO_OK);
    assert_string_equal(site_now(1), "train.py:212 in step");
    assert_int_equal(uno_comm_set_call_site(comms[1], longer), UNO_OK);
    assert_int_equal(strlen(site_now(1)), LEDGER_SITE_BYTES - 1);
    assert_int_equal(uno_comm_set_call_site(comms[1], longer), UNO_OK);
    struct ledger_notes notes = notes_of(1);
    assert_int_equal(atomic_load(&notes.site), 2); /* the same place, however long */
    assert_int_equal(uno_comm_set_call_site(comms[1], NULL), UNO_OK);
    assert_string_equal(site_now(1), "");
    assert_int_equal(uno_comm_set_call_site(NULL, "x"), UNO_ERR_ARG);
}

static const char *site_of_event(int rank, uint32_t number)
{
    struct ledger_event e;
    assert_true(ledger_read(ring_of(rank), number, &e));
    assert_int_equal(e.number, number);
    return ledger_site(comms[rank]->notes, e.call_site, text);
}

/* Every call keeps its own place: also one that is queued while the next places are named, a first, a repeated and a v-form. */
static void each_call_has_its_site(void **state)
{
    (void)state;
    uno_comm *one;
    uno_stream *stream;
    size_t counts[1] = {1};
    float in = 1, out;
    assert_int_equal(uno_comm_init_all(&one, 1, NULL), UNO_OK);
    uno_comm *kept = comms[0];
    comms[0] = one;
    assert_int_equal(uno_stream_create(&stream), UNO_OK);
    for (int i = 0; i < 2 * LEDGER_SITES + 8; i++) {
        char site[40];
        snprintf(site, sizeof site, "train.py:%d", i < 8 ? i : 100 + i % 4);
        assert_int_equal(uno_comm_set_call_site(one, site), UNO_OK);
        assert_int_equal(i % 3 == 2 ? uno_all_gather_v(&in, &out, counts, NULL, UNO_FLOAT32, one, NULL)
                                    : uno_all_reduce(&in, &out, 1, UNO_FLOAT32, UNO_SUM, one, i % 3 ? NULL : stream), UNO_OK);
    }
    assert_int_equal(uno_comm_set_call_site(one, "after.py:1"), UNO_OK);
    assert_int_equal(uno_stream_synchronize(stream), UNO_OK);
    for (int i = 0; i < 2 * LEDGER_SITES + 8; i++) {
        char site[40];
        snprintf(site, sizeof site, "train.py:%d", i < 8 ? i : 100 + i % 4);
        assert_string_equal(site_of_event(0, (uint32_t)i + 1), site);
    }
    for (int i = 0; i < LEDGER_SITES; i++) { /* more places than are kept: the older calls have none, and no wrong one */
        char site[40];
        snprintf(site, sizeof site, "other.py:%d", i);
        assert_int_equal(uno_comm_set_call_site(one, site), UNO_OK);
    }
    assert_string_equal(site_of_event(0, 1), "");
    assert_string_equal(site_now(0), "other.py:127");
    assert_int_equal(uno_stream_destroy(stream), UNO_OK);
    assert_int_equal(uno_comm_destroy(one), UNO_OK);
    comms[0] = kept;
}

/* Numbers of places begin again: then, too, each finds its own. */
static void sites_begin_again(void **state)
{
    (void)state;
    struct ledger_notes *n = comms[3]->notes;
    for (int i = 0; i < LEDGER_SITE_NUMBERS + 2 * LEDGER_SITES; i++) {
        char site[40], was[40];
        snprintf(site, sizeof site, "line %d", i);
        uint32_t number = ledger_site_set(n, site);
        assert_true(number >= 1 && number <= LEDGER_SITE_NUMBERS);
        assert_string_equal(ledger_site(n, number, text), site);
        uint32_t before = (number + LEDGER_SITE_NUMBERS - LEDGER_SITES) % LEDGER_SITE_NUMBERS + 1; /* the oldest that is kept */
        snprintf(was, sizeof was, "line %d", i - LEDGER_SITES + 1);
        if (i >= LEDGER_SITES)
            assert_string_equal(ledger_site(n, before, text), was);
    }
    assert_string_equal(ledger_site(n, LEDGER_SITE_NUMBERS + 1, text), "");
    assert_int_equal(ledger_site_set(n, ""), 0);
}

/* An owner that was killed while it wrote leaves that part unreadable, and the rest readable. */
static void half_written(void **state)
{
    (void)state;
    struct ledger_notes *n = comms[2]->notes;
    assert_int_equal(uno_comm_set_call_site(comms[2], "here"), UNO_OK);
    notes_begin(&n->wait_seq);
    n->waits_for = 3;
    n->wait_number = 5;
    struct ledger_notes copy = notes_of(2);
    assert_int_equal(copy.wait_number, 0);
    assert_int_equal(copy.waits_for, -1);
    assert_string_equal(site_now(2), "here");
    n->wait_number = 0;
    notes_end(&n->wait_seq);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_waits, make, unmake),     cmocka_unit_test_setup_teardown(tiled_waits, make, unmake),
        cmocka_unit_test_setup_teardown(queued_calls, make, unmake),    cmocka_unit_test_setup_teardown(sends_and_receives, make, unmake),
        cmocka_unit_test_setup_teardown(unfinished_stays, make, unmake), cmocka_unit_test_setup_teardown(call_sites, make, unmake),
        cmocka_unit_test_setup_teardown(half_written, make, unmake),
        cmocka_unit_test_setup_teardown(each_call_has_its_site, make, unmake), cmocka_unit_test_setup_teardown(sites_begin_again, make, unmake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
