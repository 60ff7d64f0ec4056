/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look from outside cuts nothing short: ranks sleep, and wait with time limits, in each way that a signal would end early, while
 * they are looked at again and again.
 */
#include "live.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- waits that a signal would end early, whatever its handler's flags; each returns whether its time was up --------------------- */

#define NAP_S 2
static const struct timespec nap_time = {NAP_S, 0};

static bool nap_sleep(void) { return sleep(NAP_S) == 0; }
static bool nap_nanosleep(void) { return nanosleep(&nap_time, NULL) == 0; }
static bool nap_poll(void) { return poll(&(struct pollfd){.fd = live.nothing[0], .events = POLLIN}, 1, NAP_S * 1000) == 0; }
static bool nap_select(void) { return select(0, NULL, NULL, NULL, &(struct timeval){NAP_S, 0}) == 0; }
static bool nap_epoll(void)
{
    struct epoll_event e;
    return epoll_wait(epoll_create1(EPOLL_CLOEXEC), &e, 1, NAP_S * 1000) == 0;
}
static bool nap_futex(void)
{
    uint32_t word = 0;
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &nap_time, NULL, 0) == -1 && errno == ETIMEDOUT;
}
static bool nap_sigtimedwait(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &nap_time) == -1 && errno == EAGAIN;
}
static bool nap_recv(void)
{
    int pair[2];
    char c;
    struct timeval limit = {NAP_S, 0};
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 &&
           setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 && read(pair[0], &c, 1) == -1 && errno == EAGAIN;
}
static bool nap_semaphore(void)
{
    int id = semget(IPC_PRIVATE, 1, 0600);
    bool up = id >= 0 && semtimedop(id, &(struct sembuf){0, -1, 0}, 1, &nap_time) == -1 && errno == EAGAIN;
    semctl(id, 0, IPC_RMID);
    return up;
}

static const struct { bool (*nap)(void); const char *calls; } naps[] = {
    {nap_sleep, "clock_nanosleep nanosleep"}, {nap_nanosleep, "clock_nanosleep nanosleep"}, {nap_poll, "poll ppoll"},
    {nap_select, "select pselect6"}, {nap_epoll, "epoll_wait epoll_pwait"}, {nap_futex, "futex"},
    {nap_sigtimedwait, "rt_sigtimedwait"}, {nap_recv, "read"}, {nap_semaphore, "semtimedop"}};

/* Order n is naps[n - 1]; it leaves how long it lasted, 1 if the call said something else than that its time was up. */
static void act(int what, uno_comm *comm, int rank)
{
    (void)comm;
    uint64_t began = clock_ns();
    bool up = naps[what - 1].nap();
    atomic_store(&live.shared->told[rank], up ? clock_ns() - began : 1);
}

static int setup(void **state)
{
    static const struct live_play play = {.name = "world", .position = "step", .act = act};
    (void)state;
    return live_start(&play);
}

static int teardown(void **state)
{
    (void)state;
    live_end();
    return 0;
}

/* The kernel may keep system calls from who is no tracer. */
static bool shows_calls(pid_t pid)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Sleeps and timed waits last their whole time, however often one looks; the system call and the stack are told. */
static void naps_go_on(void **state)
{
    (void)state;
    for (int first = 0; first < (int)ARRAY_LEN(naps); first += RANKS) {
        int n = MIN((int)ARRAY_LEN(naps) - first, RANKS), named = 0;
        for (int r = 0; r < n; r++) {
            atomic_store(&live.shared->told[r], 0);
            live_order(r, 1 + first + r);
        }
        for (uint64_t until = clock_ns() + LIMIT_NS;;) {
            bool all = true;
            for (int r = 0; r < n; r++)
                all = all && atomic_load(&live.shared->told[r]) != 0;
            if (all || clock_ns() > until)
                break;
            live_look();
            for (int r = 0; r < n; r++) {
                struct verdict_rank v;
                live_report(r, REPORT_EVENTS, &v);
                named |= v.process.syscall[0] && strstr(naps[first + r].calls, v.process.syscall) && (!UNWINDS || strstr(v.process.stack, "nap_")) ? 1 << r : 0;
                verdict_rank_free(&v);
            }
        }
        for (int r = 0; r < n; r++)
            if (atomic_load(&live.shared->told[r]) < NAP_S * 1000000000ull - 20000000)
                fail_msg("a wait in %s of %d s was cut to %.3f s", naps[first + r].calls, NAP_S, (double)atomic_load(&live.shared->told[r]) / 1e9);
        if (shows_calls(live.pids[0]))
            assert_int_equal(named, (1 << n) - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(naps_go_on, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
