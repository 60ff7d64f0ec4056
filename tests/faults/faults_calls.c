/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_calls.c - calls that do not fit together, calls at the wrong moment, calls from several threads, and legal extremes.
 */
#include "faults.h"

#include <pthread.h>

#define N_MAX (1 << 19)
static float in[2 * N_MAX], out[2 * N_MAX];

/* ---- ranks that disagree ------------------------------------------------------------------------------------------- */

struct call { uno_coll coll; size_t count; uno_type type; uno_op op; int root; };
#define F UNO_FLOAT32
#define SPLIT UNO_COLL_COUNT /* gathers 8 bytes of every rank first */
static const struct disagreement { const char *name; struct call rest, one; const char *says; } disagreements[] = {
    {"count_small", {UNO_ALL_REDUCE, 10, F, UNO_SUM, 0}, {UNO_ALL_REDUCE, 12, F, UNO_SUM, 0}, "count 12"},
    {"count_targets", {UNO_ALL_REDUCE, 10, F, UNO_SUM, 0}, {UNO_ALL_REDUCE, 100000, F, UNO_SUM, 0}, "count 100000"},
    {"count_tiled", {UNO_ALL_REDUCE, 100000, F, UNO_SUM, 0}, {UNO_ALL_REDUCE, 100001, F, UNO_SUM, 0}, "count 100001"},
    {"count_algorithms", {UNO_ALL_REDUCE, 300, F, UNO_SUM, 0}, {UNO_ALL_REDUCE, N_MAX, F, UNO_SUM, 0}, "count 524288"},
    {"count_zero", {UNO_ALL_REDUCE, 0, F, UNO_SUM, 0}, {UNO_ALL_REDUCE, 9, F, UNO_SUM, 0}, "count 9"},
    {"type", {UNO_ALL_REDUCE, 10, F, UNO_SUM, 0}, {UNO_ALL_REDUCE, 10, UNO_INT32, UNO_SUM, 0}, "type int32"},
    {"type_tiled", {UNO_ALL_REDUCE, 100000, F, UNO_SUM, 0}, {UNO_ALL_REDUCE, 100000, UNO_INT32, UNO_SUM, 0}, "type int32"},
    {"op", {UNO_ALL_REDUCE, 10, F, UNO_SUM, 0}, {UNO_ALL_REDUCE, 10, F, UNO_MAX, 0}, "op max"},
    {"root", {UNO_BROADCAST, 10, F, UNO_SUM, 0}, {UNO_BROADCAST, 10, F, UNO_SUM, 1}, "root 1"},
    {"root_tiled", {UNO_BROADCAST, 100000, F, UNO_SUM, 0}, {UNO_BROADCAST, 100000, F, UNO_SUM, 1}, "root 1"},
    {"root_reduce", {UNO_REDUCE, 100000, F, UNO_SUM, 0}, {UNO_REDUCE, 100000, F, UNO_SUM, 2}, "root 2"},
    {"collective", {UNO_ALL_REDUCE, 10, F, UNO_SUM, 0}, {UNO_BROADCAST, 10, F, UNO_SUM, 1}, "broadcast"},
    {"collective_tiled", {UNO_ALL_REDUCE, 100000, F, UNO_SUM, 0}, {UNO_ALL_GATHER, 30000, F, UNO_SUM, 0}, "all_gather"},
    {"collective_barrier", {UNO_BARRIER, 0, F, UNO_SUM, 0}, {UNO_ALL_TO_ALL, 20000, F, UNO_SUM, 0}, "all_to_all"},
    {"collective_split", {UNO_ALL_REDUCE, 10, F, UNO_SUM, 0}, {SPLIT, 0, F, UNO_SUM, 0}, "calls comm_split"},
    {"gather_split", {UNO_ALL_GATHER, 8, UNO_UINT8, UNO_SUM, 0}, {SPLIT, 0, F, UNO_SUM, 0}, "calls comm_split"},
    {"split_gather", {SPLIT, 0, F, UNO_SUM, 0}, {UNO_ALL_GATHER, 8, UNO_UINT8, UNO_SUM, 0}, "calls all_gather"},
};
#undef F

static uno_err make_call(const struct call *c, uno_comm *comm)
{
    uno_comm *made;
    switch (c->coll) {
    case UNO_ALL_REDUCE: return uno_all_reduce(in, out, c->count, c->type, c->op, comm, NULL);
    case UNO_BROADCAST: return uno_broadcast(in, out, c->count, c->type, c->root, comm, NULL);
    case UNO_REDUCE: return uno_reduce(in, out, c->count, c->type, c->op, c->root, comm, NULL);
    case UNO_ALL_GATHER: return uno_all_gather(in, out, c->count, c->type, comm, NULL);
    case SPLIT: return uno_comm_dup(comm, &made, NULL);
    case UNO_ALL_TO_ALL: return uno_all_to_all(in, out, c->count, c->type, comm, NULL);
    default: return uno_barrier(comm, NULL);
    }
}

