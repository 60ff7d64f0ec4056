/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_record.c - one rank's facts as bytes. The layout is described once, by functions that visit every field; a codec that
 * measures, writes or reads is their first argument. All numbers are 64 bits, little-endian; a text is its length and its bytes.
 * What is read was perhaps written by a stranger: every number is checked against its range, every count against the bytes left.
 */
#include "verdict/verdict.h"

#include <stdlib.h>
#include <string.h>

static const unsigned char magic[8] = {'U', 'N', 'O', 'F', 'A', 'C', 'T', 'S'};
#define MOST_RANKS (1u << 16)   /* as many as can join (boot.h) */
#define MOST_EVENTS 1024u
#define MOST_MEMBERS (4u << 20) /* of all communicators of one record together: bounds what a short record can make us allocate */

enum mode { MEASURE, WRITE, READ };
struct codec {
    enum mode mode;
    unsigned char *at, *end;  /* WRITE, READ */
    size_t bytes;             /* MEASURE */
    uint64_t members;         /* READ: entries allocated so far */
    uno_err err;              /* the first; everything after it does nothing */
};

static void refuse(struct codec *c, const char *what)
{
    if (c->err == UNO_OK)
        c->err = err_set(UNO_ERR_PARSE, "the record is damaged: %s; it was not written by this library, or changed since", what);
}

/* ---- one field --------------------------------------------------------------------------------------------------- */

/* Writes v; reading, returns what stands there (0 after an error). */
static uint64_t word(struct codec *c, uint64_t v)
{
    c->bytes += 8;
    if (c->mode == MEASURE || c->err != UNO_OK)
        return c->mode == READ ? 0 : v;
    if ((size_t)(c->end - c->at) < 8) {
        refuse(c, "it ends within a number");
        return 0;
    }
    if (c->mode == WRITE)
        put_le(c->at, v, 8);
    else
        v = get_le(c->at, 8);
    c->at += 8;
    return v;
}

static void u64(struct codec *c, uint64_t *v)
{
    uint64_t got = word(c, *v);
    if (c->mode == READ)
        *v = got;
}

/* A number from 0 to most. */
static void u32(struct codec *c, uint32_t *v, uint32_t most, const char *what)
{
    uint64_t got = word(c, *v);
    if (c->mode != READ)
        return;
    if (got > most)
        refuse(c, what);
    *v = c->err == UNO_OK ? (uint32_t)got : 0;
}

static void u8(struct codec *c, uint8_t *v, uint32_t most, const char *what)
{
    uint32_t wide = *v;
    u32(c, &wide, most, what);
    if (c->mode == READ)
        *v = (uint8_t)wide;
}

static void flag(struct codec *c, bool *v)
{
    uint32_t wide = *v;
    u32(c, &wide, 1, "a yes or no is neither");
    if (c->mode == READ)
        *v = wide != 0;
}

static void i32(struct codec *c, int32_t *v, int32_t least, int32_t most, const char *what)
{
    int64_t got = (int64_t)word(c, (uint64_t)(int64_t)*v);
    if (c->mode != READ)
        return;
    if (c->err == UNO_OK && (got < least || got > most))
        refuse(c, what);
    *v = c->err == UNO_OK ? (int32_t)got : 0;
}

static void text_field(struct codec *c, char *text, size_t room, bool lines)
{
    size_t n = c->mode == READ ? 0 : strnlen(text, room - 1);
    n = (size_t)word(c, n);
    if (c->mode == MEASURE) {
        c->bytes += n;
        return;
    }
    if (c->err == UNO_OK && (n >= room || n > (size_t)(c->end - c->at)))
        refuse(c, "a text is longer than its place");
    if (c->err != UNO_OK)
        return;
    if (c->mode == WRITE) {
        memcpy(c->at, text, n);
        text_clean((char *)c->at, n, lines);
    } else {
        if (memchr(c->at, 0, n)) {
            refuse(c, "a text has a zero inside");
            return;
        }
        memcpy(text, c->at, n);
        text[n] = 0;
        text_clean(text, n, lines);
    }
    c->at += n;
}
#define TEXT(c, field) text_field((c), (field), sizeof(field), false)

