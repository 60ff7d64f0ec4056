/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_message.c - messages between stewards that are longer than a control frame: sent as parts in order, put together again.
 * The control frames of a link keep their order, so one message a sender is on its way at a time. Runs on the steward's thread.
 */
#include "watch/watch_inner.h"

#include <stdlib.h>
#include <string.h>

void message_send(struct watch *w, struct peer *to, uint8_t kind, const void *data, size_t bytes)
{
    unsigned char buf[PART_HEADER_BYTES + PART_BYTES];
    struct part p = {.message = kind, .id = ++w->message_id, .total = (uint32_t)bytes};
    do {
        p.bytes = (uint32_t)MIN(bytes - p.offset, (size_t)PART_BYTES);
        p.data = (const unsigned char *)data + p.offset;
        if (!peer_send(w, to, buf, part_write(&p, buf)))
            return;
        p.offset += p.bytes;
    } while (p.offset < bytes);
}

void message_forget(struct peer *p)
{
    free(p->inbox.data);
    p->inbox = (struct inbox){0};
}

static void deliver(struct watch *w, struct peer *from, uint8_t kind, const void *data, size_t bytes)
{
    if (kind >= WATCH_MESSAGE_FIRST) {
        if (w->opt.on_message && !atomic_load_explicit(&w->leaving, memory_order_relaxed))
            w->opt.on_message(w->opt.arg, from->process, (enum watch_message)kind, data, bytes);
    } else if (kind == MESSAGE_PAIR) {
        hosts_pair_said(w, from, data, bytes);
    } else {
        inquiry_message(w, from, kind, data, bytes);
    }
}

/* The memory grows with what has come, never with what was announced. */
uno_err message_part(struct watch *w, struct peer *from, const void *data, size_t bytes)
{
    struct inbox *in = &from->inbox;
    struct part p;
    TRY(part_read(data, bytes, &p));
    bool follows = p.offset == 0 ? in->have == 0 : in->have == p.offset && in->id == p.id && in->kind == p.message && in->total == p.total;
    if (!follows)
        in->have = 0; /* its end will not come any more */
    if (p.total > WATCH_MESSAGE_BYTES || (p.bytes == 0 && p.total != 0) || (!follows && p.offset != 0))
        return err_set(UNO_ERR_PARSE, "part %u of a message of %u bytes does not follow what came before", p.offset, p.total);
    if (p.bytes == p.total) {
        deliver(w, from, p.message, p.data, p.total);
        return UNO_OK;
    }
    TRY(mem_grow(&in->data, &in->cap, p.offset + p.bytes, 1));
    memcpy(in->data + p.offset, p.data, p.bytes);
    in->id = p.id;
    in->kind = p.message;
    in->total = p.total;
    in->have = p.offset + p.bytes;
    if (in->have < in->total)
        return UNO_OK;
    in->have = 0;
    deliver(w, from, in->kind, in->data, in->total);
    return UNO_OK;
}
