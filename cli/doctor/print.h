/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - how findings are said: for people, for programs. */
#ifndef UNO_DOCTOR_PRINT_H
#define UNO_DOCTOR_PRINT_H

#include "rule.h"

void print_people(const struct judge *j, bool verbose);
void print_json(const struct judge *j);
void print_rules(bool json);

#endif
