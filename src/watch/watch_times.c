/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_times.c - what is seen only over seconds: processes of this host that are ready to run and get no processor, and how fast
 * sockets to other hosts move what they are given. A job that is slowed by either may never stand still for as long as the stall limit;
 * a rank that is starved, or a path that is slow, for that long is reason enough to ask what is going on. Both are looked at four times a
 * second over the second before. Runs on the steward's thread, at its ticks.
 */
#include "watch/watch_inner.h"

#include <string.h>

#define STARVED_PERMILLE 800u    /* of a second without a processor: it is starved from its begin on ... */
#define FED_PERMILLE 500u        /* ... until it is so for less of one */
#define HUB_STARVES_NS 1000000000ull
#define MOVED_BYTES (1u << 20)   /* a rate of less says little of what a path can do ... */
#define BUSY_PERMILLE 800u       /* ... unless there was always something on its way */
#define BEHIND_PERMILLE 800u     /* of a second in which more lay ready than the path takes: it is slow from its begin on, when ... */
#define KEPT_UP_PERMILLE 500u    /* ... until it is so for less of one */
#define SLOW_SHARE 5u            /* ... it moves less than one part in so many of the most it has moved */

/* ---- processors ------------------------------------------------------------------------------------------------------------- */

static void see_times(struct records *rec, const struct record_times *now)
{
    const struct record_times *from = NULL;
    for (int i = 0; i < TIMES_KEPT && rec->times[i].at_ns && rec->times[i].tid == now->tid; i++)
        from = &rec->times[i];
    uint64_t permille = from && now->at_ns > from->at_ns ? (now->queue_ns - from->queue_ns) * 1000 / (now->at_ns - from->at_ns) : 0;
    if (permille < FED_PERMILLE)
        rec->starved = (struct record_times){0};
    else if (permille >= STARVED_PERMILLE && rec->starved.at_ns == 0)
        rec->starved = *from;
    memmove(rec->times + 1, rec->times, (TIMES_KEPT - 1) * sizeof *rec->times);
    rec->times[0] = *now;
}

static bool see_peer(struct peer *p)
{
    struct record_times t = {.at_ns = clock_ns(), .tid = records_caller(&p->records)};
    if (t.tid == 0)
        t.tid = p->eye.pid;
    if (!proc_thread_times(p->eye.pid, t.tid, &t.cpu_ns, &t.queue_ns))
        return false;
    see_times(&p->records, &t);
    return true;
}

static bool to_be_seen(const struct peer *p)
{
    return p->records.page && p->state == PEER_ALIVE;
}

/* By a control group that is not ours, too? Where other programs take the processors its steward, which mostly sleeps, gets its turn. */
static bool held_by_quota(const struct peer *p, const struct peer *self)
{
    char its[96] = "", own[96] = "";
    proc_quota(p->eye.pid, its, sizeof its);
    proc_quota(self->eye.pid, own, sizeof own);
    return its[0] && strcmp(its, own) != 0;
}

/* A hub that is starved itself tells nothing in time. The next one of its host looks after it, and takes its place. */
static void see_hub(struct watch *w, int hub, uint64_t now)
{
    struct peer *p = &w->peers[hub];
    const struct peer *self = &w->peers[w->self];
    for (int i = 0; i < w->self; i++)
        if (i != hub && to_be_seen(&w->peers[i]) && !w->peers[i].mute)
            return; /* that one does */
    if (!to_be_seen(p))
        return;
    records_refresh(&p->records);
    if (see_peer(p))
        p->starves = p->records.starved.at_ns && now - p->records.starved.at_ns >= HUB_STARVES_NS && held_by_quota(p, self);
}

