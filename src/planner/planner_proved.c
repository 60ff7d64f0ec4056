/* SPDX-License-Identifier: Apache-2.0 */
/* planner_proved.c - which generated plans need no proof at run time. */
#include "planner_choose.h"

bool planner_is_proved(struct plan *plan)
{
    return plan->nranks == 1;
}
