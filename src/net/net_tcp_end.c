/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_end.c - TCP ends: the walker's half (tcp_end_*, called by net_end.c) and what the holder of the sockets' lock does
 * with what walkers asked for (end_*). The two halves share a tcp_end's atomics and nothing else.
 */
#include "net_tcp_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- slots ------------------------------------------------------------------------------------------------- */

struct layout { size_t payload, marks, bits, words, total; };

static bool lay_out(int k, uint32_t stride, bool sending, struct layout *l)
{
    size_t n = (size_t)k, payload, bits;
    l->payload = n * sizeof(struct net_slot);
    l->words = sending ? 0 : ((size_t)stride / TCP_SLICE + 64) / 64;
    if (__builtin_mul_overflow(n, (size_t)stride, &payload) || __builtin_mul_overflow(n, l->words * 8, &bits) ||
        payload > SIZE_MAX / 4 || bits > SIZE_MAX / 4)
        return false;
    l->marks = (l->payload + payload + 63) / 64 * 64;
    l->bits = l->marks + (sending ? 0 : n * sizeof(struct tcp_mark));
    l->total = (l->bits + bits + 63) / 64 * 64;
    return true;
}

static struct tcp_slots *slots_get(struct tcp_end *t, int k, uint32_t stride)
{
    struct layout l;
    size_t head = (sizeof(struct tcp_slots) + 63) / 64 * 64;
    if (k < 1 || k > 1 << 20 || !lay_out(k, stride, t->sending, &l)) {
        err_set(UNO_ERR_INTERNAL, "%d slots of %u bytes are no geometry for a connection", k, stride);
        return NULL;
    }
    /* acquire: pairs with the release in slots_retire */
    struct tcp_slots *s = atomic_exchange_explicit(&t->spare, NULL, memory_order_acquire);
    if (s && (s->room < l.total || s->room / 4 > l.total + 65536)) {
        free(s);
        s = NULL;
    }
    if (!s) {
        s = fault_hit("alloc") ? NULL : aligned_alloc(64, head + l.total);
        if (!s) {
            err_set(UNO_ERR_MEMORY, "no memory for %d slots of %u bytes of a TCP connection", k, stride);
            return NULL;
        }
        s->room = l.total;
    }
    char *base = (char *)s + head;
    memset(base, 0, l.payload);
    memset(base + l.marks, 0, l.total - l.marks);
    *s = (struct tcp_slots){.k = k, .stride = stride, .room = s->room, .heads = (struct net_slot *)base,
                            .payload = base + l.payload, .marks = t->sending ? NULL : (struct tcp_mark *)(base + l.marks)};
    for (int i = 0; s->marks && i < k; i++)
        s->marks[i].begun = (uint64_t *)(base + l.bits) + (size_t)i * l.words;
    return s;
}

/* A frame alone costs as much as one with a message. So there are more slots than the plan needs, which was proved with k, and releases can
 * wait for a message in the other direction. */
static int with_spare_slots(int k)
{
    return k <= NET_FEW_SLOTS ? k * NET_FAR_SLOTS : k;
}

void slots_hold(struct tcp_slots *s)
{
    s->refs++;
}

void slots_drop(struct tcp_slots *s)
{
    if (--s->refs == 0 && s->retired)
        free(s);
}

/* No longer the end's memory: kept for the next shape, or freed when the last path has let go. Strides only grow, so what is
 * smaller than the memory that takes its place will not be asked for. */
static void slots_retire(struct tcp_end *t, struct tcp_slots *s, size_t room_now)
{
    if (!s)
        return;
    s->retired = true;
    if (s->refs == 0 && s->room < room_now)
        free(s);
    else if (s->refs == 0) /* release: our use of it comes before; pairs with the acquire in slots_get */
        free(atomic_exchange_explicit(&t->spare, s, memory_order_acq_rel));
}

/* ---- the walker's half ------------------------------------------------------------------------------------- */

static void push_work(struct tcp_end *t)
{
    /* seq_cst: the counters we stored come before; the holder clears `queued` before it reads them (end_update) */
    if (!atomic_exchange(&t->queued, true))
        proc_push(t->link->proc, &t->work);
}

