/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - how long joining takes: processes that are already running call uno_comm_init_rank and one barrier at the same moment.
 * Reported are the time until the last one is through and the processor time of all together, medians of several repeats.
 *
 *     bench_join [PROCESSES [REPEATS]]      without arguments: 8 and 64 processes, 7 repeats
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unisono.h"

#define MOST 256

struct timing { double init_s, barrier_s; };
struct sample { double init_ms, all_ms, processor_ms; };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double processor_s(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Everyone says "here", then waits for the closing of `go`. */
static int child(int rank, int size, const uno_id *id, int here, int go, int out)
{
    uno_comm *comm;
    char byte = 0;
    if (write(here, &byte, 1) != 1 || read(go, &byte, 1) != 0)
        return 1;
    if (uno_comm_init_rank(&comm, size, id, rank, NULL) != UNO_OK) {
        fprintf(stderr, "bench_join: rank %d: %s\n", rank, uno_last_error(NULL));
        return 1;
    }
    struct timing t = {.init_s = now_s()};
    if (uno_barrier(comm, NULL) != UNO_OK) {
        fprintf(stderr, "bench_join: rank %d: %s\n", rank, uno_last_error(comm));
        return 1;
    }
    t.barrier_s = now_s();
    (void)uno_comm_destroy(comm);
    return write(out, &t, sizeof t) != (ssize_t)sizeof t;
}

static int once(int size, struct sample *s)
{
    uno_id id;
    int here[2], go[2], out[2], failed = 0;
    pid_t pids[MOST];
    if (uno_get_id(&id) != UNO_OK || pipe(here) != 0 || pipe(go) != 0 || pipe(out) != 0) {
        fprintf(stderr, "bench_join: %s\n", uno_last_error(NULL));
        return 1;
    }
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            close(go[1]);
            close(here[0]);
            _exit(child(r, size, &id, here[1], go[0], out[1]));
        }
    }
    close(here[1]);
    close(out[1]);
    char byte;
    for (int r = 0; r < size; r++)
        failed |= read(here[0], &byte, 1) != 1;
    double used = processor_s(RUSAGE_CHILDREN) + processor_s(RUSAGE_SELF), start = now_s();
    close(go[1]);
    struct timing t, last = {0};
    for (int r = 0; r < size; r++) {
        if (read(out[0], &t, sizeof t) != (ssize_t)sizeof t) {
            failed = 1;
            break;
        }
        last.init_s = t.init_s > last.init_s ? t.init_s : last.init_s;
        last.barrier_s = t.barrier_s > last.barrier_s ? t.barrier_s : last.barrier_s;
    }
    for (int r = 0; r < size; r++) {
        int status;
        failed |= waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    }
    close(here[0]);
    close(go[0]);
    close(out[0]);
    *s = (struct sample){(last.init_s - start) * 1e3, (last.barrier_s - start) * 1e3,
                         (processor_s(RUSAGE_CHILDREN) + processor_s(RUSAGE_SELF) - used) * 1e3};
    return failed;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int report(int size, int repeats)
{
    double init[64], all[64], used[64];
    for (int i = 0; i < repeats; i++) {
        struct sample s;
        if (once(size, &s) != 0)
            return 1;
        init[i] = s.init_ms;
        all[i] = s.all_ms;
        used[i] = s.processor_ms;
    }
    qsort(init, (size_t)repeats, sizeof *init, by_time);
    qsort(all, (size_t)repeats, sizeof *all, by_time);
    qsort(used, (size_t)repeats, sizeof *used, by_time);
    printf("%3d processes: joined after %.1f ms, first barrier done after %.1f ms (%.1f to %.1f), processor time %.1f ms, with leaving; "
           "medians of %d\n", size, init[repeats / 2], all[repeats / 2], all[0], all[repeats - 1], used[repeats / 2], repeats);
    return 0;
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? atoi(argv[1]) : 0, repeats = argc > 2 ? atoi(argv[2]) : 7;
    if (size < 0 || size > MOST || (argc > 1 && size == 0) || repeats < 1 || repeats > 64) {
        fprintf(stderr, "usage: bench_join [PROCESSES, 1 to %d [REPEATS, 1 to 64]]\n", MOST);
        return 2;
    }
    return size ? report(size, repeats) : report(8, repeats) || report(64, repeats);
}
