/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - plan -> yes, or the step that is wrong and why. Pure; knows neither sockets nor clocks.
 *
 * Checks, on the firing graph of one tile (plan.h): bounds; connections match in number, order and size; freedom from
 * deadlock with k slots a connection, by one topological sort over program order, waits, message edges and credit edges
 * (release of message n-k by all readers -> n-th send); no step reads or writes what another may be writing, also when
 * slots carry lent memory; every output element holds each contribution exactly once and nothing else (symbolic
 * execution); the flags that tell exec where contributions enter and reductions are finished.
 *
 * Why one tile is enough. Every connection is empty at the end of a tile, so "tile by tile, in this order" is a schedule
 * of any number of tiles and operations, and a Kahn network that can finish under one schedule finishes under all. Tiles
 * never share elements of in and out, and scratch is used again only when its tile is finished, so races are within a tile.
 *
 * Shorter chunks have fewer tiles. Then some firings of a tile carry nothing and their messages, and the order these gave,
 * are missing; order only ever gets less. So two accesses of a cell count as ordered only if they are so in the weakest
 * graph in which both happen: program order and waits, and of the messages only those of the same class of chunks, that is,
 * of chunks that have equal lengths in every request. Credits are not counted as order, so a plan that is proved with k slots
 * is proved with any more.
 *
 * In place, and mixtures. In place, in and out share cells as NCCL's do. Which of its buffers alias concerns one rank
 * alone: its own cells and what it sends. Races are therefore checked with every rank aliased, which has all the
 * conflicts of every mixture; and data is executed twice, all aliased and none, where each message must have the same
 * contents both times. Then, by induction along the order, it has those contents in every mixture. A copy of a chunk onto
 * itself (in place) does not happen: exec leaves it out, except where it scales a raw contribution.
 */
#ifndef UNO_VERIFY_H
#define UNO_VERIFY_H

#include "base/base.h"
#include "plan/plan.h"
#include "topo/topo.h"

enum verify_kind {
    VERIFY_OK = 0,
    VERIFY_BOUNDS,      /* a chunk, lane, step or rank outside its range */
    VERIFY_CONNECTION,  /* ends without partner, two lanes on a connection, wrong number or size of messages */
    VERIFY_DEADLOCK,    /* a cycle; the sentence shows it */
    VERIFY_RACE,        /* a step reads or writes what another may be writing */
    VERIFY_MISSING,     /* an output lacks a contribution, or a chunk is never written */
    VERIFY_TWICE,       /* a contribution is in an output more than once */
    VERIFY_WRONG,       /* an output holds something else (other chunk, raw garbage), or an in-place claim is false */
    VERIFY_KINDS
};
extern const char *const verify_kind_names[]; /* "ok" "bounds" "connection" ... */

struct verify_options {
    int k;              /* slots a connection; 0 = the plan's k_claimed */
    bool in_place;      /* check with in aliasing out as NCCL's in place */
    bool lent;          /* slots may carry lent memory */
};

struct verify_result {
    enum verify_kind kind;
    int rank, lane, step; /* -1 where it does not apply */
    bool same_bits;       /* proved, and all outputs that hold one result reduce in one order: equal bits on every rank */
    char reason[512];     /* a sentence */
};

/* UNO_OK: result filled (kind VERIFY_OK = proved). UNO_ERR_MEMORY when it could not be checked. */
uno_err verify_plan(const struct plan *plan, const struct verify_options *opt, struct verify_result *result);
/* What a running job asks: every claim of the plan (in place, out of place, any mixture), lent first; if only copies are
 * right sets plan->copies_only, and lends_out_of_place where that is enough for ranks that are not in place. UNO_ERR_PLAN with the reason as the sentence when refuted. */
uno_err verify_for_use(struct plan *plan, int k);
/* For imports: fill in the shapes of steps that touch only scratch and the flags of plan_step, splitting steps whose
 * firings have no consecutive shapes or different flags. A plan that is wrong may stay without; verify_plan says why.
 * Generated plans are left alone. Errors: UNO_ERR_MEMORY. */
uno_err verify_label_shapes(struct plan *plan);

#endif