void times_tick(struct watch *w, uint64_t now)
{
    int starved = 0, all = 0, hub;
    bool long_enough = false;
    if (now < w->times_ns)
        return;
    w->times_ns = now + STEWARD_TICK_NS;
    if ((hub = hosts_hub_here(w)) != w->self) {
        see_hub(w, hub, now);
        return;
    }
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        p->starves = false;
        if (!to_be_seen(p) || !see_peer(p))
            continue;
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

static void add_moved(void *arg, int process, const struct net_moved *moved)
{
    struct watch *w = arg;
    int host = process >= 0 && process < w->opt.size ? w->members[process].host : -1;
    if (host < 0 || host >= STEWARD_HOSTS)
        return;
    struct own_moved *m = &w->moved[host];
    m->sum.bytes += moved->bytes;
    m->sum.busy_us += moved->busy_us;
    m->more = m->more || moved->more;
}

/* What this process has sent, for the hub to read. Where more lies ready now, it is taken to have done so since the last look, for as
 * long as something was on its way. */
static void show_moved(struct watch *w, uint64_t now)
{
    struct own_moved last[STEWARD_HOSTS];
    memcpy(last, w->moved, sizeof last);
    memset(w->moved, 0, sizeof w->moved);
    if (!net_links_moved(w->opt.net, add_moved, w)) {
        memcpy(w->moved, last, sizeof last);
        return;
    }
    for (int h = 0; h < MIN(w->nhosts, STEWARD_HOSTS); h++) {
        struct moved *m = &w->moved[h].sum;
        uint64_t busy_us = m->busy_us - MIN(last[h].sum.busy_us, m->busy_us), window_us = (now - last[h].sum.at_ns) / 1000;
        m->at_ns = now;
        m->behind_us = last[h].sum.behind_us + (w->moved[h].more && last[h].sum.at_ns ? MIN(busy_us, window_us) : 0);
        atomic_store_explicit(&w->page->moved[h].bytes, m->bytes, memory_order_relaxed);
        atomic_store_explicit(&w->page->moved[h].busy_us, m->busy_us, memory_order_relaxed);
        atomic_store_explicit(&w->page->moved[h].behind_us, m->behind_us, memory_order_relaxed);
    }
}

static uint64_t rate_of(uint64_t bytes, uint64_t us)
{
    return us ? (uint64_t)((double)bytes * 1e6 / (double)us) : 0;
}

/* Is more ready than it takes, second after second, and does it take far less than it has taken before? Small messages that wait for each
 * other's answers are slow, too, but then nothing lies ready. */
static void see_slowness(struct host *host, const struct moved *from, const struct moved *now)
{
    uint64_t us = (now->at_ns - from->at_ns) / 1000, behind_us = MIN(now->behind_us - from->behind_us, us);
    bool slow = host->best_bps == 0 || rate_of(now->bytes - from->bytes, us) < host->best_bps / SLOW_SHARE;
    if (!slow || behind_us * 1000 < us * KEPT_UP_PERMILLE) {
        host->slow = (struct moved){0};
    } else if (behind_us * 1000 >= us * BEHIND_PERMILLE && host->slow.at_ns == 0) {
        host->slow = *from;
        host->seen_slow = *now; /* what moved before it became slow may be in between */
    }
}

/* Sums over sockets that are up fall when one is closed: then the measurement begins anew. */
static void see_moved(struct host *host, const struct moved *now)
{
    struct moved *kept = host->moved;
    if (kept->at_ns && (now->bytes < kept->bytes || now->busy_us < kept->busy_us || now->behind_us < kept->behind_us)) {
        memset(host->moved, 0, sizeof host->moved);
        host->slow = (struct moved){0};
    }
    const struct moved *from = NULL;
    for (int i = 0; i < TIMES_KEPT && kept[i].at_ns; i++)
        from = &kept[i];
    uint64_t window_us = from ? (now->at_ns - from->at_ns) / 1000 : 0;
    if (window_us > 0) {
        uint64_t moved = now->bytes - from->bytes, busy = MIN(now->busy_us - from->busy_us, window_us); /* of several sockets at once */
        if (busy && (moved >= MOVED_BYTES || (moved && busy * 1000 >= window_us * BUSY_PERMILLE)))
            host->measured_bps = MAX(rate_of(moved, busy), 1);
        if (busy && moved >= MOVED_BYTES)
            host->best_bps = MAX(host->best_bps, host->measured_bps);
        see_slowness(host, from, now);
    }
    memmove(kept + 1, kept, (TIMES_KEPT - 1) * sizeof *kept);
    kept[0] = *now;
}

void rates_tick(struct watch *w, uint64_t now)
{
    if (!w->opt.net || w->nhosts < 2 || !w->page || now < w->rates_ns)
        return;
    w->rates_ns = now + STEWARD_TICK_NS;
    show_moved(w, now);
    for (int h = 0; w->hub && h < MIN(w->nhosts, STEWARD_HOSTS); h++) {
        struct moved sum = {.at_ns = now};
        for (int i = 0; i < w->npeers; i++) {
            const struct peer *p = &w->peers[i];
            const struct steward_page *page = i == w->self ? w->page : p->records.page ? &p->records.page->steward : NULL;
            if (!page || p->state != PEER_ALIVE)
                continue;
            sum.bytes += atomic_load_explicit(&page->moved[h].bytes, memory_order_relaxed);
            sum.busy_us += atomic_load_explicit(&page->moved[h].busy_us, memory_order_relaxed);
            sum.behind_us += atomic_load_explicit(&page->moved[h].behind_us, memory_order_relaxed);
        }
        if (h == w->own_host)
            continue;
        see_moved(&w->hosts[h], &sum);
        /* The others may not have stopped: all goes at the pace of this path. Whether anybody waits is for the judge to see. */
        if (w->hosts[h].slow.at_ns && now - w->hosts[h].slow.at_ns >= w->stall_ns)
            w->inquiry.own_stall_ns = w->inquiry.stall_ns = now;
    }
}

void rates_fill(const struct host *host, struct verdict_link *l)
{
    const struct moved *now = &host->moved[0], *from = NULL;
    for (int i = 1; i < TIMES_KEPT && host->moved[i].at_ns; i++)
        from = &host->moved[i];
    if (from)
        l->lately_bps = rate_of(now->bytes - from->bytes, (now->at_ns - from->at_ns) / 1000);
    if (host->slow.at_ns && now->at_ns > host->slow.at_ns) {
        l->behind_ns = now->at_ns - host->slow.at_ns;
        const struct moved *since = now->at_ns > host->seen_slow.at_ns ? &host->seen_slow : &host->slow;
        l->behind_bps = MAX(rate_of(now->bytes - since->bytes, (now->at_ns - since->at_ns) / 1000), 1);
    }
}
