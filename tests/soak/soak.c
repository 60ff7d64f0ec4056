/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak.c - one segment: soak --ranks 2..8 --carrier threads|shm|tcp|hosts --seed S --seconds T. Starts the ranks, walks the script until
 * the time is over, and measures each rank's memory and descriptors eight times, each time after it has let go of everything but its
 * first communicator. `hosts`: processes that take themselves for two hosts. Ends with one line, which soak.py, the
 * usual caller, reads; exit status 1 on any failure.
 */
#include "soak.h"

#include "conform/share.h"

#include <getopt.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum carrier { THREADS, SHM, TCP, HOSTS };
static const char *const carriers[] = {"threads", "shm", "tcp", "hosts"};
static struct { int ranks, carrier; uint64_t seed; double seconds; } opt = {.ranks = 2, .carrier = -1, .seconds = 10};

enum { STEPS_BETWEEN = 32 /* looks at the clock */, MEASURES = 8 };
struct outcome { bool ok; long steps, operations; struct soak_measure at[MEASURES + 2]; /* before joining, while working, after the end */ };

/* ---- one rank ------------------------------------------------------------------------------------------------------- */

/* How many measures are due; rank 0 has the clock. */
static uno_err ask(struct soak *s, uint64_t begin_ns, int *due)
{
    double t = (double)(clock_ns() - begin_ns) / 1e9;
    int32_t said = (int32_t)MIN(t / opt.seconds * MEASURES, MEASURES);
    TRY(uno_broadcast(&said, &said, 1, UNO_INT32, 0, s->places[0].comm, NULL));
    *due = (int)said;
    return UNO_OK;
}

static uno_err walk(struct soak *s, struct outcome *out)
{
    uint64_t begin_ns = clock_ns();
    for (int measured = 0, due; measured < MEASURES;) {
        for (int i = 0; i < STEPS_BETWEEN; i++)
            TRY(soak_step(s));
        s->doing = "looking at the clock";
        TRY(ask(s, begin_ns, &due));
        if (due > measured)
            TRY(soak_measure(s, &out->at[1 + measured]));
        for (; measured + 1 < due; measured++) /* a step may be long */
            out->at[2 + measured] = out->at[1 + measured];
        measured = due;
    }
    return UNO_OK;
}

static void run_rank(uno_comm *world, struct outcome *out)
{
    struct soak s = {.seed = opt.seed, .doing = "beginning"};
    uno_err err = soak_begin(&s, world);
    if (err == UNO_OK)
        err = walk(&s, out);
    out->ok = err == UNO_OK;
    out->steps = (long)s.step;
    out->operations = s.operations;
    if (err != UNO_OK) {
        fprintf(stderr, "soak: seed %llu, step %llu, %s (%s): rank %d: %s: %s\n", (unsigned long long)opt.seed, (unsigned long long)s.step,
                s.doing, s.last_case, uno_comm_rank(world), uno_err_name(err), err_text());
        _exit(1); /* the others need not wait for a rank that is out of step */
    }
    soak_end(&s);
    (void)uno_comm_destroy(world);
}

/* ---- ranks ------------------------------------------------------------------------------------------------------------ */

static long grown(const struct outcome *o, bool memory)
{
    const struct soak_measure *from = &o->at[MEASURES / 2], *to = &o->at[MEASURES];
    return memory ? to->memory_kb - from->memory_kb : to->descriptors - from->descriptors;
}

/* The worst rank counts, for memory and for descriptors. */
static void add(struct outcome *all, const struct outcome *one, bool first)
{
    bool memory = first || grown(one, true) > grown(all, true), descriptors = first || grown(one, false) > grown(all, false);
    for (int i = 0; i < MEASURES + 2; i++) {
        all->at[i].memory_kb = memory ? one->at[i].memory_kb : all->at[i].memory_kb;
        all->at[i].descriptors = descriptors ? one->at[i].descriptors : all->at[i].descriptors;
    }
    all->ok = all->ok && one->ok;
    all->steps = one->steps;
    all->operations += one->operations;
}

/* Threads of the library that served the last communicator may need a moment. */
static struct soak_measure ended(void)
{
    struct soak_measure last = soak_held(), now = last;
    for (int i = 0; i < 100; i++) {
        usleep(20000);
        now = soak_held();
        if (now.descriptors == last.descriptors && i >= 10)
            break;
        last = now;
    }
    return now;
}

struct thread_rank { uno_comm *comm; struct outcome out; pthread_t thread; };

static void *thread_main(void *arg)
{
    struct thread_rank *t = arg;
    run_rank(t->comm, &t->out);
    return NULL;
}

