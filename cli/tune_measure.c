/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_measure.c - what things cost between two processes of this machine: handing a flag over, copying through shared memory, summing
 * what the other has just written, reading its memory, the scheduler, and one step of the library. The least of some rounds counts: what
 * other programs take is not a cost of this machine.
 */
#include "tune.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "floor_kernels.h"
#include "output.h"
#include "unisono.h"

enum { LIMIT_S = 60, LINE = 64, PIECE = 128 << 10, WRITER = 0, READER = 1, POLLS = 2000 };
/* Two ranks' messages together fall into the classes of costs.def. */
static const size_t message_bytes[TUNE_CLASSES] = {32 << 10, 512 << 10, 4 << 20, 24 << 20};
static const int times[TUNE_CLASSES] = {50, 5, 1, 1}; /* of a round */

struct page { /* shared by both */
    struct { _Alignas(LINE) _Atomic uint64_t count; } turn[2]; /* steps that each has done; release, pairs with the acquire in await */
    _Alignas(LINE) char *message[2]; /* private, at its owner's address */
    int pid[2];
    uno_id id;
    struct tuned result;        /* the reader's, but for shm */
    int can_read, go_on, failed;
};

enum { PAGE_BYTES = (sizeof(struct page) + 4095) / 4096 * 4096 };

struct side {
    struct page *page;
    int me, cpu[2];             /* of each; -1 = any */
    uint64_t step;
    int polls;
    char *shared, *own, *out;
};

static double now_ps(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e12 + (double)t.tv_nsec * 1e3;
}

/* I have done my part of a step; until the other has done its. */
static void done(struct side *s)
{
    atomic_store_explicit(&s->page->turn[s->me].count, ++s->step, memory_order_release);
}

static void await(struct side *s, uint64_t step)
{
    for (int polls = 0; atomic_load_explicit(&s->page->turn[!s->me].count, memory_order_acquire) < step; polls++)
        if (polls >= s->polls)
            sched_yield();
        else
            floor_pause();
}

static void meet(struct side *s)
{
    done(s);
    await(s, s->step);
}

static void pin(const struct side *s, int cpu)
{
    cpu_set_t one;
    if (cpu < 0)
        return;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one); /* refused: the scheduler decides, and the least of some rounds counts */
}

/* ---- rounds: as many as asked, or as there is time for; the writer says so to both ------------------------------------- */

enum { ROUNDS = 40, LEAST_ROUNDS = 3 };
#define ROUNDS_PS 0.3e12

static bool next_round(struct side *s, int round, double since_ps)
{
    if (s->me == WRITER)
        s->page->go_on = round < ROUNDS && (round < LEAST_ROUNDS || now_ps() - since_ps < ROUNDS_PS);
    meet(s);
    bool go_on = s->page->go_on;
    meet(s);
    return go_on;
}

/* ---- handing over ---------------------------------------------------------------------------------------------- */

