/* SPDX-License-Identifier: Apache-2.0 */
/* topo_costs.c - what moving and reducing bytes costs where nothing was measured. */
#include "topo.h"

/* Round numbers of a current server core and a 10 Gbit/s link; order of magnitude is what matters for choosing. */
const struct topo_costs topo_costs_default = {
#define COST(id, built_in, least, most, help) .id = (built_in),
#include "costs.def"
#undef COST
    .processors = 64, /* enough for one a rank */
};

enum { CLASSES = 4 };
static const uint64_t class_most[CLASSES] = {128u << 10, 2u << 20, 16u << 20, UINT64_MAX};

/* Of `rates`, one a class, that of `class`; 0: as the class before. */
static uint64_t rate_at(const uint64_t *rates, int class)
{
    while (class > 0 && rates[class] == 0)
        class--;
    return rates[class];
}

struct topo_costs topo_costs_at(const struct topo_costs *costs, uint64_t bytes, bool lent)
{
    struct topo_costs at = *costs;
    const struct topo_costs *c = costs;
    const uint64_t shm[CLASSES] = {c->shm_ps_per_kb, c->shm_2m_ps_per_kb, c->shm_16m_ps_per_kb, c->shm_large_ps_per_kb};
    const uint64_t sum[CLASSES] = {c->reduce_ps_per_kb, c->reduce_2m_ps_per_kb, c->reduce_16m_ps_per_kb, c->reduce_large_ps_per_kb};
    const uint64_t read[CLASSES] = {c->read_ps_per_kb, c->read_2m_ps_per_kb, c->read_16m_ps_per_kb, c->read_large_ps_per_kb};
    const uint64_t map[CLASSES] = {c->map_ps_per_kb, c->map_2m_ps_per_kb, c->map_16m_ps_per_kb, c->map_large_ps_per_kb};
    int class = 0;
    while (bytes > class_most[class])
        class++;
    uint64_t direct = rate_at(lent ? map : read, class); /* instead of into a slot and out of it */
    at.shm_ps_per_kb = rate_at(shm, class);
    at.reduce_ps_per_kb = rate_at(sum, class);
    if (direct && direct < at.shm_ps_per_kb && class > 0)
        at.shm_ps_per_kb = direct;
    return at;
}

uint64_t topo_bytes_ps(uint64_t ps_per_kb, uint64_t bytes)
{
    return MIN(mul_div(ps_per_kb, bytes, 1024), UINT64_MAX / 4096);
}

uint64_t topo_work_ps(const struct topo_costs *c, uint64_t steps, uint64_t copies, uint64_t reduces, uint64_t bytes)
{
    return steps * c->step_ps + copies * topo_bytes_ps(c->shm_ps_per_kb, bytes) / 2 + reduces * topo_bytes_ps(c->reduce_ps_per_kb, bytes);
}

uint64_t topo_turns_ps(const struct topo_costs *c, uint64_t ranks)
{
    uint64_t processors = MAX(1, c->processors);
    return ranks > processors ? c->switch_ps * ((ranks + processors - 1) / processors) : 0;
}
