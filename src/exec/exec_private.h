/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_private.h - the compiled form of a plan. Made by exec_compile.c, run by exec_walk.c (tiled) and exec_small.c.
 */
#ifndef UNO_EXEC_PRIVATE_H
#define UNO_EXEC_PRIVATE_H

#include <string.h>

#include "exec.h"

/* One firing of one step, with everything resolved. 96 bytes. */
struct exec_fire {
    uint8_t op;               /* enum plan_op */
    uint8_t flags;            /* enum plan_flag */
    uint8_t src_buf, dst_buf; /* enum plan_buf */
    uint32_t tiles;           /* later tiles skip this firing */
    uint64_t bytes;           /* of the chunk */
    uint64_t src_off, dst_off;/* bytes, of tile 0; scratch: within one tile's scratch */
    struct net_end *send;
    struct net_end **recv;    /* in operand order */
    int32_t nrecv, self;
    uint32_t dep, ndep;       /* slice of program.deps */
    uint32_t recv_index;      /* of the first receive, in program.recvs */
    bool offerable;           /* a plain receive into a range that nothing else here touches: its place may be offered */
};

struct exec_dep { uint32_t lane, fire; }; /* that firing has happened in the same tile */
struct exec_lane { uint32_t first, nfires, tiles; };
/* The firings that receive from one end, in order, so that offers can be made before their messages come. */
struct exec_incoming { uint32_t first, nfires, tiles; };
struct exec_ahead { uint32_t tile, at, number; };  /* run time: the next message to look at */

struct exec_program {
    /* both targets */
    struct small_record *small; /* NULL: tiled */
    uno_coll coll;
    uno_type type;
    int op;
    size_t elem_bytes;
    reduce_fn reduce;         /* NULL where nothing is reduced */
    int virtual_rank, shift;
    /* tiled */
    int k;
    uint32_t tile_bytes;
    uint64_t room_bytes;
    uint32_t tiles;           /* of the longest chunk */
    uint32_t scratch_tiles;
    size_t scratch_tile_bytes;
    uint32_t nlanes, nfires, ndeps, nsends, nrecvs;
    int *recv_index;          /* parallel to recv_list: index in recvs */
    struct exec_lane *lanes;
    struct exec_fire *fires;
    struct exec_dep *deps;
    struct net_end **sends, **recvs, **recv_list;
    struct exec_incoming *incoming; /* by receiving end */
    uint32_t *incoming_fires;
    bool offers, touches_in;
    uint64_t in_extent, out_extent; /* bytes */
    bool copies_only;         /* the plan is right only when slots carry copies ... */
    bool lends_out_of_place;  /* ... on ranks that are in place */
    bool stream;              /* outputs are far larger than the caches: non-temporal stores pay */
    bool clear_aux;           /* all-to-all-v: the first message of a pair carries its byte count in clear */
    /* small */
    size_t block_bytes;       /* count * element size */
    int root;
};

/* avg divides by the number of ranks, premulsum scales: what a firing must do beside the reduction. */
static inline struct reduce_scale scale_for(const struct exec_op *op, unsigned flags, int self)
{
    struct reduce_scale s = {.scaled_operand = -1, .divide_by = 0};
    if (op->scalar && (flags & (PLAN_RAW_SRC | PLAN_RAW_DST))) {
        s.scaled_operand = self;
        memcpy(s.scalar, op->scalar, op->program->elem_bytes);
    }
    if (op->program->op == UNO_AVG && (flags & PLAN_COMPLETES))
        s.divide_by = (uint32_t)op->env->size;
    return s;
}

/* Does scale_for give something to do? What is sent on then is not what lies in memory. */
static inline bool scales(const struct exec_op *op, unsigned flags)
{
    return (op->scalar && (flags & (PLAN_RAW_SRC | PLAN_RAW_DST))) || (op->program->op == UNO_AVG && (flags & PLAN_COMPLETES));
}

/* Cursors of the receiving ends lie behind the lanes. */
static inline struct exec_ahead *op_ahead(struct exec_op *op)
{
    return (struct exec_ahead *)&op->lane[op->program->nlanes + 1];
}

uno_err compile_offers(struct exec_program *p);
/* Offer the places of the next messages of receiving end i. */
void offer_ahead(struct exec_op *op, uint32_t i);
/* At the start: may this rank lend and offer, as its buffers lie? Offers the first places. */
void placing_begin(struct exec_op *op);

/* Makes program->small. UNO_ERR_MEMORY. */
uno_err small_compile(const struct exec_env *env, struct exec_program *program);
uno_err small_poll(struct exec_op *op, bool *moved);
int small_blame(const struct exec_op *op);
void small_progress(const struct exec_op *op, struct exec_progress *progress);

#endif
