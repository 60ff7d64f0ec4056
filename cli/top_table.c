/* SPDX-License-Identifier: Apache-2.0 */
/* top_table.c - the table of `unisono top`: sorted, and cut to a terminal where there is one. */
#include "top.h"

#include <stdlib.h>
#include <string.h>

#include "output.h"

static enum top_sort order; /* of the comparison below; this program has one thread */

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[TOP_SORTS] = {"rank", "ops", "msgs", "bytes", "limit", "wait", "late"};
    return names[sort];
}

static double value(const struct top_row *row)
{
    switch (order) {
    case TOP_OPS: return row->ops;
    case TOP_MSGS: return row->msgs;
    case TOP_BYTES: return row->bytes;
    case TOP_LIMIT: return row->limit;
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

/* "12%", or "-" where it is not known. */
static const char *percent(char *buf, size_t buf_bytes, bool known, double share)
{
    if (known)
        snprintf(buf, buf_bytes, "%.0f%%", share * 100);
    else
        snprintf(buf, buf_bytes, "-");
    return buf;
}

/* What it does, on a line of its own where the terminal is too narrow. Returns how many lines a row takes; f NULL: only that. */
static int print_row(FILE *f, const struct top_row *row, bool hosts, int columns)
{
    char text[512], more[512] = "", host[12] = "", rate[40] = "-", ops[24] = "-", msgs[24] = "-", cpu[16], limit[16], wait[16], late[16];
    if (hosts)
        snprintf(host, sizeof host, "%-8.8s ", row->host);
    percent(cpu, sizeof cpu, row->cpu >= 0, row->cpu);
    if (row->measured) {
        out_bytes(rate, sizeof rate - 2, (uint64_t)row->bytes);
        memcpy(rate + strlen(rate), "/s", 3);
        snprintf(ops, sizeof ops, "%.0f", row->ops);
        snprintf(msgs, sizeof msgs, "%.0f", row->msgs);
    }
    if (!row->comm)
        snprintf(text, sizeof text, "  %4d %s%7d %-6s %4s -", row->rank, host, row->pid, row->state, cpu);
    else
        snprintf(text, sizeof text, "%c %4d %s%7d %-6s %4s %-8.8s %7s %7s %11s %5s %4s %4s ", row->slow ? '*' : ' ', row->rank, host,
                 row->pid, row->state, cpu, row->comm_name, ops, msgs, rate, percent(limit, sizeof limit, row->measured && row->limit >= 0, row->limit),
                 percent(wait, sizeof wait, row->measured, row->wait), percent(late, sizeof late, row->measured, row->late));
    size_t len = strlen(text);
    bool narrow = row->comm && columns && len + strlen(row->doing) > (size_t)columns;
    if (narrow)
        snprintf(more, sizeof more, "       %s", row->doing);
    else if (row->comm)
        snprintf(text + len, sizeof text - len, "%s", row->doing);
    if (f)
        line(f, columns, row->slow ? OUT_YELLOW : OUT_PLAIN, text);
    if (f && narrow)
        line(f, columns, row->slow ? OUT_YELLOW : OUT_PLAIN, more);
    return 1 + narrow;
}

/* So many rows fit into that many lines. */
static int rows_that_fit(const struct top_row *rows, int n, bool hosts, int lines, int columns)
{
    int shown = 0;
    for (int used = 0; shown < n && (used += print_row(NULL, &rows[shown], hosts, columns)) <= lines; shown++)
        ;
    return shown;
}

/* Of how many ranks is this? */
static void print_head(FILE *f, const struct job_found *found, double seconds, int columns)
{
    char text[512], where[32] = "on this host";
    const uno_job *job = found->job;
    int heard = 0, hosts = job_hosts(job);
    for (int r = 0; r < job->size; r++)
        heard += !job_unheard(&job->ranks[r]) && !job_silent(&job->ranks[r]);
    if (found->others_bytes && hosts)
        snprintf(where, sizeof where, "on %d host%s", hosts, hosts == 1 ? "" : "s");
    snprintf(text, sizeof text, "job %016llx: %s, %d of %d rank%s %s, %.1f s%s", (unsigned long long)job->id, job->program[0] ? job->program : "?",
             heard, job->size, job->size == 1 ? "" : "s", where, seconds, columns ? "; q: quit; r o m b i w l: sort" : "");
    line(f, columns, OUT_BOLD, text);
}

/* What keeps the table from being whole; 1 = a line was written. */
static int print_missing(FILE *f, const struct job_found *found, int columns)
{
    char text[768], ranks[128];
    if (found->unasked[0])
        snprintf(text, sizeof text, "other hosts were not asked: %s", found->unasked);
    else if (job_list(found->job, job_silent, ranks, sizeof ranks)[0])
        snprintf(text, sizeof text, "did not answer: ranks %s (their hosts were asked)", ranks);
    else
        return 0;
    line(f, columns, OUT_YELLOW, text);
    return 1;
}

void top_print(FILE *f, const struct job_found *found, const struct top_row *rows, int n, double seconds, int lines, int columns)
{
    char text[160];
    bool hosts = found->others_bytes != 0; /* where there is only one, its name would be no news */
    print_head(f, found, seconds, columns);
    lines -= print_missing(f, found, columns);
    int shown = columns ? rows_that_fit(rows, n, hosts, lines - 2, columns) : n;
    if (shown < n)
        shown = rows_that_fit(rows, n, hosts, lines - 3, columns);
    snprintf(text, sizeof text, "* RANK %s    PID STATE   CPU COMM       OPS/S  MSGS/S     BYTES/S LIMIT WAIT LATE DOING             (* slow)",
             hosts ? "HOST     " : "");
    line(f, columns, OUT_DIM, text);
    for (int i = 0; i < shown; i++)
        print_row(f, &rows[i], hosts, columns);
    if (shown < n) {
        snprintf(text, sizeof text, "  ... %d more", n - shown);
        line(f, columns, OUT_DIM, text);
    }
}
