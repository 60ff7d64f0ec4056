/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - ordered queues of operations, and events. An operation may start when everything before it in its stream is finished
 * or of the same group (a receive must not keep the send of its exchange from starting), and events waited for are complete.
 * Streams hold no thread: whoever changes one brings all of them as far as they go, so that a stream is never behind what has
 * happened.
 */
#include "comm.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* One uno_event_record. Who waits for an event waits for the mark that it had then, whatever is recorded later. */
struct mark {
    int refs;                     /* event and queued items */
    bool done;
    uno_err err;
};

enum item_kind { ITEM_OP, ITEM_RECORD, ITEM_WAIT };
struct item {
    enum item_kind kind;
    struct op *op;
    struct mark *mark;            /* RECORD: completed by it; WAIT: waited for */
    struct item *next;
};

struct uno_event { struct mark *last; /* NULL: never recorded */ };

struct uno_stream {
    struct uno_stream *next;      /* all streams of the process */
    struct item *head, *tail;
    uno_err err;                  /* first error of an operation */
    char text[ERR_TEXT_BYTES];
};

/* For all streams and events: what stands in one often ends in another. Held for a few instructions. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* a stream became empty, or a mark was completed */
static struct uno_stream *streams;
static _Atomic int32_t waiting_tid; /* a thread of the program that waits for one; relaxed: reports alone read it, and look again */

int32_t stream_waiter(void)
{
    return atomic_load_explicit(&waiting_tid, memory_order_relaxed);
}

void streams_forked(void)
{
    pthread_mutex_init(&lock, NULL); /* a thread that is not here may have held or waited for them */
    pthread_cond_init(&changed, NULL);
    for (struct uno_stream *s = streams; s; s = s->next) { /* what was queued happens in the parent */
        if (s->head && s->err == UNO_OK) {
            s->err = UNO_ERR_USAGE;
            snprintf(s->text, sizeof s->text, "operations were queued on this stream before fork()");
        }
        for (struct item *i = s->head; i; i = i->next)
            if (i->kind == ITEM_RECORD) {
                i->mark->done = true;
                i->mark->err = s->err;
            }
        s->head = s->tail = NULL;
    }
}

static void mark_unref(struct mark *m)
{
    if (m && --m->refs == 0)
        free(m);
}

/* Take off what is done at the head: records complete, waits are over. Returns whether a mark was completed. */
static bool advance_one(struct uno_stream *s)
{
    bool completed = false;
    while (s->head && s->head->kind != ITEM_OP) {
        struct item *i = s->head;
        if (i->kind == ITEM_WAIT && !i->mark->done)
            break;
        if (i->kind == ITEM_RECORD) {
            i->mark->done = completed = true;
            i->mark->err = s->err;
        }
        mark_unref(i->mark);
        s->head = i->next;
        if (!s->head)
            s->tail = NULL;
        free(i);
    }
    if (!s->head || completed)
        pthread_cond_broadcast(&changed);
    return completed;
}

/* After every change of a stream: what it completes may bring on others. */
static void advance(struct uno_stream *s)
{
    bool again = advance_one(s);
    while (again) {
        again = false;
        for (struct uno_stream *other = streams; other; other = other->next)
            again |= advance_one(other);
    }
}

static void append(struct uno_stream *s, struct item *i)
{
    if (s->tail)
        s->tail->next = i;
    else
        s->head = i;
    s->tail = i;
    advance(s);
}

/* Lock held: the first item that is not of op's group; op itself when it may start. */
static const struct item *first_other(const struct op *op)
{
    const struct item *i = op->stream->head;
    while (i && i->kind == ITEM_OP && i->op != op && op->group && i->op->group == op->group)
        i = i->next;
    return i;
}

bool stream_ready(struct op *op)
{
    pthread_mutex_lock(&lock);
    const struct item *i = first_other(op);
    bool yes = i && i->kind == ITEM_OP && i->op == op;
    pthread_mutex_unlock(&lock);
    return yes;
}

/* What is to be done first in the stream that completes this mark; NULL = nothing. */
static const struct item *before_mark(const struct mark *m)
{
    for (const struct uno_stream *s = streams; s; s = s->next)
        for (const struct item *i = s->head; i; i = i->next)
            if (i->kind == ITEM_RECORD && i->mark == m)
                return s->head;
    return NULL;
}

void stream_before(struct op *op, void (*tell)(void *arg, const struct op *before, bool by_event), void *arg)
{
    bool by_event = false;
    pthread_mutex_lock(&lock);
    const struct item *i = first_other(op);
    while (i && i->kind == ITEM_WAIT) { /* no circle: who waits for a mark came after it */
        by_event = true;
        i = before_mark(i->mark);
    }
    if (i && i->kind == ITEM_OP && i->op != op)
        tell(arg, i->op, by_event);
    pthread_mutex_unlock(&lock);
}

uno_err stream_append(struct op *op)
{
    struct item *i = mem_zalloc(sizeof *i);
    if (!i)
        return UNO_ERR_MEMORY;
    i->kind = ITEM_OP;
    i->op = op;
    pthread_mutex_lock(&lock);
    append(op->stream, i);
    pthread_mutex_unlock(&lock);
    return UNO_OK;
}

