/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_shrink.c - carries the agreements of watch_agree.c. Inside a host each rank's state stands on its slate, where the others
 * read it; between hosts stewards send it. Served by the steward's rounds and by callers that wait, whoever comes first: the
 * machines are under one lock that is never held while something is waited for. Touches nothing of the data path.
 *
 * A slate is a sequence lock with one writer. A message between hosts is the communicator's id, the rank it is for, the size of the
 * communicator, and the sender's state.
 */
#include "watch/watch.h"
#include "watch/watch_agree.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RETRY_NS 100000000ull
#define SILENCE_NS 1000000000ull
#define LINGER_NS 30000000000ull /* so long a slate is looked at often that does not change: its member does not wake, or has given up */
#define IDLE_NS 200000000ull  /* between looks whether somebody of this host has asked */
#define BUSY_NS 5000000ull    /* between looks at slates while an agreement is on its way */
#define ENVELOPE_BYTES 16

struct shrink {
    struct shrink *next;
    struct shrinks *all;
    uint64_t id;
    int rank, size;
    int *process;
    struct net_region **regions;
    struct agree *agree;       /* NULL: too many ranks */
    uint32_t *seen;            /* version of each rank's slate when last read */
    bool *told_called, *far;   /* far: due, and on another host */
    bool has_local;            /* are there other ranks of this host? */
    uint64_t worked_ns;        /* when last something was to be done here */
    bool asked_others, told_excluded, built, busy;
    /* after shrink_remove */
    bool removed;
    struct net_segment *segment;
    struct net_segment_ref *refs;
};

struct shrinks {
    pthread_mutex_t lock;
    struct shrinks_options opt;
    struct agree_times times;
    struct shrink *first;
    unsigned char *buf;        /* a message with its envelope */
    size_t cap;
    struct gone { int process; bool proved; } *gone; /* for communicators that are made later */
    size_t ngone, cap_gone;
};

/* ---- slates ----------------------------------------------------------------------------------------------------------------- */

static void slate_write(struct net_slate *b, const unsigned char *data, size_t bytes)
{
    uint32_t version = atomic_load_explicit(&b->version, memory_order_relaxed);
    atomic_store_explicit(&b->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* odd before the words; pairs with the fence in slate_read */
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, data + i, MIN(bytes - i, 8u));
        atomic_store_explicit(&b->words[i / 8], word, memory_order_relaxed);
    }
    atomic_store_explicit(&b->version, version + 2, memory_order_release); /* pairs with the acquire in slate_read */
}

/* false: it is being written, or its owner was killed while it wrote. */
static bool slate_read(struct net_slate *b, uint32_t *version, unsigned char *data, size_t bytes)
{
    *version = atomic_load_explicit(&b->version, memory_order_acquire); /* pairs with the release in slate_write */
    if (*version % 2)
        return false;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = atomic_load_explicit(&b->words[i / 8], memory_order_relaxed);
        memcpy(data + i, &word, MIN(bytes - i, 8u));
    }
    atomic_thread_fence(memory_order_acquire); /* the words before the second look; pairs with the fence in slate_write */
    return atomic_load_explicit(&b->version, memory_order_relaxed) == *version;
}

static struct net_slate *slate_of(const struct shrink *s, int rank)
{
    return s->regions && s->regions[rank] ? net_region_slate(s->regions[rank]) : NULL;
}

/* ---- one round ---------------------------------------------------------------------------------------------------------------- */

static void look_at_slates(struct shrink *s, uint64_t now)
{
    unsigned char *data = s->all->buf;
    size_t bytes = agree_message_bytes(s->size);
    for (int r = 0; r < s->size; r++) {
        struct net_slate *b = r == s->rank ? NULL : slate_of(s, r);
        uint32_t version;
        if (!b)
            continue;
        if (atomic_load_explicit(&b->left, memory_order_acquire)) /* pairs with the release in say_left */
            agree_gone(s->agree, r);
        if (atomic_load_explicit(&b->version, memory_order_relaxed) == s->seen[r] || !slate_read(b, &version, data, bytes))
            continue;
        s->seen[r] = version;
        if (agree_receive(s->agree, data, bytes, now) != UNO_OK)
            LOG(LOG_INFO, LOG_WATCH, "the slate of rank %d: %s; ignored", r, err_text());
    }
}

