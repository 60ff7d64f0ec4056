/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_doctor.c - `unisono doctor FILE...`: the cause of what logs, dumps, scripts and tables show (doctor/). `unisono doctor --env`: what the
 * environment does here, and what it does not do; what is known about our names and values is the library's (unisono_watch.h).
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "doctor/doctor.h"
#include "output.h"
#include "unisono_watch.h"

struct wanted {
    bool all, json, rules, verbose, env, agent, check_nccl;
    const char *job;  /* --advise */
    const char *page; /* --html */
    const char *root; /* "" = this machine */
    struct hosts_options hosts;
};

struct report {
    uno_setting *settings;
    size_t nsettings;
    uno_setting_finding *findings;
    size_t nfindings;
};

static void usage(void)
{
    printf("usage: unisono doctor FILE... | DIR | -     [-v] [--json] [--html FILE]\n"
           "       unisono doctor [--root DIR] [-v] [--json] [--html FILE]    look at this machine\n"
           "       unisono doctor --hosts A,B,... [--launcher 'CMD'] [--agent-program P] [-v] [--json] [--html FILE]\n"
           "       unisono doctor --check-nccl [FILE...] [--root DIR] [-v] [--json] [--html FILE]\n"
           "       unisono doctor --env [FILE] [--all] [--json]\n"
           "       unisono doctor --advise 'gpus=64 gpu=MI300X net=RoCE framework=deepspeed' [--json]\n"
           "       unisono doctor --rules [--json]\n\n"
           "Reads whatever there is of a job on NCCL, RCCL, Gloo, PyTorch or Unisono (logs of some or all ranks, launch scripts, environment\n"
           "listings, flight-recorder dumps, topology files, output of system tools; mixed, cut, coloured, with prefixes) and says the cause,\n"
           "where it is seen, what only follows from it, what to do, and how sure that is. Nothing of it is run.\n\n"
           "  -v, --verbose  all of each finding\n"
           "      --json     for programs\n"
           "      --root     a folder that stands for /, with a copy of another machine's /sys and /proc\n"
           "      --check-nccl  which GPUs reach each other over what, how fast, by which network card, of this machine or of FILEs: topology and\n"
           "                 graph XML of NCCL and RCCL, nvidia-smi topo -m, rocm-smi --showtopo, amd-smi topology, logs\n"
           "      --hosts    ask these hosts what they see, and how they reach each other, both ways: settings, versions, limits, MTU, clocks\n"
           "      --launcher command that runs another on a host, {host} stands for its name (default: ssh)\n"
           "      --agent-program  path of unisono on the other hosts (default: as here)\n"
           "      --html F   write all of it as one page, too (F, or - for standard output alone), with a picture of the ranks and machines; it needs\n"
           "                 no network and runs nothing\n"
           "      --advise   what to set for such a job, why, and how to see that it took effect; keys: gpus hosts gpu net framework model\n"
           "      --rules    list what is looked for, and where the facts are from\n"
           "      --env      look at the environment of this shell: every setting of ours with its value and where that comes from, values\n"
           "                 that a rank would reject, names that nobody reads, variables without effect here; and every variable of NCCL,\n"
           "                 RCCL, PyTorch and Gloo: who reads it, and what its value becomes. FILE: the same of the variables in it\n"
           "      --all      with --env: also say what each means, and what is legal or the default\n\n"
           "Exit status: 0 = nothing to complain about, 1 = there are findings, 2 = there are none, and an input could not be read.\n");
}

/* A name that we do not know, and that images or others' plugins use: it is not told. */
static bool is_of_others(const uno_setting_finding *f)
{
    return strcmp(f->what, "unknown") == 0 && doctor_is_of_others(f->name);
}

static bool is_finding(const uno_setting_finding *f)
{
    return strcmp(f->what, "used") != 0 && !is_of_others(f);
}

/* A variable that both have something against counts once. */
static size_t complaints(const struct report *r, struct doctor *d)
{
    size_t n = doctor_variables_wrong(d, NULL);
    for (size_t i = 0; i < r->nfindings; i++)
        n += is_finding(&r->findings[i]) && !doctor_variables_wrong(d, r->findings[i].name);
    return n;
}

