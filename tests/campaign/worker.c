/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the faults campaign: random collectives, the same on all ranks, results checked; at operation CAMPAIGN_AT the rank
 * CAMPAIGN_RANK does what CAMPAIGN_CAUSE says (causes.py lists the words). With CAMPAIGN_PERIOD the calls are a loop of so many.
 * Written from the installed header alone. Says on stdout "ready", "cause TIME" and "error TIME NAME: sentence"; times are CLOCK_MONOTONIC. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unisono.h>
#include <unistd.h>

enum { MAX_RANKS = 8, READY_AFTER = 5 };

struct call {
    uno_coll coll;
    size_t count;
    uno_type type;
    uno_op op;
    int root;
};

static struct {
    const char *cause;
    int rank, peer;
    long at, ops, period;
    size_t max_count;
    unsigned long long seed;
    int uneven_us;
    bool shrink;
} told;
static int me, size;
static char *from, *to;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static unsigned long long random_next(unsigned long long *state) /* splitmix64 */
{
    unsigned long long z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static bool is(const char *word) { return strcmp(told.cause, word) == 0; }

static bool has_root(uno_coll c) { return c == UNO_BROADCAST || c == UNO_REDUCE || c == UNO_GATHER || c == UNO_SCATTER; }
static bool has_op(uno_coll c) { return c == UNO_ALL_REDUCE || c == UNO_REDUCE || c == UNO_REDUCE_SCATTER; }

/* The call that all ranks make as number n. Two calls that follow each other never have the same count, so that a skipped one shows. */
static struct call call_of(long number)
{
    long n = told.period > 0 ? number % told.period : number;
    unsigned long long s = told.seed + (unsigned long long)n * 1000003;
    static const uno_type types[] = {UNO_INT32, UNO_INT64, UNO_FLOAT32, UNO_FLOAT64};
    struct call c;
    do
        c.coll = (uno_coll)(random_next(&s) % (UNO_BARRIER + 1));
    while ((is("skip") && c.coll == UNO_BARRIER) || (is("skip_alike") && c.coll != UNO_ALL_REDUCE) ||
           (n == told.at && ((c.coll == UNO_BARRIER && !is("collective")) || (is("root") && !has_root(c.coll)) || (is("op") && !has_op(c.coll)))));
    size_t limit = (size_t)1 << (random_next(&s) % 20);
    c.count = 2 * (1 + random_next(&s) % (limit < told.max_count ? limit : told.max_count)) + (size_t)(n % 2);
    c.type = types[random_next(&s) % 4];
    c.op = random_next(&s) % 2 ? UNO_SUM : UNO_MAX;
    c.root = (int)(random_next(&s) % (unsigned)size);
    return c;
}

static void put(char *p, size_t i, uno_type type, long value)
{
    switch (type) {
    case UNO_INT32: ((int32_t *)p)[i] = (int32_t)value; break;
    case UNO_INT64: ((int64_t *)p)[i] = value; break;
    case UNO_FLOAT32: ((float *)p)[i] = (float)value; break;
    default: ((double *)p)[i] = (double)value; break;
    }
}

static long get(const char *p, size_t i, uno_type type)
{
    switch (type) {
    case UNO_INT32: return ((const int32_t *)p)[i];
    case UNO_INT64: return ((const int64_t *)p)[i];
    case UNO_FLOAT32: return (long)((const float *)p)[i];
    default: return (long)((const double *)p)[i];
    }
}

static uno_err make(const struct call *c, uno_comm *comm)
{
    switch (c->coll) {
    case UNO_ALL_REDUCE: return uno_all_reduce(from, to, c->count, c->type, c->op, comm, NULL);
    case UNO_BROADCAST: return uno_broadcast(from, to, c->count, c->type, c->root, comm, NULL);
    case UNO_REDUCE: return uno_reduce(from, to, c->count, c->type, c->op, c->root, comm, NULL);
    case UNO_ALL_GATHER: return uno_all_gather(from, to, c->count, c->type, comm, NULL);
    case UNO_REDUCE_SCATTER: return uno_reduce_scatter(from, to, c->count, c->type, c->op, comm, NULL);
    case UNO_ALL_TO_ALL: return uno_all_to_all(from, to, c->count, c->type, comm, NULL);
    case UNO_GATHER: return uno_gather(from, to, c->count, c->type, c->root, comm, NULL);
    case UNO_SCATTER: return uno_scatter(from, to, c->count, c->type, c->root, comm, NULL);
    default: return uno_barrier(comm, NULL);
    }
}

/* Every rank sends its rank + 1 everywhere: what must arrive is known. Looked at: the first and the last element of each block. */
static bool right(const struct call *c)
{
    bool here = !has_root(c->coll) || c->root == me || c->coll == UNO_BROADCAST || c->coll == UNO_SCATTER;
    bool blocks = c->coll == UNO_ALL_GATHER || c->coll == UNO_ALL_TO_ALL || c->coll == UNO_GATHER;
    if (c->coll == UNO_BARRIER || !here)
        return true;
    for (int q = 0; q < (blocks ? size : 1); q++) {
        long want = blocks ? q + 1 : has_op(c->coll) ? (c->op == UNO_SUM ? (long)size * (size + 1) / 2 : size) : c->root + 1;
        size_t first = (size_t)q * c->count;
        if (get(to, first, c->type) != want || get(to, first + c->count - 1, c->type) != want)
            return false;
    }
    return true;
}

static uno_err step(const struct call *c, uno_comm *comm)
{
    size_t all = c->count * (size_t)size;
    for (size_t i = 0; i < all; i++)
        put(from, i, c->type, me + 1);
    if (told.uneven_us) {
        static unsigned long long s;
        s += (unsigned long long)me;
        for (double until = now() + (double)(random_next(&s) % (unsigned)told.uneven_us) / 1e6; now() < until;)
            ;
    }
    uno_err err = make(c, comm);
    if (err == UNO_OK && !right(c)) {
        printf("wrong %.6f rank %d: collective %d, count %zu\n", now(), me, (int)c->coll, c->count);
        exit(9);
    }
    return err;
}

static void say_cause(void)
{
    printf("cause %.6f\n", now());
    fflush(stdout);
}

static void enter_cgroup(void) /* CAMPAIGN_CGROUP, which has little memory */
{
    const char *procs = getenv("CAMPAIGN_CGROUP");
    FILE *f = procs ? fopen(procs, "w") : NULL;
    if (!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f) != 0)
        exit(7);
}

