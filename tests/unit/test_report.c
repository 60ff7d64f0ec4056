/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about real processes, seen from outside: ranks that wait, sleep in a system call, burn, are stopped, traced, frozen, starved,
 * killed. The test is no rank; it maps their boards as a steward of their host does, and looks.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"
#include "watch/watch_inner.h"
#include "watch/watch_save.h"

#define RANKS 4
#define LIMIT_NS 20000000000ull

enum doing { IDLE = 0, REDUCES, READS, BURNS, SLEEPS, TAKES_SIGNALS, SPLITS, DESTROYS, EXITS_3, FORKS, ALLOCATES, NAPS };

static struct shared {
    _Atomic int have_id;
    uno_id id;
    _Atomic int joined[RANKS];
    struct net_segment_ref board[RANKS];
    _Atomic int todo[RANKS], done[RANKS]; /* enum doing, and how many were done */
    int stacks_off;
    _Atomic int nap[RANKS];                /* place in naps */
    _Atomic uint64_t napped_ns[RANKS];     /* how long it lasted, 1 if the call said something else than that its time was up */
    _Atomic pid_t child;
} *sh;
static pid_t pids[RANKS];
static char small_memory[200]; /* a cgroup for the ranks; "" = none */
static char ledger_dir[100];
static int nothing[2]; /* a pipe that nobody writes */
static struct watch w;
static struct watch_member members[RANKS + 1];

/* ---- the ranks -------------------------------------------------------------------------------------------------------------- */

static size_t where(void *arg, char *buf, size_t bytes)
{
    return (size_t)snprintf(buf, bytes, "train.py:212 in %s", (const char *)arg);
}

static volatile uint64_t spun;
__attribute__((noinline)) static void burns_processor_time(void)
{
    for (;;)
        spun++;
}
__attribute__((noinline)) static long sleeps_in_a_read(void)
{
    char c;
    long n = read(nothing[0], &c, 1);
    return n + 1; /* no tail call, so that this function stays on the stack */
}

static void on_any(int sig) { (void)sig; }

/* ---- waits that a signal would end early, whatever its handler's flags; each returns whether its time was up --------------------- */

#define NAP_S 2
static const struct timespec nap_time = {NAP_S, 0};

static bool nap_sleep(void) { return sleep(NAP_S) == 0; }
static bool nap_nanosleep(void) { return nanosleep(&nap_time, NULL) == 0; }
static bool nap_poll(void) { return poll(&(struct pollfd){.fd = nothing[0], .events = POLLIN}, 1, NAP_S * 1000) == 0; }
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

static void do_it(enum doing what, uno_comm *comm, int rank)
{
    static uno_comm *child;
    float x[8] = {1};
    switch (what) {
    case REDUCES:
        if (uno_all_reduce(x, x, 8, UNO_FLOAT32, UNO_SUM, comm, NULL) != UNO_OK)
            fprintf(stderr, "%s\n", uno_last_error(comm));
        break;
    case READS: (void)sleeps_in_a_read(); break;
    case BURNS: burns_processor_time(); break;
    case SLEEPS: sleep(1000); break;
    case NAPS: {
        uint64_t began = clock_ns();
        bool up = naps[atomic_load(&sh->nap[rank])].nap();
        atomic_store(&sh->napped_ns[rank], up ? clock_ns() - began : 1);
        break;
    }
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
    case FORKS: {
        pid_t forked = fork();
        if (forked == 0) {
            alarm(20);
            for (;;)
                pause();
        }
        atomic_store(&sh->child, forked);
        break;
    }
    case ALLOCATES: {
        volatile char *p = malloc((size_t)1 << 30);
        for (size_t i = 0; p && i < (size_t)1 << 30; i += 4096)
            p[i] = 1;
        break;
    }
    default: break;
    }
}