/* ---- for people -------------------------------------------------------------------------------------- */

/* With its unit, and so that it can be read as a value again. */
static const char *with_unit(const uno_setting *s, char *buf, size_t buf_bytes)
{
    char *end, size[32];
    unsigned long long bytes = strtoull(s->value, &end, 10);
    bool number = *s->value && *end == 0;
    if (strcmp(s->kind, "bytes") == 0 && number && bytes >= 1024)
        snprintf(buf, buf_bytes, "%s bytes = %s", s->value, out_bytes(size, sizeof size, bytes));
    else if (strcmp(s->kind, "bytes") == 0 && number)
        snprintf(buf, buf_bytes, bytes ? "%s bytes" : "%s", s->value);
    else if (strcmp(s->kind, "seconds") == 0 && strcmp(s->source, "illegal") != 0)
        snprintf(buf, buf_bytes, "%s s", s->value);
    else
        snprintf(buf, buf_bytes, "%s", *s->value ? s->value : "-");
    return buf;
}

static void print_setting(const uno_setting *s, bool all, int width)
{
    char value[512];
    bool chosen = strcmp(s->source, "default") != 0, illegal = strcmp(s->source, "illegal") == 0;
    printf("  %s%-*s  %s%s", out_colour(stdout, illegal ? OUT_RED : chosen ? OUT_BOLD : OUT_PLAIN), width, s->name,
           with_unit(s, value, sizeof value), out_colour(stdout, OUT_PLAIN));
    if (!illegal)
        printf("  %s(%s)%s", out_colour(stdout, OUT_DIM), s->source, out_colour(stdout, OUT_PLAIN));
    putchar('\n');
    if (!all)
        return;
    printf("  %*s    %s\n", width, "", s->help);
    printf("  %*s    %s%s%s; default %s%s%s\n", width, "", s->kind, *s->legal ? ": " : "", s->legal, *s->dflt ? s->dflt : "empty",
           *s->foreign ? "; also read as " : "", s->foreign);
}

static void print_findings(const struct report *r)
{
    static const struct { const char *what, *title; enum out_colour colour; } kinds[] = {
        {"illegal", "A rank would reject", OUT_RED},     {"unknown", "Nobody reads", OUT_YELLOW},
        {"overridden", "Overridden", OUT_YELLOW},        {"no-effect", "Without effect here", OUT_YELLOW},
        {"used", "Used", OUT_GREEN},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool titled = false;
        for (size_t i = 0; i < r->nfindings; i++) {
            const uno_setting_finding *f = &r->findings[i];
            if (strcmp(f->what, kinds[k].what) != 0 || is_of_others(f))
                continue;
            if (!titled)
                printf("\n%s%s%s\n", out_colour(stdout, kinds[k].colour), kinds[k].title, out_colour(stdout, OUT_PLAIN));
            titled = true;
            printf("  %s=%s\n      %s\n", f->name, f->value, f->text);
        }
    }
}

static void print_people(const struct report *r, struct doctor *d, size_t bad, bool all)
{
    size_t width = 0;
    for (size_t i = 0; i < r->nsettings; i++)
        if (strlen(r->settings[i].name) > width)
            width = strlen(r->settings[i].name);
    printf("Settings in force\n");
    for (size_t i = 0; i < r->nsettings; i++)
        print_setting(&r->settings[i], all, (int)width);
    print_findings(r);
    putchar('\n');
    doctor_variables(d, all, false);
    if (bad)
        printf("%zu finding%s.\n", bad, bad == 1 ? "" : "s");
    else
        printf("Nothing to complain about.\n");
}

/* ---- for programs --------------------------------------------------------------------------------------- */

static void json_field(const char *key, const char *value, bool last)
{
    printf("\"%s\": ", key);
    out_json_string(stdout, value);
    fputs(last ? "" : ", ", stdout);
}

