/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"
const struct fault_case fault_cases_join[] = {{0}};
