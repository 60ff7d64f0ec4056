/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c - the entry points: which stages a proof has, in order, and what a verdict says.
 */
#include "verify_proof.h"

#include <stdlib.h>

const char *const verify_kind_names[] = {"ok", "bounds", "connection", "deadlock", "race", "missing", "twice", "wrong"};

uno_err proof_refute(struct proof *p, enum verify_kind kind, int node, const char *fmt, ...)
{
    const struct plan_node *n = &p->g.nodes[node];
    const struct plan_graph_lane *l = &p->g.lanes[n->lane];
    struct verify_result *r = p->result;
    *r = (struct verify_result){.kind = kind, .rank = l->rank, .lane = l->lane,
                                .step = n->step - p->g.progs[l->rank].lanes[l->lane].first};
    char who[160];
    int used = snprintf(r->reason, sizeof r->reason, "%s ", plan_node_text(&p->g, node, who, sizeof who));
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->reason + used, sizeof r->reason - (size_t)used, fmt, args);
    va_end(args);
    return err_set(UNO_ERR_PLAN, "%s", r->reason);
}

uno_err proof_refute_rank(struct proof *p, enum verify_kind kind, int rank, const char *fmt, ...)
{
    *p->result = (struct verify_result){.kind = kind, .rank = rank, .lane = -1, .step = -1};
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->result->reason, sizeof p->result->reason, fmt, args);
    va_end(args);
    return err_set(UNO_ERR_PLAN, "%s", p->result->reason);
}

/* The out chunk that an in chunk is the same memory as, in place; -1 if none. */
static int alias_of_in(const struct plan *plan, int rank, int chunk)
{
    if (plan->coll == UNO_ALL_TO_ALL || !plan_has_buf(plan, rank, PLAN_IN) || !plan_has_buf(plan, rank, PLAN_OUT))
        return -1;
    int out = plan_chunk_shape(plan, rank, PLAN_IN, chunk) - plan_chunk_shape(plan, rank, PLAN_OUT, 0);
    return out >= 0 && out < plan_buf_chunks(plan, PLAN_OUT) ? out : -1;
}

int proof_cell(const struct proof *p, int rank, enum plan_buf buf, int chunk, bool in_place)
{
    int in_chunks = plan_buf_chunks(p->plan, PLAN_IN), base = p->cell0[rank];
    if (buf == PLAN_IN) {
        int alias = in_place ? alias_of_in(p->plan, rank, chunk) : -1;
        return alias < 0 ? base + chunk : base + in_chunks + alias;
    }
    base += in_chunks;
    return buf == PLAN_OUT ? base + chunk : base + plan_buf_chunks(p->plan, PLAN_OUT) + chunk;
}

const char *proof_chunk_text(int rank, enum plan_buf buf, int chunk, char *text, size_t bytes)
{
    static const char *const names[] = {"none", "in", "out", "scratch"};
    snprintf(text, bytes, "%s chunk %d of rank %d", names[buf], chunk, rank);
    return text;
}

static uno_err number_cells(struct proof *p)
{
    int n = p->plan->nranks;
    p->cell0 = mem_array((size_t)n + 1, sizeof *p->cell0);
    if (!p->cell0)
        return UNO_ERR_MEMORY;
    int64_t cells = 0;
    int both = plan_buf_chunks(p->plan, PLAN_IN) + plan_buf_chunks(p->plan, PLAN_OUT);
    for (int r = 0; r < n; r++) {
        cells += both + p->g.progs[r].scratch_chunks;
        if (cells > 100000000)
            return err_set(UNO_ERR_UNSUPPORTED, "plan %s has more than 100 million chunks: too many to look at", p->plan->name);
        p->cell0[r + 1] = (int32_t)cells;
    }
    return UNO_OK;
}

void proof_free(struct proof *p)
{
    plan_graph_free(&p->g);
    free(p->order);
    free(p->at);
    free(p->cell0);
}

/* Shapes that do not fit may only be the consequence of a deadlock or a race: those of an import were followed through its
 * messages and scratch. Then that is the verdict. */
static uno_err find_cause(struct proof *p, uno_err err)
{
    struct verify_result first = *p->result, none = {.rank = -1, .lane = -1, .step = -1};
    struct plan_fault fault;
    plan_graph_free(&p->g);
    *p->result = none;
    p->one_class = true;
    uno_err cause = plan_graph_make(p->plan, false, &p->g, &fault);
    if (cause == UNO_OK)
        cause = proof_order(p);
    if (cause == UNO_OK)
        cause = number_cells(p);
    if (cause == UNO_OK)
        cause = proof_races(p, false, false);
    if (cause == UNO_ERR_MEMORY || (cause == UNO_ERR_PLAN && p->result->kind != VERIFY_OK))
        return cause;
    *p->result = first;
    return err_set(err, "%s", first.reason);
}

