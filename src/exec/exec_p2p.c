/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_p2p.c - point-to-point (contract in exec_p2p.h): issuing, failing, beginning and end; exec_p2p_match.c decides who gets what,
 * exec_p2p_move.c moves it. Per pair and direction one connection for headers, small payloads and grants, one for large data.
 *
 * A message up to 4 KB, between hosts 64 KB, travels with its header (eager), at most 8 of them unmatched a pair; everything else is announced and
 * moves when it is matched: the receiver grants, the sender pours it into the bulk connection in the order of the grants.
 * Headers are always taken out of their slots, so a grant never waits behind a message that nobody wants yet.
 */
#include "exec_p2p_inner.h"

#include <stdlib.h>
#include <string.h>

static void note_begin(struct p2p *p, struct p2p_request *r)
{
    struct ledger_p2p fields = {.peer = r->peer == UNO_ANY ? -1 : r->peer, .tag = r->tag, .send = r->send, .type = (uint8_t)r->type,
                                .strict = r->strict, .waited = (uint8_t)atomic_load_explicit(&r->waited, memory_order_relaxed), .any = r->peer == UNO_ANY, .bytes = r->bytes,
                                .call_site = (uint64_t)(uintptr_t)r->call_site};
    if (r->send)
        fields.pair_number = ++p->pairs[r->peer].issued;
    r->event = ledger_p2p_begin(p->ledger, &p->events, &fields);
    r->event_number = p->events;
}

static void broken_by(struct p2p *p, uno_err err, const char *text)
{
    if (p->broken != UNO_OK)
        return;
    p->broken = err;
    snprintf(p->broken_text, sizeof p->broken_text, "%s", text);
}

void p2p_finish(struct p2p *p, struct p2p_request *r, uno_err err)
{
    ledger_p2p_state(r->event, r->event_number, err == UNO_OK ? LEDGER_P2P_DONE : LEDGER_P2P_FAILED);
    if (err == UNO_OK)
        ledger_moved_add(r->send ? &p->notes->sent : &p->notes->received, r->send ? r->bytes : r->got_bytes);
    r->err = err;
    if (err != UNO_OK)
        snprintf(r->text, sizeof r->text, "%s", err_text());
    if (err >= UNO_ERR_PEER_DEAD)
        broken_by(p, err, r->text);
    p->unfinished--;
    atomic_store_explicit(&r->done, 1, memory_order_release); /* pairs with the acquire in p2p_done; r may be gone now */
}

void p2p_drop_grant(struct p2p *p, struct pair *pair)
{
    struct grant *g = pair->grants;
    pair->grants = g->next;
    if (!pair->grants)
        pair->last_grant = &pair->grants;
    p->grants--;
    free(g);
}

static bool requests_need(const struct p2p *p, int rank)
{
    for (const struct p2p_request *r = p->posted.first; r; r = r->next)
        if (r->peer == rank)
            return true;
    if (rank < 0)
        return false;
    const struct pair *pair = &p->pairs[rank];
    return pair->waiting.first || pair->announced.first || pair->pouring.first || pair->lent.first || pair->filling.first;
}

bool p2p_needs(const struct p2p *p, int rank)
{
    return requests_need(p, rank) || (rank >= 0 && p->pairs[rank].grants);
}

/* An error of a pair that a request needs is the communicator's. No request ends here: what this rank lends stays until the others can
 * know the cause. */
static void poll_one(struct p2p *p, int peer, bool *moved)
{
    uno_err err = p2p_poll_pair(p, peer, moved);
    if (__builtin_expect(err == UNO_OK, 1))
        return;
    if (requests_need(p, peer))
        broken_by(p, err, err_text());
    else
        p2p_fail(p, peer, err); /* it may have left: nothing waits for its answers */
}

void p2p_poll(struct p2p *p, bool *moved)
{
    for (int i = 0; i < p->nopen; i++)
        poll_one(p, p->open[i], moved);
}

bool p2p_poll_soon(struct p2p *p, const struct p2p_request *r, int polls)
{
    int peer = r->peer;
    if (!p->pairs[peer].opened) /* a rank has no connection to itself */
        return p2p_done(r);
    for (int i = 0; i < polls && !p2p_done(r) && p->broken == UNO_OK; i++) {
        bool moved = false;
        poll_one(p, peer, &moved);
        if (!p2p_done(r))
            exec_relax();
    }
    return p2p_done(r);
}

