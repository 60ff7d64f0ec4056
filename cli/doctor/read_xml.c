/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_xml.c - topology files of NCCL (version 1) and RCCL (version 2), and graph files of both. Their own parsers are hand-written and accept less than XML does;
 * what they would refuse or misread is a fact, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"
#include "xml.h"

enum { DEPTH = 48 };

struct element {
    char name[16], busid[24], speed[24];
    int width;
};

struct machine {
    struct xml xml;
    struct model *m;
    const char *file;
    struct element at[DEPTH];
    int depth, gpus, nics, numa, version;
    bool amd, is_system;
    struct fact gpu; /* the <gpu> that is open: its links come as children */
    char links[512];
    bool gpu_open;
    int graphs, graph_id, channel;
    char on_gpus[512], on_nets[256]; /* the <channel> that is open */
};

static struct fact xml_fact(struct machine *x, enum fact_kind kind)
{
    struct fact f = fact_of(kind);
    f.file = x->file;
    f.line = (long)xml_line(&x->xml);
    f.d = x->numa;
    f.host = x->file; /* two files may say the same of two hosts */
    return f;
}

static void fault(struct machine *x, const char *what, const char *where, const char *words)
{
    struct fact f = xml_fact(x, F_XML_FAULT);
    f.name = what;
    f.value = where;
    f.extra = words;
    f.text = model_say(x->m, "%s %s: %s", what, where, words);
    model_add(x->m, &f);
}

/* They know nested elements with attributes, a blank before each, and comments: nothing else of XML. */
static void odd_markup(struct machine *x, const char *data, size_t bytes)
{
    bool in_tag = false, in_value = false, tab = false, split = false;
    const char *end = data + bytes;
    const char *declared = memmem(data, bytes < 256 ? bytes : 256, "<?xml", 5);
    if (declared)
        fault(x, "markup", x->file, "<?xml ...?>");
    for (const char *p = data; p < end; p++) {
        if (!in_tag && end - p > 4 && memcmp(p, "<!--", 4) == 0) {
            const char *closed = memmem(p, (size_t)(end - p), "-->", 3);
            p = closed ? closed + 2 : end - 1;
        } else if (*p == '"') {
            in_value = in_tag && !in_value;
        } else if (!in_value && (*p == '<' || *p == '>')) {
            in_tag = *p == '<';
        } else {
            tab = tab || (in_tag && *p == '\t');
            split = split || (in_tag && *p == '\n');
        }
    }
    if (tab)
        fault(x, "markup", x->file, "a tab inside an element");
    if (split)
        fault(x, "markup", x->file, "an element over several lines");
}

/* PCI elements between this one and its CPU, its own not counted. */
static int depth_below_cpu(const struct machine *x)
{
    int n = 0;
    for (int i = 0; i < x->depth; i++)
        n += strcmp(x->at[i].name, "pci") == 0;
    return n > 0 ? n - 1 : 0;
}

static const struct element *nearest_pci(const struct machine *x)
{
    for (int i = x->depth; i-- > 0;)
        if (strcmp(x->at[i].name, "pci") == 0)
            return &x->at[i];
    return NULL;
}

