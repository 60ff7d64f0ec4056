/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - what the files of this folder share: the communicator, its job, operations on their way. The meeting place of the
 * deciding side (planner) and the moving side (exec, net); no other folder sees it.
 *
 * Locks, in the order they may be taken:
 *   job.c's list of jobs; job->lock;
 *   comm->walk: its holder alone moves data and operations, its own and everybody else's, so others do not wait for it longer than
 *     for their own operation (engine_wait); the progress thread only tries it;
 *   comm->issue (short): the queue of issued operations, requests, own reductions;
 *   stream.c's lock (short): all streams and events of the process, for what stands in one often ends in another;
 *   comm->fail_lock (short): first cause, ranks that are gone; net_segment.c's and the progress thread's, under which nothing is taken.
 */
#ifndef UNO_COMM_H
#define UNO_COMM_H

#include <pthread.h>

#include "base/base.h"
#include "base/base_config.h"
#include "boot/boot.h"
#include "exec/exec.h"
#include "exec/exec_p2p.h"
#include "net/net.h"
#include "planner/planner.h"
#include "unisono_watch.h"
#include "watch/watch.h"

/* What came out of one joining: shared by the communicator it made and all that were split from it. */
struct job {
    int refs;
    pthread_mutex_t lock;         /* protects refs, comms */
    uint64_t id;
    int rank, size;               /* -1 when all ranks are in this process (init_all) */
    struct watch_member *members; /* size entries */
    int *host_of;                 /* size entries: host index */
    int nhosts;
    struct net_proc *net;         /* NULL when nothing needs sockets */
    struct net_link **links;      /* by process (= rank); NULL where not needed */
    struct watch *watch;          /* NULL for init_all */
    struct watch_board *board;    /* what this process shows of itself; NULL when it could not be made */
    struct shrinks *shrinks;      /* agreements on who goes on */
    struct uno_comm *comms;       /* alive, linked by next_in_job */
    /* The newest aborts of communicators that this process has not made yet, or has no more; under lock. */
    struct early_abort { uint64_t comm_id; uno_err code; int rank; char text[512]; } early[8];
    unsigned nearly;
    bool failed;                  /* a communicator had failed when the program ended; at_exit alone */
    _Atomic uint64_t said_gone;   /* the rank whose end was printed last as a first cause, + 1; relaxed */
    struct job *next;             /* all jobs of the process */
};

/* Waited for by trying again and again, since whoever has it may keep it for long. Costs one exchange to take and a plain store
 * to give back, which is what small operations need. */
struct walk_lock { _Atomic int held; };

/* What the buffers of a call must hold, and where recv is when it is in place (bytes behind send). */
struct extents { size_t send_bytes, recv_bytes; ptrdiff_t in_place; };
#define NEVER_IN_PLACE PTRDIFF_MAX

/* A request that was right, and all that follows from it. */
struct cached {
    struct request req;           /* counts are not kept: compared by plancache.c alone */
    struct extents extents;
    size_t misaligned;            /* bits that no address of a buffer has */
    struct exec_program *program;
    size_t run_bytes;             /* of its exec_op */
    bool small;
    struct ledger_fields fields;
    uint64_t hash;                /* of what all ranks must agree on */
};

/* Of calls without counts: v-forms are not asked about. */
static inline bool same_request(const struct request *a, const struct request *b)
{
    return a->coll == b->coll && a->type == b->type && a->op == b->op && a->root == b->root && a->count == b->count;
}

enum op_state { OP_NOTED = 0, OP_QUEUED, OP_RUNNING, OP_DONE };

