/* SPDX-License-Identifier: Apache-2.0 */
/* plan_print.c - a plan as people read it: a head, then each rank's lanes, one step a line. */
#include "plan_text.h"

#include <string.h>

static void add_operand(struct text *t, int buf, int chunk, int count)
{
    text_add(t, count > 1 ? "%s %d-%d" : "%s %d", plan_buf_names[buf], chunk, chunk + count - 1);
}

static void add_conn(struct text *t, const struct plan_conn *c)
{
    if (c->group)
        text_add(t, c->peer < 0 ? "group" : "%d.group", c->peer);
    else
        text_add(t, "%d.%d", c->peer, c->channel);
}

/* Where the value comes from, operands in order. */
static void add_sources(struct text *t, const struct plan_prog *p, const struct plan_step *s)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    if (!op->receives && op->reads_dst) {
        add_operand(t, s->dst_buf, s->dst, s->count);
        text_add(t, " + ");
    }
    if (!op->receives && op->reads_src)
        add_operand(t, s->src_buf, s->src, s->count);
    for (int i = 0; op->receives && i <= s->nrecv; i++) {
        if (op->reduces && i == s->self) {
            text_add(t, i ? " + " : "");
            add_operand(t, s->src_buf, s->src, s->count);
        }
        if (i < s->nrecv) {
            text_add(t, i || (op->reduces && s->self == 0) ? " + from " : "from ");
            add_conn(t, &p->recvs[p->recv_list[s->recv + i]]);
        }
    }
}

static void add_step(struct text *t, const struct plan_prog *p, const struct plan_step *s, int number)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    text_add(t, "    %3d  %-22s", number, op->name);
    add_sources(t, p, s);
    if (op->writes_dst) {
        text_add(t, " -> ");
        add_operand(t, s->dst_buf, s->dst, s->count);
    }
    if (op->sends) {
        text_add(t, " -> to ");
        add_conn(t, &p->sends[s->send]);
    }
    for (int i = 0; i < s->ndep; i++)
        text_add(t, "%s%d:%d", i ? ", " : "  after ", p->deps[s->dep + i].lane, p->deps[s->dep + i].step);
    text_add(t, "\n");
}

static void add_program(struct text *t, const struct plan_prog *p)
{
    text_add(t, "rank %d: %d lanes, %d steps, %d connections out, %d in, %d scratch chunks\n", p->rank, p->nlanes, p->nsteps,
             p->nsends, p->nrecvs, p->scratch_chunks);
    for (int l = 0; l < p->nlanes; l++) {
        text_add(t, "  lane %d\n", l);
        for (int i = 0; i < p->lanes[l].nsteps; i++)
            add_step(t, p, &p->steps[p->lanes[l].first + i], i);
    }
}

static int count_hosts(const struct plan *plan)
{
    int hosts = 0;
    for (int r = 0; plan->host_of && r < plan->nranks; r++)
        hosts = MAX(hosts, plan->host_of[r]);
    return hosts + 1;
}

static void add_head(struct text *t, const struct plan *plan)
{
    int hosts = count_hosts(plan);
    text_add(t, "plan %s: %s over %d ranks on %d host%s", plan->name, coll_name(plan->coll), plan->nranks, hosts,
             hosts == 1 ? "" : "s");
    if (coll_has_root(plan->coll))
        text_add(t, ", root %d", plan->root);
    text_add(t, ", %d chunk%s%s, %d channel%s, %d slots a connection, %s%s%s, id %016llx%016llx\n", plan->parts,
             plan->parts == 1 ? "" : "s", plan_coll_blocks(plan->coll) ? " a block" : "", plan->channels,
             plan->channels == 1 ? "" : "s", plan->k_claimed, plan->in_place_ok ? "in place" : "",
             plan->in_place_ok && plan->out_of_place_ok ? " and " : "", plan->out_of_place_ok ? "out of place" : "",
             (unsigned long long)plan->id.hi, (unsigned long long)plan->id.lo);
}

uno_err plan_print(const struct plan *plan, int rank, struct text *out)
{
    if (rank >= plan->nranks)
        return err_set(UNO_ERR_ARG, "plan %s has ranks 0 to %d and no rank %d", plan->name, plan->nranks - 1, rank);
    add_head(out, plan);
    for (int r = 0; r < plan->nranks; r++) {
        struct plan_prog prog;
        if (rank >= 0 && r != rank)
            continue;
        TRY(plan_rank(plan, r, &prog));
        add_program(out, &prog);
        plan_prog_free(&prog);
    }
    return out->failed ? UNO_ERR_MEMORY : UNO_OK;
}
