/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs.c - what is known of jobs, for tools (uno_jobs_* in unisono_watch.h): records are sorted by job, shown as plain data, and
 * judged. Nothing here looks at processes; records come from a keeper or from files.
 */
#include "unisono_watch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "verdict/verdict.h"

/* A record of a few bytes may tell of a large job: memory is taken for ranks that have records, and all together is bounded. */
struct known_job {
    uint64_t id;
    int size;
    struct verdict_rank *known; /* ranks of which there is a record, as they came */
    size_t nknown, cap;
    uint32_t *place;           /* by rank: 1 + its index in known; 0 = there is none */
    uno_job job;               /* what is shown of them, made when it is asked for */
    uno_job_rank *ranks;
    uno_job_comm *comms;
    uno_job_call *calls;
    uno_job_message *messages;
    struct verdict *verdict;
    uno_verdict shown;
    uno_verdict_line lines[VERDICT_MAX_LINES];
    const char *others[4];
    char *text;
};
struct uno_jobs {
    struct known_job **jobs;
    size_t njobs, cap;
    uint64_t ranks, members;   /* of all jobs; all that was listed of their communicators */
};
#define MOST_RANKS (1u << 20)   /* 16 of the largest jobs, 200 MB when all are shown */
#define MOST_MEMBERS (64u << 20) /* 256 MB */
#define VERDICT_TEXT_ROOM 32768u

uno_err uno_jobs_new(uno_jobs **jobs)
{
    if (!jobs)
        return err_set(UNO_ERR_ARG, "uno_jobs_new: jobs is NULL");
    *jobs = mem_zalloc(sizeof **jobs);
    return *jobs ? UNO_OK : UNO_ERR_MEMORY;
}

static void forget_shown(struct known_job *k)
{
    free(k->ranks);
    free(k->comms);
    free(k->calls);
    free(k->messages);
    k->ranks = NULL;
    k->comms = NULL;
    k->calls = NULL;
    k->messages = NULL;
}

static void known_free(struct known_job *k)
{
    forget_shown(k);
    for (size_t i = 0; i < k->nknown; i++)
        verdict_rank_free(&k->known[i]);
    free(k->known);
    free(k->place);
    free(k->verdict);
    free(k->text);
    free(k);
}

void uno_jobs_free(uno_jobs *jobs)
{
    for (size_t i = 0; jobs && i < jobs->njobs; i++)
        known_free(jobs->jobs[i]);
    if (jobs)
        free(jobs->jobs);
    free(jobs);
}

/* ---- records ---------------------------------------------------------------------------------------------------------------- */

static uno_err job_of(uno_jobs *jobs, uint64_t id, int size, struct known_job **out)
{
    for (size_t i = 0; i < jobs->njobs; i++)
        if (jobs->jobs[i]->id == id && jobs->jobs[i]->size == size) {
            *out = jobs->jobs[i];
            return UNO_OK;
        }
    if (jobs->ranks + (uint64_t)size > MOST_RANKS)
        return err_set(UNO_ERR_UNSUPPORTED, "it is of one more job, of %d ranks, and all jobs together would have more than %u; read fewer files at once", size, MOST_RANKS);
    struct known_job *k = mem_zalloc(sizeof *k);
    uno_err err = k && (k->place = mem_array((size_t)size, sizeof *k->place)) ? UNO_OK : UNO_ERR_MEMORY;
    if (err == UNO_OK)
        err = mem_grow(&jobs->jobs, &jobs->cap, jobs->njobs + 1, sizeof *jobs->jobs);
    if (err != UNO_OK) {
        if (k)
            known_free(k);
        return err;
    }
    k->id = id;
    k->size = size;
    jobs->ranks += (uint64_t)size;
    jobs->jobs[jobs->njobs++] = *out = k;
    return UNO_OK;
}

static uno_err count_members(uno_jobs *jobs, const struct verdict_rank *r)
{
    for (uint32_t i = 0; i < r->ncomms; i++)
        jobs->members += r->comms[i].members ? (uint64_t)r->comms[i].size : 0;
    return jobs->members <= MOST_MEMBERS ? UNO_OK
        : err_set(UNO_ERR_UNSUPPORTED, "the communicators of all records together have more than %u members; read fewer files at once", MOST_MEMBERS);
}