/* How many elements follow; reading, *array is allocated. each_words: the least that one element takes. false: do not go on. */
static bool count(struct codec *c, uint32_t *n, void *array_ptr, size_t each_bytes, size_t each_words, uint32_t most)
{
    u32(c, n, most, "a table is longer than any can be");
    if (c->mode != READ || c->err != UNO_OK || *n == 0)
        return c->err == UNO_OK;
    if (*n > (size_t)(c->end - c->at) / (8 * each_words)) {
        refuse(c, "a table is longer than the record");
        *n = 0;
        return false;
    }
    void *array = mem_array(*n, each_bytes);
    if (!array) {
        c->err = UNO_ERR_MEMORY;
        *n = 0;
        return false;
    }
    memcpy(array_ptr, &array, sizeof array);
    return true;
}

/* ---- structs ------------------------------------------------------------------------------------------------------- */

#define EVENT_WORDS 20
static void event(struct codec *c, struct verdict_event *e)
{
    u32(c, &e->number, UINT32_MAX, "a number");
    u32(c, &e->signature, UINT32_MAX, "a signature");
    u8(c, &e->coll, UINT8_MAX, "a collective");
    u8(c, &e->type, UINT8_MAX, "a type");
    u8(c, &e->state, VERDICT_FAILED, "an operation is in no state that exists");
    u8(c, &e->wait, VERDICT_WAIT_SLEEP, "a wait is of no kind that exists");
    u8(c, &e->blocks, VERDICT_PROGRAM_GOES_ON, "a program neither waits nor goes on");
    i32(c, &e->op, INT32_MIN, INT32_MAX, "an op");
    i32(c, &e->root, INT32_MIN, INT32_MAX, "a root");
    i32(c, &e->waits_for, -1, INT32_MAX, "an operation waits for a rank that cannot be");
    i32(c, &e->step, -1, INT32_MAX, "a step that cannot be");
    u32(c, &e->tile, UINT32_MAX, "a tile");
    uint64_t *words[] = {&e->count, &e->bytes_moved, &e->bytes_total, &e->start_ns, &e->end_ns, &e->wait_since_ns, &e->moved_ns,
                         &e->call_site};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        u64(c, words[i]);
    TEXT(c, e->site);
}

#define P2P_WORDS 11
static void p2p(struct codec *c, struct verdict_p2p *p)
{
    u8(c, &p->kind, VERDICT_IRECV, "a send or receive is neither");
    if (c->mode == READ && p->kind == 0)
        refuse(c, "a send or receive is neither");
    flag(c, &p->waited);
    flag(c, &p->matched);
    i32(c, &p->peer, UNO_ANY, MOST_RANKS, "a peer that cannot be");
    i32(c, &p->tag, INT32_MIN, INT32_MAX, "a tag");
    u8(c, &p->type, UINT8_MAX, "a type");
    u32(c, &p->number, UINT32_MAX, "a number");
    u64(c, &p->bytes);
    u64(c, &p->bytes_moved);
    u64(c, &p->since_ns);
    TEXT(c, p->site);
}

#define CALL_WORDS 8
static void call(struct codec *c, struct verdict_call *k)
{
    int32_t coll = k->coll;
    u64(c, &k->order);
    i32(c, &coll, -1, INT8_MAX, "a collective");
    k->coll = (int8_t)coll;
    u8(c, &k->type, UINT8_MAX, "a type");
    i32(c, &k->op, INT32_MIN, INT32_MAX, "an op");
    i32(c, &k->root, INT32_MIN, INT32_MAX, "a root");
    u64(c, &k->count);
    u64(c, &k->since_ns);
    TEXT(c, k->site);
}

static void behind(struct codec *c, struct verdict_behind *b)
{
    u8(c, &b->before, VERDICT_BEFORE_EVENT, "a call waits for nothing that exists");
    if (c->err != UNO_OK || b->before == VERDICT_BEFORE_NOTHING)
        return;
    u8(c, &b->p2p, VERDICT_RECV, "a call before another is of no kind that exists");
    u64(c, &b->comm_id);
    u32(c, &b->epoch, UINT32_MAX, "an epoch");
    call(c, &b->call);
}

/* Members are runs: first, stride, how many. */
struct member_run { int32_t first, stride; uint32_t n; };

static struct member_run member_run_at(const int32_t *members, uint32_t size, uint32_t i)
{
    struct member_run r = {members[i], 1, 1};
    if (i + 1 < size && members[i + 1] > members[i])
        r.stride = members[i + 1] - members[i];
    while (i + r.n < size && (int64_t)members[i + r.n] == (int64_t)r.first + (int64_t)r.stride * r.n)
        r.n++;
    return r;
}

