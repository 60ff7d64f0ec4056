/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.c - communicators made from a communicator: members are found with collectives of the parent, control regions are
 * mapped as at joining. All members fail together, with one sentence, or none does.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

struct vote { int32_t color, key; };
struct offer { struct net_segment_ref region; int32_t failed; char text[240]; };
struct member { int key, rank; };

static int by_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Members of `color` in their new order; *count of them, *mine = index of this rank, -1 if it is none. */
static struct member *members_of(const uno_comm *parent, const struct vote *votes, int color, int *count, int *mine)
{
    struct member *m = mem_array((size_t)parent->size, sizeof *m);
    *count = 0;
    *mine = -1;
    if (!m)
        return NULL;
    for (int r = 0; r < parent->size; r++)
        if (votes[r].color == color)
            m[(*count)++] = (struct member){votes[r].key, r};
    qsort(m, (size_t)*count, sizeof *m, by_key);
    for (int i = 0; i < *count; i++)
        if (m[i].rank == parent->rank)
            *mine = i;
    return m;
}

static uno_err map_members(uno_comm *c, const uno_comm *parent, const struct member *m, const struct offer *offers)
{
    int *host_index = mem_array((size_t)parent->nhosts, sizeof *host_index);
    if (!host_index)
        return UNO_ERR_MEMORY;
    for (int h = 0; h < parent->nhosts; h++)
        host_index[h] = -1;
    uno_err err = UNO_OK;
    for (int i = 0; i < c->size && err == UNO_OK; i++) {
        int old = m[i].rank, host = parent->host_of[old];
        if (host_index[host] < 0)
            host_index[host] = c->nhosts++;
        c->host_of[i] = host_index[host];
        c->job_rank[i] = parent->job_rank[old];
        c->region_refs[i] = offers[old].region;
        if (i != c->rank && parent->regions[old])
            err = comm_map_region(c, i);
    }
    free(host_index);
    return err;
}

static uno_err make_child(uno_comm *parent, const struct member *m, int count, int mine, const struct config *cfg,
                          const char *name, uno_comm **child)
{
    TRY(comm_alloc(mine, count, cfg, name, child));
    (*child)->id = hash_mix(hash_mix(parent->id, parent->children), (uint64_t)m[0].rank + 1);
    (*child)->env.crowded = parent->env.crowded;
    (*child)->env.cache_bytes = parent->env.cache_bytes;
    job_attach(parent->job, *child);
    return UNO_OK;
}

uno_err comm_child_config(const uno_comm *parent, const uno_config *config, struct config *cfg)
{
    *cfg = parent->cfg;
    if (!config)
        return UNO_OK;
    if (config->magic != UNO_CONFIG_MAGIC || config->size < sizeof(uno_config))
        return err_set(UNO_ERR_ARG, "config was not initialised with UNO_CONFIG_INIT");
    struct config_program program = {config->timeout_s, config->join_timeout_s};
    return config_load(cfg, &program);
}

struct splitting {
    uno_comm *parent, *child;
    const void *call_site;
    struct vote *votes;
    struct offer mine, *offers, *again;
    struct member *members;
    int count, place;
};

/* Every rank says whether it succeeded so far; the lowest failing rank's sentence is everyone's. */
static uno_err agree(struct splitting *s, struct offer *all, uno_err err)
{
    uno_comm *parent = s->parent;
    s->mine.failed = (int32_t)err;
    if (err != UNO_OK)
        snprintf(s->mine.text, sizeof s->mine.text, "rank %d: %.200s", parent->rank, err_text());
    TRY(comm_split_gather(parent, &s->mine, all, sizeof s->mine, s->call_site));
    for (int r = 0; r < parent->size; r++)
        if (all[r].failed) {
            all[r].text[sizeof all[r].text - 1] = 0;
            return err_set((uno_err)all[r].failed, "%s", all[r].text);
        }
    return UNO_OK;
}

static uno_err split_steps(struct splitting *s, int color, const uno_config *config)
{
    uno_comm *parent = s->parent;
    struct config cfg;
    parent->children++;
    uno_err err = comm_child_config(parent, config, &cfg);
    if (err == UNO_OK && color != UNO_NO_COLOR && !(s->members = members_of(parent, s->votes, color, &s->count, &s->place)))
        err = UNO_ERR_MEMORY;
    if (err == UNO_OK && s->place >= 0)
        err = make_child(parent, s->members, s->count, s->place, &cfg, config && config->name ? config->name : parent->name, &s->child);
    if (s->child)
        net_segment_ref(s->child->segment, &s->mine.region);
    TRY(agree(s, s->offers, err));
    if (s->child) {
        s->child->costs = parent->costs;
        err = map_members(s->child, parent, s->members, s->offers);
        if (err == UNO_OK)
            err = comm_assemble(s->child);
        if (err == UNO_OK)
            comm_inherit_gone(parent, s->child);
    }
    /* also tells that everyone has mapped what it needs */
    return agree(s, s->again, err);
}

uno_err join_split(uno_comm *parent, int color, int key, const uno_config *config, const void *call_site, uno_comm **newcomm)
{
    *newcomm = NULL;
    size_t n = (size_t)parent->size;
    struct splitting s = {.parent = parent, .call_site = call_site, .place = -1};
    struct vote vote = {color, key};
    s.votes = mem_array(n, sizeof *s.votes);
    s.offers = mem_array(n, sizeof *s.offers);
    s.again = mem_array(n, sizeof *s.again);
    uno_err err = UNO_OK;
    if (!s.votes || !s.offers || !s.again) { /* no room even to say so in the vote: nobody must wait for it */
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "rank %d cannot split: %.900s", parent->rank, err_text());
        err = comm_fail(parent, UNO_ERR_MEMORY, parent->rank, true, text);
    }
    if (err == UNO_OK)
        err = comm_split_gather(parent, &vote, s.votes, sizeof vote, call_site);
    if (err == UNO_OK)
        err = split_steps(&s, color, config);
    free(s.votes);
    free(s.offers);
    free(s.again);
    free(s.members);
    if (err != UNO_OK) {
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", err_text());
        comm_free(s.child);
        return err_set(err, "%s", text);
    }
    *newcomm = s.child;
    if (s.child && s.place == 0)
        LOG(LOG_INFO, LOG_INIT, "group ready, %d of %d ranks%s%s", s.count, parent->size, s.child->name[0] ? ", " : "", s.child->name);
    return UNO_OK;
}