/* Rank 2 makes the other call. Whoever needs nobody for it may succeed, and learns it at the next exchange: never wrong data. */
static void disagree_rank(int rank)
{
    const struct disagreement *d = &disagreements[now_case->arg];
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 6;
    uno_comm *comm = join_as(rank, now_case->ranks, &config);
    uno_err err = uno_barrier(comm, NULL); /* a slow rank may still be in it when the others have failed */
    atomic_store(&sh->mark_ns, clock_ns());
    err = err == UNO_OK ? make_call(rank == 2 ? &d->one : &d->rest, comm) : err;
    for (int i = 0; i < 3 && err == UNO_OK; i++)
        err = uno_all_reduce(in, out, i == 1 ? 50000 : 1, UNO_FLOAT32, UNO_SUM, comm, NULL);
    note(rank, err, comm);
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy");
}

/* On one host the ledgers tell at once, over TCP the messages or, where the two calls have none in common, questions after 10 ms. */
static void disagree_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < now_case->ranks; r++) {
        expect(r, UNO_ERR_MISMATCH, disagreements[now_case->arg].says, 1);
        expect(r, UNO_ERR_MISMATCH, "rank 2: pid ", 1);
    }
}

/* Rank 0 sends, returns and calls nothing more: the error of the communicator tells it, and its next call. */
static void returned_rank(int rank)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 6;
    uno_comm *comm = join_as(rank, now_case->ranks, &config);
    uno_err err = uno_barrier(comm, NULL), async = UNO_OK;
    atomic_store(&sh->mark_ns, clock_ns());
    if (err == UNO_OK)
        err = uno_broadcast(in, out, rank ? 12 : 10, UNO_FLOAT32, 0, comm, NULL);
    if (rank == 0) {
        CHECK(err == UNO_OK, "the root of a small broadcast waits: %s", uno_last_error(comm));
        for (uint64_t limit = clock_after(now_case->limit_s); async == UNO_OK && clock_ns() < limit; sched_yield())
            CHECK(uno_comm_async_error(comm, &async) == UNO_OK, "async error: %s", uno_last_error(NULL));
        err = async;
    }
    note(rank, err, comm);
    check_failed_comm(comm, err);
}

static void returned_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < 2; r++)
        expect(r, UNO_ERR_MISMATCH, "passes count 12", 1);
}

/* Rank 1, on another host when arg is set, makes one of many equal calls less and leaves: there is nothing else to be seen of it. */
static void one_less_rank(int rank)
{
    if (now_case->arg)
        setenv("UNISONO_HOST", rank ? "there" : "here", 1);
    uno_comm *comm = join_as(rank, 2, NULL);
    uno_err err = UNO_OK;
    for (int i = 0; i < (rank ? 7 : 8) && err == UNO_OK; i++) {
        atomic_store(&sh->mark_ns, clock_ns());
        err = uno_all_reduce(in, out, 10, UNO_FLOAT32, UNO_SUM, comm, NULL);
    }
    note(rank, err, comm);
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy");
}

static void one_less_judge(const int *statuses)
{
    expect_all_zero(statuses);
    expect(0, UNO_ERR_PEER_DEAD, "all_reduce #8", 1);
    expect(0, UNO_ERR_PEER_DEAD, "it made one call less", 1);
    expect(1, UNO_OK, NULL, 1);
}

/* Per-rank counts of the v forms, and messages whose two ends differ. */
enum { V_GATHER, V_SCATTER, V_TO_ALL, V_SEND, V_SEND_LARGE, V_SEND_TYPE };

