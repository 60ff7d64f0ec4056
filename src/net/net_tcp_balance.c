/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_balance.c - which of several pairs of interfaces takes the next slice: the one that would have delivered it first. A
 * socket takes more than the network does, so "writable" alone would give everything to the first one. The kernel knows what is
 * queued on a socket and how fast it has drained. All for the holder of the sockets' lock.
 */
#include "net_tcp_inner.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#define LOOK_NS 100000ull          /* looked at so often while something is queued */
#define GAP_NS 1000000ull          /* emptied somewhere in an interval longer than this: nothing learned */
#define MEMORY_NS 20000000ull      /* of the measured rate */
#define TRIED_BYTES (256u << 10)   /* a lane that has carried less is taken for as good as the best */
#define HOPE_NS 1e8                /* an idle lane is thought twice as fast after so long, three times after twice that */
#define STUCK_NS 10000000ull       /* nothing drained for so long: its rate is no longer believed */

static struct tcp_load *load_of(struct tcp_path *path)
{
    return &path->link->loads[path->lane < 0 ? SOCK_MAX_ADDRS : path->lane];
}

int balance_lanes(const struct net_link *l)
{
    unsigned seen = 0;
    for (int i = 0; i < l->npaths; i++)
        if (path_takes_slices(l->paths[i]))
            seen |= 1u << (l->paths[i]->lane < 0 ? SOCK_MAX_ADDRS : l->paths[i]->lane);
    return __builtin_popcount(seen);
}

/* A lane's rate: bytes drained over time, counted while something was queued on it, the past fading. */
static void learn(struct tcp_load *d, uint64_t queued, uint64_t drained, uint64_t dt)
{
    if (d->queued == 0 || (queued == 0 && dt > GAP_NS))
        return; /* it was idle, or we do not know for how long */
    d->busy_bytes += drained - d->drained;
    d->busy_ns += dt;
    if (d->busy_ns > MEMORY_NS) {
        d->busy_bytes /= 2;
        d->busy_ns /= 2;
    }
    if (d->busy_ns)
        d->rate = (uint64_t)((double)d->busy_bytes * 1e9 / (double)d->busy_ns);
}

bool balance_busy(const struct net_link *l)
{
    bool busy = false;
    for (int i = 0; i <= SOCK_MAX_ADDRS; i++)
        busy |= l->loads[i].queued > 0;
    return busy;
}

bool balance_due(const struct net_link *l)
{
    return balance_busy(l) && clock_ns() - l->balance_ns >= LOOK_NS;
}

void balance_look(struct net_link *l)
{
    uint64_t now = clock_ns(), queued[SOCK_MAX_ADDRS + 1] = {0}, drained[SOCK_MAX_ADDRS + 1] = {0};
    for (int i = 0; i < l->npaths; i++) {
        struct tcp_path *path = l->paths[i];
        int n = 0;
        if (ioctl(path->fd, SIOCOUTQ, &n) != 0)
            n = 0;
        path->queued = (uint64_t)n;
        queued[load_of(path) - l->loads] += (uint64_t)n;
        drained[load_of(path) - l->loads] += path->written - MIN(path->written, (uint64_t)n);
    }
    for (int i = 0; i <= SOCK_MAX_ADDRS; i++) {
        struct tcp_load *d = &l->loads[i];
        if (drained[i] >= d->drained) /* else a path was lost */
            learn(d, queued[i], drained[i], now - l->balance_ns);
        if (queued[i] == 0 || drained[i] != d->drained)
            d->progress_ns = now;
        d->queued = queued[i];
        d->drained = drained[i];
    }
    l->balance_ns = now;
}

/* What is not used is not measured, so a lane's rate is thought better the longer it idles, up to the best one's. */
static uint64_t believed_rate(const struct net_link *l, const struct tcp_load *d, uint64_t best)
{
    double rate = d->rate < 1 ? 1 : (double)d->rate;
    if (d->queued < TCP_SLICE)
        rate *= 1 + (double)(l->balance_ns - d->bulk_ns) / HOPE_NS;
    if (d->bulk < TRIED_BYTES && d->queued < TCP_SLICE)
        rate = (double)best;
    rate = MIN(rate, (double)MAX(best, d->rate));
    uint64_t stuck = l->balance_ns - d->progress_ns;
    if (stuck > STUCK_NS)
        rate = MIN(rate, TCP_SLICE * 1e9 / (double)stuck);
    return MAX((uint64_t)rate, 1);
}

/* A path of the lane that is done first with one more slice; NULL when that lane is full: waiting for it is quicker than another. */
struct tcp_path *balance_pick(struct net_link *l)
{
    uint64_t best_rate = 1000000;
    double best = 0;
    struct tcp_load *lane = NULL;
    for (int i = 0; i < l->npaths; i++)
        best_rate = MAX(best_rate, load_of(l->paths[i])->rate);
    for (int i = 0; i < l->npaths; i++) {
        if (!path_takes_slices(l->paths[i]))
            continue;
        struct tcp_load *d = load_of(l->paths[i]);
        double done = (double)(d->queued + TCP_SLICE) / (double)believed_rate(l, d, best_rate);
        if (!lane || done < best) {
            best = done;
            lane = d;
        }
    }
    struct tcp_path *pick = NULL;
    for (int i = 0; i < l->npaths; i++) {
        struct tcp_path *path = l->paths[i];
        if (load_of(path) == lane && path_takes_slices(path) && !path_pending(path) && (!pick || path->queued < pick->queued))
            pick = path;
    }
    return pick;
}

void balance_gave(struct tcp_path *path, uint64_t bytes)
{
    struct tcp_load *d = load_of(path);
    if (d->queued == 0)
        d->progress_ns = path->link->balance_ns; /* idle until now */
    d->queued += bytes;
    path->queued += bytes;
    d->bulk += bytes;
    d->bulk_ns = path->link->balance_ns;
}
