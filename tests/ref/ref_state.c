/* SPDX-License-Identifier: Apache-2.0 */
/* ref_state.c - see ref_state.h. */
#include "ref_state.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct ref_block {
    struct ref_block *next;
    max_align_t data[];
};

/* n x size bytes of zeros, freed with the state; NULL: no memory. */
static void *grab(struct ref_state *x, size_t n, size_t size)
{
    struct ref_block *b = calloc(1, sizeof *b + n * size + 1);
    if (!b)
        return NULL;
    b->next = x->memory;
    x->memory = b;
    return b->data;
}

static uno_err make_wire(struct ref_state *x, int src, const struct plan_conn *c, struct ref_wire *w)
{
    const struct plan *plan = x->run->plan;
    const int *host = plan->host_of;
    *w = (struct ref_wire){.src = src, .dst = c->group ? -1 : c->peer, .channel = c->channel};
    for (int r = 0; r < plan->nranks; r++)
        w->readers += c->group ? r != src && (!host || host[r] == host[src]) : r == c->peer;
    w->taken = grab(x, (size_t)plan->nranks, sizeof *w->taken);
    w->slot = grab(x, (size_t)x->run->k, sizeof *w->slot);
    if (!w->taken || !w->slot)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < x->run->k; i++)
        if (!(w->slot[i].own = grab(x, x->run->tile_elems, x->elem)))
            return UNO_ERR_MEMORY;
    return UNO_OK;
}

static uno_err make_rank(struct ref_state *x, int r)
{
    const struct ref_run *run = x->run;
    struct ref_rank *rank = &x->ranks[r];
    TRY(plan_rank(run->plan, r, &rank->prog));
    const struct plan_prog *p = &rank->prog;
    size_t bytes = (size_t)(run->scratch_tiles * p->scratch_chunks) * run->tile_elems * x->elem;
    rank->lanes = grab(x, (size_t)p->nlanes, sizeof *rank->lanes);
    rank->sends = grab(x, (size_t)p->nsends, sizeof *rank->sends);
    rank->recvs = grab(x, (size_t)p->nrecvs, sizeof *rank->recvs);
    rank->loans = grab(x, (size_t)run->scratch_tiles, sizeof *rank->loans);
    rank->scratch = grab(x, bytes, 1);
    if (!rank->lanes || !rank->sends || !rank->recvs || !rank->loans || !rank->scratch)
        return UNO_ERR_MEMORY;
    memset(rank->scratch, 0x5a, bytes); /* garbage must show */
    for (int l = 0; l < p->nlanes; l++)
        rank->lanes[l] = (struct ref_lane){.rank = r, .lane = l, .priority = rng_next(&x->rng)};
    for (int i = 0; i < p->nsends; i++)
        TRY(make_wire(x, r, &p->sends[i], &rank->sends[i]));
    x->nlanes += p->nlanes;
    return UNO_OK;
}

static struct ref_wire *find_wire(const struct ref_state *x, int dst, const struct plan_conn *c)
{
    struct ref_rank *src = &x->ranks[c->peer];
    for (int i = 0; i < src->prog.nsends; i++)
        if (src->sends[i].dst == (c->group ? -1 : dst) && src->sends[i].channel == c->channel)
            return &src->sends[i];
    return NULL;
}

uno_err ref_state_make(const struct ref_run *run, struct ref_state *x)
{
    int n = run->plan->nranks;
    *x = (struct ref_state){.run = run};
    rng_seed(&x->rng, run->seed);
    TRY(plan_chunks_make(run->plan, run->req, 0, &x->chunks));
    x->elem = x->chunks.elem_bytes;
    x->tiles = plan_tiles(x->chunks.max_len, run->tile_elems);
    x->value = grab(x, run->tile_elems, x->elem);
    x->ranks = grab(x, (size_t)n, sizeof *x->ranks);
    if (!x->value || !x->ranks)
        return UNO_ERR_MEMORY;
    for (int r = 0; r < n; r++)
        TRY(make_rank(x, r));
    if (!(x->lanes = grab(x, (size_t)x->nlanes, sizeof *x->lanes)))
        return UNO_ERR_MEMORY;
    for (int r = 0, at = 0; r < n; r++) {
        struct ref_rank *rank = &x->ranks[r];
        for (int l = 0; l < rank->prog.nlanes; l++)
            x->lanes[at++] = &rank->lanes[l];
        for (int i = 0; i < rank->prog.nrecvs; i++)
            rank->recvs[i] = find_wire(x, r, &rank->prog.recvs[i]);
    }
    return UNO_OK;
}

void ref_state_free(struct ref_state *x)
{
    for (int r = 0; x->ranks && r < x->run->plan->nranks; r++)
        plan_prog_free(&x->ranks[r].prog);
    plan_chunks_free(&x->chunks);
    for (struct ref_block *b = x->memory, *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

/* ---- arithmetic --------------------------------------------------------------------------------------------------- */

#define EACH(T)                                                                                   \
    for (size_t i = 0; i < n; i++) {                                                              \
        T *a = (T *)(void *)acc + i;                                                              \
        T b = ((const T *)(const void *)more)[i];                                                 \
        *a = op == UNO_PROD ? *a * b : op == UNO_MIN ? MIN(*a, b) : op == UNO_MAX ? MAX(*a, b) : *a + b; \
    }
#define SCALE(T, expr)                              \
    for (size_t i = 0; i < n; i++) {                \
        T *a = (T *)(void *)acc + i;                \
        *a = (T)(expr);                             \
    }

static void combine(uno_type type, int op, char *acc, const char *more, size_t n)
{
    if (type == UNO_INT64)
        EACH(uint64_t) /* sums wrap; the tests use no negative numbers with min and max */
    else if (type == UNO_INT32)
        EACH(uint32_t)
    else if (type == UNO_FLOAT32)
        EACH(float)
    else
        EACH(double)
}

void ref_operand(struct ref_state *x, int rank, bool first, const char *more, size_t n, bool raw)
{
    char scaled[n * x->elem + 1], *acc = scaled;
    memcpy(scaled, more, n * x->elem);
    double f = raw && x->run->scale ? x->run->scale[rank] : 1;
    uno_type type = x->run->req->type;
    if (f != 1 && type == UNO_INT64)
        SCALE(uint64_t, *a * (uint64_t)f)
    else if (f != 1 && type == UNO_INT32)
        SCALE(uint32_t, *a * (uint32_t)f)
    else if (f != 1 && type == UNO_FLOAT32)
        SCALE(float, *a * (float)f)
    else if (f != 1)
        SCALE(double, *a * f)
    if (first)
        memcpy(x->value, scaled, n * x->elem);
    else
        combine(type, x->run->req->op, x->value, scaled, n);
}

void ref_average(struct ref_state *x, size_t n)
{
    char *acc = x->value;
    int ranks = x->run->plan->nranks;
    if (x->run->req->type == UNO_INT64)
        SCALE(int64_t, *a / ranks)
    else if (x->run->req->type == UNO_INT32)
        SCALE(int32_t, *a / ranks)
    else if (x->run->req->type == UNO_FLOAT32)
        SCALE(float, *a / (float)ranks)
    else
        SCALE(double, *a / ranks)
}
