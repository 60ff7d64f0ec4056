/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_stacks.c - a thread that takes and names stacks (watch_stacks.h). It and the steward share one struct, which the last one frees.
 */
#include "watch/watch_stacks.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "watch/watch_stack.h"
#include "watch/watch_symbols.h"
#include "watch/watch_unwind.h"

#define ANSWER_NS 30000000ull  /* who was asked by a signal answers within that, or is looked at from outside */
#define MOST_NS 250000000ull   /* of a look: who comes later is told without */
#define FROM_OUTSIDE 24u       /* frames: a report has no room for more */
#define THREAD_BYTES (256u << 10)

struct taken {
    struct stacks_of of;
    uint64_t pc[BOARD_STACKS][BOARD_FRAMES];
    uint32_t n[BOARD_STACKS];
    char text[sizeof ((struct verdict_process *)0)->stack];
    bool in_library;
    _Atomic int told;          /* release, after the two above */
};

struct stacks {
    _Atomic int holders;       /* the thread and who began it */
    _Atomic int done;          /* the thread touches no page any more: release */
    uint64_t until_ns;
    int n;
    struct taken each[];
};

static void let_go(struct stacks *s)
{
    if (atomic_fetch_sub(&s->holders, 1) == 1)
        free(s);
}

/* Answers to signals, also late ones: their places are wanted again. */
static void take_answers(struct stacks *s)
{
    uint64_t until = clock_ns() + ANSWER_NS;
    for (int waits = 1; waits;) {
        waits = 0;
        bool last = clock_ns() > until;
        for (int i = 0; i < s->n; i++)
            for (int place = 0; place < BOARD_STACKS; place++) {
                struct taken *t = &s->each[i];
                if (!t->of.asked[place])
                    continue;
                if (!last && !stack_ready(t->of.page, place)) {
                    waits++;
                    continue;
                }
                t->n[place] = stack_take(t->of.page, place, t->pc[place]);
                t->of.asked[place] = false;
            }
        if (waits)
            usleep(1000);
    }
}

static bool add_stack(struct stacks *s, struct taken *t, struct symbols *symbols, int place)
{
    int32_t tid = place == 0 ? t->of.tid : t->of.pid;
    uint32_t n = t->n[place], sure = n;
    bool inside = false;
    if (n == 0 && t->of.outside)
        n = unwind_waiting(symbols, t->of.pid, tid, t->pc[place], FROM_OUTSIDE, &sure, s->until_ns);
    size_t len = strlen(t->text), head = 0;
    if (n > 0 && place == 1 && t->of.tid != t->of.pid)
        head = (size_t)snprintf(t->text + len, sizeof t->text - len, "%smain thread:\n", len ? "\n" : "");
    for (uint32_t i = 0; i < n && clock_ns() < s->until_ns; i++)
        if (!stack_name(symbols, t->pc[place][i], i > 0, i < sure, t->text, sizeof t->text, &inside))
            break;
    size_t end = strlen(t->text);
    if (end < len + head + (head > 0)) /* there was room for the heading alone, or not even that */
        t->text[len] = 0;
    else if (end > 0 && t->text[end - 1] == '\n')
        t->text[end - 1] = 0;
    return inside;
}

static void *run(void *arg)
{
    struct stacks *s = arg;
    struct symbol_files files = {0};
    prctl(PR_SET_NAME, "uno-stacks");
    take_answers(s);
    atomic_store_explicit(&s->done, 1, memory_order_release); /* pairs with the acquire in stacks_end */
    for (int i = 0; i < s->n && clock_ns() < s->until_ns; i++) {
        struct taken *t = &s->each[i];
        struct symbols *symbols = symbols_open(t->of.pid, &files);
        if (!symbols)
            continue;
        bool one = t->of.tid == t->of.pid, inside = !one && add_stack(s, t, symbols, 0);
        bool main_inside = add_stack(s, t, symbols, 1);
        t->in_library = one ? main_inside : inside;
        symbols_close(symbols);
        atomic_store_explicit(&t->told, 1, memory_order_release); /* pairs with the acquire in stacks_told */
    }
    symbol_files_close(&files);
    let_go(s);
    return NULL;
}

static bool start(struct stacks *s)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, had;
    if (pthread_attr_init(&attr) != 0)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &had);
    bool started = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) == 0 && pthread_attr_setstacksize(&attr, THREAD_BYTES) == 0 &&
                   pthread_create(&thread, &attr, run, s) == 0;
    pthread_sigmask(SIG_SETMASK, &had, NULL);
    pthread_attr_destroy(&attr);
    return started;
}

struct stacks *stacks_begin(const struct stacks_of *of, int n)
{
    struct stacks *s = mem_zalloc(sizeof *s + (size_t)n * sizeof s->each[0]);
    if (!s)
        return NULL;
    atomic_store_explicit(&s->holders, 2, memory_order_relaxed);
    s->until_ns = clock_ns() + MOST_NS;
    s->n = n;
    for (int i = 0; i < n; i++)
        s->each[i].of = of[i];
    if (!start(s)) {
        free(s);
        return NULL;
    }
    return s;
}

bool stacks_done(const struct stacks *s)
{
    return atomic_load(&s->holders) == 1;
}

bool stacks_told(const struct stacks *s, int i, char *buf, size_t buf_bytes, bool *in_library)
{
    const struct taken *t = &s->each[i];
    if (!atomic_load_explicit(&t->told, memory_order_acquire)) /* pairs with the release in run */
        return false;
    snprintf(buf, buf_bytes, "%s", t->text);
    *in_library = t->in_library;
    return true;
}

bool stacks_end(struct stacks *s, uint64_t wait_ns)
{
    if (!s)
        return true;
    uint64_t until = clock_ns() + wait_ns;
    while (!atomic_load_explicit(&s->done, memory_order_acquire) && clock_ns() < until) /* pairs with the release in run */
        usleep(200);
    bool done = atomic_load_explicit(&s->done, memory_order_acquire);
    let_go(s);
    return done;
}
