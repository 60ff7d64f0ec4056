/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_lend.c - memory that is lent while ranks differ in all that may differ: where buffers lie, in place or not, how calls are
 * issued. And lenders that die, unmap or forbid the reading in the middle of a loan: the first cause is theirs, never a mismatch.
 */
#include "faults.h"

#include <linux/capability.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define TOLD_S 5.0

/* ---- every kind of buffer ------------------------------------------------------------------------------------------------ */

enum { BATCH = 3, MOST = 1 << 18, SLACK = 2048, BATCHES = 4000 };
struct place { int32_t *private, *mapped; };

static int32_t *some_place(struct rng *own, const struct place *p)
{
    static const size_t offsets[] = {0, 1024, 1, 16}; /* elements: whole pages may be offered, others not */
    return (rng_below(own, 2) ? p->private : p->mapped) + offsets[rng_below(own, ARRAY_LEN(offsets))];
}

struct call_made { int32_t *send, *recv; size_t count; uno_coll coll; int32_t base; };

#define EXCHANGE UNO_COLL_COUNT /* to the next rank, from the one before */

static int32_t value(const struct call_made *m, int rank, size_t j)
{
    return (rank + 1) * (int32_t)(j & 1023) + m->base;
}

static uno_err exchange(const struct call_made *m, uno_comm *comm, uno_stream *stream)
{
    int rank = uno_comm_rank(comm), n = uno_comm_size(comm);
    uno_err err = uno_group_start();
    if (err == UNO_OK)
        err = uno_send(m->send, m->count, UNO_INT32, (rank + 1) % n, comm, stream);
    if (err == UNO_OK)
        err = uno_recv(m->recv, m->count, UNO_INT32, (rank + n - 1) % n, comm, stream);
    uno_err end = uno_group_end();
    return err == UNO_OK ? end : err;
}

static uno_err issue(struct call_made *m, uno_comm *comm, uno_stream *stream)
{
    if (m->coll == EXCHANGE)
        return exchange(m, comm, stream);
    if (m->coll == UNO_BROADCAST)
        return uno_broadcast(m->send, m->recv, m->count, UNO_INT32, 1, comm, stream);
    return uno_all_reduce(m->send, m->recv, m->count, UNO_INT32, UNO_SUM, comm, stream);
}

static void check_made(const struct call_made *m, int rank, int n)
{
    for (size_t j = 0; j < m->count; j++) {
        int32_t want = m->coll == EXCHANGE ? value(m, (rank + n - 1) % n, j) : m->coll == UNO_BROADCAST ? value(m, 1, j) : n * (n + 1) / 2 * (int32_t)(j & 1023) + n * m->base;
        CHECK(m->recv[j] == want, "rank %d: element %zu of %zu is %d, not %d", rank, j, m->count, m->recv[j], want);
    }
}

static void issue_all(struct call_made *made, int calls, unsigned way, uno_comm *comm, uno_stream *stream)
{
    bool group = way == 1;
    CHECK(!group || uno_group_start() == UNO_OK, "group");
    for (int i = 0; i < calls; i++) {
        uno_err err = issue(&made[i], comm, way == 2 ? stream : NULL);
        CHECK(err == UNO_OK, "%s", uno_last_error(comm));
    }
    uno_err err = group ? uno_group_end() : way == 2 ? uno_stream_synchronize(stream) : UNO_OK;
    CHECK(err == UNO_OK, "%s: %s", uno_err_name(err), uno_last_error(comm));
}

