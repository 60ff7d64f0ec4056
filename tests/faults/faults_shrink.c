/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_shrink.c - going on without ranks that died, stopped, never called or are excluded: everybody who goes on agrees on the
 * set, the new communicator works (hundreds of random collectives with every element checked), and who is left out learns it.
 */
#include "faults.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#define SHRINK_S "1"          /* UNISONO_SHRINK_TIMEOUT of the cases in which somebody does not call */
#define ROUNDS 1000

/* ---- random collectives ------------------------------------------------------------------------------------------------- */

static int32_t value(int rank, size_t i, int round)
{
    return (int32_t)((rank + 1) * 7 + (int)(i % 13) + round % 101);
}

static int32_t sum_of(int size, size_t i, int round)
{
    int32_t sum = 0;
    for (int r = 0; r < size; r++)
        sum += value(r, i, round);
    return sum;
}

struct buffers { int32_t *in, *out; size_t room; };

static void fill(struct buffers *b, int rank, size_t n, int round)
{
    for (size_t i = 0; i < n; i++)
        b->in[i] = value(rank, i, round);
    memset(b->out, 0x55, n * sizeof *b->out);
}

static uno_err one_round(uno_comm *c, struct buffers *b, struct rng *rng, int round)
{
    int n = uno_comm_size(c), me = uno_comm_rank(c), root = (int)rng_below(rng, (uint64_t)n);
    size_t size = (size_t)n, count = rng_below(rng, rng_below(rng, 20) ? 300 : b->room / size) + 1;
    uno_err err = UNO_OK;
    size_t bad = 0;
    fill(b, me, count * size, round);
    switch (rng_below(rng, 5)) {
    case 0:
        err = uno_all_reduce(b->in, b->out, count, UNO_INT32, UNO_SUM, c, NULL);
        for (size_t i = 0; i < count; i++)
            bad += b->out[i] != sum_of(n, i, round);
        break;
    case 1:
        err = uno_broadcast(b->in, b->out, count, UNO_INT32, root, c, NULL);
        for (size_t i = 0; i < count; i++)
            bad += b->out[i] != value(root, i, round);
        break;
    case 2:
        err = uno_all_gather(b->in, b->out, count, UNO_INT32, c, NULL);
        for (size_t i = 0; i < count * size; i++)
            bad += b->out[i] != value((int)(i / count), i % count, round);
        break;
    case 3:
        err = uno_reduce_scatter(b->in, b->out, count, UNO_INT32, UNO_SUM, c, NULL);
        for (size_t i = 0; i < count; i++)
            bad += b->out[i] != sum_of(n, (size_t)me * count + i, round);
        break;
    default:
        err = uno_all_to_all(b->in, b->out, count, UNO_INT32, c, NULL);
        for (size_t i = 0; i < count * size; i++)
            bad += b->out[i] != value((int)(i / count), (size_t)me * count + i % count, round);
    }
    CHECK(err != UNO_OK || bad == 0, "round %d, %d ranks: %zu elements are wrong", round, n, bad);
    return err;
}

static void buffers_new(struct buffers *b)
{
    b->room = 200000;
    CHECK(uno_mem_alloc((void **)&b->in, b->room * sizeof *b->in) == UNO_OK, "no memory");
    CHECK(uno_mem_alloc((void **)&b->out, b->room * sizeof *b->out) == UNO_OK, "no memory");
}

static void buffers_free(struct buffers *b)
{
    CHECK(uno_mem_free(b->in) == UNO_OK && uno_mem_free(b->out) == UNO_OK, "free: %s", uno_last_error(NULL));
}

static void rounds(uno_comm *c, int n)
{
    struct buffers b;
    struct rng rng;
    buffers_new(&b);
    rng_seed(&rng, 77);
    for (int i = 0; i < n; i++) {
        uno_err err = one_round(c, &b, &rng, i);
        CHECK(err == UNO_OK, "round %d on the new communicator: %s", i, uno_last_error(c));
    }
    buffers_free(&b);
}

/* ---- what every case does --------------------------------------------------------------------------------------------------- */

