/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls in unusual order, all ranks as threads of this process: events behind events, more communicators than one look of the
 * progress thread holds, several threads in one communicator, ranks that leave while they are waited for, forks. What would
 * hang is ended by a communicator's timeout or by the alarm.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"
#include "net/net_private.h"

#define MOST 4

static uno_comm *comms[MOST];

static void make(int n, double timeout_s)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = timeout_s;
    alarm(100);
    assert_int_equal(uno_comm_init_all(comms, n, &config), UNO_OK);
}

static void destroy(int n)
{
    for (int r = 0; r < n; r++)
        assert_int_equal(uno_comm_destroy(comms[r]), UNO_OK);
    alarm(0);
}

/* A function on its own thread, for calls that wait. */
struct call { pthread_t thread; uno_err (*run)(void *arg); void *arg; uno_err err; _Atomic int done; };
static void *call_main(void *arg)
{
    struct call *c = arg;
    c->err = c->run(c->arg);
    atomic_store(&c->done, 1);
    return NULL;
}
static void call_start(struct call *c, uno_err (*run)(void *arg), void *arg)
{
    c->run = run;
    c->arg = arg;
    atomic_store(&c->done, 0);
    assert_int_equal(pthread_create(&c->thread, NULL, call_main, c), 0);
}
static uno_err call_end(struct call *c)
{
    pthread_join(c->thread, NULL);
    return c->err;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- streams and events ------------------------------------------------------------------------------------------------ */

/* An event that stands behind a wait, on a stream without operations: nobody but the first event can bring it on. */
static void event_behind_event(void **state)
{
    (void)state;
    int in = 1, out[2];
    uno_stream *s[3];
    uno_event *first, *second;
    make(2, 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(uno_stream_create(&s[i]), UNO_OK);
    assert_int_equal(uno_event_create(&first), UNO_OK);
    assert_int_equal(uno_event_create(&second), UNO_OK);
    assert_int_equal(uno_all_reduce(&in, &out[0], 1, UNO_INT32, UNO_SUM, comms[0], s[0]), UNO_OK);
    assert_int_equal(uno_event_record(first, s[0]), UNO_OK);
    assert_int_equal(uno_stream_wait_event(s[1], first), UNO_OK);
    assert_int_equal(uno_event_record(second, s[1]), UNO_OK);
    assert_int_equal(uno_stream_wait_event(s[2], second), UNO_OK);
    assert_int_equal(uno_all_reduce(&in, &out[1], 1, UNO_INT32, UNO_SUM, comms[1], s[2]), UNO_OK);
    assert_int_equal(uno_event_query(second), UNO_ERR_IN_PROGRESS);
    assert_int_equal(uno_comm_abort(comms[0]), UNO_OK); /* its operation ends, and with it the first event */
    assert_int_not_equal(uno_event_synchronize(second), UNO_ERR_IN_PROGRESS);
    assert_int_equal(uno_stream_synchronize(s[2]), UNO_ERR_ABORTED);
    assert_int_equal(uno_event_destroy(first), UNO_OK);
    assert_int_equal(uno_event_destroy(second), UNO_OK);
    for (int i = 0; i < 3; i++)
        (void)uno_stream_destroy(s[i]);
    destroy(2);
}

/* Who waits for an event waits for what was recorded when it began to, whatever is recorded later. */
static void event_recorded_again(void **state)
{
    (void)state;
    int in = 1, out[2];
    uno_stream *s, *t;
    uno_event *e;
    make(2, 5);
    assert_int_equal(uno_stream_create(&s), UNO_OK);
    assert_int_equal(uno_stream_create(&t), UNO_OK);
    assert_int_equal(uno_event_create(&e), UNO_OK);
    assert_int_equal(uno_all_reduce(&in, &out[0], 1, UNO_INT32, UNO_SUM, comms[0], s), UNO_OK);
    assert_int_equal(uno_event_record(e, s), UNO_OK);
    assert_int_equal(uno_stream_wait_event(t, e), UNO_OK);
    assert_int_equal(uno_event_record(e, NULL), UNO_OK);
    assert_int_equal(uno_event_query(e), UNO_OK);
    assert_int_equal(uno_stream_query(t), UNO_ERR_IN_PROGRESS);
    assert_int_equal(uno_all_reduce(&in, &out[1], 1, UNO_INT32, UNO_SUM, comms[1], NULL), UNO_OK);
    assert_int_equal(uno_stream_synchronize(t), UNO_OK);
    assert_int_equal(out[0], 2);
    assert_int_equal(uno_event_destroy(e), UNO_OK);
    assert_int_equal(uno_stream_destroy(s), UNO_OK);
    assert_int_equal(uno_stream_destroy(t), UNO_OK);
    destroy(2);
}

/* Who asks for the code of what befell it in the background may ask for the sentence at once. */
static void a_background_error_has_its_sentence(void **state)
{
    (void)state;
    uno_err async = UNO_OK;
    make(2, 5);
    assert_int_equal(uno_comm_async_error(comms[0], &async), UNO_OK);
    assert_int_equal(async, UNO_OK);
    assert_string_equal(uno_last_error(comms[0]), "");
    assert_int_equal(uno_comm_abort(comms[1]), UNO_OK);
    assert_int_equal(uno_comm_async_error(comms[0], &async), UNO_OK);
    assert_int_equal(async, UNO_ERR_ABORTED);
    char says[128], host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(says, sizeof says, "rank 1 (pid %d on %.60s) called uno_comm_abort", (int)getpid(), host);
    assert_string_equal(uno_last_error(comms[0]), says);
    destroy(2);
}

/* An event that failed is well again when it is recorded behind something that went well. */
static void event_after_failure(void **state)
{
    (void)state;
    int in = 1, out;
    uno_stream *s;
    uno_event *e;
    make(2, 5);
    assert_int_equal(uno_stream_create(&s), UNO_OK);
    assert_int_equal(uno_event_create(&e), UNO_OK);
    assert_int_equal(uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, comms[0], s), UNO_OK);
    assert_int_equal(uno_event_record(e, s), UNO_OK);
    assert_int_equal(uno_comm_abort(comms[1]), UNO_OK);
    assert_int_equal(uno_event_synchronize(e), UNO_ERR_ABORTED);
    assert_int_equal(uno_event_record(e, NULL), UNO_OK);
    assert_int_equal(uno_event_synchronize(e), UNO_OK);
    assert_int_equal(uno_event_destroy(e), UNO_OK);
    assert_int_equal(uno_stream_destroy(s), UNO_ERR_ABORTED);
    destroy(2);
}

static uno_err reduce_now(void *comm)
{
    int in = 1, out;
    return uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, comm, NULL);
}

