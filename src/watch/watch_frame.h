/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_frame.h - what stewards say to each other in control frames. Little-endian, fixed header, then a text without its
 * final zero. Private to src/watch.
 */
#ifndef UNO_WATCH_FRAME_H
#define UNO_WATCH_FRAME_H

#include "base/base.h"

enum frame_kind {
    FRAME_HELLO = 1, /* a hub opens the link to another host's hub; says nothing */
    FRAME_DEATH,     /* process has died */
    FRAME_ABORT      /* communicator has failed, first at rank */
};
#define FRAME_HEADER_BYTES 24
#define FRAME_TEXT_BYTES 512 /* with the final zero */

struct frame {
    enum frame_kind kind;
    int32_t process; /* FRAME_DEATH */
    uint64_t comm_id;
    int32_t code, rank; /* FRAME_ABORT */
    char text[FRAME_TEXT_BYTES];
};

/* buf: FRAME_HEADER_BYTES + FRAME_TEXT_BYTES; returns the bytes used. */
size_t frame_write(const struct frame *f, void *buf);
/* UNO_ERR_PARSE with a sentence when it is not a frame that this version knows. Characters that a terminal would obey become '?'. */
uno_err frame_read(const void *data, size_t bytes, struct frame *f);

#endif
