/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_stack.c - asking a thread for its stack (watch_stack.h). The handler calls nothing but the unwinder, which was loaded
 * before, and gettid; it answers only where a request for its own thread stands on a board.
 */
#include "watch/watch_stack.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "watch/watch_proc.h"
#include "watch/watch_symbols.h"

#define MOST_BOARDS 8
#define CLAIM_NS 2000000000ull /* an asker that died in between blocks others no longer than that */
#define LEAVE_NS 100000000ull
#define EXTRA_FRAMES 4         /* the handler's own, above the interrupted one */

/* The boards of this process, for the handler. Sequentially consistent with `inside`: a board is unmapped when no handler can read it. */
static _Atomic(struct board_page *) boards[MOST_BOARDS];
static _Atomic int taken; /* the signal, 0 = none; relaxed: whoever serves a board has seen it set under the lock */
static _Atomic int inside; /* handlers that run now */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- in the process that is asked --------------------------------------------------------------------------------------- */

static uint64_t interrupted_pc(const void *context)
{
    const ucontext_t *uc = context;
#if defined(__x86_64__)
    return (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uint64_t)uc->uc_mcontext.pc;
#else
    (void)uc;
    return 0;
#endif
}

/* The handler's own frames are left out: the stack begins where the thread was interrupted. */
static void write_stack(struct board_stack *s, const void *context)
{
    void *frames[BOARD_FRAMES + EXTRA_FRAMES];
    int n = backtrace(frames, BOARD_FRAMES + EXTRA_FRAMES), from = 0;
    uint64_t pc = interrupted_pc(context);
    for (int i = 0; i < n && from == 0; i++)
        if ((uint64_t)(uintptr_t)frames[i] == pc)
            from = i;
    s->frames = 0;
    for (int i = from; i < n && s->frames < BOARD_FRAMES; i++)
        s->pc[s->frames++] = (uint64_t)(uintptr_t)frames[i];
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
    int saved = errno, tid = (int)syscall(SYS_gettid);
    (void)sig;
    if (info->si_code != SI_TKILL && info->si_code != SI_USER)
        return;
    atomic_fetch_add(&inside, 1); /* before the boards are looked at, as stack_forget does it the other way round */
    for (int b = 0; b < MOST_BOARDS; b++) {
        struct board_page *p = atomic_load(&boards[b]);
        for (int i = 0; p && i < BOARD_STACKS; i++) {
            struct board_stack *s = &p->stacks[i];
            if (atomic_load_explicit(&s->state, memory_order_acquire) != STACK_WANTED || s->tid != tid) /* pairs with stack_ask */
                continue;
            write_stack(s, context);
            uint32_t wanted = STACK_WANTED; /* unless the asker gave up meanwhile; pairs with the acquire in stack_ready */
            atomic_compare_exchange_strong_explicit(&s->state, &wanted, STACK_READY, memory_order_release, memory_order_relaxed);
        }
    }
    atomic_fetch_sub(&inside, 1);
    errno = saved;
}

/* A signal that has its default action and that no thread waits for by blocking it here. From above: programs take them from
 * below, and the last ones belong to tools. */
static int take_signal(void)
{
    void *warm[4];
    (void)backtrace(warm, 4); /* loads the unwinder, which allocates; in the handler it must not */
    sigset_t blocked;
    sigemptyset(&blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int sig = SIGRTMAX - 3; sig > SIGRTMIN + 3; sig--) {
        struct sigaction now, ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
        sigfillset(&ours.sa_mask);
        if (sigismember(&blocked, sig) == 1 || sigaction(sig, NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) ||
            now.sa_handler != SIG_DFL)
            continue;
        if (sigaction(sig, &ours, NULL) == 0)
            return sig;
    }
    LOG(LOG_INFO, LOG_WATCH, "the program has taken every real-time signal: verdicts name no functions of its threads that run");
    return 0;
}

