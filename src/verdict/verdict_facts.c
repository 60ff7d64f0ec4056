/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_facts.c - what is known of all ranks, gathered from records and from what the judge saw itself. A rank may be told of
 * twice: by its own steward, and by its hub or a neighbour that watched it end.
 */
#include "verdict/verdict.h"

#include <stdlib.h>
#include <string.h>

struct verdict_rank verdict_rank_unknown(int rank, int size)
{
    return (struct verdict_rank){.rank = rank, .size = size, .host_index = -1, .reporter = -1};
}

uno_err verdict_facts_new(struct verdict_facts *f, int size)
{
    memset(f, 0, sizeof *f);
    if (size < 1)
        return err_set(UNO_ERR_ARG, "facts of a job of %d ranks cannot be", size);
    f->ranks = mem_array((size_t)size, sizeof *f->ranks);
    f->offsets = mem_array((size_t)size, sizeof *f->offsets);
    if (!f->ranks || !f->offsets) {
        free(f->ranks);
        free(f->offsets);
        memset(f, 0, sizeof *f);
        return UNO_ERR_MEMORY;
    }
    f->size = size;
    for (int i = 0; i < size; i++)
        f->ranks[i] = verdict_rank_unknown(i, size);
    return UNO_OK;
}

void verdict_facts_free(struct verdict_facts *f)
{
    for (int i = 0; f->ranks && i < f->size; i++)
        verdict_rank_free(&f->ranks[i]);
    free(f->ranks);
    free(f->offsets);
    memset(f, 0, sizeof *f);
}

/* ---- two records of one rank --------------------------------------------------------------------------------------------- */

/* How much a status tells: what has ended does not come back. */
static int weight(uint8_t status)
{
    static const int weights[] = {[VERDICT_UNKNOWN] = 0, [VERDICT_SILENT] = 1, [VERDICT_NEVER_JOINED] = 2, [VERDICT_REPORTED] = 3,
                                  [VERDICT_LEFT] = 4, [VERDICT_DEAD] = 5};
    return status < ARRAY_LEN(weights) ? weights[status] : 0;
}

/* Records of one rank lie on one host's clock, so their times can be compared. */
static bool newer(const struct verdict_rank *a, const struct verdict_rank *b)
{
    return a->taken_ns > b->taken_ns;
}

static struct verdict_comm *find_comm(const struct verdict_rank *r, const struct verdict_comm *m)
{
    for (uint32_t i = 0; i < r->ncomms; i++)
        if (r->comms[i].id == m->id && r->comms[i].epoch == m->epoch)
            return &r->comms[i];
    return NULL;
}

/* Does a tell more than b of the same communicator? A ledger read later, or by who could see the queues too. */
static bool fuller(const struct verdict_comm *a, const struct verdict_comm *b)
{
    if (a->newest != b->newest)
        return (int32_t)(a->newest - b->newest) > 0;
    return a->nevents + a->np2p + a->ncalls > b->nevents + b->np2p + b->ncalls;
}

static void swap_comm(struct verdict_comm *a, struct verdict_comm *b)
{
    struct verdict_comm keep = *a;
    *a = *b;
    *b = keep;
}

/* Communicators of `from` that are new to `to`, or told better there, go over. */
static uno_err merge_comms(struct verdict_rank *to, struct verdict_rank *from)
{
    size_t cap = to->ncomms;
    for (uint32_t i = 0; i < from->ncomms; i++) {
        struct verdict_comm *mine = find_comm(to, &from->comms[i]);
        if (mine && fuller(&from->comms[i], mine))
            swap_comm(mine, &from->comms[i]);
        if (mine)
            continue;
        TRY(mem_grow(&to->comms, &cap, (size_t)to->ncomms + 1, sizeof *to->comms));
        to->comms[to->ncomms++] = from->comms[i];
        memset(&from->comms[i], 0, sizeof from->comms[i]);
    }
    return UNO_OK;
}

static void merge_text(char *to, const char *from, size_t room)
{
    if (to[0] == 0)
        memcpy(to, from, room);
}

