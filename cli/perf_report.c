/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_report.c - nccl-tests' table, byte for byte. Parsers in the wild take everything between the last line with
 * "out-of-place" and "# Out of bounds values" for rows, and some stop at the first line that is none; so our own lines
 * (perf_remarks.c) come after the averages.
 */
#include "perf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

char *report_number(double value, int width, char *str)
{
    int digits = 0;
    for (double power = 1; value >= power && digits < 40; power *= 10)
        digits++;
    if (digits < width - 2)
        snprintf(str, 32, "%*.2f", width, value);
    else if (digits < width - 1)
        snprintf(str, 32, "%*.1f", width, value);
    else if (digits < width + 1)
        snprintf(str, 32, "%*.0f", width, value);
    else
        snprintf(str, 32, "%*.*e", width, width >= 7 ? 1 : 0, value);
    return str;
}

double report_min_bw(void)
{
    const char *text = getenv("NCCL_TESTS_MIN_BW");
    return text && *text ? strtod(text, NULL) : -1;
}

double report_average(const struct report *r)
{
    return r->bus_count ? r->bus_sum / (double)r->bus_count : 0;
}

/* ---- files ------------------------------------------------------------------------------------------------ */

/* nccl-tests never overwrites: NAME, then NAME.1, NAME.2, ... */
static FILE *open_new(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", name);
    for (int i = 1; i < 10000; i++) {
        FILE *f = fopen(path, "wx");
        if (f || errno != EEXIST)
            return f;
        snprintf(path, sizeof path, "%s.%d", name, i);
    }
    return NULL;
}

bool report_open(struct report *r, struct crew *c)
{
    r->o = c->o;
    r->group_ranks = c->ranks;
    r->table = stdout;
    r->started = perf_now();
    if (c->o->json_file && strcmp(c->o->json_file, "-") == 0) {
        r->json_is_stdout = true;
        r->json = stdout;
        r->table = NULL;
    } else if (c->o->json_file) {
        r->json = fopen(c->o->json_file, "w");
        if (!r->json)
            perf_fail_text(c, "cannot write %s: %s", c->o->json_file, strerror(errno));
    }
    if (c->o->output_file) {
        r->output = open_new(c->o->output_file);
        if (!r->output)
            perf_fail_text(c, "cannot write %s: %s", c->o->output_file, strerror(errno));
    }
    return (r->json || !c->o->json_file) && (r->output || !c->o->output_file);
}

void report_free(struct report *r)
{
    for (size_t i = 0; i < r->line_count; i++) {
        free(r->lines[i].halves[0].times_us);
        free(r->lines[i].halves[1].times_us);
        free(r->lines[i].explained);
    }
    free(r->lines);
    free(r->ranks);
    if (r->json && !r->json_is_stdout)
        fclose(r->json);
    if (r->output)
        fclose(r->output);
}

/* ---- progress ------------------------------------------------------------------------------------------------ */

static void clear_progress(struct report *r)
{
    if (r->progress_shown)
        fputs("\r\033[K", stderr);
    r->progress_shown = false;
}

void report_progress(struct report *r, const char *fmt, ...)
{
    double elapsed = perf_now() - r->started;
    if (elapsed < 2 || !isatty(STDERR_FILENO))
        return;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    clear_progress(r);
    fprintf(stderr, "%slines done: %zu, %.0f s so far; %s%s", out_colour(stderr, OUT_DIM), r->line_count, elapsed, text,
            out_colour(stderr, OUT_PLAIN));
    fflush(stderr);
    r->progress_shown = true;
}

/* ---- header -------------------------------------------------------------------------------------------------- */

static void local_time(char *buf, size_t bytes)
{
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(buf, bytes, "%Y-%m-%d %H:%M:%S", &tm);
}