/* Everything that does not depend on in place or lent. */
uno_err proof_begin(struct proof *p, const struct plan *plan, int k, bool shapes, struct verify_result *result)
{
    *p = (struct proof){.plan = plan, .k = k > 0 ? k : MAX(plan->k_claimed, 1), .result = result};
    *result = (struct verify_result){.rank = -1, .lane = -1, .step = -1};
    struct plan_fault fault;
    uno_err err = plan_graph_make(plan, shapes, &p->g, &fault);
    if (err == UNO_ERR_PLAN && fault.kind != PLAN_FAULT_NONE) {
        *result = (struct verify_result){.kind = fault.kind == PLAN_FAULT_BOUNDS ? VERIFY_BOUNDS : VERIFY_CONNECTION,
                                         .rank = fault.rank, .lane = fault.lane, .step = fault.step};
        snprintf(result->reason, sizeof result->reason, "%s", fault.reason);
        return shapes ? find_cause(p, err) : err;
    }
    TRY(err);
    TRY(proof_order(p));
    return number_cells(p);
}

static uno_err no_place_for(struct proof *p)
{
    return proof_refute_rank(p, VERIFY_WRONG, -1, "%s has no in-place form", coll_name(p->plan->coll));
}

static uno_err prove_one(struct proof *p, const struct verify_options *opt)
{
    if (p->plan->coll == UNO_BARRIER) {
        p->result->same_bits = true;
        return proof_barrier(p);
    }
    if (opt->in_place && p->plan->coll == UNO_ALL_TO_ALL)
        return no_place_for(p);
    TRY(proof_races(p, opt->in_place, opt->lent));
    struct data_pass pass = {.in_place = opt->in_place};
    TRY(proof_data(p, &pass));
    p->result->same_bits = pass.same_bits;
    return UNO_OK;
}

/* A refutation is an answer, not an error. */
static uno_err answer(uno_err err, const struct verify_result *result)
{
    return err == UNO_ERR_PLAN && result->kind != VERIFY_OK ? UNO_OK : err;
}

uno_err verify_plan(const struct plan *plan, const struct verify_options *opt, struct verify_result *result)
{
    struct proof p;
    uno_err err = proof_begin(&p, plan, opt->k, true, result);
    if (err == UNO_OK)
        err = prove_one(&p, opt);
    proof_free(&p);
    return answer(err, result);
}

static uno_err prove_data_of_claims(struct proof *p)
{
    const struct plan *plan = p->plan;
    struct data_pass pass = {.in_place = !plan->out_of_place_ok};
    if (!(plan->in_place_ok && plan->out_of_place_ok))
        return proof_data(p, &pass);
    pass.sent = mem_array((size_t)MAX(p->g.nmessages, 1), sizeof *pass.sent);
    if (!pass.sent)
        return UNO_ERR_MEMORY;
    uno_err err = proof_data(p, &pass);
    pass.in_place = pass.compare = true;
    if (err == UNO_OK)
        err = proof_data(p, &pass);
    free(pass.sent);
    return err;
}

static uno_err prove_for_use(struct proof *p, struct plan *plan)
{
    if (plan->coll == UNO_BARRIER)
        return proof_barrier(p);
    if (plan->in_place_ok && plan->coll == UNO_ALL_TO_ALL)
        return no_place_for(p);
    if (!plan->in_place_ok && !plan->out_of_place_ok)
        return proof_refute_rank(p, VERIFY_WRONG, -1, "the plan claims to work neither in place nor out of place");
    uno_err err = proof_races(p, plan->in_place_ok, true);
    plan->copies_only = err == UNO_ERR_PLAN;
    plan->lends_out_of_place = false;
    if (plan->copies_only) {
        /* Races on a rank's memory depend on that rank's own aliasing and loans alone, so this holds for any mixture. */
        plan->lends_out_of_place = plan->out_of_place_ok && proof_races(p, false, true) == UNO_OK;
        err = proof_races(p, plan->in_place_ok, false);
    }
    TRY(err);
    *p->result = (struct verify_result){.rank = -1, .lane = -1, .step = -1};
    return prove_data_of_claims(p);
}

uno_err verify_for_use(struct plan *plan, int k)
{
    struct verify_result result;
    struct proof p;
    uno_err err = proof_begin(&p, plan, k, true, &result);
    if (err == UNO_OK)
        err = prove_for_use(&p, plan);
    proof_free(&p);
    return err == UNO_OK ? UNO_OK : err_wrap(err, "plan %s was refused (%s)", plan->name, verify_kind_names[result.kind]);
}
