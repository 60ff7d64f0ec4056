/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform.h - the conformance suite: a table of cases walked inside one job. conform.c starts the ranks (threads, processes over
 * shared memory, processes over TCP), conform_cases.c makes the table, conform_check.c runs one case on one rank.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include "base/base.h"
#include "unisono.h"

struct conform_case {
    uno_coll coll;
    uno_type type;
    int op;          /* uno_op, or UNO_OP_DYNAMIC for premulsum */
    bool in_place;
    bool shared;     /* buffers from uno_mem_alloc */
    size_t count;    /* as in the call; v forms: count of rank 0's block, others vary */
    int root;
};

enum conform_set { CONFORM_FULL_TYPES, CONFORM_PAIRWISE, CONFORM_SIZES, CONFORM_ALL };

/* The cases of a set for `ranks`; the same on every rank. *cases: caller frees. */
uno_err conform_cases(enum conform_set set, int ranks, uint64_t seed, struct conform_case **cases, size_t *count);
void conform_name(const struct conform_case *c, char *buf, size_t buf_bytes);
/* Run it on this rank: UNO_OK, the call's error, or UNO_ERR_INTERNAL with a sentence when the result is wrong. */
uno_err conform_run(uno_comm *comm, const struct conform_case *c, uint64_t seed);
/* Point-to-point, groups, streams, splits, memory: not a product, so a list. Returns how many passed. */
uno_err conform_rest(uno_comm *comm, uint64_t seed, int *passed);

#endif