/* Takes *r over. */
static uno_err take_record(struct known_job *k, struct verdict_rank *r)
{
    if (k->place[r->rank])
        return verdict_rank_merge(&k->known[k->place[r->rank] - 1], r);
    uno_err err = mem_grow(&k->known, &k->cap, k->nknown + 1, sizeof *k->known);
    if (err != UNO_OK) {
        verdict_rank_free(r);
        return err;
    }
    k->known[k->nknown] = verdict_rank_unknown(r->rank, k->size);
    k->place[r->rank] = (uint32_t)++k->nknown;
    return verdict_rank_merge(&k->known[k->nknown - 1], r);
}

static uno_err add_record(uno_jobs *jobs, const void *record, size_t bytes)
{
    struct verdict_rank r;
    struct known_job *k = NULL;
    TRY(verdict_decode(record, bytes, &r));
    uno_err err = count_members(jobs, &r);
    if (err == UNO_OK)
        err = job_of(jobs, r.job, r.size, &k);
    if (err != UNO_OK) {
        verdict_rank_free(&r);
        return err;
    }
    forget_shown(k);
    return take_record(k, &r);
}

uno_err uno_jobs_add(uno_jobs *jobs, const void *records, size_t bytes)
{
    const unsigned char *data = records;
    if (!jobs || (!records && bytes))
        return err_set(UNO_ERR_ARG, "uno_jobs_add: %s is NULL", jobs ? "records" : "jobs");
    for (size_t at = 0; at < bytes;) {
        size_t one = 0;
        uno_err err = verdict_record_bytes(data + at, bytes - at, &one);
        if (err == UNO_OK && one > bytes - at)
            err = err_set(UNO_ERR_PARSE, "it is cut: the record has %zu bytes, and only %zu are there", one, bytes - at);
        if (err == UNO_OK)
            err = add_record(jobs, data + at, one);
        if (err != UNO_OK)
            return err == UNO_ERR_PARSE && at ? err_wrap(err, "behind byte %zu", at) : err;
        at += one;
    }
    return UNO_OK;
}

size_t uno_jobs_count(const uno_jobs *jobs)
{
    return jobs ? jobs->njobs : 0;
}

/* ---- what is shown ------------------------------------------------------------------------------------------------------------ */

static const char *word(const char *const *words, size_t n, unsigned value)
{
    return value < n ? words[value] : "?";
}
#define WORD(words, value) word(words, ARRAY_LEN(words), value)

static int job_rank_of(const struct verdict_comm *c, int32_t comm_rank)
{
    if (comm_rank < 0 || comm_rank >= c->size)
        return -1;
    return c->members ? c->members[comm_rank] : comm_rank;
}

static void show_call(uno_job_call *to, const struct verdict_event *e, const struct verdict_comm *c)
{
    static const char *const states[] = {"", "running", "done", "failed"};
    *to = (uno_job_call){.number = e->number, .coll = coll_name((uno_coll)e->coll), .type = type_name((uno_type)e->type),
                         .op = coll_reduces((uno_coll)e->coll) ? op_name(e->op) : "",
                         .root = coll_has_root((uno_coll)e->coll) ? e->root : -1, .count = e->count,
                         .bytes = e->count * uno_type_bytes((uno_type)e->type), .state = WORD(states, e->state), .site = e->site,
                         .waits_for = job_rank_of(c, e->waits_for), .moved_bytes = e->bytes_moved, .total_bytes = e->bytes_total,
                         .start_ns = e->start_ns, .end_ns = e->end_ns, .wait_since_ns = e->wait_since_ns};
}

