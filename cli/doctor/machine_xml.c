/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine_xml.c - the PCIe tree of GPUs and network cards, as NCCL would dump it: from /sys alone, so without NVLinks, which only the driver tells;
 * xGMI links are in /sys, too.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "pci.h"

struct writer {
    FILE *out;
    const char *root;
    struct pci_tree t;
    bool *wanted;  /* leads to a GPU or a card of a job */
    int gpus, nets;
};

/* A switch is an upstream and a downstream bridge, a slot of the root complex one: as NCCL does it, every second bridge counts. */
static int above(const struct pci_tree *t, int i)
{
    int down = t->v[i].parent;
    return down < 0 ? -1 : t->v[down].parent;
}

static bool is_card(struct writer *w, const char *busid)
{
    char names[2][KERNEL_NAME];
    return kernel_names(w->root, names, 2, "/sys/bus/pci/devices/%s/infiniband", busid) > 0 || kernel_names(w->root, names, 2, "/sys/bus/pci/devices/%s/net", busid) > 0;
}

static void mark(struct writer *w)
{
    for (int i = 0; i < w->t.n; i++) {
        bool leaf = w->t.v[i].kind == PCI_GPU || (w->t.v[i].kind == PCI_NIC && is_card(w, w->t.v[i].busid));
        for (int k = i; leaf && k >= 0; k = above(&w->t, k))
            w->wanted[k] = true;
    }
}

/* ---- GPUs ---------------------------------------------------------------------------------------------------------------------------------- */

/* Compute capability by the name that the driver gives. */
static int capability(struct writer *w, const char *busid)
{
    static const struct { const char *word; int sm; } known[] = {{"B300", 103}, {"B200", 100}, {"GB200", 100}, {"B100", 100}, {"H100", 90}, {"H200", 90}, {"H800", 90}, {"H20", 90}, {"GH200", 90}, {"L40", 89}, {"L4", 89}, {"4090", 89}, {"6000 Ada", 89}, {"PRO 6000", 120}, {"5090", 120},
                                                                 {"A100", 80}, {"A800", 80}, {"A30", 80}, {"A40", 86}, {"A10", 86}, {"A6000", 86}, {"3090", 86}, {"T4", 75}, {"V100", 70}, {"P100", 60}};
    char path[128], model[128];
    snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", busid);
    kernel_field(w->root, path, "Model", model, sizeof model);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(model, known[i].word))
            return known[i].sm;
    return 0;
}

/* Number of the compute node of AMD's driver that is this GPU, -1 = none. */
static int kfd_node(struct writer *w, const char *busid)
{
    unsigned domain, bus, dev, fn;
    char names[64][KERNEL_NAME], path[128], line[64];
    if (sscanf(busid, "%x:%x:%x.%x", &domain, &bus, &dev, &fn) != 4)
        return -1;
    int n = kernel_names(w->root, names, 64, "/sys/class/kfd/kfd/topology/nodes");
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%.16s/properties", names[i]);
        bool gpu = kernel_field(w->root, path, "simd_count", line, sizeof line) && atol(line) > 0;
        unsigned long at = kernel_field(w->root, path, "location_id", line, sizeof line) ? strtoul(line, NULL, 10) : 0;
        unsigned long in = kernel_field(w->root, path, "domain", line, sizeof line) ? strtoul(line, NULL, 10) : 0;
        if (gpu && in == domain && at == (bus << 8 | dev << 3 | fn))
            return atoi(names[i]);
    }
    return -1;
}

static const char *busid_of_node(struct writer *w, int node)
{
    for (int i = 0; i < w->t.n; i++)
        if (w->t.v[i].kind == PCI_GPU && kfd_node(w, w->t.v[i].busid) == node)
            return w->t.v[i].busid;
    return NULL;
}

enum { LINK_XGMI = 11 }; /* HSA_IOLINKTYPE_XGMI */