static uno_comm *join(int rank, const char *shrink_s)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 20;
    if (shrink_s)
        setenv("UNISONO_SHRINK_TIMEOUT", shrink_s, 1);
    return join_as(rank, now_case->ranks, &config);
}

/* Shrink, check size and rank, work, destroy. */
static uno_comm *shrunk(uno_comm *old, int size, int rank)
{
    uno_comm *c = NULL, *again = NULL;
    uno_err err = uno_comm_shrink(old, NULL, 0, &c, NULL);
    CHECK(err == UNO_OK, "shrink: %s %s", uno_err_name(err), uno_last_error(old));
    CHECK(uno_comm_size(c) == size && uno_comm_rank(c) == rank, "rank %d of %d, expected %d of %d", uno_comm_rank(c), uno_comm_size(c),
          rank, size);
    CHECK(uno_comm_shrink(old, NULL, 0, &again, NULL) == UNO_ERR_USAGE && !again, "shrunk twice: %s", uno_last_error(old));
    CHECK(uno_barrier(old, NULL) != UNO_OK, "the old communicator still works");
    return c;
}

static void destroy(uno_comm *c)
{
    CHECK(uno_comm_destroy(c) == UNO_OK, "destroy: %s", uno_last_error(NULL));
}

/* ---- killed at a random moment ------------------------------------------------------------------------------------------------- */

static int victim_of(void)
{
    return now_carrier == TCP && now_case->ranks == 2 ? 1 : now_case->arg % now_case->ranks; /* of two hosts rank 0 may go on */
}

static void killed_rank(int rank)
{
    struct buffers b;
    struct rng rng;
    uno_comm *c = join(rank, NULL);
    uno_err err = UNO_OK;
    buffers_new(&b);
    rng_seed(&rng, 5);
    for (int i = 1; err == UNO_OK; i++) {
        err = one_round(c, &b, &rng, i);
        set_stage(rank, i);
    }
    CHECK(err == UNO_ERR_PEER_DEAD, "%s: %s", uno_err_name(err), uno_last_error(c));
    int victim = victim_of();
    uno_comm *n = shrunk(c, now_case->ranks - 1, rank - (rank > victim));
    note(rank, UNO_OK, n);
    destroy(c);
    rounds(n, ROUNDS);
    destroy(n);
    buffers_free(&b);
}

static void killed_during(const pid_t *pids)
{
    struct rng rng;
    rng_seed(&rng, clock_ns());
    wait_stage(victim_of(), 3);
    nanosleep(&(struct timespec){.tv_nsec = (long)rng_below(&rng, 60000000)}, NULL);
    atomic_store(&sh->mark_ns, clock_ns());
    kill(pids[victim_of()], SIGKILL);
}

static void killed_judge(const int *statuses)
{
    for (int r = 0; r < now_case->ranks; r++)
        if (r == victim_of()) {
            expect_signal(statuses, r, SIGKILL);
        } else {
            expect_exit(statuses, r, 0);
            expect(r, UNO_OK, NULL, 4.0);
        }
}

/* ---- one after the other, down to one ------------------------------------------------------------------------------------------- */

/* The highest rank of each communicator dies; over TCP half must be left, or more. */
static void chain_rank(int rank)
{
    uno_comm *c = join(rank, NULL);
    rounds(c, 20); /* everybody is connected: over TCP a death is seen as the end of connections */
    for (int size = now_case->ranks; size > 1; size--) {
        if (rank == size - 1)
            raise(SIGKILL);
        uno_err err = UNO_OK;
        for (int i = 0; err == UNO_OK; i++) {
            err = uno_barrier(c, NULL);
        }
        CHECK(err == UNO_ERR_PEER_DEAD, "%s: %s", uno_err_name(err), uno_last_error(c));
        uno_comm *n = shrunk(c, size - 1, rank);
        destroy(c);
        c = n;
        rounds(c, 20);
        set_stage(rank, now_case->ranks - size + 1);
        for (int r = 0; r < size - 1; r++)
            wait_stage(r, now_case->ranks - size + 1);
    }
    destroy(c);
}

