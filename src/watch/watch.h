/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - ledger and steward. The ledger is a ring of events whose newest one is the present. The steward is one thread per
 * process and job: it serves net's sockets, sees processes die through pidfds and passes aborts and deaths between hosts. It
 * never touches data-path locks.
 */
#ifndef UNO_WATCH_H
#define UNO_WATCH_H

#include <stdatomic.h>

#include "base/base.h"
#include "net/net.h"

/* ---- ledger ------------------------------------------------------------------------------------------- */
enum ledger_state { LEDGER_RUNNING = 1, LEDGER_DONE = 2, LEDGER_FAILED = 3 };
struct ledger_event {                 /* 64 bytes, one line */
    _Alignas(CACHE_LINE) _Atomic uint32_t number; /* 0 while being written; release store, last */
    uint32_t signature;               /* chained */
    uint8_t coll, type, state, target;
    int32_t root;
    int32_t op;
    int32_t waits_for;                /* rank it waits for once a wait left the spin phase; -1 */
    uint64_t count;
    uint64_t call_site;               /* return address */
    uint64_t start_ns;                /* CLOCK_MONOTONIC */
    uint64_t end_ns;
};
_Static_assert(sizeof(struct ledger_event) == 64, "a ledger event is one cache line");

/* Write event `number` (release), before the first slot of the operation is written. */
static inline struct ledger_event *ledger_begin(struct ledger_event *ring, uint32_t number, const struct ledger_event *fields)
{
    struct ledger_event *e = &ring[number % NET_LEDGER_EVENTS];
    atomic_store_explicit(&e->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* number 0 before the fields; pairs with the reader's second look */
    e->signature = fields->signature;
    e->coll = fields->coll;
    e->type = fields->type;
    e->state = LEDGER_RUNNING;
    e->target = fields->target;
    e->root = fields->root;
    e->op = fields->op;
    e->waits_for = -1;
    e->count = fields->count;
    e->call_site = fields->call_site;
    e->start_ns = fields->start_ns;
    e->end_ns = 0;
    atomic_store_explicit(&e->number, number, memory_order_release); /* pairs with the acquire in ledger_read */
    return e;
}
/* Copy event `number % ring` of some rank; false when it was being written. copy->number tells which one it is. */
bool ledger_read(const struct ledger_event *ring, uint32_t number, struct ledger_event *copy);

/* ---- steward ---------------------------------------------------------------------------------------------- */
struct watch_member {          /* one per rank of the job */
    int process;               /* lowest rank in its process */
    int host;                  /* host index */
    int32_t pid;               /* as seen in its own pid namespace */
    uint64_t start_ticks;      /* from /proc/<pid>/stat, against reuse of the pid; 0 = unknown */
    char hostname[64];
    struct sock_address_book book;
};
/* What processes tell each other through their stewards. Kinds below WATCH_MESSAGE_FIRST are the stewards' own. */
enum watch_message {
    WATCH_MESSAGE_FIRST = 64,
    WATCH_MESSAGE_ASK = WATCH_MESSAGE_FIRST, /* fail.c: what do you call as operation N? */
    WATCH_MESSAGE_LAST = 255
};
#define WATCH_MESSAGE_BYTES (256u << 10) /* no message is longer */
struct watch_options {
    const struct config *cfg;
    int rank, size;
    const struct watch_member *members; /* copied */
    struct net_proc *net;               /* served by the steward; may be NULL on one host */
    /* All four are called on the steward's thread and must not wait for it (no watch_stop). on_dead: once per dead process (given
     * by its lowest rank): everyone in it is dead. text: "rank 3 (pid 12 on hostB) was killed by signal 9 (SIGKILL)" */
    void (*on_dead)(void *arg, int process, const char *text);
    /* As on_dead, but in order: the process ended after its goodbye, or its link was closed with one. NULL = not wanted. */
    void (*on_left)(void *arg, int process, const char *text);
    /* Did a process of this host say goodbye? (a word in its control region, which join.c can read) NULL = nobody did. */
    bool (*said_goodbye)(void *arg, int process);
    /* An abort arrived from another host: communicator id, code, rank where it began, text. */
    void (*on_abort)(void *arg, uint64_t comm_id, uno_err code, int rank, const char *text);
    /* A message that another process sent with watch_tell; data belongs to the caller. NULL = not wanted. */
    void (*on_message)(void *arg, int from, enum watch_message kind, const void *data, size_t bytes);
    void *arg;
};
struct watch;
/* A watch that only collects what watch_on_control and watch_on_down bring, for net_proc_new before the members are known. */
uno_err watch_new(struct watch **watch);
/* Start the steward. *watch: from watch_new, or NULL, and then a new one is stored there. On failure a watch from watch_new stays
 * as it was. UNO_ERR_MEMORY, UNO_ERR_SYSTEM. */
uno_err watch_start(const struct watch_options *opt, struct watch **watch);
/* Tell other hosts' processes that a communicator was aborted; never blocks. ranks: members of that communicator. */
void watch_abort(struct watch *watch, uint64_t comm_id, uno_err code, int rank, const char *text, const int *ranks, int nranks);
/* Send a message to a process of the job (its lowest rank); never blocks, may be called on the steward's thread too. Messages
 * between two processes arrive in order, once, or not at all when there is no way. On the sender's own host only where net is
 * there. UNO_ERR_ARG too long, or no such process; UNO_ERR_MEMORY; UNO_ERR_UNREACHABLE without net. */
uno_err watch_tell(struct watch *watch, int process, enum watch_message kind, const void *data, size_t bytes);
/* This process leaves in order: its end is not a death. Never blocks. Its own host learns it from said_goodbye, other hosts from
 * net_proc_drain; here it ends the reports to on_dead and on_left, for who leaves waits for nobody. */
void watch_goodbye(struct watch *watch);
/* Send what is queued, end the thread, free. Also for a watch that was never started; NULL is allowed. */
void watch_stop(struct watch *watch);
void watch_forked(struct watch *watch); /* in a forked child: close descriptors; every later call does nothing */
/* net's callbacks, handed to net_proc_new by join.c with a watch from watch_new as arg. Any thread. */
void watch_on_control(void *arg, int from, const void *data, size_t bytes);
void watch_on_down(void *arg, int from, bool clean, bool fin, const char *text);
/* Start time of a process of this host in clock ticks, for watch_member; 0 = unknown. */
uint64_t watch_start_ticks(int32_t pid);

#endif
