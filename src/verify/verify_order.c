/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_order.c - freedom from deadlock: sort the firings, or show a cycle of waits. And the barrier's promise.
 */
#include "verify_proof.h"

#include <limits.h>
#include <stdlib.h>

/* Search along "waits for" from one node back to itself, over nodes that never happen. */
struct search {
    const bool *happens;
    int32_t *came_from, *queue;
    char *kind;          /* of the edge by which a node was reached: the node before it in the search waits so for it */
    int used, at;        /* at: whose waits are being looked at */
    int goal;
    bool found;
};

static bool take_any(void *arg, int before, char kind)
{
    struct search *s = arg;
    (void)kind;
    if (s->happens[before])
        return false;
    s->at = before;
    return true;
}

static bool reach(void *arg, int before, char kind)
{
    struct search *s = arg;
    if (s->happens[before] || s->came_from[before] >= 0)
        return false;
    s->came_from[before] = s->at;
    s->kind[before] = kind;
    s->queue[s->used++] = before;
    s->found = before == s->goal;
    return s->found;
}

/* A node on a cycle: go back along waits until one comes again. */
static int node_on_cycle(const struct proof *p, struct search *s, int start)
{
    s->at = start;
    while (s->came_from[s->at] < 0) {
        s->came_from[s->at] = 1;
        plan_graph_before(&p->g, p->k, s->at, take_any, s);
    }
    return s->at;
}

/* Shortest cycle through `goal`, as came_from links that lead from goal back to goal. */
static void find_cycle(const struct proof *p, struct search *s, int goal)
{
    for (int i = 0; i < p->g.nnodes; i++)
        s->came_from[i] = -1;
    s->goal = s->at = goal;
    s->used = 0;
    s->found = false;
    plan_graph_before(&p->g, p->k, goal, reach, s);
    for (int i = 0; i < s->used && !s->found; i++) {
        s->at = s->queue[i];
        plan_graph_before(&p->g, p->k, s->at, reach, s);
    }
}

/* "A waits for credit: B, which comes after C, ... and so on round to A". Program order over several steps is said once. */
static uno_err say_cycle(struct proof *p, const struct search *s)
{
    struct text t = {0};
    /* came_from runs from what is waited for to who waits; turn it round into queue. */
    int n = 0, node = s->goal;
    do {
        s->queue[n++] = node;
        node = s->came_from[node];
    } while (node != s->goal);
    /* queue: goal, its waiter, that one's waiter ...: read backwards each waits for the one before it in the list */
    char who[160];
    int first = s->goal, shown = 0;
    for (int i = n - 1; i >= 0; i--) {
        int target = s->queue[i];
        char kind = s->kind[target];
        if (kind == 'o' && i > 0 && s->kind[s->queue[i - 1]] == 'o')
            continue;
        if (t.len > 230) { /* the verdict has room for about two more */
            text_add(&t, ", and so on, back to the first");
            break;
        }
        shown++;
        const char *verb = kind == 'o' ? "comes after" : kind == 'w' ? "waits for" : kind == 'm' ? "waits for a message of"
                                                                                                 : "waits for credit of";
        text_add(&t, "%s%s %s", shown == 1 ? "" : ", which ", verb,
                 i == 0 ? "the first again" : plan_node_text(&p->g, target, who, sizeof who));
    }
    uno_err err = t.failed ? UNO_ERR_MEMORY
                           : proof_refute(p, VERIFY_DEADLOCK, first, "%s: with %d slot%s a connection no rank gets on", t.s, p->k,
                                          p->k == 1 ? "" : "s");
    text_free(&t);
    return err;
}

static uno_err name_cycle(struct proof *p, int sorted)
{
    size_t n = (size_t)p->g.nnodes;
    bool *happens = mem_array(n, sizeof *happens);
    int32_t *words = mem_array(n, 2 * sizeof *words);
    char *kind = mem_array(n, 1);
    uno_err err = UNO_ERR_MEMORY;
    if (happens && words && kind) {
        struct search s = {.happens = happens, .came_from = words, .queue = words + n, .kind = kind};
        for (int i = 0; i < sorted; i++)
            happens[p->order[i]] = true;
        int start = 0;
        while (happens[start])
            start++;
        for (size_t i = 0; i < n; i++)
            s.came_from[i] = -1;
        find_cycle(p, &s, node_on_cycle(p, &s, start));
        err = say_cycle(p, &s);
    }
    free(happens);
    free(words);
    free(kind);
    return err;
}

uno_err proof_order(struct proof *p)
{
    size_t n = (size_t)MAX(p->g.nnodes, 1);
    p->order = mem_array(n, sizeof *p->order);
    p->at = mem_array(n, sizeof *p->at);
    if (!p->order || !p->at)
        return UNO_ERR_MEMORY;
    int sorted = 0;
    TRY(plan_graph_order(&p->g, p->k, p->order, &sorted));
    if (sorted < p->g.nnodes)
        return name_cycle(p, sorted);
    for (int i = 0; i < p->g.nnodes; i++)
        p->at[p->order[i]] = i;
    return UNO_OK;
}

/* ---- barrier: who has entered, as far as each firing can tell ------------------------------------------ */

struct hearing {
    uint64_t *knows;  /* words by node */
    size_t words;
    int node;
};

static bool hear(void *arg, int before, char kind)
{
    struct hearing *h = arg;
    (void)kind;
    for (size_t w = 0; w < h->words; w++)
        h->knows[(size_t)h->node * h->words + w] |= h->knows[(size_t)before * h->words + w];
    return false;
}

static uno_err check_heard(struct proof *p, const struct hearing *h)
{
    for (int r = 0; r < p->plan->nranks; r++)
        for (int q = 0; q < p->plan->nranks; q++) {
            bool heard = q == r;
            for (int l = p->g.rank_lane[r]; l < p->g.rank_lane[r + 1] && !heard; l++) {
                const struct plan_graph_lane *lane = &p->g.lanes[l];
                size_t last = (size_t)(lane->first + lane->count - 1);
                heard = lane->count > 0 && (h->knows[last * h->words + (size_t)q / 64] >> (q % 64) & 1);
            }
            if (!heard)
                return proof_refute_rank(p, VERIFY_MISSING, r, "rank %d may leave the barrier before rank %d has entered", r, q);
        }
    return UNO_OK;
}

uno_err proof_barrier(struct proof *p)
{
    struct hearing h = {.words = ((size_t)p->plan->nranks + 63) / 64};
    h.knows = mem_array((size_t)MAX(p->g.nnodes, 1), h.words * sizeof *h.knows);
    if (!h.knows)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < p->g.nnodes; i++) {
        h.node = p->order[i];
        int rank = proof_rank(p, h.node);
        h.knows[(size_t)h.node * h.words + (size_t)rank / 64] |= 1ull << (rank % 64);
        plan_graph_before(&p->g, INT_MAX, h.node, hear, &h); /* with any number of slots */
    }
    uno_err err = check_heard(p, &h);
    free(h.knows);
    return err;
}