/* A failed communicator ends everything that was issued on it, also what stands behind another communicator's event. */
static void failed_behind_event(void **state)
{
    (void)state;
    int in = 1, out[2];
    uno_comm *other;
    uno_stream *s, *t;
    uno_event *e;
    struct call call;
    make(2, 20);
    assert_int_equal(uno_comm_init_all(&other, 1, NULL), UNO_OK);
    assert_int_equal(uno_stream_create(&s), UNO_OK);
    assert_int_equal(uno_stream_create(&t), UNO_OK);
    assert_int_equal(uno_event_create(&e), UNO_OK);
    assert_int_equal(uno_all_reduce(&in, &out[0], 1, UNO_INT32, UNO_SUM, comms[0], s), UNO_OK);
    assert_int_equal(uno_event_record(e, s), UNO_OK);
    assert_int_equal(uno_stream_wait_event(t, e), UNO_OK);
    assert_int_equal(uno_all_reduce(&in, &out[1], 1, UNO_INT32, UNO_SUM, other, t), UNO_OK);
    call_start(&call, reduce_now, other);
    nap_ms(20);
    assert_int_equal(uno_comm_abort(other), UNO_OK);
    for (int i = 0; i < 2000 && !atomic_load(&call.done); i++)
        nap_ms(1);
    assert_int_equal(atomic_load(&call.done), 1);
    assert_int_equal(call_end(&call), UNO_ERR_ABORTED);
    assert_int_equal(reduce_now(comms[1]), UNO_OK);
    assert_int_equal(uno_stream_destroy(s), UNO_OK);
    assert_int_equal(uno_stream_destroy(t), UNO_ERR_ABORTED);
    assert_int_equal(uno_event_destroy(e), UNO_OK);
    assert_int_equal(uno_comm_destroy(other), UNO_OK);
    destroy(2);
}

