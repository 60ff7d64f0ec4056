/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.c - communicators made from a communicator, in its job: control regions are mapped as at joining. Members find each other with
 * collectives of the parent (split, dup), or, when they alone take part, through an id as in joining (create_group). All members fail
 * together, with one sentence, or none does. Called by comm_make.c.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

struct vote { int32_t color, key; };
/* job, members: of who meets by an id, else 0: do all mean the same communicator? */
struct offer { struct net_segment_ref region; uint64_t job, members; int32_t failed; char text[240]; };
struct member { int key, rank; };

struct splitting {
    uno_comm *parent, *child;
    const void *call_site;
    struct vote *votes;
    struct offer mine, *offers, *again; /* by parent's rank, or by member's place where only members meet */
    struct member *members;
    int count, place;
    struct boot *boot;         /* where only members meet; NULL: all of the parent do */
    int aborts;                /* of the parent when this began */
};

static const struct offer *offer_of(const struct splitting *s, const struct offer *all, int member)
{
    return &all[s->boot ? member : s->members[member].rank];
}

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

static uno_err map_members(const struct splitting *s)
{
    uno_comm *c = s->child, *parent = s->parent;
    int *host_index = mem_array((size_t)parent->nhosts, sizeof *host_index);
    if (!host_index)
        return UNO_ERR_MEMORY;
    for (int h = 0; h < parent->nhosts; h++)
        host_index[h] = -1;
    uno_err err = UNO_OK;
    for (int i = 0; i < c->size && err == UNO_OK; i++) {
        int old = s->members[i].rank, host = parent->host_of[old];
        if (host_index[host] < 0)
            host_index[host] = c->nhosts++;
        c->host_of[i] = host_index[host];
        c->job_rank[i] = parent->job_rank[old];
        c->region_refs[i] = offer_of(s, s->offers, i)->region;
        if (i != c->rank && parent->regions[old])
            err = comm_map_region(c, i);
    }
    free(host_index);
    return err;
}

static uno_err make_child(struct splitting *s, uint64_t id, const struct config *cfg, const uno_config *config)
{
    uno_comm *parent = s->parent;
    TRY(comm_alloc(s->place, s->count, cfg, config && config->name ? config->name : parent->name, &s->child));
    s->child->id = id;
    s->child->costs = parent->costs;
    s->child->env.crowded = parent->env.crowded;
    s->child->env.cache_bytes = parent->env.cache_bytes;
    job_attach(parent->job, s->child);
    net_segment_ref(s->child->segment, &s->mine.region);
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

/* Every rank says whether it succeeded so far; the lowest failing rank's sentence is everyone's. */
static uno_err agree(struct splitting *s, struct offer *all, uno_err err)
{
    uno_comm *parent = s->parent;
    s->mine.failed = (int32_t)err;
    if (err != UNO_OK)
        snprintf(s->mine.text, sizeof s->mine.text, "rank %d: %.200s", parent->rank, err_text());
    if (s->boot)
        TRY(boot_exchange(s->boot, &s->mine, sizeof s->mine, all));
    else
        TRY(comm_split_gather(parent, &s->mine, all, sizeof s->mine, s->call_site));
    for (int r = 0; r < (s->boot ? s->count : parent->size); r++)
        if (all[r].failed) {
            all[r].text[sizeof all[r].text - 1] = 0;
            return err_set((uno_err)all[r].failed, "%s", all[r].text);
        }
    return UNO_OK;
}

/* Everybody has made its part, or not: err. */
static uno_err put_together(struct splitting *s, uno_err err)
{
    TRY(agree(s, s->offers, err));
    for (int i = 0; i < s->count && s->boot && err == UNO_OK; i++)
        if (s->offers[i].job != s->mine.job || s->offers[i].members != s->mine.members)
            err = err_set(UNO_ERR_MISMATCH, "rank %d and rank %d of the parent do not mean the same: %s", s->members[i].rank, s->parent->rank,
                          s->offers[i].job != s->mine.job ? "their communicators are of different jobs" : "they pass different lists of ranks");
    if (s->child && err == UNO_OK) {
        err = map_members(s);
        if (err == UNO_OK)
            err = comm_assemble(s->child);
        if (err == UNO_OK)
            comm_inherit_gone(s->parent, s->child);
    }
    /* also tells that everyone has mapped what it needs */
    return agree(s, s->again, err);
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
        err = make_child(s, hash_mix(hash_mix(parent->id, parent->children), (uint64_t)s->members[0].rank + 1), &cfg, config);
    return put_together(s, err);
}

static uno_err end_splitting(struct splitting *s, uno_err err, uno_comm **newcomm)
{
    free(s->votes);
    free(s->offers);
    free(s->again);
    free(s->members);
    if (err != UNO_OK) {
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", err_text());
        comm_free(s->child);
        return err_set(err, "%s", text);
    }
    *newcomm = s->child;
    if (s->child && s->place == 0)
        LOG(LOG_INFO, LOG_INIT, "group ready, %d of %d ranks%s%s", s->count, s->parent->size, s->child->name[0] ? ", " : "", s->child->name);
    return UNO_OK;
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
    return end_splitting(&s, err, newcomm);
}

/* ---- only members take part ------------------------------------------------------------------------------------------------- */

static uno_err list_members(struct splitting *s, const int *ranks, int n)
{
    s->members = mem_array((size_t)n, sizeof *s->members);
    s->place = -1;
    if (!s->members)
        return UNO_ERR_MEMORY;
    uno_err err = UNO_OK;
    bool *seen = mem_array((size_t)s->parent->size, sizeof *seen);
    if (!seen)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < n && err == UNO_OK; i++) {
        int r = ranks[i];
        if (r < 0 || r >= s->parent->size)
            err = err_set(UNO_ERR_ARG, "uno_comm_create_group: ranks[%d] is %d; legal are 0 to %d", i, r, s->parent->size - 1);
        else if (seen[r])
            err = err_set(UNO_ERR_ARG, "uno_comm_create_group: rank %d stands in ranks twice", r);
        else
            seen[r] = true;
        s->members[i] = (struct member){i, r};
        s->mine.members = hash_mix(s->mine.members, (uint64_t)r + 1);
        if (r == s->parent->rank)
            s->place = i;
    }
    free(seen);
    s->count = n;
    if (err == UNO_OK && s->place < 0)
        err = err_set(UNO_ERR_ARG, "uno_comm_create_group: the caller, rank %d, does not stand in ranks; only members call", s->parent->rank);
    return err;
}

