/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_p2p.c - point-to-point (contract in exec_p2p.h). Per pair and direction one connection for headers, small payloads and
 * grants, one for large data.
 *
 * A message up to 4 KB travels with its header (eager), at most 8 of them unmatched a pair; everything else is announced and
 * moves when it is matched: the receiver grants, the sender pours it into the bulk connection in the order of the grants.
 * Headers are always taken out of their slots, so a grant never waits behind a message that nobody wants yet.
 */
#include "exec_p2p.h"

#include <stdlib.h>
#include <string.h>

#define EAGER_BYTES 4096
#define EAGER_CREDIT 8
#define HEADER_SLOTS 8
#define BULK_SLOTS 2
#define P2P_SIGNATURE 0x70327032u

enum kind { KIND_EAGER = 1, KIND_ANNOUNCE, KIND_GRANT, KIND_CREDIT };

struct header {              /* first 64 bytes of a header slot */
    uint32_t kind;
    int32_t tag;
    uint32_t type, strict;
    uint64_t bytes;          /* message length; grant: how much to send */
    uint64_t id;             /* the sender's number of the message */
    uint32_t matched;        /* eager messages of the other direction that were matched so far */
    uint32_t refused;        /* grant: lengths or types of a strict pair differ */
    uint8_t zero[24];
};
_Static_assert(sizeof(struct header) == 64, "headers are one line");

struct list { struct p2p_request *first, **last; };

struct unexpected {          /* a message that no receive wanted yet */
    struct unexpected *next;
    struct header h;
    uint64_t seq;            /* order of arrival over all pairs, for any-source */
    struct p2p_request *own; /* a send to this rank itself */
    char payload[];          /* eager */
};

struct grant { struct grant *next; struct header h; };

struct pair {
    bool opened, bulk_opened_send, bulk_opened_recv;
    struct net_end *tx, *rx, *bulk_tx, *bulk_rx;
    /* towards the peer */
    struct list waiting, announced, pouring;
    uint32_t eager_sent, eager_acked;
    uint64_t next_id;
    uint32_t issued;         /* sends, numbered for the ledger; headers go out in this order */
    /* from the peer */
    struct unexpected *unexpected, **last_unexpected;
    struct grant *grants, **last_grant;
    struct list filling;
    uint32_t matched, matched_told;
};

struct p2p {
    struct exec_env *env;
    struct pair *pairs;
    struct list posted;      /* receives in order of posting */
    int *open;               /* opened pairs */
    int nopen;
    uint64_t seq;
    struct ledger_p2p *ledger;
    uint32_t events;         /* number of the last one there */
    size_t unfinished;
    size_t grants;           /* to be sent; their receives may have ended */
    uno_err broken;          /* see p2p_broken */
    char broken_text[256];
    uint32_t bulk_bytes;
};

static void list_add(struct list *l, struct p2p_request *r)
{
    if (!l->last)
        l->last = &l->first;
    r->next = NULL;
    *l->last = r;
    l->last = &r->next;
}

static void list_remove(struct list *l, struct p2p_request *r)
{
    for (struct p2p_request **p = &l->first; *p; p = &(*p)->next)
        if (*p == r) {
            *p = r->next;
            break;
        }
    l->last = &l->first;
    while (*l->last)
        l->last = &(*l->last)->next;
}

static struct p2p_request *list_pop(struct list *l)
{
    struct p2p_request *r = l->first;
    l->first = r->next;
    if (!l->first)
        l->last = &l->first;
    return r;
}

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

/* A receive met a message, and now the pair's number is known. */
static void note_matched(struct p2p_request *r, int source, const struct header *h)
{
    if (r->event && atomic_load_explicit(&r->event->number, memory_order_relaxed) == r->event_number) {
        r->event->peer = source;
        r->event->pair_number = (uint32_t)h->id + 1;
    }
    ledger_p2p_state(r->event, r->event_number, LEDGER_P2P_MOVING);
}