static void show_message(uno_job_message *to, const struct verdict_p2p *p)
{
    static const char *const kinds[] = {"?", "send", "recv", "isend", "irecv"};
    *to = (uno_job_message){.kind = WORD(kinds, p->kind), .type = type_name((uno_type)p->type), .peer = p->peer, .tag = p->tag,
                            .number = p->number, .bytes = p->bytes, .moved_bytes = p->bytes_moved, .waited = p->waited,
                            .matched = p->matched, .site = p->site, .since_ns = p->since_ns};
}

struct places { uno_job_comm *comm; uno_job_call *call; uno_job_message *message; };

static void show_comm(struct places *at, const struct verdict_comm *c)
{
    *at->comm++ = (uno_job_comm){.id = c->id, .epoch = c->epoch, .name = c->name, .rank = c->rank, .size = c->size,
                                 .members = c->members, .destroyed = c->destroyed, .failed = c->failed ? c->failed_text : NULL,
                                 .newest = c->newest, .sends = c->sends, .receives = c->receives, .sent_bytes = c->sent_bytes,
                                 .received_bytes = c->received_bytes, .waited_ns = c->waited_ns, .ncalls = c->nevents, .nmessages = c->np2p, .nqueued = c->ncalls,
                                 .calls = at->call, .messages = at->message};
    for (uint32_t i = 0; i < c->nevents; i++)
        show_call(at->call++, &c->events[i], c);
    for (uint32_t i = 0; i < c->np2p; i++)
        show_message(at->message++, &c->p2p[i]);
}

static void show_rank(struct places *at, uno_job_rank *to, const struct verdict_rank *r)
{
    static const char *const statuses[] = {"unknown", "reported", "silent", "dead", "left", "never_joined"};
    static const char *const ends[] = {"", "exit", "signal", "host", "agent"};
    static const char *const runs[] = {"", "runs", "sleeps", "syscall", "disk", "stopped", "traced", "frozen", "zombie", "thread_ended", "replaced"};
    *to = (uno_job_rank){.rank = r->rank, .status = WORD(statuses, r->status), .host = r->host, .host_index = r->host_index, .program = r->program,
                         .pid = r->pid, .ended = WORD(ends, r->ended), .ended_code = r->ended_code,
                         .run = WORD(runs, r->process.run), .syscall = r->process.syscall, .position = r->process.python,
                         .stack = r->process.stack, .cpu_permille = r->process.cpu_permille, .state = (char)r->process.state,
                         .cpu_ns = r->process.cpu_ns, .taken_ns = r->taken_ns,
                         .taken_real_ns = r->taken_real_ns, .clock_known = r->clock.known, .clock_offset_ns = r->clock.offset_ns,
                         .refused = r->refused, .ncomms = r->ncomms, .comms = at->comm};
    for (uint32_t i = 0; i < r->ncomms; i++)
        show_comm(at, &r->comms[i]);
}

static uno_err show_job(struct known_job *k)
{
    size_t ncomms = 0, ncalls = 0, nmessages = 0;
    for (size_t at = 0; at < k->nknown; at++)
        for (uint32_t i = 0; i < k->known[at].ncomms; i++) {
            ncomms++;
            ncalls += k->known[at].comms[i].nevents;
            nmessages += k->known[at].comms[i].np2p;
        }
    k->ranks = mem_array((size_t)k->size, sizeof *k->ranks);
    k->comms = mem_array(ncomms + 1, sizeof *k->comms);
    k->calls = mem_array(ncalls + 1, sizeof *k->calls);
    k->messages = mem_array(nmessages + 1, sizeof *k->messages);
    if (!k->ranks || !k->comms || !k->calls || !k->messages) {
        forget_shown(k);
        return UNO_ERR_MEMORY;
    }
    struct places at = {k->comms, k->calls, k->messages};
    k->job = (uno_job){.id = k->id, .size = k->size, .program = "", .ranks = k->ranks};
    for (int r = 0; r < k->size; r++) {
        static const struct verdict_rank nothing = {.host_index = -1, .reporter = -1};
        const struct verdict_rank *from = k->place[r] ? &k->known[k->place[r] - 1] : &nothing;
        show_rank(&at, &k->ranks[r], from);
        k->ranks[r].rank = r;
        k->job.reported += from->status != VERDICT_UNKNOWN;
        if (!k->job.program[0])
            k->job.program = from->program;
    }
    return UNO_OK;
}

