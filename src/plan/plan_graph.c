/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_graph.c - the firing graph of one tile of all ranks: nodes, messages and who waits for whom. Called by verify
 * (which proves on it) and sim (which times it). Edges are not stored; they follow from lanes, waits and messages.
 */
#include "plan.h"
#include "plan_check.h"

#include <stdlib.h>

#define GRAPH_MAX_NODES 50000000 /* about 2 GB; more is a broken or hostile file */


static void *ints(size_t n)
{
    return mem_array(MAX(n, 1), sizeof(int32_t));
}

static uno_err load_progs(struct plan_graph *g)
{
    int n = g->plan->nranks;
    if (n < 1 || g->plan->parts < 1)
        return err_set(UNO_ERR_PLAN, "plan %s has %d ranks and %d chunks a block; both must be at least 1", g->plan->name,
                       n, g->plan->parts);
    if (g->plan->progs && !g->plan->generate) {
        g->progs = g->plan->progs;
        return UNO_OK;
    }
    g->progs = mem_array((size_t)n, sizeof *g->progs);
    if (!g->progs)
        return UNO_ERR_MEMORY;
    g->owns_progs = true;
    for (int r = 0; r < n; r++)
        TRY(plan_rank(g->plan, r, &g->progs[r]));
    return UNO_OK;
}

/* Sizes of everything; also the first lane and step of each rank. */
static uno_err count_all(struct plan_graph *g, size_t *nin, size_t *nwaits)
{
    int n = g->plan->nranks;
    g->rank_lane = ints((size_t)n + 1);
    g->rank_step = ints((size_t)n + 1);
    if (!g->rank_lane || !g->rank_step)
        return UNO_ERR_MEMORY;
    int64_t nodes = 0, in = 0, waits = 0, messages = 0;
    for (int r = 0; r < n; r++) {
        const struct plan_prog *p = &g->progs[r];
        g->rank_lane[r + 1] = g->rank_lane[r] + p->nlanes;
        g->rank_step[r + 1] = g->rank_step[r] + p->nsteps;
        waits += p->ndeps;
        for (int s = 0; s < p->nsteps; s++) {
            nodes += p->steps[s].count;
            in += (int64_t)p->steps[s].count * p->steps[s].nrecv;
            messages += p->steps[s].send >= 0 ? p->steps[s].count : 0;
        }
        if (nodes + in > GRAPH_MAX_NODES)
            return err_set(UNO_ERR_UNSUPPORTED, "plan %s has more than %d firings in a tile: too many to look at",
                           g->plan->name, GRAPH_MAX_NODES);
    }
    g->nnodes = (int)nodes;
    g->nlanes = g->rank_lane[n];
    g->nsteps = g->rank_step[n];
    g->nmessages = (int)messages;
    *nin = (size_t)in;
    *nwaits = (size_t)waits;
    return UNO_OK;
}

static uno_err allocate(struct plan_graph *g)
{
    size_t nin = 0, nwaits = 0, nlinks = 0;
    TRY(count_all(g, &nin, &nwaits));
    for (int r = 0; r < g->plan->nranks; r++)
        nlinks += (size_t)g->progs[r].nsends;
    g->nlinks = (int)nlinks;
    g->nodes = mem_array((size_t)MAX(g->nnodes, 1), sizeof *g->nodes);
    g->lanes = mem_array((size_t)MAX(g->nlanes, 1), sizeof *g->lanes);
    g->links = mem_array(MAX(nlinks, 1), sizeof *g->links);
    g->sender = ints((size_t)g->nmessages);
    g->link_of = ints((size_t)g->nmessages);
    g->in_list = ints(nin);
    g->step_node = ints((size_t)g->nsteps + 1);
    g->waiter0 = ints((size_t)g->nsteps + 1);
    g->waiters = ints(nwaits);
    bool all = g->nodes && g->lanes && g->links && g->sender && g->link_of && g->in_list && g->step_node &&
               g->waiter0 && g->waiters;
    return all ? UNO_OK : UNO_ERR_MEMORY;
}

