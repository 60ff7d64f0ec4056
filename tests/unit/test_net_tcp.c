/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_net_tcp.c - the TCP carrier by itself: two net_procs in this process over 127.0.0.1, ends made by hand. Most tests drive
 * both sides from one thread, so that what happens between two rounds is decided here.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/net_tcp_inner.h"

#define LIMIT_NS 20000000000ull

struct heard { int controls, downs; enum net_down how; uint32_t last; size_t last_bytes; bool disorder; char text[512]; };
struct side { struct net_proc *p; struct net_link *l; struct heard heard; struct config cfg; };
static struct side A, B;

static void on_control(void *arg, int from, const void *data, size_t bytes)
{
    struct heard *h = arg;
    uint32_t n = 0;
    memcpy(&n, data, MIN(bytes, sizeof n));
    h->disorder |= n != h->last + 1;
    h->last = n;
    h->last_bytes = bytes;
    h->controls++;
}

static void on_down(void *arg, int from, enum net_down how, const char *text)
{
    struct heard *h = arg;
    h->downs++;
    h->how = how;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static struct auth_key key_of(const char *secret)
{
    struct auth_key k;
    auth_derive(&k, secret, strlen(secret));
    return k;
}

static void side_open_family(struct side *s, int self, int family)
{
    memset(s, 0, sizeof *s);
    s->cfg.socket_ifname = "lo";
    s->cfg.socket_family = family;
    s->cfg.socket_count = 2;
    struct net_proc_options o = {.cfg = &s->cfg, .key = key_of("right"), .job = 7, .self = self,
                                 .on_control = on_control, .on_down = on_down, .arg = &s->heard};
    assert_int_equal(net_proc_new(&o, &s->p), UNO_OK);
}

static void side_open(struct side *s, int self)
{
    side_open_family(s, self, 1);
}

static void join(void)
{
    struct sock_address_book book;
    net_proc_address(B.p, &book);
    assert_true(book.count >= 1);
    assert_int_equal(net_link_get(A.p, 1, &book, &A.l), UNO_OK);
    net_proc_address(A.p, &book);
    assert_int_equal(net_link_get(B.p, 0, &book, &B.l), UNO_OK);
}

static int setup(void **state)
{
    side_open(&A, 0);
    side_open(&B, 1);
    join();
    return 0;
}

static int teardown(void **state)
{
    net_proc_free(A.p);
    net_proc_free(B.p);
    return 0;
}

static void pump(void)
{
    net_progress(A.p);
    net_progress(B.p);
}

#define PUMP_UNTIL(cond)                                   \
    do {                                                   \
        uint64_t end_ = clock_ns() + LIMIT_NS;             \
        while (!(cond) && clock_ns() < end_)               \
            pump();                                        \
        assert_true(cond);                                 \
    } while (0)

/* ---- ends by hand: what net_end.c and the inline functions of net.h do ------------------------------------------- */

static void end_open(struct net_end *e, struct side *s, bool sending, int channel, uint64_t comm)
{
    memset(e, 0, sizeof *e);
    e->carrier = NET_TCP;
    e->sending = sending;
    e->channel = channel;
    e->peer = s == &A ? 1 : 0;
    e->next = 1;
    assert_int_equal(tcp_end_new(e, s->l, comm, s == &A ? 0 : 1, e->peer), UNO_OK);
}

static bool can_send(struct net_end *e)
{
    if (e->mapped && e->next - 1 - e->freed < (uint32_t)e->k)
        return true;
    return tcp_end_ready(e);
}

static unsigned char pattern(uint32_t number, size_t i) { return (unsigned char)(number * 31 + i * 7 + (i >> 9)); }

static void post(struct net_end *e, uint64_t bytes, uint32_t signature)
{
    struct net_slot *h = &e->heads[e->slot];
    unsigned char *to = (unsigned char *)e->payload + (size_t)e->slot * e->stride;
    for (uint64_t i = 0; i < bytes; i++)
        to[i] = pattern(e->next, i);
    h->bytes = bytes;
    h->aux = e->next * 3ull;
    h->kind = NET_SLOT_BYTES;
    atomic_store_explicit(&h->flag, net_flag(e->next, signature), memory_order_release);
    e->next++;
    e->slot = e->slot + 1 == e->k ? 0 : e->slot + 1;
    tcp_end_post(e);
}

static enum net_arrival arrived(struct net_end *e, uint32_t signature)
{
    if (!e->mapped && !tcp_end_ready(e))
        return NET_NOT_YET;
    uint64_t flag = atomic_load_explicit(&e->heads[e->slot].flag, memory_order_acquire);
    if ((uint32_t)flag != e->next)
        return NET_NOT_YET;
    return (uint32_t)(flag >> 32) == signature ? NET_ARRIVED : NET_MISMATCH;
}

static void check_and_release(struct net_end *e, uint64_t bytes)
{
    struct net_slot *h = &e->heads[e->slot];
    const unsigned char *p = (unsigned char *)e->payload + (size_t)e->slot * e->stride;
    assert_int_equal(h->bytes, bytes);
    assert_int_equal(h->aux, e->next * 3ull);
    assert_int_equal(h->kind, NET_SLOT_BYTES);
    size_t bad = 0;
    for (uint64_t i = 0; i < bytes; i++)
        bad += p[i] != pattern(e->next, i);
    assert_int_equal(bad, 0);
    atomic_store_explicit(e->released[0], e->next, memory_order_release);
    e->next++;
    e->slot = e->slot + 1 == e->k ? 0 : e->slot + 1;
    tcp_end_release(e);
}

static uint64_t size_of(uint32_t number, uint32_t stride) { return number % 5 == 0 ? 0 : number % 7 == 0 ? stride : number * 37u % (stride + 1); }

/* Send and receive until both have passed message `last`. */
static void stream(struct net_end *tx, struct net_end *rx, uint32_t last)
{
    uint64_t end = clock_ns() + LIMIT_NS;
    while ((int32_t)(rx->next - last) <= 0 && clock_ns() < end) {
        if ((int32_t)(tx->next - last) <= 0 && can_send(tx))
            post(tx, size_of(tx->next, tx->stride), 5);
        if (arrived(rx, 5) == NET_ARRIVED)
            check_and_release(rx, size_of(rx->next, rx->stride));
        pump();
    }
    assert_int_equal(rx->next, last + 1);
}

/* ---- tests --------------------------------------------------------------------------------------------------------- */

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
    post(&tx, 8, 1);
    assert_true(can_send(&tx));
    post(&tx, 8, 1);
    for (int i = 0; i < 2000; i++) {
        pump();
        assert_false(can_send(&tx)); /* both slots are full */
    }
    assert_int_equal(arrived(&rx, 1), NET_ARRIVED);
    check_and_release(&rx, 8);
    PUMP_UNTIL(can_send(&tx));
    assert_int_equal(tx.freed, 1);
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

/* ---- strangers -------------------------------------------------------------------------------------------------------- */

static int stranger(struct side *s)
{
    struct sock_address_book book;
    int fd;
    net_proc_address(s->p, &book);
    assert_int_equal(sock_connect(&book.addr[0], clock_after(2), &fd), UNO_OK);
    return fd;
}

static void strangers_do_no_harm(void **state)
{
    enum { N = 200 };
    static int fd[N];
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 2, 1000), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 2, 1000), UNO_OK);
    struct rng r;
    rng_seed(&r, 1);
    for (int i = 0; i < N; i++) {
        fd[i] = stranger(i % 2 ? &A : &B);
        char junk[512];
        for (size_t k = 0; k < sizeof junk; k++)
            junk[k] = (char)rng_next(&r);
        if (i % 4 < 2 && send(fd[i], junk, rng_below(&r, sizeof junk), MSG_NOSIGNAL) < 0)
            fail();
        if (i % 10 == 0) {
            close(fd[i]);
            fd[i] = -1;
        }
        if (i % 20 == 0)
            pump();
    }
    stream(&tx, &rx, 100);
    PUMP_UNTIL(A.p->naccepted <= TCP_HALF_OPEN && !A.p->halves && !B.p->halves); /* silent ones are closed after 2 s */
    /* a peer that was pushed out by the flood came again, and is counted too */
    assert_true(atomic_load(&A.p->counts.refused) + atomic_load(&B.p->counts.refused) >= N);
    stream(&tx, &rx, 200);
    for (int i = 0; i < N; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
}

