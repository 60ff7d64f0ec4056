/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_frame.c - control frames to bytes and back. Pure.
 *
 * Bytes 0-1 magic, 2 version, 3 kind; then 4-7 process, 8-15 communicator, 16-19 code, 20-23 rank, and the text.
 * Heartbeat: 4-7 hub, 8-11 generation, 12-19 sent, 20-27 heard sent, 28-35 heard at.
 * Part: 4 message kind, 5-7 zero, 8-11 id, 12-15 total, 16-19 offset, then its bytes.
 */
#include "watch/watch_frame.h"

#include <string.h>

#define FRAME_MAGIC 0x5755u
#define FRAME_VERSION 1

static void put_head(unsigned char *b, enum frame_kind kind)
{
    put_le(b, FRAME_MAGIC, 2);
    put_le(b + 2, FRAME_VERSION, 1);
    put_le(b + 3, kind, 1);
}

int frame_kind_of(const void *data, size_t bytes)
{
    const unsigned char *b = data;
    if (bytes < 4 || get_le(b, 2) != FRAME_MAGIC) {
        err_set(UNO_ERR_PARSE, "a control message of %zu bytes is not a steward's", bytes);
        return 0;
    }
    if (b[2] != FRAME_VERSION || b[3] < FRAME_HELLO || b[3] > FRAME_PART) {
        err_set(UNO_ERR_PARSE, "a control message of version %d, kind %d is not known here; all ranks need one version of the library",
                b[2], b[3]);
        return 0;
    }
    return b[3];
}

size_t frame_write(const struct frame *f, void *buf)
{
    unsigned char *b = buf;
    put_head(b, f->kind);
    put_le(b + 4, (uint32_t)f->process, 4);
    put_le(b + 8, f->comm_id, 8);
    put_le(b + 16, (uint32_t)f->code, 4);
    put_le(b + 20, (uint32_t)f->rank, 4);
    size_t len = strnlen(f->text, FRAME_TEXT_BYTES - 1);
    memcpy(b + FRAME_HEADER_BYTES, f->text, len);
    return FRAME_HEADER_BYTES + len;
}

uno_err frame_read(const void *data, size_t bytes, struct frame *f)
{
    const unsigned char *b = data;
    int kind = frame_kind_of(data, bytes);
    if (!kind)
        return UNO_ERR_PARSE;
    if (kind > FRAME_ABORT || bytes < FRAME_HEADER_BYTES)
        return err_set(UNO_ERR_PARSE, "a control message of %zu bytes and kind %d is cut", bytes, kind);
    if (bytes >= FRAME_HEADER_BYTES + FRAME_TEXT_BYTES)
        return err_set(UNO_ERR_PARSE, "a control message of %zu bytes is longer than any steward writes", bytes);
    *f = (struct frame){.kind = (enum frame_kind)b[3], .process = (int32_t)get_le(b + 4, 4), .comm_id = get_le(b + 8, 8),
                        .code = (int32_t)get_le(b + 16, 4), .rank = (int32_t)get_le(b + 20, 4)};
    for (size_t i = 0; i < bytes - FRAME_HEADER_BYTES; i++) {
        unsigned char c = b[FRAME_HEADER_BYTES + i];
        f->text[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    return UNO_OK;
}

size_t beat_write(const struct beat *beat, void *buf)
{
    unsigned char *b = buf;
    put_head(b, FRAME_BEAT);
    put_le(b + 4, (uint32_t)beat->hub, 4);
    put_le(b + 8, beat->generation, 4);
    put_le(b + 12, beat->sent_ns, 8);
    put_le(b + 20, beat->heard_sent_ns, 8);
    put_le(b + 28, beat->heard_at_ns, 8);
    return BEAT_BYTES;
}

uno_err beat_read(const void *data, size_t bytes, struct beat *beat)
{
    const unsigned char *b = data;
    if (frame_kind_of(data, bytes) != FRAME_BEAT || bytes != BEAT_BYTES)
        return err_set(UNO_ERR_PARSE, "a heartbeat of %zu bytes; it has %d", bytes, BEAT_BYTES);
    *beat = (struct beat){.hub = (int32_t)get_le(b + 4, 4), .generation = (uint32_t)get_le(b + 8, 4), .sent_ns = get_le(b + 12, 8),
                          .heard_sent_ns = get_le(b + 20, 8), .heard_at_ns = get_le(b + 28, 8)};
    return UNO_OK;
}

size_t part_write(const struct part *p, void *buf)
{
    unsigned char *b = buf;
    put_head(b, FRAME_PART);
    put_le(b + 4, p->message, 4);
    put_le(b + 8, p->id, 4);
    put_le(b + 12, p->total, 4);
    put_le(b + 16, p->offset, 4);
    if (p->bytes)
        memcpy(b + PART_HEADER_BYTES, p->data, p->bytes);
    return PART_HEADER_BYTES + p->bytes;
}

uno_err part_read(const void *data, size_t bytes, struct part *p)
{
    const unsigned char *b = data;
    if (frame_kind_of(data, bytes) != FRAME_PART || bytes < PART_HEADER_BYTES || bytes > PART_HEADER_BYTES + PART_BYTES)
        return err_set(UNO_ERR_PARSE, "a part of a message in a frame of %zu bytes", bytes);
    *p = (struct part){.message = b[4], .id = (uint32_t)get_le(b + 8, 4), .total = (uint32_t)get_le(b + 12, 4),
                       .offset = (uint32_t)get_le(b + 16, 4), .bytes = (uint32_t)(bytes - PART_HEADER_BYTES),
                       .data = b + PART_HEADER_BYTES};
    if (get_le(b + 5, 3) != 0 || p->offset > p->total || p->bytes > p->total - p->offset)
        return err_set(UNO_ERR_PARSE, "a part of a message says bytes %u to %llu of %u", p->offset,
                       (unsigned long long)p->offset + p->bytes, p->total);
    return UNO_OK;
}
