/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_compile.c - one rank's program for one request: steps become firings with offsets, lengths, ends and waits resolved.
 * Called by the plan cache, never on the fast path.
 */
#include "exec_private.h"

#include <stdlib.h>

struct compiling {
    struct exec_env *env;
    const struct exec_choice *choice;
    struct plan_prog prog;
    struct plan_chunks in, out; /* lengths for what is sent and received; the same but in all-to-all-v */
    bool two_tables;
    struct exec_program *p;
    uint32_t *last_fire;        /* per step of the program: its last firing, counted within its lane */
};

static int real_rank(const struct compiling *c, int v)
{
    return (v + c->choice->shift) % c->env->size;
}

static uno_err make_ends(struct compiling *c)
{
    struct exec_program *p = c->p;
    if (c->choice->plan->channels > NET_CHANNELS)
        return err_set(UNO_ERR_PLAN, "plan %s has %d channels; %d can be executed", c->choice->plan->name,
                       c->choice->plan->channels, NET_CHANNELS);
    p->nsends = (uint32_t)c->prog.nsends;
    p->nrecvs = (uint32_t)c->prog.nrecvs;
    p->sends = mem_array(p->nsends + 1, sizeof *p->sends);
    p->recvs = mem_array(p->nrecvs + 1, sizeof *p->recvs);
    p->recv_list = mem_array((size_t)c->prog.nrecv_list + 1, sizeof *p->recv_list);
    p->recv_index = mem_array((size_t)c->prog.nrecv_list + 1, sizeof *p->recv_index);
    if (!p->sends || !p->recvs || !p->recv_list || !p->recv_index)
        return UNO_ERR_MEMORY;
    for (uint32_t i = 0; i < p->nsends; i++) {
        const struct plan_conn *conn = &c->prog.sends[i];
        TRY(net_end_get(c->env->net, true, conn->group ? -1 : real_rank(c, conn->peer), conn->channel, conn->group, &p->sends[i]));
    }
    for (uint32_t i = 0; i < p->nrecvs; i++) {
        const struct plan_conn *conn = &c->prog.recvs[i];
        TRY(net_end_get(c->env->net, false, real_rank(c, conn->peer), conn->channel, conn->group, &p->recvs[i]));
    }
    for (int i = 0; i < c->prog.nrecv_list; i++)
        p->recv_list[i] = p->recvs[p->recv_index[i] = c->prog.recv_list[i]];
    return UNO_OK;
}

static uint64_t offset_of(const struct compiling *c, enum plan_buf buf, int chunk)
{
    const struct plan_chunks *t = buf == PLAN_OUT && c->two_tables ? &c->out : &c->in;
    if (buf == PLAN_SCRATCH)
        return (uint64_t)chunk * c->p->tile_bytes;
    if (buf == PLAN_NONE)
        return 0;
    return plan_chunk_offset(c->choice->plan, t, c->p->virtual_rank, buf, chunk) * c->p->elem_bytes;
}

static void fill_fire(struct compiling *c, const struct plan_step *s, int i, struct exec_fire *f)
{
    const struct plan_op_info *info = &plan_ops[s->op];
    const struct plan_chunks *t = c->two_tables && !info->sends && s->dst_buf == PLAN_OUT ? &c->out : &c->in;
    f->op = s->op;
    f->flags = s->flags;
    f->src_buf = s->src_buf;
    f->dst_buf = s->dst_buf;
    f->bytes = s->op == PLAN_NOP ? 0 : t->len[s->shape + i] * c->p->elem_bytes;
    f->tiles = (uint32_t)plan_tiles(f->bytes, c->p->tile_bytes);
    f->src_off = offset_of(c, s->src_buf, s->src + i);
    f->dst_off = offset_of(c, s->dst_buf, s->dst + i);
    f->send = s->send >= 0 ? c->p->sends[s->send] : NULL;
    f->recv = &c->p->recv_list[s->recv];
    f->recv_index = s->nrecv ? (uint32_t)c->p->recv_index[s->recv] : 0;
    f->nrecv = s->nrecv;
    f->self = s->self;
    if (i == 0) {
        f->dep = (uint32_t)s->dep;
        f->ndep = (uint32_t)s->ndep;
    }
}

