/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boards.c - boards [--rounds N] [--seed S]: what `unisono why`, `top` and the launcher open of a process may be broken. Two ranks work, and
 * stop in the middle of it; an impostor holds copies of what one of them shows, in which bytes are turned again and again, before they are read
 * and while they are read. Whoever looks gets facts, or an error with a sentence, and the judge a sentence; nothing else may happen. Then memory
 * that is no board at all, by size, seals and contents.
 */
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unisono_watch.h"
#include "watch/watch_board.h"

#define PAGE 4096u
#define MOST_REGIONS 8
#define F_ADD_SEALS_ 1033
#define SEALS 0x0006 /* no shrinking, no growing */

struct stage { uno_id id; _Atomic int has_id, ready; struct net_segment_ref board; };
/* Memory of the impostor: what it was, and what it is now, which we can write too. */
struct copy { char *good, *now; size_t bytes; int fd; };

static struct { int rounds; uint64_t seed; } opt = {.rounds = 300};
static struct copy copies[1 + MOST_REGIONS]; /* the board is the first */
static int ncopies;
static pid_t impostor;
static const char *doing = "";

static void fail(const char *what)
{
    fprintf(stderr, "boards: seed %llu, %s: %s\n", (unsigned long long)opt.seed, doing, what);
    exit(1);
}

/* ---- a job -------------------------------------------------------------------------------------------------------------- */

static int rank_main(struct stage *s, int rank)
{
    static float in[64], out[128];
    size_t counts[2] = {32, 16}, displs[2] = {0, 64};
    uno_comm *comm, *second;
    uno_request *request;
    if (rank == 0 && uno_get_id(&s->id) == UNO_OK)
        atomic_store(&s->has_id, 1);
    while (!atomic_load(&s->has_id))
        usleep(1000);
    uno_err err = uno_comm_init_rank(&comm, 2, &s->id, rank, NULL);
    err = err == UNO_OK ? uno_comm_dup(comm, &second, NULL) : err;
    for (int i = 0; err == UNO_OK && i < 20; i++)
        err = uno_all_reduce(in, out, 64, UNO_FLOAT32, UNO_SUM, i % 2 ? comm : second, NULL);
    err = err == UNO_OK ? uno_all_gather_v(in, out, counts, displs, UNO_FLOAT32, comm, NULL) : err;
    err = err == UNO_OK ? uno_irecv(out, 8, UNO_FLOAT32, 1 - rank, 3, comm, &request) : err;
    if (err != UNO_OK) {
        fprintf(stderr, "boards: rank %d: %s\n", rank, uno_last_error(NULL));
        return 1;
    }
    atomic_fetch_add(&s->ready, 1);
    if (rank == 0)
        (void)!uno_barrier(comm, NULL);
    for (;;)
        pause();
}

static int open_of(pid_t pid, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Its board is found as tools do it. */
static int board_of(pid_t pid)
{
    char path[64], link[64];
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[MAX(n, 0)] = 0;
        if (strncmp(link, "/memfd:unisono-board", 20) == 0)
            return fd;
    }
    return -1;
}

/* Read all of it; the copy has the same name, size and last page. */
static struct copy *copy_of(pid_t pid, int fd, const char *name)
{
    struct copy *c = &copies[ncopies++];
    int from = open_of(pid, fd);
    off_t bytes = from >= 0 ? lseek(from, 0, SEEK_END) : -1;
    if (bytes <= (off_t)PAGE)
        fail("a rank's memory cannot be read");
    c->bytes = (size_t)bytes;
    c->good = malloc(c->bytes);
    c->fd = memfd_create(name, MFD_ALLOW_SEALING);
    if (!c->good || c->fd < 0 || pread(from, c->good, c->bytes, 0) != bytes || ftruncate(c->fd, bytes) != 0 || fcntl(c->fd, F_ADD_SEALS_, SEALS) != 0)
        fail("memory cannot be copied");
    c->now = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (c->now == MAP_FAILED)
        fail("memory cannot be mapped");
    close(from);
    return c;
}

