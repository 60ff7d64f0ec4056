/* SPDX-License-Identifier: Apache-2.0 */
/* paths.c - see paths.h. A graph of GPUs, switches, NUMA nodes, cards; from each GPU the shortest path to all, of those the widest. */
#include "paths.h"

#include <stdlib.h>
#include <string.h>

#include "query.h"
#include "scan.h"

enum { NODES = 768, LINKS = 4096 };
enum node_kind { NODE_GPU, NODE_SWITCH, NODE_NVSWITCH, NODE_CPU, NODE_CARD, NODE_NET };

struct node {
    enum node_kind kind;
    const char *busid; /* of a NUMA node: "" */
    int numa, at;      /* at: index among GPUs or nets */
    const struct fact *pci;
};

struct edge {
    int from, to, links;
    enum path_kind kind;
    double gbs;
};

struct graph {
    struct node nodes[NODES];
    struct edge edges[LINKS];
    struct topo_gpu gpus[TOPO_GPUS];
    struct topo_net nets[TOPO_NETS];
    int node_count, edge_count;
    bool full;
};

/* ---- making the graph ---------------------------------------------------------------------------------------------------------------------- */

static int node_add(struct graph *g, enum node_kind kind, const char *busid, int numa)
{
    if (g->node_count == NODES) {
        g->full = true;
        return NODES - 1;
    }
    g->nodes[g->node_count] = (struct node){.kind = kind, .busid = busid, .numa = numa, .at = -1};
    return g->node_count++;
}

static void edge_add(struct graph *g, int from, int to, enum path_kind kind, double gbs, int links)
{
    for (int i = 0; links && i < g->edge_count; i++)
        if (g->edges[i].from == from && g->edges[i].to == to && g->edges[i].links) { /* links to several switches add up */
            g->edges[i].gbs += gbs;
            g->edges[i].links += links;
            return;
        }
    if (g->edge_count == LINKS)
        g->full = true;
    else
        g->edges[g->edge_count++] = (struct edge){from, to, links, kind, gbs};
}

static void both_ways(struct graph *g, int a, int b, enum path_kind kind, double gbs)
{
    edge_add(g, a, b, kind, gbs, 0);
    edge_add(g, b, a, kind, gbs, 0);
}

/* Ids are of a kind each: a virtual machine's file may give one to a switch and to a card. */
static int node_at(const struct graph *g, const char *busid, enum node_kind kind)
{
    for (int i = 0; *busid && i < g->node_count; i++)
        if (g->nodes[i].kind == kind && strcmp(g->nodes[i].busid, busid) == 0)
            return i;
    return -1;
}

static int cpu_at(const struct graph *g, int numa)
{
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].kind == NODE_CPU && g->nodes[i].numa == numa)
            return i;
    return -1;
}

/* Between sockets, GB/s: topo.h. */
static double socket_gbs(const struct fact *cpu)
{
    if (same_text(cpu->extra, "arm64"))
        return 6;
    if (same_text(cpu->extra, "ppc64"))
        return 32;
    if (same_text(cpu->value, "AuthenticAMD"))
        return 16;
    if (same_text(cpu->value, "GenuineIntel"))
        return cpu->c >= 207 ? 40 : cpu->c >= 143 ? 22 : cpu->c >= 85 ? 10 : 6;
    return 6;
}

/* NCCL takes what it cannot read as the third generation, sixteen lanes. */
static double slot_gbs(const struct fact *pci)
{
    return pci->c > 0 ? (double)pci->c / 1e6 : pci->x > 0 ? pci->x * 0.75 : 12;
}

static double link_gbs(const struct topo *t, const struct topo_gpu *g)
{
    if (t->rccl)
        return begins(g->chip, "gfx94") || begins(g->chip, "gfx95") ? 48 : begins(g->chip, "gfx90a") ? 36 : 24;
    return g->sm >= 100 ? 40.1 : g->sm >= 90 ? 20.6 : g->sm == 86 ? 12 : g->sm >= 70 || g->sm == 0 ? 20 : 18;
}

static bool of(const struct topo *t, const struct fact *f)
{
    return f->file == t->file || strcmp(f->file, t->file) == 0;
}

static void add_cpus(struct graph *g, struct model *m, struct topo *t)
{
    EACH_FACT(m, F_XML_CPU, c) {
        if (!of(t, c) || cpu_at(g, (int)c->d) >= 0)
            continue;
        int k = node_add(g, NODE_CPU, "", (int)c->d);
        g->nodes[k].pci = c;
        t->numa_count++;
        t->amd_cpu = t->amd_cpu || same_text(c->value, "AuthenticAMD");
        t->rome = t->rome || (same_text(c->value, "AuthenticAMD") && c->b == 143 && c->c == 49);
    }
    EACH_FACT(m, F_XML_PCI, p) /* hwloc's file names no processors here */
        if (of(t, p) && cpu_at(g, (int)p->d) < 0) {
            node_add(g, NODE_CPU, "", (int)p->d);
            t->numa_count++;
        }
    for (int a = 0; a < g->node_count; a++)
        for (int b = 0; b < a; b++)
            both_ways(g, a, b, PATH_SYS, g->nodes[a].pci ? socket_gbs(g->nodes[a].pci) : 10);
}

