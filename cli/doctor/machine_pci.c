/* SPDX-License-Identifier: Apache-2.0 */
/* machine_pci.c - RDMA cards, GPUs and their links, what stands between them on PCIe: ACS, the IOMMU. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"
#include "pci.h"

/* ---- RDMA cards -------------------------------------------------------------------------------------------------------------------------- */

/* RoCE needs a GID of version 2 with an IPv4 address (or a routable IPv6 one); link-local ones end at the next router. */
static bool has_routable_gid(struct machine *m, const char *card, const char *port)
{
    for (int i = 0; i < 64; i++) {
        char type[32], gid[64];
        if (!kernel_line(m->root, gid, sizeof gid, "/sys/class/infiniband/%s/ports/%s/gids/%d", card, port, i))
            break;
        kernel_line(m->root, type, sizeof type, "/sys/class/infiniband/%s/ports/%s/gid_attrs/types/%d", card, port, i);
        if (strstr(type, "v2") && strncmp(gid, "fe80:", 5) != 0 && strspn(gid, "0:") != strlen(gid))
            return true;
    }
    return false;
}

static void one_port(struct machine *m, const char *card, const char *port)
{
    char state[64], layer[64], rate[64];
    bool known = kernel_line(m->root, state, sizeof state, "/sys/class/infiniband/%s/ports/%s/state", card, port);
    known = kernel_line(m->root, layer, sizeof layer, "/sys/class/infiniband/%s/ports/%s/link_layer", card, port) && known;
    kernel_line(m->root, rate, sizeof rate, "/sys/class/infiniband/%s/ports/%s/rate", card, port);
    long node = kernel_number(m->root, -1, "/sys/class/infiniband/%s/device/numa_node", card);
    bool down = known && !strstr(state, "ACTIVE"), roce = strcmp(layer, "Ethernet") == 0, efa = strncmp(card, "efa", 3) == 0 || strncmp(card, "rdmap", 5) == 0;
    bool unroutable = !down && roce && !efa && !has_routable_gid(m, card, port);
    struct check *c = machine_check(m, down || unroutable ? CHECK_NOTE : CHECK_GOOD, "RDMA card", "%s port %s: %s, %s%s%s%s", card, port, known ? layer : "?", known ? state : "?", *rate ? ", " : "", rate, unroutable ? ", no RoCE v2 GID that can be routed" : "");
    size_t at = strlen(c->value);
    if (node >= 0)
        snprintf(c->value + at, sizeof c->value - at, ", NUMA node %ld", node);
    if (down)
        machine_advise(c, "a port that is down is not used; cable, switch, subnet manager");
    else if (unroutable)
        machine_advise(c, "give its interface an IPv4 address, then NCCL_IB_GID_INDEX can name the v2 GID of it (`show_gids`); without one RoCE ends at the first router");
}

static void rdma_cards(struct machine *m)
{
    char names[64][KERNEL_NAME], ports[8][KERNEL_NAME];
    m->cards = kernel_names(m->root, names, 64, "/sys/class/infiniband");
    for (int i = 0; i < m->cards; i++) {
        int n = kernel_names(m->root, ports, 8, "/sys/class/infiniband/%s/ports", names[i]);
        for (int k = 0; k < n; k++)
            one_port(m, names[i], ports[k]);
    }
    if (m->cards == 0)
        machine_check(m, CHECK_GOOD, "RDMA cards", "none");
}

/* ---- GPUs ------------------------------------------------------------------------------------------------------------------------------------ */

