/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths.h - what NCCL and RCCL make of a machine: the kind of path between each pair of GPUs and from GPUs to network cards, and the bandwidth that
 * they count for it (nccl src/graph/topo.cc, paths.cc; constants of topo.h). From the facts of one topology file.
 */
#ifndef UNO_DOCTOR_PATHS_H
#define UNO_DOCTOR_PATHS_H

#include "model.h"

/* In NCCL's order: a larger one is farther. */
enum path_kind { PATH_LOC, PATH_NVL, PATH_NVB, PATH_C2C, PATH_PIX, PATH_PXB, PATH_PHB, PATH_SYS, PATH_NONE };
enum { TOPO_GPUS = 72, TOPO_NETS = 144 };

struct path {
    enum path_kind kind;
    double gbs;
    int hops, links; /* links: NVLinks or xGMI links of a direct one, 0 = another kind */
};

struct topo_gpu {
    const char *busid;
    int dev, numa, sm;     /* sm: 0 = not told */
    const char *chip;      /* "gfx942", "sm 90", "" = not told */
    bool gdr, gdr_told;
    int nets[TOPO_NETS], net_count; /* the nearest cards, all alike in kind and bandwidth */
};

struct topo_net {
    const char *name, *busid;
    int64_t mbit; /* 0 = not told */
    int dev, port, numa;
    bool gdr;
    double slot_gbs; /* of its PCIe slot; 0 = not told */
};

struct topo {
    const char *file;
    const struct fact *fact; /* F_XML */
    bool rccl, hwloc, amd_cpu, rome, told; /* told: <gpu> elements stand in the file; without, GPUs are known by their PCI class */
    int gpu_count, net_count, numa_count;
    struct topo_gpu *gpus;
    struct topo_net *nets;
    struct path *between, *to_net; /* see below */
};

static inline struct path *path_between(const struct topo *t, int gpu, int other) { return &t->between[gpu * t->gpu_count + other]; }
static inline struct path *path_to_net(const struct topo *t, int gpu, int net) { return &t->to_net[gpu * t->net_count + net]; }

/* Memory is the model's. NULL when the file has no GPU, or more than fit. */
const struct topo *topo_of(struct model *m, const struct fact *xml);

/* "NVL", "XGMI", "PIX", ...: as that library's logs say it. */
const char *path_word(const struct topo *t, enum path_kind kind);
/* "12 NVLinks", "a PCIe switch", "the inter-socket link". */
const char *path_over(struct model *m, const struct topo *t, const struct path *p);
/* Does that library let GPUs of such a path write to each other, and a card to a GPU? By its defaults. */
bool path_direct(const struct topo *t, const struct path *p);
bool path_gpudirect(const struct topo *t, int gpu, int net);

#endif
