/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_small.c - the small target: everybody writes one entry into its own ring, everybody reads the others' entries. An entry is lines, each
 * with its flag, or, above 1120 bytes, one block with one. One host, at most 4096 bytes a rank. small_compile resolves a request into a record; exec_start_small and small_poll run it: write, wait for each
 * source, reduce or collect.
 *
 * Why an entry may be written: collective N uses entry N mod 16, whatever its kind. Readers acknowledge nothing. A rank that has
 * started P, as its ledger or the flag of its own entry P shows, has finished everything below P, so entry N is free when every
 * rank has started N - 15. The slowest reader never depends on the waiting writer's entry N, so this cannot deadlock.
 * tests/models/small_ring.pml checks it.
 */
#include "exec_private.h"

#include <stdlib.h>

/* A rank whose lines are read, and where its block goes in the output when blocks are collected. */
struct small_source {
    int rank, place;          /* place: among the operands, see place_of */
    char *ring;               /* of net_entry or net_block */
    size_t to;
};

#define MOST_OPERANDS 16 /* that are reduced where they lie */

/* What one rank does in a small operation, whatever its number: the same in every call of one request. */
struct small_record {
    enum { SMALL_NOTHING, SMALL_REDUCE, SMALL_REDUCE_GATHERED, SMALL_COLLECT } then; /* when all lines are here */
    bool writes;              /* write_bytes 0: an empty line */
    bool keeps_own;           /* collect: the own block goes to own_to */
    bool everyone;            /* all other ranks are sources */
    bool block;               /* entries are net_block, not net_entry */
    size_t entry_bytes;
    size_t write_bytes;
    size_t count, bytes;      /* of a block: elements, bytes */
    uint32_t first, last;     /* lines of a source's entry with this rank's block (0 and 0 in a net_block), ... */
    size_t within;            /* ... and where it begins in the first */
    size_t flag_at, block_at; /* the first line's flag and the block, from the start of an entry */
    size_t own_off, own_to;   /* the own block in the input and the output */
    char *ring;               /* own */
    const struct reduce_scale *average; /* NULL or &divide */
    struct reduce_scale divide;
    int place;                /* own */
    int nothers;
    struct net_region **others; /* all other ranks, to be woken; behind the sources */
    int nsources;
    struct small_source source[]; /* in the order of ranks */
};

/* ---- compiling ------------------------------------------------------------------------------------------------------ */

/* Who writes what, who reads and keeps which block. */
static void lay_out(struct small_record *r, const struct exec_program *p, int me, size_t n)
{
    size_t b = p->block_bytes, mine = (size_t)me * b;
    bool root = me == p->root;
    r->writes = true;
    r->write_bytes = b;
    r->then = p->reduce ? SMALL_REDUCE : SMALL_COLLECT;
    switch (p->coll) {
    case UNO_BROADCAST:
        r->writes = r->keeps_own = root;
        break;
    case UNO_REDUCE:
    case UNO_GATHER:
        r->keeps_own = root;
        r->own_to = mine;
        /* Under premulsum the root takes its own contribution scaled from its own lines, like the others'. */
        r->writes = !root || (p->reduce && p->op >= UNO_OP_DYNAMIC);
        if (!root)
            r->then = SMALL_NOTHING;
        break;
    case UNO_SCATTER:
        r->writes = r->keeps_own = root;
        r->write_bytes = n * b;
        r->own_off = mine;
        break;
    case UNO_REDUCE_SCATTER:
    case UNO_ALL_TO_ALL:
        r->write_bytes = n * b;
        r->own_off = mine;
        /* fall through */
    default: /* all_reduce, all_gather, barrier */
        r->keeps_own = true;
        r->own_to = mine;
    }
    if (b == 0)
        r->then = SMALL_NOTHING;
}