static void members_write(struct codec *c, const int32_t *members, uint32_t size)
{
    for (uint32_t i = 0; i < size;) {
        struct member_run r = member_run_at(members, size, i);
        (void)word(c, (uint32_t)r.first);
        (void)word(c, (uint32_t)r.stride);
        (void)word(c, r.n);
        i += r.n;
    }
}

static void members_read(struct codec *c, struct verdict_comm *m, uint32_t job_size)
{
    uint32_t size = (uint32_t)m->size;
    c->members += size;
    if (c->members > MOST_MEMBERS)
        refuse(c, "its communicators have more members than any job");
    if (c->err == UNO_OK && !(m->members = mem_array(size, sizeof *m->members)))
        c->err = UNO_ERR_MEMORY;
    for (uint32_t i = 0; i < size && c->err == UNO_OK;) {
        uint64_t first = word(c, 0), stride = word(c, 0), n = word(c, 0);
        if (c->err == UNO_OK && (n == 0 || n > size - i || first >= job_size || stride == 0 || stride > job_size ||
                                 first + stride * (n - 1) >= job_size))
            refuse(c, "a communicator has members outside the job");
        for (uint64_t k = 0; k < n && c->err == UNO_OK; k++)
            m->members[i++] = (int32_t)(first + stride * k);
    }
}

static void check_comm(struct codec *c, const struct verdict_comm *m, uint32_t job_size)
{
    if (m->size < 1 || (uint32_t)m->size > job_size || m->rank < 0 || m->rank >= m->size)
        refuse(c, "a communicator is larger than its job, or has a member beyond its size");
    for (uint32_t i = 0; i < m->nevents && c->err == UNO_OK; i++)
        if (m->events[i].number != m->newest - (m->nevents - 1 - i) || m->events[i].waits_for >= m->size)
            refuse(c, "a ledger's events have gaps, or wait for ranks that are not there");
    for (uint32_t i = 0; i < m->np2p && c->err == UNO_OK; i++)
        if (m->p2p[i].peer >= m->size)
            refuse(c, "a send or receive has a peer that is not there");
}

static void making(struct codec *c, struct verdict_making *m)
{
    u8(c, &m->kind, VERDICT_MAKES_SHRUNK, "a communicator is made in no way that exists");
    if (m->kind == VERDICT_MAKES_NOTHING)
        return;
    u64(c, &m->id);
    u64(c, &m->since_ns);
    for (size_t i = 0; i < ARRAY_LEN(m->set); i++)
        u64(c, &m->set[i]);
}

#define COMM_WORDS 26
static void comm(struct codec *c, struct verdict_comm *m, uint32_t job_size)
{
    u64(c, &m->id);
    u32(c, &m->epoch, UINT32_MAX, "an epoch");
    TEXT(c, m->name);
    i32(c, &m->rank, 0, MOST_RANKS, "a rank that cannot be");
    i32(c, &m->size, 1, MOST_RANKS, "a communicator of a size that cannot be");
    bool listed = m->members != NULL;
    flag(c, &listed);
    if (c->mode == READ && c->err == UNO_OK && ((uint32_t)m->size > job_size || (!listed && (uint32_t)m->size != job_size)))
        refuse(c, "a communicator does not fit its job");
    if (listed && c->err == UNO_OK && c->mode == READ)
        members_read(c, m, job_size);
    else if (listed && c->err == UNO_OK)
        members_write(c, m->members, (uint32_t)m->size);
    flag(c, &m->destroyed);
    u32(c, &m->newest, UINT32_MAX, "a number");
    u64(c, &m->newest_order);
    u64(c, &m->sends);
    u64(c, &m->receives);
    u64(c, &m->sent_bytes);
    u64(c, &m->received_bytes);
    u64(c, &m->waited_ns);
    u32(c, &m->left_out, UINT32_MAX, "a count");
    i32(c, &m->failed, 0, 1000, "an error that cannot be");
    i32(c, &m->failed_rank, -1, MOST_RANKS, "a rank that cannot be");
    u64(c, &m->failed_ns);
    TEXT(c, m->failed_text);
    if (count(c, &m->nevents, &m->events, sizeof *m->events, EVENT_WORDS, MOST_EVENTS))
        for (uint32_t i = 0; i < m->nevents; i++)
            event(c, &m->events[i]);
    if (count(c, &m->np2p, &m->p2p, sizeof *m->p2p, P2P_WORDS, UINT32_MAX))
        for (uint32_t i = 0; i < m->np2p; i++)
            p2p(c, &m->p2p[i]);
    if (count(c, &m->ncalls, &m->calls, sizeof *m->calls, CALL_WORDS, UINT32_MAX))
        for (uint32_t i = 0; i < m->ncalls; i++)
            call(c, &m->calls[i]);
    behind(c, &m->behind);
    u32(c, &m->passed_number, UINT32_MAX, "a number");
    if (count(c, &m->npassed, &m->passed, sizeof *m->passed, 1, VERDICT_MOST_PASSED))
        for (uint32_t i = 0; i < m->npassed; i++)
            u64(c, &m->passed[i]);
    making(c, &m->making);
    if (c->mode == READ && c->err == UNO_OK)
        check_comm(c, m, job_size);
}