static void mix(uno_comm *comm, int rank, int n)
{
    struct place in[BATCH], out[BATCH];
    struct rng all, own;
    uno_stream *stream;
    rng_seed(&all, 11);
    rng_seed(&own, 100 + (uint64_t)rank);
    CHECK(uno_stream_create(&stream) == UNO_OK, "stream");
    for (int i = 0; i < BATCH; i++)
        for (struct place *p = &in[i]; p; p = p == &in[i] ? &out[i] : NULL) {
            CHECK(uno_mem_alloc((void **)&p->mapped, (MOST + SLACK) * sizeof(int32_t)) == UNO_OK, "%s", uno_last_error(NULL));
            p->private = calloc(MOST + SLACK, sizeof(int32_t));
        }
    for (int b = 0; b < BATCHES; b++) {
        struct call_made made[BATCH];
        int calls = 1 + (int)rng_below(&all, BATCH);
        for (int i = 0; i < calls; i++) {
            struct call_made *m = &made[i];
            unsigned kind = (unsigned)rng_below(&all, 8);
            m->coll = kind == 0 ? UNO_BROADCAST : kind < 3 ? EXCHANGE : UNO_ALL_REDUCE;
            m->count = rng_below(&all, 1ull << (8 + rng_below(&all, 11)));
            m->base = b + i;
            m->send = some_place(&own, &in[i]);
            m->recv = m->coll != EXCHANGE && rng_below(&own, 2) ? m->send : some_place(&own, &out[i]);
            for (size_t j = 0; j < m->count; j++)
                m->send[j] = value(m, rank, j);
        }
        issue_all(made, calls, (unsigned)rng_below(&own, 3), comm, stream);
        for (int i = 0; i < calls; i++)
            check_made(&made[i], rank, n);
        if (rng_below(&own, 64) == 0) { /* memory that was lent is freed, and other memory may come to lie there */
            CHECK(uno_mem_free(in[0].mapped) == UNO_OK, "free");
            CHECK(uno_mem_alloc((void **)&in[0].mapped, (MOST + SLACK) * sizeof(int32_t)) == UNO_OK, "%s", uno_last_error(NULL));
        }
    }
    for (int i = 0; i < BATCH; i++)
        for (struct place *p = &in[i]; p; p = p == &in[i] ? &out[i] : NULL) {
            free(p->private);
            (void)uno_mem_free(p->mapped);
        }
    (void)uno_stream_destroy(stream);
}

static void mix_rank(int rank)
{
    fault_arm("warm", 1);
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    mix(comm, rank, now_case->ranks);
    CHECK(uno_comm_finalize(comm) == UNO_OK, "%s", uno_last_error(comm));
    (void)uno_comm_destroy(comm);
}

static void *mix_thread(void *arg)
{
    uno_comm *comm = arg;
    mix(comm, uno_comm_rank(comm), uno_comm_size(comm));
    return NULL;
}

static void mix_threads(int rank)
{
    enum { N = 2 };
    uno_comm *comms[N];
    pthread_t threads[N];
    (void)rank;
    CHECK(uno_comm_init_all(comms, N, NULL) == UNO_OK, "%s", uno_last_error(NULL));
    for (int r = 0; r < N; r++)
        pthread_create(&threads[r], NULL, mix_thread, comms[r]);
    for (int r = 0; r < N; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < N; r++)
        (void)uno_comm_destroy(comms[r]);
}

/* Where the reader's memory lies after the lender's, modulo a page, decides whether it is read on the way to somewhere else. */
static void shadow_rank(int rank)
{
    enum { N = 300001, PAGE = 4096 };
    fault_arm("warm", 1);
    uno_comm *comm = join_as(rank, 2, NULL);
    unsigned char *base = mmap(NULL, N + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED, "mmap");
    for (size_t shift = 0; shift < 70; shift += 1 + shift / 8)
        for (int turn = 0; turn < 4; turn++) {
            unsigned char *p = rank == 1 ? base + shift : base;
            for (size_t i = 0; i < N; i++)
                p[i] = rank == 1 ? 0 : (unsigned char)(i / 251 + i + shift * 31 + (size_t)turn);
            CHECK(uno_broadcast(p, p, N, UNO_UINT8, 0, comm, NULL) == UNO_OK, "%s", uno_last_error(comm));
            for (size_t i = 0; i < N; i++)
                CHECK(p[i] == (unsigned char)(i / 251 + i + shift * 31 + (size_t)turn), "shift %zu, byte %zu", shift, i);
        }
    munmap(base, N + PAGE);
    CHECK(uno_comm_finalize(comm) == UNO_OK, "%s", uno_last_error(comm));
    (void)uno_comm_destroy(comm);
}

/* ---- lenders that spoil a loan ------------------------------------------------------------------------------------------- */

enum { UNMAPS = 1, FORBIDS, DIES, EXECS, PID_REUSED, KINDS = 15, MESSAGE = 16 }; /* MESSAGE: the loan is a send's */
#define LOAN_BYTES ((size_t)256 << 10)