static void lay_out_lanes(struct plan_graph *g)
{
    int node = 0;
    for (int r = 0; r < g->plan->nranks; r++) {
        const struct plan_prog *p = &g->progs[r];
        for (int l = 0; l < p->nlanes; l++) {
            struct plan_graph_lane *lane = &g->lanes[g->rank_lane[r] + l];
            *lane = (struct plan_graph_lane){.rank = r, .lane = l, .first = node};
            for (int s = p->lanes[l].first; s < p->lanes[l].first + p->lanes[l].nsteps; s++) {
                g->step_node[g->rank_step[r] + s] = node;
                for (int i = 0; i < p->steps[s].count; i++)
                    g->nodes[node++] = (struct plan_node){.lane = g->rank_lane[r] + l, .step = s, .i = i,
                                                          .shape = p->steps[s].shape + i, .out = -1};
            }
            lane->count = node - lane->first;
        }
    }
    g->step_node[g->nsteps] = node;
}

static int by_ends(const void *a, const void *b)
{
    const struct plan_link *x = a, *y = b;
    if (x->src != y->src)
        return x->src < y->src ? -1 : 1;
    if (x->dst != y->dst)
        return x->dst < y->dst ? -1 : 1;
    return (x->channel > y->channel) - (x->channel < y->channel);
}

static struct plan_link *find_link(const struct plan_graph *g, int src, int dst, int channel)
{
    struct plan_link key = {.src = src, .dst = dst, .channel = channel};
    return bsearch(&key, g->links, (size_t)g->nlinks, sizeof key, by_ends);
}

static struct plan_link *link_of_send(const struct plan_graph *g, int rank, int send)
{
    const struct plan_conn *c = &g->progs[rank].sends[send];
    return find_link(g, rank, c->group ? -1 : c->peer, c->channel);
}

static const char *link_text(const struct plan_link *k, char *buf, size_t bytes)
{
    if (k->dst < 0)
        snprintf(buf, bytes, "rank %d to its host's group", k->src);
    else
        snprintf(buf, bytes, "rank %d to rank %d channel %d", k->src, k->dst, k->channel);
    return buf;
}

static uno_err collect_links(struct plan_graph *g, struct plan_fault *fault)
{
    int used = 0;
    for (int r = 0; r < g->plan->nranks; r++)
        for (int i = 0; i < g->progs[r].nsends; i++) {
            const struct plan_conn *c = &g->progs[r].sends[i];
            g->links[used++] = (struct plan_link){.src = r, .dst = c->group ? -1 : c->peer, .channel = c->channel, .lane = -1};
        }
    qsort(g->links, (size_t)used, sizeof *g->links, by_ends);
    for (int i = 1; i < used; i++)
        if (by_ends(&g->links[i - 1], &g->links[i]) == 0) {
            char name[80];
            return plan_fault_set(fault, PLAN_FAULT_CONNECTION, g->links[i].src, -1, -1,
                                  "the connection from %s is listed twice", link_text(&g->links[i], name, sizeof name));
        }
    return UNO_OK;
}

/* Count messages of each connection and see that one lane sends on it. */
static uno_err count_sends(struct plan_graph *g, struct plan_fault *fault)
{
    for (int l = 0; l < g->nlanes; l++)
        for (int node = g->lanes[l].first; node < g->lanes[l].first + g->lanes[l].count; node++) {
            const struct plan_step *s = plan_node_step(g, node);
            if (s->send < 0)
                continue;
            struct plan_link *k = link_of_send(g, g->lanes[l].rank, s->send);
            if (k->lane >= 0 && k->lane != l) {
                char name[80];
                return plan_fault_at(g, node, fault, PLAN_FAULT_CONNECTION,
                                     "sends on the connection from %s, on which lane %d sends too; a connection belongs to one lane",
                                     link_text(k, name, sizeof name), g->lanes[k->lane].lane);
            }
            k->lane = l;
            g->nodes[node].out = k->count++; /* within the connection, for now */
        }
    int message = 0;
    for (int i = 0; i < g->nlinks; i++) {
        g->links[i].first = message;
        message += g->links[i].count;
    }
    return UNO_OK;
}

static void number_messages(struct plan_graph *g)
{
    for (int node = 0; node < g->nnodes; node++) {
        struct plan_node *n = &g->nodes[node];
        if (n->out < 0)
            continue;
        struct plan_link *k = link_of_send(g, g->lanes[n->lane].rank, plan_node_step(g, node)->send);
        n->out += k->first;
        g->sender[n->out] = node;
        g->link_of[n->out] = (int32_t)(k - g->links);
    }
}

int plan_host_ranks(const struct plan *plan, int rank)
{
    int n = 0;
    for (int r = 0; r < plan->nranks; r++)
        n += !plan->host_of || plan->host_of[r] == plan->host_of[rank];
    return n;
}

