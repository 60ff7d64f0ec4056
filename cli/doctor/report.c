/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - reports from topology files, tables and logs (report.h). */
#include "report.h"

#include <stdlib.h>
#include <string.h>

#include "paths.h"
#include "query.h"
#include "scan.h"

/* ---- from a topology file ------------------------------------------------------------------------------------------------------------------- */

static const char *gpu_name(struct model *m, int dev)
{
    return model_say(m, "GPU%d", dev);
}

static void add_pairs(struct model *m, struct report *r, const struct topo *t)
{
    int n = t->gpu_count;
    r->pairs = model_alloc(m, (size_t)(n * n + 1) / 2 * sizeof *r->pairs);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            const struct path *p = path_between(t, a, b);
            r->pairs[r->pair_count++] = (struct report_pair){r->gpus[a], r->gpus[b], path_word(t, p->kind), path_over(m, t, p), p->gbs, path_direct(t, p) ? TOLD_YES : TOLD_NO};
        }
}

static bool is_nearest(const struct topo_gpu *g, int net)
{
    for (int i = 0; i < g->net_count; i++)
        if (g->nets[i] == net)
            return true;
    return false;
}

static void add_cards(struct model *m, struct report *r, const struct topo *t)
{
    r->cards = model_alloc(m, (size_t)(t->gpu_count * t->net_count + 1) * sizeof *r->cards);
    for (int g = 0; g < t->gpu_count; g++)
        for (int n = 0; n < t->net_count; n++) {
            const struct path *p = path_to_net(t, g, n);
            r->cards[r->card_count++] = (struct report_card){.gpu = r->gpus[g], .card = t->nets[n].name, .word = path_word(t, p->kind), .gbs = t->nets[n].mbit || t->told ? p->gbs : 0, .port_gbs = (double)t->nets[n].mbit / 8000,
                                                             .gpudirect = !t->gpus[g].gdr_told ? NOT_TOLD : path_gpudirect(t, g, n) ? TOLD_YES : TOLD_NO, .nearest = is_nearest(&t->gpus[g], n)};
        }
}

static struct report *from_topology(struct model *m, const struct fact *xml)
{
    const struct topo *t = topo_of(m, xml);
    if (!t)
        return NULL;
    struct report *r = model_alloc(m, sizeof *r);
    *r = (struct report){.source = xml->file, .gpu_count = t->gpu_count};
    r->gpus = model_alloc(m, (size_t)t->gpu_count * sizeof *r->gpus);
    r->gpu_notes = model_alloc(m, (size_t)t->gpu_count * sizeof *r->gpu_notes);
    bool links = false;
    for (int i = 0; i < t->gpu_count; i++) {
        const struct topo_gpu *g = &t->gpus[i];
        r->gpus[i] = gpu_name(m, g->dev);
        r->gpu_notes[i] = model_say(m, "%s%s%s, NUMA node %d", g->busid, *g->chip ? ", " : "", g->chip, g->numa);
    }
    add_pairs(m, r, t);
    add_cards(m, r, t);
    EACH_FACT(m, F_XML_LINK, l)
        links = links || l->file == xml->file;
    r->what = model_say(m, "%d GPU%s, %d network card%s, %d NUMA node%s, as %s counts%s", t->gpu_count, t->gpu_count == 1 ? "" : "s", t->net_count, t->net_count == 1 ? "" : "s", t->numa_count, t->numa_count == 1 ? "" : "s",
                        t->rccl ? "RCCL" : "NCCL", links ? "" : t->rccl ? "; no xGMI links in it" : "; no NVLinks in it (NCCL asks the driver for them)");
    return r;
}

/* ---- from tables -------------------------------------------------------------------------------------------------------------------------------- */

static bool is_gpu(const char *name)
{
    return begins(name, "GPU") || (strlen(name) == 12 && name[4] == ':' && name[7] == ':'); /* amd-smi heads its tables with bus ids */
}

static const struct fact *same_cell(const struct model *m, const struct fact *like, const char *table)
{
    EACH_FACT(m, F_MATRIX, c)
        if (same_text(c->more, table) && same_text(c->name, like->name) && same_text(c->value, like->value) && same_text(c->host, like->host) && c->file == like->file)
            return c;
    return NULL;
}

