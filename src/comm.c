/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c - the public entry points of unisono.h, and nothing else: each checks its arguments, says what is asked for as a
 * `struct op`, and hands it to the engine. The main path of the library starts here. Those that make and end communicators are in comm_make.c.
 */
#include "comm.h"

#include <string.h>

#define CALL_SITE __builtin_return_address(0)

/* ---- arguments ------------------------------------------------------------------------------------------------------ */

static uno_err check_type(const char *call, uno_type type)
{
    if (uno_type_bytes(type) == 0)
        return err_set(UNO_ERR_ARG, "%s: type %d is not one of the %d types", call, (int)type, UNO_TYPE_COUNT);
    return UNO_OK;
}

/* Elements of `blocks * count` must be addressable, and the buffer there and aligned when any are. */
static uno_err check_buffer(const char *call, const char *name, const void *p, size_t count, size_t blocks, uno_type type)
{
    size_t bytes, elem = uno_type_bytes(type), align = type == UNO_COMPLEX64 || type == UNO_COMPLEX128 ? elem / 2 : elem;
    if (__builtin_mul_overflow(count, blocks, &bytes) || __builtin_mul_overflow(bytes, elem, &bytes) || bytes > SIZE_MAX / 2)
        return err_set(UNO_ERR_ARG, "%s: %zu x %zu elements of %s are more than memory can hold (a negative count?)", call, blocks,
                       count, type_name(type));
    if (bytes == 0)
        return UNO_OK;
    if (!p)
        return err_set(UNO_ERR_ARG, "%s: %s is NULL, with %zu bytes to move", call, name, bytes);
    if ((uintptr_t)p % align)
        return err_set(UNO_ERR_ARG, "%s: %s = %p is not aligned to %zu bytes for %s", call, name, p, align, type_name(type));
    return UNO_OK;
}

static uno_err check_root(const char *call, const uno_comm *c, int root)
{
    if (root < 0 || root >= c->size)
        return err_set(UNO_ERR_ARG, "%s: root %d is not a rank; legal are 0 to %d", call, root, c->size - 1);
    return UNO_OK;
}

/* Two ranges may not overlap, unless they are exactly `in_place`. */
static uno_err check_overlap(const char *call, const void *send, size_t send_bytes, const void *recv, size_t recv_bytes, bool in_place)
{
    const char *s = send, *r = recv;
    if (in_place || !s || !r || send_bytes == 0 || recv_bytes == 0 || s + send_bytes <= r || r + recv_bytes <= s)
        return UNO_OK;
    return err_set(UNO_ERR_ARG, "%s: send and recv overlap without being in place", call);
}

static uno_err check_op(const char *call, uno_comm *c, struct op *op)
{
    uno_type type = op->req.type;
    if (op->req.op >= UNO_OP_DYNAMIC) {
        size_t i = (size_t)op->req.op - UNO_OP_DYNAMIC;
        pthread_mutex_lock(&c->issue);
        bool used = i < c->nops && c->ops[i]->used;
        uno_type made_for = used ? c->ops[i]->type : type;
        if (used)
            memcpy(op->scalar_copy, c->ops[i]->scalar, sizeof op->scalar_copy);
        pthread_mutex_unlock(&c->issue);
        if (!used)
            return err_set(UNO_ERR_ARG, "%s: operation %d was not made by uno_op_create_premulsum on this communicator", call,
                           op->req.op);
        if (made_for != type)
            return err_set(UNO_ERR_ARG, "%s: operation %d was made for %s and is used with %s", call, op->req.op, type_name(made_for),
                           type_name(type));
        return UNO_OK;
    }
    uno_err err = uno_op_check((uno_op)op->req.op, type);
    return err == UNO_OK ? UNO_OK : err_wrap(err, "%s", call);
}

/* ---- collectives ------------------------------------------------------------------------------------------------------- */

