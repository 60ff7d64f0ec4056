/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launcher tells of how processes ended: the table as launchers write it and as ranks find it, also when the descriptor is
 * something else by now; and a steward that sees connections close and looks there.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base_config.h"
#include "unisono_watch.h"
#include "watch/watch.h"
#include "watch/watch_ends.h"
#include "watch/watch_frame.h"

#define PATIENCE_S 30
#define RANKS 4

static struct ends *table;
static char number[16]; /* of its descriptor */

static int setup(void **state)
{
    (void)state;
    if (ends_new(RANKS, &table) != UNO_OK)
        return -1;
    snprintf(number, sizeof number, "%d", ends_fd(table));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ends_free(table);
    return 0;
}

static void seen(int rank, int pid, int status)
{
    uno_end end;
    ends_seen(table, rank, pid, status, &end);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------ */

static void what_is_told_is_found(void **state)
{
    (void)state;
    uno_end end = {0};
    char text[400];
    struct ends *reader = ends_open(number);
    assert_non_null(reader);
    uint32_t before = ends_changes(reader);
    assert_false(ends_find(reader, 1, 101, &end));
    seen(1, 101, SIGKILL);
    assert_int_not_equal(ends_changes(reader), before);
    assert_true(ends_find(reader, 1, 101, &end));
    assert_int_equal(end.kind, UNO_END_SEEN);
    assert_string_equal(ends_text(&end, text, sizeof text), "was killed by signal 9 (SIGKILL)");
    assert_false(ends_find(reader, 1, 102, &end)); /* a child of the one that was started: nobody waited for it */
    assert_false(ends_find(reader, -1, 101, &end));
    assert_false(ends_find(reader, RANKS, 101, &end));
    seen(1, 101, 3 << 8); /* what was told is final */
    assert_true(ends_find(reader, 1, 101, &end));
    assert_int_equal(end.status, SIGKILL);
    seen(2, 102, 3 << 8);
    assert_true(ends_find(reader, 2, 102, &end));
    assert_string_equal(ends_text(&end, text, sizeof text), "exited with status 3");
    ends_close(reader);
}

static void an_agent_that_ends_its_ranks_says_so(void **state)
{
    (void)state;
    static const struct { int signal; const char *text; } why[] = {
        {SIGTERM, "was ended by the agent of unisono run on its host, which was itself ended by signal 15 (SIGTERM)"},
        {0, "was ended by the agent of unisono run on its host, which had lost its launcher"}};
    uno_end end;
    char text[400];
    int sig;
    struct ends *reader = ends_open(number);
    assert_false(ends_begun(reader, &sig));
    for (int i = 0; i < 2; i++) {
        ends_begin(table, why[i].signal);
        assert_true(ends_begun(reader, &sig));
        assert_int_equal(sig, why[i].signal);
        seen(2 * i, 100, SIGKILL);
        seen(2 * i + 1, 101, SIGSEGV); /* that was not the agent */
        assert_true(ends_find(reader, 2 * i, 100, &end));
        assert_string_equal(ends_text(&end, text, sizeof text), why[i].text);
        assert_true(ends_find(reader, 2 * i + 1, 101, &end));
        assert_int_equal(end.kind, UNO_END_SEEN);
    }
    ends_close(reader);
}

static void other_hosts_are_put_and_nonsense_is_not(void **state)
{
    (void)state;
    uno_end end = {.kind = UNO_END_SEEN, .rank = 3, .pid = 7, .status = SIGKILL, .oom_kill = 1, .cgroup = "/sys\033[31m"}, found;
    char text[400];
    for (int i = 0; i < 5; i++) {
        uno_end bad = end;
        *(i < 2 ? &bad.kind : i < 4 ? &bad.rank : &bad.signal) = (int[]){0, UNO_END_LOST + 1, -1, RANKS, NSIG}[i];
        assert_int_equal(ends_put(table, &bad), UNO_ERR_PARSE);
    }
    assert_int_equal(ends_put(table, &end), UNO_OK);
    struct ends *reader = ends_open(number);
    assert_true(ends_find(reader, 3, 7, &found));
    assert_string_equal(ends_text(&found, text, sizeof text),
                        "was killed by signal 9 (SIGKILL), for the kernel was out of memory (oom_kill in memory.events of /sys?[31m)");
    ends_close(reader);
}

/* A cgroup that counts kills, as a folder. */
static void count_kills(const char *dir, int kills)
{
    char path[200], text[40];
    snprintf(path, sizeof path, "%s/memory.events", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int n = snprintf(text, sizeof text, "oom 5\noom_kill %d\n", kills);
    assert_int_equal(write(fd, text, (size_t)n), n);
    close(fd);
}

static void one_kill_for_want_of_memory_explains_one_end(void **state)
{
    (void)state;
    char dir[] = "/tmp/unisono-ends-XXXXXX", path[200];
    uno_end end[RANKS];
    assert_non_null(mkdtemp(dir));
    count_kills(dir, 2);
    struct ends *reader = ends_open(number);
    for (int r = 0; r < RANKS - 1; r++)
        ends_note(reader, r, dir, 2);
    ends_note(reader, -1, dir, 0);
    ends_note(reader, RANKS, dir, 0);
    count_kills(dir, 3);
    ends_seen(table, 0, 100, SIGTERM, &end[0]); /* the kernel sends SIGKILL */
    ends_seen(table, 1, 101, SIGKILL, &end[1]);
    ends_seen(table, 2, 102, SIGKILL, &end[2]);
    ends_seen(table, 3, 103, SIGKILL, &end[3]); /* noted nothing */
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(end[r].oom_kill, r == 1);
    assert_string_equal(end[1].cgroup, dir);
    ends_close(reader);
    snprintf(path, sizeof path, "%s/memory.events", dir);
    unlink(path);
    rmdir(dir);
}

static void what_is_no_table_is_not_used(void **state)
{
    (void)state;
    char text[16];
    assert_null(ends_open(NULL));
    assert_null(ends_open(""));
    assert_null(ends_open("many"));
    assert_null(ends_open("1048575")); /* nothing is open there */
    int pair[2], fd[3] = {open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING), -1};
    assert_int_equal(pipe(pair), 0);
    fd[2] = pair[0];
    for (int sized = 0; sized < 2; sized++) { /* without seals; then sealed, as large as a table, and zero */
        for (int i = 0; i < 3; i++) {
            snprintf(text, sizeof text, "%d", fd[i]);
            assert_null(ends_open(text));
        }
        assert_int_equal(ftruncate(fd[1], lseek(ends_fd(table), 0, SEEK_END)), 0);
        fcntl(fd[1], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    }
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    close(pair[1]);
    assert_int_equal(ends_new(0, &table), UNO_ERR_ARG);
}

static volatile sig_atomic_t woken;

static void on_wake(int sig)
{
    (void)sig;
    woken = 1;
}

static void who_joins_waits_for_a_launcher_that_asks(void **state)
{
    (void)state;
    signal(SIGUSR1, on_wake);
    for (int asks = 0; asks < 3; asks++) { /* not at all; it asks and looks; it asks and does not look */
        ends_ask(table, asks ? SIGUSR1 : 0);
        woken = 0;
        pid_t child = fork();
        if (child == 0) {
            struct ends *reader = ends_open(number);
            uint64_t since = clock_ns();
            ends_show(reader, asks);
            ends_show(reader, -1);
            ends_show(NULL, 0);
            _exit(!reader ? 1 : clock_ns() - since < 50000000 ? 2 : 3);
        }
        int status = 0;
        while (asks == 1 && !woken)
            usleep(100);
        if (asks == 1)
            ends_looked(table, 1);
        while (waitpid(child, &status, 0) != child)
            ;
        assert_int_equal(woken, asks > 0);
        assert_true(WIFEXITED(status));
        assert_true(WEXITSTATUS(status) == (asks == 2 ? 3 : 2) || (asks == 1 && WEXITSTATUS(status) == 3)); /* woken late */
    }
    signal(SIGUSR1, SIG_DFL);
    struct ends *reader = ends_open(number);
    ends_show(reader, 0); /* by who is no child: it would be killed */
    ends_close(reader);
}

/* ---- a steward --------------------------------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char dead[RANKS][512];
    bool proved[RANKS];
    uint64_t dead_ns[RANKS];
} told = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_dead(void *arg, int process, const char *text)
{
    (void)arg;
    pthread_mutex_lock(&told.lock);
    snprintf(told.dead[process], sizeof told.dead[process], "%s", text);
    told.dead_ns[process] = clock_ns();
    pthread_cond_broadcast(&told.changed);
    pthread_mutex_unlock(&told.lock);
}
static void on_ended(void *arg, int process)
{
    (void)arg;
    told.proved[process] = true; /* read after on_dead, which comes behind it */
}
static void on_abort(void *arg, uint64_t comm_id, uno_err code, int rank, const char *text)
{
    (void)arg, (void)comm_id, (void)code, (void)rank, (void)text;
}

static bool wait_dead(int rank)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&told.lock);
    int err = 0;
    while (!told.dead[rank][0] && err == 0)
        err = pthread_cond_timedwait(&told.changed, &told.lock, &until);
    pthread_mutex_unlock(&told.lock);
    return err == 0;
}

