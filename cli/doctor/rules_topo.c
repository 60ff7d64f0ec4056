/* SPDX-License-Identifier: Apache-2.0 */
/* rules_topo.c - the shape of machines: hosts wired differently, virtual machines that hide their switches, tables that mislead, files that are wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"

/* ---- two hosts that should be alike --------------------------------------------------------------------------------------------------------- */

static bool is_gpu(const char *name)
{
    return begins(name, "GPU");
}

/* Nearer is less: what goes through more of the machine has a higher number. */
static int distance(const char *path)
{
    static const char *const order[] = {"X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"};
    for (int i = 0; i < 7; i++)
        if (begins(path, order[i]))
            return i;
    return -1;
}

static const struct fact *cell(const struct model *m, const char *host, const char *row, const char *column)
{
    EACH_FACT(m, F_MATRIX, c)
        if (same_text(c->host, host) && same_text(c->name, row) && same_text(c->value, column) && same_text(c->more, "links"))
            return c;
    return NULL;
}

static const struct fact *cpu_of(const struct model *m, const char *host, const char *row)
{
    EACH_FACT(m, F_CPU_OF, c)
        if (same_text(c->host, host) && same_text(c->name, row))
            return c;
    return NULL;
}

/* The card for which a host is worse: to how many GPUs is it farther than on the other host? */
static int farther(const struct model *m, const char *good, const char *bad, const char *card, const struct fact **was, const struct fact **is)
{
    int worse = 0;
    EACH_FACT(m, F_MATRIX, c) {
        if (!same_text(c->host, bad) || !is_gpu(c->name) || !same_text(c->value, card))
            continue;
        const struct fact *g = cell(m, good, c->name, card);
        if (!g || same_text(g->extra, c->extra))
            continue;
        int d = distance(c->extra) - distance(g->extra);
        worse += d > 0 ? 1 : -1;
        if (d > 0)
            *was = g, *is = c;
    }
    return worse;
}

void rule_hosts_wired_differently(struct judge *j)
{
    struct names hosts = {0}, cards = {0};
    EACH_FACT(j->m, F_MATRIX, c)
        if (*c->host && same_text(c->more, "links")) {
            names_add(j->m, &hosts, c->host);
            if (is_gpu(c->name) && !is_gpu(c->value))
                names_add(j->m, &cards, c->value);
        }
    enum { COMPARED = 12 }; /* hosts; each with each */
    hosts.n = hosts.n > COMPARED ? COMPARED : hosts.n;
    const struct fact *was = NULL, *is = NULL;
    const char *good = NULL, *bad = NULL, *card = NULL;
    int best = 0;
    for (int a = 0; a < hosts.n; a++)
        for (int b = 0; b < hosts.n; b++)
            for (int k = 0; a != b && k < cards.n; k++) {
                const struct fact *w = NULL, *i = NULL;
                int worse = farther(j->m, hosts.v[a], hosts.v[b], cards.v[k], &w, &i);
                if (worse > best)
                    best = worse, good = hosts.v[a], bad = hosts.v[b], card = cards.v[k], was = w, is = i;
            }
    if (!best || !was)
        return;
    struct finding *f = find(j, LIKELY, 0.85, "%s is wired differently from %s: its %s is at the far socket (%s) from %s, where %s has it at %s", bad, good, card, is->extra, is->name, good, was->extra);
    const struct fact *cpu = cpu_of(j->m, bad, is->name), *other = cpu_of(j->m, good, is->name);
    explain(j, f, "On the NUMA node of that card no GPU is near it, so its traffic crosses sockets and the host reaches only part of the bandwidth of its like.");
    if (cpu && other && !same_text(cpu->value, other->value))
        explain(j, f, "%s also has CPUs %s there and %s on the other host.", is->name, cpu->value, other->value);
    evidence(f, was);
    evidence(f, is);
    evidence(f, cpu);
    remedy(j, f, "move the card to the slot that it has on %s, or compare BIOS settings (NPS, PCIe bifurcation) and risers; on both: `lspci -tv`, `nvidia-smi topo -m`", good);
    remedy(j, f, "until then leave %s out on that host: `export NCCL_IB_HCA=^=%s`", card, card);
}

/* ---- xGMI: hops that say 1 for all ------------------------------------------------------------------------------------------------------------ */

