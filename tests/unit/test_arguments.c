/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments that no program means, refused before anything is begun, each with what is legal. Those of running communicators, on all ranks and
 * carriers, are in tests/faults (arguments_everywhere).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "unisono.h"

static uno_comm *comms[2];

static void arguments_beyond_all_bounds(void **state)
{
    (void)state;
    uno_id id;
    uno_comm *comm;
    char line[400];
    memset(&id, 0, sizeof id);
    assert_int_equal(uno_comm_init_rank(&comm, INT_MAX, &id, 0, NULL), UNO_ERR_ARG);
    assert_non_null(strstr(uno_last_error(NULL), "2147483647 ranks; at most 65536"));
    assert_int_equal(uno_comm_init_all(comms, INT_MAX, NULL), UNO_ERR_ARG);
    assert_non_null(strstr(uno_last_error(NULL), "2147483647 ranks; at most 65536"));
    assert_int_equal(uno_comm_init_all(comms, 2, NULL), UNO_OK);
    assert_int_equal(uno_comm_explain(comms[0], UNO_ALL_REDUCE, 1, UNO_FLOAT32, (uno_op)99, 0, line, sizeof line), UNO_ERR_ARG);
    assert_int_equal(uno_comm_explain(comms[0], UNO_ALL_REDUCE, 1, UNO_FLOAT32, UNO_BAND, 0, line, sizeof line), UNO_ERR_TYPE);
    assert_int_equal(uno_comm_explain(comms[0], UNO_ALL_GATHER, 1, UNO_FLOAT32, (uno_op)99, 0, line, sizeof line), UNO_OK); /* it has none */
    assert_int_equal(uno_comm_explain(comms[0], UNO_ALL_REDUCE, 1, UNO_FLOAT32, UNO_MAX, 0, line, sizeof line), UNO_OK);
    for (int r = 0; r < 2; r++)
        assert_int_equal(uno_comm_destroy(comms[r]), UNO_OK);
}

static void deadlines_that_are_none(void **state)
{
    (void)state;
    static const struct { double timeout_s, join_timeout_s; const char *says; } rows[] = {
        {0, -1, "config: timeout_s is 0; legal is more than 0, or less for the default"},
        {NAN, -1, "config: timeout_s is nan"},
        {5, 0, "config: join_timeout_s is 0"},
        {-1, NAN, "config: join_timeout_s is nan"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uno_config config = UNO_CONFIG_INIT;
        config.timeout_s = rows[i].timeout_s;
        config.join_timeout_s = rows[i].join_timeout_s;
        assert_int_equal(uno_comm_init_all(comms, 2, &config), UNO_ERR_ARG);
        assert_non_null(strstr(uno_last_error(NULL), rows[i].says));
    }
}

/* More than there is would be had, and end the process that writes there. */
static void memory_that_no_host_has(void **state)
{
    (void)state;
#if SIZE_MAX > UINT32_MAX
    void *memory = comms;
    assert_int_equal(uno_mem_alloc(&memory, (size_t)1 << 46), UNO_ERR_MEMORY);
    assert_null(memory);
    assert_non_null(strstr(uno_last_error(NULL), "70368744177664 bytes: they are more than this host's memory and swap"));
#else
    skip();
#endif
}

/* A finalized communicator tells what may still be done with it, none that one is needed. */
static void no_communicator_any_more(void **state)
{
    (void)state;
    int x = 1;
    assert_int_equal(uno_comm_init_all(comms, 1, NULL), UNO_OK);
    assert_int_equal(uno_comm_finalize(comms[0]), UNO_OK);
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_INT32, UNO_SUM, comms[0], NULL), UNO_ERR_USAGE);
    assert_non_null(strstr(uno_last_error(comms[0]), "rank 0: this communicator was finalized; what is legal now is uno_comm_destroy"));
    assert_int_equal(uno_comm_destroy(comms[0]), UNO_OK);
    assert_int_equal(uno_all_reduce(&x, &x, 1, UNO_INT32, UNO_SUM, NULL, NULL), UNO_ERR_ARG);
    assert_non_null(strstr(uno_last_error(NULL), "needs a communicator, and comm is NULL"));
}

/* What needs an answer of others at once is not noted, and says which call it was. */
static void not_in_groups(void **state)
{
    (void)state;
    uno_comm *comm;
    assert_int_equal(uno_comm_init_all(comms, 1, NULL), UNO_OK);
    assert_int_equal(uno_comm_dup(comms[0], NULL, NULL), UNO_ERR_ARG);
    assert_non_null(strstr(uno_last_error(NULL), "uno_comm_dup: newcomm is NULL"));
    assert_int_equal(uno_group_start(), UNO_OK);
    static const char *const names[] = {"uno_comm_split inside a group", "uno_comm_dup inside a group", "uno_comm_shrink inside a group"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(i == 0   ? uno_comm_split(comms[0], 0, 0, &comm, NULL)
                         : i == 1 ? uno_comm_dup(comms[0], &comm, NULL)
                                  : uno_comm_shrink(comms[0], NULL, 0, &comm, NULL),
                         UNO_ERR_USAGE);
        assert_non_null(strstr(uno_last_error(NULL), names[i]));
        assert_non_null(strstr(uno_last_error(NULL), "call it after uno_group_end"));
    }
    assert_int_equal(uno_group_end(), UNO_OK);
    assert_int_equal(uno_comm_destroy(comms[0]), UNO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_beyond_all_bounds),
        cmocka_unit_test(deadlines_that_are_none),
        cmocka_unit_test(not_in_groups),
        cmocka_unit_test(memory_that_no_host_has),
        cmocka_unit_test(no_communicator_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
