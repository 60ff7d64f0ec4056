/* SPDX-License-Identifier: Apache-2.0 */
/* why_pickle.h - a JSON value as Python pickles it (protocol 2, plain types), for programs that read nothing else. */
#ifndef UNO_CLI_WHY_PICKLE_H
#define UNO_CLI_WHY_PICKLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* False when it could not be written; errno says why. Integers beyond 64 bits and reals do not occur. */
bool pickle_write(FILE *f, const json_t *value);

#endif
