/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floors.c - measures the prototypes of a float32 sum all-reduce between two processes on two processors, with nothing of
 * the library: the numbers that the library is compared with. Prints one table, and JSON on request.
 */
#include "floors.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "floor_kernels.h"

enum { SIZES_MAX = 32, RESULTS_MAX = 1024, FACTS_MAX = 16 };

struct result { size_t bytes, chunk; const struct proto *proto; double us; uint64_t wrong; };
struct options {
    size_t sizes[SIZES_MAX];
    int size_count, batches;
    bool facts, mapped, ordinary;
    const char *json;
};

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The processor is given away and the clock looked at rarely, so that the poll stays a poll: a wait that long means that
 * somebody else needs the processor. */
void wait_for(struct worker *w, _Atomic uint64_t *flag, uint64_t value)
{
    double deadline = 0;
    for (uint64_t polls = 1; atomic_load_explicit(flag, memory_order_acquire) < value; polls++) {
        floor_pause();
        if (polls % 4096 == 0)
            sched_yield();
        if (polls % (1 << 20) == 0) {
            deadline = deadline > 0 ? deadline : now_seconds() + 60;
            if (now_seconds() > deadline || (w->rank == 0 && waitpid(w->s->pid[1], NULL, WNOHANG) > 0)) {
                fprintf(stderr, "floors: process %d waited for the other one in vain\n", w->rank);
                exit(2);
            }
        }
    }
}

void step_together(struct worker *w)
{
    atomic_store_explicit(&w->s->flag[w->rank].value, ++w->steps, memory_order_release);
    wait_for(w, &w->s->flag[w->peer].value, w->steps);
}

/* ---- set up -------------------------------------------------------------------------------------------------- */

static void *map_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "floors: cannot map %zu bytes: %s\n", bytes, strerror(errno));
        exit(2);
    }
    return p;
}

static void *ordinary(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 4096, bytes) != 0) {
        fprintf(stderr, "floors: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    memset(p, 0, bytes);
    return p;
}

static int choose_processors(int *cpu)
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int c = 0; c < CPU_SETSIZE && n < RANKS; c++)
        if (CPU_ISSET(c, &set))
            cpu[n++] = c;
    return n;
}

