/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_build.c - writes one rank's program step by step. Used by generators and by the readers of text forms.
 * The first failed allocation is remembered; later calls then do nothing and build_end returns it.
 */
#include "plan_text.h"

void build_begin(struct plan_build *b, const struct plan *plan, int rank, struct plan_prog *prog)
{
    *b = (struct plan_build){.prog = prog, .plan = plan};
    *prog = (struct plan_prog){.rank = rank};
}

/* Make room for one more element; false once an allocation has failed. */
static bool room(struct plan_build *b, void *array_ptr, size_t *cap, int used, size_t each_bytes)
{
    if (b->err == UNO_OK)
        b->err = mem_grow(array_ptr, cap, (size_t)used + 1, each_bytes);
    return b->err == UNO_OK;
}

int build_lane(struct plan_build *b)
{
    struct plan_prog *p = b->prog;
    if (!room(b, &p->lanes, &b->cap_lanes, p->nlanes, sizeof *p->lanes))
        return 0;
    p->lanes[p->nlanes] = (struct plan_lane){.first = p->nsteps};
    return p->nlanes++;
}

/* Index of `end` among the connections, added if new. */
static int find_or_add(struct plan_build *b, struct plan_conn **conns, size_t *cap, int *used, struct plan_conn end)
{
    for (int i = *used - 1; i >= 0; i--) /* the newest first: steps of one lane repeat its connection */
        if ((*conns)[i].peer == end.peer && (*conns)[i].channel == end.channel && (*conns)[i].group == end.group)
            return i;
    if (!room(b, conns, cap, *used, sizeof end))
        return 0;
    (*conns)[*used] = end;
    return (*used)++;
}

int build_send_to(struct plan_build *b, int peer, int channel)
{
    struct plan_conn end = {.peer = peer, .channel = channel};
    return find_or_add(b, &b->prog->sends, &b->cap_sends, &b->prog->nsends, end);
}

int build_send_group(struct plan_build *b)
{
    struct plan_conn end = {.peer = -1, .channel = 0, .group = true};
    return find_or_add(b, &b->prog->sends, &b->cap_sends, &b->prog->nsends, end);
}

int build_recv_from(struct plan_build *b, int peer, int channel)
{
    struct plan_conn end = {.peer = peer, .channel = channel};
    return find_or_add(b, &b->prog->recvs, &b->cap_recvs, &b->prog->nrecvs, end);
}

int build_recv_group(struct plan_build *b, int peer)
{
    struct plan_conn end = {.peer = peer, .channel = 0, .group = true};
    return find_or_add(b, &b->prog->recvs, &b->cap_recvs, &b->prog->nrecvs, end);
}

int plan_derived_shape(const struct plan *plan, int rank, const struct plan_step *s)
{
    if (plan_ops[s->op].writes_dst && (s->dst_buf == PLAN_IN || s->dst_buf == PLAN_OUT))
        return plan_chunk_shape(plan, rank, s->dst_buf, s->dst);
    if (s->src_buf == PLAN_IN || s->src_buf == PLAN_OUT)
        return plan_chunk_shape(plan, rank, s->src_buf, s->src);
    return 0;
}

int build_step(struct plan_build *b, enum plan_op op, enum plan_buf src_buf, int src, enum plan_buf dst_buf, int dst,
               int count)
{
    struct plan_prog *p = b->prog;
    if (p->nlanes == 0)
        build_lane(b);
    if (!room(b, &p->steps, &b->cap_steps, p->nsteps, sizeof *p->steps))
        return 0;
    struct plan_step *s = &p->steps[p->nsteps++];
    *s = (struct plan_step){.op = (uint8_t)op, .src_buf = (uint8_t)src_buf, .dst_buf = (uint8_t)dst_buf, .src = src,
                            .dst = dst, .count = count, .send = -1, .recv = p->nrecv_list, .dep = p->ndeps};
    s->shape = plan_derived_shape(b->plan, p->rank, s);
    return p->lanes[p->nlanes - 1].nsteps++;
}

static struct plan_step *last_step(struct plan_build *b)
{
    return b->err == UNO_OK && b->prog->nsteps > 0 ? &b->prog->steps[b->prog->nsteps - 1] : NULL;
}

void build_shape(struct plan_build *b, int shape)
{
    struct plan_step *s = last_step(b);
    if (s)
        s->shape = shape;
}

void build_on_send(struct plan_build *b, int send)
{
    struct plan_step *s = last_step(b);
    if (s)
        s->send = send;
}

void build_on_recv(struct plan_build *b, int recv)
{
    struct plan_prog *p = b->prog;
    struct plan_step *s = last_step(b);
    if (!s || !room(b, &p->recv_list, &b->cap_list, p->nrecv_list, sizeof *p->recv_list))
        return;
    p->recv_list[p->nrecv_list++] = recv;
    s->nrecv++;
}

void build_self(struct plan_build *b, int place)
{
    struct plan_step *s = last_step(b);
    if (s)
        s->self = place;
}

void build_flags(struct plan_build *b, unsigned flags)
{
    struct plan_step *s = last_step(b);
    if (s)
        s->flags |= (uint8_t)flags;
}

void build_wait(struct plan_build *b, int lane, int step)
{
    struct plan_prog *p = b->prog;
    struct plan_step *s = last_step(b);
    if (!s || !room(b, &p->deps, &b->cap_deps, p->ndeps, sizeof *p->deps))
        return;
    p->deps[p->ndeps++] = (struct plan_dep){.lane = lane, .step = step};
    s->ndep++;
}

uno_err build_end(struct plan_build *b, int scratch_chunks)
{
    if (b->err != UNO_OK)
        plan_prog_free(b->prog);
    else
        b->prog->scratch_chunks = scratch_chunks;
    return b->err;
}
