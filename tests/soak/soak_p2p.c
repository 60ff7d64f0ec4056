/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_p2p.c - steps with messages. Their contents are a function of seed, step and number of the message, so that both ends know them.
 */
#include "soak.h"

#include "conform/share.h"

#include <stdlib.h>
#include <string.h>

#define MOST_MESSAGES 16
#define MOST_BYTES ((size_t)4 << 20)
#define TAGS 3

/* Eight bytes at a time: an arithmetic row from a random start. */
static uint64_t word(uint64_t seed, size_t i)
{
    return seed + (uint64_t)i * 0x9e3779b97f4a7c15ull;
}

static void fill(unsigned char *p, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t w = word(seed, i / 8);
        memcpy(p + i, &w, MIN(bytes - i, 8));
    }
}

static uno_err compare(const unsigned char *p, size_t bytes, uint64_t seed, int source)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t w = word(seed, i / 8);
        if (memcmp(p + i, &w, MIN(bytes - i, 8)) != 0)
            return err_set(UNO_ERR_INTERNAL, "a message of %zu bytes from rank %d is wrong at byte %zu or soon after", bytes, source, i);
    }
    return UNO_OK;
}

struct message {
    int source, destination, tag;
    uno_type type;
    size_t count, room;    /* elements sent, and of the receive's buffer */
    bool shared;           /* buffers of uno_mem_alloc */
    uint64_t content;
};

struct end { const struct message *m; bool send, shared, any; unsigned char *buf; uno_request *request; uno_status status; };
struct exchange { struct message messages[MOST_MESSAGES]; int n; bool any[SOAK_RANKS]; struct end ends[2 * MOST_MESSAGES]; int nends; };

/* To a destination that takes from anybody all messages have one type, and a tag of this step alone: ranks that are further on send
 * already what the next steps want. There is room for the longest. */
static void draw_messages(struct soak *s, const struct soak_place *at, struct exchange *x)
{
    x->n = (int)(1 + rng_below(&s->rng, MOST_MESSAGES));
    for (int q = 0; q < at->size; q++)
        x->any[q] = rng_below(&s->rng, 4) == 0;
    for (int i = 0; i < x->n; i++) {
        struct message *m = &x->messages[i];
        m->source = (int)rng_below(&s->rng, (uint64_t)at->size);
        m->destination = (int)rng_below(&s->rng, (uint64_t)at->size);
        bool any = x->any[m->destination];
        m->tag = any ? TAGS + (int)(s->step % 1000000) : (int)rng_below(&s->rng, TAGS);
        m->type = any ? UNO_UINT8 : (uno_type)rng_below(&s->rng, UNO_TYPE_COUNT);
        m->count = soak_bytes(&s->rng, any ? 262144 : MOST_BYTES) / uno_type_bytes(m->type);
        m->room = any ? 262144 : m->count + rng_below(&s->rng, 2) * rng_below(&s->rng, 100);
        m->shared = rng_below(&s->rng, 4) == 0;
        m->content = hash_mix(s->seed + s->step, (uint64_t)i);
    }
}

static void add_end(struct exchange *x, const struct message *m, bool send)
{
    x->ends[x->nends++] = (struct end){.m = m, .send = send, .any = !send && x->any[m->destination]};
}

/* Receives first, sends first, or both as they come: messages of one pair and tag match in order, so this order is kept. */
static void list_ends(struct soak *s, int me, struct exchange *x)
{
    uint64_t order = rng_below(&s->own, 3);
    x->nends = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->n; i++) {
            const struct message *m = &x->messages[i];
            if (m->source == me && pass == (order == 0))
                add_end(x, m, true);
            if (m->destination == me && pass == (order == 1))
                add_end(x, m, false);
        }
}

static uno_err start(struct end *e, uno_comm *comm)
{
    const struct message *m = e->m;
    size_t bytes = (e->send ? m->count : m->room) * uno_type_bytes(m->type);
    void *p = NULL;
    e->shared = m->shared && bytes > 0;
    if (e->shared)
        TRY(uno_mem_alloc(&p, bytes));
    else if (!(p = malloc(bytes + 1)))
        return UNO_ERR_MEMORY;
    e->buf = p;
    if (!e->send)
        return uno_irecv(e->buf, m->room, m->type, e->any ? UNO_ANY : m->source, m->tag, comm, &e->request);
    fill(e->buf, bytes, m->content);
    return uno_isend(e->buf, m->count, m->type, m->destination, m->tag, comm, &e->request);
}

/* In one of the three ways. */
static uno_err finish(struct soak *s, struct end *e)
{
    uno_err err;
    switch (rng_below(&s->own, 3)) {
    case 0: return uno_wait(&e->request, &e->status);
    case 1:
        while ((err = uno_test(&e->request, &e->status)) == UNO_ERR_IN_PROGRESS)
            ;
        return err;
    default:
        while ((err = uno_wait_until(&e->request, 0.002, &e->status)) == UNO_ERR_IN_PROGRESS)
            ;
        return err;
    }
}

