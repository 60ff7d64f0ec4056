/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak.h - one segment of the endurance run: soak.c starts the ranks and measures them, soak_steps.c walks a script of random steps
 * that is the same on all ranks, soak_p2p.c does those with messages. What collectives must give is tests/conform's matter.
 *
 * The script is a function of the seed alone: every rank draws every step, also those of communicators that it is not in, and all
 * take steps in this order, so that no order of use can deadlock. What a rank draws for itself alone comes from `own`.
 */
#ifndef SOAK_H
#define SOAK_H

#include "conform/conform.h"

#define SOAK_RANKS 8
#define SOAK_PLACES 6  /* communicators at a time; the first is the whole job's and stays */
#define SOAK_CALLS 5   /* on the way at a time */

struct soak_place {
    int size, members[SOAK_RANKS]; /* ranks of the job in order of this communicator; size 0: free */
    uno_comm *comm;                /* NULL: this rank is no member */
};

struct soak {
    int ranks, me;
    uint64_t seed, step;
    struct rng rng, own;           /* of this step */
    struct soak_place places[SOAK_PLACES];
    struct conform_room rooms[SOAK_CALLS];
    uno_stream *streams[2];
    uno_event *event;
    long operations;               /* collectives and messages of this rank, communicators made and destroyed */
    const char *doing;             /* for the sentence about an error */
    char last_case[160];
};

/* ---- soak_steps.c ------------------------------------------------------------------------------------------------ */
uno_err soak_begin(struct soak *s, uno_comm *world);   /* the communicator stays the caller's */
uno_err soak_step(struct soak *s);                     /* number s->step, which it advances */
uno_err soak_calm(struct soak *s);                     /* let go of everything but the first communicator; collective */
void soak_end(struct soak *s);
/* A size in bytes up to `most`, mostly small; sometimes 0. */
size_t soak_bytes(struct rng *r, size_t most);
/* A place that has a communicator. */
struct soak_place *soak_pick(struct soak *s);
/* One collective with a result that is compared, of at most so many bytes a buffer. */
uno_err soak_collective(struct soak *s, const struct soak_place *at, size_t most);

/* ---- soak_measure.c ------------------------------------------------------------------------------------------------- */
struct soak_measure { long memory_kb, descriptors; };
struct soak_measure soak_held(void); /* by this process, now */
/* The same after it has let go of everything but its first communicator; collective, so that no rank is in the middle of anything. */
uno_err soak_measure(struct soak *s, struct soak_measure *m);

/* ---- soak_p2p.c ------------------------------------------------------------------------------------------------------ */
uno_err soak_messages(struct soak *s);                 /* any number at once, with tags, any source, in any order */
uno_err soak_shift(struct soak *s);                    /* everybody sends and receives in a group, perhaps on a stream */

#endif
