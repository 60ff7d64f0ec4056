/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_agree.c - the agreement behind shrink: acceptor, proposer and learner of one rank. Pure; see watch_agree.h.
 *
 * A ballot is round << 32 | rank + 1; 0 is none. Message, little-endian: 0 magic "ag", 2 version, 3 flags, 4 sender, 8 size, 12 phase,
 * 16 sequence number, 24 promised, 32 accepted, 40 proposing, 48 the accepted set, then the proposed set.
 */
#include "watch/watch_agree.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x6761u
#define VERSION 1
#define HEADER_BYTES 48
#define PUSHES 30 /* so often a decision is repeated to who has not confirmed it; later only when asked */

enum { FLAG_CALLED = 1, FLAG_DECIDED = 2, FLAG_LEFT = 4 };
enum phase { IDLE = 0, PREPARE = 1, ACCEPT = 2 };

struct other {                 /* what is known of a member, ourselves included */
    uint64_t seq, heard_ns;    /* of the newest message; 0 = none */
    uint64_t promised, accepted;
    bool gone, lost, called, knows;
};

struct agree {
    int rank, size;
    struct agree_times times;
    struct other *others;
    /* acceptor and learner */
    uint64_t promised, accepted;
    unsigned char *value;      /* accepted */
    bool decided, conflict;
    /* proposer */
    bool called, ever_called;
    uint64_t called_ns, announce_ns;
    unsigned char *exclude;
    uint64_t ballot;
    enum phase phase;
    uint64_t best;             /* highest ballot accepted by who promised */
    unsigned char *proposal, *best_value;
    uint64_t resend_ns, again_ns, push_ns;
    uint32_t round;            /* highest seen */
    int pushes;
    /* out */
    uint64_t seq;
    bool *due;
    bool any_due;
};

uno_err agree_new(int rank, int size, const struct agree_times *times, struct agree **out)
{
    if (size > AGREE_MAX_RANKS)
        return err_set(UNO_ERR_UNSUPPORTED, "a communicator of %d ranks cannot be shrunk; at most %d", size, AGREE_MAX_RANKS);
    struct agree *a = mem_zalloc(sizeof *a);
    if (!a)
        return UNO_ERR_MEMORY;
    size_t n = agree_set_bytes(size);
    a->rank = rank;
    a->size = size;
    a->times = *times;
    a->others = mem_array((size_t)size, sizeof *a->others);
    a->due = mem_array((size_t)size, sizeof *a->due);
    a->value = mem_zalloc(n);
    a->exclude = mem_zalloc(n);
    a->proposal = mem_zalloc(n);
    a->best_value = mem_zalloc(n);
    if (!a->others || !a->due || !a->value || !a->exclude || !a->proposal || !a->best_value) {
        agree_free(a);
        return UNO_ERR_MEMORY;
    }
    *out = a;
    return UNO_OK;
}

void agree_free(struct agree *a)
{
    if (!a)
        return;
    free(a->others);
    free(a->due);
    free(a->value);
    free(a->exclude);
    free(a->proposal);
    free(a->best_value);
    free(a);
}

/* ---- what goes out --------------------------------------------------------------------------------------------------------- */

static void due(struct agree *a, int to)
{
    if (to == a->rank || a->others[to].gone)
        return;
    a->due[to] = a->any_due = true;
}

static void due_all(struct agree *a)
{
    for (int r = 0; r < a->size; r++)
        due(a, r);
}

bool agree_any_due(const struct agree *a)
{
    return a->any_due;
}

bool agree_due(const struct agree *a, int to)
{
    return a->due[to];
}

size_t agree_message_bytes(int size)
{
    return HEADER_BYTES + 2 * agree_set_bytes(size);
}

static void write_header(unsigned char *b, int flags, int rank, int size, int phase, uint64_t seq)
{
    put_le(b, MAGIC, 2);
    put_le(b + 2, VERSION, 1);
    put_le(b + 3, (uint64_t)flags, 1);
    put_le(b + 4, (uint32_t)rank, 4);
    put_le(b + 8, (uint32_t)size, 4);
    put_le(b + 12, (uint64_t)phase, 4);
    put_le(b + 16, seq, 8);
}

