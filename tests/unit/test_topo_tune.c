/* SPDX-License-Identifier: Apache-2.0 */
/* The calibration file: what was written is read; what is stale, foreign, cut off, changed, unreadable or not the user's is not followed, and
 * said. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/topo.h"

static char folder[64], file[128];

static struct topo_costs some_costs(void)
{
    struct topo_costs c = topo_costs_default;
    for (size_t i = 0; i < TOPO_COST_ROWS; i++)
        *topo_cost_of(&c, i) = topo_cost_rows[i].least + 1 + i;
    return c;
}

static void assert_costs(const struct topo_costs *have, const struct topo_costs *want)
{
    struct topo_costs a = *have, b = *want;
    for (size_t i = 0; i < TOPO_COST_ROWS; i++)
        assert_int_equal(*topo_cost_of(&a, i), *topo_cost_of(&b, i));
}

/* Load, and compare the sentence: NULL = the file is followed, "" = nothing is said. */
static void assert_load(const char *setting, const char *says)
{
    bool found;
    struct text why = {0};
    struct topo_costs costs = topo_tune_load(setting, &found, &why), written = some_costs();
    assert_int_equal(found, says == NULL);
    assert_costs(&costs, found ? &written : &topo_costs_default);
    if (!says || !*says) {
        assert_null(why.s);
    } else {
        assert_non_null(why.s);
        if (!strstr(why.s, says) || !strstr(why.s, "not followed") || !strstr(why.s, "unisono tune"))
            fail_msg("%s", why.s);
    }
    text_free(&why);
}

static size_t read_all(char *buf, size_t bytes)
{
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    size_t n = fread(buf, 1, bytes - 1, f);
    fclose(f);
    buf[n] = 0;
    return n;
}

static void write_all(const char *s, size_t bytes)
{
    unlink(file);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(s, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(file, 0600), 0);
}

/* With a checksum that is right. */
static void write_checked(char *s)
{
    char *check = strstr(s, "check ");
    assert_non_null(check);
    *check = 0;
    id128 h = hash128(s, strlen(s), 12);
    snprintf(check, 32, "check %016llx\n", (unsigned long long)(h.lo ^ h.hi));
    write_all(s, strlen(s));
}

static int fresh(void **state)
{
    (void)state;
    struct topo_costs c = some_costs();
    unlink(file);
    assert_int_equal(topo_tune_save(file, &c), UNO_OK);
    return 0;
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    assert_load(file, NULL);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_load("none", "");
}

static void cut_off_anywhere(void **state)
{
    (void)state;
    char all[8192];
    size_t n = read_all(all, sizeof all);
    for (size_t cut = 0; cut < n; cut++) {
        write_all(all, cut);
        assert_load(file, cut < strlen("unisono costs 1\n") ? "no calibration of this version" : "cut off or was changed");
    }
    write_all(all, n);
    assert_load(file, NULL);
}

static void any_changed_byte(void **state)
{
    (void)state;
    char all[8192];
    size_t n = read_all(all, sizeof all), first = strlen("unisono costs 1\n");
    for (size_t at = 0; at < n; at++) {
        all[at] ^= 0x11;
        write_all(all, n);
        assert_load(file, at < first ? "no calibration of this version" : "cut off or was changed");
        all[at] ^= 0x11;
    }
}

static void another_machine_or_version(void **state)
{
    (void)state;
    char all[8192];
    read_all(all, sizeof all);
    memcpy(strstr(all, "machine ") + 8, "X", 1);
    write_checked(all);
    assert_load(file, "another machine or version");
    fresh(NULL);
    read_all(all, sizeof all);
    all[strlen("unisono costs ")] = '2';
    write_checked(all);
    assert_load(file, "no calibration of this version");
}

/* A checksum is no secret: what it vouches for must still make sense. */
static void costs_that_cannot_be(void **state)
{
    (void)state;
    static const char *const lines[] = {"step_ps 0",     "step_ps -5",  "step_ps 99999999999999999999", "step_ps",
                                        "step_ps 5 000", "other_ps 5",  "step_ps  5000",                "step_ps 0x5000",
                                        "",              "step_ps +50", "shm_latency_ps 5000"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        char all[8192], changed[9000];
        fresh(NULL);
        read_all(all, sizeof all);
        char *line = strstr(all, "\nstep_ps ") + 1, *rest = strchr(line, '\n');
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(line - all), all, lines[i], rest);
        write_checked(changed);
        assert_load(file, "costs that cannot be");
    }
}

