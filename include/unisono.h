/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unisono.h - communicators, collectives, point-to-point, streams, errors.
 *
 * The shape is NCCL's, for host memory. Every function that returns uno_err returns
 * UNO_OK (0) or a code whose sentence uno_last_error() gives. Unless a function says
 * otherwise it may be called from any thread, and it blocks until it is done.
 *
 * Lifetime of buffers: with stream NULL the call returns when the operation is done on this
 * rank, and the buffers are yours again. With a stream the call returns at once; the
 * buffers belong to the library until the stream has passed the operation.
 *
 * Counts are in elements of `type`. A count of 0 is legal, takes part in ordering and moves nothing;
 * buffers may then be NULL. Others must be aligned to their element (complex: to its part), else UNO_ERR_ARG.
 */
#ifndef UNISONO_H
#define UNISONO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNO_VERSION_MAJOR 0
#define UNO_VERSION_MINOR 1
#define UNO_VERSION_PATCH 0
#define UNO_VERSION (UNO_VERSION_MAJOR * 10000 + UNO_VERSION_MINOR * 100 + UNO_VERSION_PATCH)

#if defined(__GNUC__)
#define UNO_API __attribute__((visibility("default")))
#define UNO_MUST_CHECK __attribute__((warn_unused_result))
#else
#define UNO_API
#define UNO_MUST_CHECK
#endif

/* ---- errors ------------------------------------------------------------------------------ */

/* Grouped by what is lost: the call (1-19), a peer (20-29), the communicator (30-39), the process (40-49). */
typedef enum uno_err {
    UNO_OK = 0,
    /* the call: nothing was sent, the communicator goes on */
    UNO_ERR_ARG = 1,         /* an argument is illegal; the sentence names it */
    UNO_ERR_TYPE = 2,        /* this operation is not defined for this type */
    UNO_ERR_USAGE = 3,       /* legal arguments, wrong moment (after finalize, in a forked child, ...) */
    UNO_ERR_CONFIG = 4,      /* a setting has a value that is not legal */
    UNO_ERR_PARSE = 5,       /* a file or text is not what it should be */
    UNO_ERR_PLAN = 6,        /* a plan was refuted */
    UNO_ERR_UNSUPPORTED = 7, /* known, but not offered here; the sentence says by what */
    UNO_ERR_TRUNCATED = 8,   /* a message was longer than the receive buffer */
    UNO_ERR_IN_PROGRESS = 9, /* not finished yet (uno_test, uno_stream_query, ...) */
    /* a peer */
    UNO_ERR_PEER_DEAD = 20,    /* a rank ended while others needed it */
    UNO_ERR_UNREACHABLE = 21,  /* no path to a rank */
    UNO_ERR_MISMATCH = 22,     /* ranks made calls that do not fit together */
    UNO_ERR_TIMEOUT = 23,      /* a deadline passed; the sentence says who was waited for */
    UNO_ERR_AUTH = 24,         /* wrong or missing secret */
    /* the communicator */
    UNO_ERR_ABORTED = 30,  /* uno_comm_abort was called here or on another rank */
    UNO_ERR_EXCLUDED = 31, /* the others went on without this rank */
    /* the process */
    UNO_ERR_MEMORY = 40,   /* no memory */
    UNO_ERR_SYSTEM = 41,   /* a system call failed; the sentence names it */
    UNO_ERR_INTERNAL = 42  /* a fault of this library */
} uno_err;

/* ---- types -------------------------------------------------------------------------------- */

/* The first twelve have NCCL's numbers. */
typedef enum uno_type {
    UNO_INT8 = 0,
    UNO_UINT8 = 1,
    UNO_INT32 = 2,
    UNO_UINT32 = 3,
    UNO_INT64 = 4,
    UNO_UINT64 = 5,
    UNO_FLOAT16 = 6,
    UNO_FLOAT32 = 7,
    UNO_FLOAT64 = 8,
    UNO_BFLOAT16 = 9,
    UNO_FLOAT8E4M3 = 10, /* OCP e4m3 (no infinities) */
    UNO_FLOAT8E5M2 = 11, /* OCP e5m2 */
    UNO_BOOL = 12,       /* one byte, any non-zero value is true */
    UNO_INT16 = 13,
    UNO_UINT16 = 14,
    UNO_COMPLEX64 = 15,  /* two float32 */
    UNO_COMPLEX128 = 16, /* two float64 */
    UNO_TYPE_COUNT = 17
} uno_type;

