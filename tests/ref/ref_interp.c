/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_interp.c - see ref_interp.h. Slow and plain: every loop looks at all lanes and fires the one of highest random
 * priority that can; priorities change now and then, so that some lanes run far ahead and others are left behind.
 */
#include "ref_interp.h"

#include <stdlib.h>
#include <string.h>

struct lane {
    int rank, lane, step, i;
    size_t tile;
    uint64_t priority;
};

/* A connection: k slots, each read once by every reader. Counts run over all tiles. */
struct wire {
    int src, dst, channel, readers;
    uint64_t sent, *taken;      /* taken: by reading rank */
    char **slot;                /* k buffers of a tile */
    const char **data;          /* k: the slot, or lent memory */
    size_t *lent_tile;          /* k: tile of lent scratch + 1, or 0 */
    int *unread;                /* k */
};

struct interp {
    const struct ref_run *run;
    struct plan_prog *progs;
    struct plan_chunks chunks;
    struct lane *lanes;
    int *lane0;                 /* by rank: its first lane */
    int **sends, **recvs;       /* by rank: wires of its connection ends */
    struct wire *wires;
    char **scratch;             /* by rank: S x chunks x tile */
    int *loans;                 /* rank x S: lent scratch not yet read */
    size_t *begun;              /* by rank: tiles that one of its lanes has begun */
    int nlanes, nwires;
    size_t tiles, elem;
    char *value;                /* what the firing in hand makes */
    struct rng rng;
};


static int find_wire(const struct interp *x, int src, int dst, int channel)
{
    for (int i = 0; i < x->nwires; i++)
        if (x->wires[i].src == src && x->wires[i].dst == dst && x->wires[i].channel == channel)
            return i;
    return -1;
}

static struct wire *wire_of_send(struct interp *x, int rank, int send)
{
    return &x->wires[x->sends[rank][send]];
}

static struct wire *wire_of_recv(struct interp *x, int rank, int recv)
{
    int i = x->recvs[rank][recv];
    return i < 0 ? NULL : &x->wires[i];
}

/* ---- setting up ---------------------------------------------------------------------------------------------- */

static uno_err make_wire(struct interp *x, int src, const struct plan_conn *c)
{
    int n = x->run->plan->nranks, k = x->run->k;
    const int *host = x->run->plan->host_of;
    struct wire *w = &x->wires[x->nwires++];
    *w = (struct wire){.src = src, .dst = c->group ? -1 : c->peer, .channel = c->channel};
    for (int r = 0; r < n; r++)
        w->readers += c->group ? r != src && (!host || host[r] == host[src]) : r == c->peer;
    w->taken = calloc((size_t)n, sizeof *w->taken);
    w->slot = calloc((size_t)k, sizeof *w->slot);
    w->data = calloc((size_t)k, sizeof *w->data);
    w->lent_tile = calloc((size_t)k, sizeof *w->lent_tile);
    w->unread = calloc((size_t)k, sizeof *w->unread);
    if (!w->taken || !w->slot || !w->data || !w->lent_tile || !w->unread)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < k; i++)
        if (!(w->slot[i] = malloc(x->run->tile_elems * x->elem)))
            return UNO_ERR_MEMORY;
    return UNO_OK;
}

static uno_err make_rank(struct interp *x, int r)
{
    const struct ref_run *run = x->run;
    TRY(plan_rank(run->plan, r, &x->progs[r]));
    const struct plan_prog *p = &x->progs[r];
    x->lanes = realloc(x->lanes, (size_t)(x->nlanes + p->nlanes + 1) * sizeof *x->lanes);
    x->wires = realloc(x->wires, (size_t)(x->nwires + p->nsends + 1) * sizeof *x->wires);
    size_t bytes = (size_t)(run->scratch_tiles * p->scratch_chunks) * run->tile_elems * x->elem;
    x->scratch[r] = malloc(bytes + 1);
    if (!x->lanes || !x->wires || !x->scratch[r])
        return UNO_ERR_MEMORY;
    memset(x->scratch[r], 0x5a, bytes); /* garbage must show */
    x->lane0[r] = x->nlanes;
    for (int l = 0; l < p->nlanes; l++)
        x->lanes[x->nlanes++] = (struct lane){.rank = r, .lane = l, .priority = rng_next(&x->rng)};
    x->sends[r] = calloc((size_t)p->nsends + 1, sizeof **x->sends);
    x->recvs[r] = calloc((size_t)p->nrecvs + 1, sizeof **x->recvs);
    if (!x->sends[r] || !x->recvs[r])
        return UNO_ERR_MEMORY;
    for (int i = 0; i < p->nsends; i++) {
        x->sends[r][i] = x->nwires;
        TRY(make_wire(x, r, &p->sends[i]));
    }
    return UNO_OK;
}

