/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_recv.c - bytes from a socket into slots. Headers and short payloads are parsed out of a small buffer; the rest of a
 * slice is read straight into its slot. Everything a frame says is checked here before it is used: a peer that lies loses its
 * link, not our memory. All for the holder of the sockets' lock.
 */
#include "net_tcp_inner.h"

#include <errno.h>
#include <string.h>

#define ONE_PROCESS "frames of a communicator's rank from the process of that rank"
#define READ_ROUNDS 16 /* one path does not starve the others */

/* ---- slices -------------------------------------------------------------------------------------------------- */

void path_slice_drop(struct tcp_path *path)
{
    if (!path->end)
        return;
    struct tcp_slots *s = path->slots;
    struct tcp_mark *m = &s->marks[slots_index(s, path->number)];
    uint32_t bit = path->offset / TCP_SLICE;
    if (m->number == path->number && !m->misfit)
        m->begun[bit / 64] &= ~(1ull << (bit % 64));
    slots_drop(s);
    path->end = NULL;
    path->slots = NULL;
    path->to = NULL; /* what is left of it is dropped */
}

/* The frame breaks the protocol; what does the protocol ask for? */
static bool bad(struct tcp_path *path, const char *expected)
{
    path->expected = expected;
    return false;
}

static bool slice_is_sane(const struct tcp_frame *f)
{
    if (f->bytes > UINT32_MAX || f->offset % TCP_SLICE != 0 || f->length > TCP_SLICE)
        return false;
    if (f->bytes == 0)
        return f->offset == 0 && f->length == 0;
    return f->offset < f->bytes && f->length == MIN(f->bytes - f->offset, (uint64_t)TCP_SLICE);
}

/* The first slice of a message prepares its slot. */
static void begin_message(struct tcp_slots *s, struct tcp_mark *m, const struct tcp_frame *f)
{
    m->number = f->number;
    m->signature = f->signature;
    m->bytes = f->bytes;
    m->left = f->bytes ? (uint32_t)((f->bytes + TCP_SLICE - 1) / TCP_SLICE) : 1;
    /* Ranks that disagree about an operation may disagree about the size of its slots: the walker must learn that it is a
     * mismatch, and there is no room for the payload. */
    m->misfit = f->bytes > s->stride || f->shape_no != s->shape_no;
    if (!m->misfit)
        memset(m->begun, 0, ((size_t)m->left + 63) / 64 * 8);
    struct net_slot *h = &s->heads[slots_index(s, f->number)];
    h->bytes = f->bytes;
    h->aux = f->aux;
    h->kind = NET_SLOT_BYTES;
    atomic_store_explicit(&h->withdrawn, 0, memory_order_relaxed);
}

static void publish_message(struct net_proc *p, struct tcp_slots *s, const struct tcp_mark *m)
{
    struct net_slot *h = &s->heads[slots_index(s, m->number)];
    uint32_t signature = m->misfit ? ~m->signature : m->signature;
    if (m->misfit)
        h->bytes = 0;
    /* release: head and payload come before; pairs with the acquire in net_arrived */
    atomic_store_explicit(&h->flag, net_flag(m->number, signature), memory_order_release);
    atomic_fetch_add(&p->activity, 1); /* before wake_sleepers counts them; pairs with net_sleep */
}

static void slice_done(struct tcp_path *path)
{
    struct tcp_slots *s = path->slots;
    struct tcp_mark *m = &s->marks[slots_index(s, path->number)];
    if (m->number == path->number && --m->left == 0)
        publish_message(path->link->proc, s, m);
    slots_drop(s);
    path->end = NULL;
    path->slots = NULL;
    path->to = NULL;
}

/* A resent slice that another path is still in the middle of: that path's bytes may never come, so this one takes over. */
static bool take_over(struct tcp_path *path, const struct tcp_slots *s, const struct tcp_frame *f)
{
    for (int i = 0; i < path->link->npaths; i++) {
        struct tcp_path *q = path->link->paths[i];
        if (q != path && q->end && q->slots == s && q->number == f->number && q->offset == f->offset) {
            path_slice_drop(q);
            return true;
        }
    }
    return false;
}

