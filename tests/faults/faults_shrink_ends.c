/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_shrink_ends.c - uno_comm_shrink when it is aborted, when too few are left to agree, and when somebody ends in a call that all
 * ranks make together: nobody waits for ever.
 */
#include "faults_shrink.h"

#include <pthread.h>
#include <signal.h>

/* ---- nobody waits for ever ------------------------------------------------------------------------------------------------------------------ */

static void *abort_later(void *arg)
{
    wait_stage(0, 1);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    atomic_store(&sh->mark_ns, clock_ns());
    CHECK(uno_comm_abort(arg) == UNO_OK, "abort: %s", uno_last_error(NULL));
    return NULL;
}

/* Rank 0 shrinks alone; another thread of it aborts. */
static void aborted_rank(int rank)
{
    uno_comm *c = shrink_join(rank, NULL), *n = NULL;
    shrink_rounds(c, 5);
    if (rank == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, abort_later, c) == 0, "no thread");
        set_stage(0, 1);
        note(0, uno_comm_shrink(c, NULL, 0, &n, NULL), c);
        pthread_join(thread, NULL);
        CHECK(!n, "a communicator came out of it");
        set_stage(0, 2);
    }
    wait_stage(0, 2);
    shrink_over(c);
}

static void aborted_judge(const int *statuses)
{
    expect_all_zero(statuses);
    expect(0, UNO_ERR_ABORTED, "uno_comm_abort", 1.0);
}

/* Too few to go on: rank 2 of 3 stops the others' processes, and is alone. */
static void minority_rank(int rank)
{
    uno_comm *c = shrink_join(rank, "0.5"), *n = NULL;
    shrink_rounds(c, 5);
    set_stage(rank, 1);
    if (rank != 2) {
        wait_stage(2, 3);
        shrink_over(c);
        return;
    }
    wait_stage(2, 2); /* the parent has stopped the others */
    atomic_store(&sh->mark_ns, clock_ns());
    note(2, uno_comm_shrink(c, NULL, 0, &n, NULL), c);
    set_stage(2, 3);
    shrink_over(c);
}

static void minority_during(const pid_t *pids)
{
    wait_all_stages(-1, 1);
    kill(pids[0], SIGSTOP);
    kill(pids[1], SIGSTOP);
    set_stage(2, 2);
    wait_stage(2, 3);
    kill(pids[0], SIGCONT);
    kill(pids[1], SIGCONT);
}

static void minority_judge(const int *statuses)
{
    expect_all_zero(statuses);
    expect(2, UNO_ERR_UNREACHABLE, "rank 0 (pid", 3.0);
}

/* The last rank dies while the others are in a call that needs it, or might. All return; afterwards what is left works. */
enum { IN_SPLIT, IN_FINALIZE, IN_DESTROY, IN_SHRINK };

static void dies_rank(int rank)
{
    int last = now_case->ranks - 1;
    uno_comm *c = shrink_join(rank, SHRINK_S), *spare = NULL, *n = NULL;
    CHECK(uno_comm_dup(c, &spare, NULL) == UNO_OK, "dup: %s", uno_last_error(c));
    shrink_rounds(c, 10);
    shrink_rounds(spare, 5);
    set_stage(rank, 1);
    wait_all_stages(-1, 1);
    if (rank == last) {
        atomic_store(&sh->mark_ns, clock_ns());
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
        raise(SIGKILL);
    }
    if (now_case->arg == IN_SPLIT) {
        uno_err err = uno_comm_split(c, rank % 2, 0, &n, NULL);
        CHECK(err == UNO_ERR_PEER_DEAD, "split: %s %s", uno_err_name(err), uno_last_error(c));
    } else if (now_case->arg == IN_FINALIZE) {
        uno_stream *s = NULL;
        int32_t x = rank, y = 0;
        CHECK(uno_stream_create(&s) == UNO_OK && uno_all_reduce(&x, &y, 1, UNO_INT32, UNO_SUM, c, s) == UNO_OK, "issue: %s", uno_last_error(c));
        uno_err err = uno_comm_finalize(c); /* waits for what was issued */
        CHECK(err == UNO_ERR_PEER_DEAD || err == UNO_OK, "finalize: %s", uno_err_name(err));
        CHECK(uno_stream_destroy(s) == UNO_ERR_PEER_DEAD, "the stream ended well without rank %d", last);
    } else if (now_case->arg == IN_DESTROY) {
        shrink_over(c);
        c = NULL;
    } else {
        uno_err err = uno_comm_shrink(c, NULL, 0, &n, NULL); /* waits for the rank that dies */
        CHECK(err == UNO_OK && uno_comm_size(n) == last, "shrink: %s %s", uno_err_name(err), uno_last_error(c));
    }
    note(rank, UNO_OK, NULL);
    uno_err err = UNO_OK;
    while (err == UNO_OK)
        err = uno_barrier(spare, NULL);
    CHECK(err == UNO_ERR_PEER_DEAD, "%s: %s", uno_err_name(err), uno_last_error(spare));
    uno_comm *rest = shrink_made(spare, last, rank);
    shrink_rounds(rest, 50);
    shrink_over(rest);
    shrink_over(spare);
    if (now_case->arg == IN_SHRINK)
        shrink_over(n);
    if (c)
        shrink_over(c);
}

static void dies_judge(const int *statuses)
{
    shrink_last_killed(statuses);
    for (int r = 0; r < now_case->ranks - 1; r++)
        expect(r, UNO_OK, NULL, 2.5);
}

const struct fault_case fault_cases_shrink_ends[] = {
    {"shrink_aborted", 3, ANY, 30, aborted_rank, aborted_judge, NULL, 0, 0},
    {"shrink_dies_split", 4, ANY, 30, dies_rank, dies_judge, NULL, 0, IN_SPLIT},
    {"shrink_dies_finalize", 4, ANY, 30, dies_rank, dies_judge, NULL, 0, IN_FINALIZE},
    {"shrink_dies_destroy", 4, ANY, 30, dies_rank, dies_judge, NULL, 0, IN_DESTROY},
    {"shrink_dies_shrink", 4, ANY, 30, dies_rank, dies_judge, NULL, 0, IN_SHRINK},
    {"shrink_minority", 3, ANY, 30, minority_rank, minority_judge, minority_during, 0, 0},
    {0},
};
