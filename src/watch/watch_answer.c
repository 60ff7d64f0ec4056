/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_answer.c - a tool of this host asks for the facts of all ranks. It counts `questions` up on the boards of the job; the hub
 * gathers, puts the records into a segment of its own and says on its page where that is. The tool gets it like any other memory of the
 * process, which only a process of the same user may. Runs on the steward's thread, but for answer_copy, which is the tool's side.
 */
#include "watch/watch_inner.h"

#include <stdlib.h>
#include <string.h>

#define KEEP_NS 10000000000ull   /* so long an answer can be fetched */
#define RECORD_BYTES (64u << 10)
#define HEAD_BYTES 8u

/* ---- the hub ------------------------------------------------------------------------------------------------------------ */

static void show(struct watch *w, const struct net_segment_ref *ref)
{
    notes_begin(&w->page->answer_seq);
    w->page->answer = *ref;
    notes_end(&w->page->answer_seq);
}

static void forget(struct watch *w)
{
    if (!w->answer.segment)
        return;
    show(w, &(struct net_segment_ref){0});
    net_segment_free(w->answer.segment);
    w->answer.segment = NULL;
}

/* All ranks of which anything is known, one record behind the other, behind room for their length. */
static uno_err write_records(struct watch *w, struct verdict_facts *f, unsigned char **data, size_t *bytes)
{
    size_t cap = 0;
    *bytes = HEAD_BYTES;
    TRY(mem_grow(data, &cap, HEAD_BYTES, 1));
    for (int r = 0; r < f->size; r++) {
        struct verdict_rank *rank = &f->ranks[r];
        size_t one = 0;
        if (rank->status == VERDICT_UNKNOWN)
            continue;
        rank->clock = f->offsets[r];
        rank->job = w->opt.board->page->job;
        if (rank->reporter < 0)
            rank->reporter = w->opt.rank;
        TRY(mem_grow(data, &cap, *bytes + RECORD_BYTES, 1));
        TRY(verdict_encode(rank, *data + *bytes, RECORD_BYTES, &one));
        *bytes += one;
    }
    put_le(*data, *bytes - HEAD_BYTES, HEAD_BYTES);
    return UNO_OK;
}

static uno_err publish(struct watch *w)
{
    struct net_segment_ref ref;
    unsigned char *data = NULL;
    size_t bytes = 0;
    void *base;
    uno_err err = write_records(w, &w->answer.gather.facts, &data, &bytes);
    if (err == UNO_OK)
        err = net_segment_new(bytes, "unisono-answer", &w->answer.segment, &base);
    if (err == UNO_OK) {
        memcpy(base, data, bytes);
        net_segment_ref(w->answer.segment, &ref);
        net_segment_show(&ref);
        show(w, &ref);
    }
    free(data);
    return err;
}

void answer_timers(struct watch *w, uint64_t now)
{
    struct answer *a = &w->answer;
    if (!w->opt.board)
        return; /* nobody can ask */
    if (a->segment && now >= a->forget_ns)
        forget(w);
    uint32_t asked = atomic_load_explicit(&w->page->questions, memory_order_acquire); /* pairs with the release in ask_stewards */
    if (asked != a->served && w->hub && !a->gather.runs) {
        uint32_t looks = atomic_load_explicit(&w->page->looks, memory_order_relaxed); /* counted up before the question */
        bool look = looks != a->looked;
        a->served = asked;
        a->looked = looks;
        if (gather_begin(w, &a->gather, look, now) != UNO_OK)
            LOG(LOG_INFO, LOG_WATCH, "a tool that asked is not answered: %s", err_text());
    }
    if (!gather_done(w, &a->gather, now))
        return;
    forget(w);
    a->forget_ns = now + KEEP_NS;
    if (publish(w) != UNO_OK)
        LOG(LOG_INFO, LOG_WATCH, "a tool that asked is not answered: %s", err_text());
    gather_end(&a->gather);
    atomic_store_explicit(&w->page->answers, a->served, memory_order_release); /* pairs with the acquire in who_answered */
}

uint64_t answer_next_ns(const struct watch *w)
{
    return w->answer.segment ? w->answer.forget_ns : UINT64_MAX;
}

void answer_free(struct watch *w)
{
    gather_end(&w->answer.gather);
    if (w->page)
        forget(w);
    w->answer = (struct answer){0};
}

/* ---- the tool ------------------------------------------------------------------------------------------------------------ */

SEQLOCK_READER static bool read_ref(const struct steward_page *page, struct net_segment_ref *ref)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load_explicit(&page->answer_seq, memory_order_acquire); /* pairs with the release in notes_end */
        *ref = page->answer;
        atomic_thread_fence(memory_order_acquire); /* pairs with the release fence in notes_begin */
        if (!(before & 1) && atomic_load_explicit(&page->answer_seq, memory_order_relaxed) == before)
            return ref->bytes != 0;
    }
    return false;
}

uno_err answer_copy(const struct peer *p, void **data, size_t *bytes)
{
    int32_t pid = p->eye.pid;
    struct net_segment_ref ref;
    void *base;
    if (!read_ref(&p->records.page->steward, &ref))
        return err_set(UNO_ERR_UNREACHABLE, "process %d could not answer, or its answer is gone", (int)pid);
    ref.pid = pid;
    struct door_call call = DOOR_NO_CALL;
    uno_err err = records_map(&p->records, &call, &ref, &base);
    door_hang_up(&call);
    if (err != UNO_OK)
        return err;
    uint64_t n = get_le(base, HEAD_BYTES);
    err = n <= ref.bytes - HEAD_BYTES ? UNO_OK : err_set(UNO_ERR_PARSE, "process %d gives an answer of impossible size", (int)pid);
    if (err == UNO_OK && !(*data = mem_array(n + 1, 1)))
        err = UNO_ERR_MEMORY;
    if (err == UNO_OK) {
        memcpy(*data, (const char *)base + HEAD_BYTES, n);
        *bytes = n;
    }
    net_segment_unmap(&ref);
    return err;
}
