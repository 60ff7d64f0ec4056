/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about real processes, seen from outside: ranks that wait, sleep in a system call, burn, are stopped, traced, frozen, starved,
 * killed, replaced by another program.
 */
#include "live.h"
#include "watch/watch_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum doing { IDLE = LIVE_IDLE, REDUCES, READS, BURNS, TAKES_SIGNALS, SPLITS, DESTROYS, EXITS_3, FORKS, ALLOCATES, EXECS, HANGS };

static bool without_stacks;
static char small_memory[200]; /* a cgroup for the ranks; "" = none */

/* ---- the ranks -------------------------------------------------------------------------------------------------------------- */

static void on_any(int sig) { (void)sig; }

/* Sleeps with its stack in memory that nobody fills: who reads it waits as it would for a file server that has gone. */
#if defined(__x86_64__)
void sleeps_at(void *stack);
__asm__(".text\n.globl sleeps_at\n.type sleeps_at,@function\nsleeps_at:\n.cfi_startproc\n mov %rdi,%rsp\n1: mov $34,%eax\n syscall\n jmp 1b\n"
        ".cfi_endproc\n.size sleeps_at,.-sleeps_at\n"); /* pause */
static void hang_memory(void)
{
    enum { BYTES = 1 << 20 };
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register r = {.range = {(uintptr_t)p, BYTES}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (fd < 0 || p == MAP_FAILED || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &r) != 0)
        _exit(77);
    sleeps_at(p + BYTES / 2);
}
#else
static void hang_memory(void) { _exit(77); }
#endif

static void act(int what, uno_comm *comm, int rank)
{
    static uno_comm *child;
    switch ((enum doing)what) {
    case REDUCES: live_reduces(comm); break;
    case READS: (void)sleeps_in_a_read(); break;
    case BURNS: burns_processor_time(); break;
    case TAKES_SIGNALS:
        for (int s = SIGRTMIN; s <= SIGRTMAX; s++)
            signal(s, on_any);
        break;
    case SPLITS:
        if (uno_comm_split(comm, 0, 0, &child, NULL) != UNO_OK)
            _exit(9);
        break;
    case DESTROYS:
        if (uno_comm_destroy(child) != UNO_OK)
            _exit(9);
        break;
    case EXITS_3: _exit(3);
    case EXECS:
        execlp("sleep", "sleep", "60", (char *)NULL);
        _exit(9);
    case FORKS: live_forks(); break;
    case HANGS: hang_memory(); break;
    case ALLOCATES: {
        volatile char *p = malloc((size_t)1 << 30);
        for (size_t i = 0; p && i < (size_t)1 << 30; i += 4096)
            p[i] = 1;
        break;
    }
    default: break;
    }
}

static void prepare(int rank)
{
    char path[300];
    (void)rank;
    if (without_stacks)
        setenv("UNISONO_STACKS", "off", 1);
    if (!small_memory[0])
        return;
    snprintf(path, sizeof path, "%s/cgroup.procs", small_memory);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "%d", (int)getpid()) < 1 || fclose(f) != 0)
        _exit(9);
}

static int start(bool stacks)
{
    static const struct live_play play = {.name = "world", .position = "step", .prepare = prepare, .act = act};
    without_stacks = !stacks;
    return live_start(&play);
}

static int setup(void **state)
{
    (void)state;
    return start(true);
}
static int setup_without_stacks(void **state)
{
    (void)state;
    return start(false);
}

static int teardown(void **state)
{
    (void)state;
    live_end();
    return 0;
}

/* ---- cases ------------------------------------------------------------------------------------------------------------------- */

static bool waits_long(const struct verdict_rank *r)
{
    const struct verdict_comm *c = live_comm(r, "world");
    return c && c->nevents && c->events[c->nevents - 1].state == VERDICT_RUNNING && c->events[c->nevents - 1].wait_since_ns &&
           r->taken_ns - c->events[c->nevents - 1].wait_since_ns > 50000000 && strstr(r->process.stack, "uno_all_reduce");
}
static bool in_read(const struct verdict_rank *r) { return strstr(r->process.stack, "sleeps_in_a_read") != NULL; }
static bool burns(const struct verdict_rank *r)
{
    return r->process.cpu_permille > 300 && strstr(r->process.stack, "burns_processor_time") != NULL;
}

