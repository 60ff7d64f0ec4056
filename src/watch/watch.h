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

/* For readers of what another thread may be writing, who look twice: the thread sanitizer knows no such protocol. */
#if defined(__has_attribute)
#if __has_attribute(no_sanitize_thread)
#define SEQLOCK_READER __attribute__((no_sanitize_thread))
#endif
#endif
#ifndef SEQLOCK_READER
#define SEQLOCK_READER
#endif

/* ---- ledger ------------------------------------------------------------------------------------------- */
enum ledger_state { LEDGER_RUNNING = 1, LEDGER_DONE = 2, LEDGER_FAILED = 3 };
#define LEDGER_CALL_FIELDS                                                                                                 \
    uint8_t coll, type, state, target;                                                                                   \
    int32_t root, op;                                                                                                    \
    int32_t waits_for; /* the last rank it was seen to wait for, once a wait left the spin phase; -1 */                   \
    uint64_t count;
/* What events of one request have in common when they begin: made once, stored whole. */
struct ledger_fields { LEDGER_CALL_FIELDS };
struct ledger_event {                 /* 64 bytes, one line */
    _Alignas(CACHE_LINE) _Atomic uint32_t number; /* 0 while being written; release store, last */
    uint32_t signature;               /* chained */
    union { struct ledger_fields fields; struct { LEDGER_CALL_FIELDS }; };
    uint64_t call_site;               /* return address, or the number of a place that a binding named: ledger_site */
    uint64_t start_ns;                /* CLOCK_MONOTONIC; for a moment after the number appears, that of the operation before */
    uint64_t end_ns;                  /* 0: not over, or over at once (a small operation that nobody waited for) */
};
_Static_assert(sizeof(struct ledger_event) == 64, "a ledger event is one cache line");

