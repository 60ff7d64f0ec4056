/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_shrink.c - going on without ranks that died, stopped, never called or are excluded: everybody who goes on agrees on the
 * set, the new communicator works (hundreds of random collectives with every element checked), and who is left out learns it.
 */
#include "faults_shrink.h"

#include <pthread.h>
#include <signal.h>

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

void shrink_rounds(uno_comm *c, int n)
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

uno_comm *shrink_join(int rank, const char *shrink_s)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = shrink_s ? 6 : 20; /* somebody who stopped holds up the new communicator so long */
    if (shrink_s)
        setenv("UNISONO_SHRINK_TIMEOUT", shrink_s, 1);
    return join_as(rank, now_case->ranks, &config);
}

/* Shrink, check size and rank, work, destroy. */
uno_comm *shrink_made(uno_comm *old, int size, int rank)
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

void shrink_over(uno_comm *c)
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
    uno_comm *c = shrink_join(rank, NULL);
    uno_err err = UNO_OK;
    buffers_new(&b);
    rng_seed(&rng, 5);
    for (int i = 1; err == UNO_OK; i++) {
        err = one_round(c, &b, &rng, i);
        set_stage(rank, i);
    }
    CHECK(err == UNO_ERR_PEER_DEAD, "%s: %s", uno_err_name(err), uno_last_error(c));
    int victim = victim_of();
    uno_comm *n = shrink_made(c, now_case->ranks - 1, rank - (rank > victim));
    note(rank, UNO_OK, n);
    shrink_over(c);
    shrink_rounds(n, ROUNDS);
    shrink_over(n);
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
    uno_comm *c = shrink_join(rank, NULL);
    shrink_rounds(c, 20); /* everybody is connected: over TCP a death is seen as the end of connections */
    set_stage(rank, 1);
    for (int r = 0; r < now_case->ranks; r++)
        wait_stage(r, 1); /* a death would fail the rounds of those that are slower */
    for (int size = now_case->ranks; size > 1; size--) {
        if (rank == size - 1)
            raise(SIGKILL);
        uno_err err = UNO_OK;
        for (int i = 0; err == UNO_OK; i++) {
            err = uno_barrier(c, NULL);
        }
        CHECK(err == UNO_ERR_PEER_DEAD, "%s: %s", uno_err_name(err), uno_last_error(c));
        uno_comm *n = shrink_made(c, size - 1, rank);
        shrink_over(c);
        c = n;
        shrink_rounds(c, 20);
        set_stage(rank, now_case->ranks - size + 2);
        for (int r = 0; r < size - 1; r++)
            wait_stage(r, now_case->ranks - size + 2);
    }
    shrink_over(c);
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
    uno_comm *c = shrink_join(rank, NULL);
    shrink_rounds(c, 30);
    uno_comm *n = shrink_made(c, now_case->ranks, rank);
    shrink_over(c);
    shrink_rounds(n, 100);
    shrink_over(n);
}

/* Rank 1 is excluded; it waits in an operation, and is told. */
static void exclude_rank(int rank)
{
    uno_comm *c = shrink_join(rank, NULL), *n = NULL;
    static const int one = 1;
    int self = rank;
    shrink_rounds(c, 10);
    if (rank == 1) {
        uno_err err = uno_barrier(c, NULL);
        CHECK(err == UNO_ERR_EXCLUDED || err == UNO_ERR_ABORTED, "the excluded one: %s %s", uno_err_name(err), uno_last_error(c));
        err = uno_comm_shrink(c, NULL, 0, &n, NULL);
        CHECK(err == UNO_ERR_EXCLUDED && !n, "the excluded one shrinks: %s %s", uno_err_name(err), uno_last_error(c));
        shrink_over(c);
        wait_all_stages(1, 1);
        return;
    }
    CHECK(uno_comm_shrink(c, &self, 1, &n, NULL) == UNO_ERR_ARG, "excluded itself");
    CHECK(uno_comm_shrink(c, &one, 1, &n, NULL) == UNO_OK, "shrink: %s", uno_last_error(c));
    CHECK(uno_comm_size(n) == now_case->ranks - 1 && uno_comm_rank(n) == rank - (rank > 1), "rank %d of %d", uno_comm_rank(n), uno_comm_size(n));
    shrink_rounds(n, 100);
    set_stage(rank, 1);
    shrink_over(n);
    shrink_over(c);
}

