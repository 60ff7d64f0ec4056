/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_remarks.c - the lines of our own after nccl-tests' table: limits and shares, percentiles, which plans ran and why, memory.
 * Called by perf_report.c. Each line starts with '#' and none contains "out-of-place", which parsers take for the table's head.
 */
#include <string.h>

#include "output.h"
#include "perf.h"

/* ---- limits and percentiles --------------------------------------------------------------------------------------------------- */

static void print_limits(struct report *r)
{
    FILE *f = r->table;
    if (*r->limit_note) {
        fprintf(f, "# %s\n#\n", r->limit_note);
        return;
    }
    fprintf(f, "# limit: the same result by plain copies and sums in memory that all ranks have mapped, by the same number of\n"
               "#        workers, measured in this run; the best kernel counts. share: limit / time, 100%% = as fast as that.\n");
    fprintf(f, "# %10s  %8s  %6s  %17s  %15s  %15s\n", "", "", "", "limit      ", r->o->coll->exchanges ? "first half" : "out of place",
            r->o->coll->exchanges ? "second half" : "in place");
    fprintf(f, "# %10s  %8s  %6s  %9s  %6s  %8s  %5s  %8s  %5s   %s\n", "size", "type", "redop", "(us)", "busbw", "busbw", "share",
            "busbw", "share", "kernel of the limit");
    for (size_t i = 0; i < r->line_count; i++) {
        const struct line *l = &r->lines[i];
        char t[32], b[32];
        if (l->limit_us <= 0) {
            fprintf(f, "# %10zu  %8s  %6s  not measured: %s\n", l->bytes, perf_type_word(l->type), perf_op_word(l->op),
                    l->limit_how ? l->limit_how : "does not fit");
            continue;
        }
        fprintf(f, "# %10zu  %8s  %6s  %9s  %6s", l->bytes, perf_type_word(l->type), perf_op_word(l->op),
                report_number(l->limit_us, 9, t), report_number(l->halves[0].bus_bw * l->halves[0].time_us / l->limit_us, 6, b));
        for (int h = 0; h < 2; h++)
            fprintf(f, "  %8s  %4.0f%%", report_number(l->halves[h].bus_bw, 8, b), 100 * l->limit_us / l->halves[h].time_us);
        fprintf(f, "   %s\n", l->limit_how);
    }
    fprintf(f, "#\n");
}

static void print_percentiles(struct report *r)
{
    FILE *f = r->table;
    fprintf(f, "# iterations, slowest rank (us): p50, p99 and longest of each half of the line\n");
    fprintf(f, "# %10s  %8s  %6s  %8s  %8s  %8s  %8s  %8s  %8s\n", "size", "type", "redop", "p50", "p99", "max", "p50", "p99", "max");
    for (size_t i = 0; i < r->line_count; i++) {
        const struct line *l = &r->lines[i];
        fprintf(f, "# %10zu  %8s  %6s", l->bytes, perf_type_word(l->type), perf_op_word(l->op));
        for (int h = 0; h < 2; h++) {
            const struct iter_stats *s = &l->halves[h].stats;
            char a[32], b[32], c[32];
            fprintf(f, "  %8s  %8s  %8s", report_number(s->p50_us, 8, a), report_number(s->p99_us, 8, b),
                    report_number(s->max_us, 8, c));
        }
        fputc('\n', f);
    }
    fprintf(f, "#\n");
}

/* ---- why ----------------------------------------------------------------------------------------------------------- */

/* Of "all_reduce 8 B float32 on 4 ranks, 1 host: flat, tile 8 B, predicted ..." the algorithm's words, "flat". */
size_t perf_explained_algorithm(const char *explained, const char **words)
{
    static const char *const ends[] = {", tile", " (", ", predicted", ";"};
    const char *host = strstr(explained, " host"), *from = host ? strstr(host, ": ") : NULL;
    *words = from ? from + 2 : explained;
    size_t length = strlen(*words);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const char *end = strstr(*words, ends[i]);
        if (end && (size_t)(end - *words) < length)
            length = (size_t)(end - *words);
    }
    return length;
}

static bool same_algorithm(const struct line *a, const struct line *b)
{
    const char *x, *y;
    size_t n = perf_explained_algorithm(a->explained, &x), m = perf_explained_algorithm(b->explained, &y);
    return n == m && strncmp(x, y, n) == 0;
}

