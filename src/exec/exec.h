/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - plan -> done: compile, walk, wait, reduce. Sees plans and connection ends, never a policy.
 */
#ifndef UNO_EXEC_H
#define UNO_EXEC_H

#include "base/base.h"
#include "net/net.h"
#include "plan/plan.h"
#include "watch/watch.h"

/* ---- reductions (exec_reduce.c, kernels in exec_kernels.c compiled once per instruction set) ---------------------
 * dst[i] = a0[i] op a1[i] op ... in the listed order, with one rounding (float accumulators for narrow floats). Every
 * instruction set gives the same bits:
 *   integers wrap; avg divides the wrapped sum and truncates towards zero;
 *   a NaN result is the canonical quiet one (sign 0, only the first mantissa bit set; 0x7f in e4m3), also with one operand;
 *   min and max: NaN if any operand is NaN; equal operands, -0 and +0 among them: the earlier one;
 *   narrowing rounds to nearest even; e4m3 has no infinity: what rounds beyond 448 is NaN; e5m2, float16, bfloat16 overflow to
 *   infinity;
 *   bool: any non-zero byte is true, results are 0 or 1, also with one operand.
 * dst may equal any operand (same index), must not overlap otherwise. dst2, if not NULL, receives the same values and
 * overlaps nothing. Operands, dst and dst2 are aligned to their element (complex: its half). noperands >= 1. With count 0
 * nothing is looked at. */
struct reduce_scale {
    int scaled_operand;      /* premulsum: this operand (the raw own contribution) is multiplied by scalar; -1 = none */
    unsigned char scalar[16];/* one element of the type */
    uint32_t divide_by;      /* avg: the finished value is divided by this; 0 or 1 = no */
};
/* Non-temporal stores: for outputs that no cache holds until somebody reads them. A gain of about 30 % there; for those that one
 * would have held, a loss: two ranks sum 1 MB of mapped memory in 100 us instead of 35. REDUCE_STREAM_DST has no
 * effect where dst is an operand. Streamed data is ordered before any later store of this thread. */
enum reduce_flags { REDUCE_STREAM_DST = 1, REDUCE_STREAM_DST2 = 2 };
/* scale is looked at by sum, avg and premulsum only; NULL = nothing to scale or divide. flags: enum reduce_flags. */
typedef void (*reduce_fn)(void *dst, void *dst2, const void *const *operands, int noperands, size_t count,
                          const struct reduce_scale *scale, unsigned flags);
/* NULL when op is not defined for type. op >= UNO_OP_DYNAMIC is premulsum. best = false: the plain C version that tests
 * compare with. */
reduce_fn reduce_find(uno_type type, int op, bool best);
/* Copy; stream = the destination will not be read soon and is large: non-temporal stores. */
void copy_bytes(void *dst, const void *src, size_t bytes, bool stream);
/* dst = src scaled and/or divided (for sends of a raw contribution under premulsum, and n = 1); dst may be src. */
void reduce_scale_copy(uno_type type, int op, void *dst, const void *src, size_t count, const struct reduce_scale *scale);
/* Name of the instruction set in use: "plain" "avx2" "avx512". */
const char *reduce_isa(void);

/* ---- where an operation runs: one per communicator and rank ----------------------------------------------------- */
struct exec_env {
    int rank, size;
    struct net_comm *net;
    struct net_region *region;        /* own */
    struct net_region **regions;      /* of every rank of this host, by rank; NULL elsewhere. For the small target */
    struct net_proc *proc;            /* sockets to look at while waiting; NULL = none */
    bool crowded;                     /* more runnable threads than processors on this host */
    bool far;                         /* all other ranks are behind sockets: nothing comes but through them */
    uint64_t cache_bytes;             /* of the last-level cache, that this rank may count on (topo_cache_share) */
    /* Looked at every 64 polls and after each sleep: abort, deaths, deadline of operation `number`. */
    uno_err (*look)(void *arg, uint32_t number, uint64_t deadline_ns);
    void *look_arg;
    /* For sentences: "rank 3 (pid 803 on n0)"; with look_arg. NULL: its number alone. */
    void (*name)(const void *arg, int rank, char *buf, size_t buf_bytes);
    _Atomic uint64_t waits[3];        /* ended in spinning, yielding, sleeping; written by the walk lock's holder, read by counters */
    uint32_t ring_limit;              /* small target: own ring entries may be written up to this operation number */
    char *scratch;                    /* grown when a program needs more */
    size_t scratch_bytes;
};

/* The two sides of a disagreement, for its sentence (exec_walk.c). */
struct exec_names { char peer[120], own[120]; };
struct exec_names exec_names_of(const struct exec_env *env, int peer);

/* ---- compiling ------------------------------------------------------------------------------------------------------ */
struct exec_choice {                  /* what the planner decided, as plain data */
    const struct plan *plan;
    bool small;
    int shift;
    int k;
    uint32_t tile_bytes;
    uint64_t room_bytes;              /* that messages in memory of one connection may use; at least k tiles are used */
    int scratch_tiles;
};