static bool reads(const struct exec_program *p, int me, int q)
{
    switch (p->coll) {
    case UNO_BROADCAST:
    case UNO_SCATTER:
        return q == p->root && me != q;
    case UNO_REDUCE:
    case UNO_GATHER:
        return me == p->root && me != q;
    default:
        return me != q;
    }
}

/* Operands stand in the order of the plan, which renumbers ranks so that the root comes first; so tiles of it give the same bits. */
static int place_of(const struct exec_program *p, int rank, int n)
{
    return (rank - p->shift + n) % n;
}

/* Where blocks of an entry differ, this rank's lies as its own does in the input. */
static void place_block(struct small_record *r, const struct exec_program *p, int me)
{
    bool blocks = p->coll == UNO_SCATTER || p->coll == UNO_REDUCE_SCATTER || p->coll == UNO_ALL_TO_ALL;
    size_t off = blocks ? (size_t)me * r->bytes : 0;
    r->block = r->write_bytes > NET_ENTRY_LINES * NET_LINE_PAYLOAD;
    if (r->block) {
        r->entry_bytes = sizeof(struct net_block);
        r->flag_at = offsetof(struct net_block, head.flag);
        r->block_at = offsetof(struct net_block, payload) + off;
        return;
    }
    r->entry_bytes = sizeof(struct net_entry);
    r->first = (uint32_t)(off / NET_LINE_PAYLOAD);
    r->within = off % NET_LINE_PAYLOAD;
    r->last = r->bytes ? (uint32_t)((off + r->bytes - 1) / NET_LINE_PAYLOAD) : r->first;
    r->flag_at = offsetof(struct net_entry, line[r->first].flag);
    r->block_at = offsetof(struct net_entry, line[r->first].payload) + r->within;
}

static char *ring_in(const struct small_record *r, struct net_region *region)
{
    return r->block ? (char *)net_region_blocks(region) : (char *)net_region_ring(region);
}