static bool still_ours(int sig)
{
    struct sigaction now;
    return sigaction(sig, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal;
}

void stack_serve(struct board_page *p)
{
    pthread_mutex_lock(&lock);
    int sig = atomic_load_explicit(&taken, memory_order_relaxed);
    if (sig == 0 || !still_ours(sig))
        sig = take_signal();
    atomic_store_explicit(&taken, sig, memory_order_relaxed);
    for (int b = 0; sig && b < MOST_BOARDS; b++)
        if (!atomic_load_explicit(&boards[b], memory_order_relaxed)) {
            atomic_store(&boards[b], p);
            atomic_store_explicit(&p->stack_signal, sig, memory_order_release); /* pairs with the acquire in stack_ask */
            break;
        }
    pthread_mutex_unlock(&lock);
}

void stack_check(struct board_page *p)
{
    int sig = atomic_load_explicit(&p->stack_signal, memory_order_relaxed);
    if (sig > 0 && !still_ours(sig)) {
        atomic_store_explicit(&p->stack_signal, 0, memory_order_relaxed);
        LOG(LOG_INFO, LOG_WATCH, "the program now uses signal %d itself: verdicts name no functions of its threads that run", sig);
    }
}

/* The handler stays, since a request may be on its way; one that runs now is waited for, so that no page goes away under it. */
void stack_forget(struct board_page *p)
{
    atomic_store_explicit(&p->stack_signal, 0, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    for (int b = 0; b < MOST_BOARDS; b++)
        if (atomic_load_explicit(&boards[b], memory_order_relaxed) == p)
            atomic_store(&boards[b], NULL);
    pthread_mutex_unlock(&lock);
    for (uint64_t until = clock_ns() + LEAVE_NS; atomic_load(&inside) != 0 && clock_ns() < until;)
        usleep(20);
}

void stack_forked(void)
{
    pthread_mutex_init(&lock, NULL); /* another thread may have held it */
    for (int b = 0; b < MOST_BOARDS; b++)
        atomic_store_explicit(&boards[b], NULL, memory_order_relaxed);
    atomic_store_explicit(&inside, 0, memory_order_relaxed);
}

/* ---- in the process that asks --------------------------------------------------------------------------------------------- */

static bool claim(struct board_stack *s)
{
    uint64_t now = clock_ns();
    uint32_t state = atomic_load_explicit(&s->state, memory_order_acquire);
    if (state != STACK_FREE && now - s->claimed_ns < CLAIM_NS)
        return false;
    if (!atomic_compare_exchange_strong(&s->state, &state, STACK_CLAIMED))
        return false;
    s->claimed_ns = now;
    return true;
}

/* Between this look and the signal lie some microseconds. A thread that enters a sleep in them is woken; that it has not slept since
 * the look before makes it unlikely, nothing makes it impossible. */
static bool may_disturb(int32_t pid, int32_t tid, const struct proc_spot *before)
{
    struct proc_spot now;
    return !before || (before->undisturbed && proc_spot(pid, tid, &now) && now.undisturbed && now.switches == before->switches);
}

bool stack_ask(struct board_page *p, int place, int32_t tid, const struct proc_spot *before)
{
    struct board_stack *s = &p->stacks[place];
    int sig = atomic_load_explicit(&p->stack_signal, memory_order_acquire); /* pairs with the release in stack_serve */
    if (sig < SIGRTMIN || sig > SIGRTMAX || tid <= 0)
        return false;
    char state = proc_state(p->pid, tid);
    if ((state != 'R' && state != 'S') || !proc_handles(p->pid, tid, sig) || !claim(s))
        return false; /* what is stopped would answer when it goes on; a signal that nobody handles would kill it */
    s->tid = tid;
    s->frames = 0;
    atomic_store_explicit(&s->state, STACK_WANTED, memory_order_release); /* pairs with the acquire in on_signal */
    if (may_disturb(p->pid, tid, before) && syscall(SYS_tgkill, p->pid, tid, sig) == 0)
        return true;
    atomic_store_explicit(&s->state, STACK_FREE, memory_order_release);
    return false;
}

bool stack_ready(struct board_page *p, int place)
{
    /* acquire: the frames; pairs with the release in on_signal */
    return atomic_load_explicit(&p->stacks[place].state, memory_order_acquire) == STACK_READY;
}

uint32_t stack_take(struct board_page *p, int place, uint64_t pc[BOARD_FRAMES])
{
    struct board_stack *s = &p->stacks[place];
    uint32_t n = 0;
    if (stack_ready(p, place)) {
        n = MIN(s->frames, (uint32_t)BOARD_FRAMES);
        memcpy(pc, s->pc, sizeof s->pc);
    }
    atomic_store_explicit(&s->state, STACK_FREE, memory_order_release);
    return n;
}

bool stack_name(struct symbols *symbols, uint64_t pc, bool returns, bool sure, char *buf, size_t buf_bytes, bool *in_library)
{
    struct symbol_name name;
    struct text t = {0};
    size_t len = strlen(buf);
    symbols_name(symbols, pc - returns, &name);
    name.offset += returns;
    text_add(&t, "%s", sure ? "" : "? ");
    if (name.function[0])
        text_add(&t, "%s+0x%llx (%s)\n", name.function, (unsigned long long)name.offset, name.module);
    else if (name.module[0])
        text_add(&t, "%s+0x%llx\n", name.module, (unsigned long long)name.offset);
    else
        text_add(&t, "0x%llx\n", (unsigned long long)name.offset);
    bool fits = t.s && len + t.len < buf_bytes; /* whole lines only */
    if (fits)
        memcpy(buf + len, t.s, t.len + 1);
    text_free(&t);
    if (fits && sure && strncmp(name.module, "libunisono.so", 13) == 0)
        *in_library = true;
    return fits;
}
