/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_interp.c - see ref_interp.h. Slow and plain: every turn looks at all lanes and fires the one of highest random
 * priority that can; priorities change now and then, so that some lanes run far ahead and others are left behind.
 */
#include "ref_state.h"

#include <string.h>

/* ---- one firing ------------------------------------------------------------------------------------------------ */

static char *memory_of(struct ref_state *x, const struct ref_lane *l, int buf, int chunk)
{
    const struct ref_run *run = x->run;
    const struct ref_rank *rank = &x->ranks[l->rank];
    if (buf == PLAN_SCRATCH) {
        size_t at = (l->tile % (size_t)run->scratch_tiles) * (size_t)rank->prog.scratch_chunks + (size_t)chunk;
        return rank->scratch + at * run->tile_elems * x->elem;
    }
    size_t off = plan_chunk_offset(run->plan, &x->chunks, l->rank, (enum plan_buf)buf, chunk) + l->tile * run->tile_elems;
    return (buf == PLAN_IN ? (char *)(uintptr_t)run->in[l->rank] : (char *)run->out[l->rank]) + off * x->elem;
}

static struct ref_slot *message(struct ref_state *x, const struct ref_lane *l, int recv)
{
    struct ref_wire *w = x->ranks[l->rank].recvs[recv];
    return &w->slot[w->taken[l->rank] % (uint64_t)x->run->k];
}

static void release(struct ref_state *x, const struct ref_lane *l, int recv)
{
    struct ref_slot *slot = message(x, l, recv);
    x->ranks[l->rank].recvs[recv]->taken[l->rank]++;
    if (--slot->unread == 0 && slot->loan)
        --*slot->loan;
}

static void send_value(struct ref_state *x, const struct ref_lane *l, const struct plan_step *s, size_t n)
{
    struct ref_wire *w = &x->ranks[l->rank].sends[s->send];
    struct ref_slot *slot = &w->slot[w->sent++ % (uint64_t)x->run->k];
    bool fused = plan_ops[s->op].writes_dst;
    bool lend = x->run->lent && (fused || s->op == PLAN_SEND) &&
                (fused || !(s->flags & PLAN_RAW_SRC) || !x->run->scale || x->run->scale[l->rank] == 1);
    int buf = fused ? s->dst_buf : s->src_buf;
    bool loan = lend && buf == PLAN_SCRATCH && w->readers > 0;
    slot->unread = w->readers;
    slot->loan = loan ? &x->ranks[l->rank].loans[l->tile % (size_t)x->run->scratch_tiles] : NULL;
    if (loan)
        ++*slot->loan;
    slot->data = lend ? memory_of(x, l, buf, (fused ? s->dst : s->src) + l->i) : slot->own;
    if (!lend)
        memcpy(slot->own, x->value, n * x->elem);
}

static void fire(struct ref_state *x, const struct ref_lane *l, const struct plan_step *s, size_t n)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    const struct plan_prog *p = &x->ranks[l->rank].prog;
    int at = 0;
    if (op->reads_dst)
        ref_operand(x, l->rank, at++ == 0, memory_of(x, l, s->dst_buf, s->dst + l->i), n, s->flags & PLAN_RAW_DST);
    for (int i = 0; i <= s->nrecv; i++) {
        if (op->reads_src && i == s->self)
            ref_operand(x, l->rank, at++ == 0, memory_of(x, l, s->src_buf, s->src + l->i), n, s->flags & PLAN_RAW_SRC);
        if (i < s->nrecv)
            ref_operand(x, l->rank, at++ == 0, message(x, l, p->recv_list[s->recv + i])->data, n, false);
    }
    if (x->run->req->op == UNO_AVG && s->flags & PLAN_COMPLETES)
        ref_average(x, n);
    for (int i = 0; i < s->nrecv; i++)
        release(x, l, p->recv_list[s->recv + i]);
    if (op->writes_dst)
        memcpy(memory_of(x, l, s->dst_buf, s->dst + l->i), x->value, n * x->elem);
    if (op->sends)
        send_value(x, l, s, n);
}

/* ---- who can go on ---------------------------------------------------------------------------------------------- */

/* Elements of the firing in hand; false: this chunk has no such tile. */
static bool firing_elems(const struct ref_state *x, const struct ref_lane *l, const struct plan_step *s, size_t *n)
{
    size_t tile = x->run->tile_elems, len = x->chunks.len[s->shape + l->i];
    *n = s->op == PLAN_NOP || len <= l->tile * tile ? 0 : MIN(tile, len - l->tile * tile);
    return s->op == PLAN_NOP || l->tile < plan_tiles(len, tile);
}

