/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_frame.c - control frames to bytes and back. Pure.
 *
 * Bytes 0-1 magic, 2 version, 3 kind, 4-7 process, 8-15 communicator, 16-19 code, 20-23 rank, then the text.
 */
#include "watch/watch_frame.h"

#include <string.h>

#define FRAME_MAGIC 0x5755u
#define FRAME_VERSION 1

static void put(unsigned char *at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

size_t frame_write(const struct frame *f, void *buf)
{
    unsigned char *b = buf;
    put(b, FRAME_MAGIC, 2);
    put(b + 2, FRAME_VERSION, 1);
    put(b + 3, f->kind, 1);
    put(b + 4, (uint32_t)f->process, 4);
    put(b + 8, f->comm_id, 8);
    put(b + 16, (uint32_t)f->code, 4);
    put(b + 20, (uint32_t)f->rank, 4);
    size_t len = strnlen(f->text, FRAME_TEXT_BYTES - 1);
    memcpy(b + FRAME_HEADER_BYTES, f->text, len);
    return FRAME_HEADER_BYTES + len;
}

uno_err frame_read(const void *data, size_t bytes, struct frame *f)
{
    const unsigned char *b = data;
    if (bytes < FRAME_HEADER_BYTES || get(b, 2) != FRAME_MAGIC)
        return err_set(UNO_ERR_PARSE, "a control message of %zu bytes is not a steward's", bytes);
    if (b[2] != FRAME_VERSION || b[3] < FRAME_HELLO || b[3] > FRAME_ABORT)
        return err_set(UNO_ERR_PARSE, "a control message of version %d, kind %d is not known here; all ranks need one version of "
                       "the library", b[2], b[3]);
    if (bytes >= FRAME_HEADER_BYTES + FRAME_TEXT_BYTES)
        return err_set(UNO_ERR_PARSE, "a control message of %zu bytes is longer than any steward writes", bytes);
    *f = (struct frame){.kind = (enum frame_kind)b[3], .process = (int32_t)get(b + 4, 4), .comm_id = get(b + 8, 8),
                        .code = (int32_t)get(b + 16, 4), .rank = (int32_t)get(b + 20, 4)};
    for (size_t i = 0; i < bytes - FRAME_HEADER_BYTES; i++) {
        unsigned char c = b[FRAME_HEADER_BYTES + i];
        f->text[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    return UNO_OK;
}
