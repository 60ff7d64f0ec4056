/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_try.c - see ref_try.h. Elements are random 64-bit integers, so that a sum with a contribution missing, doubled or
 * from elsewhere is practically never right.
 */
#include "ref_try.h"

#include <stdlib.h>
#include <string.h>

struct trial {
    const struct ref_case *c;
    struct request req;
    size_t counts[256], displs[256], total;  /* blocks, where the collective has blocks */
    size_t tile;
    uint64_t **own;             /* by rank: what it contributes, safe from being overwritten */
    uint64_t **in, **out;       /* what the plan works on; may alias */
    void **blocks;              /* allocations to free: 2 a rank */
    double *scale;
    struct rng rng;
};

static bool row_form(uno_coll coll)
{
    return coll == UNO_ALL_REDUCE || coll == UNO_BROADCAST || coll == UNO_REDUCE || coll == UNO_BARRIER;
}

/* Elements of a rank's in or out buffer. */
static size_t elems(const struct trial *t, int rank, enum plan_buf buf)
{
    uno_coll coll = t->c->plan->coll;
    if (row_form(coll))
        return t->req.count;
    bool own = buf == PLAN_IN ? coll == UNO_ALL_GATHER || coll == UNO_GATHER : coll == UNO_REDUCE_SCATTER || coll == UNO_SCATTER;
    return own ? t->counts[rank] : t->total;
}

/* Sizes around the boundaries: nothing, less than a unit, several tiles, uneven. */
static void choose_sizes(struct trial *t)
{
    const struct plan *plan = t->c->plan;
    static const size_t tiles[] = {8, 16, 24};
    t->tile = tiles[rng_below(&t->rng, 3)];
    size_t most = t->tile * (1 + rng_below(&t->rng, 4)) * (size_t)plan->parts;
    t->req = (struct request){.coll = plan->coll, .type = UNO_INT64, .op = UNO_SUM, .root = plan->root};
    t->req.count = rng_below(&t->rng, 8) == 0 ? rng_below(&t->rng, 9) : rng_below(&t->rng, most + 1);
    bool v = (plan->coll == UNO_ALL_GATHER || plan->coll == UNO_REDUCE_SCATTER) && rng_below(&t->rng, 2);
    for (int r = 0; r < plan->nranks; r++) {
        t->counts[r] = v ? rng_below(&t->rng, most + 1) : t->req.count;
        t->displs[r] = t->total;
        t->total += t->counts[r];
    }
    if (v) {
        t->req.coll = plan->coll == UNO_ALL_GATHER ? UNO_ALL_GATHER_V : UNO_REDUCE_SCATTER_V;
        t->req.counts = t->counts;
    }
}

static uint64_t *make_block(struct trial *t, size_t n, int at)
{
    uint64_t *p = malloc(n * sizeof *p + 1);
    t->blocks[at] = p;
    for (size_t i = 0; p && i < n; i++)
        p[i] = rng_next(&t->rng);
    return p;
}

static bool rank_in_place(struct trial *t, int rank)
{
    const struct plan *plan = t->c->plan;
    if (plan->coll == UNO_ALL_TO_ALL || !plan_has_buf(plan, rank, PLAN_IN) || !plan_has_buf(plan, rank, PLAN_OUT))
        return false;
    return t->c->place == REF_IN_PLACE || (t->c->place == REF_MIXED && rng_below(&t->rng, 2));
}

static uno_err make_buffers(struct trial *t, int r)
{
    const struct plan *plan = t->c->plan;
    size_t nin = elems(t, r, PLAN_IN), nout = elems(t, r, PLAN_OUT);
    if (rank_in_place(t, r)) {
        uint64_t *all = make_block(t, MAX(nin, nout), 2 * r);
        bool in_larger = plan->coll == UNO_REDUCE_SCATTER || plan->coll == UNO_SCATTER;
        size_t off = row_form(plan->coll) ? 0 : t->displs[r];
        t->in[r] = all + (in_larger ? 0 : off);
        t->out[r] = all + (in_larger ? off : 0);
        if (!all)
            return UNO_ERR_MEMORY;
    } else {
        t->in[r] = plan_has_buf(plan, r, PLAN_IN) ? make_block(t, nin, 2 * r) : NULL;
        t->out[r] = plan_has_buf(plan, r, PLAN_OUT) ? make_block(t, nout, 2 * r + 1) : NULL;
    }
    t->own[r] = malloc(nin * sizeof **t->own + 1);
    if (!t->own[r])
        return UNO_ERR_MEMORY;
    if (t->in[r])
        memcpy(t->own[r], t->in[r], nin * sizeof **t->own);
    return UNO_OK;
}

