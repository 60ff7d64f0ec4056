/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_links.c - links between devices: a ring of them with a line a link, as wide as there are links, and the table it was read from. From
 * `nvidia-smi topo -m`, `rocm-smi --showtopo` and the NVLink and xGMI elements of topology files.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"

enum { BOX_W = 70, BOX_H = 26, TABLES = 8, LABELLED = 40 };

/* Wide enough that neighbours do not touch. */
static int size_of(const struct ring *r)
{
    return r->dot_count < 6 ? 300 : r->dot_count < 12 ? 440 : r->dot_count < 20 ? 620 : 36 * r->dot_count;
}

int ring_dot(struct ring *r, const char *name, int node, bool gpu)
{
    for (int i = 0; i < r->dot_count; i++)
        if (same_text(r->dots[i].name, name))
            return i;
    if (r->dot_count == DOTS) {
        r->left_out++;
        return -1;
    }
    r->dots[r->dot_count] = (struct dot){.name = name, .node = node, .gpu = gpu};
    return r->dot_count++;
}

/* Both ends name a link; it is one line. */
void ring_edge(struct ring *r, int from, int to, int width, const char *words)
{
    if (from < 0 || to < 0 || from == to)
        return;
    for (int i = 0; i < r->edge_count; i++) {
        struct edge *e = &r->edges[i];
        if (e->from == to && e->to == from)
            return;
        if (e->from == from && e->to == to) {
            e->width += width;
            return;
        }
    }
    if (r->edge_count < EDGES)
        r->edges[r->edge_count++] = (struct edge){from, to, width, words};
}

struct point {
    double x, y;
};

static struct point place_of(const struct ring *r, int dot)
{
    int round = 0, at = 0;
    struct point middle = {size_of(r) / 2.0, size_of(r) / 2.0};
    if (r->dots[dot].centre)
        return middle;
    for (int i = 0; i < r->dot_count; i++) {
        at = i == dot ? round : at;
        round += !r->dots[i].centre;
    }
    double angle = 2 * M_PI * at / round - M_PI / 2, radius = size_of(r) / 2.0 - BOX_W / 2.0 - 4;
    return (struct point){middle.x + radius * cos(angle), middle.y + radius * sin(angle)};
}

static void draw_edge(FILE *f, const struct ring *r, const struct edge *e)
{
    struct point a = place_of(r, e->from), b = place_of(r, e->to);
    double stroke = e->width ? 1 + 0.45 * (e->width < 18 ? e->width : 18) : 1;
    put(f, "<line class=\"stroke\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke-width=\"%.1f\"%s><title>%s to %s: %s", a.x, a.y, b.x, b.y, stroke, "", r->dots[e->from].name, r->dots[e->to].name, e->words);
    if (e->width)
        put(f, ", %d link%s", e->width, e->width == 1 ? "" : "s");
    put(f, "</title></line>\n");
}