/* Where the readers of each message go in reader_list. */
static uno_err place_readers(struct plan_graph *g)
{
    size_t at = 0;
    for (int i = 0; i < g->nlinks; i++) {
        struct plan_link *k = &g->links[i];
        k->readers = k->dst < 0 ? plan_host_ranks(g->plan, k->src) - 1 : 1;
        k->reader0 = (int32_t)at;
        at += (size_t)k->count * (size_t)k->readers;
        if (at > GRAPH_MAX_NODES)
            return err_set(UNO_ERR_UNSUPPORTED, "plan %s has more than %d messages a tile: too many to look at", g->plan->name,
                           GRAPH_MAX_NODES);
    }
    g->reader_list = ints(at);
    if (!g->reader_list)
        return UNO_ERR_MEMORY;
    for (size_t i = 0; i < at; i++)
        g->reader_list[i] = -1;
    return UNO_OK;
}

/* Which reader of a group's message `rank` is: ranks of the host in order, without the source. */
static int reader_index(const struct plan_graph *g, const struct plan_link *k, int rank)
{
    if (k->dst >= 0)
        return 0;
    int at = 0;
    for (int r = 0; r < rank; r++)
        at += r != k->src && (!g->plan->host_of || g->plan->host_of[r] == g->plan->host_of[rank]);
    return at;
}

struct reading {
    struct plan_link *link;
    int index;    /* which reader */
    int lane;     /* first lane that takes from it, or -1 */
    int taken;
    int last_node;
};

static uno_err find_readings(const struct plan_graph *g, int rank, struct reading *readings)
{
    const struct plan_prog *p = &g->progs[rank];
    for (int i = 0; i < p->nrecvs; i++) {
        const struct plan_conn *c = &p->recvs[i];
        struct plan_link *k = find_link(g, c->peer, c->group ? -1 : rank, c->channel);
        readings[i] = (struct reading){.link = k, .lane = -1, .index = k ? reader_index(g, k, rank) : 0, .last_node = -1};
    }
    return UNO_OK;
}

/* Node `node` takes the next message of a connection. */
static uno_err take(struct plan_graph *g, int node, int recv, int slot, struct reading *rd, struct plan_fault *fault)
{
    int lane = g->nodes[node].lane, rank = g->lanes[lane].rank;
    const struct plan_conn *c = &g->progs[rank].recvs[recv];
    if (!rd->link)
        return plan_fault_at(g, node, fault, PLAN_FAULT_CONNECTION, "receives from rank %d %s%d, but rank %d never sends there",
                             c->peer, c->group ? "as a group, channel " : "on channel ", c->channel, c->peer);
    if (rd->lane >= 0 && rd->lane != lane)
        return plan_fault_at(g, node, fault, PLAN_FAULT_CONNECTION,
                             "receives on the connection from rank %d channel %d, on which lane %d receives too; at each end "
                             "a connection belongs to one lane", c->peer, c->channel, g->lanes[rd->lane].lane);
    if (rd->last_node == node)
        return plan_fault_at(g, node, fault, PLAN_FAULT_CONNECTION, "takes two messages of one connection (from rank %d) at once",
                             c->peer);
    if (rd->taken >= rd->link->count)
        return plan_fault_at(g, node, fault, PLAN_FAULT_CONNECTION,
                             "receives message %d from rank %d channel %d, but rank %d sends only %d a tile",
                             rd->taken + 1, c->peer, c->channel, c->peer, rd->link->count);
    rd->lane = lane;
    rd->last_node = node;
    int message = rd->link->first + rd->taken;
    g->in_list[slot] = message;
    g->reader_list[rd->link->reader0 + rd->taken++ * rd->link->readers + rd->index] = node;
    int sender = g->sender[message];
    if (g->shapes && plan_class(g->plan, g->nodes[sender].shape) != plan_class(g->plan, g->nodes[node].shape)) {
        char who[160];
        return plan_fault_at(g, node, fault, PLAN_FAULT_CONNECTION,
                             "receives a chunk of shape %d, but what comes from %s has shape %d: the lengths may differ",
                             g->nodes[node].shape, plan_node_text(g, sender, who, sizeof who), g->nodes[sender].shape);
    }
    return UNO_OK;
}

