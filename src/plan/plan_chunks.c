/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_chunks.c - which chunk of which buffer is where and how long, for one request. The layout of each collective
 * stands in one table; used by verify, sim, compile and everyone who needs an offset.
 */
#include "plan.h"

#include <stdlib.h>

/* How a buffer holds the data: the whole row of `parts` chunks, this rank's own block, or all blocks. */
enum layout { ROW, OWN, ALL };

static const struct { uint8_t in, out; uno_coll v_form; } layouts[UNO_COLL_COUNT] = {
    [UNO_ALL_REDUCE] = {ROW, ROW, UNO_ALL_REDUCE},
    [UNO_BROADCAST] = {ROW, ROW, UNO_BROADCAST},
    [UNO_REDUCE] = {ROW, ROW, UNO_REDUCE},
    [UNO_BARRIER] = {ROW, ROW, UNO_BARRIER},
    [UNO_ALL_GATHER] = {OWN, ALL, UNO_ALL_GATHER_V},
    [UNO_REDUCE_SCATTER] = {ALL, OWN, UNO_REDUCE_SCATTER_V},
    [UNO_ALL_TO_ALL] = {ALL, ALL, UNO_ALL_TO_ALL_V},
    [UNO_GATHER] = {OWN, ALL, UNO_GATHER},
    [UNO_SCATTER] = {ALL, OWN, UNO_SCATTER},
};

static enum layout layout_of(const struct plan *plan, enum plan_buf buf)
{
    return buf == PLAN_IN ? layouts[plan->coll].in : layouts[plan->coll].out;
}

int plan_buf_chunks(const struct plan *plan, enum plan_buf buf)
{
    if (buf != PLAN_IN && buf != PLAN_OUT)
        return 0; /* scratch belongs to a rank's program */
    return layout_of(plan, buf) == ALL ? plan->nranks * plan->parts : plan->parts;
}

int plan_shapes(const struct plan *plan)
{
    return layouts[plan->coll].in == ROW ? plan->parts : plan->nranks * plan->parts;
}

int plan_chunk_shape(const struct plan *plan, int rank, enum plan_buf buf, int chunk)
{
    return layout_of(plan, buf) == OWN ? rank * plan->parts + chunk : chunk;
}

size_t plan_chunk_offset(const struct plan *plan, const struct plan_chunks *chunks, int rank, enum plan_buf buf, int chunk)
{
    int shape = plan_chunk_shape(plan, rank, buf, chunk);
    return layout_of(plan, buf) == OWN ? chunks->part_off[shape] : chunks->full_off[shape];
}

/* Cut one block of `len` elements that begins at `base` of the full buffer into parts; fills shapes first, first + 1, ... */
static void split_block(struct plan_chunks *c, int first, int parts, size_t len, size_t base)
{
    bool large = len > (size_t)parts * (65536 / c->elem_bytes);
    size_t unit = (large ? 4096 : 64) / c->elem_bytes; /* every type's size divides 64 */
    size_t units = len / unit + (len % unit != 0);
    size_t each = units / (size_t)parts, extra = units % (size_t)parts, at = 0;
    for (int i = 0; i < parts; i++) {
        size_t room = (each + ((size_t)i < extra)) * unit;
        size_t n = MIN(room, len - at); /* the last unit may be cut short */
        c->len[first + i] = n;
        c->part_off[first + i] = at;
        c->full_off[first + i] = base + at;
        c->max_len = MAX(c->max_len, n);
        at += n;
    }
}

/* Offsets of the blocks in real order: given, packed counts, or equal blocks. */
static uno_err block_offset(const struct request *req, int real, size_t *packed, size_t *len, size_t *base)
{
    *len = req->counts ? req->counts[real] : req->count;
    *base = req->displs ? req->displs[real] : *packed;
    size_t end;
    if (__builtin_add_overflow(*packed, *len, packed) || __builtin_add_overflow(*base, *len, &end))
        return err_set(UNO_ERR_ARG, "the counts add up to more elements than memory can hold (block %d has %zu)", real, *len);
    return UNO_OK;
}

static uno_err split_all(const struct plan *plan, const struct request *req, int shift, struct plan_chunks *c)
{
    int n = plan->nranks;
    if (layouts[plan->coll].in == ROW) {
        split_block(c, 0, plan->parts, req->count, 0);
        return UNO_OK;
    }
    size_t packed = 0;
    for (int real = 0; real < n; real++) {
        size_t len, base;
        TRY(block_offset(req, real, &packed, &len, &base));
        int virtual_rank = ((real - shift) % n + n) % n;
        split_block(c, virtual_rank * plan->parts, plan->parts, len, base);
    }
    return UNO_OK;
}

uno_err plan_chunks_make(const struct plan *plan, const struct request *req, int shift, struct plan_chunks *chunks)
{
    *chunks = (struct plan_chunks){.nshapes = plan_shapes(plan), .elem_bytes = uno_type_bytes(req->type)};
    bool v = req->coll != plan->coll;
    if ((unsigned)req->coll >= UNO_COLL_COUNT || (v && req->coll != layouts[plan->coll].v_form))
        return err_set(UNO_ERR_ARG, "plan %s is for %s, not for %s", plan->name, coll_name(plan->coll), coll_name(req->coll));
    if (chunks->elem_bytes == 0)
        return err_set(UNO_ERR_ARG, "%d is not a type", (int)req->type);
    if (v && !req->counts)
        return err_set(UNO_ERR_ARG, "%s needs counts", coll_name(req->coll));
    size_t *words = mem_array((size_t)chunks->nshapes * 3, sizeof *words);
    if (!words)
        return UNO_ERR_MEMORY;
    chunks->len = words;
    chunks->full_off = words + chunks->nshapes;
    chunks->part_off = words + 2 * (size_t)chunks->nshapes;
    struct request plain = *req; /* counts mean something in the V forms only */
    if (!v)
        plain.counts = plain.displs = NULL;
    uno_err err = split_all(plan, &plain, shift, chunks);
    if (err != UNO_OK)
        plan_chunks_free(chunks);
    return err;
}

void plan_chunks_free(struct plan_chunks *chunks)
{
    free(chunks->len); /* the other arrays are parts of it */
    *chunks = (struct plan_chunks){0};
}
