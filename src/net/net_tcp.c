/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp.c - TCP of one process and job: the try-lock that makes one thread the holder, one round over all sockets, sleeping,
 * and the service thread's part. What a round does to links, paths and ends is in the other net_tcp_*.c; how a net_proc
 * begins and ends in net_tcp_proc.c.
 */
#include "net_tcp_inner.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TICK_FAST_MS 10      /* handshakes, retries, a caller inside */
#define TICK_SLOW_MS 250     /* only the health of paths */
#define LATE_NS 500000000ull /* we did not run for so long: what seemed silent was perhaps not */
#define HEALTH_NS 500000000ull
#define COLD_POLLS 64        /* after so many empty reads a path is looked at ... */
#define COLD_ROUNDS 4        /* ... every so many rounds */
#define SETUP_ROUNDS 64      /* callers look at handshakes that often */
#define SERVICE_TRIES 200

/* What had arrived when this thread last called net_progress, and the time before. A caller looks at its ends before or after
 * its last net_progress, but after the one before: if nothing has arrived since that one, it has seen all and may sleep. */
static _Thread_local struct { struct net_proc *proc; uint64_t last, before; } seen;

static void see(struct net_proc *p)
{
    uint64_t now = atomic_load(&p->activity); /* pairs with the additions in publish_message, grant_arrived */
    seen.before = seen.proc == p ? seen.last : now - 1;
    seen.last = now;
    seen.proc = p;
}

/* ---- the lock --------------------------------------------------------------------------------------------------------- */

bool proc_try(struct net_proc *p)
{
    return atomic_load_explicit(&p->busy, memory_order_relaxed) == 0 && atomic_exchange(&p->busy, 1) == 0;
}

void proc_lock(struct net_proc *p)
{
    while (!proc_try(p))
        sched_yield();
}

void proc_push(struct net_proc *p, struct tcp_note *note)
{
    struct tcp_note *top = atomic_load_explicit(&p->inbox, memory_order_relaxed);
    do
        note->next = top;
    while (!atomic_compare_exchange_weak(&p->inbox, &top, note)); /* seq_cst: pairs with proc_done's look after unlocking */
}

static void wake_service(struct net_proc *p)
{
    uint64_t one = 1;
    if (atomic_load_explicit(&p->served, memory_order_relaxed) && write(p->kick_fd, &one, sizeof one) < 0)
        return; /* the counter is full: it is awake */
}

/* ---- events for the service thread --------------------------------------------------------------------------------------- */

void proc_event(struct net_proc *p, int from, bool down, enum net_down how, const void *data, size_t bytes)
{
    struct tcp_event *e = mem_zalloc(sizeof *e + bytes);
    if (!e) {
        LOG(LOG_WARN, LOG_NET, "a message from process %d was lost: %s", from, err_text());
        return;
    }
    *e = (struct tcp_event){.from = from, .down = down, .how = how, .bytes = bytes};
    if (bytes)
        memcpy(e->data, data, bytes);
    pthread_mutex_lock(&p->event_mutex);
    if (p->event_head)
        p->event_tail->next = e;
    else
        p->event_head = e;
    p->event_tail = e;
    atomic_store_explicit(&p->has_events, true, memory_order_relaxed);
    pthread_mutex_unlock(&p->event_mutex);
    wake_service(p);
}

struct tcp_event *proc_next_event(struct net_proc *p)
{
    pthread_mutex_lock(&p->event_mutex);
    struct tcp_event *e = p->event_head;
    if (e)
        p->event_head = e->next;
    atomic_store_explicit(&p->has_events, p->event_head != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&p->event_mutex);
    return e;
}

static void deliver(struct net_proc *p)
{
    struct tcp_event *e;
    while (atomic_load_explicit(&p->has_events, memory_order_relaxed) && (e = proc_next_event(p))) {
        if (e->down && p->opt.on_down)
            p->opt.on_down(p->opt.arg, e->from, e->how, e->data);
        else if (!e->down && p->opt.on_control)
            p->opt.on_control(p->opt.arg, e->from, e->data, e->bytes);
        free(e);
    }
}

