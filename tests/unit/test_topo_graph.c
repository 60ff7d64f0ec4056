/* SPDX-License-Identifier: Apache-2.0 */
/* Topologies: synthetic lines, JSON both ways, hwloc's XML, this machine, what is printed and what the checker finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "topo/topo_build.h"

static int count(const struct graph *g, enum topo_kind kind)
{
    int n = 0;
    for (int i = 0; i < g->nnodes; i++)
        n += g->nodes[i].kind == kind;
    return n;
}

static struct graph *synthetic(const char *line)
{
    struct graph *g = NULL;
    assert_int_equal(topo_from_synthetic(line, &g), UNO_OK);
    assert_non_null(g);
    return g;
}

static void synthetic_counts(void **state)
{
    struct graph *g = synthetic("host:2 socket:2 numa:2 core:3 pu:2 nic:2@25G gpu:4 rank:8");
    assert_int_equal(count(g, TOPO_HOST), 2);
    assert_int_equal(count(g, TOPO_SOCKET), 4);
    assert_int_equal(count(g, TOPO_NUMA), 8);
    assert_int_equal(count(g, TOPO_CORE), 24);
    assert_int_equal(count(g, TOPO_PU), 48);
    assert_int_equal(count(g, TOPO_NIC), 4);
    assert_int_equal(count(g, TOPO_GPU), 8);
    assert_int_equal(count(g, TOPO_RANK), 16);
    assert_int_equal(count(g, TOPO_SWITCH), 1);
    assert_int_equal(g->nlinks, 8);
    int last_rank = -1;
    for (int i = 0; i < g->nnodes; i++) {
        if (g->nodes[i].kind == TOPO_NIC) {
            assert_true(g->nodes[i].rate_bps == 3125000000ull); /* 25 Gbit/s in bytes */
            assert_true(topo_above(g, i, TOPO_NUMA) >= 0);
        }
        if (g->nodes[i].kind == TOPO_RANK)
            assert_int_equal(g->nodes[i].rank, ++last_rank);
        assert_true(g->nodes[i].parent < i);
    }
    topo_free(g);
}

static void one_host_needs_no_switch(void **state)
{
    struct graph *g = synthetic("core:4 nic:1@10G");
    assert_int_equal(count(g, TOPO_HOST), 1);
    assert_int_equal(count(g, TOPO_SWITCH), 0);
    assert_int_equal(g->nlinks, 0);
    topo_free(g);
}

static void refused(const char *line, const char *words)
{
    struct graph *g = NULL;
    assert_int_equal(topo_from_synthetic(line, &g), UNO_ERR_PARSE);
    assert_null(g);
    if (!strstr(err_text(), words))
        fail_msg("\"%s\" gives: %s", line, err_text());
}

static void synthetic_refused(void **state)
{
    refused("", "empty");
    refused("core", "has no count");
    refused("cor:4", "did you mean core");
    refused("core:0", "outside 1");
    refused("core:x", "not a whole number");
    refused("core:4 core:4", "stands twice");
    refused("core:4@25G", "only nic");
    refused("nic:1@25", "not a rate");
    refused("nic:1@G", "not a rate");
    refused("nic:1@-3G", "not a rate");
    refused("switch:2", "no part of a machine");
    refused("host:65536 core:65536", "more than");
    char long_line[1000];
    memset(long_line, 'a', sizeof long_line - 1);
    long_line[sizeof long_line - 1] = 0;
    refused(long_line, "characters");
}

static void json_comes_back(void **state)
{
    struct graph *g = synthetic("host:2 numa:2 core:2 nic:1@100G rank:4"), *back = NULL;
    struct text text = {0}, again = {0};
    assert_int_equal(topo_to_json(g, &text), UNO_OK);
    assert_int_equal(topo_from_json(text.s, text.len, "memory", &back), UNO_OK);
    assert_int_equal(back->nnodes, g->nnodes);
    for (int i = 0; i < g->nnodes; i++) {
        const struct topo_node *a = &g->nodes[i], *b = &back->nodes[i];
        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->parent, b->parent);
        assert_int_equal(a->os_index, b->os_index);
        assert_int_equal(a->rank, b->rank);
        assert_string_equal(a->name, b->name);
        assert_true(a->rate_bps == b->rate_bps && a->mem_bytes == b->mem_bytes);
    }
    assert_int_equal(topo_to_json(back, &again), UNO_OK);
    assert_string_equal(text.s, again.s);
    text_free(&text);
    text_free(&again);
    topo_free(g);
    topo_free(back);
}

