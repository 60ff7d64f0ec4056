/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_label.c - what an import does not say: the shape of every firing, followed from in and out through messages and
 * scratch, and the flags that tell where contributions enter and reductions are finished. Steps whose firings differ are
 * split, so that a step stays "consecutive chunks, consecutive shapes, one set of flags".
 */
#include "verify_proof.h"

#include <limits.h>
#include <stdlib.h>

/* Shape of a firing: its operand in in or out says it, else what it receives or reads. */
static int shape_of(const struct proof *p, int node, const int32_t *cell_shape)
{
    const struct plan_graph *g = &p->g;
    const struct plan_step *s = plan_node_step(g, node);
    const struct plan_op_info *op = &plan_ops[s->op];
    int rank = proof_rank(p, node), i = g->nodes[node].i;
    if ((op->writes_dst || op->reads_dst) && s->dst_buf != PLAN_SCRATCH)
        return plan_chunk_shape(p->plan, rank, (enum plan_buf)s->dst_buf, s->dst + i);
    if (op->reads_src && s->src_buf != PLAN_SCRATCH)
        return plan_chunk_shape(p->plan, rank, (enum plan_buf)s->src_buf, s->src + i);
    if (s->nrecv > 0)
        return g->nodes[g->sender[g->in_list[g->nodes[node].in]]].shape;
    if (op->reads_src)
        return cell_shape[proof_cell(p, rank, PLAN_SCRATCH, s->src + i, false)];
    return op->reads_dst ? cell_shape[proof_cell(p, rank, PLAN_SCRATCH, s->dst + i, false)] : 0;
}

static uno_err find_shapes(struct proof *p)
{
    int32_t *cell_shape = mem_array((size_t)MAX(p->cell0[p->plan->nranks], 1), sizeof *cell_shape);
    if (!cell_shape)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < p->g.nnodes; i++) {
        int node = p->order[i];
        struct plan_node *n = &p->g.nodes[node];
        const struct plan_step *s = plan_node_step(&p->g, node);
        n->shape = shape_of(p, node, cell_shape);
        if (plan_ops[s->op].writes_dst && s->dst_buf == PLAN_SCRATCH)
            cell_shape[proof_cell(p, proof_rank(p, node), PLAN_SCRATCH, s->dst + n->i, false)] = n->shape;
    }
    free(cell_shape);
    return UNO_OK;
}

/* Does firing i of the step begin a step of its own? */
static bool cut_before(const struct proof *p, int first, int i, const uint8_t *flags)
{
    const struct plan_node *n = &p->g.nodes[first];
    return i > 0 && (n[i].shape != n[i - 1].shape + 1 || (flags && flags[first + i] != flags[first + i - 1]));
}

/* Rewrite one rank's steps; `last` receives the last piece of each old step, within its lane. */
static void write_pieces(const struct proof *p, struct plan_prog *prog, struct plan_step *steps, int32_t *last,
                         const uint8_t *flags)
{
    int used = 0;
    for (int l = 0; l < prog->nlanes; l++) {
        struct plan_lane *lane = &prog->lanes[l];
        int begin = used, end = lane->first + lane->nsteps;
        for (int s = lane->first; s < end; s++) {
            const struct plan_step *old = &prog->steps[s];
            int first = p->g.step_node[p->g.rank_step[prog->rank] + s];
            for (int i = 0; i < old->count; i++) {
                if (i > 0 && !cut_before(p, first, i, flags)) {
                    steps[used - 1].count++;
                    continue;
                }
                struct plan_step *piece = &steps[used++];
                *piece = *old;
                piece->count = 1;
                piece->src += piece->src_buf == PLAN_NONE ? 0 : i;
                piece->dst += piece->dst_buf == PLAN_NONE ? 0 : i;
                piece->ndep = i == 0 ? old->ndep : 0;
                piece->shape = p->g.nodes[first + i].shape;
                piece->flags = flags ? flags[first + i] : 0;
            }
            last[s] = used - 1 - begin;
        }
        lane->first = begin;
        lane->nsteps = used - begin;
    }
    prog->nsteps = used;
}

static uno_err split_rank(const struct proof *p, struct plan_prog *prog, const uint8_t *flags)
{
    int pieces = 0;
    for (int s = 0; s < prog->nsteps; s++) {
        int first = p->g.step_node[p->g.rank_step[prog->rank] + s];
        for (int i = 0; i < prog->steps[s].count; i++)
            pieces += i == 0 || cut_before(p, first, i, flags);
    }
    struct plan_step *steps = mem_array((size_t)MAX(pieces, 1), sizeof *steps);
    int32_t *last = mem_array((size_t)MAX(prog->nsteps, 1), sizeof *last);
    int32_t *old_first = mem_array((size_t)MAX(prog->nlanes, 1), sizeof *old_first);
    if (!steps || !last || !old_first) {
        free(steps);
        free(last);
        free(old_first);
        return UNO_ERR_MEMORY;
    }
    for (int l = 0; l < prog->nlanes; l++)
        old_first[l] = prog->lanes[l].first;
    write_pieces(p, prog, steps, last, flags);
    for (int d = 0; d < prog->ndeps; d++)
        prog->deps[d].step = last[old_first[prog->deps[d].lane] + prog->deps[d].step];
    free(prog->steps);
    prog->steps = steps;
    free(last);
    free(old_first);
    return UNO_OK;
}

static uno_err split_all(const struct proof *p, struct plan *plan, const uint8_t *flags)
{
    for (int r = 0; r < plan->nranks; r++)
        TRY(split_rank(p, &plan->progs[r], flags));
    return UNO_OK;
}

static uno_err label_shapes(struct plan *plan, struct proof *p, struct verify_result *result)
{
    TRY(proof_begin(p, plan, INT_MAX, false, result));
    TRY(find_shapes(p));
    return split_all(p, plan, NULL);
}

static uno_err label_flags(struct plan *plan, struct proof *p, struct verify_result *result)
{
    TRY(proof_begin(p, plan, INT_MAX, true, result));
    uint8_t *flags = mem_array((size_t)MAX(p->g.nnodes, 1), 1);
    if (!flags)
        return UNO_ERR_MEMORY;
    struct data_pass pass = {.in_place = !plan->out_of_place_ok, .flags = flags};
    uno_err err = proof_data(p, &pass);
    if (err == UNO_OK || err == UNO_ERR_PLAN) /* of a wrong plan: as far as it makes sense */
        err = split_all(p, plan, flags);
    free(flags);
    return err;
}

uno_err verify_label_shapes(struct plan *plan)
{
    if (plan->generate || !plan->progs)
        return UNO_OK;
    struct verify_result result;
    struct proof p;
    uno_err err = label_shapes(plan, &p, &result);
    proof_free(&p);
    if (err == UNO_OK && plan->needs_reduce) {
        err = label_flags(plan, &p, &result);
        proof_free(&p);
    }
    return err == UNO_ERR_PLAN ? UNO_OK : err; /* verify_plan finds the same and says it */
}