/* The first five have NCCL's numbers. Values from UNO_OP_DYNAMIC up come from uno_op_create_premulsum(). */
typedef enum uno_op {
    UNO_SUM = 0,
    UNO_PROD = 1,
    UNO_MAX = 2,
    UNO_MIN = 3,
    UNO_AVG = 4,
    UNO_BAND = 5,
    UNO_BOR = 6,
    UNO_BXOR = 7,
    UNO_OP_COUNT = 8,
    UNO_OP_DYNAMIC = 64,
    UNO_OP_MAX = 0x7fffffff
} uno_op;

typedef enum uno_coll {
    UNO_ALL_REDUCE = 0,
    UNO_BROADCAST,
    UNO_REDUCE,
    UNO_ALL_GATHER,
    UNO_REDUCE_SCATTER,
    UNO_ALL_TO_ALL,
    UNO_GATHER,
    UNO_SCATTER,
    UNO_BARRIER,
    UNO_ALL_GATHER_V,
    UNO_REDUCE_SCATTER_V,
    UNO_ALL_TO_ALL_V,
    UNO_COLL_COUNT
} uno_coll;

#define UNO_ANY (-1)        /* any source, in uno_irecv */
#define UNO_NO_COLOR (-1)   /* this rank joins no new communicator, in uno_comm_split */
#define UNO_ID_BYTES 128

typedef struct uno_comm uno_comm;
typedef struct uno_stream uno_stream;
typedef struct uno_event uno_event;
typedef struct uno_request uno_request;
typedef struct uno_id {
    unsigned char bytes[UNO_ID_BYTES]; /* contains a secret: keep it as private as the job */
} uno_id;

/* Undefined fields mean "default". Initialise with UNO_CONFIG_INIT. A UNISONO_ setting wins over a field,
 * a field over NCCL_ and RCCL_ names. */
typedef struct uno_config {
    size_t size;         /* sizeof(uno_config) */
    unsigned magic;      /* UNO_CONFIG_MAGIC */
    unsigned version;    /* UNO_VERSION */
    double timeout_s;    /* deadline of one operation, seconds; < 0 = default (1800) */
    double join_timeout_s; /* deadline for joining, seconds; < 0 = default (120) */
    const char *name;    /* label in messages; NULL = none. Copied. */
} uno_config;
#define UNO_CONFIG_MAGIC 0x756e6f31u
#define UNO_CONFIG_INIT { sizeof(uno_config), UNO_CONFIG_MAGIC, UNO_VERSION, -1.0, -1.0, NULL }

/* ---- version and errors --------------------------------------------------------------------- */

/* Return the version of the loaded library, major*10000 + minor*100 + patch. Never fails. */
UNO_API int uno_version(void);
/* Return the name of an error code as a static string ("UNO_ERR_TIMEOUT"). Never fails. */
UNO_API const char *uno_err_name(uno_err err);
/* Return the sentence of the last error of `comm` on this rank, or, with NULL, of the calling thread.
 * The string is this thread's and lives until its next failing call, or its fourth next question; never NULL. */
UNO_API const char *uno_last_error(const uno_comm *comm);
/* Return the size of one element in bytes, 0 for an unknown type. */
UNO_API size_t uno_type_bytes(uno_type type);
/* Return UNO_OK if `op` is defined for `type`, UNO_ERR_TYPE if it is known not to be, UNO_ERR_ARG for unknown values. */
UNO_API uno_err uno_op_check(uno_op op, uno_type type) UNO_MUST_CHECK;

/* ---- communicators ------------------------------------------------------------------------------ */

/* Make an id on one rank; give it to all ranks of the new communicator by any means, then every one
 * calls uno_comm_init_rank. The calling process serves the joining until the communicator stands or the
 * join deadline passes. UNO_ERR_SYSTEM if no address can be bound. */
