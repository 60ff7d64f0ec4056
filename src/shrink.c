/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrink.c - a new communicator of those who go on: what is issued ends, the stewards agree (watch_shrink.c), then each member
 * makes its part. Members of one host find each other's new regions on the slates of the old ones; nothing is needed from other
 * hosts. Who dies or stops while this happens leaves a communicator behind that has failed and can be shrunk again.
 */
#include "comm.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what is heard, told to the communicators of a job ------------------------------------------------------------------- */

static void tell(void *arg, int process, const void *data, size_t bytes)
{
    struct job *job = arg;
    if (watch_tell(job->watch, process, WATCH_MESSAGE_SHRINK, data, bytes) != UNO_OK)
        LOG(LOG_DEBUG, LOG_WATCH, "rank %d hears nothing about shrinking: %s", process, err_text());
}

static void on_called(void *arg, uint64_t comm_id, int self, int rank)
{
    uno_comm *c = job_find_rank(arg, comm_id, self);
    if (!c)
        return;
    comm_rank_moves(c, rank);
    comm_release(c);
}

static void on_excluded(void *arg, uint64_t comm_id, int self)
{
    uno_comm *c = job_find_rank(arg, comm_id, self);
    if (!c)
        return;
    char text[128];
    snprintf(text, sizeof text, "the other ranks went on without rank %d (uno_comm_shrink)", self);
    (void)comm_fail(c, UNO_ERR_EXCLUDED, self, false, text);
    comm_release(c);
}

uno_err shrink_new_job(struct job *job, const struct config *cfg)
{
    struct shrinks_options opt = {.timeout_s = cfg->shrink_timeout, .tell = tell, .on_called = on_called, .on_excluded = on_excluded,
                                  .arg = job};
    return shrinks_new(&opt, &job->shrinks);
}

/* ---- the end of the old one -------------------------------------------------------------------------------------------------- */

/* A healthy communicator is not failed for the others: what they have issued may still end well. */
static void end_old(uno_comm *c)
{
    char text[160];
    if (comm_adopt(c) == UNO_OK && engine_settle(c, c->cfg.shrink_timeout) == UNO_ERR_IN_PROGRESS) {
        snprintf(text, sizeof text, "rank %d called uno_comm_shrink and gave up what it had issued after %.1f s (UNISONO_SHRINK_TIMEOUT)",
                 c->rank, c->cfg.shrink_timeout);
        (void)comm_fail(c, UNO_ERR_ABORTED, c->rank, true, text);
    }
    snprintf(text, sizeof text, "rank %d has called uno_comm_shrink; this communicator can only be destroyed", c->rank);
    (void)comm_fail(c, UNO_ERR_ABORTED, c->rank, false, text);
    engine_fail_all(c);
}

static uno_err exclude_set(const uno_comm *c, const int *exclude, int n, unsigned char **set)
{
    for (int i = 0; i < n; i++)
        if (exclude[i] < 0 || exclude[i] >= c->size || exclude[i] == c->rank)
            return err_set(UNO_ERR_ARG, "uno_comm_shrink: rank %d cannot be excluded; legal are 0 to %d, and not the caller %d", exclude[i],
                           c->size - 1, c->rank);
    *set = mem_zalloc(((size_t)c->size + 7) / 8);
    if (!*set)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        (*set)[exclude[i] / 8] |= (unsigned char)(1u << (exclude[i] % 8));
    return UNO_OK;
}