void agree_write(struct agree *a, void *buf)
{
    unsigned char *b = buf;
    size_t n = agree_set_bytes(a->size);
    write_header(b, (a->called ? FLAG_CALLED : 0) | (a->decided ? FLAG_DECIDED : 0), a->rank, a->size, (int)a->phase, ++a->seq);
    put_le(b + 24, a->promised, 8);
    put_le(b + 32, a->accepted, 8);
    put_le(b + 40, a->phase == IDLE ? 0 : a->ballot, 8);
    memcpy(b + HEADER_BYTES, a->value, n);
    memcpy(b + HEADER_BYTES + n, a->proposal, n);
    memset(a->due, 0, (size_t)a->size * sizeof *a->due);
    a->any_due = false;
}

void agree_write_left(int rank, int size, void *buf)
{
    memset(buf, 0, agree_message_bytes(size));
    write_header(buf, FLAG_LEFT, rank, size, IDLE, UINT64_MAX);
}

/* ---- acceptor and learner ------------------------------------------------------------------------------------------------------ */

static void saw_ballot(struct agree *a, uint64_t ballot)
{
    a->round = MAX(a->round, (uint32_t)(ballot >> 32));
}

static void promise(struct agree *a, uint64_t ballot)
{
    if (ballot > a->promised)
        a->promised = ballot;
}

static void accept_value(struct agree *a, uint64_t ballot, const unsigned char *set)
{
    if (a->decided || ballot < a->promised)
        return;
    a->promised = a->accepted = ballot;
    memmove(a->value, set, agree_set_bytes(a->size));
}

static void learn(struct agree *a, uint64_t ballot, const unsigned char *set, uint64_t now)
{
    if (a->decided) {
        a->conflict = a->conflict || memcmp(a->value, set, agree_set_bytes(a->size)) != 0;
        return;
    }
    a->accepted = MAX(a->accepted, ballot);
    a->promised = MAX(a->promised, a->accepted);
    memmove(a->value, set, agree_set_bytes(a->size));
    a->decided = true;
    a->phase = IDLE;
    a->others[a->rank].knows = true;
    a->push_ns = now + a->times.retry_ns;
}

/* ---- proposer ---------------------------------------------------------------------------------------------------------------------- */

/* Threads that serve an agreement read the clock before they wait for its lock: now may be a little before then. */
static uint64_t since(uint64_t now, uint64_t then)
{
    return now > then ? now - then : 0;
}

static bool fresh(const struct agree *a, int rank, uint64_t within, uint64_t now)
{
    return rank == a->rank || (a->others[rank].heard_ns && since(now, a->others[rank].heard_ns) <= within);
}

static bool calls_now(const struct agree *a, int rank, uint64_t now)
{
    const struct other *o = &a->others[rank];
    return rank == a->rank ? a->called : o->called && !o->gone && fresh(a, rank, 3 * a->times.silence_ns, now);
}

/* The lowest caller that is not silent, as far as we know; -1 = nobody: we have not called. */
static int leader(const struct agree *a, uint64_t now)
{
    for (int r = 0; r < a->size; r++)
        if (!agree_in(a->exclude, r) && !a->others[r].gone && (r == a->rank ? a->called : a->others[r].called) &&
            fresh(a, r, a->times.silence_ns, now))
            return r;
    return -1;
}

static bool all_called(const struct agree *a, uint64_t now)
{
    for (int r = 0; r < a->size; r++)
        if (!a->others[r].gone && !a->others[r].lost && !agree_in(a->exclude, r) && !calls_now(a, r, now))
            return false;
    return true;
}

static bool quorum(const struct agree *a, enum phase phase)
{
    int count = 0, living = 0;
    bool zero = false;
    for (int r = 0; r < a->size; r++) {
        const struct other *o = &a->others[r];
        if (o->gone)
            continue;
        living++;
        uint64_t said = r == a->rank ? (phase == PREPARE ? a->promised : a->accepted) : phase == PREPARE ? o->promised : o->accepted;
        if (said == a->ballot) {
            count++;
            zero = zero || r == 0;
        }
    }
    return count == living || 2 * count > a->size || (2 * count == a->size && zero);
}

