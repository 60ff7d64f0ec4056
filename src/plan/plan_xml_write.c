/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_xml_write.c - plan -> MSCCL's XML. plan_unicast.c first makes a program that XML can say; here each lane becomes a
 * thread block, and a step's second and further waits become nops in front of it.
 */
#include "plan_text.h"

#include <stdlib.h>

static const char *const coll_xml_names[UNO_COLL_COUNT] = {
    [UNO_ALL_REDUCE] = "allreduce", [UNO_BROADCAST] = "broadcast", [UNO_REDUCE] = "reduce", [UNO_ALL_GATHER] = "allgather",
    [UNO_REDUCE_SCATTER] = "reducescatter", [UNO_ALL_TO_ALL] = "alltoall", [UNO_GATHER] = "gather",
    [UNO_SCATTER] = "scatter"};
static const char *const buf_letters[] = {"i", "i", "o", "s"};

/* What stands around the steps of one program: their numbers in the XML, and who is waited for. */
struct notes {
    int *number;        /* by step */
    bool *has_dependents;
};

static uno_err make_notes(const struct plan_prog *p, struct notes *n)
{
    n->number = mem_array((size_t)p->nsteps, sizeof *n->number);
    n->has_dependents = mem_array((size_t)p->nsteps, sizeof *n->has_dependents);
    if (!n->number || !n->has_dependents)
        return UNO_ERR_MEMORY;
    for (int l = 0; l < p->nlanes; l++) {
        int number = 0;
        for (int i = p->lanes[l].first; i < p->lanes[l].first + p->lanes[l].nsteps; i++) {
            number += MAX(p->steps[i].ndep - 1, 0);
            n->number[i] = number++;
        }
    }
    for (int d = 0; d < p->ndeps; d++)
        n->has_dependents[p->lanes[p->deps[d].lane].first + p->deps[d].step] = true;
    return UNO_OK;
}

static void add_wait(struct text *out, const struct plan_prog *p, const struct notes *n, const struct plan_dep *d)
{
    if (d)
        text_add(out, "depid=\"%d\" deps=\"%d\"", d->lane, n->number[p->lanes[d->lane].first + d->step]);
    else
        text_add(out, "depid=\"-1\" deps=\"-1\"");
}

static void add_step(struct text *out, const struct plan_prog *p, const struct notes *n, int index)
{
    const struct plan_step *s = &p->steps[index];
    const struct plan_op_info *op = &plan_ops[s->op];
    int nops = MAX(s->ndep - 1, 0);
    for (int i = 0; i < nops; i++) {
        text_add(out, "      <step s=\"%d\" type=\"nop\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"0\" ",
                 n->number[index] - nops + i);
        add_wait(out, p, n, &p->deps[s->dep + i]);
        text_add(out, " hasdep=\"0\"/>\n");
    }
    bool uses_src = op->reads_src, uses_dst = op->reads_dst || op->writes_dst;
    int src_buf = uses_src ? s->src_buf : s->dst_buf, src = uses_src ? s->src : uses_dst ? s->dst : -1;
    int dst_buf = uses_dst ? s->dst_buf : s->src_buf, dst = uses_dst ? s->dst : uses_src ? s->src : -1;
    text_add(out, "      <step s=\"%d\" type=\"%s\" srcbuf=\"%s\" srcoff=\"%d\" dstbuf=\"%s\" dstoff=\"%d\" cnt=\"%d\" ",
             n->number[index], op->xml, buf_letters[src_buf], src, buf_letters[dst_buf], dst, s->op == PLAN_NOP ? 0 : s->count);
    add_wait(out, p, n, s->ndep ? &p->deps[s->dep + nops] : NULL);
    text_add(out, " hasdep=\"%d\"/>\n", n->has_dependents[index]);
}

static void add_lane(struct text *out, const struct plan_prog *p, const struct notes *n, int lane)
{
    int send = -1, recv = -1, channel = 0, first = p->lanes[lane].first, end = first + p->lanes[lane].nsteps;
    for (int i = first; i < end; i++) {
        const struct plan_step *s = &p->steps[i];
        if (s->send >= 0) {
            send = p->sends[s->send].peer;
            channel = p->sends[s->send].channel;
        }
        if (s->nrecv) {
            recv = p->recvs[p->recv_list[s->recv]].peer;
            channel = p->recvs[p->recv_list[s->recv]].channel;
        }
    }
    text_add(out, "    <tb id=\"%d\" send=\"%d\" recv=\"%d\" chan=\"%d\">\n", lane, send, recv, channel);
    for (int i = first; i < end; i++)
        add_step(out, p, n, i);
    text_add(out, "    </tb>\n");
}

static uno_err add_gpu(const struct plan *plan, const struct plan_prog *p, struct text *out)
{
    struct notes n = {0};
    uno_err err = make_notes(p, &n);
    if (err == UNO_OK) {
        text_add(out, "  <gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"%d\" s_chunks=\"%d\">\n", p->rank,
                 plan_buf_chunks(plan, PLAN_IN), plan_buf_chunks(plan, PLAN_OUT), p->scratch_chunks);
        for (int l = 0; l < p->nlanes; l++)
            add_lane(out, p, &n, l);
        text_add(out, "  </gpu>\n");
    }
    free(n.number);
    free(n.has_dependents);
    return err;
}

static uno_err add_rank(const struct plan *plan, int rank, bool unicast, struct text *out, int *channels)
{
    struct plan_prog prog, plain;
    TRY(plan_rank(plan, rank, &prog));
    uno_err err = plan_unicast_prog(plan, &prog, unicast, &plain);
    plan_prog_free(&prog);
    for (int i = 0; err == UNO_OK && i < plain.nsends; i++)
        *channels = MAX(*channels, plain.sends[i].channel + 1);
    if (err == UNO_OK)
        err = add_gpu(plan, &plain, out);
    plan_prog_free(&plain);
    return err;
}

static void add_algo(struct text *out, const struct plan *plan, int channels)
{
    text_add(out, "<algo name=\"");
    plan_add_escaped(out, plan->name, true);
    text_add(out, "\" proto=\"%s\" nchannels=\"%d\" nchunksperloop=\"%d\" ngpus=\"%d\" coll=\"%s\" inplace=\"%d\" "
                  "outofplace=\"%d\" ",
             plan->k_claimed >= 8 ? "LL" : "Simple", channels, plan_shapes(plan), plan->nranks, coll_xml_names[plan->coll],
             plan->in_place_ok, plan->out_of_place_ok);
    if (coll_has_root(plan->coll))
        text_add(out, "root=\"%d\" ", plan->root);
    text_add(out, "minBytes=\"0\" maxBytes=\"%lld\">\n", (long long)INT64_MAX);
}

uno_err plan_to_xml(const struct plan *plan, bool unicast, struct text *out)
{
    struct text body = {0};
    uno_err err = UNO_OK;
    int channels = plan->channels;
    if (!coll_xml_names[plan->coll])
        return err_set(UNO_ERR_UNSUPPORTED, "MSCCL's XML has no %s", coll_name(plan->coll));
    for (int r = 0; err == UNO_OK && r < plan->nranks; r++)
        err = add_rank(plan, r, unicast, &body, &channels);
    if (err == UNO_OK) {
        add_algo(out, plan, channels);
        text_add(out, "%s</algo>\n", body.s ? body.s : "");
        err = body.failed || out->failed ? UNO_ERR_MEMORY : UNO_OK;
    }
    text_free(&body);
    return err;
}