/* Add who did not answer, by name. */
static uno_err explain_no_quorum(uno_comm *c)
{
    struct text t = {0};
    int named = 0, silent = 0;
    text_add(&t, "%s", err_text());
    for (int r = 0; r < c->size; r++) {
        char name[100];
        if (r == c->rank || !shrink_silent(c->shrink, r) || silent++ >= 8)
            continue;
        comm_rank_name(c, r, name, sizeof name);
        text_add(&t, "%s %s", named++ ? "," : "; not heard of:", name);
    }
    if (silent > named)
        text_add(&t, " and %d more", silent - named);
    text_add(&t, "%s. Needed are answers of all that are not known to have ended, of more than half of %d, or of half with rank 0",
             silent ? "" : "; all were heard of, and none decided", c->size);
    uno_err err = err_set(UNO_ERR_UNREACHABLE, "%s", t.s ? t.s : "no majority to go on with");
    text_free(&t);
    return err;
}

/* ---- the new one ---------------------------------------------------------------------------------------------------------------- */

struct making {
    uno_comm *old, *child;
    int *old_rank, *job_rank;  /* of each new rank */
    uint64_t id;
    int count, mine;
    uint64_t deadline_ns;
    int bad;                   /* new rank whose part is not there; -1 */
};

static enum net_built built(const struct making *m, int i)
{
    /* acquire: pairs with the release in say_built */
    return (enum net_built)atomic_load_explicit(&net_region_slate(m->old->regions[m->old_rank[i]])->built, memory_order_acquire);
}

static void say_built(const struct making *m, enum net_built what)
{
    struct net_slate *b = net_region_slate(m->old->region);
    if (what == NET_BUILT_REGION)
        b->ref = m->child->region_refs[m->mine];
    atomic_store_explicit(&b->built, what, memory_order_release); /* pairs with the acquire in built */
}

static bool ended(const struct making *m, int i)
{
    int n = atomic_load_explicit(&m->old->ngone, memory_order_acquire); /* pairs with the release in note_gone */
    for (int k = 0; k < n; k++)
        if (m->old->gone[k].rank == m->old_rank[i])
            return true;
    return false;
}

/* Wait for a member of this host. false: it has ended or failed, or the deadline has passed. */
static bool wait_built(const struct making *m, int i, enum net_built what)
{
    for (long pause_ns = 10000;; pause_ns = MIN(pause_ns * 2, 1000000)) {
        enum net_built now = built(m, i);
        if (now >= what || ended(m, i) || clock_ns() >= m->deadline_ns)
            return now >= what && now != NET_BUILT_FAILED;
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    }
}

/* In the place of a region that will never come: the communicator has failed, but its tables are whole. */
static uno_err stand_in(uno_comm *c, int i)
{
    struct net_segment *seg;
    void *base;
    TRY(net_segment_new(net_region_bytes(c->size), "unisono-region", &seg, &base));
    net_region_init(base, c->size, 0);
    net_segment_ref(seg, &c->region_refs[i]);
    uno_err err = comm_map_region(c, i);
    net_segment_free(seg); /* the mapping is counted */
    return err;
}

static uno_err map_member(struct making *m, int i)
{
    uno_comm *c = m->child;
    if (wait_built(m, i, NET_BUILT_REGION)) {
        c->region_refs[i] = net_region_slate(m->old->regions[m->old_rank[i]])->ref;
        if (comm_map_region(c, i) == UNO_OK)
            return UNO_OK;
    }
    m->bad = m->bad < 0 ? i : m->bad;
    return stand_in(c, i);
}

static uno_err map_members(struct making *m)
{
    const uno_comm *old = m->old;
    uno_comm *c = m->child;
    int *host_index = mem_array((size_t)old->nhosts, sizeof *host_index), here = 0;
    if (!host_index)
        return UNO_ERR_MEMORY;
    for (int h = 0; h < old->nhosts; h++)
        host_index[h] = -1;
    uno_err err = UNO_OK;
    for (int i = 0; i < m->count && err == UNO_OK; i++) {
        int r = m->old_rank[i], host = old->host_of[r];
        if (host_index[host] < 0)
            host_index[host] = c->nhosts++;
        c->host_of[i] = host_index[host];
        c->job_rank[i] = m->job_rank[i];
        here += host == old->host_of[old->rank];
        if (i != m->mine && old->regions[r])
            err = map_member(m, i);
    }
    c->env.crowded = old->env.crowded && here > topo_processors();
    c->env.cache_bytes = old->env.cache_bytes;
    free(host_index);
    return err;
}

