/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_scene.h - a stage for tests of verdicts: a job on some hosts, its communicators, and what its ranks have called, in a few
 * readable lines. All times are seconds on the judge's clock; the scene converts them to each rank's own clock.
 */
#ifndef UNO_VERDICT_SCENE_H
#define UNO_VERDICT_SCENE_H

#include <stdlib.h>
#include <string.h>

#include "verdict/verdict.h"

#define SCENE_NOW 1000.0 /* seconds on the judge's clock */
#define SEC(s) ((uint64_t)((s) * 1e9 + 0.5))

struct scene {
    struct verdict_facts f;
    int64_t skew_ns[1200];    /* judge's clock = own + skew */
    int ranks_per_host;
};

/* Own clock of a rank at the judge's second `at`. */
static inline uint64_t scene_own(const struct scene *s, int rank, double at)
{
    return (uint64_t)((int64_t)SEC(at) - s->skew_ns[rank]);
}

static inline void *scene_more(void *array, uint32_t n, size_t each)
{
    void *p = realloc(array, (n + 1) * each);
    if (!p)
        abort();
    memset((char *)p + n * each, 0, each);
    return p;
}

/* Ranks in order on hosts n0, n1, ..., pid 800 + rank; everybody has reported. skew_s: hosts' clocks differ by so much each. */
static inline void scene_begin(struct scene *s, int size, int ranks_per_host, double skew_s)
{
    memset(s, 0, sizeof *s);
    if (size > (int)ARRAY_LEN(s->skew_ns) || verdict_facts_new(&s->f, size) != UNO_OK)
        abort();
    s->ranks_per_host = ranks_per_host;
    s->f.now_ns = SEC(SCENE_NOW);
    s->f.stall_ns = SEC(5);
    s->f.job = 77;
    for (int i = 0; i < size; i++) {
        struct verdict_rank *r = &s->f.ranks[i];
        s->skew_ns[i] = (int64_t)(skew_s * 1e9) * (i / ranks_per_host);
        s->f.offsets[i] = (struct verdict_offset){.known = true, .offset_ns = s->skew_ns[i], .error_ns = 100000};
        r->status = VERDICT_REPORTED;
        r->host_index = i / ranks_per_host;
        snprintf(r->host, sizeof r->host, "n%d", r->host_index);
        r->pid = 800 + i;
        r->reporter = i;
        r->job = 77;
        r->taken_ns = scene_own(s, i, SCENE_NOW);
        r->process.run = VERDICT_RUN_SLEEPS;
        r->process.in_library = true;
        r->process.sample_ns = SEC(0.1);
    }
}

/* A communicator of the ranks first, first+stride, ...; every one has reported it, none has called anything. */
static inline void scene_comm(struct scene *s, uint64_t id, const char *name, int first, int stride, int n)
{
    for (int k = 0; k < n; k++) {
        struct verdict_rank *r = &s->f.ranks[first + k * stride];
        r->comms = scene_more(r->comms, r->ncomms, sizeof *r->comms);
        struct verdict_comm *c = &r->comms[r->ncomms++];
        c->id = id;
        snprintf(c->name, sizeof c->name, "%s", name);
        c->rank = k;
        c->size = n;
        c->failed_rank = -1;
        if (first == 0 && stride == 1 && n == s->f.size)
            continue;
        c->members = calloc((size_t)n, sizeof *c->members);
        for (int m = 0; m < n; m++)
            c->members[m] = first + m * stride;
    }
}

static inline struct verdict_comm *scene_of(struct scene *s, int rank, uint64_t id)
{
    for (uint32_t i = 0; i < s->f.ranks[rank].ncomms; i++)
        if (s->f.ranks[rank].comms[i].id == id)
            return &s->f.ranks[rank].comms[i];
    abort();
}

/* The next collective of a rank: from..to; to 0 = it still runs (the program stands in it). Returns it, to be changed. */
static inline struct verdict_event *scene_call(struct scene *s, int rank, uint64_t id, uno_coll coll, uint64_t count, double from,
                                               double to)
{
    struct verdict_comm *c = scene_of(s, rank, id);
    c->events = scene_more(c->events, c->nevents, sizeof *c->events);
    struct verdict_event *e = &c->events[c->nevents++];
    *e = (struct verdict_event){.number = ++c->newest, .coll = (uint8_t)coll, .type = UNO_FLOAT32, .op = UNO_SUM, .root = 0,
                                .count = count, .waits_for = -1, .step = -1, .start_ns = scene_own(s, rank, from)};
    e->state = to > 0 ? VERDICT_DONE : VERDICT_RUNNING;
    e->end_ns = to > 0 ? scene_own(s, rank, to) : 0;
    e->blocks = to > 0 ? VERDICT_BLOCKS_UNKNOWN : VERDICT_PROGRAM_WAITS;
    return e;
}

/* Chained signatures as the ledger has them, from what the calls say; to be done when a communicator's calls are complete. */
static inline void scene_sign(struct scene *s, uint64_t id)
{
    for (int r = 0; r < s->f.size; r++)
        for (uint32_t i = 0; i < s->f.ranks[r].ncomms; i++) {
            struct verdict_comm *c = &s->f.ranks[r].comms[i];
            uint64_t chain = id;
            for (uint32_t k = 0; c->id == id && k < c->nevents; k++) {
                struct verdict_event *e = &c->events[k];
                chain = hash_mix(chain, hash_mix(e->number, hash_mix(e->coll, hash_mix(e->count,
                                 hash_mix(e->type, hash_mix((uint32_t)e->op, (uint32_t)e->root))))));
                e->signature = (uint32_t)chain | 1u;
            }
        }
}