static void rank_main(int rank)
{
    uno_comm *comm;
    alarm(60);
    setenv("UNISONO_DEBUG", "none", 1);
    if (ledger_dir[0])
        setenv("UNISONO_LEDGER_DIR", ledger_dir, 1);
    if (small_memory[0]) {
        char path[300];
        snprintf(path, sizeof path, "%s/cgroup.procs", small_memory);
        FILE *f = fopen(path, "w");
        if (!f || fprintf(f, "%d", (int)getpid()) < 1 || fclose(f) != 0)
            _exit(9);
    }
    if (sh->stacks_off)
        setenv("UNISONO_STACKS", "off", 1);
    if (rank == 0) {
        if (uno_get_id(&sh->id) != UNO_OK)
            _exit(9);
        atomic_store(&sh->have_id, 1);
    }
    while (!atomic_load(&sh->have_id))
        usleep(1000);
    uno_config config = UNO_CONFIG_INIT;
    config.name = "world";
    if (uno_comm_init_rank(&comm, RANKS, &sh->id, rank, &config) != UNO_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, uno_last_error(NULL));
        _exit(9);
    }
    uno_set_position_callback(where, (void *)(uintptr_t)"step");
    watch_board_ref(comm->job->board, &sh->board[rank]);
    atomic_store(&sh->joined[rank], 1);
    for (;;) {
        int what = atomic_exchange(&sh->todo[rank], IDLE);
        do_it((enum doing)what, comm, rank);
        if (what != IDLE)
            atomic_fetch_add(&sh->done[rank], 1);
        usleep(500);
    }
}

static bool soon(bool (*yes)(void *arg), void *arg)
{
    for (uint64_t until = clock_ns() + LIMIT_NS; clock_ns() < until; usleep(500))
        if (yes(arg))
            return true;
    return false;
}

static bool is_one(void *arg) { return atomic_load((_Atomic int *)arg) == 1; }

static int start(bool stacks_off)
{
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sh->stacks_off = stacks_off;
    if (pipe(nothing) != 0)
        return -1;
    for (int r = 0; r < RANKS; r++)
        if ((pids[r] = fork()) == 0)
            rank_main(r);
    memset(members, 0, sizeof members);
    for (int r = 0; r < RANKS; r++) {
        if (!soon(is_one, &sh->joined[r]))
            return -1;
        members[r] = (struct watch_member){.process = r, .pid = pids[r], .start_ticks = watch_start_ticks(pids[r]), .board = sh->board[r]};
        snprintf(members[r].hostname, sizeof members[r].hostname, "hostA");
    }
    members[RANKS] = (struct watch_member){.process = RANKS, .pid = getpid()};
    w = (struct watch){.opt = {.rank = RANKS, .size = RANKS + 1}, .members = members, .epoll = -1};
    if (peers_new(&w) != UNO_OK)
        return -1;
    for (int r = 0; r < RANKS; r++)
        if (!process_watch(&w.peers[r].eye))
            return -1;
    records_open(&w);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return start(false);
}
static int setup_without_stacks(void **state)
{
    (void)state;
    return start(true);
}

static void end_rank(int r)
{
    if (pids[r] <= 0)
        return;
    kill(pids[r], SIGKILL);
    kill(pids[r], SIGCONT);
    waitpid(pids[r], NULL, 0);
    pids[r] = 0;
}

static int teardown(void **state)
{
    (void)state;
    if (atomic_load(&sh->child) > 0)
        kill(atomic_load(&sh->child), SIGKILL);
    for (int r = 0; r < RANKS; r++)
        end_rank(r);
    peers_free(&w);
    close(nothing[0]);
    close(nothing[1]);
    munmap(sh, sizeof *sh);
    return 0;
}

static void order(int rank, enum doing what) { atomic_store(&sh->todo[rank], what); }

static bool taken(void *arg) { return atomic_load((_Atomic int *)arg) == IDLE; }
static void order_all(enum doing what)
{
    for (int r = 0; r < RANKS; r++)
        order(r, what);
    for (int r = 0; r < RANKS; r++)
        assert_true(soon(taken, &sh->todo[r]));
}

static void look(void)
{
    report_begin(&w);
    uint64_t ready = report_ready_ns(&w);
    assert_true(ready > 0);
    while (clock_ns() < ready)
        usleep(1000);
}

