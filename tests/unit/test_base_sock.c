/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base_sock.h"

static void addresses_are_read_and_written(void **state)
{
    static const struct { const char *in, *out; } good[] = {
        {"127.0.0.1:80", "127.0.0.1:80"}, {"[::1]:65535", "[::1]:65535"}, {"[::ffff:10.0.0.1]:5", "10.0.0.1:5"},
        {"[fe80::1%lo]:7", "[fe80::1%lo]:7"}, {"0.0.0.0:0", "0.0.0.0:0"}};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct sock_addr a;
        char text[SOCK_TEXT_BYTES];
        assert_int_equal(sock_parse(good[i].in, &a), UNO_OK);
        assert_string_equal(sock_text(&a, text, sizeof text), good[i].out);
    }
    static const struct { const char *in; uno_err err; const char *says; } bad[] = {
        {"", UNO_ERR_PARSE, "host:port"}, {"host", UNO_ERR_PARSE, "host:port"}, {":80", UNO_ERR_PARSE, "host:port"},
        {"h:", UNO_ERR_PARSE, "host:port"}, {"h:65536", UNO_ERR_PARSE, "65535"}, {"h:x", UNO_ERR_PARSE, "65535"},
        {"h:-1", UNO_ERR_PARSE, "65535"}, {"::1:80", UNO_ERR_PARSE, "[address]:port"}, {"[::1]80", UNO_ERR_PARSE, "host:port"},
        {"[::1:80", UNO_ERR_PARSE, "host:port"}, {"no.such.host.invalid:1", UNO_ERR_UNREACHABLE, "no.such.host.invalid"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct sock_addr a;
        assert_int_equal(sock_parse(bad[i].in, &a), bad[i].err);
        assert_non_null(strstr(err_text(), bad[i].says));
    }
}

static void filters_have_nccls_syntax(void **state)
{
    static const struct { const char *name, *filter; bool match; } cases[] = {
        {"eth0", "", true}, {"lo", "", false}, {"docker0", "", false}, {"virbr0", "", false}, {"lowpan0", "", true},
        {"eth0", NULL, true}, {"eth0", "eth", true}, {"eth1", "eth0", false}, {"eth01", "eth0", true},
        {"eth01", "=eth0", false}, {"eth0", "=eth0", true}, {"ib0", "eth,ib", true}, {"eth0", "^eth", false},
        {"ib0", "^eth", true}, {"docker0", "^eth", false}, {"lo", "^docker0", false}, {"eth01", "^=eth0", true},
        {"eth0", "^=eth0", false}, {"eth1", "^eth0,eth1", false}, {"lo", "lo", true}, {"docker0", "docker0", true},
        {"eth0", "eth0:5000", true}, {"eth0", "^", true}, {"lo", "=", false}, {"eth0", ",,eth0", true}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (sock_iface_match(cases[i].name, cases[i].filter) != cases[i].match)
            fail_msg("%s with \"%s\"", cases[i].name, cases[i].filter);
}

static void loopback_is_found_when_asked_for(void **state)
{
    struct sock_iface *list;
    size_t n;
    assert_int_equal(sock_interfaces("lo", AF_INET, &list, &n), UNO_OK);
    assert_true(n >= 1);
    assert_string_equal(list[0].name, "lo");
    assert_true(list[0].loopback);
    free(list);
    assert_int_equal(sock_interfaces("", 0, &list, &n), UNO_OK);
    bool only_loopback = true;
    for (size_t i = 0; i < n; i++)
        only_loopback &= list[i].loopback;
    for (size_t i = 0; i < n; i++)
        assert_true(list[i].loopback == only_loopback); /* loopback never beside something better */
    free(list);
}

static void a_filter_that_leaves_nothing_lists_what_there_is(void **state)
{
    struct sock_iface *list;
    size_t n;
    assert_int_equal(sock_interfaces("=nosuch0", 0, &list, &n), UNO_ERR_UNREACHABLE);
    assert_non_null(strstr(err_text(), "nosuch0"));
    assert_non_null(strstr(err_text(), "lo"));
}

enum { CHILD_GOOD, CHILD_BAD, CHILD_CANNOT };

/* In a network namespace of its own: a link whose other end is down has an address and no carrier. */
static int look_without_a_carrier(void)
{
    struct sock_iface *list;
    size_t n;
    if (unshare(CLONE_NEWNET) != 0 || system("{ ip link set lo up && ip link add c0 type veth peer name c1 && ip addr add 10.9.9.1/24 dev c0 && "
                                             "ip link set c0 up; } >/dev/null 2>&1") != 0)
        return CHILD_CANNOT;
    if (sock_interfaces("", AF_INET, &list, &n) != UNO_OK || n != 1 || strcmp(list[0].name, "c0") != 0)
        return CHILD_BAD;
    free(list);
    bool refused = sock_interfaces("=c0", AF_INET, &list, &n) == UNO_ERR_UNREACHABLE; /* who asks for it wants it to work */
    return refused ? CHILD_GOOD : CHILD_BAD;
}

static void a_link_without_a_carrier_comes_before_loopback(void **state)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(look_without_a_carrier());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_CANNOT)
        skip();
    assert_int_equal(WEXITSTATUS(status), CHILD_GOOD);
}