static const struct fact *amd_cell(const struct model *m, const char *table, const struct fact *like)
{
    EACH_FACT(m, F_MATRIX, c)
        if (same_text(c->more, table) && same_text(c->name, like->name) && same_text(c->value, like->value) && same_text(c->host, like->host))
            return c;
    return NULL;
}

void rule_xgmi_hops(struct judge *j)
{
    const char *pairs = "";
    const struct fact *one = NULL, *hop = NULL;
    int n = 0;
    int64_t least = 0;
    EACH_FACT(j->m, F_MATRIX, w)
        if (same_text(w->more, "weight") && w->a > 0 && (!least || w->a < least))
            least = w->a;
    EACH_FACT(j->m, F_MATRIX, w) {
        const struct fact *type = same_text(w->more, "weight") && least && w->a >= 2 * least ? amd_cell(j->m, "type", w) : NULL;
        const struct fact *hops = type && same_text(type->extra, "XGMI") ? amd_cell(j->m, "hops", w) : NULL;
        if (!hops || hops->a != 1)
            continue;
        bool numbered = is_gpu(w->name) && is_gpu(w->value); /* amd-smi gives bus ids */
        const char *a = w->name + (numbered ? 3 : 0), *b = w->value + (numbered ? 3 : 0);
        if ((numbered ? atoi(a) < atoi(b) : strcmp(a, b) < 0) && n++ < 12)
            pairs = model_say(j->m, "%s%s%s-%s", pairs, *pairs ? ", " : "", a, b);
        one = w, hop = hops;
    }
    if (!one || !*pairs)
        return;
    struct finding *f = find(j, LIKELY - 5, 0.85, "The GPUs %s are two hops apart by xGMI (weight %lld), though the table of hops says 1", pairs, (long long)one->a);
    explain(j, f, "rocm-smi's hops say 1 for whatever is reached over xGMI; the weight counts links (15 each on most releases), and the bandwidth of a pair that is two hops away is shared with those between.");
    evidence(f, one);
    evidence(f, hop);
    remedy(j, f, "use weights when ranks are placed: `rocm-smi --showtopoweight`, or `grep . /sys/class/drm/card*/device/xgmi_num_links`; a ring that follows direct links is what is wanted");
}

/* ---- topology files ----------------------------------------------------------------------------------------------------------------------------- */

void rule_virtual_machine(struct judge *j)
{
    EACH_FACT(j->m, F_XML, x) {
        int flat = 0, gpus = 0, blind = 0, nics = 0;
        const struct fact *one = NULL;
        EACH_FACT(j->m, F_XML_GPU, g)
            if (g->file == x->file) {
                gpus++;
                flat += g->a == 0;
                blind += g->x == 0 || g->d < 0;
                one = one ? one : g;
            }
        EACH_FACT(j->m, F_XML_NET, n)
            if (n->file == x->file && n->peer == 0) {
                nics++;
            }
        if (gpus < 2 || flat < gpus || blind < gpus)
            continue;
        struct finding *f = find(j, LIKELY, 0.85, "A virtual machine hides how it is built: all %d GPUs%s hang directly under one CPU node", gpus, nics ? model_say(j->m, " and %d network cards", nics) : "");
        explain(j, f, "There are no PCIe switches, no link speeds and no NUMA node (numaid -1), so the library cannot tell which card is near which GPU; about half of the bandwidth of the bare machine is what remains. Give it NCCL_TOPO_FILE.");
        evidence(f, x);
        evidence(f, one);
        remedy(j, f, "a file that says what the host is like (clouds publish theirs for each machine type): `export NCCL_TOPO_FILE=/path/file.xml`; one that cannot be opened is only told at INFO: `ls -l $NCCL_TOPO_FILE`, in the container, too");
        remedy(j, f, "on the host: enable ATS, so that GPUs and cards reach each other without the root complex (`sudo lspci -vvv | grep ATSCtl` shows where it is on); pass NUMA affinity to the guest");
        return;
    }
}

void rule_twin_guid(struct judge *j)
{
    EACH_FACT(j->m, F_XML_NET, a)
        EACH_FACT(j->m, F_XML_NET, b) {
            if (a->order >= b->order || a->file != b->file || !*a->value || strtoull(a->value, NULL, 16) == 0 || !same_text(a->value, b->value) || a->b != b->b || same_text(a->name, b->name))
                continue;
            struct finding *f = find(j, LIKELY - 5, 0.8, "%s and %s have one guid (%s) and both say port %lld: two functions of one dual-port card", a->name, b->name, a->value, (long long)a->b);
            explain(j, f, "The library tells rails apart by guid and port; here it cannot, so NCCL_CROSS_NIC=0 still crosses them.");
            evidence(f, a);
            evidence(f, b);
            remedy(j, f, "name the rails (NCCL 2.28 and later): `export NCCL_IB_HCA=%s:1:0,%s:1:1`; or give each rank its card", a->name, b->name);
            return;
        }
}