/* A report must survive its way as a record. */
static void get(int rank, struct verdict_rank *out)
{
    struct verdict_rank r;
    static char buf[VERDICT_RECORD_LIMIT];
    size_t bytes;
    assert_int_equal(report_rank(&w, rank, REPORT_EVENTS, &r), UNO_OK);
    assert_int_equal(verdict_encode(&r, buf, sizeof buf, &bytes), UNO_OK);
    verdict_rank_free(&r);
    assert_int_equal(verdict_decode(buf, bytes, out), UNO_OK);
}

static const struct verdict_comm *comm_named(const struct verdict_rank *r, const char *name)
{
    for (uint32_t i = 0; i < r->ncomms; i++)
        if (strcmp(r->comms[i].name, name) == 0)
            return &r->comms[i];
    return NULL;
}

/* Report of a rank, again and again until yes(); the last one stays in *out. */
static bool becomes(int rank, bool (*yes)(const struct verdict_rank *r), struct verdict_rank *out)
{
    for (uint64_t until = clock_ns() + LIMIT_NS; clock_ns() < until;) {
        look();
        get(rank, out);
        if (yes(out))
            return true;
        verdict_rank_free(out);
    }
    return false;
}

/* ---- cases ------------------------------------------------------------------------------------------------------------------- */

