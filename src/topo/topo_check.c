/* SPDX-License-Identifier: Apache-2.0 */
/* topo_check.c - what looks wrong in a topology: sentences for the people who made or own the machine. */
#include "topo_build.h"

#include <stdlib.h>
#include <string.h>

struct lint {
    const struct graph *g;
    topo_counts *counts;
    struct text *out;
    int found;
};

#define FIND(l, ...) (text_add((l)->out, __VA_ARGS__), text_add((l)->out, "\n"), (l)->found++)

static const char *host_name(const struct graph *g, int node)
{
    int host = topo_above(g, node, TOPO_HOST);
    return host < 0 ? "?" : g->nodes[host].name[0] ? g->nodes[host].name : "the host";
}

static void check_nics(struct lint *l, int host)
{
    const struct graph *g = l->g;
    uint64_t fastest = 0;
    bool unplaced = false;
    for (int i = host + 1; i < g->nnodes; i++) {
        const struct topo_node *n = &g->nodes[i];
        if (n->kind != TOPO_NIC || topo_above(g, i, TOPO_HOST) != host)
            continue;
        fastest = MAX(fastest, n->rate_bps);
        unplaced = unplaced || topo_above(g, i, TOPO_NUMA) < 0;
        if (n->rate_bps > 250000000000ull) /* 2 Tbit/s */
            FIND(l, "%s: network card %s claims %g Gbit/s, more than any card has; units are probably mixed up", host_name(g, i), n->name,
                 (double)n->rate_bps * 8e-9);
    }
    for (int i = host + 1; i < g->nnodes; i++)
        if (g->nodes[i].kind == TOPO_NIC && topo_above(g, i, TOPO_HOST) == host && g->nodes[i].rate_bps &&
            g->nodes[i].rate_bps * 10 <= fastest)
            FIND(l, "%s: network card %s is ten times or more slower than the fastest one; keep it out with UNISONO_SOCKET_IFNAME=^%s",
                 host_name(g, i), g->nodes[i].name, g->nodes[i].name);
    if (unplaced && l->counts[host][TOPO_NUMA] > 1)
        FIND(l, "%s: it is not known to which NUMA node its network cards belong; the firmware does not say", host_name(g, host));
}

static void check_nodes(struct lint *l, int host)
{
    const struct graph *g = l->g;
    int least = -1, most = -1;
    for (int i = host + 1; i < g->nnodes; i++) {
        const struct topo_node *n = &g->nodes[i];
        if (n->kind != TOPO_NUMA || topo_above(g, i, TOPO_HOST) != host)
            continue;
        int cores = l->counts[i][TOPO_CORE];
        if (cores == 0 && l->counts[host][TOPO_CORE] > 0)
            FIND(l, "%s: NUMA node %d has memory and no cores", host_name(g, i), n->os_index);
        else if (least < 0 || cores < least)
            least = cores;
        most = MAX(most, cores);
        if (n->mem_bytes == 0 && cores > 0 && l->counts[host][TOPO_NUMA] > 1 && strncmp(g->source, "this", 4) == 0)
            FIND(l, "%s: NUMA node %d has cores and no memory; a slot is empty or failed", host_name(g, i), n->os_index);
    }
    if (least > 0 && most > least)
        FIND(l, "%s: NUMA nodes have between %d and %d cores; ranks dealt evenly will not fit evenly", host_name(g, host), least, most);
}

/* Hosts that should be alike and are not: the slowest one sets the pace of a collective. */
static void check_alike(struct lint *l)
{
    const struct graph *g = l->g;
    int first = -1;
    for (int i = 0; i < g->nnodes; i++) {
        if (g->nodes[i].kind != TOPO_HOST)
            continue;
        if (first < 0) {
            first = i;
            continue;
        }
        static const enum topo_kind kinds[] = {TOPO_NUMA, TOPO_CORE, TOPO_NIC, TOPO_GPU};
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            int a = l->counts[first][kinds[k]], b = l->counts[i][kinds[k]];
            if (a != b)
                FIND(l, "hosts differ: %s has %d of kind %s, %s has %d", host_name(g, first), a, topo_kind_names[kinds[k]], host_name(g, i), b);
        }
    }
    if (first < 0)
        FIND(l, "there is no host in it");
}

static int pair_order(const void *x, const void *y)
{
    const int *a = x, *b = y;
    return a[0] != b[0] ? (a[0] > b[0]) - (a[0] < b[0]) : (a[1] > b[1]) - (a[1] < b[1]);
}

static void check_links(struct lint *l)
{
    const struct graph *g = l->g;
    int (*pairs)[2] = mem_array((size_t)g->nlinks, sizeof *pairs);
    for (int i = 0; pairs && i < g->nlinks; i++) {
        pairs[i][0] = g->links[i].a;
        pairs[i][1] = g->links[i].b;
    }
    if (pairs)
        qsort(pairs, (size_t)g->nlinks, sizeof *pairs, pair_order);
    for (int i = 0; pairs && i < g->nlinks; i++) {
        int back[2] = {g->links[i].b, g->links[i].a};
        if (!bsearch(back, pairs, (size_t)g->nlinks, sizeof *pairs, pair_order))
            FIND(l, "the link from part %d to part %d has no way back", back[1], back[0]);
    }
    free(pairs);
}

int topo_check(const struct graph *graph, struct text *out)
{
    struct lint l = {.g = graph, .out = out, .counts = topo_count_below(graph)};
    if (!l.counts) {
        out->failed = true;
        return 0;
    }
    check_alike(&l);
    for (int i = 0; i < graph->nnodes; i++)
        if (graph->nodes[i].kind == TOPO_HOST) {
            check_nodes(&l, i);
            check_nics(&l, i);
        }
    check_links(&l);
    free(l.counts);
    return l.found;
}
