/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - the steward: one thread per process and job that waits for four kinds of things: net's sockets, the end of other
 * processes of this host (pidfds), commands of this process's other threads, and tools at its door (watch_door.c). What follows from
 * them is in watch_peers.c.
 */
#include "watch/watch_inner.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STACK_BYTES (256u << 10)
#define NET_RETRY_NS 1000000ull /* another thread has the sockets: look again then, instead of spinning on a readable epoll */
#define NET_IDLE_NS 1000000000ull /* net's descriptor fires for its timers too; this is a safety net */
#define NET_ROUNDS 64
#define LEAVE_NS 100000000ull /* so long who leaves waits for the steward's last words to be under way */
#define SAVE_NS 1200000000ull /* ... and for what is known of a death to be saved, for which the steward takes a second at most */
#define ALONE_NS 1000000000ull
#define LATE_NS 1000000000ull /* the loop came so late: the process was stopped or starved, and what seemed silent was not */

enum { TAG_NET = -1, TAG_BELL = -2 }; /* epoll data; DOOR_TAG lies below; >= 0 = index of a peer */

/* ---- a program that has ended all its threads ---------------------------------------------------------------------- */

/* Counted in each thread itself, so that there are never fewer of them than this says. Relaxed: a late one is seen a second later. */
static _Atomic int own_threads;
static atomic_flag ends = ATOMIC_FLAG_INIT;

void watch_own_thread(int change)
{
    atomic_fetch_add_explicit(&own_threads, change, memory_order_relaxed);
}

/* A signal that came when nobody was left to take it is taken now. */
static void *end_process(void *arg)
{
    sigset_t none;
    (void)arg;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    exit(0);
}

/* A main thread may end by pthread_exit. The last thread of a process ends it with exit(0), and so it has to be with ours: in a thread of its own,
 * since handlers of exit may wait for this one. */