/* hwloc has both bridges of a switch, and slots of the root complex: as NCCL does it, every second counts. */
static const char *above_of(const struct model *m, const struct topo *t, const struct fact *p)
{
    if (!t->hwloc)
        return p->value;
    EACH_FACT(m, F_XML_PCI, q)
        if (of(t, q) && same_text(q->name, p->value))
            return q->value;
    return "";
}

static const struct fact *gpu_at(const struct model *m, const struct topo *t, const char *busid)
{
    EACH_FACT(m, F_XML_GPU, g)
        if (of(t, g) && same_text(g->name, busid))
            return g;
    return NULL;
}

static bool has_card(const struct model *m, const struct topo *t, const char *busid)
{
    EACH_FACT(m, F_XML_NET, n)
        if (of(t, n) && same_text(n->extra, busid))
            return true;
    return false;
}

static void add_gpu(struct graph *g, struct model *m, struct topo *t, int node, const struct fact *gpu)
{
    if (t->gpu_count == TOPO_GPUS) {
        g->full = true;
        return;
    }
    struct topo_gpu *k = &t->gpus[t->gpu_count];
    *k = (struct topo_gpu){.busid = g->nodes[node].busid, .dev = gpu ? gpu->dev : t->gpu_count, .numa = g->nodes[node].numa, .chip = "", .gdr = gpu && gpu->c, .gdr_told = gpu && !t->hwloc};
    EACH_FACT(m, F_XML_CHIP, c)
        if (of(t, c) && same_text(c->name, k->busid)) {
            k->sm = t->rccl ? 0 : (int)c->a;
            k->chip = !*c->value ? c->a && !t->rccl ? model_say(m, "sm %lld", (long long)c->a) : "" : begins(c->value, "gfx") ? c->value : model_say(m, "gfx%s", same_text(c->value, "910") ? "90a" : c->value);
        }
    g->nodes[node].at = t->gpu_count++;
}

static void add_devices(struct graph *g, struct model *m, struct topo *t)
{
    EACH_FACT(m, F_XML_PCI, p) {
        if (!of(t, p) || g->full)
            continue;
        const struct fact *gpu = gpu_at(m, t, p->name);
        int64_t base = p->b >> 8;
        bool bridge = p->b == 0x0604;
        bool leaf_gpu = !bridge && (gpu || (!t->told && (base == 0x03 || base == 0x12))), card = !bridge && (has_card(m, t, p->name) || (!t->told && base == 0x02));
        int k = node_add(g, leaf_gpu ? NODE_GPU : card ? NODE_CARD : NODE_SWITCH, p->name, (int)p->d);
        g->nodes[k].pci = p;
        if (leaf_gpu)
            add_gpu(g, m, t, k, gpu);
        const char *bridge_above = above_of(m, t, p);
        int above = *bridge_above ? node_at(g, bridge_above, NODE_SWITCH) : cpu_at(g, (int)p->d);
        if (above >= 0 && above != k)
            both_ways(g, k, above, PATH_PIX, slot_gbs(p));
    }
}

static void add_net(struct graph *g, struct model *m, struct topo *t, const struct fact *n, int card)
{
    if (t->net_count == TOPO_NETS) {
        g->full = true;
        return;
    }
    struct topo_net *k = &t->nets[t->net_count];
    *k = n ? (struct topo_net){.name = n->name, .busid = n->extra, .mbit = n->a, .dev = n->dev, .port = (int)n->b, .numa = (int)n->d, .gdr = n->c != 0}
           : (struct topo_net){.name = g->nodes[card].busid, .busid = g->nodes[card].busid, .dev = t->net_count, .numa = g->nodes[card].numa};
    const struct fact *pci = card >= 0 && g->nodes[card].kind == NODE_CARD ? g->nodes[card].pci : NULL;
    k->slot_gbs = pci && *pci->extra && pci->a > 0 ? slot_gbs(pci) : 0;
    int node = node_add(g, NODE_NET, "", k->numa);
    g->nodes[node].at = t->net_count++;
    if (card >= 0) /* the port itself has no share in the kind of path; its speed does */
        both_ways(g, node, card, PATH_LOC, k->mbit > 0 ? (double)k->mbit / 8000 : t->told && !t->hwloc ? 1.25 : 5000);
}