/* An authenticated connection made by hand, from process `from`. */
static int insider(struct side *s, const char *secret, uint64_t job, int from, int to, uno_err expect)
{
    struct auth_session a;
    struct auth_key key = key_of(secret);
    int fd = stranger(s);
    auth_start(&a, &key, true);
    a.hello = (struct auth_hello){.role = AUTH_DATA, .job = job, .from = from, .to = to};
    uno_err err = UNO_ERR_IN_PROGRESS;
    uint64_t end = clock_ns() + LIMIT_NS;
    while (err == UNO_ERR_IN_PROGRESS && clock_ns() < end) {
        err = auth_step(&a, fd);
        net_progress(s->p);
    }
    assert_int_equal(err, expect);
    return fd;
}

static void the_wrong_secret_is_refused(void **state)
{
    close(insider(&A, "wrong", 7, 5, 0, UNO_ERR_AUTH));
    PUMP_UNTIL(atomic_load(&A.p->counts.refused) == 1);
    static const struct { uint64_t job; int from, to; } misled[] = {{8, 5, 0}, {7, 5, 3}, {7, 0, 0}, {7, -1, 0}};
    for (size_t i = 0; i < ARRAY_LEN(misled); i++) {
        close(insider(&A, "right", misled[i].job, misled[i].from, misled[i].to, UNO_OK));
        PUMP_UNTIL(atomic_load(&A.p->counts.refused) == 2 + i);
    }
    assert_int_equal(atomic_load(&A.p->counts.accepted), 0);
    assert_null(link_find(A.p, 5, false));
}

