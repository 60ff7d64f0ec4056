/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_p2p_move.c - point-to-point: one pair's connections. Headers are taken out of their slots and handed to matching, grants
 * and headers go out, payload of matched messages is poured and filled. Called by p2p_poll.
 */
#include "exec_p2p_inner.h"

#include <string.h>

/* ---- headers arriving --------------------------------------------------------------------------------------------------- */

static uno_err lying(int source)
{
    return err_set(UNO_ERR_INTERNAL, "rank %d sent a point-to-point header that makes no sense", source);
}

static uno_err granted(struct p2p *p, int peer, const struct header *h)
{
    struct pair *pair = &p->pairs[peer];
    struct p2p_request *r = pair->announced.first;
    while (r && r->id != h->id)
        r = r->next;
    if (!r || h->bytes > r->bytes)
        return lying(peer);
    list_remove(&pair->announced, r);
    if (h->refused) {
        struct exec_names n = exec_names_of(p->env, peer);
        p2p_finish(p, r, err_set(UNO_ERR_MISMATCH, "%s expects another length or type than the %zu bytes of %s that %s sends", n.peer,
                                 r->bytes, type_name(r->type), n.own));
    } else if (h->bytes == 0) {
        p2p_finish(p, r, UNO_OK);
    } else {
        r->got_bytes = h->bytes;
        r->moved = 0;
        ledger_p2p_state(r->event, r->event_number, LEDGER_P2P_MOVING);
        list_add(&pair->pouring, r);
    }
    return UNO_OK;
}

/* false: no memory to keep it; it stays in its slot. */
static bool take_header(struct p2p *p, int source, const char *slot, size_t slot_bytes, uno_err *err)
{
    struct pair *pair = &p->pairs[source];
    struct header h;
    if (slot_bytes < sizeof h) {
        *err = lying(source);
        return true;
    }
    memcpy(&h, slot, sizeof h);
    if (h.matched - pair->eager_acked > pair->eager_sent - pair->eager_acked) {
        *err = lying(source);
        return true;
    }
    pair->eager_acked = h.matched;
    if (h.kind == KIND_GRANT) {
        *err = granted(p, source, &h);
        return true;
    }
    if (h.kind == KIND_CREDIT)
        return true;
    if ((h.kind != KIND_EAGER && h.kind != KIND_ANNOUNCE) || h.tag < 0 || h.type >= UNO_TYPE_COUNT ||
        (h.kind == KIND_EAGER && h.bytes != slot_bytes - sizeof h)) {
        *err = lying(source);
        return true;
    }
    struct p2p_request *r = p2p_find_posted(p, source, &h);
    if (!r)
        return p2p_keep(p, source, &h, slot + sizeof h, h.kind == KIND_EAGER ? h.bytes : 0) != NULL;
    list_remove(&p->posted, r);
    if (h.kind == KIND_EAGER)
        p2p_take_eager(p, r, source, &h, slot + sizeof h);
    else
        p2p_grant(p, r, source, &h);
    return true;
}

static uno_err receive_headers(struct p2p *p, int source, bool *moved)
{
    struct net_end *rx = p->pairs[source].rx;
    enum net_arrival a;
    while ((a = net_arrived(rx, P2P_SIGNATURE)) == NET_ARRIVED) {
        uno_err err = UNO_OK;
        uint64_t bytes = net_recv_head(rx)->bytes;
        const char *slot = bytes <= p->pairs[source].header_most ? net_recv_payload(rx, bytes) : NULL;
        if (!slot)
            return lying(source);
        if (!take_header(p, source, slot, bytes, &err))
            return UNO_OK;
        net_release(rx);
        *moved = true;
        TRY(err);
    }
    if (a == NET_MISMATCH)
        return lying(source);
    return rx->failed;
}

