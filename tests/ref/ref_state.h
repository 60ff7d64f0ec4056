/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_state.h - what the reference interpreter keeps of a run: lanes, wires, scratch; and its arithmetic. Used by ref_*.c alone.
 */
#ifndef UNO_REF_STATE_H
#define UNO_REF_STATE_H

#include "ref_interp.h"

struct ref_lane {
    int rank, lane, step, i;
    size_t tile;
    uint64_t priority;
};

struct ref_slot {
    char *own;                  /* a tile */
    const char *data;           /* own, or lent memory */
    int *loan;                  /* counts lent scratch until all have read; NULL: none is lent */
    int unread;
};

/* A connection: k slots, each read once by every reader. Counts run over all tiles. */
struct ref_wire {
    int src, dst, channel, readers;
    uint64_t sent, *taken;      /* taken: by reading rank */
    struct ref_slot *slot;
};

struct ref_rank {
    struct plan_prog prog;
    struct ref_lane *lanes;     /* its own, prog.nlanes */
    struct ref_wire *sends;     /* prog.nsends */
    struct ref_wire **recvs;    /* prog.nrecvs; NULL: nobody sends there */
    char *scratch;              /* S x chunks x tile */
    int *loans;                 /* S: lent scratch not yet read */
    size_t begun;               /* tiles that one of its lanes has begun */
};

struct ref_state {
    const struct ref_run *run;
    struct plan_chunks chunks;
    struct ref_rank *ranks;
    struct ref_lane **lanes;    /* all */
    int nlanes;
    size_t tiles, elem;
    char *value;                /* what the firing in hand makes */
    struct rng rng;
    struct ref_block *memory;   /* all of the above */
};

/* ref_state_free also after an error. */
uno_err ref_state_make(const struct ref_run *run, struct ref_state *x);
void ref_state_free(struct ref_state *x);

/* value = more, or value o= more; a raw contribution of rank is scaled first. n elements. */
void ref_operand(struct ref_state *x, int rank, bool first, const char *more, size_t n, bool raw);
void ref_average(struct ref_state *x, size_t n);

#endif
