/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - what `unisono tune` (cmd_tune.c) measures (tune_measure.c, tune_library.c, tune_net.c). */
#ifndef UNO_CLI_TUNE_H
#define UNO_CLI_TUNE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unisono.h"

enum { TUNE_CLASSES = 4 };  /* as in src/topo/costs.def */
struct tuned {
    uint64_t latency_ps, step_ps, small_ps, switch_ps;
    uint64_t shm[TUNE_CLASSES], sum[TUNE_CLASSES], read[TUNE_CLASSES], map[TUNE_CLASSES]; /* ps a KB; 0 = not possible */
    uint64_t net_latency_ps, net_ps_per_kb; /* 0 = not measured */
    char note[256];         /* what could not be measured, and why; "" = nothing */
};
/* Measure with a few processes of this machine, in a few seconds. false: a sentence was printed. */
bool tune_measure(struct tuned *result);

/* tune_net.c. For each rank of a launcher: the costs between hosts, if there are several. *rank: this process's. false: a sentence was
 * printed. */
bool tune_net(struct tuned *result, int *rank);

/* ---- tune_library.c: calls of the library ---- */
/* What each of two ranks contributes: together in the classes of costs.def. */
extern const size_t tune_bytes[TUNE_CLASSES];
struct tune_times {         /* of one call, ps, on rank 0 */
    double call_by_slots, call_by_lines; /* all_reduce of a few bytes, 2 ranks */
    double gather_slots[TUNE_CLASSES], gather[TUNE_CLASSES], gather_mapped[TUNE_CLASSES], reduce[TUNE_CLASSES];
    double call_in_turns;   /* all_reduce of a few bytes by ranks_in_turns ranks, ranks_a_processor of them on each processor */
    int ranks_in_turns, ranks_a_processor;
};
enum { TUNE_CLOSED, TUNE_OPEN, TUNE_FAILED };
struct tune_meeting { _Atomic int state; uno_id id; };
struct tune_shared {        /* by the measuring processes; starts as zeros */
    struct tune_meeting slots, direct, turns; /* a communicator each */
    struct tune_times times;
};
/* In each of `ranks` processes: 2 with a processor each, or `turns`: more than there are processors. false: the library failed. */
bool tune_calls(struct tune_shared *shared, int rank, int ranks, bool turns);
/* tune_costs.c: times into costs; t->latency_ps is there. */
void tune_costs(const struct tune_times *times, bool can_read, struct tuned *t);

#endif
