/* SPDX-License-Identifier: Apache-2.0 */
/* planner_choose.h - inside the planner: what choosing and explaining share. */
#ifndef UNO_PLANNER_CHOOSE_H
#define UNO_PLANNER_CHOOSE_H

#include "planner_cost.h"

struct planner_kept {          /* one plan, made once */
    int algo, channels, root;  /* algo: index in planner_algos */
    uno_coll coll;
    struct plan *plan;         /* NULL: does not fit these ranks */
    struct plan_load load;
    bool proved;
};

struct planner {
    struct planner_settings settings;  /* algo and host_of are own copies */
    uint32_t allowed[UNO_COLL_COUNT];  /* bits of planner_algos */
    bool named[UNO_COLL_COUNT];        /* the setting names this collective */
    struct planner_kept **kept;
    size_t nkept, cap;
};

struct planner_candidate {
    struct planner_kept *kept;
    int algo, channels, shift;
    struct planner_slots slots;
    uint64_t cost_ps;
    struct planner_parts parts; /* of cost_ps */
};

#define PLANNER_CANDIDATES 24
struct planner_candidates {
    struct planner_candidate c[PLANNER_CANDIDATES];
    int count, best;
    bool one_round;  /* the best is not the cheapest: see prefer_one_round */
    bool small;      /* the best runs on the small target */
    bool set_aside;  /* the setting's list left none and was not followed */
};

uno_coll planner_plain(uno_coll coll); /* the plain collective of a V form */
uno_err planner_propose(struct planner *p, const struct request *req, struct planner_candidates *list);
/* Bytes that one rank contributes. */
uint64_t planner_payload(const struct planner *p, const struct request *req);

#define PLANNER_PROVED_RANKS 64
struct planner_proof {         /* planner_proved.c */
    const char *algo;
    uno_coll coll;
    bool copies_only;          /* with more than one rank */
    uint64_t fingerprint;      /* of all programs of all its plans */
};
extern const struct planner_proof planner_proofs[];
extern const int planner_proof_count;
/* Whether the plan is one of those; then sets plan->copies_only. */
bool planner_is_proved(struct plan *plan);

#endif
