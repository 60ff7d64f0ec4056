/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_data.c - symbolic execution of one tile in topological order: what does each cell hold? A value is "in chunk
 * `what` of these ranks, reduced together"; one rank's block that is only moved has a set of one. Since there are no races,
 * the order does not matter.
 */
#include "verify_proof.h"

#include <stdlib.h>
#include <string.h>

struct value {
    int32_t set;      /* in the pool; -1: nothing was written */
    int32_t what;     /* number of the in chunk where the contributions come from */
    int32_t writer;   /* node, or -1: as the caller gave it */
    bool raw;         /* the own contribution, not yet scaled */
    uint64_t bits;    /* hash of the expression: equal hash, equal order of reduction */
};

/* Sets of ranks with a count of who holds them; the first nranks are {0}, {1}, ... and stay. */
struct pool {
    size_t words;
    uint64_t *bits;
    int32_t *held, *size;
    size_t bits_cap, held_cap, size_cap;
    int used, free;   /* free: head of a list through held[], or -1 */
};

struct data {
    struct proof *p;
    struct data_pass *pass;
    struct pool pool;
    struct value *cells, *messages;
    int32_t *unread;  /* by message: readers still to come */
    int ncells;
    struct verify_result flag_fault; /* the first flag that is wrong; said when nothing worse is */
};

/* ---- sets ------------------------------------------------------------------------------------------------------- */

static uint64_t *set_bits(struct pool *pool, int set)
{
    return pool->bits + (size_t)set * pool->words;
}

static uno_err set_new(struct pool *pool, int *set)
{
    if (pool->free >= 0) {
        *set = pool->free;
        pool->free = pool->held[*set];
    } else {
        size_t need = (size_t)pool->used + 1;
        TRY(mem_grow(&pool->bits, &pool->bits_cap, need * pool->words, sizeof *pool->bits));
        TRY(mem_grow(&pool->held, &pool->held_cap, need, sizeof *pool->held));
        TRY(mem_grow(&pool->size, &pool->size_cap, need, sizeof *pool->size));
        *set = pool->used++;
    }
    memset(set_bits(pool, *set), 0, pool->words * sizeof *pool->bits);
    pool->held[*set] = 1;
    pool->size[*set] = 0;
    return UNO_OK;
}

static void set_drop(struct pool *pool, int set)
{
    if (set >= 0 && --pool->held[set] == 0) {
        pool->held[set] = pool->free;
        pool->free = set;
    }
}

static struct value value_hold(struct pool *pool, struct value v)
{
    if (v.set >= 0)
        pool->held[v.set]++;
    return v;
}

/* ---- beginning ------------------------------------------------------------------------------------------------------ */

static void fill_in_cells(struct data *d)
{
    const struct plan *plan = d->p->plan;
    for (int r = 0; r < plan->nranks; r++)
        for (int c = 0; plan_has_buf(plan, r, PLAN_IN) && c < plan_buf_chunks(plan, PLAN_IN); c++) {
            struct value *cell = &d->cells[proof_cell(d->p, r, PLAN_IN, c, d->pass->in_place)];
            struct value own = {.set = r, .what = c, .writer = -1, .raw = true, .bits = hash_mix((uint64_t)r, (uint64_t)c)};
            *cell = value_hold(&d->pool, own);
        }
}

static uno_err data_begin(struct data *d)
{
    const struct plan_graph *g = &d->p->g;
    int n = g->plan->nranks;
    d->ncells = d->p->cell0[n];
    d->pool.words = ((size_t)n + 63) / 64;
    d->pool.free = -1;
    d->cells = mem_array((size_t)MAX(d->ncells, 1), sizeof *d->cells);
    d->messages = mem_array((size_t)MAX(g->nmessages, 1), sizeof *d->messages);
    d->unread = mem_array((size_t)MAX(g->nmessages, 1), sizeof *d->unread);
    if (!d->cells || !d->messages || !d->unread)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < d->ncells; i++)
        d->cells[i] = (struct value){.set = -1, .writer = -1};
    for (int r = 0; r < n; r++) {
        int set;
        TRY(set_new(&d->pool, &set));
        set_bits(&d->pool, set)[r / 64] = 1ull << (r % 64);
        d->pool.size[set] = 1;
    }
    fill_in_cells(d);
    return UNO_OK;
}

/* ---- one firing --------------------------------------------------------------------------------------------------- */

/* Where an operand comes from, for sentences. */
struct operand {
    struct value v;
    uint8_t buf;      /* PLAN_NONE: a message */
    int32_t chunk;
};

