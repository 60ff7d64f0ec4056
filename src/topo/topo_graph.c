/* SPDX-License-Identifier: Apache-2.0 */
/* topo_graph.c - the graph itself: names of kinds, growing it, walking up, freeing it. */
#include "topo_build.h"

#include <stdlib.h>
#include <string.h>

const char *const topo_kind_names[] = {"host", "socket", "numa", "l3",  "core",   "pu",
                                       "pci",  "nic",    "gpu",  "switch", "rank"};
_Static_assert(ARRAY_LEN(topo_kind_names) == TOPO_KINDS, "one name a kind");

void topo_begin(struct topo_build *b, const char *source)
{
    *b = (struct topo_build){.graph = mem_zalloc(sizeof *b->graph)};
    if (b->graph)
        snprintf(b->graph->source, sizeof b->graph->source, "%s", source);
    else
        b->err = UNO_ERR_MEMORY;
}

int topo_add(struct topo_build *b, enum topo_kind kind, int parent, int os_index, const char *name)
{
    if (b->err != UNO_OK)
        return -1;
    struct graph *g = b->graph;
    if (g->nnodes >= TOPO_MAX_NODES) {
        b->err = err_set(UNO_ERR_PARSE, "a topology of more than %d parts is not read", TOPO_MAX_NODES);
        return -1;
    }
    int depth = 0;
    for (int up = parent; up >= 0; up = g->nodes[up].parent)
        depth++;
    if (depth >= TOPO_MAX_DEPTH) {
        b->err = err_set(UNO_ERR_PARSE, "a topology nested deeper than %d is not read", TOPO_MAX_DEPTH);
        return -1;
    }
    b->err = mem_grow(&g->nodes, &b->cap_nodes, (size_t)g->nnodes + 1, sizeof *g->nodes);
    if (b->err != UNO_OK)
        return -1;
    g->nodes[g->nnodes] = (struct topo_node){.kind = kind, .parent = parent, .os_index = os_index, .rank = -1};
    snprintf(g->nodes[g->nnodes].name, sizeof g->nodes->name, "%s", name ? name : "");
    return g->nnodes++;
}

void topo_link(struct topo_build *b, int from, int to, const char *kind, uint64_t rate_bps, uint64_t latency_ns)
{
    if (b->err != UNO_OK)
        return;
    struct graph *g = b->graph;
    b->err = mem_grow(&g->links, &b->cap_links, (size_t)g->nlinks + 1, sizeof *g->links);
    if (b->err != UNO_OK)
        return;
    struct topo_link *l = &g->links[g->nlinks++];
    *l = (struct topo_link){.a = from, .b = to, .rate_bps = rate_bps, .latency_ns = latency_ns};
    snprintf(l->kind, sizeof l->kind, "%s", kind);
}

uno_err topo_end(struct topo_build *b, struct graph **graph)
{
    *graph = NULL;
    if (b->err == UNO_OK)
        *graph = b->graph;
    else
        topo_free(b->graph);
    b->graph = NULL;
    return b->err;
}

int topo_above(const struct graph *graph, int node, enum topo_kind kind)
{
    while (node >= 0 && graph->nodes[node].kind != kind)
        node = graph->nodes[node].parent;
    return node;
}

topo_counts *topo_count_below(const struct graph *graph)
{
    topo_counts *counts = mem_array((size_t)graph->nnodes, sizeof *counts);
    for (int i = graph->nnodes - 1; counts && i >= 0; i--) { /* children come after their parent */
        const struct topo_node *n = &graph->nodes[i];
        counts[i][n->kind]++;
        for (int k = 0; k < TOPO_KINDS && n->parent >= 0; k++)
            counts[n->parent][k] += counts[i][k];
    }
    return counts;
}

void topo_free(struct graph *graph)
{
    if (!graph)
        return;
    free(graph->nodes);
    free(graph->links);
    free(graph);
}
