/* SPDX-License-Identifier: Apache-2.0 */
/* perf_options.c - the command line of `unisono perf`, from the table perf_options.def. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "output.h"
#include "perf.h"

enum {
#define OPTION(id, letter, name, arg, help) OPT_##id,
#include "perf_options.def"
#undef OPTION
    OPTIONS
};

static const struct row { int letter; const char *name, *arg, *help; } rows[OPTIONS] = {
#define OPTION(id, letter, name, arg, help) {letter, name, arg, help},
#include "perf_options.def"
#undef OPTION
};
enum { DEFAULT_BYTES = 32 << 20 };
enum { FIRST_CODE = 1000 }; /* getopt's value of row i is FIRST_CODE + i for the long name */

static void print_option(const struct row *row)
{
    char left[64];
    int n = row->letter ? snprintf(left, sizeof left, "  -%c, ", row->letter) : snprintf(left, sizeof left, "      ");
    snprintf(left + n, sizeof left - (size_t)n, "--%s%s%s", row->name, row->arg && row->arg[0] != '[' ? " " : "",
             row->arg ? row->arg : "");
    printf("%-32s", left);
    /* Wrap the help text at 118 columns. */
    size_t column = 32;
    for (const char *word = row->help; *word;) {
        size_t length = strcspn(word, " ");
        if (column + length > 118) {
            printf("\n%32s", "");
            column = 32;
        }
        printf(" %.*s", (int)length, word);
        column += length + 1;
        word += length;
        word += *word == ' ';
    }
    putchar('\n');
}

static void print_help(void)
{
    printf("usage: unisono perf [COLLECTIVE] [options]        also installed as COLLECTIVE_perf\n\n"
           "Measures a collective at every size, checks every element of every result, and prints nccl-tests' table.\n"
           "Collectives:");
    for (int i = 0; i < perf_coll_count; i++)
        printf(" %s", perf_colls[i].name);
    printf("\n\nRanks: those of the launcher (unisono run, torchrun, srun, mpirun) if there is one; else --ranks N processes or\n"
           "-t x -g threads; else as many processes as processors, at least 2 and at most 4.\n\n"
           "Options of nccl-tests [default]:\n");
    for (int i = 0; i < OPTIONS; i++) {
        print_option(&rows[i]);
        if (i == OPT_HELP)
            printf("\nUnisono's own; what they show stands in lines with # after the table:\n");
    }
    printf("\nExit status: 0 good, 1 wrong results (or less than 0.9 x NCCL_TESTS_MIN_BW), 2 an error or a bad option.\n");
}

/* The option as the user knows it: "-n" or "--ranks". */
static const char *option_words(int id)
{
    static char words[40];
    if (rows[id].letter)
        snprintf(words, sizeof words, "-%c (--%s)", rows[id].letter, rows[id].name);
    else
        snprintf(words, sizeof words, "--%s", rows[id].name);
    return words;
}

static bool bad(int id, const char *arg, const char *legal)
{
    out_error("perf", "%s %s: legal is %s", option_words(id), arg, legal);
    return false;
}

static bool parse_size(int id, const char *arg, uint64_t *to)
{
    return out_parse_bytes(arg, to) || bad(id, arg, "a number of bytes, such as 8, 64K, 1.5M or 2G");
}

static bool parse_number(int id, const char *arg, int64_t min, int64_t max, int *to)
{
    int64_t value;
    char legal[64];
    snprintf(legal, sizeof legal, "a whole number from %lld to %lld", (long long)min, (long long)max);
    if (!out_parse_int(arg, min, max, &value))
        return bad(id, arg, legal);
    *to = (int)value;
    return true;
}

static bool parse_flag(int id, const char *arg, bool *to)
{
    int value;
    if (!parse_number(id, arg, 0, 1, &value))
        return false;
    *to = value;
    return true;
}

static void note(struct perf_options *o, int id, const char *text)
{
    size_t n = strlen(o->notes);
    snprintf(o->notes + n, sizeof o->notes - n, "# %s: %s\n", option_words(id), text);
}

