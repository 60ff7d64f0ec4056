/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_plans.c - reads the cases of a directory (README.md there says how they look), asks verify for each verdict and lets
 * the reference interpreter show the fault, or run many schedules without one. Prints one line a check that failed.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "planner/planner.h"
#include "ref/ref_try.h"

#define MAX_CHECKS 32

struct check {
    enum ref_place place;
    bool lent;
    int k;
    char kind[16], shows[16];
    int rank, lane, step;   /* -2: not said */
};
struct plan_case {
    const char *file;
    struct check checks[MAX_CHECKS];
    int nchecks;
    struct plan *plan;
    char refused[512];      /* why the reader refused it */
};

static int failures, checks_made, cases;
static int seeds_healthy = 60, seeds_faulty = 2000;

static void complain(const struct plan_case *c, const struct check *k, const char *fmt, ...) UNO_PRINTF(3, 4);
static void complain(const struct plan_case *c, const struct check *k, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    static const char *const places[] = {"out_of_place", "in_place", "mixed"};
    printf("%s: ", c->file);
    if (k)
        printf("%s %s k=%d: ", places[k->place], k->lent ? "lent" : "copied", k->k);
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
    failures++;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static void read_verdict(struct plan_case *c, const char *line)
{
    struct check k = {.rank = -2, .lane = -2, .step = -2};
    char place[16], memory[8];
    int at = 0;
    if (c->nchecks == MAX_CHECKS || sscanf(line, "verdict %15s %7s k=%d: %15s%n", place, memory, &k.k, k.kind, &at) != 4) {
        complain(c, NULL, "cannot read \"%s\"", line);
        return;
    }
    k.place = strcmp(place, "in_place") == 0 ? REF_IN_PLACE : strcmp(place, "mixed") == 0 ? REF_MIXED : REF_OUT_OF_PLACE;
    k.lent = strcmp(memory, "lent") == 0;
    const char *where = strstr(line + at, "at "), *shows = strstr(line + at, "shows ");
    if (where && sscanf(where, "at %d/%d/%d", &k.rank, &k.lane, &k.step) != 3)
        complain(c, NULL, "cannot read where in \"%s\"", line);
    if (shows)
        sscanf(shows, "shows %15s", k.shows);
    c->checks[c->nchecks++] = k;
}

static void make_plan(struct plan_case *c, char *line)
{
    struct plan_params p = {.channels = 1};
    int hosts[64] = {0};
    char coll[32];
    if (sscanf(line, "make %31s %15s %d", coll, p.algo, &p.nranks) != 3 || coll_parse(coll, &p.coll) != UNO_OK) {
        complain(c, NULL, "cannot read \"%s\"", line);
        return;
    }
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
        sscanf(word, "channels=%d", &p.channels);
        sscanf(word, "root=%d", &p.root);
        char *at = strncmp(word, "hosts=", 6) == 0 ? word + 6 : NULL;
        for (int r = 0; at && *at && r < 64; r++)
            hosts[r] = (int)strtol(at, &at, 10), at += *at == ',';
    }
    p.host_of = hosts;
    if (planner_make(&p, &c->plan) != UNO_OK)
        complain(c, NULL, "%s", err_text());
}

static void read_case(struct plan_case *c, char *text)
{
    for (char *line = text, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        if (strcmp(line, "plan") == 0 && end) {
            if (plan_from_json(end, strlen(end), c->file, &c->plan) != UNO_OK)
                snprintf(c->refused, sizeof c->refused, "%s", err_text());
            return;
        }
        if (strncmp(line, "verdict ", 8) == 0)
            read_verdict(c, line);
        else if (strncmp(line, "make ", 5) == 0)
            make_plan(c, line);
        else if (*line && *line != '#')
            complain(c, NULL, "cannot read \"%s\"", line);
    }
}

/* ---- checking ------------------------------------------------------------------------------------------------- */

static void check_schedules(const struct plan_case *c, const struct check *k)
{
    static const char *const names[] = {"nothing", "stuck", "wrong_data"};
    bool healthy = strcmp(k->kind, "ok") == 0;
    struct ref_case trial = {.plan = c->plan, .place = k->place, .lent = k->lent, .k = k->k, .seed = 1};
    enum ref_fault fault;
    char why[400] = "";
    if (!healthy && !*k->shows)
        return;
    if (ref_try_many(trial, healthy ? seeds_healthy : seeds_faulty, &fault, why, sizeof why) != UNO_OK)
        complain(c, k, "%s", err_text());
    else if (strcmp(names[fault], healthy ? "nothing" : k->shows) != 0)
        complain(c, k, "the interpreter shows %s (%s), not %s", names[fault], why, healthy ? "nothing" : k->shows);
}

