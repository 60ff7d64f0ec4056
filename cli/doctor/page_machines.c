/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_machines.c - the picture of a topology file: NUMA nodes, the PCIe switches below them, GPUs and network cards below these, lines as wide as the
 * link has lanes, with its rate; then the links between GPUs. A bridge with one device below it is part of that device's link.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"

enum {
    FILES = 8, BRIDGES = 1024, DEVICES = 128,
    LEAF_W = 96, BOX_W = 84, BOX_H = 46, ROOT_Y = 6, ROOT_H = 28, SWITCH_Y = 78, SWITCH_H = 26, LEAF_Y = 150,
    LEAVES_ACROSS = 12,
};

struct bridge {
    const struct fact *fact;
    int above;   /* index, -1 = the CPU */
    int devices; /* below it */
};

struct device {
    const struct fact *fact;
    int below;    /* nearest bridge that is shared, -1 = the CPU */
    double rate;  /* GB/s of the narrowest part of its own link, 0 = not known */
    int lanes;
    bool gpu;
};

struct drawing {
    FILE *f;
    struct model *m;
    struct bridge bridges[BRIDGES];
    struct device devices[DEVICES];
    int bridge_count, device_count, left_out;
    int leaf_y; /* of the line that is drawn: higher where no switch is between */
};

static int bridge_named(const struct drawing *d, const char *busid)
{
    for (int i = 0; *busid && i < d->bridge_count; i++)
        if (same_text(d->bridges[i].fact->name, busid))
            return i;
    return -1;
}

/* ---- what is there --------------------------------------------------------------------------------------------------------------------- */

static void add_device(struct drawing *d, const struct fact *fact, const char *busid, bool gpu)
{
    if (d->device_count == DEVICES) {
        d->left_out++;
        return;
    }
    int own = bridge_named(d, busid);
    d->devices[d->device_count++] = (struct device){.fact = fact, .below = own, .gpu = gpu};
    for (int i = own, steps = 0; i >= 0 && steps < 64; i = d->bridges[i].above, steps++)
        d->bridges[i].devices++;
}

static void find_link(const struct drawing *d, struct device *x)
{
    bool own = true;
    for (int steps = 0; x->below >= 0 && steps < 64; steps++, own = false) {
        const struct bridge *b = &d->bridges[x->below];
        if (!own && b->devices > 1)
            break;
        if (b->fact->x > 0 && (x->rate == 0 || b->fact->x < x->rate))
            x->rate = b->fact->x;
        if (b->fact->a > 0 && (x->lanes == 0 || b->fact->a < x->lanes))
            x->lanes = (int)b->fact->a;
        x->below = b->above;
    }
}

static void take_file(struct drawing *d, const struct fact *file)
{
    EACH_FACT(d->m, F_XML_PCI, p)
        if (p->file == file->file && d->bridge_count < BRIDGES)
            d->bridges[d->bridge_count++] = (struct bridge){.fact = p, .above = -1};
    for (int i = 0; i < d->bridge_count; i++)
        d->bridges[i].above = bridge_named(d, d->bridges[i].fact->value);
    EACH_FACT(d->m, F_XML_GPU, g)
        if (g->file == file->file)
            add_device(d, g, g->name, true);
    EACH_FACT(d->m, F_XML_NET, n)
        if (n->file == file->file)
            add_device(d, n, n->extra, false);
    for (int i = 0, named = d->device_count; i < d->bridge_count && !named; i++) { /* a file that the library fills in when it runs */
        const struct fact *p = d->bridges[i].fact;
        bool gpu = p->b >> 8 == 0x03 || p->b >> 8 == 0x12;
        if (gpu || p->b >> 8 == 0x02)
            add_device(d, p, p->name, gpu);
    }
    for (int i = 0; i < d->device_count; i++)
        find_link(d, &d->devices[i]);
}

/* Those below one switch beside each other. */
static int by_place(const void *a, const void *b)
{
    const struct device *x = a, *y = b;
    if (x->fact->d != y->fact->d)
        return x->fact->d < y->fact->d ? -1 : 1;
    if (x->below != y->below)
        return x->below < y->below ? -1 : 1;
    return x->gpu != y->gpu ? (x->gpu ? -1 : 1) : x->fact->order < y->fact->order ? -1 : x->fact->order > y->fact->order;
}