static uno_err make_trial(struct trial *t)
{
    size_t n = (size_t)t->c->plan->nranks;
    t->own = calloc(n, sizeof *t->own);
    t->in = calloc(n, sizeof *t->in);
    t->out = calloc(n, sizeof *t->out);
    t->blocks = calloc(2 * n, sizeof *t->blocks);
    t->scale = calloc(n, sizeof *t->scale);
    if (!t->own || !t->in || !t->out || !t->blocks || !t->scale)
        return UNO_ERR_MEMORY;
    rng_seed(&t->rng, t->c->seed);
    choose_sizes(t);
    bool scaled = t->c->plan->needs_reduce && rng_below(&t->rng, 2);
    for (size_t r = 0; r < n; r++)
        t->scale[r] = scaled ? (double)(2 + rng_below(&t->rng, 1000)) : 1;
    for (int r = 0; r < (int)n; r++)
        TRY(make_buffers(t, r));
    return UNO_OK;
}

/* What element i of rank r's out must be. */
static uint64_t expected(const struct trial *t, int r, size_t i)
{
    const struct plan *plan = t->c->plan;
    int block = 0;
    while (!row_form(plan->coll) && block + 1 < plan->nranks && i >= t->displs[block] + t->counts[block])
        block++;
    uint64_t sum = 0;
    switch (plan->coll) {
    case UNO_BROADCAST: return t->own[plan->root][i];
    case UNO_ALL_GATHER:
    case UNO_GATHER: return t->own[block][i - t->displs[block]];
    case UNO_SCATTER: return t->own[plan->root][t->displs[r] + i];
    case UNO_ALL_TO_ALL: return t->own[block][t->displs[r] + i - t->displs[block]];
    default:
        for (int q = 0; q < plan->nranks; q++)
            sum += t->own[q][plan->coll == UNO_REDUCE_SCATTER ? t->displs[r] + i : i] * (uint64_t)t->scale[q];
        return sum;
    }
}

static bool data_right(const struct trial *t, char *why, size_t why_bytes)
{
    const struct plan *plan = t->c->plan;
    for (int r = 0; r < plan->nranks; r++)
        for (size_t i = 0; plan_has_buf(plan, r, PLAN_OUT) && i < elems(t, r, PLAN_OUT); i++)
            if (t->out[r][i] != expected(t, r, i)) {
                snprintf(why, why_bytes, "rank %d: out element %zu of %zu is wrong (%s, tile %zu elements, seed %llu)", r, i,
                         elems(t, r, PLAN_OUT), coll_name(t->req.coll), t->tile, (unsigned long long)t->c->seed);
                return false;
            }
    return true;
}

static uno_err try_it(struct trial *t, enum ref_fault *fault, char *why, size_t why_bytes)
{
    const struct ref_case *c = t->c;
    TRY(make_trial(t));
    struct ref_run run = {.plan = c->plan, .req = &t->req, .in = (const void *const *)t->in, .out = (void *const *)t->out,
                          .scale = c->plan->needs_reduce ? t->scale : NULL, .k = c->k, .tile_elems = t->tile,
                          .scratch_tiles = 1 + (int)rng_below(&t->rng, 2), .lent = c->lent, .seed = rng_next(&t->rng)};
    struct ref_outcome outcome;
    TRY(ref_interpret(&run, &outcome));
    *fault = REF_RIGHT;
    if (outcome.stuck) {
        *fault = REF_STUCK;
        snprintf(why, why_bytes, "%s (seed %llu)", outcome.where, (unsigned long long)c->seed);
    } else if (c->plan->coll != UNO_BARRIER && !data_right(t, why, why_bytes)) {
        *fault = REF_WRONG_DATA;
    }
    return UNO_OK;
}

uno_err ref_try(const struct ref_case *c, enum ref_fault *fault, char *why, size_t why_bytes)
{
    struct trial t = {.c = c};
    why[0] = 0;
    if (c->plan->nranks > (int)ARRAY_LEN(t.counts))
        return err_set(UNO_ERR_UNSUPPORTED, "the tests' trials have at most %zu ranks", ARRAY_LEN(t.counts));
    uno_err err = try_it(&t, fault, why, why_bytes);
    for (int r = 0; r < c->plan->nranks; r++) {
        if (t.own)
            free(t.own[r]);
        if (t.blocks) {
            free(t.blocks[2 * r]);
            free(t.blocks[2 * r + 1]);
        }
    }
    free(t.own);
    free(t.in);
    free(t.out);
    free(t.blocks);
    free(t.scale);
    return err;
}

uno_err ref_try_many(struct ref_case c, int count, enum ref_fault *fault, char *why, size_t why_bytes)
{
    uint64_t first = c.seed;
    *fault = REF_RIGHT;
    for (int i = 0; i < count && *fault == REF_RIGHT; i++) {
        c.seed = first + (uint64_t)i;
        TRY(ref_try(&c, fault, why, why_bytes));
    }
    return UNO_OK;
}
