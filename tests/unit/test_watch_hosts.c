/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stewards of three "hosts" over real sockets: ranks 0 and 1 on host 0, 2 and 3 on host 1, 4 alone on host 2, all of them
 * children of this process. They are killed, leave and abort; everyone has to know within a second, and nobody may be told of a
 * death that was none.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch/watch.h"

#define RANKS 5
#define LIMIT_NS 60000000000ull
static const int host_of[RANKS] = {0, 0, 1, 1, 2};

enum order { NONE, LEAVE, ABORT };

/* Shared by all; each word has one writer. */
static struct board {
    struct watch_member members[RANKS];
    _Atomic int there, started;
    _Atomic int order[RANKS];            /* written by the parent */
    _Atomic uint64_t dead_ns[RANKS][RANKS]; /* [observer][the dead]; release, after the text */
    char dead_text[RANKS][RANKS][512];
    _Atomic int left[RANKS][RANKS];
    _Atomic int aborted[RANKS];
    char abort_text[RANKS][512];
    _Atomic int goodbye[RANKS];
} *board;

static int self;

static void on_dead(void *arg, int process, const char *text)
{
    (void)arg;
    snprintf(board->dead_text[self][process], 512, "%s", text);
    board->dead_ns[self][process] = clock_ns();
}
static void on_left(void *arg, int process, const char *text)
{
    (void)arg;
    (void)text;
    board->left[self][process] = 1;
}
static void on_abort(void *arg, uint64_t comm_id, uno_err code, int rank, const char *text)
{
    (void)arg;
    snprintf(board->abort_text[self], 512, "%d %d %d %s", (int)comm_id, (int)code, rank, text);
    board->aborted[self] = 1;
}
static bool said_goodbye(void *arg, int process)
{
    (void)arg;
    return board->goodbye[process];
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", self, what, err_text());
    _exit(99);
}

static bool wait_count(_Atomic int *word, int n)
{
    uint64_t until = clock_ns() + LIMIT_NS;
    while (*word < n && clock_ns() < until)
        usleep(500);
    return *word >= n;
}

static void child_main(void)
{
    struct config cfg = {.socket_ifname = "lo", .socket_family = 1, .socket_count = 2};
    struct watch *w = NULL;
    struct net_proc *net = NULL;
    must(watch_new(&w) == UNO_OK, "watch_new");
    struct net_proc_options o = {.cfg = &cfg, .job = 7, .self = self, .on_control = watch_on_control, .on_down = watch_on_down,
                                 .arg = w};
    auth_derive(&o.key, "right", 5);
    must(net_proc_new(&o, &net) == UNO_OK, "net_proc_new");
    struct watch_member *m = &board->members[self];
    *m = (struct watch_member){.process = self, .host = host_of[self], .pid = getpid(), .start_ticks = watch_start_ticks(getpid())};
    snprintf(m->hostname, sizeof m->hostname, "host%d", m->host);
    net_proc_address(net, &m->book);
    board->there++;
    must(wait_count(&board->there, RANKS), "all there");
    struct watch_options opt = {.cfg = &cfg, .rank = self, .size = RANKS, .members = board->members, .net = net, .on_dead = on_dead,
                                .on_left = on_left, .on_abort = on_abort, .said_goodbye = said_goodbye};
    must(watch_start(&opt, &w) == UNO_OK, "watch_start");
    board->started++;
    must(wait_count(&board->order[self], 1), "an order");
    if (board->order[self] == ABORT) {
        watch_abort(w, 77, UNO_ERR_TIMEOUT, self, "too slow", (int[]){0, 1, 2, 4}, 4);
        board->order[self] = NONE;
        must(wait_count(&board->order[self], 1), "an order");
    }
    board->goodbye[self] = 1;
    watch_goodbye(w, false);
    net_proc_drain(net, 1000000000);
    watch_stop(w);
    net_proc_free(net);
    _exit(0);
}

static pid_t pids[RANKS];

static int setup(void **state)
{
    (void)state;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (self = 0; self < RANKS; self++) {
        pids[self] = fork();
        if (pids[self] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on with the next test here, and fork again */
            child_main();
        }
    }
    bool up = wait_count(&board->started, RANKS);
    usleep(100000); /* the links between hubs need a moment; no test depends on how long */
    return up ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        if (pids[r] <= 0)
            continue;
        kill(pids[r], SIGKILL);
        waitpid(pids[r], NULL, 0);
    }
    return munmap(board, sizeof *board);
}

