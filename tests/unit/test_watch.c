/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger under a writer, and the steward with real processes: they are killed, exit with and without goodbye, leave children
 * behind that hold their descriptors; and what stewards of other hosts say, brought by hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch/watch.h"
#include "watch/watch_frame.h"
#include "watch/watch_process.h"

#define MOST 8
#define PATIENCE_S 30 /* what takes milliseconds may take this long on a machine with much else to do */

/* ---- what the callbacks saw ----------------------------------------------------------------------------------------- */

static struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char dead[MOST][512], left[MOST][512], aborted[512];
    uint64_t dead_ns[MOST];
    int deaths, aborts;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static _Atomic uint32_t *goodbye; /* shared with the children, one a rank */

static void on_dead(void *arg, int process, const char *text)
{
    assert_ptr_equal(arg, &seen);
    pthread_mutex_lock(&seen.lock);
    snprintf(seen.dead[process], sizeof seen.dead[process], "%s", text);
    seen.dead_ns[process] = clock_ns();
    seen.deaths++;
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}
static void on_left(void *arg, int process, const char *text)
{
    (void)arg;
    pthread_mutex_lock(&seen.lock);
    snprintf(seen.left[process], sizeof seen.left[process], "%s", text);
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}
static void on_abort(void *arg, uint64_t comm_id, uno_err code, int rank, const char *text)
{
    (void)arg;
    pthread_mutex_lock(&seen.lock);
    snprintf(seen.aborted, sizeof seen.aborted, "%llu %s %d %s", (unsigned long long)comm_id, uno_err_name(code), rank, text);
    seen.aborts++;
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}
static bool said_goodbye(void *arg, int process)
{
    (void)arg;
    return atomic_load_explicit(&goodbye[process], memory_order_acquire); /* pairs with the release in child_main */
}

/* Wait until text is there. */
static bool wait_text(const char *text)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&seen.lock);
    int err = 0;
    while (!text[0] && err == 0)
        err = pthread_cond_timedwait(&seen.changed, &seen.lock, &until);
    bool there = text[0] != 0;
    pthread_mutex_unlock(&seen.lock);
    return there;
}

/* ---- children ---------------------------------------------------------------------------------------------------------- */

enum behaviour { WAITS, EXITS_3, EXITS_0, SAYS_GOODBYE, LEAVES_CHILD };

static int gate[2]; /* closed by the parent when a child may go on */

static void child_main(int rank, enum behaviour b)
{
    char c;
    if (b == LEAVES_CHILD && fork() == 0) { /* a data-loader worker: holds everything, and outlives its parent */
        usleep(3000000);
        _exit(0);
    }
    while (read(gate[0], &c, 1) < 0)
        ;
    if (b == WAITS || b == LEAVES_CHILD)
        for (;;)
            pause();
    if (b == SAYS_GOODBYE)
        atomic_store_explicit(&goodbye[rank], 1, memory_order_release); /* pairs with the acquire in said_goodbye */
    _exit(b == EXITS_3 ? 3 : 0);
}

static pid_t spawn(int rank, enum behaviour b)
{
    pid_t pid = fork();
    if (pid == 0) {
        close(gate[1]);
        child_main(rank, b);
    }
    assert_true(pid > 0);
    return pid;
}

static void open_gate(void)
{
    close(gate[1]);
    gate[1] = -1;
}

static struct watch_member members[MOST];
static struct watch *running; /* stopped by teardown if an assertion kept the test from it: its thread uses what teardown frees */
static pid_t pids[MOST];
static int size;

static int setup(void **state)
{
    (void)state;
    memset(seen.dead, 0, sizeof seen.dead);
    memset(seen.left, 0, sizeof seen.left);
    seen.aborted[0] = 0;
    seen.deaths = seen.aborts = 0;
    goodbye = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size = 0;
    memset(members, 0, sizeof members);
    return pipe(gate);
}

static int teardown(void **state)
{
    (void)state;
    watch_stop(running);
    running = NULL;
    for (int r = 1; r < size; r++)
        if (pids[r] > 0) {
            kill(pids[r], SIGKILL);
            waitpid(pids[r], NULL, 0);
        }
    memset(pids, 0, sizeof pids);
    close(gate[0]);
    if (gate[1] >= 0)
        close(gate[1]);
    munmap((void *)goodbye, 4096);
    fault_arm(NULL, 0);
    return 0;
}