static void publish(struct shrink *s, const unsigned char *state)
{
    slate_write(net_region_slate(s->regions[s->rank]), state, agree_message_bytes(s->size));
    for (int r = 0; r < s->size && !s->asked_others; r++)
        if (r != s->rank && slate_of(s, r)) /* relaxed: only a hint; what to see is on the slates */
            atomic_store_explicit(&slate_of(s, r)->asked, 1, memory_order_relaxed);
    s->asked_others = true;
}

static void write_envelope(unsigned char *b, uint64_t id, int to, int size)
{
    memcpy(b, &id, 8);
    memcpy(b + 8, &to, 4);
    memcpy(b + 12, &size, 4);
}

/* The n-th time that this process is about to say something it is killed, or stops. */
static void for_a_test(void)
{
    if (fault_hit("shrink_kill"))
        (void)raise(SIGKILL);
    if (fault_hit("shrink_stop"))
        (void)raise(SIGSTOP);
}

static void send_due(struct shrink *s)
{
    unsigned char *buf = s->all->buf;
    bool any_far = false;
    if (!agree_any_due(s->agree))
        return;
    for (int r = 0; r < s->size; r++) {
        s->far[r] = agree_due(s->agree, r) && !slate_of(s, r);
        any_far = any_far || s->far[r];
    }
    agree_write(s->agree, buf + ENVELOPE_BYTES);
    for_a_test();
    if (s->has_local && s->regions)
        publish(s, buf + ENVELOPE_BYTES);
    for (int r = 0; any_far && s->all->opt.tell && r < s->size; r++)
        if (s->far[r]) {
            write_envelope(buf, s->id, r, s->size);
            s->all->opt.tell(s->all->opt.arg, s->process[r], buf, ENVELOPE_BYTES + agree_message_bytes(s->size));
        }
}

static void forget_memory(struct shrink *s)
{
    for (int r = 0; r < s->size && s->removed && s->regions; r++)
        if (s->regions[r] && r != s->rank)
            net_segment_unmap(&s->refs[r]);
    if (s->removed) {
        net_segment_free(s->segment);
        free(s->regions);
        free(s->refs);
    }
    s->regions = NULL;
    s->refs = NULL;
    s->segment = NULL;
}

/* Nobody of this host needs our slate any more. */
static bool host_knows(const struct shrink *s)
{
    for (int r = 0; r < s->size; r++)
        if (r != s->rank && slate_of(s, r) && !agree_knows(s->agree, r) && !agree_is_gone(s->agree, r))
            return false;
    return agree_decision(s->agree) != NULL;
}

static void serve(struct shrink *s, uint64_t now)
{
    if (!s->agree)
        return;
    bool asked = s->regions && s->has_local &&
                 atomic_load_explicit(&net_region_slate(s->regions[s->rank])->asked, memory_order_relaxed);
    if (asked || (agree_touched(s->agree) && s->regions))
        look_at_slates(s, now);
    agree_tick(s->agree, now);
    send_due(s);
    if (agree_next_ns(s->agree) != UINT64_MAX)
        s->worked_ns = now;
    s->busy = agree_touched(s->agree) && s->has_local && s->regions && !host_knows(s) && now - s->worked_ns < LINGER_NS;
    if (s->removed && s->regions && host_knows(s))
        forget_memory(s);
}

/* ---- what is to be told, without the lock ------------------------------------------------------------------------------------ */

struct news { uint64_t id; int self, rank; }; /* rank -1: excluded */

static bool next_news(struct shrinks *all, struct news *n)
{
    for (struct shrink *s = all->first; s; s = s->next) {
        const unsigned char *decision = s->agree ? agree_decision(s->agree) : NULL;
        if (!s->agree || s->removed)
            continue;
        if (decision && !agree_in(decision, s->rank) && !s->told_excluded) {
            s->told_excluded = true;
            *n = (struct news){s->id, s->rank, -1};
            return true;
        }
        for (int r = 0; r < s->size && !decision; r++)
            if (r != s->rank && !s->told_called[r] && agree_has_called(s->agree, r)) {
                s->told_called[r] = true;
                *n = (struct news){s->id, s->rank, r};
                return true;
            }
    }
    return false;
}

