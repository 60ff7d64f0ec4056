/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_rules_slow.c - the rules about what holds all others up though nothing stands still for long: a rank that has been ready to
 * run for seconds and got no processor, while the others had theirs; a path that for seconds moves far less than it did before, or than
 * the other paths, with more ready to be sent.
 */
#include "verdict/verdict_inner.h"

#include <string.h>

#define BY_QUOTA_PERMILLE 800u
#define SLOW_SHARE 5u          /* a path is slow that moves less than one part in so many */
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

/* What all other paths of these two hosts have moved lately, out of the one and into the other: they may share what this path has. */
static uint64_t beside(const struct judge *j, const struct verdict_link *l)
{
    uint64_t out = 0, in = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++) {
            const struct verdict_link *o = &j->f->ranks[r].links[i];
            out += o->from_host == l->from_host && o->to_host != l->to_host ? o->lately_bps : 0;
            in += o->to_host == l->to_host && o->from_host != l->from_host ? o->lately_bps : 0;
        }
    return MAX(out, in);
}

/* Do all ranks of a host want for processors? Then what they send and take is late for that. */
static bool host_starves(const struct judge *j, int host)
{
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host && !starved(&j->f->ranks[r].process))
            return false;
    return true;
}

/* A communicator of both hosts in which somebody waits. */
static struct group *waited_across(const struct judge *j, const struct verdict_link *l)
{
    for (uint32_t i = 0; i < j->nwaits; i++)
        if (host_in(j, j->waits[i].group, l->from_host) && host_in(j, j->waits[i].group, l->to_host))
            return j->waits[i].group;
    return NULL;
}

void find_behind(struct judge *j)
{
    uint64_t usual = usual_rate(j);
    const struct verdict_link *worst = NULL;
    struct group *group = NULL;
    double worst_share = 1.0 / SLOW_SHARE;
    int reporter = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++) {
            const struct verdict_link *l = &j->f->ranks[r].links[i];
            uint64_t should = MAX(l->expected_bps, usual);
            if (l->state != VERDICT_PATH_OK || l->behind_ns < j->stall_ns || should == 0)
                continue;
            double share = (double)l->behind_bps / (double)should;
            struct group *g = share < worst_share && beside(j, l) < should / SLOW_SHARE && !host_starves(j, l->from_host) &&
                              !host_starves(j, l->to_host) ? waited_across(j, l) : NULL;
            if (!g)
                continue;
            worst_share = share;
            worst = l;
            group = g;
            reporter = r;
        }
    struct fault *x = worst ? fault_add(j, VERDICT_KIND_SLOW_LINK, NULL, 0) : NULL;
    if (!x)
        return;
    x->group = group;
    x->link = worst;
    x->link_reporter = reporter;
    x->holds_up = true;
    x->since_ns = j->now_ns - MIN(worst->behind_ns, j->now_ns);
    x->sure = VERDICT_LIKELY;
}