static void member_add(pid_t pid, int host)
{
    members[size] = (struct watch_member){.process = size, .host = host, .pid = pid, .start_ticks = watch_start_ticks(pid)};
    snprintf(members[size].hostname, sizeof members[size].hostname, "host%d", host);
    size++;
}

static struct watch *start(void)
{
    struct watch_options opt = {.rank = 0, .size = size, .members = members, .on_dead = on_dead, .on_left = on_left,
                                .on_abort = on_abort, .said_goodbye = said_goodbye, .arg = &seen};
    struct watch *w = NULL;
    assert_int_equal(watch_start(&opt, &w), UNO_OK);
    assert_non_null(w);
    return running = w;
}

static void stop(void)
{
    struct watch *w = running;
    running = NULL;
    watch_stop(w);
}

/* This process as rank 0, and children with these behaviours. */
static struct watch *start_with(const enum behaviour *b, int n)
{
    member_add(getpid(), 0);
    for (int i = 0; i < n; i++) {
        pids[size] = spawn(size, b[i]);
        member_add(pids[size], 0);
    }
    return start();
}

static void assert_noticed(int rank, uint64_t since, const char *how)
{
    assert_true(wait_text(seen.dead[rank]));
    char want[300];
    snprintf(want, sizeof want, "rank %d (pid %d on host0) %s", rank, (int)pids[rank], how);
    assert_string_equal(seen.dead[rank], want);
    print_message("noticed after %.1f ms: %s\n", (double)(seen.dead_ns[rank] - since) / 1e6, seen.dead[rank]);
}

/* ---- deaths on this host ----------------------------------------------------------------------------------------------------- */

static void *live_on(void *arg)
{
    pause();
    return arg;
}

static void a_process_outlives_its_main_thread(void **state)
{
    (void)state;
    char path[64], text[512];
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t other;
        if (pthread_create(&other, NULL, live_on, NULL) != 0)
            _exit(1);
        pthread_exit(NULL);
    }
    struct process_eye eye = {.pid = pid, .start_ticks = watch_start_ticks(pid)};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    uint64_t until = clock_ns() + 10000000000u;
    do { /* until its main thread has ended */
        FILE *f = fopen(path, "re");
        assert_non_null(f);
        assert_non_null(fgets(text, sizeof text, f));
        fclose(f);
    } while (!strstr(text, ") Z ") && clock_ns() < until);
    assert_non_null(strstr(text, ") Z "));
    assert_false(process_ended(&eye));
    kill(pid, SIGKILL);
    while (!process_ended(&eye) && clock_ns() < until)
        usleep(1000);
    assert_true(process_ended(&eye)); /* though nobody has collected it */
    waitpid(pid, NULL, 0);
}

static void a_killed_process_is_named(void **state)
{
    (void)state;
    start_with((enum behaviour[]){WAITS, WAITS}, 2);
    uint64_t since = clock_ns();
    kill(pids[2], SIGKILL);
    assert_noticed(2, since, "was killed by signal 9 (SIGKILL)");
    assert_int_equal(seen.deaths, 1);
    stop();
    assert_int_equal(seen.dead[1][0], 0);
}

/* Collected at once by its parent: /proc knows nothing any more, the kernel may. */
static void a_collected_process_is_named(void **state)
{
    (void)state;
    start_with((enum behaviour[]){WAITS}, 1);
    kill(pids[1], SIGTERM);
    assert_int_equal(waitpid(pids[1], NULL, 0), pids[1]);
    assert_true(wait_text(seen.dead[1]));
    assert_true(strstr(seen.dead[1], "was killed by signal 15 (SIGTERM)") || strstr(seen.dead[1], "status unknown here"));
    pids[1] = 0;
    stop();
}