static uno_err make_all(struct interp *x)
{
    const struct ref_run *run = x->run;
    size_t n = (size_t)run->plan->nranks;
    rng_seed(&x->rng, run->seed);
    TRY(plan_chunks_make(run->plan, run->req, 0, &x->chunks));
    x->elem = x->chunks.elem_bytes;
    x->tiles = plan_tiles(x->chunks.max_len, run->tile_elems);
    x->progs = calloc(n, sizeof *x->progs);
    x->scratch = calloc(n, sizeof *x->scratch);
    x->lane0 = calloc(n, sizeof *x->lane0);
    x->sends = calloc(n, sizeof *x->sends);
    x->recvs = calloc(n, sizeof *x->recvs);
    x->loans = calloc(n * (size_t)run->scratch_tiles, sizeof *x->loans);
    x->begun = calloc(n, sizeof *x->begun);
    x->value = malloc(run->tile_elems * x->elem);
    if (!x->progs || !x->scratch || !x->loans || !x->begun || !x->value || !x->lane0 || !x->sends || !x->recvs)
        return UNO_ERR_MEMORY;
    for (int r = 0; r < (int)n; r++)
        TRY(make_rank(x, r));
    for (int r = 0; r < (int)n; r++)
        for (int i = 0; i < x->progs[r].nrecvs; i++) {
            const struct plan_conn *c = &x->progs[r].recvs[i];
            x->recvs[r][i] = find_wire(x, c->peer, c->group ? -1 : r, c->channel);
        }
    return UNO_OK;
}

static void free_all(struct interp *x)
{
    for (int i = 0; i < x->nwires; i++) {
        for (int s = 0; x->wires[i].slot && s < x->run->k; s++)
            free(x->wires[i].slot[s]);
        free(x->wires[i].slot);
        free(x->wires[i].taken);
        free(x->wires[i].data);
        free(x->wires[i].lent_tile);
        free(x->wires[i].unread);
    }
    for (int r = 0; r < x->run->plan->nranks; r++) {
        if (x->progs)
            plan_prog_free(&x->progs[r]);
        if (x->scratch)
            free(x->scratch[r]);
        if (x->sends)
            free(x->sends[r]);
        if (x->recvs)
            free(x->recvs[r]);
    }
    free(x->lane0);
    free(x->sends);
    free(x->recvs);
    free(x->progs);
    free(x->scratch);
    free(x->loans);
    free(x->begun);
    free(x->value);
    free(x->lanes);
    free(x->wires);
    plan_chunks_free(&x->chunks);
}

/* ---- one firing ------------------------------------------------------------------------------------------------ */

static char *memory_of(struct interp *x, const struct lane *l, int buf, int chunk)
{
    const struct ref_run *run = x->run;
    if (buf == PLAN_SCRATCH) {
        size_t at = (l->tile % (size_t)run->scratch_tiles) * (size_t)x->progs[l->rank].scratch_chunks + (size_t)chunk;
        return x->scratch[l->rank] + at * run->tile_elems * x->elem;
    }
    size_t off = plan_chunk_offset(run->plan, &x->chunks, l->rank, (enum plan_buf)buf, chunk) + l->tile * run->tile_elems;
    return (buf == PLAN_IN ? (char *)(uintptr_t)run->in[l->rank] : (char *)run->out[l->rank]) + off * x->elem;
}

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

/* acc = more, or acc o= more; a raw contribution is scaled first. */
static void operand(struct interp *x, const struct lane *l, int at, const char *more, size_t n, bool raw)
{
    char scaled[n * x->elem + 1], *acc = scaled;
    memcpy(scaled, more, n * x->elem);
    double f = raw && x->run->scale ? x->run->scale[l->rank] : 1;
    uno_type type = x->run->req->type;
    if (f != 1 && type == UNO_INT64)
        SCALE(uint64_t, *a * (uint64_t)f)
    else if (f != 1 && type == UNO_INT32)
        SCALE(uint32_t, *a * (uint32_t)f)
    else if (f != 1 && type == UNO_FLOAT32)
        SCALE(float, *a * (float)f)
    else if (f != 1)
        SCALE(double, *a * f)
    if (at == 0)
        memcpy(x->value, scaled, n * x->elem);
    else
        combine(type, x->run->req->op, x->value, scaled, n);
}

