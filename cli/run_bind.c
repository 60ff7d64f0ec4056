/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_bind.c - where each rank of a host runs. numa: ranks are dealt to NUMA nodes in order, each gets all processors of its
 * node and its memory first from there. core: each rank gets an equal share of whole cores, not crossing a node where that fits.
 * auto: none when there are more ranks than processors, numa when there are several nodes, else core.
 */
#include "run.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    hwloc_cpuset_t cpus;   /* NULL = not bound */
    hwloc_nodeset_t nodes;
};

struct run_binding {
    hwloc_topology_t topo; /* NULL when nothing is bound */
    enum run_bind kind;    /* what was done */
    char why[120];         /* beside "not bound" */
    int n;
    struct place place[];
};

static int processors_allowed(void)
{
    /* The fixed set holds 1024 processors; larger machines need a larger one. */
    for (size_t cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int rc = set ? sched_getaffinity(0, bytes, set) : -1, n = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (rc == 0)
            return n;
    }
    return 1;
}

static bool load(struct run_binding *b)
{
    if (hwloc_topology_init(&b->topo) != 0) {
        b->topo = NULL;
        return false;
    }
    if (hwloc_topology_load(b->topo) == 0) {
        /* Only what this process may use: a container or an outer launcher may have narrowed it. */
        hwloc_cpuset_t mine = hwloc_bitmap_alloc();
        if (mine && hwloc_get_cpubind(b->topo, mine, HWLOC_CPUBIND_PROCESS) == 0)
            hwloc_topology_restrict(b->topo, mine, 0);
        hwloc_bitmap_free(mine);
        return true;
    }
    hwloc_topology_destroy(b->topo);
    b->topo = NULL;
    return false;
}

static void bind_numa(struct run_binding *b, int nodes)
{
    for (int i = 0; i < b->n; i++) {
        /* More nodes than ranks: spread; fewer: neighbours share. */
        int at = (int)((long)i * nodes / b->n);
        hwloc_obj_t node = hwloc_get_obj_by_type(b->topo, HWLOC_OBJ_NUMANODE, (unsigned)at);
        b->place[i].cpus = hwloc_bitmap_dup(node->cpuset);
        b->place[i].nodes = hwloc_bitmap_dup(node->nodeset);
    }
}

/* Ranks [first, first + n) get equal shares of the cores inside `within`. */
static void share_cores(struct run_binding *b, hwloc_const_cpuset_t within, int first, int n)
{
    int cores = hwloc_get_nbobjs_inside_cpuset_by_type(b->topo, within, HWLOC_OBJ_CORE);
    for (int i = 0; i < n; i++) {
        int from = i * cores / n, to = (i + 1) * cores / n;
        struct place *p = &b->place[first + i];
        p->cpus = hwloc_bitmap_alloc();
        p->nodes = hwloc_bitmap_alloc();
        for (int c = from; c < (to > from ? to : from + 1); c++) {
            hwloc_obj_t core = hwloc_get_obj_inside_cpuset_by_type(b->topo, within, HWLOC_OBJ_CORE, (unsigned)c);
            if (core)
                hwloc_bitmap_or(p->cpus, p->cpus, core->cpuset);
        }
        hwloc_cpuset_to_nodeset(b->topo, p->cpus, p->nodes);
    }
}

static void bind_core(struct run_binding *b, int nodes)
{
    bool whole = b->n >= nodes;
    for (int at = 0; whole && at < nodes; at++) {
        int first = (int)(((long)at * b->n + nodes - 1) / nodes), next = (int)(((long)(at + 1) * b->n + nodes - 1) / nodes);
        hwloc_obj_t node = hwloc_get_obj_by_type(b->topo, HWLOC_OBJ_NUMANODE, (unsigned)at);
        if (next - first > hwloc_get_nbobjs_inside_cpuset_by_type(b->topo, node->cpuset, HWLOC_OBJ_CORE))
            whole = false; /* nodes of unequal size: share over the whole machine instead */
    }
    if (!whole) {
        share_cores(b, hwloc_topology_get_topology_cpuset(b->topo), 0, b->n);
        return;
    }
    for (int at = 0; at < nodes; at++) {
        int first = (int)(((long)at * b->n + nodes - 1) / nodes), next = (int)(((long)(at + 1) * b->n + nodes - 1) / nodes);
        share_cores(b, hwloc_get_obj_by_type(b->topo, HWLOC_OBJ_NUMANODE, (unsigned)at)->cpuset, first, next - first);
    }
}