static uno_err make_fires(struct compiling *c)
{
    struct exec_program *p = c->p;
    p->nlanes = (uint32_t)c->prog.nlanes;
    for (int i = 0; i < c->prog.nsteps; i++)
        p->nfires += (uint32_t)c->prog.steps[i].count;
    p->lanes = mem_array(p->nlanes + 1, sizeof *p->lanes);
    p->fires = mem_array(p->nfires + 1, sizeof *p->fires);
    c->last_fire = mem_array((size_t)c->prog.nsteps + 1, sizeof *c->last_fire);
    if (!p->lanes || !p->fires || !c->last_fire)
        return UNO_ERR_MEMORY;
    uint32_t at = 0;
    p->tiles = 1;
    for (uint32_t l = 0; l < p->nlanes; l++) {
        const struct plan_lane *lane = &c->prog.lanes[l];
        p->lanes[l].first = at;
        for (int j = 0; j < lane->nsteps; j++) {
            const struct plan_step *s = &c->prog.steps[lane->first + j];
            for (int i = 0; i < s->count; i++) {
                fill_fire(c, s, i, &p->fires[at]);
                if (p->fires[at].bytes / p->tile_bytes >= UINT32_MAX)
                    return err_set(UNO_ERR_UNSUPPORTED, "%llu bytes in tiles of %u are more tiles than can be counted",
                                   (unsigned long long)p->fires[at].bytes, p->tile_bytes);
                p->tiles = MAX(p->tiles, p->fires[at].tiles);
                at++;
            }
            c->last_fire[lane->first + j] = at - p->lanes[l].first - 1;
        }
        p->lanes[l].nfires = at - p->lanes[l].first;
    }
    /* A lane goes through all tiles of its rank, also those that none of its chunks has: others wait through it. */
    for (uint32_t l = 0; l < p->nlanes; l++)
        p->lanes[l].tiles = p->tiles;
    return UNO_OK;
}

static uno_err make_deps(struct compiling *c)
{
    struct exec_program *p = c->p;
    p->ndeps = (uint32_t)c->prog.ndeps;
    p->deps = mem_array(p->ndeps + 1, sizeof *p->deps);
    if (!p->deps)
        return UNO_ERR_MEMORY;
    for (uint32_t i = 0; i < p->ndeps; i++) {
        const struct plan_dep *d = &c->prog.deps[i];
        p->deps[i] = (struct exec_dep){(uint32_t)d->lane, c->last_fire[c->prog.lanes[d->lane].first + d->step]};
    }
    return UNO_OK;
}

static uno_err compile_tiled(struct compiling *c, const struct request *req, const struct request *recv_req)
{
    const struct exec_choice *choice = c->choice;
    struct exec_program *p = c->p;
    TRY(plan_rank(choice->plan, p->virtual_rank, &c->prog));
    TRY(plan_chunks_make(choice->plan, req, choice->shift, &c->in));
    if (recv_req) {
        c->two_tables = true;
        TRY(plan_chunks_make(choice->plan, recv_req, choice->shift, &c->out));
    }
    p->k = choice->k;
    p->tile_bytes = choice->tile_bytes - choice->tile_bytes % (uint32_t)p->elem_bytes;
    p->room_bytes = choice->room_bytes;
    p->scratch_tiles = (uint32_t)MAX(choice->scratch_tiles, 1);
    p->scratch_tile_bytes = (size_t)c->prog.scratch_chunks * p->tile_bytes;
    p->clear_aux = recv_req != NULL;
    p->copies_only = choice->plan->copies_only;
    p->lends_out_of_place = choice->plan->lends_out_of_place;
    TRY(make_ends(c));
    TRY(make_fires(c));
    TRY(make_deps(c));
    TRY(compile_offers(p));
    p->stream = MAX(p->in_extent, p->out_extent) > c->env->cache_bytes / 2; /* what comes in and what goes out share the cache */
    return UNO_OK;
}

uno_err exec_compile(struct exec_env *env, const struct exec_choice *choice, const struct request *req,
                     const struct request *recv_req, struct exec_program **program)
{
    struct exec_program *p = mem_zalloc(sizeof *p);
    if (!p)
        return UNO_ERR_MEMORY;
    struct compiling c = {.env = env, .choice = choice, .p = p};
    p->coll = req->coll;
    p->type = req->type;
    p->op = req->op;
    p->elem_bytes = uno_type_bytes(req->type);
    p->shift = choice->shift;
    p->virtual_rank = (env->rank - choice->shift + env->size) % env->size;
    p->block_bytes = req->count * p->elem_bytes;
    p->root = req->root;
    uno_err err = UNO_OK;
    if (coll_reduces(req->coll)) {
        p->reduce = reduce_find(req->type, req->op, true);
        if (!p->reduce)
            err = err_set(UNO_ERR_TYPE, "%s is not defined for %s", op_name(req->op), type_name(req->type));
    }
    if (err == UNO_OK)
        err = choice->small ? small_compile(env, p) : compile_tiled(&c, req, recv_req);
    plan_prog_free(&c.prog);
    plan_chunks_free(&c.in);
    plan_chunks_free(&c.out);
    free(c.last_fire);
    if (err != UNO_OK) {
        exec_program_free(p);
        return err;
    }
    *program = p;
    return UNO_OK;
}

void exec_program_free(struct exec_program *p)
{
    if (!p)
        return;
    free(p->lanes);
    free(p->fires);
    free(p->deps);
    free(p->sends);
    free(p->recvs);
    free(p->recv_list);
    free(p->recv_index);
    free(p->incoming);
    free(p->incoming_fires);
    free(p->small);
    free(p);
}

bool exec_program_small(const struct exec_program *p)
{
    return p->small != NULL;
}

size_t exec_op_bytes(const struct exec_program *p)
{
    return sizeof(struct exec_op) + (p->nlanes + 1) * sizeof(struct exec_lane_state) + p->nrecvs * sizeof(struct exec_ahead);
}