/* The progress thread moves them all, however many there are. */
static void many_communicators(void **state)
{
    (void)state;
    enum { MANY = 300 };
    static uno_comm *many[MANY];
    static int in[MANY], out[MANY];
    uno_stream *s;
    alarm(100);
    assert_int_equal(uno_stream_create(&s), UNO_OK);
    for (int i = 0; i < MANY; i++) {
        in[i] = i;
        assert_int_equal(uno_comm_init_all(&many[i], 1, NULL), UNO_OK);
    }
    for (int i = 0; i < MANY; i++)
        assert_int_equal(uno_all_reduce(&in[i], &out[i], 1, UNO_INT32, UNO_SUM, many[i], s), UNO_OK);
    assert_int_equal(uno_stream_destroy(s), UNO_OK);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(out[i], i);
        assert_int_equal(uno_comm_destroy(many[i]), UNO_OK);
    }
    alarm(0);
}

/* ---- several threads and communicators ---------------------------------------------------------------------------------- */

static uno_err barrier_now(void *comm)
{
    return uno_barrier(comm, NULL);
}

static uno_err answer(void *arg)
{
    uno_comm *c = arg;
    int word = 0;
    uno_request *request;
    TRY(uno_irecv(&word, 1, UNO_INT32, 1, 0, c, &request));
    TRY(uno_wait(&request, NULL));
    word++;
    TRY(uno_isend(&word, 1, UNO_INT32, 1, 0, c, &request));
    return uno_wait(&request, NULL);
}

/* One thread waits in a barrier that comes only after another thread of this rank has received and answered. */
static void two_threads_in_one(void **state)
{
    (void)state;
    int word = 41;
    struct call barrier, other;
    make(2, 5);
    call_start(&barrier, barrier_now, comms[0]);
    nap_ms(20);
    call_start(&other, answer, comms[0]);
    nap_ms(20);
    assert_int_equal(uno_send(&word, 1, UNO_INT32, 0, comms[1], NULL), UNO_OK);
    assert_int_equal(uno_recv(&word, 1, UNO_INT32, 0, comms[1], NULL), UNO_OK);
    assert_int_equal(uno_barrier(comms[1], NULL), UNO_OK);
    assert_int_equal(word, 42);
    assert_int_equal(call_end(&other), UNO_OK);
    assert_int_equal(call_end(&barrier), UNO_OK);
    destroy(2);
}

/* A deadline of one's own holds while another thread waits in the communicator. */
static void deadline_beside_a_waiter(void **state)
{
    (void)state;
    int word;
    struct call barrier;
    uno_request *request;
    make(2, 20);
    call_start(&barrier, barrier_now, comms[0]);
    nap_ms(20);
    assert_int_equal(uno_irecv(&word, 1, UNO_INT32, 1, 0, comms[0], &request), UNO_OK);
    uint64_t before = clock_ns();
    assert_int_equal(uno_wait_until(&request, 0.05, NULL), UNO_ERR_IN_PROGRESS);
    assert_true(clock_ns() - before < 5000000000u);
    word = 1;
    assert_int_equal(uno_send(&word, 1, UNO_INT32, 0, comms[1], NULL), UNO_OK);
    assert_int_equal(uno_wait(&request, NULL), UNO_OK);
    assert_int_equal(uno_barrier(comms[1], NULL), UNO_OK);
    assert_int_equal(call_end(&barrier), UNO_OK);
    destroy(2);
}

struct two_comms { uno_comm *a, *b; char *buf; size_t bytes; bool group; };
static uno_err send_then_meet(void *arg)
{
    struct two_comms *t = arg;
    uno_request *request;
    TRY(uno_isend(t->buf, t->bytes, UNO_UINT8, 1, 0, t->a, &request));
    if (t->group)
        TRY(uno_group_start());
    TRY(uno_barrier(t->b, NULL));
    if (t->group)
        TRY(uno_group_end());
    return uno_wait(&request, NULL);
}