/* Half of there and back. */
static uint64_t hand_over(struct side *s, int count)
{
    double best = 1e18, begun = now_ps();
    for (int round = 0; next_round(s, round, begun); round++) {
        double start = now_ps();
        for (int i = 0; i < count; i++) {
            if (s->me == WRITER)
                done(s);
            await(s, s->step + (s->me == READER));
            if (s->me == READER)
                done(s);
        }
        double each = (now_ps() - start) / count / 2;
        best = each < best ? each : best;
    }
    return (uint64_t)best;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

enum way { SLOT, SUM, READ, MAP };

static bool read_other(const struct side *s, size_t bytes)
{
    struct iovec here = {s->out, bytes}, there = {s->page->message[WRITER], bytes};
    return process_vm_readv(s->page->pid[WRITER], &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* The writer fills a piece, then the reader has its turn. Returns what the own part took, without waiting. */
static double move_piece(struct side *s, enum way way, size_t at, size_t bytes)
{
    char *slot = s->shared + at % (2 * PIECE);
    if (s->me == READER)
        await(s, s->step + 1);
    double start = now_ps();
    if (s->me == WRITER) {
        floor_copy(slot, s->own + at, bytes, false);
    } else if (way == SUM) {
        const float *in[2] = {(const float *)slot, (const float *)(s->own + at)};
        float *out[1] = {(float *)(s->out + at)};
        floor_sum(out, 1, in, 2, bytes / sizeof(float), false);
    } else {
        floor_copy(s->out + at, slot, bytes, false);
    }
    double took = now_ps() - start;
    done(s);
    if (s->me == WRITER)
        await(s, s->step);
    return took;
}

/* A message that the writer has just made. */
static double move_whole(struct side *s, enum way way, size_t bytes)
{
    if (s->me == WRITER)
        memset(way == READ ? s->own : s->shared, (int)s->step, bytes);
    meet(s);
    double start = now_ps();
    if (s->me == READER && way == READ && !read_other(s, bytes))
        s->page->can_read = 0;
    else if (s->me == READER && way == MAP)
        floor_copy(s->out, s->shared, bytes, false);
    double took = now_ps() - start;
    meet(s);
    return took;
}

/* Picoseconds a KB of the own part. */
static uint64_t rate(struct side *s, enum way way, int class)
{
    size_t bytes = message_bytes[class];
    double best = 1e18, begun = now_ps();
    for (int round = 0; next_round(s, round, begun); round++)
        for (int i = 0; i < times[class]; i++) {
            double took = 0;
            if (way == READ || way == MAP)
                took = move_whole(s, way, bytes);
            for (size_t at = 0; (way == SLOT || way == SUM) && at < bytes; at += PIECE)
                took += move_piece(s, way, at, bytes - at < PIECE ? bytes - at : PIECE);
            best = took < best ? took : best;
        }
    return (uint64_t)(best / (double)(bytes / 1024));
}

static void measure_bytes(struct side *s, struct tuned *t)
{
    for (int class = 0; class < TUNE_CLASSES; class++) {
        t->shm[class] = rate(s, SLOT, class);
        if (s->me == WRITER)
            s->page->result.shm[class] = t->shm[class];
        t->sum[class] = rate(s, SUM, class);
        t->map[class] = rate(s, MAP, class);
        t->read[class] = s->page->can_read ? rate(s, READ, class) : 0;
    }
    if (!s->page->can_read)
        memset(t->read, 0, sizeof t->read);
}

/* ---- the library --------------------------------------------------------------------------------------------------- */

/* The least time of an all-reduce of 8 bytes, by lines or by slots; 0: it failed. */
static double all_reduce_ps(struct side *s, bool small)
{
    enum { CALLS = 20, BATCHES = 2000 };
    float in[2] = {1, 2}, out[2];
    double best = 1e18;
    uno_config config = UNO_CONFIG_INIT;
    uno_comm *comm = NULL;
    config.name = "tune";
    setenv("UNISONO_ALGO", "all_reduce:flat", 1);
    setenv("UNISONO_SMALL", small ? "1" : "0", 1);
    setenv("UNISONO_COSTS", "none", 1);
    if (s->me == WRITER && uno_get_id(&s->page->id) != UNO_OK)
        s->page->failed = 1;
    meet(s);
    if (s->page->failed || uno_comm_init_rank(&comm, 2, &s->page->id, s->me, &config) != UNO_OK)
        return 0;
    uno_err err = UNO_OK;
    for (int batch = 0; batch < BATCHES && err == UNO_OK; batch++) {
        double start = now_ps();
        for (int i = 0; i < CALLS && err == UNO_OK; i++)
            err = uno_all_reduce(in, out, 2, UNO_FLOAT32, UNO_SUM, comm, NULL);
        double each = (now_ps() - start) / CALLS;
        best = each < best ? each : best;
    }
    return err == UNO_OK && uno_comm_destroy(comm) == UNO_OK ? best : 0;
}

static uint64_t beyond(double whole, uint64_t part)
{
    return whole > (double)part ? (uint64_t)(whole - (double)part) : 0;
}

/* By slots it is a hand-over and two steps, by lines a hand-over and the rest of the call. */
static bool measure_calls(struct side *s, struct tuned *t)
{
    double slots = all_reduce_ps(s, false);
    meet(s);
    double lines = slots > 0 ? all_reduce_ps(s, true) : 0;
    t->step_ps = beyond(slots, t->latency_ps) / 2;
    t->small_ps = beyond(lines, t->latency_ps);
    return slots > 0 && lines > 0;
}

/* ---- both sides ----------------------------------------------------------------------------------------------------- */

static int run_side(struct side *s)
{
    struct tuned t = {0};
    size_t most = message_bytes[TUNE_CLASSES - 1];
    s->own = aligned_alloc(4096, most);
    s->out = aligned_alloc(4096, most);
    if (!s->own || !s->out)
        return 1;
    memset(s->own, 0, most);
    memset(s->out, 0, most);
    s->page->message[s->me] = s->own;
    s->page->pid[s->me] = (int)getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* as the library's processes are each other's siblings */
    meet(s);
    if (s->me == READER)
        s->page->can_read = read_other(s, LINE);
    meet(s);
    pin(s, s->cpu[s->me]);
    t.latency_ps = hand_over(s, s->polls ? 100 : 20);
    measure_bytes(s, &t);
    if (!measure_calls(s, &t))
        s->page->failed = 1;
    pin(s, s->cpu[WRITER]);
    s->polls = 0;
    t.switch_ps = hand_over(s, 20);
    if (s->me == READER) {
        for (int class = 0; class < TUNE_CLASSES; class++)
            t.shm[class] += s->page->result.shm[class]; /* the writer's, who has met us since */
        if (!s->page->can_read)
            snprintf(t.note, sizeof t.note, "processes may not read each other's memory here (kernel.yama.ptrace_scope, or a container)");
        s->page->result = t;
    }
    return 0;
}

static void choose_cpus(struct side *s)
{
    cpu_set_t set;
    int found = 0;
    s->cpu[0] = s->cpu[1] = -1;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &set))
            s->cpu[found++] = cpu;
    if (found == 1)
        s->cpu[1] = s->cpu[0];
    s->polls = found == 2 ? POLLS : 0;
}

bool tune_measure(struct tuned *result)
{
    size_t bytes = PAGE_BYTES + message_bytes[TUNE_CLASSES - 1];
    struct page *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        out_error("tune", "no memory to measure with (%zu MB): %s", bytes >> 20, strerror(errno));
        return false;
    }
    struct side side = {.page = page, .shared = (char *)page + PAGE_BYTES};
    choose_cpus(&side);
    pid_t child[2];
    bool ok = true;
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        side.me = i;
        child[i] = fork();
        if (child[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(LIMIT_S);
            _exit(run_side(&side));
        }
    }
    for (int i = 0; i < 2; i++) {
        int status = 0;
        pid_t ended = child[0] > 0 && child[1] > 0 ? waitpid(-1, &status, 0) : -1;
        ok = ok && ended > 0 && status == 0;
        for (int k = 0; k < 2 && !ok; k++) /* who is left would wait for ever */
            if (child[k] > 0 && child[k] != ended)
                kill(child[k], SIGKILL);
    }
    ok = ok && !page->failed;
    *result = page->result;
    munmap(page, bytes);
    if (!ok)
        out_error("tune", "the two measuring processes did not come to their end");
    return ok;
}