static void tell_news(struct shrinks *all)
{
    struct news n;
    for (;;) {
        pthread_mutex_lock(&all->lock);
        bool any = next_news(all, &n);
        pthread_mutex_unlock(&all->lock);
        if (!any)
            return;
        if (n.rank >= 0)
            all->opt.on_called(all->opt.arg, n.id, n.self, n.rank);
        else
            all->opt.on_excluded(all->opt.arg, n.id, n.self);
    }
}

uint64_t shrinks_tick(struct shrinks *all, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    pthread_mutex_lock(&all->lock);
    for (struct shrink *s = all->first; s; s = s->next) {
        serve(s, now);
        if (s->has_local && s->regions)
            next = MIN(next, now + (s->busy ? BUSY_NS : IDLE_NS));
        if (s->agree)
            next = MIN(next, agree_next_ns(s->agree));
    }
    pthread_mutex_unlock(&all->lock);
    tell_news(all);
    return next;
}

/* ---- from outside ---------------------------------------------------------------------------------------------------------------- */

static void note_gone(struct shrink *s, const struct gone *g)
{
    for (int r = 0; r < s->size && s->agree; r++)
        if (s->process[r] == g->process && g->proved)
            agree_gone(s->agree, r);
        else if (s->process[r] == g->process)
            agree_lost(s->agree, r);
}

void shrinks_gone(struct shrinks *all, int process, bool proved)
{
    struct gone g = {process, proved};
    pthread_mutex_lock(&all->lock);
    for (struct shrink *s = all->first; s; s = s->next)
        note_gone(s, &g);
    if (mem_grow(&all->gone, &all->cap_gone, all->ngone + 1, sizeof *all->gone) == UNO_OK)
        all->gone[all->ngone++] = g;
    pthread_mutex_unlock(&all->lock);
}

static struct shrink *find(struct shrinks *all, uint64_t id, int rank)
{
    for (struct shrink *s = all->first; s; s = s->next)
        if (s->id == id && s->rank == rank)
            return s;
    return NULL;
}

/* Somebody asks about a communicator that is not here: destroyed long ago, or about to be made by an agreement? */
static bool may_come(const struct shrinks *all)
{
    for (const struct shrink *s = all->first; s; s = s->next) {
        const unsigned char *decision = s->agree ? agree_decision(s->agree) : NULL;
        if (s->agree && !s->removed && agree_touched(s->agree) && (!decision || (agree_in(decision, s->rank) && !s->built)))
            return true;
    }
    return false;
}

static void answer_left(struct shrinks *all, int process, const unsigned char *envelope, size_t bytes)
{
    const unsigned char *state = envelope + ENVELOPE_BYTES;
    uint64_t id;
    int32_t to, size, from;
    memcpy(&id, envelope, 8);
    memcpy(&to, envelope + 8, 4);
    memcpy(&size, envelope + 12, 4);
    memcpy(&from, state + 4, 4);
    if (size < 2 || size > AGREE_MAX_RANKS || to < 0 || to >= size || from < 0 || from >= size || bytes != agree_message_bytes(size) ||
        state[3] != 1 /* only those who call want to know */ || !all->opt.tell)
        return;
    agree_write_left(to, size, all->buf + ENVELOPE_BYTES);
    write_envelope(all->buf, id, from, size);
    all->opt.tell(all->opt.arg, process, all->buf, ENVELOPE_BYTES + agree_message_bytes(size));
}

