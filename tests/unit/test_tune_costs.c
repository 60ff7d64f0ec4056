/* SPDX-License-Identifier: Apache-2.0 */
/* Times that `unisono tune` measured, made into costs: the planner predicts these times. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "planner/planner.h"
#include "tune.h"

/* ps; the second class is read in place for less than it is copied for, the third for more, the last cannot be read */
static const struct tune_times measured = {
    .call_by_slots = 500e3, .call_by_lines = 130e3,
    .gather_slots = {9e6, 190e6, 1500e6, 7000e6}, .gather = {12e6, 110e6, 1900e6, 7000e6},
    .gather_mapped = {5e6, 60e6, 800e6, 4000e6}, .reduce = {8e6, 150e6, 1600e6, 9000e6},
    .call_in_turns = 6.2e6, .ranks_in_turns = 4, .ranks_a_processor = 2};

static struct planner *planner_with(struct tuned *t, int ranks)
{
    struct planner_settings s = {.algo = "all_gather:flat;all_reduce:flat", .memory_limit = 2097152, .small = true, .nranks = ranks,
                                 .costs = topo_costs_default};
    uint64_t *const rates[] = {&s.costs.shm_ps_per_kb, &s.costs.reduce_ps_per_kb, &s.costs.read_ps_per_kb, &s.costs.map_ps_per_kb};
    const uint64_t *const from[] = {t->shm, t->sum, t->read, t->map};
    struct planner *p = NULL;
    s.costs.processors = 2;
    s.costs.shm_latency_ps = t->latency_ps;
    s.costs.step_ps = t->step_ps;
    s.costs.small_ps = t->small_ps;
    s.costs.switch_ps = t->switch_ps;
    for (size_t i = 0; i < ARRAY_LEN(rates); i++)
        for (int class = 0; class < TUNE_CLASSES; class++)
            rates[i][class] = from[i][class];
    assert_int_equal(planner_new(&s, &p), UNO_OK);
    return p;
}

static double predicted(struct planner *p, uno_coll coll, size_t bytes, bool lent)
{
    struct request req = {.coll = coll, .type = UNO_FLOAT32, .count = bytes / 4, .lent = lent};
    struct choice choice;
    assert_int_equal(planner_choose(p, &req, &choice), UNO_OK);
    return (double)choice.cost_ps;
}

static void assert_near(double is, double should, double share)
{
    if (is < should * (1 - share) || is > should * (1 + share))
        fail_msg("predicted %.0f ps, measured %.0f", is, should);
}

static void what_was_measured_is_predicted(void **state)
{
    (void)state;
    struct tuned t = {.latency_ps = 60000};
    tune_costs(&measured, true, &t);
    struct planner *p = planner_with(&t, 2);
    assert_near(predicted(p, UNO_ALL_REDUCE, 8, false), measured.call_by_lines, 0.001);
    for (int i = 0; i < TUNE_CLASSES; i++) {
        double slots = measured.gather_slots[i], read = measured.gather[i];
        assert_near(predicted(p, UNO_ALL_GATHER, tune_bytes[i], false), i > 0 && read < slots ? read : slots, 0.03);
        assert_near(predicted(p, UNO_ALL_REDUCE, tune_bytes[i], false), measured.reduce[i], 0.03);
        if (i > 0)
            assert_near(predicted(p, UNO_ALL_GATHER, tune_bytes[i], true), measured.gather_mapped[i], 0.03);
    }
    planner_free(p);
}

static void turns_are_predicted(void **state)
{
    (void)state;
    struct tuned t = {.latency_ps = 60000};
    tune_costs(&measured, true, &t);
    struct planner *four = planner_with(&t, 4), *eight = planner_with(&t, 8);
    double few = predicted(four, UNO_ALL_REDUCE, 8, false), many = predicted(eight, UNO_ALL_REDUCE, 8, false);
    assert_near(few, measured.call_in_turns, 0.001);
    assert_true(many > 1.9 * few && many < 2.5 * few); /* twice the turns, and more lines to read */
    planner_free(four);
    planner_free(eight);
}

static void without_reading_slots_count(void **state)
{
    (void)state;
    struct tuned t = {.latency_ps = 60000};
    tune_costs(&measured, false, &t);
    struct planner *p = planner_with(&t, 2);
    assert_near(predicted(p, UNO_ALL_GATHER, tune_bytes[1], false), measured.gather_slots[1], 0.03);
    planner_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_measured_is_predicted), cmocka_unit_test(turns_are_predicted),
                                       cmocka_unit_test(without_reading_slots_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
