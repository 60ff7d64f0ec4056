/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

static struct plan plan_of(uno_coll coll, int nranks, int parts)
{
    return (struct plan){.name = "test", .coll = coll, .nranks = nranks, .parts = parts, .channels = 1};
}

static void opcodes_have_both_names(void **state)
{
    assert_string_equal(plan_ops[PLAN_RECV_REDUCE_COPY_SEND].name, "recv_reduce_copy_send");
    assert_string_equal(plan_ops[PLAN_RECV_REDUCE_COPY_SEND].xml, "rrcs");
    assert_true(plan_ops[PLAN_RECV_REDUCE_SEND].sends && !plan_ops[PLAN_RECV_REDUCE_SEND].writes_dst);
}

/* Two lanes; recv_reduce_copy from two peers with the own contribution in the middle, waiting for the other lane. */
static uno_err two_lanes(const struct plan *plan, int rank, struct plan_prog *prog)
{
    struct plan_build b;
    build_begin(&b, plan, rank, prog);
    int first = build_lane(&b);
    build_step(&b, PLAN_SEND, PLAN_IN, 1, PLAN_NONE, 0, 1);
    build_on_send(&b, build_send_to(&b, 1, 0));
    int sent = build_step(&b, PLAN_SEND, PLAN_IN, 0, PLAN_NONE, 0, 1);
    build_on_send(&b, build_send_to(&b, 1, 0));
    build_lane(&b);
    build_step(&b, PLAN_RECV_REDUCE_COPY, PLAN_SCRATCH, 3, PLAN_OUT, 1, 2);
    build_on_recv(&b, build_recv_from(&b, 2, 0));
    build_on_recv(&b, build_recv_group(&b, 1));
    build_self(&b, 1);
    build_wait(&b, first, sent);
    return build_end(&b, 5);
}

static void check_two_lanes(const struct plan_prog *p)
{
    assert_int_equal(p->nlanes, 2);
    assert_int_equal(p->nsends, 1);
    assert_int_equal(p->nrecvs, 2);
    assert_int_equal(p->scratch_chunks, 5);
    assert_int_equal(p->lanes[0].nsteps, 2);
    const struct plan_step *s = &p->steps[p->lanes[1].first];
    assert_int_equal(s->shape, 1);
    assert_int_equal(s->nrecv, 2);
    assert_int_equal(s->self, 1);
    assert_int_equal(p->recvs[p->recv_list[s->recv + 1]].group, true);
    assert_int_equal(s->ndep, 1);
    assert_int_equal(p->deps[s->dep].step, 1);
}

static void a_program_is_built_and_copied(void **state)
{
    struct plan *plan = calloc(1, sizeof *plan);
    *plan = plan_of(UNO_ALL_REDUCE, 3, 4);
    plan->progs = calloc(3, sizeof *plan->progs);
    assert_int_equal(two_lanes(plan, 0, &plan->progs[0]), UNO_OK);
    struct plan_prog copy;
    assert_int_equal(plan_rank(plan, 0, &copy), UNO_OK);
    plan_free(plan);
    check_two_lanes(&copy);
    plan_prog_free(&copy);
}

static void a_wrong_rank_is_refused(void **state)
{
    struct plan plan = plan_of(UNO_ALL_REDUCE, 3, 4);
    struct plan_prog prog;
    assert_int_equal(plan_rank(&plan, 3, &prog), UNO_ERR_PLAN);
    assert_non_null(strstr(err_text(), "no rank 3"));
}

static void every_failed_allocation_is_returned(void **state)
{
    struct plan plan = plan_of(UNO_ALL_REDUCE, 3, 4);
    plan.generate = two_lanes;
    for (long n = 1;; n++) {
        struct plan_prog prog;
        fault_arm("alloc", n);
        uno_err err = plan_rank(&plan, 0, &prog);
        fault_arm("alloc", 0);
        if (err == UNO_OK) {
            check_two_lanes(&prog);
            plan_prog_free(&prog);
            assert_true(n > 5);
            return;
        }
        assert_int_equal(err, UNO_ERR_MEMORY);
        assert_null(prog.steps);
    }
}

static void layouts_are_as_stated(void **state)
{
    static const struct { uno_coll coll; int in, out, shapes; } rows[] = { /* 3 ranks, 2 parts */
        {UNO_ALL_REDUCE, 2, 2, 2}, {UNO_BROADCAST, 2, 2, 2},  {UNO_REDUCE, 2, 2, 2}, {UNO_BARRIER, 2, 2, 2},
        {UNO_ALL_GATHER, 2, 6, 6}, {UNO_REDUCE_SCATTER, 6, 2, 6}, {UNO_ALL_TO_ALL, 6, 6, 6},
        {UNO_GATHER, 2, 6, 6},     {UNO_SCATTER, 6, 2, 6}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct plan plan = plan_of(rows[i].coll, 3, 2);
        assert_int_equal(plan_buf_chunks(&plan, PLAN_IN), rows[i].in);
        assert_int_equal(plan_buf_chunks(&plan, PLAN_OUT), rows[i].out);
        assert_int_equal(plan_shapes(&plan), rows[i].shapes);
        assert_int_equal(plan_chunk_shape(&plan, 1, PLAN_IN, 1), rows[i].in < rows[i].shapes ? 3 : 1);
        assert_int_equal(plan_chunk_shape(&plan, 1, PLAN_OUT, 1), rows[i].out < rows[i].shapes ? 3 : 1);
    }
}