static bool waits_long(const struct verdict_rank *r)
{
    const struct verdict_comm *c = comm_named(r, "world");
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
        order_all(REDUCES);
    order(0, REDUCES);
    order(1, REDUCES);
    order(2, READS);
    order(3, BURNS);

    assert_true(becomes(0, waits_long, &r));
    const struct verdict_comm *c = comm_named(&r, "world");
    const struct verdict_event *e = &c->events[c->nevents - 1];
    assert_int_equal(r.status, VERDICT_REPORTED);
    assert_int_equal(r.pid, pids[0]);
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

    assert_true(becomes(2, in_read, &r));
    c = comm_named(&r, "world");
    assert_int_equal(c->newest, 5);
    assert_int_equal(c->events[c->nevents - 1].state, VERDICT_DONE);
    assert_false(r.process.in_library);
    assert_true(r.process.cpu_permille < 200);
    if (r.process.run == VERDICT_RUN_SYSCALL) /* the kernel may keep it from who is no tracer */
        assert_string_equal(r.process.syscall, "read");
    else
        assert_int_equal(r.process.run, VERDICT_RUN_SLEEPS);
    verdict_rank_free(&r);

    assert_true(becomes(3, burns, &r));
    assert_int_equal(r.process.run, VERDICT_RUN_RUNS);
    assert_true(r.process.sample_ns >= REPORT_SAMPLE_NS);
    assert_false(r.process.in_library);
    verdict_rank_free(&r);
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

/* Sleeps and timed waits last their whole time, however often one looks; the system call is named instead of a stack. */
static void naps_go_on(void **state)
{
    (void)state;
    for (int first = 0; first < (int)ARRAY_LEN(naps); first += RANKS) {
        int n = MIN((int)ARRAY_LEN(naps) - first, RANKS), named = 0;
        for (int r = 0; r < n; r++) {
            atomic_store(&sh->nap[r], first + r);
            atomic_store(&sh->napped_ns[r], 0);
            order(r, NAPS);
        }
        for (uint64_t until = clock_ns() + LIMIT_NS;;) {
            bool all = true;
            for (int r = 0; r < n; r++)
                all = all && atomic_load(&sh->napped_ns[r]) != 0;
            if (all || clock_ns() > until)
                break;
            look();
            for (int r = 0; r < n; r++) {
                struct verdict_rank v;
                get(r, &v);
                named |= v.process.syscall[0] && strstr(naps[first + r].calls, v.process.syscall) ? 1 << r : 0;
                verdict_rank_free(&v);
            }
        }
        for (int r = 0; r < n; r++)
            if (atomic_load(&sh->napped_ns[r]) < NAP_S * 1000000000ull - 20000000)
                fail_msg("a wait in %s of %d s was cut to %.3f s", naps[first + r].calls, NAP_S, (double)atomic_load(&sh->napped_ns[r]) / 1e9);
        if (shows_calls(pids[0]))
            assert_int_equal(named, (1 << n) - 1);
    }
}

static bool stopped(const struct verdict_rank *r) { return r->process.run == VERDICT_RUN_STOPPED; }

static void stopped_rank(void **state)
{
    (void)state;
    struct verdict_rank r;
    order_all(REDUCES);
    look();
    uint64_t before = clock_ns();
    kill(pids[1], SIGSTOP);
    assert_true(becomes(1, stopped, &r));
    assert_true(r.process.run_since_ns >= before && r.process.run_since_ns <= r.taken_ns + 1000000);
    assert_string_equal(r.process.stack, ""); /* nobody waits for an answer that cannot come */
    assert_int_equal(comm_named(&r, "world")->newest, 1);
    uint64_t since = r.process.run_since_ns;
    verdict_rank_free(&r);
    look();
    get(1, &r);
    assert_true(r.process.run_since_ns == since);
    verdict_rank_free(&r);
    kill(pids[1], SIGCONT);
    order_all(REDUCES); /* unharmed */
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
        if (ptrace(PTRACE_ATTACH, pids[2], NULL, NULL) != 0)
            _exit(errno == EPERM ? 77 : 1);
        waitpid(pids[2], NULL, 0);
        while (read(gate[0], &c, 1) < 0)
            ;
        ptrace(PTRACE_DETACH, pids[2], NULL, NULL);
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
    assert_true(becomes(2, traced, &r));
    assert_int_equal(r.process.tracer_pid, tracer);
    assert_string_equal(r.process.tracer, "test_report");
    verdict_rank_free(&r);
    close(gate[1]);
    waitpid(tracer, &status, 0);
    order_all(REDUCES);
}

static bool starved(const struct verdict_rank *r) { return r->process.queue_permille > 400; }

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
    assert_int_equal(sched_setaffinity(pids[3], sizeof one, &one), 0);
    assert_int_equal(setpriority(PRIO_PROCESS, (id_t)pids[3], 15), 0);
    order(3, BURNS);
    assert_true(becomes(3, starved, &r));
    assert_true(r.process.cpu_permille < 600);
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
    if (mkdir(dir, 0700) != 0 || !write_pid(dir, pids[2]) || !write_text(dir, file, freezes)) {
        print_message("no cgroup can be frozen at %s: %s\n", root, strerror(errno));
        end_rank(2);
        rmdir(dir);
        skip();
    }
    bool seen = becomes(2, frozen, &r);
    char cgroup[sizeof r.process.cgroup], stack[sizeof r.process.stack];
    snprintf(cgroup, sizeof cgroup, "%s", seen ? r.process.cgroup : "");
    snprintf(stack, sizeof stack, "%s", seen ? r.process.stack : "");
    verdict_rank_free(&r);
    bool thawed = write_text(dir, file, thaws);
    if (seen && thawed)
        order_all(REDUCES); /* unharmed */
    end_rank(2);
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
    return start(false);
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
    order(1, ALLOCATES);
    assert_int_equal(waitid(P_PID, (id_t)pids[1], &si, WEXITED | WNOWAIT), 0);
    assert_int_equal(si.si_status, SIGKILL);
    records_ended(&w, &w.peers[1]);
    w.peers[1].state = PEER_DEAD;
    get(1, &r);
    assert_true(r.oom_kill);
    assert_int_equal(r.ended_code, SIGKILL);
    verdict_rank_free(&r);
    kill(pids[3], SIGKILL); /* another one dies of something else: one kill explains one death */
    assert_int_equal(waitid(P_PID, (id_t)pids[3], &si, WEXITED | WNOWAIT), 0);
    records_ended(&w, &w.peers[3]);
    w.peers[3].state = PEER_DEAD;
    get(3, &r);
    assert_false(r.oom_kill);
    verdict_rank_free(&r);
}