/* One issued call. On the caller's stack for synchronous calls, else on the heap and freed by whoever sees it done. */
struct op {
    struct uno_comm *comm;
    struct request req;
    const size_t *recv_counts, *recv_displs; /* all-to-all-v's receive side */
    const void *send;
    void *recv;
    unsigned char scalar_copy[16];/* premulsum: this rank's scalar */
    const void *call_site;
    struct p2p_request *p2p;      /* a send or receive instead of a collective */
    struct uno_stream *stream;
    _Atomic int state;            /* enum op_state; DONE is a release store, last; pairs with op_done */
    uno_err err;
    const struct cached *cached;  /* the request is the last one of the communicator; NULL: to be looked up */
    bool walks;                   /* came in alone: its caller holds the walk lock from call_alone to call_leave */
    bool heap;                    /* freed when done; else on a stack, or in a thread's room for groups */
    bool group_owns_p2p;          /* p2p is this call's own: uno_send, uno_recv; copied with it */
    bool group_waits;             /* a group is waiting for it: the group frees it */
    size_t *arrays;               /* copies of the v forms' counts and displacements */
    uint64_t deadline_ns;         /* sends and receives in stream order */
    double timeout_s;             /* that it comes from */
    uint64_t group;               /* ops of one group have one number, 0 = none: on a stream they do not wait for each other */
    uint64_t order, issued_ns;    /* of calls that were queued or waited: order of issue in this process; 0 = not needed so far */
    struct op *next_in_comm, *next_in_group;
    char *text;                   /* the sentence of err, on the heap; NULL without one */
};
/* Field by field: clearing all of it first would take as long as the rest of a small call. */
static inline void op_init(struct op *op, struct uno_comm *comm, struct request req, const void *send, void *recv,
                           struct uno_stream *stream, const void *call_site)
{
    op->comm = comm;
    op->req = req;
    op->recv_counts = op->recv_displs = NULL;
    op->send = send;
    op->recv = recv;
    op->call_site = call_site;
    op->p2p = NULL;
    op->stream = stream;
    op->cached = NULL;
    atomic_init(&op->state, OP_NOTED);
    op->err = UNO_OK;
    op->walks = op->heap = op->group_owns_p2p = op->group_waits = false;
    op->arrays = NULL;
    op->deadline_ns = op->group = op->order = op->issued_ns = 0;
    op->next_in_comm = op->next_in_group = NULL;
    op->text = NULL;
}
static inline bool op_done(const struct op *op)
{
    return atomic_load_explicit(&op->state, memory_order_acquire) == OP_DONE;
}

/* finished: its last collective, if its ledger tells of any. since_ns: when it was noticed. */
struct gone_rank { int rank; bool finished_any; uint32_t finished; bool in_order, moves; uint64_t since_ns; char text[256]; };

enum shrink_state { SHRINK_NO = 0, SHRINK_CALLED, SHRINK_DONE };

struct premulsum { bool used; uno_type type; unsigned char scalar[16]; };

struct uno_comm {
    uint32_t magic;
    uint32_t fork_generation;     /* differs in a forked child */
    int rank, size;
    char name[64];
    struct config cfg;
    struct job *job;
    uno_comm *next_in_job;
    int *job_rank;                /* job rank of each rank */
    int *host_of;
    int nhosts;
    uint64_t id;                  /* equal on all ranks */
    uint32_t children;            /* communicators split from this one, equal on all ranks */

    struct net_segment *segment;  /* own region's memory */
    struct net_region *region;
    struct net_region **regions;  /* by rank, NULL on other hosts */
    struct net_segment_ref *region_refs;
    struct net_peer *peers;
    struct net_comm *net;
    struct planner *planner;
    struct plancache *cache;
    const struct cached *last;    /* found last by plancache_get; under walk */
    struct op again;              /* the call that made `last`, if it is small and on one host; else its `cached` is NULL; under walk */
    bool lent;                    /* request.lent of the next all_reduce of two ranks; under walk */
    struct topo_costs costs;      /* of its job, equal on all ranks */
    struct exec_env env;
    struct p2p *p2p;
    struct shrink *shrink;        /* this rank's part in the agreement on who goes on */
    uint32_t epoch;               /* how often its ancestors were shrunk */

