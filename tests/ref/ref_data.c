/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_data.c - see ref_data.h. Integers are random in all bits, so that a sum with a contribution missing, doubled or from
 * elsewhere is practically never right.
 */
#include "ref_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool row_form(uno_coll coll)
{
    return coll == UNO_ALL_REDUCE || coll == UNO_BROADCAST || coll == UNO_REDUCE || coll == UNO_BARRIER;
}

size_t ref_data_elems(const struct ref_data *d, int rank, enum plan_buf buf)
{
    uno_coll coll = d->plan->coll;
    if (row_form(coll))
        return d->req.count;
    bool own = buf == PLAN_IN ? coll == UNO_ALL_GATHER || coll == UNO_GATHER : coll == UNO_REDUCE_SCATTER || coll == UNO_SCATTER;
    return own ? d->counts[rank] : d->total;
}

/* Sizes around the boundaries: nothing, less than a unit, uneven, an element more or less than whole tiles. */
static size_t choose_count(struct ref_data *d)
{
    size_t whole = d->tile * (size_t)d->plan->parts, near_whole;
    switch (rng_below(&d->rng, 8)) {
    case 0: return rng_below(&d->rng, MIN(9, d->most_count + 1));
    case 1:
    case 2:
    case 3:
        near_whole = whole * (1 + rng_below(&d->rng, d->most_count / whole + 1)) + rng_below(&d->rng, 3) - 1;
        return MIN(d->most_count, near_whole);
    default: return rng_below(&d->rng, d->most_count + 1);
    }
}

static void choose_sizes(struct ref_data *d)
{
    const struct plan *plan = d->plan;
    d->req = (struct request){.coll = plan->coll, .type = d->type, .op = d->op, .root = plan->root};
    d->req.count = choose_count(d);
    bool v = !d->no_v && (plan->coll == UNO_ALL_GATHER || plan->coll == UNO_REDUCE_SCATTER) && rng_below(&d->rng, 2);
    for (int r = 0; r < plan->nranks; r++) {
        d->counts[r] = v ? choose_count(d) : d->req.count;
        d->displs[r] = d->total;
        d->total += d->counts[r];
    }
    if (v) {
        d->req.coll = plan->coll == UNO_ALL_GATHER ? UNO_ALL_GATHER_V : UNO_REDUCE_SCATTER_V;
        d->req.counts = d->counts;
    }
}

/* min and max: not negative, so that signed and unsigned agree. */
static void put_value(struct ref_data *d, char *at)
{
    uint64_t v = rng_next(&d->rng) >> (d->op == UNO_MIN || d->op == UNO_MAX);
    if (d->type == UNO_FLOAT32) {
        float f = (float)(v >> 40) / (float)(1 << 24);
        memcpy(at, &f, sizeof f);
    } else if (d->type == UNO_INT32) {
        memcpy(at, (uint32_t[]){(uint32_t)(v >> 32)}, 4);
    } else {
        memcpy(at, &v, 8);
    }
}

static char *make_block(struct ref_data *d, size_t n, int at)
{
    size_t bytes = n * d->elem + 1;
    if (!d->alloc)
        d->blocks[at] = malloc(bytes);
    else if (d->alloc(&d->blocks[at], bytes) != UNO_OK)
        d->blocks[at] = NULL;
    char *p = d->blocks[at];
    d->results[at] = malloc(bytes);
    if (!p || !d->results[at])
        return NULL;
    d->block_bytes[at] = n * d->elem;
    for (size_t i = 0; i < n; i++)
        put_value(d, p + i * d->elem);
    return p;
}

static bool rank_in_place(struct ref_data *d, int rank)
{
    const struct plan *plan = d->plan;
    if (plan->coll == UNO_ALL_TO_ALL || !plan_has_buf(plan, rank, PLAN_IN) || !plan_has_buf(plan, rank, PLAN_OUT))
        return false;
    return d->place == REF_IN_PLACE || (d->place == REF_MIXED && rng_below(&d->rng, 2));
}

static uno_err make_buffers(struct ref_data *d, int r)
{
    const struct plan *plan = d->plan;
    size_t nin = ref_data_elems(d, r, PLAN_IN), nout = ref_data_elems(d, r, PLAN_OUT);
    if (rank_in_place(d, r)) {
        char *all = make_block(d, MAX(nin, nout), 2 * r);
        bool in_larger = plan->coll == UNO_REDUCE_SCATTER || plan->coll == UNO_SCATTER;
        size_t off = row_form(plan->coll) ? 0 : d->displs[r] * d->elem;
        if (!all)
            return UNO_ERR_MEMORY;
        d->in[r] = all + (in_larger ? 0 : off);
        d->out[r] = all + (in_larger ? off : 0);
    } else {
        d->in[r] = plan_has_buf(plan, r, PLAN_IN) ? make_block(d, nin, 2 * r) : NULL;
        d->out[r] = plan_has_buf(plan, r, PLAN_OUT) ? make_block(d, nout, 2 * r + 1) : NULL;
    }
    d->own[r] = malloc(nin * d->elem + 1);
    if (!d->own[r])
        return UNO_ERR_MEMORY;
    if (d->in[r])
        memcpy(d->own[r], d->in[r], nin * d->elem);
    return UNO_OK;
}

