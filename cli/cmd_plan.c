/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_plan.c - `unisono plan`: show, verify and make schedules. Everything behind it is unisono_plan.h.
 * `verify` ends with 0 = every claim is proved, 1 = one is refuted, 2 = the plan could not be read.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "unisono_plan.h"

static const char usage[] =
    "usage: unisono plan show FILE [--rank R | --json | --xml [--unicast]]\n"
    "       unisono plan verify FILE [--slots K] [--all] [--json]\n"
    "       unisono plan make COLLECTIVE --ranks N | --hosts H [options]\n"
    "       unisono plan algos\n"
    "\n"
    "  FILE    - is standard input\n"
    "  show    print a plan (JSON, see docs/plan-format.md, or MSCCL XML) as text, or convert it\n"
    "  verify  prove each claim of a plan (in place, out of place), with its own slots a connection and with one, or name rank,\n"
    "          lane, step and reason; status 0 = its claims are proved, 1 = one is refuted, 2 = no plan was read;\n"
    "          --slots K: with K slots instead of its own; --all: also what it does not claim\n"
    "  make    make a plan:\n"
    "            --ranks N        number of ranks; with --hosts as many as these hold\n"
    "            --algo A         see `unisono plan algos`; without it the planner chooses for --bytes\n"
    "            --channels C     parallel copies, each with its own chunks\n"
    "            --root R         of rooted collectives\n"
    "            --hosts 2x4      two hosts with 4 ranks each; or 3,5: the ranks of each\n"
    "            --bytes B        size that the planner chooses for (1M)\n"
    "            --json, --xml    print it in that form; --unicast: expand what XML cannot say\n"
    "            --rank R         print this rank only, as text\n"
    "            --explain        print what the planner would choose, why, and the predicted cost of each candidate\n"
    "            --verify         verify it instead of printing it\n"
    "  algos   list the algorithms and what each has plans for\n";

struct options {
    uno_plan_params params;
    uno_plan_form form;
    bool xml, unicast, explain, verify, all, help;
    int rank, slots;
    const char *word;    /* FILE or COLLECTIVE */
};

/* ---- options ------------------------------------------------------------------------------------ */

static int int_option(const char *name, const char *value, int min, int max, int *out)
{
    int64_t v;
    if (!out_parse_int(value, min, max, &v))
        return out_error("plan", "--%s %s is not a whole number from %d to %d", name, value, min, max);
    *out = (int)v;
    return CLI_GOOD;
}

enum { OPT_RANKS = 256, OPT_ALGO, OPT_CHANNELS, OPT_ROOT, OPT_HOSTS, OPT_BYTES, OPT_JSON, OPT_XML, OPT_UNICAST, OPT_RANK,
       OPT_SLOTS, OPT_EXPLAIN, OPT_VERIFY, OPT_ALL };
static const struct option long_options[] = {
    {"ranks", required_argument, NULL, OPT_RANKS},     {"algo", required_argument, NULL, OPT_ALGO},
    {"channels", required_argument, NULL, OPT_CHANNELS}, {"root", required_argument, NULL, OPT_ROOT},
    {"hosts", required_argument, NULL, OPT_HOSTS},     {"bytes", required_argument, NULL, OPT_BYTES},
    {"json", no_argument, NULL, OPT_JSON},             {"xml", no_argument, NULL, OPT_XML},
    {"unicast", no_argument, NULL, OPT_UNICAST},       {"rank", required_argument, NULL, OPT_RANK},
    {"slots", required_argument, NULL, OPT_SLOTS},     {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"verify", no_argument, NULL, OPT_VERIFY},         {"all", no_argument, NULL, OPT_ALL},
    {"help", no_argument, NULL, 'h'},                  {NULL, 0, NULL, 0}};

static int one_option(struct options *o, int option)
{
    switch (option) {
    case OPT_RANKS: return int_option("ranks", optarg, 1, 4096, &o->params.nranks);
    case OPT_ALGO: o->params.algo = optarg; return CLI_GOOD;
    case OPT_CHANNELS: return int_option("channels", optarg, 1, 1024, &o->params.channels);
    case OPT_ROOT: return int_option("root", optarg, 0, 4095, &o->params.root);
    case OPT_HOSTS: o->params.hosts = optarg; return CLI_GOOD;
    case OPT_BYTES:
        return out_parse_bytes(optarg, &o->params.bytes) ? CLI_GOOD : out_error("plan", "--bytes %s is not a size", optarg);
    case OPT_JSON: o->form = UNO_PLAN_JSON; return CLI_GOOD;
    case OPT_XML: o->xml = true; return CLI_GOOD;
    case OPT_UNICAST: o->unicast = true; return CLI_GOOD;
    case OPT_RANK: return int_option("rank", optarg, 0, 4095, &o->rank);
    case OPT_SLOTS: return int_option("slots", optarg, 1, 65536, &o->slots);
    case OPT_EXPLAIN: o->explain = true; return CLI_GOOD;
    case OPT_VERIFY: o->verify = true; return CLI_GOOD;
    case OPT_ALL: o->all = true; return CLI_GOOD;
    case 'h': o->help = true; return CLI_GOOD;
    default: return out_error("plan", "see `unisono plan --help`"); /* getopt has named it */
    }
}