static int left_with(int r)
{
    int status = -1;
    waitpid(pids[r], &status, 0);
    pids[r] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Everyone alive has to hear of `dead` within a second. */
static void assert_all_know(int dead, uint64_t since, const bool *alive)
{
    uint64_t latest = 0;
    for (int r = 0; r < RANKS; r++) {
        if (!alive[r])
            continue;
        uint64_t until = clock_ns() + 3000000000u, at;
        while (!(at = board->dead_ns[r][dead]) && clock_ns() < until)
            usleep(500);
        if (!at)
            fail_msg("rank %d never heard that rank %d is dead", r, dead);
        latest = MAX(latest, at - since);
    }
    for (int r = 0; r < RANKS; r++)
        if (alive[r]) {
            print_message("all knew after %.1f ms: %s\n", (double)latest / 1e6, board->dead_text[r][dead]);
            break;
        }
    assert_true(latest < 1000000000u);
}

static void assert_nobody_else(const bool *alive)
{
    for (int r = 0; r < RANKS; r++)
        for (int d = 0; d < RANKS; d++)
            if (alive[r] && alive[d] && board->dead_ns[r][d])
                fail_msg("rank %d took rank %d for dead: %s", r, d, board->dead_text[r][d]);
}

static void a_death_is_told_by_its_hosts_hub(void **state)
{
    (void)state;
    uint64_t since = clock_ns();
    kill(pids[3], SIGKILL);
    const bool alive[RANKS] = {1, 1, 1, 0, 1};
    assert_all_know(3, since, alive);
    char want[128];
    snprintf(want, sizeof want, "rank 3 (pid %d on host1) was killed by signal 9 (SIGKILL)", (int)pids[3]);
    for (int r = 0; r < RANKS; r++)
        if (alive[r])
            assert_string_equal(board->dead_text[r][3], want);
    usleep(400000);
    assert_nobody_else(alive);
}

static void the_next_one_tells_of_a_dead_hub(void **state)
{
    (void)state;
    uint64_t since = clock_ns();
    kill(pids[0], SIGKILL);
    const bool alive[RANKS] = {0, 1, 1, 1, 1};
    assert_all_know(0, since, alive);
    assert_non_null(strstr(board->dead_text[4][0], "was killed by signal 9"));
    usleep(700000); /* a process killed with unread bytes resets its connections, and a reset is no proof of death */
    since = clock_ns();
    kill(pids[1], SIGKILL); /* and now the host is empty */
    const bool rest[RANKS] = {0, 0, 1, 1, 1};
    assert_all_know(1, since, rest);
    usleep(400000);
    assert_nobody_else(rest);
}

static void a_host_that_dies_as_a_whole_is_noticed(void **state)
{
    (void)state;
    uint64_t since = clock_ns();
    kill(pids[4], SIGKILL);
    const bool alive[RANKS] = {1, 1, 1, 1, 0};
    assert_all_know(4, since, alive);
    usleep(400000);
    assert_nobody_else(alive);
}

static void leaving_is_no_death(void **state)
{
    (void)state;
    const bool all[RANKS] = {1, 1, 1, 1, 1};
    for (int r = RANKS - 1; r >= 0; r -= 2) { /* 4, 2, 0: all the hubs */
        board->order[r] = LEAVE;
        assert_int_equal(left_with(r), 0);
    }
    assert_true(wait_count(&board->left[1][0], 1));
    assert_true(wait_count(&board->left[3][2], 1));
    usleep(1000000); /* the next hubs find each other */
    assert_nobody_else(all);
    /* The next ones have taken over. */
    uint64_t since = clock_ns();
    kill(pids[1], SIGKILL);
    while (!board->dead_ns[3][1] && clock_ns() - since < 2000000000u)
        usleep(500);
    print_message("rank 3 was told of rank 1 after %.1f ms\n", (double)(board->dead_ns[3][1] - since) / 1e6);
    assert_true(board->dead_ns[3][1] && board->dead_ns[3][1] - since < 1000000000u);
}

static void an_abort_reaches_the_members_on_other_hosts(void **state)
{
    (void)state;
    board->order[1] = ABORT;
    assert_true(wait_count(&board->aborted[2], 1));
    assert_true(wait_count(&board->aborted[4], 1));
    char want[64];
    snprintf(want, sizeof want, "77 %d 1 too slow", (int)UNO_ERR_TIMEOUT);
    assert_string_equal(board->abort_text[2], want);
    usleep(50000);
    assert_int_equal(board->aborted[0], 0); /* its own host is told by memory, not by the steward */
    assert_int_equal(board->aborted[3], 0); /* not a member */
    for (int r = 0; r < RANKS; r++) {
        while (board->order[r] != NONE)
            usleep(500);
        board->order[r] = LEAVE;
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(left_with(r), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_death_is_told_by_its_hosts_hub), CASE(the_next_one_tells_of_a_dead_hub),
        CASE(a_host_that_dies_as_a_whole_is_noticed), CASE(leaving_is_no_death),
        CASE(an_abort_reaches_the_members_on_other_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