static void finish(struct p2p *p, struct p2p_request *r, uno_err err)
{
    ledger_p2p_state(r->event, r->event_number, err == UNO_OK ? LEDGER_P2P_DONE : LEDGER_P2P_FAILED);
    r->err = err;
    if (err != UNO_OK)
        snprintf(r->text, sizeof r->text, "%s", err_text());
    if (err >= UNO_ERR_PEER_DEAD && p->broken == UNO_OK) {
        p->broken = err;
        snprintf(p->broken_text, sizeof p->broken_text, "%s", r->text);
    }
    p->unfinished--;
    atomic_store_explicit(&r->done, 1, memory_order_release); /* pairs with the acquire in p2p_done; r may be gone now */
}

/* ---- matching --------------------------------------------------------------------------------------------------------- */

static bool fits(const struct p2p_request *recv, int source, const struct header *h)
{
    return (recv->peer == UNO_ANY || recv->peer == source) && recv->tag == h->tag;
}

static struct p2p_request *find_posted(struct p2p *p, int source, const struct header *h)
{
    for (struct p2p_request *r = p->posted.first; r; r = r->next)
        if (fits(r, source, h))
            return r;
    return NULL;
}

/* Is what arrives what the receive wants? Fills the result fields; returns the error to finish with. */
static uno_err judge(struct p2p *p, struct p2p_request *r, int source, const struct header *h)
{
    note_matched(r, source, h);
    r->got_peer = source;
    r->got_tag = h->tag;
    r->got_bytes = MIN(h->bytes, r->bytes);
    if (r->strict && h->strict && (h->bytes != r->bytes || h->type != (uint32_t)r->type))
        return err_set(UNO_ERR_MISMATCH, "rank %d sends %llu bytes of %s, rank %d receives %zu bytes of %s", source,
                       (unsigned long long)h->bytes, type_name((uno_type)h->type), p->env->rank, r->bytes, type_name(r->type));
    if (h->bytes > r->bytes)
        return err_set(UNO_ERR_TRUNCATED, "rank %d sends %llu bytes with tag %d, the receive of rank %d has room for %zu", source,
                       (unsigned long long)h->bytes, h->tag, p->env->rank, r->bytes);
    return UNO_OK;
}

static void take_eager(struct p2p *p, struct p2p_request *r, int source, const struct header *h, const void *payload)
{
    uno_err err = judge(p, r, source, h);
    if (r->got_bytes)
        memcpy(r->buf, payload, r->got_bytes);
    p->pairs[source].matched++;
    finish(p, r, err);
}

/* Answer an announcement: the receive now waits for its bytes on the bulk connection. */
static void grant(struct p2p *p, struct p2p_request *r, int source, const struct header *h)
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
        finish(p, r, err);
        return;
    }
    r->err = err; /* TRUNCATED: told when the rest has arrived */
    if (err != UNO_OK)
        snprintf(r->text, sizeof r->text, "%s", err_text());
    r->moved = 0;
    list_add(&pair->filling, r);
}

static void take_own(struct p2p *p, struct p2p_request *r, struct p2p_request *send, const struct header *h)
{
    uno_err err = judge(p, r, p->env->rank, h);
    if (r->got_bytes && err != UNO_ERR_MISMATCH)
        memmove(r->buf, send->buf, r->got_bytes);
    finish(p, send, err == UNO_ERR_MISMATCH ? err : UNO_OK);
    finish(p, r, err);
}

static void match_unexpected(struct p2p *p, struct p2p_request *r, int source, struct unexpected **at)
{
    struct unexpected *u = *at;
    struct pair *pair = &p->pairs[source];
    *at = u->next;
    if (!*at) {
        pair->last_unexpected = &pair->unexpected;
        while (*pair->last_unexpected)
            pair->last_unexpected = &(*pair->last_unexpected)->next;
    }
    if (u->own)
        take_own(p, r, u->own, &u->h);
    else if (u->h.kind == KIND_EAGER)
        take_eager(p, r, source, &u->h, u->payload);
    else
        grant(p, r, source, &u->h);
    free(u);
}

