/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_core.c - the opcode table, one rank's program, and freeing. Called by everyone who looks at a plan; knows
 * nothing of where a plan comes from.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

const struct plan_op_info plan_ops[PLAN_OP_COUNT] = {
#define OP(id, json, xml, rcv, rsrc, rdst, red, wdst, snd) [PLAN_##id] = {json, xml, rcv, rsrc, rdst, red, wdst, snd},
#include "ops.def"
#undef OP
};

/* A copy of count elements; an empty array stays NULL. */
static uno_err copy_array(void *copy_ptr, const void *from, int count, size_t each_bytes)
{
    if (count <= 0)
        return UNO_OK;
    void *p = mem_array((size_t)count, each_bytes);
    if (!p)
        return UNO_ERR_MEMORY;
    memcpy(p, from, (size_t)count * each_bytes);
    memcpy(copy_ptr, &p, sizeof p);
    return UNO_OK;
}

static uno_err copy_arrays(struct plan_prog *to, const struct plan_prog *from)
{
    TRY(copy_array(&to->lanes, from->lanes, from->nlanes, sizeof *from->lanes));
    TRY(copy_array(&to->steps, from->steps, from->nsteps, sizeof *from->steps));
    TRY(copy_array(&to->sends, from->sends, from->nsends, sizeof *from->sends));
    TRY(copy_array(&to->recvs, from->recvs, from->nrecvs, sizeof *from->recvs));
    TRY(copy_array(&to->recv_list, from->recv_list, from->nrecv_list, sizeof *from->recv_list));
    return copy_array(&to->deps, from->deps, from->ndeps, sizeof *from->deps);
}

static uno_err prog_copy(struct plan_prog *to, const struct plan_prog *from)
{
    *to = *from;
    to->lanes = NULL;
    to->steps = NULL;
    to->sends = to->recvs = NULL;
    to->recv_list = NULL;
    to->deps = NULL;
    uno_err err = copy_arrays(to, from);
    if (err != UNO_OK)
        plan_prog_free(to);
    return err;
}

uno_err plan_rank(const struct plan *plan, int rank, struct plan_prog *prog)
{
    *prog = (struct plan_prog){0};
    if (rank < 0 || rank >= plan->nranks)
        return err_set(UNO_ERR_PLAN, "plan %s has ranks 0 to %d and no rank %d", plan->name, plan->nranks - 1, rank);
    if (plan->generate)
        return plan->generate(plan, rank, prog);
    if (plan->progs)
        return prog_copy(prog, &plan->progs[rank]);
    return err_set(UNO_ERR_PLAN, "plan %s has neither programs nor a generator", plan->name);
}

void plan_prog_free(struct plan_prog *prog)
{
    free(prog->lanes);
    free(prog->steps);
    free(prog->sends);
    free(prog->recvs);
    free(prog->recv_list);
    free(prog->deps);
    *prog = (struct plan_prog){0};
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    if (plan->progs)
        for (int r = 0; r < plan->nranks; r++)
            plan_prog_free(&plan->progs[r]);
    free(plan->progs);
    free(plan->host_of);
    free(plan);
}