/* The board and the regions of all its communicators, and who holds them. */
static void make_impostor(pid_t rank)
{
    struct copy *board = copy_of(rank, board_of(rank), "unisono-board");
    struct board_page *page = (struct board_page *)board->good;
    for (int i = 0; i < BOARD_COMMS && ncopies <= MOST_REGIONS; i++)
        if (page->comms[i].state == BOARD_LIVE) {
            struct copy *c = copy_of(rank, page->comms[i].region.fd, "unisono-region");
            page->comms[i].region.fd = c->fd;
        }
    int hold[2];
    if (ncopies < 3 || pipe(hold) != 0 || (impostor = fork()) < 0)
        fail("no impostor");
    if (impostor == 0)
        for (;;)
            pause();
    page->pid = impostor;
    page->start_ticks = watch_start_ticks(impostor);
    for (int i = 0; i < BOARD_COMMS; i++)
        if (page->comms[i].state == BOARD_LIVE)
            page->comms[i].region.pid = impostor;
    close(hold[0]);
    close(hold[1]);
}

/* ---- turning bytes ---------------------------------------------------------------------------------------------------------- */

static void restore(void)
{
    for (int i = 0; i < ncopies; i++)
        memcpy(copies[i].now, copies[i].good, copies[i].bytes);
}

/* A word somewhere, mostly where something is said: heads, rings, notes; to something that is often a limit. */
static void turn(struct rng *r)
{
    static const uint64_t odd[] = {0, 1, UINT64_MAX, INT32_MAX, INT32_MIN, UINT32_MAX, 1 << 16, 0x7fffffffffffffffull, 1ull << 63, 4096};
    struct copy *c = &copies[rng_below(r, 3) ? 0 : rng_below(r, (uint64_t)ncopies)];
    size_t limit = rng_below(r, 2) ? MIN(c->bytes, sizeof(struct net_region)) : c->bytes;
    size_t bytes = (size_t)1 << rng_below(r, 4), at = rng_below(r, limit - bytes) / bytes * bytes;
    if (rng_below(r, 2)) { /* where bytes are set */
        for (int tries = 0; tries < 2000 && c->good[at] == 0; tries++)
            at = rng_below(r, limit - bytes) / bytes * bytes;
    }
    uint64_t value = rng_below(r, 2) ? odd[rng_below(r, ARRAY_LEN(odd))] : rng_next(r);
    if (at < 24 && c == &copies[0] && rng_below(r, 8))
        return; /* magic, version and size: then it is no board, and nothing else is seen */
    memcpy(c->now + at, &value, bytes);
}

static _Atomic int turning;
static void *turner(void *arg)
{
    struct rng r;
    rng_seed(&r, *(uint64_t *)arg);
    while (atomic_load(&turning))
        turn(&r);
    return NULL;
}

/* ---- looking ------------------------------------------------------------------------------------------------------------------ */

static void must_say(uno_err err)
{
    if (err != UNO_OK && !uno_last_error(NULL)[0])
        fail("an error without a sentence");
}

static void judge(const void *data, size_t bytes)
{
    uno_jobs *jobs;
    const uno_job *job;
    const uno_verdict *v;
    if (uno_jobs_new(&jobs) != UNO_OK)
        fail("no memory");
    uno_err err = uno_jobs_add(jobs, data, bytes);
    must_say(err);
    for (size_t i = 0; i < uno_jobs_count(jobs); i++) {
        err = uno_jobs_get(jobs, i, &job);
        must_say(err);
        err = err == UNO_OK ? uno_jobs_judge(jobs, i, 1, 0.001, &v) : err;
        must_say(err);
        if (err == UNO_OK && !v->headline[0])
            fail("a verdict without a sentence");
    }
    uno_jobs_free(jobs);
}

static void look(struct rng *r)
{
    uno_keeper *keeper;
    void *data = NULL;
    size_t bytes = 0;
    char text[1536];
    if (uno_keeper_new(&keeper) != UNO_OK)
        fail("no memory");
    uno_err err = uno_keeper_look(keeper, (int)impostor);
    must_say(err);
    for (int again = 0; again < 2 && err == UNO_OK; again++) {
        err = uno_keeper_facts(keeper, rng_below(r, 20) == 0, &data, &bytes);
        must_say(err);
        if (err == UNO_OK && bytes)
            judge(data, bytes);
        free(data);
        must_say(uno_keeper_said(keeper, text, sizeof text));
        must_say(uno_keeper_ask(keeper));
        must_say(uno_keeper_answer(keeper, &data, &bytes));
        if (data)
            judge(data, bytes);
        free(data);
        data = NULL;
        if (rng_below(r, 10) == 0)
            uno_keeper_ended(keeper, (int)impostor, (int)rng_below(r, 1 << 16));
        err = uno_keeper_look(keeper, (int)impostor);
        must_say(err);
    }
    uno_keeper_free(keeper);
}