static void disagree_v_rank(int rank)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 6;
    uno_comm *comm = join_as(rank, now_case->ranks, &config);
    size_t counts[3] = {5, 7, 1000}, other[3] = {5, 8, 999};
    bool odd = rank == 1;
    size_t n = now_case->arg == V_SEND_LARGE ? 100000 : 10;
    uno_err err = uno_barrier(comm, NULL);
    atomic_store(&sh->mark_ns, clock_ns());
    switch (err == UNO_OK ? now_case->arg : -1) {
    case -1:
        break;
    case V_GATHER:
        err = uno_all_gather_v(in, out, odd ? other : counts, NULL, UNO_FLOAT32, comm, NULL);
        break;
    case V_SCATTER:
        err = uno_reduce_scatter_v(in, out, odd ? other : counts, NULL, UNO_FLOAT32, UNO_SUM, comm, NULL);
        break;
    case V_TO_ALL: {
        size_t same[3] = {10, 10, 10}, wrong[3] = {12, 10, 10};
        err = uno_all_to_all_v(in, odd ? wrong : same, NULL, out, same, NULL, UNO_FLOAT32, comm, NULL);
        break;
    }
    default:
        err = rank == 1 ? uno_send(in, n, UNO_FLOAT32, 0, comm, NULL) : UNO_OK;
        if (rank == 0)
            err = uno_recv(out, now_case->arg == V_SEND_TYPE ? n : n + 1, now_case->arg == V_SEND_TYPE ? UNO_INT32 : UNO_FLOAT32, 1, comm,
                           NULL);
    }
    if (err == UNO_OK)
        err = uno_barrier(comm, NULL);
    note(rank, err, comm);
    CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy");
}

static void disagree_v_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < now_case->ranks; r++)
        expect(r, UNO_ERR_MISMATCH, now_case->arg == V_TO_ALL ? "sends 12 elements to rank 0 (pid "
                                    : now_case->arg < V_TO_ALL ? "rank 1 passes 8" : "rank 1 (pid ", 3);
    for (int r = 0; r < now_case->ranks && now_case->arg == V_TO_ALL; r++)
        expect(r, UNO_ERR_MISMATCH, "), which expects 10", 3);
    for (int r = 0; r < now_case->ranks && now_case->arg > V_TO_ALL; r++)
        expect(r, UNO_ERR_MISMATCH, "rank 0 (pid ", 3);
    for (int r = 0; r < now_case->ranks && now_case->arg < V_TO_ALL; r++)
        expect(r, UNO_ERR_MISMATCH, " #2: for rank 1, rank ", 3);
}

/* ---- the wrong moment ------------------------------------------------------------------------------------------------- */

