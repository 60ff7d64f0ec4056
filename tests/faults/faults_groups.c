/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_groups.c - uno_comm_create_group: members that die or never come while the others wait, and what befalls one communicator of a
 * job and not its neighbours.
 */
#include "faults.h"

#include <signal.h>

#define TOLD_S 1.0

/* An id that `rank` makes and all of comm know. */
static uno_id id_of(uno_comm *comm, int rank)
{
    uno_id id;
    memset(&id, 0, sizeof id);
    if (uno_comm_rank(comm) == rank)
        CHECK(uno_get_id(&id) == UNO_OK, "uno_get_id: %s", uno_last_error(NULL));
    CHECK(uno_broadcast(&id, &id, sizeof id, UNO_UINT8, rank, comm, NULL) == UNO_OK, "broadcast: %s", uno_last_error(comm));
    return id;
}

static uno_err create(uno_comm *comm, const uno_id *id, int n, const int *ranks, uno_comm **made)
{
    uno_config config = UNO_CONFIG_INIT;
    config.name = "part";
    config.timeout_s = 10;
    config.join_timeout_s = now_case->arg ? 0.5 : 10;
    *made = NULL;
    return uno_comm_create_group(comm, ranks, n, id, made, &config);
}

static uno_comm *created(uno_comm *comm, const uno_id *id, int n, const int *ranks)
{
    uno_comm *made;
    uno_err err = create(comm, id, n, ranks, &made);
    CHECK(err == UNO_OK && made, "create_group: %s", uno_last_error(comm));
    return made;
}

static void sums(uno_comm *comm, const char *which)
{
    float x[3] = {1, 2, 3}, y[3] = {0};
    uno_err err = uno_all_reduce(x, y, 3, UNO_FLOAT32, UNO_SUM, comm, NULL);
    CHECK(err == UNO_OK && y[2] == 3.0f * (float)uno_comm_size(comm), "%s: %s", which, uno_last_error(comm));
}

/* Rank 1 dies, or does not come, while the others wait for it. They can make another one without it. */
static void missing_rank(int rank)
{
    uno_comm *comm = join_as(rank, 3, NULL), *made;
    uno_id first = id_of(comm, 0), second = id_of(comm, 2);
    bool dies = !now_case->arg;
    if (rank == 1 && dies) {
        wait_all_stages(1, 1);
        atomic_store(&sh->mark_ns, clock_ns());
        kill(getpid(), SIGKILL);
    }
    set_stage(rank, 1);
    if (rank == 1) {
        wait_all_stages(1, 2);
        sums(comm, "the parent");
        CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
        return;
    }
    note(rank, create(comm, &first, 3, (int[]){0, 1, 2}, &made), comm);
    CHECK(made == NULL, "a communicator was made");
    made = created(comm, &second, 2, (int[]){2, 0});
    CHECK(uno_comm_rank(made) == (rank == 0), "rank %d has become rank %d", rank, uno_comm_rank(made));
    sums(made, "without rank 1");
    set_stage(rank, 2);
    if (!dies)
        sums(comm, "the parent");
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
    sums(made, "after its parent");
    CHECK(uno_comm_destroy(made) == UNO_OK, "destroy: %s", uno_last_error(NULL));
}

static void killed_judge(const int *statuses)
{
    expect_signal(statuses, 1, SIGKILL);
    for (int r = 0; r < 3; r += 2) {
        expect_exit(statuses, r, 0);
        expect(r, UNO_ERR_PEER_DEAD, "rank 1", TOLD_S);
        if (now_carrier == SHM) /* elsewhere its parent's host knows how, and there is none here */
            expect(r, UNO_ERR_PEER_DEAD, "was killed by signal 9", TOLD_S);
    }
}

static void absent_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < 3; r += 2)
        expect(r, UNO_ERR_TIMEOUT, "1 of 3 ranks have not joined", -1);
    expect(0, UNO_ERR_TIMEOUT, " of ranks 0, 1, 2: ", -1);
    expect(0, UNO_ERR_TIMEOUT, ": 1 (counted from 0 in the list of uno_comm_create_group); start them", -1);
}

/* Rank 1 is in two communicators that have only it in common, and dies: both hear it, a third one goes on. */
static void shared_member_rank(int rank)
{
    uno_comm *comm = join_as(rank, 3, NULL), *pair[3] = {NULL}; /* without rank 0, 1, 2 */
    static const int without[3][2] = {{1, 2}, {2, 0}, {0, 1}};
    for (int p = 0; p < 3; p++) {
        uno_id id = id_of(comm, without[p][0]);
        if (p != rank)
            pair[p] = created(comm, &id, 2, without[p]);
    }
    for (int p = 0; p < 3; p++)
        if (pair[p])
            sums(pair[p], "a pair");
    if (rank == 1) {
        wait_all_stages(1, 1);
        atomic_store(&sh->mark_ns, clock_ns());
        kill(getpid(), SIGKILL);
    }
    set_stage(rank, 1);
    note(rank, uno_barrier(pair[2 - rank], NULL), pair[2 - rank]);
    sums(pair[1], "the pair without rank 1");
    for (int p = 0; p < 3; p++)
        CHECK(uno_comm_destroy(pair[p]) == UNO_OK, "destroy: %s", uno_last_error(NULL));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
}