/* The oldest message that is already here and fits; for any-source over all pairs. */
static bool match_now(struct p2p *p, struct p2p_request *r)
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

static struct unexpected *keep(struct p2p *p, int source, const struct header *h, const void *payload, size_t payload_bytes)
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
        finish(p, r, err_set(UNO_ERR_MISMATCH, "rank %d expects another length or type than the %zu bytes of %s that rank %d sends",
                             peer, r->bytes, type_name(r->type), p->env->rank));
    } else if (h->bytes == 0) {
        finish(p, r, UNO_OK);
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
    struct p2p_request *r = find_posted(p, source, &h);
    if (!r)
        return keep(p, source, &h, slot + sizeof h, h.kind == KIND_EAGER ? h.bytes : 0) != NULL;
    list_remove(&p->posted, r);
    if (h.kind == KIND_EAGER)
        take_eager(p, r, source, &h, slot + sizeof h);
    else
        grant(p, r, source, &h);
    return true;
}

static uno_err receive_headers(struct p2p *p, int source, bool *moved)
{
    struct net_end *rx = p->pairs[source].rx;
    enum net_arrival a;
    while ((a = net_arrived(rx, P2P_SIGNATURE)) == NET_ARRIVED) {
        uno_err err = UNO_OK;
        uint64_t bytes = net_recv_head(rx)->bytes;
        if (bytes > sizeof(struct header) + EAGER_BYTES)
            return lying(source);
        if (!take_header(p, source, net_recv_payload(rx), bytes, &err))
            return UNO_OK;
        net_release(rx);
        *moved = true;
        TRY(err);
    }
    if (a == NET_MISMATCH)
        return lying(source);
    return rx->failed;
}

