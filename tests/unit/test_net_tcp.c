/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_tcp.c - messages, control frames and ends of the TCP carrier; lack of memory, forks, threads. */
#include "net_sides.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void messages_come_in_order(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 3, 1000), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 3, 1000), UNO_OK);
    stream(&tx, &rx, 2000);
    assert_int_equal(atomic_load(&A.p->counts.violations) + atomic_load(&B.p->counts.violations), 0);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

static void nothing_is_sent_without_credit(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 2, 64), UNO_OK);
    for (int i = 0; i < 2000; i++) {
        pump();
        assert_false(can_send(&tx)); /* the receiver is not shaped yet */
    }
    assert_int_equal(tcp_end_shape(&rx, 2, 64), UNO_OK);
    PUMP_UNTIL(can_send(&tx));
    const uint32_t slots = 2 * NET_FAR_SLOTS, held = (slots - 2) / 2;
    for (uint32_t i = 0; i < slots; i++) {
        assert_true(can_send(&tx));
        post(&tx, 8, 1);
    }
    for (uint32_t released = 0; released <= held; released++) {
        for (int i = 0; i < 2000; i++) {
            pump();
            assert_false(can_send(&tx)); /* all slots are full, as far as was told */
        }
        PUMP_UNTIL(arrived(&rx, 1) == NET_ARRIVED);
        check_and_release(&rx, 8);
    }
    PUMP_UNTIL(can_send(&tx));
    assert_int_equal(tx.freed, held + 1);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

/* The grant goes out before the sender exists: it must ask. */
static void a_late_sender_asks(void **state)
{
    struct net_end tx, rx;
    end_open(&rx, &B, false, 4, 9);
    assert_int_equal(tcp_end_shape(&rx, 2, 64), UNO_OK);
    PUMP_UNTIL(A.l->npaths > 0);
    for (int i = 0; i < 2000; i++)
        pump();
    end_open(&tx, &A, true, 4, 9);
    assert_int_equal(tcp_end_shape(&tx, 2, 64), UNO_OK);
    stream(&tx, &rx, 10);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

static void many_ends_share_the_sockets(void **state)
{
    enum { N = 60 };
    static struct net_end tx[N], rx[N];
    for (int i = 0; i < N; i++) {
        struct side *from = i % 2 ? &A : &B, *to = i % 2 ? &B : &A;
        end_open(&tx[i], from, true, i / 2 % 10, 100 + (uint64_t)i / 20);
        end_open(&rx[i], to, false, i / 2 % 10, 100 + (uint64_t)i / 20);
        assert_int_equal(tcp_end_shape(&rx[i], 1 + i % 4, 100u + 3000u * (uint32_t)i), UNO_OK);
        assert_int_equal(tcp_end_shape(&tx[i], 1 + i % 4, 100u + 3000u * (uint32_t)i), UNO_OK);
    }
    uint64_t end = clock_ns() + LIMIT_NS;
    for (int done = 0; done < N && clock_ns() < end;) {
        done = 0;
        for (int i = 0; i < N; i++) {
            if (tx[i].next <= 30 && can_send(&tx[i]))
                post(&tx[i], size_of(tx[i].next, tx[i].stride), 5);
            if (arrived(&rx[i], 5) == NET_ARRIVED)
                check_and_release(&rx[i], size_of(rx[i].next, rx[i].stride));
            done += rx[i].next == 31;
        }
        pump();
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(rx[i].next, 31);
        tcp_end_free(&tx[i]);
        tcp_end_free(&rx[i]);
    }
    PUMP_UNTIL(!A.l->ends && !B.l->ends && !A.l->notes_head && !B.l->notes_head);
}

static void shapes_change_between_messages(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &B, true, 0, 1);
    end_open(&rx, &A, false, 0, 1);
    uint32_t last = 0;
    for (int round = 0; round < 60; round++) {
        int k = 1 + round % 3;
        uint32_t stride = round % 4 == 0 ? 200000 : 64u + 100u * (uint32_t)(round % 5);
        /* the sender may be ahead: it shapes while its last messages are still on their way */
        assert_int_equal(tcp_end_shape(&tx, k, stride), UNO_OK);
        assert_int_equal(tcp_end_shape(&rx, k, stride), UNO_OK);
        assert_int_equal(tx.shape_no, rx.shape_no);
        last += round % 6 == 0 ? 0 : (uint32_t)round % 6;
        stream(&tx, &rx, last);
    }
    /* The sender runs ahead of a receiver that has not used its messages. */
    assert_int_equal(tcp_end_shape(&tx, 2, 128), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 2, 128), UNO_OK);
    PUMP_UNTIL(can_send(&tx));
    post(&tx, 100, 5);
    assert_int_equal(tcp_end_shape(&tx, 4, 70000), UNO_OK);
    assert_false(can_send(&tx));
    PUMP_UNTIL(arrived(&rx, 5) == NET_ARRIVED);
    assert_false(can_send(&tx));
    check_and_release(&rx, 100);
    assert_int_equal(tcp_end_shape(&rx, 4, 70000), UNO_OK);
    stream(&tx, &rx, last + 20);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