/* With no service thread (tests, tools) any caller is it. */
static bool is_service(const struct net_proc *p)
{
    return !atomic_load_explicit(&p->served, memory_order_acquire) || pthread_equal(atomic_load(&p->service), pthread_self());
}

/* ---- a round --------------------------------------------------------------------------------------------------------------- */

void proc_empty_inbox(struct net_proc *p)
{
    if (!atomic_load_explicit(&p->inbox, memory_order_relaxed))
        return;
    /* acquire: pairs with proc_push; reversed, so that an end's death note comes last */
    struct tcp_note *top = atomic_exchange(&p->inbox, NULL), *first = NULL;
    while (top) {
        struct tcp_note *next = top->next;
        top->next = first;
        first = top;
        top = next;
    }
    while (first) {
        struct tcp_note *next = first->next;
        if (first->death)
            end_drop(first->end);
        else
            end_update(first->end);
        first = next;
    }
}

/* Control frames and address books that other threads left. */
static void look_at_links(struct net_proc *p)
{
    if (!atomic_load_explicit(&p->look, memory_order_relaxed) || !atomic_exchange(&p->look, false))
        return;
    for (struct net_link *l = atomic_load(&p->links); l; l = atomic_load(&l->next)) {
        if (!l->has_book && atomic_load_explicit(&l->book_set, memory_order_acquire)) /* pairs with net_link_get */
            link_lanes(l);
        if (atomic_load_explicit(&l->control_due, memory_order_relaxed))
            link_dirty(l);
    }
}

bool link_blocked(const struct net_link *l)
{
    for (int i = 0; i < l->npaths; i++)
        if (path_pending(l->paths[i]))
            return true;
    return false;
}

static bool flush_links(struct net_proc *p)
{
    bool moved = false, unsent = false;
    struct net_link *next;
    struct net_link *l = p->dirty;
    p->dirty = NULL;
    for (; l; l = next) {
        next = l->dirty_next;
        l->dirty = false;
        if (atomic_load_explicit(&l->state, memory_order_relaxed) == TCP_LINK_DOWN)
            continue;
        if (l->npaths)
            moved |= link_flush(l);
        else if (!l->wanted && link_has_unsent(l))
            link_want(l);
        bool more = l->npaths && (link_has_unsent(l) || link_blocked(l));
        if (more || (l->balanced && balance_busy(l)))
            link_dirty(l);
        unsent |= more;
    }
    atomic_store_explicit(&p->unsent, unsent, memory_order_relaxed);
    return moved;
}