static void *late_listener(void *arg)
{
    uint16_t *port = arg, got;
    int fd;
    struct timespec ts = {.tv_nsec = 30000000};
    nanosleep(&ts, NULL);
    assert_int_equal(sock_listen(*port, &fd, &got), UNO_OK);
    struct sock_addr peer = {.len = sizeof peer.u};
    int conn;
    while ((conn = accept(fd, &peer.u.sa, &peer.len)) < 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(sock_send_all(conn, "hello", 5, clock_after(5)), UNO_OK);
    close(conn);
    close(fd);
    return NULL;
}

static void connect_waits_for_a_listener_and_reads_have_deadlines(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "[::1]"};
    for (int i = 0; i < 2; i++) {
        int fd;
        uint16_t port;
        char text[64], data[8];
        assert_int_equal(sock_listen(0, &fd, &port), UNO_OK);
        close(fd);
        struct sock_addr to;
        snprintf(text, sizeof text, "%s:%u", hosts[i], port);
        assert_int_equal(sock_parse(text, &to), UNO_OK);
        int probe = socket(to.u.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0); /* a host without IPv6 skips ::1 */
        bool here = probe >= 0 && bind(probe, &to.u.sa, to.len) == 0;
        if (probe >= 0)
            close(probe);
        if (!here)
            continue;
        assert_int_equal(sock_connect(&to, clock_after(0.02), &fd), UNO_ERR_UNREACHABLE);
        assert_non_null(strstr(err_text(), text));
        pthread_t t;
        pthread_create(&t, NULL, late_listener, &port);
        assert_int_equal(sock_connect(&to, clock_after(5), &fd), UNO_OK);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(sock_recv_all(fd, data, 5, clock_after(5)), UNO_OK);
        assert_memory_equal(data, "hello", 5);
        assert_int_equal(sock_recv_all(fd, data, 1, clock_after(5)), UNO_ERR_UNREACHABLE);
        pthread_join(t, NULL);
        close(fd);
    }
}

static void deadlines_and_full_peers(void **state)
{
    int pair[2];
    char data[1];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(sock_tune(pair[0]), UNO_OK);
    assert_int_equal(sock_recv_all(pair[0], data, 1, clock_after(0.01)), UNO_ERR_TIMEOUT);
    char *big = calloc(1, 8u << 20);
    assert_int_equal(sock_send_all(pair[0], big, 8u << 20, clock_after(0.01)), UNO_ERR_TIMEOUT);
    close(pair[1]);
    assert_int_equal(sock_send_all(pair[0], big, 1, clock_after(1)), UNO_ERR_UNREACHABLE); /* and no SIGPIPE */
    free(big);
    close(pair[0]);
}

static void a_port_in_use_and_no_descriptors_are_said(void **state)
{
    int fd, other;
    uint16_t port;
    assert_int_equal(sock_listen(0, &fd, &port), UNO_OK);
    assert_int_equal(sock_listen(port, &other, &port), UNO_ERR_SYSTEM);
    assert_non_null(strstr(err_text(), "in use"));
    close(fd);
    fault_arm("socket", 1);
    assert_int_equal(sock_listen(0, &fd, &port), UNO_ERR_SYSTEM);
    assert_non_null(strstr(err_text(), "open files"));
    struct sock_addr to;
    assert_int_equal(sock_parse("127.0.0.1:1", &to), UNO_OK);
    fault_arm("socket", 1);
    assert_int_equal(sock_connect(&to, clock_after(1), &fd), UNO_ERR_SYSTEM);
    fault_arm(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_and_written),
        cmocka_unit_test(filters_have_nccls_syntax),
        cmocka_unit_test(loopback_is_found_when_asked_for),
        cmocka_unit_test(a_filter_that_leaves_nothing_lists_what_there_is),
        cmocka_unit_test(a_link_without_a_carrier_comes_before_loopback),
        cmocka_unit_test(connect_waits_for_a_listener_and_reads_have_deadlines),
        cmocka_unit_test(deadlines_and_full_peers),
        cmocka_unit_test(a_port_in_use_and_no_descriptors_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