/* Rank 1 computes and never calls; afterwards its calls say that the others went on. */
static void absent_rank(int rank)
{
    uno_comm *c = shrink_join(rank, SHRINK_S), *n = NULL;
    shrink_rounds(c, 10);
    if (rank == 1) {
        wait_all_stages(1, 1);
        uno_err err = uno_barrier(c, NULL);
        CHECK(err == UNO_ERR_EXCLUDED, "the absent one: %s %s", uno_err_name(err), uno_last_error(c));
        CHECK(uno_comm_shrink(c, NULL, 0, &n, NULL) == UNO_ERR_EXCLUDED && !n, "the absent one shrinks: %s", uno_last_error(c));
        shrink_over(c);
        return;
    }
    uint64_t start = clock_ns();
    n = shrink_made(c, now_case->ranks - 1, rank - (rank > 1));
    double took = (double)(clock_ns() - start) / 1e9;
    CHECK(took > 1.8, "shrink gave rank 1 %.2f s to call, not %s", took, SHRINK_S); /* that it ends at all is the case's limit */
    shrink_rounds(n, 100);
    set_stage(rank, 1);
    shrink_over(c);
    shrink_over(n);
}

/* The last rank has no memory for its part: the others, also those of other hosts, learn it at once, and go on without it. */
static void no_part_rank(int rank)
{
    int n = now_case->ranks;
    uno_comm *c = shrink_join(rank, SHRINK_S), *next = NULL;
    shrink_rounds(c, 10);
    set_stage(rank, 1);
    wait_all_stages(rank, 1);
    if (rank == n - 1) {
        fault_arm("shrink_make", 1);
        CHECK(uno_comm_shrink(c, NULL, 0, &next, NULL) == UNO_ERR_MEMORY && !next, "shrink: %s", uno_last_error(c));
        wait_all_stages(rank, 2);
        shrink_over(c);
        return;
    }
    next = shrink_made(c, n, rank);
    uint64_t start = clock_ns();
    CHECK(uno_barrier(next, NULL) == UNO_ERR_UNREACHABLE && strstr(uno_last_error(next), "could not make its part"), "%s", uno_last_error(next));
    double took = (double)(clock_ns() - start) / 1e9;
    CHECK(took < 4, "told after %.1f s", took);
    shrink_over(c);
    c = shrink_made(next, n - 1, rank);
    shrink_rounds(c, 10);
    set_stage(rank, 2);
    shrink_over(next);
    shrink_over(c);
}

/* ---- somebody ends or falls silent at each step of the agreement ---------------------------------------------------------------- */

enum { BY_KILL, BY_STOP };
#define STEP(victim, how, nth) ((victim) + 10 * (how) + 100 * (nth))
static int step_victim(void) { return now_case->arg % 10; }

/* The victim ends, or stops, before it says something for the n-th time: that it calls, its promise, its proposal, its acceptance,
 * the decision. nth 0: when its part of the new communicator is made. The others have one communicator afterwards, at the
 * latest when they shrink once more. */
static void step_rank(int rank)
{
    int nth = now_case->arg / 100, victim = step_victim(), n = now_case->ranks;
    uno_comm *c = shrink_join(rank, SHRINK_S), *next = NULL;
    shrink_rounds(c, 5);
    if (rank == n - 1) { /* the reason to shrink at all */
        wait_all_stages(rank, 1);
        raise(SIGKILL);
    }
    if (rank == victim)
        fault_arm(nth == 0 ? "shrink_made" : now_case->arg / 10 % 10 == BY_STOP ? "shrink_stop" : "shrink_kill", nth ? nth : 1);
    set_stage(rank, 1);
    uno_err err = UNO_OK;
    while (err == UNO_OK)
        err = uno_barrier(c, NULL);
    CHECK(err == UNO_ERR_PEER_DEAD, "%s: %s", uno_err_name(err), uno_last_error(c));
    for (int tries = 0; tries < 4; tries++) {
        err = uno_comm_shrink(c, NULL, 0, &next, NULL);
        if (rank == victim && err == UNO_ERR_EXCLUDED) { /* it had stopped, and went on too late */
            shrink_over(c);
            return;
        }
        CHECK(err == UNO_OK, "shrink, try %d: %s %s", tries, uno_err_name(err), uno_last_error(c));
        shrink_over(c);
        c = next;
        err = uno_barrier(c, NULL);
        if (err == UNO_OK)
            break;
    }
    CHECK(err == UNO_OK, "no communicator after four tries: %s %s", uno_err_name(err), uno_last_error(c));
    CHECK(rank == victim || uno_comm_size(c) <= n - 1, "%d ranks", uno_comm_size(c));
    set_stage(rank, 2);
    if (uno_comm_size(c) == n - 2) /* without the victim */
        shrink_rounds(c, 100);
    note(rank, UNO_OK, NULL);
    shrink_over(c);
}