static void exits_with_and_without_goodbye_differ(void **state)
{
    (void)state;
    start_with((enum behaviour[]){EXITS_3, SAYS_GOODBYE, EXITS_0, WAITS}, 4);
    uint64_t since = clock_ns();
    open_gate();
    assert_noticed(1, since, "exited with status 3"); /* no board: whether it had left is not known */
    assert_noticed(3, since, "exited with status 0");
    assert_true(wait_text(seen.left[2]));
    assert_non_null(strstr(seen.left[2], "left the job"));
    stop();
    assert_int_equal(seen.dead[2][0], 0);
    assert_int_equal(seen.dead[4][0], 0);
    assert_int_equal(seen.deaths, 2);
}

static void children_that_hold_descriptors_hide_nothing(void **state)
{
    (void)state;
    start_with((enum behaviour[]){LEAVES_CHILD}, 1);
    open_gate();
    usleep(20000); /* the grandchild is most likely there; the test holds without it too */
    uint64_t since = clock_ns();
    kill(pids[1], SIGKILL);
    assert_noticed(1, since, "was killed by signal 9 (SIGKILL)");
    stop();
}

static void a_reused_pid_is_not_the_old_process(void **state)
{
    (void)state;
    member_add(getpid(), 0);
    for (int r = 1; r <= 2; r++) {
        pids[r] = spawn(r, WAITS);
        member_add(pids[r], 0);
    }
    assert_true(members[1].start_ticks > 0);
    members[1].start_ticks--; /* what another process had before */
    uint64_t since = clock_ns();
    start();
    assert_noticed(1, since, "has ended, status unknown here: its parent knows");
    stop();
    assert_int_equal(seen.deaths, 1);
    assert_int_equal(kill(pids[1], 0), 0);
}

static void without_pidfds_proc_is_polled(void **state)
{
    (void)state;
    fault_arm("pidfd_open", 1);
    start_with((enum behaviour[]){WAITS, SAYS_GOODBYE}, 2);
    usleep(50000);
    uint64_t since = clock_ns();
    kill(pids[1], SIGKILL);
    assert_noticed(1, since, "was killed by signal 9 (SIGKILL)");
    open_gate();
    assert_true(wait_text(seen.left[2]));
    stop();
}

static void who_leaves_is_not_told_any_more(void **state)
{
    (void)state;
    struct watch *w = start_with((enum behaviour[]){WAITS}, 1);
    watch_goodbye(w, false);
    kill(pids[1], SIGKILL);
    waitpid(pids[1], NULL, 0);
    pids[1] = 0;
    usleep(60000);
    stop();
    assert_int_equal(seen.deaths, 0);
}

/* ---- what comes from other hosts ------------------------------------------------------------------------------------------------ */

static struct watch *start_with_other_host(void)
{
    member_add(getpid(), 0);
    for (int r = 1; r <= 3; r++) {
        member_add(1, 1);
        members[r].pid = 100 + r;
    }
    members[3].process = 2; /* ranks 2 and 3 are threads of one process */
    return start();
}

static void say(struct watch *w, int from, const struct frame *f)
{
    unsigned char buf[FRAME_HEADER_BYTES + FRAME_TEXT_BYTES];
    watch_on_control(w, from, buf, frame_write(f, buf));
}

static void all_ends_of_connections_are_a_death(void **state)
{
    (void)state;
    struct watch *w = start_with_other_host();
    uint64_t since = clock_ns();
    watch_on_down(w, 1, NET_DOWN_LOST, "connection reset"); /* a firewall does that too */
    watch_on_down(w, 2, NET_DOWN_ENDED, "end of file on 2 sockets");
    assert_true(wait_text(seen.dead[2]));
    uint64_t took = seen.dead_ns[2] - since;
    print_message("noticed after %.1f ms: %s\n", (double)took / 1e6, seen.dead[2]);
    assert_true(took >= 290000000);
    assert_string_equal(seen.dead[2], "the process of ranks 2-3 (pid 102 on host1) has ended without leaving the job, status unknown here: all its connections were "
                                      "closed (end of file on 2 sockets)");
    stop();
    assert_int_equal(seen.dead[1][0], 0);
}

static void a_closed_link_after_goodbye_is_none(void **state)
{
    (void)state;
    struct watch *w = start_with_other_host();
    watch_on_down(w, 1, NET_DOWN_LEFT, "");
    assert_true(wait_text(seen.left[1]));
    watch_on_down(w, 1, NET_DOWN_ENDED, "again"); /* and nothing later makes it one */
    usleep(350000);
    stop();
    assert_int_equal(seen.deaths, 0);
}