/* After the fork: own buffers, own processor, and whether peers may be read. */
static void settle(struct worker *w, int rank, size_t most)
{
    cpu_set_t set;
    w->rank = rank;
    w->peer = 1 - rank;
    CPU_ZERO(&set);
    CPU_SET(w->cpu[rank], &set);
    sched_setaffinity(0, sizeof set, &set);
    if (rank == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
#ifdef PR_SET_PTRACER
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
    w->send = ordinary(most);
    w->recv = ordinary(most);
    w->temp = ordinary(CHUNK_MAX);
    memset(w->map_send[rank], 0, most);
    memset(w->map_recv[rank], 0, most);
    w->s->send[rank] = w->send;
    w->s->recv[rank] = w->recv;
    step_together(w);
    char byte;
    struct iovec here = {&byte, 1}, there = {w->s->send[w->peer], 1};
    if (process_vm_readv(w->s->pid[w->peer], &here, 1, &there, 1, 0) != 1)
        atomic_store(&w->s->failed, 1);
    step_together(w);
    w->can_read_peer = atomic_load(&w->s->failed) == 0;
    step_together(w);
}

/* ---- all of it; both processes walk alike ------------------------------------------------------------------------ */

static int measure(struct worker *w, const struct options *o, struct result *results)
{
    static const size_t chunks[] = {4096, 16384, 65536, 262144, 1048576};
    int n = 0;
    for (int s = 0; s < o->size_count; s++)
        for (int p = 0; p < proto_count; p++) {
            const struct proto *proto = &protos[p];
            size_t bytes = o->sizes[s];
            if ((proto->most_bytes && bytes > proto->most_bytes) || (proto->reads_peer && !w->can_read_peer) ||
                (proto->mapped ? !o->mapped : !o->ordinary))
                continue;
            for (size_t c = 0; c < (proto->chunked ? sizeof chunks / sizeof *chunks : 1) && n < RESULTS_MAX; c++) {
                /* Chunks larger than the message, and more than 2048 chunks, teach nothing. */
                if (proto->chunked && ((c > 0 && chunks[c - 1] >= bytes) || bytes / chunks[c] > 2048))
                    continue;
                struct result r = {.bytes = bytes, .chunk = proto->chunked ? chunks[c] : 0, .proto = proto};
                r.us = proto_time(w, proto, bytes, chunks[c], o->batches, &r.wrong);
                results[n++] = r;
            }
        }
    return n;
}

static const struct result *best_of(const struct result *results, int n, size_t bytes, bool mapped)
{
    const struct result *best = NULL;
    for (int i = 0; i < n; i++)
        if (results[i].bytes == bytes && results[i].proto->mapped == mapped && (!best || results[i].us < best->us))
            best = &results[i];
    return best;
}

static void print_table(const struct options *o, const struct worker *w, const struct result *results, int n,
                        const struct machine_fact *facts, int fact_count)
{
    printf("# all-reduce of float32, sum, 2 processes on processors %d and %d, every result checked; time of the slower one,\n"
           "# median of %d batches; best of the chunk sizes\n", w->cpu[0], w->cpu[1], o->batches);
    if (!w->can_read_peer)
        printf("# process_vm_readv is refused here (%s): no read_* rows\n", "ptrace rules");
    printf("# %10s  %-14s %9s %12s %10s %8s\n", "bytes", "prototype", "chunk", "time(us)", "algbw GB/s", "wrong");
    for (int s = 0; s < o->size_count; s++)
        for (int p = 0; p < proto_count; p++) {
            const struct result *best = NULL;
            for (int i = 0; i < n; i++)
                if (results[i].bytes == o->sizes[s] && results[i].proto == &protos[p] && (!best || results[i].us < best->us))
                    best = &results[i];
            if (best)
                printf("  %10zu  %-14s %9zu %12.2f %10.2f %8llu%s\n", best->bytes, best->proto->name, best->chunk, best->us,
                       (double)best->bytes / best->us / 1e3, (unsigned long long)best->wrong,
                       best == best_of(results, n, best->bytes, best->proto->mapped) ? "  <- best" : "");
        }
    for (int i = 0; i < fact_count; i++)
        printf("# %-50s %10.3f %s\n", facts[i].name, facts[i].value, facts[i].unit);
}

static void print_json(FILE *f, const struct result *results, int n, const struct machine_fact *facts, int fact_count)
{
    fprintf(f, "{\"floors\": [\n");
    for (int i = 0; i < n; i++)
        fprintf(f, "  {\"bytes\": %zu, \"prototype\": \"%s\", \"memory\": \"%s\", \"chunk\": %zu, \"us\": %.4f, \"wrong\": %llu}%s\n",
                results[i].bytes, results[i].proto->name, results[i].proto->mapped ? "shared" : "ordinary", results[i].chunk,
                results[i].us, (unsigned long long)results[i].wrong, i + 1 < n ? "," : "");
    fprintf(f, "],\n\"machine\": [\n");
    for (int i = 0; i < fact_count; i++)
        fprintf(f, "  {\"name\": \"%s\", \"unit\": \"%s\", \"value\": %.4f}%s\n", facts[i].name, facts[i].unit, facts[i].value,
                i + 1 < fact_count ? "," : "");
    fprintf(f, "]}\n");
}

/* ---- options --------------------------------------------------------------------------------------------------------- */

static bool parse_sizes(struct options *o, const char *text)
{
    o->size_count = 0;
    while (*text && o->size_count < SIZES_MAX) {
        char *end;
        unsigned long long v = strtoull(text, &end, 10);
        int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        end += shift > 0;
        v <<= shift;
        if (end == text || (*end && *end != ',') || v < 8 || v % 8 || v > (1ull << 31))
            return false;
        o->sizes[o->size_count++] = (size_t)v;
        text = *end ? end + 1 : end;
    }
    return *text == 0 && o->size_count > 0;
}

static int parse(int argc, char **argv, struct options *o)
{
    static const char usage[] =
        "usage: floors [--sizes 8,4K,64K,1M,64M] [--batches N] [--no-facts] [--memory ordinary|shared|both] [--json FILE|-]\n"
        "  What two processes on two processors reach without any library: prototypes of a float32 sum all-reduce.\n";
    static const struct option longs[] = {{"sizes", 1, 0, 's'}, {"batches", 1, 0, 'b'}, {"json", 1, 0, 'j'},
                                          {"memory", 1, 0, 'm'}, {"no-facts", 0, 0, 'f'}, {"help", 0, 0, 'h'}, {0}};
    *o = (struct options){.batches = 5, .facts = true, .mapped = true, .ordinary = true};
    parse_sizes(o, "8,64,512,4K,16K,64K,256K,1M,4M,16M,64M");
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        bool good = c == 'f' || c == 'j';
        if (c == 's')
            good = parse_sizes(o, optarg);
        else if (c == 'b')
            good = (o->batches = atoi(optarg)) >= 1 && o->batches <= 64;
        else if (c == 'm') {
            o->ordinary = strcmp(optarg, "shared") != 0;
            o->mapped = strcmp(optarg, "ordinary") != 0;
            good = !o->ordinary || !o->mapped || strcmp(optarg, "both") == 0;
        }
        o->json = c == 'j' ? optarg : o->json;
        o->facts = c == 'f' ? false : o->facts;
        if (!good) {
            fputs(usage, stderr);
            return 2;
        }
    }
    return -1;
}

