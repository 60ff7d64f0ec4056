/* SPDX-License-Identifier: Apache-2.0 */
/* rules_paths.c - what the paths of a topology file show (paths.h), and whether a graph file fits itself and the machine. */
#include <stdlib.h>
#include <string.h>

#include "paths.h"
#include "rule.h"

/* ---- GPUs and cards ---------------------------------------------------------------------------------------------------------------------------- */

static enum path_kind nearest_kind(const struct topo *t, int gpu)
{
    return t->gpus[gpu].net_count ? path_to_net(t, gpu, t->gpus[gpu].nets[0])->kind : PATH_NONE;
}

/* Where all others have a card behind their switch, one that has none is built in wrongly. */
void rule_gpu_without_card(struct judge *j)
{
    EACH_FACT(j->m, F_XML, x) {
        const struct topo *t = topo_of(j->m, x);
        int far = 0, which = -1;
        for (int g = 0; t && g < t->gpu_count; g++)
            if (nearest_kind(t, g) >= PATH_PHB)
                far++, which = g;
        if (!t || t->gpu_count < 4 || far != 1 || !t->net_count)
            continue;
        const struct topo_gpu *k = &t->gpus[which];
        struct finding *f = find(j, LIKELY - 5, 0.75, "GPU %d (%s) has no network card near it (%s), all %d others have one behind their own PCIe switches", k->dev, k->busid, path_word(t, nearest_kind(t, which)), t->gpu_count - 1);
        explain(j, f, "Its traffic to other hosts goes through the processor and without GPUDirect, and the slowest GPU sets the pace of all.");
        evidence(f, x);
        EACH_FACT(j->m, F_XML_GPU, g)
            if (g->file == x->file && same_text(g->name, k->busid))
                evidence(f, g);
        remedy(j, f, "`lspci -tv`: is a card missing, or in another slot than on a like machine? `NCCL_DEBUG_SUBSYS=GRAPH` shows what the library sees");
    }
}

static bool is_alike(const struct fact *a, const struct fact *b)
{
    return a->file == b->file && a->b == b->b && *a->more && same_text(a->more, b->more) && !same_text(a->more, ":");
}

static bool is_bridge(const struct fact *p)
{
    return p->b == 0x0604;
}

/* One device with fewer lanes, or a lower speed, than all others of its kind. */
void rule_slot_narrow(struct judge *j)
{
    enum { COMPARED = 4096 };
    if (j->m->counted[F_XML_PCI] > COMPARED) /* each with each */
        return;
    EACH_FACT(j->m, F_XML_PCI, p) {
        int alike = 0, faster = 0;
        const struct fact *other = NULL;
        EACH_FACT(j->m, F_XML_PCI, q)
            if (q != p && is_alike(p, q)) {
                alike++;
                faster += (double)q->c > (double)p->c * 1.5;
                other = q;
            }
        if (is_bridge(p) || alike < 2 || faster != alike)
            continue;
        struct finding *f = find(j, LIKELY - 5, 0.8, "%s has a PCIe link of %s x%lld, its %d like have %s x%lld", p->name, p->extra, (long long)p->a, alike, other->extra, (long long)other->a);
        explain(j, f, "%.3g of %.3g GB/s: everything that goes over it is that much slower.", (double)p->c / 1e6, (double)other->c / 1e6);
        evidence(f, p);
        evidence(f, other);
        remedy(j, f, "`sudo lspci -vvs %s | grep Lnk` (LnkCap is what it could, LnkSta what it does); reseat it, another slot or riser, bifurcation in the BIOS", p->name);
        return;
    }
}

void rule_card_outruns_slot(struct judge *j)
{
    EACH_FACT(j->m, F_XML, x) {
        const struct topo *t = topo_of(j->m, x);
        for (int n = 0; t && n < t->net_count; n++) {
            const struct topo_net *k = &t->nets[n];
            double port = (double)k->mbit / 8000;
            if (!k->gdr || k->slot_gbs <= 0 || port > 400 || k->slot_gbs >= port * 0.6) /* what stands on the board says x1 of the first generation */
                continue;
            struct finding *f = find(j, ADVICE + 10, 0.7, "%s has a port of %lld Gbit/s in a PCIe slot of %.3g GB/s, which is half of it or less", k->name, (long long)k->mbit / 1000, k->slot_gbs);
            explain(j, f, "The port could carry %.3g GB/s.", port);
            EACH_FACT(j->m, F_XML_NET, e)
                if (e->file == x->file && same_text(e->name, k->name))
                    evidence(f, e);
            EACH_FACT(j->m, F_XML_PCI, e)
                if (e->file == x->file && same_text(e->name, k->busid))
                    evidence(f, e);
            remedy(j, f, "a slot with 16 lanes of the card's generation; `sudo lspci -vvs %s | grep Lnk`", k->busid);
            return;
        }
    }
}

