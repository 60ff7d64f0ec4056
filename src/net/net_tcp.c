/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp.c - TCP of one process and job: the try-lock that makes one thread the holder, one round over all sockets, sleeping,
 * and what the service thread waits on. What a round does to links, paths and ends is in the other net_tcp_*.c.
 */
#include "net_tcp_inner.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TICK_FAST_MS 10      /* handshakes, retries, a caller inside */
#define TICK_SLOW_MS 250     /* only the health of paths */
#define HEALTH_NS 500000000ull
#define COLD_POLLS 64        /* after so many empty reads a path is looked at in every 16th round */
#define SETUP_ROUNDS 64      /* callers look at handshakes that often */
#define SERVICE_TRIES 200

/* What this thread's last look had seen: if more has arrived since, it must not sleep. */
static _Thread_local struct { struct net_proc *proc; uint64_t activity; } seen;

/* ---- the lock --------------------------------------------------------------------------------------------------------- */

bool proc_try(struct net_proc *p)
{
    return atomic_load_explicit(&p->busy, memory_order_relaxed) == 0 && atomic_exchange(&p->busy, 1) == 0;
}

static void proc_lock(struct net_proc *p)
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

void proc_event(struct net_proc *p, int from, bool down, bool clean, bool fin, const void *data, size_t bytes)
{
    struct tcp_event *e = mem_zalloc(sizeof *e + bytes);
    if (!e) {
        LOG(LOG_WARN, LOG_NET, "a message from process %d was lost: %s", from, err_text());
        return;
    }
    *e = (struct tcp_event){.from = from, .down = down, .clean = clean, .fin = fin, .bytes = bytes};
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

static struct tcp_event *next_event(struct net_proc *p)
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
    while (atomic_load_explicit(&p->has_events, memory_order_relaxed) && (e = next_event(p))) {
        if (e->down && p->opt.on_down)
            p->opt.on_down(p->opt.arg, e->from, e->clean, e->fin, e->data);
        else if (!e->down && p->opt.on_control)
            p->opt.on_control(p->opt.arg, e->from, e->data, e->bytes);
        free(e);
    }
}

/* With no service thread (tests, tools) any caller is it. */
static bool is_service(const struct net_proc *p)
{
    return !atomic_load_explicit(&p->served, memory_order_acquire) || pthread_equal(p->service, pthread_self());
}

/* ---- a round --------------------------------------------------------------------------------------------------------------- */

static void empty_inbox(struct net_proc *p)
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

static bool link_blocked(const struct net_link *l)
{
    for (int i = 0; i < l->npaths; i++)
        if (path_pending(l->paths[i]))
            return true;
    return false;
}

static bool flush_links(struct net_proc *p)
{
    bool moved = false;
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
        if (l->npaths && (link_has_unsent(l) || link_blocked(l)))
            link_dirty(l);
    }
    atomic_store_explicit(&p->unsent, p->dirty != NULL, memory_order_relaxed);
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
        if (path->idle >= COLD_POLLS && (p->round + i) % 16 != 0)
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

static void free_dead(struct net_proc *p)
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
    p->tick_ms = ms;
}

void proc_tick(struct net_proc *p)
{
    set_timer(p, TICK_FAST_MS);
}

static void tick(struct net_proc *p, uint64_t now)
{
    p->tick_at_ns = now;
    bool again = connect_tick(p, now) || atomic_load_explicit(&p->disarmed, memory_order_relaxed);
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
    bool moved = connect_step(p);
    uint64_t now = clock_ns();
    if (p->tick_ms && now - p->tick_at_ns >= (uint64_t)p->tick_ms * 1000000)
        tick(p, now);
    return moved;
}

/* Everything that needs no look at the sockets' input. */
static bool serve(struct net_proc *p)
{
    empty_inbox(p);
    look_at_links(p);
    bool moved = p->dirty ? flush_links(p) : false;
    arm_writers(p);
    if (p->dead)
        free_dead(p);
    return moved;
}

