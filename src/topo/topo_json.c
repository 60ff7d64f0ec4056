/* SPDX-License-Identifier: Apache-2.0 */
/* topo_json.c - a graph as our JSON and back; docs/topology-format.md is the normative page. Numbers are exact 64-bit integers. */
#include "topo_build.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ------------------------------------------------------------------------------------------ */

static json_t *node_json(const struct topo_node *n)
{
    json_t *o = json_pack("{s:s}", "kind", topo_kind_names[n->kind]);
    if (n->parent >= 0)
        json_object_set_new(o, "parent", json_integer(n->parent));
    if (n->os_index >= 0)
        json_object_set_new(o, "index", json_integer(n->os_index));
    if (n->name[0]) {
        json_t *name = json_string(n->name); /* NULL when it is not UTF-8: a name cut within a character */
        json_object_set_new(o, "name", name ? name : json_string("?"));
    }
    if (n->rate_bps)
        json_object_set_new(o, "bytes_per_s", json_integer((json_int_t)n->rate_bps));
    if (n->mem_bytes)
        json_object_set_new(o, "bytes", json_integer((json_int_t)n->mem_bytes));
    if (n->rank >= 0)
        json_object_set_new(o, "rank", json_integer(n->rank));
    return o;
}

uno_err topo_to_json(const struct graph *graph, struct text *out)
{
    json_t *source = json_string(graph->source);
    json_t *nodes = json_array(), *links = json_array();
    for (int i = 0; i < graph->nnodes; i++)
        json_array_append_new(nodes, node_json(&graph->nodes[i]));
    for (int i = 0; i < graph->nlinks; i++) {
        const struct topo_link *l = &graph->links[i];
        json_t *o = json_pack("{s:i, s:i, s:s}", "from", l->a, "to", l->b, "kind", l->kind);
        if (l->rate_bps)
            json_object_set_new(o, "bytes_per_s", json_integer((json_int_t)l->rate_bps));
        if (l->latency_ns)
            json_object_set_new(o, "latency_ns", json_integer((json_int_t)l->latency_ns));
        json_array_append_new(links, o);
    }
    json_t *root = json_pack("{s:i, s:o, s:o, s:o}", "unisono_topology", 1, "source", source ? source : json_string("?"), "nodes", nodes,
                             "links", links);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text)
        return err_set(UNO_ERR_MEMORY, "no memory to write the topology as JSON");
    text_add(out, "%s\n", text);
    free(text);
    return out->failed ? err_set(UNO_ERR_MEMORY, "no memory to write the topology as JSON") : UNO_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

struct field {
    const char *key;
    int64_t *number;          /* where an integer goes */
    const char **string;      /* where a string goes */
    int64_t min, max;
};

/* Fill fields from an object; a key that is not listed is an error, for it would be silently lost. */
static uno_err read_fields(json_t *object, const char *what, size_t index, const struct field *fields, size_t nfields)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return err_set(UNO_ERR_PARSE, "%s %zu is not an object", what, index);
    json_object_foreach(object, key, value) {
        size_t f = 0;
        while (f < nfields && strcmp(fields[f].key, key) != 0)
            f++;
        if (f == nfields)
            return err_set(UNO_ERR_PARSE, "%s %zu has a key \"%.40s\" that is not known; see docs/topology-format.md", what, index, key);
        if (fields[f].string && json_is_string(value)) {
            *fields[f].string = json_string_value(value);
        } else if (fields[f].number && json_is_integer(value)) {
            *fields[f].number = json_integer_value(value);
            if (*fields[f].number < fields[f].min || *fields[f].number > fields[f].max)
                return err_set(UNO_ERR_PARSE, "%s %zu: %s is %" PRId64 ", outside %" PRId64 " to %" PRId64, what, index, key,
                               *fields[f].number, fields[f].min, fields[f].max);
        } else {
            return err_set(UNO_ERR_PARSE, "%s %zu: %s is not a%s", what, index, key, fields[f].string ? " string" : "n integer");
        }
    }
    return UNO_OK;
}

