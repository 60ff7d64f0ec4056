/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_rules_slow.c - the rule about ranks that hold all others up though nothing stands still for long: one that has been ready to
 * run for seconds and got no processor, while the others had theirs.
 */
#include "verdict/verdict_inner.h"

#include <string.h>

#define BY_QUOTA_PERMILLE 800u
#define BY_LOAD_PERMILLE 950u  /* without a quota of its own other programs take the processors, which is less rare */

bool shares_quota(const struct judge *j, const struct verdict_rank *r)
{
    for (int i = 0; r->process.cgroup[0] && i < j->size; i++) {
        const struct verdict_rank *o = &j->f->ranks[i];
        if (o != r && o->host_index == r->host_index && strcmp(o->process.cgroup, r->process.cgroup) == 0)
            return true;
    }
    return false;
}

/* When others want for processors too, the machine is small for the job, and nobody is slow. */
static bool starved_for_long(const struct judge *j, const struct verdict_rank *r)
{
    const struct verdict_process *p = &r->process;
    if (r->status != VERDICT_REPORTED || p->run != VERDICT_RUN_RUNS || p->sample_ns < j->stall_ns || shares_quota(j, r) ||
        p->queue_permille < (p->cgroup[0] ? BY_QUOTA_PERMILLE : BY_LOAD_PERMILLE))
        return false;
    for (int i = 0; i < j->size; i++) {
        const struct verdict_rank *o = &j->f->ranks[i];
        if (o != r && o->process.sample_ns && 2 * o->process.queue_permille >= p->queue_permille)
            return false;
    }
    return true;
}

/* A communicator of this rank in which somebody else waits, not yet for long: other rules tell of what stands. */
static struct group *waited_in(const struct judge *j, int rank)
{
    for (uint32_t i = 0; i < j->nwaits; i++)
        if (!j->waits[i].p2p && j->waits[i].rank != rank && seat_of(j->waits[i].group, rank) && !old_enough(j, j->waits[i].group->since_ns))
            return j->waits[i].group;
    return NULL;
}

void find_starved(struct judge *j)
{
    for (int32_t r = 0; r < j->size; r++) {
        struct group *g = starved_for_long(j, &j->f->ranks[r]) ? waited_in(j, r) : NULL;
        struct fault *x = g ? fault_add(j, VERDICT_KIND_SLOW_RANK, &r, 1) : NULL;
        if (!x)
            continue;
        x->group = g;
        x->holds_up = true;
        x->since_ns = j->now_ns - MIN(j->f->ranks[r].process.sample_ns, j->now_ns);
    }
}