UNO_API uno_err uno_get_id(uno_id *id) UNO_MUST_CHECK;
/* Join as `rank` of `nranks`. Collective; blocks until all are there or the join deadline passes
 * (UNO_ERR_TIMEOUT names the missing ranks). Inside a group the call is only noted, and uno_group_end joins.
 * comm: out, owned by the caller, released with uno_comm_destroy. */
UNO_API uno_err uno_comm_init_rank(uno_comm **comm, int nranks, const uno_id *id, int rank,
                                   const uno_config *config) UNO_MUST_CHECK;
/* Join with rank, size and address from the environment: unisono run, torchrun, Slurm, Open MPI, MPICH, PMIx,
 * or UNISONO_RANK/SIZE/ADDR/FILE. Without any of these the communicator has one rank. */
UNO_API uno_err uno_comm_init_env(uno_comm **comm, const uno_config *config) UNO_MUST_CHECK;
/* Make a communicator of `n` ranks inside this process, to be driven by threads or in groups. comms: out, array of n. */
UNO_API uno_err uno_comm_init_all(uno_comm **comms, int n, const uno_config *config) UNO_MUST_CHECK;
/* Split: ranks with one colour form a new communicator ordered by (key, old rank). Collective over `comm`.
 * color UNO_NO_COLOR gives *newcomm = NULL. config NULL = the parent's. Not inside a group: UNO_ERR_USAGE. */
UNO_API uno_err uno_comm_split(uno_comm *comm, int color, int key, uno_comm **newcomm,
                               const uno_config *config) UNO_MUST_CHECK;
/* Duplicate: a new communicator with the same ranks and nothing shared. Collective over `comm`, not inside a group. */
UNO_API uno_err uno_comm_dup(uno_comm *comm, uno_comm **newcomm, const uno_config *config) UNO_MUST_CHECK;
/* Make a communicator of some ranks of `comm`; only they call (as MPI_Comm_create_group). It belongs to the job of `comm`: a verdict sees
 * waits across both, and who ends is known to both. ranks: in, nranks ranks of `comm`, alike on all callers, the caller among them; the
 * i-th becomes rank i. id: in, made anew by one member with uno_get_id and given to the others by any means. Blocks until all
 * members are there or the join deadline passes. `comm` may have failed, and may be used, aborted or destroyed afterwards: the new one lives
 * on its own. config NULL = the parent's. *newcomm: out, owned by the caller. Not inside a group.
 * UNO_ERR_TIMEOUT names the members that have not come; UNO_ERR_PEER_DEAD: one has ended; UNO_ERR_MISMATCH: members pass different lists;
 * UNO_ERR_ABORTED: `comm` was aborted or destroyed in another thread here; UNO_ERR_ARG, UNO_ERR_USAGE, UNO_ERR_CONFIG, UNO_ERR_AUTH,
 * UNO_ERR_MEMORY, UNO_ERR_SYSTEM. Nothing of `comm` is changed by a failure. */
UNO_API uno_err uno_comm_create_group(uno_comm *comm, const int *ranks, int nranks, const uno_id *id, uno_comm **newcomm,
                                      const uno_config *config) UNO_MUST_CHECK;
/* Go on without the ranks that are gone. Called by those that want to go on, on a communicator that has failed (a dead rank, a
 * timeout, a mismatch, an abort) or has not; what is still issued here then ends first, or is given up after
 * UNISONO_SHRINK_TIMEOUT (10 s). The callers agree on one set, which is the same on all of them: who lives and has called;
 * members that live and have not called after UNISONO_SHRINK_TIMEOUT are left out. *newcomm gets these ranks in their old order,
 * numbered from 0, with memory and connections of its own. If one of them has died meanwhile the call succeeds and the
 * new communicator fails at once, or at its first operation that needs it: shrink it again. The old communicator can only be
 * destroyed afterwards.
 * exclude: nexclude ranks that are left out and not waited for, NULL = none; callers pass the same. config: NULL = the parent's.
 * A set needs an answer of every member that is not known to be dead, or of more than half of all members, or of exactly
 * half with rank 0: of two ranks that cannot reach each other rank 0 may go on and rank 1 may not. That a process has ended is
 * known from its own host; connections that were closed do not prove it.
 * Blocks at most three times UNISONO_SHRINK_TIMEOUT, the end of issued operations, and the making of the new one. Errors, with
 * *newcomm NULL: UNO_ERR_EXCLUDED: the others go on without this rank. UNO_ERR_UNREACHABLE: no such quorum answered; the sentence
 * says who did not, and the call may be repeated. UNO_ERR_ABORTED: uno_comm_abort or uno_comm_destroy in another thread here.
 * UNO_ERR_ARG, UNO_ERR_USAGE, UNO_ERR_CONFIG, UNO_ERR_MEMORY, UNO_ERR_SYSTEM. */
