/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_hwloc.c - hwloc's XML (`lstopo --of xml`), versions 1 to 3, as far as the doctor minds: PCI devices and bridges, GPUs, network cards, and the
 * NUMA node that they are near. The same facts as of topology files of NCCL and RCCL.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"
#include "xml.h"

enum { DEPTH = 64 };

struct object {
    char busid[24];
    long class;   /* 0x0302: class and subclass */
    double rate;  /* GB/s */
    int numa, bridges; /* bridges: between it and the CPU */
    bool gpu_vendor, taken;
};

struct tree {
    struct xml xml;
    struct model *m;
    const char *file;
    struct object at[DEPTH];
    int depth, gpus, nics;
    bool is_topology;
};

static struct fact fact_here(const struct tree *x, enum fact_kind kind, const struct object *o)
{
    struct fact f = fact_of(kind);
    f.file = f.host = x->file;
    f.line = (long)xml_line(&x->xml);
    f.d = o->numa;
    f.x = o->rate;
    return f;
}

/* "0x00000002" -> 1: what lies under an object with one node is near that node. */
static int only_node(const char *nodeset)
{
    unsigned long long bits = strtoull(nodeset, NULL, 16);
    int node = 0;
    if (bits == 0 || (bits & (bits - 1)) || strchr(nodeset, ','))
        return NOBODY;
    while (bits >>= 1)
        node++;
    return node;
}

/* A chip that only drives a console is no GPU here: vendors of accelerators are known. */
static bool of_gpu_vendor(const char *type)
{
    return has(type, "[10de:") || has(type, "[1002:") || has(type, "[8086:") || has(type, "[1da3:");
}

static void take_pci(struct tree *x, const struct object *o)
{
    struct fact f = fact_here(x, F_XML_PCI, o);
    f.name = model_words(x->m, o->busid);
    for (int i = x->depth - 1; i-- > 0 && !*f.value;)
        f.value = model_words(x->m, x->at[i].busid);
    f.b = o->class;
    f.text = model_say(x->m, "PCI device %s, class %04lx", f.name, o->class);
    model_add(x->m, &f);
}

static void take_gpu(struct tree *x, struct object *o, int number)
{
    struct fact f = fact_here(x, F_XML_GPU, o);
    f.dev = number >= 0 ? number : x->gpus;
    f.name = model_words(x->m, o->busid);
    f.a = o->bridges;
    f.text = model_say(x->m, "GPU %d at %s", f.dev, f.name);
    model_add(x->m, &f);
    x->gpus++;
    o->taken = true;
}

static void take_nic(struct tree *x, struct object *o, const char *name)
{
    struct fact f = fact_here(x, F_XML_NET, o);
    f.name = model_words(x->m, name);
    f.dev = x->nics++;
    f.extra = model_words(x->m, o->busid);
    f.peer = o->bridges;
    f.text = model_say(x->m, "%s at %s", f.name, f.extra);
    model_add(x->m, &f);
    o->taken = true;
}

/* A GPU has several names (card1, nvml0, cuda0), a network card two (eth0, mlx5_0): the first that is of its kind counts. */
static void take_name(struct tree *x, const char **atts)
{
    struct object *o = x->depth >= 2 ? &x->at[x->depth - 2] : NULL;
    const char *name = xml_attr(atts, "name"), *type = xml_attr(atts, "osdev_type");
    int number;
    if (!o || !*o->busid || o->taken)
        return;
    if ((o->class >> 8 == 0x03 || o->class >> 8 == 0x12) && o->gpu_vendor)
        take_gpu(x, o, sscanf(name, "cuda%d", &number) == 1 || sscanf(name, "nvml%d", &number) == 1 || sscanf(name, "rsmi%d", &number) == 1 ? number : NOBODY);
    else if (strcmp(type, "2") == 0 || strcmp(type, "3") == 0 || strcasecmp(type, "Network") == 0 || strcasecmp(type, "OpenFabrics") == 0)
        take_nic(x, o, name);
}

static void begin_object(struct tree *x, const char **atts)
{
    const char *type = xml_attr(atts, "type"), *pci = xml_attr(atts, "pci_type"), *nodeset = xml_attr(atts, "nodeset");
    struct object *above = x->depth >= 2 ? &x->at[x->depth - 2] : NULL, *o = &x->at[x->depth - 1];
    o->numa = *nodeset ? only_node(nodeset) : above ? above->numa : NOBODY;
    o->bridges = above ? above->bridges : 0;
    if (strcmp(type, "OSDev") == 0) {
        take_name(x, atts);
        return;
    }
    snprintf(o->busid, sizeof o->busid, "%s", xml_attr(atts, "pci_busid"));
    if (!o->busid[0])
        return;
    o->class = strtol(pci, NULL, 16);
    o->gpu_vendor = of_gpu_vendor(pci);
    o->rate = strtod(xml_attr(atts, "pci_link_speed"), NULL);
    take_pci(x, o);
    o->bridges += strcmp(type, "Bridge") == 0;
}

static void start(void *user, const char *name, const char **atts)
{
    struct tree *x = user;
    bool object = strcmp(name, "object") == 0;
    x->is_topology = x->is_topology || strcmp(name, "topology") == 0;
    if (!object)
        return;
    if (x->depth == DEPTH) {
        XML_StopParser(x->xml.parser, XML_FALSE);
        return;
    }
    x->at[x->depth++] = (struct object){.numa = NOBODY};
    begin_object(x, atts);
}

/* A driver that is not loaded gives a GPU no name. */
static void end_element(void *user, const char *name)
{
    struct tree *x = user;
    if (strcmp(name, "object") != 0 || !x->depth)
        return;
    struct object *o = &x->at[--x->depth];
    if (*o->busid && !o->taken && o->gpu_vendor && (o->class == 0x0302 || o->class >> 8 == 0x12))
        take_gpu(x, o, NOBODY);
}

static bool sniff(const char *head, size_t bytes)
{
    return head[strspn(head, " \t\r\n")] == '<' && has(head, "<topology");
}

static bool read(struct model *m, const char *file, const char *data, size_t bytes, char *why, size_t why_bytes)
{
    struct tree *x = calloc(1, sizeof *x);
    if (!x) {
        snprintf(why, why_bytes, "there is no memory");
        return false;
    }
    *x = (struct tree){.m = m, .file = file};
    struct xml_end end = xml_walk(&x->xml, start, end_element, data, bytes);
    struct fact f = fact_of(F_XML);
    f.value = "hwloc";
    f.b = x->gpus;
    f.c = x->nics;
    f.text = model_say(m, "hwloc's topology: %d GPU%s, %d network device%s", x->gpus, x->gpus == 1 ? "" : "s", x->nics, x->nics == 1 ? "" : "s");
    bool known = xml_finish(m, file, &end, x->is_topology, "<topology>", &f, why, why_bytes);
    free(x);
    return known;
}

const struct reader reader_hwloc = {.name = "hwloc's topology", .sniff = sniff, .read = read};
