/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_check.c - one rank's program looked at alone: indexes inside their ranges, steps as their opcodes say. Everything
 * behind it may then index without looking. Called by plan_graph.c; programs may come from a hostile file.
 */
#include "plan_check.h"

static void say(struct plan_fault *fault, enum plan_fault_kind kind, int rank, int lane, int step, const char *place,
                const char *fmt, va_list args)
{
    *fault = (struct plan_fault){.kind = kind, .rank = rank, .lane = lane, .step = step};
    int at = snprintf(fault->reason, sizeof fault->reason, "%s ", place);
    vsnprintf(fault->reason + at, sizeof fault->reason - (size_t)at, fmt, args);
}

uno_err plan_fault_set(struct plan_fault *fault, enum plan_fault_kind kind, int rank, int lane, int step, const char *fmt, ...)
{
    char place[80];
    int at = snprintf(place, sizeof place, "rank %d", rank);
    if (lane >= 0)
        at += snprintf(place + at, sizeof place - (size_t)at, " lane %d", lane);
    if (step >= 0)
        at += snprintf(place + at, sizeof place - (size_t)at, " step %d", step);
    snprintf(place + at, sizeof place - (size_t)at, ":");
    va_list args;
    va_start(args, fmt);
    say(fault, kind, rank, lane, step, place, fmt, args);
    va_end(args);
    return err_set(UNO_ERR_PLAN, "%s", fault->reason);
}

uno_err plan_fault_at(const struct plan_graph *g, int node, struct plan_fault *fault, enum plan_fault_kind kind,
                      const char *fmt, ...)
{
    const struct plan_graph_lane *lane = &g->lanes[g->nodes[node].lane];
    char place[160];
    plan_node_text(g, node, place, sizeof place);
    va_list args;
    va_start(args, fmt);
    say(fault, kind, lane->rank, lane->lane, g->nodes[node].step - g->progs[lane->rank].lanes[lane->lane].first, place, fmt,
        args);
    va_end(args);
    return err_set(UNO_ERR_PLAN, "%s", fault->reason);
}

/* ", to 1", ", from 2", ", from 2, 3 and 5 more". */
static void peers_text(const struct plan_prog *p, const struct plan_step *s, char *buf, size_t bytes)
{
    int at = 0;
    buf[0] = 0;
    if (s->nrecv > 0)
        at = snprintf(buf, bytes, " from %d", p->recvs[p->recv_list[s->recv]].peer);
    if (s->nrecv > 1)
        at += snprintf(buf + at, bytes - (size_t)at, " and %d more", s->nrecv - 1);
    if (s->send >= 0 && p->sends[s->send].group)
        snprintf(buf + at, bytes - (size_t)at, " to the group");
    else if (s->send >= 0)
        snprintf(buf + at, bytes - (size_t)at, " to %d", p->sends[s->send].peer);
}

const char *plan_node_text(const struct plan_graph *g, int node, char *buf, size_t buf_bytes)
{
    const struct plan_node *n = &g->nodes[node];
    const struct plan_graph_lane *lane = &g->lanes[n->lane];
    const struct plan_prog *p = &g->progs[lane->rank];
    const struct plan_step *s = &p->steps[n->step];
    char peers[64], firing[40] = "";
    peers_text(p, s, peers, sizeof peers);
    if (s->count > 1)
        snprintf(firing, sizeof firing, ", firing %d of %d", n->i + 1, s->count);
    snprintf(buf, buf_bytes, "rank %d lane %d step %d (%s%s%s)", lane->rank, lane->lane, n->step - p->lanes[lane->lane].first,
             plan_ops[s->op].name, peers, firing);
    return buf;
}

