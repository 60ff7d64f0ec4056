/* SPDX-License-Identifier: Apache-2.0 */
/* run_options.c - the command line of `unisono run`: options, the list of hosts, and which ranks go where. */
#include "run.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

const char *const run_bind_names[BIND_COUNT] = {"auto", "none", "core", "numa"};

enum { OPT_BIND = 256, OPT_SHOW_BIND, OPT_HOSTS, OPT_TAG, OPT_LAUNCHER, OPT_AGENT, OPT_AGENT_PROGRAM, OPT_PORT, OPT_GRACE,
       OPT_START, OPT_KEEP_GOING };
static const struct option options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"np", required_argument, NULL, 'n'},
    {"bind", required_argument, NULL, OPT_BIND},
    {"show-bind", no_argument, NULL, OPT_SHOW_BIND},
    {"hosts", required_argument, NULL, OPT_HOSTS},
    {"tag", no_argument, NULL, OPT_TAG},
    {"launcher", required_argument, NULL, OPT_LAUNCHER},
    {"agent-program", required_argument, NULL, OPT_AGENT_PROGRAM},
    {"agent", no_argument, NULL, OPT_AGENT},
    {"port", required_argument, NULL, OPT_PORT},
    {"grace", required_argument, NULL, OPT_GRACE},
    {"start-timeout", required_argument, NULL, OPT_START},
    {"keep-going", no_argument, NULL, OPT_KEEP_GOING},
    {"env", required_argument, NULL, 'x'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

void run_usage(void)
{
    printf(
        "usage: unisono run -n RANKS [options] [--] PROGRAM [ARGUMENTS]\n\n"
        "Starts RANKS processes of PROGRAM, on this host or on several, and stays until all have ended. When one fails, all are\n"
        "ended and its exit status is returned (128 + signal). Signals are passed on; a second SIGINT kills.\n\n"
        "  -n, --ranks N          number of ranks (default: all places that --hosts offers)\n"
        "      --hosts A:4,B:4    hosts and how many ranks each takes; the first one holds rank 0\n"
        "      --launcher 'CMD'   command that runs another on a host, {host} stands for its name (default: ssh)\n"
        "      --agent-program P  path of unisono on the other hosts (default: as here)\n"
        "  -x, --env NAME[=VALUE] variable for ranks on other hosts too (UNISONO_, NCCL_, RCCL_, OMP_, MKL_, TORCH_, PATH,\n"
        "                         LD_LIBRARY_PATH, PYTHONPATH and VIRTUAL_ENV go by themselves)\n"
        "      --bind WORD        none, core (an equal share of whole cores), numa (processors and memory of a node) or auto\n"
        "      --show-bind        print which rank runs where\n"
        "      --tag              put the rank in front of each line of output\n"
        "      --keep-going       do not end the others when a rank fails\n"
        "      --grace SECONDS    between SIGTERM and SIGKILL when the job is ended (default 3)\n"
        "      --start-timeout S  how long hosts may take to answer (default 60)\n"
        "      --port N           port where rank 0 is met (default: any free one)\n\n"
        "Example: unisono run -n 4 -- unisono perf all_reduce -b 8 -e 64M -f 4\n");
}

static int parse_seconds(const char *name, const char *text, double *seconds)
{
    char *end;
    *seconds = strtod(text, &end);
    if (end == text || *end || !(*seconds >= 0 && *seconds <= 1e6))
        return out_error("run", "%s %s: not a time; write seconds, such as 2.5", name, text);
    return 0;
}

static int parse_host(struct run_options *opt, char *text)
{
    int64_t slots = 1;
    char *colon = strrchr(text, ':'), *bracket = strchr(text, ']');
    if (colon && (!bracket || colon > bracket)) {
        if (!out_parse_int(colon + 1, 1, RUN_MOST_RANKS, &slots))
            return out_error("run", "--hosts: \"%s\" has no number of ranks after the colon, from 1 to %d; write it as nodeA:4", text, RUN_MOST_RANKS);
        *colon = 0;
    }
    if (text[0] == '[' && bracket && bracket[1] == 0) { /* an IPv6 address in brackets */
        *bracket = 0;
        text++;
    }
    if (*text == 0 || *text == '-')
        return out_error("run", "--hosts: \"%s\" is not a host; write them as nodeA:4,nodeB:4", text);
    for (int i = 0; i < opt->nhosts; i++)
        if (strcmp(opt->hosts[i].name, text) == 0)
            return out_error("run", "--hosts names \"%s\" twice; give it once with the sum of its ranks", text);
    struct run_host *hosts = realloc(opt->hosts, ((size_t)opt->nhosts + 1) * sizeof *hosts);
    if (!hosts)
        return out_error("run", "no memory");
    opt->hosts = hosts;
    hosts[opt->nhosts] = (struct run_host){.name = strdup(text), .slots = (int)slots};
    return hosts[opt->nhosts++].name ? 0 : out_error("run", "no memory");
}

static int parse_hosts(struct run_options *opt, const char *list)
{
    char *copy = strdup(list), *save = NULL;
    int rc = copy ? 0 : out_error("run", "no memory");
    for (char *word = copy ? strtok_r(copy, ",", &save) : NULL; word && rc == 0; word = strtok_r(NULL, ",", &save))
        rc = parse_host(opt, word);
    free(copy);
    if (rc == 0 && opt->nhosts == 0)
        rc = out_error("run", "--hosts is empty; write it as nodeA:4,nodeB:4");
    opt->remote = true;
    return rc;
}

static int parse_one(struct run_options *opt, int letter, char *arg)
{
    int64_t number;
    switch (letter) {
    case 'n':
        if (!out_parse_int(arg, 1, RUN_MOST_RANKS, &number))
            return out_error("run", "-n %s: legal is a number of ranks from 1 to %d", arg, RUN_MOST_RANKS);
        opt->nranks = (int)number;
        return 0;
    case 'x': {
        char **env = realloc(opt->env, ((size_t)opt->nenv + 1) * sizeof *env);
        if (!env)
            return out_error("run", "no memory");
        opt->env = env;
        env[opt->nenv++] = arg;
        return *arg == '=' || *arg == 0 ? out_error("run", "-x \"%s\": no name before the =", arg) : 0;
    }
    case OPT_BIND:
        for (int i = 0; i < BIND_COUNT; i++)
            if (strcmp(arg, run_bind_names[i]) == 0) {
                opt->bind = (enum run_bind)i;
                return 0;
            }
        return out_error("run", "--bind %s: legal are none, core, numa and auto", arg);
    case OPT_HOSTS:
        return opt->nhosts ? out_error("run", "--hosts was given twice") : parse_hosts(opt, arg);
    case OPT_LAUNCHER:
        opt->launcher = arg;
        return strstr(arg, "{host}") ? 0 : out_error("run", "--launcher '%s' does not contain {host}, which stands for the host's name", arg);
    case OPT_PORT:
        if (!out_parse_int(arg, 1, 65535, &number))
            return out_error("run", "--port %s: not a port from 1 to 65535", arg);
        opt->port = (int)number;
        return 0;
    case OPT_GRACE:
        return parse_seconds("--grace", arg, &opt->grace_s);
    case OPT_START:
        return parse_seconds("--start-timeout", arg, &opt->start_s);
    case OPT_AGENT_PROGRAM:
        opt->agent_program = arg;
        return 0;
    case OPT_SHOW_BIND:
        opt->show_bind = true;
        return 0;
    case OPT_TAG:
        opt->tag = true;
        return 0;
    case OPT_KEEP_GOING:
        opt->keep_going = true;
        return 0;
    case OPT_AGENT:
        opt->agent = true;
        return 0;
    default:
        opt->help = true;
        return 0;
    }
}

static int unknown_option(const char *word)
{
    const char *names[sizeof options / sizeof *options];
    size_t n = 0;
    for (; options[n].name; n++)
        names[n] = options[n].name;
    const char *near = word[0] == '-' && word[1] == '-' ? out_nearest(word + 2, names, n) : NULL;
    if (near)
        return out_error("run", "there is no option %s; did you mean --%s?", word, near);
    return out_error("run", "there is no option %s; `unisono run --help` lists them", word);
}

/* Deal the ranks to hosts in order. */
static int place_ranks(struct run_options *opt)
{
    if (!opt->remote) {
        if (opt->launcher)
            return out_error("run", "--launcher is for other hosts; name them with --hosts");
        if (opt->nranks == 0)
            return out_error("run", "how many ranks? Say it with -n, such as -n 4");
        char name[HOST_NAME_MAX + 1] = "localhost";
        gethostname(name, sizeof name - 1);
        opt->hosts = calloc(1, sizeof *opt->hosts);
        if (!opt->hosts)
            return out_error("run", "no memory");
        opt->nhosts = 1;
        opt->hosts[0] = (struct run_host){.name = strdup(name), .slots = opt->nranks, .n = opt->nranks};
        return opt->hosts[0].name ? 0 : out_error("run", "no memory");
    }
    long places = 0;
    for (int i = 0; i < opt->nhosts; i++)
        places += opt->hosts[i].slots;
    if (opt->nranks > places)
        return out_error("run", "-n %d: --hosts has places for %ld ranks on %d hosts; add hosts, or raise the numbers after the colons",
                         opt->nranks, places, opt->nhosts);
    if (opt->nranks == 0 && places > RUN_MOST_RANKS)
        return out_error("run", "--hosts has places for more than %d ranks; say with -n how many there shall be", RUN_MOST_RANKS);
    if (opt->nranks == 0)
        opt->nranks = (int)places;
    int next = 0;
    for (int i = 0; i < opt->nhosts; i++) {
        struct run_host *h = &opt->hosts[i];
        int left = opt->nranks - next;
        h->first = next;
        h->n = h->slots < left ? h->slots : left;
        next += h->n;
    }
    while (opt->nhosts > 1 && opt->hosts[opt->nhosts - 1].n == 0)
        free(opt->hosts[--opt->nhosts].name);
    return 0;
}

int run_parse(int argc, char **argv, struct run_options *opt)
{
    *opt = (struct run_options){.grace_s = 3, .start_s = 60};
    opterr = 0;
    optind = 0; /* start afresh: main may have used getopt before */
    for (int letter, at = 1; (letter = getopt_long(argc, argv, "+:n:x:h", options, NULL)) != -1; at = optind) {
        int rc = 0;
        if (letter == '?')
            rc = unknown_option(argv[at]);
        else if (letter == ':')
            rc = out_error("run", "%s needs a value; `unisono run --help` says which", argv[at]);
        else if (letter == 'n' && optarg == argv[at] + 2 && strcmp(argv[at], "-np") == 0 && optind < argc)
            rc = parse_one(opt, 'n', argv[optind++]); /* as mpirun spells it */
        else
            rc = parse_one(opt, letter, optarg);
        if (rc != 0 || opt->help || opt->agent)
            return rc;
    }
    opt->args = argv + optind;
    if (optind >= argc)
        return out_error("run", "which program? Give it after the options, such as: unisono run -n 4 -- ./program");
    return place_ranks(opt);
}

void run_options_free(struct run_options *opt)
{
    for (int i = 0; i < opt->nhosts; i++)
        free(opt->hosts[i].name);
    free(opt->hosts);
    free(opt->env);
}