static bool others_done(void *arg)
{
    (void)arg;
    for (int r = 0; r < now_case->ranks - 1; r++)
        if (r != step_victim() && !atomic_load(&sh->outcome[r].done))
            return false;
    return true;
}

static bool stands(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    int got = f ? fscanf(f, "%*d (%*[^)]) %c", &state) : 0;
    if (f)
        fclose(f);
    return got == 1 && state == 'T';
}

/* What it would say the n-th time may come when the others are done, or never. The signal is only for who stands: a sanitizer's look for
 * leaks, at the end, does not survive it. */
static bool goes_on_to_its_end(void *arg)
{
    const pid_t *pid = arg;
    siginfo_t ended = {0};
    if (stands(*pid))
        kill(*pid, SIGCONT);
    return waitid(P_PID, (id_t)*pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == *pid;
}

/* Who stopped goes on when the others are done, and finds out. */
static void step_during(const pid_t *pids)
{
    pid_t victim = pids[step_victim()];
    if (now_case->arg / 10 % 10 != BY_STOP)
        return;
    CHECK(wait_for(others_done, NULL, now_case->limit_s - 15), "the others do not end");
    CHECK(wait_for(goes_on_to_its_end, &victim, 10), "the one that stopped does not end");
}

static void step_judge(const int *statuses)
{
    for (int r = 0; r < now_case->ranks - 1; r++)
        if (r != step_victim()) {
            expect_exit(statuses, r, 0);
            expect(r, UNO_OK, NULL, -1);
        } else if (now_case->arg / 10 % 10 == BY_STOP) {
            CHECK(WIFEXITED(statuses[r]), "the one that stopped ended with wait status 0x%x", (unsigned)statuses[r]);
        } else {
            CHECK(!WIFEXITED(statuses[r]) || WEXITSTATUS(statuses[r]) == 0, "the victim exited with %d", WEXITSTATUS(statuses[r]));
        }
}

/* ---- who stopped in an operation and goes on much later changes nothing ----------------------------------------------------------- */

static uint64_t checksum(const struct buffers *b)
{
    uint64_t h = 1;
    for (size_t i = 0; i < b->room; i++)
        h = hash_mix(h, (uint64_t)(uint32_t)b->in[i] << 32 | (uint32_t)b->out[i]);
    return h;
}

/* All reduce large lent and offered buffers without pause; rank 1 is stopped somewhere in there. */
static void stopped_rank(int rank)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = 3; /* long enough for a loaded machine: nothing else may fail before the stop */
    setenv("UNISONO_SHRINK_TIMEOUT", SHRINK_S, 1);
    uno_comm *c = join_as(rank, now_case->ranks, &config), *n = NULL;
    struct buffers b;
    uno_err err = UNO_OK;
    buffers_new(&b);
    b.room -= b.room % 1024;
    for (int i = 1; err == UNO_OK; i++) {
        fill(&b, rank, b.room, i);
        err = uno_all_reduce(b.in, b.out, b.room, UNO_INT32, UNO_SUM, c, NULL);
        for (size_t k = 0; k < b.room && err == UNO_OK; k++)
            CHECK(b.out[k] == sum_of(now_case->ranks, k, i), "operation %d, element %zu", i, k);
        set_stage(rank, i);
    }
    if (rank == 1) {
        CHECK(err == UNO_ERR_TIMEOUT || err == UNO_ERR_EXCLUDED || err == UNO_ERR_ABORTED || err == UNO_ERR_PEER_DEAD, "%s: %s",
              uno_err_name(err), uno_last_error(c));
        err = uno_comm_shrink(c, NULL, 0, &n, NULL);
        CHECK(err == UNO_ERR_EXCLUDED, "the stopped one: %s %s", uno_err_name(err), uno_last_error(c));
        shrink_over(c);
        set_stage(1, 1000000);
        return;
    }
    CHECK(err == UNO_ERR_TIMEOUT, "%s: %s", uno_err_name(err), uno_last_error(c));
    n = shrink_made(c, now_case->ranks - 1, rank - (rank > 1));
    if (rank == 0) /* one keeps the old one, the others free theirs */
        shrink_over(c);
    fill(&b, rank, b.room, 7);
    uint64_t before = checksum(&b);
    CHECK(uno_barrier(n, NULL) == UNO_OK, "barrier: %s", uno_last_error(n));
    set_stage(rank, 900000); /* the parent lets rank 1 go on */
    wait_stage(1, 1000000);
    CHECK(checksum(&b) == before, "memory of rank %d was changed by a rank that is excluded", rank);
    CHECK(uno_barrier(n, NULL) == UNO_OK, "barrier: %s", uno_last_error(n));
    shrink_rounds(n, 100);
    if (rank != 0)
        shrink_over(c);
    shrink_over(n);
    buffers_free(&b);
}

