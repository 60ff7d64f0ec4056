/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base_auth.h"
#include "base/base_sock.h"

struct both { uno_err initiator, acceptor; char initiator_text[512], acceptor_text[512]; struct auth_session i, a; };

static void tcp_pair(int fd[2])
{
    int l;
    uint16_t port;
    char text[32];
    struct sock_addr to;
    assert_int_equal(sock_listen(0, &l, &port), UNO_OK);
    snprintf(text, sizeof text, "127.0.0.1:%u", port);
    assert_int_equal(sock_parse(text, &to), UNO_OK);
    assert_int_equal(sock_connect(&to, clock_after(5), &fd[0]), UNO_OK);
    while ((fd[1] = accept(l, NULL, NULL)) < 0)
        ;
    assert_int_equal(sock_tune(fd[1]), UNO_OK);
    close(l);
}

/* Run both ends in turn until both are decided; a failed end closes, as its owner would. */
static void shake(const struct auth_key *ki, const struct auth_key *ka, struct both *b)
{
    int fd[2];
    tcp_pair(fd);
    memset(b, 0, sizeof *b);
    b->i.hello = (struct auth_hello){.role = AUTH_DATA, .job = 77, .epoch = 3, .from = 1, .to = 2, .connection = 4, .extra = 5};
    auth_start(&b->i, ki, true);
    auth_start(&b->a, ka, false);
    b->initiator = b->acceptor = UNO_ERR_IN_PROGRESS;
    while (b->initiator == UNO_ERR_IN_PROGRESS || b->acceptor == UNO_ERR_IN_PROGRESS) {
        if (b->initiator == UNO_ERR_IN_PROGRESS) {
            b->initiator = auth_step(&b->i, fd[0]);
            snprintf(b->initiator_text, sizeof b->initiator_text, "%s", err_text());
            if (b->initiator == UNO_OK)
                assert_int_equal(sock_send_all(fd[0], "next", 4, clock_after(1)), UNO_OK);
            else if (b->initiator != UNO_ERR_IN_PROGRESS)
                shutdown(fd[0], SHUT_RDWR);
        }
        if (b->acceptor == UNO_ERR_IN_PROGRESS) {
            b->acceptor = auth_step(&b->a, fd[1]);
            snprintf(b->acceptor_text, sizeof b->acceptor_text, "%s", err_text());
            if (b->acceptor != UNO_ERR_IN_PROGRESS && b->acceptor != UNO_OK)
                shutdown(fd[1], SHUT_RDWR);
        }
    }
    if (b->acceptor == UNO_OK) { /* what follows the handshake is untouched */
        char data[4];
        assert_int_equal(sock_recv_all(fd[1], data, 4, clock_after(1)), UNO_OK);
        assert_memory_equal(data, "next", 4);
    }
    close(fd[0]);
    close(fd[1]);
}

static struct auth_key key_of(const char *secret)
{
    struct auth_key k;
    auth_derive(&k, secret, strlen(secret));
    return k;
}

static void equal_secrets_meet(void **state)
{
    struct auth_key k = key_of("one"), k2 = key_of("one");
    struct both b;
    shake(&k, &k2, &b);
    assert_int_equal(b.initiator, UNO_OK);
    assert_int_equal(b.acceptor, UNO_OK);
    assert_int_equal(b.a.hello.job, 77);
    assert_int_equal(b.a.hello.from, 1);
    assert_int_equal(b.a.hello.connection, 4);
    assert_int_equal(b.a.hello.role, AUTH_DATA);
}

static void other_secrets_do_not(void **state)
{
    struct auth_key k = key_of("one"), k2 = key_of("two");
    struct both b;
    shake(&k, &k2, &b);
    assert_int_equal(b.initiator, UNO_ERR_AUTH);
    assert_int_equal(b.acceptor, UNO_ERR_AUTH);
    assert_non_null(strstr(b.initiator_text, "127.0.0.1:"));
    assert_non_null(strstr(b.initiator_text, "secret"));
    assert_non_null(strstr(b.acceptor_text, "127.0.0.1:"));
}

