/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - probes of milliseconds: does it work, and how fast? They leave nothing behind. */
#ifndef UNO_DOCTOR_PROBE_H
#define UNO_DOCTOR_PROBE_H

#include "machine.h"

struct check *machine_check(struct machine *m, enum check_state state, const char *name, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

void probe_all(struct machine *m);

#endif
