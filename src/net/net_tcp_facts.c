/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_facts.c - what is known about the way to another process, for whoever must say why nothing comes from it: which
 * interfaces and addresses, whether its kernel still acknowledges, what the last attempts met. Any thread; takes the sockets'
 * try-lock for a moment.
 */
#include "net_tcp_inner.h"

#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>

#define LOCK_TRIES 200
#define ANSWERS_MS 1500

static bool same_host_address(const struct sock_addr *a, const struct sock_addr *b)
{
    if (a->u.sa.sa_family != b->u.sa.sa_family)
        return false;
    return a->u.sa.sa_family == AF_INET6 ? memcmp(&a->u.in6.sin6_addr, &b->u.in6.sin6_addr, 16) == 0
                                         : a->u.in.sin_addr.s_addr == b->u.in.sin_addr.s_addr;
}

/* A listener for both families shows IPv4 addresses as IPv6 ones. */
static void plain(struct sock_addr *a)
{
    if (a->u.sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->u.in6.sin6_addr))
        return;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = a->u.in6.sin6_port};
    memcpy(&in.sin_addr, a->u.in6.sin6_addr.s6_addr + 12, 4);
    a->u.in = in;
    a->len = sizeof in;
}

/* Which interface has this address, and is it up with a cable? */
static void find_interface(const struct net_proc *p, const struct sock_addr *from, struct net_link_facts *f)
{
    for (size_t i = 0; i < p->nifaces && !f->interface[0]; i++)
        if (same_host_address(&p->ifaces[i].addr, from))
            snprintf(f->interface, sizeof f->interface, "%s", p->ifaces[i].name);
    struct ifreq r = {0};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", f->interface);
    if (f->interface[0] && p->listen_fd >= 0 && ioctl(p->listen_fd, SIOCGIFFLAGS, &r) == 0)
        f->interface_down = (r.ifr_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING);
}

static void look_at_path(const struct net_link *l, const struct tcp_path *path, struct net_link_facts *f)
{
    struct sock_addr from = {.len = sizeof from.u}, to = {.len = sizeof to.u};
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    int unsent = 0;
    if (getsockname(path->fd, &from.u.sa, &from.len) == 0) {
        plain(&from);
        sock_text(&from, f->from, sizeof f->from);
        find_interface(l->proc, &from, f);
    }
    if (getpeername(path->fd, &to.u.sa, &to.len) == 0) {
        plain(&to);
        sock_text(&to, f->to, sizeof f->to);
    }
    if (getsockopt(path->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 || ioctl(path->fd, SIOCOUTQNSD, &unsent) != 0)
        return;
    /* What the own routing refuses stays unsent and is probed for; so is a full window, but probes of that are acknowledged. */
    bool waits = info.tcpi_unacked || (unsent > 0 && info.tcpi_probes > 1);
    f->answers = !waits || info.tcpi_last_ack_recv < ANSWERS_MS;
    f->state = f->answers ? NET_WAY_OK : NET_WAY_SILENT;
    if (!f->answers)
        snprintf(f->text, sizeof f->text, "nothing is acknowledged for %.1f s", info.tcpi_last_ack_recv / 1e3);
}

static void look_at_lanes(const struct net_link *l, struct net_link_facts *f)
{
    static const enum net_way state[] = {[TCP_WHY_NONE] = NET_WAY_SILENT, [TCP_WHY_REFUSED] = NET_WAY_REFUSED,
                                         [TCP_WHY_UNREACHABLE] = NET_WAY_NO_ROUTE, [TCP_WHY_SILENT] = NET_WAY_OK,
                                         [TCP_WHY_AUTH] = NET_WAY_SILENT, [TCP_WHY_LOCAL] = NET_WAY_SILENT,
                                         [TCP_WHY_NO_ANSWER] = NET_WAY_SILENT};
    for (int i = 0; i < l->nlanes; i++) {
        const struct tcp_lane *n = &l->lanes[i];
        if (i > 0 && n->why == TCP_WHY_NONE)
            continue;
        struct net_link_facts one = {.state = state[n->why], .answers = n->why == TCP_WHY_SILENT};
        if (n->bound) {
            sock_text(&n->from, one.from, sizeof one.from);
            find_interface(l->proc, &n->from, &one);
        }
        sock_text(&n->to, one.to, sizeof one.to);
        snprintf(one.text, sizeof one.text, "%s", n->text);
        *f = one;
        if (one.answers)
            return;
    }
}

bool net_link_facts(struct net_link *l, struct net_link_facts *f)
{
    struct net_proc *p = l->proc;
    *f = (struct net_link_facts){0};
    int tries = 0;
    while (!proc_try(p)) {
        if (++tries > LOCK_TRIES)
            return false;
        sched_yield();
    }
    if (l->npaths)
        look_at_path(l, l->control_path ? l->control_path : l->paths[0], f);
    else
        look_at_lanes(l, f);
    f->paths = l->npaths;
    proc_done(p);
    return true;
}

int net_control_pending(struct net_link *l)
{
    pthread_mutex_lock(&l->control_mutex);
    int n = l->control_count;
    pthread_mutex_unlock(&l->control_mutex);
    return n;
}
