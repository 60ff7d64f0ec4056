/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_hwloc.c - this machine, or one that lstopo wrote down as XML: hwloc's objects become nodes of the graph. What hwloc does
 * not know of this machine's network cards (speed, virtual ones) comes from /sys/class/net.
 */
#include "topo_build.h"

#include <dirent.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reader {
    struct topo_build b;
    hwloc_topology_t topo;
    int host;
    bool here;                 /* this machine: sysfs may be asked */
    hwloc_obj_t *objs;         /* of the nodes below the host that have a cpuset, by node index - first */
    int first, count;
    size_t cap;
};

/* ---- processors and memory ---------------------------------------------------------------------------- */

/* The smallest node so far that contains obj's processors; the newest of equals, so that levels nest as they are added. */
static int container(const struct reader *r, hwloc_obj_t obj)
{
    int best = r->host, best_weight = -1;
    if (!obj->cpuset || hwloc_bitmap_iszero(obj->cpuset))
        return best;
    for (int i = 0; i < r->count; i++) {
        int weight = hwloc_bitmap_weight(r->objs[i]->cpuset);
        if (hwloc_bitmap_isincluded(obj->cpuset, r->objs[i]->cpuset) && (best_weight < 0 || weight <= best_weight)) {
            best = r->first + i;
            best_weight = weight;
        }
    }
    return best;
}

static void add_object(struct reader *r, enum topo_kind kind, hwloc_obj_t obj)
{
    const char *model = kind == TOPO_SOCKET ? hwloc_obj_get_info_by_name(obj, "CPUModel") : NULL;
    int node = topo_add(&r->b, kind, container(r, obj), obj->os_index == HWLOC_UNKNOWN_INDEX ? -1 : (int)obj->os_index, model);
    if (node < 0)
        return;
    if (kind == TOPO_NUMA)
        r->b.graph->nodes[node].mem_bytes = obj->attr->numanode.local_memory;
    else if (kind == TOPO_L3)
        r->b.graph->nodes[node].mem_bytes = obj->attr->cache.size;
    else if (kind == TOPO_CORE && obj->parent && obj->parent->type != HWLOC_OBJ_L3CACHE)
        for (hwloc_obj_t up = obj->parent; up; up = up->parent)
            if (up->type == HWLOC_OBJ_L2CACHE)
                r->b.graph->nodes[node].mem_bytes = up->attr->cache.size;
    r->b.err = mem_grow(&r->objs, &r->cap, (size_t)r->count + 1, sizeof *r->objs);
    if (r->b.err == UNO_OK)
        r->objs[r->count++] = obj;
}

/* Sockets and NUMA nodes contain each other either way: larger ones first, sockets before nodes of equal size. */
static void add_sockets_and_nodes(struct reader *r)
{
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_NUMANODE};
    static const enum topo_kind kinds[] = {TOPO_SOCKET, TOPO_NUMA};
    int limit = hwloc_bitmap_weight(hwloc_topology_get_topology_cpuset(r->topo));
    for (int weight = limit; weight >= 0; weight--)
        for (int t = 0; t < 2; t++)
            for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(r->topo, types[t], o));)
                if (hwloc_bitmap_weight(o->cpuset) == weight)
                    add_object(r, kinds[t], o);
}

static void add_all(struct reader *r, hwloc_obj_type_t type, enum topo_kind kind)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(r->topo, type, o));)
        add_object(r, kind, o);
}

/* ---- devices ----------------------------------------------------------------------------------------------- */

static bool read_line(const char *path, char *buf, size_t bytes)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(buf, (int)bytes, f);
    if (f)
        fclose(f);
    return ok;
}

static uint64_t nic_rate(const char *name)
{
    char path[300], line[64];
    snprintf(path, sizeof path, "/sys/class/net/%.200s/speed", name);
    long mbit = read_line(path, line, sizeof line) ? atol(line) : 0;
    if (mbit <= 0) {
        snprintf(path, sizeof path, "/sys/class/infiniband/%.200s/ports/1/rate", name);
        mbit = read_line(path, line, sizeof line) ? atol(line) * 1000 : 0; /* "100 Gb/sec (4X EDR)" */
    }
    return mbit > 0 ? (uint64_t)mbit * 1000000 / 8 : 0;
}

static int device_parent(const struct reader *r, hwloc_obj_t obj)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(r->topo, obj);
    if (!near || !near->cpuset)
        return r->host;
    int node = container(r, near), numa = topo_above(r->b.graph, node, TOPO_NUMA);
    return numa >= 0 ? numa : node;
}

static bool have_nic(const struct reader *r, const char *name)
{
    for (int i = 0; r->b.graph && i < r->b.graph->nnodes; i++)
        if (r->b.graph->nodes[i].kind == TOPO_NIC && strcmp(r->b.graph->nodes[i].name, name) == 0)
            return true;
    return false;
}

static void add_nic(struct reader *r, int parent, const char *name)
{
    int node = topo_add(&r->b, TOPO_NIC, parent, -1, name);
    if (node >= 0 && r->here)
        r->b.graph->nodes[node].rate_bps = nic_rate(name);
}

