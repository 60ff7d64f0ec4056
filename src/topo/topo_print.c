/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_print.c - a graph as people draw it: one line of sums, the tree with cores folded into ranges, then the links that are
 * not part of the tree.
 */
#include "topo_build.h"

#include <stdlib.h>
#include <string.h>

struct printer {
    const struct graph *g;
    struct text *out;
    int *first, *next;     /* children: the first one of a node, the next one of the same parent; -1 = none */
    int *numbers;          /* scratch, one a node */
    char indent[8 * TOPO_MAX_DEPTH];
};

static void add_rate(struct text *out, uint64_t rate_bps)
{
    double bits = (double)rate_bps * 8;
    if (rate_bps == 0)
        text_add(out, "speed unknown");
    else if (bits >= 1e9)
        text_add(out, "%g Gbit/s", bits / 1e9);
    else
        text_add(out, "%g Mbit/s", bits / 1e6);
}

static int count_kind(const struct graph *g, enum topo_kind kind)
{
    int n = 0;
    for (int i = 0; i < g->nnodes; i++)
        n += g->nodes[i].kind == kind;
    return n;
}

static void add_sums(const struct graph *g, struct text *out)
{
    static const struct { enum topo_kind kind; const char *one, *many; } words[] = {
        {TOPO_HOST, "host", "hosts"},       {TOPO_SOCKET, "socket", "sockets"},    {TOPO_NUMA, "NUMA node", "NUMA nodes"},
        {TOPO_CORE, "core", "cores"},       {TOPO_PU, "processor", "processors"},  {TOPO_NIC, "network card", "network cards"},
        {TOPO_GPU, "GPU", "GPUs"},          {TOPO_SWITCH, "switch", "switches"},   {TOPO_RANK, "rank", "ranks"},
    };
    const char *comma = "";
    text_add(out, "%s: ", g->source);
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        int n = count_kind(g, words[i].kind);
        if (n > 0)
            text_add(out, "%s%d %s", comma, n, n == 1 ? words[i].one : words[i].many);
        if (n > 0)
            comma = ", ";
    }
    text_add(out, "\n\n");
}

/* ---- ranges of numbers ------------------------------------------------------------------------------------- */