static void rounds(void)
{
    struct rng r;
    int seen = 0;
    rng_seed(&r, opt.seed);
    for (int i = 0; i < opt.rounds; i++) {
        char text[40];
        snprintf(text, sizeof text, "round %d", i);
        doing = text;
        restore();
        for (uint64_t n = i == 0 ? 0 : 1 + rng_below(&r, 40); n > 0; n--)
            turn(&r);
        pthread_t thread;
        uint64_t seed = rng_next(&r);
        bool meanwhile = i > 0 && rng_below(&r, 2);
        atomic_store(&turning, meanwhile);
        if (meanwhile && pthread_create(&thread, NULL, turner, &seed) != 0)
            fail("no thread");
        look(&r);
        atomic_store(&turning, 0);
        if (meanwhile)
            pthread_join(thread, NULL);
        uno_keeper *k;
        if (uno_keeper_new(&k) != UNO_OK)
            fail("no memory");
        seen += uno_keeper_look(k, (int)impostor) == UNO_OK;
        uno_keeper_free(k);
        if (i == 0 && !seen)
            fail("not even a copy without errors is taken for a board");
    }
    printf("boards: %d rounds, %d with a board that was still one, seed %llu\n", opt.rounds, seen, (unsigned long long)opt.seed);
    if (seen < opt.rounds / 4)
        fail("hardly any round went beyond the first check");
}

/* ---- no boards at all ----------------------------------------------------------------------------------------------------------- */

static void no_board(const char *what, size_t bytes, int seals, bool random)
{
    static struct rng r;
    int ready[2];
    char c;
    doing = what;
    if (pipe(ready) != 0)
        fail("no pipe");
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < ncopies; i++)
            close(copies[i].fd);
        int fd = memfd_create("unisono-board", MFD_ALLOW_SEALING);
        uint64_t word;
        if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
            _exit(1);
        for (size_t at = 0; random && at + sizeof word <= bytes; at += sizeof word) {
            word = rng_next(&r);
            if (pwrite(fd, &word, sizeof word, (off_t)at) != (ssize_t)sizeof word)
                _exit(1);
        }
        (void)fcntl(fd, F_ADD_SEALS_, seals);
        (void)!write(ready[1], "", 1);
        for (;;)
            pause();
    }
    while (read(ready[0], &c, 1) < 0)
        ;
    uno_keeper *keeper;
    if (uno_keeper_new(&keeper) != UNO_OK)
        fail("no memory");
    uno_err err = uno_keeper_look(keeper, (int)pid);
    printf("boards: %s: %s: %s\n", what, uno_err_name(err), err == UNO_OK ? "" : uno_last_error(NULL));
    if (err == UNO_OK)
        fail("it is taken for a board");
    must_say(err);
    uno_keeper_free(keeper);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"rounds", 1, 0, 'n'}, {"seed", 1, 0, 'S'}, {0}};
    opt.seed = (uint64_t)time(NULL);
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (o == 'n')
            opt.rounds = atoi(optarg);
        if (o == 'S')
            opt.seed = strtoull(optarg, NULL, 0);
        if (o == '?')
            return 2;
    }
    struct stage *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t ranks[2];
    for (int r = 0; s != MAP_FAILED && r < 2; r++)
        if ((ranks[r] = fork()) == 0)
            _exit(rank_main(s, r));
    for (uint64_t until = clock_after(60); atomic_load(&s->ready) < 2; usleep(1000))
        if (clock_ns() > until)
            fail("the job does not begin");
    make_impostor(ranks[0]);
    for (int r = 0; r < 2; r++) {
        kill(ranks[r], SIGKILL);
        waitpid(ranks[r], NULL, 0);
    }
    rounds();
    kill(impostor, SIGKILL);
    waitpid(impostor, NULL, 0);
    no_board("an empty one", 0, SEALS, false);
    no_board("one page", PAGE, SEALS, true);
    no_board("cut off", copies[0].bytes - PAGE, SEALS, true);
    no_board("of an odd size", copies[0].bytes + 100, SEALS, true);
    no_board("without seals", copies[0].bytes, 0, true);
    no_board("zeros", copies[0].bytes, SEALS, false);
    no_board("noise", copies[0].bytes, SEALS, true);
    return 0;
}