/* Each of these is said by a peer that knows the secret. */
static void liars_lose_their_link(void **state)
{
    static const struct { const char *name, *expected; struct tcp_frame f; } lies[] = {
        {"magic", "begins with UTF1", {.magic = 1, .type = TCP_ACK}},
        {"type", "known type", {.magic = TCP_MAGIC, .type = 77}},
        {"control too long", "at most 4096", {.magic = TCP_MAGIC, .type = TCP_CONTROL, .number = 1, .length = TCP_CONTROL_BYTES + 1}},
        {"control gap", "without a gap", {.magic = TCP_MAGIC, .type = TCP_GOODBYE, .number = 9}},
        {"message larger than 4 GB", "message of 1099511627776 bytes, offset 0, length 65536; expected was a slice", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 1ull << 40, .length = TCP_SLICE}},
        {"offset outside", "expected was a slice", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 100, .offset = TCP_SLICE, .length = 0}},
        {"offset not at a slice", "expected was a slice", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 200000, .offset = 5, .length = 100}},
        {"length not the rest", "expected was a slice", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 100, .length = 50}},
        {"slice too long", "expected was a slice", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 100000, .length = 100000}},
        {"beyond the credit", "that was granted", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 3, .bytes = 8, .length = 8, .shape_no = 1}},
        {"a shape that never was", "that was granted", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 8, .length = 8, .shape_no = 2}},
        {"grant of nothing", "grant of 1 to", {.magic = TCP_MAGIC, .type = TCP_GRANT, .number = 0, .shape_no = 1, .bytes = 0}},
        {"release of what was not sent", "release of what was sent", {.magic = TCP_MAGIC, .type = TCP_GRANT, .number = 4, .shape_no = 1, .bytes = 2}},
    };
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        int process = 10 + (int)i;
        struct net_link *l;
        struct net_end rx = {.next = 1}, tx = {.next = 1, .sending = true};
        uint64_t violations = atomic_load(&A.p->counts.violations);
        A.heard.downs = 0;
        int fd = insider(&A, "right", 7, process, 0, UNO_OK);
        uint64_t end = clock_ns() + LIMIT_NS;
        while ((!(l = link_find(A.p, process, false)) || !l->npaths) && clock_ns() < end)
            net_progress(A.p);
        assert_non_null(l);
        assert_int_equal(tcp_end_new(&rx, l, 1, 0, process), UNO_OK);
        assert_int_equal(tcp_end_new(&tx, l, 1, 0, process), UNO_OK);
        assert_int_equal(tcp_end_shape(&rx, 2, 1000), UNO_OK);
        assert_int_equal(tcp_end_shape(&tx, 2, 1000), UNO_OK);
        struct tcp_frame f = lies[i].f;
        f.comm_id = 1;
        f.source = f.type == TCP_GRANT ? 0 : process;
        f.destination = f.type == TCP_GRANT ? process : 0;
        assert_int_equal(sock_send_all(fd, &f, sizeof f, clock_after(1)), UNO_OK);
        while (!A.heard.downs && clock_ns() < end)
            net_progress(A.p);
        if (!A.heard.downs)
            fail_msg("not noticed: %s", lies[i].name);
        assert_int_equal(atomic_load(&A.p->counts.violations), violations + 1);
        assert_int_equal(A.heard.how, NET_DOWN_BROKEN);
        if (!strstr(A.heard.text, lies[i].expected))
            fail_msg("%s: \"%s\" is not in: %s", lies[i].name, lies[i].expected, A.heard.text);
        close(fd);
        fd = insider(&A, "right", 7, process, 0, UNO_OK); /* who comes back is told why */
        struct { struct tcp_frame f; char text[TCP_CONTROL_BYTES]; } told = {0};
        ssize_t got;
        while ((got = recv(fd, &told, sizeof told, MSG_DONTWAIT)) < 0 && clock_ns() < end)
            net_progress(A.p);
        assert_int_equal(told.f.type, TCP_CLOSED);
        assert_int_equal(got, sizeof told.f + told.f.length);
        assert_string_equal(told.text, A.heard.text);
        tcp_end_free(&rx);
        tcp_end_free(&tx);
        close(fd);
    }
}