static void three_at_once(void **state)
{
    (void)state;
    struct verdict_rank r;
    for (int i = 0; i < 5; i++)
        live_order_all(REDUCES);
    live_order(0, REDUCES);
    live_order(1, REDUCES);
    live_order(2, READS);
    live_order(3, BURNS);

    assert_true(live_becomes(0, waits_long, &r));
    const struct verdict_comm *c = live_comm(&r, "world");
    const struct verdict_event *e = &c->events[c->nevents - 1];
    assert_int_equal(r.status, VERDICT_REPORTED);
    assert_int_equal(r.pid, live.pids[0]);
    assert_string_equal(r.host, "hostA");
    assert_string_equal(r.program, "test_report");
    assert_int_equal(c->rank, 0);
    assert_int_equal(c->size, RANKS);
    assert_int_equal(c->newest, 6);
    assert_int_equal(c->nevents, 6);
    assert_int_equal(c->members[3], 3);
    assert_int_equal(e->number, 6);
    assert_int_equal(e->coll, UNO_ALL_REDUCE);
    assert_int_equal(e->count, 8);
    assert_true(e->waits_for == 2 || e->waits_for == 3);
    assert_int_equal(c->events[4].state, VERDICT_DONE);
    assert_true(c->events[4].end_ns > 0);
    assert_non_null(strstr(e->site, "test_report+0x"));
    assert_true(r.process.in_library);
    assert_string_equal(r.process.python, "train.py:212 in step");
    verdict_rank_free(&r);

    assert_true(live_becomes(2, in_read, &r));
    c = live_comm(&r, "world");
    assert_int_equal(c->newest, 5);
    assert_int_equal(c->events[c->nevents - 1].state, VERDICT_DONE);
    assert_false(r.process.in_library);
    assert_true(r.process.cpu_permille < 200);
    if (r.process.run == VERDICT_RUN_SYSCALL) /* the kernel may keep it from who is no tracer */
        assert_string_equal(r.process.syscall, "read");
    else
        assert_int_equal(r.process.run, VERDICT_RUN_SLEEPS);
    verdict_rank_free(&r);

    assert_true(live_becomes(3, burns, &r));
    assert_int_equal(r.process.run, VERDICT_RUN_RUNS);
    assert_true(r.process.sample_ns >= REPORT_SAMPLE_NS);
    assert_false(r.process.in_library);
    verdict_rank_free(&r);
}

static bool stopped(const struct verdict_rank *r) { return r->process.run == VERDICT_RUN_STOPPED; }

static void stopped_rank(void **state)
{
    (void)state;
    struct verdict_rank r;
    live_order_all(REDUCES);
    live_look();
    uint64_t before = clock_ns();
    kill(live.pids[1], SIGSTOP);
    assert_true(live_becomes(1, stopped, &r));
    assert_true(r.process.run_since_ns >= before && r.process.run_since_ns <= r.taken_ns + 1000000);
    if (r.process.syscall[0] && UNWINDS) /* it is asked nothing, and the kernel shows where it stands */
        assert_non_null(strstr(r.process.stack, "(test_report)"));
    assert_int_equal(live_comm(&r, "world")->newest, 1);
    uint64_t since = r.process.run_since_ns;
    verdict_rank_free(&r);
    live_look();
    live_report(1, REPORT_EVENTS, &r);
    assert_true(r.process.run_since_ns == since);
    verdict_rank_free(&r);
    kill(live.pids[1], SIGCONT);
    live_order_all(REDUCES); /* unharmed */
}

static bool is_replaced(const struct verdict_rank *r) { return r->process.run == VERDICT_RUN_REPLACED; }

static void replaced_rank(void **state)
{
    (void)state;
    struct verdict_rank r;
    live_order_all(REDUCES);
    live_await(1, 1);
    live_look();
    live_report(1, REPORT_EVENTS, &r);
    assert_false(is_replaced(&r));
    verdict_rank_free(&r);
    live_order(1, EXECS);
    assert_true(live_becomes(1, is_replaced, &r));
    assert_int_equal(r.status, VERDICT_REPORTED);
    assert_string_equal(r.process.successor, "sleep");
    assert_string_equal(r.program, "test_report"); /* what had joined */
    assert_string_equal(r.process.stack, "");
    assert_false(r.process.in_library);
    assert_int_equal(live_comm(&r, "world")->newest, 1);
    verdict_rank_free(&r);
    kill(live.pids[1], SIGSTOP); /* that it never comes back is more than that it stands now */
    assert_true(live_becomes(1, is_replaced, &r));
    verdict_rank_free(&r);
}