static void one_gpu(struct machine *m, const struct pci_device *g)
{
    char now[48], most[48];
    kernel_line(m->root, now, sizeof now, "/sys/bus/pci/devices/%s/current_link_speed", g->busid);
    kernel_line(m->root, most, sizeof most, "/sys/bus/pci/devices/%s/max_link_speed", g->busid);
    long width = kernel_number(m->root, -1, "/sys/bus/pci/devices/%s/current_link_width", g->busid), full = kernel_number(m->root, -1, "/sys/bus/pci/devices/%s/max_link_width", g->busid);
    bool narrow = width > 0 && full > 0 && width < full && width < 64 && full < 64, slow = strtod(now, NULL) > 0 && strtod(now, NULL) < strtod(most, NULL);
    struct check *c = machine_check(m, narrow ? CHECK_BAD : CHECK_GOOD, "GPU", "%s %s", pci_maker(g), g->busid);
    size_t at = strlen(c->value);
    if (*now)
        at += (size_t)snprintf(c->value + at, sizeof c->value - at, ", %.24s x%ld", now, width);
    if (narrow || slow)
        at += (size_t)snprintf(c->value + at, sizeof c->value - at, " of %.24s x%ld", most, full);
    if (g->numa >= 0 && at < sizeof c->value)
        snprintf(c->value + at, sizeof c->value - at, ", NUMA node %d", g->numa);
    if (narrow)
        machine_advise(c, "it has only %ld of %ld lanes, so that share of the bandwidth: reseat it, another slot or riser, bifurcation in the BIOS", width, full);
    else if (slow)
        machine_advise(c, "idle cards lower the speed of their link; look again under load");
}

/* Without it (or DMA-BUF) a card's data go through host memory. */
static void peer_memory(struct machine *m, bool nvidia)
{
    bool loaded = kernel_has(m->root, "/sys/module/nvidia_peermem") || kernel_has(m->root, "/sys/kernel/mm/memory_peers/nv_mem") || kernel_has(m->root, "/sys/kernel/mm/memory_peers/amdkfd");
    if (!nvidia || m->cards == 0)
        return;
    struct check *c = machine_check(m, loaded ? CHECK_GOOD : CHECK_NOTE, "GPUDirect RDMA", "%s", loaded ? "peer-memory module loaded" : "no peer-memory module; DMA-BUF may do instead (open kernel driver, Linux 5.12)");
    if (!loaded)
        machine_advise(c, "`sudo modprobe nvidia-peermem`; a job's log then has /GDRDMA behind its NET/IB channels");
}

static void gpus(struct machine *m, const struct pci_tree *t)
{
    bool nvidia = false;
    for (int i = 0; i < t->n; i++)
        if (t->v[i].kind == PCI_GPU) {
            m->gpus++;
            nvidia = nvidia || t->v[i].vendor == VENDOR_NVIDIA;
            one_gpu(m, &t->v[i]);
        }
    if (m->gpus == 0)
        machine_check(m, CHECK_GOOD, "GPUs", "none");
    peer_memory(m, nvidia);
}

char *machine_tools(const char **who)
{
    static const struct { const char *program, *command; } tools[] = {{"nvidia-smi", "timeout 10 nvidia-smi topo -m 2>/dev/null"}, {"rocm-smi", "timeout 10 rocm-smi --showtopo 2>/dev/null"}};
    char *text = NULL, line[4096];
    size_t bytes = 0;
    for (size_t i = 0; !bytes && i < sizeof tools / sizeof *tools; i++) {
        FILE *from = popen(tools[i].command, "re"), *to = open_memstream(&text, &bytes);
        while (from && to && fgets(line, sizeof line, from))
            fputs(line, to);
        if (from)
            pclose(from);
        if (to)
            fclose(to);
        *who = tools[i].program;
        if (!bytes) {
            free(text);
            text = NULL;
        }
    }
    return text;
}

/* Judged as if it had been pasted. */
static void ask_tools(struct machine *m)
{
    const char *who;
    char *text = machine_is_here(m) && m->gpus > 0 ? machine_tools(&who) : NULL;
    if (text) {
        machine_tell(m, "%s", text);
        machine_check(m, CHECK_GOOD, "links of GPUs", "as %s tells them; `unisono doctor --check-nccl` shows each pair", who);
    }
    free(text);
}