/* What a collective needs to know to check its buffers: blocks of `count` in send and recv, which ranks look at them. */
struct layout {
    size_t send_blocks, recv_blocks;
    bool send_root_only, recv_root_only;
    bool rooted, reduces;
};
static struct layout layout_of(uno_coll coll, int size)
{
    size_t n = (size_t)size;
    switch (coll) {
    case UNO_ALL_REDUCE: return (struct layout){1, 1, false, false, false, true};
    case UNO_BROADCAST: return (struct layout){1, 1, true, false, true, false};
    case UNO_REDUCE: return (struct layout){1, 1, false, true, true, true};
    case UNO_ALL_GATHER: return (struct layout){1, n, false, false, false, false};
    case UNO_REDUCE_SCATTER: return (struct layout){n, 1, false, false, false, true};
    case UNO_ALL_TO_ALL: return (struct layout){n, n, false, false, false, false};
    case UNO_GATHER: return (struct layout){1, n, false, true, true, false};
    case UNO_SCATTER: return (struct layout){n, 1, true, false, true, false};
    default: return (struct layout){1, 1, false, false, false, false};
    }
}

/* In place as NCCL defines it for each collective: recv lies so far behind send. */
static ptrdiff_t in_place_offset(uno_coll coll, size_t own_block)
{
    switch (coll) {
    case UNO_ALL_GATHER:
    case UNO_GATHER: return -(ptrdiff_t)own_block;
    case UNO_REDUCE_SCATTER:
    case UNO_SCATTER: return (ptrdiff_t)own_block;
    case UNO_ALL_TO_ALL: return NEVER_IN_PLACE;
    default: return 0;
    }
}

struct extents call_extents(const uno_comm *c, const struct request *req)
{
    struct layout l = layout_of(req->coll, c->size);
    size_t block = req->count * uno_type_bytes(req->type);
    bool root = c->rank == req->root;
    return (struct extents){.send_bytes = !l.send_root_only || root ? l.send_blocks * block : 0,
                            .recv_bytes = !l.recv_root_only || root ? l.recv_blocks * block : 0,
                            .in_place = in_place_offset(req->coll, (size_t)c->rank * block)};
}

static inline bool buffers_fit(const struct cached *of, const void *send, const void *recv)
{
    const struct extents *x = &of->extents;
    uintptr_t s = (uintptr_t)send, r = (uintptr_t)recv;
    return !((s | r) & of->misaligned) && (s || !x->send_bytes) && (r || !x->recv_bytes) &&
           (r - s == (uintptr_t)x->in_place || s + x->send_bytes <= r || r + x->recv_bytes <= s);
}

/* Walk lock held: is this the last request once more, with buffers that are right? Then all that is known of it stays true. */
static inline bool repeats(struct op *op)
{
    const struct cached *last = op->comm->last;
    if (!last || !same_request(&last->req, &op->req) || !buffers_fit(last, op->send, op->recv))
        return false;
    op->cached = last;
    return true;
}

static NOINLINE uno_err check_collective(const char *call, struct op *op)
{
    uno_comm *c = op->comm;
    struct layout l = layout_of(op->req.coll, c->size);
    TRY(check_type(call, op->req.type));
    if (l.reduces)
        TRY(check_op(call, c, op));
    if (l.rooted)
        TRY(check_root(call, c, op->req.root));
    bool root = c->rank == op->req.root;
    bool send_used = !l.send_root_only || root, recv_used = !l.recv_root_only || root;
    if (send_used)
        TRY(check_buffer(call, "send", op->send, op->req.count, l.send_blocks, op->req.type));
    if (recv_used)
        TRY(check_buffer(call, "recv", op->recv, op->req.count, l.recv_blocks, op->req.type));
    struct extents x = call_extents(c, &op->req);
    bool in_place = (uintptr_t)op->recv - (uintptr_t)op->send == (uintptr_t)x.in_place;
    return check_overlap(call, op->send, x.send_bytes, op->recv, x.recv_bytes, in_place);
}