/* NUMA nodes that have processors; nodes of memory alone come after them in no use to us. */
static int nodes_with_processors(hwloc_topology_t topo)
{
    int n = 0, all = hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_NUMANODE);
    while (n < all && !hwloc_bitmap_iszero(hwloc_get_obj_by_type(topo, HWLOC_OBJ_NUMANODE, (unsigned)n)->cpuset))
        n++;
    return n;
}

struct run_binding *binding_new(enum run_bind want, int n)
{
    struct run_binding *b = calloc(1, sizeof *b + (size_t)n * sizeof *b->place);
    if (!b)
        return NULL;
    b->n = n;
    b->kind = want;
    int cpus = processors_allowed();
    if (want == BIND_NONE) {
        snprintf(b->why, sizeof b->why, "as asked");
        return b;
    }
    if (want == BIND_AUTO && n > cpus) {
        b->kind = BIND_NONE;
        snprintf(b->why, sizeof b->why, "%d ranks share %d processors", n, cpus);
        return b;
    }
    if (!load(b)) {
        b->kind = BIND_NONE;
        snprintf(b->why, sizeof b->why, "hwloc could not read this machine");
        return b;
    }
    int nodes = nodes_with_processors(b->topo), cores = hwloc_get_nbobjs_by_type(b->topo, HWLOC_OBJ_CORE);
    if (want == BIND_AUTO)
        b->kind = nodes > 1 ? BIND_NUMA : n <= cores ? BIND_CORE : BIND_NONE;
    if (b->kind == BIND_CORE && n > cores) {
        snprintf(b->why, sizeof b->why, "%d ranks, %d cores", n, cores);
        b->kind = BIND_NONE;
    } else if (b->kind == BIND_NUMA && nodes > 0) {
        bind_numa(b, nodes);
    } else if (b->kind == BIND_CORE) {
        bind_core(b, nodes > 0 ? nodes : 1);
    } else {
        snprintf(b->why, sizeof b->why, "%d ranks, %d cores", n, cores);
        b->kind = BIND_NONE;
    }
    return b;
}

void binding_apply(const struct run_binding *b, int i)
{
    if (!b || i >= b->n || !b->place[i].cpus)
        return;
    hwloc_set_cpubind(b->topo, b->place[i].cpus, HWLOC_CPUBIND_PROCESS);
    /* Without STRICT memory comes from the node first and from others before it runs out. */
    if (b->place[i].nodes && !hwloc_bitmap_iszero(b->place[i].nodes))
        hwloc_set_membind(b->topo, b->place[i].nodes, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET);
}

void binding_text(const struct run_binding *b, int i, char *buf, size_t bytes)
{
    if (!b || !b->place[i].cpus) {
        snprintf(buf, bytes, "not bound: %s", b ? b->why : "no memory");
        return;
    }
    char cpus[256], nodes[128];
    hwloc_bitmap_list_snprintf(cpus, sizeof cpus, b->place[i].cpus);
    hwloc_bitmap_list_snprintf(nodes, sizeof nodes, b->place[i].nodes);
    snprintf(buf, bytes, "processors %s, memory of node %s first (%s)", cpus, nodes, run_bind_names[b->kind]);
}

void binding_free(struct run_binding *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->n; i++) {
        hwloc_bitmap_free(b->place[i].cpus);
        hwloc_bitmap_free(b->place[i].nodes);
    }
    if (b->topo)
        hwloc_topology_destroy(b->topo);
    free(b);
}