void rule_speed_implausible(struct judge *j)
{
    enum { FASTEST_MBIT = 3200000 }; /* twice the fastest port that is announced */
    EACH_FACT(j->m, F_XML_NET, n)
        if (n->a > FASTEST_MBIT) {
            int same = 0;
            EACH_FACT(j->m, F_XML_NET, k)
                same += k->file == n->file && k->a == n->a;
            bool thousand = n->a % 1000 == 0 && n->a / 1000 <= FASTEST_MBIT;
            struct finding *f = find(j, LIKELY - 5, 0.9, "%s has a speed of %lld Mbit/s in the topology file, %s", n->name, (long long)n->a, thousand ? "1000 times too high" : "which no card has");
            explain(j, f, "The attribute is in Mbit/s (200000 is 200 Gbit/s)%s; a planner that believes it never minds the network.", same > 1 ? model_say(j->m, "; %d cards of the file have it", same) : "");
            evidence(f, n);
            if (thousand)
                remedy(j, f, "write it in Mbit/s: `sed -i 's/speed=\"%lld\"/speed=\"%lld\"/' %s`", (long long)n->a, (long long)(n->a / 1000), n->file);
            else
                remedy(j, f, "write it in Mbit/s, as `cat /sys/class/infiniband/%s/ports/1/rate` tells it (1 Gb/sec is 1000)", n->name);
            return;
        }
}

void rule_xml_words(struct judge *j)
{
    const struct fact *x = first_of(j->m, F_XML_FAULT);
    if (!x)
        return;
    EACH_FACT(j->m, F_XML_FAULT, k)
        x = same_text(k->name, "markup") ? k : x; /* then nothing of the file is read */
    bool speed = same_text(x->name, "link_speed");
    struct finding *f = speed ? find(j, ADVICE, 0.7, "The link speed '%s' at %s is read as PCIe generation 3", x->extra, x->value) : find(j, ADVICE + 8, 0.8, "NCCL and RCCL do not read this topology file: it has %s", x->extra);
    explain(j, f, speed ? "The parsers know the words '2.5 GT/s', '5 GT/s', '8 GT/s', '16 GT/s', '32 GT/s' (and 5.0, 8.0, ... 64.0) at the beginning of the text, and nothing else."
                        : "Their parser is hand-written: elements with one blank before each attribute, all of an element on one line, comments; no declaration, no tabs.");
    evidence(f, x);
    EACH_FACT(j->m, F_XML_FAULT, k)
        if (same_text(k->name, x->name))
            evidence(f, k);
    if (speed)
        remedy(j, f, "write what the kernel says: `cat /sys/bus/pci/devices/%s/current_link_speed`", x->value);
    else
        remedy(j, f, "`sed -i -e '/<?xml/d' -e 's/\\t/  /g' %s`, and each element on one line; or dump it anew: `NCCL_TOPO_DUMP_FILE=/tmp/topo.xml`", x->file);
}

void rule_links_uneven(struct judge *j)
{
    EACH_FACT(j->m, F_XML, x) {
        const struct fact *few = NULL;
        int64_t most = 0;
        int at_most = 0, gpus = 0;
        EACH_FACT(j->m, F_XML_GPU, g)
            if (g->file == x->file && g->b > most)
                most = g->b;
        EACH_FACT(j->m, F_XML_GPU, g)
            if (g->file == x->file) {
                gpus++;
                at_most += g->b == most;
                few = g->b < most ? g : few;
            }
        /* By design some have fewer; one alone against all others is a link that is down. */
        if (!few || gpus < 3 || at_most != gpus - 1 || x->d)
            continue;
        struct finding *f = find(j, LIKELY - 5, 0.75, "GPU %d has %lld of %lld NVLinks, all %d others have all", few->dev, (long long)few->b, (long long)most, at_most);
        explain(j, f, "One GPU with fewer links than its siblings has links that are down.");
        evidence(f, few);
        remedy(j, f, "`nvidia-smi nvlink -s -i %d; nvidia-smi nvlink -e -i %d`", few->dev, few->dev);
        return;
    }
}