/* What was sent without waiting goes on while its sender waits in another communicator. */
static void request_beside_another(void **state)
{
    (void)state;
    static char from[1 << 20], to[1 << 20];
    uno_comm *second[2];
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 5;
    struct call sender;
    make(2, 5);
    assert_int_equal(uno_comm_init_all(second, 2, &config), UNO_OK);
    for (int group = 1; group >= 0; group--) {
        memset(from, 7 + group, sizeof from);
        struct two_comms both = {comms[0], second[0], from, sizeof from, group};
        call_start(&sender, send_then_meet, &both);
        assert_int_equal(uno_recv(to, sizeof to, UNO_UINT8, 0, comms[1], NULL), UNO_OK);
        assert_int_equal(uno_barrier(second[1], NULL), UNO_OK);
        assert_int_equal(call_end(&sender), UNO_OK);
        assert_memory_equal(from, to, sizeof to);
    }
    assert_int_equal(uno_comm_destroy(second[0]), UNO_OK);
    assert_int_equal(uno_comm_destroy(second[1]), UNO_OK);
    destroy(2);
}

/* ---- point to point ---------------------------------------------------------------------------------------------------------- */

static uno_err send_empty(void *arg)
{
    uno_request *requests[13];
    for (int i = 0; i < 12; i++)
        TRY(uno_isend(NULL, 0, UNO_UINT8, 1, 0, arg, &requests[i]));
    TRY(uno_isend("x", 1, UNO_UINT8, 1, 1, arg, &requests[12]));
    for (int i = 0; i < 13; i++)
        TRY(uno_wait(&requests[i], NULL));
    return uno_barrier(arg, NULL);
}

/* More empty messages than credit: the last ones are announced, and their receives end before the answer is on its way. */
static void empty_messages(void **state)
{
    (void)state;
    char last;
    struct call sender;
    make(2, 5);
    call_start(&sender, send_empty, comms[0]);
    for (int i = 12; i >= 0; i--) { /* the last one first: then the others are here already */
        uno_request *request;
        assert_int_equal(uno_irecv(&last, i == 12, UNO_UINT8, 0, i == 12, comms[1], &request), UNO_OK);
        assert_int_equal(uno_wait(&request, NULL), UNO_OK);
    }
    assert_int_equal(uno_barrier(comms[1], NULL), UNO_OK);
    assert_int_equal(call_end(&sender), UNO_OK);
    destroy(2);
}

/* Two ranks left, and both are needed: that is said at once. */
static void needs_two_that_left(void **state)
{
    (void)state;
    int word[2];
    uno_request *requests[2];
    make(3, 20);
    assert_int_equal(uno_irecv(&word[0], 1, UNO_INT32, 1, 0, comms[0], &requests[0]), UNO_OK);
    assert_int_equal(uno_irecv(&word[1], 1, UNO_INT32, 2, 0, comms[0], &requests[1]), UNO_OK);
    assert_int_equal(uno_comm_finalize(comms[1]), UNO_OK);
    assert_int_equal(uno_comm_finalize(comms[2]), UNO_OK);
    assert_int_equal(uno_wait(&requests[1], NULL), UNO_ERR_PEER_DEAD);
    assert_int_equal(uno_wait(&requests[0], NULL), UNO_ERR_PEER_DEAD);
    destroy(3);
}

/* A rank that cannot be reached is no reason to forget the time while another is waited for. */
static void deadline_beside_a_broken_pair(void **state)
{
    (void)state;
    int word = 1;
    struct net_end *end;
    uno_request *request;
    make(3, 0.5);
    assert_int_equal(uno_isend(&word, 1, UNO_INT32, 1, 0, comms[0], &request), UNO_OK);
    assert_int_equal(uno_wait(&request, NULL), UNO_OK);
    assert_int_equal(net_end_get(comms[0]->net, false, 1, NET_P2P_CHANNEL, false, &end), UNO_OK);
    end->failed = UNO_ERR_UNREACHABLE;
    assert_int_equal(uno_recv(&word, 1, UNO_INT32, 2, comms[0], NULL), UNO_ERR_TIMEOUT);
    destroy(3);
}

static uno_err withdraw(void *end)
{
    net_withdraw_loans(end);
    return UNO_OK;
}