/* ---- issuing ------------------------------------------------------------------------------------------------------------------- */

static uno_err open_pair(struct p2p *p, int peer)
{
    struct pair *pair = &p->pairs[peer];
    if (pair->opened || peer == p->env->rank)
        return UNO_OK;
    TRY(net_end_get(p->env->net, true, peer, NET_P2P_CHANNEL, false, &pair->tx));
    TRY(net_end_get(p->env->net, false, peer, NET_P2P_CHANNEL, false, &pair->rx));
    bool far = !p->env->regions[peer];
    bool few = p->bulk_room / PIECES_FAR < BULK_PIECE_LEAST;
    int slots = far ? HEADER_SLOTS_FAR : HEADER_SLOTS;
    pair->eager_bytes = far ? MAX(EAGER_BYTES, MIN(EAGER_FAR, EAGER_FAR_ALL / (uint32_t)p->env->size)) : EAGER_BYTES;
    pair->bulk_slots = far ? (few ? 1 : 2) : p->bulk_slots;
    pair->bulk_bytes = far ? p->bulk_room / (few ? NET_FAR_SLOTS : PIECES_FAR) : p->bulk_bytes;
    pair->header_most = (uint32_t)sizeof(struct header) + pair->eager_bytes;
    TRY(net_end_shape(pair->tx, slots, pair->header_most, 0));
    TRY(net_end_shape(pair->rx, slots, pair->header_most, 0));
    pair->opened = true;
    p->open[p->nopen++] = peer;
    return UNO_OK;
}

static uno_err open_for(struct p2p *p, const struct p2p_request *r)
{
    if (r->peer != UNO_ANY)
        return open_pair(p, r->peer);
    uno_err gone = UNO_OK;
    for (int q = 0; q < p->env->size; q++) {
        uno_err err = open_pair(p, q);
        if (err != UNO_OK && err != UNO_ERR_UNREACHABLE)
            return err;
        if (err != UNO_OK)
            gone = err; /* it has left; another one may send */
    }
    return p->nopen > 0 || p->env->size == 1 ? UNO_OK : gone;
}

static void issue_to_self(struct p2p *p, struct p2p_request *r)
{
    struct header h = {.kind = KIND_ANNOUNCE, .tag = r->tag, .type = (uint32_t)r->type, .strict = r->strict, .bytes = r->bytes,
                       .id = p->pairs[p->env->rank].next_id++};
    struct p2p_request *recv = p2p_find_posted(p, p->env->rank, &h);
    if (recv) {
        list_remove(&p->posted, recv);
        p2p_take_own(p, recv, r, &h);
        return;
    }
    struct unexpected *u = p2p_keep(p, p->env->rank, &h, NULL, 0);
    if (u)
        u->own = r;
    else
        p2p_finish(p, r, UNO_ERR_MEMORY);
}

void p2p_issue(struct p2p *p, struct p2p_request *r)
{
    p->unfinished++;
    note_begin(p, r);
    uno_err err = open_for(p, r);
    if (err != UNO_OK)
        p2p_finish(p, r, err);
    else if (r->send && r->peer == p->env->rank)
        issue_to_self(p, r);
    else if (r->send)
        list_add(&p->pairs[r->peer].waiting, r);
    else if (!p2p_match_now(p, r))
        list_add(&p->posted, r);
}

bool p2p_busy(const struct p2p *p)
{
    return p->unfinished != 0 || p->grants != 0;
}

bool p2p_owes(const struct p2p *p)
{
    return p->grants != 0;
}