static void add_nets(struct graph *g, struct model *m, struct topo *t)
{
    EACH_FACT(m, F_XML_NET, n) {
        if (!of(t, n))
            continue;
        int card = node_at(g, n->extra, NODE_CARD), cpu = cpu_at(g, (int)n->d);
        if (card < 0 && cpu >= 0) { /* a virtual one hangs at its NUMA node */
            card = node_add(g, NODE_CARD, n->name, (int)n->d);
            both_ways(g, card, cpu, PATH_PIX, 5000);
        }
        add_net(g, m, t, n, card);
    }
    int cards = t->net_count ? 0 : g->node_count;
    for (int i = 0; i < cards; i++)
        if (g->nodes[i].kind == NODE_CARD)
            add_net(g, m, t, NULL, i);
}

static void add_links(struct graph *g, struct model *m, struct topo *t)
{
    EACH_FACT(m, F_XML_LINK, l) {
        int from = of(t, l) ? node_at(g, l->name, NODE_GPU) : -1;
        if (from < 0 || g->nodes[from].at < 0 || l->a <= 0 || l->a > 64 || same_text(l->extra, "c2c"))
            continue;
        double gbs = (double)l->a * link_gbs(t, &t->gpus[g->nodes[from].at]);
        int to = node_at(g, l->value, NODE_GPU);
        if (l->b >> 8 == 0x0680) { /* all NVSwitches of a host are one to NCCL */
            to = node_at(g, "nvswitch", NODE_NVSWITCH);
            to = to >= 0 ? to : node_add(g, NODE_NVSWITCH, "nvswitch", -1);
            edge_add(g, to, from, PATH_NVL, gbs, (int)l->a);
        }
        if (to >= 0)
            edge_add(g, from, to, PATH_NVL, gbs, (int)l->a);
    }
}

/* ---- paths ----------------------------------------------------------------------------------------------------------------------------------------- */

static enum path_kind kind_of_step(const struct graph *g, const struct edge *e)
{
    const struct node *a = &g->nodes[e->from], *b = &g->nodes[e->to];
    if (e->kind == PATH_PIX && a->kind == NODE_SWITCH && b->kind == NODE_SWITCH)
        return PATH_PXB;
    return e->kind == PATH_PIX && (a->kind == NODE_CPU || b->kind == NODE_CPU) ? PATH_PHB : e->kind;
}

/* Through another GPU only by links of both, once. */
static bool may_pass(const struct graph *g, int base, const struct edge *e, const struct path *so_far)
{
    const struct node *through = &g->nodes[e->from], *to = &g->nodes[e->to];
    if (e->from == base)
        return true;
    if (through->kind == NODE_NET)
        return false;
    return through->kind != NODE_GPU || (e->kind == PATH_NVL && to->kind == NODE_GPU && so_far->hops <= 1);
}

/* Layer by layer: the first path that reaches a node has the fewest hops; of equal ones the wider. */
static void paths_from(const struct graph *g, int base, struct path *to)
{
    bool layer[NODES] = {false}, next[NODES];
    for (int i = 0; i < g->node_count; i++)
        to[i] = (struct path){.kind = PATH_NONE};
    to[base] = (struct path){.kind = PATH_LOC, .gbs = 5000};
    layer[base] = true;
    for (bool any = true; any;) {
        any = false;
        memset(next, 0, sizeof next);
        for (int i = 0; i < g->edge_count; i++) {
            const struct edge *e = &g->edges[i];
            if (!layer[e->from] || !may_pass(g, base, e, &to[e->from]))
                continue;
            const struct path *p = &to[e->from];
            struct path *r = &to[e->to];
            double gbs = p->gbs < e->gbs ? p->gbs : e->gbs;
            if (!((r->gbs == 0 || r->hops > p->hops) && r->gbs < gbs))
                continue;
            enum path_kind step = kind_of_step(g, e);
            r->hops = p->hops + 1;
            r->gbs = gbs;
            r->links = e->links && (p->hops == 0 || p->links) ? e->links : 0;
            if (g->nodes[e->from].kind == NODE_GPU && p->kind == PATH_NVL && step == PATH_NVL && r->hops > 1)
                step = PATH_NVB;
            r->kind = p->kind > step ? p->kind : step;
            next[e->to] = any = true;
        }
        memcpy(layer, next, sizeof layer);
    }
}

static void fill(const struct graph *g, struct topo *t)
{
    struct path *to = calloc(NODES, sizeof *to);
    for (int i = 0; to && i < g->node_count; i++) {
        if (g->nodes[i].kind != NODE_GPU)
            continue;
        int a = g->nodes[i].at;
        paths_from(g, i, to);
        for (int k = 0; k < g->node_count; k++)
            if (g->nodes[k].kind == NODE_GPU)
                *path_between(t, a, g->nodes[k].at) = to[k];
            else if (g->nodes[k].kind == NODE_NET)
                *path_to_net(t, a, g->nodes[k].at) = to[k];
    }
    free(to);
}