uno_err ref_data_make(struct ref_data *d)
{
    size_t n = (size_t)d->plan->nranks;
    if (n > ARRAY_LEN(d->counts))
        return err_set(UNO_ERR_UNSUPPORTED, "the tests' data is for at most %zu ranks", ARRAY_LEN(d->counts));
    d->elem = uno_type_bytes(d->type);
    d->own = calloc(n, sizeof *d->own);
    d->in = calloc(n, sizeof *d->in);
    d->out = calloc(n, sizeof *d->out);
    d->blocks = calloc(2 * n, sizeof *d->blocks);
    d->results = calloc(2 * n, sizeof *d->results);
    d->block_bytes = calloc(2 * n, sizeof *d->block_bytes);
    d->scale = calloc(n, sizeof *d->scale);
    if (!d->own || !d->in || !d->out || !d->blocks || !d->results || !d->block_bytes || !d->scale)
        return UNO_ERR_MEMORY;
    choose_sizes(d);
    for (size_t r = 0; r < n; r++)
        d->scale[r] = d->op >= UNO_OP_DYNAMIC ? (double)(2 + rng_below(&d->rng, 1000)) : 1;
    for (int r = 0; r < (int)n; r++)
        TRY(make_buffers(d, r));
    return UNO_OK;
}

void ref_data_free(struct ref_data *d)
{
    for (int r = 0; d->own && r < d->plan->nranks; r++)
        free(d->own[r]);
    for (int i = 0; d->blocks && i < 2 * d->plan->nranks; i++)
        if (!d->release)
            free(d->blocks[i]);
        else if (d->blocks[i])
            (void)d->release(d->blocks[i]);
    free(d->own);
    free(d->in);
    free(d->out);
    for (int i = 0; d->results && i < 2 * d->plan->nranks; i++)
        free(d->results[i]);
    free(d->blocks);
    free(d->results);
    free(d->block_bytes);
    free(d->scale);
}

/* ---- what must come out --------------------------------------------------------------------------------------- */

static uint64_t int_at(const struct ref_data *d, const char *p, size_t i)
{
    uint32_t narrow;
    uint64_t wide;
    memcpy(&narrow, p + i * d->elem, sizeof narrow);
    if (d->type == UNO_INT32)
        return (uint64_t)(int64_t)(int32_t)narrow;
    memcpy(&wide, p + i * d->elem, sizeof wide);
    return wide;
}

static double float_at(const char *p, size_t i)
{
    float f;
    memcpy(&f, p + i * sizeof f, sizeof f);
    return (double)f;
}

/* All ranks' element i, reduced. */
static uint64_t reduced_int(const struct ref_data *d, size_t i)
{
    uint64_t acc = 0;
    for (int q = 0; q < d->plan->nranks; q++) {
        uint64_t v = int_at(d, d->own[q], i) * (uint64_t)d->scale[q];
        acc = q == 0 ? v : d->op == UNO_MIN ? MIN(acc, v) : d->op == UNO_MAX ? MAX(acc, v) : acc + v;
    }
    if (d->type == UNO_INT32)
        acc = (uint64_t)(int64_t)(int32_t)acc; /* sums wrap before they are divided */
    return d->op == UNO_AVG ? (uint64_t)((int64_t)acc / d->plan->nranks) : acc;
}

static double reduced_float(const struct ref_data *d, size_t i)
{
    double acc = 0;
    for (int q = 0; q < d->plan->nranks; q++) {
        double v = float_at(d->own[q], i) * d->scale[q];
        acc = q == 0 ? v : d->op == UNO_MIN ? MIN(acc, v) : d->op == UNO_MAX ? MAX(acc, v) : acc + v;
    }
    return d->op == UNO_AVG ? acc / d->plan->nranks : acc;
}

/* Where element i of rank r's out comes from; *rank < 0: from all, reduced. */
static size_t origin(const struct ref_data *d, int r, size_t i, int *rank)
{
    const struct plan *plan = d->plan;
    int block = 0;
    while (!row_form(plan->coll) && block + 1 < plan->nranks && i >= d->displs[block] + d->counts[block])
        block++;
    *rank = -1;
    switch (plan->coll) {
    case UNO_BROADCAST: *rank = plan->root; return i;
    case UNO_ALL_GATHER:
    case UNO_GATHER: *rank = block; return i - d->displs[block];
    case UNO_SCATTER: *rank = plan->root; return d->displs[r] + i;
    case UNO_ALL_TO_ALL: *rank = block; return d->displs[r] + i - d->displs[block];
    case UNO_REDUCE_SCATTER: return d->displs[r] + i;
    default: return i;
    }
}

static bool element_right(const struct ref_data *d, int r, size_t i)
{
    int from;
    size_t at = origin(d, r, i, &from);
    if (from >= 0)
        return memcmp(d->out[r] + i * d->elem, d->own[from] + at * d->elem, d->elem) == 0;
    if (d->type != UNO_FLOAT32)
        return int_at(d, d->out[r], i) == reduced_int(d, at);
    double want = reduced_float(d, at);
    return fabs(float_at(d->out[r], i) - want) <= 1e-5 * fabs(want); /* contributions are not negative */
}

bool ref_data_right(const struct ref_data *d, char *why, size_t why_bytes)
{
    const struct plan *plan = d->plan;
    for (int r = 0; plan->coll != UNO_BARRIER && r < plan->nranks; r++)
        for (size_t i = 0; plan_has_buf(plan, r, PLAN_OUT) && i < ref_data_elems(d, r, PLAN_OUT); i++)
            if (!element_right(d, r, i)) {
                snprintf(why, why_bytes, "rank %d: out element %zu of %zu is wrong (%s of %s)", r, i,
                         ref_data_elems(d, r, PLAN_OUT), coll_name(d->req.coll), type_name(d->type));
                return false;
            }
    return true;
}