static uno_err twice(struct data *d, int node, const struct value *have, const struct operand *more)
{
    const uint64_t *a = set_bits(&d->pool, have->set), *b = set_bits(&d->pool, more->v.set);
    int rank = 0;
    while (!(a[rank / 64] & b[rank / 64] & 1ull << (rank % 64)))
        rank++;
    return proof_refute(d->p, VERIFY_TWICE, node, "adds rank %d's contribution to chunk %d a second time", rank, have->what);
}

/* acc = acc o more. */
static uno_err fold(struct data *d, int node, struct value *acc, const struct operand *more)
{
    if (acc->what != more->v.what)
        return proof_refute(d->p, VERIFY_WRONG, node, "reduces chunk %d with chunk %d: they are different elements", acc->what,
                            more->v.what);
    int set;
    TRY(set_new(&d->pool, &set));
    const uint64_t *a = set_bits(&d->pool, acc->set), *b = set_bits(&d->pool, more->v.set);
    uint64_t *to = set_bits(&d->pool, set), both = 0;
    for (size_t w = 0; w < d->pool.words; w++) {
        to[w] = a[w] | b[w];
        both |= a[w] & b[w];
    }
    if (both)
        return twice(d, node, acc, more);
    d->pool.size[set] = d->pool.size[acc->set] + d->pool.size[more->v.set];
    set_drop(&d->pool, acc->set);
    acc->set = set;
    /* x o y has the bits of y o x */
    acc->bits = hash_mix(MIN(acc->bits, more->v.bits), MAX(acc->bits, more->v.bits));
    return UNO_OK;
}

static uno_err read_cell(struct data *d, int node, int buf, int chunk, struct operand *o)
{
    int rank = proof_rank(d->p, node);
    *o = (struct operand){d->cells[proof_cell(d->p, rank, (enum plan_buf)buf, chunk, d->pass->in_place)], (uint8_t)buf, chunk};
    if (o->v.set >= 0)
        return UNO_OK;
    char text[64];
    return proof_refute(d->p, VERIFY_WRONG, node, "reads %s, where nothing has been written%s",
                        proof_chunk_text(rank, (enum plan_buf)buf, chunk, text, sizeof text),
                        buf == PLAN_OUT && !d->pass->in_place ? " (out of place)" : "");
}

/* Remember a flag that is wrong. */
static void note_flag(struct data *d, int node, const char *what)
{
    if (d->flag_fault.kind != VERIFY_OK)
        return;
    proof_refute(d->p, VERIFY_WRONG, node, "%s%s", what, d->pass->in_place ? " (in place)" : "");
    d->flag_fault = *d->p->result;
    *d->p->result = (struct verify_result){.rank = -1, .lane = -1, .step = -1};
}

/* The reading of an own raw contribution is where premulsum scales it: `flag` must say so. */
static void scale(struct data *d, int node, struct operand *o, unsigned flag, uint8_t *flags)
{
    if (o->v.raw)
        *flags |= (uint8_t)flag;
    bool marked = plan_node_step(&d->p->g, node)->flags & flag;
    if (d->p->plan->needs_reduce && !d->pass->flags && marked != o->v.raw) {
        char text[64], what[160];
        proof_chunk_text(proof_rank(d->p, node), (enum plan_buf)o->buf, o->chunk, text, sizeof text);
        snprintf(what, sizeof what, marked ? "reads %s, marked as a raw contribution, but that is scaled already"
                                           : "reads %s, a raw contribution, without being marked so", text);
        note_flag(d, node, what);
    }
    o->v.raw = false;
}

/* The operands of a firing, in the order of reduction. list: nrecv + 2 entries. */
static uno_err gather(struct data *d, int node, struct operand *list, int *n, uint8_t *flags)
{
    const struct plan_graph *g = &d->p->g;
    const struct plan_step *s = plan_node_step(g, node);
    const struct plan_op_info *op = &plan_ops[s->op];
    struct operand src, dst;
    *n = 0;
    if (op->reads_dst) {
        TRY(read_cell(d, node, s->dst_buf, s->dst + g->nodes[node].i, &dst));
        scale(d, node, &dst, PLAN_RAW_DST, flags);
        list[(*n)++] = dst;
    }
    if (op->reads_src) {
        TRY(read_cell(d, node, s->src_buf, s->src + g->nodes[node].i, &src));
        scale(d, node, &src, PLAN_RAW_SRC, flags);
    }
    for (int i = 0; i < s->nrecv; i++) {
        if (op->reads_src && i == s->self)
            list[(*n)++] = src;
        list[(*n)++] = (struct operand){.v = d->messages[g->in_list[g->nodes[node].in + i]]};
    }
    if (op->reads_src && s->self >= s->nrecv)
        list[(*n)++] = src;
    return UNO_OK;
}