/* As ncclTopoGetLocalNet: of the widest paths the nearest kind; all that are alike take turns. */
static void nearest_nets(struct topo *t)
{
    for (int g = 0; g < t->gpu_count; g++) {
        struct topo_gpu *k = &t->gpus[g];
        const struct path *best = NULL;
        for (int n = 0; n < t->net_count; n++) {
            const struct path *p = path_to_net(t, g, n);
            if (p->kind != PATH_NONE && (!best || p->gbs > best->gbs || (p->gbs == best->gbs && p->kind < best->kind)))
                best = p;
        }
        for (int n = 0; best && n < t->net_count; n++)
            if (path_to_net(t, g, n)->gbs == best->gbs && path_to_net(t, g, n)->kind == best->kind)
                k->nets[k->net_count++] = n;
    }
}

/* Several rules and the report ask for the same. */
struct topo_kept {
    const struct fact *xml;
    const struct topo *topo;
    struct topo_kept *next;
};

/* What was collected in the graph becomes the model's, no larger than it is. */
static void settle(struct model *m, const struct graph *g, struct topo *t)
{
    size_t gpus = (size_t)t->gpu_count, nets = (size_t)t->net_count;
    t->gpus = model_alloc(m, gpus * sizeof *t->gpus);
    t->nets = model_alloc(m, (nets + 1) * sizeof *t->nets);
    t->between = model_alloc(m, gpus * gpus * sizeof *t->between);
    t->to_net = model_alloc(m, (gpus * nets + 1) * sizeof *t->to_net);
    memcpy(t->gpus, g->gpus, gpus * sizeof *t->gpus);
    memcpy(t->nets, g->nets, nets * sizeof *t->nets);
    fill(g, t);
    nearest_nets(t);
}

static const struct topo *find_paths(struct model *m, const struct fact *xml)
{
    struct graph *g = calloc(1, sizeof *g);
    struct topo *t = model_alloc(m, sizeof *t);
    if (!g)
        return NULL;
    *t = (struct topo){.file = xml->file, .fact = xml, .rccl = xml->a == 2, .told = xml->b > 0, .hwloc = same_text(xml->value, "hwloc"), .gpus = g->gpus, .nets = g->nets};
    add_cpus(g, m, t);
    add_devices(g, m, t);
    add_nets(g, m, t);
    add_links(g, m, t);
    bool good = t->gpu_count > 0 && !g->full;
    if (good)
        settle(m, g, t);
    else if (g->full)
        model_note(m, "%s: its paths were not looked for: it has more than %d GPUs, %d network ports or %d switches", xml->file, TOPO_GPUS, TOPO_NETS, NODES);
    free(g);
    return good ? t : NULL;
}

const struct topo *topo_of(struct model *m, const struct fact *xml)
{
    struct topo_kept *k = m->topologies;
    while (k && k->xml != xml)
        k = k->next;
    if (k)
        return k->topo;
    k = model_alloc(m, sizeof *k);
    *k = (struct topo_kept){xml, find_paths(m, xml), m->topologies};
    m->topologies = k;
    return k->topo;
}

/* ---- words -------------------------------------------------------------------------------------------------------------------------------------------- */

const char *path_word(const struct topo *t, enum path_kind kind)
{
    static const char *const words[] = {"X", "NVL", "NVB", "C2C", "PIX", "PXB", "PHB", "SYS", "none"};
    return kind == PATH_NVL && t->rccl ? "XGMI" : words[kind];
}

const char *path_over(struct model *m, const struct topo *t, const struct path *p)
{
    const char *link = t->rccl ? "xGMI link" : "NVLink";
    switch (p->kind) {
    case PATH_LOC: return "itself";
    case PATH_NVL: return p->links ? model_say(m, "%d %s%s%s", p->links, link, p->links == 1 ? "" : "s", p->hops > 1 ? " through NVSwitches" : "") : link;
    case PATH_NVB: return model_say(m, "%ss of a GPU between", link);
    case PATH_C2C: return "its processor's link";
    case PATH_PIX: return "one PCIe switch";
    case PATH_PXB: return "several PCIe switches";
    case PATH_PHB: return "the processor's PCIe root";
    case PATH_SYS: return "the link between NUMA nodes";
    default: return "nothing";
    }
}

bool path_direct(const struct topo *t, const struct path *p)
{
    return p->kind <= (t->rccl || (t->amd_cpu && t->gpu_count <= 2) ? PATH_SYS : PATH_PXB);
}

bool path_gpudirect(const struct topo *t, int gpu, int net)
{
    return t->gpus[gpu].gdr && t->nets[net].gdr && path_to_net(t, gpu, net)->kind <= (t->rccl && t->rome ? PATH_PHB : PATH_PXB);
}
