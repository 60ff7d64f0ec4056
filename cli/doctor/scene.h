/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scene.h - who waits in which operation of which group, who is missing there, and how far everybody came: put together from watchdog
 * lines, flight-recorder dumps and collective traces, which each know a part of it. The rules of hangs look at nothing else.
 */
#ifndef UNO_DOCTOR_SCENE_H
#define UNO_DOCTOR_SCENE_H

#include "rule.h"

/* A rank in an operation that it has begun and that has not ended. */
struct wait {
    int rank;
    struct group *group;
    int64_t number;
    const char *op;
    int64_t elements; /* NOBODY = not said */
    int state;        /* 0 scheduled, 1 started; NOBODY = not said */
    bool p2p, on_host; /* on_host: no GPU runs it */
    int peer;
    const char *site, *shape;
    const struct fact *fact;
};

struct group {
    const char *name, *words; /* number as the job gives it; description, or the number again */
    struct ranks members;     /* as a dump says, or as far as is seen */
    bool whole;               /* members are all there are */
    bool everyone;            /* the default group */
    bool mismatched;          /* its members call different things: nothing else is to be concluded from it */
    int index;                /* waits of a group stand together */
    int from, to;             /* its waits among the scene's */
    int64_t lowest;           /* operation that anybody waits in, NOBODY = none; point-to-point is left out */
    struct group *next, *same_hash;
};

/* How far a rank has come in a group, by its own records. */
struct pace {
    int group, rank;
    int64_t issued, completed;
};

struct scene {
    struct group *groups;
    int group_count;
    struct wait *waits; /* in order of group, rank, point to point, number */
    int wait_count, wait_cap;
    struct pace *paces; /* in order of group, rank */
    int pace_count;
    struct ranks dumps, speakers, waiting; /* ranks that wrote a dump; that are heard at all; that wait */
    bool recorded;                         /* there are dumps */
    struct group *hash[4096];
};

struct scene *scene_of(struct judge *j);

/* The first collective that `rank` waits in within the group, NULL if none. */
const struct wait *first_wait(const struct scene *s, int rank, const struct group *g);
const struct wait *any_wait(const struct scene *s, int rank);
/* Of the first collectives that it waits in, in any group, the one that was issued first: the rest waits behind it. */
const struct wait *oldest_wait(const struct scene *s, int rank);

/* An operation that has ended (a fact F_OP), told like a wait; its group is NULL if nobody waits in any such. */
struct wait ended_there(const struct scene *s, const struct fact *op);

/* Has this rank finished that operation? From its own records. */
bool has_completed(const struct scene *s, int rank, const struct group *g, int64_t number);

/* Last operation that a rank has issued in the group, NOBODY = not known. */
int64_t last_issued(const struct scene *s, int rank, const struct group *g);

/* Whoever finishes one of these has had something from everybody (rules_hang.c). */
bool needs_everyone(const char *op);

/* "all_reduce #5 of group X", with what it really is when it is a barrier. */
const char *operation_says(struct judge *j, const struct wait *w);

#endif