static bool run_threads(struct outcome *all)
{
    uno_comm *comms[SOAK_RANKS];
    struct soak_measure before = soak_held();
    struct thread_rank ranks[SOAK_RANKS] = {0};
    if (uno_comm_init_all(comms, opt.ranks, NULL) != UNO_OK) {
        fprintf(stderr, "soak: %s\n", uno_last_error(NULL));
        return false;
    }
    for (int r = 0; r < opt.ranks; r++) {
        ranks[r].comm = comms[r];
        if (pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]) != 0)
            abort();
    }
    for (int r = 0; r < opt.ranks; r++) {
        pthread_join(ranks[r].thread, NULL);
        add(all, &ranks[r].out, r == 0);
    }
    all->at[0] = before;
    all->at[MEASURES + 1] = ended();
    return true;
}

static int child(int rank, const int ids[2], int result)
{
    uno_comm *world;
    uno_id id;
    struct outcome out = {0};
    if (opt.carrier == HOSTS)
        setenv("UNISONO_HOST", rank % 3 == 1 ? "soak-b" : "soak-a", 1);
    out.at[0] = soak_held();
    if (!share_id(rank, opt.ranks, ids, &id))
        return 1;
    if (uno_comm_init_rank(&world, opt.ranks, &id, rank, NULL) != UNO_OK) {
        fprintf(stderr, "soak: rank %d: %s\n", rank, uno_last_error(NULL));
        return 1;
    }
    run_rank(world, &out);
    out.at[MEASURES + 1] = ended();
    return write(result, &out, sizeof out) != (ssize_t)sizeof out;
}

static bool run_processes(struct outcome *all)
{
    int ids[2], results[2], status, began = 0, n = 0;
    bool ok = true;
    if (opt.carrier == TCP)
        setenv("UNISONO_SHM_DISABLE", "1", 1);
    if (opt.carrier != SHM)
        setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
    if (pipe(ids) != 0 || pipe(results) != 0)
        return false;
    for (int r = 0; r < opt.ranks; r++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(r, ids, results[1]));
        began += pid > 0;
    }
    close(ids[0]);
    close(ids[1]);
    close(results[1]);
    for (int r = 0; r < began; r++)
        ok = wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && ok;
    for (struct outcome one; read(results[0], &one, sizeof one) == (ssize_t)sizeof one; n++)
        add(all, &one, n == 0);
    return ok && n == opt.ranks;
}

static int usage(const char *what)
{
    fprintf(stderr, "soak: %s; usage: soak --ranks 2..%d --carrier threads|shm|tcp|hosts --seed S --seconds T\n", what, SOAK_RANKS);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"ranks", 1, 0, 'n'}, {"carrier", 1, 0, 'c'}, {"seed", 1, 0, 'S'}, {"seconds", 1, 0, 't'}, {0}};
    int o;
    while ((o = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        int64_t v = 0;
        switch (o) {
        case 'n':
            if (text_parse_int(optarg, 2, SOAK_RANKS, &v) != UNO_OK)
                return usage(err_text());
            opt.ranks = (int)v;
            break;
        case 'c':
            for (size_t i = 0; i < ARRAY_LEN(carriers); i++)
                if (strcmp(optarg, carriers[i]) == 0)
                    opt.carrier = (int)i;
            break;
        case 'S': opt.seed = strtoull(optarg, NULL, 0); break;
        case 't':
            if (text_parse_seconds(optarg, &opt.seconds) != UNO_OK)
                return usage(err_text());
            break;
        default: return usage("unknown option");
        }
    }
    if (opt.carrier < 0)
        return usage("no carrier of that name");
    mallopt(M_ARENA_MAX, 1); /* of others it gives nothing back to the kernel, and then memory would say nothing */
    mallopt(M_MMAP_THRESHOLD, 65536);
    struct outcome all = {.ok = true};
    uint64_t begin_ns = clock_ns();
    all.ok = (opt.carrier == THREADS ? run_threads(&all) : run_processes(&all)) && all.ok;
    printf("soak: %d ranks, %s, seed %llu: %.1f s, %ld steps, %ld operations, %s; memory", opt.ranks, carriers[opt.carrier],
           (unsigned long long)opt.seed, (double)(clock_ns() - begin_ns) / 1e9, all.steps, all.operations, all.ok ? "right" : "failed");
    for (int i = 0; i < MEASURES + 2; i++)
        printf(" %ld", all.at[i].memory_kb);
    printf(" KB, descriptors");
    for (int i = 0; i < MEASURES + 2; i++)
        printf(" %ld", all.at[i].descriptors);
    printf("\n");
    return !all.ok;
}