#define LINK_WORDS 14
static void link_fields(struct codec *c, struct verdict_link *l)
{
    i32(c, &l->from_host, -1, MOST_RANKS, "a host that cannot be");
    i32(c, &l->to_host, -1, MOST_RANKS, "a host that cannot be");
    u8(c, &l->state, VERDICT_PATH_MUTE, "a path is in no state that exists");
    u64(c, &l->since_ns);
    TEXT(c, l->from_if);
    TEXT(c, l->to_if);
    TEXT(c, l->from_addr);
    TEXT(c, l->to_addr);
    flag(c, &l->from_if_down);
    u64(c, &l->measured_bps);
    u64(c, &l->expected_bps);
    u64(c, &l->lately_bps);
    u64(c, &l->behind_ns);
    u64(c, &l->behind_bps);
}

static void process(struct codec *c, struct verdict_process *p)
{
    u8(c, &p->run, VERDICT_RUN_REPLACED, "a process is in no state that exists");
    u64(c, &p->run_since_ns);
    u8(c, &p->state, 'z', "a process is in no state that exists");
    if (c->mode == READ && p->state && (p->state < 'A' || (p->state > 'Z' && p->state < 'a')))
        refuse(c, "a process is in no state that exists");
    u64(c, &p->cpu_ns);
    u64(c, &p->sample_ns);
    u32(c, &p->cpu_permille, UINT32_MAX, "a share");
    u32(c, &p->queue_permille, UINT32_MAX, "a share");
    i32(c, &p->tracer_pid, INT32_MIN, INT32_MAX, "a pid");
    TEXT(c, p->tracer);
    TEXT(c, p->syscall);
    TEXT(c, p->wchan);
    TEXT(c, p->successor);
    TEXT(c, p->cgroup);
    flag(c, &p->in_library);
    TEXT(c, p->python);
    text_field(c, p->stack, sizeof p->stack, true);
}

static void clock_fields(struct codec *c, struct verdict_offset *k)
{
    uint64_t offset = (uint64_t)k->offset_ns;
    flag(c, &k->known);
    u64(c, &offset);
    k->offset_ns = (int64_t)offset;
    u64(c, &k->error_ns);
}

static void rank_fields(struct codec *c, struct verdict_rank *r)
{
    i32(c, &r->size, 1, MOST_RANKS, "a job of a size that cannot be");
    i32(c, &r->rank, 0, r->size > 0 ? r->size - 1 : 0, "its rank is outside the job");
    u64(c, &r->job);
    u8(c, &r->status, VERDICT_NEVER_JOINED, "a rank is in no state that exists");
    u8(c, &r->ended, VERDICT_ENDED_AGENT, "a process ended in no way that exists");
    i32(c, &r->ended_code, INT32_MIN, INT32_MAX, "an exit status");
    flag(c, &r->oom_kill);
    i32(c, &r->host_index, -1, MOST_RANKS, "a host that cannot be");
    TEXT(c, r->host);
    i32(c, &r->pid, INT32_MIN, INT32_MAX, "a pid");
    i32(c, &r->reporter, -1, MOST_RANKS, "a rank that cannot be");
    u64(c, &r->taken_ns);
    u64(c, &r->taken_real_ns);
    u64(c, &r->refused);
    clock_fields(c, &r->clock);
    u64(c, &r->status_since_ns);
    u32(c, &r->children_left, UINT32_MAX, "a count");
    for (int i = 0; i < VERDICT_CHILDREN; i++)
        i32(c, &r->children[i], 0, INT32_MAX, "a pid");
    TEXT(c, r->program);
    process(c, &r->process);
    u32(c, &r->comms_left_out, UINT32_MAX, "a count");
    u32(c, &r->links_left_out, UINT32_MAX, "a count");
    if (count(c, &r->ncomms, &r->comms, sizeof *r->comms, COMM_WORDS, UINT32_MAX))
        for (uint32_t i = 0; i < r->ncomms; i++)
            comm(c, &r->comms[i], (uint32_t)r->size);
    if (count(c, &r->nlinks, &r->links, sizeof *r->links, LINK_WORDS, UINT32_MAX))
        for (uint32_t i = 0; i < r->nlinks; i++)
            link_fields(c, &r->links[i]);
}