/* A rank begins a tile once: after that, loans are this tile's own. */
static const char *may_begin_tile(const struct ref_state *x, const struct ref_lane *l)
{
    size_t s = (size_t)x->run->scratch_tiles;
    const struct ref_rank *rank = &x->ranks[l->rank];
    if (l->tile < s || l->tile < rank->begun)
        return NULL;
    for (int i = 0; i < rank->prog.nlanes; i++)
        if (rank->lanes[i].tile <= l->tile - s)
            return "waits for scratch: another lane is still in an earlier tile";
    return rank->loans[l->tile % s] > 0 ? "waits for scratch: a loan is not released" : NULL;
}

/* NULL: it can fire. Else what it waits for. */
static const char *waits_for(const struct ref_state *x, const struct ref_lane *l, const struct plan_step *s)
{
    const struct ref_rank *rank = &x->ranks[l->rank];
    const struct plan_prog *p = &rank->prog;
    size_t n;
    const char *scratch = l->step == 0 && l->i == 0 ? may_begin_tile(x, l) : NULL;
    if (scratch)
        return scratch;
    for (int i = 0; l->i == 0 && i < s->ndep; i++) {
        const struct plan_dep *d = &p->deps[s->dep + i];
        const struct ref_lane *o = &rank->lanes[d->lane];
        if (o->tile < l->tile || (o->tile == l->tile && o->step <= d->step))
            return "waits for a step of another lane";
    }
    if (!firing_elems(x, l, s, &n))
        return NULL;
    for (int i = 0; i < s->nrecv; i++) {
        const struct ref_wire *w = rank->recvs[p->recv_list[s->recv + i]];
        if (!w || w->taken[l->rank] == w->sent)
            return "waits for a message";
    }
    if (s->send < 0)
        return NULL;
    const struct ref_wire *w = &rank->sends[s->send];
    uint64_t k = (uint64_t)x->run->k;
    return w->sent >= k && w->slot[w->sent % k].unread > 0 ? "waits for credit" : NULL;
}

/* NULL: all is done. */
static const struct plan_step *step_of(const struct ref_state *x, const struct ref_lane *l)
{
    const struct plan_prog *p = &x->ranks[l->rank].prog;
    return l->tile < x->tiles ? &p->steps[p->lanes[l->lane].first + l->step] : NULL;
}

static void go_on(struct ref_state *x, struct ref_lane *l, const struct plan_step *s)
{
    struct ref_rank *rank = &x->ranks[l->rank];
    size_t n;
    rank->begun = MAX(rank->begun, l->tile + 1);
    if (firing_elems(x, l, s, &n) && s->op != PLAN_NOP)
        fire(x, l, s, n);
    if (++l->i < s->count)
        return;
    l->i = 0;
    if (++l->step < rank->prog.lanes[l->lane].nsteps)
        return;
    l->step = 0;
    l->tile++;
}

static void run_all(struct ref_state *x, struct ref_outcome *outcome)
{
    for (int i = 0; i < x->nlanes; i++) /* a lane without steps has finished every tile */
        if (x->ranks[x->lanes[i]->rank].prog.lanes[x->lanes[i]->lane].nsteps == 0)
            x->lanes[i]->tile = x->tiles;
    for (;;) {
        struct ref_lane *best = NULL;
        for (int i = 0; i < x->nlanes; i++) {
            struct ref_lane *l = x->lanes[i];
            const struct plan_step *s = step_of(x, l);
            if (s && (!best || l->priority > best->priority) && !waits_for(x, l, s))
                best = l;
        }
        if (!best)
            break;
        go_on(x, best, step_of(x, best));
        outcome->firings++;
        if (rng_below(&x->rng, 4) == 0)
            x->lanes[rng_below(&x->rng, (uint64_t)x->nlanes)]->priority = rng_next(&x->rng);
        if (rng_below(&x->rng, 8) == 0)
            best->priority = rng_next(&x->rng) >> 8; /* the one that runs falls behind */
    }
    for (int i = 0; i < x->nlanes && !outcome->stuck; i++) {
        const struct ref_lane *l = x->lanes[i];
        const struct plan_step *s = step_of(x, l);
        outcome->stuck = s != NULL;
        if (s)
            snprintf(outcome->where, sizeof outcome->where, "rank %d lane %d step %d (%s) of tile %zu %s", l->rank, l->lane,
                     l->step, plan_ops[s->op].name, l->tile, waits_for(x, l, s));
    }
}

uno_err ref_interpret(const struct ref_run *run, struct ref_outcome *outcome)
{
    struct ref_state x;
    *outcome = (struct ref_outcome){0};
    uno_err err = ref_state_make(run, &x);
    if (err == UNO_OK)
        run_all(&x, outcome);
    ref_state_free(&x);
    return err == UNO_ERR_MEMORY ? err_set(err, "no memory to interpret plan %s", run->plan->name) : err;
}