bool plan_has_buf(const struct plan *plan, int rank, enum plan_buf buf)
{
    bool in_on_root = plan->coll == UNO_BROADCAST || plan->coll == UNO_SCATTER;
    bool out_on_root = plan->coll == UNO_REDUCE || plan->coll == UNO_GATHER;
    if (buf == PLAN_IN)
        return !in_on_root || rank == plan->root;
    return buf != PLAN_OUT || !out_on_root || rank == plan->root;
}

struct check {
    const struct plan *plan;
    const struct plan_prog *prog;
    int rank, lane, step;
    bool shapes;
    struct plan_fault *fault;
};

#define REFUSE(c, ...) \
    plan_fault_set((c)->fault, PLAN_FAULT_BOUNDS, (c)->rank, (c)->lane, (c)->step, __VA_ARGS__)

static bool slice_ok(int first, int count, int of)
{
    return count == 0 || (first >= 0 && count > 0 && first <= of - count);
}

static uno_err check_operand(const struct check *c, const char *what, int buf, int chunk, const struct plan_step *s)
{
    static const char *const names[] = {"none", "in", "out", "scratch"};
    if (buf < PLAN_IN || buf > PLAN_SCRATCH)
        return REFUSE(c, "%s needs a %s buffer: in, out or scratch", plan_ops[s->op].name, what);
    if (!plan_has_buf(c->plan, c->rank, (enum plan_buf)buf))
        return REFUSE(c, "uses %s, which in %s exists on the root (rank %d) only", names[buf], coll_name(c->plan->coll),
                      c->plan->root);
    int chunks = buf == PLAN_SCRATCH ? c->prog->scratch_chunks : plan_buf_chunks(c->plan, (enum plan_buf)buf);
    if (!slice_ok(chunk, s->count, chunks))
        return REFUSE(c, "uses chunks %d to %lld of %s, which has %d", chunk, (long long)chunk + s->count - 1, names[buf], chunks);
    if (buf == PLAN_SCRATCH || !c->shapes)
        return UNO_OK;
    for (int i = 0; i < s->count; i++) {
        int shape = plan_chunk_shape(c->plan, c->rank, (enum plan_buf)buf, chunk + i);
        if (plan_class(c->plan, shape) != plan_class(c->plan, s->shape + i))
            return REFUSE(c, "handles chunks of shape %d, but %s chunk %d has shape %d: their lengths may differ",
                          s->shape + i, names[buf], chunk + i, shape);
    }
    return UNO_OK;
}

static uno_err check_ends(const struct check *c, const struct plan_step *s)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    const struct plan_prog *p = c->prog;
    if (op->sends != (s->send >= 0) || s->send >= p->nsends || s->send < -1)
        return REFUSE(c, op->sends ? "%s needs a connection to send on" : "%s cannot send", op->name);
    if (op->receives ? s->nrecv < 1 : s->nrecv != 0)
        return REFUSE(c, op->receives ? "%s needs a connection to receive from" : "%s cannot receive", op->name);
    if (s->nrecv > 1 && !op->reduces)
        return REFUSE(c, "%s receives from one connection, not from %d", op->name, s->nrecv);
    if (!slice_ok(s->recv, s->nrecv, p->nrecv_list))
        return REFUSE(c, "its list of receives lies outside the program");
    for (int i = 0; i < s->nrecv; i++)
        if (p->recv_list[s->recv + i] < 0 || p->recv_list[s->recv + i] >= p->nrecvs)
            return REFUSE(c, "receives from connection %d of %d", p->recv_list[s->recv + i], p->nrecvs);
    if (s->self < 0 || s->self > s->nrecv)
        return REFUSE(c, "puts its own contribution at place %d of %d", s->self, s->nrecv);
    return UNO_OK;
}

static uno_err check_waits(const struct check *c, const struct plan_step *s)
{
    const struct plan_prog *p = c->prog;
    if (!slice_ok(s->dep, s->ndep, p->ndeps))
        return REFUSE(c, "its list of waits lies outside the program");
    for (int i = 0; i < s->ndep; i++) {
        const struct plan_dep *d = &p->deps[s->dep + i];
        if (d->lane < 0 || d->lane >= p->nlanes || d->step < 0 || d->step >= p->lanes[d->lane].nsteps)
            return REFUSE(c, "waits for lane %d step %d, which does not exist", d->lane, d->step);
    }
    return UNO_OK;
}

