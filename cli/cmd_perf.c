/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_perf.c - `unisono perf COLLECTIVE`: measure, check, report. What each stage does stands in perf.h. */
#include "cli.h"
#include "perf.h"
#include "perf_scale.h"

int cmd_perf(int argc, char **argv)
{
    struct perf_options options;
    switch (perf_options_parse(argc, argv, &options)) {
    case OPTIONS_RUN:
        return options.sweep ? perf_scale(&options) : perf_launch(&options, perf_sweep);
    case OPTIONS_DONE:
        return CLI_GOOD;
    default:
        return CLI_ERROR;
    }
}
