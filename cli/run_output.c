/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_output.c - what ranks print: cut into lines, so that those of different ranks never mix, queued so that a slow terminal
 * does not stop the launcher, and the end of each rank's stderr kept for the sentence about its end.
 */
#include "run.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_LIMIT 65536 /* a longer line is passed on in pieces */

static bool append(char **buf, size_t *n, size_t *cap, const char *data, size_t bytes)
{
    if (*n + bytes > *cap) {
        size_t fresh = (*n + bytes) * 2;
        char *p = realloc(*buf, fresh);
        if (!p)
            return false;
        *buf = p;
        *cap = fresh;
    }
    if (bytes)
        memcpy(*buf + *n, data, bytes);
    *n += bytes;
    return true;
}

void sink_add(struct run_sink *s, const char *data, size_t bytes)
{
    if (!s->broken)
        append(&s->queue, &s->nqueue, &s->cap, data, bytes);
}

void sink_printf(struct run_sink *s, const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n > 0)
        sink_add(s, text, (size_t)n);
    if (n >= 0)
        free(text);
}

void sink_flush(struct run_sink *s)
{
    while (!s->broken && s->sent < s->nqueue) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) <= 0)
            break;
        /* The descriptor is shared with others and may not be made non-blocking; a ready pipe takes PIPE_BUF at once. */
        size_t n = s->nqueue - s->sent;
        ssize_t done = write(s->fd, s->queue + s->sent, n < PIPE_BUF ? n : PIPE_BUF);
        if (done >= 0)
            s->sent += (size_t)done;
        else if (errno == EINTR || errno == EAGAIN)
            break;
        else
            s->broken = errno;
    }
    if (s->broken || s->sent == s->nqueue)
        s->sent = s->nqueue = 0;
}

void sink_drain(struct run_sink *s)
{
    while (sink_pending(s) && !s->broken) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        poll(&p, 1, 1000);
        sink_flush(s);
    }
}

static void emit(struct run_sink *sink, const char *prefix, const char *part, size_t npart, const char *data, size_t bytes)
{
    bool tagged = *prefix != 0;
    if (tagged)
        sink_add(sink, prefix, strlen(prefix));
    sink_add(sink, part, npart);
    if (!tagged) {
        sink_add(sink, data, bytes);
        return;
    }
    while (bytes && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r'))
        bytes--;
    sink_add(sink, data, bytes);
    sink_add(sink, "\n", 1);
}

void lines_feed(struct run_lines *l, struct run_sink *sink, const char *prefix, const char *data, size_t bytes)
{
    while (bytes) {
        size_t n = 0;
        while (n < bytes && data[n] != '\n' && data[n] != '\r')
            n++;
        bool ends = n < bytes;
        if (ends && data[n] == '\r' && n + 1 < bytes && data[n + 1] == '\n')
            n++;
        n += ends;
        if (ends || l->npart + n > LINE_LIMIT) {
            emit(sink, prefix, l->part, l->npart, data, n);
            l->npart = 0;
        } else {
            append(&l->part, &l->npart, &l->cap, data, n);
        }
        data += n;
        bytes -= n;
    }
}

void lines_end(struct run_lines *l, struct run_sink *sink, const char *prefix)
{
    if (l->npart)
        emit(sink, prefix, l->part, l->npart, "", 0);
    free(l->part);
    *l = (struct run_lines){0};
}

void tail_add(struct run_tail *t, const char *data, size_t bytes)
{
    for (size_t i = bytes > TAIL_BYTES ? bytes - TAIL_BYTES : 0; i < bytes; i++)
        t->bytes[(t->total + i) % TAIL_BYTES] = data[i];
    t->total += bytes;
}

int tail_show(const struct run_tail *t, struct run_sink *sink, const char *prefix, int lines)
{
    char text[TAIL_BYTES];
    size_t n = t->total < TAIL_BYTES ? t->total : TAIL_BYTES;
    for (size_t i = 0; i < n; i++)
        text[i] = t->bytes[(t->total - n + i) % TAIL_BYTES];
    while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    size_t start = n;
    for (int found = 0; start > 0; start--)
        if (text[start - 1] == '\n' && ++found == lines)
            break;
    int shown = 0;
    while (start < n) {
        char *end = memchr(text + start, '\n', n - start);
        size_t len = end ? (size_t)(end - text) - start : n - start;
        sink_printf(sink, "%s%.*s\n", prefix, (int)len, text + start);
        start += len + 1;
        shown++;
    }
    return shown;
}
