/* SPDX-License-Identifier: Apache-2.0 */
/* topo_check.c - what looks wrong in a topology: sentences for the people who made or own the machine. */
#include "topo_build.h"

#include <string.h>

struct lint {
    const struct graph *g;
    struct text *out;
    int found;
};

#define FIND(l, ...) (text_add((l)->out, __VA_ARGS__), text_add((l)->out, "\n"), (l)->found++)

static const char *host_name(const struct graph *g, int node)
{
    int host = topo_above(g, node, TOPO_HOST);
    return host < 0 ? "?" : g->nodes[host].name[0] ? g->nodes[host].name : "the host";
}

static int below(const struct graph *g, int top, enum topo_kind kind)
{
    int n = 0;
    for (int i = top + 1; i < g->nnodes; i++) {
        int up = i;
        while (up > top)
            up = g->nodes[up].parent;
        n += up == top && g->nodes[i].kind == kind;
    }
    return n;
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
    if (unplaced && below(g, host, TOPO_NUMA) > 1)
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
        int cores = below(g, i, TOPO_CORE);
        if (cores == 0 && below(g, host, TOPO_CORE) > 0)
            FIND(l, "%s: NUMA node %d has memory and no cores", host_name(g, i), n->os_index);
        else if (least < 0 || cores < least)
            least = cores;
        most = MAX(most, cores);
        if (n->mem_bytes == 0 && cores > 0 && below(g, host, TOPO_NUMA) > 1 && strncmp(g->source, "this", 4) == 0)
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
            int a = below(g, first, kinds[k]), b = below(g, i, kinds[k]);
            if (a != b)
                FIND(l, "hosts differ: %s has %d of kind %s, %s has %d", host_name(g, first), a, topo_kind_names[kinds[k]], host_name(g, i), b);
        }
    }
    if (first < 0)
        FIND(l, "there is no host in it");
}

static void check_links(struct lint *l)
{
    const struct graph *g = l->g;
    for (int i = 0; i < g->nlinks; i++) {
        bool back = false;
        for (int k = 0; k < g->nlinks && !back; k++)
            back = g->links[k].a == g->links[i].b && g->links[k].b == g->links[i].a;
        if (!back)
            FIND(l, "the link from part %d to part %d has no way back", g->links[i].a, g->links[i].b);
    }
}

int topo_check(const struct graph *graph, struct text *out)
{
    struct lint l = {.g = graph, .out = out};
    check_alike(&l);
    for (int i = 0; i < graph->nnodes; i++)
        if (graph->nodes[i].kind == TOPO_HOST) {
            check_nodes(&l, i);
            check_nics(&l, i);
        }
    check_links(&l);
    return l.found;
}