static uno_err receive_bulk(struct p2p *p, int source, bool *moved)
{
    struct pair *pair = &p->pairs[source];
    struct net_end *rx = pair->bulk_rx;
    enum net_arrival a = NET_NOT_YET;
    while (pair->filling.first && (a = net_arrived(rx, P2P_SIGNATURE)) == NET_ARRIVED) {
        struct p2p_request *r = pair->filling.first;
        const struct net_slot *head = net_recv_head(rx);
        uint64_t bytes = head->bytes;
        if (bytes > r->got_bytes - r->moved || bytes > p->bulk_bytes)
            return lying(source);
        copy_bytes((char *)r->buf + r->moved, net_recv_payload(rx), bytes, false);
        r->moved += bytes;
        net_release(rx);
        *moved = true;
        if (r->moved == r->got_bytes) {
            list_pop(&pair->filling);
            if (r->err != UNO_OK)
                err_set(r->err, "%s", r->text);
            finish(p, r, r->err);
        }
    }
    return a == NET_MISMATCH ? lying(source) : rx->failed;
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

static void drop_grant(struct p2p *p, struct pair *pair)
{
    struct grant *g = pair->grants;
    pair->grants = g->next;
    if (!pair->grants)
        pair->last_grant = &pair->grants;
    p->grants--;
    free(g);
}

static uno_err send_grants(struct p2p *p, int peer, bool *moved)
{
    struct pair *pair = &p->pairs[peer];
    while (pair->grants && net_can_send(pair->tx)) {
        struct grant *g = pair->grants;
        if (g->h.bytes && !pair->bulk_opened_recv) {
            TRY(net_end_get(p->env->net, false, peer, NET_P2P_BULK, false, &pair->bulk_rx));
            TRY(net_end_shape(pair->bulk_rx, BULK_SLOTS, p->bulk_bytes));
            pair->bulk_opened_recv = true;
        }
        struct header h = g->h;
        drop_grant(p, pair);
        post_header(pair, &h, NULL, 0);
        *moved = true;
    }
    return UNO_OK;
}

static void send_waiting(struct p2p *p, struct pair *pair, bool *moved)
{
    while (pair->waiting.first && net_can_send(pair->tx)) {
        struct p2p_request *r = list_pop(&pair->waiting);
        r->id = pair->next_id++;
        struct header h = {.tag = r->tag, .type = (uint32_t)r->type, .strict = r->strict, .bytes = r->bytes, .id = r->id};
        *moved = true;
        if (r->bytes <= EAGER_BYTES && pair->eager_sent - pair->eager_acked < EAGER_CREDIT) {
            h.kind = KIND_EAGER;
            pair->eager_sent++;
            post_header(pair, &h, r->buf, r->bytes);
            finish(p, r, UNO_OK);
        } else {
            h.kind = KIND_ANNOUNCE;
            ledger_p2p_state(r->event, r->event_number, LEDGER_P2P_TOLD);
            list_add(&pair->announced, r);
            post_header(pair, &h, NULL, 0);
        }
    }
}

static uno_err pour(struct p2p *p, int peer, bool *moved)
{
    struct pair *pair = &p->pairs[peer];
    if (!pair->pouring.first)
        return UNO_OK;
    if (!pair->bulk_opened_send) {
        TRY(net_end_get(p->env->net, true, peer, NET_P2P_BULK, false, &pair->bulk_tx));
        TRY(net_end_shape(pair->bulk_tx, BULK_SLOTS, p->bulk_bytes));
        pair->bulk_opened_send = true;
    }
    struct net_end *tx = pair->bulk_tx;
    while (pair->pouring.first && net_can_send(tx)) {
        struct p2p_request *r = pair->pouring.first;
        size_t bytes = MIN(r->got_bytes - r->moved, (size_t)p->bulk_bytes);
        struct net_slot *head = net_send_head(tx);
        copy_bytes(net_send_payload(tx), (const char *)r->buf + r->moved, bytes, false);
        head->bytes = bytes;
        head->kind = NET_SLOT_BYTES;
        head->aux = 0;
        net_post(tx, P2P_SIGNATURE);
        r->moved += bytes;
        *moved = true;
        if (r->moved == r->got_bytes)
            finish(p, list_pop(&pair->pouring), UNO_OK);
    }
    return tx->failed;
}

static uno_err poll_pair(struct p2p *p, int peer, bool *moved)
{
    struct pair *pair = &p->pairs[peer];
    TRY(receive_headers(p, peer, moved));
    if (pair->filling.first && pair->bulk_opened_recv)
        TRY(receive_bulk(p, peer, moved));
    TRY(send_grants(p, peer, moved));
    send_waiting(p, pair, moved);
    if (pair->matched - pair->matched_told >= EAGER_CREDIT / 2 && net_can_send(pair->tx)) {
        struct header h = {.kind = KIND_CREDIT};
        post_header(pair, &h, NULL, 0);
    }
    TRY(pour(p, peer, moved));
    return pair->tx->failed;
}

void p2p_poll(struct p2p *p, bool *moved)
{
    for (int i = 0; i < p->nopen; i++) {
        uno_err err = poll_pair(p, p->open[i], moved);
        if (err != UNO_OK) { /* from now on at every poll, which is no reason to forget deadlines */
            size_t before = p->unfinished;
            p2p_fail(p, p->open[i], err);
            *moved = *moved || p->unfinished != before;
        }
    }
}

/* ---- issuing ------------------------------------------------------------------------------------------------------------------- */

static uno_err open_pair(struct p2p *p, int peer)
{
    struct pair *pair = &p->pairs[peer];
    if (pair->opened || peer == p->env->rank)
        return UNO_OK;
    TRY(net_end_get(p->env->net, true, peer, NET_P2P_CHANNEL, false, &pair->tx));
    TRY(net_end_get(p->env->net, false, peer, NET_P2P_CHANNEL, false, &pair->rx));
    TRY(net_end_shape(pair->tx, HEADER_SLOTS, sizeof(struct header) + EAGER_BYTES));
    TRY(net_end_shape(pair->rx, HEADER_SLOTS, sizeof(struct header) + EAGER_BYTES));
    pair->opened = true;
    p->open[p->nopen++] = peer;
    return UNO_OK;
}

static uno_err open_for(struct p2p *p, const struct p2p_request *r)
{
    if (r->peer != UNO_ANY)
        return open_pair(p, r->peer);
    for (int q = 0; q < p->env->size; q++)
        TRY(open_pair(p, q));
    return UNO_OK;
}

static void issue_to_self(struct p2p *p, struct p2p_request *r)
{
    struct header h = {.kind = KIND_ANNOUNCE, .tag = r->tag, .type = (uint32_t)r->type, .strict = r->strict, .bytes = r->bytes,
                       .id = p->pairs[p->env->rank].next_id++};
    struct p2p_request *recv = find_posted(p, p->env->rank, &h);
    if (recv) {
        list_remove(&p->posted, recv);
        take_own(p, recv, r, &h);
        return;
    }
    struct unexpected *u = keep(p, p->env->rank, &h, NULL, 0);
    if (u)
        u->own = r;
    else
        finish(p, r, UNO_ERR_MEMORY);
}

void p2p_issue(struct p2p *p, struct p2p_request *r)
{
    p->unfinished++;
    note_begin(p, r);
    uno_err err = open_for(p, r);
    if (err != UNO_OK)
        finish(p, r, err);
    else if (r->send && r->peer == p->env->rank)
        issue_to_self(p, r);
    else if (r->send)
        list_add(&p->pairs[r->peer].waiting, r);
    else if (!match_now(p, r))
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
    p->bulk_bytes = 1u << 18; /* less per pair where there are many, alike on all ranks */
    while (p->bulk_bytes > 1u << 14 && (uint64_t)p->bulk_bytes * BULK_SLOTS * (uint64_t)env->size > 1u << 22)
        p->bulk_bytes /= 2;
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
            finish(p, r, err);
        else
            list_add(&rest, r);
    }
    l->first = rest.first;
    l->last = rest.first ? rest.last : &l->first;
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
        fail_list(p, &pair->pouring, -1, err);
        fail_list(p, &pair->filling, -1, err);
        while (pair->grants)
            drop_grant(p, pair);
        for (struct unexpected *u = pair->unexpected; u; u = u->next)
            if (u->own) {
                finish(p, u->own, err);
                u->own = NULL;
                u->h.tag = -1; /* matches nothing any more */
            }
    }
}