void stream_op_done(struct op *op, uno_err err)
{
    struct uno_stream *s = op->stream;
    pthread_mutex_lock(&lock);
    /* Usually the head; operations of a failed communicator end wherever they stand. */
    struct item *before = NULL, *i = s->head;
    while (i && !(i->kind == ITEM_OP && i->op == op)) {
        before = i;
        i = i->next;
    }
    if (i) {
        *(before ? &before->next : &s->head) = i->next;
        if (s->tail == i)
            s->tail = before;
        free(i);
    }
    if (err != UNO_OK && s->err == UNO_OK) {
        s->err = err;
        snprintf(s->text, sizeof s->text, "%s", err_text());
    }
    advance(s);
    pthread_mutex_unlock(&lock);
}

/* Lock held: until something has changed. Whoever moves the operations is woken from time to time, should it have failed to start. */
static void wait_changed(void)
{
    struct timespec until;
    atomic_store_explicit(&waiting_tid, gettid(), memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    engine_kick();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&lock);
    pthread_cond_timedwait(&changed, &lock, &until);
}

/* ---- public: streams ------------------------------------------------------------------------------------------------ */

uno_err uno_stream_create(uno_stream **stream)
{
    if (!stream)
        return err_set(UNO_ERR_ARG, "uno_stream_create: stream is NULL");
    struct uno_stream *s = mem_zalloc(sizeof *s);
    if (!s)
        return UNO_ERR_MEMORY;
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    *stream = s;
    return UNO_OK;
}

static uno_err result_locked(const struct uno_stream *s)
{
    return s->err == UNO_OK ? UNO_OK : err_set(s->err, "%s", s->text);
}

static void waited(void)
{
    if (stream_waiter() == gettid())
        atomic_store_explicit(&waiting_tid, 0, memory_order_relaxed);
}

uno_err uno_stream_synchronize(uno_stream *s)
{
    if (!s)
        return UNO_OK;
    pthread_mutex_lock(&lock);
    if (s->head) {
        while (s->head)
            wait_changed();
        waited();
    }
    uno_err err = result_locked(s);
    pthread_mutex_unlock(&lock);
    return err;
}

uno_err uno_stream_query(uno_stream *s)
{
    if (!s)
        return UNO_OK;
    pthread_mutex_lock(&lock);
    uno_err err = s->head ? err_set(UNO_ERR_IN_PROGRESS, "the stream has unfinished operations") : result_locked(s);
    pthread_mutex_unlock(&lock);
    return err;
}

uno_err uno_stream_destroy(uno_stream *s)
{
    if (!s)
        return UNO_OK;
    uno_err err = uno_stream_synchronize(s);
    pthread_mutex_lock(&lock);
    for (struct uno_stream **p = &streams; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free(s);
    return err;
}

/* ---- public: events -------------------------------------------------------------------------------------------------- */

uno_err uno_event_create(uno_event **event)
{
    if (!event)
        return err_set(UNO_ERR_ARG, "uno_event_create: event is NULL");
    *event = mem_zalloc(sizeof **event);
    return *event ? UNO_OK : UNO_ERR_MEMORY;
}

/* stream NULL: everything issued there is done, and so is the mark. */
uno_err uno_event_record(uno_event *event, uno_stream *stream)
{
    if (!event)
        return err_set(UNO_ERR_ARG, "uno_event_record: event is NULL");
    struct mark *m = mem_zalloc(sizeof *m);
    struct item *i = stream ? mem_zalloc(sizeof *i) : NULL;
    if (!m || (stream && !i)) {
        free(m);
        free(i);
        return UNO_ERR_MEMORY;
    }
    m->refs = stream ? 2 : 1;
    m->done = stream == NULL;
    pthread_mutex_lock(&lock);
    mark_unref(event->last);
    event->last = m;
    if (stream) {
        *i = (struct item){.kind = ITEM_RECORD, .mark = m};
        append(stream, i);
    }
    pthread_mutex_unlock(&lock);
    return UNO_OK;
}

uno_err uno_stream_wait_event(uno_stream *stream, uno_event *event)
{
    if (!event)
        return err_set(UNO_ERR_ARG, "uno_stream_wait_event: event is NULL");
    if (!stream)
        return uno_event_synchronize(event);
    struct item *i = mem_zalloc(sizeof *i);
    if (!i)
        return UNO_ERR_MEMORY;
    pthread_mutex_lock(&lock);
    if (event->last) {
        event->last->refs++;
        *i = (struct item){.kind = ITEM_WAIT, .mark = event->last};
        append(stream, i);
        i = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(i);
    return UNO_OK;
}

static uno_err mark_result(const struct mark *m)
{
    return !m || m->err == UNO_OK ? UNO_OK : err_set(m->err, "an operation before the event failed");
}

uno_err uno_event_synchronize(uno_event *e)
{
    if (!e)
        return err_set(UNO_ERR_ARG, "uno_event_synchronize: event is NULL");
    pthread_mutex_lock(&lock);
    struct mark *m = e->last;
    if (m)
        m->refs++;
    if (m && !m->done) {
        while (!m->done)
            wait_changed();
        waited();
    }
    uno_err err = mark_result(m);
    mark_unref(m);
    pthread_mutex_unlock(&lock);
    return err;
}

uno_err uno_event_query(uno_event *e)
{
    if (!e)
        return err_set(UNO_ERR_ARG, "uno_event_query: event is NULL");
    pthread_mutex_lock(&lock);
    uno_err err = e->last && !e->last->done ? err_set(UNO_ERR_IN_PROGRESS, "the event is not reached yet") : mark_result(e->last);
    pthread_mutex_unlock(&lock);
    return err;
}

uno_err uno_event_destroy(uno_event *e)
{
    if (!e)
        return UNO_OK;
    pthread_mutex_lock(&lock);
    mark_unref(e->last);
    pthread_mutex_unlock(&lock);
    free(e);
    return UNO_OK;
}