/* Lent memory is its owner's again when the withdrawal returns: a thread that reads it is waited for. */
static void loan_in_hand(void **state)
{
    (void)state;
    static char lent[65536];
    struct net_end *tx, *rx;
    struct call call;
    make(2, 5);
    assert_int_equal(net_end_get(comms[0]->net, true, 1, 0, false, &tx), UNO_OK);
    assert_int_equal(net_end_get(comms[1]->net, false, 0, 0, false, &rx), UNO_OK);
    for (int reads = 1; reads >= 0; reads--) {
        assert_int_equal(net_end_shape(tx, 2, 65536, 0), UNO_OK);
        assert_int_equal(net_end_shape(rx, 2, 65536, 0), UNO_OK);
        assert_true(net_can_send(tx, sizeof lent));
        struct net_slot *head = net_send_head(tx);
        head->bytes = sizeof lent;
        assert_true(net_try_lend(tx, head, lent, sizeof lent));
        net_post(tx, 7);
        assert_int_equal(net_arrived(rx, 7), NET_ARRIVED);
        if (reads)
            assert_ptr_equal(net_recv_payload(rx, sizeof lent), lent);
        call_start(&call, withdraw, tx);
        if (reads) {
            nap_ms(20);
            assert_int_equal(atomic_load(&call.done), 0);
        } else {
            assert_int_equal(call_end(&call), UNO_OK);
            assert_null(net_recv_payload(rx, sizeof lent)); /* too late */
        }
        net_release(rx);
        if (reads)
            assert_int_equal(call_end(&call), UNO_OK);
    }
    destroy(2);
}

/* Messages of every size in any order: k of them always fit, none is written over before it is released. */
static void payloads_go_round_their_room(void **state)
{
    (void)state;
    static const struct { int k; uint32_t stride; size_t room; } shapes[] = {
        {1, 64, 63 * 64}, {3, 1024, 0} /* more slots in less room */, {2, 64, 64}, {2, 4096, 0}, {2, 65536, 0}, {8, 8192, 65536}, {2, 65536, 1 << 20}, {3, 1 << 20, 1 << 20}};
    struct { uint32_t number; uint64_t bytes; bool lent; } sent[256];
    static char lent[1 << 20]; /* such messages have a slot and a number and take no room */
    struct rng rng;
    struct net_end *tx, *rx;
    make(2, 5);
    rng_seed(&rng, 7);
    assert_int_equal(net_end_get(comms[0]->net, true, 1, 0, false, &tx), UNO_OK);
    assert_int_equal(net_end_get(comms[1]->net, false, 0, 0, false, &rx), UNO_OK);
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        assert_int_equal(net_end_shape(tx, shapes[s].k, shapes[s].stride, shapes[s].room), UNO_OK);
        assert_int_equal(net_end_shape(rx, shapes[s].k, shapes[s].stride, shapes[s].room), UNO_OK);
        uint32_t head = 0, tail = 0;
        for (int i = 0; i < 4000 || head != tail; i++) {
            uint64_t bytes = rng_below(&rng, 1 + (shapes[s].stride >> rng_below(&rng, 8)));
            bool send = i < 4000 && head - tail < ARRAY_LEN(sent) - 1 && rng_below(&rng, 2);
            if (send && net_can_send(tx, bytes)) {
                struct net_slot *h = net_send_head(tx);
                *h = (struct net_slot){.bytes = bytes, .kind = NET_SLOT_BYTES};
                sent[head % ARRAY_LEN(sent)].number = tx->next;
                sent[head % ARRAY_LEN(sent)].bytes = bytes;
                bool lend = rng_below(&rng, 4) == 0 && net_try_lend(tx, h, lent, bytes);
                sent[head++ % ARRAY_LEN(sent)].lent = lend;
                if (!lend)
                    memset(net_send_payload(tx), (int)(tx->next & 255), bytes);
                net_post(tx, 9);
            } else if (send) {
                assert_true(head - tail >= (uint32_t)shapes[s].k);
            } else if (head != tail) {
                bytes = sent[tail % ARRAY_LEN(sent)].bytes;
                assert_int_equal(net_arrived(rx, 9), NET_ARRIVED);
                const unsigned char *p = net_recv_payload(rx, bytes);
                assert_non_null(p);
                if (sent[tail % ARRAY_LEN(sent)].lent)
                    assert_ptr_equal(p, lent);
                for (uint64_t b = 0; b < bytes && p != (unsigned char *)lent; b += 61)
                    assert_int_equal(p[b], sent[tail % ARRAY_LEN(sent)].number & 255);
                tail++;
                net_release(rx);
            }
        }
    }
    assert_true(net_can_send(tx, 64)); /* a peer that points outside its room */
    struct net_slot *h = net_send_head(tx);
    *h = (struct net_slot){.bytes = 64, .kind = NET_SLOT_BYTES};
    net_post(tx, 9);
    h->address = rx->room - 32;
    assert_int_equal(net_arrived(rx, 9), NET_ARRIVED);
    assert_null(net_recv_payload(rx, 64));
    net_release(rx);
    destroy(2);
}

