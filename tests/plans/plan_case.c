/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_case.c - see plan_case.h: reads cases, makes or imports their plans, and says what failed, one line each.
 */
#include "plan_case.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

int plan_case_failures, plan_cases;

void complain(const struct plan_case *c, const struct check *k, const char *fmt, ...)
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
    plan_case_failures++;
}

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

static void run_case(struct plan_case *c, char *text, void (*check_case)(struct plan_case *c))
{
    plan_cases++;
    read_case(c, text);
    if (c->plan && verify_label_shapes(c->plan) != UNO_OK)
        complain(c, NULL, "%s", err_text());
    if (c->nchecks == 0 || (!c->plan && !*c->refused))
        complain(c, NULL, "has no verdict or no plan");
    if (c->plan || *c->refused)
        check_case(c);
    plan_free(c->plan);
}

static void run_case_file(const char *dir, const char *name, void (*check_case)(struct plan_case *c))
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    struct plan_case c = {.file = name};
    char *text = read_file(path);
    if (text)
        run_case(&c, text, check_case);
    else
        complain(&c, NULL, "cannot be read");
    free(text);
}

/* imports.expect: "import FILE", then its verdicts, then the next. */
void each_import(const char *dir, void (*check_case)(struct plan_case *c))
{
    char path[1024], name[256];
    snprintf(path, sizeof path, "%s/imports.expect", dir);
    char *text = read_file(path);
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
        run_case(&c, verdicts + 1, check_case);
    }
    free(text);
}

static int is_case(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return dot && strcmp(dot, ".plan") == 0;
}

bool each_plan_case(const char *dir, char **words, int nwords, void (*check_case)(struct plan_case *c))
{
    struct dirent **names;
    int n = scandir(dir, &names, is_case, alphasort);
    for (int i = 0; i < n; i++) {
        bool wanted = nwords == 0;
        for (int a = 0; a < nwords; a++)
            wanted |= strstr(names[i]->d_name, words[a]) != NULL;
        if (wanted)
            run_case_file(dir, names[i]->d_name, check_case);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return n >= 0;
}
