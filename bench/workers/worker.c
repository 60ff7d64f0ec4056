/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.c - what all implementations share: the talk with the driver, data and checks, and the clock. Lines, from the driver:
 *     go                                                     join now
 *     run COLL BYTES IN_PLACE OWN WARM BATCHES ITERS CHECK    OWN: memory of the implementation's own kind
 *     free | memory | quit
 * and to it: here PID; joined RANK SIZE T_JOINED T_BARRIER VERSION; times WRONG SECONDS ... (of one call, each batch's mean);
 * memory KB; no REASON. BYTES is the larger of what goes in and what comes out.
 */
#include "worker.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES_MAX = 64, LINE_MAX_BYTES = 1 << 20 };
static const char *const coll_names[COLLS] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all",
                                              "send_recv", "barrier"};
struct order { enum coll coll; size_t bytes; int in_place, own, warm, batches, check; long iters; };
struct buffers { float *send, *recv; size_t send_bytes, recv_bytes; int own; };

static FILE *from, *to;
static char line[LINE_MAX_BYTES];
static int rank = -1, size = -1;

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "worker: rank %d: %s: %s\n", rank, what, strerror(errno));
    exit(1);
}

__attribute__((format(printf, 1, 2))) static void say(const char *form, ...)
{
    va_list args;
    va_start(args, form);
    vfprintf(to, form, args);
    va_end(args);
    fputc('\n', to);
    if (fflush(to) != 0)
        die("the driver is gone");
}

static char *hear(void)
{
    if (!fgets(line, sizeof line, from))
        return NULL;
    line[strcspn(line, "\n")] = 0;
    return line;
}

const char *worker_setting(const char *name, const char *other)
{
    char whole[64];
    snprintf(whole, sizeof whole, "BENCH_%s", name);
    const char *value = getenv(whole);
    return value ? value : other;
}

int worker_exchange(int me, int n, const void *mine, size_t bytes, void *all)
{
    fprintf(to, "gather %d ", me);
    for (size_t i = 0; i < bytes; i++)
        fprintf(to, "%02x", ((const unsigned char *)mine)[i]);
    say("%s", "");
    const char *answer = hear();
    if (!answer || strlen(answer) != 2 * bytes * (size_t)n)
        return -1;
    for (size_t i = 0; i < bytes * (size_t)n; i++) {
        unsigned byte;
        if (sscanf(answer + 2 * i, "%2x", &byte) != 1)
            return -1;
        ((unsigned char *)all)[i] = (unsigned char)byte;
    }
    return 0;
}

/* ---- data ---------------------------------------------------------------------------------------------------------- */

/* Small whole numbers, so that sums are exact in any order. */
static float value(int of, size_t i)
{
    return (float)((i * 7 + (size_t)of * 13 + i / 1021) % 509);
}

__attribute__((weak)) void *peer_memory(size_t bytes)
{
    (void)bytes;
    return NULL;
}

__attribute__((weak)) void peer_memory_free(void *p)
{
    (void)p;
}