    struct walk_lock walk;
    _Atomic uint64_t timeout_ns;  /* of what begins now; UINT64_MAX: none; relaxed */
    /* under walk */
    uint32_t number;              /* of the last started collective */
    uint64_t chain;               /* chained signature */
    struct op *current;           /* running collective, or NULL */
    struct exec_op *run;          /* its state */
    uint64_t started_ns;          /* when the last one began, for a clock of milliseconds */
    size_t run_bytes;
    struct op *p2p_running;       /* sends and receives in stream order that p2p works on */
    struct ledger_event *event;   /* its ledger event; NULL until it has begun */
    struct ledger_notes *notes;   /* what stands beside it in the region */
    _Atomic uintptr_t site;       /* the place a binding named, for call_site_of; 0 = none; relaxed */
    int p2p_waited;               /* so many of them */
    bool draining;                /* finalizing: the program waits for all of them; under the walk lock */
    uint64_t p2p_noted_ns;        /* when the ledger last learned for which requests somebody waits */
    uint32_t look_number;         /* operation whose waiters look into ledgers, and when they do so next */
    uint64_t look_ns;
    uint32_t ask_number;          /* the same for questions to other hosts, see fail_ask */
    uint64_t ask_ns, ask_step_ns;
    struct suspect { int rank; uint32_t number; } gone_suspect, left_suspect, mover_suspect; /* see missed_twice; rank -1: nobody */
    struct stall {                /* see stall_look */
        uint64_t marker, since_ns;    /* nothing has moved since then */
        uint64_t look_ns, say_ns;     /* not before */
        bool waits, said;
        bool asked;                   /* a verdict on this wait may be there */
        uint64_t hurried_ns;          /* the deadline for which it was asked for */
        uint64_t until_ns;            /* so long the holder of the walk lock waits for a request, or for all */
    } stall;
    uint64_t small_operations, tiled_operations;

    pthread_mutex_t issue;
    struct op *queue_head, *queue_tail; /* issued, not started; under issue */
    uint64_t stands_order, stands_note_ns; /* the head's, once its stream did not let it begin; when that is noted. Under issue */
    _Atomic int queued;                 /* how many; relaxed peek outside the lock */
    _Atomic int active;                 /* calls inside; destroy waits for 0 */
    _Atomic int finalized;              /* set, then active is looked at; enter does it the other way round */
    _Atomic int ready;            /* assembled: the progress thread may move it; release store, pairs with jobs_snapshot */

    _Atomic int shrinking;        /* enum shrink_state */
    _Atomic int aborts;           /* uno_comm_abort and destroy were called so often; a waiting shrink ends */
    _Atomic int failed;           /* uno_err of the first cause; release, after fail_text */
    _Atomic int attention;        /* look() must look: something was set by another thread */
    pthread_mutex_t fail_lock;
    char fail_text[ERR_TEXT_BYTES];
    char last_error[ERR_TEXT_BYTES];
    char *verdict;                /* the last one; under fail_lock, as verdict_ns: when it came */
    uint64_t verdict_ns;
    struct gone_rank *gone;       /* under fail_lock; ngone is a release store */
    _Atomic int ngone;
    struct gone_rank *movers;     /* ranks that have called uno_comm_shrink; as gone */
    _Atomic int nmovers;
    struct uno_request *requests; /* not released yet; under issue */
    _Atomic int nrequests;        /* of them; relaxed */
    struct premulsum **ops;       /* under issue */
    size_t nops, cap_ops;
};
#define COMM_MAGIC 0x756e6f63u

/* Where a call stands: the place that a binding has named, else the return address. */
static inline const void *call_site_of(const uno_comm *comm, const void *address)
{
    uintptr_t named = atomic_load_explicit(&comm->site, memory_order_relaxed);
    return __builtin_expect(named != 0, 0) ? (const void *)named : address;
}

