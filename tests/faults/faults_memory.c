/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_memory.c - no memory, no descriptors, no threads: every allocation (mapping, memfd, socket) of one rank fails in turn while it
 * joins, splits and runs operations. Each try ends on both ranks with success or a clear error, and nothing is leaked or left.
 */
#include "faults.h"

#include <sys/resource.h>

enum { POINT_ALLOC, POINT_MEMFD, POINT_MAP, POINT_SOCKET, POINT_THREAD };
static const char *const points[] = {"alloc", "memfd", "map", "socket", "thread"};

static uno_err operations(uno_comm *comm)
{
    enum { N = 9000 };
    static float in[N], out[2 * N];
    size_t counts[2] = {3, 5};
    int rank = uno_comm_rank(comm);
    uno_comm *child = NULL;
    uno_stream *stream = NULL;
    uno_request *request[2] = {NULL, NULL};
    in[N - 1] = 2;
    uno_err err = uno_all_reduce(in, out, 5, UNO_FLOAT32, UNO_SUM, comm, NULL);
    err = err == UNO_OK ? uno_all_reduce(in, out, N, UNO_FLOAT32, UNO_SUM, comm, NULL) : err;
    CHECK(err != UNO_OK || out[N - 1] == 4, "wrong data");
    err = err == UNO_OK ? uno_all_gather_v(in, out, counts, NULL, UNO_FLOAT32, comm, NULL) : err;
    err = err == UNO_OK ? uno_irecv(out, N, UNO_FLOAT32, 1 - rank, 3, comm, &request[0]) : err;
    err = err == UNO_OK ? uno_isend(in, N, UNO_FLOAT32, 1 - rank, 3, comm, &request[1]) : err;
    for (int i = 0; i < 2; i++)
        if (request[i] && err == UNO_OK)
            err = uno_wait(&request[i], NULL);
    CHECK(err != UNO_OK || out[N - 1] == 2, "wrong data");
    err = err == UNO_OK ? uno_stream_create(&stream) : err;
    err = err == UNO_OK ? uno_broadcast(in, out, N, UNO_FLOAT32, 0, comm, stream) : err;
    if (stream) {
        uno_err e = uno_stream_destroy(stream);
        err = err == UNO_OK ? e : err;
    }
    err = err == UNO_OK ? uno_group_start() : err;
    if (err == UNO_OK) {
        err = uno_send(in, 7, UNO_FLOAT32, 1 - rank, comm, NULL);
        err = err == UNO_OK ? uno_recv(out, 7, UNO_FLOAT32, 1 - rank, comm, NULL) : err;
        uno_err e = uno_group_end();
        err = err == UNO_OK ? e : err;
    }
    err = err == UNO_OK ? uno_comm_split(comm, 0, -rank, &child, NULL) : err;
    err = err == UNO_OK ? uno_all_reduce(in, out, N, UNO_FLOAT32, UNO_MAX, child, NULL) : err;
    note(rank, err, NULL);
    if (child)
        (void)uno_comm_destroy(child);
    (void)uno_comm_destroy(comm);
    for (int i = 0; i < 2; i++)
        if (request[i] && uno_wait(&request[i], NULL) != UNO_OK && err == UNO_OK) /* after the communicator is gone */
            err = UNO_ERR_INTERNAL;
    return err;
}

/* One try. The fault is armed in `faulty` only; its partner must come to an end as well. */
static void try_rank(int rank, bool faulty, const char *point, long nth)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 4;
    config.join_timeout_s = 0.4; /* a rank that fails before it comes to the meeting is missing there */
    uno_comm *comm = NULL;
    get_id(rank);
    if (faulty)
        fault_arm(point, nth);
    uno_err err = uno_comm_init_rank(&comm, 2, &sh->id, rank, &config);
    note(rank, err, NULL);
    CHECK(err == UNO_OK || comm == NULL, "a failed init stored a communicator");
    CHECK(err == UNO_OK || uno_last_error(NULL)[0], "%s without a sentence", uno_err_name(err));
    if (err == UNO_OK)
        err = operations(comm);
    CHECK(err == UNO_OK || sh->outcome[rank].text[0], "%s without a sentence", uno_err_name(err));
    if (faulty)
        sh->left[rank] = nth - fault_value(point) + (fault_value(point) <= 0); /* calls so far */
    fault_arm(NULL, 0);
}