/* Walk lock held. The last call was a small one: is this the same with other buffers, and are they right? */
static inline bool comes_again(const struct op *again, uno_coll coll, uno_type type, int op, int root, size_t count, const void *send,
                               const void *recv)
{
    const struct request *r = &again->req;
    return again->cached && r->coll == coll && r->type == type && r->op == op && r->root == root && r->count == count &&
           buffers_fit(again->cached, send, recv);
}

/* Any other call. Its arguments one by one: a structure would be filled in each call of the function that hands them over. */
static NOINLINE uno_err collective_first(const char *call, uno_comm *comm, uno_coll coll, uno_type type, int op_, int root, size_t count,
                                         const void *send, void *recv, uno_stream *stream, const void *call_site, bool alone)
{
    struct op op;
    op_init(&op, comm, (struct request){coll, type, op_, root, count, NULL, NULL}, send, recv, stream, call_site);
    op.walks = alone;
    if (!alone)
        TRY(comm_enter(comm));
    op.call_site = call_site_of(comm, call_site);
    uno_err err = UNO_OK;
    if (!alone || !repeats(&op))
        err = check_collective(call, &op);
    if (err == UNO_OK)
        err = engine_issue(&op);
    return call_leave(&op, err);
}

static inline __attribute__((always_inline)) uno_err collective(const char *call, uno_comm *comm, uno_coll coll, uno_type type, int op,
                                                                int root, size_t count, const void *send, void *recv,
                                                                uno_stream *stream, const void *call_site)
{
    bool alone = call_alone(comm, stream);
    if (__builtin_expect(!alone || !comes_again(&comm->again, coll, type, op, root, count, send, recv), 0))
        return collective_first(call, comm, coll, type, op, root, count, send, recv, stream, call_site, alone);
    uno_err err = engine_again(comm, send, recv, call_site_of(comm, call_site));
    if (__builtin_expect(err != UNO_OK, 0))
        comm_keep_error(comm);
    walk_leave(comm);
    return err;
}

#define COLLECTIVE(COLL, CALL, SEND, RECV, COUNT, TYPE, OP, ROOT) \
    return collective(CALL, comm, COLL, TYPE, (int)(OP), ROOT, COUNT, SEND, RECV, stream, CALL_SITE)

uno_err uno_all_reduce(const void *send, void *recv, size_t count, uno_type type, uno_op op_, uno_comm *comm, uno_stream *stream)
{
    COLLECTIVE(UNO_ALL_REDUCE, "uno_all_reduce", send, recv, count, type, op_, 0);
}

uno_err uno_broadcast(const void *send, void *recv, size_t count, uno_type type, int root, uno_comm *comm, uno_stream *stream)
{
    COLLECTIVE(UNO_BROADCAST, "uno_broadcast", send, recv, count, type, 0, root);
}

uno_err uno_reduce(const void *send, void *recv, size_t count, uno_type type, uno_op op_, int root, uno_comm *comm,
                   uno_stream *stream)
{
    COLLECTIVE(UNO_REDUCE, "uno_reduce", send, recv, count, type, op_, root);
}

uno_err uno_all_gather(const void *send, void *recv, size_t count, uno_type type, uno_comm *comm, uno_stream *stream)
{
    COLLECTIVE(UNO_ALL_GATHER, "uno_all_gather", send, recv, count, type, 0, 0);
}

uno_err uno_reduce_scatter(const void *send, void *recv, size_t count, uno_type type, uno_op op_, uno_comm *comm,
                           uno_stream *stream)
{
    COLLECTIVE(UNO_REDUCE_SCATTER, "uno_reduce_scatter", send, recv, count, type, op_, 0);
}

uno_err uno_all_to_all(const void *send, void *recv, size_t count, uno_type type, uno_comm *comm, uno_stream *stream)
{
    COLLECTIVE(UNO_ALL_TO_ALL, "uno_all_to_all", send, recv, count, type, 0, 0);
}