static bool is_gpu(hwloc_obj_t pci)
{
    unsigned class = pci->attr->pcidev.class_id, vendor = pci->attr->pcidev.vendor_id;
    if (class == 0x0302 || class == 0x0380 || class >> 8 == 0x12)
        return true;
    return class == 0x0300 && (vendor == 0x10de || vendor == 0x1002); /* not the screen of a management board */
}

/* Of the names that drivers give one card, the one people know. */
static void add_gpu(struct reader *r, hwloc_obj_t pci, int number)
{
    static const char *const families[] = {"cuda", "rsmi", "nvml", "ze", "opencl", "card"};
    const char *name = NULL, *model = NULL;
    size_t best = ARRAY_LEN(families);
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(r->topo, o));) {
        if (o->parent != pci || !o->name)
            continue;
        const char *m = hwloc_obj_get_info_by_name(o, "GPUModel");
        model = m ? m : model;
        for (size_t i = 0; i < best; i++)
            if (strncmp(o->name, families[i], strlen(families[i])) == 0) {
                name = o->name;
                best = i;
            }
    }
    if (!model)
        model = hwloc_obj_get_info_by_name(pci, "PCIDevice");
    char text[96], fallback[16];
    snprintf(fallback, sizeof fallback, "gpu%d", number);
    snprintf(text, sizeof text, "%.20s%s%.60s", name ? name : fallback, model ? " " : "", model ? model : "");
    topo_add(&r->b, TOPO_GPU, device_parent(r, pci), number, text);
}

static void add_devices(struct reader *r)
{
    int gpus = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(r->topo, o));)
        if ((o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK || o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) && o->name &&
            strcmp(o->name, "lo") != 0)
            add_nic(r, device_parent(r, o), o->name);
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(r->topo, o));)
        if (is_gpu(o))
            add_gpu(r, o, gpus++);
}

static int name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool nic_is_up(const char *name)
{
    static const char *const never[] = {"lo", "docker", "virbr", "ifb", "dummy", "sit", "tunl"};
    char path[300], line[32];
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        if (strncmp(name, never[i], strlen(never[i])) == 0)
            return false;
    snprintf(path, sizeof path, "/sys/class/net/%.200s/operstate", name);
    return read_line(path, line, sizeof line) && strncmp(line, "up", 2) == 0;
}

/* Interfaces behind no PCI device: bonds, veth pairs of containers. */
static void add_virtual_nics(struct reader *r)
{
    char *names[128];
    size_t n = 0;
    DIR *dir = opendir("/sys/class/net");
    for (struct dirent *d; dir && n < ARRAY_LEN(names) && (d = readdir(dir));)
        if (d->d_name[0] != '.' && !have_nic(r, d->d_name) && nic_is_up(d->d_name) && (names[n] = strdup(d->d_name)))
            n++;
    if (dir)
        closedir(dir);
    qsort(names, n, sizeof *names, name_order);
    for (size_t i = 0; i < n; i++) {
        add_nic(r, r->host, names[i]);
        free(names[i]);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static uno_err load(hwloc_topology_t *topo, const char *xml)
{
    if (hwloc_topology_init(topo) != 0)
        return err_set(UNO_ERR_MEMORY, "hwloc cannot begin: no memory");
    hwloc_topology_set_io_types_filter(*topo, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (xml && hwloc_topology_set_xml(*topo, xml) != 0) {
        hwloc_topology_destroy(*topo);
        return err_set(UNO_ERR_PARSE, "%.300s: hwloc does not accept this as its XML; `lstopo --of xml` writes it", xml);
    }
    if (hwloc_topology_load(*topo) != 0) {
        hwloc_topology_destroy(*topo);
        return err_set(xml ? UNO_ERR_PARSE : UNO_ERR_SYSTEM, "%.300s: hwloc cannot read it", xml ? xml : "this machine");
    }
    return UNO_OK;
}

static uno_err convert(hwloc_topology_t topo, const char *source, const char *host_name, bool here, struct graph **graph)
{
    struct reader r = {.topo = topo, .here = here};
    topo_begin(&r.b, source);
    r.host = topo_add(&r.b, TOPO_HOST, -1, 0, host_name);
    r.first = r.host + 1;
    add_sockets_and_nodes(&r);
    add_all(&r, HWLOC_OBJ_L3CACHE, TOPO_L3);
    add_all(&r, HWLOC_OBJ_CORE, TOPO_CORE);
    add_all(&r, HWLOC_OBJ_PU, TOPO_PU);
    if (r.b.err == UNO_OK)
        add_devices(&r);
    if (here && r.b.err == UNO_OK)
        add_virtual_nics(&r);
    free(r.objs);
    return topo_end(&r.b, graph);
}

uno_err topo_from_hwloc(struct graph **graph)
{
    hwloc_topology_t topo;
    char name[48] = "";
    *graph = NULL;
    TRY(load(&topo, NULL));
    gethostname(name, sizeof name - 1);
    uno_err err = convert(topo, "this machine", name, true, graph);
    hwloc_topology_destroy(topo);
    return err;
}

uno_err topo_from_hwloc_xml(const char *path, struct graph **graph)
{
    hwloc_topology_t topo;
    *graph = NULL;
    TRY(load(&topo, path));
    const char *name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topo), "HostName");
    uno_err err = convert(topo, path, name ? name : "", false, graph);
    hwloc_topology_destroy(topo);
    return err;
}
