/* SPDX-License-Identifier: Apache-2.0 */
/* top_table.c - the table of `unisono top`: sorted, and cut to a terminal where there is one. */
#include "top.h"

#include <stdlib.h>
#include <string.h>

#include "output.h"

static enum top_sort order; /* of the comparison below; this program has one thread */

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[TOP_SORTS] = {"rank", "ops", "bytes", "wait", "late"};
    return names[sort];
}

static double value(const struct top_row *row)
{
    switch (order) {
    case TOP_OPS: return row->ops;
    case TOP_BYTES: return row->bytes;
    case TOP_WAIT: return row->wait;
    case TOP_LATE: return row->late;
    default: return 0;
    }
}

static int compare(const void *a, const void *b)
{
    const struct top_row *x = a, *y = b;
    double u = value(x), v = value(y);
    if (u > v || u < v)
        return u > v ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->comm > y->comm) - (x->comm < y->comm);
}

void top_sort(struct top_row *rows, int n, enum top_sort sort)
{
    order = sort;
    if (n > 1)
        qsort(rows, (size_t)n, sizeof *rows, compare);
}

/* One line, cut to the terminal, with the rest of it cleared. */
static void line(FILE *f, int columns, enum out_colour colour, const char *text)
{
    int width = columns ? columns : (int)strlen(text);
    fprintf(f, "%s%.*s%s%s\n", out_colour(f, colour), width, text, out_colour(f, OUT_PLAIN), columns ? "\033[K" : "");
}

static void print_row(FILE *f, const struct top_row *row, int columns)
{
    char text[512], bytes[32];
    out_bytes(bytes, sizeof bytes, (uint64_t)row->bytes);
    if (!row->comm)
        snprintf(text, sizeof text, "  %4d %7d %-5c %3.0f%% -", row->rank, row->pid, row->state ? row->state : '-', row->cpu * 100);
    else
        snprintf(text, sizeof text, "%c %4d %7d %-5s %3.0f%% %-8.8s %8.0f %9s/s %3.0f%% %3.0f%% %s", row->slow ? '*' : ' ', row->rank,
                 row->pid, row->state ? (char[]){row->state, 0} : "ended", row->cpu * 100, row->comm_name, row->ops, bytes, row->wait * 100,
                 row->late * 100, row->doing);
    line(f, columns, row->slow ? OUT_YELLOW : OUT_PLAIN, text);
}

void top_print(FILE *f, const uno_job *job, const struct top_row *rows, int n, double seconds, int lines, int columns)
{
    char text[512];
    int shown = lines && n > lines - 3 ? (lines > 3 ? lines - 3 : 0) : n;
    snprintf(text, sizeof text, "job %016llx: %s, %d of %d rank%s on this host, %.1f s%s", (unsigned long long)job->id,
             job->program[0] ? job->program : "?", job->reported, job->size, job->size == 1 ? "" : "s", seconds,
             columns ? "; q: quit; r o b w l: sort" : "");
    line(f, columns, OUT_BOLD, text);
    line(f, columns, OUT_DIM, "* RANK     PID STATE  CPU COMM        OPS/S     BYTES/S WAIT LATE DOING             (* slow)");
    for (int i = 0; i < shown; i++)
        print_row(f, &rows[i], columns);
    if (shown < n) {
        snprintf(text, sizeof text, "  ... %d more", n - shown);
        line(f, columns, OUT_DIM, text);
    }
}