static void print_run(const struct report *r, const struct crew *c, size_t max_bytes)
{
    const struct perf_options *o = r->o;
    FILE *f = r->table;
    fprintf(f, "# unisono %d.%d.%d, host memory, in the format of nccl-tests 2.19.6\n", UNO_VERSION_MAJOR, UNO_VERSION_MINOR,
            UNO_VERSION_PATCH);
    fprintf(f, "# Collective test starting: %s_perf\n", o->coll->name);
    fprintf(f, "# nThread %d nGpus %d minBytes %ld maxBytes %ld step: %ld(%s) warmup iters: %d iters: %d agg iters: %d "
               "validation: %d graph: 0 unalign: %d\n",
            o->threads ? o->threads : 1, o->per_thread ? o->per_thread : 1, (long)o->min_bytes, (long)o->max_bytes,
            o->step_factor > 1 ? (long)o->step_factor : (long)o->step_bytes, o->step_factor > 1 ? "factor" : "bytes",
            o->warmup, o->iters, o->agg_iters, o->check, o->unalign);
    if (o->blocking)
        fprintf(f, "# Blocking Enabled: wait for completion %safter each collective %s\n", o->blocking == 2 ? "" : "and barrier ",
                o->blocking == 1 ? "" : o->blocking == 2 ? "(no barrier) " : "(barrier not timed) ");
    if (o->parallel_init)
        fprintf(f, "# Parallel Init Enabled: threads join concurrently\n");
    fprintf(f, "# ranks: %s; %s; %s memory; %s buffers\n", c->how,
            o->use_stream ? "calls queued on streams" : "calls return when done", o->shared_memory ? "shared" : "ordinary",
            o->buffers == BUFFERS_COLD ? "cold" : o->buffers == BUFFERS_WARM ? "the same" : "shifted");
    if (c->groups > 1)
        fprintf(f, "# split: %d groups run at the same time; the table is that of group %d, %d ranks; times and wrong elements are of all\n",
                c->groups, c->color, c->ranks);
    else if (o->split_op)
        fprintf(f, "# split: one group, since %s\n", c->world == (o->threads ? o->threads : 1) * (o->per_thread ? o->per_thread : 1)
                ? "processes are split, and these ranks are threads of one" : "all processes have one colour");
    if (o->coll->exchanges)
        fprintf(f, "# %s has no in-place form: the second half of a line repeats the first with the two buffers exchanged\n",
                o->coll->name);
    fputs(o->notes, f);
    if (max_bytes < o->max_bytes)
        fprintf(f, "#  Reducing maxBytes to %zu due to memory limitation\n", max_bytes);
    fprintf(f, "#\n");
}