static void large_messages_are_cut_and_joined(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 2, (5u << 20) + 12345), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 2, (5u << 20) + 12345), UNO_OK);
    for (int i = 0; i < 8; i++) {
        static const uint64_t sizes[] = {TCP_SLICE, TCP_SLICE - 1, TCP_SLICE + 1, 5 << 20, (5 << 20) + 12345, 1, 0, 70 * TCP_SLICE};
        PUMP_UNTIL(can_send(&tx));
        post(&tx, sizes[i], 5);
        PUMP_UNTIL(arrived(&rx, 5) == NET_ARRIVED);
        check_and_release(&rx, sizes[i]);
    }
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

/* Ranks that disagree about an operation disagree about its slots: a mismatch, not a broken link. */
static void a_message_larger_than_the_slot_is_a_mismatch(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 2, 200000), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 2, 4096), UNO_OK);
    PUMP_UNTIL(can_send(&tx));
    post(&tx, 150000, 5);
    PUMP_UNTIL(arrived(&rx, 5) == NET_MISMATCH);
    for (int i = 0; i < 1000; i++)
        pump();
    assert_int_equal(atomic_load(&B.l->state), TCP_LINK_OPEN);
    assert_int_equal(B.heard.downs + A.heard.downs, 0);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

static void a_sender_that_leaves_early_is_heard(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 1, 4u << 20), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 1, 4u << 20), UNO_OK);
    PUMP_UNTIL(can_send(&tx));
    post(&tx, 4u << 20, 5);
    tcp_end_free(&tx); /* most of it is still here */
    PUMP_UNTIL(arrived(&rx, 5) == NET_ARRIVED);
    check_and_release(&rx, 4u << 20);
    PUMP_UNTIL(A.l->ends == NULL);
    tcp_end_free(&rx);
}

/* Nobody will release what it sent. */
static void a_sender_goes_after_its_receiver(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 2, 64), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 2, 64), UNO_OK);
    PUMP_UNTIL(can_send(&tx));
    post(&tx, 64, 5);
    PUMP_UNTIL(arrived(&rx, 5) == NET_ARRIVED);
    tcp_end_free(&rx);
    PUMP_UNTIL(tx.tcp->gone);
    tcp_end_free(&tx);
    pump();
    assert_null(A.l->ends);
}

static void lose_all_paths_of_a(void)
{
    for (int i = 0; i < A.l->npaths; i++)
        shutdown(A.l->paths[i]->fd, SHUT_RDWR);
    for (uint64_t end = clock_ns() + LIMIT_NS; A.l->npaths && clock_ns() < end;)
        net_progress(A.p); /* alone, so that no path comes back meanwhile */
    assert_int_equal(A.l->npaths, 0);
}

