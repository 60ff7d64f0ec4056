/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_tune.c - `unisono tune`: measure what the planner computes with (tune.h) and keep it for this machine, or show what is kept.
 * The file and its format are the library's (unisono_plan.h).
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "output.h"
#include "perf.h"
#include "tune.h"
#include "unisono_plan.h"

static void usage(void)
{
    printf("usage: unisono tune [--show | --dry-run] [--json]\n\n"
           "Measures in a few seconds what things cost on this machine: handing over, copies and sums of short and long messages, reads of\n"
           "other processes' memory, turns of ranks that share a processor; and keeps it in a file, from which rank 0 of later jobs takes what\n"
           "all ranks choose algorithms by. Measure while nothing else runs. Started as ranks on several hosts, as by `unisono run --hosts A,B\n"
           "-- unisono tune`, it measures also between rank 0's host and another one, and keeps it on rank 0's.\n\n"
           "      --show     show the costs that count now, and where they come from; measure nothing\n"
           "      --dry-run  measure and show, keep nothing\n"
           "      --json     as JSON\n\n"
           "File: UNISONO_COSTS, else XDG_CACHE_HOME/unisono or ~/.cache/unisono; UNISONO_COSTS=none: built-in costs.\n");
}

/* ---- measured into costs --------------------------------------------------------------------------------------- */

static uno_err set(uno_costs *costs, const char *name, uint64_t ps)
{
    uno_cost c;
    for (int i = 0; uno_costs_get(costs, i, &c) == UNO_OK; i++)
        if (strcmp(c.name, name) == 0)
            return uno_costs_set(costs, name, ps < c.least_ps ? c.least_ps : ps > c.most_ps ? c.most_ps : ps);
    return uno_costs_set(costs, name, ps);
}

static uno_err set_classes(uno_costs *costs, const char *kind, const uint64_t *ps)
{
    static const char *const classes[TUNE_CLASSES] = {"", "_2m", "_16m", "_large"};
    uno_err err = UNO_OK;
    for (int i = 0; i < TUNE_CLASSES && err == UNO_OK; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s_ps_per_kb", kind, classes[i]);
        err = set(costs, name, ps[i]);
    }
    return err;
}

static uno_err take_over(uno_costs *costs, const struct tuned *t)
{
    const struct { const char *name; uint64_t ps; } single[] = {
        {"shm_latency_ps", t->latency_ps}, {"step_ps", t->step_ps}, {"small_ps", t->small_ps}, {"switch_ps", t->switch_ps}};
    const struct { const char *kind; const uint64_t *ps; } classes[] = {
        {"shm", t->shm}, {"reduce", t->sum}, {"read", t->read}, {"map", t->map}};
    uno_err err = UNO_OK;
    for (size_t i = 0; i < sizeof single / sizeof single[0] && err == UNO_OK; i++)
        err = set(costs, single[i].name, single[i].ps);
    for (size_t i = 0; i < sizeof classes / sizeof classes[0] && err == UNO_OK; i++)
        err = set_classes(costs, classes[i].kind, classes[i].ps);
    if (err == UNO_OK && t->net_latency_ps)
        err = set(costs, "net_latency_ps", t->net_latency_ps);
    if (err == UNO_OK && t->net_ps_per_kb)
        err = set(costs, "net_ps_per_kb", t->net_ps_per_kb);
    return err;
}

/* ---- showing ------------------------------------------------------------------------------------------------------- */

static void print_costs(const uno_costs *costs, const char *machine, const char *source)
{
    uno_cost c;
    printf("%s\ncosts: %s\n\n%-24s %12s %12s\n", machine, source, "", "ns", "built in");
    for (int i = 0; uno_costs_get(costs, i, &c) == UNO_OK; i++) {
        printf("%-24s %12.1f", c.name, (double)c.ps / 1000);
        if (c.built_in_ps)
            printf(" %12.1f", (double)c.built_in_ps / 1000);
        else
            printf(" %12s", "-");
        printf("  %s\n", c.help);
    }
}