/* Write event `number` (release), before the first slot of the operation is written. */
static inline struct ledger_event *ledger_begin(struct ledger_event *ring, uint32_t number, uint32_t signature,
                                                const struct ledger_fields *fields, const void *call_site, uint64_t start_ns)
{
    struct ledger_event *e = &ring[number % NET_LEDGER_EVENTS];
#ifndef UNO_BENCH_WITHOUT_LEDGER /* bench/op_cost.py; the number is there in any case, as small rings need it */
    atomic_store_explicit(&e->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* number 0 before the fields; pairs with the reader's second look */
    e->signature = signature;
    e->fields = *fields;
    e->call_site = (uint64_t)(uintptr_t)call_site;
    e->start_ns = start_ns;
    e->end_ns = 0;
#endif
    atomic_store_explicit(&e->number, number, memory_order_release); /* pairs with the acquire in ledger_read */
    return e;
}
/* When it began: a precise clock would be a tenth of a small operation. */
static inline uint64_t ledger_clock(void)
{
#ifndef UNO_BENCH_WITHOUT_LEDGER
    return clock_coarse_ns();
#else
    return 1ull << 62; /* no deadline passes */
#endif
}
/* Copy event `number % ring` of some rank; false when it was being written. copy->number tells which one it is. */
bool ledger_read(const struct ledger_event *ring, uint32_t number, struct ledger_event *copy);
/* The newest event of a ring that is whole: what that rank is doing, or did last. false: none yet. */
bool ledger_newest(const struct ledger_event *ring, struct ledger_event *copy);

/* Sends and receives have a ring of their own. A place is used anew when what stands there has ended, so that what is unfinished
 * stays to be seen (but for more than a ring of them). Written by the walk lock's holder (exec_p2p.c). */
enum ledger_p2p_state { LEDGER_P2P_ISSUED = 1, /* a send whose header is not out, a receive that met nothing */
                        LEDGER_P2P_TOLD,       /* a send that its receiver knows of and has not matched */
                        LEDGER_P2P_MOVING, LEDGER_P2P_DONE, LEDGER_P2P_FAILED };
struct ledger_p2p {                   /* 64 bytes, one line */
    _Alignas(CACHE_LINE) _Atomic uint32_t number; /* of this rank's sends and receives, from 1; 0 while being written */
    uint32_t pair_number;             /* from 1 for (sender, receiver); of a receive: its message's, 0 until it met one */
    int32_t peer;                     /* of a receive from any rank: -1 until it met one */
    int32_t tag;
    uint8_t send, state, type, strict;
    uint8_t any;                      /* a receive from any rank */
    uint8_t waited;                   /* the program waits for it, and does nothing else */
    uint64_t bytes;                   /* length, or room */
    uint64_t call_site, start_ns, since_ns; /* since: in this state */
};
_Static_assert(sizeof(struct ledger_p2p) == 64, "a point-to-point event is one cache line");
struct ledger_p2p *ledger_p2p_begin(struct ledger_p2p *ring, uint32_t *last, const struct ledger_p2p *fields);
/* Does nothing when the place was used anew. */
void ledger_p2p_state(struct ledger_p2p *e, uint32_t number, enum ledger_p2p_state state);
bool ledger_p2p_read(const struct ledger_p2p *place, struct ledger_p2p *copy); /* false: empty, or being written */

/* What stands beside the rings, in the region's notes: who it is, how far the running operation is, what is queued, where the
 * program is. Everything but `ready` may change while it is read: see notes_read. */
#define LEDGER_QUEUED 4
/* Places in the program that a language binding names. A call made there has the place's number for its call_site: less than any address. */
#define LEDGER_SITE_BYTES 120
#define LEDGER_SITES 128              /* so many of a communicator are kept: the oldest makes room */
#define LEDGER_SITE_NUMBERS (LEDGER_SITES * 31) /* from 1 to this one, and again; < 4096 */
struct ledger_site { _Atomic uint32_t number; /* 0 while being written; release store, last */ char text[LEDGER_SITE_BYTES]; };
enum { LEDGER_SEND = 64, LEDGER_RECV = 65 }; /* beside enum uno_coll */
struct ledger_call {                  /* issued, not begun */
    uint8_t coll, type;               /* uno_coll, LEDGER_SEND or LEDGER_RECV */
    int32_t op, root;                 /* root: of a send or receive its peer */
    uint64_t count;                   /* of a send or receive in bytes */
    uint64_t call_site;
    uint64_t order;                   /* of issue in this process, over all communicators, from 1 */
    uint64_t since_ns;
};
/* The queue's first call may not begin yet: what stands before it on its stream? Known after it has stood for a moment. */
enum ledger_before { LEDGER_BEFORE_NOTHING = 0, LEDGER_BEFORE_STREAM /* in its stream */, LEDGER_BEFORE_EVENT /* in another one, before an event */ };
struct ledger_behind {
    uint64_t order;                   /* of the call that this is said of: not the queue's first one = out of date */
    uint32_t before, epoch;           /* enum ledger_before; of comm_id */
    uint64_t comm_id;                 /* of the call that stands before it */
    struct ledger_call call;
};
enum ledger_makes { LEDGER_MAKES_NOTHING = 0, LEDGER_MAKES_GROUP, LEDGER_MAKES_SHRUNK }; /* as verdict_makes */
#define LEDGER_MAKING_RANKS 512
struct ledger_notes {
    /* set before `ready` (release, pairs with the acquire of who finds the region) */
    _Atomic uint32_t ready;
    int32_t rank, size, job_rank;
    uint32_t epoch;                   /* of shrink */
    uint64_t comm_id, job_id, made_ns;
    char name[64];
    /* the running operation, once it has waited; written by the walk lock's holder */
    _Alignas(CACHE_LINE) _Atomic uint32_t wait_seq; /* odd while being written */
    uint32_t wait_number;             /* operation, 0 = none yet */
    int32_t waits_for;
    char what[28];                    /* "data from" */
    uint64_t since_ns;                /* nothing has moved since then */
    uint64_t noted_ns;
    uint64_t step, steps, bytes, bytes_all; /* done so far, and of the whole operation on this rank */
    uint64_t order;                   /* as in ledger_call */
    int32_t tid;                      /* the thread that waits; negative: ours does, and that one of the program did last */
    /* tiled operations: changes whenever one moves; relaxed, a sign of life */
    _Alignas(CACHE_LINE) _Atomic uint64_t moves;
    _Atomic uint64_t waited_ns;       /* so long operations have waited so far, counted where they note it; relaxed, by the walk lock's holder */
    /* written by the walk lock's holder for itself */
    uint32_t seen_number;
    uint64_t seen_ns, again_ns, seen_step, counted_ns; /* up to counted_ns it is in waited_ns */
    /* issued and not begun, in order; under the communicator's issue lock */
    _Alignas(CACHE_LINE) _Atomic uint32_t queue_seq;
    uint32_t queued;
    struct ledger_call queue[LEDGER_QUEUED];
    struct ledger_behind behind;
    /* uno_comm_create_group and uno_comm_shrink, called on this one; under the communicator's issue lock */
    _Atomic uint32_t making_seq;
    struct ledger_making {
        uint32_t kind;                /* enum ledger_makes; the last one called */
        uint64_t id, since_ns;        /* equal on all who make the same; since_ns 0: the call has returned */
        uint64_t set[LEDGER_MAKING_RANKS / 64]; /* who takes part, by comm rank, of the first so many */
    } making;
    /* sends and receives that have ended well, so far; relaxed, by the walk lock's holder alone */
    struct ledger_moved { _Atomic uint64_t messages, bytes; } sent, received;
    /* set by a language binding (uno_comm_set_call_site), under the communicator's issue lock */
    _Atomic uint32_t site;            /* of the calls from now on; 0 = none; relaxed */
    uint32_t site_made;               /* the number given last; for the writer itself */
};
/* Behind the notes in the region, and not in copies of them: number % LEDGER_SITES is a place's place. */
struct ledger_noted { struct ledger_notes notes; struct ledger_site sites[LEDGER_SITES]; };
_Static_assert(sizeof(struct ledger_noted) <= NET_NOTES_BYTES, "notes have a fixed place in the region");
static inline struct ledger_notes *ledger_notes(const struct net_region *r) { return net_region_notes(r); }
/* One writer at a time: between them the fields behind seq may be written. */
static inline void notes_begin(_Atomic uint32_t *seq)
{
    atomic_store_explicit(seq, atomic_load_explicit(seq, memory_order_relaxed) + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* odd before the fields; pairs with the reader's second look */
}
static inline void notes_end(_Atomic uint32_t *seq)
{
    /* release: the fields first; pairs with the acquire in notes_read */
    atomic_store_explicit(seq, atomic_load_explicit(seq, memory_order_relaxed) + 1, memory_order_release);
}
/* One more send or receive has ended. */
static inline void ledger_moved_add(struct ledger_moved *m, uint64_t bytes)
{
    atomic_store_explicit(&m->messages, atomic_load_explicit(&m->messages, memory_order_relaxed) + 1, memory_order_relaxed);
    atomic_store_explicit(&m->bytes, atomic_load_explicit(&m->bytes, memory_order_relaxed) + bytes, memory_order_relaxed);
}
/* Copy the notes of any rank of this host. A part that its owner left half written (it was killed or stopped there) is zeroed. */
void notes_read(const struct ledger_notes *n, struct ledger_notes *copy);
/* From now on calls are made at `text`; "" = at no named place. Returns its number, or 0. One writer at a time. */
uint32_t ledger_site_set(struct ledger_notes *n, const char *text);
/* The named place with that number, in the region's notes (no copy of them); "" = call_site is none, or it had to make room. Returns buf. */
char *ledger_site(const struct ledger_notes *n, uint64_t call_site, char buf[LEDGER_SITE_BYTES]);

/* ---- board: what a process shows of itself to its host (watch_board.c) ---------------------------------------------------- */
struct watch_board;
/* One a joined job and process; it holds no lock of operations. stacks: install the handler that writes a thread's stack when another
 * process of this user asks. rank -1: all ranks are in this process. UNO_ERR_MEMORY, UNO_ERR_SYSTEM. */
uno_err watch_board_new(uint64_t job, int rank, int size, bool stacks, struct watch_board **board);
void watch_board_ref(const struct watch_board *board, struct net_segment_ref *ref); /* travels, for watch_member */
void watch_board_add(struct watch_board *board, uint64_t comm_id, int rank, const struct net_segment_ref *region);
void watch_board_remove(struct watch_board *board, uint64_t comm_id, int rank);     /* nothing if it is not there */
void watch_board_free(struct watch_board *board);   /* NULL is allowed; others keep what they mapped */
void watch_boards_forked(void);                     /* in a forked child, before any other thread */
/* Where the program is in its own words; see uno_set_position_callback. */
typedef size_t (*watch_position_fn)(void *arg, char *buf, size_t bytes);
void watch_set_position(watch_position_fn ask, void *arg);

/* ---- keeper: processes of this user seen by who has not joined with them (watch_keep.c; contract in unisono_watch.h) ---------- */
struct watch_keeper;
uno_err keeper_new(struct watch_keeper **keeper);
uno_err keeper_look(struct watch_keeper *keeper, int32_t pid);
uno_err keeper_look_around(struct watch_keeper *keeper, int32_t pid);
size_t keeper_pids(int32_t *pids, size_t most);
void keeper_ended(struct watch_keeper *keeper, int32_t pid, int status);
uno_err keeper_facts(struct watch_keeper *keeper, bool look, void **data, size_t *bytes);
uno_err keeper_gather(struct watch_keeper *keeper, void **data, size_t *bytes);
uno_err keeper_ask(struct watch_keeper *keeper);
uno_err keeper_answer(struct watch_keeper *keeper, void **data, size_t *bytes);
uno_err keeper_save(struct watch_keeper *keeper, const char *dir, char *path, size_t path_bytes);
uno_err keeper_said(struct watch_keeper *keeper, char *text, size_t text_bytes);
void keeper_free(struct watch_keeper *keeper);

/* ---- ends: what a launcher tells of how processes ended (watch_ends.c; contract in unisono_watch.h) ----------------------- */
struct ends;
struct uno_end;
uno_err ends_new(int size, struct ends **ends);
int ends_fd(const struct ends *ends);
void ends_ask(struct ends *ends, int signal);
void ends_looked(struct ends *ends, int rank);
void ends_begin(struct ends *ends, int signal);
void ends_seen(struct ends *ends, int rank, int pid, int status, struct uno_end *end); /* ends NULL: only *end is filled */
uno_err ends_put(struct ends *ends, const struct uno_end *end);
void ends_free(struct ends *ends);

/* ---- steward ---------------------------------------------------------------------------------------------- */
struct watch_member {          /* one per rank of the job */
    int process;               /* lowest rank in its process */
    int host;                  /* host index */
    int32_t pid;               /* as seen in its own pid namespace */
    uint64_t start_ticks;      /* from /proc/<pid>/stat, against reuse of the pid; 0 = unknown */
    int32_t launched;          /* the number that its launcher gave it, where that tells how processes end (UNISONO_ENDS_FD); -1 = none */
    uint64_t log;              /* log_identity */
    char hostname[64];
    struct sock_address_book book;
    struct net_segment_ref board; /* of its process; bytes 0 = it has none */
};
/* What one process of a host prints for all, printed by `speaker`: does `rank` print it, too? Yes, if its lines go to a file where they would be
 * missing, and no lower rank of its host that can writes that file. */
bool watch_prints_too(const struct watch_member *members, int rank, int speaker, bool (*can)(void *arg, int rank), void *arg);
/* What processes tell each other through their stewards. Kinds below WATCH_MESSAGE_FIRST are the stewards' own. */
enum watch_message {
    WATCH_MESSAGE_FIRST = 64,
    WATCH_MESSAGE_ASK = WATCH_MESSAGE_FIRST, /* fail.c: what do you call as operation N? */
    WATCH_MESSAGE_SHRINK,                    /* watch_shrink.c: who goes on? */
    WATCH_MESSAGE_LAST = 255
};
#define WATCH_MESSAGE_BYTES (256u << 10) /* no message is longer */
struct watch_options {
    const struct config *cfg;
    int rank, size;
    const struct watch_member *members; /* copied */
    struct watch_board *board;          /* of this process, outlives the watch; NULL = none: others take its steward for well */
    struct net_proc *net;               /* served by the steward; may be NULL on one host */
    /* All are called on the steward's thread and must not wait for it (no watch_stop). on_dead: once per dead process (given
     * by its lowest rank): everyone in it is dead. text: "rank 3 (pid 12 on hostB) was killed by signal 9 (SIGKILL)" */
    void (*on_dead)(void *arg, int process, const char *text);
    /* As on_dead, but in order: the process ended after its goodbye, or its link was closed with one. NULL = not wanted. */
    void (*on_left)(void *arg, int process, const char *text);
    /* Nothing has gone between this host and another one for UNISONO_SUSPECT_TIMEOUT: communicators with ranks on both fail. text
     * says which hosts, interface, since when. NULL = not wanted. */
    void (*on_unreachable)(void *arg, int host, const char *text);
    /* The connection to a process is closed for good: it broke the protocol, or says that we did. text: "sent ..." or "closed ...",
     * without who. NULL = not wanted. */
    void (*on_broken)(void *arg, int process, const char *text);
    /* A process has ended, or left, for certain: its own host saw it, or it said so. Called before on_dead and on_left; on_dead alone
     * may rest on closed connections. NULL = not wanted. */
    void (*on_ended)(void *arg, int process);
    /* A verdict about operations that do not go on, or, with text NULL, they go on. comm_id 0 = of no single communicator. It was
     * printed already. NULL = not wanted. */
    void (*on_verdict)(void *arg, uint64_t comm_id, const char *text);
    /* Did a process of this host say goodbye? (a word in its control region, which join.c can read) Asked where its board does not
     * tell. NULL = nobody did. */
    bool (*said_goodbye)(void *arg, int process);
    /* An abort arrived from another host: communicator id, code, rank where it began, text. */
    void (*on_abort)(void *arg, uint64_t comm_id, uno_err code, int rank, const char *text);
    /* A message that another process sent with watch_tell; data belongs to the caller. NULL = not wanted. */
    void (*on_message)(void *arg, int from, enum watch_message kind, const void *data, size_t bytes);
    /* Called in every round of the steward; returns when it wants to be called again at the latest. NULL = not wanted. */
    uint64_t (*on_tick)(void *arg, uint64_t now);
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
/* Somebody in this process waits without progress, for UNISONO_STALL at least: to be called every second while that is so. Takes no
 * lock. All ranks are asked, and what comes out is printed once a host and given to on_verdict. */
void watch_stalled(struct watch *watch);
/* ... and its deadline is near: what comes out now is given to on_verdict, not printed. What waits for stall_ns counts as stalled here. */
void watch_hurry(struct watch *watch, uint64_t stall_ns);
void watch_resumed(struct watch *watch); /* a wait that watch_stalled told of has ended well */
/* This process leaves in order: its end is not a death. Never blocks. Its own host learns it from the board or said_goodbye, other hosts from
 * net_proc_drain; here it ends the reports to on_dead and on_left, for who leaves waits for nobody. failed: a communicator had; then what is known of a death
 * is saved first, for a second at most. */
void watch_goodbye(struct watch *watch, bool failed);
/* Send what is queued, end the thread, free. Also for a watch that was never started; NULL is allowed. */
void watch_stop(struct watch *watch);
void watch_forked(struct watch *watch); /* in a forked child: close descriptors; every later call does nothing */
/* net's callbacks, handed to net_proc_new by join.c with a watch from watch_new as arg. Any thread. */
void watch_on_control(void *arg, int from, const void *data, size_t bytes);
void watch_on_down(void *arg, int from, enum net_down how, const char *text);
/* The calling thread is one of the library's own that live as long as the process (1), or not any more (-1): such threads keep no process
 * alive whose program has ended all of its own. */
void watch_own_thread(int change);
/* Start time of a process of this host in clock ticks, for watch_member; 0 = unknown. */
uint64_t watch_start_ticks(int32_t pid);

/* ---- who goes on after a failure (watch_shrink.c) ------------------------------------------------------------------
 * One agreement a communicator. What it says travels through the slates of the control regions inside a host, and from steward to
 * steward between hosts. The stewards answer whether the program has called or not; a rank that waits in shrink_run helps. */
struct shrinks;                    /* of one job and process */
struct shrink;                     /* one rank's part in one agreement */
struct shrinks_options {
    double timeout_s;              /* so long members have to call */
    /* Send to a process; may lose it. Called with the lock of shrinks held: must not call back. NULL without other hosts. */
    void (*tell)(void *arg, int process, const void *data, size_t bytes);
    /* Called by shrinks_tick and shrink_run, without locks: a rank has called; a decision is known, and this rank is not in it. */
    void (*on_called)(void *arg, uint64_t comm_id, int self, int rank);
    void (*on_excluded)(void *arg, uint64_t comm_id, int self);
    void *arg;
};
uno_err shrinks_new(const struct shrinks_options *opt, struct shrinks **shrinks);
/* Say on all slates that this process decides nothing any more. Never waits. */
void shrinks_goodbye(struct shrinks *shrinks);
void shrinks_free(struct shrinks *shrinks);                 /* says goodbye; NULL is allowed */
/* It has ended or left the job: proved, or only likely (its connections were closed), and then it is not waited for, but counts. */
void shrinks_gone(struct shrinks *shrinks, int process, bool proved);
void shrinks_message(struct shrinks *shrinks, int from_process, const void *data, size_t bytes);
uint64_t shrinks_tick(struct shrinks *shrinks, uint64_t now); /* for watch_options.on_tick */
/* A communicator is there. process: of each rank, copied. regions: by rank, NULL on other hosts; valid until shrink_remove. */
uno_err shrink_add(struct shrinks *shrinks, uint64_t comm_id, int rank, int size, const int *process, struct net_region **regions,
                   struct shrink **shrink);
/* The communicator goes. true: this rank may still have to answer, and the memory now belongs to shrinks: the own region's
 * segment, and regions and refs (arrays from malloc) with all that is mapped there. false: nothing is kept. NULL is allowed. */
bool shrink_remove(struct shrink *shrink, struct net_segment *segment, struct net_region **regions, struct net_segment_ref *refs);
/* Call, and wait for the decision. exclude: set of ranks (bit r % 8 of byte r / 8) that are not waited for, NULL = none. UNO_OK: this
 * rank goes on, see shrink_takes. UNO_ERR_EXCLUDED: the others go on. UNO_ERR_UNREACHABLE: no quorum answered within three
 * times timeout_s; shrink_silent tells who did not. UNO_ERR_ABORTED: *cancel became another number than at the beginning.
 * UNO_ERR_UNSUPPORTED: too many ranks. */
uno_err shrink_run(struct shrink *shrink, const unsigned char *exclude, const _Atomic int *cancel);
bool shrink_takes(const struct shrink *shrink, int rank);   /* after a decision: is that rank in the set? */
bool shrink_silent(struct shrink *shrink, int rank);        /* neither gone nor heard of lately */
void shrink_built(struct shrink *shrink);                   /* the new communicator is there, or never will be */

#endif