static void stopped_during(const pid_t *pids)
{
    struct rng rng;
    rng_seed(&rng, clock_ns());
    wait_stage(1, 5);
    nanosleep(&(struct timespec){.tv_nsec = (long)rng_below(&rng, 20000000)}, NULL);
    kill(pids[1], SIGSTOP);
    for (int r = 0; r < now_case->ranks; r++)
        if (r != 1)
            wait_stage(r, 900000);
    kill(pids[1], SIGCONT);
}

/* ---- several communicators -------------------------------------------------------------------------------------------------------------- */

struct side { uno_comm *c, *n; uno_err err; };

static void *shrink_main(void *arg)
{
    struct side *s = arg;
    s->err = uno_comm_shrink(s->c, NULL, 0, &s->n, NULL);
    return NULL;
}

/* World, halves, and two more of everybody; rank 3 dies. The half without it goes on untouched; the others shrink at once. */
static void several_rank(int rank)
{
    enum { SHRINKS = 4 };
    struct side s[SHRINKS] = {0};
    pthread_t thread[SHRINKS];
    uno_comm *half = NULL, *c = shrink_join(rank, NULL);
    CHECK(uno_comm_split(c, rank / 2, 0, &half, NULL) == UNO_OK, "split: %s", uno_last_error(c));
    s[0].c = c;
    for (int i = 1; i < SHRINKS; i++)
        CHECK(uno_comm_dup(c, &s[i].c, NULL) == UNO_OK, "dup: %s", uno_last_error(c));
    if (rank == 3) {
        wait_all_stages(3, 1);
        raise(SIGKILL);
    }
    set_stage(rank, 1);
    uno_err err = UNO_OK;
    while (err == UNO_OK)
        err = uno_barrier(c, NULL);
    CHECK(err == UNO_ERR_PEER_DEAD, "%s: %s", uno_err_name(err), uno_last_error(c));
    for (int i = 0; i < SHRINKS; i++)
        CHECK(pthread_create(&thread[i], NULL, shrink_main, &s[i]) == 0, "no thread");
    if (rank < 2)
        shrink_rounds(half, 100);
    for (int i = 0; i < SHRINKS; i++) {
        pthread_join(thread[i], NULL);
        CHECK(s[i].err == UNO_OK && uno_comm_size(s[i].n) == 3, "communicator %d: %s %s", i, uno_err_name(s[i].err), uno_last_error(s[i].c));
    }
    for (int i = 0; i < SHRINKS; i++) {
        shrink_rounds(s[i].n, 50);
        shrink_over(s[i].c);
        shrink_over(s[i].n);
    }
    if (rank < 2)
        shrink_rounds(half, 50);
    shrink_over(half);
}

void shrink_last_killed(const int *statuses)
{
    for (int r = 0; r < now_case->ranks; r++)
        if (r == now_case->ranks - 1)
            expect_signal(statuses, r, SIGKILL);
        else
            expect_exit(statuses, r, 0);
}

