/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unisono_plan.h - topologies and plans as data: load, show, check. For tools; nothing here moves a byte or talks to
 * other processes. Errors leave their sentence in uno_last_error(NULL).
 */
#ifndef UNISONO_PLAN_H
#define UNISONO_PLAN_H

#include "unisono.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Free a text that a function of this header returned. NULL is allowed. */
UNO_API void uno_text_free(char *text);

/* ---- topology ----------------------------------------------------------------------------------- */

typedef struct uno_topology uno_topology;

/* Read a topology. input: NULL or "" = this machine; a file (hwloc XML, our JSON); else a synthetic line such as
 * "host:2 numa:2 core:8 nic:1@25G" (docs/topology-format.md). UNO_ERR_PARSE says where and what is legal, UNO_ERR_SYSTEM when
 * the file cannot be read. *topology: owned by the caller, freed with uno_topology_free. */
UNO_API uno_err uno_topology_load(const char *input, uno_topology **topology) UNO_MUST_CHECK;
UNO_API void uno_topology_free(uno_topology *topology);
/* Write it as people draw it. *text: freed with uno_text_free. */
UNO_API uno_err uno_topology_print(const uno_topology *topology, char **text) UNO_MUST_CHECK;
/* Write it as JSON that uno_topology_load reads back. */
UNO_API uno_err uno_topology_json(const uno_topology *topology, char **text) UNO_MUST_CHECK;
/* Say what looks wrong, one sentence a line; *count: how many. Not an error. */
UNO_API uno_err uno_topology_check(const uno_topology *topology, char **text, int *count) UNO_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
