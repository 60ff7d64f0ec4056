/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator of one rank: nobody else is there, and yet a wait may be for nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "unisono.h"

/* A receive from oneself that no send meets: the cause is told before the deadline passes, and in its error. */
static void waits_for_itself(void **state)
{
    (void)state;
    setenv("UNISONO_STALL", "0.2", 1);
    for (int by_id = 0; by_id < 2; by_id++) {
        uno_config config = UNO_CONFIG_INIT;
        uno_comm *comm;
        uno_request *request;
        uno_id id;
        int got;
        config.timeout_s = 3;
        if (by_id) {
            assert_int_equal(uno_get_id(&id), UNO_OK);
            assert_int_equal(uno_comm_init_rank(&comm, 1, &id, 0, &config), UNO_OK);
        } else {
            assert_int_equal(uno_comm_init_all(&comm, 1, &config), UNO_OK);
        }
        assert_int_equal(uno_irecv(&got, 1, UNO_INT32, 0, 3, comm, &request), UNO_OK);
        assert_int_equal(uno_wait(&request, NULL), UNO_ERR_TIMEOUT);
        if (!strstr(uno_last_error(comm), "receive without send: rank 0"))
            fail_msg("%s", uno_last_error(comm));
        assert_int_equal(uno_comm_destroy(comm), UNO_OK);
    }
    unsetenv("UNISONO_STALL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(waits_for_itself)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