static void nap(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static int spoils(void) { return (int)now_case->arg & KINDS; }

static void *spoil(void *loan)
{
    nap(100);
    while (spoils() >= EXECS && !atomic_load(&sh->go))
        nap(1);
    atomic_store(&sh->mark_ns, clock_ns());
    if (spoils() == PID_REUSED)
        return NULL; /* killed by the parent */
    if (spoils() == EXECS) {
        char place[32];
        snprintf(place, sizeof place, "%p", loan);
        execl("/proc/self/exe", "faults", "--occupy", place, (char *)NULL);
    }
    if (spoils() == UNMAPS)
        munmap(loan, LOAN_BYTES);
    else if (spoils() == FORBIDS)
        prctl(PR_SET_DUMPABLE, 0);
    else
        kill(getpid(), SIGKILL);
    return NULL;
}

/* Who may read everybody's memory does not notice that it is forbidden. */
static void drop_ptrace(void)
{
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    CHECK(syscall(SYS_capget, &h, d) == 0, "capget");
    d[0].effective &= ~(1u << CAP_SYS_PTRACE);
    d[0].permitted &= ~(1u << CAP_SYS_PTRACE);
    CHECK(syscall(SYS_capset, &h, d) == 0, "capset");
}

/* A message is taken up before its receiver naps, and read after it. */
static uno_err move_loan(char *loan, int rank, uno_comm *comm, long nap_ms)
{
    if (!(now_case->arg & MESSAGE)) {
        nap(rank == 1 ? nap_ms : 0);
        return uno_broadcast(loan, loan, LOAN_BYTES, UNO_UINT8, 0, comm, NULL);
    }
    if (rank == 0)
        return uno_send(loan, LOAN_BYTES, UNO_UINT8, 1, comm, NULL);
    uno_request *request;
    nap(nap_ms / 6); /* it has been told of by then */
    uno_err err = uno_irecv(loan, LOAN_BYTES, UNO_UINT8, 0, 0, comm, &request);
    nap(nap_ms);
    return err == UNO_OK ? uno_wait(&request, NULL) : err;
}

/* Rank 0 only sends: it does not touch its buffer while rank 1 has not come. The first broadcast goes by slots, the second is
 * lent, for then rank 1 wants to know what reading costs. */
static void spoiled_rank(int rank)
{
    pthread_t thread;
    fault_arm("warm", 1);
    uno_comm *comm = join_as(rank, 2, NULL);
    char *loan = mmap(NULL, LOAN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(loan != MAP_FAILED, "mmap");
    memset(loan, 1, LOAN_BYTES);
    CHECK(move_loan(loan, rank, comm, 0) == UNO_OK, "%s", uno_last_error(comm));
    CHECK(uno_barrier(comm, NULL) == UNO_OK, "%s", uno_last_error(comm));
    if (rank == 0)
        pthread_create(&thread, NULL, spoil, loan);
    else if (spoils() == FORBIDS)
        drop_ptrace();
    if (rank == 1 && spoils() >= EXECS)
        fault_arm("read_late", 1);
    sh->left[rank] = (long)(uintptr_t)loan;
    note(rank, move_loan(loan, rank, comm, 300), comm);
    if (rank == 0)
        pthread_join(thread, NULL);
    (void)uno_comm_destroy(comm);
}

/* ---- readers that are stopped while the lender turns into something else ---------------------------------------------------- */

void lend_occupy(const char *place)
{
    void *at = (void *)(uintptr_t)strtoull(place, NULL, 16);
    char *p = mmap(at, LOAN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (p != at)
        exit(4);
    memset(p, 7, LOAN_BYTES);
    raise(SIGSTOP); /* what stands here now can be read */
    exit(0);
}

static bool has_stopped(void *pid)
{
    siginfo_t told = {0};
    return waitid(P_PID, (id_t)*(pid_t *)pid, &told, WSTOPPED | WNOHANG) == 0 && told.si_pid == *(pid_t *)pid; /* whoever ended stays */
}

static bool has_returned(void *rank)
{
    return atomic_load(&sh->outcome[*(int *)rank].done) != 0;
}

static bool next_pid(pid_t pid)
{
    FILE *last = fopen("/proc/sys/kernel/ns_last_pid", "w");
    bool set = last && fprintf(last, "%d", (int)pid - 1) > 0;
    return (!last || fclose(last) == 0) && set;
}

/* A process of that number, which is free, with other bytes where the loan was. Others may take the number first. */
static void take_pid(pid_t pid)
{
    char place[32];
    pid_t got = 0;
    snprintf(place, sizeof place, "%lx", sh->left[0]);
    for (int tries = 0; tries < 1000 && got != pid && next_pid(pid); tries++) {
        got = fork();
        if (got == 0 && getpid() == pid)
            lend_occupy(place);
        if (got == 0)
            _exit(0);
        if (got != pid)
            waitpid(got, NULL, 0);
    }
    CHECK(got == pid && wait_for(has_stopped, &pid, 10), "nobody occupies the number");
}

static void late_during(const pid_t *pids)
{
    pid_t lender = pids[0], reader = pids[1];
    int one = 1, status;
    CHECK(wait_for(has_stopped, &reader, 10), "rank 1 does not come to the read");
    atomic_store(&sh->go, 1);
    if (spoils() == EXECS) {
        CHECK(wait_for(has_stopped, &lender, 10), "rank 0 does not become another program");
    } else {
        kill(lender, SIGKILL);
        if (next_pid(lender)) { /* else we may not choose numbers, and the dead one keeps its own */
            waitpid(lender, &status, 0);
            take_pid(lender);
        }
    }
    atomic_store(&sh->mark_ns, clock_ns());
    kill(reader, SIGCONT);
    CHECK(wait_for(has_returned, &one, 10), "rank 1 does not return");
    kill(lender, SIGKILL);
}

static void late_judge(const int *statuses)
{
    expect_exit(statuses, 1, 0);
    if (spoils() == EXECS)
        expect(1, UNO_ERR_UNREACHABLE, "another program", TOLD_S);
    else
        expect(1, UNO_ERR_PEER_DEAD, "rank 0", TOLD_S);
}

static void spoiled_judge(const int *statuses)
{
    if (spoils() == DIES) {
        expect_signal(statuses, 0, SIGKILL);
        expect(1, UNO_ERR_PEER_DEAD, "rank 0", TOLD_S);
        return;
    }
    for (int r = 0; r < 2; r++) {
        expect_exit(statuses, r, 0);
        expect(r, UNO_ERR_UNREACHABLE, spoils() == UNMAPS ? "not mapped there any more" : "the kernel forbids it", TOLD_S);
    }
}

/* Both send and receive at once, and a page of what rank 1 lends cannot be read: it is the cause, whoever takes back what it lends then. */
static void both_ways_rank(int rank)
{
    enum { BYTES = 4 << 20, TURNS = 4 };
    static char to[BYTES];
    fault_arm("warm", 1);
    uno_comm *comm = join_as(rank, 2, NULL);
    char *from = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(from != MAP_FAILED, "mmap");
    memset(from, 1, BYTES);
    uno_err err = UNO_OK;
    for (int i = 0; i < TURNS && err == UNO_OK; i++) {
        if (i == TURNS - 1 && rank == 1)
            mprotect(from + BYTES / 4, 4096, PROT_NONE);
        err = uno_barrier(comm, NULL);
        atomic_store(&sh->mark_ns, clock_ns());
        CHECK(uno_group_start() == UNO_OK && uno_send(from, BYTES, UNO_UINT8, !rank, comm, NULL) == UNO_OK &&
              uno_recv(to, BYTES, UNO_UINT8, !rank, comm, NULL) == UNO_OK, "%s", uno_last_error(comm));
        err = uno_group_end();
    }
    note(rank, err, comm);
    (void)uno_comm_destroy(comm);
}

static void both_ways_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < 2; r++)
        expect(r, UNO_ERR_UNREACHABLE, "memory that rank 1", TOLD_S);
}

static int mappings_of(const char *name)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        n += strstr(line, name) != NULL;
    if (maps)
        fclose(maps);
    return n;
}

