/* SPDX-License-Identifier: Apache-2.0 */
/* variables.h - the variables of libraries that were read, each with who reads it and what its value really becomes. */
#ifndef UNO_DOCTOR_VARIABLES_H
#define UNO_DOCTOR_VARIABLES_H

#include <stdio.h>

#include "model.h"

/* For people; `all`: with default and meaning. */
void variables_print(struct model *m, bool all);

/* How many do not do what they say; of that name, or all with NULL. */
size_t variables_wrong(struct model *m, const char *name);

/* An array of {"name", "value", "read_by", "default", "meaning", "state", "text", "remedy"}. */
void variables_json(struct model *m, FILE *to);

#endif