/* While others are waited for: whoever has gone will not come. */
static uno_err may_come(void *arg)
{
    const struct splitting *s = arg;
    const uno_comm *parent = s->parent;
    if (atomic_load_explicit(&parent->aborts, memory_order_relaxed) != s->aborts)
        return err_set(UNO_ERR_ABORTED, "uno_comm_create_group: the communicator it was called on was aborted or destroyed in another thread");
    int n = atomic_load_explicit(&parent->ngone, memory_order_acquire); /* pairs with the release in note_gone */
    for (int k = 0; k < n; k++)
        for (int i = 0; i < s->count; i++)
            if (s->members[i].rank == parent->gone[k].rank)
                return err_set(UNO_ERR_PEER_DEAD, "%s, and is one of the %d members of the new communicator", parent->gone[k].text, s->count);
    return UNO_OK;
}

/* For a verdict: the other members are waited for. */
static void note_group(const struct splitting *s)
{
    uint64_t set[LEDGER_MAKING_RANKS / 64] = {0};
    for (int i = 0; i < s->count; i++)
        if (s->members[i].rank < LEDGER_MAKING_RANKS)
            set[s->members[i].rank / 64] |= 1ull << (s->members[i].rank % 64);
    note_making(s->parent, LEDGER_MAKES_GROUP, s->mine.job, set);
}

/* Sets s->boot last: until then nobody can be told that this rank failed, but by not coming. */
static uno_err meet(struct splitting *s, const uno_id *id, const struct config *cfg)
{
    struct auth_key key;
    struct boot_ask ask = {may_come, s};
    boot_id_key(id, &key, &s->mine.job);
    note_group(s);
    (void)requests_go_on(NULL);
    return boot_open_asking(id, s->place, s->count, cfg, clock_after(cfg->join_timeout), &ask, &s->boot);
}

static uno_err create_steps(struct splitting *s, const int *ranks, int n, const uno_id *id, const uno_config *config)
{
    struct config cfg;
    TRY(comm_child_config(s->parent, config, &cfg));
    TRY(list_members(s, ranks, n));
    s->offers = mem_array((size_t)n, sizeof *s->offers);
    s->again = mem_array((size_t)n, sizeof *s->again);
    if (!s->offers || !s->again)
        return UNO_ERR_MEMORY;
    TRY(meet(s, id, &cfg));
    uint64_t number = s->mine.job; /* of the id: another one for each communicator */
    s->mine.job = s->parent->job->id;
    return put_together(s, make_child(s, hash_mix(number, 2), &cfg, config));
}

/* The list stands in the sentence: joining counts in it. */
static void say_list(const uno_comm *parent, const int *ranks, int n, uno_err err, const char *name)
{
    enum { MOST = 16 };
    struct text list = {0};
    for (int i = 0; i < MIN(n, MOST); i++)
        text_add(&list, "%s%d", i ? ", " : " of ranks ", ranks[i]);
    if (n > MOST)
        text_add(&list, " and %d more", n - MOST);
    (void)err_wrap(err, "rank %d cannot make communicator \"%.60s\"%s", parent->rank, name, list.s ? list.s : "");
    text_free(&list);
}

uno_err join_create_group(uno_comm *parent, const int *ranks, int n, const uno_id *id, const uno_config *config, uno_comm **newcomm)
{
    *newcomm = NULL;
    struct splitting s = {.parent = parent, .place = -1, .aborts = atomic_load_explicit(&parent->aborts, memory_order_relaxed)};
    uno_err err = create_steps(&s, ranks, n, id, config);
    if (err != UNO_OK)
        say_list(parent, ranks, n, err, config && config->name ? config->name : "");
    boot_close(s.boot);
    note_making_ends(parent);
    return end_splitting(&s, err, newcomm);
}