static void usage_rank(int rank)
{
    float x = 1, y = 0;
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    CHECK(uno_all_reduce(&x, &y, 1, UNO_FLOAT32, UNO_SUM, comm, NULL) == UNO_OK && y == 2, "%s", uno_last_error(comm));
    pid_t pid = fork();
    if (pid == 0) {
        uno_err err = uno_all_reduce(&x, &y, 1, UNO_FLOAT32, UNO_SUM, comm, NULL);
        CHECK(err == UNO_ERR_USAGE && strstr(uno_last_error(comm), "fork"), "in a child: %s", uno_last_error(comm));
        CHECK(uno_comm_abort(comm) == UNO_ERR_USAGE, "abort in a child: %s", uno_last_error(NULL));
        CHECK(uno_comm_destroy(comm) == UNO_OK, "destroy in a child: %s", uno_last_error(NULL));
        uno_comm *own = NULL; /* it may make its own */
        CHECK(uno_comm_init_all(&own, 1, NULL) == UNO_OK, "init in a child: %s", uno_last_error(NULL));
        CHECK(uno_all_reduce(&x, &y, 1, UNO_FLOAT32, UNO_SUM, own, NULL) == UNO_OK, "in a child: %s", uno_last_error(own));
        CHECK(uno_comm_destroy(own) == UNO_OK, "destroy: %s", uno_last_error(NULL));
        _exit(0); /* the leak checker would speak of the parent's memory */
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with 0x%x", (unsigned)status);
    CHECK(uno_all_reduce(&x, &y, 1, UNO_FLOAT32, UNO_SUM, comm, NULL) == UNO_OK && y == 2, "after the fork: %s", uno_last_error(comm));
    CHECK(uno_comm_finalize(comm) == UNO_OK, "%s", uno_last_error(comm));
    uno_err err = uno_barrier(comm, NULL);
    CHECK(err == UNO_ERR_USAGE && strstr(uno_last_error(comm), "finalized"), "after finalize: %s", uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
    err = uno_comm_destroy(comm);
    CHECK(err == UNO_ERR_ARG && strstr(uno_last_error(NULL), "destroyed"), "destroyed twice: %s", uno_last_error(NULL));
}

/* Requests that nobody waits for do not stop destroy; waited for afterwards they say what became of them. */
static void orphan_rank(int rank)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 1;
    float x = 1;
    uno_request *sent = NULL, *never = NULL;
    uno_comm *comm = join_as(rank, now_case->ranks, &config);
    CHECK(uno_irecv(&x, 1, UNO_FLOAT32, 1 - rank, 77, comm, &never) == UNO_OK, "%s", uno_last_error(comm));
    if (rank == 0)
        CHECK(uno_isend(&x, 1, UNO_FLOAT32, 1, 5, comm, &sent) == UNO_OK, "%s", uno_last_error(comm));
    else
        CHECK(uno_irecv(&x, 1, UNO_FLOAT32, 0, 5, comm, &sent) == UNO_OK, "%s", uno_last_error(comm));
    CHECK(uno_wait(&sent, NULL) == UNO_OK, "%s", uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
    uno_err err = uno_wait(&never, NULL);
    CHECK(err != UNO_OK && err != UNO_ERR_IN_PROGRESS && never == NULL, "the request says %s", uno_err_name(err));
}

/* Rank 0 takes messages without content that have come already, and stays away from the library: the last one's sender, beyond its
 * credit, must not wait for that. */
static void empties_rank(int rank)
{
    enum { N = 9 };
    float x = 1;
    uno_request *later = NULL;
    uno_comm *comm = join_as(rank, 2, NULL);
    if (rank == 1) {
        for (int i = 0; i < N; i++)
            CHECK(uno_send(NULL, 0, UNO_FLOAT32, 0, comm, NULL) == UNO_OK, "%s", uno_last_error(comm));
        set_stage(1, 1);
        CHECK(uno_isend(&x, 1, UNO_FLOAT32, 0, 7, comm, &later) == UNO_OK, "%s", uno_last_error(comm));
    } else {
        CHECK(uno_irecv(&x, 1, UNO_FLOAT32, 1, 7, comm, &later) == UNO_OK, "%s", uno_last_error(comm));
        for (int i = 0; i < 60; i++) {
            CHECK(uno_test(&later, NULL) == UNO_ERR_IN_PROGRESS, "the last message came before the others were taken");
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        }
        for (int i = 0; i < N; i++)
            CHECK(uno_recv(NULL, 0, UNO_FLOAT32, 1, comm, NULL) == UNO_OK, "%s", uno_last_error(comm));
        wait_stage(1, 1);
    }
    CHECK(uno_wait(&later, NULL) == UNO_OK, "%s", uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
}

/* Each collective refuses each kind of wrong argument with the right code and a sentence that names the function. */
struct wrong { const char *what; uno_coll from, to; const void *in; void *out; size_t count; int type, op, root; uno_err code; };

static uno_err call_wrong(uno_coll coll, const struct wrong *w, uno_comm *comm)
{
    uno_type type = (uno_type)w->type;
    uno_op op = (uno_op)w->op;
    switch (coll) {
    case UNO_ALL_REDUCE: return uno_all_reduce(w->in, w->out, w->count, type, op, comm, NULL);
    case UNO_BROADCAST: return uno_broadcast(w->in, w->out, w->count, type, w->root, comm, NULL);
    case UNO_REDUCE: return uno_reduce(w->in, w->out, w->count, type, op, w->root, comm, NULL);
    case UNO_ALL_GATHER: return uno_all_gather(w->in, w->out, w->count, type, comm, NULL);
    case UNO_REDUCE_SCATTER: return uno_reduce_scatter(w->in, w->out, w->count, type, op, comm, NULL);
    case UNO_ALL_TO_ALL: return uno_all_to_all(w->in, w->out, w->count, type, comm, NULL);
    case UNO_GATHER: return uno_gather(w->in, w->out, w->count, type, w->root, comm, NULL);
    default: return uno_scatter(w->in, w->out, w->count, type, w->root, comm, NULL);
    }
}

static void wrong_everywhere_rank(int rank)
{
    static const char *const names[] = {"uno_all_reduce", "uno_broadcast", "uno_reduce", "uno_all_gather", "uno_reduce_scatter",
                                        "uno_all_to_all", "uno_gather", "uno_scatter"};
    static float x[64], y[64];
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    const int f = UNO_FLOAT32, last = UNO_SCATTER;
    const struct wrong table[] = {
        {"no input", 0, last, NULL, y, 4, f, UNO_SUM, rank, UNO_ERR_ARG},
        {"no output", 0, last, x, NULL, 4, f, UNO_SUM, rank, UNO_ERR_ARG},
        {"odd input", 0, last, (char *)x + 1, y, 4, f, UNO_SUM, rank, UNO_ERR_ARG},
        {"odd output", 0, last, x, (char *)y + 2, 4, f, UNO_SUM, rank, UNO_ERR_ARG},
        {"a negative count", 0, last, x, y, (size_t)-1, f, UNO_SUM, rank, UNO_ERR_ARG},
        {"a count whose bytes overflow", 0, last, x, y, SIZE_MAX / 4 + 2, f, UNO_SUM, rank, UNO_ERR_ARG},
        {"a count whose blocks overflow", UNO_ALL_GATHER, last, x, y, SIZE_MAX / 8 + 2, f, UNO_SUM, rank, UNO_ERR_ARG},
        {"an unknown type", 0, last, x, y, 4, 99, UNO_SUM, rank, UNO_ERR_ARG},
        {"a negative type", 0, last, x, y, 4, -1, UNO_SUM, rank, UNO_ERR_ARG},
        {"an unknown op", UNO_ALL_REDUCE, UNO_ALL_REDUCE, x, y, 4, f, 77, rank, UNO_ERR_ARG},
        {"an unknown op", UNO_REDUCE, UNO_REDUCE, x, y, 4, f, 77, rank, UNO_ERR_ARG},
        {"an unknown op", UNO_REDUCE_SCATTER, UNO_REDUCE_SCATTER, x, y, 4, f, -1, rank, UNO_ERR_ARG},
        {"a root that is no rank", UNO_BROADCAST, UNO_REDUCE, x, y, 4, f, UNO_SUM, 2, UNO_ERR_ARG},
        {"a root that is no rank", UNO_GATHER, last, x, y, 4, f, UNO_SUM, 2, UNO_ERR_ARG},
        {"a negative root", UNO_BROADCAST, UNO_REDUCE, x, y, 4, f, UNO_SUM, -1, UNO_ERR_ARG},
        {"a negative root", UNO_GATHER, last, x, y, 4, f, UNO_SUM, -1, UNO_ERR_ARG},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        for (int coll = table[i].from; coll <= (int)table[i].to; coll++) {
            uno_err err = call_wrong((uno_coll)coll, &table[i], comm);
            CHECK(err == table[i].code, "%s with %s gave %s", names[coll], table[i].what, uno_err_name(err));
            CHECK(strstr(uno_last_error(comm), names[coll]), "%s with %s: \"%s\" does not name it", names[coll], table[i].what,
                  uno_last_error(comm));
        }
    x[0] = 1;
    CHECK(uno_all_reduce(x, y, 1, UNO_FLOAT32, UNO_SUM, comm, NULL) == UNO_OK && y[0] == 2, "a refused call broke the communicator: %s",
          uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
}

static void arguments_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    const void *odd = (const char *)x + 1;
    struct { uno_err got, want; } r[] = {
        {uno_all_reduce(NULL, y, 4, UNO_FLOAT32, UNO_SUM, comm, NULL), UNO_ERR_ARG},
        {uno_all_reduce(odd, y, 1, UNO_FLOAT32, UNO_SUM, comm, NULL), UNO_ERR_ARG},
        {uno_all_reduce(x, y, (size_t)-3, UNO_FLOAT32, UNO_SUM, comm, NULL), UNO_ERR_ARG},
        {uno_all_reduce(x, y, 4, (uno_type)99, UNO_SUM, comm, NULL), UNO_ERR_ARG},
        {uno_all_reduce(x, y, 4, UNO_FLOAT32, (uno_op)55, comm, NULL), UNO_ERR_ARG},
        {uno_all_reduce(x, y, 4, UNO_FLOAT32, UNO_BXOR, comm, NULL), UNO_ERR_TYPE},
        {uno_broadcast(x, y, 4, UNO_FLOAT32, 2, comm, NULL), UNO_ERR_ARG},
        {uno_broadcast(x, y, 4, UNO_FLOAT32, -1, comm, NULL), UNO_ERR_ARG},
        {uno_all_reduce(x, x + 1, 3, UNO_FLOAT32, UNO_SUM, comm, NULL), UNO_ERR_ARG},
        {uno_send(x, 4, UNO_FLOAT32, 5, comm, NULL), UNO_ERR_ARG},
        {uno_all_gather_v(x, y, NULL, NULL, UNO_FLOAT32, comm, NULL), UNO_ERR_ARG},
        {uno_all_reduce(x, y, 4, UNO_FLOAT32, UNO_SUM, NULL, NULL), UNO_ERR_ARG},
        {uno_group_end(), UNO_ERR_USAGE},
    };
    for (size_t i = 0; i < ARRAY_LEN(r); i++)
        CHECK(r[i].got == r[i].want, "call %zu gave %s, expected %s", i, uno_err_name(r[i].got), uno_err_name(r[i].want));
    CHECK(uno_all_reduce(x, y, 4, UNO_FLOAT32, UNO_SUM, comm, NULL) == UNO_OK && y[3] == 8, "a refused call broke the communicator: %s",
          uno_last_error(comm));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
}

/* ---- extremes -------------------------------------------------------------------------------------------------------------- */

static void check_nothing(uno_comm *comm)
{
    int n = uno_comm_size(comm);
    size_t zeros[8] = {0};
    uno_err err[] = {
        uno_all_reduce(NULL, NULL, 0, UNO_FLOAT32, UNO_SUM, comm, NULL),
        uno_broadcast(NULL, NULL, 0, UNO_FLOAT32, n - 1, comm, NULL),
        uno_reduce(NULL, NULL, 0, UNO_FLOAT64, UNO_MAX, n - 1, comm, NULL),
        uno_all_gather(NULL, NULL, 0, UNO_INT8, comm, NULL),
        uno_reduce_scatter(NULL, NULL, 0, UNO_FLOAT16, UNO_AVG, comm, NULL),
        uno_all_to_all(NULL, NULL, 0, UNO_FLOAT32, comm, NULL),
        uno_gather(NULL, NULL, 0, UNO_FLOAT32, 0, comm, NULL),
        uno_scatter(NULL, NULL, 0, UNO_FLOAT32, 0, comm, NULL),
        uno_all_gather_v(NULL, NULL, zeros, NULL, UNO_FLOAT32, comm, NULL),
        uno_reduce_scatter_v(NULL, NULL, zeros, NULL, UNO_FLOAT32, UNO_SUM, comm, NULL),
        uno_all_to_all_v(NULL, zeros, NULL, NULL, zeros, NULL, UNO_FLOAT32, comm, NULL),
        uno_barrier(comm, NULL),
    };
    for (size_t i = 0; i < ARRAY_LEN(err); i++)
        CHECK(err[i] == UNO_OK, "call %zu with nothing to move: %s", i, uno_last_error(comm));
    uno_request *s = NULL, *r = NULL;
    int rank = uno_comm_rank(comm);
    CHECK(uno_irecv(NULL, 0, UNO_INT8, (rank + n - 1) % n, 0, comm, &r) == UNO_OK && uno_isend(NULL, 0, UNO_INT8, (rank + 1) % n, 0, comm, &s)
          == UNO_OK && uno_wait(&s, NULL) == UNO_OK && uno_wait(&r, NULL) == UNO_OK, "empty messages: %s", uno_last_error(comm));
}

static void nothing_rank(int rank)
{
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    check_nothing(comm);
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
}

static void one_rank(int rank)
{
    (void)rank;
    uno_comm *comms[2] = {NULL};
    CHECK(uno_comm_init_all(comms, 1, NULL) == UNO_OK && uno_comm_init_env(&comms[1], NULL) == UNO_OK, "%s", uno_last_error(NULL));
    for (int i = 0; i < 2; i++) {
        float x[3] = {1, 2, 3}, y[3] = {0};
        check_nothing(comms[i]);
        CHECK(uno_all_reduce(x, y, 3, UNO_FLOAT32, UNO_AVG, comms[i], NULL) == UNO_OK && y[2] == 3, "%s", uno_last_error(comms[i]));
        CHECK(uno_group_start() == UNO_OK && uno_send(x, 3, UNO_FLOAT32, 0, comms[i], NULL) == UNO_OK &&
              uno_recv(y, 3, UNO_FLOAT32, 0, comms[i], NULL) == UNO_OK && uno_group_end() == UNO_OK, "%s", uno_last_error(comms[i]));
        CHECK(uno_comm_destroy(comms[i]) == UNO_OK, "%s", uno_last_error(NULL));
    }
}

/* ---- threads ------------------------------------------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 60
struct worker { int rank, index; uno_comm *comm; pthread_t thread; };

/* Calls of several threads on one communicator have no order among ranks, so all of them are alike. */
static void *shared_comm_main(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < ROUNDS; i++) {
        float x[200], y[200];
        for (int k = 0; k < 200; k++)
            x[k] = (float)k;
        uno_err err = uno_all_reduce(x, y, 200, UNO_FLOAT32, UNO_SUM, w->comm, NULL);
        CHECK(err == UNO_OK, "%s", uno_last_error(w->comm));
        CHECK(y[199] == 199.0f * (float)now_case->ranks, "wrong sum %g", (double)y[199]);
    }
    return NULL;
}

static void *own_comm_main(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = i % 10 == 9 ? 20000 : 7;
        float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
        x[n - 1] = (float)(w->index + i);
        uno_err err = uno_all_reduce(x, y, n, UNO_FLOAT32, UNO_SUM, w->comm, NULL);
        CHECK(err == UNO_OK, "%s", uno_last_error(w->comm));
        CHECK(y[n - 1] == (float)((w->index + i) * now_case->ranks), "wrong sum %g", (double)y[n - 1]);
        free(x);
        free(y);
    }
    return NULL;
}

static void threads_rank(int rank)
{
    struct worker w[THREADS];
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    bool own = now_case->arg;
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){rank, i, comm, 0};
        if (own)
            CHECK(uno_comm_dup(comm, &w[i].comm, NULL) == UNO_OK, "%s", uno_last_error(comm));
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&w[i].thread, NULL, own ? own_comm_main : shared_comm_main, &w[i]) == 0, "no thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(w[i].thread, NULL);
    for (int i = 0; i < THREADS && own; i++)
        CHECK(uno_comm_destroy(w[i].comm) == UNO_OK, "%s", uno_last_error(NULL));
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
}