/* ---- engine.c, engine_wait.c, engine_drain.c, progress.c: operations move ---------------------------------------------- */
static inline bool walk_try(uno_comm *comm)
{
    return atomic_load_explicit(&comm->walk.held, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&comm->walk.held, 1, memory_order_acquire) == 0; /* pairs with the release in walk_leave */
}
static inline void walk_leave(uno_comm *comm)
{
    atomic_store_explicit(&comm->walk.held, 0, memory_order_release); /* pairs with the acquire in walk_try */
}
void walk_wait(uno_comm *comm);          /* until walk_try succeeds */
/* Run a call that has entered (call_enter): to its end here, or note a copy in the open group, or queue a copy on its stream.
 * `call` is filled by comm.c, on its stack. */
uno_err engine_issue(struct op *call);
/* Walk lock held, nothing was issued before: the call in comm->again once more, to its end, with these buffers. */
uno_err engine_again(uno_comm *comm, const void *send, void *recv, const void *call_site);
/* The same of a send or receive: to its end. */
uno_err engine_p2p(uno_comm *comm, struct p2p_request *request);
/* One round over a communicator (walk lock held): start what may start, move what runs. */
void engine_step(uno_comm *comm, bool *moved);
/* Walk lock held. UNO_ERR_IN_PROGRESS when the deadline, or a signal that is asked for, comes first. */
uno_err engine_walk_until(uno_comm *comm, bool (*done)(void *arg), void *arg, uint64_t deadline_ns, bool ask);
bool engine_call_done(void *op);         /* for `done`: a call that can be given up to a signal */
/* Progress until done(arg), which is asked with and without the walk lock. UNO_ERR_IN_PROGRESS when the deadline comes first. */
uno_err engine_wait(uno_comm *comm, bool (*done)(void *arg), void *arg, uint64_t deadline_ns);
/* The same for conditions that only the holder of the walk lock may look at; their argument is the communicator. */
uno_err engine_wait_alone(uno_comm *comm, bool (*done)(void *arg), uint64_t deadline_ns);
/* Move several communicators until all operations of the list (next_in_group) are done. */
void engine_wait_group(struct op *first);
/* A group of nothing but sends and receives of one communicator at rest: issued, and moved for a moment, without a queue. false: the
 * usual way. Afterwards those that are not done are waited for as any group's. */
bool engine_group_p2p(struct op *first);
uno_err engine_queue(struct op *op);     /* append to its communicator (and stream); UNO_ERR_MEMORY: nothing was done */
/* A call that the other ranks make, too, could not be copied or queued: with UNO_ERR_MEMORY the communicator fails, so that nobody
 * waits for it. Returns what the caller shall return; its sentence is the thread's. */