/* ---- what does not fit is left out --------------------------------------------------------------------------------- */

struct limits { uint32_t links, events, calls, p2p, stack, passed; };
static const struct limits levels[] = {
    {64, MOST_EVENTS, 4096, 4096, 768, VERDICT_MOST_PASSED}, {64, 256, 1024, 1024, 768, VERDICT_MOST_PASSED}, {32, 64, 256, 256, 768, 512},
    {16, 32, 64, 64, 768, 256}, {16, 16, 32, 32, 768, 128}, {8, 8, 16, 16, 512, 64}, {4, 4, 8, 8, 256, 32}, {2, 2, 4, 4, 128, 16},
};

/* Nothing runs, nothing is pending, nothing has failed. */
static bool idle(const struct verdict_comm *m)
{
    return m->np2p == 0 && m->ncalls == 0 && m->failed == UNO_OK &&
           (m->nevents == 0 || m->events[m->nevents - 1].state != VERDICT_RUNNING);
}

/* A shallow copy of *m within the limits: the newest events, the oldest calls and messages. */
static void cut_comm(struct verdict_comm *m, const struct limits *most)
{
    if (m->nevents > most->events) {
        m->events += m->nevents - most->events;
        m->nevents = most->events;
    }
    if (m->ncalls > most->calls) {
        m->left_out += m->ncalls - most->calls;
        m->ncalls = most->calls;
    }
    if (m->np2p > most->p2p) {
        m->left_out += m->np2p - most->p2p;
        m->np2p = most->p2p;
    }
    m->npassed = MIN(m->npassed, most->passed);
}

static size_t measure(struct verdict_rank *r)
{
    struct codec c = {.mode = MEASURE};
    rank_fields(&c, r);
    return VERDICT_HEAD_BYTES + c.bytes;
}

static void cut(struct verdict_rank *r, const struct verdict_rank *whole, const struct limits *most)
{
    for (uint32_t i = 0; i < whole->ncomms; i++) {
        r->comms[i] = whole->comms[i];
        cut_comm(&r->comms[i], most);
    }
    r->nlinks = MIN(whole->nlinks, most->links);
    r->links_left_out = whole->links_left_out + (whole->nlinks - r->nlinks);
    if (strnlen(r->process.stack, sizeof r->process.stack) > most->stack - 1)
        r->process.stack[most->stack - 1] = 0;
}

static void drop_comm(struct verdict_rank *r, uint32_t which)
{
    memmove(&r->comms[which], &r->comms[which + 1], (r->ncomms - which - 1) * sizeof *r->comms);
    r->ncomms--;
    r->comms_left_out++;
}

/* Idle communicators from the last one on, then the last ones, until it fits. */
static size_t drop_comms(struct verdict_rank *r, size_t bytes, size_t cap)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = r->ncomms; i-- > 0 && bytes > cap;)
            if (pass == 1 || idle(&r->comms[i])) {
                struct codec c = {.mode = MEASURE};
                comm(&c, &r->comms[i], (uint32_t)r->size);
                bytes -= c.bytes;
                drop_comm(r, i);
            }
    return bytes;
}

