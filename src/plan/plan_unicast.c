/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_unicast.c - rewrites one rank's program so that MSCCL's XML can say it (plan_text.h). A lane with several
 * connections becomes several, held in its order by waits; a group becomes one connection a reader; a list becomes single
 * receives into scratch and reductions in the listed order. Each rewritten firing is split, never merged, and splitting
 * takes constraints away only, so a plan that cannot deadlock stays one.
 */
#include "plan_text.h"

#include <stdlib.h>

struct piece { /* a step of the new program */
    struct plan_step step;      /* recv: nrecv 0 or 1 and `recv` the connection itself; dep, ndep: the old step's, or none */
    int tb, number;             /* new lane, and place in it */
    bool after_previous;        /* its predecessor of the old lane is in another new lane */
};
struct tb { int send, recv, nsteps; };
struct ends { int n; size_t cap; struct plan_conn *conn; int *tb; size_t cap_tb; };

struct rewrite {
    const struct plan *plan;
    const struct plan_prog *in;
    bool unicast;
    int lane, number;           /* the old step at hand */
    int scratch;
    int ntbs, lane_tb;          /* lane_tb: new lane of the piece before, -1 = none yet */
    size_t cap_tbs;
    struct tb *tbs;
    struct ends sends, recvs;
    int npieces;
    size_t cap_pieces;
    struct piece *pieces;
    int *last_piece;            /* by old step */
};

/* ---- connections -------------------------------------------------------------------------------- */

static uno_err find_end(struct ends *e, struct plan_conn conn, int *index)
{
    for (*index = e->n - 1; *index >= 0; --*index)
        if (e->conn[*index].peer == conn.peer && e->conn[*index].channel == conn.channel)
            return UNO_OK;
    TRY(mem_grow(&e->conn, &e->cap, (size_t)e->n + 1, sizeof *e->conn));
    TRY(mem_grow(&e->tb, &e->cap_tb, (size_t)e->n + 1, sizeof *e->tb));
    e->conn[e->n] = conn;
    e->tb[e->n] = -1;
    *index = e->n++;
    return UNO_OK;
}

/* Groups use a channel that the plan does not, so that a pair's group messages stay apart from its others. */
static struct plan_conn plain(const struct rewrite *w, struct plan_conn conn, int peer)
{
    return (struct plan_conn){.peer = peer, .channel = conn.group ? w->plan->channels : conn.channel};
}

static uno_err recv_end(struct rewrite *w, const struct plan_step *s, int i, int *index)
{
    struct plan_conn c = w->in->recvs[w->in->recv_list[s->recv + i]];
    return find_end(&w->recvs, plain(w, c, c.peer), index);
}

static bool same_host(const struct plan *plan, int a, int b)
{
    return !plan->host_of || plan->host_of[a] == plan->host_of[b];
}

static uno_err new_tb(struct rewrite *w, int send, int recv, int *index)
{
    TRY(mem_grow(&w->tbs, &w->cap_tbs, (size_t)w->ntbs + 1, sizeof *w->tbs));
    w->tbs[w->ntbs] = (struct tb){send, recv, 0};
    if (send >= 0)
        w->sends.tb[send] = w->ntbs;
    if (recv >= 0)
        w->recvs.tb[recv] = w->ntbs;
    *index = w->ntbs++;
    return UNO_OK;
}

static bool is_fused(const struct rewrite *w, const struct plan_step *s)
{
    return s->nrecv == 1 && s->send >= 0 && !w->in->sends[s->send].group;
}

/* Give the two connections of a fused step one new lane if both are still free. */
static uno_err pair_fused(struct rewrite *w, const struct plan_step *s)
{
    int send, recv, tb;
    struct plan_conn c = w->in->sends[s->send];
    TRY(find_end(&w->sends, plain(w, c, c.peer), &send));
    TRY(recv_end(w, s, 0, &recv));
    bool free = w->sends.tb[send] < 0 && w->recvs.tb[recv] < 0;
    return free && w->sends.conn[send].channel == w->recvs.conn[recv].channel ? new_tb(w, send, recv, &tb) : UNO_OK;
}