void report_header(struct report *r, const struct crew *c, size_t max_bytes)
{
    if (!r->table)
        return;
    const struct perf_options *o = r->o;
    const char *time_word = o->cpu_time ? "cputime" : "time";
    FILE *f = r->table;
    print_run(r, c, max_bytes);
    fprintf(f, "# Using devices\n");
    for (int i = 0; i < r->rank_count; i++)
        fprintf(f, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [0000:00:00] processors %s\n", i, r->ranks[i].group,
                r->ranks[i].pid,
                r->ranks[i].host, r->ranks[i].local, r->ranks[i].processors);
    int pad = o->stamps ? 19 : 0;
    const char *stamp = o->stamps ? "timestamp" : "", *stamp_format = o->stamps ? "%Y-%m-%d %H:%M:%S" : "";
    const char *row = "# %10s  %12s  %8s  %6s  %6s", *half = "  %7s  %6s  %6s  %6s", *more = "  %7s  %7s  %7s  %7s";
    fprintf(f, "#\n");
    fprintf(f, row, "", "", "", "", "");
    fprintf(f, o->per_iter ? "              out-of-place (+ per-iteration)                                in-place (+ per-iteration)\n"
                           : "           out-of-place                       in-place          \n");
    fprintf(f, row, "size", "count", "type", "redop", "root");
    for (int h = 0; h < 2; h++) {
        fprintf(f, half, time_word, "algbw", "busbw", "#wrong");
        if (o->per_iter)
            fprintf(f, more, "i_min", "i_max", "i_p99", "i_cv%");
    }
    fprintf(f, " %*s\n", pad, stamp);
    fprintf(f, row, "(B)", "(elements)", "", "", "");
    for (int h = 0; h < 2; h++) {
        fprintf(f, half, "(us)", "(GB/s)", "(GB/s)", "");
        if (o->per_iter)
            fprintf(f, more, "(us)", "(us)", "(us)", "(%)");
    }
    fprintf(f, " %*s\n", pad, stamp_format);
    fflush(f);
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

static void print_half(FILE *f, const struct perf_options *o, const struct half *h)
{
    char a[32], b[32], c[32], d[32];
    fprintf(f, "  %7s  %6s  %6s", report_number(o->cpu_time ? h->cpu_us : h->time_us, 7, a), report_number(h->alg_bw, 6, b),
            report_number(h->bus_bw, 6, c));
    if (h->wrong < 0)
        fprintf(f, "     N/A");
    else
        fprintf(f, "  %6g", (double)h->wrong);
    if (o->per_iter)
        fprintf(f, "  %7s  %7s  %7s  %7s", report_number(h->stats.min_us, 7, a), report_number(h->stats.max_us, 7, b),
                report_number(h->stats.p99_us, 7, c), report_number(h->stats.cv_pct, 7, d));
}

void report_line(struct report *r, const struct line *line)
{
    clear_progress(r);
    r->bad_lines += (line->halves[0].wrong > 0) + (line->halves[1].wrong > 0);
    r->bus_sum += line->halves[0].bus_bw + line->halves[1].bus_bw;
    r->bus_count += 2;
    if (r->table) {
        char stamp[64];
        fprintf(r->table, "%12li  %12li  %8s  %6s  %6i", (long)line->bytes, (long)line->count, perf_type_word(line->type),
                perf_op_word(line->op), line->root);
        print_half(r->table, r->o, &line->halves[0]);
        print_half(r->table, r->o, &line->halves[1]);
        if (r->o->stamps) {
            local_time(stamp, sizeof stamp);
            fprintf(r->table, "%21s", stamp);
        }
        fputc('\n', r->table);
        fflush(r->table);
    }
    if (r->line_count == r->line_cap) {
        size_t cap = r->line_cap ? 2 * r->line_cap : 64;
        struct line *more = realloc(r->lines, cap * sizeof *more);
        if (!more) { /* the row was shown; it is missing from what comes after the table */
            free(line->halves[0].times_us);
            free(line->halves[1].times_us);
            free(line->explained);
            return;
        }
        r->lines = more;
        r->line_cap = cap;
    }
    r->lines[r->line_count++] = *line;
}

/* ---- end ----------------------------------------------------------------------------------------------------------- */

static void print_footer(struct report *r, double min_bw, bool bw_good)
{
    FILE *f = r->table;
    fprintf(f, "# %-20s : %d %s\n", "Out of bounds values", r->bad_lines, r->bad_lines ? "FAILED" : "OK");
    fprintf(f, "# %-20s : %g %s\n", "Avg bus bandwidth", report_average(r), min_bw < 0 ? "" : bw_good ? "OK" : "FAILED");
    fprintf(f, "#\n");
    report_remarks(r);
    fprintf(f, "# Collective test concluded: %s_perf\n", r->o->coll->name);
}

int report_close(struct report *r)
{
    double min_bw = report_min_bw();
    bool bw_good = min_bw < 0 || report_average(r) >= 0.9 * min_bw, good = bw_good && r->bad_lines == 0;
    clear_progress(r);
    if (r->table)
        print_footer(r, min_bw, bw_good);
    FILE *files[2] = {r->json, r->output};
    for (int i = 0; i < 2; i++)
        if (files[i]) {
            report_json_write(r, files[i]);
            if (fflush(files[i]) != 0 || ferror(files[i]))
                return out_error("perf", "writing the results failed: %s", strerror(errno));
        }
    if (fflush(stdout) != 0)
        return out_error("perf", "writing to standard output failed: %s", strerror(errno));
    return good ? CLI_GOOD : CLI_BAD;
}