/* ---- ends -------------------------------------------------------------------------------------------------------------------- */

/* It had forked a process, which lives on. */
static void killed_with_child(void **state)
{
    (void)state;
    struct verdict_rank r;
    order(1, FORKS);
    assert_true(soon(is_one, &sh->done[1]));
    kill(pids[1], SIGKILL);
    waitpid(pids[1], NULL, 0);
    pids[1] = 0;
    records_ended(&w, &w.peers[1]);
    w.peers[1].state = PEER_DEAD;
    get(1, &r);
    assert_int_equal(r.status, VERDICT_DEAD);
    assert_int_equal(r.children_left, 1);
    assert_int_equal(r.children[0], sh->child);
    assert_int_equal(r.children[1], 0);
    verdict_rank_free(&r);
    kill(sh->child, SIGKILL);
    uint32_t left = 1;
    for (uint64_t until = clock_ns() + LIMIT_NS; left != 0;) {
        assert_true(clock_ns() < until);
        get(1, &r);
        left = r.children_left;
        verdict_rank_free(&r);
    }
}

static void killed_rank(void **state)
{
    (void)state;
    struct verdict_rank r;
    for (int i = 0; i < 3; i++)
        order_all(REDUCES);
    records_tick(&w, clock_ns());
    order(0, REDUCES);
    struct verdict_rank waiting;
    assert_true(becomes(0, waits_long, &waiting));
    verdict_rank_free(&waiting);
    kill(pids[0], SIGKILL);
    waitpid(pids[0], NULL, 0);
    pids[0] = 0;
    records_ended(&w, &w.peers[0]);
    w.peers[0].state = PEER_DEAD;
    get(0, &r);
    assert_int_equal(r.status, VERDICT_DEAD);
    if (r.ended != VERDICT_ENDED_UNKNOWN) { /* old kernels tell only the parent */
        assert_int_equal(r.ended, VERDICT_ENDED_SIGNAL);
        assert_int_equal(r.ended_code, SIGKILL);
    }
    assert_false(r.oom_kill);
    assert_true(r.status_since_ns > 0);
    const struct verdict_comm *c = comm_named(&r, "world");
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
    order(1, EXITS_3);
    siginfo_t si;
    assert_int_equal(waitid(P_PID, (id_t)pids[1], &si, WEXITED | WNOWAIT), 0);
    records_ended(&w, &w.peers[1]);
    w.peers[1].state = PEER_DEAD;
    get(1, &r);
    assert_int_equal(r.ended, VERDICT_ENDED_EXIT);
    assert_int_equal(r.ended_code, 3);
    verdict_rank_free(&r);
}

static void communicators(void **state)
{
    (void)state;
    struct verdict_rank r;
    order_all(SPLITS);
    for (int n = 0; n < 200; n++) {
        look();
        get(1, &r);
        if (r.ncomms == 2)
            break;
        verdict_rank_free(&r);
    }
    assert_int_equal(r.ncomms, 2);
    assert_true(r.comms[0].id != r.comms[1].id);
    assert_false(r.comms[0].destroyed || r.comms[1].destroyed);
    verdict_rank_free(&r);
    for (int i = 0; i < RANKS; i++)
        while (atomic_load(&sh->done[i]) < 1)
            usleep(1000);
    order_all(DESTROYS);
    for (int i = 0; i < RANKS; i++)
        while (atomic_load(&sh->done[i]) < 2)
            usleep(1000);
    get(1, &r);
    assert_int_equal(r.ncomms, 2);
    assert_true(r.comms[0].destroyed != r.comms[1].destroyed);
    verdict_rank_free(&r);
}

/* Who takes the signal later is not sent it any more, once its steward has seen it; a handler of the program is not called. */
static void signal_taken(void **state)
{
    (void)state;
    struct verdict_rank r;
    order(1, TAKES_SIGNALS);
    assert_true(soon(is_one, &sh->done[1]));
    for (uint64_t until = clock_ns() + LIMIT_NS; clock_ns() < until && atomic_load(&w.peers[1].records.page->stack_signal);)
        usleep(10000);
    assert_int_equal(atomic_load(&w.peers[1].records.page->stack_signal), 0);
    look();
    get(1, &r);
    assert_string_equal(r.process.stack, "");
    assert_int_equal(r.status, VERDICT_REPORTED);
    verdict_rank_free(&r);
}

