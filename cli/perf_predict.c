/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_predict.c - `unisono perf --explain`: for each size what was predicted of each candidate, what the chosen one took, and the fact that
 * decided, read from uno_comm_explain's line. A prediction that is off by more than 30 % is marked: the costs are not this machine's,
 * or the machine was busy. Called by perf_remarks.c.
 */
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "perf.h"

#define OFF 0.30

/* "217 ns", "7.7 us" -> microseconds; 0: no time. */
static double microseconds(const char *s)
{
    static const struct { const char *unit; double us; } units[] = {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}};
    char *end;
    double value = strtod(s, &end);
    for (size_t i = 0; end != s && *end == ' ' && i < sizeof units / sizeof units[0]; i++)
        if (strncmp(end + 1, units[i].unit, strlen(units[i].unit)) == 0)
            return value * units[i].us;
    return 0;
}

double perf_predicted_us(const char *explained)
{
    static const char word[] = ", predicted ";
    const char *at = explained ? strstr(explained, word) : NULL;
    return at ? microseconds(at + sizeof word - 1) : 0;
}

bool perf_prediction_off(const struct line *l, double *percent)
{
    double predicted = perf_predicted_us(l->explained), measured = l->halves[0].time_us;
    *percent = predicted > 0 && measured > 0 ? (predicted / measured - 1) * 100 : 0;
    return predicted > 0 && measured > 0 && (*percent > OFF * 100 || *percent < -OFF * 100);
}

/* What stands between `word` and the next ';'. */
static int part_of(const char *explained, const char *word, const char **from)
{
    const char *at = strstr(explained, word);
    *from = at ? at + strlen(word) : "";
    return (int)strcspn(*from, ";");
}

void perf_predictions_print(const struct report *r)
{
    FILE *f = r->table;
    size_t off = 0, all = 0;
    fprintf(f, "# predicted and measured, us, out of place; ! = off by more than %.0f %%\n", OFF * 100);
    fprintf(f, "# %10s %-18s %9s %9s %7s   %s\n", "size", "chosen", "predicted", "measured", "off", "others; decided by");
    for (size_t i = 0; i < r->line_count; i++) {
        const struct line *l = &r->lines[i];
        const char *words, *others, *decided;
        char a[32], b[32];
        double percent;
        if (!l->explained || perf_predicted_us(l->explained) <= 0)
            continue;
        bool marked = perf_prediction_off(l, &percent);
        int length = (int)perf_explained_algorithm(l->explained, &words);
        int n = part_of(l->explained, "; others: ", &others), m = part_of(l->explained, "; decided by ", &decided);
        fprintf(f, "# %10zu %-18.*s %9s %9s %+6.0f%%%s  %.*s; %.*s\n", l->bytes, length, words,
                report_number(perf_predicted_us(l->explained), 9, a), report_number(l->halves[0].time_us, 9, b), percent,
                marked ? "!" : " ", n, others, m, decided);
        off += marked;
        all++;
    }
    fprintf(f, "# %zu of %zu predictions are off by more than %.0f %%%s\n#\n", off, all, OFF * 100,
            off ? "; `unisono tune` measures this machine's costs" : "");
}
