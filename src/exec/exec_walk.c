/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_walk.c - the tiled target: walks a rank's lanes and fires what can be fired, tile by tile (design sections 2, 3).
 *
 * A firing happens when its datum, its slot and its waits are all there, then consumes and frees together: the order in
 * which lanes are looked at cannot change whether the plan finishes. Nothing here may add a wait of another kind.
 */
#include "exec_private.h"

#include <stdlib.h>

enum fired { FIRED, NOT_YET, FAILED };

/* Everything about one firing that depends on the tile. */
struct tile_view {
    size_t bytes, count;
    const char *src;
    char *dst;
};

static char *buffer_at(const struct exec_op *op, enum plan_buf buf, uint64_t off, uint64_t tile_off, uint32_t tile)
{
    const struct exec_program *p = op->program;
    if (buf == PLAN_SCRATCH)
        return op->env->scratch + (tile % p->scratch_tiles) * p->scratch_tile_bytes + off;
    char *base = (char *)(uintptr_t)op->base[buf];
    return base ? base + off + tile_off : NULL; /* NULL: a call of 0 elements */
}

static struct tile_view view_of(const struct exec_op *op, const struct exec_fire *f, uint32_t tile)
{
    uint64_t off = (uint64_t)tile * op->program->tile_bytes;
    struct tile_view v = {.bytes = MIN(f->bytes - off, op->program->tile_bytes)};
    v.count = v.bytes / op->program->elem_bytes;
    if (f->src_buf != PLAN_NONE)
        v.src = buffer_at(op, f->src_buf, f->src_off, off, tile);
    if (f->dst_buf != PLAN_NONE)
        v.dst = buffer_at(op, f->dst_buf, f->dst_off, off, tile);
    return v;
}

static bool waits_met(const struct exec_op *op, const struct exec_fire *f, uint32_t tile)
{
    for (uint32_t i = 0; i < f->ndep; i++) {
        const struct exec_dep *d = &op->program->deps[f->dep + i];
        const struct exec_lane_state *s = &op->lane[d->lane];
        if (s->tile < tile || (s->tile == tile && s->at <= d->fire))
            return false;
    }
    return true;
}

static void name_rank(const struct exec_env *env, int rank, char *name, size_t name_bytes)
{
    if (env->name)
        env->name(env->look_arg, rank, name, name_bytes);
    else
        snprintf(name, name_bytes, "rank %d", rank);
}

struct exec_names exec_names_of(const struct exec_env *env, int peer)
{
    struct exec_names n;
    name_rank(env, peer, n.peer, sizeof n.peer);
    name_rank(env, env->rank, n.own, sizeof n.own);
    return n;
}

static NOINLINE void say_other_operation(const struct exec_op *op, int sender)
{
    struct exec_names n = exec_names_of(op->env, sender);
    err_set(UNO_ERR_MISMATCH, "%s sent data of another operation than #%u of %s", n.peer, op->number, n.own);
}

static NOINLINE void say_other_length(const struct exec_op *op, int sender, uint64_t got, size_t expected)
{
    struct exec_names n = exec_names_of(op->env, sender);
    err_set(UNO_ERR_MISMATCH, "%s sent %llu bytes where %s expects %zu in operation #%u", n.peer, (unsigned long long)got, n.own, expected,
            op->number);
}

static NOINLINE void say_other_count(const struct exec_op *op, int sender, uint64_t sent_bytes, uint64_t expected_bytes)
{
    struct exec_names n = exec_names_of(op->env, sender);
    size_t elem = op->program->elem_bytes;
    err_set(UNO_ERR_MISMATCH, "all_to_all_v #%u: %s sends %llu elements to %s, which expects %llu", op->number, n.peer,
            (unsigned long long)(sent_bytes / elem), n.own, (unsigned long long)(expected_bytes / elem));
}