static void look_for_abandoned(struct watch *w, uint64_t now)
{
    pthread_t thread;
    if (now < w->alone_ns)
        return;
    w->alone_ns = now + ALONE_NS;
    if (!process_is_abandoned(atomic_load_explicit(&own_threads, memory_order_relaxed)) || atomic_flag_test_and_set(&ends))
        return;
    LOG(LOG_INFO, LOG_WATCH, "the program has ended its last thread; the process ends as by exit(0)");
    if (pthread_create(&thread, NULL, end_process, NULL) == 0)
        pthread_detach(thread);
    else
        atomic_flag_clear(&ends);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static void ring(struct watch *w)
{
    uint64_t one = 1;
    ssize_t ignored = write(w->bell, &one, sizeof one); /* EAGAIN: it rings already */
    (void)ignored;
}

static void command_push(struct watch *w, struct command *c)
{
    c->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->last = c;
    w->last = &c->next;
    pthread_mutex_unlock(&w->lock);
    ring(w);
}

static void command_free(struct command *c)
{
    free(c->ranks);
    free(c);
}

static struct command *commands_take(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    struct command *c = w->first;
    w->first = NULL;
    w->last = &w->first;
    pthread_mutex_unlock(&w->lock);
    return c;
}

static void commands_run(struct watch *w)
{
    for (struct command *c = commands_take(w), *next; c; c = next) {
        next = c->next;
        if (c->kind == COMMAND_ABORT)
            peers_abort(w, &c->frame, c->ranks, c->nranks);
        else if (c->kind == COMMAND_CONTROL)
            peers_frame(w, c->from, c->data, c->bytes, c->when_ns);
        else if (c->kind == COMMAND_TELL)
            message_send(w, peer_find(w, c->from), c->message, c->data, c->bytes);
        else
            peers_down(w, c->from, c->how, c->frame.text);
        command_free(c);
    }
}

void watch_abort(struct watch *w, uint64_t comm_id, uno_err code, int rank, const char *text, const int *ranks, int nranks)
{
    if (!w || w->forked || !w->running || !w->opt.net)
        return;
    struct command *c = mem_zalloc(sizeof *c);
    if (c)
        c->ranks = mem_array((size_t)nranks, sizeof *ranks);
    if (!c || !c->ranks) {
        free(c);
        LOG(LOG_WARN, LOG_WATCH, "no memory to tell other hosts of an abort (%s); their ranks learn it when they time out", text);
        return;
    }
    memcpy(c->ranks, ranks, (size_t)nranks * sizeof *ranks);
    c->kind = COMMAND_ABORT;
    c->nranks = nranks;
    c->frame = (struct frame){.kind = FRAME_ABORT, .process = w->peers[w->self].process, .comm_id = comm_id, .code = (int32_t)code,
                              .rank = rank};
    snprintf(c->frame.text, sizeof c->frame.text, "%s", text);
    command_push(w, c);
}

uno_err watch_tell(struct watch *w, int process, enum watch_message kind, const void *data, size_t bytes)
{
    if (!w || w->forked || !w->running || !w->opt.net)
        return err_set(UNO_ERR_UNREACHABLE, "there is no connection between stewards to tell rank %d something", process);
    if (bytes > WATCH_MESSAGE_BYTES || !peer_find(w, process) || process == w->peers[w->self].process)
        return err_set(UNO_ERR_ARG, "a message of %zu bytes to process %d", bytes, process);
    struct command *c = mem_zalloc(sizeof *c + bytes);
    if (!c)
        return UNO_ERR_MEMORY;
    c->kind = COMMAND_TELL;
    c->from = process;
    c->message = (uint8_t)kind;
    c->bytes = bytes;
    if (bytes)
        memcpy(c->data, data, bytes);
    command_push(w, c);
    return UNO_OK;
}

void watch_stalled(struct watch *w)
{
    if (!w || w->forked || !w->running)
        return;
    atomic_fetch_add_explicit(&w->page->stalled, 1, memory_order_relaxed);
    ring(w);
}

void watch_hurry(struct watch *w, uint64_t stall_ns)
{
    if (!w || w->forked || !w->running)
        return;
    uint64_t before = atomic_load_explicit(&w->page->hurry, memory_order_relaxed); /* of two at once one is enough */
    atomic_store_explicit(&w->page->hurry, ((before >> 32) + 1) << 32 | MIN(stall_ns / 1000000, UINT32_MAX), memory_order_relaxed);
    ring(w);
}

void watch_resumed(struct watch *w)
{
    if (w && !w->forked && w->running)
        atomic_fetch_add_explicit(&w->page->resumed, 1, memory_order_relaxed);
}

void watch_on_control(void *arg, int from, const void *data, size_t bytes)
{
    struct watch *w = arg;
    if (w->forked)
        return;
    struct command *c = mem_zalloc(sizeof *c + bytes);
    if (!c) {
        LOG(LOG_WARN, LOG_WATCH, "no memory for a message of rank %d's steward; a death or abort may be noticed late", from);
        return;
    }
    c->kind = COMMAND_CONTROL;
    c->when_ns = clock_ns();
    c->from = from;
    c->bytes = bytes;
    memcpy(c->data, data, bytes);
    command_push(w, c);
}

void watch_on_down(void *arg, int from, enum net_down how, const char *text)
{
    struct watch *w = arg;
    if (w->forked)
        return;
    struct command *c = mem_zalloc(sizeof *c);
    if (!c) {
        LOG(LOG_WARN, LOG_WATCH, "no memory to note that rank %d is not connected any more: %s", from, text ? text : "");
        return;
    }
    c->kind = COMMAND_DOWN;
    c->from = from;
    c->how = how;
    snprintf(c->frame.text, sizeof c->frame.text, "%s", text ? text : "");
    command_push(w, c);
}

/* ---- the thread ---------------------------------------------------------------------------------------------------- */

/* net's descriptor is one-shot. When net_progress found nothing, another thread may be at the same sockets; then the descriptor
 * counts again only after a moment, else this loop would spin on bytes that the other thread is about to read. */
static void arm_net(struct watch *w)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = (uint64_t)(int64_t)TAG_NET};
    epoll_ctl(w->epoll, EPOLL_CTL_MOD, w->net_fd, &ev);
    w->net_again_ns = 0;
}

/* net takes the thread that asks for its descriptor for the service thread, so this is done here and not in watch_start. */
static void add_net(struct watch *w)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = (uint64_t)(int64_t)TAG_NET};
    w->net_fd = net_proc_fd(w->opt.net);
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->net_fd, &ev) != 0)
        LOG(LOG_WARN, LOG_WATCH, "the steward cannot wait for the network (%s): other hosts hear from this process late or not at "
            "all", strerror(errno));
}

static void serve_net(struct watch *w, bool fired)
{
    uint64_t now = clock_ns();
    if (fired || w->net_idle_ns <= now) {
        int rounds = 0;
        while (rounds < NET_ROUNDS && net_progress(w->opt.net))
            rounds++;
        w->net_idle_ns = now + NET_IDLE_NS;
        if (fired && rounds > 0)
            arm_net(w);
        else if (fired)
            w->net_again_ns = now + NET_RETRY_NS;
    }
    if (w->net_again_ns && w->net_again_ns <= now)
        arm_net(w);
}