uno_err uno_gather(const void *send, void *recv, size_t count, uno_type type, int root, uno_comm *comm, uno_stream *stream)
{
    COLLECTIVE(UNO_GATHER, "uno_gather", send, recv, count, type, 0, root);
}

uno_err uno_scatter(const void *send, void *recv, size_t count, uno_type type, int root, uno_comm *comm, uno_stream *stream)
{
    COLLECTIVE(UNO_SCATTER, "uno_scatter", send, recv, count, type, 0, root);
}

uno_err uno_barrier(uno_comm *comm, uno_stream *stream)
{
    COLLECTIVE(UNO_BARRIER, "uno_barrier", NULL, NULL, 0, UNO_INT8, 0, 0);
}

uno_err comm_split_gather(uno_comm *comm, const void *mine, void *all, size_t bytes, const void *call_site)
{
    struct op op;
    op_init(&op, comm, (struct request){.coll = UNO_ALL_GATHER, .type = UNO_UINT8, .count = bytes, .split = true}, mine, all, NULL, call_site);
    TRY(comm_enter(comm));
    op.call_site = call_site_of(comm, call_site);
    return call_leave(&op, engine_issue(&op));
}

/* ---- v forms --------------------------------------------------------------------------------------------------------------- */

/* Sum of counts must be addressable, every block aligned with the buffer. end: elements from the start to the last block's end. */
static uno_err check_blocks(const char *call, const char *name, const void *buf, const size_t *counts, const size_t *displs,
                            uno_type type, int n, size_t *end)
{
    if (!counts)
        return err_set(UNO_ERR_ARG, "%s: the counts of %s are NULL", call, name);
    size_t at = 0;
    *end = 0;
    for (int q = 0; q < n; q++) {
        size_t from = displs ? displs[q] : at, to;
        if (__builtin_add_overflow(from, counts[q], &to))
            return err_set(UNO_ERR_ARG, "%s: count %zu for rank %d in %s overflows (a negative count?)", call, counts[q], q, name);
        at = to;
        if (counts[q])
            *end = MAX(*end, to);
    }
    return check_buffer(call, name, buf, *end, 1, type);
}

static uno_err v_collective(const char *call, struct op *op, bool gathers)
{
    uno_comm *c = op->comm;
    size_t end, elem = uno_type_bytes(op->req.type);
    TRY(check_type(call, op->req.type));
    if (!gathers)
        TRY(check_op(call, c, op));
    const void *full = gathers ? op->recv : op->send, *own = gathers ? op->send : op->recv;
    TRY(check_blocks(call, gathers ? "recv" : "send", full, op->req.counts, op->req.displs, op->req.type, c->size, &end));
    size_t mine = op->req.counts[c->rank], off = 0;
    if (op->req.displs)
        off = op->req.displs[c->rank];
    else
        for (int q = 0; q < c->rank; q++)
            off += op->req.counts[q];
    TRY(check_buffer(call, gathers ? "send" : "recv", own, mine, 1, op->req.type));
    bool in_place = full && (const char *)own == (const char *)full + off * elem;
    TRY(check_overlap(call, own, mine * elem, full, end * elem, in_place));
    return engine_issue(op);
}

uno_err uno_all_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs, uno_type type, uno_comm *comm,
                         uno_stream *stream)
{
    struct op op = {.comm = comm, .req = {.coll = UNO_ALL_GATHER_V, .type = type, .counts = counts, .displs = displs},
                    .send = send, .recv = recv, .call_site = CALL_SITE, .stream = stream};
    TRY(call_enter(&op));
    return call_leave(&op, v_collective("uno_all_gather_v", &op, true));
}

