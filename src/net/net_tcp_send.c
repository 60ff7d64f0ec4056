/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_send.c - what goes to which socket. A path is given a batch (small frames, then slices) when it has finished its last
 * one; so whichever path takes bytes gets bytes, and a slow one gets few. All for the holder of the sockets' lock.
 */
#include "net_tcp_inner.h"

#include <errno.h>
#include <string.h>

bool path_pending(const struct tcp_path *path)
{
    return path->iov_at < path->niov;
}

void path_batch_drop(struct tcp_path *path)
{
    for (int i = 0; i < path->nheld; i++)
        slots_drop(path->held[i]);
    path->nheld = 0;
    path->niov = path->iov_at = 0;
    path->small_bytes = 0;
}

bool link_has_unsent(const struct net_link *l)
{
    return l->work_head || l->hurries || l->ack_due || atomic_load_explicit(&l->control_due, memory_order_relaxed);
}

/* ---- filling a batch ------------------------------------------------------------------------------------------ */

static struct tcp_frame *small_frame(struct tcp_path *path, uint8_t type, size_t payload)
{
    if (path->small_bytes + sizeof(struct tcp_frame) + payload > TCP_SMALL_BYTES)
        return NULL;
    struct tcp_frame *f = (struct tcp_frame *)(path->small_out + path->small_bytes);
    path->small_bytes += sizeof *f + payload;
    *f = (struct tcp_frame){.magic = TCP_MAGIC, .type = type};
    return f;
}

static void fill_control(struct tcp_path *path)
{
    struct net_link *l = path->link;
    struct tcp_frame *f;
    if (l->ack_due && (f = small_frame(path, TCP_ACK, 0))) {
        f->number = l->control_in;
        l->ack_due = false;
    }
    if (path != l->control_path || !atomic_load_explicit(&l->control_due, memory_order_acquire))
        return;
    pthread_mutex_lock(&l->control_mutex);
    while (l->control_unsent) {
        struct tcp_control *c = l->control_unsent;
        size_t padded = (c->bytes + 7) / 8 * 8; /* frames stay aligned in small_out; the padding is not sent */
        if (!(f = small_frame(path, c->type, padded)))
            break;
        f->number = c->seq;
        f->length = c->bytes;
        memcpy(f + 1, c->data, c->bytes);
        path->small_bytes -= padded - c->bytes;
        l->control_unsent = c->next;
        if (c->bytes % 8)
            break; /* the next one begins a batch of its own */
    }
    atomic_store_explicit(&l->control_due, l->control_unsent != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&l->control_mutex);
}

static void fill_notes(struct tcp_path *path)
{
    struct net_link *l = path->link;
    struct tcp_end *t;
    while ((t = l->notes_head) && path->small_bytes % 8 == 0) {
        struct tcp_frame *f = small_frame(path, t->sending ? TCP_ASK : TCP_GRANT, 0);
        if (!f)
            break;
        f->comm_id = t->comm_id;
        f->source = t->source;
        f->destination = t->destination;
        f->channel = t->channel;
        end_unnote_first(l);
        if (t->sending) {
            f->flags = t->dying ? TCP_FLAG_LEAVES : 0;
        } else if (t->dying) {
            f->flags = TCP_FLAG_GONE;
            end_destroy(t);
        } else {
            /* acquire: pairs with the release in net_release; the slots that we grant were read before */
            t->granted = atomic_load_explicit(&t->released, memory_order_acquire);
            f->number = t->granted;
            f->shape_no = t->now->shape_no;
            f->bytes = (uint64_t)t->now->stride << 32 | (uint32_t)t->now->k;
        }
    }
}

static void fill_slice(struct tcp_path *path, struct tcp_end *t, uint64_t bytes, const struct net_slot *h)
{
    struct tcp_frame *f = &path->heads[path->nheld];
    uint32_t length = (uint32_t)MIN(bytes - t->sent_offset, (uint64_t)TCP_SLICE);
    *f = (struct tcp_frame){.magic = TCP_MAGIC, .type = TCP_DATA, .channel = t->channel, .comm_id = t->comm_id,
                            .source = t->source, .destination = t->destination, .number = t->sent,
                            .signature = (uint32_t)(atomic_load_explicit(&h->flag, memory_order_relaxed) >> 32),
                            .bytes = bytes, .aux = h->aux, .offset = t->sent_offset, .length = length,
                            .shape_no = t->now->shape_no};
    if ((int32_t)(t->sent - t->resent_below) < 0) {
        f->flags = TCP_FLAG_RESENT;
        atomic_fetch_add_explicit(&path->link->proc->counts.resent, 1, memory_order_relaxed);
    }
    path->iov[path->niov++] = (struct iovec){f, sizeof *f};
    if (length)
        path->iov[path->niov++] = (struct iovec){
            t->now->payload + (size_t)slots_index(t->now, t->sent) * t->now->stride + t->sent_offset, length};
    path->held[path->nheld++] = t->now;
    slots_hold(t->now);
    t->sent_offset += length;
    if (t->sent_offset >= bytes) {
        t->sent++;
        t->sent_offset = 0;
    }
}

