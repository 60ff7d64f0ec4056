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

/* Where lines go: f NULL only counts. */
struct page { FILE *f; int columns, written; }; /* columns 0 = no terminal */

/* One line, cut to the terminal, in place of what stood there. What follows begins it, so that the last line of a screen can be used. */
static void line(struct page *p, enum out_colour colour, const char *text)
{
    int width = p->columns ? p->columns : (int)strlen(text);
    if (p->f)
        fprintf(p->f, "%s%s%s%.*s%s", p->written ? "\n" : "", p->columns ? "\033[K" : "", out_colour(p->f, colour), width, text, out_colour(p->f, OUT_PLAIN));
    p->written++;
}

/* ---- columns ----------------------------------------------------------------------------------------------------------------- */

enum field { RANK, HOST, PID, STATE, CPU, COMM, OPS, MSGS, BYTES, LIMIT, WAIT, LATE, FIELDS };
static const struct { const char *title; int width; } fields[FIELDS] = { /* width < 0: on the left */
    {"RANK", 4}, {"HOST", -8}, {"PID", 7}, {"STATE", -6}, {"CPU", 4}, {"COMM", -8}, {"OPS/S", 7}, {"MSGS/S", 7}, {"BYTES/S", 11}, {"LIMIT", 5}, {"WAIT", 4}, {"LATE", 4}};
struct columns { bool shown[FIELDS]; };

/* What a terminal is too narrow for is left out, least wanted first: what is moved, and how much of what is possible that is, stays. */
static struct columns choose_columns(bool hosts, int columns)
{
    static const enum field least[] = {PID, MSGS, CPU, STATE, COMM, HOST, LATE, LIMIT, WAIT};
    struct columns c;
    int width = 1;
    for (int i = 0; i < FIELDS; i++) {
        c.shown[i] = i != HOST || hosts; /* where there is only one, its name would be no news */
        width += c.shown[i] ? 1 + abs(fields[i].width) : 0;
    }
    for (size_t i = 0; i < sizeof least / sizeof *least && columns && width > columns; i++) {
        width -= c.shown[least[i]] ? 1 + abs(fields[least[i]].width) : 0;
        c.shown[least[i]] = false;
    }
    return c;
}