uno_err uno_reduce_scatter_v(const void *send, void *recv, const size_t *counts, const size_t *displs, uno_type type, uno_op op_,
                             uno_comm *comm, uno_stream *stream)
{
    struct op op = {.comm = comm,
                    .req = {.coll = UNO_REDUCE_SCATTER_V, .type = type, .op = (int)op_, .counts = counts, .displs = displs},
                    .send = send, .recv = recv, .call_site = CALL_SITE, .stream = stream};
    TRY(call_enter(&op));
    return call_leave(&op, v_collective("uno_reduce_scatter_v", &op, false));
}

/* Blocks with displacements may lie between each other: then one by one. */
static uno_err check_blocks_overlap(const char *call, const struct op *op, size_t elem)
{
    int n = op->comm->size;
    for (int p = 0; p < n; p++)
        for (int q = 0; q < n; q++)
            TRY(check_overlap(call, (const char *)op->send + op->req.displs[p] * elem, op->req.counts[p] * elem,
                              (const char *)op->recv + op->recv_displs[q] * elem, op->recv_counts[q] * elem, false));
    return UNO_OK;
}

static uno_err check_all_to_all_v(struct op *op)
{
    static const char call[] = "uno_all_to_all_v";
    uno_comm *c = op->comm;
    size_t send_end, recv_end, elem = uno_type_bytes(op->req.type);
    TRY(check_type(call, op->req.type));
    TRY(check_blocks(call, "send", op->send, op->req.counts, op->req.displs, op->req.type, c->size, &send_end));
    TRY(check_blocks(call, "recv", op->recv, op->recv_counts, op->recv_displs, op->req.type, c->size, &recv_end));
    if (op->req.counts[c->rank] != op->recv_counts[c->rank])
        return err_set(UNO_ERR_ARG, "%s: rank %d sends itself %zu elements and expects %zu", call, c->rank, op->req.counts[c->rank],
                       op->recv_counts[c->rank]);
    uno_err err = check_overlap(call, op->send, send_end * elem, op->recv, recv_end * elem, false);
    return err != UNO_OK && op->req.displs && op->recv_displs ? check_blocks_overlap(call, op, elem) : err;
}

uno_err uno_all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_displs, void *recv,
                         const size_t *recv_counts, const size_t *recv_displs, uno_type type, uno_comm *comm, uno_stream *stream)
{
    struct op op = {.comm = comm,
                    .req = {.coll = UNO_ALL_TO_ALL_V, .type = type, .counts = send_counts, .displs = send_displs},
                    .recv_counts = recv_counts, .recv_displs = recv_displs,
                    .send = send, .recv = recv, .call_site = CALL_SITE, .stream = stream};
    TRY(call_enter(&op));
    uno_err err = check_all_to_all_v(&op);
    return call_leave(&op, err == UNO_OK ? engine_issue(&op) : err);
}

/* ---- point to point ------------------------------------------------------------------------------------------------------ */

static uno_err check_p2p(const char *call, const uno_comm *c, const void *buf, size_t count, uno_type type, int peer, bool any)
{
    TRY(check_type(call, type));
    if ((peer < 0 || peer >= c->size) && !(any && peer == UNO_ANY))
        return err_set(UNO_ERR_ARG, "%s: peer %d is not a rank; legal are 0 to %d%s", call, peer, c->size - 1, any ? ", or UNO_ANY" : "");
    return check_buffer(call, "buf", buf, count, 1, type);
}

static inline __attribute__((always_inline)) void stream_request(struct p2p_request *r, bool send, void *buf, size_t count, uno_type type,
                                                                 int peer, bool waited, const void *site)
{
    p2p_request_init(r, send, peer, type, buf, count * uno_type_bytes(type), site);
    r->strict = true;
    atomic_init(&r->waited, waited);
}

static void p2p_call(struct op *op, struct p2p_request *r, bool send, void *buf, size_t count, uno_type type, int peer, uno_comm *comm,
                     uno_stream *stream, const void *site)
{
    stream_request(r, send, buf, count, type, peer, stream == NULL, site);
    op_init(op, comm, (struct request){0}, NULL, NULL, stream, site);
    op->p2p = r;
    op->group_owns_p2p = true;
}