/* While a process ends its threads go one by one, and it may take a while to give its memory back. */
static void who_ends_is_not_replaced(void **state)
{
    (void)state;
    const struct board_page *page = live.watch.peers[1].records.page;
    int32_t pid = live.pids[1], tid = atomic_load(&page->steward_tid);
    uint64_t stack = page->start_stack;
    assert_true(tid > 0 && stack > 0);
    assert_false(proc_replaced(pid, tid, stack + 1)); /* it has its thread */
    assert_true(proc_replaced(pid, INT32_MAX, stack + 1));
    live_order(1, ALLOCATES);
    usleep(100000); /* some of it */
    kill(pid, SIGKILL);
    for (uint64_t until = clock_ns() + LIMIT_NS; proc_state(pid, pid) != 'Z' && clock_ns() < until;)
        assert_false(proc_replaced(pid, tid, stack));
    assert_int_equal(proc_state(pid, pid), 'Z');
    assert_false(proc_replaced(pid, tid, stack));
}

static bool traced(const struct verdict_rank *r) { return r->process.run == VERDICT_RUN_TRACED; }

static void traced_rank(void **state)
{
    (void)state;
    struct verdict_rank r;
    int gate[2];
    assert_int_equal(pipe(gate), 0);
    pid_t tracer = fork();
    if (tracer == 0) {
        char c;
        close(gate[1]);
        if (ptrace(PTRACE_ATTACH, live.pids[2], NULL, NULL) != 0)
            _exit(errno == EPERM ? 77 : 1);
        waitpid(live.pids[2], NULL, 0);
        while (read(gate[0], &c, 1) < 0)
            ;
        ptrace(PTRACE_DETACH, live.pids[2], NULL, NULL);
        _exit(0);
    }
    close(gate[0]);
    usleep(50000);
    int status;
    if (waitpid(tracer, &status, WNOHANG) == tracer) {
        close(gate[1]);
        print_message("ptrace is refused here\n");
        skip();
    }
    assert_true(live_becomes(2, traced, &r));
    assert_int_equal(r.process.tracer_pid, tracer);
    assert_string_equal(r.process.tracer, "test_report");
    verdict_rank_free(&r);
    close(gate[1]);
    waitpid(tracer, &status, 0);
    live_order_all(REDUCES);
}

static bool starved(const struct verdict_rank *r) { return r->process.queue_permille > 400 && r->process.cpu_permille < 600; }

static void starved_rank(void **state)
{
    (void)state;
    struct verdict_rank r;
    cpu_set_t one, had;
    assert_int_equal(sched_getaffinity(0, sizeof had, &had), 0);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; c++)
        if (CPU_ISSET(c, &had))
            CPU_SET(c, &one);
    pid_t rival = fork();
    if (rival == 0) {
        alarm(60);
        sched_setaffinity(0, sizeof one, &one);
        burns_processor_time();
    }
    assert_int_equal(sched_setaffinity(live.pids[3], sizeof one, &one), 0);
    assert_int_equal(setpriority(PRIO_PROCESS, (id_t)live.pids[3], 15), 0);
    live_order(3, BURNS);
    assert_true(live_becomes(3, starved, &r));
    assert_int_equal(r.process.run, VERDICT_RUN_RUNS);
    verdict_rank_free(&r);
    kill(rival, SIGKILL);
    waitpid(rival, NULL, 0);
}

/* ---- cgroups, where this user may make some ------------------------------------------------------------------------------- */

