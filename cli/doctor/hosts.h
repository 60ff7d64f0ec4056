/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.h - several hosts at once: `unisono doctor --hosts a,b,c` starts an agent (this program) on each through ssh or --launcher, which tells
 * what it sees there, lends its clock, and measures connections to the others. What was gathered is one JSON object; read_hosts.c turns it into
 * facts, so that it can be kept and read again.
 *
 * Between the two: lines of JSON over the agent's standard input and output; the first line begins with HOSTS_MAGIC, what a remote shell printed
 * before is skipped. {"do": "clock"} -> {"ns": realtime}; {"do": "pair", "address", "port"} -> what pair_measure says; end of file ends it.
 */
#ifndef UNO_DOCTOR_HOSTS_H
#define UNO_DOCTOR_HOSTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "doctor.h"

#define HOSTS_MAGIC "unisono-doctor-agent-1 "
enum { HOSTS_TOKEN = 32 }; /* characters: who has it not is no agent of this run */

/* Ask all hosts, then measure each pair both ways, all hosts at once, one partner each. Prints nothing. Returns the text, malloc'ed; NULL with
 * a sentence in why when the list is none. A host that cannot be asked stands in it with the reason. Blocks: seconds. */
char *hosts_gather(const struct hosts_options *opt, char *why, size_t why_bytes);

/* Print what was gathered as two tables. */
void hosts_print(const char *gathered);

/* Be the agent over standard input and output. Returns an exit status. */
int hosts_agent(void);

/* Milliseconds of a clock that does not jump; order of doubles, for qsort. */
double hosts_now_ms(void);
int hosts_by_size(const void *a, const void *b);

/* ---- one connection (hosts_pair.c) ----------------------------------------------------------------------------------------------------- */

/* Listen on all addresses of this host and answer those who know the token, in threads of their own, until the process ends. Returns the port,
 * -1 when it cannot. */
int pair_serve(const char *token);

/* Connect, tell the token, send small messages there and back, then a large one. The answer has "connected", "error", "ms" (half a round trip),
 * "gbs" (10^9 bytes a second), "mtu" (of the path), "retransmits", "stuck" (bytes that had arrived when no more came; -1 = all came). The
 * caller's; NULL without memory. Blocks at most five seconds. */
json_t *pair_measure(const char *address, int port, const char *token);

#endif
