/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_rotate.c - a plan with its ranks renumbered. Generators make trees and the like for root 0 and a running job renumbers as
 * it executes (plan_chunks_make's shift); what is shown or written to a file has to have the real ranks in it.
 */
#include "plan_text.h"

#include <stdlib.h>

struct rotation {
    const struct plan *from, *to;
    int shift;
    const struct plan_prog *in;
    struct plan_build build;
    int *number;        /* by old step: number of its last part in the new lane */
};

static int moved_rank(const struct rotation *t, int rank)
{
    return (rank + t->shift) % t->from->nranks;
}

/* A shape, or a chunk of a buffer with all blocks, whose numbers are the same. */
static int moved_shape(const struct rotation *t, int shape)
{
    int parts = t->from->parts, blocks = plan_shapes(t->from) / parts;
    return blocks == 1 ? shape : moved_rank(t, shape / parts) * parts + shape % parts;
}

static int moved_chunk(const struct rotation *t, int buf, int chunk)
{
    bool all = (buf == PLAN_IN || buf == PLAN_OUT) && plan_buf_chunks(t->from, (enum plan_buf)buf) == plan_shapes(t->from);
    return all ? moved_shape(t, chunk) : chunk;
}

static void connect(struct rotation *t, const struct plan_step *s)
{
    struct plan_build *b = &t->build;
    for (int i = 0; i < s->nrecv; i++) {
        const struct plan_conn *c = &t->in->recvs[t->in->recv_list[s->recv + i]];
        int peer = moved_rank(t, c->peer);
        build_on_recv(b, c->group ? build_recv_group(b, peer) : build_recv_from(b, peer, c->channel));
    }
    build_self(b, s->self);
    if (s->send >= 0) {
        const struct plan_conn *c = &t->in->sends[s->send];
        build_on_send(b, c->group ? build_send_group(b) : build_send_to(b, moved_rank(t, c->peer), c->channel));
    }
}

/* Firings first .. first + count - 1 of a step; returns the new step's number. */
static int add_part(struct rotation *t, const struct plan_step *s, int first, int count)
{
    struct plan_build *b = &t->build;
    int number = build_step(b, (enum plan_op)s->op, (enum plan_buf)s->src_buf, moved_chunk(t, s->src_buf, s->src + first),
                            (enum plan_buf)s->dst_buf, moved_chunk(t, s->dst_buf, s->dst + first), count);
    build_shape(b, moved_shape(t, s->shape + first));
    build_flags(b, s->flags);
    connect(t, s);
    for (int i = 0; first == 0 && i < s->ndep; i++)
        build_wait(b, t->in->deps[s->dep + i].lane, t->in->deps[s->dep + i].step);
    return number;
}

/* Where the last block becomes block 0, chunks are no longer in a row: cut there. */
static void add_step(struct rotation *t, int index)
{
    const struct plan_step *s = &t->in->steps[index];
    int first = 0;
    for (int i = 1; i < s->count; i++)
        if (moved_shape(t, s->shape + i) != moved_shape(t, s->shape + i - 1) + 1) {
            add_part(t, s, first, i - first);
            first = i;
        }
    t->number[index] = add_part(t, s, first, s->count - first);
}

static uno_err rotate_prog(struct rotation *t, struct plan_prog *out)
{
    const struct plan_prog *in = t->in;
    t->number = mem_array((size_t)in->nsteps, sizeof *t->number);
    if (!t->number)
        return UNO_ERR_MEMORY;
    build_begin(&t->build, t->to, moved_rank(t, in->rank), out);
    for (int l = 0; l < in->nlanes; l++) {
        build_lane(&t->build);
        for (int i = 0; i < in->lanes[l].nsteps; i++)
            add_step(t, in->lanes[l].first + i);
    }
    uno_err err = build_end(&t->build, in->scratch_chunks);
    for (int d = 0; err == UNO_OK && d < out->ndeps; d++)
        out->deps[d].step = t->number[in->lanes[out->deps[d].lane].first + out->deps[d].step];
    free(t->number);
    return err;
}

static uno_err rotate(const struct plan *plan, int shift, struct plan *to)
{
    to->progs = mem_array((size_t)plan->nranks, sizeof *to->progs);
    to->host_of = to->progs ? mem_array((size_t)plan->nranks, sizeof *to->host_of) : NULL;
    if (!to->host_of)
        return UNO_ERR_MEMORY;
    to->params.host_of = to->host_of;
    for (int rank = 0; rank < plan->nranks; rank++) {
        struct rotation t = {.from = plan, .to = to, .shift = shift};
        struct plan_prog in;
        int moved = moved_rank(&t, rank);
        to->host_of[moved] = plan->host_of ? plan->host_of[rank] : 0;
        TRY(plan_rank(plan, rank, &in));
        t.in = &in;
        uno_err err = rotate_prog(&t, &to->progs[moved]);
        plan_prog_free(&in);
        TRY(err);
    }
    return UNO_OK;
}

uno_err plan_rotate(const struct plan *plan, int shift, struct plan **rotated)
{
    struct plan *to = mem_zalloc(sizeof *to);
    *rotated = NULL;
    if (!to)
        return UNO_ERR_MEMORY;
    *to = *plan;
    to->progs = NULL;
    to->host_of = NULL;
    to->generate = NULL;
    to->root = to->params.root = (plan->root + shift) % plan->nranks;
    to->id = hash128(&(uint64_t[]){plan->id.lo, plan->id.hi, (uint64_t)shift}, 3 * sizeof(uint64_t), 0);
    uno_err err = rotate(plan, shift, to);
    if (err != UNO_OK)
        plan_free(to);
    else
        *rotated = to;
    return err;
}
