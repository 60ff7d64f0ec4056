/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_json.c - results as JSON: nccl-tests' keys (its booleans are the strings "true" and "false"), and our own beside
 * them: "unisono", and in each result "limit_us", "share_of_limit", "explanation".
 */
#include "perf.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "output.h"

static void time_text(FILE *f, const char *key)
{
    char text[64];
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
    fprintf(f, "\"%s\": \"%s\"", key, text);
}

static void number(FILE *f, const char *key, double value)
{
    if (isfinite(value))
        fprintf(f, "\"%s\": %.6f", key, value);
    else
        fprintf(f, "\"%s\": null", key);
}

static const char *truth(bool value)
{
    return value ? "\"true\"" : "\"false\"";
}

static void write_config(const struct report *r, FILE *f)
{
    const struct perf_options *o = r->o;
    fprintf(f, "  \"config\": {\"nthreads\": %d, \"ngpus\": %d, \"minimum_bytes\": %llu, \"maximum_bytes\": %llu, ",
            o->threads ? o->threads : 1, o->per_thread ? o->per_thread : 1, (unsigned long long)o->min_bytes,
            (unsigned long long)o->max_bytes);
    if (o->step_factor > 1)
        fprintf(f, "\"step_factor\": %d, ", o->step_factor);
    else
        fprintf(f, "\"step_bytes\": %llu, ", (unsigned long long)o->step_bytes);
    fprintf(f, "\"warmup_iters\": %d, \"iterations\": %d, \"aggregated_iterations\": %d, \"validation\": %d, \"graph\": 0,\n"
               "    \"blocking_collectives\": %s, \"per_iter_timing\": %s, \"parallel_init\": %s,\n    \"devices\": [",
            o->warmup, o->iters, o->agg_iters, o->check, truth(o->blocking), truth(o->per_iter), truth(o->parallel_init));
    for (int i = 0; i < r->rank_count; i++) {
        fprintf(f, "%s\n      {\"rank\": %d, \"group\": %d, \"pid\": %d, \"hostname\": ", i ? "," : "", i, r->ranks[i].group,
                r->ranks[i].pid);
        out_json_string(f, r->ranks[i].host);
        fprintf(f, ", \"device\": %d, \"device_hex\": \"0000:00:00\", \"device_info\": \"processors %s\"}", r->ranks[i].local,
                r->ranks[i].processors);
    }
    fprintf(f, "]},\n");
}

static void write_iterations(FILE *f, const char *key, const struct half *h)
{
    const struct iter_stats *s = &h->stats;
    fprintf(f, ",\n     \"%s\": {", key);
    const struct { const char *key; double value; } all[] = {
        {"min_us", s->min_us}, {"max_us", s->max_us}, {"avg_us", s->avg_us}, {"p50_us", s->p50_us},
        {"p95_us", s->p95_us}, {"p99_us", s->p99_us}, {"stdev_us", s->stdev_us}, {"cv_pct", s->cv_pct}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        number(f, all[i].key, all[i].value);
        fputs(", ", f);
    }
    fprintf(f, "\"times_us\": [");
    for (int i = 0; i < h->times; i++)
        fprintf(f, "%s%.3f", i ? ", " : "", h->times_us[i]);
    fprintf(f, "]}");
}

static void write_half(FILE *f, const struct perf_options *o, const char *key, const struct half *h)
{
    fprintf(f, ",\n     \"%s\": {", key);
    number(f, o->cpu_time ? "cpu_time" : "time", o->cpu_time ? h->cpu_us : h->time_us);
    fputs(", ", f);
    number(f, "alg_bw", h->alg_bw);
    fputs(", ", f);
    number(f, "bus_bw", h->bus_bw);
    if (h->wrong < 0)
        fprintf(f, ", \"nwrong\": null}");
    else
        fprintf(f, ", \"nwrong\": %lld}", (long long)h->wrong);
}

