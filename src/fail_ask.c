/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail_ask.c - calls that do not fit together and share no message, between hosts: who waits sends its newest events to the rank
 * it waits for; that rank's steward compares them with its own ledger and, where they differ, fails the communicator everywhere
 * with both sides' values, also if its own call has long returned. Asking: walk lock held; answering: the steward's thread.
 */
#include "comm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define ASK_FIRST_NS 10000000ull
#define ASK_SECOND_NS 100000000ull
#define ASK_AGAIN_NS 1000000000ull
#define ASK_EVENTS 64          /* so far back the beginning of a disagreement is looked for */
#define ASK_MOST_PEERS 32
#define ANSWER_NS 300000000ull /* a mismatch that was seen here waits so long for the sentence with both sides */

/* As it lies in memory on the wire, little-endian like all frames. */
struct ask_event {
    uint32_t number, signature;
    uint8_t coll, type, zero[2];
    int32_t root, op;
    uint32_t zero_too;
    uint64_t count;
    char site[LEDGER_SITE_BYTES]; /* where it stands in the program; "" = not known */
};
struct ask {
    uint64_t comm_id;
    int32_t from, to;          /* comm ranks */
    uint32_t nevents, ncounts; /* ncounts: the ranks, or 0; so many uint64_t follow the events: what the newest one passes for each */
    struct ask_event event[ASK_EVENTS]; /* newest first */
};
_Static_assert(sizeof(struct ask_event) == 32 + LEDGER_SITE_BYTES && offsetof(struct ask, event) == 24, "no holes travel");

static uint32_t own_events(const uno_comm *c, uint32_t number, struct ask_event *event)
{
    const struct ledger_event *ring = net_region_ledger(c->region);
    struct ledger_event e;
    uint32_t n = 0;
    while (n < ASK_EVENTS && number - n != 0 && ledger_read(ring, number - n, &e) && e.number == number - n) {
        event[n] = (struct ask_event){.number = e.number, .signature = e.signature, .coll = e.coll, .type = e.type, .root = e.root,
                                      .op = e.op, .count = e.count};
        (void)ledger_site(c->notes, e.call_site, event[n++].site);
    }
    return n;
}

static void ask(const uno_comm *c, int peer, uint32_t number)
{
    size_t counts = (size_t)c->size * sizeof(uint64_t);
    struct ask *a = mem_zalloc(sizeof *a + counts);
    if (!a)
        return;
    *a = (struct ask){.comm_id = c->id, .from = c->rank, .to = peer};
    a->nevents = own_events(c, number, a->event);
    size_t bytes = offsetof(struct ask, event) + a->nevents * sizeof a->event[0];
    if (bytes + counts <= WATCH_MESSAGE_BYTES && fail_passed_read(c, c->rank, number, (uint64_t *)((char *)a + bytes))) {
        a->ncounts = (uint32_t)c->size;
        bytes += counts;
    }
    if (watch_tell(c->job->watch, c->job->members[c->job_rank[peer]].process, WATCH_MESSAGE_ASK, a, bytes) != UNO_OK)
        LOG(LOG_DEBUG, LOG_COLL, "rank %d cannot ask rank %d what it calls: %s", c->rank, peer, err_text());
    free(a);
}

void fail_ask(uno_comm *c, uint32_t number, uint64_t now)
{
    const char *what;
    if (c->ask_number != number) {
        c->ask_number = number;
        c->ask_ns = now + ASK_FIRST_NS;
        c->ask_step_ns = ASK_SECOND_NS - ASK_FIRST_NS;
    }
    if (now < c->ask_ns)
        return;
    c->ask_ns = now + c->ask_step_ns;
    c->ask_step_ns = ASK_AGAIN_NS;
    int peer = exec_blame(c->run, &what);
    if (peer >= 0 && peer != c->rank && !c->regions[peer])
        ask(c, peer, number);
}

