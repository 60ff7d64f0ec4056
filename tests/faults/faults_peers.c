/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_peers.c - ranks that die, leave, never call, or abort, while the others wait in every kind of call.
 */
#include "comm.h"
#include "faults.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#define TOLD_S 1.0 /* the promise: within a second */

enum { WAIT_SMALL, WAIT_TILED, WAIT_BARRIER, WAIT_RECV, WAIT_SEND, WAIT_IRECV, WAIT_GROUP, WAIT_STREAM, WAIT_SPLIT };

static void config_with(uno_config *config, double timeout_s)
{
    *config = (uno_config)UNO_CONFIG_INIT;
    config->timeout_s = timeout_s;
}

/* Enter a call that needs rank 1, which does not make it. */
static uno_err wait_in(int how, uno_comm *comm)
{
    enum { N = 1 << 20 };
    static float in[N], out[N];
    uno_stream *stream = NULL;
    uno_request *request = NULL;
    uno_comm *child = NULL;
    uno_err err, end;
    switch (how) {
    case WAIT_SMALL:
        return uno_all_reduce(in, out, 8, UNO_FLOAT32, UNO_SUM, comm, NULL);
    case WAIT_TILED:
        return uno_all_reduce(in, out, N, UNO_FLOAT32, UNO_SUM, comm, NULL);
    case WAIT_BARRIER:
        return uno_barrier(comm, NULL);
    case WAIT_RECV:
        return uno_recv(out, 100, UNO_FLOAT32, 1, comm, NULL);
    case WAIT_SEND:
        return uno_send(in, N, UNO_FLOAT32, 1, comm, NULL);
    case WAIT_IRECV:
        err = uno_irecv(out, 100, UNO_FLOAT32, 1, 7, comm, &request);
        return err == UNO_OK ? uno_wait(&request, NULL) : err;
    case WAIT_GROUP:
        (void)uno_group_start();
        err = uno_recv(out, 100, UNO_FLOAT32, 1, comm, NULL);
        err = err == UNO_OK ? uno_send(in, 100, UNO_FLOAT32, 1, comm, NULL) : err;
        err = err == UNO_OK ? uno_all_reduce(in, out + 100, 100, UNO_FLOAT32, UNO_SUM, comm, NULL) : err;
        end = uno_group_end(); /* also when the communicator failed before */
        return err == UNO_OK ? end : err;
    case WAIT_STREAM:
        err = uno_stream_create(&stream);
        err = err == UNO_OK ? uno_all_reduce(in, out, 100, UNO_FLOAT32, UNO_SUM, comm, stream) : err;
        err = err == UNO_OK ? uno_all_reduce(in, out, 200, UNO_FLOAT32, UNO_SUM, comm, stream) : err;
        if (err == UNO_OK)
            err = uno_stream_synchronize(stream);
        (void)uno_stream_destroy(stream);
        return err;
    default:
        err = uno_comm_split(comm, 0, 0, &child, NULL);
        CHECK(child == NULL, "split stored a communicator and returned %s", uno_err_name(err));
        return err;
    }
}

static void warm_up(uno_comm *comm)
{
    for (int i = 0; i < 3; i++) {
        float x[3] = {1, 2, 3}, y[3];
        uno_err err = uno_all_reduce(x, y, 3, UNO_FLOAT32, UNO_SUM, comm, NULL);
        CHECK(err == UNO_OK && y[0] == (float)uno_comm_size(comm), "warm up: %s", uno_last_error(comm));
    }
}

void check_failed_comm(uno_comm *comm, uno_err err)
{
    uno_err async = UNO_OK;
    CHECK(uno_comm_async_error(comm, &async) == UNO_OK && async == err, "async error is %s after %s", uno_err_name(async), uno_err_name(err));
    CHECK(uno_barrier(comm, NULL) == err, "a failed communicator gives another error the second time: %s", uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
}

/* ---- killed --------------------------------------------------------------------------------------------------------------- */

static void die_now(void)
{
    atomic_store(&sh->mark_ns, clock_ns());
    kill(getpid(), SIGKILL);
}

static void kill_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    warm_up(comm);
    if (rank == 1) {
        wait_all_stages(1, 1);
        die_now();
    }
    set_stage(rank, 1);
    note(rank, wait_in(now_case->arg, comm), comm);
    check_failed_comm(comm, sh->outcome[rank].err);
}

