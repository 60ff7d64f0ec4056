/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - probes of milliseconds: does it work, and how fast? They leave nothing behind. */
#ifndef UNO_DOCTOR_PROBE_H
#define UNO_DOCTOR_PROBE_H

#include "machine.h"

void probe_all(struct machine *m);

#endif