/* The highest value that a member has accepted which promised us this ballot: what it reported with the promise. */
static void note_promise(struct agree *a, uint64_t accepted, const unsigned char *set)
{
    if (accepted > a->best && accepted < a->ballot) {
        a->best = accepted;
        memcpy(a->best_value, set, agree_set_bytes(a->size));
    }
}

static void choose_value(struct agree *a, uint64_t now)
{
    size_t n = agree_set_bytes(a->size);
    if (a->best) {
        memcpy(a->proposal, a->best_value, n);
        return;
    }
    memset(a->proposal, 0, n);
    for (int r = 0; r < a->size; r++)
        if (calls_now(a, r, now) && !agree_in(a->exclude, r))
            agree_add(a->proposal, r);
}

static void advance(struct agree *a, uint64_t now)
{
    if (a->phase == PREPARE && quorum(a, PREPARE)) {
        a->phase = ACCEPT;
        choose_value(a, now);
        accept_value(a, a->ballot, a->proposal);
        a->resend_ns = now + a->times.retry_ns;
        due_all(a);
    }
    if (a->phase == ACCEPT && quorum(a, ACCEPT)) {
        learn(a, a->ballot, a->proposal, now);
        due_all(a);
    }
}

static void propose(struct agree *a, uint64_t now)
{
    a->ballot = (uint64_t)++a->round << 32 | (uint32_t)(a->rank + 1);
    a->phase = PREPARE;
    a->best = 0;
    promise(a, a->ballot);
    note_promise(a, a->accepted, a->value);
    a->resend_ns = now + a->times.retry_ns;
    due_all(a);
}

/* Another ballot has overtaken ours. Each rank waits its own while, so that two do not overtake each other for ever. */
static void step_back(struct agree *a, uint64_t now)
{
    a->phase = IDLE;
    a->again_ns = now + a->times.retry_ns * (1 + hash_mix((uint64_t)a->rank, a->round) % 8);
}

/* ---- from outside --------------------------------------------------------------------------------------------------------------------- */

void agree_call(struct agree *a, const unsigned char *exclude, uint64_t now)
{
    memset(a->exclude, 0, agree_set_bytes(a->size));
    if (exclude)
        memcpy(a->exclude, exclude, agree_set_bytes(a->size));
    a->called = a->ever_called = true;
    a->called_ns = now;
    a->announce_ns = now + a->times.retry_ns;
    due_all(a);
}

void agree_withdraw(struct agree *a)
{
    a->called = false;
    a->phase = IDLE;
    due_all(a);
}

void agree_gone(struct agree *a, int rank)
{
    if (rank < 0 || rank >= a->size || rank == a->rank)
        return;
    a->others[rank].gone = true;
    a->due[rank] = false;
}

void agree_lost(struct agree *a, int rank)
{
    if (rank >= 0 && rank < a->size && rank != a->rank)
        a->others[rank].lost = true;
}

static void answer(struct agree *a, int from, uint64_t proposing, enum phase phase, const unsigned char *proposal)
{
    if (phase == PREPARE)
        promise(a, proposing);
    else
        accept_value(a, proposing, proposal);
    due(a, from);
}

static void hear(struct agree *a, const unsigned char *b, int from, uint64_t now)
{
    struct other *o = &a->others[from];
    const unsigned char *value = b + HEADER_BYTES, *proposal = value + agree_set_bytes(a->size);
    uint64_t proposing = get_le(b + 40, 8);
    enum phase phase = (enum phase)get_le(b + 12, 4);
    o->seq = get_le(b + 16, 8);
    o->heard_ns = MAX(now, 1u);
    o->lost = false;
    o->called = b[3] & FLAG_CALLED;
    o->promised = get_le(b + 24, 8);
    o->accepted = get_le(b + 32, 8);
    o->knows = b[3] & FLAG_DECIDED;
    saw_ballot(a, o->promised);
    saw_ballot(a, proposing);
    if (o->knows)
        learn(a, o->accepted, value, now);
    else if (a->decided)
        due(a, from);
    if (phase != IDLE && proposing && !o->knows)
        answer(a, from, proposing, phase, proposal);
    if (a->phase == IDLE)
        return;
    if (o->promised == a->ballot)
        note_promise(a, o->accepted, value);
    else if (o->promised > a->ballot || a->promised > a->ballot)
        step_back(a, now);
}