/* This process is rank 0; the others are on another host, pids 101 and so on. */
static struct watch *start(void)
{
    static struct config cfg;
    static struct watch_member members[RANKS];
    struct watch *w = NULL;
    cfg = (struct config){.ends_fd = number, .suspect = 3, .suspect_timeout = 30, .stall = 5};
    memset(told.dead, 0, sizeof told.dead);
    memset(told.proved, 0, sizeof told.proved);
    for (int r = 0; r < RANKS; r++) {
        members[r] = (struct watch_member){.process = r, .host = r > 0, .pid = r ? 100 + r : getpid(), .launched = r};
        snprintf(members[r].hostname, sizeof members[r].hostname, "host%d", r > 0);
    }
    struct watch_options opt = {.cfg = &cfg, .size = RANKS, .members = members, .on_dead = on_dead, .on_ended = on_ended, .on_abort = on_abort, .arg = &told};
    assert_int_equal(watch_start(&opt, &w), UNO_OK);
    return w;
}

static void closed_connections_and_the_launcher_s_word(void **state)
{
    (void)state;
    struct watch *w = start();
    uno_end lost = {.kind = UNO_END_LOST, .rank = 3, .pid = 103, .status = SIGKILL};
    uint64_t since = clock_ns();
    for (int r = 1; r < RANKS; r++)
        watch_on_down(w, r, NET_DOWN_ENDED, "end of file");
    seen(1, 101, 0);
    assert_int_equal(ends_put(table, &lost), UNO_OK);
    for (int r = 1; r < RANKS; r++)
        assert_true(wait_dead(r));
    assert_string_equal(told.dead[1], "rank 1 (pid 101 on host1) exited with status 0 without leaving the job");
    assert_string_equal(told.dead[2], "rank 2 (pid 102 on host1) has ended without leaving the job, status unknown here: all its connections were closed "
                                      "(end of file)");
    assert_string_equal(told.dead[3], "rank 3 (pid 103 on host1) has ended without leaving the job; the agent of unisono run on its host, which would "
                                      "know how, was killed by signal 9 (SIGKILL), and ranks end with it");
    print_message("after %.1f ms with, %.1f ms without the launcher's word\n", (double)(told.dead_ns[1] - since) / 1e6,
                  (double)(told.dead_ns[2] - since) / 1e6);
    assert_true(told.dead_ns[1] < told.dead_ns[2]);
    assert_true(told.proved[1] && !told.proved[2] && !told.proved[3]);
    watch_stop(w);
}