static bool write_text(const char *dir, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool write_pid(const char *dir, pid_t pid)
{
    char text[16];
    snprintf(text, sizeof text, "%d", (int)pid);
    return write_text(dir, "cgroup.procs", text);
}

static bool frozen(const struct verdict_rank *r) { return r->process.run == VERDICT_RUN_FROZEN; }

static void freeze(const char *root, const char *file, const char *freezes, const char *thaws)
{
    struct verdict_rank r;
    char dir[200];
    snprintf(dir, sizeof dir, "%s/unisono-test-%d", root, (int)getpid());
    if (mkdir(dir, 0700) != 0 || !write_pid(dir, live.pids[2]) || !write_text(dir, file, freezes)) {
        print_message("no cgroup can be frozen at %s: %s\n", root, strerror(errno));
        live_end_rank(2);
        rmdir(dir);
        skip();
    }
    bool seen = live_becomes(2, frozen, &r);
    char cgroup[sizeof r.process.cgroup], stack[sizeof r.process.stack];
    snprintf(cgroup, sizeof cgroup, "%s", seen ? r.process.cgroup : "");
    snprintf(stack, sizeof stack, "%s", seen ? r.process.stack : "");
    verdict_rank_free(&r);
    bool thawed = write_text(dir, file, thaws);
    if (seen && thawed)
        live_order_all(REDUCES); /* unharmed */
    live_end_rank(2);
    for (int i = 0; i < 100 && rmdir(dir) != 0; i++)
        usleep(10000);
    assert_true(seen);
    assert_non_null(strstr(cgroup, "unisono-test"));
}

static void frozen_rank(void **state)
{
    (void)state;
    const char *root = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified";
    freeze(root, "cgroup.freeze", "1", "0");
}

static void frozen_rank_v1(void **state)
{
    (void)state;
    freeze("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED");
}

static int setup_small_memory(void **state)
{
    (void)state;
    static char dir[200];
    bool v1 = access("/sys/fs/cgroup/memory", F_OK) == 0;
    snprintf(dir, sizeof dir, "/sys/fs/cgroup%s/unisono-oom-%d", v1 ? "/memory" : "", (int)getpid());
    *state = dir;
    if (mkdir(dir, 0700) != 0 || !write_text(dir, v1 ? "memory.limit_in_bytes" : "memory.max", "209715200")) {
        print_message("no cgroup with little memory can be made here: %s\n", strerror(errno));
        rmdir(dir);
        dir[0] = 0;
    }
    snprintf(small_memory, sizeof small_memory, "%s", dir);
    return start(true);
}

static int teardown_small_memory(void **state)
{
    teardown(state);
    for (int i = 0; i < 100 && small_memory[0] && rmdir(small_memory) != 0; i++)
        usleep(10000);
    small_memory[0] = 0;
    return 0;
}

static void out_of_memory(void **state)
{
    (void)state;
    struct verdict_rank r;
    siginfo_t si;
    if (!small_memory[0])
        skip();
    live_order(1, ALLOCATES);
    assert_int_equal(waitid(P_PID, (id_t)live.pids[1], &si, WEXITED | WNOWAIT), 0);
    assert_int_equal(si.si_status, SIGKILL);
    records_ended(&live.watch, &live.watch.peers[1]);
    live.watch.peers[1].state = PEER_DEAD;
    live_report(1, REPORT_EVENTS, &r);
    assert_true(r.oom_kill);
    assert_int_equal(r.ended_code, SIGKILL);
    verdict_rank_free(&r);
    kill(live.pids[3], SIGKILL); /* another one dies of something else: one kill explains one death */
    assert_int_equal(waitid(P_PID, (id_t)live.pids[3], &si, WEXITED | WNOWAIT), 0);
    records_ended(&live.watch, &live.watch.peers[3]);
    live.watch.peers[3].state = PEER_DEAD;
    live_report(3, REPORT_EVENTS, &r);
    assert_false(r.oom_kill);
    verdict_rank_free(&r);
}

/* ---- ends -------------------------------------------------------------------------------------------------------------------- */

/* It had forked a process, which lives on. */
static void killed_with_child(void **state)
{
    (void)state;
    struct verdict_rank r;
    live_order(1, FORKS);
    assert_true(live_reaches(&live.shared->done[1], 1));
    kill(live.pids[1], SIGKILL);
    live_ended(1, PEER_DEAD);
    live_report(1, REPORT_EVENTS, &r);
    assert_int_equal(r.status, VERDICT_DEAD);
    assert_int_equal(r.children_left, 1);
    assert_int_equal(r.children[0], live.shared->forked);
    assert_int_equal(r.children[1], 0);
    verdict_rank_free(&r);
    kill(live.shared->forked, SIGKILL);
    uint32_t left = 1;
    for (uint64_t until = clock_ns() + LIMIT_NS; left != 0;) {
        assert_true(clock_ns() < until);
        live_report(1, REPORT_EVENTS, &r);
        left = r.children_left;
        verdict_rank_free(&r);
    }
}

static void killed_rank(void **state)
{
    (void)state;
    struct verdict_rank r;
    for (int i = 0; i < 3; i++)
        live_order_all(REDUCES);
    records_tick(&live.watch, clock_ns());
    live_order(0, REDUCES);
    struct verdict_rank waiting;
    assert_true(live_becomes(0, waits_long, &waiting));
    verdict_rank_free(&waiting);
    kill(live.pids[0], SIGKILL);
    live_ended(0, PEER_DEAD);
    live_report(0, REPORT_EVENTS, &r);
    assert_int_equal(r.status, VERDICT_DEAD);
    if (r.ended != VERDICT_ENDED_UNKNOWN) { /* old kernels tell only the parent */
        assert_int_equal(r.ended, VERDICT_ENDED_SIGNAL);
        assert_int_equal(r.ended_code, SIGKILL);
    }
    assert_false(r.oom_kill);
    assert_true(r.status_since_ns > 0);
    const struct verdict_comm *c = live_comm(&r, "world");
    assert_int_equal(c->newest, 4);
    assert_int_equal(c->events[3].state, VERDICT_RUNNING);
    assert_true(c->events[3].waits_for > 0);
    assert_non_null(strstr(c->events[3].site, "test_report+0x"));
    verdict_rank_free(&r);
}

static void exited_ranks(void **state)
{
    (void)state;
    struct verdict_rank r;
    live_order(1, EXITS_3);
    siginfo_t si;
    assert_int_equal(waitid(P_PID, (id_t)live.pids[1], &si, WEXITED | WNOWAIT), 0);
    records_ended(&live.watch, &live.watch.peers[1]);
    live.watch.peers[1].state = PEER_DEAD;
    live_report(1, REPORT_EVENTS, &r);
    assert_int_equal(r.ended, VERDICT_ENDED_EXIT);
    assert_int_equal(r.ended_code, 3);
    verdict_rank_free(&r);
}

static void communicators(void **state)
{
    (void)state;
    struct verdict_rank r;
    live_order_all(SPLITS);
    for (int n = 0; n < 200; n++) {
        live_look();
        live_report(1, REPORT_EVENTS, &r);
        if (r.ncomms == 2)
            break;
        verdict_rank_free(&r);
    }
    assert_int_equal(r.ncomms, 2);
    assert_true(r.comms[0].id != r.comms[1].id);
    assert_false(r.comms[0].destroyed || r.comms[1].destroyed);
    verdict_rank_free(&r);
    for (int i = 0; i < RANKS; i++)
        live_await(i, 1);
    live_order_all(DESTROYS);
    for (int i = 0; i < RANKS; i++)
        live_await(i, 2);
    live_report(1, REPORT_EVENTS, &r);
    assert_int_equal(r.ncomms, 2);
    assert_true(r.comms[0].destroyed != r.comms[1].destroyed);
    verdict_rank_free(&r);
}

/* Who takes the signal later is not sent it any more, once its steward has seen it; a handler of the program is not called. */
static void signal_taken(void **state)
{
    (void)state;
    struct verdict_rank r;
    live_order(1, TAKES_SIGNALS);
    assert_true(live_reaches(&live.shared->done[1], 1));
    for (uint64_t until = clock_ns() + LIMIT_NS; clock_ns() < until && atomic_load(&live.watch.peers[1].records.page->stack_signal);)
        usleep(10000);
    assert_int_equal(atomic_load(&live.watch.peers[1].records.page->stack_signal), 0);
    live_look();
    live_report(1, REPORT_EVENTS, &r);
    assert_int_equal(r.status, VERDICT_REPORTED);
    verdict_rank_free(&r);
}

static bool pauses(const struct verdict_rank *r) { return strcmp(r->process.syscall, "pause") == 0; }

/* Whoever judges does not hang with whom it judges: the others are told of in time, without stacks as long as one does not answer. */
static void hung_memory(void **state)
{
    (void)state;
    struct verdict_rank r;
    int status;
    live_order(1, HANGS);
    live_order(2, READS);
    usleep(50000);
    if (waitpid(live.pids[1], &status, WNOHANG) == live.pids[1]) {
        live.pids[1] = 0;
        print_message("no memory that hangs can be made here\n");
        skip();
    }
    for (int i = 0; i < 3; i++) {
        uint64_t began = clock_ns();
        live_look();
        live_report(1, REPORT_EVENTS, &r);
        assert_string_equal(r.process.stack, "");
        verdict_rank_free(&r);
        live_report(2, REPORT_EVENTS, &r);
        verdict_rank_free(&r);
        assert_true(clock_ns() - began < 1000000000);
    }
    live_report(1, REPORT_EVENTS, &r);
    if (r.process.syscall[0])
        assert_true(pauses(&r));
    verdict_rank_free(&r);
    live_end_rank(1); /* and with it what was waited for */
    assert_true(live_becomes(2, in_read, &r));
    verdict_rank_free(&r);
}

static bool reads(const struct verdict_rank *r) { return r->process.syscall[0] == 0 ? r->process.run == VERDICT_RUN_SLEEPS : strcmp(r->process.syscall, "read") == 0; }
static bool computes(const struct verdict_rank *r) { return r->process.run == VERDICT_RUN_RUNS && r->process.cpu_permille > 300; }

static void stacks_off(void **state)
{
    (void)state;
    struct verdict_rank r;
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(atomic_load(&live.watch.peers[i].records.page->stack_signal), BOARD_STACKS_OFF);
    live_order(2, READS);
    live_order(3, BURNS);
    assert_true(live_becomes(2, reads, &r));
    assert_string_equal(r.process.stack, "");
    assert_true(r.process.sample_ns > 0);
    verdict_rank_free(&r);
    assert_true(live_becomes(3, computes, &r));
    assert_string_equal(r.process.stack, "");
    verdict_rank_free(&r);
}

/* A look disturbs nobody: operations go on while looks come one after another. */
static void looked_at_while_busy(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        live_order_all(REDUCES);
        report_begin(&live.watch);
        live_order_all(REDUCES);
    }
    for (int r = 0; r < RANKS; r++)
        live_await(r, 20);
    struct verdict_rank r;
    live_look();
    live_report(3, REPORT_EVENTS, &r);
    assert_int_equal(live_comm(&r, "world")->newest, 20);
    verdict_rank_free(&r);
}

