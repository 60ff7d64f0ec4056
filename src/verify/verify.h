/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - plan -> yes, or the step that is wrong and why. Pure; knows neither sockets nor clocks.
 *
 * Checks: every output element holds each contribution exactly once and nothing else (symbolic execution of one tile);
 * no step reads what another may still write, also when slots carry lent memory; connections match in number, order and
 * size; bounds; freedom from deadlock with k slots a connection, by one topological sort over program order, waits,
 * message edges and credit edges (release of message n-k by all readers -> n-th send).
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
    VERIFY_WRONG        /* an output holds something else (other chunk, raw garbage), or an in-place claim is false */
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
    char reason[512];     /* a sentence */
};

/* UNO_OK: result filled (kind VERIFY_OK = proved). UNO_ERR_MEMORY when it could not be checked. */
uno_err verify_plan(const struct plan *plan, const struct verify_options *opt, struct verify_result *result);
/* What a running job asks: every claim of the plan (in place, out of place, any mixture), lent first; if only copies are
 * right sets plan->copies_only. UNO_ERR_PLAN with the reason as the sentence when refuted. */
uno_err verify_for_use(struct plan *plan, int k);
/* Fill in shapes of steps that touch only scratch, for imports (splits steps where shapes are not consecutive). */
uno_err verify_label_shapes(struct plan *plan);

#endif