static void the_launcher_s_word_alone_is_no_death_yet(void **state)
{
    (void)state;
    struct watch *w = start();
    seen(1, 101, 0); /* it may have left in order */
    seen(2, 102, SIGKILL);
    watch_on_down(w, 2, NET_DOWN_LOST, "connection reset"); /* alone no death either */
    watch_on_down(w, 3, NET_DOWN_LOST, "connection reset");
    assert_true(wait_dead(2));
    assert_string_equal(told.dead[2], "rank 2 (pid 102 on host1) was killed by signal 9 (SIGKILL)");
    assert_true(told.proved[2]);
    watch_on_down(w, 1, NET_DOWN_LEFT, "exited with status 0");
    seen(3, 103, SIGKILL);
    assert_true(wait_dead(3));
    watch_stop(w);
    assert_string_equal(told.dead[1], "");
}

static void its_hub_has_the_first_word(void **state)
{
    (void)state;
    struct watch *w = start();
    unsigned char buf[FRAME_HEADER_BYTES + FRAME_TEXT_BYTES];
    struct frame f = {.kind = FRAME_DEATH, .process = 1, .code = 1, .text = "rank 1 (pid 101 on host1) was killed, and more is known"};
    uint64_t since = clock_ns();
    seen(1, 101, SIGKILL);
    watch_on_down(w, 1, NET_DOWN_ENDED, "end of file");
    watch_on_control(w, 2, buf, frame_write(&f, buf));
    bool late = clock_ns() - since > 90000000; /* it is waited for so long */
    assert_true(wait_dead(1));
    watch_stop(w);
    if (late)
        skip();
    assert_string_equal(told.dead[1], f.text);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_is_told_is_found), CASE(an_agent_that_ends_its_ranks_says_so), CASE(other_hosts_are_put_and_nonsense_is_not),
        CASE(one_kill_for_want_of_memory_explains_one_end), CASE(what_is_no_table_is_not_used), CASE(who_joins_waits_for_a_launcher_that_asks),
        CASE(closed_connections_and_the_launcher_s_word), CASE(the_launcher_s_word_alone_is_no_death_yet), CASE(its_hub_has_the_first_word)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
