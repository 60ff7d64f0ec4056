/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - what `unisono tune` (cmd_tune.c) measures (tune_measure.c, tune_net.c). */
#ifndef UNO_CLI_TUNE_H
#define UNO_CLI_TUNE_H

#include <stdbool.h>
#include <stdint.h>

enum { TUNE_CLASSES = 4 };  /* as in src/topo/costs.def */
struct tuned {
    uint64_t latency_ps, step_ps, small_ps, switch_ps;
    uint64_t shm[TUNE_CLASSES], sum[TUNE_CLASSES], read[TUNE_CLASSES], map[TUNE_CLASSES]; /* ps a KB; 0 = not possible */
    uint64_t net_latency_ps, net_ps_per_kb; /* 0 = not measured */
    char note[256];         /* what could not be measured, and why; "" = nothing */
};
/* Measure with two processes of this machine, in a few seconds. false: a sentence was printed. */
bool tune_measure(struct tuned *result);

/* tune_net.c. For each rank of a launcher: the costs between hosts, if there are several. *rank: this process's. false: a sentence was
 * printed. */
bool tune_net(struct tuned *result, int *rank);

#endif