/* Every message sent must have been taken by the reader that `readings` describe. */
static uno_err all_taken(const struct plan_graph *g, int rank, const struct reading *readings, int n, struct plan_fault *fault)
{
    for (int i = 0; i < n; i++) {
        const struct plan_link *k = readings[i].link;
        if (!k || readings[i].taken == k->count)
            continue;
        char name[80];
        return plan_fault_at(g, g->sender[k->first + readings[i].taken], fault, PLAN_FAULT_CONNECTION,
                             "sends message %d on the connection from %s, but rank %d receives only %d a tile",
                             readings[i].taken + 1, link_text(k, name, sizeof name), rank, readings[i].taken);
    }
    return UNO_OK;
}

static uno_err match_rank(struct plan_graph *g, int rank, int *slot, struct reading *readings, struct plan_fault *fault)
{
    const struct plan_prog *p = &g->progs[rank];
    TRY(find_readings(g, rank, readings));
    for (int l = g->rank_lane[rank]; l < g->rank_lane[rank + 1]; l++)
        for (int node = g->lanes[l].first; node < g->lanes[l].first + g->lanes[l].count; node++) {
            const struct plan_step *s = plan_node_step(g, node);
            g->nodes[node].in = *slot;
            for (int i = 0; i < s->nrecv; i++) {
                int recv = p->recv_list[s->recv + i];
                TRY(take(g, node, recv, (*slot)++, &readings[recv], fault));
            }
        }
    return all_taken(g, rank, readings, p->nrecvs, fault);
}

/* A message that nobody on the receiving rank ever asked for: no recv entry at all. */
static uno_err find_unread(const struct plan_graph *g, struct plan_fault *fault)
{
    for (int i = 0; i < g->nlinks; i++) {
        const struct plan_link *k = &g->links[i];
        for (int m = 0; m < k->count * k->readers; m++)
            if (g->reader_list[k->reader0 + m] < 0) {
                char name[80];
                return plan_fault_at(g, g->sender[k->first + m / k->readers], fault, PLAN_FAULT_CONNECTION,
                                     "sends on the connection from %s, and nobody receives there",
                                     link_text(k, name, sizeof name));
            }
    }
    return UNO_OK;
}

static uno_err match_messages(struct plan_graph *g, struct plan_fault *fault)
{
    int most = 1;
    for (int r = 0; r < g->plan->nranks; r++)
        most = MAX(most, g->progs[r].nrecvs);
    struct reading *readings = mem_array((size_t)most, sizeof *readings);
    if (!readings)
        return UNO_ERR_MEMORY;
    uno_err err = place_readers(g);
    for (int r = 0, slot = 0; err == UNO_OK && r < g->plan->nranks; r++)
        err = match_rank(g, r, &slot, readings, fault);
    free(readings);
    return err == UNO_OK ? find_unread(g, fault) : err;
}

static int dep_step(const struct plan_graph *g, int rank, const struct plan_dep *d)
{
    return g->rank_step[rank] + g->progs[rank].lanes[d->lane].first + d->step;
}

/* For each step the nodes that wait for it. */
static void collect_waiters(struct plan_graph *g)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < g->plan->nranks; r++) {
            const struct plan_prog *p = &g->progs[r];
            for (int s = 0; s < p->nsteps; s++)
                for (int d = 0; d < p->steps[s].ndep; d++) {
                    int at = dep_step(g, r, &p->deps[p->steps[s].dep + d]);
                    if (pass == 0)
                        g->waiter0[at + 1]++;
                    else
                        g->waiters[--g->waiter0[at + 1]] = g->step_node[g->rank_step[r] + s];
                }
        }
        for (int i = 0; pass == 0 && i < g->nsteps; i++)
            g->waiter0[i + 1] += g->waiter0[i];
    }
    /* The second pass ran each entry down to its slice's start: entry i + 1 now holds the start of i. */
    int total = 0;
    for (int r = 0; r < g->plan->nranks; r++)
        for (int s = 0; s < g->progs[r].nsteps; s++)
            total += g->progs[r].steps[s].ndep;
    for (int i = 0; i < g->nsteps; i++)
        g->waiter0[i] = g->waiter0[i + 1];
    g->waiter0[g->nsteps] = total;
}