static void json_refused(void **state)
{
    static const struct { const char *json, *words; } cases[] = {
        {"{", "line"},
        {"{\"unisono_topology\": 2, \"nodes\": []}", "not our JSON"},
        {"{\"unisono_topology\": 1, \"nodes\": []}", "something in it"},
        {"{\"unisono_topology\": 1, \"nodes\": [3]}", "not an object"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"host\"}], \"link\": []}", "\"link\" is no key of a topology"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"host\"}], \"source\": 3}", "\"source\" is not a string"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"horse\"}]}", "is no kind"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"core\"}]}", "needs a parent"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"host\", \"colour\": 1}]}", "not known"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"host\"}, {\"kind\": \"core\", \"parent\": 1}]}", "outside 0 to 0"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"host\", \"index\": \"x\"}]}", "not an integer"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"host\"}], \"links\": [{\"from\": 0, \"to\": 1, \"kind\": \"net\"}]}", "outside"},
        {"{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"host\"}], \"links\": [{\"kind\": \"net\"}]}", "needs from and to"},
        {"{\"unisono_topology\": 1, \"unisono_topology\": 1, \"nodes\": []}", "duplicate"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct graph *g = NULL;
        assert_int_equal(topo_from_json(cases[i].json, strlen(cases[i].json), "memory", &g), UNO_ERR_PARSE);
        assert_null(g);
        if (!strstr(err_text(), cases[i].words))
            fail_msg("%s gives: %s", cases[i].json, err_text());
    }
}

/* A chain of parents deeper than any machine, and nesting deeper than any JSON. */
static void json_deep(void **state)
{
    struct text t = {0};
    struct graph *g = NULL;
    text_add(&t, "{\"unisono_topology\": 1, \"nodes\": [{\"kind\": \"host\"}");
    for (int i = 0; i < 40; i++)
        text_add(&t, ", {\"kind\": \"numa\", \"parent\": %d}", i);
    text_add(&t, "]}");
    assert_int_equal(topo_from_json(t.s, t.len, "memory", &g), UNO_ERR_PARSE);
    assert_non_null(strstr(err_text(), "deeper than"));
    text_free(&t);
    for (int i = 0; i < 200000; i++)
        text_add(&t, "[");
    assert_int_equal(topo_from_json(t.s, t.len, "memory", &g), UNO_ERR_PARSE);
    text_free(&t);
}

static void printed(void **state)
{
    struct graph *g = synthetic("host:2 numa:2 core:4 pu:2 nic:1@25G");
    struct text t = {0};
    assert_int_equal(topo_print(g, &t), UNO_OK);
    assert_non_null(strstr(t.s, "2 hosts, 4 NUMA nodes, 16 cores, 32 processors, 2 network cards, 1 switch"));
    assert_non_null(strstr(t.s, "host host1"));
    assert_non_null(strstr(t.s, "4 cores: processors 8-15"));
    assert_non_null(strstr(t.s, "network card eth0  25 Gbit/s"));
    assert_non_null(strstr(t.s, "host0 eth0 <-> net  net  25 Gbit/s"));
    text_free(&t);
    topo_free(g);
}

static int checked(struct graph *g, const char *words)
{
    struct text t = {0};
    int n = topo_check(g, &t);
    if (words && (!t.s || !strstr(t.s, words)))
        fail_msg("expected \"%s\", got: %s", words, t.s ? t.s : "nothing");
    text_free(&t);
    return n;
}

/* Each finding has a healthy twin: the same machine before it is spoilt. */
static void checker_finds(void **state)
{
    struct graph *g = synthetic("host:2 numa:2 core:4 nic:2@25G");
    assert_int_equal(checked(g, NULL), 0);
    int nic = 0, core = 0;
    for (int i = 0; i < g->nnodes; i++) {
        if (g->nodes[i].kind == TOPO_NIC)
            nic = i;
        if (g->nodes[i].kind == TOPO_CORE)
            core = i;
    }
    g->nodes[nic].rate_bps = 200000000000ull * 125; /* 200 000 Gbit/s */
    assert_true(checked(g, "units are probably mixed up") > 0);
    g->nodes[nic].rate_bps = 125000000;
    assert_int_equal(checked(g, "ten times or more slower"), 1);
    g->nodes[nic].rate_bps = 3125000000ull;
    g->nodes[nic].parent = topo_above(g, nic, TOPO_HOST);
    assert_int_equal(checked(g, "not known to which NUMA node"), 1);
    g->nodes[core].kind = TOPO_PU;
    assert_true(checked(g, "hosts differ") > 0);
    assert_true(checked(g, "between 3 and 4 cores") > 0);
    g->nlinks--;
    assert_true(checked(g, "has no way back") > 0);
    topo_free(g);
}

static void this_machine(void **state)
{
    struct graph *g = NULL;
    assert_int_equal(topo_from_hwloc(&g), UNO_OK);
    assert_int_equal(count(g, TOPO_HOST), 1);
    assert_true(count(g, TOPO_PU) >= topo_processors());
    assert_true(count(g, TOPO_CORE) >= 1);
    for (int i = 1; i < g->nnodes; i++)
        assert_int_equal(topo_above(g, i, TOPO_HOST), 0);
    topo_free(g);
}

static const char xml[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x0000000f\" complete_cpuset=\"0x0000000f\" allowed_cpuset=\"0x0000000f\" "
    "nodeset=\"0x00000003\" complete_nodeset=\"0x00000003\" allowed_nodeset=\"0x00000003\" gp_index=\"1\">"
    "<info name=\"HostName\" value=\"model\"/>\n"
    "<object type=\"Package\" os_index=\"0\" cpuset=\"0x00000003\" complete_cpuset=\"0x00000003\" nodeset=\"0x00000001\" "
    "complete_nodeset=\"0x00000001\" gp_index=\"2\">"
    "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x00000003\" complete_cpuset=\"0x00000003\" nodeset=\"0x00000001\" "
    "complete_nodeset=\"0x00000001\" gp_index=\"3\" local_memory=\"1073741824\"/>"
    "<object type=\"Core\" os_index=\"0\" cpuset=\"0x00000003\" complete_cpuset=\"0x00000003\" nodeset=\"0x00000001\" "
    "complete_nodeset=\"0x00000001\" gp_index=\"4\">"
    "<object type=\"PU\" os_index=\"0\" cpuset=\"0x00000001\" complete_cpuset=\"0x00000001\" nodeset=\"0x00000001\" "
    "complete_nodeset=\"0x00000001\" gp_index=\"5\"/>"
    "<object type=\"PU\" os_index=\"1\" cpuset=\"0x00000002\" complete_cpuset=\"0x00000002\" nodeset=\"0x00000001\" "
    "complete_nodeset=\"0x00000001\" gp_index=\"6\"/></object></object>\n"
    "<object type=\"Package\" os_index=\"1\" cpuset=\"0x0000000c\" complete_cpuset=\"0x0000000c\" nodeset=\"0x00000002\" "
    "complete_nodeset=\"0x00000002\" gp_index=\"7\">"
    "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x0000000c\" complete_cpuset=\"0x0000000c\" nodeset=\"0x00000002\" "
    "complete_nodeset=\"0x00000002\" gp_index=\"8\" local_memory=\"2147483648\"/>"
    "<object type=\"Core\" os_index=\"1\" cpuset=\"0x0000000c\" complete_cpuset=\"0x0000000c\" nodeset=\"0x00000002\" "
    "complete_nodeset=\"0x00000002\" gp_index=\"9\">"
    "<object type=\"PU\" os_index=\"2\" cpuset=\"0x00000004\" complete_cpuset=\"0x00000004\" nodeset=\"0x00000002\" "
    "complete_nodeset=\"0x00000002\" gp_index=\"10\"/>"
    "<object type=\"PU\" os_index=\"3\" cpuset=\"0x00000008\" complete_cpuset=\"0x00000008\" nodeset=\"0x00000002\" "
    "complete_nodeset=\"0x00000002\" gp_index=\"11\"/></object></object>\n"
    "</object></topology>\n";

static void write_file(char *path, const char *data)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, strlen(data)), (ssize_t)strlen(data));
    close(fd);
}

