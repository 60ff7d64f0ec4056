/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_check.h - private to the plan room: one rank's program looked at alone, and how faults are put in words.
 */
#ifndef UNO_PLAN_CHECK_H
#define UNO_PLAN_CHECK_H

#include "plan.h"

/* Fill *fault and the thread's sentence ("rank 0 lane 1 step 2 (send): ..."); returns UNO_ERR_PLAN. */
uno_err plan_fault_set(struct plan_fault *fault, enum plan_fault_kind kind, int rank, int lane, int step, const char *fmt, ...)
    UNO_PRINTF(6, 7);
uno_err plan_fault_at(const struct plan_graph *g, int node, struct plan_fault *fault, enum plan_fault_kind kind,
                      const char *fmt, ...) UNO_PRINTF(5, 6);
/* Every index of the program is inside its range, and steps are what their opcodes say. */
uno_err plan_check_prog(const struct plan *plan, int rank, const struct plan_prog *prog, bool shapes, struct plan_fault *fault);

#endif
