/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_report_end.c - how processes of this host ended (watch_report.h): status, out of memory or not, whether they had left, and
 * who still holds what they had open.
 */
#include "watch/watch_report.h"

#include <string.h>

#include "watch/watch_inner.h"

static uint64_t oom_kills_of(const struct records *rec)
{
    char cgroup[sizeof rec->page->cgroup];
    memcpy(cgroup, rec->page->cgroup, sizeof cgroup);
    cgroup[sizeof cgroup - 1] = 0;
    return proc_oom_kills(cgroup);
}

/* One kill explains one death: the count it was noticed with is the new start for the others of that cgroup. */
static void look_for_oom(struct watch *w, struct records *rec)
{
    uint64_t kills = oom_kills_of(rec);
    if (kills <= rec->oom_kills || !rec->status_known || rec->status != 9)
        return;
    rec->oom_kill = true;
    for (int i = 0; i < w->npeers; i++) {
        struct records *other = &w->peers[i].records;
        if (other->page && memcmp(other->page->cgroup, rec->page->cgroup, sizeof rec->page->cgroup) == 0)
            other->oom_kills = MIN(kills, other->oom_kills + 1);
    }
}

/* Who started it is asked last: that it ended was seen here. */
static bool told_status(const struct watch *w, const struct peer *p, int *status)
{
    uno_end end;
    if (!peer_told_end(w, p, &end) || end.kind == UNO_END_LOST)
        return false;
    *status = end.status;
    return true;
}

void records_ended(struct watch *w, struct peer *p)
{
    struct records *rec = &p->records;
    if (rec->ended_ns == 0)
        rec->ended_ns = clock_ns();
    if (!rec->status_known)
        rec->status_known = process_status(&p->eye, &rec->status) || told_status(w, p, &rec->status);
    records_refresh(rec);
    if (rec->page && !rec->oom_kill)
        look_for_oom(w, rec);
}

enum goodbye records_goodbye(const struct records *rec)
{
    if (rec->page && atomic_load_explicit(&rec->page->goodbye, memory_order_acquire)) /* pairs with watch_goodbye */
        return GOODBYE_SAID;
    enum goodbye all = GOODBYE_UNKNOWN;
    for (size_t i = 0; i < rec->ncomms; i++) {
        const struct net_region *r = rec->comms[i].region;
        if (r && atomic_load_explicit(&r->goodbye, memory_order_acquire) == 0) /* pairs with say_goodbye */
            return GOODBYE_NOT_SAID;
        all = r ? GOODBYE_SAID : all;
    }
    return all;
}

void report_end(const struct peer *p, struct verdict_rank *out)
{
    const struct records *rec = &p->records;
    out->status = p->state == PEER_LEFT ? VERDICT_LEFT : VERDICT_DEAD;
    out->status_since_ns = rec->ended_ns;
    out->oom_kill = rec->oom_kill;
    if (out->status == VERDICT_DEAD)
        out->children_left = board_holders(&rec->board, out->children, VERDICT_CHILDREN);
    for (size_t i = 0; i < rec->ncomms && !rec->status_known; i++) { /* what it said itself; acquire: pairs with say_goodbye */
        uint32_t goodbye = rec->comms[i].region ? atomic_load_explicit(&rec->comms[i].region->goodbye, memory_order_acquire) : 0;
        if (goodbye & NET_GOODBYE_EXIT) {
            out->ended = VERDICT_ENDED_EXIT;
            out->ended_code = (int32_t)(goodbye & 0xff);
        }
    }
    if (!rec->status_known)
        return;
    int sig = rec->status & 0x7f;
    out->ended = sig ? VERDICT_ENDED_SIGNAL : VERDICT_ENDED_EXIT;
    out->ended_code = sig ? sig : rec->status >> 8 & 0xff;
}