/* ---- ranks as threads --------------------------------------------------------------------------------------------------------------------- */

struct seat { uno_comm *c; int rank; };

static void *seat_main(void *arg)
{
    struct seat *s = arg;
    uno_comm *n = NULL;
    static const int two = 2;
    shrink_rounds(s->c, 10);
    if (s->rank == 2) { /* waits, and is told */
        uno_err err = uno_barrier(s->c, NULL);
        CHECK(err == UNO_ERR_EXCLUDED || err == UNO_ERR_ABORTED, "the excluded thread: %s", uno_last_error(s->c));
        return NULL;
    }
    CHECK(uno_comm_shrink(s->c, &two, 1, &n, NULL) == UNO_OK, "shrink: %s", uno_last_error(s->c));
    CHECK(uno_comm_size(n) == 3 && uno_comm_rank(n) == s->rank - (s->rank > 2), "rank %d of %d", uno_comm_rank(n), uno_comm_size(n));
    shrink_rounds(n, 50);
    shrink_over(n);
    return NULL;
}

static void threads_rank(int rank)
{
    enum { N = 4 };
    uno_comm *comms[N];
    pthread_t thread[N];
    struct seat seats[N];
    (void)rank;
    CHECK(uno_comm_init_all(comms, N, NULL) == UNO_OK, "init_all: %s", uno_last_error(NULL));
    for (int r = 0; r < N; r++) {
        seats[r] = (struct seat){comms[r], r};
        CHECK(pthread_create(&thread[r], NULL, seat_main, &seats[r]) == 0, "no thread");
    }
    for (int r = 0; r < N; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < N; r++)
        shrink_over(comms[r]);
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
    {"shrink_no_part", 3, ANY, 30, no_part_rank, NULL, NULL, 0, 0},
    {"shrink_absent", 4, ANY, 30, absent_rank, NULL, NULL, QUIET, 0},
    {"shrink_step_lead_kill_1", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(0, BY_KILL, 1)},
    {"shrink_step_lead_kill_2", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(0, BY_KILL, 2)},
    {"shrink_step_lead_kill_3", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(0, BY_KILL, 3)},
    {"shrink_step_lead_kill_4", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(0, BY_KILL, 4)},
    {"shrink_step_lead_kill_5", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(0, BY_KILL, 5)},
    {"shrink_step_lead_made", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(0, BY_KILL, 0)},
    {"shrink_step_kill_1", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(2, BY_KILL, 1)},
    {"shrink_step_kill_2", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(2, BY_KILL, 2)},
    {"shrink_step_kill_3", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(2, BY_KILL, 3)},
    {"shrink_step_made", 5, ANY, 60, step_rank, step_judge, NULL, 0, STEP(2, BY_KILL, 0)},
    {"shrink_step_lead_stop_1", 5, ANY, 60, step_rank, step_judge, step_during, 0, STEP(0, BY_STOP, 1)},
    {"shrink_step_lead_stop_2", 5, ANY, 60, step_rank, step_judge, step_during, 0, STEP(0, BY_STOP, 2)},
    {"shrink_step_lead_stop_3", 5, ANY, 60, step_rank, step_judge, step_during, 0, STEP(0, BY_STOP, 3)},
    {"shrink_step_lead_stop_4", 5, ANY, 60, step_rank, step_judge, step_during, 0, STEP(0, BY_STOP, 4)},
    {"shrink_step_stop_1", 5, ANY, 60, step_rank, step_judge, step_during, 0, STEP(2, BY_STOP, 1)},
    {"shrink_step_stop_2", 5, ANY, 60, step_rank, step_judge, step_during, 0, STEP(2, BY_STOP, 2)},
    {"shrink_step_stop_3", 5, ANY, 60, step_rank, step_judge, step_during, 0, STEP(2, BY_STOP, 3)},
    {"shrink_stopped", 4, ANY, 60, stopped_rank, NULL, stopped_during, 0, 0},
    {"shrink_stopped_3", 3, ANY, 60, stopped_rank, NULL, stopped_during, 0, 0},
    {"shrink_several", 4, ANY, 60, several_rank, shrink_last_killed, NULL, 0, 0},
    {"shrink_threads", 1, ONCE, 60, threads_rank, NULL, NULL, QUIET, 0},
    {0},
};