/* One thread drives four ranks; the order in which it names them in a group means nothing. */
static void group_rank(int rank)
{
    enum { N = 4, COUNT = 30000 };
    (void)rank;
    uno_comm *c[N];
    struct rng rng;
    rng_seed(&rng, 20261129);
    CHECK(uno_comm_init_all(c, N, NULL) == UNO_OK, "%s", uno_last_error(NULL));
    for (int round = 0; round < 25; round++) {
        size_t count = round % 3 ? 5 : COUNT;
        int order[N] = {0, 1, 2, 3};
        for (int i = N - 1; i > 0; i--) {
            int j = (int)rng_below(&rng, (uint64_t)i + 1), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
        float *x = calloc(COUNT, sizeof *x), *y = calloc(N * COUNT, sizeof *y), *z = calloc(N * COUNT, sizeof *z);
        x[count - 1] = (float)round;
        uno_err err = uno_group_start();
        for (int i = 0; i < N; i++) {
            int r = order[i];
            err = err == UNO_OK ? uno_all_reduce(x, y + r * COUNT, count, UNO_FLOAT32, UNO_SUM, c[r], NULL) : err;
            err = err == UNO_OK ? uno_recv(z + r * COUNT, count, UNO_FLOAT32, (r + 1) % N, c[r], NULL) : err;
            err = err == UNO_OK ? uno_send(x, count, UNO_FLOAT32, (r + N - 1) % N, c[r], NULL) : err;
            err = err == UNO_OK ? uno_broadcast(x, y + r * COUNT, count, UNO_FLOAT32, round % N, c[r], NULL) : err;
        }
        CHECK(err == UNO_OK, "%s", uno_last_error(NULL));
        CHECK(uno_group_end() == UNO_OK, "%s", uno_last_error(NULL));
        for (int r = 0; r < N; r++)
            CHECK(y[r * COUNT + (int)count - 1] == (float)round && z[r * COUNT + (int)count - 1] == (float)round, "round %d rank %d", round, r);
        free(x);
        free(y);
        free(z);
    }
    for (int r = 0; r < N; r++)
        CHECK(uno_comm_destroy(c[r]) == UNO_OK, "%s", uno_last_error(NULL));
}

/* Destroying while operations are queued behind an event that nobody records: they fail, and the stream says so. */
static void queued_rank(int rank)
{
    (void)rank;
    uno_comm *c[2];
    uno_stream *s = NULL, *t = NULL;
    uno_event *e = NULL;
    float x = 1, y = 0;
    CHECK(uno_comm_init_all(c, 2, NULL) == UNO_OK && uno_stream_create(&s) == UNO_OK && uno_stream_create(&t) == UNO_OK &&
          uno_event_create(&e) == UNO_OK, "%s", uno_last_error(NULL));
    CHECK(uno_all_reduce(&x, &y, 1, UNO_FLOAT32, UNO_SUM, c[0], s) == UNO_OK, "%s", uno_last_error(c[0])); /* rank 1 never comes */
    CHECK(uno_event_record(e, s) == UNO_OK && uno_stream_wait_event(t, e) == UNO_OK, "%s", uno_last_error(NULL));
    CHECK(uno_all_reduce(&x, &y, 1, UNO_FLOAT32, UNO_SUM, c[0], t) == UNO_OK, "%s", uno_last_error(c[0]));
    CHECK(uno_comm_abort(c[1]) == UNO_OK, "%s", uno_last_error(NULL));
    CHECK(uno_comm_destroy(c[0]) == UNO_OK && uno_comm_destroy(c[1]) == UNO_OK, "%s", uno_last_error(NULL));
    CHECK(uno_stream_synchronize(s) == UNO_ERR_ABORTED && uno_stream_synchronize(t) == UNO_ERR_ABORTED, "%s", uno_last_error(NULL));
    (void)uno_stream_destroy(s);
    (void)uno_stream_destroy(t);
    (void)uno_event_destroy(e);
}

/* ---- by hand: needs 10 GB of memory ------------------------------------------------------------------------------------------ */

static void huge_rank(int rank)
{
    size_t n = (size_t)5 << 30;
    unsigned char *buf = malloc(n);
    if (!getenv("FAULTS_HUGE") || !buf) {
        free(buf);
        return;
    }
    memset(buf, rank == 0 ? 7 : 1, n);
    setenv("UNISONO_STALL", "60", 1); /* a machine that is short of memory takes its time */
    uno_comm *comm = join_as(rank, 2, NULL);
    CHECK(uno_broadcast(buf, buf, n, UNO_UINT8, 0, comm, NULL) == UNO_OK, "%s", uno_last_error(comm));
    for (size_t i = 0; i < n; i += 4093)
        CHECK(buf[i] == 7, "byte %zu is %d", i, buf[i]);
    CHECK(buf[n - 1] == 7, "the last byte");
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
    free(buf);
}

#define DISAGREE(i, name) {"disagree_" name, 3, ANY, 20, disagree_rank, disagree_judge, NULL, 0, i}
const struct fault_case fault_cases_calls[] = {
    DISAGREE(0, "count_small"), DISAGREE(1, "count_targets"), DISAGREE(2, "count_tiled"), DISAGREE(3, "count_algorithms"),
    DISAGREE(4, "count_zero"), DISAGREE(5, "type"), DISAGREE(6, "type_tiled"), DISAGREE(7, "op"), DISAGREE(8, "root"),
    DISAGREE(9, "root_tiled"), DISAGREE(10, "root_reduce"), DISAGREE(11, "collective"), DISAGREE(12, "collective_tiled"),
    DISAGREE(13, "collective_barrier"), DISAGREE(14, "collective_split"), DISAGREE(15, "gather_split"), DISAGREE(16, "split_gather"),
    {"disagree_returned", 2, ANY, 20, returned_rank, returned_judge, NULL, 0, 0},
    {"one_call_less", 2, ANY, 20, one_less_rank, one_less_judge, NULL, 0, 0},
    {"one_call_less_elsewhere", 2, ANY, 20, one_less_rank, one_less_judge, NULL, 0, 1},
    {"disagree_gather_v", 3, ANY, 20, disagree_v_rank, disagree_v_judge, NULL, 0, V_GATHER},
    {"disagree_scatter_v", 3, ANY, 20, disagree_v_rank, disagree_v_judge, NULL, 0, V_SCATTER},
    {"disagree_to_all_v", 3, ANY, 20, disagree_v_rank, disagree_v_judge, NULL, 0, V_TO_ALL},
    {"disagree_send", 3, ANY, 20, disagree_v_rank, disagree_v_judge, NULL, 0, V_SEND},
    {"disagree_send_large", 3, ANY, 20, disagree_v_rank, disagree_v_judge, NULL, 0, V_SEND_LARGE},
    {"disagree_send_type", 3, ANY, 20, disagree_v_rank, disagree_v_judge, NULL, 0, V_SEND_TYPE},
    {"usage", 2, ANY, 20, usage_rank, NULL, NULL, QUIET, 0},
    {"orphan_requests", 2, ANY, 20, orphan_rank, NULL, NULL, 0, 0},
    {"empty_messages", 2, ANY, 10, empties_rank, NULL, NULL, QUIET, 0},
    {"arguments", 2, ANY, 20, arguments_rank, NULL, NULL, QUIET, 0},
    {"arguments_everywhere", 2, ANY, 20, wrong_everywhere_rank, NULL, NULL, QUIET, 0},
    {"nothing_to_move", 3, ANY, 20, nothing_rank, NULL, NULL, QUIET, 0},
    {"one_rank", 1, ONCE, 20, one_rank, NULL, NULL, QUIET, 0},
    {"threads_one_comm", 2, ANY, 60, threads_rank, NULL, NULL, QUIET, 0},
    {"threads_own_comms", 2, ANY, 60, threads_rank, NULL, NULL, QUIET, 1},
    {"group_of_ranks", 1, ONCE, 60, group_rank, NULL, NULL, QUIET, 0},
    {"queued_behind_event", 1, ONCE, 20, queued_rank, NULL, NULL, QUIET, 0},
    {"huge", 2, ANY, 300, huge_rank, NULL, NULL, QUIET, 0},
    {0},
};
