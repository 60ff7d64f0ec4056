/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_door.h - the steward's door: a Unix socket at which tools of the same user get descriptors of what the process shows of
 * itself: its board, the regions of its communicators, an answer. Its name is abstract, so nothing is left of it after a kill -9. The kernel
 * says who is there: a process of another user gets nothing. Private to src/watch.
 */
#ifndef UNO_WATCH_DOOR_H
#define UNO_WATCH_DOOR_H

#include "base/base.h"
#include "net/net.h"

#define DOOR_NAMES 8      /* so many jobs of a process, and users of its network namespace who take its names, are told apart */
#define DOOR_GUESTS 8     /* at a time; more wait in the kernel, and then the one that has said nothing for the longest time goes */
#define DOOR_MAGIC 0x726f6f642d6f6e75ull
#define DOOR_VERSION 1u

/* One message each way, on a socket that keeps them apart (SOCK_SEQPACKET). A guest may ask again. */
struct door_ask {
    uint64_t magic;
    uint32_t version, zero;
    uint64_t token[2];    /* of the segment; zeros: the board */
};
struct door_reply {       /* with one descriptor, unless bytes is 0: there is no such segment */
    uint64_t magic;
    uint32_t version;
    uint32_t boards;      /* of this process: each joined job has one, and a door of its own */
    uint64_t bytes, token[2];
};

/* ---- the steward's side (watch_door.c), on its thread; never waits ---------------------------------------------------------- */
struct watch;
struct door {
    int listen;           /* -1 = none */
    int guest[DOOR_GUESTS]; /* -1 = none */
    uint64_t heard_ns[DOOR_GUESTS]; /* it came, or last asked, then */
    uint64_t again_ns;    /* nobody is let in until then; 0 = everybody is */
    uint64_t since_ns, said_ns; /* strangers are counted since then; one was last told of */
    uint32_t strangers;
};
void door_new(struct door *d);           /* closed */
void door_open(struct watch *w);         /* failing is no fault: tools look into /proc then */
void door_close(struct watch *w);        /* also in a forked child */
void door_event(struct watch *w, int which); /* the listening socket (-1) or a guest is readable, or its other end is gone */
void door_timers(struct watch *w, uint64_t now);
uint64_t door_next_ns(const struct watch *w);

/* ---- the tool's side (watch_door_call.c); waits as long as is said --------------------------------------------------------------- */
enum door_said {
    DOOR_NOBODY,          /* nothing of this process listens there */
    DOOR_SILENT,          /* it does, and has not answered: stopped, starved, or full of strangers */
    DOOR_REFUSED,         /* it answered that there is no such segment, or what makes no sense */
    DOOR_GIVEN
};
struct door_call { int32_t pid; int name, fd; };
#define DOOR_NO_CALL {.name = -1, .fd = -1}
/* Go to that door of process pid (0 to DOOR_NAMES - 1). DOOR_GIVEN: a call for door_fetch, ended with door_hang_up. */
enum door_said door_call(struct door_call *call, int32_t pid, int name, uint64_t wait_ns);
/* token NULL: the board. DOOR_GIVEN: *fd belongs to the caller; *ref is what it should be, as of this process. */
enum door_said door_fetch(struct door_call *call, const uint64_t token[2], uint64_t wait_ns, struct net_segment_ref *ref, uint32_t *boards, int *fd);
void door_hang_up(struct door_call *call);
/* Processes of this user whose doors stand in /proc/net/unix; returns how many, of at most `most`. Another user may have made up the names. */
size_t door_pids(int32_t *pids, size_t most);

/* Both: "unisono.<uid>.<pid>.<name>" behind a zero byte. Returns the length of the address. */
struct sockaddr_un;
unsigned door_address(struct sockaddr_un *a, uint32_t uid, int32_t pid, int name);

#endif