static uno_err make_parts(struct making *m, const struct config *cfg, const char *name)
{
    uno_comm *old = m->old;
    if (fault_hit("shrink_make"))
        return err_set(UNO_ERR_MEMORY, "no memory for the new communicator: refused by a test");
    TRY(comm_alloc(m->mine, m->count, cfg, name, &m->child));
    uno_comm *c = m->child;
    c->epoch = old->epoch + 1;
    c->id = m->id;
    net_segment_ref(c->segment, &c->region_refs[m->mine]);
    job_attach(old->job, c);
    say_built(m, NET_BUILT_REGION);
    if (fault_hit("shrink_made"))
        (void)raise(SIGKILL);
    TRY(map_members(m));
    c->costs = old->costs;
    TRY(comm_assemble(c));
    comm_inherit_gone(old, c);
    return UNO_OK;
}

/* Who was not there in time is named; also who found out before us that something is missing. */
static void fail_if_bad(struct making *m)
{
    char name[100], text[ERR_TEXT_BYTES];
    uno_comm *c = m->child;
    for (int i = 0; i < m->count; i++) {
        uno_err code = UNO_OK;
        if (i != m->mine && c->regions[i]) /* acquire: pairs with the release in mark_region */
            code = (uno_err)atomic_load_explicit(&c->regions[i]->abort_code, memory_order_acquire);
        if (code != UNO_OK && atomic_load_explicit(&c->regions[i]->abort_ready, memory_order_acquire)) {
            snprintf(text, sizeof text, "%.*s", (int)sizeof c->regions[i]->abort_text - 1, c->regions[i]->abort_text);
            (void)comm_fail(c, code < 64 ? code : UNO_ERR_INTERNAL, i, false, text);
        }
    }
    if (m->bad < 0)
        return;
    bool dead = ended(m, m->bad), failed = !dead && built(m, m->bad) == NET_BUILT_FAILED;
    comm_rank_name(c, m->bad, name, sizeof name);
    snprintf(text, sizeof text, "%s %s; shrink this communicator again", name,
             dead ? "ended while the new communicator was made" : failed ? "could not make its part of the new communicator"
                  : "did not make its part of the new communicator in time (stopped?)");
    (void)comm_fail(c, dead ? UNO_ERR_PEER_DEAD : failed ? UNO_ERR_UNREACHABLE : UNO_ERR_TIMEOUT, m->bad, true, text);
}

/* Nobody of this host may free its region before the others have mapped it. */
static void wait_mapped(const struct making *m)
{
    for (int i = 0; i < m->count; i++)
        if (i != m->mine && m->old->regions[m->old_rank[i]])
            (void)wait_built(m, i, NET_BUILT_MAPPED);
}

static uno_err give_up(struct making *m, uno_err err)
{
    uno_comm *old = m->old;
    char text[ERR_TEXT_BYTES], name[100];
    snprintf(text, sizeof text, "%s", err_text());
    say_built(m, NET_BUILT_FAILED);
    if (old->job->watch) { /* the others' communicator exists, and can be shrunk again */
        comm_rank_name(old, old->rank, name, sizeof name);
        err_set(err, "%s could not make its part of the new communicator: %.600s", name, text);
        watch_abort(old->job->watch, m->id, UNO_ERR_UNREACHABLE, m->mine, err_text(), m->job_rank, m->count);
    }
    comm_free(m->child);
    m->child = NULL;
    return err_set(err, "%s", text);
}

static bool left_out(const uno_comm *c, int rank)
{
    return !shrink_takes(c->shrink, rank);
}

