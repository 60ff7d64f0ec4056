/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_json_write.c - plan -> our JSON (docs/plan-format.md), one step a line. What is written is read back to the same
 * programs; a shape is written only where the operands do not give it.
 */
#include "plan_text.h"

static void add_operand(struct text *out, const char *key, int buf, int chunk)
{
    text_add(out, ", \"%s\": [\"%s\", %d]", key, plan_buf_names[buf], chunk);
}

static void add_recv(struct text *out, const struct plan_prog *p, const struct plan_step *s)
{
    text_add(out, ", \"recv\": [");
    for (int i = 0; i < s->nrecv; i++) {
        const struct plan_conn *c = &p->recvs[p->recv_list[s->recv + i]];
        text_add(out, c->group ? "%s[%d, \"group\"]" : "%s[%d, %d]", i ? ", " : "", c->peer, c->channel);
    }
    text_add(out, "]");
    if (plan_ops[s->op].reduces)
        text_add(out, ", \"self\": %d", s->self);
}

static void add_step(struct text *out, const struct plan *plan, const struct plan_prog *p, const struct plan_step *s)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    text_add(out, "{\"op\": \"%s\"", op->name);
    if (op->reads_src)
        add_operand(out, "src", s->src_buf, s->src);
    if (op->reads_dst || op->writes_dst)
        add_operand(out, "dst", s->dst_buf, s->dst);
    if (s->count != 1)
        text_add(out, ", \"count\": %d", s->count);
    if (s->shape != plan_derived_shape(plan, p->rank, s))
        text_add(out, ", \"shape\": %d", s->shape);
    if (op->receives)
        add_recv(out, p, s);
    if (op->sends && p->sends[s->send].group)
        text_add(out, ", \"send\": \"group\"");
    else if (op->sends)
        text_add(out, ", \"send\": [%d, %d]", p->sends[s->send].peer, p->sends[s->send].channel);
    for (int i = 0; i < s->ndep; i++)
        text_add(out, "%s[%d, %d]", i ? ", " : ", \"wait\": [", p->deps[s->dep + i].lane, p->deps[s->dep + i].step);
    text_add(out, s->ndep ? "]}" : "}");
}

static void add_program(struct text *out, const struct plan *plan, const struct plan_prog *p)
{
    text_add(out, "    {\"rank\": %d, \"scratch\": %d, \"lanes\": [", p->rank, p->scratch_chunks);
    for (int l = 0; l < p->nlanes; l++) {
        text_add(out, "%s\n      [", l ? "," : "");
        for (int i = 0; i < p->lanes[l].nsteps; i++) {
            text_add(out, i ? ",\n       " : "");
            add_step(out, plan, p, &p->steps[p->lanes[l].first + i]);
        }
        text_add(out, "]");
    }
    text_add(out, "]}");
}

static void add_head(struct text *out, const struct plan *plan)
{
    text_add(out, "{\n  \"unisono_plan\": 1,\n  \"name\": \"");
    plan_add_escaped(out, plan->name, false);
    text_add(out, "\",\n  \"collective\": \"%s\",\n  \"ranks\": %d,\n  \"parts\": %d,\n  \"channels\": %d,\n  \"root\": %d,\n",
             coll_name(plan->coll), plan->nranks, plan->parts, plan->channels, plan->root);
    text_add(out, "  \"in_place\": %s,\n  \"out_of_place\": %s,\n  \"slots\": %d,\n  \"hosts\": [",
             plan->in_place_ok ? "true" : "false", plan->out_of_place_ok ? "true" : "false", plan->k_claimed);
    for (int r = 0; r < plan->nranks; r++)
        text_add(out, "%s%d", r ? ", " : "", plan->host_of ? plan->host_of[r] : 0);
    text_add(out, "],\n  \"programs\": [\n");
}

uno_err plan_to_json(const struct plan *plan, struct text *out)
{
    add_head(out, plan);
    for (int r = 0; r < plan->nranks; r++) {
        struct plan_prog prog;
        TRY(plan_rank(plan, r, &prog));
        add_program(out, plan, &prog);
        plan_prog_free(&prog);
        text_add(out, r + 1 < plan->nranks ? ",\n" : "\n");
    }
    text_add(out, "  ]\n}\n");
    return out->failed ? UNO_ERR_MEMORY : UNO_OK;
}