/* All messages of the list here? */
static enum fired arrived(const struct exec_op *op, const struct exec_fire *f)
{
    for (int i = 0; i < f->nrecv; i++) {
        enum net_arrival a = net_arrived(f->recv[i], op->signature);
        if (__builtin_expect(a == NET_ARRIVED, 1))
            continue;
        if (a == NET_MISMATCH) {
            say_other_operation(op, f->recv[i]->peer);
            return FAILED;
        }
        return f->recv[i]->failed != UNO_OK ? FAILED : NOT_YET;
    }
    return FIRED;
}

/* A message must be as long as this rank expects; a peer that lies about it must not make us read outside. */
static bool message_fits(const struct exec_op *op, const struct net_end *e, const struct net_slot *h, size_t bytes)
{
    uint64_t got = h->bytes;
    if (got == bytes)
        return true;
    say_other_length(op, e->peer, got, bytes);
    return false;
}

/* Which operand is raw, if one is: src at its place in the list; of a reduce that reads dst it is
 * dst, the first, or src, the last. */
static int own_operand(const struct exec_fire *f, int n)
{
    if (plan_ops[f->op].reads_dst)
        return f->flags & PLAN_RAW_DST ? 0 : n - 1;
    return MIN(f->self, n - 1);
}

/* The value of the firing goes to dst and/or the next slot of `send`. Returns false with the sentence set. */
static bool produce(const struct exec_op *op, const struct exec_fire *f, const struct tile_view *v, struct net_slot *head)
{
    const struct exec_program *p = op->program;
    const struct plan_op_info *info = &plan_ops[f->op];
    const void *operands[f->nrecv + 2];
    int n = 0;
    for (int i = 0; i < f->nrecv; i++) {
        const struct net_slot *h = net_recv_head(f->recv[i]);
        if (!message_fits(op, f->recv[i], h, v->bytes))
            return false;
        if (info->reads_src && i == f->self)
            operands[n++] = v->src;
        if (op->offering && net_offer_used(f->recv[i], h))
            return true; /* a plain receive, and its data is in place */
        if (f->op == PLAN_RECV && net_is_read(h)) /* no detour */
            return net_read(f->recv[i], h, v->dst, v->bytes) == UNO_OK;
        if (!(operands[n++] = net_recv_payload(f->recv[i], v->bytes)))
            return false;
    }
    if (info->reads_dst)
        operands[n++] = v->dst;
    if (info->reads_src && (!info->receives || f->self >= f->nrecv))
        operands[n++] = v->src;

    char *out = info->writes_dst ? v->dst : NULL;
    char *slot = NULL;
    bool placed = false;
    if (head && info->reduces)
        placed = (slot = net_take_offer(f->send, v->bytes)) != NULL;
    if (placed) {
        head->bytes = v->bytes;
        head->kind = NET_SLOT_PLACED;
    } else if (head) {
        /* Lend what stays where it is: the source of a plain send, or the destination of a fused one. Never scratch. */
        const char *stays = out ? out : !info->receives ? v->src : NULL;
        bool raw_changes = !out && scales(op, f->flags);
        enum plan_buf where = out ? f->dst_buf : f->src_buf;
        head->bytes = v->bytes;
        head->kind = NET_SLOT_BYTES;
        if (!stays || where == PLAN_SCRATCH || raw_changes || !op->lending ||
            !net_try_lend(f->send, head, stays, v->bytes))
            slot = net_send_payload(f->send);
    }
    if (v->bytes == 0 || (!out && !slot))
        return true;
    /* What a neighbour reads next should stay in the caches. */
    bool stream = p->stream && (!head || slot);
    unsigned flags = (stream && out ? REDUCE_STREAM_DST : 0) | (p->stream && placed ? out ? REDUCE_STREAM_DST2 : REDUCE_STREAM_DST : 0);
    if (n > 1 || (p->reduce && scales(op, f->flags))) {
        struct reduce_scale scale = scale_for(op, f->flags, own_operand(f, n));
        if (n == 1)
            reduce_scale_copy(p->type, p->op, out ? out : slot, operands[0], v->count, &scale);
        else
            p->reduce(out ? out : slot, out ? slot : NULL, operands, n, v->count, &scale, flags);
        if (n == 1 && out && slot)
            copy_bytes(slot, out, v->bytes, false);
        return true;
    }
    if (out && out != operands[0])
        copy_bytes(out, operands[0], v->bytes, stream);
    if (slot)
        copy_bytes(slot, out ? out : operands[0], v->bytes, false);
    return true;
}