/* As the parsers do it: the beginning of the text says the generation, anything else counts as the third. */
static double lane_gbs(const char *speed)
{
    static const struct { const char *words; double gts; } known[] = {{"2.5 GT/s", 0.25}, {"5 GT/s", 0.5}, {"5.0 GT/s", 0.5}, {"8 GT/s", 1}, {"8.0 GT/s", 1}, {"16 GT/s", 2}, {"16.0 GT/s", 2}, {"32 GT/s", 4}, {"32.0 GT/s", 4}, {"64.0 GT/s", 8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins(speed, known[i].words))
            return known[i].gts;
    return 0;
}

/* NCCL's own figures, which leave room for what packets cost: of 100 Mbit/s a lane. */
static double counted_gbs(const char *speed, int width)
{
    double gts = lane_gbs(speed);
    return (width ? width : 16) * (gts > 0 ? gts * 60 : 60) / 80;
}

static void take_pci(struct machine *x, const struct element *e, const char **atts)
{
    struct fact f = xml_fact(x, F_XML_PCI);
    f.name = model_words(x->m, e->busid);
    for (int i = x->depth - 1; i-- > 0 && !*f.value;)
        f.value = strcmp(x->at[i].name, "pci") == 0 ? model_words(x->m, x->at[i].busid) : "";
    f.a = e->width;
    f.extra = model_words(x->m, e->speed);
    f.b = strtoll(xml_attr(atts, "class"), NULL, 16) >> 8;
    f.x = lane_gbs(e->speed) * e->width;
    f.c = whole(counted_gbs(e->speed, e->width) * 1e6);
    f.more = model_say(x->m, "%s:%s", xml_attr(atts, "vendor"), xml_attr(atts, "device"));
    f.text = model_say(x->m, "PCI device %s: %d lanes, %s", f.name, e->width, e->speed);
    if (*f.name)
        model_add(x->m, &f);
    if (e->speed[0] && lane_gbs(e->speed) == 0 && strcmp(e->speed, "Unknown") != 0)
        fault(x, "link_speed", f.name, f.extra);
}

static void take_cpu(struct machine *x, const char **atts)
{
    x->numa = *xml_attr(atts, "numaid") ? atoi(xml_attr(atts, "numaid")) : NOBODY;
    struct fact f = xml_fact(x, F_XML_CPU);
    f.a = x->numa;
    f.value = model_words(x->m, xml_attr(atts, "vendor"));
    f.extra = model_words(x->m, xml_attr(atts, "arch"));
    f.b = atoi(xml_attr(atts, "familyid"));
    f.c = atoi(xml_attr(atts, "modelid"));
    f.text = model_say(x->m, "NUMA node %lld, %s", (long long)f.a, f.value);
    model_add(x->m, &f);
}

static void begin_gpu(struct machine *x, const char **atts)
{
    const struct element *pci = nearest_pci(x);
    x->gpu = xml_fact(x, F_XML_GPU);
    x->gpu.dev = atoi(xml_attr(atts, "dev"));
    x->gpu.rank = *xml_attr(atts, "rank") ? atoi(xml_attr(atts, "rank")) : NOBODY;
    x->gpu.name = model_words(x->m, pci ? pci->busid : "");
    x->gpu.a = depth_below_cpu(x);
    x->gpu.c = atoi(xml_attr(atts, "gdr"));
    x->gpu.extra = model_words(x->m, pci ? pci->speed : "");
    x->gpu.x = pci ? lane_gbs(pci->speed) * pci->width : 0;
    x->gpu.value = x->depth >= 3 ? model_words(x->m, x->at[x->depth - 2].busid) : "";
    x->links[0] = 0;
    x->gpu_open = true;
    x->gpus++;
    struct fact chip = xml_fact(x, F_XML_CHIP);
    chip.name = x->gpu.name;
    chip.a = atoi(xml_attr(atts, "sm"));
    chip.value = model_words(x->m, xml_attr(atts, "gcn"));
    model_add(x->m, &chip);
}

static void end_gpu(struct machine *x)
{
    x->gpu.more = model_words(x->m, x->links);
    x->gpu.text = model_say(x->m, "GPU %d at %s: %lld links%s%s", x->gpu.dev, x->gpu.name, (long long)x->gpu.b, *x->links ? " to " : "", x->links);
    model_add(x->m, &x->gpu);
    x->gpu_open = false;
}

static void take_net(struct machine *x, const char **atts)
{
    const struct element *pci = nearest_pci(x);
    struct fact f = xml_fact(x, F_XML_NET);
    f.name = model_words(x->m, xml_attr(atts, "name"));
    f.a = strtoll(xml_attr(atts, "speed"), NULL, 10);
    f.b = atoi(xml_attr(atts, "port"));
    f.c = atoi(xml_attr(atts, "gdr"));
    f.value = model_words(x->m, xml_attr(atts, "guid"));
    f.extra = model_words(x->m, pci ? pci->busid : "");
    f.dev = atoi(xml_attr(atts, "dev"));
    f.peer = pci ? depth_below_cpu(x) : NOBODY;
    f.x = pci ? lane_gbs(pci->speed) * pci->width : 0;
    f.text = model_say(x->m, "%s: %lld Mbit/s, port %lld, guid %s, at %s", f.name, (long long)f.a, (long long)f.b, f.value, f.extra);
    model_add(x->m, &f);
    x->nics++;
}

static void take_link(struct machine *x, const char *name, const char **atts)
{
    int count = atoi(xml_attr(atts, "count"));
    size_t used = strlen(x->links);
    if (!x->gpu_open)
        return;
    struct fact f = xml_fact(x, F_XML_LINK);
    f.name = x->gpu.name;
    f.value = model_words(x->m, xml_attr(atts, "target"));
    f.extra = model_words(x->m, name);
    f.a = count;
    f.b = strtoll(xml_attr(atts, "tclass"), NULL, 16);
    f.text = model_say(x->m, "%s %s: %d x %s", f.name, f.value, count, name);
    model_add(x->m, &f);
    if (strcmp(name, "c2c") == 0) /* to its processor */
        return;
    x->gpu.b += count > 0 ? count : 0;
    x->amd = x->amd || strcmp(name, "xgmi") == 0;
    if (used + 40 < sizeof x->links)
        snprintf(x->links + used, sizeof x->links - used, "%s%s x%d", used ? ", " : "", xml_attr(atts, "target"), count);
}

/* ---- graph files: which GPUs follow which on each channel ------------------------------------------------------------------------------ */

static void add_to(char *list, size_t bytes, long v)
{
    size_t used = strlen(list);
    if (used + 16 < bytes)
        snprintf(list + used, bytes - used, "%s%ld", used ? "," : "", v);
}

static void take_graph(struct machine *x, const char **atts)
{
    struct fact f = xml_fact(x, F_GRAPH);
    x->graphs++;
    x->channel = 0;
    x->graph_id = (int)(f.a = atoi(xml_attr(atts, "id")));
    f.b = atoi(xml_attr(atts, "pattern"));
    f.c = atoi(xml_attr(atts, "nchannels"));
    f.d = atoi(xml_attr(atts, "samechannels"));
    f.dev = atoi(xml_attr(atts, "crossnic"));
    f.x = strtod(xml_attr(atts, "speedintra"), NULL);
    f.name = model_words(x->m, xml_attr(atts, "typeintra"));
    f.value = model_words(x->m, xml_attr(atts, "typeinter"));
    f.more = model_words(x->m, xml_attr(atts, "speedinter"));
    f.text = model_say(x->m, "graph %lld: pattern %lld, %lld channels of %.4g GB/s, %s", (long long)f.a, (long long)f.b, (long long)f.c, f.x, f.name);
    model_add(x->m, &f);
}

static void end_channel(struct machine *x)
{
    struct fact f = xml_fact(x, F_GRAPH_CHANNEL);
    f.a = x->graph_id;
    f.b = x->channel++;
    f.name = model_words(x->m, x->on_gpus);
    f.value = model_words(x->m, x->on_nets);
    f.text = model_say(x->m, "graph %d, channel %lld: GPUs %s", x->graph_id, (long long)f.b, f.name);
    model_add(x->m, &f);
}

/* Of the elements that stand on a channel; false = none of them. Net devices are written in hexadecimal, GPUs as numbers. */
static bool on_channel(struct machine *x, const char *name, const char **atts)
{
    const char *above = x->depth >= 2 ? x->at[x->depth - 2].name : "";
    if (strcmp(above, "channel") != 0)
        return false;
    if (strcmp(name, "gpu") == 0)
        add_to(x->on_gpus, sizeof x->on_gpus, atol(*xml_attr(atts, "dev") ? xml_attr(atts, "dev") : xml_attr(atts, "rank")));
    else if (strcmp(name, "net") == 0)
        add_to(x->on_nets, sizeof x->on_nets, strtol(xml_attr(atts, "dev"), NULL, 16));
    return true;
}

static void start(void *user, const char *name, const char **atts)
{
    struct machine *x = user;
    if (x->depth >= DEPTH - 1) {
        XML_StopParser(x->xml.parser, XML_FALSE);
        return;
    }
    struct element *e = &x->at[x->depth++];
    *e = (struct element){.width = atoi(xml_attr(atts, "link_width"))};
    snprintf(e->name, sizeof e->name, "%s", name);
    snprintf(e->busid, sizeof e->busid, "%s", xml_attr(atts, "busid"));
    snprintf(e->speed, sizeof e->speed, "%s", xml_attr(atts, "link_speed"));
    if (strcmp(name, "system") == 0 || strcmp(name, "graphs") == 0) {
        x->is_system = true;
        x->version = atoi(xml_attr(atts, "version"));
    } else if (on_channel(x, name, atts)) {
        return;
    } else if (strcmp(name, "graph") == 0) {
        take_graph(x, atts);
    } else if (strcmp(name, "channel") == 0) {
        x->on_gpus[0] = x->on_nets[0] = 0;
    } else if (strcmp(name, "cpu") == 0) {
        take_cpu(x, atts);
    } else if (strcmp(name, "pci") == 0) {
        take_pci(x, e, atts);
    } else if (strcmp(name, "gpu") == 0) {
        begin_gpu(x, atts);
    } else if (strcmp(name, "net") == 0 && x->depth >= 2 && strcmp(x->at[x->depth - 2].name, "nic") == 0) {
        take_net(x, atts);
    } else if (strcmp(name, "nvlink") == 0 || strcmp(name, "xgmi") == 0 || strcmp(name, "c2c") == 0) {
        take_link(x, name, atts);
    }
}

static void end_element(void *user, const char *name)
{
    struct machine *x = user;
    if (strcmp(name, "gpu") == 0 && x->gpu_open)
        end_gpu(x);
    if (strcmp(name, "channel") == 0)
        end_channel(x);
    if (x->depth)
        x->depth--;
}

static bool sniff(const char *head, size_t bytes)
{
    const char *s = head + strspn(head, " \t\r\n");
    return *s == '<' && (has(s, "<system") || has(s, "<graphs") || begins(s, "<?xml"));
}

static bool read(struct model *m, const char *file, const char *data, size_t bytes, char *why, size_t why_bytes)
{
    struct machine *x = calloc(1, sizeof *x);
    if (!x) {
        snprintf(why, why_bytes, "there is no memory");
        return false;
    }
    *x = (struct machine){.m = m, .file = file, .numa = NOBODY};
    struct xml_end end = xml_walk(&x->xml, start, end_element, data, bytes);
    if (x->is_system)
        odd_markup(x, data, bytes);
    struct fact f = fact_of(F_XML);
    f.a = x->version;
    f.b = x->gpus;
    f.c = x->nics;
    f.d = x->amd;
    f.text = model_say(m, "topology file: %d GPU%s, %d network device%s", x->gpus, x->gpus == 1 ? "" : "s", x->nics, x->nics == 1 ? "" : "s");
    bool known = xml_finish(m, file, &end, x->is_system, "<system> or <graphs>", x->graphs ? NULL : &f, why, why_bytes);
    free(x);
    return known;
}

const struct reader reader_xml = {.name = "a topology file", .sniff = sniff, .read = read};
