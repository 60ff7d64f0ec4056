/* SPDX-License-Identifier: Apache-2.0 */
/* read_hosts.h - the part of the JSON reader that knows what `unisono doctor --hosts` gathered (hosts.h). */
#ifndef UNO_DOCTOR_READ_HOSTS_H
#define UNO_DOCTOR_READ_HOSTS_H

#include <jansson.h>

#include "reader.h"

bool hosts_looks(json_t *root);
void hosts_take(struct model *m, const char *file, json_t *root);

#endif
