/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_tcp_strangers.c - the TCP carrier and those who are none of the job, have a wrong secret, or lie. */
#include "net_sides.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    assert_true(atomic_load(&A.p->counts.refused) + atomic_load(&B.p->counts.refused) >= N * 9 / 10); /* some hang up before they say anything */
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

/* A launcher asks whether the port can be reached: it connects, and hangs up. Nobody was refused. Who begins to speak is. */
static void who_only_asks_is_not_counted(void **state)
{
    (void)state;
    for (int says = 0; says < 2; says++) {
        uint64_t before = atomic_load(&A.p->counts.refused), magic = AUTH_MAGIC;
        int accepted = A.p->naccepted, fd = stranger(&A);
        if (says)
            assert_int_equal(send(fd, &magic, 1, MSG_NOSIGNAL), 1);
        PUMP_UNTIL(A.p->naccepted > accepted);
        close(fd);
        PUMP_UNTIL(A.p->naccepted == accepted);
        assert_int_equal(atomic_load(&A.p->counts.refused), before + (uint64_t)says);
    }
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

/* A process with the secret has come, and there is an end each way with it. *fd: its side of the connection. */
static void insider_with_ends(int process, uint32_t stride, struct net_end *rx, struct net_end *tx, int *fd)
{
    struct net_link *l;
    *fd = insider(&A, "right", 7, process, 0, UNO_OK);
    uint64_t end = clock_ns() + LIMIT_NS;
    while ((!(l = link_find(A.p, process, false)) || !l->npaths) && clock_ns() < end)
        net_progress(A.p);
    assert_non_null(l);
    assert_int_equal(tcp_end_new(rx, l, 1, 0, process), UNO_OK);
    assert_int_equal(tcp_end_shape(rx, 2, stride), UNO_OK);
    assert_int_equal(tcp_end_new(tx, l, 1, 0, process), UNO_OK);
    assert_int_equal(tcp_end_shape(tx, 2, stride), UNO_OK);
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
        {"beyond the credit", "that was granted", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 2 * NET_FAR_SLOTS + 1, .bytes = 8, .length = 8, .shape_no = 1}},
        {"a shape that never was", "that was granted", {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 8, .length = 8, .shape_no = 2}},
        {"grant of nothing", "grant of 1 to", {.magic = TCP_MAGIC, .type = TCP_GRANT, .number = 0, .shape_no = 1, .bytes = 0}},
        {"release of what was not sent", "release of what was sent", {.magic = TCP_MAGIC, .type = TCP_GRANT, .number = 4, .shape_no = 1, .bytes = 2}},
    };
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        int process = 10 + (int)i, fd;
        struct net_end rx = {.next = 1}, tx = {.next = 1, .sending = true};
        uint64_t violations = atomic_load(&A.p->counts.violations);
        A.heard.downs = 0;
        insider_with_ends(process, 1000, &rx, &tx, &fd);
        uint64_t end = clock_ns() + LIMIT_NS;
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
        int process = 100 + i, fd;
        struct net_end rx = {.next = 1}, tx = {.next = 1, .sending = true};
        insider_with_ends(process, 100000, &rx, &tx, &fd);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(strangers_do_no_harm), CASE(who_only_asks_is_not_counted), CASE(the_wrong_secret_is_refused), CASE(liars_lose_their_link),
        CASE(a_link_that_the_peer_closed_is_down), CASE(an_old_epoch_is_counted), CASE(authenticated_noise_is_survived),
        CASE(ipv6_alone_will_do),
    };
    cmocka_set_test_filter(getenv("UNISONO_TEST")); /* one by name; NULL = all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