static void print_json(const struct report *r, struct doctor *d, size_t bad)
{
    printf("{\"version\": 1,\n \"settings\": [");
    for (size_t i = 0; i < r->nsettings; i++) {
        const uno_setting *s = &r->settings[i];
        printf("%s\n  {", i ? "," : "");
        json_field("name", s->name, false);
        json_field("value", s->value, false);
        json_field("source", s->source, false);
        json_field("kind", s->kind, false);
        json_field("default", s->dflt, false);
        json_field("legal", s->legal, false);
        json_field("foreign", s->foreign, false);
        json_field("help", s->help, true);
        putchar('}');
    }
    printf("],\n \"findings\": [");
    size_t told = 0;
    for (size_t i = 0; i < r->nfindings; i++) {
        const uno_setting_finding *f = &r->findings[i];
        if (is_of_others(f))
            continue;
        printf("%s\n  {", told++ ? "," : "");
        json_field("name", f->name, false);
        json_field("value", f->value, false);
        json_field("what", f->what, false);
        json_field("text", f->text, true);
        putchar('}');
    }
    printf("],\n \"variables\": ");
    doctor_variables_json(d);
    printf(",\n \"complaints\": %zu}\n", bad);
}

static int environment(bool all, bool json)
{
    struct report r = {0};
    if (uno_settings(&r.settings, &r.nsettings) != UNO_OK || uno_settings_audit(&r.findings, &r.nfindings) != UNO_OK) {
        uno_settings_free(r.settings, r.nsettings);
        return out_error("doctor", "%s", uno_last_error(NULL));
    }
    struct doctor *d = doctor_new();
    int rc = CLI_ERROR;
    if (d) {
        doctor_read_environment(d);
        size_t bad = complaints(&r, d);
        rc = bad ? CLI_BAD : CLI_GOOD;
        if (json)
            print_json(&r, d, bad);
        else
            print_people(&r, d, bad, all);
    } else {
        out_error("doctor", "there is no memory");
    }
    doctor_free(d);
    uno_settings_free(r.settings, r.nsettings);
    uno_settings_audit_free(r.findings, r.nfindings);
    return rc;
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static bool page_only(const struct wanted *w)
{
    return w->page && strcmp(w->page, "-") == 0;
}

/* Returns false when the page could not be written, which is said. */
static bool show(struct doctor *d, const struct wanted *w)
{
    bool good = true;
    if (w->json && !page_only(w))
        doctor_print_json(d);
    else if (!page_only(w))
        doctor_print(d, w->verbose);
    if (w->page && !doctor_write_page(d, w->page)) {
        out_error("doctor", "the page %s cannot be written: %s", w->page, strerror(errno));
        good = false;
    }
    doctor_free(d);
    return good;
}

static int check_nccl(char **paths, int count, const struct wanted *w)
{
    struct doctor *d = doctor_new();
    int unread = 0;
    if (!d)
        return out_error("doctor", "there is no memory");
    for (int i = 0; i < count; i++)
        unread += !doctor_read(d, paths[i]);
    if (!count)
        doctor_read_topology(d, w->root);
    if (!page_only(w))
        doctor_report(d, w->verbose, w->json);
    size_t findings = doctor_judge(d);
    if (!show(d, w))
        return CLI_ERROR;
    return findings ? CLI_BAD : unread ? CLI_ERROR : CLI_GOOD;
}

static int examine(char **paths, int count, const struct wanted *w)
{
    struct doctor *d = doctor_new();
    if (!d)
        return out_error("doctor", "there is no memory");
    int unread = 0;
    for (int i = 0; i < count; i++)
        unread += !doctor_read(d, paths[i]);
    if (w->env && !page_only(w))
        doctor_variables(d, w->all, w->json);
    size_t findings = doctor_judge(d);
    if (!show(d, w))
        return CLI_ERROR;
    return findings ? CLI_BAD : unread ? CLI_ERROR : CLI_GOOD;
}

static int here(const struct wanted *w)
{
    if (*w->root && !doctor_is_root(w->root))
        return out_error("doctor", "--root %s: it has neither sys nor proc; it is a folder that stands for /, as `cp -r` of both makes it", w->root);
    struct doctor *d = doctor_new();
    if (!d)
        return out_error("doctor", "there is no memory");
    size_t bad = doctor_look_here(d, w->root, w->json || page_only(w)), findings = doctor_judge(d);
    if (!show(d, w))
        return CLI_ERROR;
    return bad || findings ? CLI_BAD : CLI_GOOD;
}

static int hosts(const struct wanted *w)
{
    struct doctor *d = doctor_new();
    char why[300] = "there is no memory";
    if (!d || !doctor_ask_hosts(d, &w->hosts, w->json || page_only(w), why, sizeof why)) {
        doctor_free(d);
        return out_error("doctor", "%s", why);
    }
    size_t findings = doctor_judge(d);
    if (!show(d, w))
        return CLI_ERROR;
    return findings ? CLI_BAD : CLI_GOOD;
}

static const struct option options[] = {
    {"env", no_argument, NULL, 'e'},     {"all", no_argument, NULL, 'a'},     {"json", no_argument, NULL, 'j'}, {"rules", no_argument, NULL, 'r'}, {"advise", required_argument, NULL, 'A'},
    {"verbose", no_argument, NULL, 'v'}, {"root", required_argument, NULL, 'R'}, {"check-nccl", no_argument, NULL, 'C'}, {"hosts", required_argument, NULL, 'H'}, {"html", required_argument, NULL, 'O'}, {"launcher", required_argument, NULL, 'L'}, {"agent-program", required_argument, NULL, 'P'}, {"agent", no_argument, NULL, 'G'}, {"help", no_argument, NULL, 'h'}, {0},
};

static int bad_option(const char *word)
{
    switch (optopt) {
    case 'A': return out_error("doctor", "--advise needs a job, as in 'gpus=64 gpu=MI300X net=RoCE framework=deepspeed'");
    case 'R': return out_error("doctor", "--root needs a folder with a copy of a machine's /sys and /proc");
    case 'H': return out_error("doctor", "--hosts needs names, as in --hosts nodeA,nodeB");
    case 'O': return out_error("doctor", "--html needs a file to write, or - for standard output");
    case 'L': return out_error("doctor", "--launcher needs a command, as in 'ip netns exec {host}'");
    case 'P': return out_error("doctor", "--agent-program needs the path of unisono on the other hosts");
    default: return out_error("doctor", "there is no option %s; `unisono doctor --help` lists them", word);
    }
}

static int parse(int argc, char **argv, struct wanted *w)
{
    opterr = 0;
    optind = 0;
    for (int letter; (letter = getopt_long(argc, argv, "hv", options, NULL)) != -1;) {
        switch (letter) {
        case 'h': usage(); return CLI_BAD;
        case 'e': w->env = true; break;
        case 'a': w->all = true; break;
        case 'j': w->json = true; break;
        case 'r': w->rules = true; break;
        case 'v': w->verbose = true; break;
        case 'A': w->job = optarg; break;
        case 'R': w->root = optarg; break;
        case 'C': w->check_nccl = true; break;
        case 'H': w->hosts.names = optarg; break;
        case 'O': w->page = optarg; break;
        case 'L': w->hosts.launcher = optarg; break;
        case 'P': w->hosts.program = optarg; break;
        case 'G': w->agent = true; break;
        default: return bad_option(argv[optind - 1]);
        }
    }
    return CLI_GOOD;
}

int cmd_doctor(int argc, char **argv)
{
    struct wanted w = {.root = ""};
    int rc = parse(argc, argv, &w);
    if (rc != CLI_GOOD)
        return rc == CLI_BAD ? CLI_GOOD : rc;
    if (w.agent)
        return doctor_be_agent();
    if (w.page && (w.job || w.rules || ((w.env || w.all) && optind == argc)))
        return out_error("doctor", "--html is for findings: of files, of this machine, of --hosts or --check-nccl; --advise, --rules and --env without a file have none");
    if (w.hosts.names)
        return hosts(&w);
    if (w.job)
        return doctor_advise(w.job, w.json);
    if (w.rules) {
        doctor_print_rules(w.json);
        return CLI_GOOD;
    }
    if (w.check_nccl)
        return check_nccl(argv + optind, argc - optind, &w);
    if (optind < argc) /* --env FILE: a listing in a file is read like any other */
        return examine(argv + optind, argc - optind, &w);
    return w.env || w.all ? environment(w.all, w.json) : here(&w);
}