/* In a group nothing happens yet, so nobody is counted in: the group holds the call as it holds the communicator. */
static NOINLINE uno_err note_p2p(const char *call, bool send, void *buf, size_t count, uno_type type, int peer, uno_comm *comm,
                                 struct group_call *room, const void *site)
{
    uno_err err = comm_usable(comm);
    if (err == UNO_OK)
        err = check_p2p(call, comm, buf, count, type, peer, false);
    if (err != UNO_OK) {
        comm_keep_error(comm);
        return err;
    }
    p2p_call(&room->op, &room->p2p, send, buf, count, type, peer, comm, NULL, call_site_of(comm, site));
    group_note(&room->op);
    return UNO_OK;
}

/* In a group, on a stream, or behind others. */
static NOINLINE uno_err queue_p2p(bool send, void *buf, size_t count, uno_type type, int peer, uno_comm *comm, uno_stream *stream,
                                  const void *site)
{
    struct p2p_request r;
    struct op op;
    p2p_call(&op, &r, send, buf, count, type, peer, comm, stream, site);
    return engine_issue(&op);
}

static inline __attribute__((always_inline)) uno_err stream_p2p(const char *call, bool send, void *buf, size_t count, uno_type type,
                                                                int peer, uno_comm *comm, uno_stream *stream, const void *site)
{
    bool alone = call_alone(comm, stream);
    if (!alone && !stream && group_open()) {
        TRY(comm_check(comm));
        struct group_call *room = group_room();
        if (room)
            return note_p2p(call, send, buf, count, type, peer, comm, room, site);
    }
    if (!alone)
        TRY(comm_enter(comm));
    uno_err err = check_p2p(call, comm, buf, count, type, peer, false);
    site = call_site_of(comm, site);
    if (!alone)
        return comm_leave(comm, err == UNO_OK ? queue_p2p(send, buf, count, type, peer, comm, stream, site) : err);
    if (err == UNO_OK) {
        struct p2p_request r;
        stream_request(&r, send, buf, count, type, peer, true, site);
        err = engine_p2p(comm, &r);
    }
    if (__builtin_expect(err != UNO_OK, 0))
        comm_keep_error(comm);
    walk_leave(comm);
    return err;
}

uno_err uno_send(const void *buf, size_t count, uno_type type, int peer, uno_comm *comm, uno_stream *stream)
{
    return stream_p2p("uno_send", true, (void *)(uintptr_t)buf, count, type, peer, comm, stream, CALL_SITE);
}

uno_err uno_recv(void *buf, size_t count, uno_type type, int peer, uno_comm *comm, uno_stream *stream)
{
    return stream_p2p("uno_recv", false, buf, count, type, peer, comm, stream, CALL_SITE);
}

static uno_err start_request(const char *call, bool send, void *buf, size_t count, uno_type type, int peer, int tag, uno_comm *comm,
                             uno_request **request, const void *site)
{
    TRY(check_p2p(call, comm, buf, count, type, peer, !send));
    if (tag < 0)
        return err_set(UNO_ERR_ARG, "%s: tag %d is negative", call, tag);
    if (!request)
        return err_set(UNO_ERR_ARG, "%s: request is NULL", call);
    struct p2p_request r = {.send = send, .peer = peer, .tag = tag, .type = type, .buf = buf,
                            .bytes = count * uno_type_bytes(type), .call_site = call_site_of(comm, site)};
    return request_start(comm, &r, request);
}

uno_err uno_isend(const void *buf, size_t count, uno_type type, int peer, int tag, uno_comm *comm, uno_request **request)
{
    TRY(comm_enter(comm));
    return comm_leave(comm, start_request("uno_isend", true, (void *)(uintptr_t)buf, count, type, peer, tag, comm, request, CALL_SITE));
}