/* Before it is known who goes on: who has no memory for it then could not tell the others. */
static uno_err making_new(struct making *m, uno_comm *old)
{
    *m = (struct making){.old = old, .bad = -1, .old_rank = mem_array((size_t)old->size, sizeof *m->old_rank),
                         .job_rank = mem_array((size_t)old->size, sizeof *m->job_rank)};
    return m->old_rank && m->job_rank ? UNO_OK : UNO_ERR_MEMORY;
}

static void making_free(struct making *m)
{
    free(m->old_rank);
    free(m->job_rank);
}

static void who_goes_on(struct making *m)
{
    const uno_comm *old = m->old;
    m->id = hash_mix(old->id, 0x736872696e6bull); /* another one than any split makes */
    for (int r = 0; r < old->size; r++)
        if (shrink_takes(old->shrink, r)) {
            if (r == old->rank)
                m->mine = m->count;
            m->old_rank[m->count] = r;
            m->job_rank[m->count++] = old->job_rank[r];
            m->id = hash_mix(m->id, (uint64_t)r + 1);
        }
}

static uno_err make_new(struct making *m, const struct config *cfg, const char *name)
{
    uno_comm *old = m->old;
    m->deadline_ns = clock_after(cfg->shrink_timeout);
    who_goes_on(m);
    comm_tell_excluded(old, left_out, m->mine == 0);
    uno_err err = make_parts(m, cfg, name);
    if (err != UNO_OK) {
        err = give_up(m, err);
    } else {
        say_built(m, NET_BUILT_MAPPED);
        wait_mapped(m);
        fail_if_bad(m);
        if (m->mine == 0)
            LOG(LOG_INFO, LOG_INIT, "%d of %d ranks go on, epoch %u", m->count, old->size, m->child->epoch);
    }
    shrink_built(old->shrink);
    return err;
}

/* For a verdict: the others are waited for. */
static void note_shrinking(uno_comm *c, const unsigned char *excluded)
{
    uint64_t set[LEDGER_MAKING_RANKS / 64] = {0};
    for (int r = 0; r < MIN(c->size, LEDGER_MAKING_RANKS); r++)
        if (!(excluded[r / 8] >> (r % 8) & 1))
            set[r / 64] |= 1ull << (r % 64);
    note_making(c, LEDGER_MAKES_SHRUNK, 0, set);
}

static uno_err agree_and_make(uno_comm *c, struct making *m, const unsigned char *excluded, const struct config *cfg, const char *name)
{
    int was = SHRINK_NO;
    if (!atomic_compare_exchange_strong(&c->shrinking, &was, SHRINK_CALLED))
        return err_set(UNO_ERR_USAGE, "uno_comm_shrink: %s", was == SHRINK_DONE ? "this communicator was shrunk; use the new one"
                       : "another thread of this rank is shrinking this communicator");
    end_old(c);
    (void)requests_go_on(c);
    note_shrinking(c, excluded);
    uno_err err = shrink_run(c->shrink, excluded, &c->aborts);
    if (err == UNO_ERR_UNREACHABLE)
        err = explain_no_quorum(c);
    bool decided = err == UNO_OK;
    if (err == UNO_OK)
        err = make_new(m, cfg, name);
    note_making_ends(c);
    atomic_store(&c->shrinking, decided ? SHRINK_DONE : SHRINK_NO);
    return err;
}

uno_err comm_shrink(uno_comm *c, const int *exclude, int nexclude, const uno_config *config, uno_comm **newcomm)
{
    struct config cfg;
    struct making m = {0};
    unsigned char *set = NULL;
    *newcomm = NULL;
    TRY(comm_child_config(c, config, &cfg));
    uno_err err = exclude_set(c, exclude, nexclude, &set);
    if (err == UNO_OK)
        err = making_new(&m, c);
    if (err == UNO_OK)
        err = agree_and_make(c, &m, set, &cfg, config && config->name ? config->name : c->name);
    *newcomm = m.child;
    making_free(&m);
    free(set);
    return err;
}