/* What an end says last is said when the link has a path again. */
static void ends_may_go_between_two_paths(void **state)
{
    struct net_end tx[2], rx[2]; /* from A, from B */
    for (int i = 0; i < 2; i++) {
        end_open(&tx[i], i ? &B : &A, true, 0, 1);
        end_open(&rx[i], i ? &A : &B, false, 0, 1);
        assert_int_equal(tcp_end_shape(&tx[i], 2, 64), UNO_OK);
        assert_int_equal(tcp_end_shape(&rx[i], 2, 64), UNO_OK);
        PUMP_UNTIL(can_send(&tx[i]));
    }
    post(&tx[1], 64, 5);
    PUMP_UNTIL(arrived(&rx[1], 5) == NET_ARRIVED);
    lose_all_paths_of_a();
    post(&tx[0], 64, 5);
    tcp_end_free(&tx[0]);
    tcp_end_free(&rx[1]);
    assert_int_equal(A.l->npaths, 0);
    PUMP_UNTIL(arrived(&rx[0], 5) == NET_ARRIVED && tx[1].tcp->gone);
    check_and_release(&rx[0], 64);
    tcp_end_free(&rx[0]);
    tcp_end_free(&tx[1]);
    PUMP_UNTIL(!A.l->ends && !B.l->ends);
    assert_int_equal(A.heard.downs + B.heard.downs, 0);
}

static void ends_may_go_in_the_middle(void **state)
{
    for (int i = 0; i < 40; i++) {
        struct net_end tx, rx;
        end_open(&tx, &A, true, 0, 500 + (uint64_t)i);
        end_open(&rx, &B, false, 0, 500 + (uint64_t)i);
        assert_int_equal(tcp_end_shape(&tx, 2, 1u << 20), UNO_OK);
        assert_int_equal(tcp_end_shape(&rx, 2, 1u << 20), UNO_OK);
        PUMP_UNTIL(can_send(&tx));
        post(&tx, 1u << 20, 5);
        for (int j = 0; j < i; j++)
            net_progress(j % 3 ? B.p : A.p);
        if (i % 2) {
            tcp_end_free(&rx);
            tcp_end_free(&tx);
        } else {
            tcp_end_free(&tx);
            tcp_end_free(&rx);
        }
    }
    PUMP_UNTIL(A.l->ends == NULL && B.l->ends == NULL);
    assert_int_equal(A.heard.downs + B.heard.downs, 0);
}

static void a_lost_path_loses_nothing(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 4, 700000), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 4, 700000), UNO_OK);
    PUMP_UNTIL(can_send(&tx) && A.l->npaths >= 2);
    uint64_t end = clock_ns() + LIMIT_NS;
    int killed = 0;
    struct rng r;
    rng_seed(&r, 42);
    while (rx.next <= 300 && clock_ns() < end) {
        if (tx.next <= 300 && can_send(&tx))
            post(&tx, size_of(tx.next, tx.stride), 5);
        if (rng_below(&r, 40) == 0 && killed < 25 && A.l->npaths > 0) {
            struct side *s = killed % 2 ? &A : &B;
            if (s->l->npaths)
                shutdown(s->l->paths[rng_below(&r, (uint64_t)s->l->npaths)]->fd, killed % 3 ? SHUT_RDWR : SHUT_WR);
            killed++;
        }
        rng_below(&r, 2) ? net_progress(A.p) : net_progress(B.p);
        if (arrived(&rx, 5) == NET_ARRIVED)
            check_and_release(&rx, size_of(rx.next, rx.stride));
    }
    assert_int_equal(rx.next, 301);
    assert_true(killed > 5);
    assert_true(atomic_load(&A.p->counts.paths_lost) > 0);
    assert_true(atomic_load(&A.p->counts.resent) > 0);
    assert_int_equal(atomic_load(&A.p->counts.violations) + atomic_load(&B.p->counts.violations), 0);
    assert_int_equal(A.heard.downs + B.heard.downs, 0);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

