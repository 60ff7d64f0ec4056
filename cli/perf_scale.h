/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_scale.h - `unisono perf --sweep`: the same collective with several numbers of ranks, communicators at the same time, and sizes.
 * perf_scale.c runs them, one after the other, each as a `unisono perf` of its own; perf_scale_say.c judges and prints; perf_scale_plot.c draws.
 */
#ifndef UNO_CLI_PERF_SCALE_H
#define UNO_CLI_PERF_SCALE_H

#include "perf.h"

enum { SCALE_POINTS = 64, SCALE_SERIES = 64, SCALE_NUMBERS = 8 };

struct scale_point {
    uint64_t bytes;
    double time_us, limit_us;  /* limit_us 0 = not measured */
    double gb_s;               /* busbw of all communicators together */
};
struct scale_series {
    int ranks, comms;          /* ranks of each communicator; communicators at the same time */
    bool bound;
    double net_share;          /* of the bytes, over TCP */
    int count;
    struct scale_point points[SCALE_POINTS];
};
struct scale {
    const struct perf_options *o;
    int processors, nodes;     /* of this machine; NUMA nodes */
    int count;
    struct scale_series series[SCALE_SERIES];
};

/* What keeps a point from being faster: "processor", "memory", "link" or "waiting". Static. */
const char *scale_limited_by(const struct scale *s, const struct scale_series *series, int point);
/* The first point from which on throughput grows by less than a tenth. */
int scale_knee(const struct scale_series *series);
void scale_print(const struct scale *s, FILE *f);
void scale_json(const struct scale *s, FILE *f);
bool scale_plot(const struct scale *s, const char *path); /* false: errno says why */
/* "4 ranks x 2, bound" */
void scale_name(const struct scale *s, const struct scale_series *series, char *buf, size_t bytes);

/* Run it; returns an exit status. */
int perf_scale(const struct perf_options *o);

#endif