static void xgmi_links(struct writer *w, int node)
{
    char links[64][KERNEL_NAME], path[160], line[64];
    int n = kernel_names(w->root, links, 64, "/sys/class/kfd/kfd/topology/nodes/%d/io_links", node);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%d/io_links/%.16s/properties", node, links[i]);
        if (!kernel_field(w->root, path, "type", line, sizeof line) || atoi(line) != LINK_XGMI)
            continue;
        const char *target = kernel_field(w->root, path, "node_to", line, sizeof line) ? busid_of_node(w, atoi(line)) : NULL;
        long least = kernel_field(w->root, path, "min_bandwidth", line, sizeof line) ? atol(line) : 0, most = kernel_field(w->root, path, "max_bandwidth", line, sizeof line) ? atol(line) : 0;
        if (target)
            fprintf(w->out, "<xgmi target=\"%s\" count=\"%ld\" tclass=\"0x038000\"/>\n", target, least > 0 && most > least ? most / least : 1);
    }
}

static void write_gpu(struct writer *w, const struct pci_device *d)
{
    char path[128], line[64] = "";
    int node = d->vendor == VENDOR_AMD ? kfd_node(w, d->busid) : -1, dev = w->gpus++;
    bool peer = d->vendor == VENDOR_AMD || kernel_has(w->root, "/sys/module/nvidia_peermem") || kernel_has(w->root, "/sys/kernel/mm/memory_peers/nv_mem");
    snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%d/properties", node);
    long version = node >= 0 && kernel_field(w->root, path, "gfx_target_version", line, sizeof line) ? atol(line) : 0;
    fprintf(w->out, "<gpu dev=\"%d\" sm=\"%d\" rank=\"%d\" gdr=\"%d\"", dev, capability(w, d->busid), dev, peer);
    if (version)
        fprintf(w->out, " gcn=\"gfx%ld%lx%lx\"", version / 10000, version / 100 % 100, version % 100);
    fprintf(w->out, ">\n");
    if (node >= 0)
        xgmi_links(w, node);
    fprintf(w->out, "</gpu>\n");
}

/* ---- cards ----------------------------------------------------------------------------------------------------------------------------------- */

static void write_net(struct writer *w, const char *name, long mbit, const char *guid, int port, bool gdr)
{
    char hex[32] = "0x0";
    size_t at = 2;
    for (const char *p = guid; *p && at < sizeof hex - 1; p++)
        if (*p != ':')
            hex[at++] = *p;
    hex[at > 2 ? at : 3] = 0;
    fprintf(w->out, "<net name=\"%s\" dev=\"%d\" speed=\"%ld\" port=\"%d\" guid=\"%s\" gdr=\"%d\"/>\n", name, w->nets++, mbit, port, hex, gdr);
}

static void write_nic(struct writer *w, const struct pci_device *d)
{
    char cards[8][KERNEL_NAME], ports[8][KERNEL_NAME], rate[64], guid[64];
    fprintf(w->out, "<nic>\n");
    int n = kernel_names(w->root, cards, 8, "/sys/bus/pci/devices/%s/infiniband", d->busid);
    for (int i = 0; i < n; i++) {
        int count = kernel_names(w->root, ports, 8, "/sys/class/infiniband/%s/ports", cards[i]);
        kernel_line(w->root, guid, sizeof guid, "/sys/class/infiniband/%s/node_guid", cards[i]);
        for (int k = 0; k < count; k++) {
            kernel_line(w->root, rate, sizeof rate, "/sys/class/infiniband/%s/ports/%s/rate", cards[i], ports[k]);
            write_net(w, cards[i], (long)(strtod(rate, NULL) * 1000), guid, atoi(ports[k]), true);
        }
    }
    int plain = n ? 0 : kernel_names(w->root, cards, 8, "/sys/bus/pci/devices/%s/net", d->busid);
    for (int i = 0; i < plain; i++)
        write_net(w, cards[i], kernel_number(w->root, 0, "/sys/class/net/%s/speed", cards[i]), "", 0, false);
    fprintf(w->out, "</nic>\n");
}