static uno_err known_at(const uno_jobs *jobs, size_t index, struct known_job **k)
{
    if (!jobs || index >= jobs->njobs)
        return err_set(UNO_ERR_ARG, "there is no job %zu among %zu", index, jobs ? jobs->njobs : 0);
    *k = jobs->jobs[index];
    return UNO_OK;
}

uno_err uno_jobs_get(uno_jobs *jobs, size_t index, const uno_job **job)
{
    struct known_job *k = NULL;
    if (!job)
        return err_set(UNO_ERR_ARG, "uno_jobs_get: job is NULL");
    TRY(known_at(jobs, index, &k));
    if (!k->ranks)
        TRY(show_job(k));
    *job = &k->job;
    return UNO_OK;
}

/* ---- the verdict ----------------------------------------------------------------------------------------------------------------- */

static void show_verdict(struct known_job *k)
{
    static const char *const sure[] = {"seen", "likely", "guess"};
    const struct verdict *v = k->verdict;
    k->shown = (uno_verdict){.kind = verdict_kind_name(v->kind), .fault = v->fault, .sure = WORD(sure, v->sure),
                             .headline = v->headline, .what_next = v->what_next, .victims = v->victims, .text = k->text,
                             .comm_id = v->comm_id, .number = v->number, .age_ns = v->age_ns, .culprits = v->nculprits,
                             .shown_culprits = MIN(v->nculprits, VERDICT_MAX_CULPRITS), .culprit = v->culprits,
                             .nvictims = v->nvictims, .nlines = (size_t)v->nlines, .nothers = (size_t)v->nothers,
                             .lines = k->lines, .others = k->others};
    for (int i = 0; i < v->nlines; i++)
        k->lines[i] = (uno_verdict_line){v->lines[i].rank, v->lines[i].age_ns, v->lines[i].text};
    for (int i = 0; i < MIN(v->nothers, (int)ARRAY_LEN(v->others)); i++)
        k->others[i] = v->others[i];
    k->shown.nothers = (size_t)MIN(v->nothers, (int)ARRAY_LEN(v->others));
}

/* The judge's clock is this host's. */
static void set_now(struct verdict_facts *f)
{
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    f->now_ns = clock_ns();
    f->now_real_ns = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
    for (int r = 0; r < f->size; r++)
        f->offsets[r] = f->ranks[r].clock;
}

/* Facts of all ranks exist while they are judged; what hangs on those with records is still known's. */
static uno_err judge(struct known_job *k, bool live, uint64_t stall_ns)
{
    struct verdict_facts f;
    TRY(verdict_facts_new(&f, k->size));
    f.job = k->id;
    f.stall_ns = stall_ns;
    for (size_t i = 0; i < k->nknown; i++)
        f.ranks[k->known[i].rank] = k->known[i];
    if (live)
        set_now(&f);
    uno_err err = verdict_judge(&f, k->verdict);
    free(f.ranks);
    free(f.offsets);
    return err;
}

uno_err uno_jobs_judge(uno_jobs *jobs, size_t index, int live, double stall_s, const uno_verdict **verdict)
{
    struct known_job *k = NULL;
    if (!verdict || !(stall_s >= 0) || stall_s > 1e9)
        return err_set(UNO_ERR_ARG, "uno_jobs_judge: %s", verdict ? "stall_s is not from 0 to 1e9" : "verdict is NULL");
    TRY(known_at(jobs, index, &k));
    if (!k->verdict)
        k->verdict = mem_zalloc(sizeof *k->verdict);
    if (!k->text)
        k->text = mem_array(VERDICT_TEXT_ROOM, 1);
    if (!k->verdict || !k->text)
        return UNO_ERR_MEMORY;
    TRY(judge(k, live != 0, (uint64_t)(stall_s * 1e9)));
    verdict_print(k->verdict, k->text, VERDICT_TEXT_ROOM);
    show_verdict(k);
    *verdict = &k->shown;
    return UNO_OK;
}
