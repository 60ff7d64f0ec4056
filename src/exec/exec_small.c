/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_small.c - the small target: everybody writes one entry of lines into its own ring, everybody reads the others' lines.
 * One host, at most 448 bytes a rank.
 *
 * Why an entry may be written: collective N uses entry N mod 16, whatever its kind. Readers acknowledge nothing. A rank whose
 * ledger shows that it started P has finished everything below P, so entry N is free when every rank has started N - 15. The
 * slowest reader never depends on the waiting writer's entry N, so this cannot deadlock. tests/models/small_ring.pml checks it.
 */
#include "exec_private.h"

#include <stdlib.h>

/* What this rank writes, and which part of rank q's entry it reads. bytes 0 with `writes` is an empty line. */
struct small_shape { bool writes, reads; size_t write_bytes, read_off, read_bytes; };

static struct small_shape shape_of(const struct exec_op *op, int q)
{
    const struct exec_program *p = op->program;
    size_t b = p->block_bytes, n = (size_t)op->env->size;
    int me = op->env->rank;
    bool root = me == p->root;
    switch (p->coll) {
    case UNO_BROADCAST:
        return (struct small_shape){root, q == p->root && !root, b, 0, b};
    case UNO_REDUCE:
    case UNO_GATHER:
        return (struct small_shape){!root, root, b, 0, b};
    case UNO_SCATTER:
        return (struct small_shape){root, q == p->root && !root, n * b, (size_t)me * b, b};
    case UNO_REDUCE_SCATTER:
    case UNO_ALL_TO_ALL:
        return (struct small_shape){true, true, n * b, (size_t)me * b, b};
    default: /* all_reduce, all_gather, barrier */
        return (struct small_shape){true, true, b, 0, b};
    }
}

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

static bool entry_free(struct exec_env *env, uint32_t number)
{
    /* Without a sign: the limit of a rank that has not written for 2^31 operations covers nothing. */
    if (__builtin_expect(env->ring_limit - number < NET_RING_ENTRIES, 1))
        return true;
    /* Look first for a younger operation, so that the next looks are far apart. */
    for (uint32_t back = 5; back <= 15; back += 10) {
        if (everyone_started(env, operation_before(number, back))) {
            env->ring_limit = number - back + 15;
            return true;
        }
    }
    return false;
}

static void write_entry(struct exec_op *op, const void *data, size_t bytes)
{
    struct net_entry *e = &net_region_ring(op->env->region)[op->number % NET_RING_ENTRIES];
    uint64_t flag = net_flag(op->number, op->signature);
    const char *from = data ? data : ""; /* nothing to send may be NULL, with which no arithmetic is legal */
    size_t line = 0;
    do {
        size_t n = MIN(bytes, (size_t)NET_LINE_PAYLOAD);
        memcpy(e->line[line].payload, from, n);
        /* release: the payload first; pairs with the acquire in lines_arrived */
        atomic_store_explicit(&e->line[line].flag, flag, memory_order_release);
        from += n;
        bytes -= n;
        line++;
    } while (bytes);
    for (int q = 0; q < op->env->size; q++)
        if (q != op->env->rank)
            net_ring_region(op->env->regions[q]);
}

static enum net_arrival lines_arrived(const struct exec_op *op, int q, const struct small_shape *s)
{
    struct net_entry *e = &net_region_ring(op->env->regions[q])[op->number % NET_RING_ENTRIES];
    size_t first = s->read_off / NET_LINE_PAYLOAD;
    size_t last = s->read_bytes ? (s->read_off + s->read_bytes - 1) / NET_LINE_PAYLOAD : first;
    for (size_t i = first; i <= last; i++) {
        uint64_t flag = atomic_load_explicit(&e->line[i].flag, memory_order_acquire);
        if ((uint32_t)flag != op->number)
            return NET_NOT_YET;
        if ((uint32_t)(flag >> 32) != op->signature)
            return NET_MISMATCH;
    }
    return NET_ARRIVED;
}

/* Rank q's part: in place when it lies in one line, else gathered into temp. */
static const void *operand_of(const struct exec_op *op, int q, const struct small_shape *s, char *temp)
{
    const struct net_entry *e = &net_region_ring(op->env->regions[q])[op->number % NET_RING_ENTRIES];
    size_t off = s->read_off, left = s->read_bytes, line = off / NET_LINE_PAYLOAD, within = off % NET_LINE_PAYLOAD;
    if (within + left <= NET_LINE_PAYLOAD)
        return e->line[line].payload + within;
    char *to = temp;
    while (left) {
        size_t n = MIN(left, NET_LINE_PAYLOAD - within);
        memcpy(to, e->line[line].payload + within, n);
        to += n;
        left -= n;
        line++;
        within = 0;
    }
    return temp;
}

static const char *own_part(const struct exec_op *op)
{
    const struct exec_program *p = op->program;
    if (p->block_bytes == 0)
        return op->base[PLAN_IN]; /* may be NULL */
    bool blocks = p->coll == UNO_REDUCE_SCATTER || p->coll == UNO_ALL_TO_ALL || p->coll == UNO_SCATTER;
    return op->base[PLAN_IN] + (blocks ? (size_t)op->env->rank * p->block_bytes : 0);
}