static void none_meets_only_none(void **state)
{
    struct auth_key k = key_of("one"), none = {.none = true}, zero = {0}, fake = {.secret = "UNISONO_AUTH=none"};
    struct both b;
    shake(&none, &none, &b);
    assert_int_equal(b.initiator, UNO_OK);
    assert_int_equal(b.acceptor, UNO_OK);
    const struct auth_key *others[] = {&k, &zero, &fake};
    for (int i = 0; i < 3; i++) {
        shake(&none, others[i], &b);
        assert_int_equal(b.acceptor, UNO_ERR_AUTH);
        assert_int_equal(b.initiator, UNO_ERR_AUTH);
        assert_non_null(strstr(b.acceptor_text, "UNISONO_AUTH=none"));
        shake(others[i], &none, &b);
        assert_int_equal(b.acceptor, UNO_ERR_AUTH);
        assert_int_equal(b.initiator, UNO_ERR_AUTH);
    }
}

static void garbage_is_refused_at_its_first_bytes(void **state)
{
    struct auth_key k = key_of("one");
    static const char *const junk[] = {"G", "GET / HTTP/1.1\r\n\r\n", "UNIXxx"};
    for (size_t i = 0; i < ARRAY_LEN(junk); i++) {
        int fd[2];
        tcp_pair(fd);
        struct auth_session a = {0};
        auth_start(&a, &k, false);
        assert_int_equal(sock_send_all(fd[0], junk[i], strlen(junk[i]), clock_after(1)), UNO_OK);
        assert_int_equal(auth_run(&a, fd[1], clock_after(1)), UNO_ERR_AUTH);
        assert_non_null(strstr(err_text(), "not a unisono handshake"));
        assert_non_null(strstr(err_text(), "127.0.0.1:"));
        close(fd[0]);
        close(fd[1]);
    }
}

static void every_flipped_bit_is_refused(void **state)
{
    struct auth_key k = key_of("one");
    for (size_t at = 0; at < sizeof(struct auth_hello) + AUTH_MAC_BYTES; at++) {
        int fd[2];
        struct auth_session i = {0}, a = {0};
        uint8_t wire[AUTH_NONCE_BYTES + AUTH_MAC_BYTES];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
        int to_i[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, to_i), 0);
        auth_start(&i, &k, true);
        auth_start(&a, &k, false);
        /* initiator speaks on to_i[0], acceptor on fd[1]; this test carries the bytes between them and flips one */
        uint8_t hello[sizeof(struct auth_hello)], proof[AUTH_MAC_BYTES];
        assert_int_equal(auth_step(&i, to_i[0]), UNO_ERR_IN_PROGRESS);
        assert_int_equal(sock_recv_all(to_i[1], hello, sizeof hello, clock_after(1)), UNO_OK);
        uint8_t sent[sizeof hello];
        memcpy(sent, hello, sizeof hello);
        if (at < sizeof hello)
            sent[at] ^= 0x10;
        assert_int_equal(sock_send_all(fd[0], sent, sizeof sent, clock_after(1)), UNO_OK);
        uno_err e = auth_step(&a, fd[1]);
        if (e == UNO_ERR_IN_PROGRESS) {
            assert_int_equal(sock_recv_all(fd[0], wire, sizeof wire, clock_after(1)), UNO_OK);
            assert_int_equal(sock_send_all(to_i[1], wire, sizeof wire, clock_after(1)), UNO_OK);
            uno_err ei = auth_step(&i, to_i[0]);
            if (at < sizeof hello) {
                assert_int_equal(ei, UNO_ERR_AUTH);
            } else {
                assert_int_equal(ei, UNO_OK);
                assert_int_equal(sock_recv_all(to_i[1], proof, sizeof proof, clock_after(1)), UNO_OK);
                proof[at - sizeof hello] ^= 1;
                assert_int_equal(sock_send_all(fd[0], proof, sizeof proof, clock_after(1)), UNO_OK);
                assert_int_equal(auth_step(&a, fd[1]), UNO_ERR_AUTH);
            }
        } else {
            assert_int_equal(e, UNO_ERR_AUTH);
        }
        for (int n = 0; n < 2; n++) {
            close(fd[n]);
            close(to_i[n]);
        }
    }
}

