/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why_rank.c - one rank of the jobs that why_test.py looks at. why_rank MODE: "loop" all-reduces for ever; "absent": rank 1 does not make the
 * third call; "slow": rank 1 takes 20 ms between calls,
 * the others 1; "idle": two calls, and then nothing; "ring": a message to the next rank
 * before each all-reduce; "closed": as absent, and from then on /proc shows nothing of any rank to others of its user; "closed_early": the same
 * from the beginning; "local": its ranks are threads of one process; "unjoined": rank 1 does not join; "group", "shrink": it does not come to that call; "exec": as absent, and rank 1 becomes another program; "threads": the main thread of rank 1 ends after two calls, and
 * a second later its last thread, with "1 done"; "ends": as loop, and ends on signals, with _exit(0) on SIGUSR1 and _exit(3) on SIGUSR2, and on SIGHUP with exit(0) between
 * two calls; "children": as loop, and two children that it has made past the C library hold all it had open;
 * "crossed": two groups of two ranks each way, of which ranks 0 and 3 use the one first and 1 and 2 the other (4 ranks); "circle": groups of neighbours, and
 * each rank uses the one with the next rank first;
 * "roots": after two calls each rank broadcasts as the root, which is the last call, and finalizes;
 * "computes": rank 1, or in "rests" each rank, computes for 3 s before its third call; all end after the fifth;
 * "grow": as loop, and rank 1, in the cgroup whose cgroup.procs WHY_RANK_CGROUP names, takes memory without end. Each rank says when it is there: "RANK PID".
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <unisono.h>

static int failed(const char *what, uno_comm *comm)
{
    fprintf(stderr, "%s: %s\n", what, uno_last_error(comm));
    return 3;
}

/* 2000 bytes to the next rank, and as many from the one before. */
static uno_err pass_on(uno_comm *comm, const float *in, float *out)
{
    int rank = uno_comm_rank(comm), size = uno_comm_size(comm);
    uno_err err = uno_group_start();
    if (err == UNO_OK)
        err = uno_send(in, 500, UNO_FLOAT32, (rank + 1) % size, comm, NULL);
    if (err == UNO_OK)
        err = uno_recv(out, 500, UNO_FLOAT32, (rank + size - 1) % size, comm, NULL);
    uno_err end = uno_group_end();
    return err == UNO_OK ? end : err;
}

/* The pairs that a colour makes, in the order of ranks, called NAME. */
static uno_comm *pair_of(uno_comm *world, int color, const char *name)
{
    uno_config config = UNO_CONFIG_INIT;
    uno_comm *comm = NULL;
    config.name = name;
    return uno_comm_split(world, color, 0, &comm, &config) == UNO_OK ? comm : NULL;
}

static int crossed(uno_comm *world, const float *in, float *out)
{
    int rank = uno_comm_rank(world);
    uno_comm *tp = pair_of(world, rank / 2, "tensor_parallel"), *dp = pair_of(world, rank % 2, "data_parallel");
    uno_comm *first = rank == 0 || rank == 3 ? tp : dp, *second = first == tp ? dp : tp;
    if (!tp || !dp)
        return failed("split", world);
    for (int i = 0; i < 3; i++) /* in one order: all is well */
        if (uno_all_reduce(in, out, 1000, UNO_FLOAT32, UNO_SUM, tp, NULL) != UNO_OK || uno_all_reduce(in, out, 1000, UNO_FLOAT32, UNO_SUM, dp, NULL) != UNO_OK)
            return failed("all_reduce", tp);
    printf("%d %d\n", rank, (int)getpid());
    fflush(stdout);
    if (uno_all_reduce(in, out, 1000, UNO_FLOAT32, UNO_SUM, first, NULL) != UNO_OK)
        return failed("all_reduce", first);
    return uno_all_reduce(in, out, 1000, UNO_FLOAT32, UNO_SUM, second, NULL) == UNO_OK ? 0 : failed("all_reduce", second);
}

/* A group for each pair of neighbours in a ring, made one after the other. */
static int circle(uno_comm *world, const float *in, float *out)
{
    enum { MOST = 16 };
    int rank = uno_comm_rank(world), size = uno_comm_size(world);
    uno_comm *groups[MOST] = {NULL};
    char name[32];
    for (int g = 0; g < size && g < MOST; g++) {
        snprintf(name, sizeof name, "edge_%d", g);
        bool in_it = rank == g || rank == (g + 1) % size;
        groups[g] = pair_of(world, in_it ? 0 : UNO_NO_COLOR, name);
        if (in_it && !groups[g])
            return failed("split", world);
    }
    printf("%d %d\n", rank, (int)getpid());
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        uno_comm *comm = groups[i == 0 ? rank : (rank + size - 1) % size];
        if (uno_all_reduce(in, out, 1000, UNO_FLOAT32, UNO_SUM, comm, NULL) != UNO_OK)
            return failed("all_reduce", comm);
    }
    return 0;
}

/* Rank 1 does not come when the others make a communicator of all ranks, or of those who go on. */
static int make(uno_comm *world, bool shrinks)
{
    uno_id id;
    uno_comm *made;
    int all[64], rank = uno_comm_rank(world), size = uno_comm_size(world);
    for (int r = 0; r < size && r < 64; r++)
        all[r] = r;
    if ((rank == 0 && uno_get_id(&id) != UNO_OK) || uno_broadcast(&id, &id, sizeof id, UNO_UINT8, 0, world, NULL) != UNO_OK)
        return failed("id", world);
    printf("%d %d\n", rank, (int)getpid());
    fflush(stdout);
    while (rank == 1)
        pause();
    uno_err err = shrinks ? uno_comm_shrink(world, NULL, 0, &made, NULL) : uno_comm_create_group(world, all, size, &id, &made, NULL);
    return err == UNO_OK ? 0 : failed("make", world);
}