uno_err p2p_broken(const struct p2p *p)
{
    return p->broken == UNO_OK ? UNO_OK : err_set(p->broken, "%s", p->broken_text);
}

bool p2p_needs(const struct p2p *p, int rank)
{
    for (const struct p2p_request *r = p->posted.first; r; r = r->next)
        if (r->peer == rank)
            return true;
    if (rank < 0)
        return false;
    const struct pair *pair = &p->pairs[rank];
    return pair->waiting.first || pair->announced.first || pair->pouring.first || pair->filling.first || pair->grants;
}

static void note_list(const struct list *l)
{
    for (const struct p2p_request *r = l->first; r; r = r->next)
        if (r->event && atomic_load_explicit(&r->event->number, memory_order_relaxed) == r->event_number)
            r->event->waited = (uint8_t)atomic_load_explicit(&r->waited, memory_order_relaxed);
}

void p2p_note_waits(struct p2p *p)
{
    note_list(&p->posted);
    for (int i = 0; i < p->env->size; i++) {
        note_list(&p->pairs[i].waiting);
        note_list(&p->pairs[i].announced);
        note_list(&p->pairs[i].pouring);
        note_list(&p->pairs[i].filling);
    }
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
            drop_grant(p, pair);
    }
    free(p->pairs);
    free(p->open);
    free(p);
}