static void check_finished(struct data *d, int node, const struct value *v, uint8_t *flags)
{
    const struct plan *plan = d->p->plan;
    const struct plan_step *s = plan_node_step(&d->p->g, node);
    bool reduced = plan_ops[s->op].reduces && d->pool.size[v->set] == plan->nranks;
    if (reduced)
        *flags |= PLAN_COMPLETES;
    bool marked = s->flags & PLAN_COMPLETES;
    if (plan->needs_reduce && !d->pass->flags && plan->nranks > 1 && marked != reduced)
        note_flag(d, node, marked ? "is marked as finishing a reduction and does not"
                                  : "finishes a reduction without being marked so");
}

static void drop_messages(struct data *d, int node)
{
    const struct plan_graph *g = &d->p->g;
    for (int i = 0; i < plan_node_step(g, node)->nrecv; i++) {
        int m = g->in_list[g->nodes[node].in + i];
        if (--d->unread[m] == 0)
            set_drop(&d->pool, d->messages[m].set);
    }
}

static uno_err send_value(struct data *d, int node, struct value v)
{
    const struct plan_graph *g = &d->p->g;
    int m = g->nodes[node].out, readers = g->links[g->link_of[m]].readers;
    struct data_pass *pass = d->pass;
    if (pass->sent && pass->compare && pass->sent[m] != v.bits)
        return proof_refute(d->p, VERIFY_WRONG, node, "sends one thing in place and another out of place: ranks cannot be mixed");
    if (pass->sent)
        pass->sent[m] = v.bits;
    d->unread[m] = readers;
    if (readers > 0)
        d->messages[m] = value_hold(&d->pool, v);
    return UNO_OK;
}

static uno_err fire(struct data *d, int node, struct operand *list)
{
    const struct plan_graph *g = &d->p->g;
    const struct plan_step *s = plan_node_step(g, node);
    const struct plan_op_info *op = &plan_ops[s->op];
    if (s->op == PLAN_NOP)
        return UNO_OK;
    int n;
    uint8_t flags = 0;
    TRY(gather(d, node, list, &n, &flags));
    struct value v = value_hold(&d->pool, list[0].v);
    for (int i = 1; i < n; i++)
        TRY(fold(d, node, &v, &list[i]));
    if (n > 2)
        v.bits = hash_mix(v.bits, (uint64_t)n); /* one pass over a list rounds once */
    v.writer = node;
    v.raw = false;
    check_finished(d, node, &v, &flags);
    drop_messages(d, node);
    if (op->writes_dst) {
        int rank = proof_rank(d->p, node);
        struct value *cell = &d->cells[proof_cell(d->p, rank, (enum plan_buf)s->dst_buf, s->dst + g->nodes[node].i,
                                                  d->pass->in_place)];
        set_drop(&d->pool, cell->set);
        *cell = value_hold(&d->pool, v);
    }
    if (op->sends)
        TRY(send_value(d, node, v));
    set_drop(&d->pool, v.set);
    if (d->pass->flags)
        d->pass->flags[node] = flags;
    return UNO_OK;
}

/* ---- what must be there in the end ------------------------------------------------------------------------------- */

struct expected {
    int what;
    int origin;  /* -1: all ranks, reduced */
};

static struct expected expect(const struct plan *plan, int rank, int chunk)
{
    int p = plan->parts;
    switch (plan->coll) {
    case UNO_BROADCAST: return (struct expected){chunk, plan->root};
    case UNO_ALL_GATHER:
    case UNO_GATHER: return (struct expected){chunk % p, chunk / p};
    case UNO_REDUCE_SCATTER: return (struct expected){rank * p + chunk, -1};
    case UNO_SCATTER: return (struct expected){rank * p + chunk, plan->root};
    case UNO_ALL_TO_ALL: return (struct expected){rank * p + chunk % p, chunk / p};
    default: return (struct expected){chunk, -1};
    }
}

/* "0, 3, 4 and 2 more" */
static void missing_text(struct data *d, const struct value *v, char *buf, size_t bytes)
{
    int n = d->p->plan->nranks, left = n - d->pool.size[v->set], shown = 0;
    size_t at = 0;
    for (int r = 0; r < n && shown < 4; r++)
        if (!(set_bits(&d->pool, v->set)[r / 64] >> (r % 64) & 1))
            at += (size_t)snprintf(buf + at, bytes - at, "%s%d", shown++ ? ", " : "", r);
    if (left > shown)
        snprintf(buf + at, bytes - at, " and %d more", left - shown);
}