static void hwloc_xml(void **state)
{
    char path[] = "/tmp/unisono-test-XXXXXX";
    struct graph *g = NULL;
    write_file(path, xml);
    assert_int_equal(topo_from_file(path, &g), UNO_OK);
    unlink(path);
    assert_int_equal(count(g, TOPO_SOCKET), 2);
    assert_int_equal(count(g, TOPO_NUMA), 2);
    assert_int_equal(count(g, TOPO_PU), 4);
    assert_string_equal(g->nodes[0].name, "model");
    for (int i = 0; i < g->nnodes; i++)
        if (g->nodes[i].kind == TOPO_NUMA) {
            assert_int_equal(g->nodes[g->nodes[i].parent].kind, TOPO_SOCKET);
            assert_true(g->nodes[i].mem_bytes == 1073741824ull * (uint64_t)(g->nodes[i].os_index + 1));
        } else if (g->nodes[i].kind == TOPO_PU) {
            assert_int_equal(g->nodes[topo_above(g, i, TOPO_NUMA)].os_index, g->nodes[i].os_index / 2);
        }
    topo_free(g);
}

static void files_refused(void **state)
{
    static const struct { const char *data, *words; uno_err err; } cases[] = {
        {"hello", "neither", UNO_ERR_PARSE},
        {"", "neither", UNO_ERR_PARSE},
        {"<topology version=\"2.0\"><object", "hwloc", UNO_ERR_PARSE},
        {"<system version=\"1\"></system>", "NCCL", UNO_ERR_UNSUPPORTED},
        {"{\"unisono_topology\": 1", "line 1", UNO_ERR_PARSE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[] = "/tmp/unisono-test-XXXXXX";
        struct graph *g = NULL;
        write_file(path, cases[i].data);
        assert_int_equal(topo_from_file(path, &g), cases[i].err);
        unlink(path);
        assert_null(g);
        if (!strstr(err_text(), cases[i].words))
            fail_msg("\"%s\" gives: %s", cases[i].data, err_text());
    }
    struct graph *g = NULL;
    assert_int_equal(topo_from_file("/does/not/exist", &g), UNO_ERR_SYSTEM);
    assert_int_equal(topo_from_file("/tmp", &g), UNO_ERR_PARSE);
}

/* The n-th allocation fails, for n = 1, 2, 3 ... until one passes untouched. */
static void no_memory(void **state)
{
    for (long n = 1;; n++) {
        struct graph *g = NULL;
        struct text t = {0};
        fault_arm("alloc", n);
        uno_err err = topo_from_synthetic("host:2 numa:2 core:2 nic:1@25G rank:2", &g);
        if (err == UNO_OK)
            err = topo_print(g, &t);
        if (err == UNO_OK && topo_check(g, &t) == 0 && t.failed)
            err = UNO_ERR_MEMORY;
        fault_arm(NULL, 0);
        topo_free(g);
        text_free(&t);
        if (err == UNO_OK) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(err, UNO_ERR_MEMORY);
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synthetic_counts), cmocka_unit_test(one_host_needs_no_switch),
        cmocka_unit_test(synthetic_refused), cmocka_unit_test(json_comes_back),
        cmocka_unit_test(json_refused), cmocka_unit_test(json_deep),
        cmocka_unit_test(printed), cmocka_unit_test(checker_finds),
        cmocka_unit_test(this_machine), cmocka_unit_test(hwloc_xml),
        cmocka_unit_test(files_refused), cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