static void control_frames_come_once_and_in_order(void **state)
{
    char big[TCP_CONTROL_BYTES + 1] = {0};
    uint32_t n = 0;
    assert_int_equal(net_control_send(A.l, big, sizeof big), UNO_ERR_INTERNAL);
    for (int i = 0; i < 600; i++) {
        n++;
        memcpy(big, &n, sizeof n);
        assert_int_equal(net_control_send(A.l, big, 4 + (size_t)i * 97 % (TCP_CONTROL_BYTES - 3)), UNO_OK);
        assert_int_equal(net_control_send(B.l, &n, sizeof n), UNO_OK);
        pump();
        if (i % 50 == 49 && A.l->control_path)
            shutdown(A.l->control_path->fd, SHUT_RDWR);
    }
    PUMP_UNTIL(A.heard.controls == 600 && B.heard.controls == 600);
    assert_false(A.heard.disorder || B.heard.disorder);
    PUMP_UNTIL(!A.l->control_head && !B.l->control_head);
}

static void goodbye_is_clean(void **state)
{
    uint32_t n = 1;
    assert_int_equal(net_control_send(A.l, &n, sizeof n), UNO_OK);
    PUMP_UNTIL(B.heard.controls == 1);
    net_proc_drain(A.p, 1000000000);
    assert_true(net_idle(A.p));
    net_proc_free(A.p);
    uint64_t end = clock_ns() + LIMIT_NS;
    while (!B.heard.downs && clock_ns() < end)
        net_progress(B.p);
    assert_int_equal(B.heard.downs, 1);
    assert_int_equal(B.heard.how, NET_DOWN_LEFT);
    assert_string_equal(B.heard.text, "");
    for (int i = 0; i < 100; i++)
        net_progress(B.p);
    assert_int_equal(B.heard.downs, 1);
    assert_int_equal(net_control_send(B.l, &n, sizeof n), UNO_ERR_UNREACHABLE);
    assert_non_null(strstr(err_text(), "no connection to process 0: it said goodbye"));
    struct net_end e = {.sending = true, .next = 1};
    assert_int_equal(tcp_end_new(&e, B.l, 1, 1, 0), UNO_ERR_UNREACHABLE);
    assert_null(e.tcp);
    side_open(&A, 0); /* for teardown */
}

/* Who connects takes its connection for made as soon as the other side has answered: when that one leaves then, it has to say so. */
static void goodbye_reaches_who_has_just_connected(void **state)
{
    uint32_t n = 1;
    uint64_t end = clock_ns() + LIMIT_NS;
    assert_int_equal(net_control_send(B.l, &n, sizeof n), UNO_OK);
    while (!connect_answered(A.p) && clock_ns() < end) {
        net_progress(B.p);
        if (!connect_answered(A.p))
            net_progress(A.p);
    }
    while (!B.l->npaths && clock_ns() < end)
        net_progress(B.p);
    assert_int_equal(A.heard.controls, 0);
    net_proc_drain(A.p, 1000000000);
    net_proc_free(A.p);
    while (!B.heard.downs && clock_ns() < end)
        net_progress(B.p);
    assert_int_equal(B.heard.how, NET_DOWN_LEFT);
    side_open(&A, 0); /* for teardown */
}

static void goodbye_tells_the_exit_status(void **state)
{
    uint32_t n = 1;
    assert_int_equal(net_control_send(A.l, &n, sizeof n), UNO_OK);
    PUMP_UNTIL(B.heard.controls == 1);
    net_proc_exits(A.p, 3);
    net_proc_drain(A.p, 1000000000);
    net_proc_free(A.p);
    for (uint64_t end = clock_ns() + LIMIT_NS; !B.heard.downs && clock_ns() < end;)
        net_progress(B.p);
    assert_int_equal(B.heard.downs, 1);
    assert_int_equal(B.heard.how, NET_DOWN_LEFT);
    assert_string_equal(B.heard.text, "exited with status 3");
    assert_int_equal(net_control_send(B.l, &n, sizeof n), UNO_ERR_UNREACHABLE);
    assert_non_null(strstr(err_text(), "it said goodbye and exited with status 3"));
    side_open(&A, 0);
}

