/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_places.h - who shares a host with whom, and the connections that follow from it: what the two files of the generator
 * "two_level" share.
 */
#ifndef UNO_PLANNER_PLACES_H
#define UNO_PLANNER_PLACES_H

#include "planner_gen.h"

struct places {
    struct plan_build b;
    int n, hosts, least;        /* least: ranks of the smallest host */
    int r, host, local, size;   /* this rank: its host, number there, ranks there */
    int *start, *member, *nth;  /* host -> first index in member; ranks by host; rank -> number on its host */
};

uno_err places_make(struct places *p, const struct plan *plan, int rank); /* UNO_ERR_MEMORY */
void places_free(struct places *p);

static inline int host_size(const struct places *p, int host) { return p->start[host + 1] - p->start[host]; }
static inline int rank_at(const struct places *p, int host, int local) { return p->member[p->start[host] + local]; }

/* Connection to all other ranks of this host; -1 when there is none. Written once however many read. */
int places_send_inside(struct places *p);
/* Its other end, for what local rank `from` sends. */
int places_recv_inside(struct places *p, int from);
/* On the last step: raw operands of all other ranks of this host, own contribution at its place. */
void places_operands_inside(struct places *p);
/* On the last step: partial sums of the other hosts' ranks that serve local number `local`, own host's at its place. */
void places_operands_between(struct places *p, int local);

/* planner_two_level_pass.c: what is passed on whole, and the barrier. */
void two_level_all_to_all(struct places *p);
void two_level_gather(struct places *p);
void two_level_scatter(struct places *p);
void two_level_barrier(struct places *p);

#endif