/* A row of tries, each in two forked processes, until one passes untouched. Rank 0 and rank 1 take turns at being the one. */
static void every_rank(int unused)
{
    (void)unused;
    const char *point = points[now_case->arg % 10];
    int victim = now_case->arg / 10 % 10;
    uint64_t limit = clock_after(now_case->limit_s - 10);
    long ran = 0, slow = 0;
    const char *first = getenv("FAULTS_FIRST"), *every = getenv("FAULTS_STEP"); /* by hand: begin there; each one */
    long step = every ? atol(every) : now_case->arg / 100 + 1;
    for (long nth = first ? atol(first) : 1;; nth += step) {
        memset(sh->outcome, 0, sizeof sh->outcome);
        atomic_store(&sh->have_id, 0);
        pid_t pid[2];
        for (int r = 0; r < 2; r++)
            if ((pid[r] = fork()) == 0) {
                alarm(15);
                try_rank(r, r == victim, point, nth);
                exit(0);
            }
        for (int r = 0; r < 2; r++) {
            int status = -1;
            CHECK(waitpid(pid[r], &status, 0) == pid[r] && status == 0, "%s:%ld in rank %d: rank %d ended with wait status 0x%x; %s; %s", point,
                  nth, victim, r, (unsigned)status, sh->outcome[0].text, sh->outcome[1].text);
        }
        if (strstr(sh->outcome[0].text, "UNISONO_TIMEOUT") || strstr(sh->outcome[1].text, "UNISONO_TIMEOUT")) {
            slow++;
            fprintf(stderr, "%s:%ld: '%s'; '%s'\n", point, nth, sh->outcome[0].text, sh->outcome[1].text);
        }
        ran = nth;
        if (sh->outcome[0].err == UNO_OK && sh->outcome[1].err == UNO_OK && sh->left[victim] < nth)
            break;
        CHECK(clock_ns() < limit, "only %ld tries in time", nth);
    }
    CHECK(slow == 0, "%ld of %ld tries ended only at a deadline", slow, ran);
    if (getenv("FAULTS_SHOW"))
        fprintf(stderr, "%ld tries\n", ran);
}

/* A limit of n descriptors, from hopeless to enough. */
static void descriptors_rank(int unused)
{
    (void)unused;
    for (rlim_t n = 3; n < 60; n += n < 30 ? 1 : 5) {
        memset(sh->outcome, 0, sizeof sh->outcome);
        atomic_store(&sh->have_id, 0);
        pid_t pid[2];
        for (int r = 0; r < 2; r++)
            if ((pid[r] = fork()) == 0) {
                alarm(15);
                get_id(r);
                struct rlimit before;
                CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0, "getrlimit");
                if (r == 1)
                    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){n, before.rlim_max}) == 0, "setrlimit");
                try_rank(r, false, NULL, 0);
                CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0, "setrlimit"); /* a leak checker opens files at exit */
                exit(0);
            }
        for (int r = 0; r < 2; r++) {
            int status = -1;
            CHECK(waitpid(pid[r], &status, 0) == pid[r] && status == 0, "%d descriptors: rank %d ended with 0x%x; %s; %s", (int)n, r,
                  (unsigned)status, sh->outcome[0].text, sh->outcome[1].text);
        }
        if (sh->outcome[0].err == UNO_OK && sh->outcome[1].err == UNO_OK)
            return;
    }
    CHECK(false, "60 descriptors are not enough: %s; %s", sh->outcome[0].text, sh->outcome[1].text);
}

const struct fault_case fault_cases_memory[] = {
    /* Each fifth allocation, so that it takes seconds; FAULTS_STEP=1 tries each one. */
    {"memory_alloc_0", 1, SHM, 250, every_rank, NULL, NULL, 0, POINT_ALLOC + 400},
    {"memory_alloc_1", 1, SHM, 250, every_rank, NULL, NULL, 0, POINT_ALLOC + 10 + 400},
    {"memory_alloc_tcp", 1, TCP, 250, every_rank, NULL, NULL, 0, POINT_ALLOC + 10 + 400},
    {"memory_memfd", 1, ANY, 60, every_rank, NULL, NULL, 0, POINT_MEMFD + 10},
    {"memory_map", 1, ANY, 60, every_rank, NULL, NULL, 0, POINT_MAP + 10},
    {"memory_socket", 1, ANY, 60, every_rank, NULL, NULL, 0, POINT_SOCKET + 10},
    {"memory_thread", 1, ANY, 60, every_rank, NULL, NULL, 0, POINT_THREAD + 10},
    {"memory_descriptors", 1, ANY, 100, descriptors_rank, NULL, NULL, 0, 0},
    {0},
};