static uno_err finish_all(struct soak *s, struct exchange *x)
{
    int order[2 * MOST_MESSAGES];
    for (int i = 0; i < x->nends; i++) {
        int at = (int)rng_below(&s->own, (uint64_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < x->nends; i++)
        TRY(finish(s, &x->ends[order[i]]));
    return UNO_OK;
}

/* The message that this receive must have got: from anybody, the next one of who sent it. */
static const struct message *expected(const struct exchange *x, int me, const struct end *e, int seen[SOAK_RANKS])
{
    if (!e->any)
        return e->m;
    int source = e->status.peer;
    if (source < 0 || source >= SOAK_RANKS)
        return NULL;
    int skip = seen[source]++;
    for (int i = 0; i < x->n; i++)
        if (x->messages[i].source == source && x->messages[i].destination == me && skip-- == 0)
            return &x->messages[i];
    return NULL;
}

static uno_err look(const struct exchange *x, int me)
{
    int seen[SOAK_RANKS] = {0};
    for (int i = 0; i < x->nends; i++) {
        const struct end *e = &x->ends[i];
        const struct message *m = e->send ? e->m : expected(x, me, e, seen);
        int peer = m && e->send ? m->destination : m ? m->source : -1;
        if (!m || e->status.peer != peer || e->status.tag != m->tag || e->status.count != m->count)
            return err_set(UNO_ERR_INTERNAL, "a %s has peer %d, tag %d, count %zu, expected peer %d, tag %d, count %zu", e->send ? "send" : "receive",
                           e->status.peer, e->status.tag, e->status.count, peer, m ? m->tag : -1, m ? m->count : 0);
        TRY(compare(e->buf, m->count * uno_type_bytes(m->type), m->content, m->source)); /* a send leaves its buffer alone */
    }
    return UNO_OK;
}

uno_err soak_messages(struct soak *s)
{
    struct exchange x;
    const struct soak_place *at = soak_pick(s);
    draw_messages(s, at, &x);
    bool beside = rng_below(&s->rng, 3) == 0;
    if (at->comm) {
        snprintf(s->last_case, sizeof s->last_case, "%d messages in a communicator of %d%s", x.n, at->size, beside ? ", a collective beside them" : "");
        list_ends(s, uno_comm_rank(at->comm), &x);
        for (int i = 0; i < x.nends; i++)
            TRY(start(&x.ends[i], at->comm));
        s->operations += x.nends;
    }
    if (beside)
        TRY(soak_collective(s, at, 65536));
    if (!at->comm)
        return UNO_OK;
    TRY(finish_all(s, &x));
    TRY(look(&x, uno_comm_rank(at->comm)));
    for (int i = 0; i < x.nends; i++)
        if (x.ends[i].shared)
            TRY(uno_mem_free(x.ends[i].buf));
        else
            free(x.ends[i].buf);
    return UNO_OK;
}

/* To the rank that is `by` further on, from the one that is as far behind, beside a collective of the same group. */
static uno_err shift(struct soak *s, uno_comm *comm, int by, size_t bytes, uno_stream *stream)
{
    int n = uno_comm_size(comm), me = uno_comm_rank(comm), to = (me + by) % n, from = (me + n - by) % n;
    unsigned char *out = malloc(bytes + 1), *in = malloc(bytes + 1);
    int32_t one = 1, sum = 0;
    if (!out || !in)
        return UNO_ERR_MEMORY;
    fill(out, bytes, hash_mix(s->seed + s->step, (uint64_t)me));
    bool receive_first = rng_below(&s->own, 2);
    TRY(uno_group_start());
    TRY(share_pass(&(struct share_pass){out, in, bytes, UNO_UINT8, to, from, receive_first}, comm, stream));
    TRY(uno_all_reduce(&one, &sum, 1, UNO_INT32, UNO_SUM, comm, stream));
    TRY(uno_group_end());
    TRY(uno_stream_synchronize(stream));
    TRY(compare(in, bytes, hash_mix(s->seed + s->step, (uint64_t)from), from));
    free(out);
    free(in);
    return sum == n ? UNO_OK : err_set(UNO_ERR_INTERNAL, "a sum beside a shift is %d, expected %d", sum, n);
}

uno_err soak_shift(struct soak *s)
{
    const struct soak_place *at = soak_pick(s);
    int by = (int)rng_below(&s->rng, (uint64_t)at->size);
    size_t bytes = soak_bytes(&s->rng, MOST_BYTES);
    uno_stream *stream = rng_below(&s->rng, 2) ? s->streams[0] : NULL;
    if (!at->comm)
        return UNO_OK;
    s->operations += 3;
    snprintf(s->last_case, sizeof s->last_case, "%zu bytes to %d further on of %d", bytes, by, at->size);
    return shift(s, at->comm, by, bytes, stream);
}