/* What nvidia-smi's words stand for. NODE is a path between PCIe roots of one NUMA node, which NCCL calls PHB. */
static struct report_pair nvidia_pair(struct model *m, const struct fact *c)
{
    static const struct { const char *word, *said, *over; enum told direct; } words[] = {{"PIX", "PIX", "one PCIe switch", TOLD_YES}, {"PXB", "PXB", "several PCIe switches", TOLD_YES}, {"PHB", "PHB", "the processor's PCIe root", TOLD_NO},
                                                                                          {"NODE", "PHB", "PCIe roots of one NUMA node", TOLD_NO}, {"SYS", "SYS", "the link between NUMA nodes", TOLD_NO}};
    struct report_pair p = {.a = c->name, .b = c->value, .word = c->extra, .over = "?", .direct = NOT_TOLD};
    if (begins(c->extra, "NV") && c->a > 0) {
        p.word = "NVL";
        p.over = model_say(m, "%lld NVLink%s", (long long)c->a, c->a == 1 ? "" : "s");
        p.gbs = (double)c->a * 20;
        p.direct = TOLD_YES;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (same_text(c->extra, words[i].word))
            p.word = words[i].said, p.over = words[i].over, p.direct = words[i].direct;
    return p;
}

static struct report_pair amd_pair(struct model *m, const struct fact *c)
{
    const struct fact *weight = same_cell(m, c, "weight"), *hops = same_cell(m, c, "hops"), *access = same_cell(m, c, "access"), *rate = same_cell(m, c, "bandwidth");
    struct report_pair p = {.a = c->name, .b = c->value, .word = c->extra, .over = "?", .direct = access ? has(access->extra, "ENABLED") ? TOLD_YES : TOLD_NO : TOLD_YES};
    int64_t links = weight ? weight->a / 15 : 0;
    if (has_nocase(c->extra, "XGMI"))
        p.over = links > 1 ? model_say(m, "xGMI, %lld links away (weight %lld)", (long long)links, (long long)weight->a) : weight ? "one xGMI link" : "xGMI";
    else if (has_nocase(c->extra, "PCI"))
        p.over = weight ? model_say(m, "PCIe, weight %lld", (long long)weight->a) : hops ? model_say(m, "PCIe, %lld hops", (long long)hops->a) : "PCIe";
    if (rate && rate->a > 0) /* "50000-50000": MB/s of the slowest and the fastest step */
        p.gbs = (double)rate->a / 1000;
    return p;
}

/* "NIC0" is "mlx5_0" by the legend below the table. */
static const char *card_called(const struct model *m, const struct fact *c)
{
    EACH_FACT(m, F_NIC_CALLED, n)
        if (same_text(n->name, c->value) && same_text(n->host, c->host) && n->file == c->file)
            return n->value;
    return c->value;
}

static struct report *from_table(struct model *m, const char *host, const char *file)
{
    struct names gpus = {0};
    int cells = 0;
    EACH_FACT(m, F_MATRIX, c) {
        if (!same_text(c->host, host) || c->file != file)
            continue;
        cells++;
        if (is_gpu(c->name))
            names_add(m, &gpus, c->name);
    }
    struct report *r = model_alloc(m, sizeof *r);
    *r = (struct report){.source = *host ? model_say(m, "%s, %s", host, file) : file, .gpus = gpus.v, .gpu_count = gpus.n};
    r->pairs = model_alloc(m, (size_t)(cells + 1) * sizeof *r->pairs);
    r->cards = model_alloc(m, (size_t)(cells + 1) * sizeof *r->cards);
    bool amd = false;
    EACH_FACT(m, F_MATRIX, c) {
        bool type = same_text(c->more, "type"), links = same_text(c->more, "links");
        if (!same_text(c->host, host) || c->file != file || !is_gpu(c->name) || !(type || links))
            continue;
        amd = amd || type;
        if (is_gpu(c->value) && names_index(&gpus, c->name) < names_index(&gpus, c->value))
            r->pairs[r->pair_count++] = type ? amd_pair(m, c) : nvidia_pair(m, c);
        if (!is_gpu(c->value))
            r->cards[r->card_count++] = (struct report_card){.gpu = c->name, .card = card_called(m, c), .word = same_text(c->extra, "NODE") ? "PHB" : c->extra,
                                                             .gpudirect = begins(c->extra, "PIX") || begins(c->extra, "PXB") ? NOT_TOLD : TOLD_NO};
    }
    /* The nearest by word: PIX before PXB before the rest. */
    static const char *const order[] = {"PIX", "PXB", "PHB", "SYS"};
    for (int i = 0; i < r->card_count; i++) {
        int best = 4;
        for (int w = 3; w >= 0; w--)
            for (int k = 0; k < r->card_count; k++)
                if (same_text(r->cards[k].gpu, r->cards[i].gpu) && same_text(r->cards[k].word, order[w]))
                    best = w;
        r->cards[i].nearest = best < 4 && same_text(r->cards[i].word, order[best]);
    }
    r->what = model_say(m, "%d GPUs, as the table of %s says", gpus.n, amd ? "rocm-smi or amd-smi" : "nvidia-smi");
    return r->pair_count ? r : NULL;
}

/* ---- from logs --------------------------------------------------------------------------------------------------------------------------------------- */

static const char *rank_name(struct model *m, int rank)
{
    return model_say(m, "rank %d", rank);
}

static struct report_pair *pair_between(struct report *r, const char *a, const char *b)
{
    for (int i = 0; i < r->pair_count; i++)
        if ((same_text(r->pairs[i].a, a) && same_text(r->pairs[i].b, b)) || (same_text(r->pairs[i].a, b) && same_text(r->pairs[i].b, a)))
            return &r->pairs[i];
    return NULL;
}

static const char *how_over(struct model *m, const struct fact *p)
{
    if (begins(p->value, "NET/"))
        return p->a != NOBODY && p->a >= 0 ? model_say(m, "%s, device %lld%s", p->value, (long long)p->a, p->b ? ", GPUDirect" : "") : p->value;
    return p->value;
}

static struct report *from_logs(struct model *m)
{
    enum { PAIRS = 4096 };
    struct names ranks = {0};
    struct report *r = model_alloc(m, sizeof *r);
    r->pairs = model_alloc(m, PAIRS * sizeof *r->pairs);
    EACH_FACT(m, F_PATH, p) {
        if (p->rank == NOBODY || p->peer == NOBODY || p->rank == p->peer || same_text(p->name, "receive"))
            continue;
        const char *a = rank_name(m, p->rank), *b = rank_name(m, p->peer);
        names_add(m, &ranks, a);
        names_add(m, &ranks, b);
        if (pair_between(r, a, b) || r->pair_count == PAIRS)
            continue;
        bool net = begins(p->value, "NET/"), shm = begins(p->value, "SHM");
        r->pairs[r->pair_count++] = (struct report_pair){.a = a, .b = b, .word = net ? "NET" : shm ? "SHM" : "P2P", .over = how_over(m, p), .direct = net ? p->b ? TOLD_YES : TOLD_NO : shm ? TOLD_NO : TOLD_YES};
    }
    r->source = "the logs";
    r->gpus = ranks.v;
    r->gpu_count = ranks.n;
    r->what = model_say(m, "%d ranks, as their channels say", ranks.n);
    return r->pair_count ? r : NULL;
}

/* ---- all ---------------------------------------------------------------------------------------------------------------------------------------------- */

static void append(struct report **first, struct report *r)
{
    while (*first)
        first = &(*first)->next;
    *first = r;
}

static bool seen_before(const struct model *m, const struct fact *f)
{
    EACH_FACT(m, F_MATRIX, c) {
        if (c == f)
            return false;
        if (same_text(c->host, f->host) && c->file == f->file)
            return true;
    }
    return false;
}

struct report *report_all(struct model *m)
{
    struct report *first = NULL;
    EACH_FACT(m, F_XML, x)
        append(&first, from_topology(m, x));
    EACH_FACT(m, F_MATRIX, c)
        if (!seen_before(m, c))
            append(&first, from_table(m, c->host, c->file));
    append(&first, from_logs(m));
    return first;
}