static void stacks_off(void **state)
{
    (void)state;
    struct verdict_rank r;
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(atomic_load(&w.peers[i].records.page->stack_signal), 0);
    order(2, READS);
    look();
    look();
    get(2, &r);
    assert_string_equal(r.process.stack, "");
    assert_true(r.process.sample_ns > 0);
    verdict_rank_free(&r);
}

/* A look disturbs nobody: operations go on while looks come one after another. */
static void looked_at_while_busy(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        order_all(REDUCES);
        report_begin(&w);
        order_all(REDUCES);
    }
    for (int r = 0; r < RANKS; r++)
        while (atomic_load(&sh->done[r]) < 20)
            usleep(1000);
    struct verdict_rank r;
    look();
    get(3, &r);
    assert_int_equal(comm_named(&r, "world")->newest, 20);
    verdict_rank_free(&r);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------ */

static int setup_ledger_dir(void **state)
{
    (void)state;
    snprintf(ledger_dir, sizeof ledger_dir, "/tmp/unisono-report-XXXXXX");
    return mkdtemp(ledger_dir) == NULL;
}

static void remove_tree(const char *path)
{
    char sub[600];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(sub, sizeof sub, "%.250s/%.250s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(sub) != 0)
            remove_tree(sub);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static int teardown_ledger_dir(void **state)
{
    (void)state;
    remove_tree(ledger_dir);
    ledger_dir[0] = 0;
    return 0;
}

static void folder(char *buf, size_t bytes) { snprintf(buf, bytes, "%s/unisono-%u", ledger_dir, (unsigned)getuid()); }

static int count_files(void)
{
    char path[200];
    int n = 0;
    folder(path, sizeof path);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n;
}

static void files_are_ours(void **state)
{
    (void)state;
    char path[1300], dir[200];
    struct stat st;
    folder(dir, sizeof dir);
    assert_int_equal(save_file(ledger_dir, "a.facts", "hello", 5, path, sizeof path), UNO_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(save_file(ledger_dir, "a.facts", "hello again", 11, path, sizeof path), UNO_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 11);
    assert_int_equal(count_files(), 1);

    fault_arm("save", 1); /* a full disk: one sentence, nothing half written, the old file stays */
    assert_int_equal(save_file(ledger_dir, "a.facts", "x", 1, path, sizeof path), UNO_ERR_SYSTEM);
    assert_non_null(strstr(uno_last_error(NULL), "No space left"));
    assert_int_equal(count_files(), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 11);

    chmod(dir, 0755);
    assert_int_equal(save_file(ledger_dir, "b.facts", "x", 1, path, sizeof path), UNO_ERR_USAGE);
    assert_non_null(strstr(uno_last_error(NULL), "0700"));
    remove_tree(dir);
    assert_int_equal(symlink("/tmp", dir), 0);
    assert_int_equal(save_file(ledger_dir, "b.facts", "x", 1, path, sizeof path), UNO_ERR_SYSTEM);
    unlink(dir);
    assert_int_equal(save_file("/proc/none", "b.facts", "x", 1, path, sizeof path), UNO_ERR_SYSTEM);
}

static void oldest_removed(void **state)
{
    (void)state;
    char path[1300], name[32], first[1300];
    for (int i = 0; i < SAVE_MOST_FILES + 5; i++) {
        snprintf(name, sizeof name, "job-%03d.facts", i);
        assert_int_equal(save_file(ledger_dir, name, name, strlen(name), path, sizeof path), UNO_OK);
        struct timespec when[2] = {{1000000 + i, 0}, {1000000 + i, 0}};
        assert_int_equal(utimensat(AT_FDCWD, path, when, 0), 0);
        if (i == 0)
            snprintf(first, sizeof first, "%s", path);
    }
    assert_int_equal(count_files(), SAVE_MOST_FILES);
    assert_int_equal(access(first, F_OK), -1);
    assert_int_equal(access(path, F_OK), 0);
}

static int setup_saving(void **state)
{
    return setup_ledger_dir(state) != 0 || start(false) != 0;
}
/* As above, but only the keeper saves. */
static int setup_keeping(void **state)
{
    int bad = start(false);
    return setup_ledger_dir(state) != 0 || bad != 0;
}
static int teardown_saving(void **state)
{
    teardown(state);
    return teardown_ledger_dir(state);
}

/* The records in the one file there is; returns how many. */
static int read_saved(struct verdict_rank *ranks, int most)
{
    char dir[200], path[500] = "";
    static char buf[RANKS * VERDICT_RECORD_LIMIT];
    folder(dir, sizeof dir);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (d)
        closedir(d);
    FILE *f = path[0] ? fopen(path, "r") : NULL;
    size_t bytes = f ? fread(buf, 1, sizeof buf, f) : 0, at = 0, one;
    if (f)
        fclose(f);
    int n = 0;
    for (; at < bytes && n < most; at += one) {
        assert_int_equal(verdict_record_bytes(buf + at, bytes - at, &one), UNO_OK);
        assert_int_equal(verdict_decode(buf + at, one, &ranks[n++]), UNO_OK);
    }
    return n;
}

static struct verdict_rank saved[RANKS];
static int dead_rank;
static bool saved_dead(void *arg)
{
    (void)arg;
    int n = read_saved(saved, RANKS);
    if (n == RANKS && saved[dead_rank].status == VERDICT_DEAD)
        return true;
    for (int i = 0; i < n; i++)
        verdict_rank_free(&saved[i]);
    return false;
}

static void death_is_saved(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        order_all(REDUCES);
    order(0, REDUCES);
    for (int death = 0; death < 2; death++) { /* then the hub itself: the next one saves */
        dead_rank = death == 0 ? 2 : 0;
        kill(pids[dead_rank], SIGKILL);
        waitpid(pids[dead_rank], NULL, 0);
        pids[dead_rank] = 0;
        assert_true(soon(saved_dead, NULL));
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(saved[r].rank, r);
            assert_int_equal(saved[r].size, RANKS);
            assert_int_equal(saved[r].status, r == 2 || r == dead_rank ? VERDICT_DEAD : VERDICT_REPORTED);
            const struct verdict_comm *c = comm_named(&saved[r], "world");
            assert_non_null(c);
            assert_true(c->newest >= 3);
            assert_int_equal(c->nevents, c->newest);
        }
        if (saved[2].ended != VERDICT_ENDED_UNKNOWN)
            assert_int_equal(saved[2].ended_code, SIGKILL);
        for (int r = 0; r < RANKS; r++)
            verdict_rank_free(&saved[r]);
    }
}

/* ---- the keeper: a launcher or a tool that has joined nothing ---------------------------------------------------------------- */

static int decode_all(const void *data, size_t bytes, struct verdict_rank *ranks)
{
    int n = 0;
    for (size_t at = 0, one; at < bytes; at += one) {
        assert_int_equal(verdict_record_bytes((const char *)data + at, bytes - at, &one), UNO_OK);
        assert_true(n < RANKS);
        assert_int_equal(verdict_decode((const char *)data + at, one, &ranks[n++]), UNO_OK);
    }
    return n;
}

static void kept_beyond_the_end(void **state)
{
    (void)state;
    uno_keeper *k;
    struct verdict_rank ranks[RANKS];
    void *data;
    size_t bytes;
    char path[1100];
    assert_int_equal(uno_keeper_new(&k), UNO_OK);
    assert_int_equal(uno_keeper_look(k, getpid()), UNO_ERR_IN_PROGRESS);
    assert_int_equal(uno_keeper_look(k, 0x3ffffff), UNO_ERR_SYSTEM);
    assert_int_equal(uno_keeper_save(k, ledger_dir, path, sizeof path), UNO_ERR_IN_PROGRESS);
    order_all(REDUCES);
    order(2, READS);
    assert_int_equal(uno_keeper_look_around(k, pids[1]), UNO_OK);
    assert_int_equal(uno_keeper_facts(k, 1, &data, &bytes), UNO_OK);
    free(data);
    assert_int_equal(uno_keeper_facts(k, 1, &data, &bytes), UNO_OK);
    assert_int_equal(decode_all(data, bytes, ranks), RANKS);
    free(data);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].rank, r);
        assert_int_equal(ranks[r].status, VERDICT_REPORTED);
        assert_int_equal(ranks[r].reporter, -1);
        assert_int_equal(comm_named(&ranks[r], "world")->newest, 1);
        assert_string_equal(ranks[r].process.python, "train.py:212 in step");
    }
    assert_non_null(strstr(ranks[2].process.stack, "sleeps_in_a_read"));
    for (int r = 0; r < RANKS; r++)
        verdict_rank_free(&ranks[r]);

    for (int r = 0; r < RANKS; r++) /* all at once: nobody of them is left to tell */
        kill(pids[r], SIGKILL);
    for (int r = 0; r < RANKS; r++) {
        int status;
        waitpid(pids[r], &status, 0);
        if (r > 0)
            uno_keeper_ended(k, pids[r], status);
        pids[r] = 0;
    }
    assert_int_equal(uno_keeper_save(k, ledger_dir, path, sizeof path), UNO_OK);
    assert_int_equal(read_saved(ranks, RANKS), RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, VERDICT_DEAD);
        assert_int_equal(comm_named(&ranks[r], "world")->newest, 1);
        if (r > 0)
            assert_int_equal(ranks[r].ended_code, SIGKILL);
        verdict_rank_free(&ranks[r]);
    }
    uno_keeper_free(k);
}

