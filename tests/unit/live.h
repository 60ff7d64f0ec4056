/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h - four real ranks that do what a test orders, and a watch that looks at them from outside, as a steward of their host does. The
 * test is no rank. A test file says in a live_play what its ranks do; one job at a time.
 */
#ifndef UNO_TEST_LIVE_H
#define UNO_TEST_LIVE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm.h"
#include "watch/watch_inner.h"

#define RANKS 4
#define LIMIT_NS 20000000000ull
#define LIVE_IDLE 0 /* no order */

struct live_play {
    const char *name;                                /* of the communicator of all ranks */
    const char *position;                            /* "step": the program says that it is in it, at train.py:212 */
    void (*prepare)(int rank);                       /* before joining; NULL = nothing */
    bool (*joined)(uno_comm *comm, int rank);        /* ready for orders; NULL = at once */
    void (*act)(int what, uno_comm *comm, int rank); /* an order */
};

struct live_shared {
    _Atomic int have_id;
    uno_id id;
    _Atomic int joined[RANKS];
    struct net_segment_ref board[RANKS];
    _Atomic int todo[RANKS], done[RANKS]; /* the order, and how many were done */
    _Atomic uint64_t told[RANKS];         /* what an order leaves for the test to see */
    _Atomic pid_t forked;
};

extern struct live {
    struct live_shared *shared;
    pid_t pids[RANKS];       /* 0 = it has been collected */
    int nothing[2];          /* a pipe that nobody writes */
    struct watch watch;      /* its rank RANKS is the test */
    struct watch_member members[RANKS + 1];
} live;

int live_start(const struct live_play *play); /* 0, or not */
void live_end(void);
void live_end_rank(int rank); /* kill and collect */

bool live_soon(bool (*yes)(void *arg), void *arg); /* within LIMIT_NS? */
bool live_reaches(_Atomic int *word, int wanted);
void live_order(int rank, int what);      /* returns when it has been taken up */
void live_order_all(int what);
void live_await(int rank, int done);      /* so many orders of that rank are done */

void live_ended(int rank, enum peer_state how); /* collect it, and tell the watch */
void live_look(void);                     /* a whole look: what processes do now */
void live_report(int rank, uint32_t events, struct verdict_rank *out); /* through a record and back */
/* Look until yes(report); the last report stays in *out, to be freed, if so. */
bool live_becomes(int rank, bool (*yes)(const struct verdict_rank *r), struct verdict_rank *out);
const struct verdict_comm *live_comm(const struct verdict_rank *r, const char *name); /* NULL = none */

#if defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(SANITIZED)
#define UNWINDS true /* stacks of waiting threads are read from outside there, if the kernel shows where they wait; a sanitizer's own calls lie between */
#else
#define UNWINDS false
#endif

/* What a rank may do; the names of the first two stand in stacks. */
void burns_processor_time(void) __attribute__((noinline, noreturn));
long sleeps_in_a_read(void) __attribute__((noinline));
void live_reduces(uno_comm *comm);
void live_forks(void);                    /* a process that idles, `forked`; live_end ends it */

#endif