uno_err engine_not_issued(uno_comm *comm, const char *what, uno_err err);
static inline const char *p2p_word(const struct p2p_request *r) { return r->send ? "a send" : "a receive"; }
static inline const char *op_word(const struct op *op) { return op->p2p ? p2p_word(op->p2p) : coll_name(op->req.coll); }
void engine_kick(void);                  /* wake, or start, the progress thread */
bool engine_is_progress(void);           /* is this the progress thread? */
void engine_forked(void);                /* in a forked child: it has no progress thread yet */
void op_free(struct op *op);
uno_err engine_copy_call(const struct op *call, struct op **copy); /* on the heap, with the arrays */
uno_err engine_drain(uno_comm *comm);    /* until everything issued is done, and can be read when we are gone */
uno_err engine_settle(uno_comm *comm, double seconds); /* the same for shrink; UNO_ERR_IN_PROGRESS when it takes longer */
bool engine_busy(uno_comm *comm);        /* are calls issued that have not ended? Requests do not count */
bool engine_seen(void *comm);            /* nobody must still map memory of ours to read what was sent */
void engine_wait_unused(uno_comm *comm); /* until nobody is inside (active == 0) */
void engine_look_now(uno_comm *comm);    /* walk lock held: fail what must fail */
void engine_fail_all(uno_comm *comm);    /* failed communicator: everything issued ends with its cause, whatever the streams say */
uno_err engine_look(void *comm, uint32_t number, uint64_t deadline_ns);
/* Fail the communicator with the sentence `text`; the first cause wins. spread: tell the other ranks. Returns the first cause. */
uno_err comm_fail(uno_comm *comm, uno_err code, int culprit, bool spread, const char *text);
/* The first cause, or UNO_OK. Sets the thread's sentence. */
uno_err comm_cause(uno_comm *comm);
/* As comm_cause, and takes up what another rank of this host left for us. Any thread. */
uno_err comm_adopt(uno_comm *comm);
/* Walk lock held, the current collective met another one: say what the two ranks called, where their ledgers tell. */
void fail_explain_mismatch(uno_comm *comm);
void fail_look_back(uno_comm *comm);  /* who ends: did all ranks of this host whose calls went as far make the same ones? Fails comm if not */
uno_err fail_adopt_mark(uno_comm *comm); /* a first cause that another rank of this host has left in our region becomes ours; UNO_OK: there is none */
/* fail_calls.c. One sentence from two events of one number with different signatures: own and that of rank `peer`. */
/* told: what a peer on another host said beside its events; NULL where its region can be read. */
struct fail_told {
    const uint64_t *passed; /* the counts per rank that it passes in this operation; NULL = not known */
    const char *site;       /* where that operation stands in its program; "" = not known */
};
uno_err fail_say_mismatch(const uno_comm *comm, int peer, uint32_t number, const struct ledger_event *own, const struct ledger_event *theirs,
                          const struct fail_told *told);
/* The next operation is a v-form with these counts: kept where other ranks find them should they disagree. */
void fail_passed_write(uno_comm *comm, const size_t *counts);
bool fail_passed_read(const uno_comm *comm, int rank, uint32_t number, uint64_t *counts); /* false: not those of this operation */

/* ---- fail_ask.c: mismatches between hosts ------------------------------------------------------------------------------- */
/* Walk lock held, operation `number` waits: from time to time send the awaited rank of another host what we call. Never blocks. */
void fail_ask(uno_comm *comm, uint32_t number, uint64_t now);
/* Send it to all of them, and wait a moment for the answer, which fails the communicator. */
void fail_ask_everyone(uno_comm *comm, uint32_t number);
void fail_asked(struct job *job, int from_process, const void *data, size_t bytes); /* the answering side; steward's thread */

/* There is no way to a rank (sentence set): if it is known to be gone, that is the reason. Returns the code to fail with. */
uno_err fail_explain_unreachable(uno_comm *comm);
/* A rank took back what it had lent (sentence set): its operation has failed, and why it tells everybody in a moment. */
uno_err fail_explain_withdrawn(uno_comm *comm);
void comm_keep_error(uno_comm *comm);  /* the thread's sentence becomes the communicator's last error */
void comm_rank_gone(uno_comm *comm, int rank, bool in_order, const char *text);
/* What is known of a rank's end; rank -1: of the first one that ended. NULL = it is not known to have ended. */
const struct gone_rank *comm_gone_rank(const uno_comm *comm, int rank);
/* Is the handle a communicator of this process? */
uno_err comm_check(const uno_comm *comm);
/* That rank has called uno_comm_shrink: it issues nothing any more, and what needs it will not be. */
void comm_rank_moves(uno_comm *comm, int rank);
/* Leave the first cause with all other ranks of this host that have none. true: also with the lowest one; who does that prints it, when all are told. */
bool comm_tell_host(uno_comm *comm, uno_err code, int culprit, const char *text);
/* A first cause that this rank was told of. Returns it. */
uno_err comm_told(uno_comm *comm, uno_err code, int culprit, const char *text);
/* After a shrink: those left out need not wait for the others any more. elsewhere: also those of other hosts. */
void comm_tell_excluded(uno_comm *comm, bool (*excluded)(const uno_comm *comm, int rank), bool elsewhere);
/* A communicator made from another one: ends that were noticed before it was ready. */
void comm_inherit_gone(uno_comm *parent, uno_comm *child);
/* "rank 3 (pid 12 on hostB)" */
void comm_rank_name(const uno_comm *comm, int rank, char *buf, size_t buf_bytes);
/* Is the handle usable for calls now? Counts the call in; comm_leave counts it out and keeps the sentence on error. */
uno_err comm_enter(uno_comm *comm);
uno_err comm_enter_failed(uno_comm *comm);   /* also when it has failed */
uno_err comm_usable(uno_comm *comm);         /* the same of one that comm_check has passed, without counting */
uno_err comm_leave(uno_comm *comm, uno_err err);