uno_err verdict_encode(const struct verdict_rank *whole, void *buf, size_t cap, size_t *bytes)
{
    cap = MIN(cap, (size_t)VERDICT_RECORD_LIMIT);
    if (cap < VERDICT_RECORD_MIN)
        return err_set(UNO_ERR_ARG, "a record needs room for %u bytes, there are %zu", VERDICT_RECORD_MIN, cap);
    if (whole->size < 1 || whole->rank < 0 || whole->rank >= whole->size)
        return err_set(UNO_ERR_ARG, "a record of rank %d of %d cannot be", whole->rank, whole->size);
    struct verdict_rank r = *whole;
    r.comms = mem_array(MAX(whole->ncomms, 1u), sizeof *r.comms);
    if (!r.comms)
        return UNO_ERR_MEMORY;
    size_t need = SIZE_MAX;
    for (size_t i = 0; i < ARRAY_LEN(levels) && need > cap; i++) {
        cut(&r, whole, &levels[i]);
        need = measure(&r);
    }
    need = drop_comms(&r, need, cap);
    unsigned char *out = buf;
    struct codec c = {.mode = WRITE, .at = out + VERDICT_HEAD_BYTES, .end = out + cap};
    rank_fields(&c, &r);
    free(r.comms);
    if (c.err != UNO_OK)
        return c.err;
    *bytes = (size_t)(c.at - out);
    memcpy(out, magic, sizeof magic);
    put_le(out + 8, VERDICT_RECORD_VERSION, 8);
    put_le(out + 16, *bytes, 8);
    put_le(out + 24, hash128(out + VERDICT_HEAD_BYTES, *bytes - VERDICT_HEAD_BYTES, VERDICT_RECORD_VERSION).lo, 8);
    return UNO_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

uno_err verdict_record_bytes(const void *data, size_t bytes, size_t *record_bytes)
{
    const unsigned char *in = data;
    if (bytes < VERDICT_HEAD_BYTES)
        return err_set(UNO_ERR_PARSE, "the record is cut off: %zu bytes, its head alone has %d", bytes, VERDICT_HEAD_BYTES);
    if (memcmp(in, magic, sizeof magic) != 0)
        return err_set(UNO_ERR_PARSE, "this is not a record of Unisono's facts: it does not begin with \"%.8s\"", (const char *)magic);
    if (get_le(in + 8, 8) != VERDICT_RECORD_VERSION)
        return err_set(UNO_ERR_PARSE, "the record has version %llu, this library reads version %d; use the `unisono` of the job",
                       (unsigned long long)get_le(in + 8, 8), VERDICT_RECORD_VERSION);
    uint64_t length = get_le(in + 16, 8);
    if (length < VERDICT_HEAD_BYTES || length > VERDICT_RECORD_LIMIT)
        return err_set(UNO_ERR_PARSE, "the record is damaged: a length of %llu bytes cannot be", (unsigned long long)length);
    *record_bytes = (size_t)length;
    return UNO_OK;
}

uno_err verdict_decode(const void *data, size_t bytes, struct verdict_rank *r)
{
    unsigned char *in = (unsigned char *)(uintptr_t)data; /* only read; the codec's pointer also serves writing */
    size_t length;
    memset(r, 0, sizeof *r);
    TRY(verdict_record_bytes(data, bytes, &length));
    if (length > bytes)
        return err_set(UNO_ERR_PARSE, "the record is cut off: %zu of its %zu bytes are there", bytes, length);
    if (length < bytes)
        return err_set(UNO_ERR_PARSE, "the record is damaged: %zu bytes stand behind its end", bytes - length);
    if (get_le(in + 24, 8) != hash128(in + VERDICT_HEAD_BYTES, length - VERDICT_HEAD_BYTES, VERDICT_RECORD_VERSION).lo)
        return err_set(UNO_ERR_PARSE, "the record is damaged: its checksum is wrong");
    struct codec c = {.mode = READ, .at = in + VERDICT_HEAD_BYTES, .end = in + length};
    rank_fields(&c, r);
    if (c.err == UNO_OK && c.at != c.end)
        refuse(&c, "it goes on behind its last field");
    if (c.err != UNO_OK)
        verdict_rank_free(r);
    return c.err;
}

void verdict_rank_free(struct verdict_rank *r)
{
    for (uint32_t i = 0; i < r->ncomms; i++) {
        struct verdict_comm *m = &r->comms[i];
        free(m->members);
        free(m->events);
        free(m->p2p);
        free(m->calls);
        free(m->passed);
    }
    free(r->comms);
    free(r->links);
    memset(r, 0, sizeof *r);
}
