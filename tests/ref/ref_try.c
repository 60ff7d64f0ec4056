/* SPDX-License-Identifier: Apache-2.0 */
/* ref_try.c - see ref_try.h. */
#include "ref_try.h"

#include <string.h>

static uno_err try_it(const struct ref_case *c, struct ref_data *d, enum ref_fault *fault, char *why, size_t why_bytes)
{
    static const size_t tiles[] = {8, 16, 24};
    rng_seed(&d->rng, c->seed);
    size_t tile = tiles[rng_below(&d->rng, 3)];
    d->tile = tile;
    d->most_count = tile * (1 + rng_below(&d->rng, 4)) * (size_t)c->plan->parts;
    d->op = c->plan->needs_reduce && rng_below(&d->rng, 2) ? UNO_OP_DYNAMIC : UNO_SUM;
    TRY(ref_data_make(d));
    struct request req = d->req;
    req.op = UNO_SUM;
    struct ref_run run = {.plan = c->plan, .req = &req, .in = (const void *const *)d->in, .out = (void *const *)d->out,
                          .scale = c->plan->needs_reduce ? d->scale : NULL, .k = c->k, .tile_elems = tile,
                          .scratch_tiles = 1 + (int)rng_below(&d->rng, 2), .lent = c->lent, .seed = rng_next(&d->rng)};
    struct ref_outcome outcome;
    TRY(ref_interpret(&run, &outcome));
    *fault = REF_RIGHT;
    if (outcome.stuck) {
        *fault = REF_STUCK;
        snprintf(why, why_bytes, "%s (seed %llu)", outcome.where, (unsigned long long)c->seed);
    } else if (!ref_data_right(d, why, why_bytes)) {
        *fault = REF_WRONG_DATA;
        size_t len = strlen(why);
        snprintf(why + len, why_bytes - len, " (tile of %zu elements, seed %llu)", tile, (unsigned long long)c->seed);
    }
    return UNO_OK;
}

uno_err ref_try(const struct ref_case *c, enum ref_fault *fault, char *why, size_t why_bytes)
{
    struct ref_data d = {.plan = c->plan, .place = c->place, .type = UNO_INT64};
    why[0] = 0;
    uno_err err = try_it(c, &d, fault, why, why_bytes);
    ref_data_free(&d);
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