uno_err tcp_end_new(struct net_end *e, struct net_link *link, uint64_t comm_id, int local_rank, int peer_rank)
{
    /* acquire: pairs with the release in link_down, for down_text */
    if (atomic_load_explicit(&link->state, memory_order_acquire) == TCP_LINK_DOWN)
        return err_set(UNO_ERR_UNREACHABLE, "rank %d: %s", peer_rank, link->down_text);
    struct tcp_end *t = mem_zalloc(sizeof *t);
    if (!t)
        return UNO_ERR_MEMORY;
    t->comm_id = comm_id;
    t->source = e->sending ? local_rank : peer_rank;
    t->destination = e->sending ? peer_rank : local_rank;
    t->channel = (uint16_t)e->channel;
    t->sending = e->sending;
    t->link = link;
    t->work = (struct tcp_note){.end = t};
    t->death = (struct tcp_note){.end = t, .death = true};
    t->released_ref = &t->released;
    e->tcp = t;
    e->released = &t->released_ref;
    e->nreaders = 1;
    e->mapped = false;
    e->clear = SIZE_MAX; /* slots of their own, no common room */
    if (e->next == 0)
        e->next = 1;
    return UNO_OK;
}

/* Hand memory to the holder; what it had not taken yet comes back and goes. */
static void publish(struct tcp_end *t, struct tcp_slots *s)
{
    free(atomic_exchange_explicit(&t->fresh, s, memory_order_acq_rel)); /* pairs with the exchange in end_update */
    push_work(t);
}

uno_err tcp_end_shape(struct net_end *e, int needed, uint32_t stride)
{
    struct tcp_end *t = e->tcp;
    int k = with_spare_slots(needed);
    if (t->mine && e->promised == needed && e->stride == stride)
        return UNO_OK;
    struct tcp_slots *s = slots_get(t, k, stride);
    if (!s)
        return err_wrap(UNO_ERR_MEMORY, "connection from rank %d to rank %d", t->source, t->destination);
    s->hold = (uint32_t)(k - needed) / 2;
    e->promised = needed;
    e->k = k;
    e->stride = stride;
    e->slot = 0;
    e->shape_no++;
    e->heads = s->heads;
    e->payload = s->payload;
    s->shape_no = e->shape_no;
    s->first = e->next;
    t->mine = s;
    free(t->pending);
    t->pending = NULL;
    e->mapped = false;
    if (e->sending) {
        t->pending = s;
        tcp_end_ready(e);
        return UNO_OK;
    }
    e->mapped = true;
    publish(t, s);
    if (atomic_load_explicit(&t->link->proc->callers, memory_order_relaxed) == 0)
        proc_flush_soon(t->link->proc);
    return UNO_OK;
}

bool tcp_end_ready(struct net_end *e)
{
    struct tcp_end *t = e->tcp;
    if (!t || !t->mine || !e->sending)
        return t && t->mine;
    /* acquire: pairs with the release in grant_arrived; also orders credit_k */
    uint64_t credit = atomic_load_explicit(&t->credit, memory_order_acquire);
    e->freed = (uint32_t)credit;
    if (t->pending) {
        if (e->freed != e->next - 1)
            return false;
        publish(t, t->pending);
        t->pending = NULL;
        if (atomic_load_explicit(&t->link->proc->callers, memory_order_relaxed) == 0)
            proc_flush_soon(t->link->proc);
    }
    uint32_t k = atomic_load_explicit(&t->credit_k, memory_order_relaxed);
    bool granted = (uint32_t)(credit >> 32) == e->shape_no;
    e->mapped = granted && k >= (uint32_t)e->k;
    return granted && (uint32_t)(e->next - 1 - e->freed) < MIN(k, (uint32_t)e->k);
}

void tcp_end_post(struct net_end *e)
{
    struct tcp_end *t = e->tcp;
    /* release: head and payload come before; pairs with the acquire in end_update */
    atomic_store_explicit(&t->posted, e->next - 1, memory_order_release);
    push_work(t);
    proc_flush_soon(t->link->proc);
}

void tcp_end_release(struct net_end *e)
{
    struct net_proc *p = e->tcp->link->proc;
    push_work(e->tcp);
    if (atomic_load_explicit(&p->callers, memory_order_relaxed) == 0)
        proc_flush_soon(p);
}

