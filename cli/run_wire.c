/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_wire.c - frames between launcher and agent over a pair of pipes. Never blocks: reads what is there, keeps what cannot be
 * written. Knows nothing of what the frames mean.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES 5
#define FRAME_LIMIT (16u << 20)

static bool reserve(char **buf, size_t *cap, size_t need)
{
    if (need <= *cap)
        return true;
    size_t fresh = *cap ? *cap : 4096;
    while (fresh < need)
        fresh *= 2;
    char *p = realloc(*buf, fresh);
    if (!p)
        return false;
    *buf = p;
    *cap = fresh;
    return true;
}

void wire_init(struct run_wire *w, int in, int out)
{
    *w = (struct run_wire){.in = in, .out = out};
    fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
    fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
    fcntl(in, F_SETFD, FD_CLOEXEC);
    fcntl(out, F_SETFD, FD_CLOEXEC);
}

void wire_close(struct run_wire *w)
{
    if (w->in >= 0)
        close(w->in);
    if (w->out >= 0 && w->out != w->in)
        close(w->out);
    free(w->have);
    free(w->queue);
    *w = (struct run_wire){.in = -1, .out = -1};
}

void wire_send(struct run_wire *w, enum run_frame type, const void *a, size_t na, const void *b, size_t nb)
{
    if (w->broken || w->out < 0)
        return;
    uint32_t body = (uint32_t)(na + nb);
    if (!reserve(&w->queue, &w->cap_queue, w->nqueue + HEAD_BYTES + body)) {
        w->broken = true;
        return;
    }
    char *p = w->queue + w->nqueue;
    for (int i = 0; i < 4; i++)
        *p++ = (char)(body >> (8 * i));
    *p++ = (char)type;
    if (na)
        memcpy(p, a, na);
    if (nb)
        memcpy(p + na, b, nb);
    w->nqueue += HEAD_BYTES + body;
    wire_flush(w);
}

void wire_flush(struct run_wire *w)
{
    while (!w->broken && w->out >= 0 && w->sent < w->nqueue) {
        ssize_t n = write(w->out, w->queue + w->sent, w->nqueue - w->sent);
        if (n > 0)
            w->sent += (size_t)n;
        else if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        else
            w->broken = true;
    }
    if (w->sent == w->nqueue)
        w->sent = w->nqueue = 0;
    else if (w->sent > 65536) {
        memmove(w->queue, w->queue + w->sent, w->nqueue - w->sent);
        w->nqueue -= w->sent;
        w->sent = 0;
    }
}

bool wire_fill(struct run_wire *w)
{
    if (w->at) {
        memmove(w->have, w->have + w->at, w->nhave - w->at);
        w->nhave -= w->at;
        w->at = 0;
    }
    if (!reserve(&w->have, &w->cap_have, w->nhave + 65536))
        return false;
    ssize_t n = read(w->in, w->have + w->nhave, 65536);
    if (n > 0)
        w->nhave += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

bool wire_next(struct run_wire *w, enum run_frame *type, const char **body, size_t *bytes)
{
    if (w->nhave - w->at < HEAD_BYTES) /* broken or not: a side that has left may have said its last words before */
        return false;
    const unsigned char *p = (const unsigned char *)w->have + w->at;
    uint32_t n = p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
    if (n > FRAME_LIMIT) {
        w->broken = true;
        return false;
    }
    if (w->nhave - w->at < HEAD_BYTES + (size_t)n)
        return false;
    *type = p[4];
    *body = (const char *)p + HEAD_BYTES;
    *bytes = n;
    w->at += HEAD_BYTES + (size_t)n;
    return true;
}

bool wire_sync(struct run_wire *w, void (*noise)(void *arg, const char *data, size_t bytes), void *arg)
{
    static const char magic[] = RUN_MAGIC;
    const size_t len = sizeof magic - 1;
    char *start = w->have + w->at;
    size_t n = w->nhave - w->at;
    char *found = n >= len ? memmem(start, n, magic, len) : NULL;
    size_t drop = found ? (size_t)(found - start) : n >= len ? n - (len - 1) : 0;
    if (drop && noise)
        noise(arg, start, drop);
    w->at += drop + (found ? len : 0);
    return found != NULL;
}