/* Whether a new lane that has only the other direction can take this end: a thread block has one channel. */
static bool takes_end(const struct rewrite *w, const struct tb *tb, bool sending, int end)
{
    if (sending)
        return tb->send < 0 && (tb->recv < 0 || w->recvs.conn[tb->recv].channel == w->sends.conn[end].channel);
    return tb->recv < 0 && (tb->send < 0 || w->sends.conn[tb->send].channel == w->recvs.conn[end].channel);
}

/* Give a connection a new lane if it has none. A sending end joins the oldest lane of this old lane that only receives,
 * and the other way round, so that a lane with one of each stays one lane. */
static uno_err place_end(struct rewrite *w, int first_tb, bool sending, int end)
{
    struct ends *e = sending ? &w->sends : &w->recvs;
    int tb;
    if (e->tb[end] >= 0)
        return e->tb[end] >= first_tb ? UNO_OK
                                      : err_set(UNO_ERR_PLAN, "rank %d, lane %d: its connection %s rank %d channel %d belongs to "
                                                "another lane too", w->in->rank, w->lane, sending ? "to" : "from",
                                                e->conn[end].peer, e->conn[end].channel);
    for (tb = first_tb; tb < w->ntbs; tb++)
        if (takes_end(w, &w->tbs[tb], sending, end)) {
            *(sending ? &w->tbs[tb].send : &w->tbs[tb].recv) = end;
            e->tb[end] = tb;
            return UNO_OK;
        }
    return new_tb(w, sending ? end : -1, sending ? -1 : end, &tb);
}

static uno_err place_step(struct rewrite *w, int first_tb, const struct plan_step *s)
{
    int end;
    for (int i = 0; i < s->nrecv; i++) {
        TRY(recv_end(w, s, i, &end));
        TRY(place_end(w, first_tb, false, end));
    }
    if (s->send < 0)
        return UNO_OK;
    struct plan_conn c = w->in->sends[s->send];
    for (int peer = 0; peer < w->plan->nranks; peer++) {
        if (c.group ? peer == w->in->rank || !same_host(w->plan, w->in->rank, peer) : peer != c.peer)
            continue;
        TRY(find_end(&w->sends, plain(w, c, peer), &end));
        TRY(place_end(w, first_tb, true, end));
    }
    return UNO_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------------- */

static uno_err add_piece(struct rewrite *w, struct plan_step step, int send, int recv)
{
    TRY(mem_grow(&w->pieces, &w->cap_pieces, (size_t)w->npieces + 1, sizeof *w->pieces));
    int tb = send >= 0 ? w->sends.tb[send] : recv >= 0 ? w->recvs.tb[recv] : w->lane_tb;
    step.send = send;
    step.nrecv = recv >= 0;
    step.recv = recv;
    w->pieces[w->npieces++] = (struct piece){step, tb, w->tbs[tb].nsteps++, tb != w->lane_tb && w->number > 0};
    w->number++;
    w->lane_tb = tb;
    return UNO_OK;
}

struct place { uint8_t buf; int chunk; };

/* A one-chunk piece: op from src to dst. */
static uno_err add_simple(struct rewrite *w, struct plan_step *s, enum plan_op op, struct place src, struct place dst, int shape,
                          int send, int recv)
{
    struct plan_step piece = {.op = (uint8_t)op, .count = 1, .shape = shape, .dep = s->dep, .ndep = s->ndep};
    if (plan_ops[op].reads_src) {
        piece.src_buf = src.buf;
        piece.src = src.chunk;
    }
    if (plan_ops[op].writes_dst) {
        piece.dst_buf = dst.buf;
        piece.dst = dst.chunk;
    }
    s->ndep = 0; /* the first piece waits for the others */
    return add_piece(w, piece, send, recv);
}

/* Receive a list into scratch, reducing in the listed order; *value is where the result is. */
static uno_err add_list(struct rewrite *w, struct plan_step *s, struct place own, int shape, struct place *value)
{
    *value = (struct place){PLAN_SCRATCH, w->scratch++};
    for (int place = 0; place <= s->nrecv; place++) {
        struct place operand = own, into = *value;
        if (place != s->self) {
            int recv;
            TRY(recv_end(w, s, place < s->self ? place : place - 1, &recv));
            if (place > 0)
                into = (struct place){PLAN_SCRATCH, w->scratch++};
            TRY(add_simple(w, s, PLAN_RECV, own, into, shape, -1, recv));
            operand = into;
        } else if (place == 0) {
            TRY(add_simple(w, s, PLAN_COPY, own, *value, shape, -1, -1));
        }
        if (place > 0)
            TRY(add_simple(w, s, PLAN_REDUCE, operand, *value, shape, -1, -1));
    }
    return UNO_OK;
}

/* The receiving half of one firing; *value is where the received or reduced data is then. */
static uno_err add_receive(struct rewrite *w, struct plan_step *s, int i, struct place *value)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    struct place own = {s->src_buf, s->src + i}, dst = {s->dst_buf, s->dst + i};
    int recv;
    if (!op->receives) {
        *value = own;
        return UNO_OK;
    }
    if (s->nrecv > 1) {
        TRY(add_list(w, s, own, s->shape + i, value));
        return op->writes_dst ? add_simple(w, s, PLAN_COPY, *value, dst, s->shape + i, -1, -1) : UNO_OK;
    }
    *value = op->writes_dst ? dst : (struct place){PLAN_SCRATCH, w->scratch++};
    TRY(recv_end(w, s, 0, &recv));
    return add_simple(w, s, op->reduces ? PLAN_RECV_REDUCE_COPY : PLAN_RECV, own, *value, s->shape + i, -1, recv);
}