/* What a job asks. lent: also without falling back on copies. */
static void check_use(const struct plan_case *c, const struct check *k)
{
    char kind[20];
    snprintf(kind, sizeof kind, "(%s)", k->kind);
    uno_err err = verify_for_use(c->plan, k->k);
    if (err != UNO_OK ? !strstr(err_text(), kind) : strcmp(k->kind, "ok") != 0)
        complain(c, k, "expected %s, verify says %s", k->kind, err == UNO_OK ? "ok" : err_text());
    if (err == UNO_OK && k->lent == c->plan->copies_only)
        complain(c, k, "copies_only is %d", c->plan->copies_only);
    check_schedules(c, k);
}

static void check_one(const struct plan_case *c, const struct check *k)
{
    checks_made++;
    if (*c->refused || strcmp(k->kind, "parse") == 0) {
        if (!*c->refused || strcmp(k->kind, "parse") != 0)
            complain(c, k, "expected %s, the reader says: %s", k->kind, *c->refused ? c->refused : "a plan");
        return;
    }
    if (k->place == REF_MIXED) {
        check_use(c, k);
        return;
    }
    struct verify_options opt = {.k = k->k, .in_place = k->place == REF_IN_PLACE, .lent = k->lent};
    struct verify_result r;
    if (verify_plan(c->plan, &opt, &r) != UNO_OK) {
        complain(c, k, "%s", err_text());
        return;
    }
    if (strcmp(verify_kind_names[r.kind], k->kind) != 0)
        complain(c, k, "expected %s, verify says %s: %s", k->kind, verify_kind_names[r.kind], r.reason);
    else if (k->rank != -2 && (r.rank != k->rank || r.lane != k->lane || r.step != k->step))
        complain(c, k, "expected at %d/%d/%d, verify says %d/%d/%d: %s", k->rank, k->lane, k->step, r.rank, r.lane, r.step,
                 r.reason);
    else if (getenv("V"))
        printf("%s: %s\n", c->file, r.kind == VERIFY_OK ? "ok" : r.reason);
    if (r.kind != VERIFY_BOUNDS && r.kind != VERIFY_CONNECTION)
        check_schedules(c, k);
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return NULL;
    char *text = calloc(1, 1 << 20);
    size_t n = text ? fread(text, 1, (1 << 20) - 1, f) : 0;
    fclose(f);
    if (text)
        text[n] = 0;
    return text;
}

static void run_case(struct plan_case *c, char *text)
{
    cases++;
    read_case(c, text);
    if (c->plan && verify_label_shapes(c->plan) != UNO_OK)
        complain(c, NULL, "%s", err_text());
    if (c->nchecks == 0 || (!c->plan && !*c->refused))
        complain(c, NULL, "has no verdict or no plan");
    for (int i = 0; i < c->nchecks && (c->plan || *c->refused); i++)
        check_one(c, &c->checks[i]);
    plan_free(c->plan);
}

static void run_case_file(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    struct plan_case c = {.file = name};
    char *text = read_file(path);
    if (text)
        run_case(&c, text);
    else
        complain(&c, NULL, "cannot be read");
    free(text);
}

/* imports.expect: "import FILE", then its verdicts, then the next. Big plans: fewer schedules. */
static void run_imports(const char *dir)
{
    char path[1024], name[256];
    snprintf(path, sizeof path, "%s/imports.expect", dir);
    char *text = read_file(path);
    seeds_healthy = 3;
    seeds_faulty = 300;
    for (char *at = text ? strstr(text, "import ") : NULL, *next; at; at = next) {
        next = strstr(at + 1, "\nimport ");
        if (next)
            *next++ = 0;
        char *verdicts = strchr(at, '\n');
        struct plan_case c = {.file = name};
        if (sscanf(at, "import %255s", name) != 1 || !verdicts)
            break;
        snprintf(path, sizeof path, "%s/imports/%s", dir, name);
        if (plan_from_file(path, &c.plan) != UNO_OK)
            snprintf(c.refused, sizeof c.refused, "%s", err_text());
        run_case(&c, verdicts + 1);
    }
    free(text);
}

static int is_case(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return dot && strcmp(dot, ".plan") == 0;
}

int main(int argc, char **argv)
{
    struct dirent **names;
    bool imports = argc > 1 && strcmp(argv[1], "--imports") == 0;
    const char *dir = argc > 1 + imports ? argv[1 + imports] : NULL;
    int n = dir && !imports ? scandir(dir, &names, is_case, alphasort) : 0;
    if (!dir || n < 0) {
        fprintf(stderr, "usage: run_plans [--imports] DIRECTORY [CASE...]\n");
        return 2;
    }
    if (imports)
        run_imports(dir);
    for (int i = 0; i < n; i++) {
        bool wanted = argc == 2;
        for (int a = 2; a < argc; a++)
            wanted |= strstr(names[i]->d_name, argv[a]) != NULL;
        if (wanted)
            run_case_file(dir, names[i]->d_name);
        free(names[i]);
    }
    if (n > 0)
        free(names);
    printf("%d cases, %d checks, %d failures\n", cases, checks_made, failures);
    return failures > 0 || cases == 0;
}