static volatile sig_atomic_t leaves;

static void on_signal(int sig)
{
    leaves = sig == SIGHUP;
    if (!leaves)
        _exit(sig == SIGUSR1 ? 0 : 3);
}

/* No handler of fork runs in them. */
static void make_children(void)
{
    for (int i = 0; i < 2; i++)
        if (syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) == 0)
            for (;;)
                pause();
}

static void enter_cgroup(void)
{
    const char *procs = getenv("WHY_RANK_CGROUP"), *rank = getenv("UNISONO_RANK");
    FILE *f = procs && rank && strcmp(rank, "1") == 0 ? fopen(procs, "w") : NULL;
    if (f && (fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f) != 0))
        exit(failed("it cannot enter the cgroup", NULL));
}

static void grow(void)
{
    for (size_t n = (size_t)4 << 20;;) {
        char *p = malloc(n);
        if (p)
            memset(p, 1, n);
    }
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool computes(const char *mode, int rank)
{
    return strcmp(mode, "rests") == 0 || (strcmp(mode, "computes") == 0 && rank == 1);
}

static void *last_thread(void *arg)
{
    sleep(1);
    puts("1 done");
    fflush(stdout);
    return arg;
}

/* Nobody waits for anybody in it. */
static int each_is_root(uno_comm *comm, float *out)
{
    if (uno_broadcast(out, out, 1000, UNO_FLOAT32, uno_comm_rank(comm), comm, NULL) != UNO_OK)
        return failed("broadcast", comm);
    usleep(100000);
    return uno_comm_finalize(comm) == UNO_OK ? 0 : failed("finalize", comm);
}

static bool has_an_absent_rank(const char *mode)
{
    return strcmp(mode, "absent") == 0 || strncmp(mode, "closed", 6) == 0;
}

/* Two ranks that are threads of this process, until standard input ends. */
static int local(void)
{
    uno_comm *comms[2];
    if (uno_comm_init_all(comms, 2, NULL) != UNO_OK)
        return failed("init_all", NULL);
    printf("0 %d\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "loop";
    uno_comm *comm;
    static float in[1000], out[1000];
    enter_cgroup();
    if (strcmp(mode, "local") == 0)
        return local();
    if (strcmp(mode, "unjoined") == 0) {
        const char *place = getenv("UNISONO_RANK");
        printf("%s %d\n", place ? place : "0", (int)getpid());
        fflush(stdout);
        while (place && strcmp(place, "1") == 0)
            pause();
    }
    if (strcmp(mode, "closed_early") == 0)
        prctl(PR_SET_DUMPABLE, 0);
    if (uno_comm_init_env(&comm, NULL) != UNO_OK)
        return failed("init", NULL);
    int rank = uno_comm_rank(comm);
    if (strcmp(mode, "crossed") == 0 || strcmp(mode, "circle") == 0)
        return mode[1] == 'r' ? crossed(comm, in, out) : circle(comm, in, out);
    if (strcmp(mode, "group") == 0 || strcmp(mode, "shrink") == 0)
        return make(comm, mode[0] == 's');
    static const int ends[] = {SIGUSR1, SIGUSR2, SIGHUP};
    for (size_t i = 0; strcmp(mode, "ends") == 0 && i < sizeof ends / sizeof *ends; i++)
        signal(ends[i], on_signal);
    for (long i = 0;; i++) {
        if (leaves)
            exit(0);
        if (i == 2 && strcmp(mode, "children") == 0)
            make_children();
        if (i == 5 && rank == 1 && strcmp(mode, "grow") == 0)
            grow();
        if (i == 2 && strcmp(mode, "closed") == 0)
            prctl(PR_SET_DUMPABLE, 0);
        if (i == 2) {
            printf("%d %d\n", rank, (int)getpid());
            fflush(stdout);
        }
        if (i == 2 && strcmp(mode, "roots") == 0)
            return each_is_root(comm, out);
        if (i == 2 && strcmp(mode, "threads") == 0 && rank == 1) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, last_thread, NULL) == 0)
                pthread_exit(NULL);
        }
        if (i == 2 && strcmp(mode, "exec") == 0 && rank == 1) {
            execlp("sleep", "sleep", "100", (char *)NULL);
            return failed("exec", comm);
        }
        if (i == 2 && ((has_an_absent_rank(mode) && rank == 1) || strcmp(mode, "idle") == 0))
            for (;;)
                pause();
        if (i == 2 && computes(mode, rank))
            for (double until = now_s() + 3; now_s() < until;)
                ;
        if (i == 5 && (strcmp(mode, "rests") == 0 || strcmp(mode, "computes") == 0))
            return uno_comm_destroy(comm) == UNO_OK ? 0 : failed("destroy", NULL);
        if (strcmp(mode, "ring") == 0 && pass_on(comm, in, out) != UNO_OK)
            return failed("sendrecv", comm);
        if (uno_all_reduce(in, out, 1000, UNO_FLOAT32, UNO_SUM, comm, NULL) != UNO_OK)
            return failed("all_reduce", comm);
        usleep(strcmp(mode, "slow") != 0 ? 2000 : rank == 1 ? 20000 : 1000);
    }
}