/* How a program was started, and what it is called. tail stays. */
static void programs_have_names(void **state)
{
    (void)state;
    static const char *const started[][5] = {
        {"/opt/bin/a-program-with-a-long-name", "-f", "/dev/null", NULL, "a-program-with-a-long-name"},
        {"/usr/bin/python3.11", "-f", "/dev/null", NULL, "null"},
        {"python3", "-f", "/dev/null", NULL, "null"}};
    for (size_t i = 0; i < ARRAY_LEN(started); i++) {
        char name[64] = "";
        pid_t pid = fork();
        if (pid == 0) {
            execv("/usr/bin/tail", (char *const *)(uintptr_t)started[i]);
            _exit(127);
        }
        for (int tries = 0; tries < 2000 && strcmp(name, started[i][4]) != 0; tries++, usleep(1000))
            proc_program(pid, name, sizeof name);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_string_equal(name, started[i][4]);
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(three_at_once), CASE(stopped_rank), CASE(replaced_rank), CASE(who_ends_is_not_replaced), CASE(traced_rank), CASE(starved_rank),
        CASE(frozen_rank), CASE(frozen_rank_v1),
        CASE(killed_rank), CASE(killed_with_child),
        CASE(exited_ranks), CASE(communicators), CASE(signal_taken), CASE(hung_memory), CASE(looked_at_while_busy),
        cmocka_unit_test(programs_have_names), cmocka_unit_test_setup_teardown(out_of_memory, setup_small_memory, teardown_small_memory),
        cmocka_unit_test_setup_teardown(stacks_off, setup_without_stacks, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