/* Who gives up half-way is told from a stranger, before and after the acceptor has answered, by who knows the secret alone. */
static void who_gives_up_is_no_stranger(void **state)
{
    enum { GIVES_UP, HANGS_UP, OTHER_SECRET, WAYS };
    struct auth_key k = key_of("one"), k2 = key_of("two");
    for (int way = 0; way < WAYS; way++)
        for (int answered = 0; answered < 2; answered++) {
            int fd[2];
            tcp_pair(fd);
            struct auth_session i = {0}, a = {0};
            auth_start(&i, way == OTHER_SECRET ? &k2 : &k, true);
            auth_start(&a, &k, false);
            assert_int_equal(auth_step(&i, fd[0]), UNO_ERR_IN_PROGRESS);
            for (uint64_t end = clock_after(0.05); answered && clock_ns() < end;)
                assert_int_equal(auth_step(&a, fd[1]), UNO_ERR_IN_PROGRESS);
            if (way != HANGS_UP)
                auth_give_up(&i, fd[0]);
            close(fd[0]);
            assert_int_equal(auth_run(&a, fd[1], clock_after(5)), UNO_ERR_AUTH);
            assert_int_equal(a.left, way == GIVES_UP);
            close(fd[1]);
        }
}

/* A late proof is waited for longer, once, where HELLO names the own job. */
static void our_own_may_be_late(void **state)
{
    enum { OURS, SILENT, OTHER_JOB, WAYS };
    struct auth_key k = key_of("one");
    for (int way = 0; way < WAYS; way++) {
        int fd[2];
        tcp_pair(fd);
        struct auth_session i = {0}, a = {0};
        i.hello.job = 77;
        auth_start(&i, &k, true);
        auth_start(&a, &k, false);
        a.own_job = way == OTHER_JOB ? 78 : 77;
        if (way != SILENT)
            assert_int_equal(auth_step(&i, fd[0]), UNO_ERR_IN_PROGRESS);
        for (uint64_t end = clock_after(0.05); clock_ns() < end;)
            assert_int_equal(auth_step(&a, fd[1]), UNO_ERR_IN_PROGRESS);
        a.deadline_ns = clock_ns();
        assert_int_equal(auth_step(&a, fd[1]), way == OURS ? UNO_ERR_IN_PROGRESS : UNO_ERR_AUTH);
        if (way == OURS) {
            assert_in_range(a.deadline_ns - clock_ns(), 7000000000u, 8000000000u);
            a.deadline_ns = clock_ns();
            assert_int_equal(auth_step(&a, fd[1]), UNO_ERR_AUTH);
            assert_false(a.left);
        }
        close(fd[0]);
        close(fd[1]);
    }
}

static void silence_ends_in_time(void **state)
{
    struct auth_key k = key_of("one");
    int fd[2];
    tcp_pair(fd);
    struct auth_session a = {0};
    auth_start(&a, &k, false);
    assert_in_range(a.deadline_ns - clock_ns(), 1500000000u, 2000000000u);
    uint64_t start = clock_ns();
    assert_int_equal(auth_run(&a, fd[1], clock_after(0.05)), UNO_ERR_AUTH);
    assert_in_range(clock_ns() - start, 40000000u, 1500000000u);
    assert_non_null(strstr(err_text(), "in time"));
    close(fd[0]);
    close(fd[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_secrets_meet),
        cmocka_unit_test(other_secrets_do_not),
        cmocka_unit_test(none_meets_only_none),
        cmocka_unit_test(garbage_is_refused_at_its_first_bytes),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(who_gives_up_is_no_stranger), cmocka_unit_test(our_own_may_be_late),
        cmocka_unit_test(silence_ends_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
