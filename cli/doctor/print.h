/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - how findings are said: for people, for programs. */
#ifndef UNO_DOCTOR_PRINT_H
#define UNO_DOCTOR_PRINT_H

#include "machine.h"
#include "rule.h"

void print_people(const struct judge *j, bool verbose);
/* Checks of the machine stand in it when there are some. */
void print_json(const struct judge *j, const struct machine *here);
void print_checks(const struct machine *here);
void print_rules(bool json);

/* "sure", "likely", ... for a confidence. */
const char *sureness(double confidence);

#endif
