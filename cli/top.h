/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.h - `unisono top` in parts: top_meter.c turns readings into rates, top_table.c shows them, top_limit.c measures what
 * memory allows, cmd_top.c does it again and again.
 */
#ifndef UNO_CLI_TOP_H
#define UNO_CLI_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "job.h"

struct top_row {               /* a rank in a communicator, over one interval */
    int rank, pid;
    uint64_t comm;             /* 0: the rank has none */
    char comm_name[32];
    char host[24];
    char state[8];             /* of its process, as ps shows it; "ended", "silent"; "-" = not known */
    double cpu;                /* of one processor; 1 = a whole one; -1 = not known */
    bool measured;             /* what follows is known, of this interval or the last one that was */
    double ops, msgs, bytes;   /* a second */
    double limit;              /* share of it that the bytes are; -1 = not known */
    double wait;               /* share of the time in which its call waited for others */
    double late;               /* share of the time in which others were in a call that it had not made yet */
    bool slow;
    char doing[200];
};
struct top_meter;
struct top_meter *meter_new(void);                                          /* NULL = no memory */
void meter_free(struct top_meter *m);
bool meter_begin(struct top_meter *m, const struct job_found *found);       /* an interval begins; false = no memory */
bool meter_sample(struct top_meter *m, const struct job_found *found);      /* again and again in between */
/* What bandwidth is compared with: bytes a second, 0 = nothing. everywhere: the user gave it, so it holds for every communicator; else
 * it was measured, and holds for those within this host. */
struct top_limit { double bps; bool everywhere; };
/* The interval has ended; the rows are valid until the next call of this. -1 = no memory. */
int meter_rows(struct top_meter *m, const struct job_found *found, const struct top_limit *limit, struct top_row **rows, double *seconds);

/* top_limit.c: bytes a second that one processor of this host copies from memory to memory, measured now in some 30 ms; 0 = no memory. */
double limit_measure(void);

enum top_sort { TOP_RANK, TOP_OPS, TOP_MSGS, TOP_BYTES, TOP_LIMIT, TOP_WAIT, TOP_LATE, TOP_SORTS };
const char *top_sort_name(enum top_sort sort);
void top_sort(struct top_row *rows, int n, enum top_sort sort);
/* columns 0: everything as it is, for a file; else what a terminal of so many lines (1 or more) and columns has room for, without a newline behind the
 * last one. Returns how many lines were written. */
int top_print(FILE *f, const struct job_found *found, const struct top_row *rows, int n, double seconds, int lines, int columns);

#endif