/* As on a kernel with such pages: what shares one with something else is neither offered nor forgotten. */
static void pages_of_64_kb(void **state)
{
    (void)state;
    enum { LARGE = 65536, SMALL = 4096 };
    static _Alignas(LARGE) char place[2 * LARGE];
    struct net_end *tx, *rx;
    struct slot_extent *x;
    size_t at;
    make(2, 5);
    assert_int_equal(net_end_get(comms[0]->net, true, 1, 0, false, &tx), UNO_OK);
    assert_int_equal(net_end_get(comms[1]->net, false, 0, 0, false, &rx), UNO_OK);
    fault_arm("page", LARGE);
    assert_false(net_offer(rx, rx->next, place, SMALL));
    assert_false(net_offer(rx, rx->next, place, LARGE + SMALL));
    assert_false(net_offer(rx, rx->next, place + SMALL, LARGE));
    assert_true(net_offer(rx, rx->next, place, LARGE));
    assert_int_equal(slots_carve(comms[0]->net, 4 * LARGE, &x, &at), UNO_OK);
    assert_int_equal(at % LARGE, 0);
    memset(x->base + at, 1, 4 * LARGE);
    slots_give_back(comms[0]->net, x, at + SMALL, 2 * LARGE);
    fault_arm(NULL, 0);
    for (size_t i = 0; i < 4 * LARGE; i++)
        assert_int_equal(x->base[at + i], i < LARGE || i >= 2 * LARGE);
    destroy(2);
}

/* ---- numbers, forks, misuse ------------------------------------------------------------------------------------------------------ */

/* A rank that died before its first operation is missed, also when numbers have passed 2^31. */
static void dead_rank_late(void **state)
{
    (void)state;
    int in = 1, out;
    fault_arm("wrap", 2000000000);
    make(2, 10);
    fault_arm("", 0);
    comm_rank_gone(comms[0], 1, false, "rank 1 was killed");
    assert_int_equal(uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, comms[0], NULL), UNO_ERR_PEER_DEAD);
    destroy(2);
}

static int in_child(uno_stream *of_parent)
{
    if (uno_stream_destroy(of_parent) != UNO_ERR_USAGE)
        return 4;
    int in = 3, out = 0;
    uno_comm *c;
    uno_stream *s;
    alarm(20);
    if (uno_comm_init_all(&c, 1, NULL) != UNO_OK || uno_stream_create(&s) != UNO_OK)
        return 1;
    for (int i = 0; i < 3; i++) {
        if (uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, c, s) != UNO_OK || uno_stream_synchronize(s) != UNO_OK || out != 3)
            return 2;
        nap_ms(30); /* the progress thread falls asleep */
    }
    return uno_stream_destroy(s) == UNO_OK && uno_comm_destroy(c) == UNO_OK ? 0 : 3;
}