static void kill_judge(const int *statuses)
{
    for (int r = 0; r < now_case->ranks; r++) {
        if (r == 1) {
            expect_signal(statuses, r, SIGKILL);
            continue;
        }
        expect_exit(statuses, r, 0);
        expect(r, UNO_ERR_PEER_DEAD, "rank 1", TOLD_S);
    }
}

/* In the middle of a run of large operations, wherever it happens to be. */
static void kill_busy_rank(int rank)
{
    enum { N = 300000 };
    static float in[N], out[N];
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    uno_err err = UNO_OK;
    for (int i = 1; err == UNO_OK; i++) {
        err = uno_all_reduce(in, out, (size_t)(i % 3 ? N : 5), UNO_FLOAT32, UNO_SUM, comm, NULL);
        set_stage(rank, i);
    }
    note(rank, err, comm);
    check_failed_comm(comm, err);
}

static void kill_busy_during(const pid_t *pids)
{
    wait_stage(1, 10);
    atomic_store(&sh->mark_ns, clock_ns());
    kill(pids[1], SIGKILL);
}

static void kid(pid_t pid)
{
    sh->kid[atomic_fetch_add(&sh->kids, 1)] = pid;
}

enum { CHILD_FORK, CHILD_VFORK, CHILD_CLONE };

static void kill_with_child_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    warm_up(comm);
    if (rank == 1) {
        pid_t pid;
        if (now_case->arg == CHILD_VFORK) {
            pid = vfork();
            if (pid == 0) {
                execlp("sleep", "sleep", "60", (char *)NULL);
                _exit(127);
            }
        } else {
            pid = now_case->arg == CHILD_FORK ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (pid == 0)
                for (;;)
                    pause();
        }
        CHECK(pid > 0, "no child");
        kid(pid);
        wait_all_stages(1, 1);
        die_now();
    }
    set_stage(rank, 1);
    note(rank, wait_in(WAIT_TILED, comm), comm);
    check_failed_comm(comm, sh->outcome[rank].err);
}

/* ---- leaving ------------------------------------------------------------------------------------------------------------------- */

static bool enough_ended(void *arg)
{
    return atomic_load(&sh->ended) >= *(int *)arg;
}

/* Without finalize or destroy, one after the other; the last ones still hold what the first ones sent. */
static void leave_rank(int rank)
{
    enum { N = 100000 };
    static float in[N], out[N];
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    warm_up(comm);
    uno_err err = uno_broadcast(in, out, N, UNO_FLOAT32, 0, comm, NULL);
    err = err == UNO_OK ? uno_all_reduce(in, out, N, UNO_FLOAT32, UNO_SUM, comm, NULL) : err;
    if (err == UNO_OK && rank == 0)
        err = uno_send(in, 5, UNO_FLOAT32, now_case->ranks - 1, comm, NULL);
    else if (err == UNO_OK && rank == now_case->ranks - 1)
        err = uno_recv(out, 5, UNO_FLOAT32, 0, comm, NULL);
    err = err == UNO_OK ? uno_broadcast(in, out, 10, UNO_FLOAT32, 0, comm, NULL) : err;
    CHECK(err == UNO_OK, "%s", uno_last_error(comm));
    int before = rank;
    CHECK(wait_for(enough_ended, &before, now_case->limit_s), "the ranks before did not end");
}