/* Where do the bytes of this slice go? path->to = NULL: nowhere. false: the frame breaks the protocol. */
static bool begin_slice(struct tcp_path *path, const struct tcp_frame *f)
{
    struct net_proc *p = path->link->proc;
    path->left = f->length;
    path->to = NULL;
    path->end = NULL;
    if (!slice_is_sane(f))
        return bad(path, "a slice of a message of less than 4 GB, at a multiple of 65536 and as long as its message or 65536");
    struct tcp_end *t = end_find(p, f, false);
    if (!t || !t->now) { /* of a communicator that is gone */
        atomic_fetch_add_explicit(&p->counts.stale, 1, memory_order_relaxed);
        return true;
    }
    if (t->link != path->link)
        return bad(path, ONE_PROCESS);
    uint32_t released = atomic_load_explicit(&t->released, memory_order_relaxed);
    struct tcp_slots *s = t->now;
    bool old = (int32_t)(f->number - released) <= 0 || (int32_t)(f->number - s->first) < 0;
    if (!old && ((int32_t)(f->shape_no - s->shape_no) > 0 || (int32_t)(f->number - t->granted) > s->k))
        return bad(path, "a message that was granted");
    struct tcp_mark *m = old ? NULL : &s->marks[slots_index(s, f->number)];
    if (m && m->number != f->number)
        begin_message(s, m, f);
    else if (m && (m->bytes != f->bytes || m->signature != f->signature))
        return bad(path, "slices of one message that say one size and signature");
    if (m && m->misfit) {
        if (m->left && f->offset == 0) {
            m->left = 0;
            publish_message(p, s, m);
        }
        return true;
    }
    uint32_t bit = f->offset / TCP_SLICE;
    bool begun = m && m->begun[bit / 64] >> (bit % 64) & 1;
    if (begun && take_over(path, s, f))
        begun = false;
    if (old || begun) {
        atomic_fetch_add_explicit(&p->counts.duplicates, 1, memory_order_relaxed);
        return true; /* a path was lost, and what it carried came twice */
    }
    m->begun[bit / 64] |= 1ull << (bit % 64);
    slots_hold(s);
    path->end = t;
    path->slots = s;
    path->number = f->number;
    path->offset = f->offset;
    path->to = s->payload + (size_t)slots_index(s, f->number) * s->stride + f->offset;
    return true;
}

/* ---- other frames --------------------------------------------------------------------------------------------- */

static bool grant_arrived(struct tcp_path *path, const struct tcp_frame *f)
{
    struct net_proc *p = path->link->proc;
    struct tcp_end *t = end_find(p, f, true);
    uint32_t k = (uint32_t)f->bytes;
    if (!t)
        return true; /* not made yet: it will ask. Or gone. */
    if (t->link != path->link)
        return bad(path, ONE_PROCESS);
    if (f->flags & TCP_FLAG_GONE) {
        t->gone = true;
        if (t->dying)
            end_destroy(t);
        return true;
    }
    if (k == 0 || k > 1u << 20)
        return bad(path, "a grant of 1 to 1048576 slots");
    bool stale = (int32_t)(f->number - t->freed) < 0 || (int32_t)(f->shape_no - t->credit_shape) < 0;
    if (stale)
        return true; /* overtaken on another path */
    if ((int32_t)(f->number - t->sent) >= 0 && f->number != t->freed && (int32_t)(f->number - t->resent_below) >= 0)
        return bad(path, "a release of what was sent");
    t->freed = f->number;
    t->credit_shape = f->shape_no;
    if (t->dying && end_settled(t)) {
        end_destroy(t);
        return true;
    }
    atomic_store_explicit(&t->credit_k, k, memory_order_relaxed);
    /* release: pairs with the acquire in tcp_end_ready */
    atomic_store_explicit(&t->credit, f->number | (uint64_t)f->shape_no << 32, memory_order_release);
    atomic_fetch_add(&p->activity, 1); /* before wake_sleepers counts them; pairs with net_sleep */
    return true;
}

static bool ask_arrived(struct tcp_path *path, const struct tcp_frame *f)
{
    struct tcp_end *t = end_find(path->link->proc, f, false);
    if (t && t->link != path->link)
        return bad(path, ONE_PROCESS);
    if (!t && (f->flags & TCP_FLAG_LEAVES))
        end_was_gone(path->link, f); /* it was said, and may have been lost with its path */
    if (t && (f->flags & TCP_FLAG_LEAVES))
        t->hasty = true;
    if (t && t->has_shape)
        end_grant_due(t);
    return true;
}

static bool control_arrived(struct tcp_path *path, const struct tcp_frame *f, const char *data)
{
    struct net_link *l = path->link;
    l->ack_due = true;
    link_dirty(l);
    if ((int32_t)(f->number - l->control_in) <= 0)
        return true; /* came on a path that was lost before we could acknowledge it */
    if (f->number != l->control_in + 1)
        return bad(path, "control frames without a gap in their numbers");
    l->control_in = f->number;
    if (f->type == TCP_GOODBYE) {
        l->goodbye_in = true;
        l->peer_status = -1;
        if (f->length == sizeof l->peer_status)
            memcpy(&l->peer_status, data, sizeof l->peer_status);
    } else {
        proc_event(l->proc, l->process, false, NET_DOWN_LOST, data, f->length);
    }
    return true;
}

/* ---- parsing ---------------------------------------------------------------------------------------------------- */

enum parse { PARSE_MORE, PARSE_WAIT, PARSE_BAD };