/* A child joins anew, while its parent's progress thread sleeps. */
static void fork_and_join(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* the sanitizer allows no threads in such a child */
#endif
    int in = 1, out[3], status;
    uno_stream *s[2], *unfinished;
    make(2, 5);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(uno_stream_create(&s[r]), UNO_OK);
        assert_int_equal(uno_all_reduce(&in, &out[r], 1, UNO_INT32, UNO_SUM, comms[r], s[r]), UNO_OK);
    }
    for (int r = 0; r < 2; r++)
        assert_int_equal(uno_stream_destroy(s[r]), UNO_OK);
    nap_ms(30);
    assert_int_equal(uno_stream_create(&unfinished), UNO_OK);
    assert_int_equal(uno_all_reduce(&in, &out[2], 1, UNO_INT32, UNO_SUM, comms[0], unfinished), UNO_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(in_child(unfinished));
    assert_int_equal(reduce_now(comms[1]), UNO_OK);
    assert_int_equal(uno_stream_destroy(unfinished), UNO_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    destroy(2);
}

/* More tiles than can be counted are refused, not wrapped around. */
static void too_many_tiles(void **state)
{
    (void)state;
#if SIZE_MAX <= UINT32_MAX
    skip(); /* no count is so large */
#else
    struct choice choice;
    struct exec_program *program = NULL;
    struct request req = {.coll = UNO_ALL_REDUCE, .type = UNO_FLOAT32, .op = UNO_SUM, .count = (size_t)1 << 40};
    make(2, 5);
    assert_int_equal(planner_choose(comms[0]->planner, &req, &choice), UNO_OK);
    struct exec_choice ec = {.plan = choice.plan, .shift = choice.shift, .k = choice.k, .tile_bytes = 64, .scratch_tiles = 2};
    assert_int_equal(exec_compile(&comms[0]->env, &ec, &req, NULL, &program), UNO_ERR_UNSUPPORTED);
    ec.tile_bytes = 4096;
    assert_int_equal(exec_compile(&comms[0]->env, &ec, &req, NULL, &program), UNO_OK);
    exec_program_free(program);
    destroy(2);
#endif
}

/* A communicator with calls noted in the open group cannot go yet. */
static void destroy_in_group(void **state)
{
    (void)state;
    int in = 1, out[2];
    make(2, 5);
    assert_int_equal(uno_group_start(), UNO_OK);
    for (int r = 0; r < 2; r++)
        assert_int_equal(uno_all_reduce(&in, &out[r], 1, UNO_INT32, UNO_SUM, comms[r], NULL), UNO_OK);
    assert_int_equal(uno_comm_destroy(comms[0]), UNO_ERR_USAGE);
    assert_int_equal(uno_group_end(), UNO_OK);
    assert_int_equal(out[0] + out[1], 4);
    destroy(2);
}

/* What another thread queued while this one finalized ends with the communicator. */
static void queued_after_finalize(void **state)
{
    (void)state;
    int in = 1, out;
    uno_stream *s;
    make(2, 5);
    assert_int_equal(uno_stream_create(&s), UNO_OK);
    walk_wait(comms[0]); /* nobody starts it */
    assert_int_equal(uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, comms[0], s), UNO_OK);
    atomic_store(&comms[0]->finalized, 1);
    nap_ms(20);
    walk_leave(comms[0]);
    assert_int_equal(uno_comm_destroy(comms[0]), UNO_OK);
    assert_int_equal(uno_stream_destroy(s), UNO_ERR_ABORTED);
    assert_int_equal(uno_comm_destroy(comms[1]), UNO_OK);
    alarm(0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_behind_event), cmocka_unit_test(event_recorded_again), cmocka_unit_test(event_after_failure),
        cmocka_unit_test(a_background_error_has_its_sentence),
        cmocka_unit_test(failed_behind_event), cmocka_unit_test(many_communicators), cmocka_unit_test(two_threads_in_one),
        cmocka_unit_test(deadline_beside_a_waiter), cmocka_unit_test(request_beside_another), cmocka_unit_test(empty_messages),
        cmocka_unit_test(needs_two_that_left), cmocka_unit_test(deadline_beside_a_broken_pair), cmocka_unit_test(loan_in_hand), cmocka_unit_test(payloads_go_round_their_room),
        cmocka_unit_test(pages_of_64_kb), cmocka_unit_test(dead_rank_late), cmocka_unit_test(fork_and_join),
        cmocka_unit_test(destroy_in_group), cmocka_unit_test(queued_after_finalize), cmocka_unit_test(too_many_tiles),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
