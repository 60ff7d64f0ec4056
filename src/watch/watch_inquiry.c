/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_inquiry.c - what is going on? Somebody waits without progress: its steward's page says so, its hub tells the *root*, the hub
 * of the lowest host that is heard. The root asks the hub of every host that it hears for the records of its ranks, notes what it
 * knows itself of the others, waits a moment (watch_gather.c), and has the facts judged. The sentence goes to all hubs; each prints it once
 * and leaves it for its host's processes. It is printed again only when it changes, and taken back when things go on. Whose deadline is near
 * asks once more, and gets it as it is then.
 * Runs on the steward's thread only; nothing here waits.
 */
#include "watch/watch_inner.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRESH_NS 1500000000ull   /* who is stalled says so every second */
#define AGAIN_NS 1000000000ull   /* between inquiries, twice as long each time that nothing new comes out */
#define AGAIN_MOST_NS 8000000000ull
#define TELL_ROOT_NS 500000000ull
#define GOES_ON_NS 1200000000ull /* so long nobody may be stalled before it is said that things go on */
#define FORGET_NS 15000000000ull
#define MOST_HOPS 2
#define LEAST_NS 200000000ull    /* between two sentences from elsewhere */

static const struct watch_member *member(const struct watch *w, const struct peer *p)
{
    return &w->members[p->process];
}

/* ---- what is said ---------------------------------------------------------------------------------------------------- */

struct sentence { int32_t kind, origin; uint32_t number, identity; uint64_t comm_id; }; /* little-endian, then the text */

static void pass_to_hubs(struct watch *w, int but, const void *data, size_t bytes)
{
    for (int h = 0; h < w->nhosts; h++) {
        struct peer *p = h == w->own_host || h == but ? NULL : hosts_hub_of(w, h);
        if (p && w->hosts[h].state == HOST_HEARD)
            message_send(w, p, MESSAGE_VERDICT, data, bytes);
    }
}

static bool anybody_silent(const struct watch *w)
{
    bool silent = w->npairs > 0;
    for (int h = 0; h < w->nhosts; h++)
        silent = silent || w->hosts[h].state != HOST_HEARD;
    return silent;
}

static void say_here(struct watch *w, const struct sentence *s, const char *text)
{
    if (!notice_is_fresh(s->kind))
        LOG(LOG_WARN, LOG_WATCH, "%s", text);
    notice_post(w->page, (enum notice_kind)s->kind, -1, s->comm_id, s->identity, text);
    if (s->kind == NOTICE_VERDICT)
        post_soon(w);
}

static void say(struct watch *w, enum notice_kind kind, uint64_t comm_id, uint32_t identity, const char *text)
{
    unsigned char buf[sizeof(struct sentence) + NOTICE_TEXT_BYTES];
    struct sentence s = {.kind = (int32_t)kind, .origin = w->own_host, .number = ++w->inquiry.said, .identity = identity,
                         .comm_id = comm_id};
    size_t len = strnlen(text, NOTICE_TEXT_BYTES - 1);
    memcpy(buf, &s, sizeof s);
    memcpy(buf + sizeof s, text, len);
    say_here(w, &s, text);
    pass_to_hubs(w, -1, buf, sizeof s + len);
}