static int parse_options(int argc, char **argv, struct options *o)
{
    int option, status = CLI_GOOD;
    *o = (struct options){.params = UNO_PLAN_PARAMS_INIT, .rank = -1};
    optind = 0;
    while (status == CLI_GOOD && (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1)
        status = one_option(o, option);
    if (status != CLI_GOOD || o->help)
        return status;
    if (o->xml && o->form == UNO_PLAN_JSON)
        return out_error("plan", "--json or --xml, not both");
    if (o->unicast && !o->xml)
        return out_error("plan", "--unicast belongs to --xml");
    if (o->xml)
        o->form = o->unicast ? UNO_PLAN_XML_UNICAST : UNO_PLAN_XML;
    o->word = optind < argc ? argv[optind] : NULL;
    if (optind + 1 < argc)
        return out_error("plan", "one word too many: \"%s\"", argv[optind + 1]);
    return CLI_GOOD;
}

static int failed(void)
{
    return out_error("plan", "%s", uno_plan_last_error());
}

/* "-": standard input. */
static const char *file_of(const struct options *o)
{
    return strcmp(o->word, "-") == 0 ? "/dev/stdin" : o->word;
}

/* ---- show ------------------------------------------------------------------------------------------ */

static int print_plan(const uno_plan *plan, const struct options *o)
{
    char *text;
    if (uno_plan_show(plan, o->form, o->rank, &text) != UNO_OK)
        return failed();
    fputs(text, stdout);
    uno_text_free(text);
    return CLI_GOOD;
}

static int show(const struct options *o)
{
    uno_plan *plan;
    if (!o->word)
        return out_error("plan", "show needs a file");
    if (uno_plan_load(file_of(o), &plan) != UNO_OK)
        return failed();
    int status = print_plan(plan, o);
    uno_plan_free(plan);
    return status;
}

/* ---- verify ---------------------------------------------------------------------------------------- */

struct check {
    bool in_place;
    bool claimed;                /* the plan says that it is right so */
    bool fewer_slots;            /* with fewer slots than it assumes */
    bool copies_only;            /* refuted with lent memory, proved when slots carry copies */
    int slots;
    uno_plan_verdict verdict;
};

/* Thousands of ranks take minutes: on a terminal, say what is under way. */
static void show_progress(const uno_plan_facts *f, const struct check *c)
{
    if (f->nranks >= 512 && isatty(2))
        fprintf(stderr, "\r  %s, %d slot%s: proving ...\033[K\r", c->in_place ? "in place" : "out of place", c->slots,
                c->slots == 1 ? "" : "s");
}

/* First with lent memory, as a job would; if that is refuted, with copies. */
static uno_err run_check(const uno_plan *plan, struct check *c)
{
    uno_plan_verify_options opt = UNO_PLAN_VERIFY_INIT;
    uno_plan_verdict copies;
    opt.slots = c->slots;
    opt.in_place = c->in_place;
    uno_err err = uno_plan_verify(plan, &opt, &c->verdict);
    if (err != UNO_OK || c->verdict.proved)
        return err;
    opt.lent = 0;
    err = uno_plan_verify(plan, &opt, &copies);
    if (err == UNO_OK && copies.proved) {
        c->copies_only = true;
        c->verdict = copies;
    }
    return err;
}

static void print_place(const uno_plan_verdict *v)
{
    if (strncmp(v->reason, "rank ", 5) == 0)
        return; /* the sentence says it itself */
    if (v->rank >= 0)
        printf("rank %d", v->rank);
    if (v->lane >= 0)
        printf(" lane %d", v->lane);
    if (v->step >= 0)
        printf(" step %d", v->step);
    if (v->rank >= 0)
        printf(": ");
}

/* What a refutation is called: of a claim it is bad news, of the rest it is only worth knowing. */
static const char *refusal(const struct check *c)
{
    return c->claimed ? "refuted" : c->fewer_slots ? "refuted with fewer slots than it assumes" : "not claimed, and not so";
}

static void print_check(const struct check *c)
{
    const uno_plan_verdict *v = &c->verdict;
    printf("  %-12s  %2d slot%s  ", c->in_place ? "in place" : "out of place", c->slots, c->slots == 1 ? " " : "s");
    if (v->proved) {
        printf("%sproved%s%s\n", out_colour(stdout, OUT_GREEN), out_colour(stdout, OUT_PLAIN),
               c->copies_only ? ", when slots carry copies (not with lent memory)" : "");
        return;
    }
    printf("%s%s%s (%s): ", out_colour(stdout, c->claimed ? OUT_RED : OUT_YELLOW), refusal(c), out_colour(stdout, OUT_PLAIN),
           v->kind);
    print_place(v);
    printf("%s\n", v->reason);
}

static void print_check_json(const struct check *c, bool first)
{
    const uno_plan_verdict *v = &c->verdict;
    printf("%s\n    {\"in_place\": %s, \"slots\": %d, \"claimed\": %s, \"proved\": %s, \"copies_only\": %s, \"kind\": \"%s\", "
           "\"rank\": %d, \"lane\": %d, \"step\": %d, \"reason\": ",
           first ? "" : ",", c->in_place ? "true" : "false", c->slots, c->claimed ? "true" : "false", v->proved ? "true" : "false",
           c->copies_only ? "true" : "false", v->kind, v->rank, v->lane, v->step);
    out_json_string(stdout, v->reason);
    printf("}");
}

static void print_verify_head(const uno_plan_facts *f, bool json)
{
    if (!json) {
        printf("plan %s: %s, %d ranks, %d channel%s\n", f->name, uno_plan_coll_name(f->coll), f->nranks, f->channels,
               f->channels == 1 ? "" : "s");
        return;
    }
    printf("{\n  \"plan\": ");
    out_json_string(stdout, f->name);
    printf(",\n  \"collective\": \"%s\",\n  \"ranks\": %d,\n  \"checks\": [", uno_plan_coll_name(f->coll), f->nranks);
}

/* Every claim with the plan's slots (these decide the exit status), then with one. */
static int verify_all(const uno_plan *plan, const struct options *o)
{
    uno_plan_facts facts;
    bool json = o->form == UNO_PLAN_JSON, proved = true, first = true;
    uno_plan_facts_of(plan, &facts);
    int slots[2] = {o->slots ? o->slots : facts.slots, 1};
    print_verify_head(&facts, json);
    for (int place = 0; place < 2; place++)
        for (int i = 0; i < (slots[0] == 1 ? 1 : 2); i++) {
            bool says_so = place ? facts.in_place : facts.out_of_place;
            struct check c = {.in_place = place == 1, .claimed = says_so && i == 0, .fewer_slots = says_so && i == 1,
                              .slots = slots[i]};
            if (!says_so && !o->all)
                continue;
            show_progress(&facts, &c);
            if (run_check(plan, &c) != UNO_OK)
                return failed();
            proved = proved && (c.verdict.proved || !c.claimed);
            if (json)
                print_check_json(&c, first);
            else
                print_check(&c);
            first = false;
        }
    if (json)
        printf("\n  ],\n  \"proved\": %s\n}\n", proved ? "true" : "false");
    return proved ? CLI_GOOD : CLI_BAD;
}

static int verify(const struct options *o)
{
    uno_plan *plan;
    if (!o->word)
        return out_error("plan", "verify needs a file");
    if (uno_plan_load(file_of(o), &plan) != UNO_OK)
        return failed();
    int status = verify_all(plan, o);
    uno_plan_free(plan);
    return status;
}

/* ---- make, algos -------------------------------------------------------------------------------------- */

static int explain(const struct options *o)
{
    char *text;
    if (uno_plan_explain(&o->params, &text) != UNO_OK)
        return failed();
    printf("%s%s", text, text[0] && text[strlen(text) - 1] == '\n' ? "" : "\n");
    uno_text_free(text);
    return CLI_GOOD;
}

static int make(struct options *o)
{
    uno_plan *plan;
    if (!o->word)
        return out_error("plan", "make needs a collective, such as all_reduce");
    if (uno_plan_coll_parse(o->word, &o->params.coll) != UNO_OK)
        return failed();
    if (o->params.nranks == 0 && !o->params.hosts)
        return out_error("plan", "make needs --ranks N, or --hosts");
    if (o->explain)
        return explain(o);
    if (uno_plan_make(&o->params, &plan) != UNO_OK)
        return failed();
    int status = o->verify ? verify_all(plan, o) : print_plan(plan, o);
    uno_plan_free(plan);
    return status;
}

static int algos(const struct options *o)
{
    uno_plan_algo_info a;
    for (int i = 0; uno_plan_algo(i, &a) == UNO_OK; i++) {
        printf("%s%-10s%s %s\n          ", out_colour(stdout, OUT_BOLD), a.name, out_colour(stdout, OUT_PLAIN), a.help);
        for (int c = 0; c < UNO_COLL_COUNT; c++)
            if (a.colls & 1u << c)
                printf(" %s", uno_plan_coll_name((uno_coll)c));
        printf("\n");
    }
    return CLI_GOOD;
}

int cmd_plan(int argc, char **argv)
{
    static const char *const words[] = {"show", "verify", "make", "algos"};
    struct options o;
    const char *what = argc > 1 ? argv[1] : "--help";
    if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0) {
        fputs(usage, stdout);
        return CLI_GOOD;
    }
    int status = parse_options(argc - 1, argv + 1, &o);
    if (status != CLI_GOOD)
        return status;
    if (o.help) {
        fputs(usage, stdout);
        return CLI_GOOD;
    }
    if (strcmp(what, "show") == 0)
        return show(&o);
    if (strcmp(what, "verify") == 0)
        return verify(&o);
    if (strcmp(what, "make") == 0)
        return make(&o);
    if (strcmp(what, "algos") == 0)
        return algos(&o);
    const char *near = out_nearest(what, words, 4);
    return out_error("plan", "there is no \"%s\"; legal are show verify make algos%s%s%s", what, near ? "; did you mean \"" : "",
                     near ? near : "", near ? "\"?" : "");
}
