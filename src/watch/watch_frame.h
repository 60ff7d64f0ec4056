/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_frame.h - what stewards say to each other in control frames. Little-endian. Three shapes share the first four bytes: a
 * fixed header and a text without its final zero; a heartbeat; a part of a longer message. Private to src/watch.
 */
#ifndef UNO_WATCH_FRAME_H
#define UNO_WATCH_FRAME_H

#include "base/base.h"

enum frame_kind {
    FRAME_HELLO = 1, /* a hub opens the link to another host's hub; says nothing */
    FRAME_DEATH,     /* process has died */
    FRAME_ABORT,     /* communicator has failed, first at rank */
    FRAME_BEAT,      /* struct beat */
    FRAME_PART       /* struct part */
};
#define FRAME_HEADER_BYTES 24
#define FRAME_TEXT_BYTES 512 /* with the final zero */

struct frame {
    enum frame_kind kind;
    int32_t process; /* FRAME_DEATH */
    uint64_t comm_id;
    int32_t code, rank; /* FRAME_ABORT. FRAME_DEATH: code 1 = its own host saw it, which is proof */
    char text[FRAME_TEXT_BYTES];
};

/* buf: FRAME_HEADER_BYTES + FRAME_TEXT_BYTES; returns the bytes used. */
size_t frame_write(const struct frame *f, void *buf);
/* UNO_ERR_PARSE with a sentence when it is not a frame that this version knows. Characters that a terminal would obey become '?'. */
uno_err frame_read(const void *data, size_t bytes, struct frame *f);

/* Which kind of frame this is; 0 with a sentence = none that this version knows. */
int frame_kind_of(const void *data, size_t bytes);

/* Heartbeat between hubs, and the four times that give the offset of two clocks. All by CLOCK_MONOTONIC of their host. */
struct beat {
    int32_t hub;            /* process that the sender takes for its host's hub */
    uint32_t generation;    /* of that hub */
    uint64_t sent_ns;       /* sender's clock, now */
    uint64_t heard_sent_ns; /* sent_ns of the newest beat that came from the receiver's host; 0 = none yet */
    uint64_t heard_at_ns;   /* sender's clock when it came */
};
#define BEAT_BYTES 36
size_t beat_write(const struct beat *b, void *buf); /* BEAT_BYTES */
uno_err beat_read(const void *data, size_t bytes, struct beat *b);

/* A message goes as parts in order; total and offset are checked by who puts them together (watch_message.c). */
struct part {
    uint8_t message;        /* what kind of message */
    uint32_t id;            /* equal in all its parts, another one in the next message of that sender */
    uint32_t total, offset, bytes;
    const void *data;       /* bytes of them; points into the frame when read */
};
#define PART_HEADER_BYTES 20
#define PART_BYTES 4000
size_t part_write(const struct part *p, void *buf); /* buf: PART_HEADER_BYTES + p->bytes */
uno_err part_read(const void *data, size_t bytes, struct part *p);

#endif