/* What was sent can be read although the sender wants to go, and others have gone already. */
static void leave_unread_rank(int rank)
{
    float data[5] = {0};
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    warm_up(comm);
    int last = now_case->ranks - 1, others = last - 1, all = last;
    uno_err err = UNO_OK;
    if (rank == 0 || rank == last)
        CHECK(wait_for(enough_ended, &others, now_case->limit_s), "the ranks between did not end");
    if (rank == 0) {
        for (int i = 0; i < 5; i++)
            data[i] = (float)i;
        err = uno_send(data, 5, UNO_FLOAT32, last, comm, NULL);
    } else if (rank == last) {
        (void)wait_for(enough_ended, &all, 0.2); /* on shared memory the sender does not end: it waits for this rank */
        err = uno_recv(data, 5, UNO_FLOAT32, 0, comm, NULL);
        CHECK(err != UNO_OK || data[4] == 4, "received %g", (double)data[4]);
    }
    CHECK(err == UNO_OK, "%s", uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
}

/* Who has left sends nothing; others still may. */
static void leave_any_rank(int rank)
{
    float x = (float)rank;
    int one = 1;
    uno_request *request = NULL;
    uno_status status;
    uno_comm *comm = join_as(rank, 3, NULL);
    warm_up(comm);
    if (rank == 2) {
        CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
        return;
    }
    CHECK(wait_for(enough_ended, &one, now_case->limit_s), "rank 2 did not end");
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* and that is known */
    uno_err err = rank == 0 ? uno_irecv(&x, 1, UNO_FLOAT32, UNO_ANY, 7, comm, &request) : uno_isend(&x, 1, UNO_FLOAT32, 0, 7, comm, &request);
    CHECK(err == UNO_OK && uno_wait(&request, &status) == UNO_OK && x == 1, "%s", uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
}

static void leave_needed_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    warm_up(comm);
    if (rank == 1) {
        if (now_case->arg % 2)
            wait_all_stages(1, 1);
        atomic_store(&sh->mark_ns, clock_ns());
        exit(0);
    }
    set_stage(rank, 1);
    int one = 1;
    if (now_case->arg % 2 == 0) {
        CHECK(wait_for(enough_ended, &one, now_case->limit_s), "rank 1 did not end");
        if (rank == 0)
            atomic_store(&sh->mark_ns, clock_ns());
    }
    note(rank, wait_in(now_case->arg / 2, comm), comm);
    check_failed_comm(comm, sh->outcome[rank].err);
}

static void leave_needed_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < now_case->ranks; r++)
        if (r != 1)
            expect(r, UNO_ERR_PEER_DEAD, "rank 1", TOLD_S);
}

static void *destroy_thread(void *comm)
{
    set_stage(0, 1);
    (void)uno_comm_destroy(comm);
    CHECK(clock_ns() - atomic_load(&sh->mark_ns) > 750000000, "a communicator was freed that the end of the program looks at");
    return NULL;
}

/* Both wait a second for who does not receive, the thread half a second ahead. The end of the program has all communicators in hand. */
static void exit_beside_destroy_rank(int rank)
{
    uno_comm *comms[2][2];
    pthread_t thread;
    int word = 1;
    for (int i = 0; i < 2; i++) {
        CHECK(uno_comm_init_all(comms[i], 2, NULL) == UNO_OK, "%s", uno_last_error(NULL));
        CHECK(uno_send(&word, 1, UNO_INT32, 1, comms[i][0], NULL) == UNO_OK, "%s", uno_last_error(comms[i][0]));
    }
    uint64_t start = clock_ns();
    CHECK(pthread_create(&thread, NULL, destroy_thread, comms[0][0]) == 0, "thread");
    wait_stage(rank, 1);
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    if (clock_ns() - start < 700000000) /* else it may have returned already */
        atomic_store(&sh->mark_ns, clock_ns());
    exit(0);
}

/* _exit runs no handlers, so nobody says goodbye. */
static void slip_away_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    warm_up(comm);
    if (rank == 1) {
        wait_all_stages(1, 1);
        atomic_store(&sh->mark_ns, clock_ns());
        _exit(0);
    }
    set_stage(rank, 1);
    note(rank, wait_in(WAIT_TILED, comm), comm);
    check_failed_comm(comm, sh->outcome[rank].err);
}

static void slip_away_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < now_case->ranks; r++)
        if (r != 1)
            expect(r, UNO_ERR_PEER_DEAD, "exited with status 0 without leaving the job", TOLD_S);
}

/* Whoever left one communicator in order may still die in another one. */
/* On several hosts, before their stewards have spoken to each other: a leave in order all the same, and no closed port. */
enum { LEAVES_AT_ONCE, EXITS_AT_ONCE, ALL_LEAVE_AT_ONCE };

