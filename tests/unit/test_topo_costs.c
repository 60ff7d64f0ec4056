/* SPDX-License-Identifier: Apache-2.0 */
/* Processors follow the affinity mask; default costs are usable. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <sched.h>
#include <cmocka.h>

#include "topo/topo.h"

static void processors_follow_the_mask(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int all = topo_processors();
    assert_true(all >= 1 && all <= CPU_COUNT(&before));
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(topo_processors(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(topo_processors(), all);
}

static void ranks_share_a_cache(void **state)
{
    (void)state;
    uint64_t alone = topo_cache_share(1), two = topo_cache_share(2), crowd = topo_cache_share(1 << 20);
    assert_true(alone >= 65536 && two <= alone && two >= alone / 2);
    assert_true(crowd > 0 && crowd <= two); /* processors, not ranks, share it */
}

static void defaults_make_sense(void **state)
{
    (void)state;
    const struct topo_costs *c = &topo_costs_default;
    assert_true(c->shm_latency_ps < c->net_latency_ps && c->shm_ps_per_kb < c->net_ps_per_kb);
    assert_true(c->step_ps > 0 && c->step_ps < c->shm_latency_ps && c->reduce_ps_per_kb > 0 && c->processors > 0);
}

static void work_and_turns(void **state)
{
    (void)state;
    struct topo_costs c = {.step_ps = 7, .shm_ps_per_kb = 2000, .reduce_ps_per_kb = 3000, .switch_ps = 500, .processors = 2};
    assert_int_equal(topo_work_ps(&c, 3, 1, 2, 2048), 3 * 7 + 2000 + 2 * 6000);
    assert_true(topo_work_ps(&c, 1, UINT64_C(1) << 10, 1, UINT64_MAX / 2) > UINT64_MAX / 16384); /* long, and no overflow */
    static const uint64_t turns[] = {0, 0, 0, 2, 2, 3, 3, 4, 4}; /* of the fullest processor */
    for (uint64_t ranks = 0; ranks < ARRAY_LEN(turns); ranks++)
        assert_int_equal(topo_turns_ps(&c, ranks), 500 * turns[ranks]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processors_follow_the_mask), cmocka_unit_test(ranks_share_a_cache),
                                       cmocka_unit_test(defaults_make_sense), cmocka_unit_test(work_and_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
