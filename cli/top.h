/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.h - `unisono top` in three parts: top_meter.c turns readings into rates, top_table.c shows them, cmd_top.c does both again and again.
 */
#ifndef UNO_CLI_TOP_H
#define UNO_CLI_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "unisono_watch.h"

struct top_row {               /* a rank in a communicator, over one interval */
    int rank, pid;
    uint64_t comm;             /* 0: the rank has none */
    char comm_name[32];
    char state;                /* of its process, as ps shows it; 0 = it has ended */
    double cpu;                /* of one processor; 1 = a whole one */
    double ops, bytes;         /* a second */
    double wait;               /* share of the time in which its call waited for others */
    double late;               /* share of the time in which others were in a call that it had not made yet */
    bool slow;
    char doing[200];
};
struct top_meter;
struct top_meter *meter_new(void);                                   /* NULL = no memory */
void meter_free(struct top_meter *m);
bool meter_begin(struct top_meter *m, const uno_job *job);           /* an interval begins; false = no memory */
bool meter_sample(struct top_meter *m, const uno_job *job);          /* again and again in between */
/* The interval has ended; the rows are valid until the next meter_begin. -1 = no memory. */
int meter_rows(struct top_meter *m, const uno_job *job, struct top_row **rows, double *seconds);

enum top_sort { TOP_RANK, TOP_OPS, TOP_BYTES, TOP_WAIT, TOP_LATE, TOP_SORTS };
const char *top_sort_name(enum top_sort sort);
void top_sort(struct top_row *rows, int n, enum top_sort sort);
/* lines 0: all of them, as they are; else so many lines of so many columns, for a terminal. */
void top_print(FILE *f, const uno_job *job, const struct top_row *rows, int n, double seconds, int lines, int columns);

#endif