static bool parse_words(int id, const char *arg, struct perf_options *o)
{
    bool all = strcmp(arg, "all") == 0;
    switch (id) {
    case OPT_OP:
        o->op = all ? PERF_ALL : perf_op_parse(arg);
        return all || o->op >= 0 || bad(id, arg, "one of sum prod min max avg mulsum band bor bxor all");
    case OPT_TYPE:
        o->type = all ? PERF_ALL : perf_type_parse(arg);
        return all || o->type >= 0 ||
               bad(id, arg, "one of int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 int16 "
                            "uint16 bool complex64 complex128 all");
    case OPT_ROOT:
        if (all) {
            o->root = PERF_ALL;
            return true;
        }
        return parse_number(id, arg, -1, 1 << 20, &o->root);
    case OPT_BIND:
        o->bind_both = strcmp(arg, "both") == 0;
        o->bind = o->bind_both || strcmp(arg, "core") == 0;
        return o->bind || strcmp(arg, "none") == 0 || bad(id, arg, "core, none, or with --sweep both");
    default: /* OPT_MEMORY; nccl-tests' long name of -M is the same word with a flag */
        if (strcmp(arg, "0") == 0 || strcmp(arg, "1") == 0)
            return parse_flag(OPT_MEM_REPORT, arg, &o->memory_report);
        o->shared_memory = strcmp(arg, "shared") == 0;
        return o->shared_memory || strcmp(arg, "ordinary") == 0 || bad(id, arg, "ordinary, shared, or 0 or 1 as for -M");
    }
}

static bool parse_timeout(int id, const char *arg, double *to)
{
    char *end;
    *to = strtod(arg, &end);
    return (end != arg && *end == 0 && *to >= 0 && *to <= 1e9) || bad(id, arg, "a number of seconds, 0 = no limit of our own");
}

/* Options that mean something only for devices. */
static bool parse_device(int id, const char *arg, struct perf_options *o)
{
    int value;
    if (!parse_number(id, arg, 0, 1 << 20, &value))
        return false;
    if (id == OPT_DEVICE && value > 0)
        return bad(id, arg, "0: unisono moves host memory and has no device kernels");
    if (value > 0)
        note(o, id, id == OPT_GRAPH ? "has no meaning for host memory; calls are made one by one"
                                    : "has no meaning for host memory");
    return true;
}

/* "2,4,8": at most 8 numbers. */
static bool parse_list(int id, const char *arg, int least, int *numbers, int *count)
{
    enum { MOST = 8 };
    const char *legal = least > 1 ? "1 to 8 numbers from 2 to 1024 with commas between them" : "1 to 8 numbers from 1 to 64 with commas between them";
    *count = 0;
    for (const char *s = arg;; s++) {
        char *end;
        long value = strtol(s, &end, 10);
        if (*count == MOST || end == s || (*end && *end != ',') || *s == '+' || value < least || value > (least > 1 ? 1024 : 64))
            return bad(id, arg, legal);
        numbers[(*count)++] = (int)value;
        if (!*end)
            return true;
        s = end;
    }
}