static void chain_judge(const int *statuses)
{
    expect_exit(statuses, 0, 0);
    for (int r = 1; r < now_case->ranks; r++)
        expect_signal(statuses, r, SIGKILL);
}

/* ---- a healthy one ------------------------------------------------------------------------------------------------------------------ */

static void healthy_rank(int rank)
{
    uno_comm *c = join(rank, NULL);
    rounds(c, 30);
    uno_comm *n = shrunk(c, now_case->ranks, rank);
    destroy(c);
    rounds(n, 100);
    destroy(n);
}

/* Rank 1 is excluded; it waits in an operation, and is told. */
static void exclude_rank(int rank)
{
    uno_comm *c = join(rank, NULL), *n = NULL;
    static const int one = 1;
    int self = rank;
    rounds(c, 10);
    if (rank == 1) {
        uno_err err = uno_barrier(c, NULL);
        CHECK(err == UNO_ERR_EXCLUDED || err == UNO_ERR_ABORTED, "the excluded one: %s %s", uno_err_name(err), uno_last_error(c));
        err = uno_comm_shrink(c, NULL, 0, &n, NULL);
        CHECK(err == UNO_ERR_EXCLUDED && !n, "the excluded one shrinks: %s %s", uno_err_name(err), uno_last_error(c));
        destroy(c);
        wait_all_stages(1, 1);
        return;
    }
    CHECK(uno_comm_shrink(c, &self, 1, &n, NULL) == UNO_ERR_ARG, "excluded itself");
    CHECK(uno_comm_shrink(c, &one, 1, &n, NULL) == UNO_OK, "shrink: %s", uno_last_error(c));
    CHECK(uno_comm_size(n) == now_case->ranks - 1 && uno_comm_rank(n) == rank - (rank > 1), "rank %d of %d", uno_comm_rank(n), uno_comm_size(n));
    rounds(n, 100);
    set_stage(rank, 1);
    destroy(n);
    destroy(c);
}

/* Rank 1 computes and never calls; afterwards its calls say that the others went on. */
static void absent_rank(int rank)
{
    uno_comm *c = join(rank, SHRINK_S), *n = NULL;
    rounds(c, 10);
    if (rank == 1) {
        wait_all_stages(1, 1);
        uno_err err = uno_barrier(c, NULL);
        CHECK(err == UNO_ERR_EXCLUDED, "the absent one: %s %s", uno_err_name(err), uno_last_error(c));
        CHECK(uno_comm_shrink(c, NULL, 0, &n, NULL) == UNO_ERR_EXCLUDED && !n, "the absent one shrinks: %s", uno_last_error(c));
        destroy(c);
        return;
    }
    uint64_t start = clock_ns();
    n = shrunk(c, now_case->ranks - 1, rank - (rank > 1));
    double took = (double)(clock_ns() - start) / 1e9;
    CHECK(took > 0.8 && took < 4, "shrink without rank 1 took %.2f s", took);
    rounds(n, 100);
    set_stage(rank, 1);
    destroy(c);
    destroy(n);
}

const struct fault_case fault_cases_shrink[] = {
    {"shrink_killed_2", 2, ANY, 60, killed_rank, killed_judge, killed_during, 0, 0},
    {"shrink_killed_3", 3, ANY, 60, killed_rank, killed_judge, killed_during, 0, 0},
    {"shrink_killed_4", 4, ANY, 60, killed_rank, killed_judge, killed_during, 0, 1},
    {"shrink_killed_5", 5, ANY, 60, killed_rank, killed_judge, killed_during, 0, 4},
    {"shrink_killed_8", 8, ANY, 90, killed_rank, killed_judge, killed_during, 0, 3},
    {"shrink_chain", 8, ANY, 90, chain_rank, chain_judge, NULL, 0, 0},
    {"shrink_healthy", 4, ANY, 30, healthy_rank, NULL, NULL, QUIET, 0},
    {"shrink_exclude", 4, ANY, 30, exclude_rank, NULL, NULL, QUIET, 0},
    {"shrink_absent", 4, ANY, 30, absent_rank, NULL, NULL, QUIET, 0},
    {0},
};
