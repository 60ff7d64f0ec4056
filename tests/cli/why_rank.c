/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why_rank.c - one rank of the jobs that why_test.py looks at. why_rank MODE: "loop" all-reduces for ever; "absent": rank 1 does not make the
 * third call; "slow": rank 1 takes 20 ms between calls,
 * the others 1; "idle": two calls, and then nothing; "ring": a message to the next rank
 * before each all-reduce; "closed": as absent, and from then on /proc shows nothing of any rank to others of its user; "closed_early": the same
 * from the beginning; "ends": as loop, and ends on signals, with _exit(0) on SIGUSR1 and _exit(3) on SIGUSR2, and on SIGHUP with exit(0) between
 * two calls; "children": as loop, and two children that it has made past the C library hold all it had open;
 * "grow": as loop, and rank 1, in the cgroup whose cgroup.procs WHY_RANK_CGROUP names, takes memory without end. Each rank says when it is there: "RANK PID".
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

static bool has_an_absent_rank(const char *mode)
{
    return strcmp(mode, "absent") == 0 || strncmp(mode, "closed", 6) == 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "loop";
    uno_comm *comm;
    static float in[1000], out[1000];
    enter_cgroup();
    if (strcmp(mode, "closed_early") == 0)
        prctl(PR_SET_DUMPABLE, 0);
    if (uno_comm_init_env(&comm, NULL) != UNO_OK)
        return failed("init", NULL);
    int rank = uno_comm_rank(comm);
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
        if (i == 2 && ((has_an_absent_rank(mode) && rank == 1) || strcmp(mode, "idle") == 0))
            for (;;)
                pause();
        if (strcmp(mode, "ring") == 0 && pass_on(comm, in, out) != UNO_OK)
            return failed("sendrecv", comm);
        if (uno_all_reduce(in, out, 1000, UNO_FLOAT32, UNO_SUM, comm, NULL) != UNO_OK)
            return failed("all_reduce", comm);
        usleep(strcmp(mode, "slow") != 0 ? 2000 : rank == 1 ? 20000 : 1000);
    }
}