static void not_to_be_kept(void **state)
{
    (void)state;
    uno_keeper *k;
    void *data;
    size_t bytes;
    assert_int_equal(uno_keeper_new(&k), UNO_OK);
    order(1, FORKS);
    assert_true(soon(is_one, &sh->done[1]));
    assert_int_equal(uno_keeper_look(k, sh->child), UNO_ERR_USAGE);
    assert_non_null(strstr(uno_last_error(NULL), "forked child"));
    kill(sh->child, SIGKILL);
    uno_comm *local;
    assert_int_equal(uno_comm_init_all(&local, 1, NULL), UNO_OK);
    assert_int_equal(uno_keeper_look(k, getpid()), UNO_ERR_UNSUPPORTED);
    assert_int_equal(uno_comm_destroy(local), UNO_OK);
    assert_int_equal(uno_keeper_facts(k, 0, &data, &bytes), UNO_OK);
    assert_int_equal(bytes, 0);
    free(data);
    uno_keeper_free(k);
    assert_int_equal(uno_keeper_look(NULL, 1), UNO_ERR_ARG);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(three_at_once), CASE(naps_go_on), CASE(stopped_rank), CASE(traced_rank), CASE(starved_rank), CASE(frozen_rank), CASE(frozen_rank_v1),
        CASE(killed_rank), CASE(killed_with_child),
        CASE(exited_ranks), CASE(communicators), CASE(signal_taken), CASE(looked_at_while_busy),
        cmocka_unit_test_setup_teardown(out_of_memory, setup_small_memory, teardown_small_memory),
        cmocka_unit_test_setup_teardown(files_are_ours, setup_ledger_dir, teardown_ledger_dir),
        cmocka_unit_test_setup_teardown(oldest_removed, setup_ledger_dir, teardown_ledger_dir),
        cmocka_unit_test_setup_teardown(death_is_saved, setup_saving, teardown_saving),
        cmocka_unit_test_setup_teardown(kept_beyond_the_end, setup_keeping, teardown_saving),
        CASE(not_to_be_kept),
        cmocka_unit_test_setup_teardown(stacks_off, setup_without_stacks, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
