/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_agree.h - which members of a communicator go on: one Paxos decision an epoch, as a pure state machine. Time and messages
 * come in, messages go out; no sockets, no clock, no locks. Private to src/watch: watch_shrink.c carries the messages.
 *
 * A message is its sender's whole state, so any of them may be lost, repeated or overtaken. Every member is an acceptor, whether
 * its program has called or not. The lowest caller proposes; when it falls silent the next one does. A quorum, for promises and
 * for acceptances, is every member that is not gone, or more than half of all, or exactly half with rank 0; members that are gone
 * never count. *Gone* means for good: its process has ended (proved, not guessed), or it has left and will decide nothing more.
 * Who learns of a decision has accepted it, so that it answers for it. tests/models/shrink.pml checks the rule.
 */
#ifndef UNO_WATCH_AGREE_H
#define UNO_WATCH_AGREE_H

#include "base/base.h"

#define AGREE_MAX_RANKS 14000 /* a message of them fits a control frame */

/* Sets of ranks: bit r % 8 of byte r / 8. */
static inline size_t agree_set_bytes(int size) { return ((size_t)size + 7) / 8; }
static inline bool agree_in(const unsigned char *set, int rank) { return set[rank / 8] >> (rank % 8) & 1; }
static inline void agree_add(unsigned char *set, int rank) { set[rank / 8] |= (unsigned char)(1u << (rank % 8)); }

struct agree_times {
    uint64_t calls_ns;   /* so long members have to call, then they are left out */
    uint64_t retry_ns;   /* between repetitions */
    uint64_t silence_ns; /* a caller not heard for so long is passed over */
};

struct agree;
uno_err agree_new(int rank, int size, const struct agree_times *times, struct agree **a); /* UNO_ERR_MEMORY, UNO_ERR_UNSUPPORTED */
void agree_free(struct agree *a);
/* The program has called. exclude: a set of ranks that are not waited for and not proposed; NULL = none. */
void agree_call(struct agree *a, const unsigned char *exclude, uint64_t now);
void agree_withdraw(struct agree *a);           /* its call has returned without a decision */
void agree_gone(struct agree *a, int rank);
void agree_lost(struct agree *a, int rank);     /* it has probably ended: not waited for, but no quorum forgets it */
/* UNO_ERR_PARSE: not a message of this agreement; nothing happened. */
uno_err agree_receive(struct agree *a, const void *data, size_t bytes, uint64_t now);
void agree_tick(struct agree *a, uint64_t now);
uint64_t agree_next_ns(const struct agree *a);  /* when agree_tick has something to do; UINT64_MAX = never */

/* ---- what goes out ---- */
bool agree_any_due(const struct agree *a);
bool agree_due(const struct agree *a, int to);
size_t agree_message_bytes(int size);
void agree_write(struct agree *a, void *buf);   /* agree_message_bytes of them, for all that are due; then nothing is due */
/* As agree_write for a member that has left: it answers no more. */
void agree_write_left(int rank, int size, void *buf);

/* ---- what is known ---- */
const unsigned char *agree_decision(const struct agree *a); /* NULL = none yet */
bool agree_touched(const struct agree *a);      /* has it promised, accepted, called: must it still answer? */
bool agree_has_called(const struct agree *a, int rank);
bool agree_knows(const struct agree *a, int rank); /* is that rank known to know the decision? */
bool agree_is_gone(const struct agree *a, int rank);
bool agree_answers(const struct agree *a, int rank, uint64_t now); /* heard of within silence_ns * 3, or it is ourselves */
bool agree_conflict(const struct agree *a);     /* two decisions were seen: a fault of ours */

#endif
