/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_plans.c - reads the cases of a directory (README.md there says how they look), asks verify for each verdict and lets
 * the reference interpreter show the fault, or run many schedules without one. Prints one line a check that failed.
 */
#include <stdlib.h>
#include <string.h>

#include "plan_case.h"

static int checks_made;
static int seeds_healthy = 60, seeds_faulty = 2000;

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

static void check_case(struct plan_case *c)
{
    for (int i = 0; i < c->nchecks; i++)
        check_one(c, &c->checks[i]);
}

int main(int argc, char **argv)
{
    bool imports = argc > 1 && strcmp(argv[1], "--imports") == 0, ok = argc > 1 + imports;
    if (imports && ok) {
        seeds_healthy = 3; /* big plans: fewer schedules */
        seeds_faulty = 300;
        each_import(argv[2], check_case);
    } else {
        ok = ok && each_plan_case(argv[1], argv + 2, argc - 2, check_case);
    }
    if (!ok) {
        fprintf(stderr, "usage: run_plans [--imports] DIRECTORY [CASE...]\n");
        return 2;
    }
    printf("%d cases, %d checks, %d failures\n", plan_cases, checks_made, plan_case_failures);
    return plan_case_failures > 0 || plan_cases == 0;
}