/* ---- note.c: what the ledger says beside its events ---------------------------------------------------------------------- */
void note_made(uno_comm *comm);                      /* the communicator is whole: say whose region it is */
void note_wait(uno_comm *comm, uint64_t now);        /* walk lock held, somebody waits: for whom and since when, now and then */
void note_waited(uno_comm *comm);                     /* walk lock held, an operation that somebody looked at ends */
void note_issued(struct op *op);                     /* it goes into the queue */
void note_making(uno_comm *comm, enum ledger_makes kind, uint64_t id, const uint64_t *set); /* a call that makes a communicator of it begins: set of ranks */
void note_making_ends(uno_comm *comm);
void note_queue(uno_comm *comm);                     /* issue lock held, the queue has changed */
void note_not_ready(uno_comm *comm, struct op *head); /* issue lock held, its stream does not let the queue's first call begin */

void note_board(struct job *job, const struct config *cfg); /* make the job's board; without one the job works, and it is said */

/* ---- stall.c: what is going on? --------------------------------------------------------------------------------------------- */
void stall_look(uno_comm *comm, uint64_t now, uint64_t deadline_ns); /* walk lock held, something waits: has anything moved? deadline_ns: c->current's */
void stall_over(uno_comm *comm, bool well);          /* walk lock held, stall.said: the wait has ended */
void stall_verdict(uno_comm *comm, const char *text);/* any thread; NULL: things go on */
bool stall_reason(uno_comm *comm, char *buf, size_t buf_bytes); /* walk lock held: the verdict on the wait that goes on now */

/* ---- interrupt.c: a language binding's signals ------------------------------------------------------------------------------ */
extern _Atomic int interrupts;           /* is there anybody to ask? relaxed */
/* Does somebody want this thread back? Asked at most every 100 ms: *next_ns, 0 at first, is when. */
bool interrupt_asked(uint64_t *next_ns);
uno_err interrupt_check(void);            /* UNO_ERR_USAGE in the callback: the call would wait for itself */
bool interrupt_taken(void);              /* this thread's last engine_wait ended so */
void interrupt_take(bool taken);

/* ---- small answers, inline ---------------------------------------------------------------------------------------------- */
extern _Atomic uint32_t process_forks;               /* forks this process is the child of; written where there is one thread */
static inline uint32_t fork_generation(void) { return atomic_load_explicit(&process_forks, memory_order_relaxed); }
extern _Atomic int groups_open;          /* by any thread; relaxed: a thread sees its own */
bool group_open_here(void);
static inline uint64_t comm_deadline_ns(const uno_comm *c, uint64_t now)
{
    uint64_t timeout = atomic_load_explicit(&c->timeout_ns, memory_order_relaxed);
    return timeout == UINT64_MAX ? UINT64_MAX : now + timeout;
}
static inline void comm_timeout_set(uno_comm *c, double s)
{
    atomic_store_explicit(&c->timeout_ns, s > 1e9 ? UINT64_MAX : (uint64_t)(s * 1e9), memory_order_relaxed);
}
static inline double comm_timeout_s(const uno_comm *c) { return (double)atomic_load_explicit(&c->timeout_ns, memory_order_relaxed) * 1e-9; }
static inline bool group_open(void) { return atomic_load_explicit(&groups_open, memory_order_relaxed) != 0 && group_open_here(); }