static bool loans_still_valid(const struct exec_op *op, const struct exec_fire *f)
{
    for (int i = 0; i < f->nrecv; i++)
        if (__builtin_expect(net_loan_withdrawn(net_recv_head(f->recv[i])), 0)) {
            f->recv[i]->failed = err_set(UNO_ERR_ABORTED, "rank %d took back memory that operation #%u was reading", f->recv[i]->peer, op->number);
            return false;
        }
    return true;
}

/* What the message of this firing took, for net_read.c. Firings with several messages tell nothing of one. */
static void note_time(const struct exec_program *p, const struct exec_fire *f, uint64_t bytes, uint64_t began_ns)
{
    uint64_t ns = clock_ns() - began_ns;
    if (f->nrecv) {
        const struct net_slot *h = net_recv_head(f->recv[0]);
        if (h->kind == NET_SLOT_BYTES || net_is_read(h))
            net_note_received(f->recv[0], h->kind != NET_SLOT_BYTES, bytes, ns, p->nsends > 0);
    } else if (net_send_head(f->send)->kind == NET_SLOT_BYTES) {
        net_note_copied(f->send, bytes, ns);
    }
}

static bool aux_fits(const struct exec_op *op, const struct exec_fire *f, uint32_t tile)
{
    if (!op->program->clear_aux || tile != 0 || f->nrecv != 1)
        return true;
    uint64_t aux = net_recv_head(f->recv[0])->aux;
    if (aux == f->bytes)
        return true;
    say_other_count(op, f->recv[0]->peer, aux, f->bytes);
    return false;
}

static enum fired try_fire(struct exec_op *op, const struct exec_fire *f, uint32_t tile)
{
    if (f->ndep && !waits_met(op, f, tile))
        return NOT_YET;
    if (f->nrecv) {
        enum fired a = arrived(op, f);
        if (a != FIRED)
            return a;
        if (!aux_fits(op, f, tile))
            return FAILED;
    }
    struct tile_view v = view_of(op, f, tile);
    if (f->send && !net_can_send(f->send, v.bytes))
        return f->send->failed != UNO_OK ? FAILED : NOT_YET;
    if (f->op == PLAN_NOP)
        return FIRED;
    struct net_slot *head = f->send ? net_send_head(f->send) : NULL;
    bool timed = f->nrecv < 2 && net_timed(f->nrecv ? f->recv[0] : f->send, v.bytes);
    uint64_t began_ns = timed ? clock_ns() : 0;
    if (!produce(op, f, &v, head) || !loans_still_valid(op, f)) {
        if (f->send)
            net_drop_claim(f->send);
        return FAILED;
    }
    if (timed)
        note_time(op->program, f, v.bytes, began_ns);
    if (f->send) {
        head->aux = op->program->clear_aux && tile == 0 ? f->bytes : 0;
        net_post(f->send, op->signature);
    }
    for (int i = 0; i < f->nrecv; i++)
        net_release(f->recv[i]);
    if (op->offering && f->nrecv == 1)
        offer_ahead(op, f->recv_index);
    return FIRED;
}

/* Scratch holds S tiles: tile t begins when every lane has finished tile t - S. */
static bool scratch_free(const struct exec_op *op, uint32_t tile)
{
    const struct exec_program *p = op->program;
    if (p->scratch_tile_bytes == 0 || tile < p->scratch_tiles)
        return true;
    for (uint32_t l = 0; l < p->nlanes; l++)
        if (op->lane[l].tile <= tile - p->scratch_tiles && op->lane[l].tile < p->lanes[l].tiles)
            return false;
    return true;
}