static bool parse_option(int id, const char *arg, struct perf_options *o)
{
    const int64_t many = 1 << 30;
    int value;
    switch (id) {
    case OPT_THREADS:    return parse_number(id, arg, 1, 1024, &o->threads);
    case OPT_PER_THREAD: return parse_number(id, arg, 1, 1024, &o->per_thread);
    case OPT_RANKS:      return parse_number(id, arg, 1, 1024, &o->ranks);
    case OPT_MIN_BYTES:  return parse_size(id, arg, &o->min_bytes);
    case OPT_MAX_BYTES:  return parse_size(id, arg, &o->max_bytes);
    case OPT_STEP_BYTES: return parse_size(id, arg, &o->step_bytes);
    case OPT_FACTOR:     return parse_number(id, arg, 0, many, &o->step_factor);
    case OPT_ITERS:      return parse_number(id, arg, 1, many, &o->iters);
    case OPT_AGG_ITERS:  return parse_number(id, arg, 1, 1 << 16, &o->agg_iters);
    case OPT_WARMUP:     return parse_number(id, arg, 0, many, &o->warmup);
    case OPT_CYCLES:     return parse_number(id, arg, 0, many, &o->cycles);
    case OPT_CHECK:      return parse_number(id, arg, 0, many, &o->check);
    case OPT_BLOCKING:   return parse_number(id, arg, 0, 3, &o->blocking);
    case OPT_UNALIGN:    return parse_number(id, arg, 0, 1 << 20, &o->unalign);
    case OPT_PER_SKIP:   return parse_number(id, arg, 0, many, &o->per_iter_skip);
    case OPT_PAR_INIT:   return parse_flag(id, arg, &o->parallel_init);
    case OPT_CPU_TIME:   return parse_flag(id, arg, &o->cpu_time);
    case OPT_STAMPS:     return parse_flag(id, arg, &o->stamps);
    case OPT_MEM_REPORT: return parse_flag(id, arg, &o->memory_report);
    case OPT_PER_ITER:   return parse_flag(id, arg, &o->per_iter);
    case OPT_TIMEOUT:    return parse_timeout(id, arg, &o->timeout_s);
    case OPT_OP:
    case OPT_TYPE:
    case OPT_ROOT:
    case OPT_BIND:
    case OPT_MEMORY:     return parse_words(id, arg, o);
    case OPT_GRAPH:
    case OPT_CTA_POLICY:
    case OPT_DEVICE:
    case OPT_DEVICE_CTA: return parse_device(id, arg, o);
    case OPT_STREAM_NULL:
        if (!parse_number(id, arg, 0, 1, &value))
            return false;
        o->use_stream = value == 0;
        return true;
    case OPT_REGISTER:
        if (!parse_number(id, arg, 0, 2, &value))
            return false;
        o->shared_memory |= value > 0;
        return true;
    case OPT_AVERAGE:
        if (!parse_number(id, arg, 0, 3, &value))
            return false;
        o->average = (enum perf_average)value;
        return true;
    case OPT_OUTPUT:
        o->output_file = arg;
        return (strlen(arg) > 5 && strcmp(arg + strlen(arg) - 5, ".json") == 0) || bad(id, arg, "a name that ends in .json");
    case OPT_COLD:
    case OPT_WARM:
        if (o->buffers != BUFFERS_SHIFTED && o->buffers != (id == OPT_COLD ? BUFFERS_COLD : BUFFERS_WARM)) {
            out_error("perf", "--cold and --warm exclude each other");
            return false;
        }
        o->buffers = id == OPT_COLD ? BUFFERS_COLD : BUFFERS_WARM;
        return true;
    case OPT_JSON:        o->json_file = arg; return true;
    case OPT_LIMIT:       o->limit = true; return true;
    case OPT_EXPLAIN:
        o->explain = !arg ? EXPLAIN_SIZES : strcmp(arg, "all") == 0 ? EXPLAIN_ALL : strcmp(arg, "line") == 0 ? EXPLAIN_LINE : EXPLAIN_NOT;
        return o->explain != EXPLAIN_NOT || bad(id, arg, "line, all, or nothing");
    case OPT_SWEEP:
        o->sweep = true;
        return !arg || parse_list(id, arg, 2, o->sweep_ranks, &o->sweep_ranks_count);
    case OPT_COMMUNICATORS:
        return parse_list(id, arg, 1, o->sweep_comms, &o->sweep_comms_count);
    case OPT_PLOT:        o->plot_file = arg; return true;
    case OPT_CHOICES:     o->choices = true; return true;
    case OPT_PERCENTILES: o->percentiles = true; return true;
    default:              return true;
    }
}

static void unknown_option(const char *word)
{
    const char *names[OPTIONS];
    for (int i = 0; i < OPTIONS; i++)
        names[i] = rows[i].name;
    const char *near = strncmp(word, "--", 2) == 0 ? out_nearest(word + 2, names, OPTIONS) : NULL;
    if (near)
        out_error("perf", "there is no option %s; did you mean --%s?", word, near);
    else
        out_error("perf", "there is no option %s; \"unisono perf --help\" lists them", word);
}

/* The collective of a name like "/usr/bin/all_reduce_perf", or the first word; the default is all_reduce. */
static bool choose_coll(struct perf_options *o, const char *program, int words, char **word)
{
    const char *base = strrchr(program, '/');
    base = base ? base + 1 : program;
    if (strstr(base, "_perf"))
        o->coll = perf_coll_find(base);
    const char *given = strstr(base, "_perf") ? base : words > 0 ? word[0] : NULL;
    int used = 0;
    if (!o->coll && given == base) {
        out_error("perf", "the program's name \"%s\" names no collective", base);
        return false;
    }
    if (!o->coll) {
        o->coll = perf_coll_find(given ? given : "all_reduce");
        used = words > 0;
    }
    if (!o->coll) {
        const char *names[32];
        for (int i = 0; i < perf_coll_count; i++)
            names[i] = perf_colls[i].name;
        const char *near = out_nearest(given, names, (size_t)perf_coll_count);
        if (near)
            out_error("perf", "there is no collective \"%s\"; did you mean %s?", given, near);
        else
            out_error("perf", "there is no collective \"%s\"; \"unisono perf --help\" lists them", given);
        return false;
    }
    if (words > used) {
        out_error("perf", "\"%s\" is one word too many; the collective is %s", word[used], o->coll->name);
        return false;
    }
    return true;
}

