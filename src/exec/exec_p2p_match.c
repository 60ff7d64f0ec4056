/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_p2p_match.c - point-to-point: which receive gets which message, and what is said when they do not fit. Nothing is sent here:
 * an announced message that is wanted gets a grant, which exec_p2p_move.c sends.
 */
#include "exec_p2p_inner.h"

#include <stdlib.h>
#include <string.h>

/* A receive met a message, and now the pair's number is known. */
static void note_matched(struct p2p_request *r, int source, const struct header *h)
{
    if (r->event && atomic_load_explicit(&r->event->number, memory_order_relaxed) == r->event_number) {
        r->event->peer = source;
        r->event->pair_number = (uint32_t)h->id + 1;
    }
    ledger_p2p_state(r->event, r->event_number, LEDGER_P2P_MOVING);
}

static bool fits(const struct p2p_request *recv, int source, const struct header *h)
{
    return (recv->peer == UNO_ANY || recv->peer == source) && recv->tag == h->tag;
}

struct p2p_request *p2p_find_posted(struct p2p *p, int source, const struct header *h)
{
    for (struct p2p_request *r = p->posted.first; r; r = r->next)
        if (fits(r, source, h))
            return r;
    return NULL;
}

static NOINLINE uno_err say_unfit(const struct p2p *p, const struct p2p_request *r, int source, const struct header *h, bool differ)
{
    struct exec_names n = exec_names_of(p->env, source);
    if (differ)
        return err_set(UNO_ERR_MISMATCH, "%s sends %llu bytes of %s, %s receives %zu bytes of %s", n.peer, (unsigned long long)h->bytes,
                       type_name((uno_type)h->type), n.own, r->bytes, type_name(r->type));
    return err_set(UNO_ERR_TRUNCATED, "%s sends %llu bytes with tag %d, the receive of %s has room for %zu", n.peer,
                   (unsigned long long)h->bytes, h->tag, n.own, r->bytes);
}

/* Is what arrives what the receive wants? Fills the result fields; returns the error to finish with. */
static uno_err judge(struct p2p *p, struct p2p_request *r, int source, const struct header *h)
{
    note_matched(r, source, h);
    r->got_peer = source;
    r->got_tag = h->tag;
    r->got_bytes = MIN(h->bytes, r->bytes);
    bool differ = r->strict && h->strict && (h->bytes != r->bytes || h->type != (uint32_t)r->type);
    return differ || h->bytes > r->bytes ? say_unfit(p, r, source, h, differ) : UNO_OK;
}

void p2p_take_eager(struct p2p *p, struct p2p_request *r, int source, const struct header *h, const void *payload)
{
    uno_err err = judge(p, r, source, h);
    if (r->got_bytes)
        memcpy(r->buf, payload, r->got_bytes);
    p->pairs[source].matched++;
    p2p_finish(p, r, err);
}

/* Answer an announcement: the receive now waits for its bytes on the bulk connection. */
void p2p_grant(struct p2p *p, struct p2p_request *r, int source, const struct header *h)
{
    struct pair *pair = &p->pairs[source];
    struct grant *g = mem_zalloc(sizeof *g);
    uno_err err = g ? judge(p, r, source, h) : UNO_ERR_MEMORY;
    if (g) {
        g->h = (struct header){.kind = KIND_GRANT, .id = h->id, .bytes = err == UNO_ERR_MISMATCH ? 0 : r->got_bytes,
                               .refused = err == UNO_ERR_MISMATCH};
        *pair->last_grant = g;
        pair->last_grant = &g->next;
        p->grants++;
    }
    if (err == UNO_ERR_MISMATCH || err == UNO_ERR_MEMORY || r->got_bytes == 0) {
        p2p_finish(p, r, err);
        return;
    }
    r->err = err; /* TRUNCATED: told when the rest has arrived */
    if (err != UNO_OK)
        snprintf(r->text, sizeof r->text, "%s", err_text());
    r->moved = 0;
    list_add(&pair->filling, r);
}

void p2p_take_own(struct p2p *p, struct p2p_request *r, struct p2p_request *send, const struct header *h)
{
    uno_err err = judge(p, r, p->env->rank, h);
    if (r->got_bytes && err != UNO_ERR_MISMATCH)
        memmove(r->buf, send->buf, r->got_bytes);
    p2p_finish(p, send, err == UNO_ERR_MISMATCH ? err : UNO_OK);
    p2p_finish(p, r, err);
}

static void match_unexpected(struct p2p *p, struct p2p_request *r, int source, struct unexpected **at)
{
    struct unexpected *u = *at;
    struct pair *pair = &p->pairs[source];
    *at = u->next;
    if (!*at)
        pair->last_unexpected = at;
    if (u->own)
        p2p_take_own(p, r, u->own, &u->h);
    else if (u->h.kind == KIND_EAGER)
        p2p_take_eager(p, r, source, &u->h, u->payload);
    else
        p2p_grant(p, r, source, &u->h);
    free(u);
}

/* The oldest message that is already here and fits; for any-source over all pairs. */
bool p2p_match_now(struct p2p *p, struct p2p_request *r)
{
    struct unexpected **best = NULL;
    int source = -1, from = r->peer == UNO_ANY ? 0 : r->peer, to = r->peer == UNO_ANY ? p->env->size - 1 : r->peer;
    for (int q = from; q <= to; q++)
        for (struct unexpected **u = &p->pairs[q].unexpected; *u; u = &(*u)->next)
            if (fits(r, q, &(*u)->h)) {
                if (!best || (*u)->seq < (*best)->seq) {
                    best = u;
                    source = q;
                }
                break;
            }
    if (!best)
        return false;
    match_unexpected(p, r, source, best);
    return true;
}

struct unexpected *p2p_keep(struct p2p *p, int source, const struct header *h, const void *payload, size_t payload_bytes)
{
    struct unexpected *u = mem_zalloc(sizeof *u + payload_bytes);
    if (!u)
        return NULL;
    u->h = *h;
    u->seq = p->seq++;
    if (payload_bytes)
        memcpy(u->payload, payload, payload_bytes);
    *p->pairs[source].last_unexpected = u;
    p->pairs[source].last_unexpected = &u->next;
    return u;
}
