/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - what is known of variables: who reads them (src/tables/known_env.def), which are read by nobody though articles recommend them, which
 * words each parser takes, and what a value really becomes.
 */
#ifndef UNO_DOCTOR_SETTINGS_H
#define UNO_DOCTOR_SETTINGS_H

#include "rule.h"

enum grade {
    GRADE_FINE,
    GRADE_NOTE,  /* does what it says, which is perhaps not what is wanted */
    GRADE_WRONG, /* does nothing, or something else than it says */
};

struct opinion {
    enum grade grade;
    const char *text;  /* "NCCL_TIMEOUT is read by no library; ..." */
    const char *remedy; /* "" = none */
};

/* What is to be said of one variable as it is set. The text begins with the name. */
struct opinion setting_opinion(struct model *m, const char *name, const char *value, bool blank);

/* May this variable be different on ranks of one job? True for ranks, devices, files and what is only said. */
bool setting_may_differ(const char *name);

/* Must it be the same on all ranks, since it decides what is sent? */
bool setting_on_the_wire(const char *name);

/* What it does, a sentence; "" when it is not known. */
const char *setting_meaning(const char *name);

/* Its default; "" when it has none, or is not known. */
const char *setting_default(const char *name);

/* Who reads it, in words; "nobody" for a name of these families that nobody reads, "" for what is none of theirs. */
const char *setting_readers(const char *name);

/* Who uses a name of these families that is not the library's: images and builds (every CUDA image has NCCL_VERSION), plugins that others make. NULL
 * where it is none of them. */
const char *setting_of_others(const char *name);

/* What strtoll makes of it, as NCCL does: "4M" is 4, "true" is 0. */
long long setting_number(const char *value);

#endif