static void at_once_rank(int rank)
{
    char host[16];
    snprintf(host, sizeof host, "host%d", rank);
    setenv("UNISONO_HOST", host, 1);
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    atomic_store(&sh->mark_ns, clock_ns());
    if (rank == 0 && now_case->arg != ALL_LEAVE_AT_ONCE)
        note(rank, uno_barrier(comm, NULL), comm);
    else if (now_case->arg == EXITS_AT_ONCE)
        exit(0);
    uint64_t began = clock_ns();
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
    CHECK(clock_ns() - began < 900000000, "leaving took %.2f s", (double)(clock_ns() - began) / 1e9);
}

static void at_once_judge(const int *statuses)
{
    expect_all_zero(statuses);
    if (now_case->arg != ALL_LEAVE_AT_ONCE)
        expect(0, UNO_ERR_PEER_DEAD, "left the job", TOLD_S);
}

static void leave_one_and_die_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL), *other = NULL;
    warm_up(comm);
    CHECK(uno_comm_dup(comm, &other, NULL) == UNO_OK, "duplicate: %s", uno_last_error(comm));
    warm_up(other);
    if (rank == 1) {
        CHECK(uno_comm_destroy(other) == UNO_OK, "destroy: %s", uno_last_error(NULL));
        wait_all_stages(1, 1);
        die_now();
    }
    set_stage(rank, 1);
    note(rank, wait_in(now_case->arg, comm), comm);
    check_failed_comm(comm, sh->outcome[rank].err);
    (void)uno_comm_destroy(other);
}

static void leave_one_and_die_judge(const int *statuses)
{
    kill_judge(statuses);
    for (int r = 0; r < now_case->ranks; r++) {
        CHECK(r == 1 || !strstr(sh->outcome[r].text, "left"), "rank %d: a death is told as a goodbye: %s", r, sh->outcome[r].text);
        if (r != 1)
            expect(r, UNO_ERR_PEER_DEAD, "was killed by signal 9", TOLD_S);
    }
}

static void destroy_needed_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    warm_up(comm);
    if (rank == 1) {
        wait_all_stages(1, 1);
        atomic_store(&sh->mark_ns, clock_ns());
        CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
        wait_all_stages(1, 2); /* still there as a process */
        return;
    }
    set_stage(rank, 1);
    note(rank, wait_in(now_case->arg, comm), comm);
    set_stage(rank, 2);
    check_failed_comm(comm, sh->outcome[rank].err);
}

/* ---- never calling ---------------------------------------------------------------------------------------------------------------- */

static void timeout_rank(int rank)
{
    uno_config config;
    config_with(&config, 0.5);
    uno_comm *comm = join_as(rank, now_case->ranks, &config);
    warm_up(comm);
    if (rank == 1) {
        wait_all_stages(1, 2);
        uno_err err = wait_in(now_case->arg, comm);
        if (err == UNO_OK) /* across hosts all that it needs may have come before the news */
            err = uno_barrier(comm, NULL);
        note(rank, err, comm);
        check_failed_comm(comm, sh->outcome[rank].err);
        return;
    }
    set_stage(rank, 1);
    wait_all_stages(1, 1);
    if (rank == 0)
        atomic_store(&sh->mark_ns, clock_ns());
    note(rank, wait_in(now_case->arg, comm), comm);
    set_stage(rank, 2);
    check_failed_comm(comm, sh->outcome[rank].err);
}

static void timeout_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < now_case->ranks; r++) {
        expect(r, UNO_ERR_TIMEOUT, "rank 1", r == 1 ? -1 : 3.0);
        if (now_carrier == SHM)
            CHECK(strcmp(sh->outcome[r].text, sh->outcome[0].text) == 0, "rank %d has another first cause: '%s', not '%s'", r,
                  sh->outcome[r].text, sh->outcome[0].text);
    }
}