/* The next slices of the ends that have some, a batch of one end after another's so that none starves. */
static void fill_work(struct tcp_path *path, int slices)
{
    struct net_link *l = path->link;
    size_t total = 0;
    struct tcp_end *t;
    while ((t = l->work_head) && path->nheld < slices && total < TCP_BATCH_BYTES) {
        uint32_t posted = atomic_load_explicit(&t->posted, memory_order_acquire); /* pairs with tcp_end_post */
        if ((int32_t)(t->freed - t->sent) >= 0) { /* a replay was overtaken by a grant */
            t->sent = t->freed + 1;
            t->sent_offset = 0;
        }
        if ((int32_t)(posted - t->sent) < 0) {
            l->work_head = t->work_next;
            if (!l->work_head)
                l->work_tail = NULL;
            t->in_work = false;
            continue;
        }
        const struct net_slot *h = &t->now->heads[slots_index(t->now, t->sent)];
        uint64_t bytes = MIN(h->bytes, (uint64_t)t->now->stride);
        fill_slice(path, t, bytes, h);
        total += path->heads[path->nheld - 1].length;
    }
    if (l->work_head && l->work_head != l->work_tail && total >= TCP_BATCH_BYTES) {
        t = l->work_head;
        l->work_head = t->work_next;
        t->work_next = NULL;
        l->work_tail->work_next = t;
        l->work_tail = t;
    }
}

#define ONLY_CONTROL (-1) /* neither slices nor GRANT and ASK */

static bool fill(struct tcp_path *path, int slices)
{
    path_batch_drop(path);
    path->niov = 1;
    fill_control(path);
    if (slices != ONLY_CONTROL)
        fill_notes(path);
    if (slices > 0)
        fill_work(path, slices);
    path->iov[0] = (struct iovec){path->small_out, path->small_bytes};
    path->iov_at = path->small_bytes ? 0 : 1;
    return path_pending(path);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void advance(struct tcp_path *path, size_t n)
{
    path->written += n;
    while (n) {
        struct iovec *v = &path->iov[path->iov_at];
        size_t part = MIN(n, v->iov_len);
        v->iov_base = (char *)v->iov_base + part;
        v->iov_len -= part;
        n -= part;
        if (v->iov_len == 0)
            path->iov_at++;
    }
    if (!path_pending(path))
        path_batch_drop(path);
}

/* What the peer sent before it closed is still there to read, a goodbye perhaps. EPIPE: it had ended with FIN. */
static void lost_in_writing(struct tcp_path *path, int why)
{
    while (path->fd >= 0 && path_read(path))
        ;
    if (path->fd >= 0)
        path_lost(path, why == EPIPE, strerror(why));
}

/* Write the batch; true when all of it is gone. */
static bool path_write(struct tcp_path *path, bool *moved)
{
    struct net_proc *p = path->link->proc;
    while (path_pending(path)) {
        struct msghdr m = {.msg_iov = path->iov + path->iov_at, .msg_iovlen = (size_t)(path->niov - path->iov_at)};
        ssize_t n = sendmsg(path->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
            return false;
        if (n < 0) {
            lost_in_writing(path, errno);
            return false;
        }
        *moved = true;
        atomic_fetch_add_explicit(&p->counts.writes, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&p->counts.path_bytes_out, (uint64_t)n, memory_order_relaxed);
        advance(path, (size_t)n);
    }
    return true;
}

bool path_takes_slices(const struct tcp_path *path)
{
    return path->link->npaths == 1 || path != path->link->control_path;
}

/* One lane: each path takes what it can, the first one first. */
static bool flush_in_turn(struct net_link *l)
{
    bool moved = false;
    for (int i = 0; i < l->npaths; i++) {
        struct tcp_path *path = l->paths[i];
        bool free_now = path_write(path, &moved);
        while (free_now && link_has_unsent(l) && fill(path, path_takes_slices(path) ? TCP_BATCH_SLICES : ONLY_CONTROL))
            free_now = path_write(path, &moved);
        if (path->fd < 0)
            i--; /* it was lost, and the next one has its place */
    }
    return moved;
}

/* Is the next slice of a message that is worth a choice? */
static bool bulk_next(const struct net_link *l)
{
    const struct tcp_end *t = l->work_head;
    if (!t || !t->now)
        return false;
    const struct net_slot *h = &t->now->heads[slots_index(t->now, t->sent)];
    return t->sent_offset || h->bytes >= TCP_SLICE / 2;
}

static struct tcp_path *first_free(struct net_link *l)
{
    for (int i = 0; i < l->npaths; i++)
        if (!path_pending(l->paths[i]) && path_takes_slices(l->paths[i]))
            return l->paths[i];
    return NULL;
}

/* Several lanes: small things on the first path that is free, slices one by one where they are done first. */
static bool flush_balanced(struct net_link *l)
{
    bool moved = false, looked = balance_due(l);
    if (looked)
        balance_look(l);
    for (int i = 0; i < l->npaths; i++) {
        struct tcp_path *path = l->paths[i];
        (void)path_write(path, &moved);
        if (path->fd < 0)
            i--;
    }
    struct tcp_path *path = l->control_path;
    if (path && !path_takes_slices(path) && atomic_load_explicit(&l->control_due, memory_order_relaxed) && !path_pending(path) && fill(path, ONLY_CONTROL))
        (void)path_write(path, &moved);
    while (link_has_unsent(l) && l->npaths) {
        bool bulk = bulk_next(l);
        if (bulk && !looked) {
            balance_look(l);
            looked = true;
        }
        int slices = bulk ? 1 : TCP_BATCH_SLICES;
        path = bulk ? balance_pick(l) : first_free(l);
        if (!path && (l->hurries || l->ack_due)) { /* grants do not wait for the better lane */
            path = first_free(l);
            slices = 0;
        }
        if (!path || !fill(path, slices))
            break;
        if (bulk && path->nheld)
            balance_gave(path, path->heads[0].length);
        (void)path_write(path, &moved);
    }
    return moved;
}

bool link_flush(struct net_link *l)
{
    bool moved = l->balanced ? flush_balanced(l) : flush_in_turn(l);
    for (int i = 0; i < l->npaths; i++)
        if (path_pending(l->paths[i]) && !l->paths[i]->out_armed)
            atomic_store_explicit(&l->proc->unarmed, true, memory_order_relaxed);
    return moved;
}