/* Who is told that it broke the protocol gives the link up with that sentence, free of control characters. */
static void a_link_that_the_peer_closed_is_down(void **state)
{
    struct { struct tcp_frame f; char text[16]; } m = {.f = {.magic = TCP_MAGIC, .type = TCP_CLOSED, .length = 8}, .text = "sent \n it"};
    uint64_t end = clock_ns() + LIMIT_NS, violations = atomic_load(&A.p->counts.violations);
    A.heard.downs = 0;
    int fd = insider(&A, "right", 7, 60, 0, UNO_OK);
    assert_int_equal(sock_send_all(fd, &m, sizeof m.f + m.f.length, clock_after(1)), UNO_OK);
    while (!A.heard.downs && clock_ns() < end)
        net_progress(A.p);
    assert_int_equal(A.heard.downs, 1);
    assert_int_equal(A.heard.how, NET_DOWN_BROKEN);
    assert_string_equal(A.heard.text, "closed the connection for good, for the process of rank 0 sent ? i");
    assert_int_equal(atomic_load(&A.p->counts.violations), violations);
    close(fd);
}

/* A slice of a communicator that was shrunk away: read, dropped, counted; the link goes on. */
static void an_old_epoch_is_counted(void **state)
{
    static const char payload[8] = {0};
    struct net_link *l;
    int fd = insider(&A, "right", 7, 50, 0, UNO_OK);
    uint64_t end = clock_ns() + LIMIT_NS, stale = atomic_load(&A.p->counts.stale), violations = atomic_load(&A.p->counts.violations);
    while ((!(l = link_find(A.p, 50, false)) || !l->npaths) && clock_ns() < end)
        net_progress(A.p);
    assert_non_null(l);
    struct tcp_frame f = {.magic = TCP_MAGIC, .type = TCP_DATA, .comm_id = 99, .source = 50, .number = 1, .bytes = 8, .length = 8,
                          .shape_no = 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sock_send_all(fd, &f, sizeof f, clock_after(1)), UNO_OK);
        assert_int_equal(sock_send_all(fd, payload, sizeof payload, clock_after(1)), UNO_OK);
    }
    while (atomic_load(&A.p->counts.stale) < stale + 2 && clock_ns() < end)
        net_progress(A.p);
    assert_int_equal(atomic_load(&A.p->counts.stale), stale + 2);
    assert_int_equal(atomic_load(&A.p->counts.violations), violations);
    close(fd);
}

