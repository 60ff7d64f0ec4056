/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_loop.c - all-reduces of one size in a loop and nothing else: what op_cost.py counts and times.
 * usage: op_loop BYTES TIMES
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unisono.h>

enum { BATCHES = 20 };

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) / sizeof(float) : 2;
    long times = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
    uno_comm *comm;
    float *in = calloc(count + 1, sizeof *in), *out = calloc(count + 1, sizeof *out);
    if (!in || !out || uno_comm_init_env(&comm, NULL) != UNO_OK) {
        fprintf(stderr, "op_loop: %s\n", uno_last_error(NULL));
        return 1;
    }
    uno_err err = UNO_OK;
    for (int i = 0; i < 100 && err == UNO_OK; i++)
        err = uno_all_reduce(in, out, count, UNO_FLOAT32, UNO_SUM, comm, NULL);
    double best = 1e9;
    for (long b = 0; b < BATCHES && err == UNO_OK; b++) {
        double start = now();
        for (long i = 0; i < times / BATCHES && err == UNO_OK; i++)
            err = uno_all_reduce(in, out, count, UNO_FLOAT32, UNO_SUM, comm, NULL);
        double each = (now() - start) / (double)(times / BATCHES) * 1e9;
        best = each < best ? each : best;
    }
    if (err != UNO_OK)
        fprintf(stderr, "op_loop: %s\n", uno_last_error(comm));
    else if (uno_comm_rank(comm) == 0)
        printf("%.1f\n", best);
    free(in);
    free(out);
    return uno_comm_destroy(comm) == UNO_OK && err == UNO_OK ? 0 : 1;
}