/* The chunks of one block cover it without gap, begin on units, and differ by at most one unit (bar the last cut). */
static void check_cover(const struct plan_chunks *c, int first, int parts, size_t len, size_t base, size_t unit)
{
    size_t at = 0, least = SIZE_MAX, most = 0;
    for (int i = first; i < first + parts; i++) {
        assert_int_equal(c->part_off[i], at);
        assert_int_equal(c->full_off[i], base + at);
        assert_true(c->part_off[i] % unit == 0 || c->part_off[i] == len);
        least = MIN(least, (c->len[i] + unit - 1) / unit);
        most = MAX(most, (c->len[i] + unit - 1) / unit);
        at += c->len[i];
        assert_true(c->len[i] <= c->max_len);
    }
    assert_int_equal(at, len);
    assert_true(most - least <= 1);
}

static void an_even_split_covers_everything(void **state)
{
    struct plan plan = plan_of(UNO_ALL_REDUCE, 5, 7);
    static const size_t counts[] = {0, 1, 15, 16, 17, 112, 113, 1000, 7 * 16384, 7 * 16384 + 1, 1000003};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct request req = {.coll = UNO_ALL_REDUCE, .type = UNO_FLOAT32, .count = counts[i]};
        struct plan_chunks c;
        assert_int_equal(plan_chunks_make(&plan, &req, 0, &c), UNO_OK);
        check_cover(&c, 0, 7, counts[i], 0, counts[i] > 7 * 16384 ? 1024 : 16);
        plan_chunks_free(&c);
    }
}

static void blocks_move_with_the_shift(void **state)
{
    struct plan plan = plan_of(UNO_ALL_GATHER, 3, 2);
    struct request req = {.coll = UNO_ALL_GATHER, .type = UNO_INT64, .count = 100};
    struct plan_chunks c;
    assert_int_equal(plan_chunks_make(&plan, &req, 2, &c), UNO_OK);
    for (int v = 0; v < 3; v++)
        check_cover(&c, v * 2, 2, 100, (size_t)((v + 2) % 3) * 100, 8);
    assert_int_equal(plan_chunk_offset(&plan, &c, 1, PLAN_OUT, 3), 56); /* virtual 1 is real 0 */
    assert_int_equal(plan_chunk_offset(&plan, &c, 1, PLAN_IN, 1), 56);
    plan_chunks_free(&c);
}

static void counts_and_places_of_the_caller_are_kept(void **state)
{
    struct plan plan = plan_of(UNO_ALL_GATHER, 3, 2);
    size_t counts[] = {0, 100, 7}, displs[] = {500, 300, 10};
    struct request req = {.coll = UNO_ALL_GATHER_V, .type = UNO_INT8, .counts = counts, .displs = displs};
    struct plan_chunks c;
    assert_int_equal(plan_chunks_make(&plan, &req, 0, &c), UNO_OK);
    for (int v = 0; v < 3; v++)
        check_cover(&c, v * 2, 2, counts[v], displs[v], 64);
    plan_chunks_free(&c);
    req.displs = NULL;
    assert_int_equal(plan_chunks_make(&plan, &req, 1, &c), UNO_OK);
    check_cover(&c, 0, 2, 100, 0, 64);
    check_cover(&c, 2, 2, 7, 100, 64);
    check_cover(&c, 4, 2, 0, 0, 64);
    plan_chunks_free(&c);
}

static void wrong_requests_are_refused(void **state)
{
    struct plan plan = plan_of(UNO_ALL_GATHER, 3, 2);
    struct plan_chunks c;
    struct request req = {.coll = UNO_ALL_REDUCE, .type = UNO_INT8, .count = 1};
    assert_int_equal(plan_chunks_make(&plan, &req, 0, &c), UNO_ERR_ARG);
    req = (struct request){.coll = UNO_ALL_GATHER_V, .type = UNO_INT8, .count = 1};
    assert_int_equal(plan_chunks_make(&plan, &req, 0, &c), UNO_ERR_ARG);
    req = (struct request){.coll = UNO_ALL_GATHER, .type = UNO_INT8, .count = SIZE_MAX / 2};
    assert_int_equal(plan_chunks_make(&plan, &req, 0, &c), UNO_ERR_ARG);
    req = (struct request){.coll = UNO_ALL_GATHER, .type = (uno_type)99, .count = 1};
    assert_int_equal(plan_chunks_make(&plan, &req, 0, &c), UNO_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opcodes_have_both_names), cmocka_unit_test(a_program_is_built_and_copied),
        cmocka_unit_test(a_wrong_rank_is_refused), cmocka_unit_test(every_failed_allocation_is_returned),
        cmocka_unit_test(layouts_are_as_stated), cmocka_unit_test(an_even_split_covers_everything),
        cmocka_unit_test(blocks_move_with_the_shift), cmocka_unit_test(counts_and_places_of_the_caller_are_kept),
        cmocka_unit_test(wrong_requests_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