/* What only `from` knows goes over into `to`, whose status counts. */
static void merge_rank(struct verdict_rank *to, const struct verdict_rank *from)
{
    merge_text(to->host, from->host, sizeof to->host);
    merge_text(to->program, from->program, sizeof to->program);
    if (to->host_index < 0)
        to->host_index = from->host_index;
    if (to->pid == 0)
        to->pid = from->pid;
    if (to->ended == VERDICT_ENDED_UNKNOWN && weight(from->status) >= weight(VERDICT_LEFT)) {
        to->ended = from->ended;
        to->ended_code = from->ended_code;
    }
    to->oom_kill = to->oom_kill || from->oom_kill;
    if (from->children_left > to->children_left) {
        to->children_left = from->children_left;
        memcpy(to->children, from->children, sizeof to->children);
    }
    merge_text(to->process.cgroup, from->process.cgroup, sizeof to->process.cgroup);
    if (from->process.run != VERDICT_RUN_UNKNOWN && (to->process.run == VERDICT_RUN_UNKNOWN || newer(from, to))) {
        struct verdict_process own = to->process;
        to->process = from->process;
        merge_text(to->process.cgroup, own.cgroup, sizeof own.cgroup);
        merge_text(to->process.python, own.python, sizeof own.python);
        merge_text(to->process.stack, own.stack, sizeof own.stack);
    }
    if (to->process.state == 0) {
        to->process.state = from->process.state;
        to->process.cpu_ns = from->process.cpu_ns;
    }
    if (to->taken_ns == 0)
        to->taken_ns = from->taken_ns;
    to->refused = MAX(to->refused, from->refused);
    if (!to->clock.known)
        to->clock = from->clock;
    if (to->taken_real_ns == 0)
        to->taken_real_ns = from->taken_real_ns;
}

static void take_links(struct verdict_rank *to, struct verdict_rank *from)
{
    if (from->nlinks == 0 || (to->nlinks > 0 && newer(to, from)))
        return;
    free(to->links);
    to->links = from->links;
    to->nlinks = from->nlinks;
    from->links = NULL;
    from->nlinks = 0;
}

static uno_err fits(struct verdict_facts *f, const struct verdict_rank *r)
{
    if (r->size != f->size)
        return err_set(UNO_ERR_PARSE, "a record of a job of %d ranks among those of a job of %d: it belongs to another job", r->size,
                       f->size);
    if (r->rank < 0 || r->rank >= f->size)
        return err_set(UNO_ERR_PARSE, "a record of rank %d in a job of %d ranks", r->rank, f->size);
    if (f->job == 0)
        f->job = r->job;
    if (r->job != 0 && r->job != f->job)
        return err_set(UNO_ERR_PARSE, "the record of rank %d belongs to another job (%016llx, the others to %016llx)", r->rank,
                       (unsigned long long)r->job, (unsigned long long)f->job);
    return UNO_OK;
}

uno_err verdict_rank_merge(struct verdict_rank *have, struct verdict_rank *r)
{
    if (r->status == VERDICT_UNKNOWN)
        r->status = VERDICT_REPORTED; /* somebody wrote it */
    bool better = weight(r->status) > weight(have->status) || (weight(r->status) == weight(have->status) && newer(r, have));
    if (better) { /* the better one stays, the other one is merged into it */
        struct verdict_rank keep = *have;
        *have = *r;
        *r = keep;
    }
    merge_rank(have, r);
    take_links(have, r);
    uno_err err = merge_comms(have, r);
    verdict_rank_free(r);
    return err;
}

uno_err verdict_facts_take(struct verdict_facts *f, struct verdict_rank *r)
{
    uno_err err = fits(f, r);
    if (err == UNO_OK)
        return verdict_rank_merge(&f->ranks[r->rank], r);
    verdict_rank_free(r);
    return err;
}

uno_err verdict_facts_add(struct verdict_facts *f, const void *record, size_t bytes)
{
    struct verdict_rank r;
    TRY(verdict_decode(record, bytes, &r));
    return verdict_facts_take(f, &r);
}

void verdict_facts_note(struct verdict_facts *f, int rank, enum verdict_status status, uint64_t since_judge_ns, const char *host,
                        int host_index, int pid)
{
    if (rank < 0 || rank >= f->size)
        return;
    struct verdict_rank *r = &f->ranks[rank];
    if (weight(status) > weight(r->status)) {
        r->status = (uint8_t)status;
        /* kept on the rank's own clock, as everything else of it */
        int64_t offset = f->offsets[rank].known ? f->offsets[rank].offset_ns : 0;
        r->status_since_ns = since_judge_ns ? (uint64_t)((int64_t)since_judge_ns - offset) : 0;
    }
    if (host && r->host[0] == 0)
        snprintf(r->host, sizeof r->host, "%s", host);
    if (r->host_index < 0)
        r->host_index = host_index;
    if (r->pid == 0)
        r->pid = pid;
}

void verdict_facts_ended(struct verdict_facts *f, int rank, enum verdict_ended ended, int code, const char *cgroup)
{
    struct verdict_rank *r = rank < 0 || rank >= f->size ? NULL : &f->ranks[rank];
    if (!r || r->status != VERDICT_DEAD || r->ended != VERDICT_ENDED_UNKNOWN)
        return;
    r->ended = (uint8_t)ended;
    r->ended_code = code;
    r->oom_kill = cgroup != NULL;
    if (cgroup)
        snprintf(r->process.cgroup, sizeof r->process.cgroup, "%.95s", cgroup);
}