static void reduce_all(struct exec_op *op)
{
    const struct exec_program *p = op->program;
    int n = op->env->size;
    struct small_shape s = shape_of(op, (op->env->rank + 1) % n);
    const void *operands[n];
    char temps[n][NET_ENTRY_LINES * NET_LINE_PAYLOAD];
    for (int q = 0; q < n; q++)
        operands[q] = q == op->env->rank && !op->scalar ? own_part(op) : operand_of(op, q, &s, temps[q]);
    struct reduce_scale scale = {.scaled_operand = -1, .divide_by = p->op == UNO_AVG ? (uint32_t)n : 0};
    if (n == 1) {
        reduce_scale_copy(p->type, p->op, (void *)(uintptr_t)op->base[PLAN_OUT], operands[0], p->block_bytes / p->elem_bytes, &scale);
        return;
    }
    p->reduce((void *)(uintptr_t)op->base[PLAN_OUT], NULL, operands, n, p->block_bytes / p->elem_bytes, &scale, 0);
}

static void collect_all(struct exec_op *op)
{
    const struct exec_program *p = op->program;
    char temp[NET_ENTRY_LINES * NET_LINE_PAYLOAD], *out = (char *)(uintptr_t)op->base[PLAN_OUT];
    size_t b = p->block_bytes;
    if (b == 0)
        return;
    for (int q = 0; q < op->env->size; q++) {
        struct small_shape s = shape_of(op, q);
        bool one_block = p->coll == UNO_BROADCAST || p->coll == UNO_SCATTER;
        char *to = out + (one_block ? 0 : (size_t)q * b);
        if (q == op->env->rank) {
            bool own = p->coll == UNO_ALL_GATHER || p->coll == UNO_ALL_TO_ALL || op->env->rank == p->root;
            if (own && to != own_part(op))
                memmove(to, own_part(op), b);
        } else if (s.reads) {
            memcpy(to, operand_of(op, q, &s, temp), b);
        }
    }
}

static void finish(struct exec_op *op)
{
    const struct exec_program *p = op->program;
    bool root_only = p->coll == UNO_REDUCE || p->coll == UNO_GATHER;
    if (p->coll == UNO_BARRIER || (root_only && op->env->rank != p->root))
        return;
    if (p->reduce)
        reduce_all(op);
    else
        collect_all(op);
}

uno_err small_start(struct exec_op *op)
{
    op->lane[0] = (struct exec_lane_state){0, 0}; /* tile: written yet?  at: next rank to look at */
    return UNO_OK;
}

/* Under premulsum every contribution enters the lines already scaled. */
static void write_own(struct exec_op *op, size_t bytes)
{
    const struct exec_program *p = op->program;
    if (!op->scalar) {
        write_entry(op, op->base[PLAN_IN], bytes);
        return;
    }
    char temp[NET_ENTRY_LINES * NET_LINE_PAYLOAD];
    struct reduce_scale scale = scale_for(op, PLAN_RAW_SRC, 0);
    reduce_scale_copy(p->type, p->op, temp, op->base[PLAN_IN], bytes / p->elem_bytes, &scale);
    write_entry(op, temp, bytes);
}

uno_err small_poll(struct exec_op *op, bool *moved)
{
    struct exec_lane_state *state = &op->lane[0];
    int n = op->env->size, me = op->env->rank;
    if (state->tile == 0) {
        struct small_shape s = shape_of(op, me);
        if (s.writes || (op->scalar && op->program->coll == UNO_REDUCE)) {
            if (!entry_free(op->env, op->number))
                return UNO_ERR_IN_PROGRESS;
            write_own(op, s.write_bytes);
        }
        state->tile = 1;
        *moved = true;
    }
    for (; state->at < (uint32_t)n; state->at++) {
        int q = (int)state->at;
        struct small_shape s = shape_of(op, q);
        if (q == me || !s.reads)
            continue;
        enum net_arrival a = lines_arrived(op, q, &s);
        if (a == NET_NOT_YET)
            return UNO_ERR_IN_PROGRESS;
        if (a == NET_MISMATCH)
            return err_set(UNO_ERR_MISMATCH, "rank %d is in another operation than #%u of rank %d", q, op->number, me);
        *moved = true;
    }
    finish(op);
    return UNO_OK;
}

int small_blame(const struct exec_op *op)
{
    if (op->lane[0].tile == 0)
        for (int q = 0; q < op->env->size; q++) {
            const struct ledger_event *ring = net_region_ledger(op->env->regions[q]);
            uint32_t need = operation_before(op->number, 15);
            uint32_t v = atomic_load_explicit(&ring[need % NET_LEDGER_EVENTS].number, memory_order_relaxed);
            if (q != op->env->rank && (v == 0 || (int32_t)(v - need) < 0))
                return q;
        }
    return (int)op->lane[0].at < op->env->size ? (int)op->lane[0].at : -1;
}