/* Memory that is allocated, sent and freed, again and again, and nothing but messages: who received it keeps none of it. */
static void freed_rank(int rank)
{
    enum { TIMES = 5000, BYTES = 16384 };
    static char to[BYTES];
    uno_comm *comm = join_as(rank, 2, NULL);
    for (int i = 0; i < TIMES; i++) {
        if (rank == 0) {
            void *from;
            CHECK(uno_mem_alloc(&from, BYTES) == UNO_OK, "%s", uno_last_error(NULL));
            memset(from, i, BYTES);
            CHECK(uno_send(from, BYTES, UNO_UINT8, 1, comm, NULL) == UNO_OK, "%s", uno_last_error(comm));
            CHECK(uno_mem_free(from) == UNO_OK, "free");
        } else {
            CHECK(uno_recv(to, BYTES, UNO_UINT8, 0, comm, NULL) == UNO_OK && to[0] == (char)i && to[BYTES - 1] == (char)i, "%s", uno_last_error(comm));
        }
    }
    CHECK(mappings_of("unisono-user") <= 2, "%d pieces of freed memory are still mapped", mappings_of("unisono-user"));
    CHECK(uno_comm_finalize(comm) == UNO_OK, "%s", uno_last_error(comm));
    (void)uno_comm_destroy(comm);
}

