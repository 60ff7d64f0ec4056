/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_synthetic.c - machines that are not there, from one line: "host:2 socket:2 numa:1 core:8 nic:1@25G gpu:4 rank:8".
 * host, socket, numa, l3, core and pu nest in this order, each count is per part of the level before; nic, gpu and rank are per
 * host and dealt to its NUMA nodes in turn. Rates are bits per second, as network cards are sold. docs/topology-format.md.
 */
#include "topo_build.h"

#include <stdlib.h>
#include <string.h>

struct word {
    enum topo_kind kind;
    int64_t count;
    uint64_t rate_bps;   /* bytes per second; 0 = not said */
    bool given;
};

static const enum topo_kind nested[] = {TOPO_HOST, TOPO_SOCKET, TOPO_NUMA, TOPO_L3, TOPO_CORE, TOPO_PU};
static const enum topo_kind dealt[] = {TOPO_NIC, TOPO_GPU, TOPO_RANK};
#define LEGAL "legal words are host socket numa l3 core pu nic gpu rank, each with a count, such as host:2 core:8 nic:1@25G"

/* "25G" -> bytes per second; decimal units, of bits. */
static uno_err parse_rate(const char *s, uint64_t *rate_bps)
{
    char *end;
    double v = strtod(s, &end), unit = *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : *end == 'T' ? 1e12 : 0;
    if (end == s || !unit || end[1] || !(v > 0) || v * unit > 1e18)
        return err_set(UNO_ERR_PARSE, "\"@%.40s\" is not a rate; write bits per second with K, M, G or T, such as nic:1@25G", s);
    *rate_bps = (uint64_t)(v * unit / 8);
    return UNO_OK;
}

static uno_err parse_word(char *text, struct word words[TOPO_KINDS])
{
    char *colon = strchr(text, ':'), *at = strchr(text, '@');
    if (!colon || (at && at < colon))
        return err_set(UNO_ERR_PARSE, "\"%.60s\" has no count; %s", text, LEGAL);
    *colon = 0;
    if (at)
        *at = 0;
    int kind = 0;
    while (kind < TOPO_KINDS && strcmp(topo_kind_names[kind], text) != 0)
        kind++;
    if (kind == TOPO_KINDS || kind == TOPO_PCI || kind == TOPO_SWITCH) {
        const char *near = text_nearest(text, topo_kind_names, TOPO_KINDS);
        return err_set(UNO_ERR_PARSE, "\"%.60s\" is no part of a machine%s%s%s; %s", text, near ? "; did you mean " : "", near ? near : "",
                       near ? "?" : "", LEGAL);
    }
    struct word *w = &words[kind];
    if (w->given)
        return err_set(UNO_ERR_PARSE, "%s stands twice", text);
    w->given = true;
    w->kind = (enum topo_kind)kind;
    if (text_parse_int(colon + 1, kind == TOPO_NIC || kind == TOPO_GPU || kind == TOPO_RANK ? 0 : 1, 65536, &w->count) != UNO_OK)
        return err_wrap(UNO_ERR_PARSE, "%s", text);
    if (at && kind != TOPO_NIC)
        return err_set(UNO_ERR_PARSE, "%s:%s@%s: only nic takes a rate", text, colon + 1, at + 1);
    return at ? parse_rate(at + 1, &w->rate_bps) : UNO_OK;
}

struct maker {
    struct topo_build b;
    struct word *words;
    int next_os[TOPO_KINDS];  /* numbers run on within a host */
    int next_rank;
};

/* Add level `depth` and everything below it under parent. */
static void add_level(struct maker *m, size_t depth, int parent)
{
    while (depth < ARRAY_LEN(nested) && !m->words[nested[depth]].given && nested[depth] != TOPO_HOST)
        depth++;
    if (depth == ARRAY_LEN(nested))
        return;
    enum topo_kind kind = nested[depth];
    for (int64_t i = 0; i < m->words[kind].count && m->b.err == UNO_OK; i++)
        add_level(m, depth + 1, topo_add(&m->b, kind, parent, m->next_os[kind]++, ""));
}

/* Deal nic, gpu and rank of one host over its NUMA nodes, or hang them on the host. */
static void deal(struct maker *m, int host)
{
    const struct graph *g = m->b.graph;
    int first = host + 1, last = g->nnodes, places = 0;
    for (int i = first; i < last; i++)
        places += g->nodes[i].kind == TOPO_NUMA;
    for (size_t k = 0; k < ARRAY_LEN(dealt); k++) {
        const struct word *w = &m->words[dealt[k]];
        for (int64_t i = 0; i < w->count && m->b.err == UNO_OK; i++) {
            int parent = host, want = places ? (int)(i * places / w->count) : -1;
            for (int n = first; n < last && want >= 0; n++)
                if (g->nodes[n].kind == TOPO_NUMA && want-- == 0)
                    parent = n;
            char name[32];
            snprintf(name, sizeof name, "%s%d", dealt[k] == TOPO_NIC ? "eth" : dealt[k] == TOPO_GPU ? "gpu" : "rank", (int)i);
            int node = topo_add(&m->b, dealt[k], parent, (int)i, dealt[k] == TOPO_RANK ? "" : name);
            if (node < 0)
                return;
            m->b.graph->nodes[node].rate_bps = w->rate_bps;
            if (dealt[k] == TOPO_RANK)
                m->b.graph->nodes[node].rank = m->next_rank++;
        }
    }
}

/* Several hosts with network cards meet in one switch. */
static void add_switch(struct maker *m, int64_t hosts)
{
    int end = m->b.graph ? m->b.graph->nnodes : 0;
    if (hosts < 2 || m->words[TOPO_NIC].count == 0 || m->b.err != UNO_OK)
        return;
    int middle = topo_add(&m->b, TOPO_SWITCH, -1, 0, "net");
    for (int i = 0; i < end && m->b.err == UNO_OK; i++)
        if (m->b.graph->nodes[i].kind == TOPO_NIC) {
            topo_link(&m->b, i, middle, "net", m->b.graph->nodes[i].rate_bps, 0);
            topo_link(&m->b, middle, i, "net", m->b.graph->nodes[i].rate_bps, 0);
        }
}

uno_err topo_from_synthetic(const char *line, struct graph **graph)
{
    struct word words[TOPO_KINDS] = {0};
    struct maker m = {.words = words};
    char copy[512], *save = NULL;
    *graph = NULL;
    if (strlen(line) >= sizeof copy)
        return err_set(UNO_ERR_PARSE, "a synthetic topology of more than %zu characters is not read", sizeof copy - 1);
    strcpy(copy, line);
    int found = 0;
    for (char *word = strtok_r(copy, " \t\n", &save); word; word = strtok_r(NULL, " \t\n", &save), found++)
        TRY(parse_word(word, words));
    if (found == 0)
        return err_set(UNO_ERR_PARSE, "the topology line is empty; %s", LEGAL);
    int64_t hosts = words[TOPO_HOST].given ? words[TOPO_HOST].count : 1;
    topo_begin(&m.b, line);
    for (int64_t h = 0; h < hosts && m.b.err == UNO_OK; h++) {
        char name[32];
        snprintf(name, sizeof name, "host%d", (int)h);
        memset(m.next_os, 0, sizeof m.next_os);
        int host = topo_add(&m.b, TOPO_HOST, -1, (int)h, name);
        if (host >= 0)
            add_level(&m, 1, host);
        if (m.b.err == UNO_OK)
            deal(&m, host);
    }
    add_switch(&m, hosts);
    return topo_end(&m.b, graph);
}