static void *new_memory(size_t bytes, int own)
{
    if (own)
        return peer_memory(bytes);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void free_memory(void *p, size_t bytes, int own)
{
    if (own)
        peer_memory_free(p);
    else
        munmap(p, bytes);
}

static void free_buffers(struct buffers *b)
{
    if (b->send)
        free_memory(b->send, b->send_bytes, b->own);
    if (b->recv)
        free_memory(b->recv, b->recv_bytes, b->own);
    *b = (struct buffers){0};
}

static int has_blocks(enum coll coll)
{
    return coll == ALL_GATHER || coll == REDUCE_SCATTER || coll == ALL_TO_ALL;
}

/* In place: the smaller buffer is a part of the larger one. all_to_all has no in place here. */
static int get_buffers(struct buffers *b, const struct order *o, struct call *c)
{
    size_t count = o->bytes / sizeof(float) / (has_blocks(o->coll) ? (size_t)size : 1);
    size_t whole = count * sizeof(float) * (has_blocks(o->coll) ? (size_t)size : 1), room = (whole + 4096) / 4096 * 4096;
    if (b->send_bytes != room || b->own != o->own) {
        free_buffers(b);
        *b = (struct buffers){new_memory(room, o->own), new_memory(room, o->own), room, room, o->own};
        if (!b->send || !b->recv)
            return -1;
    }
    *c = (struct call){o->coll, b->send, b->recv, count, o->in_place};
    if (o->in_place && o->coll == ALL_GATHER)
        c->send = b->recv + (size_t)rank * count;
    else if (o->in_place && o->coll == REDUCE_SCATTER)
        c->recv = b->send + (size_t)rank * count;
    else if (o->in_place)
        c->send = b->recv;
    return 0;
}

static size_t sent(const struct call *c)
{
    return c->count * (c->coll == REDUCE_SCATTER || c->coll == ALL_TO_ALL ? (size_t)size : 1);
}

static size_t received(const struct call *c)
{
    return c->count * (c->coll == ALL_GATHER || c->coll == ALL_TO_ALL ? (size_t)size : 1);
}

static void fill(const struct call *c)
{
    if (!c->in_place)
        for (size_t i = 0; i < received(c); i++)
            c->recv[i] = -1;
    for (size_t i = 0; i < sent(c); i++)
        ((float *)c->send)[i] = value(rank, i);
}

static float expected(const struct call *c, size_t i)
{
    float sum = 0;
    switch (c->coll) {
    case ALL_REDUCE:
        for (int r = 0; r < size; r++)
            sum += value(r, i);
        return sum;
    case REDUCE_SCATTER:
        for (int r = 0; r < size; r++)
            sum += value(r, (size_t)rank * c->count + i);
        return sum;
    case ALL_GATHER: return value((int)(i / c->count), i % c->count);
    case ALL_TO_ALL: return value((int)(i / c->count), (size_t)rank * c->count + i % c->count);
    case SEND_RECV: return value((rank + size - 1) % size, i);
    default: return value(0, i);
    }
}

/* A broadcast's root keeps what it has. */
static uint64_t count_wrong(const struct call *c)
{
    uint64_t wrong = 0;
    if (c->coll == BARRIER || (c->coll == BROADCAST && rank == 0))
        return 0;
    for (size_t i = 0; i < received(c); i++)
        wrong += c->recv[i] != expected(c, i);
    return wrong;
}

/* ---- one order ------------------------------------------------------------------------------------------------------ */

static int several(const struct call *c, long n)
{
    for (long i = 0; i < n; i++)
        if (peer_call(c) != 0)
            return -1;
    return 0;
}

static int timed(const struct order *o, const struct call *c, double *seconds)
{
    for (int b = 0; b < o->batches; b++) {
        peer_barrier();
        double start = now_seconds();
        if (several(c, o->iters) != 0)
            return -1;
        seconds[b] = (now_seconds() - start) / (double)o->iters;
    }
    peer_barrier();
    return 0;
}

static void run(const struct order *o, struct buffers *b)
{
    struct call c;
    double seconds[BATCHES_MAX];
    uint64_t wrong = 0;
    if (get_buffers(b, o, &c) != 0) {
        say("no memory of that kind");
        return;
    }
    const char *why = peer_prepare(&c);
    if (why) {
        say("no %s", why);
        return;
    }
    fill(&c);
    if (o->check) {
        peer_barrier();
        if (peer_call(&c) != 0)
            exit(1);
        wrong = count_wrong(&c);
        fill(&c);
    }
    peer_barrier();
    /* Sums in place grow without bound, and infinities are as fast as numbers. */
    if (several(&c, o->warm) != 0 || timed(o, &c, seconds) != 0)
        exit(1);
    fprintf(to, "times %llu", (unsigned long long)wrong);
    for (int i = 0; i < o->batches; i++)
        fprintf(to, " %.9g", seconds[i]);
    say("%s", "");
}

static long resident_kb(void)
{
    long kb = -1, found;
    FILE *f = fopen("/proc/self/status", "r");
    char text[256];
    while (f && fgets(text, sizeof text, f))
        if (sscanf(text, "VmRSS: %ld kB", &found) == 1)
            kb = found;
    if (f)
        fclose(f);
    return kb;
}

static int parse(const char *text, struct order *o)
{
    char name[32];
    if (sscanf(text, "run %31s %zu %d %d %d %d %ld %d", name, &o->bytes, &o->in_place, &o->own, &o->warm, &o->batches, &o->iters,
               &o->check) != 8 || o->batches < 1 || o->batches > BATCHES_MAX || o->iters < 1)
        return -1;
    for (int c = 0; c < COLLS; c++)
        if (strcmp(name, coll_names[c]) == 0) {
            o->coll = (enum coll)c;
            return 0;
        }
    return -1;
}

static void serve(void)
{
    struct buffers b = {0};
    struct order o;
    for (const char *text; (text = hear()) && strcmp(text, "quit") != 0;)
        if (parse(text, &o) == 0)
            run(&o, &b);
        else if (strcmp(text, "memory") == 0)
            say("memory %ld", resident_kb());
        else {
            free_buffers(&b);
            say("no %s", strcmp(text, "free") == 0 ? "buffers any more" : "such order");
        }
    free_buffers(&b);
}

static void meet_driver(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", worker_setting("SOCKET", ""));
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a) != 0)
        die(a.sun_path[0] ? a.sun_path : "BENCH_SOCKET is not set; this program is started by bench/bench.py");
    from = fdopen(s, "r");
    to = fdopen(dup(s), "w");
    if (!from || !to)
        die("fdopen");
}

/* Rank r on processor r, round robin over those that this process may use. */
static void bind_to_processor(int r)
{
    cpu_set_t all, one;
    int n = 0, found = -1;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) == 0)
        return;
    for (int c = 0, turn = r % CPU_COUNT(&all); c < CPU_SETSIZE && found < 0; c++)
        if (CPU_ISSET(c, &all) && n++ == turn)
            found = c;
    CPU_ZERO(&one);
    CPU_SET(found, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* As where ptrace rules or a container forbid it. */
static void refuse_peer_reads(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        die("seccomp");
}

static int from_environment(const char *const *names)
{
    for (; *names; names++)
        if (getenv(*names))
            return atoi(getenv(*names));
    return -1;
}

int main(void)
{
    static const char *const ranks[] = {"BENCH_RANK", "UNISONO_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL};
    static const char *const sizes[] = {"BENCH_SIZE", "UNISONO_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rank = from_environment(ranks);
    size = from_environment(sizes);
    if (rank >= 0 && strcmp(worker_setting("BIND", "1"), "1") == 0)
        bind_to_processor(rank);
    if (strcmp(worker_setting("REFUSE", "0"), "1") == 0)
        refuse_peer_reads();
    meet_driver();
    say("here %d", (int)getpid());
    const char *text = hear();
    if (!text || strcmp(text, "go") != 0)
        return 1;
    if (peer_join(&rank, &size) != 0)
        return 1;
    double joined = now_seconds();
    peer_barrier();
    double through = now_seconds();
    say("joined %d %d %.9f %.9f %s", rank, size, joined, through, peer_version());
    serve();
    peer_leave();
    return 0;
}