UNO_API uno_err uno_comm_shrink(uno_comm *comm, const int *exclude, int nexclude, uno_comm **newcomm,
                                const uno_config *config) UNO_MUST_CHECK;
/* Finish everything issued here and say goodbye: afterwards only uno_comm_destroy, uno_last_error and queries are legal.
 * Blocks until this rank's operations are done or have failed, and up to 1 s until the ranks of this host that need what it has
 * sent have begun to read it: those that come later find it gone with this process. Not collective. UNO_ERR_MISMATCH: a rank of this host
 * made another call as this one's last, for which neither had to wait; else the first cause of an operation that failed meanwhile. */
UNO_API uno_err uno_comm_finalize(uno_comm *comm);
/* Free the communicator (finalizes it first: what was issued here and nobody meets fails at its deadline). NULL is allowed.
 * UNO_OK also when finalizing failed: call uno_comm_finalize and uno_comm_async_error before, to know. */
UNO_API uno_err uno_comm_destroy(uno_comm *comm);
/* Fail every operation of this communicator on all ranks with UNO_ERR_ABORTED. Any thread, also while another waits in it.
 * The handle stays valid until uno_comm_destroy. */
UNO_API uno_err uno_comm_abort(uno_comm *comm);
/* Store in *async the first error that befell the communicator in the background, UNO_OK if none; uno_last_error(comm) is its sentence then. Never blocks. */
UNO_API uno_err uno_comm_async_error(uno_comm *comm, uno_err *async) UNO_MUST_CHECK;
/* Change the deadline of this rank's operations, in seconds (> 0), for those that begin from now on; UNISONO_TIMEOUT in the environment wins.
 * < 0: what it is where the program says nothing, as in uno_config.
 * Never blocks. UNO_ERR_ARG, UNO_ERR_USAGE, UNO_ERR_CONFIG. */
UNO_API uno_err uno_comm_set_timeout(uno_comm *comm, double timeout_s) UNO_MUST_CHECK;
/* Return this rank's number, the number of ranks; -1 for NULL. */
UNO_API int uno_comm_rank(const uno_comm *comm);
UNO_API int uno_comm_size(const uno_comm *comm);
/* Write one line into buf saying which plan a call with these arguments runs and why. Local; needs no other rank.
 * root: a rank, also where the collective has none. */
UNO_API uno_err uno_comm_explain(uno_comm *comm, uno_coll coll, size_t count, uno_type type, uno_op op, int root,
                                 char *buf, size_t buf_bytes) UNO_MUST_CHECK;

/* ---- groups ----------------------------------------------------------------------------------------- */

/* Between start and end calls are only noted; uno_group_end progresses all of them together and returns the first error.
 * Groups nest; they belong to the calling thread. A noted call's buffers belong to the library until the end returns
 * (NULL stream) or the stream has passed it. */
UNO_API uno_err uno_group_start(void);
UNO_API uno_err uno_group_end(void) UNO_MUST_CHECK;

/* ---- collectives --------------------------------------------------------------------------------------
 * All ranks call with the same count, type, op and root. n = size, r = own rank. In place as in NCCL:
 *   all_reduce, broadcast, reduce: send == recv
 *   all_gather, gather:            send == recv + r * count elements (gather: on the root)
 *   reduce_scatter, scatter:       recv == send + r * count elements (scatter: on the root)
 * Any other overlap is UNO_ERR_ARG. Reductions run in one fixed order: every rank gets the same bits, run after run.
 * Errors of all of them: UNO_ERR_ARG, UNO_ERR_TYPE, UNO_ERR_USAGE (call not made); UNO_ERR_MISMATCH, UNO_ERR_TIMEOUT,
 * UNO_ERR_PEER_DEAD, UNO_ERR_ABORTED, UNO_ERR_UNREACHABLE, UNO_ERR_MEMORY (the communicator has failed, for the others made
 * the call, too; outputs are undefined). */