static bool proc_round(struct net_proc *p, bool service)
{
    uint64_t before = atomic_load_explicit(&p->activity, memory_order_relaxed);
    bool served = atomic_load_explicit(&p->served, memory_order_relaxed), moved = false;
    if (served && service)
        service_duties(p);
    empty_inbox(p);
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
    seen.proc = p;
    seen.activity = atomic_load_explicit(&p->activity, memory_order_acquire); /* pairs with publish_message, grant_arrived */
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
    if (seen.proc == p && seen.activity == now) {
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
    seen.activity = now;
}

void net_enter(struct net_proc *p)
{
    atomic_fetch_add(&p->callers, 1);
}

void net_leave(struct net_proc *p)
{
    if (atomic_fetch_sub(&p->callers, 1) != 1)
        return;
    if (!atomic_load(&p->inbox) && !atomic_load_explicit(&p->unsent, memory_order_relaxed))
        return;
    proc_flush_soon(p);
    if (atomic_load_explicit(&p->unsent, memory_order_relaxed))
        wake_service(p); /* it goes on with what did not fit */
}

int net_proc_fd(struct net_proc *p)
{
    p->service = pthread_self();
    atomic_store_explicit(&p->served, true, memory_order_release); /* pairs with the acquire in is_service */
    return p->service_fd;
}

/* ---- links from outside --------------------------------------------------------------------------------------------------------- */

uno_err net_link_get(struct net_proc *p, int process, const struct sock_address_book *book, struct net_link **link)
{
    if (process < 0 || process == p->opt.self || (book && book->count > SOCK_MAX_ADDRS))
        return err_set(UNO_ERR_ARG, "process %d has no link to process %d", p->opt.self, process);
    struct net_link *l = link_find(p, process, true);
    if (!l)
        return UNO_ERR_MEMORY;
    pthread_mutex_lock(&l->control_mutex);
    if (book && !atomic_load_explicit(&l->book_set, memory_order_relaxed)) {
        l->book = *book;
        atomic_store_explicit(&l->book_set, true, memory_order_release); /* pairs with the acquire in look_at_links */
        atomic_store(&p->look, true);
    }
    pthread_mutex_unlock(&l->control_mutex);
    proc_flush_soon(p);
    *link = l;
    return UNO_OK;
}

uno_err net_control_send(struct net_link *l, const void *data, size_t bytes)
{
    if (bytes > TCP_CONTROL_BYTES)
        return err_set(UNO_ERR_INTERNAL, "a control frame of %zu bytes; at most %u", bytes, TCP_CONTROL_BYTES);
    TRY(link_control_queue(l, TCP_CONTROL, data, bytes));
    atomic_store(&l->proc->look, true);
    proc_flush_soon(l->proc);
    return UNO_OK;
}

/* ---- life of a process ------------------------------------------------------------------------------------------------------------- */

static void close_all(struct net_proc *p)
{
    int *const fds[] = {&p->listen_fd, &p->setup_fd, &p->data_fd, &p->service_fd, &p->kick_fd, &p->wake_fd, &p->timer_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

static uno_err open_descriptors(struct net_proc *p)
{
    p->setup_fd = epoll_create1(EPOLL_CLOEXEC);
    p->data_fd = epoll_create1(EPOLL_CLOEXEC);
    p->service_fd = epoll_create1(EPOLL_CLOEXEC);
    p->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    p->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    const int inner[] = {p->setup_fd, p->data_fd, p->kick_fd, p->timer_fd};
    if (p->service_fd < 0 || p->wake_fd < 0)
        return err_sys("cannot open descriptors for the network");
    for (size_t i = 0; i < ARRAY_LEN(inner); i++) {
        struct epoll_event ev = {.events = EPOLLIN};
        if (inner[i] < 0 || epoll_ctl(p->service_fd, EPOLL_CTL_ADD, inner[i], &ev) != 0)
            return err_sys("cannot open descriptors for the network");
    }
    return UNO_OK;
}

uno_err net_proc_new(const struct net_proc_options *opt, struct net_proc **proc)
{
    static const int families[] = {0, AF_INET, AF_INET6};
    struct net_proc *p = fault_hit("alloc") ? NULL : aligned_alloc(CACHE_LINE, (sizeof *p + 63) / 64 * 64);
    if (!p)
        return err_set(UNO_ERR_MEMORY, "no memory for the network");
    memset(p, 0, sizeof *p);
    p->cfg = opt->cfg;
    p->opt = *opt;
    p->listen_fd = p->setup_fd = p->data_fd = p->service_fd = p->kick_fd = p->wake_fd = p->timer_fd = -1;
    p->sockets = (int)MAX(1, MIN(opt->cfg->socket_count, 16));
    pthread_mutex_init(&p->links_mutex, NULL);
    pthread_mutex_init(&p->event_mutex, NULL);
    p->sink = mem_zalloc(TCP_SLICE);
    uno_err err = p->sink ? UNO_OK : UNO_ERR_MEMORY;
    if (err == UNO_OK)
        err = sock_interfaces(opt->cfg->socket_ifname, families[opt->cfg->socket_family], &p->ifaces, &p->nifaces);
    if (err == UNO_OK)
        err = open_descriptors(p);
    if (err == UNO_OK)
        err = connect_listen(p);
    if (err != UNO_OK) {
        net_proc_free(p);
        return err;
    }
    *proc = p;
    return UNO_OK;
}

void net_proc_address(const struct net_proc *p, struct sock_address_book *book)
{
    memset(book, 0, sizeof *book);
    for (size_t i = 0; i < p->nifaces && book->count < SOCK_MAX_ADDRS; i++) {
        struct sock_addr *a = &book->addr[book->count];
        *a = p->ifaces[i].addr;
        if (a->u.sa.sa_family == AF_INET6)
            a->u.in6.sin6_port = htons(p->port);
        else
            a->u.in.sin_port = htons(p->port);
        book->rate_bps[book->count++] = p->ifaces[i].rate_bps;
    }
}

static bool link_idle(struct net_link *l)
{
    if (atomic_load(&l->state) == TCP_LINK_DOWN)
        return true;
    if (link_has_unsent(l) || link_blocked(l))
        return false;
    for (int i = 0; i < l->npaths; i++) {
        int queued = 0;
        if (ioctl(l->paths[i]->fd, SIOCOUTQ, &queued) == 0 && queued > 0)
            return false;
    }
    return true;
}

bool net_idle(struct net_proc *p)
{
    if (!proc_try(p))
        return false;
    empty_inbox(p);
    bool idle = true;
    for (struct net_link *l = atomic_load(&p->links); l && idle; l = atomic_load(&l->next))
        idle = link_idle(l);
    proc_done(p);
    return idle;
}

void net_proc_drain(struct net_proc *p, uint64_t max_ns)
{
    uint64_t end = clock_ns() + max_ns;
    if (p->listen_fd < 0)
        return; /* in a forked child */
    proc_lock(p);
    for (struct net_link *l = atomic_load(&p->links); l; l = atomic_load(&l->next))
        if (l->wanted && link_control_queue(l, TCP_GOODBYE, NULL, 0) == UNO_OK)
            link_dirty(l);
    proc_round(p, false);
    proc_done(p);
    while (!net_idle(p) && clock_ns() < end) {
        struct pollfd f = {.fd = p->data_fd, .events = POLLIN};
        poll(&f, 1, 1);
        proc_lock(p);
        proc_round(p, false);
        proc_done(p);
    }
    atomic_store(&p->leaving, true);
}

void net_proc_free(struct net_proc *p)
{
    if (!p)
        return;
    empty_inbox(p);
    connect_close(p);
    for (struct net_link *l = atomic_load(&p->links), *next; l; l = next) {
        next = atomic_load(&l->next);
        link_free(l);
    }
    free_dead(p);
    close_all(p);
    for (struct tcp_event *e; (e = next_event(p));)
        free(e);
    pthread_mutex_destroy(&p->links_mutex);
    pthread_mutex_destroy(&p->event_mutex);
    free(p->paths);
    free(p->ifaces);
    free(p->sink);
    free(p);
}

void net_proc_forked(struct net_proc *p)
{
    for (size_t i = 0; i < p->npaths; i++) {
        close(p->paths[i]->fd);
        p->paths[i]->fd = -1;
    }
    for (struct tcp_half *h = p->halves; h; h = h->next)
        close(h->fd);
    p->halves = NULL;
    close_all(p);
    atomic_store(&p->busy, 1); /* whatever is called in this child finds the lock taken and does nothing */
}