/* Lines of one walk through the sizes: the same type, operation and root, sizes that grow. */
static size_t walk_end(const struct report *r, size_t from)
{
    size_t i = from + 1;
    while (i < r->line_count && r->lines[i].explained && r->lines[i].bytes > r->lines[i - 1].bytes &&
           r->lines[i].type == r->lines[from].type && r->lines[i].op == r->lines[from].op && r->lines[i].root == r->lines[from].root)
        i++;
    return i;
}

/* One line: each algorithm with the sizes that it ran at, then the prediction for the largest, which is the reason. */
static void print_walk(struct report *r, size_t from, size_t end)
{
    FILE *f = r->table;
    char size[32];
    const struct line *last = &r->lines[end - 1];
    const char *words;
    fprintf(f, "# plans: ");
    for (size_t i = from, next; i < end; i = next) {
        for (next = i + 1; next < end && same_algorithm(&r->lines[i], &r->lines[next]); next++)
            ;
        size_t length = perf_explained_algorithm(r->lines[i].explained, &words);
        fprintf(f, "%s%.*s", i > from ? "; " : "", (int)length, words);
        if (next < end)
            fprintf(f, " up to %s", out_bytes(size, sizeof size, r->lines[next - 1].bytes));
        else if (i > from)
            fprintf(f, " from %s", out_bytes(size, sizeof size, r->lines[i].bytes));
    }
    const char *why = strstr(last->explained, ", predicted ");
    if (why) {
        size_t length = perf_explained_algorithm(last->explained, &words);
        fprintf(f, " - each time the least predicted time, at %s %.*s %s", out_bytes(size, sizeof size, last->bytes), (int)length,
                words, why + strlen(", predicted "));
    }
    fputc('\n', f);
}

static void print_each_explanation(struct report *r)
{
    char size[32];
    const char *before = NULL;
    for (size_t i = 0; i < r->line_count; i++) {
        const struct line *l = &r->lines[i];
        if (!l->explained || (before && strcmp(before, l->explained) == 0))
            continue;
        before = l->explained;
        fprintf(r->table, "# from %s: %s\n", out_bytes(size, sizeof size, l->bytes), l->explained);
    }
}

static void print_carried(struct report *r)
{
    FILE *f = r->table;
    char size[32];
    fprintf(f, "# rank 0 in this run: ");
    for (int k = 0; k < UNO_CARRIER_COUNT; k++)
        if (r->counts.messages[k])
            fprintf(f, "%s carried %s in %llu messages; ", uno_carrier_name((uno_carrier)k),
                    out_bytes(size, sizeof size, r->counts.bytes[k]), (unsigned long long)r->counts.messages[k]);
    fprintf(f, "%s read in place; ", out_bytes(size, sizeof size, r->counts.lent_bytes));
    fprintf(f, "%llu small and %llu tiled operations; ", (unsigned long long)r->counts.small_operations,
            (unsigned long long)r->counts.tiled_operations);
    fprintf(f, "waits ended in %llu polls, %llu yields, %llu sleeps\n#\n", (unsigned long long)r->counts.waits_spin,
            (unsigned long long)r->counts.waits_yield, (unsigned long long)r->counts.waits_sleep);
}

static void print_explanations(struct report *r)
{
    if (r->o->explain != EXPLAIN_LINE)
        perf_predictions_print(r);
    if (r->o->explain == EXPLAIN_ALL) {
        print_each_explanation(r);
        print_carried(r);
        return;
    }
    for (size_t i = 0, end; i < r->line_count; i = end) {
        end = walk_end(r, i);
        if (r->lines[i].explained)
            print_walk(r, i, end);
    }
    fprintf(r->table, "#\n");
}

static void print_memory(struct report *r)
{
    for (int i = 0; i < r->rank_count; i++)
        fprintf(r->table, "# Memory of rank %d: %ld KB resident at the end, %ld KB when it had joined, %ld KB are the benchmark's "
                          "buffers\n", i, r->ranks[i].rss_end_kb, r->ranks[i].rss_start_kb, r->ranks[i].own_kb);
    fprintf(r->table, "#\n");
}

void report_remarks(struct report *r)
{
    for (size_t i = 0; i < r->line_count && r->o->coll->explains == UNO_ALL_TO_ALL_V; i++)
        perf_pairs_summary(r->table, &r->lines[i], r->group_ranks);
    if (r->o->percentiles)
        print_percentiles(r);
    if (r->o->limit)
        print_limits(r);
    if (r->o->choices && r->line_count)
        perf_choices_print(r);
    if (r->o->explain != EXPLAIN_NOT)
        print_explanations(r);
    if (r->o->memory_report)
        print_memory(r);
}
