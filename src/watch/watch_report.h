/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_report.h - everything that a verdict needs of the ranks of this host, gathered from the outside and without stopping anyone:
 * from mapped boards and regions, /proc, and stacks by signal; also of processes that are stopped or dead. Private to src/watch, on
 * the steward's thread only.
 */
#ifndef UNO_WATCH_REPORT_H
#define UNO_WATCH_REPORT_H

#include <signal.h>

#include "verdict/verdict.h"
#include "watch/watch_board.h"
#include "watch/watch_door.h"
#include "watch/watch_proc.h"

struct watch;
struct peer;

struct record_comm {          /* a communicator of a process of this host */
    uint64_t id;
    int32_t rank;
    struct net_segment_ref ref;
    struct net_region *region;    /* mapped; NULL once it was destroyed */
    struct net_region_parts parts; /* of it, as checked then: its owner may be broken, and write there what it likes */
    struct ledger_notes *notes;   /* one of them */
    uint64_t moves;               /* when the look began */
    struct verdict_comm last;     /* destroyed: what it was then, with its newest event */
};
#define TIMES_KEPT 4              /* ticks of the steward, a second together, over which is seen what takes time */
struct record_times { int32_t tid; uint64_t at_ns, cpu_ns, queue_ns; }; /* of the thread that calls us, at a moment */
struct records {              /* one a process of this host; zeroed elsewhere */
    struct net_segment_ref board;
    int door;                     /* where its board came from, and the rest does: name of a door + 1; 0 = /proc */
    struct board_page *page;      /* NULL = not mapped, only /proc tells */
    uint32_t changes;             /* page->changes when comms was filled */
    bool filled;
    struct record_comm *comms;
    size_t ncomms, cap;
    /* how it ended, once it has */
    bool status_known, oom_kill;
    int status;                   /* as wait() gives it */
    uint64_t ended_ns;
    uint64_t oom_kills;           /* counted in its cgroup before */
    /* state of the main thread at the last look, and since when it has been so */
    char state;
    uint64_t state_since_ns;
    struct record_times times[TIMES_KEPT]; /* at the last ticks, the newest first */
    struct record_times starved;  /* since then it gets no processor though it is ready to run; at_ns 0: it does */
    /* the present look */
    struct proc_look look;
    struct proc_spot spot[BOARD_STACKS]; /* of the threads to ask, when the look began */
    int stack_place;              /* in w->stacks; -1 = none */
    bool replaced;                /* by exec, as it seemed when the look began */
    uint32_t position_wanted;
    struct verdict_process process; /* what came out of the look of process_look_ns */
    uint64_t process_look_ns;
};

#define REPORT_SAMPLE_NS 60000000ull /* a look takes that long: of it are the shares of processor time */
#define REPORT_EVENTS 48             /* newest events of a communicator in a report */
#define REPORT_EVENTS_SLOW 8         /* ... over a path that is slow */
#define REPORT_EVENTS_SAVED 512      /* ... in a file */

void records_open(struct watch *w);      /* map the boards of this host */
void records_close(struct watch *w);
void records_begin(struct watch *w);     /* the steward's thread begins: others may wake it */
void records_end(struct watch *w);
/* Signals blocked while the steward waits: all but the one for stacks, which only ends the wait. */
const sigset_t *records_mask(struct watch *w, sigset_t *mask);
/* Map memory of that process: from its door, if it has one, else by way of /proc. call: DOOR_NO_CALL at first, kept for the next one. */
uno_err records_map(const struct records *rec, struct door_call *call, const struct net_segment_ref *ref, void **base);
void records_refresh(struct records *rec); /* map what the board of a process lists now */
/* Once a second on the hub: communicators that are new are mapped before their owner may die. */
void records_tick(struct watch *w, uint64_t now);
/* The thread that waits in our calls, or did last, as the process's communicators tell; 0 = none did. */
int32_t records_caller(const struct records *rec);
/* At every round: what another process of this host asked of this one is done (position of the program). */
void records_serve(struct watch *w);
void records_wake(struct peer *p); /* another process's steward, by the signal for stacks, which only interrupts its wait */
void records_ended(struct watch *w, struct peer *p); /* its end was seen; before its pidfd is closed */

/* Did it leave the job in order? Of processes that have ended: what they showed then is final. UNKNOWN: nothing of it is mapped that
 * would tell. */
enum goodbye { GOODBYE_UNKNOWN, GOODBYE_SAID, GOODBYE_NOT_SAID };
enum goodbye records_goodbye(const struct records *rec);

/* Begin a look at all processes of this host: processor times, stacks, positions. Takes a few milliseconds; nothing is waited for. */
void report_begin(struct watch *w);
uint64_t report_ready_ns(const struct watch *w);     /* when the look that was begun last has its answers; 0 = none was begun */
/* Fill *out (verdict_rank_free by the caller) for a rank of this host, whatever its process does or did. Without a look of the last
 * two seconds only ledgers, state and end are told, no shares, no stack. events: REPORT_EVENTS or REPORT_EVENTS_SAVED. UNO_ERR_ARG: not of
 * this host; UNO_ERR_MEMORY. */
uno_err report_rank(struct watch *w, int rank, uint32_t events, struct verdict_rank *out);

void report_end(const struct peer *p, struct verdict_rank *out); /* of one that has ended: the fields that say so */

/* A communicator whose region is mapped; page may be NULL. UNO_ERR_MEMORY. */
uno_err report_comm(const struct record_comm *c, const struct board_page *page, uint32_t events, struct verdict_comm *out);

#endif