/* n finished calls of every rank of the communicator, the last one ended `until`, 0.1 s each. */
static inline void scene_history(struct scene *s, uint64_t id, uno_coll coll, uint64_t count, int n, double until)
{
    for (int r = 0; r < s->f.size; r++)
        for (uint32_t i = 0; i < s->f.ranks[r].ncomms; i++)
            if (s->f.ranks[r].comms[i].id == id)
                for (int k = 0; k < n; k++)
                    scene_call(s, r, id, coll, count, until - 0.1 * (n - k), until - 0.1 * (n - k - 1));
}

static inline struct verdict_p2p *scene_p2p(struct scene *s, int rank, uint64_t id, enum verdict_p2p_kind kind, int peer, int tag,
                                            uint64_t bytes, double since)
{
    struct verdict_comm *c = scene_of(s, rank, id);
    c->p2p = scene_more(c->p2p, c->np2p, sizeof *c->p2p);
    struct verdict_p2p *p = &c->p2p[c->np2p++];
    *p = (struct verdict_p2p){.kind = (uint8_t)kind, .waited = true, .peer = peer, .tag = tag, .bytes = bytes,
                              .number = 1, .since_ns = scene_own(s, rank, since)};
    return p;
}

static inline struct verdict_call *scene_queued(struct scene *s, int rank, uint64_t id, uno_coll coll, uint64_t count, uint64_t order,
                                                double since)
{
    struct verdict_comm *c = scene_of(s, rank, id);
    c->calls = scene_more(c->calls, c->ncalls, sizeof *c->calls);
    struct verdict_call *q = &c->calls[c->ncalls++];
    *q = (struct verdict_call){.order = order, .coll = (int8_t)coll, .type = UNO_FLOAT32, .op = UNO_SUM, .count = count,
                               .since_ns = scene_own(s, rank, since)};
    return q;
}

/* The counts per member that it passed in v-form `number`. */
static inline void scene_passed(struct scene *s, int rank, uint64_t id, uint32_t number, const uint64_t *counts)
{
    struct verdict_comm *c = scene_of(s, rank, id);
    c->passed_number = number;
    for (c->npassed = 0; c->npassed < (uint32_t)c->size; c->npassed++) {
        c->passed = scene_more(c->passed, c->npassed, sizeof *c->passed);
        c->passed[c->npassed] = counts[c->npassed];
    }
}

/* The rank's program is outside of us: computing, or in a system call. */
static inline void scene_computes(struct scene *s, int rank, const char *python)
{
    struct verdict_process *p = &s->f.ranks[rank].process;
    p->run = VERDICT_RUN_RUNS;
    p->in_library = false;
    p->cpu_permille = 990;
    snprintf(p->python, sizeof p->python, "%s", python);
}
static inline void scene_syscall(struct scene *s, int rank, const char *name, const char *python, double since)
{
    struct verdict_process *p = &s->f.ranks[rank].process;
    p->run = VERDICT_RUN_SYSCALL;
    p->in_library = false;
    p->cpu_permille = 0;
    p->run_since_ns = since > 0 ? scene_own(s, rank, since) : 0;
    snprintf(p->syscall, sizeof p->syscall, "%s", name);
    snprintf(p->python, sizeof p->python, "%s", python);
}

static inline struct verdict_rank *scene_ended(struct scene *s, int rank, enum verdict_status status, enum verdict_ended how, int code,
                                               double at)
{
    struct verdict_rank *r = &s->f.ranks[rank];
    r->status = (uint8_t)status;
    r->ended = (uint8_t)how;
    r->ended_code = code;
    r->status_since_ns = scene_own(s, rank, at);
    r->process = (struct verdict_process){0};
    return r;
}

/* No report: the ledger is lost too. */
static inline void scene_lost(struct scene *s, int rank, enum verdict_status status, double since)
{
    struct verdict_rank *r = &s->f.ranks[rank], keep = *r;
    verdict_rank_free(r);
    *r = (struct verdict_rank){.rank = rank, .size = s->f.size, .host_index = keep.host_index, .pid = keep.pid, .reporter = -1,
                               .status = (uint8_t)status, .status_since_ns = since > 0 ? scene_own(s, rank, since) : 0};
    memcpy(r->host, keep.host, sizeof r->host);
}

static inline struct verdict_link *scene_link(struct scene *s, int reporter, int to_host, enum verdict_path state, double since)
{
    struct verdict_rank *r = &s->f.ranks[reporter];
    r->links = scene_more(r->links, r->nlinks, sizeof *r->links);
    struct verdict_link *l = &r->links[r->nlinks++];
    l->from_host = r->host_index;
    l->to_host = to_host;
    l->state = (uint8_t)state;
    l->since_ns = since > 0 ? scene_own(s, reporter, since) : 0;
    snprintf(l->from_if, sizeof l->from_if, "eth0");
    snprintf(l->from_addr, sizeof l->from_addr, "10.0.0.%d", r->host_index + 1);
    snprintf(l->to_addr, sizeof l->to_addr, "10.0.0.%d", to_host + 1);
    return l;
}

#endif
