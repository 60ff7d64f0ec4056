/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_notice.h - what a steward shows the other stewards of its host, in a part of its process's board: that it runs, since when
 * it is the hub, that somebody in its process waits without progress, what the hub has to say to everybody on the host, and what it
 * answers tools. Its owner alone writes, but for `questions`. Private to src/watch.
 */
#ifndef UNO_WATCH_NOTICE_H
#define UNO_WATCH_NOTICE_H

#include <stdatomic.h>

#include "base/base.h"
#include "net/net.h"

/* FRESH: a verdict that was said, as it is by now; AHEAD: one that was not, for who must return before it would be; SAID: a line that the
 * hub printed. */
enum notice_kind { NOTICE_VERDICT = 1, NOTICE_GOES_ON, NOTICE_UNREACHABLE, NOTICE_FRESH, NOTICE_AHEAD, NOTICE_SAID };
static inline bool notice_is_fresh(int32_t kind) { return kind == NOTICE_FRESH || kind == NOTICE_AHEAD; } /* nobody prints it */
#define NOTICE_TEXT_BYTES 1456 /* a headline and what to do */
#define STEWARD_NOTICES 32
#define STEWARD_HOSTS 64       /* so many hosts' paths are measured */
struct notice {
    _Atomic uint32_t number;     /* 0 while it is written; release, pairs with the acquire in notice_read */
    int32_t kind;                /* enum notice_kind */
    int32_t host;                /* UNREACHABLE */
    uint32_t identity;           /* VERDICT: of a fault, the same for the same fault; 0 = of none */
    uint64_t comm_id;            /* VERDICT; 0 = of no communicator */
    char text[NOTICE_TEXT_BYTES];
};
struct steward_page {
    /* Counters: only that they change matters. Relaxed: nothing is passed through them. */
    _Alignas(CACHE_LINE) _Atomic uint32_t beat; /* while the steward runs */
    _Atomic uint64_t beat_at_ns; /* the last beat's time, for who has not watched it */
    _Atomic uint32_t generation; /* of the owner's time as hub; 0 = it never took over */
    _Atomic uint32_t stalled;    /* while somebody in the process waits without progress; any thread of it */
    _Atomic uint32_t resumed;    /* a wait that was stalled has ended well; any thread of it */
    _Atomic uint64_t hurry;      /* a deadline is near; the low half: what counts as a stall there, in ms; any thread of it */
    _Atomic uint64_t refused;    /* connections that the process has refused so far */
    _Atomic uint32_t notices;    /* number of the newest; release, after the notice */
    /* Over this process's sockets to each host, so far; behind_us: busy with more ready than the path takes. Relaxed. */
    struct { _Atomic uint64_t bytes, busy_us, behind_us; } moved[STEWARD_HOSTS];
    struct notice notice[STEWARD_NOTICES]; /* number n at n % STEWARD_NOTICES */
    /* A tool of this host wants the facts of all ranks: it counts questions up (release) on all boards of the job; the hub answers. */
    _Alignas(CACHE_LINE) _Atomic uint32_t questions;
    _Atomic uint32_t looks;      /* before it, where the processes shall be looked at, too */
    _Atomic uint32_t answers;    /* the newest question that is answered; release, after the answer */
    _Atomic uint32_t answer_seq; /* odd while it is written, as the notes of a ledger */
    struct net_segment_ref answer; /* 8 bytes: how many follow; records (verdict.h). bytes 0: it was forgotten */
};

void notice_post(struct steward_page *s, enum notice_kind kind, int host, uint64_t comm_id, uint32_t identity, const char *text);
/* Copy notice `number`. false: it is gone. */
bool notice_read(const struct steward_page *s, uint32_t number, struct notice *copy);

#endif
