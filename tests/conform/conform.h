/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform.h - the conformance suite: a table of cases walked inside one job. conform.c starts the ranks (threads, processes over
 * shared memory, processes over TCP), conform_cases.c makes the table, conform_check.c runs one case on one rank with the inputs and
 * expectations of conform_values.c.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include "base/base.h"
#include "unisono.h"

struct conform_case {
    uno_coll coll;
    uno_type type;
    int op;          /* uno_op, or UNO_OP_DYNAMIC for premulsum */
    bool in_place;
    bool shared;     /* buffers from uno_mem_alloc */
    size_t count;    /* as in the call; v forms: count of rank 0's block, others vary */
    int root;
};

enum conform_set { CONFORM_FULL_TYPES, CONFORM_PAIRWISE, CONFORM_SIZES, CONFORM_ALL };

/* The cases of a set for `ranks`; the same on every rank. *cases: caller frees. */
uno_err conform_cases(enum conform_set set, int ranks, uint64_t seed, struct conform_case **cases, size_t *count);
bool conform_legal(const struct conform_case *c);
/* Is one of its buffers n times as long as a call's count? */
bool conform_blocks(uno_coll coll);
void conform_name(const struct conform_case *c, char *buf, size_t buf_bytes);
/* Elements of rank q's block in the v forms; they differ by rank, some are 0. Sum over the first `upto` of n ranks. */
size_t case_block(const struct conform_case *c, int q);
size_t case_blocks(const struct conform_case *c, int n, int upto);

/* ---- conform_values.c ----------------------------------------------------------------------------------------------------- */
struct conform_values { uno_type type; bool scaled, product; size_t period; unsigned char *table; };
uno_err values_for(struct conform_values *v, const struct conform_case *c); /* of the next cases of this type and operation */
/* Elements [from, from + count) of what rank q contributes. */
void values_put(const struct conform_values *v, uint64_t seed, int q, size_t from, size_t count, unsigned char *out);
void values_scalar(const struct conform_case *c, int q, unsigned char *at); /* premulsum: 16 bytes */
/* What `me` of n ranks must receive. */
uno_err values_expected(const struct conform_values *v, const struct conform_case *c, uint64_t seed, int n, int me, unsigned char *out);

/* ---- conform_check.c ------------------------------------------------------------------------------------------------------ */
struct conform_buffer { unsigned char *base; size_t bytes; bool shared; };
/* What a rank has from case to case. keep: buffers, too, as programs do; else each case has new ones. [1]: of uno_mem_alloc. */
struct conform_room { bool keep; struct conform_values values; struct conform_buffer send[2], recv[2], want; };
void conform_buffer_free(struct conform_buffer *b);
void conform_room_free(struct conform_room *room);
/* One call on the way; the caller fills the first line. A room serves one call at a time. */
struct conform_call {
    uno_comm *comm; struct conform_room *room; const struct conform_case *c; uno_stream *stream; uint64_t seed;
    uno_op op;
    size_t in, out;
    unsigned char *received;
};
/* Make the call. With a stream, or in a group, it may not be done when this returns. After an error nothing is left to be ended. */
uno_err conform_issue(struct conform_call *k);
/* It is done, or has failed with err: compare everything, and let go of it. Returns the first error. */
uno_err conform_end(struct conform_call *k, uno_err err);
/* Both on this rank: UNO_OK, the call's error, or UNO_ERR_INTERNAL with a sentence when the result is wrong. */
uno_err conform_run(uno_comm *comm, struct conform_room *room, const struct conform_case *c, uint64_t seed);
/* Point-to-point, groups, streams, splits, memory: not a product, so a list. Returns how many passed. */
uno_err conform_rest(uno_comm *comm, uint64_t seed, int *passed);

/* ---- conform_journal.c: a walk that goes on where it was stopped ---------------------------------------------------------- */
struct journal { const char *path; char walk[80]; size_t cases, next; long passed, failed; uint64_t written_ns; };
/* What of this walk is done: next and the counts are set. A file of another walk is an error, none a beginning. */
uno_err journal_read(struct journal *j, const char *path, const char *carrier, int ranks, uint64_t seed, size_t cases);
void journal_note(struct journal *j, bool now); /* writes it; at most once a second unless `now` */

#endif