static void print_json(const uno_costs *costs, const char *machine, bool measured)
{
    uno_cost c;
    printf("{\n  \"machine\": ");
    out_json_string(stdout, machine);
    printf(",\n  \"measured\": %s,\n  \"file\": ", measured ? "true" : "false");
    out_json_string(stdout, uno_costs_path(costs));
    printf(",\n  \"not_followed\": ");
    out_json_string(stdout, uno_costs_why_not(costs)[0] ? uno_costs_why_not(costs) : NULL);
    printf(",\n  \"costs_ps\": {");
    for (int i = 0; uno_costs_get(costs, i, &c) == UNO_OK; i++)
        printf("%s\n    \"%s\": %llu", i ? "," : "", c.name, (unsigned long long)c.ps);
    printf("\n  }\n}\n");
}

struct asked { bool show, dry_run, json; };

static int show(uno_costs *costs, const struct asked *a, bool measured, const char *source)
{
    char *machine;
    if (uno_costs_machine(&machine) != UNO_OK)
        return out_error("tune", "%s", uno_plan_last_error());
    if (a->json)
        print_json(costs, machine, measured);
    else
        print_costs(costs, machine, source);
    uno_text_free(machine);
    return CLI_GOOD;
}

static int show_kept(uno_costs *costs, const struct asked *a)
{
    const char *why_not = uno_costs_why_not(costs);
    if (*why_not)
        fprintf(stderr, "unisono tune: %s\n", why_not);
    return show(costs, a, uno_costs_measured(costs), uno_costs_measured(costs) ? uno_costs_path(costs) : "built in; `unisono tune` measures them");
}

static int measure(uno_costs *costs, const struct asked *a)
{
    struct tuned tuned;
    char source[4200];
    if (!a->dry_run && !uno_costs_path(costs)[0])
        return out_error("tune", "there is no place for what is measured: UNISONO_COSTS is none, or neither XDG_CACHE_HOME nor HOME is set; "
                                 "--dry-run only shows it");
    struct tuned net = {0};
    int rank = 0;
    bool launched = perf_has_launcher();
    if (launched && !tune_net(&net, &rank)) /* rank 0's machine is measured while the others have ended */
        return CLI_ERROR;
    if (rank != 0)
        return CLI_GOOD;
    if (!tune_measure(&tuned))
        return CLI_ERROR;
    tuned.net_latency_ps = net.net_latency_ps;
    tuned.net_ps_per_kb = net.net_ps_per_kb;
    if (take_over(costs, &tuned) != UNO_OK || (!a->dry_run && uno_costs_save(costs) != UNO_OK))
        return out_error("tune", "%s", uno_plan_last_error());
    snprintf(source, sizeof source, "%s%s", a->dry_run ? "measured now and not kept" : "measured now and kept in ",
             a->dry_run ? "" : uno_costs_path(costs));
    int status = show(costs, a, true, source);
    if (tuned.note[0] && !a->json)
        printf("\n%s\n", tuned.note);
    return status;
}

int cmd_tune(int argc, char **argv)
{
    static const struct option options[] = {{"show", no_argument, NULL, 's'},
                                            {"dry-run", no_argument, NULL, 'd'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct asked a = {0};
    opterr = 0;
    optind = 0;
    for (int letter, at = 1; (letter = getopt_long(argc, argv, "+h", options, NULL)) != -1; at = optind) {
        if (letter == 'h') {
            usage();
            return CLI_GOOD;
        }
        if (letter == '?')
            return out_error("tune", "there is no option %s; `unisono tune --help` lists them", argv[at]);
        a.show |= letter == 's';
        a.dry_run |= letter == 'd';
        a.json |= letter == 'j';
    }
    if (optind < argc)
        return out_error("tune", "\"%s\" is not understood; tune takes only options", argv[optind]);
    if (a.show && a.dry_run)
        return out_error("tune", "--show and --dry-run exclude each other: one measures nothing, the other measures");
    uno_costs *costs;
    if (uno_costs_load(&costs) != UNO_OK)
        return out_error("tune", "%s", uno_plan_last_error());
    int status = a.show ? show_kept(costs, &a) : measure(costs, &a);
    uno_costs_free(costs);
    return status;
}