void shrinks_message(struct shrinks *all, int from_process, const void *data, size_t bytes)
{
    const unsigned char *b = data;
    uint64_t id;
    int32_t to, from;
    if (bytes < ENVELOPE_BYTES + 8 || bytes > ENVELOPE_BYTES + agree_message_bytes(AGREE_MAX_RANKS)) {
        LOG(LOG_INFO, LOG_WATCH, "process %d sent %zu bytes about shrinking, which is no message; ignored", from_process, bytes);
        return;
    }
    memcpy(&id, b, 8);
    memcpy(&to, b + 8, 4);
    memcpy(&from, b + ENVELOPE_BYTES + 4, 4);
    pthread_mutex_lock(&all->lock);
    struct shrink *s = find(all, id, to);
    uno_err err = UNO_OK;
    uint64_t now = clock_ns();
    if (!s && !may_come(all) && mem_grow(&all->buf, &all->cap, bytes + 8, 1) == UNO_OK)
        answer_left(all, from_process, b, bytes - ENVELOPE_BYTES);
    else if (s && s->agree && (from < 0 || from >= s->size || s->process[from] != from_process))
        err = err_set(UNO_ERR_PARSE, "it speaks for rank %d, which is not its own", from);
    else if (s && s->agree)
        err = agree_receive(s->agree, b + ENVELOPE_BYTES, bytes - ENVELOPE_BYTES, now);
    if (s && err == UNO_OK)
        serve(s, now);
    pthread_mutex_unlock(&all->lock);
    if (err != UNO_OK)
        LOG(LOG_INFO, LOG_WATCH, "a message of process %d about shrinking: %s; ignored", from_process, err_text());
}

/* ---- life ------------------------------------------------------------------------------------------------------------------------ */

uno_err shrinks_new(const struct shrinks_options *opt, struct shrinks **out)
{
    struct shrinks *all = mem_zalloc(sizeof *all);
    if (!all)
        return UNO_ERR_MEMORY;
    pthread_mutex_init(&all->lock, NULL);
    all->opt = *opt;
    uint64_t calls = (uint64_t)(opt->timeout_s * 1e9);
    all->times = (struct agree_times){.calls_ns = calls, .retry_ns = RETRY_NS, .silence_ns = SILENCE_NS};
    *out = all;
    return UNO_OK;
}

static void say_left(struct shrink *s)
{
    if (s->regions) /* pairs with the acquire in look_at_slates */
        atomic_store_explicit(&net_region_slate(s->regions[s->rank])->left, 1, memory_order_release);
}

void shrinks_goodbye(struct shrinks *all)
{
    if (pthread_mutex_trylock(&all->lock) != 0)
        return; /* at exit: whoever holds it is about to end as well, and its end is seen */
    for (struct shrink *s = all->first; s; s = s->next)
        say_left(s);
    pthread_mutex_unlock(&all->lock);
}

static void shrink_free(struct shrink *s)
{
    forget_memory(s);
    agree_free(s->agree);
    free(s->process);
    free(s->seen);
    free(s->told_called);
    free(s->far);
    free(s);
}

void shrinks_free(struct shrinks *all)
{
    if (!all)
        return;
    for (struct shrink *s = all->first, *next; s; s = next) {
        next = s->next;
        say_left(s);
        shrink_free(s);
    }
    pthread_mutex_destroy(&all->lock);
    free(all->buf);
    free(all->gone);
    free(all);
}

uno_err shrink_add(struct shrinks *all, uint64_t id, int rank, int size, const int *process, struct net_region **regions,
                   struct shrink **out)
{
    struct shrink *s = mem_zalloc(sizeof *s);
    if (!s)
        return UNO_ERR_MEMORY;
    *s = (struct shrink){.all = all, .id = id, .rank = rank, .size = size, .regions = regions};
    s->process = mem_array((size_t)size, sizeof *s->process);
    s->seen = mem_array((size_t)size, sizeof *s->seen);
    s->told_called = mem_array((size_t)size, sizeof *s->told_called);
    s->far = mem_array((size_t)size, sizeof *s->far);
    uno_err err = s->process && s->seen && s->told_called && s->far ? UNO_OK : UNO_ERR_MEMORY;
    if (err == UNO_OK && size <= AGREE_MAX_RANKS)
        err = agree_new(rank, size, &all->times, &s->agree);
    for (int r = 0; r < size && err == UNO_OK; r++) {
        s->process[r] = process[r];
        s->has_local = s->has_local || (r != rank && regions[r]);
    }
    pthread_mutex_lock(&all->lock);
    if (err == UNO_OK)
        err = mem_grow(&all->buf, &all->cap, ENVELOPE_BYTES + agree_message_bytes(size) + 8, 1);
    for (size_t i = 0; err == UNO_OK && i < all->ngone; i++)
        note_gone(s, &all->gone[i]);
    if (err == UNO_OK) {
        s->next = all->first;
        all->first = s;
    }
    pthread_mutex_unlock(&all->lock);
    if (err != UNO_OK) {
        shrink_free(s);
        return err;
    }
    *out = s;
    return UNO_OK;
}