static void grow(void) /* until the kernel has no memory left for the cgroup */
{
    size_t grown = 0;
    for (size_t n = (size_t)4 << 20;; grown += n) {
        char *p = malloc(n);
        if (grown == 8 * n)
            say_cause(); /* it is about to happen */
        if (p)
            memset(p, 1, n);
    }
}

enum { CHILD_LIVES_S = 3 };

/* Its parent, this thread, stands until the child has ended. */
static void *have_vfork_child(void *arg)
{
    if (vfork() == 0) {
        syscall(SYS_nanosleep, &(struct timespec){.tv_sec = CHILD_LIVES_S}, NULL);
        _exit(0);
    }
    return arg;
}

/* Four children of all kinds that hold whatever this process had open, for a while longer than it lives. */
static void have_children(void)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        long pid = i == 2 ? syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
        if (pid == 0) {
            sleep(CHILD_LIVES_S);
            _exit(0);
        }
    }
    if (pthread_create(&thread, NULL, have_vfork_child, NULL) != 0 || pthread_detach(thread) != 0)
        exit(7);
}

/* Returns true when the operation of this number has been dealt with, or must not be made. */
static bool misbehave(struct call *c, uno_comm *comm, uno_comm *second, uno_err *err)
{
    bool other = me == told.peer;
    if (me != told.rank && !(other && is("crossed")) && !is("order"))
        return false;
    if (me == told.rank && !is("oom"))
        say_cause();
    if (is("absent_sleep"))
        for (;;)
            sleep(1000);
    if (is("absent_spin"))
        for (volatile unsigned long i = 0;;)
            i++;
    if (is("absent_read")) {
        int ends[2];
        char byte;
        if (pipe(ends) == 0 && read(ends[0], &byte, 1) >= 0)
            exit(8);
    }
    if (is("collective"))
        c->coll = c->coll == UNO_ALL_GATHER ? UNO_ALL_TO_ALL : UNO_ALL_GATHER;
    if (is("count"))
        c->count += 2;
    if (is("type"))
        c->type = c->type == UNO_INT32 ? UNO_FLOAT32 : UNO_INT32;
    if (is("root"))
        c->root = (c->root + 1) % size;
    if (is("op"))
        c->op = c->op == UNO_SUM ? UNO_MAX : UNO_SUM;
    if (is("exit0"))
        exit(0);
    if (is("status"))
        exit(3);
    if (is("abort"))
        abort();
    if (is("segv"))
        raise(SIGSEGV);
    if (is("oom"))
        grow();
    if (is("comm_abort"))
        *err = uno_comm_abort(comm) == UNO_OK ? UNO_ERR_ABORTED : UNO_ERR_INTERNAL;
    if (is("order")) { /* one rank takes the two communicators the other way round */
        int32_t in = 1, out;
        *err = uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, me == told.rank ? second : comm, NULL);
        if (*err == UNO_OK)
            *err = uno_all_reduce(&in, &out, 1, UNO_INT32, UNO_SUM, me == told.rank ? comm : second, NULL);
        return true;
    }
    if (is("send") || is("crossed"))
        *err = uno_send(from, (size_t)1 << 21, UNO_INT8, me == told.rank ? told.peer : told.rank, comm, NULL);
    if (is("recv"))
        *err = uno_recv(to, 16, UNO_INT8, told.peer, comm, NULL);
    return is("skip") || is("skip_alike");
}

