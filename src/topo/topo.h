/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo.h - what the machine is: one graph type, several sources, one cost function. Made once, then read-only.
 */
#ifndef UNO_TOPO_H
#define UNO_TOPO_H

#include "base/base.h"

enum topo_kind { TOPO_HOST, TOPO_SOCKET, TOPO_NUMA, TOPO_L3, TOPO_CORE, TOPO_PU, TOPO_PCI, TOPO_NIC, TOPO_GPU, TOPO_SWITCH, TOPO_RANK };
extern const char *const topo_kind_names[];

struct topo_node {
    enum topo_kind kind;
    int parent;             /* index of the node it hangs on; -1 for hosts and switches */
    int os_index;           /* number the operating system gives it; -1 = none */
    char name[48];          /* "eth0", "node1", model name, ... */
    uint64_t rate_bps;      /* NIC, link to parent: BYTES per second; 0 = unknown */
    uint64_t mem_bytes;     /* NUMA: memory; L3/core caches: size */
    int rank;               /* RANK: its number */
};

struct topo_link {          /* beyond the tree: NUMA-NUMA, GPU-GPU, NIC-switch */
    int a, b;               /* node indexes; directed a -> b */
    uint64_t rate_bps;      /* bytes per second */
    uint64_t latency_ns;
    char kind[12];          /* "numa" "nvlink" "xgmi" "pcie" "net" */
};

struct graph {
    int nnodes, nlinks;
    struct topo_node *nodes;
    struct topo_link *links;
    char source[64];        /* "this machine", file name, or the synthetic line */
};

uno_err topo_from_hwloc(struct graph **graph);                         /* this machine: hwloc, /sys/class/net */
uno_err topo_from_synthetic(const char *line, struct graph **graph);   /* "host:2 numa:2 core:8 nic:1@25G rank:8", see docs/topology.md */
void topo_free(struct graph *graph);
uno_err topo_print(const struct graph *graph, struct text *out);       /* as people draw it */
/* For the tools (jansson, expat; hwloc reads its own XML). Detects the format. UNO_ERR_PARSE with line and what is legal. */
uno_err topo_from_file(const char *path, struct graph **graph);        /* hwloc XML, our JSON; later NCCL/RCCL XML, text tables */
uno_err topo_to_json(const struct graph *graph, struct text *out);
/* Lint: appends findings as sentences; returns how many. */
int topo_check(const struct graph *graph, struct text *out);

/* ---- processors, for binding and waiting (this process, cheap, no hwloc) ---- */
int topo_processors(void);  /* min(affinity mask, cgroup CPU quota rounded up), >= 1 */

/* ---- the one cost function (planner and sim share it): integers only, picoseconds ---- */
struct topo_costs {              /* measured or default; equal on all ranks (exchanged at join) */
    uint64_t shm_latency_ps;     /* flag hand-over between two ranks of a host */
    uint64_t shm_ps_per_kb;      /* one core copies 1024 bytes through a slot, both sides together */
    uint64_t reduce_ps_per_kb;   /* one core reduces 1024 bytes */
    uint64_t net_latency_ps;     /* one small message between hosts */
    uint64_t net_ps_per_kb;      /* 1024 bytes between hosts on one host's links */
    uint64_t step_ps;            /* fixed cost of one firing */
    uint64_t processors;         /* of the least host */
};
extern const struct topo_costs topo_costs_default;

#endif