static void finish_average(struct interp *x, size_t n)
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

static const char *message(struct interp *x, const struct lane *l, int recv)
{
    struct wire *w = wire_of_recv(x, l->rank, recv);
    return w->data[w->taken[l->rank] % (uint64_t)x->run->k];
}

static void release(struct interp *x, const struct lane *l, int recv)
{
    struct wire *w = wire_of_recv(x, l->rank, recv);
    size_t slot = (size_t)(w->taken[l->rank]++ % (uint64_t)x->run->k);
    if (--w->unread[slot] == 0 && w->lent_tile[slot] > 0)
        x->loans[(size_t)w->src * (size_t)x->run->scratch_tiles + (w->lent_tile[slot] - 1) % (size_t)x->run->scratch_tiles]--;
}

static void send_value(struct interp *x, const struct lane *l, const struct plan_step *s, size_t n)
{
    struct wire *w = wire_of_send(x, l->rank, s->send);
    size_t slot = (size_t)(w->sent++ % (uint64_t)x->run->k);
    bool fused = plan_ops[s->op].writes_dst;
    bool lend = x->run->lent && (fused || s->op == PLAN_SEND) &&
                (fused || !(s->flags & PLAN_RAW_SRC) || !x->run->scale || x->run->scale[l->rank] == 1);
    int buf = fused ? s->dst_buf : s->src_buf;
    w->unread[slot] = w->readers;
    w->lent_tile[slot] = lend && buf == PLAN_SCRATCH && w->readers > 0 ? l->tile + 1 : 0;
    if (w->lent_tile[slot])
        x->loans[(size_t)l->rank * (size_t)x->run->scratch_tiles + l->tile % (size_t)x->run->scratch_tiles]++;
    w->data[slot] = lend ? memory_of(x, l, buf, (fused ? s->dst : s->src) + l->i) : w->slot[slot];
    if (!lend)
        memcpy(w->slot[slot], x->value, n * x->elem);
}

static void fire(struct interp *x, const struct lane *l, const struct plan_step *s, size_t n)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    const struct plan_prog *p = &x->progs[l->rank];
    int at = 0;
    if (op->reads_dst)
        operand(x, l, at++, memory_of(x, l, s->dst_buf, s->dst + l->i), n, s->flags & PLAN_RAW_DST);
    for (int i = 0; i <= s->nrecv; i++) {
        if (op->reads_src && i == s->self)
            operand(x, l, at++, memory_of(x, l, s->src_buf, s->src + l->i), n, s->flags & PLAN_RAW_SRC);
        if (i < s->nrecv)
            operand(x, l, at++, message(x, l, p->recv_list[s->recv + i]), n, false);
    }
    if (x->run->req->op == UNO_AVG && s->flags & PLAN_COMPLETES)
        finish_average(x, n);
    for (int i = 0; i < s->nrecv; i++)
        release(x, l, p->recv_list[s->recv + i]);
    if (op->writes_dst)
        memcpy(memory_of(x, l, s->dst_buf, s->dst + l->i), x->value, n * x->elem);
    if (op->sends)
        send_value(x, l, s, n);
}

/* ---- who can go on ------------------------------------------------------------------------------------------------ */

/* Elements of the firing in hand; false: this chunk has no such tile. */
static bool firing_elems(const struct interp *x, const struct lane *l, const struct plan_step *s, size_t *n)
{
    size_t tile = x->run->tile_elems, len = x->chunks.len[s->shape + l->i];
    *n = s->op == PLAN_NOP || len <= l->tile * tile ? 0 : MIN(tile, len - l->tile * tile);
    return s->op == PLAN_NOP || l->tile < plan_tiles(len, tile);
}

/* A rank begins a tile once: after that, loans are this tile's own. */
static const char *may_begin_tile(const struct interp *x, const struct lane *l)
{
    size_t s = (size_t)x->run->scratch_tiles;
    if (l->tile < s || l->tile < x->begun[l->rank])
        return NULL;
    for (int i = 0; i < x->progs[l->rank].nlanes; i++)
        if (x->lanes[x->lane0[l->rank] + i].tile <= l->tile - s)
            return "waits for scratch: another lane is still in an earlier tile";
    return x->loans[(size_t)l->rank * s + l->tile % s] > 0 ? "waits for scratch: a loan is not released" : NULL;
}