static void not_a_file_of_the_user(void **state)
{
    (void)state;
    assert_int_equal(chmod(file, 0622), 0);
    assert_load(file, "others than its user can write it");
    if (geteuid() != 0) {
        assert_int_equal(chmod(file, 0), 0);
        assert_load(file, "cannot be read");
    }
    unlink(file);
    assert_load(file, "no such file");
    assert_int_equal(mkfifo(file, 0600), 0); /* nobody writes into it: who waits for that waits for ever */
    assert_load(file, "it is not a file");
    unlink(file);
    assert_load(folder, "it is not a file");
    char *large = malloc(100000);
    assert_non_null(large);
    memset(large, 'x', 100000);
    write_all(large, 100000);
    free(large);
    assert_load(file, "it is no calibration");
}

static void where_it_is(void **state)
{
    (void)state;
    char path[4096], want[256];
    setenv("HOME", "/home/somebody", 1);
    setenv("XDG_CACHE_HOME", folder, 1);
    assert_int_equal(topo_tune_path("", path, sizeof path), UNO_OK);
    snprintf(want, sizeof want, "%s/unisono/costs-", folder);
    assert_int_equal(strncmp(path, want, strlen(want)), 0);
    struct topo_costs c = some_costs();
    assert_int_equal(topo_tune_save(path, &c), UNO_OK); /* makes the directory */
    assert_load("", NULL);
    unlink(path);
    assert_load("", ""); /* never measured: nothing to say */
    *strrchr(path, '/') = 0;
    rmdir(path);
    setenv("XDG_CACHE_HOME", "relative", 1); /* not to be followed, says its specification */
    assert_int_equal(topo_tune_path("", path, sizeof path), UNO_OK);
    assert_int_equal(strncmp(path, "/home/somebody/.cache/unisono/costs-", 36), 0);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(topo_tune_path("", path, sizeof path), UNO_ERR_CONFIG);
    assert_load("", "");
    assert_int_equal(topo_tune_save("/proc/no/such", &c), UNO_ERR_SYSTEM);
}

static void classes(void **state)
{
    (void)state;
    struct topo_costs c = topo_costs_default, at = topo_costs_at(&c, UINT64_MAX, false);
    assert_int_equal(at.shm_ps_per_kb, c.shm_ps_per_kb); /* one rate for all as long as nothing was measured */
    assert_int_equal(at.reduce_ps_per_kb, c.reduce_ps_per_kb);
    c.shm_2m_ps_per_kb = 200000;
    c.shm_large_ps_per_kb = 400000;
    c.reduce_16m_ps_per_kb = 70000;
    assert_int_equal(topo_costs_at(&c, 128 << 10, false).shm_ps_per_kb, 120000);
    assert_int_equal(topo_costs_at(&c, (128 << 10) + 1, false).shm_ps_per_kb, 200000);
    assert_int_equal(topo_costs_at(&c, 16 << 20, false).shm_ps_per_kb, 200000);
    assert_int_equal(topo_costs_at(&c, (16 << 20) + 1, false).shm_ps_per_kb, 400000);
    assert_int_equal(topo_costs_at(&c, 1u << 30, false).reduce_ps_per_kb, 70000);
    c.read_ps_per_kb = 90000;
    c.map_ps_per_kb = 20000;
    assert_int_equal(topo_costs_at(&c, 4096, false).shm_ps_per_kb, 120000); /* short messages are copied */
    assert_int_equal(topo_costs_at(&c, 1 << 20, false).shm_ps_per_kb, 90000);
    assert_int_equal(topo_costs_at(&c, 1 << 20, true).shm_ps_per_kb, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_was_written_is_read, fresh), cmocka_unit_test_setup(cut_off_anywhere, fresh),
        cmocka_unit_test_setup(any_changed_byte, fresh),         cmocka_unit_test_setup(another_machine_or_version, fresh),
        cmocka_unit_test(costs_that_cannot_be),                  cmocka_unit_test_setup(not_a_file_of_the_user, fresh),
        cmocka_unit_test(where_it_is),                           cmocka_unit_test(classes)};
    snprintf(folder, sizeof folder, "/tmp/unisono-tune-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(file, sizeof file, "%s/costs", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    rmdir(folder);
    return failed;
}