/* Move one lane as far as it goes; while places are offered, through one tile, because other lanes renew the offers: a lane whose
 * messages are all here would otherwise run to the end of the operation, and find no offer after the first few tiles. */
static enum fired walk_lane(struct exec_op *op, uint32_t l, bool *moved)
{
    const struct exec_lane *lane = &op->program->lanes[l];
    const struct exec_fire *fires = &op->program->fires[lane->first];
    struct exec_lane_state *s = &op->lane[l];
    while (s->tile < lane->tiles) {
        if (s->at == 0 && !scratch_free(op, s->tile))
            return NOT_YET;
        while (s->at < lane->nfires) {
            const struct exec_fire *f = &fires[s->at];
            if (s->tile < f->tiles) {
                enum fired r = try_fire(op, f, s->tile);
                if (r != FIRED)
                    return r;
                *moved = true;
            } else if (f->ndep && !waits_met(op, f, s->tile)) {
                return NOT_YET; /* what has no such tile moves nothing, but keeps its place and its waits */
            }
            s->at++;
        }
        s->at = 0;
        s->tile++;
        if (op->offered) {
            *moved = true;
            return s->tile < lane->tiles ? NOT_YET : FIRED;
        }
    }
    return FIRED;
}

static uno_err shape(const struct exec_program *p, struct net_end *e)
{
    e->left_lying = false;
    return net_end_shape(e, p->k, p->tile_bytes, p->room_bytes);
}

static NOINLINE uno_err tiled_start(struct exec_op *op)
{
    const struct exec_program *p = op->program;
    memset(op->lane, 0, (p->nlanes + 1) * sizeof op->lane[0]);
    struct exec_env *env = op->env;
    net_comm_begin(env->net);
    size_t need = p->scratch_tile_bytes * p->scratch_tiles;
    if (need > env->scratch_bytes) {
        char *fresh = mem_zalloc(need);
        if (!fresh)
            return UNO_ERR_MEMORY;
        free(env->scratch);
        env->scratch = fresh;
        env->scratch_bytes = need;
    }
    for (uint32_t i = 0; i < p->nsends; i++)
        TRY(shape(p, p->sends[i]));
    for (uint32_t i = 0; i < p->nrecvs; i++)
        TRY(shape(p, p->recvs[i]));
    placing_begin(op);
    return UNO_OK;
}

uno_err exec_start(struct exec_op *op)
{
    if (!op->program->small)
        return tiled_start(op);
    exec_start_small(op);
    return UNO_OK;
}

static uno_err failure(struct exec_op *op)
{
    const struct exec_program *p = op->program;
    uno_err err = UNO_OK;
    for (uint32_t i = 0; i < p->nsends && err == UNO_OK; i++)
        err = p->sends[i]->failed;
    for (uint32_t i = 0; i < p->nrecvs && err == UNO_OK; i++)
        err = p->recvs[i]->failed;
    exec_cancel(op);
    return err != UNO_OK ? err : UNO_ERR_MISMATCH;
}

static NOINLINE uno_err tiled_poll(struct exec_op *op, bool *moved)
{
    const struct exec_program *p = op->program;
    bool done = true;
    for (uint32_t l = 0; l < p->nlanes; l++) {
        enum fired r = walk_lane(op, l, moved);
        if (r == FAILED)
            return failure(op);
        done = done && r == FIRED;
    }
    if (*moved) { /* a sign of life for who looks from outside; one writer, relaxed */
        _Atomic uint64_t *moves = &ledger_notes(op->env->region)->moves;
        atomic_store_explicit(moves, atomic_load_explicit(moves, memory_order_relaxed) + 1, memory_order_relaxed);
    }
    for (uint32_t i = 0; done && i < p->nsends; i++)
        done = !net_loans_out(p->sends[i]);
    return done ? UNO_OK : UNO_ERR_IN_PROGRESS;
}