static void the_hub_knows_better(void **state)
{
    (void)state;
    struct watch *w = start_with_other_host();
    uint64_t since = clock_ns();
    watch_on_down(w, 1, NET_DOWN_ENDED, "end of file");
    say(w, 2, &(struct frame){.kind = FRAME_DEATH, .process = 1, .text = "rank 1 (pid 101 on host1) was killed by \033[31msignal 9"});
    if (clock_ns() - since > 250000000) /* after 300 ms the ends of the connections are believed */
        skip();
    assert_true(wait_text(seen.dead[1]));
    assert_string_equal(seen.dead[1], "rank 1 (pid 101 on host1) was killed by ?[31msignal 9");
    usleep(350000);
    stop();
    assert_int_equal(seen.deaths, 1);
}

static void aborts_arrive_and_nonsense_does_not(void **state)
{
    (void)state;
    struct watch *w = start_with_other_host();
    unsigned char buf[FRAME_HEADER_BYTES + FRAME_TEXT_BYTES + 8];
    size_t bytes = frame_write(&(struct frame){.kind = FRAME_ABORT}, buf);
    watch_on_control(w, 1, "", 0);
    watch_on_control(w, 1, buf, bytes - 1);
    watch_on_control(w, 1, buf, sizeof buf); /* too long */
    buf[3] = 77;
    watch_on_control(w, 1, buf, bytes);
    buf[2] = 77;
    watch_on_control(w, 1, buf, bytes);
    for (int p = -1; p <= 4; p++)
        if (p < 1 || p > 2)
            say(w, 1, &(struct frame){.kind = FRAME_DEATH, .process = p, .text = "not true"});
    say(w, 1, &(struct frame){.kind = FRAME_ABORT, .comm_id = 77, .code = UNO_ERR_TIMEOUT, .rank = 2, .text = "too slow"});
    assert_true(wait_text(seen.aborted));
    assert_string_equal(seen.aborted, "77 UNO_ERR_TIMEOUT 2 too slow");
    stop();
    assert_int_equal(seen.deaths, 0);
    assert_int_equal(seen.aborts, 1);
}

static void what_comes_before_the_start_is_kept(void **state)
{
    (void)state;
    member_add(getpid(), 0);
    member_add(1, 1);
    struct watch *w = NULL;
    assert_int_equal(watch_new(&w), UNO_OK);
    say(w, 1, &(struct frame){.kind = FRAME_DEATH, .process = 1, .text = "rank 1 died early"});
    watch_on_down(w, 1, NET_DOWN_ENDED, "end of file");
    struct watch_options opt = {.rank = 0, .size = size, .members = members, .on_dead = on_dead, .on_abort = on_abort, .arg = &seen};
    fault_arm("thread", 1);
    assert_int_equal(watch_start(&opt, &w), UNO_ERR_SYSTEM);
    assert_non_null(strstr(err_text(), "steward's thread"));
    assert_non_null(w);
    assert_int_equal(watch_start(&opt, &w), UNO_OK);
    running = w;
    assert_true(wait_text(seen.dead[1]));
    stop();
    assert_int_equal(watch_new(&w), UNO_OK);
    say(w, 1, &(struct frame){.kind = FRAME_HELLO});
    watch_stop(w); /* never started: frees what was queued */
    watch_stop(NULL);
}

/* ---- bring-up -------------------------------------------------------------------------------------------------------------------- */

static int open_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void no_memory_leaves_nothing_behind(void **state)
{
    (void)state;
    member_add(getpid(), 0);
    struct watch_options opt = {.rank = 0, .size = size, .members = members, .on_dead = on_dead, .on_abort = on_abort, .arg = &seen};
    int before = open_descriptors(), failures = 0;
    struct watch *w = NULL;
    for (long nth = 1;; nth++, failures++) {
        fault_arm("alloc", nth);
        uno_err err = watch_start(&opt, &w);
        fault_arm(NULL, 0);
        if (err == UNO_OK)
            break;
        assert_int_equal(err, UNO_ERR_MEMORY);
        assert_null(w);
        assert_int_equal(open_descriptors(), before);
    }
    assert_true(failures >= 3);
    watch_stop(w);
    assert_int_equal(open_descriptors(), before);
}

