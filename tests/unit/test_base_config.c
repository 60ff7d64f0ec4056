/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config_table.h"
#include "unisono_watch.h"

/* Every test starts from an environment of exactly what it sets. */
static int clean(void **state)
{
    return clearenv();
}

static char *show(const char *name, const char **source)
{
    static char buf[256];
    struct text t = {0};
    const char *from;
    const struct cfg_entry *e = cfg_find(name);
    assert_non_null(e);
    assert_int_equal(config_show((size_t)(e - cfg_table), &t, &from), UNO_OK);
    snprintf(buf, sizeof buf, "%s", t.s ? t.s : "");
    text_free(&t);
    if (source)
        *source = from;
    return buf;
}

static void defaults_are_those_of_the_table(void **state)
{
    struct config cfg;
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    assert_true(cfg.timeout == 1800.0);
    assert_true(cfg.join_timeout == 120.0);
    assert_int_equal(cfg.memory_limit, 2097152);
    assert_int_equal(cfg.socket_count, 2);
    assert_true(cfg.lend);
    assert_false(cfg.shm_disable);
    assert_int_equal(cfg.auth, 0);
    assert_string_equal(cfg.socket_ifname, "");
    assert_true(cfg.spin == -1.0);
}

static void strict_values(void **state)
{
    static const struct { const char *name, *value, *shown; } good[] = {
        {"UNISONO_TIMEOUT", "250ms", "0.25"}, {"UNISONO_TIMEOUT", "2m", "120"}, {"UNISONO_BUFFSIZE", "4M", "4194304"},
        {"UNISONO_BUFFSIZE", "0", "0"}, {"UNISONO_LEND", "off", "no"}, {"UNISONO_LEND", "True", "yes"},
        {"UNISONO_DEBUG", "INFO", "info"}, {"UNISONO_CHANNELS", "8", "8"}, {"UNISONO_SPIN", "-1", "-1"},
        {"UNISONO_SPIN", "50us", "5e-05"}, {"UNISONO_ALGO", "ring,tree", "ring,tree"}, {"UNISONO_ALGO", "^flat", "^flat"},
        {"UNISONO_ALGO", "^flat,flat2,ring,tree,hd", "^flat,flat2,ring,tree,hd"},
        {"UNISONO_ALGO", "all_reduce:ring;allgather:^tree,hd", "all_reduce:ring;allgather:^tree,hd"},
        {"UNISONO_DEBUG_SUBSYS", "^init,net", "^init,net"}, {"UNISONO_SOCKET_FAMILY", "inet6", "inet6"},
        {"UNISONO_AUTH", "none", "none"}, {"UNISONO_TIMEOUT", "", "1800"}};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        clearenv();
        setenv(good[i].name, good[i].value, 1);
        const char *source;
        assert_string_equal(show(good[i].name, &source), good[i].shown);
        assert_string_equal(source, *good[i].value ? good[i].name : "default");
    }
    static const struct { const char *name, *value, *says; } bad[] = {
        {"UNISONO_TIMEOUT", "soon", "number"}, {"UNISONO_TIMEOUT", "0", "outside"}, {"UNISONO_TIMEOUT", "-1", "number"},
        {"UNISONO_TIMEOUT", "2 weeks", "ms, s, m or h"}, {"UNISONO_BUFFSIZE", "4Q", "K, M, G"},
        {"UNISONO_BUFFSIZE", "1G", "256 MB"}, {"UNISONO_MEMORY_LIMIT", "1", "64 KB"}, {"UNISONO_LEND", "maybe", "true false yes no"},
        {"UNISONO_DEBUG", "loud", "none,version,warn,info"}, {"UNISONO_CHANNELS", "9", "0 to 8"},
        {"UNISONO_CHANNELS", "4x", "whole number"}, {"UNISONO_ALGO", "ring,nvls", CFG_ALGOS}, {"UNISONO_ALGO", "nosuch:ring", "collective"},
        {"UNISONO_ALGO", "ring,", CFG_ALGOS}, {"UNISONO_ALGO", "^", CFG_ALGOS}, {"UNISONO_ALGO", "^" CFG_ALGOS, "leaves none"},
        {"UNISONO_ALGO", "all_reduce:^Ring,FLAT,tree,hd,flat2,two_level", "leaves none"}, {"UNISONO_DEBUG_SUBSYS", "init,gpu", CFG_TOPICS},
        {"UNISONO_AUTH", "off", "secret,none"}, {"UNISONO_SPIN", "-2", "outside"}, {"UNISONO_FAULT", "alloc", "name:n"},
        {"UNISONO_SOCKET_FAMILY", "ipv6", "any,inet,inet6"}, {"UNISONO_READ_NCCL", "2", "true false"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct config cfg;
        clearenv();
        setenv(bad[i].name, bad[i].value, 1);
        assert_int_equal(config_load(&cfg, NULL), UNO_ERR_CONFIG);
        if (!strstr(err_text(), bad[i].name) || !strstr(err_text(), bad[i].says))
            fail_msg("%s=%s: %s", bad[i].name, bad[i].value, err_text());
    }
}

