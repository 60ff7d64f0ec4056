/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_proc.c - a net_proc from outside: how it begins, who gets a link, control frames, goodbye, the end, and a forked child.
 */
#include "net_tcp_inner.h"

#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define AGAIN_GIVE_UP_NS 5000000000ull /* all paths lost: at least so long */

/* ---- links from outside --------------------------------------------------------------------------------------------------------- */

/* Addresses come from the peer: the kernel is told their lengths, and reads so many bytes. */
static bool book_is_sane(const struct sock_address_book *b)
{
    bool sane = b->count <= SOCK_MAX_ADDRS;
    for (int i = 0; sane && i < b->count; i++) {
        const struct sock_addr *a = &b->addr[i];
        sane = (a->u.sa.sa_family == AF_INET && a->len == sizeof a->u.in) || (a->u.sa.sa_family == AF_INET6 && a->len == sizeof a->u.in6);
    }
    return sane;
}

uno_err net_link_get(struct net_proc *p, int process, const struct sock_address_book *book, struct net_link **link)
{
    if (process < 0 || process == p->opt.self)
        return err_set(UNO_ERR_ARG, "process %d has no link to process %d", p->opt.self, process);
    if (book && !book_is_sane(book))
        return err_set(UNO_ERR_PARSE, "process %d says that it is at addresses which are none", process);
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
    p->setup_fd = fd_above_standard(epoll_create1(EPOLL_CLOEXEC));
    p->data_fd = fd_above_standard(epoll_create1(EPOLL_CLOEXEC));
    p->service_fd = fd_above_standard(epoll_create1(EPOLL_CLOEXEC));
    p->kick_fd = fd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    p->wake_fd = fd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
    p->timer_fd = fd_above_standard(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
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
    atomic_store(&p->exit_status, -1);
    p->patience_ns = MAX(AGAIN_GIVE_UP_NS, (uint64_t)(opt->cfg->suspect_timeout * 1e9));
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
    if (l->proc->goodbye && link_unheard(l))
        return true; /* its process has left, too */
    if (link_has_unsent(l) || link_blocked(l))
        return false;
    for (int i = 0; i < l->npaths; i++) {
        int queued = 0;
        if (ioctl(l->paths[i]->fd, SIOCOUTQ, &queued) == 0 && queued > 0)
            return false;
    }
    return true;
}

/* For the holder of the sockets' lock. */
static bool all_idle(struct net_proc *p)
{
    bool idle = true;
    for (struct net_link *l = atomic_load(&p->links); l && idle; l = atomic_load(&l->next))
        idle = link_idle(l);
    return idle;
}

bool net_idle(struct net_proc *p)
{
    if (!proc_try(p))
        return false;
    proc_empty_inbox(p);
    bool idle = all_idle(p);
    proc_done(p);
    return idle;
}

void net_proc_exits(struct net_proc *p, int status)
{
    atomic_store_explicit(&p->exit_status, status, memory_order_relaxed);
}

void net_proc_drain(struct net_proc *p, uint64_t max_ns)
{
    uint64_t end = clock_ns() + max_ns;
    if (p->listen_fd < 0)
        return; /* in a forked child */
    proc_lock(p);
    p->goodbye = true;
    for (struct net_link *l = atomic_load(&p->links); l; l = atomic_load(&l->next))
        link_goodbye(l);
    for (;;) {
        proc_round(p, false);
        connect_step(p);
        if (clock_ns() >= end || (all_idle(p) && !connect_answered(p)))
            break;
        proc_done(p);
        struct pollfd f[2] = {{.fd = p->data_fd, .events = POLLIN}, {.fd = p->setup_fd, .events = POLLIN}};
        poll(f, ARRAY_LEN(f), 1);
        proc_lock(p);
    }
    connect_close(p); /* who comes now is refused: a link that came up after all would end without a goodbye, as by a death */
    atomic_store(&p->leaving, true);
    proc_done(p);
}

void net_proc_free(struct net_proc *p)
{
    if (!p)
        return;
    proc_empty_inbox(p);
    connect_close(p);
    for (struct net_link *l = atomic_load(&p->links), *next; l; l = next) {
        next = atomic_load(&l->next);
        link_free(l);
    }
    proc_free_dead(p);
    close_all(p);
    for (struct tcp_event *e; (e = proc_next_event(p));)
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