static void say_error(uno_err err, const uno_comm *comm)
{
    const char *text = uno_last_error(comm);
    if (!*text) /* it befell another communicator */
        text = uno_last_error(NULL);
    printf("error %.6f %s: %s\n", now(), uno_err_name(err), text);
    fflush(stdout);
}

/* Who is left makes a smaller communicator and works on it. */
static int go_on(uno_comm *comm)
{
    uno_comm *rest;
    uno_err err = uno_comm_shrink(comm, NULL, 0, &rest, NULL);
    if (err != UNO_OK)
        say_error(err, comm);
    uno_comm_destroy(comm);
    if (err != UNO_OK)
        return 5;
    me = uno_comm_rank(rest);
    size = uno_comm_size(rest);
    told.at = -1;
    for (long n = 0; err == UNO_OK && n < 100; n++) {
        struct call c = call_of(100000 + n);
        err = step(&c, rest);
    }
    if (err != UNO_OK)
        say_error(err, rest);
    else
        printf("shrunk %.6f rank %d of %d\n", now(), me, size);
    fflush(stdout);
    uno_comm_destroy(rest);
    return err != UNO_OK;
}

static void read_orders(void)
{
    told.cause = getenv("CAMPAIGN_CAUSE") ? getenv("CAMPAIGN_CAUSE") : "";
    told.rank = (int)number("CAMPAIGN_RANK", -1);
    told.peer = (int)number("CAMPAIGN_PEER", -1);
    told.at = number("CAMPAIGN_AT", -1);
    told.ops = number("CAMPAIGN_OPS", -1);
    told.period = number("CAMPAIGN_PERIOD", 0);
    told.max_count = (size_t)number("CAMPAIGN_COUNT", 1 << 14);
    told.seed = (unsigned long long)number("CAMPAIGN_SEED", 1);
    told.uneven_us = (int)number("CAMPAIGN_UNEVEN_US", 0);
    told.shrink = number("CAMPAIGN_SHRINK", 0) != 0;
}

static int work(uno_comm *comm, uno_comm *second)
{
    uno_err err = UNO_OK;
    for (long n = 0; err == UNO_OK && (told.ops < 0 || n < told.ops); n++) {
        struct call c = call_of(n);
        if (n == READY_AFTER) {
            printf("ready %.6f\n", now());
            fflush(stdout);
        }
        if (n == told.at && misbehave(&c, comm, second, &err))
            continue;
        if (err == UNO_OK && n == told.at && me == told.rank)
            err = make(&c, comm); /* by who misbehaves: neither filled nor looked at */
        else if (err == UNO_OK)
            err = step(&c, comm);
    }
    if (err == UNO_OK)
        return 0;
    say_error(err, comm);
    return 4;
}

int main(void)
{
    read_orders();
    if (is("never_joins") && number("UNISONO_RANK", -1) == told.rank) {
        say_cause();
        for (;;)
            sleep(1000);
    }
    if (is("settings") && number("UNISONO_RANK", -1) == told.rank) {
        say_cause();
        setenv("UNISONO_CHANNELS", "3", 1);
    }
    if (is("oom") && number("UNISONO_RANK", -1) == told.rank)
        enter_cgroup();
#ifndef CAMPAIGN_OTHER_VERSION
    const char *other = getenv("CAMPAIGN_OTHER");
    if (other && number("UNISONO_RANK", -1) == told.rank) { /* of another version, or word size */
        say_cause();
        unsetenv("CAMPAIGN_OTHER");
        execl(other, other, (char *)NULL);
        return 7;
    }
#endif
    size_t bytes = 2 * (told.max_count + 2) * MAX_RANKS * 8 + ((size_t)1 << 21);
    from = calloc(1, bytes);
    to = calloc(1, bytes);
    uno_comm *comm, *second = NULL;
    if (!from || !to)
        return 2;
    uno_err err = uno_comm_init_env(&comm, NULL);
    if (err != UNO_OK) {
        say_error(err, NULL);
        return 3;
    }
    me = uno_comm_rank(comm);
    size = uno_comm_size(comm);
    if (is("order"))
        err = uno_comm_dup(comm, &second, NULL);
    if (is("children") && me == told.rank)
        have_children();
    int status = err == UNO_OK ? work(comm, second) : 2;
    if (status == 4 && told.shrink)
        return go_on(comm);
    uno_comm_destroy(second);
    uno_comm_destroy(comm);
    free(from);
    free(to);
    return status;
}