/* ---- graph files ----------------------------------------------------------------------------------------------------------------------------------- */

enum { PATTERN_RING = 4 };

static const char *const patterns[] = {"?", "balanced tree", "split tree", "tree", "ring", "NVLS", "collnet direct"};

static const char *pattern_of(const struct fact *g)
{
    return g->b > 0 && g->b < 7 ? patterns[g->b] : patterns[0];
}

static bool on(const struct fact *graph, const struct fact *channel)
{
    return graph->file == channel->file && graph->a == channel->a;
}

static int numbers(const char *list, int *v, int most)
{
    int n = 0;
    for (const char *p = list; *p && n < most;) {
        char *end;
        long k = strtol(p, &end, 10);
        if (end == p)
            break;
        v[n++] = (int)k;
        p = *end == ',' ? end + 1 : end;
    }
    return n;
}

void rule_graph_channels(struct judge *j)
{
    EACH_FACT(j->m, F_GRAPH, g) {
        int n = 0;
        EACH_FACT(j->m, F_GRAPH_CHANNEL, c)
            n += on(g, c);
        if (n == g->c)
            continue;
        struct finding *f = find(j, LIKELY - 5, 0.9, "Graph %lld (%s) claims %lld channels and has %d", (long long)g->a, pattern_of(g), (long long)g->c, n);
        explain(j, f, n < g->c ? "Those that are missing are taken as empty, and the library ends with an internal error, or uses what memory holds." : "What is beyond is ignored.");
        evidence(f, g);
        remedy(j, f, "write `nchannels=\"%d\"`, or dump the file again: `export NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml`", n);
        return;
    }
}

static const struct fact *first_channel(const struct model *m, const struct fact *g)
{
    EACH_FACT(m, F_GRAPH_CHANNEL, c)
        if (on(g, c))
            return c;
    return NULL;
}

/* Each GPU once on each channel of a graph. */
void rule_graph_gpus(struct judge *j)
{
    EACH_FACT(j->m, F_GRAPH, g) {
        const struct fact *first = first_channel(j->m, g);
        struct ranks all = {0};
        int v[128];
        for (int i = 0, n = first ? numbers(first->name, v, 128) : 0; i < n; i++)
            ranks_add(j->m, &all, v[i]);
        EACH_FACT(j->m, F_GRAPH_CHANNEL, c) {
            struct ranks mine = {0};
            int n = on(g, c) ? numbers(c->name, v, 128) : 0;
            for (int i = 0; i < n; i++)
                ranks_add(j->m, &mine, v[i]);
            bool same = mine.n == all.n;
            for (int i = 0; i < mine.n && same; i++)
                same = mine.v[i] == all.v[i];
            if (!on(g, c) || g->b != PATTERN_RING || (n == mine.n && same))
                continue;
            struct finding *f = find(j, LIKELY, 0.9, n != mine.n ? "Channel %lld of graph %lld passes a GPU twice: %s" : "Channel %lld of graph %lld passes other GPUs than channel 0: %s", (long long)c->b, (long long)g->a, c->name);
            explain(j, f, "A ring passes each GPU once; with such a file the library fails, or ranks wait for each other.");
            evidence(f, c);
            evidence(f, first);
            remedy(j, f, "dump it again on the machine that it is for: `export NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml`; or `unset NCCL_GRAPH_FILE`");
            return;
        }
    }
}

static const struct topo *machine_of(struct judge *j)
{
    const struct fact *x = first_of(j->m, F_XML);
    return x && !x->next ? topo_of(j->m, x) : NULL; /* of several, which is meant? */
}