static void print_titles(struct page *p, const struct columns *c)
{
    char text[200] = "*";
    size_t len = 1;
    for (int i = 0; i < FIELDS; i++)
        if (c->shown[i])
            len += (size_t)snprintf(text + len, sizeof text - len, " %*s", fields[i].width, fields[i].title);
    snprintf(text + len, sizeof text - len, " DOING             (* slow)");
    line(p, OUT_DIM, text);
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

static void words_of(const struct top_row *row, char words[FIELDS][40])
{
    enum { ROOM = 40 };
    snprintf(words[RANK], ROOM, "%d", row->rank);
    snprintf(words[HOST], ROOM, "%.8s", row->host);
    snprintf(words[PID], ROOM, "%d", row->pid);
    snprintf(words[STATE], ROOM, "%s", row->state);
    percent(words[CPU], ROOM, row->cpu >= 0, row->cpu);
    snprintf(words[COMM], ROOM, "%.8s", row->comm ? row->comm_name : "-");
    snprintf(words[OPS], ROOM, row->measured ? "%.0f" : "-", row->ops);
    snprintf(words[MSGS], ROOM, row->measured ? "%.0f" : "-", row->msgs);
    snprintf(words[BYTES], ROOM, "-");
    if (row->measured) {
        out_bytes(words[BYTES], ROOM - 2, (uint64_t)row->bytes);
        memcpy(words[BYTES] + strlen(words[BYTES]), "/s", 3);
    }
    percent(words[LIMIT], ROOM, row->measured && row->limit >= 0, row->limit);
    percent(words[WAIT], ROOM, row->measured, row->wait);
    percent(words[LATE], ROOM, row->measured, row->late);
}

/* What it does, on a line of its own where the terminal is too narrow. */
static void print_row(struct page *p, const struct top_row *row, const struct columns *c)
{
    char text[512], more[512] = "", words[FIELDS][40];
    size_t len = 1;
    words_of(row, words);
    snprintf(text, sizeof text, "%c", row->slow ? '*' : ' ');
    for (int i = 0; i < FIELDS && (row->comm || i <= COMM); i++)
        if (c->shown[i])
            len += (size_t)snprintf(text + len, sizeof text - len, " %*s", row->comm ? fields[i].width : i == COMM ? 0 : fields[i].width, words[i]);
    if (row->comm && (!c->shown[COMM] || (p->columns && len + 1 + strlen(row->doing) > (size_t)p->columns)))
        snprintf(more, sizeof more, "       %s%s%s", c->shown[COMM] ? "" : words[COMM], c->shown[COMM] ? "" : " ", row->doing);
    else if (row->comm)
        snprintf(text + len, sizeof text - len, " %s", row->doing);
    line(p, row->slow ? OUT_YELLOW : OUT_PLAIN, text);
    if (more[0])
        line(p, row->slow ? OUT_YELLOW : OUT_PLAIN, more);
}

/* So many rows fit into that many lines. */
static int rows_that_fit(const struct top_row *rows, int n, const struct columns *c, int lines, int columns)
{
    struct page p = {NULL, columns, 0};
    int shown = 0;
    for (; shown < n; shown++) {
        print_row(&p, &rows[shown], c);
        if (p.written > lines)
            break;
    }
    return shown;
}

/* Of how many ranks is this? */
static void print_head(struct page *p, const struct job_found *found, double seconds)
{
    char text[512], where[32] = "on this host";
    const uno_job *job = found->job;
    int heard = 0, hosts = job_hosts(job);
    for (int r = 0; r < job->size; r++)
        heard += !job_unheard(&job->ranks[r]) && !job_silent(&job->ranks[r]);
    if (found->others_bytes && hosts)
        snprintf(where, sizeof where, "on %d host%s", hosts, hosts == 1 ? "" : "s");
    snprintf(text, sizeof text, "job %016llx: %s, %d of %d rank%s %s, %.1f s%s", (unsigned long long)job->id, job->program[0] ? job->program : "?",
             heard, job->size, job->size == 1 ? "" : "s", where, seconds, p->columns ? "; q: quit; r o m b i w l: sort" : "");
    line(p, OUT_BOLD, text);
}

/* What keeps the table from being whole. */
static void print_missing(struct page *p, const struct job_found *found)
{
    char text[768], ranks[128];
    if (found->unasked[0])
        snprintf(text, sizeof text, "other hosts were not asked: %s", found->unasked);
    else if (job_list(found->job, job_silent, ranks, sizeof ranks)[0])
        snprintf(text, sizeof text, "did not answer: ranks %s (their hosts were asked)", ranks);
    else
        return;
    line(p, OUT_YELLOW, text);
}

int top_print(FILE *f, const struct job_found *found, const struct top_row *rows, int n, double seconds, int lines, int columns)
{
    char text[160];
    struct page p = {f, columns, 0};
    struct columns c = choose_columns(found->others_bytes != 0, columns);
    print_head(&p, found, seconds);
    if (!columns || lines > 3) /* a row is worth more */
        print_missing(&p, found);
    if (!columns || lines > p.written + 1)
        print_titles(&p, &c);
    int shown = columns ? rows_that_fit(rows, n, &c, lines - p.written, columns) : n;
    if (shown < n)
        shown = rows_that_fit(rows, n, &c, lines - p.written - 1, columns);
    for (int i = 0; i < shown; i++)
        print_row(&p, &rows[i], &c);
    if (shown < n && p.written < lines) {
        snprintf(text, sizeof text, "  ... %d more", n - shown);
        line(&p, OUT_DIM, text);
    }
    if (!columns)
        fputc('\n', f);
    return p.written;
}