static void a_forked_child_closes_and_does_nothing(void **state)
{
    (void)state;
    int before = open_descriptors();
    struct watch *w = start_with((enum behaviour[]){WAITS}, 1);
    int status = -1;
    for (int tries = 0; tries < 5 && status != 0; tries++) { /* the steward may just be reading a file of /proc */
        pid_t pid = fork();
        if (pid == 0) {
            watch_forked(w);
            int left = open_descriptors();
            watch_goodbye(w, false);
            watch_abort(w, 1, UNO_ERR_ABORTED, 0, "", (int[]){0, 1}, 2);
            watch_on_down(w, 1, NET_DOWN_ENDED, "");
            watch_stop(w);
            _exit(left == before ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
    }
    assert_int_equal(status, 0);
    uint64_t since = clock_ns();
    kill(pids[1], SIGKILL); /* the parent's steward goes on */
    assert_noticed(1, since, "was killed by signal 9 (SIGKILL)");
    stop();
}

/* ---- ledger ------------------------------------------------------------------------------------------------------------------------ */

static struct ledger_event ring_of[NET_LEDGER_EVENTS];
static _Atomic bool writer_done;
static _Atomic long whole; /* the reader's count: the writer goes on until there is one */

static void *ledger_writer(void *arg)
{
    (void)arg;
    for (uint32_t n = 1; n <= 300000 || whole == 0; n++) {
        struct ledger_fields f = {.state = LEDGER_RUNNING, .count = n * 5ull};
        ledger_begin(ring_of, 1 + n * NET_LEDGER_EVENTS, n * 3, &f, (void *)(uintptr_t)(n * 7ull), n * 11ull); /* always one place */
        for (volatile int pause = 0; pause < 100; pause++)
            ;
    }
    writer_done = true;
    return NULL;
}

static void events_are_read_whole_or_not_at_all(void **state)
{
    (void)state;
    struct ledger_event e;
    assert_false(ledger_read(ring_of, 7, &e));
    struct ledger_fields fields = {.coll = UNO_BARRIER, .state = LEDGER_RUNNING, .waits_for = -1, .count = 700};
    ledger_begin(ring_of, 7, 70, &fields, NULL, 0);
    assert_true(ledger_read(ring_of, 7 + NET_LEDGER_EVENTS, &e)); /* the caller sees by the number which one it is */
    assert_int_equal(e.number, 7);
    assert_int_equal(e.count, 700);
    assert_int_equal(e.state, LEDGER_RUNNING);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, ledger_writer, NULL), 0);
    long refused = 0;
    while (!writer_done) {
        if (!ledger_read(ring_of, 1, &e)) {
            refused++;
            continue;
        }
        whole++;
        uint32_t n = e.signature / 3;
        assert_int_equal(e.count, n * 5ull);
        assert_int_equal(e.call_site, n * 7ull);
        assert_int_equal(e.start_ns, n * 11ull);
        assert_int_equal((uint32_t)e.number, 1 + n * NET_LEDGER_EVENTS);
    }
    pthread_join(t, NULL);
    print_message("%ld whole, %ld refused\n", (long)whole, refused);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_killed_process_is_named), CASE(a_collected_process_is_named), CASE(exits_with_and_without_goodbye_differ),
        CASE(children_that_hold_descriptors_hide_nothing), CASE(a_reused_pid_is_not_the_old_process),
        CASE(without_pidfds_proc_is_polled), CASE(who_leaves_is_not_told_any_more), CASE(all_ends_of_connections_are_a_death),
        CASE(a_closed_link_after_goodbye_is_none), CASE(the_hub_knows_better), CASE(aborts_arrive_and_nonsense_does_not),
        CASE(what_comes_before_the_start_is_kept), CASE(no_memory_leaves_nothing_behind),
        CASE(a_forked_child_closes_and_does_nothing), cmocka_unit_test(events_are_read_whole_or_not_at_all),
        cmocka_unit_test(a_process_outlives_its_main_thread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