/* A message that has been sent is there, also for who takes it piece by piece when its sender has left. */
static void taken_late_rank(int rank)
{
    enum { BYTES = 448 << 10 };
    static char buf[BYTES];
    uno_comm *comm = join_as(rank, 2, NULL);
    uno_request *request;
    memset(buf, rank, BYTES);
    CHECK((rank ? uno_isend(buf, BYTES, UNO_UINT8, 0, 0, comm, &request) : uno_irecv(buf, BYTES, UNO_UINT8, 1, 0, comm, &request)) == UNO_OK,
          "%s", uno_last_error(comm));
    uno_err err;
    if (rank == 1)
        CHECK(uno_wait(&request, NULL) == UNO_OK && uno_comm_finalize(comm) == UNO_OK, "%s", uno_last_error(comm));
    while (rank == 0 && (err = uno_test(&request, NULL)) != UNO_OK) {
        CHECK(err == UNO_ERR_IN_PROGRESS, "%s", uno_last_error(comm));
        if (err != UNO_ERR_IN_PROGRESS)
            break;
        nap(5);
    }
    for (int i = 0; rank == 0 && i < BYTES; i++)
        CHECK(buf[i] == 1, "byte %d has not come", i);
    if (now_case->arg) { /* the sender stays until all is taken, without its communicator */
        set_stage(rank, 1);
        wait_all_stages(-1, 1);
    }
    (void)uno_comm_destroy(comm);
}

/* In the middle of all-reduces that read each other's memory, wherever it happens to be. */
static void busy_rank(int rank)
{
    enum { N = 300000 };
    static float in[N], out[N];
    fault_arm("warm", 1);
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    uno_err err = UNO_OK;
    for (int i = 1; err == UNO_OK; i++) {
        err = uno_all_reduce(in, out, N - (size_t)(i % 3), UNO_FLOAT32, UNO_SUM, comm, NULL);
        set_stage(rank, i);
    }
    note(rank, err, comm);
    (void)uno_comm_destroy(comm);
}

static void busy_during(const pid_t *pids)
{
    wait_stage(1, now_case->arg);
    atomic_store(&sh->mark_ns, clock_ns());
    kill(pids[1], SIGKILL);
}

static void busy_judge(const int *statuses)
{
    expect_signal(statuses, 1, SIGKILL);
    for (int r = 0; r < now_case->ranks; r++)
        if (r != 1)
            expect(r, UNO_ERR_PEER_DEAD, "rank 1", TOLD_S);
}

const struct fault_case fault_cases_lend[] = {
    {"lend_mixed_two", 2, SHM, 120, mix_rank, NULL, NULL, 0, 0},
    {"lend_mixed_three", 3, SHM, 120, mix_rank, NULL, NULL, 0, 0},
    {"lend_shadow", 2, SHM, 60, shadow_rank, NULL, NULL, 0, 0},
    {"lend_mixed_threads", 1, ONCE, 120, mix_threads, NULL, NULL, 0, 0},
    {"lend_unmapped", 2, SHM, 20, spoiled_rank, spoiled_judge, NULL, 0, UNMAPS},
    {"lend_forbidden", 2, SHM, 20, spoiled_rank, spoiled_judge, NULL, 0, FORBIDS},
    {"lend_dies", 2, SHM, 20, spoiled_rank, spoiled_judge, NULL, 0, DIES},
    {"lend_exec_before_read", 2, SHM, 40, spoiled_rank, late_judge, late_during, 0, EXECS},
    {"lend_pid_reused_before_read", 2, SHM, 40, spoiled_rank, late_judge, late_during, 0, PID_REUSED},
    {"lend_message_unmapped", 2, SHM, 20, spoiled_rank, spoiled_judge, NULL, 0, UNMAPS | MESSAGE},
    {"lend_message_forbidden", 2, SHM, 20, spoiled_rank, spoiled_judge, NULL, 0, FORBIDS | MESSAGE},
    {"lend_message_dies", 2, SHM, 20, spoiled_rank, spoiled_judge, NULL, 0, DIES | MESSAGE},
    {"lend_message_exec_before_read", 2, SHM, 40, spoiled_rank, late_judge, late_during, 0, EXECS | MESSAGE},
    {"lend_message_both_ways", 2, SHM, 20, both_ways_rank, both_ways_judge, NULL, 0, 0},
    {"lend_message_freed", 2, SHM, 60, freed_rank, NULL, NULL, 0, 0},
    {"message_taken_late", 2, ANY, 20, taken_late_rank, NULL, NULL, 0, 0},
    {"message_taken_later", 2, ANY, 20, taken_late_rank, NULL, NULL, 0, 1},
    {"lend_killed_two", 2, SHM, 20, busy_rank, busy_judge, busy_during, 0, 20},
    {"lend_killed_two_later", 2, SHM, 20, busy_rank, busy_judge, busy_during, 0, 77},
    {"lend_killed_three", 3, SHM, 20, busy_rank, busy_judge, busy_during, 0, 20},
    {0},
};
