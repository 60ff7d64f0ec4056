/* SPDX-License-Identifier: Apache-2.0 */
/* planner_explain.c - a choice in words: for uno_comm_explain, `unisono perf --explain` and the log. */
#include "planner_choose.h"

static void add_time(struct text *out, uint64_t ps)
{
    static const struct { uint64_t ps; const char *unit; } units[] = {
        {1000000000000u, "s"}, {1000000000u, "ms"}, {1000000u, "us"}, {1000u, "ns"}};
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(units) && ps < units[i].ps)
        i++;
    uint64_t tenths = ps / (units[i].ps / 10);
    if (tenths < 1000)
        text_add(out, "%llu.%llu %s", (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10), units[i].unit);
    else
        text_add(out, "%llu %s", (unsigned long long)(tenths / 10), units[i].unit);
}

static int count_hosts(const struct planner *p)
{
    int hosts = 0;
    for (int r = 0; r < p->settings.nranks; r++) {
        int same = 0;
        while (same < r && p->settings.host_of[same] != p->settings.host_of[r])
            same++;
        hosts += same == r;
    }
    return hosts;
}

static void add_algo(struct text *out, const struct planner_candidate *c)
{
    text_add(out, "%s", planner_algos[c->algo].name);
    if (c->channels > 1)
        text_add(out, ", %d channels", c->channels);
}

static void add_request(const struct planner *p, const struct request *req, struct text *out)
{
    char size[32];
    int hosts = count_hosts(p);
    text_add(out, "%s", coll_name(req->coll));
    if (req->coll == UNO_ALL_TO_ALL_V)
        text_add(out, " of any counts");
    else if (req->coll != UNO_BARRIER)
        text_add(out, " %s %s", text_bytes(size, sizeof size, planner_payload(p, req)), type_name(req->type));
    text_add(out, " on %d rank%s, %d host%s: ", p->settings.nranks, p->settings.nranks == 1 ? "" : "s", hosts,
             hosts == 1 ? "" : "s");
}

/* Of each other algorithm its cheapest form. */
static void add_others(const struct planner_candidates *list, struct text *out)
{
    const char *separator = "; others: ";
    for (int a = 0; a < planner_algo_count; a++) {
        const struct planner_candidate *cheapest = NULL;
        for (int i = 0; i < list->count; i++)
            if (list->c[i].algo == a && (!cheapest || list->c[i].cost_ps < cheapest->cost_ps))
                cheapest = &list->c[i];
        if (!cheapest || a == list->c[list->best].algo)
            continue;
        text_add(out, "%s%s ", separator, planner_algos[a].name);
        add_time(out, cheapest->cost_ps);
        separator = ", ";
    }
}

/* The cheapest form of another algorithm; NULL: there is none. */
static const struct planner_candidate *runner_up(const struct planner_candidates *list)
{
    const struct planner_candidate *second = NULL;
    for (int i = 0; i < list->count; i++)
        if (list->c[i].algo != list->c[list->best].algo && (!second || list->c[i].cost_ps < second->cost_ps))
            second = &list->c[i];
    return second;
}

/* The part of the predicted time in which the chosen one is most ahead of the next. */
static void add_part(const struct planner_candidate *best, const struct planner_candidate *second, struct text *out)
{
    int most = 0;
    for (int i = 1; i < PLANNER_PARTS; i++)
        if (second->parts.ps[i] + best->parts.ps[most] > second->parts.ps[most] + best->parts.ps[i])
            most = i;
    if (second->parts.ps[most] <= best->parts.ps[most]) {
        text_add(out, "as fast as %s, and before it in the table", planner_algos[second->algo].name);
        return;
    }
    text_add(out, "%s: ", planner_part_words[most]);
    add_time(out, best->parts.ps[most]);
    text_add(out, " where %s has ", planner_algos[second->algo].name);
    add_time(out, second->parts.ps[most]);
}

static void add_decided(const struct planner_candidates *list, struct text *out)
{
    const struct planner_candidate *second = runner_up(list);
    text_add(out, "; decided by ");
    if (list->small)
        text_add(out, "its length: what fits into lines goes in one round, and nothing is faster");
    else if (!second)
        text_add(out, "necessity: no other algorithm is allowed and fits");
    else if (list->one_round)
        text_add(out, "where the bytes are: two ranks of a host read each other's input, not fresh results out of each other's cache");
    else
        add_part(&list->c[list->best], second, out);
}

static void add_table(const struct planner_candidates *list, struct text *out)
{
    char tile[32];
    text_add(out, "\n  %-10s %8s %10s %2s %10s  %s\n", "algorithm", "channels", "tile", "k", "predicted", "");
    for (int i = 0; i < list->count; i++) {
        const struct planner_candidate *c = &list->c[i];
        struct text time = {0};
        add_time(&time, c->cost_ps);
        text_add(out, "%c %-10s %8d %10s %2d %10s  %s\n", i == list->best ? '>' : ' ', planner_algos[c->algo].name, c->channels,
                 text_bytes(tile, sizeof tile, c->slots.tile_bytes), c->slots.k, time.s ? time.s : "?", planner_algos[c->algo].help);
        text_free(&time);
    }
}

uno_err planner_explain(struct planner *planner, const struct request *req, bool all, struct text *out)
{
    struct planner_candidates list;
    char size[32];
    TRY(planner_propose(planner, req, &list));
    const struct planner_candidate *c = &list.c[list.best];
    add_request(planner, req, out);
    add_algo(out, c);
    if (list.small)
        text_add(out, ", small target (at most %d bytes a rank, one host)", PLANNER_SMALL_BYTES(planner->settings.nranks));
    else
        text_add(out, ", tile %s", text_bytes(size, sizeof size, c->slots.tile_bytes));
    if (planner->settings.buffsize && !list.small &&
        planner->settings.buffsize * MAX(1, c->kept->load.connections) > planner->settings.memory_limit)
        text_add(out, " (buffer size capped by UNISONO_MEMORY_LIMIT)");
    text_add(out, ", predicted ");
    add_time(out, c->cost_ps);
    add_others(&list, out);
    add_decided(&list, out);
    if (list.set_aside)
        text_add(out, "; UNISONO_ALGO=\"%.80s\" names none that fits here and was set aside", planner->settings.algo);
    if (all)
        add_table(&list, out);
    return out->failed ? err_set(UNO_ERR_MEMORY, "no memory for the explanation") : UNO_OK;
}
