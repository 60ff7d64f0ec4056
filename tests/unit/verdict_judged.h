/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_judged.h - what tests of the judge share: one scene, what the verdict says of it, and eight ranks spread in several ways. Each
 * scene is judged as it is and again after its records went over the wire; the sentence must be the same. VERDICT_SHOW=1 prints the verdicts.
 */
#ifndef UNO_TEST_VERDICT_JUDGED_H
#define UNO_TEST_VERDICT_JUDGED_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "verdict_scene.h"

enum { WORLD = 1, TP = 2, PP = 3 };
extern struct scene s;
extern struct verdict v;

void judged(void); /* the scene, which is over then */
/* The verdict must be of this kind, with this culprit (-1: not looked at), and say all these words; NULL ends them. */
void must_say(enum verdict_kind kind, int culprit, ...);
void quiet(void);  /* no alarm, and no fact either */

/* Texts that last for seven more. */
const char *fmt(const char *f, ...);
const char *name(int rank);

/* Eight ranks; how they are spread, how their clocks differ, whose report is missing. Rank 7 is never a culprit. */
struct stage { int per_host; double skew; int lost; };
extern const struct stage stages[6];
extern const int some_ranks[4];
void open_stage(const struct stage *st);
void close_stage(const struct stage *st);
void all_but(int culprit); /* all others call #17, 6.2 s ago and a little later each */
#define EVERY_STAGE(st, culprit)                                                     \
    for (const struct stage *st = stages; st < stages + ARRAY_LEN(stages); st++)     \
        for (const int *culprit = some_ranks; culprit < some_ranks + ARRAY_LEN(some_ranks); culprit++)

#endif
