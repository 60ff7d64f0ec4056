/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo.h - what the machine is: one graph type, several sources, one cost function. Made once, then read-only.
 */
#ifndef UNO_TOPO_H
#define UNO_TOPO_H

#include "base/base.h"

#include <stddef.h>

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
/* Bytes of the last-level cache for each of so many ranks of this host, were all on processors that share it. */
uint64_t topo_cache_share(int ranks);

/* ---- the one cost function (planner and sim share it): integers only, picoseconds ---- */
struct topo_costs {              /* measured or built in; equal on all ranks (exchanged at join). What each is: costs.def */
#define COST(id, built_in, least, most, help) uint64_t id;
#include "costs.def"
#undef COST
    uint64_t processors;         /* of the least host */
};
extern const struct topo_costs topo_costs_default;
/* The costs where the messages of one host's ranks have `bytes` together: shm_ps_per_kb and reduce_ps_per_kb are those of the class.
 * lent: the buffers can be mapped by both sides. */
struct topo_costs topo_costs_at(const struct topo_costs *costs, uint64_t bytes, bool lent);
/* So many bytes at a rate. Saturates far beyond any real time, and leaves room to add up. */
uint64_t topo_bytes_ps(uint64_t ps_per_kb, uint64_t bytes);
/* What a rank does: so many steps with `bytes` each, passes of one side over a slot, operands that are reduced. */
uint64_t topo_work_ps(const struct topo_costs *costs, uint64_t steps, uint64_t copies, uint64_t reduces, uint64_t bytes);
/* Until each of so many ranks of a host has had its turn on a processor; 0: each has one to itself. */
uint64_t topo_turns_ps(const struct topo_costs *costs, uint64_t ranks);

/* ---- calibration (topo_tune.c): costs measured on this machine by `unisono tune`, in a file ---- */
struct topo_cost_row { const char *name, *help; uint64_t built_in, least, most; };
#define TOPO_COST_ROWS (offsetof(struct topo_costs, processors) / sizeof(uint64_t))
extern const struct topo_cost_row topo_cost_rows[]; /* in the order of the fields: TOPO_COST_ROWS of them */
static inline uint64_t *topo_cost_of(struct topo_costs *c, size_t row) { return (uint64_t *)c + row; }
/* This machine's file: `setting` if it names one, else below XDG_CACHE_HOME or HOME/.cache. UNO_ERR_CONFIG: there is no place. */
uno_err topo_tune_path(const char *setting, char *path, size_t path_bytes);
/* Costs of this machine: those of the file, or built in. found: they are the file's. *why (owned by the caller, or empty): the
 * sentence that says why a file that is there is not followed. `setting` as UNISONO_COSTS: "none" = built in. */
struct topo_costs topo_tune_load(const char *setting, bool *found, struct text *why);
/* Write them, whole or not at all. UNO_ERR_SYSTEM, UNO_ERR_CONFIG. */
uno_err topo_tune_save(const char *path, const struct topo_costs *costs);
/* Are values received from another rank ones that a file could have? */
bool topo_costs_sane(const struct topo_costs *costs);
/* What a calibration is good for: "AMD EPYC 9R14, 2 processors, 1 NUMA node". */
void topo_tune_machine(struct text *machine);

#endif
