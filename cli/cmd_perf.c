/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_perf.c - `unisono perf COLLECTIVE`: measure, check, report. */
#include "cli.h"
#include "output.h"

int cmd_perf(int argc, char **argv)
{
    return out_error("perf", "this build has no benchmark yet");
}