static int int_order(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* The processors at and below a node. */
static int collect_processors(const struct printer *p, int node, int found)
{
    if (p->g->nodes[node].kind == TOPO_PU && p->g->nodes[node].os_index >= 0)
        p->numbers[found++] = p->g->nodes[node].os_index;
    for (int i = p->first[node]; i >= 0; i = p->next[i])
        found = collect_processors(p, i, found);
    return found;
}

/* "0-3, 8-11" */
static void add_ranges(int *list, int n, struct text *out)
{
    qsort(list, (size_t)n, sizeof *list, int_order);
    for (int i = 0; i < n;) {
        int j = i;
        while (j + 1 < n && list[j + 1] <= list[j] + 1)
            j++;
        text_add(out, list[i] == list[j] ? "%s%d" : "%s%d-%d", i ? ", " : "", list[i], list[j]);
        i = j + 1;
    }
}

/* The cores directly below `top`, in one line. */
static void add_cores(struct printer *p, int top)
{
    const struct graph *g = p->g;
    uint64_t cache = 0;
    int cores = 0, processors = 0;
    for (int i = p->first[top]; i >= 0; i = p->next[i])
        if (g->nodes[i].kind == TOPO_CORE) {
            cores++;
            cache = g->nodes[i].mem_bytes;
            processors = collect_processors(p, i, processors);
        }
    char size[32];
    text_add(p->out, "%d core%s", cores, cores == 1 ? "" : "s");
    if (cache)
        text_add(p->out, ", L2 %s each", text_bytes(size, sizeof size, cache));
    if (processors) {
        text_add(p->out, ": processor%s ", processors == 1 ? "" : "s");
        add_ranges(p->numbers, processors, p->out);
    }
    text_add(p->out, "\n");
}

/* ---- the tree ------------------------------------------------------------------------------------------------- */

static void add_line(struct printer *p, int i)
{
    const struct topo_node *n = &p->g->nodes[i];
    char size[32];
    const char *gap = n->name[0] ? "  " : "";
    switch (n->kind) {
    case TOPO_HOST:
        text_add(p->out, "host %s", n->name);
        break;
    case TOPO_SOCKET:
        text_add(p->out, "socket %d%s%s", n->os_index, gap, n->name);
        break;
    case TOPO_NUMA:
        text_add(p->out, "NUMA node %d", n->os_index);
        if (n->mem_bytes)
            text_add(p->out, "  %s", text_bytes(size, sizeof size, n->mem_bytes));
        break;
    case TOPO_L3:
        text_add(p->out, "L3");
        if (n->mem_bytes)
            text_add(p->out, " %s", text_bytes(size, sizeof size, n->mem_bytes));
        break;
    case TOPO_NIC:
        text_add(p->out, "network card %s  ", n->name);
        add_rate(p->out, n->rate_bps);
        break;
    case TOPO_GPU:
        text_add(p->out, "GPU %s", n->name);
        break;
    case TOPO_RANK:
        text_add(p->out, "rank %d", n->rank);
        break;
    case TOPO_PU:
        text_add(p->out, "processor %d", n->os_index);
        break;
    default:
        text_add(p->out, "%s %s", topo_kind_names[n->kind], n->name);
    }
    text_add(p->out, "\n");
}

/* The next child from `i` on that gets a line: all but cores, which fold into the first of them. */
static int next_line(const struct printer *p, int i, bool *core_seen)
{
    while (i >= 0 && p->g->nodes[i].kind == TOPO_CORE && *core_seen)
        i = p->next[i];
    *core_seen = *core_seen || (i >= 0 && p->g->nodes[i].kind == TOPO_CORE);
    return i;
}

static void add_children(struct printer *p, int top)
{
    bool seen = false;
    size_t depth = strlen(p->indent);
    for (int i = next_line(p, p->first[top], &seen), next; i >= 0; i = next) {
        next = next_line(p, p->next[i], &seen);
        text_add(p->out, "%s%s", p->indent, next >= 0 ? "├─ " : "└─ ");
        if (p->g->nodes[i].kind == TOPO_CORE) {
            add_cores(p, top);
            continue;
        }
        add_line(p, i);
        strcpy(p->indent + depth, next >= 0 ? "│  " : "   ");
        add_children(p, i);
        p->indent[depth] = 0;
    }
}

static bool list_children(struct printer *p)
{
    int n = p->g->nnodes;
    p->first = mem_array((size_t)n, sizeof *p->first);
    p->next = mem_array((size_t)n, sizeof *p->next);
    p->numbers = mem_array((size_t)n, sizeof *p->numbers);
    if (!p->first || !p->next || !p->numbers)
        return false;
    for (int i = n - 1; i >= 0; i--) {
        int up = p->g->nodes[i].parent;
        p->first[i] = p->first[i] ? p->first[i] : -1;
        p->next[i] = -1;
        if (up >= 0) {
            if (p->first[up] > 0)
                p->next[i] = p->first[up];
            p->first[up] = i; /* never 0: a child comes after its parent */
        }
    }
    return true;
}

static void add_end(const struct graph *g, int node, struct text *out)
{
    int host = topo_above(g, node, TOPO_HOST);
    if (host >= 0 && host != node)
        text_add(out, "%s ", g->nodes[host].name);
    text_add(out, "%s", g->nodes[node].name[0] ? g->nodes[node].name : topo_kind_names[g->nodes[node].kind]);
    if (!g->nodes[node].name[0])
        text_add(out, " %d", g->nodes[node].os_index);
}

static bool same_link(const struct topo_link *x, const struct topo_link *y)
{
    return x->a == y->b && x->b == y->a && x->rate_bps == y->rate_bps && x->latency_ns == y->latency_ns && strcmp(x->kind, y->kind) == 0;
}

static void add_links(const struct graph *g, struct text *out)
{
    if (g->nlinks)
        text_add(out, "\nlinks\n");
    for (int i = 0; i < g->nlinks; i++) {
        const struct topo_link *l = &g->links[i];
        bool both = i + 1 < g->nlinks && same_link(l, &g->links[i + 1]);
        text_add(out, "  ");
        add_end(g, l->a, out);
        text_add(out, both ? " <-> " : " -> ");
        add_end(g, l->b, out);
        text_add(out, "  %s  ", l->kind);
        add_rate(out, l->rate_bps);
        if (l->latency_ns)
            text_add(out, ", %llu ns", (unsigned long long)l->latency_ns);
        text_add(out, "\n");
        i += both;
    }
}

uno_err topo_print(const struct graph *graph, struct text *out)
{
    struct printer p = {.g = graph, .out = out};
    bool ok = list_children(&p);
    if (ok)
        add_sums(graph, out);
    for (int i = 0; ok && i < graph->nnodes; i++)
        if (graph->nodes[i].parent < 0) {
            add_line(&p, i);
            add_children(&p, i);
        }
    if (ok)
        add_links(graph, out);
    free(p.first);
    free(p.next);
    free(p.numbers);
    return ok && !out->failed ? UNO_OK : err_set(UNO_ERR_MEMORY, "no memory to write the topology");
}