/* A piece of a message to where it belongs, out of its slot or straight from where the sender lends it. */
static uno_err take_piece(struct p2p *p, struct net_end *rx, int source, char *to, uint64_t bytes)
{
    const struct net_slot *head = net_recv_head(rx);
    bool read = net_is_read(head), timed = net_timed(rx, bytes);
    uint64_t began_ns = timed ? clock_ns() : 0;
    if (read) {
        TRY(net_read(rx, head, to, bytes));
    } else {
        const char *from = net_recv_payload(rx, bytes);
        if (!from)
            return rx->failed != UNO_OK ? rx->failed : lying(source);
        copy_bytes(to, from, bytes, false);
    }
    if (net_loan_withdrawn(head)) {
        net_loan_end(rx);
        return rx->failed = err_set(UNO_ERR_ABORTED, "rank %d took back memory that rank %d was reading", source, p->env->rank);
    }
    if (timed && (read || head->kind == NET_SLOT_BYTES))
        net_note_received(rx, read, bytes, clock_ns() - began_ns, p->poured);
    return UNO_OK;
}

/* One piece at most: what the peer waits for goes out in between. */
static uno_err receive_piece(struct p2p *p, int source, bool *moved)
{
    struct pair *pair = &p->pairs[source];
    struct net_end *rx = pair->bulk_rx;
    struct p2p_request *r = pair->filling.first;
    enum net_arrival a = net_arrived(rx, P2P_SIGNATURE);
    if (a == NET_MISMATCH)
        return lying(source);
    if (a != NET_ARRIVED)
        return rx->failed;
    uint64_t bytes = net_recv_head(rx)->bytes;
    if (bytes > pair->bulk_bytes || bytes > r->got_bytes - r->moved)
        return lying(source);
    if (r->moved == 0)
        net_forget_freed(rx);
    TRY(take_piece(p, rx, source, (char *)r->buf + r->moved, bytes));
    r->moved += bytes;
    net_release(rx);
    *moved = true;
    if (r->moved == r->got_bytes) {
        p->poured = pair->pouring.first != NULL;
        list_pop(&pair->filling);
        if (r->err != UNO_OK)
            err_set(r->err, "%s", r->text);
        p2p_finish(p, r, r->err);
    }
    return rx->failed;
}

/* ---- sending ----------------------------------------------------------------------------------------------------------------- */

static void post_header(struct pair *pair, struct header *h, const void *payload, size_t payload_bytes)
{
    struct net_slot *head = net_send_head(pair->tx);
    char *slot = net_send_payload(pair->tx);
    h->matched = pair->matched_told = pair->matched;
    memcpy(slot, h, sizeof *h);
    if (payload_bytes)
        memcpy(slot + sizeof *h, payload, payload_bytes);
    head->bytes = sizeof *h + payload_bytes;
    head->kind = NET_SLOT_BYTES;
    head->aux = 0;
    net_post(pair->tx, P2P_SIGNATURE);
}

static uno_err send_grants(struct p2p *p, int peer, bool *moved)
{
    struct pair *pair = &p->pairs[peer];
    while (pair->grants && net_can_send(pair->tx, pair->header_most)) {
        struct grant *g = pair->grants;
        if (g->h.bytes && !pair->bulk_opened_recv) {
            TRY(net_end_get(p->env->net, false, peer, NET_P2P_BULK, false, &pair->bulk_rx));
            TRY(net_end_shape(pair->bulk_rx, (int)pair->bulk_slots, pair->bulk_bytes, p->bulk_room));
            pair->bulk_opened_recv = true;
        }
        struct header h = g->h;
        p2p_drop_grant(p, pair);
        post_header(pair, &h, NULL, 0);
        *moved = true;
    }
    return UNO_OK;
}

