/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_stacks.h - the stacks of a look at this host's processes, on a thread of its own: their files and memory may lie where nothing
 * answers, and whoever judges must not hang with whom it judges. What is not there in time is not told. Private to src/watch.
 */
#ifndef UNO_WATCH_STACKS_H
#define UNO_WATCH_STACKS_H

#include "verdict/verdict.h"
#include "watch/watch_board.h"

struct stacks;
struct stacks_of {                /* a process */
    int32_t pid, tid;             /* tid: the thread that calls us */
    struct board_page *page;      /* stays mapped until stacks_end has said so */
    bool asked[BOARD_STACKS];     /* stack_ask was true */
    bool outside;                 /* who was not asked, or does not answer, may be looked at from outside */
};
/* of is copied. NULL: no memory, no thread. Places of who was asked are given back whatever happens, unless it returns NULL. */
struct stacks *stacks_begin(const struct stacks_of *of, int n);
bool stacks_done(const struct stacks *s);
/* Of process i: lines, top first. false: not yet, or nothing. in_library: the thread that calls us is in a call of ours. */
bool stacks_told(const struct stacks *s, int i, char *buf, size_t buf_bytes, bool *in_library);
/* s is gone for the caller. Waits for as long at most; false: the thread stands, and pages must stay where they are. NULL is true. */
bool stacks_end(struct stacks *s, uint64_t wait_ns);

#endif