/* ---- the way in and out of a call that may run at once ------------------------------------------------------------------- */
/* Walk lock held: does nothing stand against running a call? What does, comm_enter or the queue says. */
static inline bool walk_clear(uno_comm *c)
{
    return !c->current && atomic_load_explicit(&c->queued, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&c->finalized, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&c->failed, memory_order_relaxed) == UNO_OK &&
           atomic_load_explicit(&c->region->abort_code, memory_order_relaxed) == 0;
}
/* A call that is the only one takes the walk lock and keeps it until call_leave. That counts it in: who destroys takes the lock
 * after setting finalized. Any other call is counted by comm_enter. */
static inline bool call_alone(uno_comm *c, const struct uno_stream *stream)
{
    if (__builtin_expect(!c || c->magic != COMM_MAGIC || c->fork_generation != fork_generation() || stream || group_open() ||
                         !walk_try(c), 0))
        return false;
    if (__builtin_expect(walk_clear(c), 1))
        return true;
    walk_leave(c);
    return false;
}
static inline uno_err call_enter(struct op *call)
{
    call->walks = call_alone(call->comm, call->stream);
    if (__builtin_expect(!call->walks, 0))
        TRY(comm_enter(call->comm));
    call->call_site = call_site_of(call->comm, call->call_site);
    return UNO_OK;
}
static inline uno_err call_leave(struct op *call, uno_err err)
{
    if (!call->walks)
        return comm_leave(call->comm, err);
    if (__builtin_expect(err != UNO_OK, 0))
        comm_keep_error(call->comm);
    walk_leave(call->comm);
    return err;
}

/* ---- job.c: jobs and communicators of this process ------------------------------------------------------------- */
void job_add(struct job *job);                       /* into the process's list; refs = 0 */
void job_attach(struct job *job, uno_comm *comm);    /* refs++ */
void job_unlist(uno_comm *comm);                     /* jobs_snapshot finds it no more */
void job_detach(uno_comm *comm);                     /* refs--; the last one drops the job */
void job_drop(struct job *job);                      /* nobody uses it: say goodbye and free */
/* All communicators alive in this process, each held (active++) until comm_release. Returns how many there are; with more than
 * cap only cap are stored and held. */
size_t jobs_snapshot(uno_comm **comms, size_t cap);
void comm_hold(uno_comm *comm); /* under its job's lock, while it is listed */
void comm_release(uno_comm *comm);
uno_comm *job_find(struct job *job, uint64_t comm_id); /* held, or NULL */
void job_abort_early(uno_comm *comm);                 /* it is ready: fail it if somebody gave it up before */
uno_comm *job_find_rank(struct job *job, uint64_t comm_id, int rank);
bool job_knows(const uno_comm *comm);                /* alive in this process? Does not look into it */

/* ---- plancache.c: request -> program --------------------------------------------------------------------------- */
uno_err plancache_new(struct plancache **cache);
void plancache_free(struct plancache *cache);
/* Walk lock held. *found is also comm->last and stays valid until the next call. */
uno_err plancache_get(uno_comm *comm, const struct request *req, const struct request *recv_req, const struct cached **found);

/* ---- comm.c --------------------------------------------------------------------------------------------------------- */
struct extents call_extents(const uno_comm *comm, const struct request *req); /* all collectives but the v forms */
/* An all_gather of bytes that is no call of the program's: it fits no other rank's uno_all_gather, and is named comm_split. */
uno_err comm_split_gather(uno_comm *comm, const void *mine, void *all, size_t bytes, const void *call_site);

