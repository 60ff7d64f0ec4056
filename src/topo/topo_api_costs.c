/* SPDX-License-Identifier: Apache-2.0 */
/* topo_api_costs.c - unisono_plan.h for costs: public entry points of libunisono_plan. */
#include "unisono_plan.h"

#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

struct uno_costs {
    struct topo_costs costs;
    bool found;
    char path[4096];
    struct text why;
};

uno_err uno_costs_load(uno_costs **costs)
{
    if (!costs)
        return err_set(UNO_ERR_ARG, "costs is NULL");
    const char *setting = getenv("UNISONO_COSTS");
    *costs = mem_zalloc(sizeof **costs);
    if (!*costs)
        return UNO_ERR_MEMORY;
    (*costs)->costs = topo_tune_load(setting, &(*costs)->found, &(*costs)->why);
    if ((setting && strcmp(setting, "none") == 0) || topo_tune_path(setting, (*costs)->path, sizeof (*costs)->path) != UNO_OK)
        (*costs)->path[0] = 0;
    return UNO_OK;
}

void uno_costs_free(uno_costs *costs)
{
    if (!costs)
        return;
    text_free(&costs->why);
    free(costs);
}

int uno_costs_measured(const uno_costs *costs)
{
    return costs->found;
}

const char *uno_costs_path(const uno_costs *costs)
{
    return costs->path;
}

const char *uno_costs_why_not(const uno_costs *costs)
{
    return costs->why.s ? costs->why.s : "";
}

uno_err uno_costs_machine(char **text)
{
    struct text t = {0};
    topo_tune_machine(&t);
    *text = t.failed ? NULL : t.s;
    if (t.failed)
        text_free(&t);
    return *text ? UNO_OK : UNO_ERR_MEMORY;
}

uno_err uno_costs_get(const uno_costs *costs, int index, uno_cost *cost)
{
    if (index < 0 || (size_t)index >= TOPO_COST_ROWS)
        return err_set(UNO_ERR_ARG, "there is no cost number %d", index);
    const struct topo_cost_row *row = &topo_cost_rows[index];
    struct topo_costs copy = costs->costs;
    *cost = (uno_cost){row->name, row->help, *topo_cost_of(&copy, (size_t)index), row->built_in, row->least, row->most};
    return UNO_OK;
}

uno_err uno_costs_set(uno_costs *costs, const char *name, uint64_t ps)
{
    for (size_t i = 0; i < TOPO_COST_ROWS; i++) {
        const struct topo_cost_row *row = &topo_cost_rows[i];
        if (strcmp(row->name, name) != 0)
            continue;
        if (ps < row->least || ps > row->most)
            return err_set(UNO_ERR_ARG, "%s = %llu ps is not between %llu and %llu", name, (unsigned long long)ps,
                           (unsigned long long)row->least, (unsigned long long)row->most);
        *topo_cost_of(&costs->costs, i) = ps;
        return UNO_OK;
    }
    return err_set(UNO_ERR_ARG, "there is no cost %s", name);
}

uno_err uno_costs_save(const uno_costs *costs)
{
    if (!costs->path[0])
        return err_set(UNO_ERR_CONFIG, "there is no place for costs: UNISONO_COSTS is none, or neither XDG_CACHE_HOME nor HOME is set");
    return topo_tune_save(costs->path, &costs->costs);
}