uno_err plan_graph_make(const struct plan *plan, bool shapes, struct plan_graph *g, struct plan_fault *fault)
{
    *g = (struct plan_graph){.plan = plan, .shapes = shapes};
    *fault = (struct plan_fault){.rank = -1, .lane = -1, .step = -1};
    TRY(load_progs(g));
    for (int r = 0; r < plan->nranks; r++)
        TRY(plan_check_prog(plan, r, &g->progs[r], shapes, fault));
    TRY(allocate(g));
    lay_out_lanes(g);
    TRY(collect_links(g, fault));
    TRY(count_sends(g, fault));
    number_messages(g);
    TRY(match_messages(g, fault));
    collect_waiters(g);
    return UNO_OK;
}

void plan_graph_free(struct plan_graph *g)
{
    for (int r = 0; g->owns_progs && r < g->plan->nranks; r++)
        plan_prog_free(&g->progs[r]);
    if (g->owns_progs)
        free(g->progs);
    void *all[] = {g->nodes, g->lanes, g->links, g->sender, g->link_of, g->in_list, g->reader_list, g->rank_lane,
                   g->rank_step, g->step_node, g->waiter0, g->waiters};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
    *g = (struct plan_graph){0};
}

bool plan_graph_before(const struct plan_graph *g, int k, int node, bool (*visit)(void *, int, char), void *arg)
{
    const struct plan_node *n = &g->nodes[node];
    const struct plan_graph_lane *lane = &g->lanes[n->lane];
    const struct plan_step *s = plan_node_step(g, node);
    if (node > lane->first && visit(arg, node - 1, 'o'))
        return true;
    for (int d = 0; n->i == 0 && d < s->ndep; d++) {
        int step = dep_step(g, lane->rank, &g->progs[lane->rank].deps[s->dep + d]);
        if (visit(arg, g->step_node[step + 1] - 1, 'w'))
            return true;
    }
    for (int i = 0; i < s->nrecv; i++)
        if (visit(arg, g->sender[g->in_list[n->in + i]], 'm'))
            return true;
    if (n->out < 0)
        return false;
    const struct plan_link *link = &g->links[g->link_of[n->out]];
    int m = n->out - link->first - k;
    for (int j = 0; m >= 0 && j < link->readers; j++)
        if (visit(arg, g->reader_list[link->reader0 + m * link->readers + j], 'c'))
            return true;
    return false;
}

bool plan_graph_after(const struct plan_graph *g, int k, int node, bool (*visit)(void *, int, char), void *arg)
{
    const struct plan_node *n = &g->nodes[node];
    const struct plan_graph_lane *lane = &g->lanes[n->lane];
    const struct plan_step *s = plan_node_step(g, node);
    if (node + 1 < lane->first + lane->count && visit(arg, node + 1, 'o'))
        return true;
    int step = g->rank_step[lane->rank] + n->step;
    for (int i = g->waiter0[step]; n->i == s->count - 1 && i < g->waiter0[step + 1]; i++)
        if (visit(arg, g->waiters[i], 'w'))
            return true;
    for (int i = 0; i < s->nrecv; i++) {
        int m = g->in_list[n->in + i];
        const struct plan_link *link = &g->links[g->link_of[m]];
        if (k < link->first + link->count - m && visit(arg, g->sender[m + k], 'c'))
            return true;
    }
    if (n->out < 0)
        return false;
    const struct plan_link *link = &g->links[g->link_of[n->out]];
    for (int j = 0; j < link->readers; j++)
        if (visit(arg, g->reader_list[link->reader0 + (n->out - link->first) * link->readers + j], 'm'))
            return true;
    return false;
}

struct sorting {
    int32_t *left, *order;
    int used;
};

static bool count_one(void *arg, int before, char kind)
{
    (void)before, (void)kind;
    ++*(int32_t *)arg;
    return false;
}

static bool release_one(void *arg, int after, char kind)
{
    (void)kind;
    struct sorting *s = arg;
    if (--s->left[after] == 0)
        s->order[s->used++] = after;
    return false;
}

uno_err plan_graph_order(const struct plan_graph *g, int k, int32_t *order, int *sorted)
{
    struct sorting s = {.left = ints((size_t)g->nnodes), .order = order};
    if (!s.left)
        return UNO_ERR_MEMORY;
    for (int node = 0; node < g->nnodes; node++) {
        plan_graph_before(g, k, node, count_one, &s.left[node]);
        if (s.left[node] == 0)
            order[s.used++] = node;
    }
    for (int at = 0; at < s.used; at++)
        plan_graph_after(g, k, order[at], release_one, &s);
    free(s.left);
    *sorted = s.used;
    return UNO_OK;
}