static bool read_paths(struct net_proc *p)
{
    bool moved = false;
    if (p->npaths > TCP_DIRECT_POLL) {
        struct epoll_event ev[32];
        int n = epoll_wait(p->data_fd, ev, ARRAY_LEN(ev), 0);
        for (int i = 0; i < n; i++) {
            struct tcp_path *path = ev[i].data.ptr;
            if (path->fd >= 0 && ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                moved |= path_read(path);
        }
        return moved;
    }
    for (size_t i = 0; i < p->npaths; i++) {
        struct tcp_path *path = p->paths[i];
        if (path->idle >= COLD_POLLS && (p->round + i) % COLD_ROUNDS != 0)
            continue;
        bool some = path_read(path);
        moved |= some;
        if (path->fd < 0)
            i--; /* the last one has its place */
        else
            path->idle = some ? 0 : MIN(path->idle + 1, COLD_POLLS);
    }
    return moved;
}

static void watch_room(struct net_proc *p, struct tcp_path *path, bool on)
{
    struct epoll_event ev = {.events = EPOLLIN | (on ? EPOLLOUT : 0), .data.ptr = path};
    if (epoll_ctl(p->data_fd, EPOLL_CTL_MOD, path->fd, &ev) != 0)
        return;
    path->out_armed = on;
    p->narmed += on ? 1 : -1;
}

/* Let epoll watch for room in full sockets when somebody is about to sleep on it; not while callers poll anyway. */
static void arm_writers(struct net_proc *p)
{
    bool sleepy = atomic_load(&p->callers) == 0 || atomic_load(&p->sleepers) > 0;
    if (!p->narmed && (!sleepy || !atomic_load_explicit(&p->unarmed, memory_order_relaxed)))
        return;
    for (size_t i = 0; i < p->npaths; i++) {
        bool full = path_pending(p->paths[i]);
        if (p->paths[i]->out_armed ? !full : full && sleepy)
            watch_room(p, p->paths[i], full);
    }
    if (sleepy)
        atomic_store_explicit(&p->unarmed, false, memory_order_relaxed);
}

static void wake_sleepers(struct net_proc *p, uint64_t before)
{
    uint64_t n = (uint64_t)atomic_load(&p->sleepers); /* seq_cst: pairs with net_sleep, which counts itself, then looks */
    if (n && atomic_load_explicit(&p->activity, memory_order_relaxed) != before && write(p->wake_fd, &n, sizeof n) < 0)
        return; /* full: everybody is awake */
}

void proc_free_dead(struct net_proc *p)
{
    while (p->dead) {
        struct tcp_path *path = p->dead;
        p->dead = path->dead_next;
        p->narmed -= path->out_armed;
        free(path->small_in);
        free(path->small_out);
        free(path);
    }
}

static void set_timer(struct net_proc *p, int ms)
{
    if (p->tick_ms == ms)
        return;
    struct itimerspec t = {.it_interval.tv_nsec = ms * 1000000l, .it_value.tv_nsec = ms * 1000000l};
    timerfd_settime(p->timer_fd, 0, &t, NULL);
    if (p->tick_ms == 0)
        p->tick_at_ns = clock_ns();
    p->tick_ms = ms;
}

void proc_tick(struct net_proc *p)
{
    set_timer(p, TICK_FAST_MS);
}

static void tick(struct net_proc *p, uint64_t now)
{
    uint64_t late = now - p->tick_at_ns;
    p->tick_at_ns = now;
    bool again = connect_tick(p, now, late > LATE_NS ? late : 0) || atomic_load_explicit(&p->disarmed, memory_order_relaxed);
    if (now - p->health_ns >= HEALTH_NS) {
        p->health_ns = now;
        for (struct net_link *l = atomic_load(&p->links); l; l = atomic_load(&l->next))
            if (l->npaths > 1)
                link_health(l);
    }
    set_timer(p, again ? TICK_FAST_MS : p->npaths ? TICK_SLOW_MS : 0);
}

/* The service thread need not wake for every message while callers poll by themselves. */
static void service_duties(struct net_proc *p)
{
    uint64_t count;
    const int woke[] = {p->kick_fd, p->timer_fd};
    for (size_t i = 0; i < ARRAY_LEN(woke); i++)
        if (read(woke[i], &count, sizeof count) < 0)
            continue; /* this was not why we woke */
    bool inside = atomic_load(&p->callers) > 0;
    if (inside == atomic_load_explicit(&p->disarmed, memory_order_relaxed))
        return;
    struct epoll_event ev = {.events = inside ? 0 : EPOLLIN};
    if (epoll_ctl(p->service_fd, EPOLL_CTL_MOD, p->data_fd, &ev) == 0)
        atomic_store(&p->disarmed, inside);
    if (inside)
        proc_tick(p);
}

static bool setup_round(struct net_proc *p)
{
    uint64_t now = clock_ns();
    if (p->tick_ms && now - p->tick_at_ns >= (uint64_t)p->tick_ms * 1000000)
        tick(p, now);
    return connect_step(p);
}

/* Everything that needs no look at the sockets' input. */
static bool serve(struct net_proc *p)
{
    proc_empty_inbox(p);
    look_at_links(p);
    bool moved = p->dirty ? flush_links(p) : false;
    arm_writers(p);
    if (p->dead)
        proc_free_dead(p);
    return moved;
}

bool proc_round(struct net_proc *p, bool service)
{
    uint64_t before = atomic_load_explicit(&p->activity, memory_order_relaxed);
    bool served = atomic_load_explicit(&p->served, memory_order_relaxed), moved = false;
    if (served && service)
        service_duties(p);
    proc_empty_inbox(p);
    p->round++;
    if (p->npaths)
        moved = read_paths(p);
    if ((service && served) || p->round % (served ? SETUP_ROUNDS : 4) == 0)
        moved |= setup_round(p);
    moved |= serve(p);
    wake_sleepers(p, before);
    return moved;
}

void proc_done(struct net_proc *p)
{
    for (;;) {
        atomic_store(&p->busy, 0); /* seq_cst: unlocked before we look; pairs with proc_push and net_sleep */
        bool more = atomic_load(&p->inbox) || atomic_load(&p->look) || (atomic_load(&p->sleepers) && atomic_load(&p->unarmed));
        if (!more || !proc_try(p))
            return;
        serve(p);
    }
}

void proc_flush_soon(struct net_proc *p)
{
    if (proc_try(p)) {
        serve(p);
        proc_done(p);
    }
}

bool net_progress(struct net_proc *p)
{
    bool service = is_service(p), served = atomic_load_explicit(&p->served, memory_order_relaxed);
    if (service)
        deliver(p);
    see(p);
    bool got = proc_try(p);
    for (int i = 0; !got && service && served && i < SERVICE_TRIES; i++) {
        sched_yield(); /* callers poll all the time; our turn comes between two of their rounds */
        got = proc_try(p);
    }
    if (!got)
        return false;
    bool moved = proc_round(p, service);
    proc_done(p);
    if (service)
        deliver(p);
    return moved;
}

/* ---- sleeping, entering, leaving --------------------------------------------------------------------------------------------- */

void net_sleep(struct net_proc *p, uint64_t timeout_ns)
{
    atomic_fetch_add(&p->sleepers, 1); /* before we look at activity; pairs with wake_sleepers */
    uint64_t now = atomic_load(&p->activity);
    if (seen.proc == p && seen.before == now) {
        if (atomic_load(&p->unarmed) || atomic_load(&p->inbox))
            proc_flush_soon(p);
        struct pollfd f[3] = {{.fd = p->data_fd, .events = POLLIN}, {.fd = p->wake_fd, .events = POLLIN},
                              {.fd = p->setup_fd, .events = POLLIN}};
        struct timespec ts = {.tv_sec = (time_t)(MIN(timeout_ns, 3600000000000ull) / 1000000000),
                              .tv_nsec = (long)(timeout_ns % 1000000000)};
        int n = ppoll(f, atomic_load(&p->served) ? 2 : 3, &ts, NULL);
        uint64_t one;
        if (n > 0 && f[1].revents && read(p->wake_fd, &one, sizeof one) < 0)
            n = 0; /* another sleeper was quicker */
    }
    atomic_fetch_sub(&p->sleepers, 1);
    seen.proc = p;
    seen.last = seen.before = now;
}

void net_enter(struct net_proc *p)
{
    atomic_fetch_add(&p->callers, 1);
}

void net_leave(struct net_proc *p)
{
    atomic_fetch_sub(&p->callers, 1);
    if (!atomic_load(&p->inbox) && !atomic_load_explicit(&p->unsent, memory_order_relaxed))
        return;
    proc_flush_soon(p);
    if (atomic_load_explicit(&p->unsent, memory_order_relaxed))
        wake_service(p); /* it goes on with what did not fit */
}

int net_proc_fd(struct net_proc *p)
{
    atomic_store(&p->service, pthread_self());
    atomic_store_explicit(&p->served, true, memory_order_release); /* pairs with the acquire in is_service */
    return p->service_fd;
}
