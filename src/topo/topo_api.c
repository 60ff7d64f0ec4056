/* SPDX-License-Identifier: Apache-2.0 */
/* topo_api.c - the topology part of unisono_plan.h: what topo.h offers, as opaque handles and texts. */
#include "topo/topo.h"
#include "unisono_plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct uno_topology {
    struct graph *graph;
};

uno_err uno_topology_load(const char *input, uno_topology **topology)
{
    if (!topology)
        return err_set(UNO_ERR_ARG, "uno_topology_load needs a place for the topology");
    *topology = NULL;
    uno_topology *t = mem_zalloc(sizeof *t);
    if (!t)
        return UNO_ERR_MEMORY;
    uno_err err;
    if (!input || !*input)
        err = topo_from_hwloc(&t->graph);
    else if (access(input, F_OK) == 0 || strchr(input, '/') || !strchr(input, ':'))
        err = topo_from_file(input, &t->graph);
    else
        err = topo_from_synthetic(input, &t->graph);
    if (err != UNO_OK) {
        free(t);
        return err;
    }
    *topology = t;
    return UNO_OK;
}

void uno_topology_free(uno_topology *topology)
{
    if (!topology)
        return;
    topo_free(topology->graph);
    free(topology);
}

static uno_err hand_over(uno_err err, struct text *t, char **text)
{
    *text = NULL;
    if (err == UNO_OK && t->failed)
        err = err_set(UNO_ERR_MEMORY, "no memory for a text");
    if (err == UNO_OK && !t->s && !(t->s = mem_zalloc(1)))
        err = UNO_ERR_MEMORY;
    if (err == UNO_OK)
        *text = t->s;
    else
        text_free(t);
    return err;
}

uno_err uno_topology_print(const uno_topology *topology, char **text)
{
    struct text t = {0};
    if (!topology || !text)
        return err_set(UNO_ERR_ARG, "uno_topology_print needs a topology and a place for the text");
    return hand_over(topo_print(topology->graph, &t), &t, text);
}

uno_err uno_topology_json(const uno_topology *topology, char **text)
{
    struct text t = {0};
    if (!topology || !text)
        return err_set(UNO_ERR_ARG, "uno_topology_json needs a topology and a place for the text");
    return hand_over(topo_to_json(topology->graph, &t), &t, text);
}

uno_err uno_topology_check(const uno_topology *topology, char **text, int *count)
{
    struct text t = {0};
    if (!topology || !text || !count)
        return err_set(UNO_ERR_ARG, "uno_topology_check needs a topology and places for text and count");
    *count = topo_check(topology->graph, &t);
    return hand_over(UNO_OK, &t, text);
}