/* One frame from the small buffer. */
static enum parse parse_frame(struct tcp_path *path)
{
    struct tcp_frame f;
    if (path->have - path->at < sizeof f)
        return PARSE_WAIT;
    memcpy(&f, path->small_in + path->at, sizeof f);
    bool text = f.type == TCP_CONTROL || f.type == TCP_GOODBYE || f.type == TCP_CLOSED;
    size_t whole = sizeof f + (text && f.length <= TCP_CONTROL_BYTES ? f.length : 0);
    bool ok = f.magic == TCP_MAGIC && (f.type == TCP_DATA || f.length <= TCP_CONTROL_BYTES);
    if (!ok) {
        path->bad = f;
        (void)bad(path, f.magic != TCP_MAGIC ? "a frame that begins with UTF1" : "at most 4096 bytes behind such a frame");
        return PARSE_BAD;
    }
    if (path->have - path->at < whole)
        return PARSE_WAIT;
    const char *data = path->small_in + path->at + sizeof f;
    path->at += whole;
    if (!path->works)
        path_works(path);
    switch (f.type) {
    case TCP_DATA: ok = begin_slice(path, &f); break;
    case TCP_GRANT: ok = grant_arrived(path, &f); break;
    case TCP_ASK: ok = ask_arrived(path, &f); break;
    case TCP_CONTROL:
    case TCP_GOODBYE: ok = control_arrived(path, &f, data); break;
    case TCP_ACK:
        link_control_acked(path->link, f.number);
        break;
    case TCP_CLOSED: link_refused(path->link, data, f.length); break;
    default: ok = bad(path, "a frame of a known type");
    }
    path->bad = f;
    return ok ? PARSE_MORE : PARSE_BAD;
}

/* Bytes of the slice in hand that are already in the small buffer. */
static void feed_slice(struct tcp_path *path)
{
    size_t n = MIN(path->left, path->have - path->at);
    if (path->to && n) {
        memcpy(path->to, path->small_in + path->at, n);
        path->to += n;
    }
    path->at += n;
    path->left -= n;
    if (path->left == 0 && path->end)
        slice_done(path);
}

static bool parse(struct tcp_path *path)
{
    enum parse state;
    while ((state = parse_frame(path)) == PARSE_MORE) {
        if (path->fd < 0)
            return true;
        if (path->left || path->end)
            feed_slice(path);
        if (path->left)
            break; /* the small buffer is empty */
    }
    if (state == PARSE_BAD) {
        const struct tcp_frame *f = &path->bad;
        link_violation(path->link, "sent the process of rank %d a frame that breaks the protocol: type %d, number %u, message of %llu bytes, "
                       "offset %u, length %u; expected was %s", path->link->proc->opt.self, f->type, f->number, (unsigned long long)f->bytes,
                       f->offset, f->length, path->expected);
        return false;
    }
    if (path->at) {
        memmove(path->small_in, path->small_in + path->at, path->have - path->at);
        path->have -= path->at;
        path->at = 0;
    }
    return true;
}

/* What a read may fill: the rest of the slice, then the small buffer. While large slices stream by, only the next header is
 * read into the small buffer, so that the payload behind it can go straight to its slot. */
static int read_targets(struct tcp_path *path, struct iovec v[2], size_t *asked)
{
    int n = 0;
    size_t room = TCP_SMALL_BYTES - path->have;
    if (path->left) {
        v[n++] = (struct iovec){path->to ? path->to : path->link->proc->sink, path->left};
        if (path->left >= TCP_SMALL_BYTES)
            room = MIN(room, sizeof(struct tcp_frame));
    }
    v[n++] = (struct iovec){path->small_in + path->have, room};
    *asked = path->left + room;
    return n;
}

static bool took(struct tcp_path *path, size_t got)
{
    size_t n = MIN(got, path->left);
    if (n) {
        path->left -= n;
        if (path->to)
            path->to += n;
        if (path->left == 0 && path->end)
            slice_done(path);
    }
    path->have += got - n;
    return path->have < sizeof(struct tcp_frame) || parse(path);
}

bool path_read(struct tcp_path *path)
{
    struct net_proc *p = path->link->proc;
    bool moved = false;
    for (int round = 0; round < READ_ROUNDS && path->fd >= 0; round++) {
        struct iovec v[2];
        size_t asked;
        int n = read_targets(path, v, &asked);
        ssize_t got = n == 1 ? recv(path->fd, v[0].iov_base, v[0].iov_len, 0) : readv(path->fd, v, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            break;
        if (got <= 0) {
            path_lost(path, got == 0 || errno == EPIPE, got == 0 ? "the peer closed it" : strerror(errno));
            return true;
        }
        moved = true;
        atomic_fetch_add_explicit(&p->counts.reads, 1, memory_order_relaxed);
        if (!took(path, (size_t)got) || (size_t)got < asked)
            break;
    }
    return moved;
}