static uno_err add_firing(struct rewrite *w, struct plan_step *s, int i)
{
    struct place value, none = {PLAN_NONE, 0};
    int before = w->npieces, send;
    TRY(add_receive(w, s, i, &value));
    struct plan_conn c = s->send >= 0 ? w->in->sends[s->send] : (struct plan_conn){.peer = -1};
    for (int peer = 0; s->send >= 0 && peer < w->plan->nranks; peer++) {
        if (c.group ? peer == w->in->rank || !same_host(w->plan, w->in->rank, peer) : peer != c.peer)
            continue;
        TRY(find_end(&w->sends, plain(w, c, peer), &send));
        TRY(add_simple(w, s, PLAN_SEND, value, none, s->shape + i, send, -1));
    }
    return w->npieces > before ? UNO_OK : add_simple(w, s, PLAN_NOP, none, none, 0, -1, -1); /* a group of one */
}

/* A step that can stay whole: at most one connection each way, in one new lane. */
static uno_err add_whole(struct rewrite *w, const struct plan_step *s, int send, int recv)
{
    struct plan_step step = *s;
    if (step.op == PLAN_RECV_SEND) { /* MSCCL has no step that keeps nothing */
        step.op = PLAN_RECV_COPY_SEND;
        step.dst_buf = PLAN_SCRATCH;
        step.dst = w->scratch;
        w->scratch += step.count;
    }
    return add_piece(w, step, send, recv);
}

static uno_err add_step(struct rewrite *w, const struct plan_step *s)
{
    int send = -1, recv = -1;
    struct plan_step left = *s;
    bool group = s->send >= 0 && w->in->sends[s->send].group;
    if (s->nrecv == 1)
        TRY(recv_end(w, s, 0, &recv));
    if (s->send >= 0 && !group)
        TRY(find_end(&w->sends, plain(w, w->in->sends[s->send], w->in->sends[s->send].peer), &send));
    bool apart = send >= 0 && recv >= 0 && w->sends.tb[send] != w->recvs.tb[recv];
    if (!group && s->nrecv <= 1 && !apart)
        return add_whole(w, s, send, recv);
    for (int i = 0; i < s->count; i++)
        TRY(add_firing(w, &left, i));
    return UNO_OK;
}

/* Without unicast: what only the expansion could say is refused by name. */
static uno_err refuse(const struct rewrite *w, const struct plan_step *s, int number)
{
    const char *what = s->nrecv > 1 ? "receives a list of connections" : NULL;
    if (s->send >= 0 && w->in->sends[s->send].group)
        what = "sends to a group";
    for (int i = 0; i < s->nrecv; i++)
        if (w->in->recvs[w->in->recv_list[s->recv + i]].group)
            what = "receives from a group";
    if (!what || w->unicast)
        return UNO_OK;
    return err_set(UNO_ERR_UNSUPPORTED, "rank %d, lane %d, step %d (%s) %s, which MSCCL's XML cannot say; --unicast expands it",
                   w->in->rank, w->lane, number, plan_ops[s->op].name, what);
}