/* ---- job_events.c: what is heard of processes, told to communicators ------------------------------------------------------ */
uno_err job_watch(uno_comm *comm);                   /* start the steward of its job */
void job_watch_if_possible(uno_comm *comm);           /* where no other process is watched: without a steward all works, and nothing is said */
void job_on_control(void *job, int from, const void *data, size_t bytes);                   /* net's callbacks */
void job_on_down(void *job, int from, enum net_down how, const char *text);

/* ---- join.c, join_local.c, split.c -------------------------------------------------------------------------------- */
struct topo_costs join_costs(const struct config *cfg); /* of this machine; a calibration that is not followed is said once a process */
uno_err join_id(uno_comm **comm, int nranks, const uno_id *id, int rank, const uno_config *config);
uno_err join_env(uno_comm **comm, const uno_config *config);
uno_err join_all(uno_comm **comms, int n, const uno_config *config);
/* As join_all; on failure comms holds what was made so far. */
uno_err join_local(uno_comm **comms, int n, const struct config *cfg, const char *name);
uno_err comm_child_config(const uno_comm *parent, const uno_config *config, struct config *cfg);
uno_err join_split(uno_comm *parent, int color, int key, const uno_config *config, const void *call_site, uno_comm **newcomm);
uno_err join_create_group(uno_comm *parent, const int *ranks, int n, const uno_id *id, const uno_config *config, uno_comm **newcomm);

/* ---- shrink.c ------------------------------------------------------------------------------------------------------------ */
uno_err shrink_new_job(struct job *job, const struct config *cfg);
uno_err comm_shrink(uno_comm *comm, const int *exclude, int nexclude, const uno_config *config, uno_comm **newcomm);

/* ---- assemble.c --------------------------------------------------------------------------------------------------------- */
void comm_free(uno_comm *comm);
/* Common end of all ways to join: peers, hosts and regions are known. */
uno_err comm_assemble(uno_comm *comm); /* its costs are set */
uno_err comm_map_region(uno_comm *comm, int rank); /* from region_refs, checked before it is believed */
uno_err comm_alloc(int rank, int size, const struct config *cfg, const char *name, uno_comm **comm);

/* ---- request.c ------------------------------------------------------------------------------------------------------- */
uno_err request_start(uno_comm *comm, const struct p2p_request *what, uno_request **request);
void requests_orphan(uno_comm *comm);    /* the communicator goes: requests that nobody waited for stay with their owners */
/* Before this thread waits: whom it waits for may need requests of others than comm (or NULL) first, so the progress thread moves them.
 * false: there are none that nobody has waited for. */
bool requests_go_on(const uno_comm *comm);
uno_err ops_add(uno_comm *comm, const void *scalar, uno_type type, uno_op *op);
uno_err ops_remove(uno_comm *comm, uno_op op);
void ops_free(uno_comm *comm);

/* ---- group.c ---------------------------------------------------------------------------------------------------------- */
void group_note(struct op *op);          /* takes op over */
struct group_call { struct op op; struct p2p_request p2p; };
struct group_call *group_room(void);     /* for a send or receive that the end of the open group waits for, as it is; NULL: take memory */
bool group_holds(const uno_comm *comm);  /* are calls of this communicator noted in the open group? */
struct group_join { uno_comm **comm; int nranks, rank; uno_id id; uno_config config; };
uno_err group_note_join(const struct group_join *join);

/* ---- stream.c --------------------------------------------------------------------------------------------------------- */
/* May op start, as far as its stream is concerned? */
bool stream_ready(struct op *op);
/* It is not ready: the operation that has to end first, in its stream, or (*by_event) in another one before an event that its stream waits
 * for. tell is called with it while nothing changes; not at all when it is ready by now. */
void stream_before(struct op *op, void (*tell)(void *arg, const struct op *before, bool by_event), void *arg);
int32_t stream_waiter(void);             /* a thread that waits in uno_stream_synchronize or uno_event_synchronize; 0 = none */
uno_err stream_append(struct op *op);
void stream_op_done(struct op *op, uno_err err);
void streams_forked(void);               /* in a forked child */

#endif
