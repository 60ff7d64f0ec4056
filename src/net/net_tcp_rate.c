/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_rate.c - how much the sockets to other processes have moved and how long they were at it, as the kernel counts it: for
 * whoever must say that a path is slow. Apart from net_tcp_facts.c because the C library's tcp_info is shorter than the kernel's.
 */
#include <linux/tcp.h>
#include <sched.h>

#include "net_tcp_inner.h"

#define LOCK_TRIES 200

/* Time with something on its way, but for that in which the receiver had no room. */
static void path_moved(const struct tcp_path *path, struct net_moved *m)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(path->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        len < offsetof(struct tcp_info, tcpi_rwnd_limited) + sizeof info.tcpi_rwnd_limited)
        return;
    m->bytes += info.tcpi_bytes_acked;
    m->busy_us += info.tcpi_busy_time - MIN(info.tcpi_rwnd_limited, info.tcpi_busy_time);
    m->more = m->more || info.tcpi_notsent_bytes > 0 || info.tcpi_lost + info.tcpi_retrans > 0;
}

bool net_links_moved(struct net_proc *p, void (*each)(void *arg, int process, const struct net_moved *moved), void *arg)
{
    int tries = 0;
    while (!proc_try(p)) {
        if (++tries > LOCK_TRIES)
            return false;
        sched_yield();
    }
    for (const struct net_link *l = atomic_load(&p->links); l; l = atomic_load(&l->next)) {
        struct net_moved m = {0};
        for (int i = 0; i < l->npaths; i++)
            path_moved(l->paths[i], &m);
        if (m.bytes)
            each(arg, l->process, &m);
    }
    proc_done(p);
    return true;
}
