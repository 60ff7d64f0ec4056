/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_offer.c - may this operation lend, and which receives may offer their destination, and offering it ahead of the messages. A plain receive is offerable
 * when nothing else in this rank's program touches the range: then the sender's write is the only thing that happens to it, so
 * whether it goes through a slot or straight there cannot matter to the proof.
 */
#include "exec_private.h"

#define MOST_FIRES 4096 /* the search below is quadratic; a larger program goes without offers */

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static bool touched_elsewhere(const struct exec_program *p, const struct exec_fire *f)
{
    for (uint32_t i = 0; i < p->nfires; i++) {
        const struct exec_fire *g = &p->fires[i];
        if (g != f && ((g->src_buf == PLAN_OUT && overlap(g->src_off, g->bytes, f->dst_off, f->bytes)) ||
                       (g->dst_buf == PLAN_OUT && overlap(g->dst_off, g->bytes, f->dst_off, f->bytes))))
            return true;
    }
    return false;
}

uno_err compile_offers(struct exec_program *p)
{
    size_t messages = 0; /* a firing with a list takes several */
    for (uint32_t i = 0; i < p->nfires; i++)
        messages += (size_t)p->fires[i].nrecv;
    p->incoming = mem_array(p->nrecvs + 1, sizeof *p->incoming);
    p->incoming_fires = mem_array(messages + 1, sizeof *p->incoming_fires);
    if (!p->incoming || !p->incoming_fires)
        return UNO_ERR_MEMORY;
    for (uint32_t i = 0; i < p->nfires; i++) {
        struct exec_fire *f = &p->fires[i];
        p->touches_in = p->touches_in || f->src_buf == PLAN_IN || f->dst_buf == PLAN_IN;
        if (f->src_buf == PLAN_IN)
            p->in_extent = MAX(p->in_extent, f->src_off + f->bytes);
        if (f->dst_buf == PLAN_OUT)
            p->out_extent = MAX(p->out_extent, f->dst_off + f->bytes);
        f->offerable = f->op == PLAN_RECV && f->dst_buf == PLAN_OUT && f->recv[0]->offers && p->nfires <= MOST_FIRES &&
                       !p->copies_only && !touched_elsewhere(p, f);
        p->offers = p->offers || f->offerable;
    }
    uint32_t at = 0;
    for (uint32_t r = 0; r < p->nrecvs && p->offers; r++) {
        p->incoming[r].first = at;
        for (uint32_t i = 0; i < p->nfires; i++) /* an end belongs to one lane, so this is its order */
            for (int k = 0; k < p->fires[i].nrecv; k++)
                if (p->fires[i].recv[k] == p->recvs[r]) {
                    p->incoming_fires[at++] = i;
                    p->incoming[r].tiles = MAX(p->incoming[r].tiles, p->fires[i].tiles);
                }
        p->incoming[r].nfires = at - p->incoming[r].first;
    }
    return UNO_OK;
}

static bool in_place(const struct exec_op *op)
{
    const struct exec_program *p = op->program;
    uint64_t in = (uint64_t)(uintptr_t)op->base[PLAN_IN], out = (uint64_t)(uintptr_t)op->base[PLAN_OUT];
    return p->touches_in && overlap(in, p->in_extent, out, p->out_extent);
}

void offer_ahead(struct exec_op *op, uint32_t i)
{
    const struct exec_program *p = op->program;
    const struct exec_incoming *in = &p->incoming[i];
    struct exec_ahead *a = &op_ahead(op)[i];
    struct net_end *end = p->recvs[i];
    while (a->tile < in->tiles && (int32_t)(a->number - (end->next + NET_OFFERS)) < 0) {
        const struct exec_fire *f = &p->fires[p->incoming_fires[in->first + a->at]];
        if (a->tile < f->tiles) {
            uint64_t off = (uint64_t)a->tile * p->tile_bytes;
            if (f->offerable && f->bytes > off)
                op->offered |= net_offer(end, a->number, (char *)(uintptr_t)op->base[PLAN_OUT] + f->dst_off + off,
                                         MIN(f->bytes - off, p->tile_bytes));
            a->number++;
        }
        if (++a->at == in->nfires) {
            a->at = 0;
            a->tile++;
        }
    }
}

void placing_begin(struct exec_op *op)
{
    const struct exec_program *p = op->program;
    bool aliased = in_place(op);
    op->lending = !p->copies_only || (p->lends_out_of_place && !aliased);
    op->offering = p->offers && !aliased; /* in place, ranges of out are read as in */
    op->offered = false;
    for (uint32_t i = 0; op->offering && i < p->nrecvs; i++) {
        op_ahead(op)[i] = (struct exec_ahead){.number = p->recvs[i]->next};
        offer_ahead(op, i);
    }
}