static void write_line(FILE *f, const struct perf_options *o, const struct line *l)
{
    fprintf(f, "    {\"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", \"root\": \"%d\"", l->bytes, l->count,
            perf_type_word(l->type), perf_op_word(l->op), l->root);
    write_half(f, o, "out_of_place", &l->halves[0]);
    if (l->halves[0].times_us)
        write_iterations(f, "out_of_place_per_iter", &l->halves[0]);
    write_half(f, o, "in_place", &l->halves[1]);
    if (l->halves[1].times_us)
        write_iterations(f, "in_place_per_iter", &l->halves[1]);
    if (l->limit_us > 0) {
        fprintf(f, ",\n     ");
        number(f, "limit_us", l->limit_us);
        fprintf(f, ", \"share_of_limit\": {");
        number(f, "out_of_place", l->limit_us / l->halves[0].time_us);
        fputs(", ", f);
        number(f, "in_place", l->limit_us / l->halves[1].time_us);
        fprintf(f, "}, \"limit_kernel\": \"%s\"", l->limit_how);
    }
    if (l->explained) {
        fprintf(f, ",\n     \"explanation\": ");
        out_json_string(f, l->explained);
        if (perf_predicted_us(l->explained) > 0) {
            double percent;
            bool off = perf_prediction_off(l, &percent);
            fputs(", ", f);
            number(f, "predicted_us", perf_predicted_us(l->explained));
            fprintf(f, ", \"prediction_off\": %s", truth(off));
        }
    }
    if (l->choices.count) {
        fprintf(f, ",\n     \"choices\": {");
        number(f, "chosen_us", l->choices.chosen_us);
        fputs(", ", f);
        number(f, "chosen_to_best", perf_choices_ratio(l));
        fprintf(f, ", \"forced_us\": {");
        for (int i = 0; i < l->choices.count; i++) {
            fputs(i ? ", " : "", f);
            number(f, l->choices.name[i], l->choices.us[i]);
        }
        fprintf(f, "}}");
    }
    fprintf(f, ",\n     \"actual_iterations\": %d, \"experiment_name\": \"%s_perf\"}", o->iters, o->coll->name);
}

static void write_own(const struct report *r, FILE *f)
{
    const uno_counts *c = &r->counts;
    fprintf(f, "  \"unisono\": {\"version\": \"%d.%d.%d\", \"collective\": \"%s\", \"ranks\": %d, \"memory\": \"%s\", "
               "\"buffers\": \"%s\",\n    \"carriers\": {",
            UNO_VERSION_MAJOR, UNO_VERSION_MINOR, UNO_VERSION_PATCH, r->o->coll->name, r->rank_count,
            r->o->shared_memory ? "shared" : "ordinary",
            r->o->buffers == BUFFERS_COLD ? "cold" : r->o->buffers == BUFFERS_WARM ? "warm" : "shifted");
    for (int k = 0; k < UNO_CARRIER_COUNT; k++)
        fprintf(f, "%s\"%s\": {\"messages\": %llu, \"bytes\": %llu}", k ? ", " : "", uno_carrier_name((uno_carrier)k),
                (unsigned long long)c->messages[k], (unsigned long long)c->bytes[k]);
    fprintf(f, "},\n    \"small_operations\": %llu, \"tiled_operations\": %llu, \"lent_bytes\": %llu, \"waits\": {\"spin\": %llu, "
               "\"yield\": %llu, \"sleep\": %llu},\n    \"resident_kb\": [",
            (unsigned long long)c->small_operations, (unsigned long long)c->tiled_operations, (unsigned long long)c->lent_bytes,
            (unsigned long long)c->waits_spin, (unsigned long long)c->waits_yield, (unsigned long long)c->waits_sleep);
    for (int i = 0; i < r->rank_count; i++)
        fprintf(f, "%s%ld", i ? ", " : "", r->ranks[i].rss_end_kb);
    fprintf(f, "]");
    if (*r->limit_note) {
        fprintf(f, ", \"limit_note\": ");
        out_json_string(f, r->limit_note);
    }
    fprintf(f, "},\n");
}

void report_json_write(struct report *r, FILE *f)
{
    double min_bw = report_min_bw(), average = report_average(r);
    fprintf(f, "{\n  \"version\": 3,\n  ");
    time_text(f, "end_time");
    fprintf(f, ",\n  \"experiment_name\": \"%s_perf\",\n", r->o->coll->name);
    write_own(r, f);
    write_config(r, f);
    fprintf(f, "  \"results\": [\n");
    for (size_t i = 0; i < r->line_count; i++) {
        write_line(f, r->o, &r->lines[i]);
        fprintf(f, "%s\n", i + 1 < r->line_count ? "," : "");
    }
    fprintf(f, "  ],\n  \"out_of_bounds\": {\"count\": %d, \"okay\": %s},\n", r->bad_lines, truth(r->bad_lines == 0));
    fprintf(f, "  \"average_bus_bandwidth\": {");
    number(f, "bandwidth", average);
    fprintf(f, ", \"okay\": %s}\n}\n", min_bw < 0 ? "\"unchecked\"" : truth(average >= 0.9 * min_bw));
}