uno_err uno_irecv(void *buf, size_t count, uno_type type, int peer, int tag, uno_comm *comm, uno_request **request)
{
    TRY(comm_enter(comm));
    return comm_leave(comm, start_request("uno_irecv", false, buf, count, type, peer, tag, comm, request, CALL_SITE));
}

/* ---- errors, explanations, operations, memory ----------------------------------------------------------------------------- */

int uno_version(void)
{
    return UNO_VERSION;
}

const char *uno_last_error(const uno_comm *comm)
{
    /* A copy: the progress thread may put down the next error meanwhile. Several, for calls that name several communicators. */
    static _Thread_local struct { unsigned next; char text[4][ERR_TEXT_BYTES]; } copies;
    /* In a forked child the lock may be held for ever, and nothing but the call's refusal can have happened there. */
    if (!comm || comm->magic != COMM_MAGIC || comm->fork_generation != fork_generation())
        return err_text();
    char *copy = copies.text[copies.next++ % ARRAY_LEN(copies.text)];
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&comm->fail_lock;
    pthread_mutex_lock(lock);
    memcpy(copy, comm->last_error, sizeof comm->last_error);
    pthread_mutex_unlock(lock);
    return copy;
}

uno_err uno_comm_explain(uno_comm *comm, uno_coll coll, size_t count, uno_type type, uno_op op, int root, char *buf,
                         size_t buf_bytes)
{
    TRY(comm_enter(comm));
    uno_err err = UNO_OK;
    struct text t = {0};
    if (!buf || buf_bytes == 0 || (unsigned)coll >= UNO_COLL_COUNT)
        err = err_set(UNO_ERR_ARG, "uno_comm_explain: %s", buf && buf_bytes ? "unknown collective" : "no room for the text");
    if (err == UNO_OK)
        err = check_type("uno_comm_explain", type);
    if (err == UNO_OK)
        err = check_root("uno_comm_explain", comm, root);
    if (err == UNO_OK) {
        struct op call = {.req = {.coll = coll, .type = type, .op = (int)op, .root = root, .count = count}};
        if (coll_reduces(coll))
            err = check_op("uno_comm_explain", comm, &call);
        walk_wait(comm);
        if (err == UNO_OK)
            err = planner_explain(comm->planner, &call.req, false, &t);
        walk_leave(comm);
    }
    if (err == UNO_OK)
        snprintf(buf, buf_bytes, "%s", t.s ? t.s : "");
    text_free(&t);
    return comm_leave(comm, err);
}

uno_err uno_op_create_premulsum(uno_op *op, const void *scalar, uno_type type, uno_comm *comm)
{
    TRY(comm_enter(comm));
    uno_err err = check_type("uno_op_create_premulsum", type);
    if (err == UNO_OK && (!op || !scalar))
        err = err_set(UNO_ERR_ARG, "uno_op_create_premulsum: %s is NULL", op ? "scalar" : "op");
    if (err == UNO_OK && !reduce_find(type, UNO_OP_DYNAMIC, true))
        err = err_set(UNO_ERR_TYPE, "premulsum is not defined for %s", type_name(type));
    if (err == UNO_OK)
        err = ops_add(comm, scalar, type, op);
    return comm_leave(comm, err);
}

uno_err uno_op_destroy(uno_op op, uno_comm *comm)
{
    TRY(comm_enter(comm));
    return comm_leave(comm, ops_remove(comm, op));
}

uno_err uno_mem_alloc(void **ptr, size_t bytes)
{
    if (!ptr)
        return err_set(UNO_ERR_ARG, "uno_mem_alloc: ptr is NULL");
    *ptr = NULL;
    return bytes ? net_mem_alloc(ptr, bytes) : UNO_OK;
}

uno_err uno_mem_free(void *ptr)
{
    return ptr ? net_mem_free(ptr) : UNO_OK;
}