static void label_edge(FILE *f, const struct ring *r, const struct edge *e)
{
    struct point a = place_of(r, e->from), b = place_of(r, e->to);
    double share = r->dots[e->to].centre ? 0.45 : 0.36; /* lines cross in the middle */
    if (e->width)
        put(f, "<text class=\"halo dim\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">&#215;%d</text>\n", a.x + share * (b.x - a.x), a.y + share * (b.y - a.y) + 4, e->width);
}

static void draw_dot(FILE *f, const struct ring *r, int i)
{
    const struct dot *d = &r->dots[i];
    struct point p = place_of(r, i);
    double w = d->centre ? 150 : BOX_W;
    put(f, "<g><title>%s", d->name);
    if (d->node >= 0)
        put(f, ", NUMA node %d", d->node);
    put(f, "</title><rect class=\"box %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%d\" rx=\"5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", d->centre ? "bridge" : d->gpu ? "gpu" : "nic", p.x - w / 2, p.y - BOX_H / 2.0, w,
        BOX_H, p.x, p.y + 4);
    put_cut(f, d->name, d->centre ? 24 : 9);
    put(f, "</text></g>\n");
}

void ring_draw(FILE *f, const struct ring *r, const char *title)
{
    bool alike = true;
    int size = size_of(r);
    for (int i = 1; i < r->edge_count; i++)
        alike = alike && r->edges[i].width == r->edges[0].width;
    if (!r->edge_count)
        return;
    put(f, "<div class=\"wide\"><svg class=\"ring\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"%s\">\n", size, size, size, size, title);
    for (int i = 0; i < r->edge_count; i++)
        draw_edge(f, r, &r->edges[i]);
    for (int i = 0; i < r->edge_count && r->edge_count <= LABELLED && !alike; i++)
        label_edge(f, r, &r->edges[i]);
    for (int i = 0; i < r->dot_count; i++)
        draw_dot(f, r, i);
    put(f, "</svg></div>\n");
    if (alike && r->edges[0].width)
        put(f, "<p class=\"soft\">Every line is %d link%s.</p>\n", r->edges[0].width, r->edges[0].width == 1 ? "" : "s");
    if (r->left_out)
        put(f, "<p class=\"soft\">Only the first %d devices are drawn.</p>\n", DOTS);
}

/* ---- tables ----------------------------------------------------------------------------------------------------------------------------- */

struct table {
    const char *file, *host, *kind;
    struct names rows, columns;
};

static bool of_table(const struct fact *f, const struct table *t)
{
    return f->file == t->file && same_text(f->host, t->host) && same_text(f->more, t->kind);
}

static const char *cell_class(const char *words)
{
    bool near = begins(words, "NV") || begins(words, "XGMI") || same_text(words, "PIX") || same_text(words, "PXB");
    bool far = same_text(words, "SYS") || same_text(words, "NODE") || same_text(words, "PHB") || begins(words, "PCIE");
    return near ? "near" : far ? "far" : "";
}

static int node_of(const struct model *m, const struct table *t, const char *name)
{
    EACH_FACT(m, F_CPU_OF, c)
        if (c->file == t->file && same_text(c->name, name))
            return (int)c->a;
    return NOBODY;
}

static void ring_of_table(const struct model *m, const struct table *t, struct ring *r)
{
    for (int i = 0; i < t->rows.n; i++)
        ring_dot(r, t->rows.v[i], node_of(m, t, t->rows.v[i]), begins(t->rows.v[i], "GPU"));
    EACH_FACT(m, F_MATRIX, f) {
        if (!of_table(f, t) || strcmp(cell_class(f->extra), "near") != 0)
            continue;
        bool counted = begins(f->extra, "NV");
        int from = ring_dot(r, f->name, NOBODY, begins(f->name, "GPU")), to = ring_dot(r, f->value, NOBODY, begins(f->value, "GPU"));
        ring_edge(r, from, to, counted ? (int)f->a : 0, f->extra);
    }
}

static const struct fact *cell(const struct model *m, const struct table *t, const char *row, const char *column)
{
    EACH_FACT(m, F_MATRIX, f)
        if (f->name == row && f->value == column && of_table(f, t))
            return f;
    return NULL;
}

static void put_table(FILE *f, struct model *m, const struct table *t)
{
    struct names order = {0}; /* of columns: as the rows stand, so that the diagonal is one */
    for (int r = 0; r < t->rows.n; r++)
        if (names_has(&t->columns, t->rows.v[r]))
            names_add(m, &order, t->rows.v[r]);
    for (int c = 0; c < t->columns.n; c++)
        names_add(m, &order, t->columns.v[c]);
    put(f, "<div class=\"wide\"><table class=\"links\"><thead><tr><th></th>");
    for (int c = 0; c < order.n && c < DOTS; c++)
        put(f, "<th>%s</th>", order.v[c]);
    put(f, "</tr></thead><tbody>\n");
    for (int r = 0; r < t->rows.n && r < DOTS; r++) {
        put(f, "<tr><th>%s</th>", t->rows.v[r]);
        for (int c = 0; c < order.n && c < DOTS; c++) {
            const struct fact *k = cell(m, t, t->rows.v[r], order.v[c]);
            put(f, k ? "<td class=\"%s\">" : "<td>", k ? cell_class(k->extra) : "");
            put_cut(f, k ? k->extra : "", 12);
            put(f, "</td>");
        }
        put(f, "</tr>\n");
    }
    put(f, "</tbody></table></div>\n");
}

static void put_tables(FILE *f, struct model *m, struct table *tables, int count)
{
    static const char *const titles[][2] = {{"links", "Paths between devices"}, {"type", "Kinds of links"}, {"weight", "Weights"}, {"hops", "Hops"}, {"numa", "NUMA nodes"}};
    for (int i = 0; i < count; i++) {
        const char *title = tables[i].kind;
        struct ring *r = model_alloc(m, sizeof *r);
        for (size_t k = 0; k < sizeof titles / sizeof *titles; k++)
            title = same_text(titles[k][0], tables[i].kind) ? titles[k][1] : title;
        put(f, "<div><h3>%s%s%s</h3><p class=\"place\">%s</p>\n", title, *tables[i].host ? " of " : "", tables[i].host, tables[i].file);
        ring_of_table(m, &tables[i], r);
        ring_draw(f, r, title);
        put_table(f, m, &tables[i]);
        put(f, "</div>\n");
    }
}

void page_links(FILE *f, struct model *m)
{
    struct table *tables = model_alloc(m, TABLES * sizeof *tables);
    int count = 0, left_out = 0;
    const struct fact *last = NULL;
    EACH_FACT(m, F_MATRIX, k) {
        int i = 0;
        while (i < count && !of_table(k, &tables[i]))
            i++;
        if (i == TABLES) {
            left_out += !last || last->file != k->file || last->host != k->host || last->more != k->more;
            last = k;
            continue;
        }
        if (i == count)
            tables[count++] = (struct table){.file = k->file, .host = k->host, .kind = k->more};
        names_add(m, &tables[i].rows, k->name);
        names_add(m, &tables[i].columns, k->value);
    }
    if (!count)
        return;
    put(f, "<section id=\"links\"><h2>Links between devices</h2>\n");
    put(f, "<div class=\"card side\">\n");
    put_tables(f, m, tables, count);
    put(f, "</div>\n");
    if (left_out)
        put(f, "<p class=\"soft\">And %d more tables.</p>\n", left_out);
    put(f, "</section>\n");
}