static uno_err check_step(const struct check *c, const struct plan_step *s)
{
    if (s->op >= PLAN_OP_COUNT)
        return REFUSE(c, "opcode %d is not known", s->op);
    const struct plan_op_info *op = &plan_ops[s->op];
    bool nop = s->op == PLAN_NOP;
    if (s->count < 1 || (nop && s->count != 1))
        return REFUSE(c, "%s fires %d times", op->name, s->count);
    if (!nop && c->shapes && !slice_ok(s->shape, s->count, plan_shapes(c->plan)))
        return REFUSE(c, "handles shapes %d to %lld, but there are %d", s->shape, (long long)s->shape + s->count - 1,
                      plan_shapes(c->plan));
    TRY(check_ends(c, s));
    TRY(check_waits(c, s));
    if (op->reads_src)
        TRY(check_operand(c, "source", s->src_buf, s->src, s));
    if (op->reads_dst || op->writes_dst)
        TRY(check_operand(c, "destination", s->dst_buf, s->dst, s));
    return UNO_OK;
}

static uno_err check_conns(struct check *c, const struct plan_conn *conns, int n, bool sending)
{
    const char *verb = sending ? "sends to" : "receives from";
    for (int i = 0; i < n; i++) {
        const struct plan_conn *e = &conns[i];
        if (sending && e->group)
            continue;
        if (e->peer < 0 || e->peer >= c->plan->nranks || e->peer == c->rank)
            return REFUSE(c, "%s rank %d; there are ranks 0 to %d besides itself", verb, e->peer, c->plan->nranks - 1);
        if (e->channel < 0 || (e->group && e->channel != 0))
            return REFUSE(c, "%s rank %d on channel %d", verb, e->peer, e->channel);
        const int *host = c->plan->host_of;
        if (e->group && host && host[e->peer] != host[c->rank])
            return REFUSE(c, "%s the group of rank %d, which is on another host", verb, e->peer);
    }
    return UNO_OK;
}

uno_err plan_check_prog(const struct plan *plan, int rank, const struct plan_prog *p, bool shapes, struct plan_fault *fault)
{
    if (plan->root < 0 || plan->root >= plan->nranks)
        return plan_fault_set(fault, PLAN_FAULT_BOUNDS, rank, -1, -1, "the root %d is not a rank", plan->root);
    struct check c = {.plan = plan, .prog = p, .rank = rank, .lane = -1, .step = -1, .shapes = shapes, .fault = fault};
    if (p->scratch_chunks < 0 || p->scratch_chunks > 1 << 24)
        return REFUSE(&c, "has %d scratch chunks", p->scratch_chunks);
    TRY(check_conns(&c, p->sends, p->nsends, true));
    TRY(check_conns(&c, p->recvs, p->nrecvs, false));
    int next = 0; /* lanes lie one behind the other: every step belongs to one lane */
    for (c.lane = 0; c.lane < p->nlanes; c.lane++) {
        const struct plan_lane *l = &p->lanes[c.lane];
        c.step = -1;
        if (l->first != next || l->nsteps < 0 || l->nsteps > p->nsteps - next)
            return REFUSE(&c, "has steps %d to %lld of the program's %d", l->first, (long long)l->first + l->nsteps - 1, p->nsteps);
        next += l->nsteps;
        for (c.step = 0; c.step < l->nsteps; c.step++)
            TRY(check_step(&c, &p->steps[l->first + c.step]));
    }
    c.lane = c.step = -1;
    return next == p->nsteps ? UNO_OK : REFUSE(&c, "has %d steps outside its lanes", p->nsteps - next);
}
