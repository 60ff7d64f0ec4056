/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_text.h - what the readers and writers of plans share: limits, names, the steps from a parsed head to a plan.
 * Private to this folder. Readers check the form and what keeps other code safe (ranges of ranks, connections, lanes, steps);
 * whether a plan computes what it claims is for verify.
 */
#ifndef UNO_PLAN_TEXT_H
#define UNO_PLAN_TEXT_H

#include "plan.h"

#define PLAN_MAX_FILE_BYTES (64u << 20)
#define PLAN_MAX_RANKS 4096
#define PLAN_MAX_LANES 4096      /* a rank */
#define PLAN_MAX_CHANNELS 1024
#define PLAN_MAX_CHUNKS (1 << 20) /* a buffer */
#define PLAN_MAX_STEPS (4 << 20) /* all ranks together, after repeats are expanded */

extern const char *const plan_buf_names[]; /* by enum plan_buf: "", "in", "out", "scratch" */

/* Copy a name that comes from outside: printable ASCII, others become '?', cut to fit. */
void plan_set_name(struct plan *plan, const char *name);
/* Append s as a JSON string or as an XML attribute value (without quotes). */
void plan_add_escaped(struct text *out, const char *s, bool xml);
/* Check coll, ranks, parts, root of an import and make its empty programs. UNO_ERR_PARSE, UNO_ERR_MEMORY. */
uno_err plan_import_begin(struct plan *plan, const char *where);
/* Whether blocks are per rank (all_gather, ...), not one row. */
bool plan_coll_blocks(uno_coll coll);
/* The shape that the operands give: of what is written if that is in `in` or `out`, else of what is read, else 0. */
int plan_derived_shape(const struct plan *plan, int rank, const struct plan_step *step);

/* One rank's program in the form that MSCCL's XML can say: every lane at most one sending and one receiving connection, no
 * groups, no lists, no fused receive-and-send without a place for the data. Without `unicast`, groups and lists are
 * refused by name (UNO_ERR_UNSUPPORTED). */
uno_err plan_unicast_prog(const struct plan *plan, const struct plan_prog *in, bool unicast, struct plan_prog *out);

#endif