/* The other side has given this process up for lost: it takes connections and closes them. */
static void given_up_by(struct side *gone, struct side *other)
{
    uint32_t n = 1;
    assert_int_equal(net_control_send(A.l, &n, sizeof n), UNO_OK);
    PUMP_UNTIL(B.heard.controls == 1 && !A.l->control_head);
    uint64_t start = clock_ns(), accepted = atomic_load(&gone->p->counts.accepted);
    other->p->patience_ns = 1000000000;
    link_down(gone->l, NET_DOWN_LOST, "by a test");
    PUMP_UNTIL(other->heard.downs == 1);
    assert_int_equal(other->heard.how, NET_DOWN_LOST);
    assert_non_null(strstr(other->heard.text, "lost before a word came"));
    assert_true(clock_ns() - start >= 900000000);
    assert_in_range(atomic_load(&other->p->counts.paths_lost), 2, 60); /* pauses grow from 20 ms to 1 s */
    assert_int_equal(atomic_load(&gone->p->counts.accepted), accepted);
}

static void who_was_given_up_gives_up(void **state)
{
    given_up_by(&B, &A);
}

static void who_was_given_up_and_knocks_gives_up(void **state)
{
    given_up_by(&A, &B);
}

static void an_end_without_goodbye_is_told_apart(void **state)
{
    uint32_t n = 1;
    assert_int_equal(net_control_send(A.l, &n, sizeof n), UNO_OK);
    PUMP_UNTIL(B.heard.controls == 1 && A.l->control_head == NULL && A.l->npaths >= 3 && B.l->npaths >= 3);
    for (int i = 0; i < 100; i++)
        pump();
    uint64_t start = clock_ns();
    net_proc_free(A.p);
    while (!B.heard.downs && clock_ns() < start + LIMIT_NS)
        net_progress(B.p);
    assert_true(clock_ns() - start < 1000000000);
    assert_int_equal(B.heard.downs, 1);
    assert_int_equal(B.heard.how, NET_DOWN_ENDED);
    assert_non_null(strstr(B.heard.text, "process 0"));
    side_open(&A, 0);
}

/* ---- memory, descriptors, processes -------------------------------------------------------------------------------------- */

static void each_allocation_may_fail(void **state)
{
    for (long n = 1;; n++) {
        struct net_proc *p = NULL;
        struct net_proc_options o = {.cfg = &A.cfg, .key = key_of("right"), .job = 7, .self = 3};
        fault_arm("alloc", n);
        uno_err err = net_proc_new(&o, &p);
        bool hit = !fault_hit("alloc") || err != UNO_OK;
        fault_arm(NULL, 0);
        if (err == UNO_OK) {
            net_proc_free(p);
            break;
        }
        assert_true(hit);
        assert_int_equal(err, UNO_ERR_MEMORY);
        assert_true(n < 50);
    }
    for (long n = 1; n < 5; n++) {
        struct net_end e = {.next = 1, .sending = true};
        fault_arm("alloc", n);
        uno_err err = tcp_end_new(&e, A.l, 1, 0, 1);
        if (err == UNO_OK)
            err = tcp_end_shape(&e, 2, 100);
        fault_arm(NULL, 0);
        assert_int_equal(err, n <= 2 ? UNO_ERR_MEMORY : UNO_OK);
        tcp_end_free(&e);
    }
}

/* While memory fails here and there, the two sides still find together in the end. */
static void connecting_survives_lack_of_memory(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 2, 1000), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 2, 1000), UNO_OK);
    for (int i = 1; i < 12; i++) {
        fault_arm("alloc", 1 + i % 3);
        for (int j = 0; j < 50; j++)
            pump();
    }
    fault_arm(NULL, 0);
    stream(&tx, &rx, 50);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