/* Who answers fails the communicator with the whole sentence; this waits for it to arrive. */
void fail_ask_everyone(uno_comm *c, uint32_t number)
{
    int asked = 0;
    for (int r = 0; r < c->size && asked < ASK_MOST_PEERS; r++)
        if (!c->regions[r]) {
            ask(c, r, number);
            asked++;
        }
    uint64_t until = clock_ns() + ANSWER_NS; /* acquire: pairs with the release in comm_fail */
    while (asked && atomic_load_explicit(&c->failed, memory_order_acquire) == UNO_OK && clock_ns() < until) {
        if (c->env.proc)
            (void)net_progress(c->env.proc);
        sched_yield();
    }
}

/* Signatures are chained: the oldest one of those that differ without a gap is where it began. NULL: they agree. */
static const struct ask_event *first_difference(const uno_comm *c, const struct ask *a, struct ledger_event *own)
{
    const struct ledger_event *ring = net_region_ledger(c->region);
    const struct ask_event *found = NULL;
    for (uint32_t i = 0; i < a->nevents; i++) {
        const struct ask_event *e = &a->event[i];
        struct ledger_event mine;
        if (e->number == 0 || !ledger_read(ring, e->number, &mine) || mine.number != e->number || mine.signature == e->signature)
            break;
        *own = mine;
        found = e;
    }
    return found;
}

static void read_ask(struct ask *a, const void *data, size_t bytes)
{
    *a = (struct ask){0};
    if (bytes >= offsetof(struct ask, event))
        memcpy(a, data, MIN(bytes, sizeof *a));
}

static const char *clean(char site[LEDGER_SITE_BYTES])
{
    site[LEDGER_SITE_BYTES - 1] = 0;
    for (char *s = site; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
    return site;
}

/* The communicator fails everywhere, with what both sides call. counts: what the asker passes for each rank, behind its events. */
static void fail_with(uno_comm *c, const struct ask *a, const void *counts, const struct ledger_event *own, const struct ask_event *e)
{
    char text[ERR_TEXT_BYTES], site[LEDGER_SITE_BYTES];
    const struct ledger_event theirs = {.number = e->number, .signature = e->signature, .coll = e->coll, .type = e->type, .root = e->root,
                                        .op = e->op, .count = e->count};
    bool told = a->ncounts == (uint32_t)c->size && own->number == a->event[0].number;
    uint64_t *passed = told ? mem_array((size_t)c->size, sizeof *passed) : NULL;
    if (passed)
        memcpy(passed, counts, (size_t)c->size * sizeof *passed);
    memcpy(site, e->site, sizeof site);
    (void)fail_say_mismatch(c, a->from, own->number, own, &theirs, &(struct fail_told){.passed = passed, .site = clean(site)});
    free(passed);
    snprintf(text, sizeof text, "%s", err_text());
    (void)comm_fail(c, UNO_ERR_MISMATCH, a->from, true, text);
}

void fail_asked(struct job *job, int from_process, const void *data, size_t bytes)
{
    struct ask a;
    size_t head = offsetof(struct ask, event);
    read_ask(&a, data, bytes);
    size_t events_end = head + a.nevents * sizeof a.event[0], counts = a.ncounts * sizeof(uint64_t);
    if (bytes < head || a.nevents > ASK_EVENTS || bytes != events_end + counts) {
        LOG(LOG_INFO, LOG_WATCH, "process %d asks in %zu bytes, which is no question; ignored", from_process, bytes);
        return;
    }
    uno_comm *c = job_find(job, a.comm_id);
    if (!c)
        return; /* not made yet, or destroyed: the verdict says so if somebody waits */
    bool member = a.to == c->rank && a.from >= 0 && a.from < c->size && a.from != c->rank &&
                  job->members[c->job_rank[a.from]].process == from_process;
    struct ledger_event own;
    const struct ask_event *theirs = NULL;
    /* acquire: pairs with comm_assemble and with the release in comm_fail */
    if (member && atomic_load_explicit(&c->ready, memory_order_acquire) && atomic_load_explicit(&c->failed, memory_order_acquire) == UNO_OK)
        theirs = first_difference(c, &a, &own);
    if (theirs)
        fail_with(c, &a, (const char *)data + events_end, &own, theirs);
    comm_release(c);
}
