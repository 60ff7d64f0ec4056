/* SPDX-License-Identifier: Apache-2.0 */
/* topo_build.h - making graphs: used by the sources of topologies inside this folder. A node's parent always comes before it. */
#ifndef UNO_TOPO_BUILD_H
#define UNO_TOPO_BUILD_H

#include "topo/topo.h"

#define TOPO_KINDS (TOPO_RANK + 1)
#define TOPO_MAX_NODES 1000000
#define TOPO_MAX_DEPTH 16 /* so that walking the tree may recurse */

struct topo_build {
    struct graph *graph;
    size_t cap_nodes, cap_links;
    uno_err err;              /* first failure; later calls do nothing */
};
void topo_begin(struct topo_build *b, const char *source);
/* Append a node; returns its index, or -1 after a failure. */
int topo_add(struct topo_build *b, enum topo_kind kind, int parent, int os_index, const char *name);
/* Append a directed link. */
void topo_link(struct topo_build *b, int from, int to, const char *kind, uint64_t rate_bps, uint64_t latency_ns);
/* Hand the graph over, or free it and return the failure. */
uno_err topo_end(struct topo_build *b, struct graph **graph);

/* Nearest node of that kind on the way up from `node`, itself included; -1 if none. */
int topo_above(const struct graph *graph, int node, enum topo_kind kind);
/* How many nodes of each kind hang below each node, itself included; one row a node, the caller frees. NULL: no memory. */
typedef int topo_counts[TOPO_KINDS];
topo_counts *topo_count_below(const struct graph *graph);
/* hwloc's own XML (topo_hwloc.c). */
uno_err topo_from_hwloc_xml(const char *path, struct graph **graph);
/* Our JSON from memory (topo_json.c). */
uno_err topo_from_json(const char *text, size_t bytes, const char *source, struct graph **graph);

#endif