uno_err p2p_new(struct exec_env *env, struct p2p **p2p)
{
    struct p2p *p = mem_zalloc(sizeof *p);
    if (!p)
        return UNO_ERR_MEMORY;
    p->env = env;
    p->ledger = net_region_p2p_ledger(env->region);
    p->notes = ledger_notes(env->region);
    p->pairs = mem_array((size_t)env->size, sizeof *p->pairs);
    p->open = mem_array((size_t)env->size, sizeof *p->open);
    if (!p->pairs || !p->open) {
        free(p->pairs);
        free(p->open);
        free(p);
        return UNO_ERR_MEMORY;
    }
    p->posted.last = &p->posted.first;
    for (int q = 0; q < env->size; q++) {
        p->pairs[q].last_unexpected = &p->pairs[q].unexpected;
        p->pairs[q].last_grant = &p->pairs[q].grants;
    }
    p->bulk_bytes = BULK_MOST; /* less per pair where there are many, alike on all ranks */
    p->bulk_room = BULK_ROOM;
    p->bulk_slots = BULK_SLOTS;
    while (p->bulk_room > BULK_LEAST && (uint64_t)p->bulk_room * (uint64_t)env->size > BULK_ALL)
        p->bulk_room /= 2;
    while (p->bulk_bytes * p->bulk_slots > p->bulk_room)
        *(p->bulk_bytes > BULK_PIECE_LEAST ? &p->bulk_bytes : &p->bulk_slots) /= 2;
    *p2p = p;
    return UNO_OK;
}

/* ---- failing ---------------------------------------------------------------------------------------------------------------------- */

static void fail_list(struct p2p *p, struct list *l, int rank, uno_err err)
{
    struct list rest = {NULL, NULL};
    while (l->first) {
        struct p2p_request *r = list_pop(l);
        if (rank < 0 || r->peer == rank || (!r->send && r->got_peer == rank && r->moved))
            p2p_finish(p, r, err);
        else
            list_add(&rest, r);
    }
    while (rest.first)
        list_add(l, list_pop(&rest));
}

void p2p_fail(struct p2p *p, int rank, uno_err err)
{
    fail_list(p, &p->posted, rank, err);
    for (int q = 0; q < p->env->size; q++) {
        if (rank >= 0 && q != rank)
            continue;
        struct pair *pair = &p->pairs[q];
        fail_list(p, &pair->waiting, -1, err);
        fail_list(p, &pair->announced, -1, err);
        if (pair->bulk_opened_send)
            net_withdraw_loans(pair->bulk_tx);
        fail_list(p, &pair->pouring, -1, err);
        fail_list(p, &pair->lent, -1, err);
        fail_list(p, &pair->filling, -1, err);
        while (pair->grants)
            p2p_drop_grant(p, pair);
        for (struct unexpected *u = pair->unexpected; u; u = u->next)
            if (u->own) {
                p2p_finish(p, u->own, err);
                u->own = NULL;
                u->h.tag = -1; /* matches nothing any more */
            }
    }
}

uno_err p2p_broken(const struct p2p *p)
{
    return p->broken == UNO_OK ? UNO_OK : err_set(p->broken, "%s", p->broken_text);
}

static int note_list(const struct list *l, bool all)
{
    int n = 0;
    for (const struct p2p_request *r = l->first; r; r = r->next) {
        bool waited = all || atomic_load_explicit(&r->waited, memory_order_relaxed) != 0;
        n += waited;
        if (r->event && atomic_load_explicit(&r->event->number, memory_order_relaxed) == r->event_number)
            r->event->waited = waited;
    }
    return n;
}

int p2p_note_waits(struct p2p *p, bool all)
{
    int n = note_list(&p->posted, all);
    for (int i = 0; i < p->env->size; i++) {
        n += note_list(&p->pairs[i].waiting, all);
        n += note_list(&p->pairs[i].announced, all);
        n += note_list(&p->pairs[i].pouring, all);
        n += note_list(&p->pairs[i].lent, all);
        n += note_list(&p->pairs[i].filling, all);
    }
    return n;
}

void p2p_abandon(struct p2p *p)
{
    if (!p2p_busy(p))
        return;
    err_set(UNO_ERR_ABORTED, "the communicator was destroyed before the request was finished");
    p2p_fail(p, -1, UNO_ERR_ABORTED);
}

void p2p_free(struct p2p *p)
{
    if (!p)
        return;
    p2p_abandon(p);
    for (int q = 0; q < p->env->size; q++) {
        struct pair *pair = &p->pairs[q];
        while (pair->unexpected) {
            struct unexpected *u = pair->unexpected;
            pair->unexpected = u->next;
            free(u);
        }
        while (pair->grants)
            p2p_drop_grant(p, pair);
    }
    free(p->pairs);
    free(p->open);
    free(p);
}
