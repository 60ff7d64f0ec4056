/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_case.h - the cases of this directory as data (README.md says how they look), for the programs that check them.
 */
#ifndef UNO_PLAN_CASE_H
#define UNO_PLAN_CASE_H

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

extern int plan_case_failures, plan_cases;
void complain(const struct plan_case *c, const struct check *k, const char *fmt, ...) UNO_PRINTF(3, 4);
/* Call check_case for every *.plan of the directory whose name contains one of the words; without words for all. False: no
 * such directory. */
bool each_plan_case(const char *dir, char **words, int nwords, void (*check_case)(struct plan_case *c));
/* The same for the published schedules in imports.expect. */
void each_import(const char *dir, void (*check_case)(struct plan_case *c));

#endif