static void foreign_values_have_their_own_grammar(void **state)
{
    static const struct { const char *foreign, *value, *row, *shown; bool used; } cases[] = {
        {"NCCL_BUFFSIZE", "8388608", "UNISONO_BUFFSIZE", "8388608", true}, {"NCCL_BUFFSIZE", "8M", "UNISONO_BUFFSIZE", "4096", true},
        {"NCCL_BUFFSIZE", "0x100000", "UNISONO_BUFFSIZE", "1048576", true}, {"NCCL_BUFFSIZE", "020000", "UNISONO_BUFFSIZE", "8192", true},
        {"NCCL_BUFFSIZE", "-2", "UNISONO_BUFFSIZE", "0", false}, {"NCCL_BUFFSIZE", "99999999999999999999", "UNISONO_BUFFSIZE", "0", false},
        {"NCCL_BUFFSIZE", "9999999999", "UNISONO_BUFFSIZE", "268435456", true}, {"RCCL_BUFFSIZE", "65536", "UNISONO_BUFFSIZE", "65536", true},
        {"NCCL_MAX_NCHANNELS", "4", "UNISONO_CHANNELS", "4", true}, {"NCCL_MAX_NCHANNELS", "64", "UNISONO_CHANNELS", "8", true},
        {"NCCL_MAX_NCHANNELS", "0", "UNISONO_CHANNELS", "1", true}, {"NCCL_MAX_NCHANNELS", "true", "UNISONO_CHANNELS", "1", true},
        {"NCCL_MAX_RINGS", "4", "UNISONO_CHANNELS", "4", true}, {"NCCL_MAX_CTAS", "0", "UNISONO_CHANNELS", "0", false},
        {"NCCL_SHM_DISABLE", "1", "UNISONO_SHM_DISABLE", "yes", true}, {"NCCL_SHM_DISABLE", "true", "UNISONO_SHM_DISABLE", "no", true},
        {"NCCL_SHM_DISABLE", "2", "UNISONO_SHM_DISABLE", "no", true}, {"NCCL_SHM_DISABLE", "1x", "UNISONO_SHM_DISABLE", "yes", true},
        {"NCCL_TIMEOUT", "300", "UNISONO_TIMEOUT", "300", true}, {"RCCL_TIMEOUT", "10m", "UNISONO_TIMEOUT", "600", true},
        {"NCCL_TIMEOUT", "never", "UNISONO_TIMEOUT", "1800", false}, {"NCCL_TIMEOUT", "0", "UNISONO_TIMEOUT", "1800", false},
        {"NCCL_DEBUG", "info", "UNISONO_DEBUG", "info", true}, {"NCCL_DEBUG", "DEBUG", "UNISONO_DEBUG", "none", true},
        {"NCCL_DEBUG", "INFO ", "UNISONO_DEBUG", "none", true}, {"RCCL_DEBUG", "WARN", "UNISONO_DEBUG", "warn", true},
        {"NCCL_DEBUG_SUBSYS", "INIT,GRAPH", "UNISONO_DEBUG_SUBSYS", "init,topo", true},
        {"NCCL_DEBUG_SUBSYS", "^ALL", "UNISONO_DEBUG_SUBSYS", "^all", true}, {"NCCL_DEBUG_SUBSYS", "INIT,FOO", "UNISONO_DEBUG_SUBSYS", "", false},
        {"NCCL_DEBUG_SUBSYS", "NVLS", "UNISONO_DEBUG_SUBSYS", "", false},
        {"NCCL_ALGO", "Ring", "UNISONO_ALGO", "broadcast:ring;reduce:ring;all_gather:ring;reduce_scatter:ring;all_reduce:ring", true},
        {"NCCL_ALGO", "tree", "UNISONO_ALGO", "all_reduce:tree", true}, {"NCCL_ALGO", "allreduce:tree", "UNISONO_ALGO", "all_reduce:tree", true},
        {"NCCL_ALGO", "allreduce:ring,tree;allgather:ring", "UNISONO_ALGO", "all_gather:ring;all_reduce:ring,tree", true},
        {"NCCL_ALGO", "^Tree", "UNISONO_ALGO", "all_reduce:^tree", true}, {"NCCL_ALGO", "NVLS", "UNISONO_ALGO", "", false},
        {"NCCL_ALGO", "^NVLS", "UNISONO_ALGO", "", false}, {"NCCL_ALGO", "no such;:;,,^", "UNISONO_ALGO", "", false},
        {"NCCL_SOCKET_IFNAME", "^docker0,lo", "UNISONO_SOCKET_IFNAME", "^docker0,lo", true},
        {"NCCL_SOCKET_IFNAME", "e", "UNISONO_SOCKET_IFNAME", "", false}, {"NCCL_SOCKET_FAMILY", "AF_INET6", "UNISONO_SOCKET_FAMILY", "inet6", true},
        {"NCCL_SOCKET_FAMILY", "inet6", "UNISONO_SOCKET_FAMILY", "any", false}, {"NCCL_NSOCKS_PERTHREAD", "4", "UNISONO_SOCKETS", "4", true},
        {"NCCL_NSOCKS_PERTHREAD", "0", "UNISONO_SOCKETS", "2", false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        clearenv();
        setenv(cases[i].foreign, cases[i].value, 1);
        const char *source, *shown = show(cases[i].row, &source);
        if (strcmp(shown, cases[i].shown) != 0 || strcmp(source, cases[i].used ? cases[i].foreign : "default") != 0)
            fail_msg("%s=%s: %s from %s", cases[i].foreign, cases[i].value, shown, source);
        /* What a foreign value becomes is legal as our own. */
        union cfg_value v;
        if (*shown)
            assert_int_equal(cfg_parse(cfg_find(cases[i].row), shown, &v), UNO_OK);
        struct config cfg; /* and it never fails a job */
        assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    }
}

static void sources_win_in_order(void **state)
{
    struct config cfg;
    struct config_program program = {.timeout_s = 50, .join_timeout_s = -1};
    setenv("NCCL_TIMEOUT", "40", 1);
    setenv("RCCL_TIMEOUT", "30", 1);
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    assert_true(cfg.timeout == 40);
    assert_int_equal(config_load(&cfg, &program), UNO_OK);
    assert_true(cfg.timeout == 50);
    assert_true(cfg.join_timeout == 120);
    setenv("UNISONO_TIMEOUT", "60", 1);
    assert_int_equal(config_load(&cfg, &program), UNO_OK);
    assert_true(cfg.timeout == 60);
    unsetenv("UNISONO_TIMEOUT");
    setenv("UNISONO_READ_NCCL", "0", 1);
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    assert_true(cfg.timeout == 1800);
    setenv("NCCL_MAX_NRINGS", "3", 1);
    setenv("NCCL_MAX_NCHANNELS", "5", 1);
    setenv("UNISONO_READ_NCCL", "yes", 1);
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    assert_int_equal(cfg.channels, 5);
}

static void strings_outlive_the_environment(void **state)
{
    struct config cfg, again;
    setenv("UNISONO_HOST", "node7", 1);
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    setenv("UNISONO_HOST", "other", 1);
    assert_string_equal(cfg.host, "node7");
    setenv("UNISONO_HOST", "node7", 1);
    assert_int_equal(config_load(&again, NULL), UNO_OK);
    assert_ptr_equal(cfg.host, again.host); /* kept once */
}

static const struct config_finding *finding(const struct config_finding *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    fail_msg("no finding for %s", name);
    return NULL;
}

static void audit_says_what_each_variable_does(void **state)
{
    static const struct { const char *name, *value; int what; const char *says; } cases[] = {
        {"UNISONO_TIMEOUT", "10", CONFIG_USED, "Deadline"}, {"UNISONO_TIMEOT", "10", CONFIG_UNKNOWN, "UNISONO_TIMEOUT"},
        {"UNISONO_LEND", "perhaps", CONFIG_ILLEGAL, "true false"}, {"UNISONO_HOST", "", CONFIG_NO_EFFECT, "empty"},
        {"NCCL_TIMEOUT", "10", CONFIG_OVERRIDDEN, "UNISONO_TIMEOUT"}, {"NCCL_BUFFSIZE", "4M", CONFIG_USED, "UNISONO_BUFFSIZE=4096"},
        {"RCCL_BUFFSIZE", "65536", CONFIG_OVERRIDDEN, "NCCL_BUFFSIZE"}, {"NCCL_IB_HCA", "mlx5", CONFIG_NO_EFFECT, "InfiniBand"},
        {"NCCL_IB_MTU", "9000", CONFIG_NO_EFFECT, "no library reads it"}, {"NCCL_ALGO", "NVLS", CONFIG_NO_EFFECT, "NVLS"},
        {"NCCL_SOCKET_IFNAMES", "eth0", CONFIG_UNKNOWN, "NCCL_SOCKET_IFNAME"}, {"RCCL_ENABLE_XGMI", "1", CONFIG_NO_EFFECT, "xGMI"},
        {"NCCL_ZZZZZZZZZZZZZZZZZZ", "1", CONFIG_UNKNOWN, "nobody"}, {"NCCL_SHM_DISABLE", "true", CONFIG_USED, "only the number 1"},
        {"NCCL_DEBUG", "ERROR", CONFIG_USED, "VERSION,WARN,INFO"}, {"NCCL_SOCKET_FAMILY", "v6", CONFIG_NO_EFFECT, "AF_INET"},
        {"NCCL_ASYNC_ERROR_HANDLING", "1", CONFIG_NO_EFFECT, "PyTorch"}, {"RCCL_MSCCL_ENABLE", "1", CONFIG_NO_EFFECT, "RCCL"},
        {"UNISONO_SECRET_FD", "7", CONFIG_USED, "launcher"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        setenv(cases[i].name, cases[i].value, 1);
    setenv("HOME", "/", 1);
    struct config_finding *list;
    size_t n;
    assert_int_equal(config_audit(&list, &n), UNO_OK);
    assert_int_equal(n, ARRAY_LEN(cases));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct config_finding *f = finding(list, n, cases[i].name);
        if ((int)f->what != cases[i].what || !strstr(f->text, cases[i].says))
            fail_msg("%s: %d %s", f->name, f->what, f->text);
    }
    free(list);
    setenv("UNISONO_READ_NCCL", "no", 1);
    assert_int_equal(config_audit(&list, &n), UNO_OK);
    assert_non_null(strstr(finding(list, n, "NCCL_BUFFSIZE")->text, "UNISONO_READ_NCCL"));
    free(list);
}

static void a_myth_that_works_here_says_so(void **state)
{
    setenv("NCCL_TIMEOUT", "1800000", 1);
    struct config_finding *list;
    size_t n;
    assert_int_equal(config_audit(&list, &n), UNO_OK);
    assert_int_equal(list[0].what, CONFIG_USED);
    assert_non_null(strstr(list[0].text, "20.8 days"));
    assert_non_null(strstr(list[0].text, "never read this name"));
    free(list);
}

static void fingerprint_has_what_ranks_must_share(void **state)
{
    struct config a, b;
    struct text ta = {0}, tb = {0};
    assert_int_equal(config_load(&a, NULL), UNO_OK);
    setenv("UNISONO_BUFFSIZE", "64K", 1);
    setenv("UNISONO_TIMEOUT", "3", 1);
    assert_int_equal(config_load(&b, NULL), UNO_OK);
    assert_int_equal(config_fingerprint(&a, &ta), UNO_OK);
    assert_int_equal(config_fingerprint(&b, &tb), UNO_OK);
    assert_non_null(strstr(ta.s, "UNISONO_BUFFSIZE=0\n"));
    assert_non_null(strstr(tb.s, "UNISONO_BUFFSIZE=65536\n"));
    assert_null(strstr(tb.s, "UNISONO_TIMEOUT="));
    text_free(&ta);
    text_free(&tb);
}

static void public_arrays_survive_every_failing_allocation(void **state)
{
    setenv("UNISONO_LEND", "perhaps", 1);
    setenv("NCCL_BUFFSIZE", "65536", 1);
    const struct config_row *rows;
    config_rows(&rows);
    bool done = false;
    for (long nth = 1; !done && nth < 2000; nth++) {
        uno_setting *s = NULL;
        size_t n = 0;
        fault_arm("alloc", nth);
        uno_err err = uno_settings(&s, &n);
        done = err == UNO_OK && nth > (long)n;
        assert_true(err == UNO_OK || err == UNO_ERR_MEMORY);
        if (err == UNO_OK)
            uno_settings_free(s, n);
    }
    assert_true(done);
    done = false;
    for (long nth = 1; !done && nth < 100; nth++) {
        uno_setting_finding *f = NULL;
        size_t n = 0;
        fault_arm("alloc", nth);
        uno_err err = uno_settings_audit(&f, &n);
        done = err == UNO_OK && nth > 10;
        if (err == UNO_OK) {
            assert_int_equal(n, 2);
            uno_settings_audit_free(f, n);
        } else {
            assert_int_equal(err, UNO_ERR_MEMORY);
        }
    }
    assert_true(done);
    fault_arm(NULL, 0);
    uno_setting *s;
    size_t n;
    assert_int_equal(uno_settings(&s, &n), UNO_OK);
    for (size_t i = 0; i < n; i++) {
        assert_true(*s[i].name && *s[i].kind && *s[i].help && *s[i].legal);
        if (strcmp(s[i].name, "UNISONO_LEND") == 0)
            assert_string_equal(s[i].source, "illegal");
        if (strcmp(s[i].name, "UNISONO_BUFFSIZE") == 0)
            assert_string_equal(s[i].source, "NCCL_BUFFSIZE");
    }
    uno_settings_free(s, n);
    assert_int_equal(uno_settings(NULL, &n), UNO_ERR_ARG);
}

static void the_log_follows_the_settings(void **state)
{
    char name[64], line[64] = "";
    snprintf(name, sizeof name, "/tmp/unisono-test-log.%d", (int)getpid());
    setenv("UNISONO_DEBUG", "info", 1);
    setenv("UNISONO_DEBUG_SUBSYS", "net,boot", 1);
    setenv("UNISONO_DEBUG_FILE", "/tmp/unisono-test-log.%p", 1);
    struct config cfg;
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    assert_int_equal(config_log(&cfg, 3), UNO_OK);
    assert_int_equal(log_level_now, LOG_INFO);
    assert_int_equal(log_topics_now, LOG_NET | LOG_BOOT);
    LOG(LOG_INFO, LOG_NET, "said");
    LOG(LOG_INFO, LOG_COLL, "not said");
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(line, "unisono: rank 3: said\n");
    assert_null(fgets(line, sizeof line, f));
    fclose(f);
    unlink(name);
    setenv("UNISONO_DEBUG_FILE", "/nosuch/dir/file", 1);
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    assert_int_equal(config_log(&cfg, 3), UNO_ERR_CONFIG);
    assert_non_null(strstr(err_text(), "/nosuch/dir/file"));
    log_configure(LOG_WARN, LOG_ALL_TOPICS, "", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(defaults_are_those_of_the_table, clean),
        cmocka_unit_test_setup(strict_values, clean),
        cmocka_unit_test_setup(foreign_values_have_their_own_grammar, clean),
        cmocka_unit_test_setup(sources_win_in_order, clean),
        cmocka_unit_test_setup(strings_outlive_the_environment, clean),
        cmocka_unit_test_setup(audit_says_what_each_variable_does, clean),
        cmocka_unit_test_setup(a_myth_that_works_here_says_so, clean),
        cmocka_unit_test_setup(fingerprint_has_what_ranks_must_share, clean),
        cmocka_unit_test_setup(public_arrays_survive_every_failing_allocation, clean),
        cmocka_unit_test_setup(the_log_follows_the_settings, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
