/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_p2p.h - point-to-point: sends and receives that match by (peer, tag, order), and their requests. Runs on two
 * connections a pair and direction: one for headers, small payloads and grants, one for large data.
 *
 * All functions are called by the holder of the communicator's walk lock.
 */
#ifndef UNO_EXEC_P2P_H
#define UNO_EXEC_P2P_H

#include "exec.h"

struct p2p;
enum { P2P_TEXT_BYTES = 400 }; /* two ranks, their processes and hosts */
struct p2p_request {
    bool send;
    int peer;                 /* UNO_ANY in receives */
    int tag;
    uno_type type;
    void *buf;                /* sends only read it */
    size_t bytes;             /* room, or length */
    bool strict;              /* uno_send/uno_recv: length and type must agree */
    const void *call_site;
    _Atomic int waited;       /* a thread waits for it now; relaxed, only for reports */
    /* result; done is a release store, last */
    _Atomic int done;
    uno_err err;
    char text[P2P_TEXT_BYTES]; /* sentence when err */
    int got_peer, got_tag;
    size_t got_bytes;
    /* inside */
    uint64_t id;
    size_t moved;
    bool lent;                /* a piece of it is read from buf itself */
    uint32_t last_piece;      /* the number of the last one sent */
    struct ledger_p2p *event; /* in the ledger; its place may have been used anew, see event_number */
    uint32_t event_number;
    struct p2p_request *next, **at; /* in a list; at: what points to it */
};
/* Field by field: the sentence need not be cleared. */
static inline void p2p_request_init(struct p2p_request *r, bool send, int peer, uno_type type, void *buf, size_t bytes, const void *call_site)
{
    r->send = send;
    r->peer = peer;
    r->tag = 0;
    r->type = type;
    r->buf = buf;
    r->bytes = bytes;
    r->strict = false;
    r->call_site = call_site;
    atomic_init(&r->waited, 0);
    atomic_init(&r->done, 0);
    r->err = UNO_OK;
    r->text[0] = 0;
    r->got_peer = r->got_tag = 0;
    r->got_bytes = r->moved = 0;
    r->lent = false;
    r->last_piece = 0;
    r->id = 0;
    r->event = NULL;
    r->event_number = 0;
    r->next = NULL;
    r->at = NULL;
}
static inline bool p2p_done(const struct p2p_request *r)
{
    return atomic_load_explicit(&r->done, memory_order_acquire) != 0; /* pairs with the release in p2p_finish */
}

uno_err p2p_new(struct exec_env *env, struct p2p **p2p);
void p2p_abandon(struct p2p *p2p);       /* unfinished requests fail with UNO_ERR_ABORTED */
void p2p_free(struct p2p *p2p);          /* unfinished requests fail with UNO_ERR_ABORTED */
/* Take up a request; it is finished later by p2p_poll (or at once). Owned by the caller, must live until done. */
void p2p_issue(struct p2p *p2p, struct p2p_request *request);
/* Move what can be moved. */
void p2p_poll(struct p2p *p2p, bool *moved);
/* The same for one request, which names its peer, again and again while it is not done, at most `polls` times. Is it done? */
bool p2p_poll_soon(struct p2p *p2p, const struct p2p_request *request, int polls);
bool p2p_busy(const struct p2p *p2p);    /* any unfinished request, or an answer owed */
/* An answer to a peer is not sent yet whose receive here has ended: p2p_poll must be called although nobody here waits. */
bool p2p_owes(const struct p2p *p2p);
/* Requests that need `rank` (or, with rank < 0, all of them) fail with this error; the thread's sentence is kept in them. */
void p2p_fail(struct p2p *p2p, int rank, uno_err err);
/* Write into the ledger for which requests somebody waits now (all: for every one). Returns how many those are. */
int p2p_note_waits(struct p2p *p2p, bool all);
/* Does an unfinished request need this rank? UNO_ANY: is a receive from any rank posted? */
bool p2p_needs(const struct p2p *p2p, int rank);
/* The first error that leaves a partner without an answer (UNO_ERR_PEER_DEAD and up): the communicator fails, and then, by p2p_fail, all
 * requests. */
uno_err p2p_broken(const struct p2p *p2p);

#endif
