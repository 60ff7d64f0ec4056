/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strangers.h - a job that works while its ports, and its sockets for tools, are attacked. strangers.c starts the job's ranks and looks at
 * what became of them, strangers_attack.c does what people do who do not know the secret (or know it and are not of the job),
 * strangers_doors.c what is done by tools that are none and by other users, strangers_lies.c what a member does that says wrong sizes.
 */
#ifndef STRANGERS_H
#define STRANGERS_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/base_auth.h"
#include "base/base_sock.h"
#include "boot/boot_internal.h"

#define RANKS 3
#define PORTS 32

enum attack { ATTACK_IDLE, ATTACK_SLOW, ATTACK_NOISE, ATTACK_SECRET, ATTACK_CROWD, ATTACK_OUTSIDER, ATTACK_TOOLS, ATTACK_USERS, ATTACKS };

/* Memory that ranks, attackers and the one who watches them share. */
struct ground {
    uno_id id, second_id;          /* of the job, and of the communicator that is being joined */
    _Atomic int has_id, has_second;
    pid_t ranks[RANKS];
    _Atomic int nports;
    _Atomic uint16_t ports[PORTS]; /* on which the job listens now */
    _Atomic int stop;              /* attackers */
    _Atomic long tried[ATTACKS];   /* connections */
    _Atomic int joined;            /* communicators made under attack */
    _Atomic long refused[RANKS];   /* as the ranks count them */
    _Atomic int working;           /* liars: ranks that have made their first operation */
    _Atomic long peak_kb[RANKS];
    char said[RANKS][800];         /* liars: the error of each, when it has ended */
};

/* ---- strangers_attack.c -------------------------------------------------------------------------------------- */
const char *attack_name(enum attack a);
void attack_run(struct ground *g, enum attack a, uint64_t seed); /* until g->stop */
/* Connect to a port of this host; -1 if it is gone. */
int attack_connect(uint16_t port);
/* A handshake as the initiator, made by hand; UNO_OK: the other side took it. */
uno_err attack_shake(int fd, const struct auth_key *key, const struct auth_hello *hello);
/* Both, and again if need be; -1: no. */
int attack_enter(uint16_t port, const struct auth_key *key, const struct auth_hello *hello);
/* The ports on which these processes listen. */
int listening_ports(const pid_t *pids, int npids, uint16_t *ports, int most);

/* ---- strangers_doors.c ----------------------------------------------------------------------------------------- */
void attack_doors(struct ground *g, enum attack a, struct rng *r); /* until g->stop; ATTACK_USERS: as somebody else, where we may */

/* ---- strangers_lies.c ------------------------------------------------------------------------------------------ */
/* Every lie to a small job of its own; prints what became of each. Returns how many went wrong. */
int lies_run(struct ground *g);

#endif