static uno_err read_node(struct topo_build *b, json_t *object, size_t index)
{
    int64_t parent = -1, os_index = -1, rate = 0, bytes = 0, rank = -1;
    const char *kind = "", *name = "";
    const struct field fields[] = {
        {"kind", NULL, &kind, 0, 0},           {"name", NULL, &name, 0, 0},
        {"parent", &parent, NULL, 0, (int64_t)index - 1}, {"index", &os_index, NULL, 0, 1 << 30},
        {"bytes_per_s", &rate, NULL, 0, INT64_MAX}, {"bytes", &bytes, NULL, 0, INT64_MAX}, {"rank", &rank, NULL, 0, 1 << 30}};
    TRY(read_fields(object, "node", index, fields, ARRAY_LEN(fields)));
    int k = 0;
    while (k < TOPO_KINDS && strcmp(topo_kind_names[k], kind) != 0)
        k++;
    if (k == TOPO_KINDS)
        return err_set(UNO_ERR_PARSE, "node %zu: \"%.40s\" is no kind; legal are host socket numa l3 core pu pci nic gpu switch rank", index,
                       kind);
    bool stands_alone = k == TOPO_HOST || k == TOPO_SWITCH;
    if (stands_alone ? parent >= 0 : parent < 0) /* as `(parent < 0) != stands_alone` gcc 12 gets it wrong at -O2 */
        return err_set(UNO_ERR_PARSE, "node %zu: a %s %s", index, kind, parent < 0 ? "needs a parent" : "has no parent");
    int node = topo_add(b, (enum topo_kind)k, (int)parent, (int)os_index, name);
    if (node < 0)
        return b->err;
    b->graph->nodes[node].rate_bps = (uint64_t)rate;
    b->graph->nodes[node].mem_bytes = (uint64_t)bytes;
    b->graph->nodes[node].rank = (int)rank;
    return UNO_OK;
}

static uno_err read_link(struct topo_build *b, json_t *object, size_t index)
{
    int64_t from = -1, to = -1, rate = 0, latency = 0, last = b->graph->nnodes - 1;
    const char *kind = "";
    const struct field fields[] = {{"from", &from, NULL, 0, last},
                                   {"to", &to, NULL, 0, last},
                                   {"kind", NULL, &kind, 0, 0},
                                   {"bytes_per_s", &rate, NULL, 0, INT64_MAX},
                                   {"latency_ns", &latency, NULL, 0, INT64_MAX}};
    TRY(read_fields(object, "link", index, fields, ARRAY_LEN(fields)));
    if (from < 0 || to < 0)
        return err_set(UNO_ERR_PARSE, "link %zu needs from and to", index);
    topo_link(b, (int)from, (int)to, kind, (uint64_t)rate, (uint64_t)latency);
    return b->err;
}

static uno_err read_graph(struct topo_build *b, json_t *root)
{
    json_t *nodes = json_object_get(root, "nodes"), *links = json_object_get(root, "links"), *item;
    const char *key;
    size_t i;
    if (json_integer_value(json_object_get(root, "unisono_topology")) != 1)
        return err_set(UNO_ERR_PARSE, "no \"unisono_topology\": 1 in it, so it is not our JSON of this version");
    json_object_foreach(root, key, item)
        if (strcmp(key, "unisono_topology") != 0 && strcmp(key, "source") != 0 && strcmp(key, "nodes") != 0 && strcmp(key, "links") != 0)
            return err_set(UNO_ERR_PARSE, "\"%.40s\" is no key of a topology; see docs/topology-format.md", key);
    item = json_object_get(root, "source");
    if (item && !json_is_string(item))
        return err_set(UNO_ERR_PARSE, "\"source\" is not a string");
    if (!json_is_array(nodes) || json_array_size(nodes) == 0)
        return err_set(UNO_ERR_PARSE, "\"nodes\" is not a list with something in it");
    if (links && !json_is_array(links))
        return err_set(UNO_ERR_PARSE, "\"links\" is not a list");
    json_array_foreach(nodes, i, item)
        TRY(read_node(b, item, i));
    json_array_foreach(links, i, item)
        TRY(read_link(b, item, i));
    return UNO_OK;
}

uno_err topo_from_json(const char *text, size_t bytes, const char *source, struct graph **graph)
{
    json_error_t where;
    struct topo_build b;
    *graph = NULL;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(UNO_ERR_PARSE, "%.200s, line %d: %s", source, where.line, where.text);
    const char *origin = json_string_value(json_object_get(root, "source"));
    topo_begin(&b, origin ? origin : source);
    if (b.err == UNO_OK) {
        b.err = read_graph(&b, root);
        if (b.err == UNO_ERR_PARSE)
            err_wrap(b.err, "%.200s", source);
    }
    json_decref(root);
    return topo_end(&b, graph);
}
