/* SPDX-License-Identifier: Apache-2.0 */
/* live.c - real ranks for test_report*.c and test_verdict_live.c. */
#include "live.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct live live;

/* ---- the ranks -------------------------------------------------------------------------------------------------------------- */

static volatile uint64_t spun;
void burns_processor_time(void)
{
    for (;;)
        spun++;
}

long sleeps_in_a_read(void)
{
    char c;
    long n = read(live.nothing[0], &c, 1);
    return n + 1; /* no tail call, so that this function stays on the stack */
}

void live_reduces(uno_comm *comm)
{
    float x[8] = {1};
    if (uno_all_reduce(x, x, 8, UNO_FLOAT32, UNO_SUM, comm, NULL) != UNO_OK)
        fprintf(stderr, "%s\n", uno_last_error(comm));
}

void live_forks(void)
{
    pid_t forked = fork();
    if (forked == 0) {
        alarm(60);
        for (;;)
            pause();
    }
    atomic_store(&live.shared->forked, forked);
}

static size_t where(void *arg, char *buf, size_t bytes)
{
    return (size_t)snprintf(buf, bytes, "train.py:212 in %s", (const char *)arg);
}

static void get_id(int rank)
{
    struct live_shared *s = live.shared;
    if (rank == 0) {
        if (uno_get_id(&s->id) != UNO_OK)
            _exit(9);
        atomic_store(&s->have_id, 1);
    }
    while (!atomic_load(&s->have_id))
        usleep(1000);
}

_Noreturn static void rank_main(const struct live_play *play, int rank)
{
    struct live_shared *s = live.shared;
    uno_comm *comm;
    alarm(60);
    setenv("UNISONO_DEBUG", "none", 1);
    if (play->prepare)
        play->prepare(rank);
    get_id(rank);
    uno_config config = UNO_CONFIG_INIT;
    config.name = play->name;
    if (uno_comm_init_rank(&comm, RANKS, &s->id, rank, &config) != UNO_OK || (play->joined && !play->joined(comm, rank))) {
        fprintf(stderr, "rank %d: %s\n", rank, uno_last_error(NULL));
        _exit(9);
    }
    uno_set_position_callback(where, (void *)(uintptr_t)play->position);
    watch_board_ref(comm->job->board, &s->board[rank]);
    atomic_store(&s->joined[rank], 1);
    for (;;) {
        int what = atomic_exchange(&s->todo[rank], LIVE_IDLE);
        if (what != LIVE_IDLE) {
            play->act(what, comm, rank);
            atomic_fetch_add(&s->done[rank], 1);
        }
        usleep(500);
    }
}

/* ---- the stage -------------------------------------------------------------------------------------------------------------- */

bool live_soon(bool (*yes)(void *arg), void *arg)
{
    for (uint64_t until = clock_ns() + LIMIT_NS; clock_ns() < until; usleep(500))
        if (yes(arg))
            return true;
    return false;
}

struct wanted { _Atomic int *word; int value; };

static bool is_reached(void *arg)
{
    const struct wanted *want = arg;
    return atomic_load(want->word) == want->value;
}

bool live_reaches(_Atomic int *word, int wanted)
{
    return live_soon(is_reached, &(struct wanted){word, wanted});
}

int live_start(const struct live_play *play)
{
    live = (struct live){0};
    live.shared = mmap(NULL, sizeof *live.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (live.shared == MAP_FAILED || pipe(live.nothing) != 0)
        return -1;
    for (int r = 0; r < RANKS; r++)
        if ((live.pids[r] = fork()) == 0) {
            signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on with the next test here, and fork again */
            rank_main(play, r);
        }
    for (int r = 0; r < RANKS; r++) {
        struct watch_member *m = &live.members[r];
        if (!live_reaches(&live.shared->joined[r], 1))
            return -1;
        *m = (struct watch_member){.process = r, .pid = live.pids[r], .start_ticks = watch_start_ticks(live.pids[r]),
                                   .board = live.shared->board[r]};
        snprintf(m->hostname, sizeof m->hostname, "hostA");
    }
    live.members[RANKS] = (struct watch_member){.process = RANKS, .pid = getpid()};
    live.watch = (struct watch){.opt = {.rank = RANKS, .size = RANKS + 1}, .members = live.members, .epoll = -1};
    if (peers_new(&live.watch) != UNO_OK)
        return -1;
    for (int r = 0; r < RANKS; r++)
        if (!process_watch(&live.watch.peers[r].eye))
            return -1;
    records_open(&live.watch);
    return 0;
}

void live_end_rank(int r)
{
    if (live.pids[r] <= 0)
        return;
    kill(live.pids[r], SIGKILL);
    kill(live.pids[r], SIGCONT);
    waitpid(live.pids[r], NULL, 0);
    live.pids[r] = 0;
}

void live_end(void)
{
    if (atomic_load(&live.shared->forked) > 0)
        kill(atomic_load(&live.shared->forked), SIGKILL);
    for (int r = 0; r < RANKS; r++)
        live_end_rank(r);
    peers_free(&live.watch);
    close(live.nothing[0]);
    close(live.nothing[1]);
    munmap(live.shared, sizeof *live.shared);
}

void live_order(int rank, int what)
{
    atomic_store(&live.shared->todo[rank], what);
    assert_true(live_reaches(&live.shared->todo[rank], LIVE_IDLE));
}

void live_order_all(int what)
{
    for (int r = 0; r < RANKS; r++)
        atomic_store(&live.shared->todo[r], what);
    for (int r = 0; r < RANKS; r++)
        assert_true(live_reaches(&live.shared->todo[r], LIVE_IDLE));
}

void live_await(int rank, int done)
{
    assert_true(live_reaches(&live.shared->done[rank], done));
}

/* ---- looking ---------------------------------------------------------------------------------------------------------------- */

void live_ended(int rank, enum peer_state how)
{
    waitpid(live.pids[rank], NULL, 0);
    live.pids[rank] = 0;
    records_ended(&live.watch, &live.watch.peers[rank]);
    live.watch.peers[rank].state = how;
}

void live_look(void)
{
    report_begin(&live.watch);
    uint64_t ready = report_ready_ns(&live.watch);
    assert_true(ready > 0);
    while (clock_ns() < ready)
        usleep(1000);
}

void live_report(int rank, uint32_t events, struct verdict_rank *out)
{
    struct verdict_rank r;
    static char buf[VERDICT_RECORD_LIMIT];
    size_t bytes;
    assert_int_equal(report_rank(&live.watch, rank, events, &r), UNO_OK);
    assert_int_equal(verdict_encode(&r, buf, sizeof buf, &bytes), UNO_OK);
    verdict_rank_free(&r);
    if (verdict_decode(buf, bytes, out) != UNO_OK)
        fail_msg("%s", err_text());
}

bool live_becomes(int rank, bool (*yes)(const struct verdict_rank *r), struct verdict_rank *out)
{
    for (uint64_t until = clock_ns() + LIMIT_NS; clock_ns() < until;) {
        live_look();
        live_report(rank, REPORT_EVENTS, out);
        if (yes(out))
            return true;
        verdict_rank_free(out);
    }
    return false;
}

const struct verdict_comm *live_comm(const struct verdict_rank *r, const char *name)
{
    for (uint32_t i = 0; i < r->ncomms; i++)
        if (strcmp(r->comms[i].name, name) == 0)
            return &r->comms[i];
    return NULL;
}
