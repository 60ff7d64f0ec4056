/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - ordered queues of operations, and events. An operation may start when it is the oldest unfinished item of its
 * stream; events recorded before it complete, and events waited for are complete. Streams hold no thread.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

enum item_kind { ITEM_OP, ITEM_RECORD, ITEM_WAIT };
struct item {
    enum item_kind kind;
    struct op *op;
    struct uno_event *event;
    uint64_t at;               /* RECORD, WAIT: the event's count */
    struct item *next;
};

struct uno_event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded, completed; /* how often; complete when equal */
    uno_err err;
    int refs;                     /* handle and queued items */
};

struct uno_stream {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct item *head, *tail;
    uno_err err;                  /* first error of an operation */
    char text[ERR_TEXT_BYTES];
};

static void event_unref(struct uno_event *e)
{
    pthread_mutex_lock(&e->lock);
    bool last = --e->refs == 0;
    pthread_mutex_unlock(&e->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
}

static void complete_event(struct uno_event *e, uint64_t at, uno_err err)
{
    pthread_mutex_lock(&e->lock);
    e->completed = MAX(e->completed, at);
    if (e->err == UNO_OK)
        e->err = err;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static bool event_reached(struct uno_event *e, uint64_t at)
{
    pthread_mutex_lock(&e->lock);
    bool yes = e->completed >= at;
    pthread_mutex_unlock(&e->lock);
    return yes;
}

/* Take off what is done at the head: records complete, waits are over. Stream lock held. */
static void advance(struct uno_stream *s)
{
    while (s->head && s->head->kind != ITEM_OP) {
        struct item *i = s->head;
        if (i->kind == ITEM_WAIT && !event_reached(i->event, i->at))
            break;
        if (i->kind == ITEM_RECORD)
            complete_event(i->event, i->at, s->err);
        event_unref(i->event);
        s->head = i->next;
        if (!s->head)
            s->tail = NULL;
        free(i);
    }
    if (!s->head)
        pthread_cond_broadcast(&s->changed);
}

static void append(struct uno_stream *s, struct item *i)
{
    pthread_mutex_lock(&s->lock);
    if (s->tail)
        s->tail->next = i;
    else
        s->head = i;
    s->tail = i;
    advance(s);
    pthread_mutex_unlock(&s->lock);
}

bool stream_ready(struct op *op)
{
    struct uno_stream *s = op->stream;
    pthread_mutex_lock(&s->lock);
    advance(s);
    bool yes = s->head && s->head->kind == ITEM_OP && s->head->op == op;
    pthread_mutex_unlock(&s->lock);
    return yes;
}

uno_err stream_append(struct op *op)
{
    struct item *i = mem_zalloc(sizeof *i);
    if (!i)
        return UNO_ERR_MEMORY;
    i->kind = ITEM_OP;
    i->op = op;
    append(op->stream, i);
    return UNO_OK;
}

void stream_op_done(struct op *op, uno_err err)
{
    struct uno_stream *s = op->stream;
    pthread_mutex_lock(&s->lock);
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
    pthread_mutex_unlock(&s->lock);
}

/* ---- public: streams ------------------------------------------------------------------------------------------------ */

uno_err uno_stream_create(uno_stream **stream)
{
    if (!stream)
        return err_set(UNO_ERR_ARG, "uno_stream_create: stream is NULL");
    struct uno_stream *s = mem_zalloc(sizeof *s);
    if (!s)
        return UNO_ERR_MEMORY;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    *stream = s;
    return UNO_OK;
}

/* Only records and waits at the head: nobody else would advance them. */
static bool stream_idle(struct uno_stream *s)
{
    pthread_mutex_lock(&s->lock);
    advance(s);
    bool idle = s->head == NULL;
    pthread_mutex_unlock(&s->lock);
    return idle;
}

static uno_err stream_result(struct uno_stream *s)
{
    pthread_mutex_lock(&s->lock);
    uno_err err = s->err;
    if (err != UNO_OK)
        err_set(err, "%s", s->text);
    pthread_mutex_unlock(&s->lock);
    return err;
}

uno_err uno_stream_synchronize(uno_stream *s)
{
    if (!s)
        return UNO_OK;
    while (!stream_idle(s)) {
        engine_kick();
        pthread_mutex_lock(&s->lock);
        if (s->head) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 2000000;
            if (until.tv_nsec >= 1000000000) {
                until.tv_sec++;
                until.tv_nsec -= 1000000000;
            }
            pthread_cond_timedwait(&s->changed, &s->lock, &until);
        }
        pthread_mutex_unlock(&s->lock);
    }
    return stream_result(s);
}

uno_err uno_stream_query(uno_stream *s)
{
    if (!s)
        return UNO_OK;
    if (!stream_idle(s))
        return err_set(UNO_ERR_IN_PROGRESS, "the stream has unfinished operations");
    return stream_result(s);
}

uno_err uno_stream_destroy(uno_stream *s)
{
    if (!s)
        return UNO_OK;
    uno_err err = uno_stream_synchronize(s);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
    return err;
}

/* ---- public: events -------------------------------------------------------------------------------------------------- */

uno_err uno_event_create(uno_event **event)
{
    if (!event)
        return err_set(UNO_ERR_ARG, "uno_event_create: event is NULL");
    struct uno_event *e = mem_zalloc(sizeof *e);
    if (!e)
        return UNO_ERR_MEMORY;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->refs = 1;
    *event = e;
    return UNO_OK;
}

static uno_err queue_event(struct uno_stream *s, struct uno_event *e, enum item_kind kind)
{
    struct item *i = mem_zalloc(sizeof *i);
    if (!i)
        return UNO_ERR_MEMORY;
    pthread_mutex_lock(&e->lock);
    if (kind == ITEM_RECORD)
        e->recorded++;
    e->refs++;
    i->at = e->recorded;
    pthread_mutex_unlock(&e->lock);
    i->kind = kind;
    i->event = e;
    append(s, i);
    return UNO_OK;
}

uno_err uno_event_record(uno_event *event, uno_stream *stream)
{
    if (!event)
        return err_set(UNO_ERR_ARG, "uno_event_record: event is NULL");
    if (stream)
        return queue_event(stream, event, ITEM_RECORD);
    pthread_mutex_lock(&event->lock); /* NULL stream: everything issued there is done */
    event->completed = ++event->recorded;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    return UNO_OK;
}

uno_err uno_stream_wait_event(uno_stream *stream, uno_event *event)
{
    if (!event)
        return err_set(UNO_ERR_ARG, "uno_stream_wait_event: event is NULL");
    return stream ? queue_event(stream, event, ITEM_WAIT) : uno_event_synchronize(event);
}

uno_err uno_event_synchronize(uno_event *e)
{
    if (!e)
        return err_set(UNO_ERR_ARG, "uno_event_synchronize: event is NULL");
    pthread_mutex_lock(&e->lock);
    uint64_t at = e->recorded;
    while (e->completed < at) {
        pthread_mutex_unlock(&e->lock);
        engine_kick();
        pthread_mutex_lock(&e->lock);
        if (e->completed < at)
            pthread_cond_wait(&e->changed, &e->lock);
    }
    uno_err err = e->err;
    pthread_mutex_unlock(&e->lock);
    return err == UNO_OK ? UNO_OK : err_set(err, "an operation before the event failed");
}

uno_err uno_event_query(uno_event *e)
{
    if (!e)
        return err_set(UNO_ERR_ARG, "uno_event_query: event is NULL");
    pthread_mutex_lock(&e->lock);
    bool done = e->completed >= e->recorded;
    uno_err err = e->err;
    pthread_mutex_unlock(&e->lock);
    if (!done)
        return err_set(UNO_ERR_IN_PROGRESS, "the event is not reached yet");
    return err == UNO_OK ? UNO_OK : err_set(err, "an operation before the event failed");
}

uno_err uno_event_destroy(uno_event *e)
{
    if (e)
        event_unref(e);
    return UNO_OK;
}