uno_err small_compile(const struct exec_env *env, struct exec_program *p)
{
    int n = env->size, me = env->rank;
    struct small_record *r = mem_zalloc(sizeof *r + (size_t)n * (sizeof r->source[0] + sizeof *r->others));
    if (!r)
        return UNO_ERR_MEMORY;
    lay_out(r, p, me, (size_t)n);
    r->place = place_of(p, me, n);
    r->bytes = p->block_bytes;
    r->count = p->block_bytes / p->elem_bytes;
    place_block(r, p, me);
    r->ring = ring_in(r, env->region);
    if (r->then == SMALL_REDUCE && (r->first != r->last || n > MOST_OPERANDS))
        r->then = SMALL_REDUCE_GATHERED;
    r->divide = (struct reduce_scale){.scaled_operand = -1, .divide_by = (uint32_t)n};
    r->average = p->op == UNO_AVG ? &r->divide : NULL;
    bool one_block = p->coll == UNO_BROADCAST || p->coll == UNO_SCATTER;
    r->others = (struct net_region **)&r->source[n];
    for (int q = 0; q < n; q++) {
        if (q != me)
            r->others[r->nothers++] = env->regions[q];
        if (reads(p, me, q))
            r->source[r->nsources++] = (struct small_source){.rank = q, .place = place_of(p, q, n), .to = one_block ? 0 : (size_t)q * r->bytes,
                                                             .ring = ring_in(r, env->regions[q])};
    }
    r->everyone = r->nsources == n - 1;
    p->small = r;
    return UNO_OK;
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

static bool everyone_started(const struct exec_env *env, uint32_t number)
{
    for (int q = 0; q < env->size; q++) {
        if (q == env->rank)
            continue;
        const struct ledger_event *ring = net_region_ledger(env->regions[q]);
        /* acquire: what q read before it started `number` was read; pairs with the release in ledger_begin */
        uint32_t v = atomic_load_explicit(&ring[number % NET_LEDGER_EVENTS].number, memory_order_acquire);
        if (v == 0 || (int32_t)(v - number) < 0)
            return false;
    }
    return true;
}

/* There is no operation 0; who has finished everything below it has started 1. */
static uint32_t operation_before(uint32_t number, uint32_t back)
{
    return number - back ? number - back : 1;
}

static NOINLINE bool entry_free_slow(struct exec_env *env, uint32_t number)
{
    /* Look first for a younger operation, so that the next looks are far apart. */
    for (uint32_t back = 5; back <= 15; back += 10) {
        if (everyone_started(env, operation_before(number, back))) {
            env->ring_limit = number - back + 15;
            return true;
        }
    }
    return false;
}

static inline bool entry_free(struct exec_env *env, uint32_t number)
{
    /* Without a sign: the limit of a rank that has not written for 2^31 operations covers nothing. */
    return __builtin_expect(env->ring_limit - number < NET_RING_ENTRIES, 1) || entry_free_slow(env, number);
}

static inline char *entry_of(const struct exec_op *op, const struct small_record *r, char *ring)
{
    return ring + op->number % NET_RING_ENTRIES * r->entry_bytes;
}

/* The usual lengths are known to the compiler. */
static inline void copy_line(void *to, const void *from, size_t bytes)
{
    if (bytes == sizeof(uint64_t))
        memcpy(to, from, sizeof(uint64_t));
    else if (bytes == NET_LINE_PAYLOAD)
        memcpy(to, from, NET_LINE_PAYLOAD);
    else if (bytes)
        memcpy(to, from, bytes);
}

static inline void write_line(const struct exec_op *op, struct net_line *line, const char *from, size_t bytes)
{
    copy_line(line->payload, from, bytes);
    /* release: the payload first; pairs with the acquire in lines_arrived */
    atomic_store_explicit(&line->flag, op->flag, memory_order_release);
}

static NOINLINE void write_block(const struct exec_op *op, const struct small_record *r, struct net_block *block, const char *from)
{
    memcpy(block->payload, from, r->write_bytes);
    /* release: the payload first; pairs with the acquire in lines_arrived */
    atomic_store_explicit(&block->head.flag, op->flag, memory_order_release);
}

static inline void write_lines(const struct exec_op *op, const struct small_record *r, struct net_line *line, const char *from)
{
    size_t left = r->write_bytes;
    for (; left > NET_LINE_PAYLOAD; left -= NET_LINE_PAYLOAD, from += NET_LINE_PAYLOAD)
        write_line(op, line++, from, NET_LINE_PAYLOAD);
    write_line(op, line, from, left);
}

static inline void write_entry(const struct exec_op *op, const struct small_record *r, const char *from)
{
    char *entry = entry_of(op, r, r->ring);
    if (__builtin_expect(r->block, 0))
        write_block(op, r, (struct net_block *)entry, from);
    else
        write_lines(op, r, (struct net_line *)entry, from);
    /* The next entry's line was read by others 15 operations ago: make it ours while we wait for them. */
    prefetch_to_write(r->ring + (op->number + 1) % NET_RING_ENTRIES * r->entry_bytes);
    for (int i = 0; i < r->nothers; i++)
        net_ring_region(r->others[i]);
}

/* Under premulsum every contribution enters the lines already scaled. */
static NOINLINE void write_scaled(const struct exec_op *op, const struct small_record *r)
{
    const struct exec_program *p = op->program;
    char temp[NET_BLOCK_BYTES];
    struct reduce_scale scale = scale_for(op, PLAN_RAW_SRC, 0);
    reduce_scale_copy(p->type, p->op, temp, op->base[PLAN_IN], r->write_bytes / p->elem_bytes, &scale);
    write_entry(op, r, temp);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

static NOINLINE enum net_arrival later_lines_arrived(const struct exec_op *op, const struct small_record *r, const struct net_entry *e)
{
    for (uint32_t i = r->first + 1; i <= r->last; i++) {
        uint64_t flag = atomic_load_explicit(&e->line[i].flag, memory_order_acquire); /* pairs with the release in write_line */
        if (flag != op->flag)
            return (uint32_t)flag == op->number ? NET_MISMATCH : NET_NOT_YET;
    }
    return NET_ARRIVED;
}

static inline enum net_arrival lines_arrived(const struct exec_op *op, const struct small_record *r, char *ring)
{
    const char *e = entry_of(op, r, ring);
    const _Atomic uint64_t *first = (const _Atomic uint64_t *)(e + r->flag_at);
    uint64_t flag = atomic_load_explicit(first, memory_order_acquire); /* pairs with the release in write_line */
    if (flag != op->flag)
        return (uint32_t)flag == op->number ? NET_MISMATCH : NET_NOT_YET;
    return r->first == r->last ? NET_ARRIVED : later_lines_arrived(op, r, (const struct net_entry *)e);
}

/* This rank's block out of the lines of an entry. */
static void gather(const struct small_record *r, const char *e, char *to)
{
    size_t within = r->within, left = r->bytes;
    if (r->block) {
        memcpy(to, e + r->block_at, left);
        return;
    }
    for (const struct net_line *line = &((const struct net_entry *)e)->line[r->first]; left; line++) {
        size_t n = MIN(left, NET_LINE_PAYLOAD - within);
        copy_line(to, line->payload + within, n);
        to += n;
        left -= n;
        within = 0;
    }
}

static const char *own_block(const struct exec_op *op, const struct small_record *r)
{
    return op->base[PLAN_IN] + r->own_off;
}

static inline void reduce_operands(const struct exec_op *op, const struct small_record *r, const void **operands)
{
    op->program->reduce((void *)(uintptr_t)op->base[PLAN_OUT], NULL, operands, op->env->size, r->count, r->average, 0);
}

/* Blocks within one line are operands where they lie. */
static inline void reduce_lines(const struct exec_op *op, const struct small_record *r)
{
    const void *operands[MOST_OPERANDS];
    operands[r->place] = op->scalar ? entry_of(op, r, r->ring) + r->block_at : own_block(op, r);
    for (int i = 0; i < r->nsources; i++)
        operands[r->source[i].place] = entry_of(op, r, r->source[i].ring) + r->block_at;
    reduce_operands(op, r, operands);
}

static NOINLINE void reduce_gathered(const struct exec_op *op, const struct small_record *r)
{
    const void *operands[op->env->size];
    char blocks[op->env->size][(r->bytes + 15) / 16 * 16];
    for (int q = 0; q < op->env->size; q++)
        operands[q] = blocks[q];
    if (op->scalar)
        gather(r, entry_of(op, r, r->ring), blocks[r->place]);
    else
        operands[r->place] = own_block(op, r);
    for (int i = 0; i < r->nsources; i++)
        gather(r, entry_of(op, r, r->source[i].ring), blocks[r->source[i].place]);
    reduce_operands(op, r, operands);
}

static NOINLINE void collect(const struct exec_op *op, const struct small_record *r)
{
    char *out = (char *)(uintptr_t)op->base[PLAN_OUT];
    if (r->keeps_own && out + r->own_to != own_block(op, r))
        memmove(out + r->own_to, own_block(op, r), r->bytes);
    for (int i = 0; i < r->nsources; i++)
        gather(r, entry_of(op, r, r->source[i].ring), out + r->source[i].to);
}

/* ---- running ------------------------------------------------------------------------------------------------------------ */

enum { AT_WRITE, AT_READ }; /* state.tile; state.at: the next source to look at */

static bool write_own(struct exec_op *op, const struct small_record *r)
{
    if (!entry_free(op->env, op->number))
        return false;
    if (op->scalar)
        write_scaled(op, r);
    else
        write_entry(op, r, op->base[PLAN_IN]);
    return true;
}

void exec_start_small(struct exec_op *op)
{
    const struct small_record *r = op->program->small;
    op->lane[0] = (struct exec_lane_state){!r->writes || write_own(op, r) ? AT_READ : AT_WRITE, 0};
}

static inline __attribute__((always_inline)) void finish(struct exec_op *op, const struct small_record *r)
{
    if (r->everyone)
        op->env->ring_limit = op->number + NET_RING_ENTRIES - 1; /* their flags say that they have started it */
    if (__builtin_expect(r->then == SMALL_REDUCE, 1))
        reduce_lines(op, r);
    else if (r->then == SMALL_REDUCE_GATHERED)
        reduce_gathered(op, r);
    else if (r->then == SMALL_COLLECT)
        collect(op, r);
}

static NOINLINE uno_err mismatch(const struct exec_op *op, const struct small_source *s)
{
    struct exec_names n = exec_names_of(op->env, s->rank);
    return err_set(UNO_ERR_MISMATCH, "%s is in another operation than #%u of %s", n.peer, op->number, n.own);
}

static NOINLINE bool write_late(struct exec_op *op, const struct small_record *r, bool *moved)
{
    if (!write_own(op, r))
        return false;
    op->lane[0].tile = AT_READ;
    *moved = true;
    return true;
}

/* UNO_OK: all lines are here. */
static inline __attribute__((always_inline)) uno_err arrive(struct exec_op *op, const struct small_record *r, bool *moved)
{
    struct exec_lane_state *state = &op->lane[0];
    if (__builtin_expect(state->tile == AT_WRITE, 0) && !write_late(op, r, moved))
        return UNO_ERR_IN_PROGRESS;
    for (; state->at < (uint32_t)r->nsources; state->at++) {
        const struct small_source *s = &r->source[state->at];
        enum net_arrival a = lines_arrived(op, r, s->ring);
        if (a == NET_NOT_YET)
            return UNO_ERR_IN_PROGRESS;
        if (a == NET_MISMATCH)
            return mismatch(op, s);
        *moved = true;
    }
    return UNO_OK;
}

uno_err small_poll(struct exec_op *op, bool *moved)
{
    const struct small_record *r = op->program->small;
    uno_err err = arrive(op, r, moved);
    if (err == UNO_OK)
        finish(op, r);
    return err;
}

/* The others' lines need as long to come here as ours to get there. To look at one sooner takes it from who is about to write it, and
 * both wait for longer. */
uno_err exec_poll_small(struct exec_op *op, int polls)
{
    const struct small_record *r = op->program->small;
    bool moved = false;
    uno_err err = UNO_ERR_IN_PROGRESS;
    for (; err == UNO_ERR_IN_PROGRESS && polls > 0; polls--) {
        exec_relax();
        err = arrive(op, r, &moved);
    }
    if (err == UNO_OK)
        finish(op, r);
    return err;
}

/* The own entry, then one of every source. */
void small_progress(const struct exec_op *op, struct exec_progress *progress)
{
    const struct exec_program *p = op->program;
    progress->step = op->lane[0].tile + op->lane[0].at;
    progress->steps = (uint64_t)p->small->nsources + 1;
    progress->bytes = op->lane[0].tile * p->block_bytes;
    progress->bytes_all = p->block_bytes;
}

int small_blame(const struct exec_op *op)
{
    const struct small_record *r = op->program->small;
    if (op->lane[0].tile == AT_WRITE)
        for (int q = 0; q < op->env->size; q++) {
            const struct ledger_event *ring = net_region_ledger(op->env->regions[q]);
            uint32_t need = operation_before(op->number, 15);
            uint32_t v = atomic_load_explicit(&ring[need % NET_LEDGER_EVENTS].number, memory_order_relaxed);
            if (q != op->env->rank && (v == 0 || (int32_t)(v - need) < 0))
                return q;
        }
    return op->lane[0].at < (uint32_t)r->nsources ? r->source[op->lane[0].at].rank : -1;
}