/* Heard from the root, or, when somebody does not reach it, by way of another hub. */
static void heard_sentence(struct watch *w, const struct peer *from, const void *data, size_t bytes)
{
    struct inquiry *q = &w->inquiry;
    struct sentence s;
    char text[NOTICE_TEXT_BYTES];
    if (bytes < sizeof s || bytes >= sizeof s + sizeof text || !w->hub)
        return;
    memcpy(&s, data, sizeof s);
    uint64_t now = clock_ns(), *last_ns = notice_is_fresh(s.kind) ? &q->fresh_ns : &q->heard_ns;
    if (now - *last_ns < LEAST_NS)
        return; /* no root says two things at once */
    if (s.kind == NOTICE_UNREACHABLE || s.kind < NOTICE_VERDICT || s.kind > NOTICE_AHEAD || s.origin < 0 || s.origin >= w->nhosts || s.origin == w->own_host ||
        (q->heard_origin == s.origin && (int32_t)(s.number - q->heard_number) <= 0))
        return;
    *last_ns = now;
    q->heard_origin = s.origin;
    q->heard_number = s.number;
    size_t len = bytes - sizeof s;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = ((const unsigned char *)data)[sizeof s + i];
        text[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    text[len] = 0;
    say_here(w, &s, text);
    if (anybody_silent(w))
        pass_to_hubs(w, member(w, from)->host, data, bytes);
}

/* ---- an inquiry ------------------------------------------------------------------------------------------------------------ */

static int root_host(const struct watch *w)
{
    for (int h = 0; h < w->nhosts; h++)
        if (h == w->own_host || (w->hosts[h].state == HOST_HEARD && w->hosts[h].heard && hosts_hub_of((struct watch *)w, h)))
            return h;
    return w->own_host;
}

/* What is said of a fault at this host, whoever is its hub or the root then. Facts are not kept: nobody says that they are over. */
void inquiry_notice(struct watch *w, const struct notice *n)
{
    struct inquiry *q = &w->inquiry;
    if (n->kind == NOTICE_GOES_ON)
        q->nheard = 0;
    else if (n->kind == NOTICE_VERDICT && n->identity && q->nheard < (int)ARRAY_LEN(q->heard_identity))
        q->heard_identity[q->nheard++] = n->identity;
}

static uint32_t sentence_identity(const struct verdict *v)
{
    return v->fault ? (uint32_t)(v->identity ^ v->identity >> 32) | 1 : 0;
}

/* Another root, which is gone now, has said so. */
static bool was_heard(const struct inquiry *q, const struct verdict *v)
{
    bool heard = false;
    for (int i = 0; i < q->nheard; i++)
        heard = heard || q->heard_identity[i] == sentence_identity(v);
    return heard;
}

static void say_verdict(struct watch *w, enum notice_kind kind, const struct verdict *v)
{
    char text[NOTICE_TEXT_BYTES];
    snprintf(text, sizeof text, "%s%s%s", v->headline, v->what_next[0] ? ". What to do: " : "", v->what_next);
    say(w, kind, v->comm_id, sentence_identity(v), text);
}

static void tell(struct watch *w, const struct verdict *v, uint64_t now)
{
    struct inquiry *q = &w->inquiry;
    q->told_fault = v->fault || (q->told && q->told_fault);
    if (!q->told)
        q->told_since_ns = now - MIN(v->age_ns, now);
    q->told = true;
    q->told_identity[q->ntold++] = v->identity;
    q->resumed = false;
    q->told_pace = v->kind == VERDICT_KIND_SLOW_RANK || v->kind == VERDICT_KIND_SLOW_LINK;
    snprintf(q->told_kind, sizeof q->told_kind, "%s", verdict_kind_name(v->kind));
    say_verdict(w, was_heard(q, v) ? NOTICE_FRESH : NOTICE_VERDICT, v);
}

static bool is_news(const struct inquiry *q, const struct verdict *v)
{
    bool said = q->ntold == (int)ARRAY_LEN(q->told_identity);
    for (int i = 0; i < q->ntold; i++)
        said = said || q->told_identity[i] == v->identity;
    return v->kind != VERDICT_KIND_NONE && !said;
}

/* A guess has to be made again after as long as a stall is: a machine that was suspended, or had no processor for its processes, looks for
 * a moment like one where nothing moves. */
static bool may_be_said(struct inquiry *q, const struct verdict *v, uint64_t stall_ns, uint64_t now)
{
    bool guess = v->fault && v->sure == VERDICT_GUESS;
    if (!guess || q->guess_identity != v->identity || now - q->guess_at_ns > 3 * AGAIN_NS) /* nobody asked in between */
        q->guess_since_ns = now;
    q->guess_at_ns = now;
    q->guess_identity = guess ? v->identity : 0;
    return !guess || now - q->guess_since_ns >= stall_ns;
}

static void judge(struct watch *w, uint64_t now)
{
    struct inquiry *q = &w->inquiry;
    struct timespec real;
    struct verdict v;
    clock_gettime(CLOCK_REALTIME, &real);
    struct verdict_facts *f = &q->gather.facts;
    f->now_ns = now;
    f->now_real_ns = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
    f->stall_ns = q->judge_ns;
    uno_err err = verdict_judge(f, &v);
    gather_end(&q->gather);
    if (q->judge_ns < w->stall_ns) { /* for a short deadline alone */
        if (err == UNO_OK && v.kind != VERDICT_KIND_NONE && v.sure != VERDICT_GUESS)
            say_verdict(w, NOTICE_AHEAD, &v);
        return;
    }
    bool sure = err == UNO_OK && may_be_said(q, &v, w->stall_ns, now), news = sure && is_news(q, &v);
    q->step_ns = news || !sure ? AGAIN_NS : MIN(MAX(q->step_ns, AGAIN_NS) * 2, AGAIN_MOST_NS);
    q->next_ns = now + (err == UNO_OK && v.kind == VERDICT_KIND_NONE ? AGAIN_NS : q->step_ns);
    if (err != UNO_OK)
        LOG(LOG_INFO, LOG_WATCH, "the facts could not be judged: %s", err_text());
    else
        LOG(LOG_DEBUG, LOG_WATCH, "inquiry %u: %s: %s", q->gather.number, verdict_kind_name(v.kind), v.headline);
    if (news)
        tell(w, &v, now);
    else if (sure && v.kind != VERDICT_KIND_NONE)
        say_verdict(w, NOTICE_FRESH, &v);
}

/* ---- things go on ------------------------------------------------------------------------------------------------------------- */

static void look_whether_it_goes_on(struct watch *w, uint64_t now)
{
    struct inquiry *q = &w->inquiry;
    char text[NOTICE_TEXT_BYTES], age[32];
    if (!q->told || now - q->stall_ns < GOES_ON_NS)
        return;
    bool over = !q->resumed && now - q->stall_ns > FORGET_NS;
    if (over && q->told_pace) { /* nobody stood still, so nobody says that he goes on */
        snprintf(text, sizeof text, "nobody was held up for %s (the last verdict was: %s)", verdict_age_text(age, sizeof age, now - q->stall_ns),
                 q->told_kind);
        say(w, NOTICE_GOES_ON, 0, 0, text);
    } else if (q->resumed && q->told_fault) {
        uint64_t end_ns = MAX(q->stall_ns, q->resumed_ns);
        snprintf(text, sizeof text, "goes on after %s (the last verdict was: %s)",
                 verdict_age_text(age, sizeof age, end_ns - MIN(q->told_since_ns, end_ns)), q->told_kind);
        say(w, NOTICE_GOES_ON, 0, 0, text);
    }
    if (q->resumed || over) {
        q->told = q->resumed = false;
        q->ntold = q->nheard = 0;
    }
}

/* ---- from the other stewards, and the clock ------------------------------------------------------------------------------------ */

static void note_resumed(struct inquiry *q)
{
    if (!q->resumed)
        q->resumed_ns = clock_ns();
    q->resumed = true;
}

/* STALL, RESUMED, HURRY: how often it was passed on; ms: HURRY, what counts as a stall. */
struct signal { uint8_t hops; uint8_t ms[4]; };

static void tell_root(struct watch *w, uint8_t kind, uint8_t hops, uint32_t ms)
{
    int root = root_host(w);
    struct peer *p = root == w->own_host ? NULL : hosts_hub_of(w, root);
    struct signal s = {.hops = hops};
    memcpy(s.ms, &ms, sizeof s.ms);
    if (p)
        message_send(w, p, kind, &s, sizeof s);
}

static void hurry(struct inquiry *q, uint32_t ms)
{
    q->hurry_ms = q->hurry_ns ? MIN(q->hurry_ms, ms) : ms;
    q->hurry_ns = clock_ns();
}

/* Something is so on another host. */
static void heard_signal(struct watch *w, uint8_t kind, const void *data, size_t bytes)
{
    struct inquiry *q = &w->inquiry;
    struct signal s;
    uint32_t ms;
    if (bytes != sizeof s)
        return;
    memcpy(&s, data, sizeof s);
    memcpy(&ms, s.ms, sizeof ms);
    if (root_host(w) != w->own_host) {
        if (s.hops < MOST_HOPS)
            tell_root(w, kind, (uint8_t)(s.hops + 1), ms);
    } else if (kind == MESSAGE_STALL) {
        q->stall_ns = clock_ns();
    } else if (kind == MESSAGE_RESUMED) {
        note_resumed(q);
    } else {
        hurry(q, ms);
    }
}

void inquiry_message(struct watch *w, struct peer *from, uint8_t kind, const void *data, size_t bytes)
{
    struct inquiry *q = &w->inquiry;
    switch (kind) {
    case MESSAGE_STALL:
    case MESSAGE_RESUMED:
    case MESSAGE_HURRY: heard_signal(w, kind, data, bytes); break;
    case MESSAGE_INQUIRE: gather_asked(w, from, data, bytes); break;
    case MESSAGE_REPORT:
    case MESSAGE_REPORTED:
        gather_answered(w, &q->gather, from, kind, data, bytes);
        gather_answered(w, &w->answer.gather, from, kind, data, bytes);
        break;
    case MESSAGE_VERDICT: heard_sentence(w, from, data, bytes); break;
    default: LOG(LOG_INFO, LOG_WATCH, "rank %d sent a message of kind %d, which is not known here; ignored", from->process, kind);
    }
}

void inquiry_page(struct watch *w, struct peer *p, const struct steward_page *page, uint64_t now)
{
    struct inquiry *q = &w->inquiry;
    uint32_t stalled = atomic_load_explicit(&page->stalled, memory_order_relaxed);
    uint32_t resumed = atomic_load_explicit(&page->resumed, memory_order_relaxed);
    if (stalled != p->stalled)
        q->own_stall_ns = q->stall_ns = now;
    if (resumed != p->resumed && w->hub) {
        note_resumed(q);
        tell_root(w, MESSAGE_RESUMED, 0, 0);
    }
    uint64_t near = atomic_load_explicit(&page->hurry, memory_order_relaxed);
    if (near != p->hurry && w->hub && root_host(w) == w->own_host)
        hurry(q, (uint32_t)near);
    else if (near != p->hurry && w->hub)
        tell_root(w, MESSAGE_HURRY, 0, (uint32_t)near);
    p->stalled = stalled;
    p->resumed = resumed;
    p->hurry = near;
}

static void begin(struct watch *w, uint64_t now)
{
    struct inquiry *q = &w->inquiry;
    bool near = q->hurry_ns && now - q->hurry_ns < FRESH_NS;
    q->hurry_ns = 0;
    if (!near && (now < q->next_ns || now - q->stall_ns >= FRESH_NS))
        return;
    q->judge_ns = near ? MIN(w->stall_ns, q->hurry_ms * 1000000ull) : w->stall_ns;
    if (near && q->judge_ns == w->stall_ns)
        q->stall_ns = now; /* who is in a hurry is stalled, too */
    if (gather_begin(w, &q->gather, true, now) != UNO_OK)
        LOG(LOG_INFO, LOG_WATCH, "no inquiry: %s", err_text());
}

static void begin_or_tell_root(struct watch *w, uint64_t now)
{
    struct inquiry *q = &w->inquiry;
    if (root_host(w) == w->own_host) {
        begin(w, now);
    } else if (now >= q->tell_root_ns && now - q->own_stall_ns < FRESH_NS) {
        q->tell_root_ns = now + TELL_ROOT_NS;
        tell_root(w, MESSAGE_STALL, 0, 0);
    }
}

void inquiry_timers(struct watch *w, uint64_t now)
{
    struct inquiry *q = &w->inquiry;
    if (gather_done(w, &q->gather, now))
        judge(w, now);
    if (!q->gather.runs && w->hub && (q->stall_ns || q->hurry_ns))
        begin_or_tell_root(w, now);
    look_whether_it_goes_on(w, now);
}

/* Who was asked before has had no time to answer, or did not run either: what is known of them is from before. It is asked anew. */
void inquiry_late(struct watch *w, uint64_t late_ns)
{
    if (w->inquiry.gather.runs)
        gather_end(&w->inquiry.gather);
    w->inquiry.next_ns = 0;
    w->answer.gather.deadline_ns += late_ns;
}

/* With one process there is nobody whose page must be looked at, but somebody may be stalled. */
bool inquiry_pending(const struct watch *w)
{
    const struct inquiry *q = &w->inquiry;
    const struct peer *own = &w->peers[w->self];
    bool news = atomic_load_explicit(&w->page->hurry, memory_order_relaxed) != own->hurry ||
                atomic_load_explicit(&w->page->stalled, memory_order_relaxed) != own->stalled ||
                atomic_load_explicit(&w->page->notices, memory_order_relaxed) != own->notices;
    return news || q->told || q->hurry_ns || q->gather.runs || (q->stall_ns && clock_ns() - q->stall_ns < FRESH_NS);
}

void inquiry_free(struct watch *w)
{
    gather_end(&w->inquiry.gather);
    w->inquiry = (struct inquiry){0};
}
