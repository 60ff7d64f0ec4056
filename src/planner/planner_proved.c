/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_proved.c - which generated plans need no proof at run time: all generators on one host of up to
 * PLANNER_PROVED_RANKS ranks with 1, 2 or 4 channels, root 0. Each row carries a fingerprint of the programs that were
 * proved; tests/unit/test_planner_proved.c makes them anew, compares, proves a sample, and with the argument "prove" proves
 * all and prints this table. After a generator has changed, run that and put its rows here.
 */
#include "planner_choose.h"

#include <string.h>

const struct planner_proof planner_proofs[] = {
    {"flat", UNO_ALL_REDUCE, true, 0x654327cecc303748},
    {"flat", UNO_BROADCAST, false, 0x3807bf8420f69378},
    {"flat", UNO_REDUCE, false, 0xf181242634a7ceb2},
    {"flat", UNO_ALL_GATHER, false, 0xd22a492c5e9828a8},
    {"flat", UNO_REDUCE_SCATTER, false, 0xfd403b17f8208b72},
    {"flat", UNO_ALL_TO_ALL, false, 0xc4b68796a07275c0},
    {"flat", UNO_GATHER, false, 0xbc20770424f5784c},
    {"flat", UNO_SCATTER, false, 0x0a50b4b6a3ccc4d3},
    {"flat", UNO_BARRIER, false, 0x654327cecc303748},
    {"flat2", UNO_ALL_REDUCE, false, 0x3d2649f7ea98a33e},
    {"flat2", UNO_BROADCAST, false, 0x35e873a3b8b90950},
    {"flat2", UNO_REDUCE, false, 0xfeee40b8e41d6812},
    {"ring", UNO_ALL_REDUCE, false, 0xdd5e3eedc0039d9e},
    {"ring", UNO_BROADCAST, false, 0x7300a6d8a90f4e88},
    {"ring", UNO_REDUCE, false, 0xf208f028788e09ba},
    {"ring", UNO_ALL_GATHER, false, 0x308c5f462fe70eca},
    {"ring", UNO_REDUCE_SCATTER, false, 0x17451194be23bf47},
    {"tree", UNO_ALL_REDUCE, false, 0x0369ab99492555a8},
    {"tree", UNO_BROADCAST, false, 0x498b394810872ed5},
    {"tree", UNO_REDUCE, false, 0xb8116c1322454cd3},
    {"tree", UNO_GATHER, false, 0x7290801eb6e752d3},
    {"tree", UNO_SCATTER, false, 0x66ed6ca460c5e0e3},
    {"tree", UNO_BARRIER, false, 0xbe731b98bdcc4940},
    {"hd", UNO_ALL_REDUCE, false, 0x07b5221ed72b3109},
    {"hd", UNO_BROADCAST, false, 0x1f3d63e821965eb7},
    {"hd", UNO_REDUCE, false, 0x6cbad75d52197ab8},
    {"hd", UNO_ALL_GATHER, false, 0xadedc260f23a2c01},
    {"hd", UNO_REDUCE_SCATTER, false, 0x0fcc1f7ab9835dd1},
    {"hd", UNO_BARRIER, false, 0xad28ccaf2d15eade},
};
const int planner_proof_count = ARRAY_LEN(planner_proofs);

bool planner_is_proved(struct plan *plan)
{
    if (plan->nranks > PLANNER_PROVED_RANKS || plan->root != 0 || plan->generate == NULL)
        return false;
    int channels = plan->params.channels;
    if (channels != 1 && channels != 2 && channels != 4)
        return false;
    for (int r = 1; r < plan->nranks; r++)
        if (plan->host_of[r] != plan->host_of[0])
            return false;
    for (int i = 0; i < planner_proof_count; i++) {
        const struct planner_proof *proof = &planner_proofs[i];
        if (proof->coll == plan->coll && strcmp(proof->algo, plan->params.algo) == 0) {
            plan->copies_only = proof->copies_only && plan->nranks > 1;
            plan->lends_out_of_place = plan->copies_only; /* true of every row that has it; the test proves a sample */
            return true;
        }
    }
    return false;
}