/* What it knew is still true, unless all that knew it are gone and others went on: they needed our acceptance for that, or could
 * not. So it is believed if we have accepted nothing later. */
static void hear_of_gone(struct agree *a, const unsigned char *b, uint64_t now)
{
    uint64_t accepted = get_le(b + 32, 8);
    if ((b[3] & FLAG_DECIDED) && a->accepted <= accepted)
        learn(a, accepted, b + HEADER_BYTES, now);
}

uno_err agree_receive(struct agree *a, const void *data, size_t bytes, uint64_t now)
{
    const unsigned char *b = data;
    if (bytes != agree_message_bytes(a->size) || get_le(b, 2) != MAGIC || b[2] != VERSION || get_le(b + 8, 4) != (uint64_t)a->size ||
        get_le(b + 4, 4) >= (uint64_t)a->size || get_le(b + 12, 4) > ACCEPT)
        return err_set(UNO_ERR_PARSE, "a message of %zu bytes about shrinking a communicator of %d ranks makes no sense", bytes, a->size);
    int from = (int)get_le(b + 4, 4);
    if (from == a->rank || get_le(b + 16, 8) <= a->others[from].seq)
        return UNO_OK; /* overtaken */
    if (a->others[from].gone) {
        hear_of_gone(a, b, now);
        return UNO_OK;
    }
    if (b[3] & FLAG_LEFT)
        agree_gone(a, from);
    else
        hear(a, b, from, now);
    advance(a, now);
    return UNO_OK;
}

/* Who leads may be deaf to somebody whose answer it needs, or mute: then all others would wait for it. From now on anybody tries; their
 * pauses differ (step_back). */
static bool is_overdue(const struct agree *a, uint64_t now)
{
    return since(now, a->called_ns) >= a->times.calls_ns + 3 * a->times.silence_ns;
}

static void announce(struct agree *a, uint64_t now, int lead)
{
    if (now < a->announce_ns)
        return;
    a->announce_ns = now + a->times.retry_ns;
    if (lead >= 0 && lead != a->rank)
        due(a, lead);
    else
        due_all(a);
}

void agree_tick(struct agree *a, uint64_t now)
{
    if (a->decided) {
        if (a->pushes < PUSHES && now >= a->push_ns) {
            a->pushes++;
            a->push_ns = now + a->times.retry_ns;
            for (int r = 0; r < a->size; r++)
                if (!a->others[r].knows)
                    due(a, r);
        }
        return;
    }
    if (!a->called)
        return;
    int lead = is_overdue(a, now) ? a->rank : leader(a, now);
    announce(a, now, lead);
    if (lead != a->rank) {
        a->phase = IDLE;
        return;
    }
    if (a->phase != IDLE && now >= a->resend_ns) {
        a->resend_ns = now + a->times.retry_ns;
        due_all(a);
    }
    if (a->phase == IDLE && now >= a->again_ns && (since(now, a->called_ns) >= a->times.calls_ns || all_called(a, now)))
        propose(a, now);
    advance(a, now);
}

uint64_t agree_next_ns(const struct agree *a)
{
    if (a->decided)
        return a->pushes < PUSHES ? a->push_ns : UINT64_MAX;
    return a->called ? a->announce_ns : UINT64_MAX; /* all else is looked at then */
}

/* ---- what is known ------------------------------------------------------------------------------------------------------------------- */

const unsigned char *agree_decision(const struct agree *a)
{
    return a->decided ? a->value : NULL;
}

bool agree_touched(const struct agree *a)
{
    return a->ever_called || a->promised || a->accepted || a->decided;
}

bool agree_has_called(const struct agree *a, int rank)
{
    return rank == a->rank ? a->called : a->others[rank].called;
}

bool agree_knows(const struct agree *a, int rank)
{
    return a->others[rank].knows;
}

bool agree_is_gone(const struct agree *a, int rank)
{
    return a->others[rank].gone;
}

bool agree_answers(const struct agree *a, int rank, uint64_t now)
{
    return fresh(a, rank, 3 * a->times.silence_ns, now);
}

bool agree_conflict(const struct agree *a)
{
    return a->conflict;
}