/* recv[i] = op over ranks of send[i]; send, recv: count elements. */
UNO_API uno_err uno_all_reduce(const void *send, void *recv, size_t count, uno_type type, uno_op op,
                               uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* recv = root's send; send is looked at on the root only; count elements. */
UNO_API uno_err uno_broadcast(const void *send, void *recv, size_t count, uno_type type, int root,
                              uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* As all_reduce, but recv is written on the root only (elsewhere NULL is allowed). */
UNO_API uno_err uno_reduce(const void *send, void *recv, size_t count, uno_type type, uno_op op, int root,
                           uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* recv: n * count elements, block q = rank q's send (count elements). */
UNO_API uno_err uno_all_gather(const void *send, void *recv, size_t count, uno_type type,
                               uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* send: n * count elements; recv: count elements = op over ranks of their block r. */
UNO_API uno_err uno_reduce_scatter(const void *send, void *recv, size_t count, uno_type type, uno_op op,
                                   uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* send, recv: n * count elements; recv block q = block r of rank q's send. */
UNO_API uno_err uno_all_to_all(const void *send, void *recv, size_t count, uno_type type,
                               uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* root's recv: n * count elements, block q = rank q's send (count elements). recv may be NULL elsewhere. */
UNO_API uno_err uno_gather(const void *send, void *recv, size_t count, uno_type type, int root,
                           uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* recv (count elements) = block r of root's send (n * count elements). send may be NULL elsewhere. */
UNO_API uno_err uno_scatter(const void *send, void *recv, size_t count, uno_type type, int root,
                            uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* Returns on any rank only after every rank has entered. */
UNO_API uno_err uno_barrier(uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* As all_gather with counts[q] elements from rank q, stored at recv + displs[q] elements. The arrays (n entries, the same
 * on all ranks) are copied before the call returns; displs NULL = packed. In place: send == recv + displs[r]. */
UNO_API uno_err uno_all_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs, uno_type type,
                                 uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* As reduce_scatter with counts[q] elements for rank q, taken at send + displs[q]. In place: recv == send + displs[r]. */
UNO_API uno_err uno_reduce_scatter_v(const void *send, void *recv, const size_t *counts, const size_t *displs,
                                     uno_type type, uno_op op, uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;
/* Send send_counts[q] elements at send + send_displs[q] to rank q, receive likewise. Rank p's send_counts[q] equals rank q's
 * recv_counts[p]. Arrays (n entries, this rank's own) are copied. No in place; with displacements on both sides blocks of send may lie
 * between those of recv. */
UNO_API uno_err uno_all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_displs, void *recv,
                                 const size_t *recv_counts, const size_t *recv_displs, uno_type type,
                                 uno_comm *comm, uno_stream *stream) UNO_MUST_CHECK;

/* ---- point to point ----------------------------------------------------------------------------------------
 * A message matches a receive of the same (source, tag) in the order both were issued; count and type must agree
 * for uno_send/uno_recv (UNO_ERR_MISMATCH), a longer message than an uno_irecv buffer is UNO_ERR_TRUNCATED. */

/* NCCL-shaped, tag 0, in stream order. Each may block until its partner is called; use a group for exchanges. A send ends when its data are
 * in the receive's buffer or in memory of the library: the receiver has to be in a call (wait, test, another operation) now and then. */
UNO_API uno_err uno_send(const void *buf, size_t count, uno_type type, int peer, uno_comm *comm, uno_stream *stream)
    UNO_MUST_CHECK;
UNO_API uno_err uno_recv(void *buf, size_t count, uno_type type, int peer, uno_comm *comm, uno_stream *stream)
    UNO_MUST_CHECK;
/* Queue a send (receive) and return at once; never waits for other requests, nor for collectives issued before. It goes on while
 * this rank waits in any call of the library. tag >= 0. peer may be UNO_ANY in irecv.
 * request: out, owned by the caller until uno_wait or a uno_test that reports completion releases it. */
UNO_API uno_err uno_isend(const void *buf, size_t count, uno_type type, int peer, int tag, uno_comm *comm,
                          uno_request **request) UNO_MUST_CHECK;
UNO_API uno_err uno_irecv(void *buf, size_t count, uno_type type, int peer, int tag, uno_comm *comm,
                          uno_request **request) UNO_MUST_CHECK;

typedef struct uno_status {
    int peer;     /* source of a receive, destination of a send */
    int tag;
    size_t count; /* elements really received */
} uno_status;

/* UNO_OK: done, *request released and set to NULL; UNO_ERR_IN_PROGRESS: not yet; else the error, released. status may be NULL. */
UNO_API uno_err uno_test(uno_request **request, uno_status *status) UNO_MUST_CHECK;
/* Wait for completion; releases *request and sets it to NULL, also on error. UNO_ERR_IN_PROGRESS, with the request kept, only where a
 * callback asked to give up (uno_set_interrupt_callback). */
UNO_API uno_err uno_wait(uno_request **request, uno_status *status) UNO_MUST_CHECK;
/* As uno_wait, but returns UNO_ERR_IN_PROGRESS after timeout_s seconds (< 0: never) and keeps the request. */
UNO_API uno_err uno_wait_until(uno_request **request, double timeout_s, uno_status *status) UNO_MUST_CHECK;

/* ---- own reductions, memory ------------------------------------------------------------------------------------ */

/* Make an operation "sum of scalar_r * send_r", scalar: one element of `type`, copied. Valid for that communicator and type. */
UNO_API uno_err uno_op_create_premulsum(uno_op *op, const void *scalar, uno_type type, uno_comm *comm) UNO_MUST_CHECK;
UNO_API uno_err uno_op_destroy(uno_op op, uno_comm *comm);
/* Allocate memory that other ranks of this host can map: collectives on it avoid copies. Zeroed, page-aligned.
 * bytes 0 gives NULL. Free with uno_mem_free only; the communicators that used it may already be gone. Errors, with *ptr NULL:
 * UNO_ERR_MEMORY: no room, or more than the host has. UNO_ERR_SYSTEM: a limit of the process (descriptors, file sizes); the sentence says which. */
UNO_API uno_err uno_mem_alloc(void **ptr, size_t bytes) UNO_MUST_CHECK;
UNO_API uno_err uno_mem_free(void *ptr);

/* ---- streams and events -------------------------------------------------------------------------------------------- */

/* A stream is a queue of operations, done in order; those of one group count as one, and do not wait for each other. Operations of
 * one communicator start in the order of issue, whatever their streams. */
UNO_API uno_err uno_stream_create(uno_stream **stream) UNO_MUST_CHECK;
/* Wait until everything queued is done, and return the first error. UNO_OK on NULL. */
UNO_API uno_err uno_stream_synchronize(uno_stream *stream) UNO_MUST_CHECK;
/* UNO_OK if everything queued is done, UNO_ERR_IN_PROGRESS if not, else the first error. Never blocks. */
UNO_API uno_err uno_stream_query(uno_stream *stream) UNO_MUST_CHECK;
/* Synchronizes, then frees. */
UNO_API uno_err uno_stream_destroy(uno_stream *stream);
UNO_API uno_err uno_event_create(uno_event **event) UNO_MUST_CHECK;
/* The event completes when everything queued on `stream` so far is done. */
UNO_API uno_err uno_event_record(uno_event *event, uno_stream *stream) UNO_MUST_CHECK;
/* Later operations on `stream` wait for the event. */
UNO_API uno_err uno_stream_wait_event(uno_stream *stream, uno_event *event) UNO_MUST_CHECK;
UNO_API uno_err uno_event_synchronize(uno_event *event) UNO_MUST_CHECK;
UNO_API uno_err uno_event_query(uno_event *event) UNO_MUST_CHECK;
UNO_API uno_err uno_event_destroy(uno_event *event);

#ifdef __cplusplus
}
#endif
#endif