static void send_waiting(struct p2p *p, struct pair *pair, bool *moved)
{
    while (pair->waiting.first && net_can_send(pair->tx, pair->header_most)) {
        struct p2p_request *r = list_pop(&pair->waiting);
        r->id = pair->next_id++;
        struct header h = {.tag = r->tag, .type = (uint32_t)r->type, .strict = r->strict, .bytes = r->bytes, .id = r->id};
        *moved = true;
        if (r->bytes <= pair->eager_bytes && pair->eager_sent - pair->eager_acked < EAGER_CREDIT) {
            h.kind = KIND_EAGER;
            pair->eager_sent++;
            post_header(pair, &h, r->buf, r->bytes);
            p2p_finish(p, r, UNO_OK);
        } else {
            h.kind = KIND_ANNOUNCE;
            ledger_p2p_state(r->event, r->event_number, LEDGER_P2P_TOLD);
            list_add(&pair->announced, r);
            post_header(pair, &h, NULL, 0);
        }
    }
}

/* The next piece of a message: lent where the receiver can read it, and wants to; else into a slot. */
static void post_piece(struct net_end *tx, struct p2p_request *r, const char *from, size_t bytes)
{
    struct net_slot *head = net_send_head(tx);
    head->bytes = bytes;
    head->kind = NET_SLOT_BYTES;
    head->aux = 0;
    if (net_try_lend(tx, head, from, bytes)) {
        r->lent = true;
    } else {
        bool timed = net_timed(tx, bytes);
        uint64_t began_ns = timed ? clock_ns() : 0;
        copy_bytes(net_send_payload(tx), from, bytes, false);
        if (timed)
            net_note_copied(tx, bytes, clock_ns() - began_ns);
    }
    r->last_piece = tx->next;
    net_post(tx, P2P_SIGNATURE);
}

/* Sends whose memory was lent end when it has been read. */
static void end_lent(struct p2p *p, struct pair *pair, bool *moved)
{
    while (pair->lent.first && (int32_t)(net_end_freed(pair->bulk_tx) - pair->lent.first->last_piece) >= 0) {
        p2p_finish(p, list_pop(&pair->lent), UNO_OK);
        *moved = true;
    }
}

static uno_err pour(struct p2p *p, int peer, bool *moved)
{
    struct pair *pair = &p->pairs[peer];
    if (!pair->pouring.first)
        return UNO_OK;
    if (!pair->bulk_opened_send) {
        TRY(net_end_get(p->env->net, true, peer, NET_P2P_BULK, false, &pair->bulk_tx));
        TRY(net_end_shape(pair->bulk_tx, (int)pair->bulk_slots, pair->bulk_bytes, p->bulk_room));
        pair->bulk_opened_send = true;
    }
    struct net_end *tx = pair->bulk_tx;
    while (pair->pouring.first && net_can_send(tx, pair->bulk_bytes)) {
        struct p2p_request *r = pair->pouring.first;
        size_t bytes = MIN(r->got_bytes - r->moved, (size_t)pair->bulk_bytes);
        post_piece(tx, r, (const char *)r->buf + r->moved, bytes);
        r->moved += bytes;
        *moved = p->poured = true;
        if (r->moved < r->got_bytes)
            continue;
        list_pop(&pair->pouring);
        if (r->lent)
            list_add(&pair->lent, r);
        else
            p2p_finish(p, r, UNO_OK);
    }
    return tx->failed;
}

uno_err p2p_poll_pair(struct p2p *p, int peer, bool *moved)
{
    struct pair *pair = &p->pairs[peer];
    TRY(receive_headers(p, peer, moved));
    TRY(send_grants(p, peer, moved));
    send_waiting(p, pair, moved);
    if (pair->matched - pair->matched_told >= EAGER_CREDIT / 2 && net_can_send(pair->tx, pair->header_most)) {
        struct header h = {.kind = KIND_CREDIT};
        post_header(pair, &h, NULL, 0);
    }
    TRY(pour(p, peer, moved)); /* first: the peer has something to do while this rank copies */
    if (pair->filling.first && pair->bulk_opened_recv)
        TRY(receive_piece(p, peer, moved));
    end_lent(p, pair, moved);
    return pair->tx->failed;
}
