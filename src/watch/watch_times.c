/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_times.c - what is seen only over seconds: processes of this host that are ready to run and get no processor, and how fast
 * sockets to other hosts move what they are given. A job that is slowed by either may never stand still for as long as the stall limit;
 * a rank that is starved for that long is reason enough to ask what is going on. Runs on the steward's thread, at its ticks.
 */
#include "watch/watch_inner.h"

#include <string.h>

#define TICK_NS 1000000000ull
#define STARVED_PERMILLE 800u    /* of a tick without a processor */
#define MOVED_BYTES (1u << 20)   /* a rate of less says little of what a path can do ... */
#define BUSY_PERMILLE 800u       /* ... unless there was always something on its way */

/* ---- processors ------------------------------------------------------------------------------------------------------------- */

static void see_times(struct records *rec, const struct record_times *now)
{
    const struct record_times *last = &rec->times;
    bool starved = last->tid == now->tid && now->at_ns > last->at_ns &&
                   (now->queue_ns - last->queue_ns) * 1000 / (now->at_ns - last->at_ns) >= STARVED_PERMILLE;
    if (!starved)
        rec->starved = (struct record_times){0};
    else if (rec->starved.at_ns == 0)
        rec->starved = *last;
    rec->times = *now;
}

void times_tick(struct watch *w, uint64_t now)
{
    int starved = 0, all = 0;
    bool long_enough = false;
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        struct record_times t = {.at_ns = now};
        if (!p->records.page || p->state != PEER_ALIVE)
            continue;
        t.tid = records_caller(&p->records);
        if (t.tid == 0)
            t.tid = p->eye.pid;
        if (!proc_thread_times(p->eye.pid, t.tid, &t.cpu_ns, &t.queue_ns))
            continue;
        see_times(&p->records, &t);
        all++;
        starved += p->records.starved.at_ns != 0;
        long_enough = long_enough || (p->records.starved.at_ns && now - p->records.starved.at_ns >= w->stall_ns);
    }
    /* When most want for processors the job is only large for its machine. */
    if (long_enough && (all == 1 || 2 * starved <= all))
        w->inquiry.own_stall_ns = w->inquiry.stall_ns = now;
}

void times_fill(const struct records *rec, int32_t pid, uint64_t now, struct verdict_process *v)
{
    const struct record_times *from = &rec->starved;
    uint64_t cpu, queue;
    if (!v->cgroup[0])
        proc_quota(pid, v->cgroup, sizeof v->cgroup);
    if (from->at_ns == 0 || now <= from->at_ns || v->run == VERDICT_RUN_STOPPED || v->run == VERDICT_RUN_TRACED ||
        v->run == VERDICT_RUN_FROZEN || !proc_thread_times(pid, from->tid, &cpu, &queue) || queue < from->queue_ns ||
        cpu < from->cpu_ns)
        return;
    v->run = VERDICT_RUN_RUNS;
    v->sample_ns = now - from->at_ns;
    v->cpu_permille = (uint32_t)((cpu - from->cpu_ns) * 1000 / v->sample_ns);
    v->queue_permille = (uint32_t)MIN((queue - from->queue_ns) * 1000 / v->sample_ns, 1000u);
}

/* ---- paths -------------------------------------------------------------------------------------------------------------------- */

static void add_moved(void *arg, int process, uint64_t bytes, uint64_t busy_us)
{
    struct watch *w = arg;
    int host = process >= 0 && process < w->opt.size ? w->members[process].host : -1;
    if (host < 0 || host >= STEWARD_HOSTS)
        return;
    w->moved[host].bytes += bytes;
    w->moved[host].busy_us += busy_us;
}

/* What this process has sent, for the hub to read. */
static void show_moved(struct watch *w)
{
    memset(w->moved, 0, sizeof w->moved);
    if (!net_links_moved(w->opt.net, add_moved, w))
        return;
    for (int h = 0; h < MIN(w->nhosts, STEWARD_HOSTS); h++) {
        atomic_store_explicit(&w->page->moved[h].bytes, w->moved[h].bytes, memory_order_relaxed);
        atomic_store_explicit(&w->page->moved[h].busy_us, w->moved[h].busy_us, memory_order_relaxed);
    }
}

/* Sums over sockets that are up fall when one is closed: then the measurement begins anew. */
static void see_moved(struct host *host, uint64_t bytes, uint64_t busy_us, uint64_t now)
{
    uint64_t window_us = (now - host->moved_at_ns) / 1000, moved = bytes - host->moved_bytes, busy = busy_us - host->moved_busy_us;
    bool whole = host->moved_at_ns && bytes >= host->moved_bytes && busy_us >= host->moved_busy_us && window_us > 0;
    host->moved_at_ns = now;
    host->moved_bytes = bytes;
    host->moved_busy_us = busy_us;
    busy = MIN(busy, window_us); /* several sockets were busy at the same time */
    if (!whole || moved == 0 || busy == 0 || (moved < MOVED_BYTES && busy * 1000 < window_us * BUSY_PERMILLE))
        return;
    host->measured_bps = MAX(moved * 1000000 / busy, 1);
    if (moved >= MOVED_BYTES)
        host->best_bps = MAX(host->best_bps, host->measured_bps);
}

void rates_tick(struct watch *w, uint64_t now)
{
    if (!w->opt.net || w->nhosts < 2 || !w->page || now < w->rates_ns)
        return;
    w->rates_ns = now + TICK_NS;
    show_moved(w);
    for (int h = 0; w->hub && h < MIN(w->nhosts, STEWARD_HOSTS); h++) {
        uint64_t bytes = 0, busy_us = 0;
        for (int i = 0; i < w->npeers; i++) {
            const struct peer *p = &w->peers[i];
            const struct steward_page *page = i == w->self ? w->page : p->records.page ? &p->records.page->steward : NULL;
            if (!page || p->state != PEER_ALIVE)
                continue;
            bytes += atomic_load_explicit(&page->moved[h].bytes, memory_order_relaxed);
            busy_us += atomic_load_explicit(&page->moved[h].busy_us, memory_order_relaxed);
        }
        if (h != w->own_host)
            see_moved(&w->hosts[h], bytes, busy_us, now);
    }
}