void tcp_end_free(struct net_end *e)
{
    struct tcp_end *t = e->tcp;
    if (!t)
        return;
    free(t->pending);
    t->pending = NULL;
    e->tcp = NULL;
    e->heads = NULL;
    e->payload = NULL;
    e->released = NULL;
    e->mapped = false;
    struct net_proc *p = t->link->proc;
    proc_push(p, &t->death); /* t belongs to the holder from here on */
    proc_flush_soon(p);
}

/* ---- the holder's half --------------------------------------------------------------------------------------- */

static size_t bucket(uint64_t comm_id, int32_t source, int32_t destination, uint16_t channel)
{
    uint64_t h = hash_mix(comm_id, (uint32_t)source | (uint64_t)(uint32_t)destination << 32);
    return hash_mix(h, channel) % TCP_TABLE;
}

struct tcp_end *end_find(struct net_proc *p, const struct tcp_frame *f, bool sending)
{
    struct tcp_end *t = p->table[bucket(f->comm_id, f->source, f->destination, f->channel)];
    while (t && !(t->comm_id == f->comm_id && t->source == f->source && t->destination == f->destination &&
                  t->channel == f->channel && t->sending == sending))
        t = t->chain;
    return t;
}

static void enter_table(struct tcp_end *t)
{
    struct tcp_end **b = &t->link->proc->table[bucket(t->comm_id, t->source, t->destination, t->channel)];
    t->chain = *b;
    *b = t;
    t->link_next = t->link->ends;
    if (t->link_next)
        t->link_next->link_prev = t;
    t->link->ends = t;
    t->known = true;
    if (t->sending)
        end_grant_due(t); /* asks: the receiver may have granted before we were here to hear it */
}

static void note(struct tcp_end *t, bool in_no_hurry)
{
    struct net_link *l = t->link;
    t->in_notes = true;
    t->in_no_hurry = in_no_hurry;
    t->note_next = NULL;
    if (l->notes_head)
        l->notes_tail->note_next = t;
    else
        l->notes_head = t;
    l->notes_tail = t;
    l->hurries += !in_no_hurry;
}

void end_grant_due(struct tcp_end *t)
{
    if (!t->in_notes) {
        note(t, false);
    } else if (t->in_no_hurry) {
        t->in_no_hurry = false;
        t->link->hurries++;
    }
    link_dirty(t->link);
}

#define MOST_NOTES 1024 /* a peer that asks and does not read */

void end_was_gone(struct net_link *l, const struct tcp_frame *f)
{
    struct tcp_end *t = l->hurries < MOST_NOTES ? mem_zalloc(sizeof *t) : NULL;
    if (!t)
        return;
    t->comm_id = f->comm_id;
    t->source = f->source;
    t->destination = f->destination;
    t->channel = f->channel;
    t->link = l;
    t->dying = true;
    end_grant_due(t);
}

void end_unnote_first(struct net_link *l)
{
    struct tcp_end *t = l->notes_head;
    l->notes_head = t->note_next;
    if (!l->notes_head)
        l->notes_tail = NULL;
    l->hurries -= !t->in_no_hurry;
    t->in_notes = false;
}

static void released_more(struct tcp_end *t)
{
    uint32_t unsaid = atomic_load_explicit(&t->released, memory_order_relaxed) - t->granted;
    if (unsaid > (t->hasty ? 0 : t->now->hold))
        end_grant_due(t);
    else if (unsaid && !t->in_notes)
        note(t, true);
}

static void work_due(struct tcp_end *t)
{
    struct net_link *l = t->link;
    if (!t->in_work) {
        t->in_work = true;
        t->work_next = NULL;
        if (l->work_head)
            l->work_tail->work_next = t;
        else
            l->work_head = t;
        l->work_tail = t;
    }
    link_dirty(l);
}

static void take_fresh(struct tcp_end *t)
{
    /* acquire: pairs with the exchange in publish */
    struct tcp_slots *s = atomic_exchange_explicit(&t->fresh, NULL, memory_order_acq_rel);
    if (!s)
        return;
    slots_retire(t, t->now, s->room);
    t->now = s;
    if (t->sending) {
        t->sent = s->first;
        t->sent_offset = 0;
    } else {
        t->has_shape = true;
        end_grant_due(t);
    }
}