static void a_forked_child_changes_nothing(void **state)
{
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 2, 1000), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 2, 1000), UNO_OK);
    stream(&tx, &rx, 10);
    pid_t child = fork();
    if (child == 0) {
        net_proc_forked(A.p);
        net_proc_forked(B.p);
        net_progress(A.p);
        net_proc_drain(A.p, 1000000000);
        _exit(net_idle(A.p) ? 1 : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    stream(&tx, &rx, 100);
    assert_int_equal(atomic_load(&A.p->counts.paths_lost) + atomic_load(&B.p->counts.paths_lost), 0);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

/* ---- threads: two callers and two service threads ------------------------------------------------------------------------ */

static _Atomic bool stop;
static void *serve_thread(void *arg)
{
    struct net_proc *p = arg;
    struct pollfd f = {.fd = net_proc_fd(p), .events = POLLIN};
    while (!atomic_load(&stop)) {
        poll(&f, 1, 50);
        net_progress(p);
    }
    return NULL;
}

#define THREAD_MESSAGES 3000
static void *call_thread(void *arg)
{
    struct side *s = arg;
    struct net_end tx, rx;
    uint64_t end = clock_ns() + 2 * LIMIT_NS;
    end_open(&tx, s, true, 0, 1);
    end_open(&rx, s, false, 0, 1);
    uint32_t i = 1;
    int overslept = 0; /* nobody woke us: a lost wake-up, or the other thread did not run for so long */
    for (; i <= THREAD_MESSAGES && clock_ns() < end; i++) {
        uint32_t stride = i / 500 % 2 ? 100000 : 256;
        net_enter(s->p);
        if (tcp_end_shape(&tx, 2, stride) != UNO_OK || tcp_end_shape(&rx, 2, stride) != UNO_OK)
            return NULL;
        int polls = 0;
        bool sent = false, got = false;
        while (!(sent && got) && clock_ns() < end) {
            if (!sent && can_send(&tx)) {
                post(&tx, size_of(i, stride), 5);
                sent = true;
            }
            if (!got && arrived(&rx, 5) == NET_ARRIVED) {
                check_and_release(&rx, size_of(i, stride));
                got = true;
            }
            if (!net_progress(s->p) && ++polls > 20 && !(sent && got)) {
                uint64_t before = clock_ns();
                net_sleep(s->p, 1000000000);
                overslept += clock_ns() - before >= 1000000000;
            }
        }
        net_leave(s->p);
    }
    tcp_end_free(&tx);
    tcp_end_free(&rx);
    if (overslept)
        print_message("%d of %u waits ended by their limit\n", overslept, i);
    return i > THREAD_MESSAGES && !overslept ? arg : NULL;
}

static void callers_and_service_threads_share(void **state)
{
    pthread_t t[4];
    void *ok[4];
    atomic_store(&stop, false);
    pthread_create(&t[0], NULL, serve_thread, A.p);
    pthread_create(&t[1], NULL, serve_thread, B.p);
    pthread_create(&t[2], NULL, call_thread, &A);
    pthread_create(&t[3], NULL, call_thread, &B);
    pthread_join(t[2], &ok[2]);
    pthread_join(t[3], &ok[3]);
    atomic_store(&stop, true);
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    assert_ptr_equal(ok[2], &A);
    assert_ptr_equal(ok[3], &B);
    assert_int_equal(atomic_load(&A.p->counts.violations) + atomic_load(&B.p->counts.violations), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(messages_come_in_order), CASE(nothing_is_sent_without_credit), CASE(a_late_sender_asks),
        CASE(many_ends_share_the_sockets), CASE(shapes_change_between_messages), CASE(large_messages_are_cut_and_joined),
        CASE(a_message_larger_than_the_slot_is_a_mismatch), CASE(a_sender_that_leaves_early_is_heard),
        CASE(a_sender_goes_after_its_receiver), CASE(ends_may_go_between_two_paths), CASE(ends_may_go_in_the_middle), CASE(a_lost_path_loses_nothing), CASE(control_frames_come_once_and_in_order),
        CASE(goodbye_is_clean), CASE(goodbye_reaches_who_has_just_connected), CASE(goodbye_tells_the_exit_status), CASE(an_end_without_goodbye_is_told_apart),
        CASE(who_was_given_up_gives_up), CASE(who_was_given_up_and_knocks_gives_up),
        CASE(each_allocation_may_fail), CASE(connecting_survives_lack_of_memory), CASE(a_forked_child_changes_nothing),
        CASE(callers_and_service_threads_share),
    };
    cmocka_set_test_filter(getenv("UNISONO_TEST")); /* one by name; NULL = all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