static bool step_finished(const struct interp *x, const struct lane *l, const struct plan_dep *d)
{
    const struct lane *o = &x->lanes[x->lane0[l->rank] + d->lane];
    return o->tile > l->tile || (o->tile == l->tile && o->step > d->step);
}

/* NULL: it can fire. Else what it waits for. */
static const char *waits_for(struct interp *x, const struct lane *l, const struct plan_step *s)
{
    const struct plan_prog *p = &x->progs[l->rank];
    size_t n;
    const char *scratch = l->step == 0 && l->i == 0 ? may_begin_tile(x, l) : NULL;
    if (scratch)
        return scratch;
    for (int i = 0; l->i == 0 && i < s->ndep; i++)
        if (!step_finished(x, l, &p->deps[s->dep + i]))
            return "waits for a step of another lane";
    if (!firing_elems(x, l, s, &n))
        return NULL;
    for (int i = 0; i < s->nrecv; i++) {
        const struct wire *w = wire_of_recv(x, l->rank, p->recv_list[s->recv + i]);
        if (!w || w->taken[l->rank] == w->sent)
            return "waits for a message";
    }
    if (s->send < 0)
        return NULL;
    const struct wire *w = wire_of_send(x, l->rank, s->send);
    return w->sent >= (uint64_t)x->run->k && w->unread[w->sent % (uint64_t)x->run->k] > 0 ? "waits for credit" : NULL;
}

static const struct plan_step *step_of(const struct interp *x, const struct lane *l)
{
    const struct plan_lane *lane = &x->progs[l->rank].lanes[l->lane];
    return l->tile < x->tiles && lane->nsteps > 0 ? &x->progs[l->rank].steps[lane->first + l->step] : NULL;
}

static void go_on(struct interp *x, struct lane *l, const struct plan_step *s)
{
    size_t n;
    x->begun[l->rank] = MAX(x->begun[l->rank], l->tile + 1);
    if (firing_elems(x, l, s, &n) && s->op != PLAN_NOP)
        fire(x, l, s, n);
    if (++l->i < s->count)
        return;
    l->i = 0;
    if (++l->step < x->progs[l->rank].lanes[l->lane].nsteps)
        return;
    l->step = 0;
    l->tile++;
}

static void run_all(struct interp *x, struct ref_outcome *outcome)
{
    for (int i = 0; i < x->nlanes; i++) /* a lane without steps has finished every tile */
        if (!step_of(x, &x->lanes[i]))
            x->lanes[i].tile = x->tiles;
    for (;;) {
        struct lane *best = NULL;
        for (int i = 0; i < x->nlanes; i++) {
            struct lane *l = &x->lanes[i];
            const struct plan_step *s = step_of(x, l);
            if (s && (!best || l->priority > best->priority) && !waits_for(x, l, s))
                best = l;
        }
        if (!best)
            break;
        go_on(x, best, step_of(x, best));
        outcome->firings++;
        if (rng_below(&x->rng, 4) == 0)
            x->lanes[rng_below(&x->rng, (uint64_t)x->nlanes)].priority = rng_next(&x->rng);
        if (rng_below(&x->rng, 8) == 0)
            best->priority = rng_next(&x->rng) >> 8; /* the one that runs falls behind */
    }
    for (int i = 0; i < x->nlanes && !outcome->stuck; i++) {
        const struct lane *l = &x->lanes[i];
        const struct plan_step *s = step_of(x, l);
        outcome->stuck = s != NULL;
        if (s)
            snprintf(outcome->where, sizeof outcome->where, "rank %d lane %d step %d (%s) of tile %zu %s", l->rank, l->lane,
                     l->step, plan_ops[s->op].name, l->tile, waits_for(x, l, s));
    }
}

uno_err ref_interpret(const struct ref_run *run, struct ref_outcome *outcome)
{
    *outcome = (struct ref_outcome){0};
    struct interp x = {.run = run};
    uno_err err = make_all(&x);
    if (err == UNO_OK)
        run_all(&x, outcome);
    free_all(&x);
    return err == UNO_ERR_MEMORY ? err_set(err, "no memory to interpret plan %s", run->plan->name) : err;
}