/* Waits that have an end say by then what the verdict said: for a request that nobody answers, in uno_wait and in finalizing. */
static void reason_rank(int rank)
{
    static float out[100];
    uno_request *request = NULL;
    uno_config config;
    config_with(&config, 3);
    setenv("UNISONO_STALL", "0.3", 1);
    uno_comm *comm = join_as(rank, now_case->ranks, &config);
    warm_up(comm);
    if (rank == 1) {
        wait_all_stages(1, 2);
        return;
    }
    atomic_store(&sh->mark_ns, clock_ns());
    uno_err err = uno_irecv(out, 100, UNO_FLOAT32, 1, 7, comm, &request);
    if (err == UNO_OK)
        err = now_case->arg ? uno_comm_finalize(comm) : uno_wait(&request, NULL);
    note(rank, err, comm);
    set_stage(rank, 2);
}

static void reason_judge(const int *statuses)
{
    (void)statuses;
    const char *text = sh->outcome[0].text, *call = now_case->arg ? "uno_comm_finalize" : "uno_wait (UNISONO_TIMEOUT): ";
    expect(0, UNO_ERR_TIMEOUT, call, 6.0);
    CHECK(strstr(text, "rank 1") && strstr(text, "has sent nothing for it"), "no reason is told: %s", text);
}

/* ---- aborting ------------------------------------------------------------------------------------------------------------------------ */

static void *abort_main(void *arg)
{
    wait_all_stages(-1, 1);
    atomic_store(&sh->mark_ns, clock_ns());
    CHECK(uno_comm_abort(arg) == UNO_OK, "abort: %s", uno_last_error(NULL));
    return NULL;
}

/* Rank 2 calls nothing before the abort; a second thread of rank 0 aborts while its first one waits. */
static void abort_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    warm_up(comm);
    pthread_t thread;
    if (rank == 0)
        CHECK(pthread_create(&thread, NULL, abort_main, comm) == 0, "no thread");
    set_stage(rank, 1);
    if (rank == 2) {
        uno_err async = UNO_OK;
        uint64_t limit = clock_after(now_case->limit_s);
        while (async == UNO_OK && clock_ns() < limit) {
            CHECK(uno_comm_async_error(comm, &async) == UNO_OK, "async error: %s", uno_last_error(NULL));
            sched_yield();
        }
        note(rank, async, comm);
    } else {
        note(rank, wait_in(now_case->arg, comm), comm);
    }
    if (rank == 0)
        pthread_join(thread, NULL);
    check_failed_comm(comm, sh->outcome[rank].err);
}

static void abort_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < now_case->ranks; r++)
        expect(r, UNO_ERR_ABORTED, r == 2 ? NULL : "rank 0", TOLD_S);
}

/* ---- an abort that reaches one rank of a host ---------------------------------------------------------------------- */

static void told_to_one_rank(int rank)
{
    setenv("UNISONO_HOST", rank < 2 ? "here" : "there", 1);
    uno_comm *comm = join_as(rank, 3, NULL);
    CHECK(uno_comm_hosts(comm) == 2, "ranks are on %d hosts", uno_comm_hosts(comm));
    warm_up(comm);
    set_stage(rank, 1);
    if (rank == 2) { /* it tells rank 1, and ends before it tells rank 0 */
        wait_all_stages(2, 1);
        watch_abort(comm->job->watch, comm->id, UNO_ERR_UNREACHABLE, 2, "the first cause", (int[]){1}, 1);
        wait_all_stages(2, 2);
        return;
    }
    note(rank, wait_in(WAIT_BARRIER, comm), comm);
    set_stage(rank, 2);
    check_failed_comm(comm, UNO_ERR_UNREACHABLE);
}

static void told_to_one_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < 2; r++)
        expect(r, UNO_ERR_UNREACHABLE, "the first cause", -1);
}

