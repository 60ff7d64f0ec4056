/* SPDX-License-Identifier: Apache-2.0 */
/* perf_sweep.h - what one crew's walk (perf_sweep.c), its buffers (perf_buffers.c) and one measurement (perf_measure.c) share. */
#ifndef UNO_CLI_PERF_SWEEP_H
#define UNO_CLI_PERF_SWEEP_H

#include "perf.h"

enum { PAGE = 4096 };

struct buffers { char *send, *recv; };

struct sweep {
    struct crew *c;
    const struct perf_options *o;
    struct report *report;    /* NULL without rank 0 */
    struct limit *limit;
    struct choices *choices;  /* NULL when not asked */
    size_t max_bytes;         /* -e, or what memory allows */
    size_t buffer_bytes;      /* of each buffer */
    struct buffers *buffers;  /* one pair a rank of this crew */
    uno_op *ops;              /* the operation of each rank: mulsum has one a communicator */
    size_t stride, shift;     /* where the next iteration's data are */
    double *times;            /* per iteration, us; NULL when not asked */
    uint64_t seed;
};

#define TRY(expr)                  \
    do {                           \
        uno_err try_err_ = (expr); \
        if (try_err_ != UNO_OK)    \
            return try_err_;       \
    } while (0)

/* perf_buffers.c */
uno_err sweep_max_bytes(struct sweep *s); /* max_bytes: what memory allows of -e; all crews agree */
int sweep_buffers(struct sweep *s);       /* an exit status; on failure a sentence was printed */
void sweep_buffers_free(struct sweep *s);
long sweep_status_kb(const char *path, const char *field); /* a field of a file in /proc */

/* perf_measure.c. half 0: out of place, 1: in place, or with the buffers exchanged. Collective. */
uno_err sweep_time(struct sweep *s, const struct job *j, int half, struct half *h);
uno_err sweep_check(struct sweep *s, const struct job *j, int half, struct half *h);

/* perf_choices.c. Collective. open: an exit status; on failure a sentence was printed. */
int perf_choices_open(struct sweep *s, struct choices **choices);
uno_err perf_choices_measure(struct sweep *s, const struct job *j, const struct choices *choices, struct choice_times *times);
void perf_choices_close(struct choices *choices);

#endif