static uno_err rewrite_lane(struct rewrite *w)
{
    const struct plan_lane *lane = &w->in->lanes[w->lane];
    const struct plan_step *steps = w->in->steps + lane->first;
    int first_tb = w->ntbs;
    for (int i = 0; i < lane->nsteps; i++)
        TRY(refuse(w, &steps[i], i));
    for (int i = 0; i < lane->nsteps; i++)
        if (is_fused(w, &steps[i]))
            TRY(pair_fused(w, &steps[i]));
    for (int i = 0; i < lane->nsteps; i++)
        TRY(place_step(w, first_tb, &steps[i]));
    w->lane_tb = first_tb;
    if (w->ntbs == first_tb)
        TRY(new_tb(w, -1, -1, &w->lane_tb));
    w->number = 0;
    for (int i = 0; i < lane->nsteps; i++) {
        TRY(add_step(w, &steps[i]));
        w->last_piece[lane->first + i] = w->npieces - 1;
    }
    return UNO_OK;
}

/* ---- the new program ---------------------------------------------------------------------------------- */

static void build_piece(struct rewrite *w, struct plan_build *b, int index)
{
    const struct piece *p = &w->pieces[index];
    const struct plan_step *s = &p->step;
    build_step(b, (enum plan_op)s->op, (enum plan_buf)s->src_buf, s->src, (enum plan_buf)s->dst_buf, s->dst, s->count);
    build_shape(b, s->shape);
    if (s->nrecv) {
        build_on_recv(b, build_recv_from(b, w->recvs.conn[s->recv].peer, w->recvs.conn[s->recv].channel));
        build_self(b, plan_ops[s->op].reduces);
    }
    if (s->send >= 0)
        build_on_send(b, build_send_to(b, w->sends.conn[s->send].peer, w->sends.conn[s->send].channel));
    if (p->after_previous)
        build_wait(b, w->pieces[index - 1].tb, w->pieces[index - 1].number);
    for (int i = 0; i < s->ndep; i++) {
        const struct plan_dep *d = &w->in->deps[s->dep + i];
        const struct piece *target = &w->pieces[w->last_piece[w->in->lanes[d->lane].first + d->step]];
        build_wait(b, target->tb, target->number);
    }
}

/* Pieces stand in the order of the old lanes; a new lane's are those with its number, in that order. */
static uno_err build_all(struct rewrite *w, struct plan_prog *out)
{
    struct plan_build b;
    int *order = mem_array((size_t)w->npieces, sizeof *order), *next = mem_array((size_t)w->ntbs + 1, sizeof *next);
    uno_err err = order && next ? UNO_OK : UNO_ERR_MEMORY;
    build_begin(&b, w->plan, w->in->rank, out);
    if (err == UNO_OK) {
        for (int t = 0; t < w->ntbs; t++)
            next[t + 1] = next[t] + w->tbs[t].nsteps;
        for (int i = 0; i < w->npieces; i++)
            order[next[w->pieces[i].tb] + w->pieces[i].number] = i;
        for (int t = 0; t < w->ntbs; t++) {
            build_lane(&b);
            for (int i = next[t]; i < next[t + 1]; i++)
                build_piece(w, &b, order[i]);
        }
        err = build_end(&b, w->scratch);
    }
    free(order);
    free(next);
    return err;
}

uno_err plan_unicast_prog(const struct plan *plan, const struct plan_prog *in, bool unicast, struct plan_prog *out)
{
    struct rewrite w = {.plan = plan, .in = in, .unicast = unicast, .scratch = in->scratch_chunks};
    *out = (struct plan_prog){.rank = in->rank};
    w.last_piece = mem_array((size_t)in->nsteps, sizeof *w.last_piece);
    uno_err err = w.last_piece ? UNO_OK : UNO_ERR_MEMORY;
    for (w.lane = 0; err == UNO_OK && w.lane < in->nlanes; w.lane++)
        err = rewrite_lane(&w);
    if (err == UNO_OK)
        err = build_all(&w, out);
    free(w.tbs);
    free(w.sends.conn);
    free(w.sends.tb);
    free(w.recvs.conn);
    free(w.recvs.tb);
    free(w.pieces);
    free(w.last_piece);
    return err;
}