const struct fault_case fault_cases_peers[] = {
    {"kill_small", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_SMALL},
    {"kill_tiled", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_TILED},
    {"kill_barrier", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_BARRIER},
    {"kill_recv", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_RECV},
    {"kill_send", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_SEND},
    {"kill_irecv", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_IRECV},
    {"kill_group", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_GROUP},
    {"kill_stream", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_STREAM},
    {"kill_split", 3, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_SPLIT},
    {"kill_two_ranks", 2, ANY, 20, kill_rank, kill_judge, NULL, 0, WAIT_TILED},
    {"kill_busy", 3, ANY, 20, kill_busy_rank, kill_judge, kill_busy_during, 0, 0},
    {"kill_child_fork", 3, ANY, 20, kill_with_child_rank, kill_judge, NULL, 0, CHILD_FORK},
    {"kill_child_vfork", 3, ANY, 20, kill_with_child_rank, kill_judge, NULL, 0, CHILD_VFORK},
    /* Without fork's handlers a child keeps the sockets too: across hosts only heartbeats can tell. */
    {"kill_child_clone", 3, SHM, 20, kill_with_child_rank, kill_judge, NULL, 0, CHILD_CLONE},
    {"leave", 4, ANY, 20, leave_rank, NULL, NULL, QUIET, 0},
    {"leave_any", 3, ANY, 20, leave_any_rank, NULL, NULL, QUIET, 0},
    {"leave_unread", 4, ANY, 20, leave_unread_rank, NULL, NULL, QUIET, 0},
    {"exit_beside_destroy", 1, ONCE, 20, exit_beside_destroy_rank, NULL, NULL, QUIET, 0},
    {"leave_needed_before", 3, ANY, 20, leave_needed_rank, leave_needed_judge, NULL, 0, 2 * WAIT_TILED},
    {"leave_needed_while", 3, ANY, 20, leave_needed_rank, leave_needed_judge, NULL, 0, 2 * WAIT_SMALL + 1},
    {"leave_needed_recv", 3, ANY, 20, leave_needed_rank, leave_needed_judge, NULL, 0, 2 * WAIT_RECV + 1},
    {"leave_needed_barrier", 2, ANY, 20, leave_needed_rank, leave_needed_judge, NULL, 0, 2 * WAIT_BARRIER},
    {"leave_by_slipping_away", 3, SHM, 20, slip_away_rank, slip_away_judge, NULL, 0, 0},
    {"leave_at_once", 2, ANY, 20, at_once_rank, at_once_judge, NULL, 0, LEAVES_AT_ONCE},
    {"leave_by_exit_at_once", 2, ANY, 20, at_once_rank, at_once_judge, NULL, 0, EXITS_AT_ONCE},
    {"leave_all_at_once", 4, ANY, 20, at_once_rank, at_once_judge, NULL, 0, ALL_LEAVE_AT_ONCE},
    {"leave_one_and_die", 3, SHM, 20, leave_one_and_die_rank, leave_one_and_die_judge, NULL, 0, WAIT_SMALL},
    {"destroy_needed", 3, ANY, 20, destroy_needed_rank, leave_needed_judge, NULL, 0, WAIT_TILED},
    {"destroy_needed_recv", 3, ANY, 20, destroy_needed_rank, leave_needed_judge, NULL, 0, WAIT_RECV},
    {"abort_told_to_one", 3, SHM, 20, told_to_one_rank, told_to_one_judge, NULL, 0, 0},
    {"timeout_small", 3, ANY, 20, timeout_rank, timeout_judge, NULL, 0, WAIT_SMALL},
    {"timeout_tiled", 3, ANY, 20, timeout_rank, timeout_judge, NULL, 0, WAIT_TILED},
    {"timeout_recv", 3, ANY, 20, timeout_rank, timeout_judge, NULL, 0, WAIT_RECV},
    {"timeout_irecv", 3, ANY, 20, timeout_rank, timeout_judge, NULL, 0, WAIT_IRECV},
    {"timeout_reason", 2, ANY, 20, reason_rank, reason_judge, NULL, 0, 0},
    {"timeout_reason_finalize", 2, ANY, 20, reason_rank, reason_judge, NULL, 0, 1},
    {"timeout_group", 3, ANY, 20, timeout_rank, timeout_judge, NULL, 0, WAIT_GROUP},
    {"timeout_stream", 3, ANY, 20, timeout_rank, timeout_judge, NULL, 0, WAIT_STREAM},
    {"abort_small", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_SMALL},
    {"abort_tiled", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_TILED},
    {"abort_recv", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_RECV},
    {"abort_send", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_SEND},
    {"abort_irecv", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_IRECV},
    {"abort_barrier", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_BARRIER},
    {"abort_split", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_SPLIT},
    {"abort_group", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_GROUP},
    {"abort_stream", 3, ANY, 20, abort_rank, abort_judge, NULL, 0, WAIT_STREAM},
    {0},
};