/* ---- how it is drawn ---------------------------------------------------------------------------------------------------------------------- */

static void draw_box(FILE *f, const char *class, double x, double y, double w, double h, const char *words)
{
    put(f, "<rect class=\"box %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", class, x, y, w, h, x + w / 2, y + 18, words);
}

static void draw_link(FILE *f, double x, double from, double to, int lanes, double rate)
{
    put(f, "<line class=\"stroke\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke-width=\"%.1f\"/>", x, x, from, to, lanes > 0 ? 1 + lanes / 4.0 : 1 + (rate < 64 ? rate : 64) / 8);
    if (lanes > 0 || rate > 0)
        put(f, "<rect class=\"under\" x=\"%.1f\" y=\"%.1f\" width=\"56\" height=\"%d\"/>", x - 28, to - (lanes > 0 ? 35 : 22), lanes > 0 ? 28 : 15);
    if (lanes > 0)
        put(f, "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">&#215;%d</text>", x, to - 24, lanes);
    if (rate > 0)
        put(f, rate < 10 ? "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.2g GB/s</text>" : "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.0f GB/s</text>", x, to - 11, rate);
    put(f, "\n");
}

static void draw_device(const struct drawing *d, const struct device *x, double left)
{
    const struct fact *k = x->fact;
    FILE *f = d->f;
    const char *name = k->kind == F_XML_PCI ? (x->gpu ? "GPU" : "network card") : x->gpu ? model_say(d->m, "GPU %d", k->dev) : model_say(d->m, "%.12s", k->name);
    const char *more = x->gpu || k->kind == F_XML_PCI ? k->name : k->a >= 1000 ? model_say(d->m, "%lld Gbit/s", (long long)k->a / 1000) : k->a > 0 ? model_say(d->m, "%lld Mbit/s", (long long)k->a) : k->extra;
    put(f, "<g><title>%s</title>", k->text);
    draw_box(f, x->gpu ? "gpu" : "nic", left + (LEAF_W - BOX_W) / 2.0, d->leaf_y, BOX_W, BOX_H, name);
    put(f, "<text class=\"dim\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", left + LEAF_W / 2.0, d->leaf_y + 36);
    put_cut(f, more, 14);
    put(f, "</text></g>\n");
}

static void draw_switch(const struct drawing *d, int bridge, int from, int to, int first)
{
    const struct bridge *b = &d->bridges[bridge];
    double left = (from - first) * LEAF_W + 6, width = (to - from) * LEAF_W - 12;
    const char *above = b->above >= 0 && d->bridges[b->above].devices > b->devices ? d->bridges[b->above].fact->name : NULL;
    draw_link(d->f, left + width / 2, ROOT_Y + ROOT_H, SWITCH_Y, (int)b->fact->a, b->fact->x);
    put(d->f, "<g><title>PCIe switch %s%s%s</title>", b->fact->name, above ? ", below " : "", above ? above : "");
    draw_box(d->f, "bridge", left, SWITCH_Y, width, SWITCH_H, to - from > 1 ? model_say(d->m, "PCIe switch %s", b->fact->name) : b->fact->name);
    put(d->f, "</g>");
}

/* Devices from..to-1, all below one NUMA node. */
static void draw_node(struct drawing *d, int from, int to, bool again)
{
    int width = (to - from) * LEAF_W, node = (int)d->devices[from].fact->d;
    const char *words = node < 0 ? to - from > 2 ? "CPU (its NUMA node is not said)" : "CPU" : model_say(d->m, "NUMA node %d%s", node, again ? to - from > 1 ? ", continued" : " ..." : "");
    d->leaf_y = SWITCH_Y;
    for (int i = from; i < to; i++)
        d->leaf_y = d->devices[i].below >= 0 ? LEAF_Y : d->leaf_y;
    int height = d->leaf_y + BOX_H + 4;
    put(d->f, "<div class=\"wide\"><svg class=\"machine\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"%s\">\n", width, height, width, height, words);
    for (int i = from; i < to; i++) {
        const struct device *x = &d->devices[i];
        double left = (i - from) * LEAF_W;
        draw_link(d->f, left + LEAF_W / 2.0, x->below < 0 ? ROOT_Y + ROOT_H : SWITCH_Y + SWITCH_H, d->leaf_y, x->lanes, x->rate);
        if (x->below >= 0 && (i == from || d->devices[i - 1].below != x->below)) {
            int end = i + 1;
            while (end < to && d->devices[end].below == x->below)
                end++;
            draw_switch(d, x->below, i, end, from);
        }
        draw_device(d, x, left);
    }
    draw_box(d->f, "bridge", 6, ROOT_Y, width - 12, ROOT_H, words);
    put(d->f, "</svg></div>\n");
}

/* A line of the picture ends with a NUMA node, or between two switches when it gets too wide. */
static void draw_nodes(struct drawing *d)
{
    for (int from = 0, end; from < d->device_count; from = end) {
        int64_t node = d->devices[from].fact->d;
        bool again = from > 0 && d->devices[from - 1].fact->d == node;
        for (end = from; end < d->device_count && d->devices[end].fact->d == node;) {
            int next = end + 1;
            while (next < d->device_count && d->devices[next].fact->d == node && d->devices[end].below >= 0 && d->devices[next].below == d->devices[end].below)
                next++;
            if (end > from && next - from > LEAVES_ACROSS)
                break;
            end = next;
        }
        draw_node(d, from, end, again);
    }
}

/* "0000:fe:00.0 x18, 0000:07:00.0 x4": what is no GPU of this file is a switch. */
static void draw_links(const struct drawing *d)
{
    struct ring *r = model_alloc(d->m, sizeof *r);
    for (int i = 0; i < d->device_count; i++)
        if (d->devices[i].gpu && d->devices[i].fact->kind == F_XML_GPU)
            ring_dot(r, model_say(d->m, "GPU %d", d->devices[i].fact->dev), (int)d->devices[i].fact->d, true);
    for (int i = 0; i < d->device_count; i++) {
        const struct fact *g = d->devices[i].fact;
        char target[32];
        int count, used;
        for (const char *p = g->kind == F_XML_GPU ? g->more : ""; sscanf(p, "%31[^ ,] x%d%n", target, &count, &used) == 2; p += strspn(p, ", ")) {
            const char *name = "NVLink switches";
            p += used;
            for (int k = 0; k < d->device_count; k++)
                if (d->devices[k].gpu && same_text(d->devices[k].fact->name, target))
                    name = model_say(d->m, "GPU %d", d->devices[k].fact->dev);
            int from = ring_dot(r, model_say(d->m, "GPU %d", g->dev), NOBODY, true), to = ring_dot(r, name, NOBODY, true);
            if (to >= 0)
                r->dots[to].centre = same_text(name, "NVLink switches");
            ring_edge(r, from, to, count, "NVLink or xGMI");
        }
    }
    ring_draw(d->f, r, "links between GPUs");
}

static const char *counted(const struct drawing *d)
{
    int gpus = 0, cards;
    for (int i = 0; i < d->device_count; i++)
        gpus += d->devices[i].gpu;
    cards = d->device_count - gpus;
    return model_say(d->m, "%d GPU%s, %d network card%s", gpus, gpus == 1 ? "" : "s", cards, cards == 1 ? "" : "s");
}

void page_machines(FILE *f, struct model *m)
{
    int count = 0;
    if (!fact_seen(m, F_XML))
        return;
    put(f, "<section id=\"machines\"><h2>The machine</h2>\n");
    EACH_FACT(m, F_XML, x) {
        if (count++ >= FILES)
            continue;
        struct drawing *d = model_alloc(m, sizeof *d);
        d->f = f;
        d->m = m;
        take_file(d, x);
        qsort(d->devices, (size_t)d->device_count, sizeof *d->devices, by_place);
        if (!d->device_count)
            continue;
        put(f, "<h3>%s</h3><p class=\"place\">%s</p><div class=\"card\"><div class=\"side\">\n", counted(d), x->file);
        draw_nodes(d);
        put(f, "</div>\n");
        draw_links(d);
        put(f, "</div>\n");
        if (d->left_out)
            put(f, "<p class=\"soft\">And %d more devices.</p>\n", d->left_out);
    }
    if (count > FILES)
        put(f, "<p class=\"soft\">And %d more files.</p>\n", count - FILES);
    put(f, "</section>\n");
}