static int report(const struct options *o, const struct worker *w, const struct result *results, int n,
                  const struct machine_fact *facts, int fact_count)
{
    bool json_only = o->json && strcmp(o->json, "-") == 0;
    uint64_t wrong = 0;
    for (int i = 0; i < n; i++)
        wrong += results[i].wrong;
    if (!json_only)
        print_table(o, w, results, n, facts, fact_count);
    if (o->json) {
        FILE *f = json_only ? stdout : fopen(o->json, "w");
        if (!f) {
            fprintf(stderr, "floors: cannot write %s: %s\n", o->json, strerror(errno));
            return 2;
        }
        print_json(f, results, n, facts, fact_count);
        if (f != stdout)
            fclose(f);
    }
    return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    static struct result results[RESULTS_MAX];
    struct machine_fact facts[FACTS_MAX];
    struct options o;
    struct worker w = {0};
    int answer = parse(argc, argv, &o);
    if (answer >= 0)
        return answer;
    if (choose_processors(w.cpu) < RANKS) {
        fprintf(stderr, "floors: needs two processors\n");
        return 2;
    }
    size_t most = o.facts ? (size_t)64 << 20 : 0; /* the copies and sums need that much */
    for (int i = 0; i < o.size_count; i++)
        most = o.sizes[i] > most ? o.sizes[i] : most;
    w.s = map_shared(sizeof *w.s);
    for (int r = 0; r < RANKS; r++) {
        w.map_send[r] = map_shared(most);
        w.map_recv[r] = map_shared(most);
    }
    w.s->pid[0] = getpid();
    pid_t child = fork();
    if (child < 0) {
        fprintf(stderr, "floors: cannot fork: %s\n", strerror(errno));
        return 2;
    }
    w.s->pid[child == 0] = getpid();
    if (child > 0)
        w.s->pid[1] = child;
    settle(&w, child == 0, most);
    int n = measure(&w, &o, results), fact_count = o.facts ? machine_facts(&w, facts, FACTS_MAX) : 0;
    free(w.send);
    free(w.recv);
    free(w.temp);
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    return report(&o, &w, results, n, facts, fact_count);
}
