/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top_meter.c - rates of a job from readings of its ledgers, several in an interval: what was called between two readings is counted and
 * added up; who comes late to a call is seen by when each rank began it.
 */
#include "top.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "job.h"

#define SLOW_SHARE 0.10        /* who is late for less of the time is not slow */
#define APART_NS 5000000u       /* readings of several hosts are not of one moment, and their clocks are known so well */
#define SLOW_TIMES 2.0         /* ... nor who is not so much later than most of the others */

struct cell {                  /* a rank in a communicator */
    int rank;
    uint64_t comm;
    struct reading { uint64_t taken_ns; uint32_t newest; uint64_t messages, sent_bytes, received_bytes, waited_ns; } first, last;
    double bytes;              /* of collectives */
    unsigned readings, waiting; /* without the first; waiting: for a message */
    uint64_t late_ns;
    bool here;                 /* in the last reading */
};
struct group {                 /* a communicator */
    uint64_t id;
    uint32_t seen;             /* up to this number it is known who was late */
};
struct clocked { int pid; uint64_t taken_ns, cpu_ns; }; /* pid 0: not known */
struct top_meter {
    struct cell *cells;
    size_t ncells, cell_cap;
    struct group *groups;
    size_t ngroups, group_cap;
    struct clocked *clocks;    /* by rank, at the beginning */
    int nclocks;
    struct top_row *rows;
    int nrows;
    uint64_t begin_ns;
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct top_meter *meter_new(void)
{
    return calloc(1, sizeof(struct top_meter));
}

void meter_free(struct top_meter *m)
{
    if (!m)
        return;
    free(m->cells);
    free(m->groups);
    free(m->clocks);
    free(m->rows);
    free(m);
}

static bool grow(void **array, size_t *cap, size_t need, size_t one)
{
    if (need <= *cap)
        return true;
    size_t more = *cap ? *cap * 2 : 16;
    void *p = realloc(*array, more * one);
    if (!p)
        return false;
    *array = p;
    *cap = more;
    return true;
}

static struct reading reading_of(const uno_job_rank *r, const uno_job_comm *c)
{
    return (struct reading){r->taken_ns, c->newest, c->sends + c->receives, c->sent_bytes, c->received_bytes, c->waited_ns};
}

static struct cell *cell_of(struct top_meter *m, const uno_job_rank *r, const uno_job_comm *c)
{
    int rank = r->rank;
    for (size_t i = 0; i < m->ncells; i++)
        if (m->cells[i].rank == rank && m->cells[i].comm == c->id)
            return &m->cells[i];
    if (!grow((void **)&m->cells, &m->cell_cap, m->ncells + 1, sizeof *m->cells))
        return NULL;
    struct reading first = reading_of(r, c);
    m->cells[m->ncells] = (struct cell){.rank = rank, .comm = c->id, .first = first, .last = first};
    return &m->cells[m->ncells++];
}

static struct group *group_of(struct top_meter *m, uint64_t id)
{
    for (size_t i = 0; i < m->ngroups; i++)
        if (m->groups[i].id == id)
            return &m->groups[i];
    if (!grow((void **)&m->groups, &m->group_cap, m->ngroups + 1, sizeof *m->groups))
        return NULL;
    m->groups[m->ngroups] = (struct group){.id = id};
    return &m->groups[m->ngroups++];
}

/* ---- processes ---------------------------------------------------------------------------------------------------------- */

static bool note_clocks(struct top_meter *m, const struct job_found *found)
{
    const uno_job *job = found->job;
    if (m->nclocks != job->size) {
        free(m->clocks);
        m->clocks = calloc((size_t)job->size, sizeof *m->clocks);
        m->nclocks = m->clocks ? job->size : 0;
    }
    for (int r = 0; r < m->nclocks; r++)
        m->clocks[r] = (struct clocked){job->ranks[r].state ? job->ranks[r].pid : 0, job->ranks[r].taken_ns, job->ranks[r].cpu_ns};
    return m->clocks != NULL;
}

/* ---- readings ------------------------------------------------------------------------------------------------------------- */

/* The call of that number; NULL = not made yet, or no longer known. */
static const uno_job_call *call_at(const uno_job_comm *c, uint32_t number)
{
    uint32_t back = c->newest - number;
    return back < c->ncalls ? &c->calls[c->ncalls - 1 - back] : NULL;
}

static bool is_ahead(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* A time of that rank's host as this host's clock has it; 0 = not known. */
static uint64_t time_here(const struct job_found *found, int rank, uint64_t ns)
{
    const uno_job_rank *r = &found->job->ranks[rank];
    if (found->here[rank])
        return ns;
    return r->clock_known && ns ? ns + (uint64_t)r->clock_offset_ns : 0;
}

static const uno_job_comm *comm_of(const uno_job_rank *r, uint64_t id)
{
    for (size_t i = 0; i < r->ncomms; i++)
        if (r->comms[i].id == id && !r->comms[i].destroyed)
            return &r->comms[i];
    return NULL;
}

/* How much moved since the last reading; what the ledger has lost already counts as the mean of what it holds. */
static void count_calls(struct cell *cell, const uno_job_rank *r, const uno_job_comm *c)
{
    uint32_t made = is_ahead(c->newest, cell->last.newest) ? c->newest - cell->last.newest : 0, seen = 0;
    double bytes = 0;
    if (r->taken_ns == cell->last.taken_ns)
        return; /* nothing new was heard of it */
    for (; seen < made && seen < c->ncalls; seen++)
        bytes += (double)c->calls[c->ncalls - 1 - seen].bytes;
    cell->bytes += seen ? bytes / seen * made : 0;
    cell->last = reading_of(r, c);
    cell->readings++;
    for (size_t i = 0; i < c->nmessages; i++)
        if (c->messages[i].waited && !c->messages[i].matched) {
            cell->waiting++;
            break;
        }
}

/* When the first of a communicator's ranks began call `number`; 0 = nobody has. *all: all ranks that are known have. */
static uint64_t first_start(const struct job_found *found, uint64_t id, uint32_t number, bool *all)
{
    const uno_job *job = found->job;
    uint64_t first = 0;
    *all = true;
    for (int r = 0; r < job->size; r++) {
        const uno_job_comm *c = comm_of(&job->ranks[r], id);
        const uno_job_call *call = c ? call_at(c, number) : NULL;
        if (c && is_ahead(number, c->newest))
            *all = false;
        uint64_t start = call ? time_here(found, r, call->start_ns) : 0;
        if (start && (first == 0 || start < first))
            first = start;
    }
    return first;
}

static void add_late(struct top_meter *m, const struct job_found *found, uint64_t id, uint32_t number, uint64_t first)
{
    const uno_job *job = found->job;
    for (int r = 0; r < job->size; r++) {
        const uno_job_comm *c = comm_of(&job->ranks[r], id);
        const uno_job_call *call = c ? call_at(c, number) : NULL;
        if (!c || (!call && !is_ahead(number, c->newest)))
            continue;
        uint64_t to = time_here(found, r, call ? call->start_ns : job->ranks[r].taken_ns); /* not made yet: until it was seen */
        struct cell *cell = cell_of(m, &job->ranks[r], c);
        uint64_t begin = cell ? time_here(found, r, cell->first.taken_ns) : 0, from = first > begin ? first : begin;
        if (cell && to > from)
            cell->late_ns += to - from;
    }
}

/* Who was late to the calls that all have made since the last reading. last: and to the one that some have not made yet. */
static void count_late(struct top_meter *m, const struct job_found *found, struct group *g, bool last)
{
    const uno_job *job = found->job;
    uint32_t newest = g->seen;
    for (int r = 0; r < job->size; r++) {
        const uno_job_comm *c = comm_of(&job->ranks[r], g->id);
        if (c && is_ahead(c->newest, newest))
            newest = c->newest;
    }
    if (newest - g->seen > 4096)
        g->seen = newest - 4096; /* no ledger is that long */
    while (g->seen != newest) {
        bool all;
        uint64_t first = first_start(found, g->id, g->seen + 1, &all);
        if (!all) {
            if (last && first)
                add_late(m, found, g->id, g->seen + 1, first);
            return;
        }
        if (first)
            add_late(m, found, g->id, g->seen + 1, first);
        g->seen++;
    }
}

static bool read_all(struct top_meter *m, const uno_job *job)
{
    for (size_t i = 0; i < m->ncells; i++)
        m->cells[i].here = false;
    for (int r = 0; r < job->size; r++)
        for (size_t i = 0; i < job->ranks[r].ncomms; i++) {
            const uno_job_comm *c = &job->ranks[r].comms[i];
            struct cell *cell = c->destroyed ? NULL : cell_of(m, &job->ranks[r], c);
            if (!cell && !c->destroyed)
                return false;
            if (cell) {
                count_calls(cell, &job->ranks[r], c);
                cell->here = true;
            }
        }
    return true;
}

/* Communicators that are new begin where their last rank is. */
static bool find_groups(struct top_meter *m, const uno_job *job)
{
    for (int r = 0; r < job->size; r++)
        for (size_t i = 0; i < job->ranks[r].ncomms; i++) {
            const uno_job_comm *c = &job->ranks[r].comms[i];
            size_t had = m->ngroups;
            struct group *g = c->destroyed ? NULL : group_of(m, c->id);
            if (!g && !c->destroyed)
                return false;
            if (m->ngroups == had)
                continue;
            g->seen = c->newest;
            for (int other = 0; other < job->size; other++) {
                const uno_job_comm *o = comm_of(&job->ranks[other], c->id);
                if (o && is_ahead(g->seen, o->newest))
                    g->seen = o->newest;
            }
        }
    return true;
}

bool meter_begin(struct top_meter *m, const struct job_found *found)
{
    m->begin_ns = now_ns();
    m->ncells = 0;
    return note_clocks(m, found) && find_groups(m, found->job) && read_all(m, found->job);
}

bool meter_sample(struct top_meter *m, const struct job_found *found)
{
    const uno_job *job = found->job;
    if (!find_groups(m, job) || !read_all(m, job))
        return false;
    for (size_t i = 0; i < m->ngroups; i++)
        count_late(m, found, &m->groups[i], false);
    return true;
}

/* ---- rows --------------------------------------------------------------------------------------------------------------------- */

static const char *age(char *buf, size_t buf_bytes, uint64_t ns)
{
    if (ns < 1000000000u)
        snprintf(buf, buf_bytes, "%.0f ms", (double)ns / 1e6);
    else if (ns < 600000000000u)
        snprintf(buf, buf_bytes, "%.1f s", (double)ns / 1e9);
    else
        snprintf(buf, buf_bytes, "%.0f min", (double)ns / 60e9);
    return buf;
}

/* Do all its ranks run on this host, so that memory is the way between them? */
static bool within_host(const struct job_found *found, const uno_job_comm *c)
{
    for (int i = 0; i < c->size; i++)
        if (!found->here[job_member(c, i)])
            return false;
    return true;
}

/* For whom a call of this communicator waits: those that had not made it when they were seen after it began, else whom its rank has noted. */
static void add_awaited(char *buf, size_t buf_bytes, const struct job_found *found, const uno_job_comm *c, const uno_job_call *call, uint64_t start)
{
    const uno_job *job = found->job;
    uint64_t sure = start + (within_host(found, c) ? 0 : APART_NS);
    int first = -1, n = 0;
    for (int r = 0; r < job->size; r++) {
        const uno_job_comm *o = comm_of(&job->ranks[r], c->id);
        uint64_t seen = time_here(found, r, job->ranks[r].taken_ns);
        if (o && is_ahead(call->number, o->newest) && seen > sure && n++ == 0)
            first = r;
    }
    if (n == 0)
        first = call->waits_for;
    if (first < 0)
        return;
    size_t len = strlen(buf);
    snprintf(buf + len, buf_bytes - len, n > 1 ? ", waits for rank %d and %d more" : ", waits for rank %d", first, n - 1);
}

static void say_doing(struct top_row *row, const struct job_found *found, const uno_job_rank *r, const uno_job_comm *c)
{
    char text[24];
    const uno_job_call *call = call_at(c, c->newest);
    for (size_t i = 0; i < c->nmessages; i++)
        if (c->messages[i].waited) {
            const uno_job_message *msg = &c->messages[i];
            bool sends = strstr(msg->kind, "send") != NULL;
            char peer[32] = "any rank";
            if (msg->peer >= 0)
                snprintf(peer, sizeof peer, "rank %d", job_member(c, msg->peer));
            snprintf(row->doing, sizeof row->doing, "%s %s for %s", sends ? "send to" : "recv from", peer,
                     age(text, sizeof text, r->taken_ns > msg->since_ns ? r->taken_ns - msg->since_ns : 0));
            return;
        }
    if (c->failed) {
        snprintf(row->doing, sizeof row->doing, "failed: %s", c->failed);
    } else if (!call) {
        snprintf(row->doing, sizeof row->doing, "no collective yet");
    } else if (strcmp(call->state, "running") != 0) {
        snprintf(row->doing, sizeof row->doing, "after %s #%u", call->coll, call->number);
    } else {
        uint64_t ns = r->taken_ns > call->start_ns ? r->taken_ns - call->start_ns : 0;
        snprintf(row->doing, sizeof row->doing, "%s #%u for %s", call->coll, call->number, age(text, sizeof text, ns));
        add_awaited(row->doing, sizeof row->doing, found, c, call, time_here(found, r->rank, call->start_ns));
    }
}

static void fill_process(const struct top_meter *m, const uno_job_rank *r, struct top_row *row)
{
    const struct clocked *then = r->rank < m->nclocks ? &m->clocks[r->rank] : NULL;
    bool ended = strcmp(r->status, "dead") == 0 || strcmp(r->status, "left") == 0 || strcmp(r->run, "zombie") == 0;
    row->rank = r->rank;
    row->pid = r->pid;
    snprintf(row->host, sizeof row->host, "%s", r->host[0] ? r->host : "-");
    snprintf(row->state, sizeof row->state, "%s", ended ? "ended" : job_silent(r) ? "silent" : r->state ? (char[]){r->state, 0} : "-");
    row->cpu = -1;
    for (int i = 0; i < m->nrows; i++) /* a rank of another host is not heard of in each interval */
        if (m->rows[i].rank == r->rank && m->rows[i].pid == r->pid)
            row->cpu = m->rows[i].cpu;
    if (then && r->state && then->pid == r->pid && r->cpu_ns >= then->cpu_ns && r->taken_ns > then->taken_ns)
        row->cpu = (double)(r->cpu_ns - then->cpu_ns) / (double)(r->taken_ns - then->taken_ns);
}

/* What was measured last; a rank of another host is not heard of in each interval. */
static void fill_from_before(const struct top_meter *m, struct top_row *row)
{
    for (int i = 0; i < m->nrows; i++) {
        const struct top_row *old = &m->rows[i];
        if (old->rank != row->rank || old->comm != row->comm)
            continue;
        row->measured = old->measured;
        row->ops = old->ops;
        row->msgs = old->msgs;
        row->bytes = old->bytes;
        row->limit = old->limit;
        row->wait = old->wait;
        row->late = old->late;
    }
}

static void fill_rates(const struct top_meter *m, const struct cell *cell, double limit_bps, struct top_row *row)
{
    const struct reading *a = &cell->first, *b = &cell->last;
    double seconds = (double)(b->taken_ns - a->taken_ns) / 1e9;
    row->limit = -1;
    if (!cell->readings || b->taken_ns <= a->taken_ns) {
        fill_from_before(m, row);
        return;
    }
    double sent = (double)(b->sent_bytes - a->sent_bytes), received = (double)(b->received_bytes - a->received_bytes);
    row->measured = true;
    row->ops = (double)(b->newest - a->newest) / seconds;
    row->msgs = (double)(b->messages - a->messages) / seconds;
    row->bytes = (cell->bytes + sent + received) / seconds;
    if (limit_bps > 0) /* a message is copied once, by one of both sides */
        row->limit = (cell->bytes + (sent > received ? sent : received)) / seconds / limit_bps;
    row->wait = (double)(b->waited_ns - a->waited_ns) / 1e9 / seconds + (double)cell->waiting / cell->readings;
    row->wait = row->wait > 1 ? 1 : row->wait;
    row->late = (double)cell->late_ns / 1e9 / seconds;
    row->late = row->late > 1 ? 1 : row->late;
}

/* Slow is who is late for long, and much longer than most of its communicator's other ranks. */
static void mark_slow(struct top_row *rows, int n)
{
    for (int i = 0; i < n; i++) {
        int others = 0, below = 0;
        for (int k = 0; k < n; k++) {
            others += k != i && rows[k].comm == rows[i].comm;
            below += k != i && rows[k].comm == rows[i].comm && rows[k].late * SLOW_TIMES < rows[i].late;
        }
        rows[i].slow = rows[i].comm && rows[i].late >= SLOW_SHARE && below * 2 > others;
    }
}

/* A rank's rows, one a communicator; without any there is one for its process. Returns how many. */
static int rank_rows(struct top_meter *m, const struct job_found *found, int r, const struct top_limit *limit, struct top_row *rows)
{
    const uno_job_rank *rank = &found->job->ranks[r];
    int n = 0;
    if (job_unheard(rank))
        return 0;
    for (size_t i = 0; i < m->ncells; i++) {
        const uno_job_comm *c = m->cells[i].rank == r && m->cells[i].here ? comm_of(rank, m->cells[i].comm) : NULL;
        if (!c)
            continue;
        struct top_row *row = &rows[n++];
        row->comm = c->id;
        fill_process(m, rank, row);
        fill_rates(m, &m->cells[i], limit->everywhere || within_host(found, c) ? limit->bps : 0, row);
        job_comm_name(c, row->comm_name, sizeof row->comm_name);
        say_doing(row, found, rank, c);
    }
    if (n == 0)
        fill_process(m, rank, &rows[n++]);
    return n;
}

int meter_rows(struct top_meter *m, const struct job_found *found, const struct top_limit *limit, struct top_row **rows, double *seconds)
{
    const uno_job *job = found->job;
    int n = 0;
    if (!meter_sample(m, found))
        return -1;
    for (size_t i = 0; i < m->ngroups; i++)
        count_late(m, found, &m->groups[i], true);
    *seconds = (double)(now_ns() - m->begin_ns) / 1e9;
    struct top_row *fresh = calloc(m->ncells + (size_t)job->size, sizeof *fresh);
    if (!fresh)
        return -1;
    for (int r = 0; r < job->size; r++)
        n += rank_rows(m, found, r, limit, fresh + n);
    mark_slow(fresh, n);
    free(m->rows);
    m->rows = *rows = fresh;
    m->nrows = n;
    return n;
}
