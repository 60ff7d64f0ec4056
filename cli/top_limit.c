/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top_limit.c - what `unisono top` compares bandwidth with, where the user gives nothing: how fast one processor of this host copies from
 * memory to memory. Any rank has to bring its payload once from somewhere to its output, so a rank whose payload is not in its cache cannot
 * exceed it. Measured once, before the first table.
 */
#include "top.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COPY_BYTES (32u << 20) /* more than the cache that one processor has for itself */
#define COPIES 4               /* the first one brings in the pages */

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

double limit_measure(void)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    double best = 0;
    for (int i = 0; from && to && i < COPIES; i++) {
        if (i == 0)
            memset(from, 1, COPY_BYTES);
        double begin = now_s();
        memcpy(to, from, COPY_BYTES);
        *(volatile char *)&from[i] = to[COPY_BYTES - 1 - (unsigned)i]; /* the copy is used, and the next one is another */
        double rate = COPY_BYTES / (now_s() - begin);
        if (i > 0 && rate > best)
            best = rate;
    }
    free(from);
    free(to);
    return best;
}
