/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resident.c - how much memory a rank takes for moving data: resident growth from joining until all-reduce and all-to-all of
 * every size up to 64 MB are done. resident --ranks 8 --carrier threads|shm|tcp [--memory private|shared] --limit-mb 8
 * With private buffers all resident pages count, also those that peers share; with buffers of uno_mem_alloc each shared page
 * counts by its share, for the pages of peers' buffers exist anyway. Exit status 1 above the limit.
 */
#include "share.h"

#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)64 << 20)
#define MOST_RANKS 16

static struct { int ranks; const char *carrier; bool shared; double limit_mb; } opt = {.ranks = 8, .carrier = "shm", .limit_mb = 8};
static float *sent; /* all ranks send this, so that the test needs less memory */

static double resident_mb(void)
{
    char line[256];
    const char *want = opt.shared ? "Pss: %ld" : "Rss: %ld";
    long kb = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && kb < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, want, &kb) != 1)
            kb = -1;
    if (f)
        fclose(f);
    return (double)kb / 1024;
}

static void *buffer(void)
{
    void *p = NULL;
    if (opt.shared ? uno_mem_alloc(&p, MOST_BYTES) != UNO_OK : (p = malloc(MOST_BYTES)) == NULL)
        return NULL;
    memset(p, 1, MOST_BYTES);
    return p;
}

/* After a fork shared pages are resident once they are looked at. */
static bool look_at(const float *p)
{
    float sum = 0;
    for (size_t i = 0; i < MOST_BYTES / sizeof *p; i += 4096 / sizeof *p)
        sum += p[i];
    return sum > 0;
}

/* The buffers are there and touched; memory is looked at between the barriers, when nobody is in the middle of anything. */
static bool move(uno_comm *comm, const float *in, float *out, double *growth_mb)
{
    size_t n = (size_t)uno_comm_size(comm);
    if (uno_barrier(comm, NULL) != UNO_OK)
        return false;
    double before = resident_mb();
    for (size_t bytes = 4096; bytes <= MOST_BYTES; bytes *= 4)
        if (uno_all_reduce(in, out, bytes / 4, UNO_FLOAT32, UNO_SUM, comm, NULL) != UNO_OK ||
            uno_all_to_all(in, out, bytes / 4 / n, UNO_FLOAT32, comm, NULL) != UNO_OK)
            return false;
    if (uno_barrier(comm, NULL) != UNO_OK)
        return false;
    *growth_mb = resident_mb() - before;
    return uno_barrier(comm, NULL) == UNO_OK && before > 0;
}

static bool work(uno_comm *comm, double *growth_mb)
{
    float *out = buffer(), *in = opt.shared ? buffer() : sent;
    bool ok = in && out && look_at(in) && move(comm, in, out, growth_mb);
    if (!ok)
        fprintf(stderr, "resident: %s\n", uno_last_error(comm));
    (void)uno_comm_destroy(comm);
    return ok;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------------ */

struct thread_rank { uno_comm *comm; pthread_t thread; double growth_mb; bool ok; };

static void *thread_main(void *arg)
{
    struct thread_rank *t = arg;
    t->ok = work(t->comm, &t->growth_mb);
    return NULL;
}

/* Every rank measures the whole process: its part is a rank-th of that. */
static double run_threads(void)
{
    uno_comm *comms[MOST_RANKS];
    struct thread_rank ranks[MOST_RANKS];
    double most = 0;
    bool ok = true;
    if (uno_comm_init_all(comms, opt.ranks, NULL) != UNO_OK)
        return -1;
    for (int r = 0; r < opt.ranks; r++) {
        ranks[r] = (struct thread_rank){.comm = comms[r]};
        pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]);
    }
    for (int r = 0; r < opt.ranks; r++) {
        pthread_join(ranks[r].thread, NULL);
        ok = ok && ranks[r].ok;
        most = ranks[r].growth_mb > most ? ranks[r].growth_mb : most;
    }
    return ok ? most / opt.ranks : -1;
}

static int child(int rank, const int ids[2], int out)
{
    uno_comm *comm;
    uno_id id;
    double growth_mb = 0;
    if (!share_id(rank, opt.ranks, ids, &id))
        return 1;
    if (uno_comm_init_rank(&comm, opt.ranks, &id, rank, NULL) != UNO_OK) {
        fprintf(stderr, "resident: %s\n", uno_last_error(NULL));
        return 1;
    }
    return !work(comm, &growth_mb) || write(out, &growth_mb, sizeof growth_mb) != (ssize_t)sizeof growth_mb;
}

static double run_processes(void)
{
    int ids[2], out[2], status;
    double most = 0, growth_mb;
    bool ok = true;
    if (strcmp(opt.carrier, "tcp") == 0) {
        setenv("UNISONO_SHM_DISABLE", "1", 1);
        setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
    }
    if (pipe(ids) != 0 || pipe(out) != 0)
        return -1;
    for (int r = 0; r < opt.ranks; r++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(r, ids, out[1]));
        ok = ok && pid > 0;
    }
    close(ids[0]);
    close(ids[1]);
    close(out[1]);
    for (int r = 0; r < opt.ranks; r++)
        ok = wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && ok;
    while (read(out[0], &growth_mb, sizeof growth_mb) == (ssize_t)sizeof growth_mb)
        most = growth_mb > most ? growth_mb : most;
    return ok ? most : -1;
}

static int usage(const char *what)
{
    fprintf(stderr, "resident: %s; usage: resident [--ranks 1..%d] [--carrier threads|shm|tcp] [--memory private|shared] [--limit-mb N]\n",
            what, MOST_RANKS);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"ranks", 1, 0, 'n'}, {"carrier", 1, 0, 'c'}, {"memory", 1, 0, 'm'},
                                          {"limit-mb", 1, 0, 'l'}, {0}};
    int o;
    while ((o = getopt_long(argc, argv, "n:c:m:l:", longs, NULL)) != -1)
        switch (o) {
        case 'n': opt.ranks = atoi(optarg); break;
        case 'c': opt.carrier = optarg; break;
        case 'm': opt.shared = strcmp(optarg, "shared") == 0; break;
        case 'l': opt.limit_mb = atof(optarg); break;
        default: return usage("unknown option");
        }
    bool threads = strcmp(opt.carrier, "threads") == 0;
    if (opt.ranks < 1 || opt.ranks > MOST_RANKS || (!threads && strcmp(opt.carrier, "shm") != 0 && strcmp(opt.carrier, "tcp") != 0))
        return usage("impossible ranks or unknown carrier");
    sent = mmap(NULL, MOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sent == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < MOST_BYTES / sizeof *sent; i++)
        sent[i] = 1;
    double growth_mb = threads ? run_threads() : run_processes();
    if (growth_mb < 0)
        return 1;
    printf("resident: %d ranks, %s, %s buffers: %.1f MB of growth a rank, limit %.1f\n", opt.ranks, opt.carrier,
           opt.shared ? "shared" : "private", growth_mb, opt.limit_mb);
    return growth_mb > opt.limit_mb;
}