void end_update(struct tcp_end *t)
{
    atomic_store(&t->queued, false); /* before we look: what comes later is pushed again (push_work) */
    /* acquire: pairs with tcp_end_post. Before take_fresh: messages that we see here have their memory published. */
    uint32_t posted = atomic_load_explicit(&t->posted, memory_order_acquire);
    if (!t->known)
        enter_table(t);
    take_fresh(t);
    if (!t->now)
        return;
    if (t->sending && (int32_t)(posted - t->sent) >= 0)
        work_due(t);
    if (!t->sending)
        released_more(t);
}

void end_replay(struct tcp_end *t)
{
    if (!t->sending) {
        if (t->has_shape)
            end_grant_due(t);
        return;
    }
    if (t->gone)
        return;
    if (t->credit_shape == 0 || t->dying)
        end_grant_due(t);
    if (!t->now)
        return;
    uint32_t first = (int32_t)(t->freed + 1 - t->now->first) < 0 ? t->now->first : t->freed + 1;
    uint32_t reached = t->sent + (t->sent_offset ? 1 : 0);
    if ((int32_t)(reached - first) <= 0)
        return;
    if ((int32_t)(reached - t->resent_below) > 0)
        t->resent_below = reached;
    t->sent = first;
    t->sent_offset = 0;
    work_due(t);
}

static void unqueue(struct tcp_end *t)
{
    struct net_link *l = t->link;
    struct tcp_end *prev = NULL;
    for (struct tcp_end *i = t->in_work ? l->work_head : NULL; i; prev = i, i = i->work_next)
        if (i == t) {
            *(prev ? &prev->work_next : &l->work_head) = t->work_next;
            if (l->work_tail == t)
                l->work_tail = prev;
            break;
        }
    prev = NULL;
    for (struct tcp_end *i = t->in_notes ? l->notes_head : NULL; i; prev = i, i = i->note_next)
        if (i == t) {
            *(prev ? &prev->note_next : &l->notes_head) = t->note_next;
            l->hurries -= !t->in_no_hurry;
            if (l->notes_tail == t)
                l->notes_tail = prev;
            break;
        }
}

static void leave_table(struct tcp_end *t)
{
    struct tcp_end **at = &t->link->proc->table[bucket(t->comm_id, t->source, t->destination, t->channel)];
    while (*at != t)
        at = &(*at)->chain;
    *at = t->chain;
    if (t->link_next)
        t->link_next->link_prev = t->link_prev;
    *(t->link_prev ? &t->link_prev->link_next : &t->link->ends) = t->link_next;
}

static void let_go_of_slices(struct tcp_end *t)
{
    for (int i = 0; i < t->link->npaths; i++)
        if (t->link->paths[i]->end == t)
            path_slice_drop(t->link->paths[i]);
}

static void free_memory(struct tcp_end *t)
{
    free(atomic_exchange(&t->fresh, NULL));
    slots_retire(t, t->now, SIZE_MAX);
    t->now = NULL;
    free(atomic_exchange(&t->spare, NULL));
}

void end_destroy(struct tcp_end *t)
{
    unqueue(t);
    if (t->known)
        leave_table(t);
    free_memory(t);
    free(t);
}

bool end_settled(const struct tcp_end *t)
{
    return t->freed == atomic_load_explicit(&t->posted, memory_order_relaxed);
}

/* A sender whose messages are still on their way stays until they are released or its receiver is gone; a receiver says that it is
 * gone. A link without a path comes back, or goes down and takes them along (drop_queues). */
void end_drop(struct tcp_end *t)
{
    bool open = atomic_load_explicit(&t->link->state, memory_order_relaxed) == TCP_LINK_OPEN && t->link->was_up;
    t->dying = true;
    if (!t->known || !open || (t->sending ? t->gone || end_settled(t) : !t->has_shape)) {
        let_go_of_slices(t);
        end_destroy(t);
    } else if (!t->sending) {
        let_go_of_slices(t);
        leave_table(t);
        t->known = false;
        free_memory(t);
        end_grant_due(t); /* with TCP_FLAG_GONE; destroyed when it is written */
    } else {
        end_grant_due(t); /* asks for the releases that the receiver holds back */
    }
}
