/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - this machine as far as a job would mind: what the kernel shows, and probes of milliseconds. Each check is one line; what files
 * could say, too, is also given as text, so that the same rules judge it. Parts: machine_host.c (processors, limits, kernel), machine_net.c
 * (names, interfaces, which of them each library takes), machine_pci.c (RDMA cards, GPUs, PCIe), machine_xml.c (their tree as a topology file).
 */
#ifndef UNO_DOCTOR_MACHINE_H
#define UNO_DOCTOR_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum check_state { CHECK_GOOD, CHECK_NOTE, CHECK_BAD };
enum { CHECKS = 256 };

struct check {
    char name[40], value[240], advice[240]; /* advice: "" when good */
    enum check_state state;
};

struct machine {
    const char *root; /* "" = the machine this runs on; else a folder that stands for /, with a copy of its /sys and /proc */
    struct check checks[CHECKS];
    int count;
    FILE *out;  /* where parts write what the readers are given; becomes text */
    char *text;
    size_t text_bytes;
    int cards, gpus; /* RDMA cards and GPUs seen */
    bool variables; /* --env: the variables that were read are told, too */
    char *hosts, *topologies; /* what --hosts gathered, and what --check-nccl reports, JSON; NULL = it was not asked for */
};

/* Look at everything. Needs no root; what only root may see is skipped. With a `root` that is not "", probes and what is no file (the
 * interfaces' addresses, the environment) are left out. Frees with machine_free. */
void machine_look(struct machine *m, const char *root);
void machine_free(struct machine *m);

/* The tree of PCIe switches, GPUs and network cards as a topology file of NCCL's form (xGMI links as RCCL has them); malloc'ed, NULL when there
 * is no GPU. */
char *machine_xml(const char *root);

/* What nvidia-smi or rocm-smi says of links between GPUs; malloc'ed, NULL when neither is there or has anything to say. *who: which. Blocks at
 * most twenty seconds. */
char *machine_tools(const char **who);

/* ---- for the parts ------------------------------------------------------------------------------------------------------------------- */

void machine_host(struct machine *m);
void machine_net(struct machine *m);
void machine_pci(struct machine *m);

struct check *machine_check(struct machine *m, enum check_state state, const char *name, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void machine_advise(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void machine_tell(struct machine *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline bool machine_is_here(const struct machine *m) { return !*m->root; }

/* The first line of a file below root; false if it cannot be read. */
bool kernel_line(const char *root, char *to, size_t bytes, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Its number, `otherwise` when there is none. */
long kernel_number(const char *root, long otherwise, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool kernel_has(const char *root, const char *path);
/* The words behind "key" in a file of lines such as /proc/self/status; false if it has none. */
bool kernel_field(const char *root, const char *path, const char *key, char *to, size_t bytes);
/* Names in a folder, in order; hidden ones left out. Returns how many, at most `most`. */
enum { KERNEL_NAME = 64 };
int kernel_names(const char *root, char names[][KERNEL_NAME], int most, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