/* One of several is aborted: it alone fails, and is made again while the others are in use. */
static void abort_one_rank(int rank)
{
    uno_comm *comm = join_as(rank, 2, NULL), *one, *other;
    uno_id first = id_of(comm, 0), second = id_of(comm, 1), third = id_of(comm, 0);
    one = created(comm, &first, 2, (int[]){0, 1});
    other = created(comm, &second, 2, (int[]){1, 0});
    sums(one, "one");
    if (rank == 1) {
        wait_all_stages(1, 1);
        atomic_store(&sh->mark_ns, clock_ns());
        CHECK(uno_comm_abort(one) == UNO_OK, "abort: %s", uno_last_error(one));
    }
    set_stage(rank, 1);
    note(rank, uno_barrier(one, NULL), one);
    sums(other, "the other");
    CHECK(uno_comm_destroy(one) == UNO_OK, "destroy: %s", uno_last_error(NULL));
    CHECK(uno_comm_abort(comm) == UNO_OK, "abort: %s", uno_last_error(comm)); /* what failed is a parent still */
    one = created(comm, &third, 2, (int[]){0, 1});
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
    sums(one, "made again");
    sums(other, "the other, again");
    CHECK(uno_comm_destroy(other) == UNO_OK && uno_comm_destroy(one) == UNO_OK, "destroy: %s", uno_last_error(NULL));
}

static void abort_one_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < 2; r++) {
        expect(r, UNO_ERR_ABORTED, "rank 1 (pid ", TOLD_S);
        expect(r, UNO_ERR_ABORTED, ") called uno_comm_abort", TOLD_S);
    }
}

/* Members that mean different communicators, and arguments that mean none. */
static void different_rank(int rank)
{
    uno_comm *comm = join_as(rank, 3, NULL), *made;
    uno_id id = id_of(comm, 0), other = id_of(comm, 1);
    static const struct { int n, ranks[4]; const char *word; } bad[] = {
        {0, {0}, "legal are 1 to 3"}, {4, {0, 1, 2, 0}, "legal are 1 to 3"}, {2, {0, 3}, "legal are 0 to 2"}, {2, {-1, 0}, "legal are 0 to 2"},
        {3, {0, 1, 1}, "twice"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(create(comm, &id, bad[i].n, bad[i].ranks, &made) == UNO_ERR_ARG && strstr(uno_last_error(comm), bad[i].word), "case %zu: %s", i,
              uno_last_error(comm));
    CHECK(create(comm, &id, 1, (int[]){(rank + 1) % 3}, &made) == UNO_ERR_ARG && strstr(uno_last_error(comm), "only members call"),
          "no member: %s", uno_last_error(comm));
    CHECK(uno_comm_create_group(comm, NULL, 1, &id, &made, NULL) == UNO_ERR_ARG, "no ranks: %s", uno_last_error(comm));
    CHECK(uno_group_start() == UNO_OK && create(comm, &id, 1, &rank, &made) == UNO_ERR_USAGE && uno_group_end() == UNO_OK, "in a group: %s",
          uno_last_error(comm));
    if (rank < 2)
        note(rank, create(comm, &id, 2, rank ? (int[]){2, 1} : (int[]){0, 1}, &made), comm);
    made = created(comm, &other, 3, (int[]){0, 1, 2});
    sums(made, "after all that");
    CHECK(uno_comm_destroy(made) == UNO_OK && uno_comm_destroy(comm) == UNO_OK, "destroy: %s", uno_last_error(NULL));
}

static void different_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < 2; r++)
        expect(r, UNO_ERR_MISMATCH, "different lists of ranks", -1);
}

/* Rank 0 waits in create_group for rank 2, which comes when it has heard of rank 1, whose message rank 0 has asked for before. */
static void requests_go_on_rank(int rank)
{
    static float data[1 << 18];
    uno_request *request = NULL;
    uno_comm *comm = join_as(rank, 3, NULL), *made = NULL;
    uno_id id = id_of(comm, 0);
    uno_err err = UNO_OK;
    if (rank == 0) {
        err = uno_irecv(data, ARRAY_LEN(data), UNO_FLOAT32, 1, 0, comm, &request);
    } else if (rank == 1) {
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* rank 0 waits by then */
        err = uno_send(data, ARRAY_LEN(data), UNO_FLOAT32, 0, comm, NULL);
        if (err == UNO_OK)
            err = uno_send(data, 1, UNO_FLOAT32, 2, comm, NULL);
    } else {
        err = uno_recv(data, 1, UNO_FLOAT32, 1, comm, NULL);
    }
    CHECK(err == UNO_OK, "%s", uno_last_error(comm));
    if (rank != 1)
        made = created(comm, &id, 2, (int[]){0, 2});
    CHECK(rank != 0 || uno_wait(&request, NULL) == UNO_OK, "%s", uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
    CHECK(!made || uno_comm_destroy(made) == UNO_OK, "%s", uno_last_error(NULL));
}

const struct fault_case fault_cases_groups[] = {
    {"kill_create", 3, ANY, 20, missing_rank, killed_judge, NULL, 0, 0},
    {"create_absent", 3, ANY, 20, missing_rank, absent_judge, NULL, 0, 1},
    {"kill_shared_member", 3, ANY, 20, shared_member_rank, killed_judge, NULL, 0, 0},
    {"abort_one_of_several", 2, ANY, 20, abort_one_rank, abort_one_judge, NULL, 0, 0},
    {"requests_go_on", 3, ANY, 20, requests_go_on_rank, NULL, NULL, QUIET, 0},
    {"disagree_create", 3, ANY, 20, different_rank, different_judge, NULL, 0, 0},
    {0},
};
