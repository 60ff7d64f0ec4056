/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/base.h"

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct { const char *s; uint64_t bytes; } good[] = {
        {"0", 0}, {"8", 8}, {"4K", 4096}, {"4k", 4096}, {"1.5M", 1572864}, {"256 MB", 268435456}, {"1GiB", 1u << 30},
        {"9007199254740993", 9007199254740993u}};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        uint64_t v = 1;
        assert_int_equal(text_parse_bytes(good[i].s, &v), UNO_OK);
        assert_int_equal(v, good[i].bytes);
    }
    static const char *const bad[] = {"", "-1", "x", "4Q", "4KBs", "1.5", "nan", "inf", "99999999999999999999T"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        uint64_t v;
        assert_int_equal(text_parse_bytes(bad[i], &v), UNO_ERR_PARSE);
        assert_null(strstr(err_text(), "not a number")); /* -1 and nan are */
    }
    uint64_t v;
    assert_int_equal(text_parse_bytes("-1", &v), UNO_ERR_PARSE);
    assert_non_null(strstr(err_text(), "such as 64K"));
    int64_t n;
    assert_int_equal(text_parse_int("two", 1, 16, &n), UNO_ERR_PARSE);
    assert_non_null(strstr(err_text(), "legal is 1 to 16"));
}

static void times_are_read(void **state)
{
    (void)state;
    double v;
    assert_int_equal(text_parse_seconds("250ms", &v), UNO_OK);
    assert_true(v == 0.25);
    assert_int_equal(text_parse_seconds("2m", &v), UNO_OK);
    assert_true(v == 120);
    static const char *const bad[] = {"2 weeks", "soon", "-1", ""};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(text_parse_seconds(bad[i], &v), UNO_ERR_PARSE);
        assert_non_null(strstr(err_text(), "such as 250ms"));
    }
}

static void collectives_are_found_by_all_their_names(void **state)
{
    (void)state;
    static const char *const names[] = {"all_reduce", "allreduce", "AllReduce", "all-reduce", "all_reduce_perf"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        uno_coll c = UNO_BARRIER;
        assert_int_equal(coll_parse(names[i], &c), UNO_OK);
        assert_int_equal(c, UNO_ALL_REDUCE);
    }
    uno_coll c;
    assert_int_equal(coll_parse("alltoallv", &c), UNO_OK);
    assert_int_equal(c, UNO_ALL_TO_ALL_V);
    assert_int_equal(coll_parse("all", &c), UNO_ERR_PARSE);
    assert_int_equal(coll_parse("all_reducex", &c), UNO_ERR_PARSE);
}

static void near_words_are_found(void **state)
{
    (void)state;
    static const char *const names[] = {"UNISONO_TIMEOUT", "UNISONO_ALGO"};
    assert_string_equal(text_nearest("UNISONO_TIMOUT", names, 2), "UNISONO_TIMEOUT");
    assert_null(text_nearest("SOMETHING", names, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read), cmocka_unit_test(times_are_read),
        cmocka_unit_test(collectives_are_found_by_all_their_names), cmocka_unit_test(near_words_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