static int gpu_with_dev(const struct topo *t, int dev)
{
    for (int g = 0; g < t->gpu_count; g++)
        if (t->gpus[g].dev == dev)
            return g;
    return -1;
}

/* The slowest step of a ring, its way back included where no card closes it. */
static const struct path *worst_step(const struct topo *t, const struct fact *c, int *from, int *to)
{
    int v[128], n = numbers(c->name, v, 128);
    const struct path *worst = NULL;
    for (int i = 0; i < n && n > 1; i++) {
        bool back = i + 1 == n;
        int a = gpu_with_dev(t, v[i]), b = gpu_with_dev(t, v[(i + 1) % n]);
        if (a < 0 || b < 0)
            return NULL;
        if ((back && *c->value) || a == b)
            continue;
        const struct path *p = path_between(t, a, b);
        if (!worst || p->gbs < worst->gbs)
            worst = p, *from = v[i], *to = v[(i + 1) % n];
    }
    return worst;
}

static bool all_linked(const struct topo *t)
{
    for (int a = 0; a < t->gpu_count; a++)
        for (int b = 0; b < a; b++)
            if (path_between(t, a, b)->kind > PATH_NVL)
                return false;
    return t->gpu_count > 1;
}

void rule_graph_speed(struct judge *j)
{
    const struct topo *t = machine_of(j);
    EACH_FACT(j->m, F_GRAPH_CHANNEL, c)
        EACH_FACT(j->m, F_GRAPH, g) {
            int from = 0, to = 0;
            const struct path *p = t && on(g, c) && g->b == PATTERN_RING ? worst_step(t, c, &from, &to) : NULL;
            if (!p)
                continue;
            bool slow = all_linked(t) && p->kind > PATH_NVL, over = g->x > p->gbs * 1.05;
            if (!slow && !over)
                continue;
            struct finding *f = find(j, LIKELY - 5, 0.8, "Channel %lld of graph %lld goes from GPU %d to GPU %d over %s, which has %.3g GB/s; the graph counts on %.3g", (long long)c->b, (long long)g->a, from, to, path_over(j->m, t, p), p->gbs, g->x);
            explain(j, f, "A ring is as fast as its slowest step (%s).", path_word(t, p->kind));
            evidence(f, c);
            evidence(f, g);
            evidence(f, t->fact);
            remedy(j, f, "an order of GPUs that follows the links of this machine; the library searches one itself after `unset NCCL_GRAPH_FILE`");
            return;
        }
}

static bool is_far(const char *word)
{
    return same_text(word, "PHB") || same_text(word, "SYS") || same_text(word, "PIX") || same_text(word, "PXB");
}

/* Every GPU is linked with every other, and the graph was searched as if they were not. */
void rule_graph_type(struct judge *j)
{
    const struct topo *t = machine_of(j);
    EACH_FACT(j->m, F_GRAPH, g) {
        if (!t || !all_linked(t) || !is_far(g->name) || g->c == 0)
            continue;
        struct finding *f = find(j, LIKELY - 10, 0.75, "Graph %lld (%s) stays on %s within the host, though all GPUs are linked by %s", (long long)g->a, pattern_of(g), g->name, t->rccl ? "xGMI" : "NVLink");
        explain(j, f, "The file was made where these links were off or not seen (NCCL_P2P_DISABLE, a container, Fabric Manager), or for another machine.");
        evidence(f, g);
        evidence(f, t->fact);
        remedy(j, f, "dump it again with the links up: `nvidia-smi nvlink -s`, or `rocm-smi --showtopo`");
        return;
    }
}

void rule_graph_same(struct judge *j)
{
    EACH_FACT(j->m, F_GRAPH, g) {
        const struct fact *first = g->d == 1 ? first_channel(j->m, g) : NULL;
        EACH_FACT(j->m, F_GRAPH_CHANNEL, c) {
            if (!first || !on(g, c) || same_text(c->name, first->name))
                continue;
            struct finding *f = find(j, ADVICE + 5, 0.7, "Graph %lld says samechannels=\"1\", and its channels differ", (long long)g->a);
            explain(j, f, "With that, whoever reads the file counts a link once for all channels, and so its speed.");
            evidence(f, g);
            evidence(f, c);
            remedy(j, f, "write `samechannels=\"0\"`");
            return;
        }
    }
}