/* The verdict stands at the step that wrote the output, or at the rank when nobody did. */
static uno_err refute_output(struct data *d, enum verify_kind kind, int rank, int chunk, const struct value *v, const char *what)
{
    char text[64], in_place[16] = "";
    proof_chunk_text(rank, PLAN_OUT, chunk, text, sizeof text);
    if (d->pass->in_place)
        snprintf(in_place, sizeof in_place, " (in place)");
    if (v->writer < 0)
        return proof_refute_rank(d->p, kind, rank, "%s %s%s", text, what, in_place);
    return proof_refute(d->p, kind, v->writer, "is the last to write %s, which %s%s", text, what, in_place);
}

static uno_err check_output(struct data *d, int rank, int chunk)
{
    const struct value *v = &d->cells[proof_cell(d->p, rank, PLAN_OUT, chunk, d->pass->in_place)];
    struct expected e = expect(d->p->plan, rank, chunk);
    char what[200], missing[80];
    if (v->set < 0)
        return refute_output(d, VERIFY_MISSING, rank, chunk, v, "is never written");
    int size = d->pool.size[v->set], n = d->p->plan->nranks;
    const uint64_t *set = set_bits(&d->pool, v->set);
    if (v->what != e.what) {
        snprintf(what, sizeof what, "holds in chunk %d where in chunk %d belongs", v->what, e.what);
        return refute_output(d, VERIFY_WRONG, rank, chunk, v, what);
    }
    if (e.origin < 0 && size < n) {
        missing_text(d, v, missing, sizeof missing);
        snprintf(what, sizeof what, "lacks the contribution of rank%s %s", n - size == 1 ? "" : "s", missing);
        return refute_output(d, VERIFY_MISSING, rank, chunk, v, what);
    }
    if (e.origin >= 0 && (size != 1 || !(set[e.origin / 64] >> (e.origin % 64) & 1))) {
        snprintf(what, sizeof what, "should hold rank %d's data and holds %s", e.origin, size == 1 ? "another rank's" : "a reduction");
        return refute_output(d, VERIFY_WRONG, rank, chunk, v, what);
    }
    if (e.origin < 0 && v->raw && d->p->plan->needs_reduce)
        return refute_output(d, VERIFY_WRONG, rank, chunk, v, "keeps its raw contribution, so premulsum would not scale it");
    return UNO_OK;
}

static uno_err check_outputs(struct data *d)
{
    const struct plan *plan = d->p->plan;
    int chunks = plan_buf_chunks(plan, PLAN_OUT);
    d->pass->same_bits = true;
    for (int r = 0; r < plan->nranks; r++)
        for (int c = 0; plan_has_buf(plan, r, PLAN_OUT) && c < chunks; c++) {
            TRY(check_output(d, r, c));
            const struct value *v = &d->cells[proof_cell(d->p, r, PLAN_OUT, c, d->pass->in_place)];
            const struct value *first = &d->cells[proof_cell(d->p, 0, PLAN_OUT, c, d->pass->in_place)];
            if (plan->coll == UNO_ALL_REDUCE && v->bits != first->bits)
                d->pass->same_bits = false;
        }
    return UNO_OK;
}

static uno_err run(struct data *d)
{
    const struct plan_graph *g = &d->p->g;
    int most = 0;
    for (int r = 0; r < g->plan->nranks; r++)
        for (int s = 0; s < g->progs[r].nsteps; s++)
            most = MAX(most, g->progs[r].steps[s].nrecv);
    struct operand *list = mem_array((size_t)most + 2, sizeof *list);
    uno_err err = list ? data_begin(d) : UNO_ERR_MEMORY;
    for (int i = 0; err == UNO_OK && i < g->nnodes; i++)
        err = fire(d, d->p->order[i], list);
    free(list);
    TRY(err);
    TRY(check_outputs(d));
    if (d->flag_fault.kind == VERIFY_OK)
        return UNO_OK;
    *d->p->result = d->flag_fault;
    return err_set(UNO_ERR_PLAN, "%s", d->flag_fault.reason);
}

uno_err proof_data(struct proof *p, struct data_pass *pass)
{
    struct data d = {.p = p, .pass = pass};
    uno_err err = run(&d);
    void *all[] = {d.pool.bits, d.pool.held, d.pool.size, d.cells, d.messages, d.unread};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
    return err;
}