bool shrink_remove(struct shrink *s, struct net_segment *segment, struct net_region **regions, struct net_segment_ref *refs)
{
    if (!s)
        return false;
    struct shrinks *all = s->all;
    pthread_mutex_lock(&all->lock);
    bool keep = s->agree && agree_touched(s->agree);
    if (keep) {
        s->removed = true;
        s->segment = segment;
        s->regions = regions;
        s->refs = refs;
    } else {
        say_left(s);
        s->regions = NULL;
        for (struct shrink **p = &all->first; *p; p = &(*p)->next)
            if (*p == s) {
                *p = s->next;
                break;
            }
    }
    pthread_mutex_unlock(&all->lock);
    if (!keep)
        shrink_free(s);
    return keep;
}

/* ---- calling ------------------------------------------------------------------------------------------------------------------------ */

static uno_err result(const struct shrink *s)
{
    if (agree_conflict(s->agree))
        return err_set(UNO_ERR_INTERNAL, "two decisions about who goes on were seen; this is a fault of the library");
    if (!agree_in(agree_decision(s->agree), s->rank))
        return err_set(UNO_ERR_EXCLUDED, "the others went on without rank %d: it had not called uno_comm_shrink within %.1f s "
                       "(UNISONO_SHRINK_TIMEOUT), or they excluded it", s->rank, s->all->opt.timeout_s);
    return UNO_OK;
}

uno_err shrink_run(struct shrink *s, const unsigned char *exclude, const _Atomic int *cancel)
{
    if (!s->agree)
        return err_set(UNO_ERR_UNSUPPORTED, "a communicator of %d ranks cannot be shrunk; at most %d", s->size, AGREE_MAX_RANKS);
    struct shrinks *all = s->all;
    uno_err err = UNO_ERR_IN_PROGRESS;
    int cancels = atomic_load_explicit(cancel, memory_order_relaxed); /* a number alone */
    uint64_t deadline = clock_after(3 * all->opt.timeout_s);
    pthread_mutex_lock(&all->lock);
    if (!agree_decision(s->agree))
        agree_call(s->agree, exclude, clock_ns());
    pthread_mutex_unlock(&all->lock);
    for (long pause_ns = 20000; err == UNO_ERR_IN_PROGRESS; pause_ns = MIN(pause_ns * 2, 1000000)) {
        uint64_t now = clock_ns();
        (void)shrinks_tick(all, now);
        pthread_mutex_lock(&all->lock);
        if (agree_decision(s->agree))
            err = result(s);
        else if (atomic_load_explicit(cancel, memory_order_relaxed) != cancels)
            err = err_set(UNO_ERR_ABORTED, "uno_comm_abort ended uno_comm_shrink on rank %d", s->rank);
        else if (now >= deadline)
            err = err_set(UNO_ERR_UNREACHABLE, "rank %d found no majority to go on with within %.1f s", s->rank, 3 * all->opt.timeout_s);
        if (err != UNO_ERR_IN_PROGRESS && !agree_decision(s->agree)) {
            char text[ERR_TEXT_BYTES];
            snprintf(text, sizeof text, "%s", err_text()); /* what serves may say something else meanwhile */
            agree_withdraw(s->agree);
            serve(s, now);
            err_set(err, "%s", text);
        }
        pthread_mutex_unlock(&all->lock);
        if (err == UNO_ERR_IN_PROGRESS)
            nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    }
    return err;
}

bool shrink_takes(const struct shrink *s, int rank)
{
    return agree_in(agree_decision(s->agree), rank); /* a decision never changes */
}

bool shrink_silent(struct shrink *s, int rank)
{
    pthread_mutex_lock(&s->all->lock);
    bool silent = !agree_is_gone(s->agree, rank) && !agree_answers(s->agree, rank, clock_ns());
    pthread_mutex_unlock(&s->all->lock);
    return silent;
}

void shrink_built(struct shrink *s)
{
    pthread_mutex_lock(&s->all->lock);
    s->built = true;
    pthread_mutex_unlock(&s->all->lock);
}