/* Random bytes and mutated frames from an authenticated peer: an error or nothing, never a crash. */
static void authenticated_noise_is_survived(void **state)
{
    struct rng r;
    rng_seed(&r, 77);
    for (int i = 0; i < 150; i++) {
        int process = 100 + i;
        struct net_link *l;
        struct net_end rx = {.next = 1}, tx = {.next = 1, .sending = true};
        int fd = insider(&A, "right", 7, process, 0, UNO_OK);
        uint64_t end = clock_ns() + LIMIT_NS;
        while ((!(l = link_find(A.p, process, false)) || !l->npaths) && clock_ns() < end)
            net_progress(A.p);
        assert_non_null(l);
        assert_int_equal(tcp_end_new(&rx, l, 1, 0, process), UNO_OK);
        assert_int_equal(tcp_end_shape(&rx, 2, 100000), UNO_OK);
        assert_int_equal(tcp_end_new(&tx, l, 1, 0, process), UNO_OK);
        assert_int_equal(tcp_end_shape(&tx, 2, 100000), UNO_OK);
        for (int j = 0; j < 20; j++) {
            struct tcp_frame f = {.magic = TCP_MAGIC, .type = (uint8_t)(1 + rng_below(&r, 6)), .comm_id = 1, .source = process,
                                  .number = 1 + (uint32_t)rng_below(&r, 3), .bytes = 70000, .shape_no = 1, .length = 65536};
            if (f.type == TCP_GRANT) {
                f.source = 0;
                f.destination = process;
            }
            if (f.type != TCP_DATA)
                f.length = f.type == TCP_CONTROL ? (uint32_t)rng_below(&r, 300) : 0;
            if (rng_below(&r, 4) == 0)
                ((unsigned char *)&f)[rng_below(&r, sizeof f)] = (unsigned char)rng_next(&r);
            static char body[65536];
            if (sock_send_all(fd, &f, sizeof f, clock_after(0.05)) != UNO_OK ||
                sock_send_all(fd, body, MIN(f.length, sizeof body), clock_after(0.05)) != UNO_OK)
                break;
            net_progress(A.p);
        }
        tcp_end_free(&rx);
        tcp_end_free(&tx);
        close(fd);
        net_progress(A.p);
    }
}

static void ipv6_alone_will_do(void **state)
{
    struct sock_iface *ifaces;
    size_t n;
    if (sock_interfaces("lo", AF_INET6, &ifaces, &n) != UNO_OK)
        skip(); /* no IPv6 on this host */
    free(ifaces);
    net_proc_free(A.p);
    net_proc_free(B.p);
    side_open_family(&A, 0, 2);
    side_open_family(&B, 1, 2);
    join();
    struct net_end tx, rx;
    end_open(&tx, &A, true, 0, 1);
    end_open(&rx, &B, false, 0, 1);
    assert_int_equal(tcp_end_shape(&tx, 2, 1000), UNO_OK);
    assert_int_equal(tcp_end_shape(&rx, 2, 1000), UNO_OK);
    stream(&tx, &rx, 50);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
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
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(messages_come_in_order), CASE(nothing_is_sent_without_credit), CASE(a_late_sender_asks),
        CASE(many_ends_share_the_sockets), CASE(shapes_change_between_messages), CASE(large_messages_are_cut_and_joined),
        CASE(a_message_larger_than_the_slot_is_a_mismatch), CASE(a_sender_that_leaves_early_is_heard),
        CASE(ends_may_go_in_the_middle), CASE(a_lost_path_loses_nothing), CASE(control_frames_come_once_and_in_order),
        CASE(goodbye_is_clean), CASE(goodbye_tells_the_exit_status), CASE(an_end_without_goodbye_is_told_apart), CASE(strangers_do_no_harm),
        CASE(the_wrong_secret_is_refused), CASE(liars_lose_their_link), CASE(a_link_that_the_peer_closed_is_down),
        CASE(an_old_epoch_is_counted), CASE(authenticated_noise_is_survived), CASE(ipv6_alone_will_do),
        CASE(each_allocation_may_fail), CASE(connecting_survives_lack_of_memory), CASE(a_forked_child_changes_nothing),
        CASE(callers_and_service_threads_share)};
    cmocka_set_test_filter(getenv("UNISONO_TEST")); /* one by name; NULL = all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