/* ---- between them --------------------------------------------------------------------------------------------------------------------------------- */

/* The control word of ACS, from the extended capabilities, which only root may read. */
static int acs_control(struct machine *m, const char *busid)
{
    char path[4200];
    unsigned char c[4096];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/config", m->root, busid);
    FILE *f = fopen(path, "rbe");
    size_t n = f ? fread(c, 1, sizeof c, f) : 0;
    if (f)
        fclose(f);
    for (size_t at = 0x100, hops = 0; n == sizeof c && at >= 0x100 && at + 8 <= n && hops < 96; hops++) {
        unsigned id = c[at] | c[at + 1] << 8, next = (c[at + 2] | c[at + 3] << 8) >> 4;
        if (id == 0x000d)
            return c[at + 6] | c[at + 7] << 8;
        at = next;
    }
    return -1;
}

static void acs(struct machine *m, const struct pci_tree *t)
{
    int seen = 0, redirect = 0;
    bool devices = m->cards > 0 || m->gpus > 0;
    for (int i = 0; i < t->n; i++) {
        int control = t->v[i].kind == PCI_BRIDGE ? acs_control(m, t->v[i].busid) : -1;
        seen += control >= 0;
        if (control <= 0 || !(control & 0xc))
            continue;
        redirect++;
        if (devices)
            machine_tell(m, "%s PCI bridge: of this machine\n ACSCtl: ReqRedir%c CmpltRedir%c\n", t->v[i].busid + 5, control & 4 ? '+' : '-', control & 8 ? '+' : '-');
    }
    if (seen)
        machine_check(m, redirect && devices ? CHECK_BAD : CHECK_GOOD, "PCIe ACS", "redirects at %d of %d bridges%s", redirect, seen, redirect && !devices ? ", which matters only with GPUs or RDMA cards" : "");
    else if (devices && machine_is_here(m) && geteuid() != 0)
        machine_check(m, CHECK_NOTE, "PCIe ACS", "only root sees it: sudo unisono doctor");
}

/* The kernel says for each group whether addresses are translated ("DMA", "DMA-FQ") or passed through ("identity"). */
static void iommu(struct machine *m, const struct pci_tree *t)
{
    char units[16][KERNEL_NAME], type[32], line[4096];
    int n = kernel_names(m->root, units, 16, "/sys/class/iommu"), translated = 0, passed = 0;
    for (int i = 0; i < t->n; i++) {
        if ((t->v[i].kind != PCI_GPU && t->v[i].kind != PCI_NIC) || !kernel_line(m->root, type, sizeof type, "/sys/bus/pci/devices/%s/iommu_group/type", t->v[i].busid))
            continue;
        translated += strncmp(type, "DMA", 3) == 0;
        passed += strcmp(type, "identity") == 0;
    }
    kernel_line(m->root, line, sizeof line, "/proc/cmdline");
    const char *said = strstr(line, "iommu=pt") ? ", iommu=pt" : "";
    bool matters = translated && (m->gpus > 1 || (m->gpus && m->cards));
    struct check *c = machine_check(m, matters ? CHECK_BAD : CHECK_GOOD, "IOMMU", n == 0 && !translated && !passed ? "none that the kernel uses%s" : translated ? "on, translates for GPUs or cards%s" : passed ? "on, passes GPUs and cards through%s" : "on%s", said);
    if (matters)
        machine_advise(c, "transfers between GPUs go through it and can hang or be slow: iommu=pt on the kernel's command line (AMD: amd_iommu=on iommu=pt), update-grub, reboot");
}

void machine_pci(struct machine *m)
{
    struct pci_tree t = pci_tree_of(m->root);
    rdma_cards(m);
    gpus(m, &t);
    ask_tools(m);
    acs(m, &t);
    iommu(m, &t);
    pci_tree_free(&t);
}