static bool check_together(const struct perf_options *o)
{
    if (o->min_bytes > o->max_bytes)
        out_error("perf", "the smallest size (-b %llu) is more than the largest (-e %llu)", (unsigned long long)o->min_bytes,
                  (unsigned long long)o->max_bytes);
    else if (o->step_factor <= 1 && o->step_bytes == 0 && o->min_bytes < o->max_bytes)
        out_error("perf", "a step of 0 bytes (-i 0) never gets from -b to -e; give -i SIZE or -f N");
    else if (o->ranks && (o->threads || o->per_thread))
        out_error("perf", "ranks are either processes (--ranks) or threads (-t, -g), not both");
    else if (!o->sweep && (o->plot_file || o->sweep_comms_count || o->bind_both))
        out_error("perf", "%s belongs to --sweep", o->plot_file ? "--plot" : o->bind_both ? "--bind both" : "--communicators");
    else if (o->sweep && (o->ranks || o->threads || o->per_thread || o->type == PERF_ALL))
        out_error("perf", "--sweep starts its ranks itself and wants one type: give the numbers of ranks as --sweep=2,4");
    else if (o->per_iter && o->per_iter_skip >= o->iters)
        out_error("perf", "-K %d leaves out all of -n %d iterations", o->per_iter_skip, o->iters);
    else
        return true;
    return false;
}

static void set_defaults(struct perf_options *o, bool bare)
{
    *o = (struct perf_options){.min_bytes = DEFAULT_BYTES, .max_bytes = DEFAULT_BYTES, .step_bytes = 1 << 20, .step_factor = 1,
                               .iters = 20, .agg_iters = 1, .warmup = 1, .cycles = 1, .check = 1, .op = UNO_SUM,
                               .type = UNO_FLOAT32, .average = AVERAGE_MEAN, .bind = true};
    if (bare) { /* asked for nothing: show what there is to see, quickly */
        o->first_look = o->limit = true;
        o->explain = EXPLAIN_LINE;
        o->min_bytes = 8;
        o->max_bytes = 16 << 20;
        o->step_factor = 8;
    }
}

enum options_answer perf_options_parse(int argc, char **argv, struct perf_options *o)
{
    struct option longs[OPTIONS + 1] = {0};
    char letters[3 * OPTIONS + 2] = ":"; /* ':' first: a missing argument is told apart */
    for (int i = 0; i < OPTIONS; i++) {
        int takes = !rows[i].arg ? no_argument : rows[i].arg[0] == '[' ? optional_argument : required_argument;
        longs[i] = (struct option){rows[i].name, takes, NULL, FIRST_CODE + i};
        if (rows[i].letter) {
            size_t n = strlen(letters);
            snprintf(letters + n, sizeof letters - n, "%c%s", rows[i].letter, rows[i].arg ? ":" : "");
        }
    }
    set_defaults(o, argc == 1 && !strstr(argv[0], "_perf"));
    opterr = 0;
    optind = 0; /* glibc: start anew */
    for (int code; (code = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        int id = code - FIRST_CODE;
        for (int i = 0; i < OPTIONS && code < FIRST_CODE; i++)
            if (rows[i].letter == code)
                id = i;
        if (code == ':') {
            out_error("perf", "%s needs a value", argv[optind - 1]);
            return OPTIONS_BAD;
        }
        if (code == '?' || id < 0) {
            char letter[3] = {'-', (char)optopt, 0};
            unknown_option(optopt && optopt < FIRST_CODE ? letter : argv[optind - 1]);
            return OPTIONS_BAD;
        }
        if (id == OPT_HELP) {
            print_help();
            return OPTIONS_DONE;
        }
        if (!parse_option(id, optarg, o))
            return OPTIONS_BAD;
    }
    if (o->sweep && o->sweep_comms_count == 0) {
        o->sweep_comms[0] = 1;
        o->sweep_comms[1] = 2;
        o->sweep_comms_count = 2;
    }
    if (o->sweep && o->min_bytes == DEFAULT_BYTES && o->max_bytes == DEFAULT_BYTES) {
        o->min_bytes = 64;
        o->max_bytes = 16 << 20;
        o->step_factor = 4;
    }
    if (!choose_coll(o, argv[0], argc - optind, argv + optind) || !check_together(o) || !perf_split_parse(o) ||
        (o->coll == perf_coll_find("alltoallv") && !perf_pairs_load(o)))
        return OPTIONS_BAD;
    return OPTIONS_RUN;
}