static int sleep_ms(const struct watch *w)
{
    uint64_t until = MIN(MIN(peers_next_ns(w), hosts_next_ns(w)), MIN(w->records_ns, post_next_ns(w))), now = clock_ns();
    until = MIN(until, MIN(w->caller_tick_ns, MIN(gather_next_ns(w), MIN(answer_next_ns(w), door_next_ns(w)))));
    until = MIN(until, w->alone_ns);
    if (w->opt.net)
        until = MIN(until, w->net_again_ns ? MIN(w->net_again_ns, w->net_idle_ns) : w->net_idle_ns);
    if (until == UINT64_MAX)
        return -1;
    return until <= now ? 0 : (int)MIN((until - now + 999999) / 1000000, 1000u);
}

static bool wait_for_events(struct watch *w)
{
    struct epoll_event ev[16];
    bool net_fired = false;
    sigset_t mask; /* another process's steward may want an answer */
    int ms = sleep_ms(w);
    int n = epoll_pwait(w->epoll, ev, ARRAY_LEN(ev), ms, records_mask(w, &mask));
    uint64_t now = clock_ns(), due = w->woke_ns + (uint64_t)MAX(ms, 0) * 1000000u;
    if (ms >= 0 && now > due + LATE_NS)
        hosts_late(w, now - due, now);
    w->woke_ns = now;
    for (int i = 0; i < n; i++) {
        int tag = (int)(int64_t)ev[i].data.u64;
        uint64_t count;
        if (tag == TAG_NET)
            net_fired = true;
        else if (tag == TAG_BELL)
            while (read(w->bell, &count, sizeof count) > 0)
                ;
        else if (tag < TAG_BELL)
            door_event(w, DOOR_TAG(tag)); /* the same there and back */
        else
            peers_event(w, tag);
    }
    return net_fired;
}

/* A machine is suspended at any moment, not only while we wait: what follows must not take that for a silence of others. */
static uint64_t time_of(struct watch *w)
{
    uint64_t now = clock_ns();
    if (now > w->woke_ns + LATE_NS) {
        hosts_late(w, now - w->woke_ns, now);
        w->woke_ns = now;
    }
    return now;
}

static void look_for_leaving(struct watch *w)
{
    if (!atomic_load_explicit(&w->leaving, memory_order_relaxed) || atomic_load_explicit(&w->left, memory_order_relaxed))
        return;
    hosts_leave(w, clock_ns());
    if (w->opt.net)
        (void)net_progress(w->opt.net); /* what was just queued goes out before a file is written */
    peers_look(w);
    post_end(w);
    atomic_store_explicit(&w->left, true, memory_order_release); /* pairs with the acquire in watch_goodbye */
}

static void *steward(void *arg)
{
    struct watch *w = arg;
    watch_own_thread(1);
    if (w->opt.net)
        add_net(w);
    peers_watch(w);
    records_begin(w);
    door_open(w); /* not before this thread runs: who knocks would wait for it */
    hosts_begin(w);
    w->woke_ns = clock_ns();
    while (!atomic_load_explicit(&w->stop, memory_order_acquire)) { /* pairs with the release in watch_stop */
        bool net_fired = wait_for_events(w);
        if (w->opt.net)
            serve_net(w, net_fired);
        commands_run(w);
        look_for_leaving(w);
        peers_timers(w, time_of(w));
        records_serve(w);
        records_tick(w, clock_ns());
        times_tick(w, clock_ns());
        rates_tick(w, clock_ns());
        hosts_timers(w, time_of(w));
        gather_timers(w, clock_ns());
        inquiry_timers(w, time_of(w));
        answer_timers(w, clock_ns());
        door_timers(w, clock_ns());
        look_for_abandoned(w, clock_ns());
        post_timer(w, clock_ns());
        w->caller_tick_ns = w->opt.on_tick ? w->opt.on_tick(w->opt.arg, clock_ns()) : UINT64_MAX;
    }
    look_for_leaving(w);
    if (!atomic_load_explicit(&w->left, memory_order_relaxed))
        post_end(w);
    records_end(w);
    commands_run(w); /* an abort just before the end still goes out */
    watch_own_thread(-1);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------------------------------ */

uno_err watch_new(struct watch **out)
{
    struct watch *w = mem_zalloc(sizeof *w);
    if (!w)
        return UNO_ERR_MEMORY;
    pthread_mutex_init(&w->lock, NULL);
    w->last = &w->first;
    w->epoll = -1;
    door_new(&w->door);
    w->bell = fd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (w->bell < 0) {
        uno_err err = err_sys("the steward cannot make its eventfd");
        free(w);
        return err;
    }
    *out = w;
    return UNO_OK;
}

static uno_err start_thread(struct watch *w)
{
    sigset_t all, old;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, MAX((size_t)STACK_BYTES, (size_t)PTHREAD_STACK_MIN + STACK_BYTES / 2));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's signals belong to the program's threads */
    int failed = fault_hit("thread") ? EAGAIN : pthread_create(&w->thread, &attr, steward, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (failed)
        return err_set(UNO_ERR_SYSTEM, "the steward's thread cannot be started: %s; see ulimit -u and the container's pids limit",
                       strerror(failed));
    pthread_setname_np(w->thread, "uno-steward");
    return UNO_OK;
}

static uno_err prepare(struct watch *w, const struct watch_options *opt)
{
    w->opt = *opt;
    w->members = mem_array((size_t)opt->size, sizeof *w->members);
    if (!w->members)
        return UNO_ERR_MEMORY;
    memcpy(w->members, opt->members, (size_t)opt->size * sizeof *w->members);
    w->opt.members = w->members;
    w->ledger_dir = opt->cfg && opt->cfg->ledger_dir ? opt->cfg->ledger_dir : ""; /* the text lives for the process, cfg may not */
    TRY(peers_new(w));
    TRY(hosts_new(w));
    w->epoll = fd_above_standard(epoll_create1(EPOLL_CLOEXEC));
    if (w->epoll < 0)
        return err_sys("the steward cannot make its epoll descriptor");
    w->ends = opt->cfg ? ends_open(opt->cfg->ends_fd) : NULL;
    if (opt->board) {
        ends_note(w->ends, w->members[opt->rank].launched, opt->board->page->cgroup, opt->board->page->oom_kills);
        ends_show(w->ends, w->members[opt->rank].launched);
    }
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)(int64_t)TAG_BELL};
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->bell, &ev) != 0)
        return err_sys("the steward cannot wait for its eventfd");
    return UNO_OK;
}

