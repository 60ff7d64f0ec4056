/* SPDX-License-Identifier: Apache-2.0 */
/* exec_p2p_inner.h - what the files of point-to-point share: pairs and their lists, headers on the wire. */
#ifndef UNO_EXEC_P2P_INNER_H
#define UNO_EXEC_P2P_INNER_H

#include "exec_p2p.h"

#define EAGER_BYTES 4096       /* on a host */
#define EAGER_FAR (64u << 10)  /* between hosts, where a question and its answer take as long as many bytes ... */
#define EAGER_FAR_ALL (256u << 10) /* ... of a message to each rank */
#define EAGER_CREDIT 8
#define HEADER_SLOTS 8
#define HEADER_SLOTS_FAR 3     /* net gives it more: EAGER_CREDIT at least */
#define PIECES_FAR 16          /* in as much as a pair on a host has: each is a system call and more; or with NET_FAR_SLOTS, where they would be small */
#define BULK_SLOTS 8
#define BULK_MOST (64u << 10)  /* of a piece: small ones let both sides copy at once */
#define BULK_PIECE_LEAST (16u << 10)
#define BULK_ROOM (2u << 20)   /* of a pair: twice a processor's cache, see docs/tuning.md ... */
#define BULK_LEAST (32u << 10) /* ... and at least, however many there are */
#define BULK_ALL (4u << 20)    /* of all pairs */
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
    uint32_t eager_bytes, header_most; /* payload that travels with a header, and both */
    uint32_t bulk_bytes, bulk_slots;   /* of a piece; at least so many of them */
    /* towards the peer */
    struct list waiting, announced, pouring, lent; /* lent: all of it is on its way, and some of it is read where it lies */
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
    struct ledger_notes *notes;
    uint32_t events;         /* number of the last one there */
    size_t unfinished;
    size_t grants;           /* to be sent; their receives may have ended */
    uno_err broken;          /* see p2p_broken */
    char broken_text[P2P_TEXT_BYTES];
    uint32_t bulk_bytes, bulk_room, bulk_slots; /* of a piece, and for pieces of a pair; at least so many of them */
    bool poured;             /* large data went out since the last large receive has ended */
};

static inline void list_add(struct list *l, struct p2p_request *r)
{
    if (!l->last)
        l->last = &l->first;
    r->next = NULL;
    r->at = l->last;
    *l->last = r;
    l->last = &r->next;
}

static inline void list_remove(struct list *l, struct p2p_request *r)
{
    *r->at = r->next;
    if (r->next)
        r->next->at = r->at;
    else
        l->last = r->at;
}

static inline struct p2p_request *list_pop(struct list *l)
{
    struct p2p_request *r = l->first;
    list_remove(l, r);
    return r;
}

/* exec_p2p.c: the request is done; the sentence of err is the thread's. It may be gone afterwards. */
void p2p_finish(struct p2p *p, struct p2p_request *r, uno_err err);
void p2p_drop_grant(struct p2p *p, struct pair *pair); /* its first one */

/* exec_p2p_match.c */
struct p2p_request *p2p_find_posted(struct p2p *p, int source, const struct header *h);
bool p2p_match_now(struct p2p *p, struct p2p_request *r); /* with the oldest message that is here and fits; for any-source over all pairs */
/* A message without a receive; NULL: no memory. */
struct unexpected *p2p_keep(struct p2p *p, int source, const struct header *h, const void *payload, size_t payload_bytes);
/* Receive r, in no list any more, gets: an eager message, an announced one, a send of this rank to itself. */
void p2p_take_eager(struct p2p *p, struct p2p_request *r, int source, const struct header *h, const void *payload);
void p2p_grant(struct p2p *p, struct p2p_request *r, int source, const struct header *h);
void p2p_take_own(struct p2p *p, struct p2p_request *r, struct p2p_request *send, const struct header *h);

/* exec_p2p_move.c: one round over the connections of a pair that is open. */
uno_err p2p_poll_pair(struct p2p *p, int peer, bool *moved);

#endif