uno_err exec_poll(struct exec_op *op, bool *moved)
{
    return op->program->small ? small_poll(op, moved) : tiled_poll(op, moved);
}

uno_err exec_poll_soon(struct exec_op *op, int polls)
{
    bool moved = false;
    if (op->program->small)
        return exec_poll_small(op, polls);
    uno_err err = tiled_poll(op, &moved);
    for (; err == UNO_ERR_IN_PROGRESS && --polls > 0; err = tiled_poll(op, &moved))
        exec_relax();
    return err;
}

bool exec_left_lying(const struct exec_op *op)
{
    const struct exec_program *p = op->program;
    bool sent = false, received = false;
    for (uint32_t i = 0; i < p->nsends; i++)
        sent = sent || p->sends[i]->left_lying;
    for (uint32_t i = 0; i < p->nrecvs; i++)
        received = received || p->recvs[i]->left_lying;
    return sent && received;
}

void exec_cancel(struct exec_op *op)
{
    const struct exec_program *p = op->program;
    for (uint32_t i = 0; i < p->nrecvs; i++) /* first: a thread that fails too may wait for it */
        net_loan_end(p->recvs[i]);
    for (uint32_t i = 0; i < p->nsends; i++)
        net_withdraw_loans(p->sends[i]);
    for (uint32_t i = 0; i < p->nrecvs; i++)
        net_detach_offers(p->recvs[i]);
}

/* Of the first `tiles` tiles of a firing: how many it has, and their bytes, once for every message. */
static void add_tiles(const struct exec_program *p, const struct exec_fire *f, uint64_t tiles, uint64_t *steps, uint64_t *bytes)
{
    uint64_t done = MIN(tiles, f->tiles);
    *steps += done;
    *bytes += MIN(done * p->tile_bytes, f->bytes) * ((uint64_t)f->nrecv + (f->send != NULL));
}

void exec_progress(const struct exec_op *op, struct exec_progress *progress)
{
    const struct exec_program *p = op->program;
    *progress = (struct exec_progress){0};
    if (p->small) {
        small_progress(op, progress);
        return;
    }
    for (uint32_t l = 0; l < p->nlanes; l++) {
        const struct exec_lane_state *s = &op->lane[l];
        for (uint32_t i = 0; i < p->lanes[l].nfires; i++) {
            const struct exec_fire *f = &p->fires[p->lanes[l].first + i];
            add_tiles(p, f, s->tile + (uint64_t)(i < s->at), &progress->step, &progress->bytes);
            add_tiles(p, f, UINT32_MAX, &progress->steps, &progress->bytes_all);
        }
    }
}

int exec_blame(const struct exec_op *op, const char **what)
{
    const struct exec_program *p = op->program;
    *what = "data from";
    if (p->small)
        return small_blame(op);
    for (uint32_t l = 0; l < p->nlanes; l++) {
        const struct exec_lane_state *s = &op->lane[l];
        if (s->tile >= p->lanes[l].tiles || s->at >= p->lanes[l].nfires)
            continue;
        const struct exec_fire *f = &p->fires[p->lanes[l].first + s->at];
        if (!waits_met(op, f, s->tile))
            continue;
        for (int i = 0; i < f->nrecv; i++)
            if (net_arrived(f->recv[i], op->signature) != NET_ARRIVED)
                return f->recv[i]->peer;
        if (f->send && !net_can_send(f->send, view_of(op, f, s->tile).bytes)) {
            *what = "room at";
            return net_slowest_reader(f->send);
        }
    }
    for (uint32_t i = 0; i < p->nsends; i++)
        if (net_loans_out(p->sends[i])) {
            *what = "the release of memory lent to";
            return net_slowest_reader(p->sends[i]);
        }
    return -1;
}