static void unprepare(struct watch *w)
{
    inquiry_free(w);
    answer_free(w);
    door_close(w);
    hosts_free(w);
    peers_free(w);
    ends_close(w->ends);
    w->ends = NULL;
    free(w->members);
    w->members = NULL;
    if (w->epoll >= 0)
        close(w->epoll);
    w->epoll = -1;
}

uno_err watch_start(const struct watch_options *opt, struct watch **watch)
{
    bool made = !*watch;
    if (made)
        TRY(watch_new(watch));
    struct watch *w = *watch; /* stored before the thread runs: its callbacks may need it */
    uno_err err = prepare(w, opt);
    w->running = err == UNO_OK;
    if (err == UNO_OK)
        err = start_thread(w);
    if (err == UNO_OK)
        return UNO_OK;
    w->running = false;
    unprepare(w);
    if (made) {
        watch_stop(w);
        *watch = NULL;
    }
    return err;
}

void watch_goodbye(struct watch *w, bool failed)
{
    if (!w || w->forked)
        return;
    atomic_store_explicit(&w->leaving, true, memory_order_relaxed);
    if (w->opt.board) /* release: all that it did before; pairs with the acquire in records_goodbye */
        atomic_store_explicit(&w->opt.board->page->goodbye, 1, memory_order_release);
    if (!w->running)
        return;
    bool saves = atomic_load_explicit(&w->post_due, memory_order_relaxed) || (failed && w->ledger_dir[0]); /* it may not have seen why yet */
    if (w->nhosts < 2 && !saves)
        return;
    ring(w);
    for (uint64_t until = clock_ns() + (saves ? SAVE_NS : LEAVE_NS); clock_ns() < until; nanosleep(&(struct timespec){0, 50000}, NULL))
        if (atomic_load_explicit(&w->left, memory_order_acquire)) /* pairs with the release in look_for_leaving */
            return;
}

void watch_stop(struct watch *w)
{
    if (!w || w->forked)
        return;
    if (w->running) {
        atomic_store_explicit(&w->stop, true, memory_order_release); /* pairs with the acquire in steward */
        ring(w);
        pthread_join(w->thread, NULL);
    }
    for (struct command *c = commands_take(w), *next; c; c = next) {
        next = c->next;
        command_free(c);
    }
    unprepare(w);
    close(w->bell);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* The thread does not exist here and the lock may be held by it for ever; memory stays, it is the parent's copy. */
void watch_forked(struct watch *w)
{
    if (!w || w->forked)
        return;
    if (w->running)
        watch_own_thread(-1);
    w->forked = true;
    for (int i = 0; i < w->npeers; i++)
        process_forget(&w->peers[i].eye);
    door_close(w);
    if (w->epoll >= 0)
        close(w->epoll);
    close(w->bell);
}