/* ---- the tree ----------------------------------------------------------------------------------------------------------------------------------- */

/* What both ends of a link could have. */
static long narrower(struct writer *w, int i, const char *file)
{
    long own = kernel_number(w->root, 16, "/sys/bus/pci/devices/%s/%s", w->t.v[i].busid, file), other = w->t.v[i].parent >= 0 ? kernel_number(w->root, own, "/sys/bus/pci/devices/%s/%s", w->t.v[w->t.v[i].parent].busid, file) : own;
    return own < other ? own : other;
}

static void write_device(struct writer *w, int i)
{
    const struct pci_device *d = &w->t.v[i];
    char own[48], port[48] = "";
    kernel_line(w->root, own, sizeof own, "/sys/bus/pci/devices/%s/max_link_speed", d->busid);
    if (d->parent >= 0)
        kernel_line(w->root, port, sizeof port, "/sys/bus/pci/devices/%s/max_link_speed", w->t.v[d->parent].busid);
    const char *speed = *port && strtod(port, NULL) < strtod(own, NULL) ? port : own;
    fprintf(w->out, "<pci busid=\"%s\" class=\"0x%06x\" vendor=\"0x%04x\" device=\"0x%04x\" link_speed=\"%s\" link_width=\"%ld\">\n", d->busid, d->class, d->vendor, d->device, strncmp(speed, "Unknown", 7) == 0 ? "" : speed, narrower(w, i, "max_link_width"));
    if (d->kind == PCI_GPU)
        write_gpu(w, d);
    else if (d->kind == PCI_NIC)
        write_nic(w, d);
    for (int k = 0; k < w->t.n; k++)
        if (w->wanted[k] && k != i && above(&w->t, k) == i)
            write_device(w, k);
    fprintf(w->out, "</pci>\n");
}

static void write_node(struct writer *w, int numa)
{
    char vendor[64], family[16], model[16];
    kernel_field(w->root, "/proc/cpuinfo", "vendor_id", vendor, sizeof vendor);
    kernel_field(w->root, "/proc/cpuinfo", "cpu family", family, sizeof family);
    kernel_field(w->root, "/proc/cpuinfo", "model", model, sizeof model);
    fprintf(w->out, "<cpu numaid=\"%d\" arch=\"%s\" vendor=\"%s\" familyid=\"%s\" modelid=\"%s\">\n", numa, *vendor ? "x86_64" : "arm64", vendor, *family ? family : "0", *model ? model : "0");
    for (int i = 0; i < w->t.n; i++)
        if (w->wanted[i] && above(&w->t, i) < 0 && w->t.v[i].numa == numa)
            write_device(w, i);
    fprintf(w->out, "</cpu>\n");
}

char *machine_xml(const char *root)
{
    struct writer w = {.root = root, .t = pci_tree_of(root)};
    char *text = NULL;
    size_t bytes = 0;
    bool any = false, amd = false, done[1024] = {false};
    for (int i = 0; i < w.t.n; i++) {
        any = any || w.t.v[i].kind == PCI_GPU;
        amd = amd || (w.t.v[i].kind == PCI_GPU && w.t.v[i].vendor == VENDOR_AMD);
    }
    w.wanted = any ? calloc((size_t)w.t.n, sizeof *w.wanted) : NULL;
    w.out = w.wanted ? open_memstream(&text, &bytes) : NULL;
    if (w.out) {
        mark(&w);
        fprintf(w.out, "<system version=\"%d\">\n", amd ? 2 : 1);
        for (int i = 0; i < w.t.n; i++) {
            int numa = w.t.v[i].numa;
            if (w.wanted[i] && above(&w.t, i) < 0 && numa >= -1 && numa < 1023 && !done[numa + 1]) {
                done[numa + 1] = true;
                write_node(&w, numa);
            }
        }
        fprintf(w.out, "</system>\n");
        fclose(w.out);
    }
    free(w.wanted);
    pci_tree_free(&w.t);
    return text;
}