struct exec_program;
/* Compile one rank's part of a plan for one request. For all-to-all-v, req holds the send counts and recv_req the receive
 * counts; else recv_req is NULL. Ends are made, not shaped. UNO_ERR_MEMORY, UNO_ERR_PLAN, UNO_ERR_TYPE, UNO_ERR_UNSUPPORTED
 * (a chunk of 2^32 tiles). */
uno_err exec_compile(struct exec_env *env, const struct exec_choice *choice, const struct request *req,
                     const struct request *recv_req, struct exec_program **program);
void exec_program_free(struct exec_program *program);
bool exec_program_small(const struct exec_program *program);

/* ---- running ---------------------------------------------------------------------------------------------------------- */
struct exec_lane_state { uint32_t tile, at; };
struct exec_op {                      /* zero-initialised by exec_start; may live on the stack */
    const struct exec_program *program;
    struct exec_env *env;
    const char *base[4];              /* by enum plan_buf: in, out, scratch */
    uint32_t number, signature;   /* set by exec_op_name */
    uint64_t flag;                /* of the small target's lines */
    uint64_t deadline_ns;
    const void *scalar;               /* premulsum: one element; NULL otherwise */
    bool lending;                 /* messages may stay where they are */
    bool offering;                /* places of coming messages are offered in this operation, ... */
    bool offered;                 /* ... and one was: they lie in memory that the sender can map */
    /* where it is */
    struct exec_lane_state lane[1];   /* tiled: program's lanes, see exec_op_bytes */
};
/* flag is stored whole: read as a whole out of two halves just stored, it would hold the processor up. */
static inline void exec_op_name(struct exec_op *op, uint32_t number, uint32_t signature)
{
    op->number = number;
    op->signature = signature;
    op->flag = net_flag(number, signature);
}
size_t exec_op_bytes(const struct exec_program *program);
/* Begin; the ledger event is already written. Shapes the ends. in/out as the caller gave them. */
uno_err exec_start(struct exec_op *op);
void exec_start_small(struct exec_op *op); /* ... a program of the small target */
/* Do what can be done now. UNO_OK: finished on this rank, loans released. UNO_ERR_IN_PROGRESS: blocked, *moved tells whether
 * anything happened. Else it failed: loans are withdrawn, sentence set. */
uno_err exec_poll(struct exec_op *op, bool *moved);
/* The same, again and again while it is blocked, at most `polls` times. */
uno_err exec_poll_soon(struct exec_op *op, int polls);
uno_err exec_poll_small(struct exec_op *op, int polls); /* ... a program of the small target */
/* The rank that a blocked operation waits for first, or -1; what: "data from", "room at". */
int exec_blame(const struct exec_op *op, const char **what);
/* How far an operation is: firings and the bytes they moved here, done and of the whole. For reports; takes a while. */
struct exec_progress { uint64_t step, steps, bytes, bytes_all; };
void exec_progress(const struct exec_op *op, struct exec_progress *progress);
/* Of a tiled operation that has ended: did messages both ways stay in memory that both sides map? Of two ranks, alike on both. */
bool exec_left_lying(const struct exec_op *op);
/* Failed from outside (abort, death): withdraw loans. */
void exec_cancel(struct exec_op *op);

/* ---- waiting in three stages (exec_wait.c) ------------------------------------------------------------------------ */
struct exec_wait { uint32_t polls; uint8_t stage; uint64_t stage_end_ns; uint32_t doze_us, bell; };
/* Once a process; spin_s < 0 = default. */
void exec_wait_configure(double spin_s);
/* After a poll that moved nothing: spin, yield or sleep a little; then the caller polls once more. Sleeping takes two calls:
 * the first announces it, so that the poll between them is the last look. Returns what env->look found. */
uno_err exec_pause(struct exec_env *env, struct exec_wait *wait, uint32_t number, uint64_t deadline_ns, bool may_sleep);
/* Counts how a wait ended. For who polls without exec_pause: EXEC_SPUN. */
#define EXEC_SPUN 0
static inline void exec_wait_count(struct exec_env *env, int how)
{
    /* one writer (the walk lock's holder); relaxed: readers want a number, not an order */
    atomic_store_explicit(&env->waits[how], atomic_load_explicit(&env->waits[how], memory_order_relaxed) + 1, memory_order_relaxed);
}
/* Between two polls: without it the processor runs ahead and has to take back what it read too early. */
static inline void exec_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}
/* After a poll that moved something, and when the wait is over: counts how it ended. */
void exec_wait_end(struct exec_env *env, struct exec_wait *wait);
static inline void exec_wait_reset(struct exec_env *env, struct exec_wait *wait)
{
    if (__builtin_expect(wait->stage != 0, 0))
        exec_wait_end(env, wait);
    else
        *wait = (struct exec_wait){0};
}

#endif
