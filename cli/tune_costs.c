/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_costs.c - measured times into costs: those with which the planner's formula (planner_cost.c, cost_small) gives just these times.
 */
#include "tune.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

const size_t tune_bytes[TUNE_CLASSES] = {32 << 10, 512 << 10, 4 << 20, 16 << 20};

static uint64_t beyond(double whole, double part)
{
    return whole > part ? (uint64_t)(whole - part) : 0;
}

/* An all_gather of two ranks is a hand-over, three steps, and three passes over a block: half a slot each. */
static uint64_t copy_rate(double ps, const struct tuned *t, int class)
{
    return beyond(ps, (double)(t->latency_ps + 3 * t->step_ps)) * 2 / 3 / (tune_bytes[class] / 1024);
}

void tune_costs(const struct tune_times *m, bool can_read, struct tuned *t)
{
    /* By slots a short call is a hand-over and two steps, by lines a hand-over and the rest of the call. */
    t->step_ps = beyond(m->call_by_slots, (double)t->latency_ps) / 2;
    t->small_ps = beyond(m->call_by_lines, (double)t->latency_ps);
    uint64_t least = MIN((uint64_t)(m->call_by_lines / 4), t->step_ps); /* the hand-over was measured in another moment */
    t->small_ps = MAX(t->small_ps, least);
    bool one = m->ranks_in_turns == m->ranks_a_processor; /* there is one processor: it did the work of both */
    double share = one ? 0.5 : 1;
    for (int i = 0; i < TUNE_CLASSES; i++) {
        t->shm[i] = copy_rate(m->gather_slots[i] * share, t, i);
        t->read[i] = can_read ? copy_rate(m->gather[i] * share, t, i) : 0;
        t->map[i] = copy_rate(m->gather_mapped[i] * share, t, i);
        /* An all_reduce in one round: a pass into the slot, and the sum. */
        uint64_t pass = (i > 0 && t->read[i] && t->read[i] < t->shm[i] ? t->read[i] : t->shm[i]) / 2;
        uint64_t all = beyond(m->reduce[i] * share, (double)(t->latency_ps + 2 * t->step_ps)) / (tune_bytes[i] / 1024);
        t->sum[i] = MAX(all - MIN(pass, all), all / 2); /* adding out of a slot is no cheaper than copying out of it */
    }
    if (one)
        t->latency_ps = 0; /* it was a turn */
    /* Each of a processor's ranks has its turn once. */
    double work = (double)t->small_ps * (m->ranks_in_turns - 1) * m->ranks_a_processor;
    t->switch_ps = beyond(m->call_in_turns, (double)t->latency_ps + work) / (uint64_t)m->ranks_a_processor;
}
