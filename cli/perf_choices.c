/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_choices.c - `unisono perf --choices`: is what the planner chooses the best there is? Each algorithm gets a communicator of its
 * own, which UNISONO_ALGO holds to it, and all take turns at every size. Called by perf_sweep.c; the table is printed by perf_remarks.c.
 */
#include "perf_sweep.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "unisono_plan.h"

enum { ROUNDS = 21, TURN_US = 1000 };
#define GOOD 1.1 /* of the best one's time */

struct choices {
    uno_comm *free_one;       /* as the planner likes; not ours */
    uno_comm *forced[PERF_ALGOS];
    const char *names[PERF_ALGOS];
    int count;
};

static bool fits(uno_comm *comm, const struct perf_coll *coll)
{
    char text[1024];
    return uno_comm_explain(comm, (uno_coll)coll->explains, 1024, UNO_FLOAT32, UNO_SUM, 0, text, sizeof text) == UNO_OK;
}

/* A copy of the communicator that is held to one algorithm; NULL: it has none for these ranks. */
static uno_err force(struct crew *c, const char *algo, uno_comm **comm)
{
    const char *before = getenv("UNISONO_ALGO");
    char *kept = before ? strdup(before) : NULL, list[96];
    uno_config config = UNO_CONFIG_INIT;
    config.name = algo;
    snprintf(list, sizeof list, "%s:%s", uno_plan_coll_name((uno_coll)c->o->coll->explains), algo);
    setenv("UNISONO_ALGO", list, 1);
    uno_err err = uno_comm_dup(c->all[0], comm, &config);
    if (kept)
        setenv("UNISONO_ALGO", kept, 1);
    else
        unsetenv("UNISONO_ALGO");
    free(kept);
    if (err == UNO_OK && !fits(*comm, c->o->coll)) {
        err = uno_comm_destroy(*comm);
        *comm = NULL;
    }
    return err;
}

int perf_choices_open(struct sweep *s, struct choices **choices)
{
    struct crew *c = s->c;
    uno_plan_algo_info info;
    *choices = NULL;
    if (c->o->coll->explains < 0 || c->o->coll->explains == UNO_ALL_TO_ALL_V)
        return perf_fail_text(c, "--choices: %s has one fixed plan, so there is nothing to choose", c->o->coll->name);
    if (c->mine > 1 || c->o->threads > 1 || c->groups > 1)
        return perf_fail_text(c, "--choices wants ranks that are processes of one group: --ranks N, or a launcher");
    struct choices *f = calloc(1, sizeof *f);
    if (!f)
        return perf_fail(c, UNO_ERR_MEMORY, "preparing --choices");
    f->free_one = c->comms[0];
    *choices = f;
    for (int i = 0; f->count < PERF_ALGOS && uno_plan_algo(i, &info) == UNO_OK; i++) {
        if (!(info.colls >> c->o->coll->explains & 1))
            continue;
        uno_err err = force(c, info.name, &f->forced[f->count]);
        if (err != UNO_OK)
            return perf_fail(c, err, "making a communicator for --choices");
        f->names[f->count] = info.name;
        f->count += f->forced[f->count] != NULL;
    }
    return CLI_GOOD;
}

void perf_choices_close(struct choices *f)
{
    for (int i = 0; f && i < f->count; i++)
        (void)uno_comm_destroy(f->forced[i]);
    free(f);
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower quartile: what other programs take from some rounds does not count. */
static double settle(double *times)
{
    qsort(times, ROUNDS, sizeof *times, by_time);
    return times[ROUNDS / 4];
}

/* Comm number -1 is the free one. */
static uno_err take_turn(struct sweep *s, const struct job *j, const struct choices *f, int which, double *us)
{
    struct half half = {0};
    s->c->comms[0] = which < 0 ? f->free_one : f->forced[which];
    uno_err err = sweep_time(s, j, 0, &half);
    s->c->comms[0] = f->free_one;
    *us = half.time_us;
    return err;
}

uno_err perf_choices_measure(struct sweep *s, const struct job *j, const struct choices *f, struct choice_times *times)
{
    double all[PERF_ALGOS + 1][ROUNDS], first;
    const struct perf_options *asked = s->o;
    struct perf_options turn = *asked;
    turn.warmup = 2;
    turn.iters = 4;
    s->o = &turn;
    uno_err err = take_turn(s, j, f, -1, &first); /* all ranks compute the same mean */
    turn.iters = first * 2 > TURN_US ? 2 : (int)(TURN_US / first);
    turn.iters = turn.iters > 2000 ? 2000 : turn.iters;
    for (int round = -1; round < ROUNDS && err == UNO_OK; round++) /* the first one warms up */
        for (int i = 0; i <= f->count && err == UNO_OK; i++)
            err = take_turn(s, j, f, i - 1, &all[i][round < 0 ? 0 : round]);
    s->o = asked;
    if (err != UNO_OK)
        return err;
    times->count = f->count;
    times->chosen_us = settle(all[0]);
    for (int i = 0; i < f->count; i++) {
        times->name[i] = f->names[i];
        times->us[i] = settle(all[i + 1]);
    }
    return UNO_OK;
}

static int best_of(const struct choice_times *t)
{
    int best = 0;
    for (int i = 1; i < t->count; i++)
        if (t->us[i] < t->us[best])
            best = i;
    return best;
}

/* Held to the algorithm that it would choose anyway, a communicator runs the same plan: what the two took differs by chance. */
static double chosen_us(const struct line *l)
{
    const char *words = "";
    size_t length = l->explained ? perf_explained_algorithm(l->explained, &words) : 0, name = strcspn(words, ",;( ");
    name = name < length ? name : length;
    for (int i = 0; i < l->choices.count; i++)
        if (strlen(l->choices.name[i]) == name && strncmp(words, l->choices.name[i], name) == 0 && l->choices.us[i] < l->choices.chosen_us)
            return l->choices.us[i];
    return l->choices.chosen_us;
}

double perf_choices_ratio(const struct line *l)
{
    return chosen_us(l) / l->choices.us[best_of(&l->choices)];
}

void perf_choices_print(const struct report *r)
{
    FILE *f = r->table;
    size_t good = 0;
    const struct choice_times *head = &r->lines[0].choices;
    fprintf(f, "# choices: out of place, us, the lower quartile of %d rounds in which all take turns\n# %10s %-18s %9s", ROUNDS, "size",
            "chosen", "chosen");
    for (int i = 0; i < head->count; i++)
        fprintf(f, " %9s", head->name[i]);
    fprintf(f, "  chosen / best\n");
    for (size_t l = 0; l < r->line_count; l++) {
        const struct choice_times *t = &r->lines[l].choices;
        const char *words = "?";
        int length = r->lines[l].explained ? (int)perf_explained_algorithm(r->lines[l].explained, &words) : 1;
        double ratio = perf_choices_ratio(&r->lines[l]);
        char number[32];
        good += ratio <= GOOD;
        fprintf(f, "# %10zu %-18.*s %9s", r->lines[l].bytes, length, words, report_number(t->chosen_us, 9, number));
        for (int i = 0; i < t->count; i++)
            fprintf(f, " %9s", report_number(t->us[i], 9, number));
        fprintf(f, "  %.2f%s%s\n", ratio, ratio > GOOD ? " best is " : "", ratio > GOOD ? t->name[best_of(t)] : "");
    }
    fprintf(f, "# chosen within 10 %% of the best in %zu of %zu\n#\n", good, r->line_count);
}
