/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_loop.c - one call of 2 ranks in a loop and nothing else: what op_cost.py counts and times.
 * usage: op_loop CALL BYTES TIMES [NAP_US]      CALL: one of those in `calls`
 * NAP_US: rank 1 sleeps so long before each of its calls, so that rank 0 has done its part of it by then, and warms up less.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unisono.h>

enum { BATCHES = 20, WARM = 100, WARM_NAPPING = 20 };

struct loop { uno_comm *comm; float *in, *out; size_t count; struct timespec nap; };

static void nap(const struct loop *l)
{
    if (l->nap.tv_nsec && uno_comm_rank(l->comm) == 1)
        nanosleep(&l->nap, NULL);
}

static uno_err all_reduce(const struct loop *l)
{
    nap(l);
    return uno_all_reduce(l->in, l->out, l->count, UNO_FLOAT32, UNO_SUM, l->comm, NULL);
}

/* To the counting rank. */
static uno_err broadcast(const struct loop *l)
{
    nap(l);
    return uno_broadcast(l->in, l->out, l->count, UNO_FLOAT32, 0, l->comm, NULL);
}

/* There and back: rank 1 begins. */
static uno_err send_recv(const struct loop *l)
{
    int first = uno_comm_rank(l->comm) == 1, peer = first ? 0 : 1;
    for (int i = 0; i < 2; i++) {
        uno_err err;
        nap(l);
        if ((i == 0) == first)
            err = uno_send(l->in, l->count, UNO_FLOAT32, peer, l->comm, NULL);
        else
            err = uno_recv(l->out, l->count, UNO_FLOAT32, peer, l->comm, NULL);
        if (err != UNO_OK)
            return err;
    }
    return UNO_OK;
}

static const struct { const char *name; uno_err (*once)(const struct loop *l); } calls[] = {
    {"all_reduce", all_reduce}, {"broadcast", broadcast}, {"send_recv", send_recv}};
enum { CALLS = sizeof calls / sizeof calls[0] };

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static uno_err repeat(const struct loop *l, uno_err (*once)(const struct loop *l), long times)
{
    uno_err err = UNO_OK;
    for (long i = 0; i < times && err == UNO_OK; i++)
        err = once(l);
    return err;
}

/* The best of some batches: nanoseconds a call; of a message there and back, each way. */
static uno_err measure(const struct loop *l, uno_err (*once)(const struct loop *l), long times, double *best)
{
    uno_err err = repeat(l, once, l->nap.tv_nsec ? WARM_NAPPING : WARM);
    long batches = l->nap.tv_nsec ? 1 : BATCHES, each = times / batches;
    *best = 1e18;
    for (long b = 0; b < batches && err == UNO_OK; b++) {
        double start = now();
        err = repeat(l, once, each);
        double ns = (now() - start) / (double)each * 1e9 / (once == send_recv ? 2 : 1);
        *best = ns < *best ? ns : *best;
    }
    return err;
}

int main(int argc, char **argv)
{
    int c = 0;
    while (c < CALLS && (argc < 4 || strcmp(calls[c].name, argv[1]) != 0))
        c++;
    long times = argc < 4 ? 0 : strtol(argv[3], NULL, 10);
    if (c == CALLS || times < BATCHES) {
        fprintf(stderr, "usage: op_loop all_reduce|broadcast|send_recv BYTES TIMES [NAP_US]; TIMES at least %d\n", BATCHES);
        return 2;
    }
    struct loop l = {.count = strtoul(argv[2], NULL, 10) / sizeof(float),
                     .nap.tv_nsec = argc > 4 ? strtol(argv[4], NULL, 10) * 1000 : 0};
    l.in = calloc(l.count + 1, sizeof *l.in);
    l.out = calloc(l.count + 1, sizeof *l.out);
    if (!l.in || !l.out || uno_comm_init_env(&l.comm, NULL) != UNO_OK) {
        fprintf(stderr, "op_loop: %s\n", uno_last_error(NULL));
        return 1;
    }
    double best;
    uno_err err = measure(&l, calls[c].once, times, &best);
    if (err != UNO_OK)
        fprintf(stderr, "op_loop: %s\n", uno_last_error(l.comm));
    else if (uno_comm_rank(l.comm) == 0)
        printf("%.1f\n", best);
    free(l.in);
    free(l.out);
    return uno_comm_destroy(l.comm) == UNO_OK && err == UNO_OK ? 0 : 1;
}
