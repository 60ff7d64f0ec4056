/* SPDX-License-Identifier: Apache-2.0 */
/* The text forms of plans: round trips, other people's files, and sentences for what is not a plan. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plan/plan.h"
#include "planner/planner.h"
#include "verify/verify.h"

static const char *const imports[] = {
    "azure/a2a2ll", "azure/ag-1k-512k", "azure/ag-1m", "azure/ag_hier_4_LL", "azure/ag_hier_4_Simple", "azure/ap2ll",
    "azure/ar_hier_12_Simple", "azure/ar_tree_12_LL", "azure/r48ll", "rccl/all-reduce-ring-ll",
    "rccl/allreduce-allpairs-8n-ll-32tb-op", "rccl/allreduce-allpairs-8n-ll-32tb", "rccl/alltoall-8n-0-9kb",
    "rccl/alltoall-8n-7mb-43mb"};

static char *import_path(const char *name)
{
    static char path[512];
    const char *source = getenv("UNISONO_SOURCE");
    snprintf(path, sizeof path, "%s/tests/plans/imports/%s.xml", source ? source : ".", name);
    return path;
}

static struct plan *load_import(const char *name)
{
    struct plan *plan;
    if (plan_from_file(import_path(name), &plan) != UNO_OK)
        fail_msg("%s", err_text());
    return plan;
}

static void same_conn(const struct plan_conn *a, const struct plan_conn *b)
{
    assert_int_equal(a->peer, b->peer);
    assert_int_equal(a->channel, b->channel);
    assert_int_equal(a->group, b->group);
}

static void same_step(const struct plan_prog *p, const struct plan_step *a, const struct plan_prog *q, const struct plan_step *b)
{
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->src_buf, b->src_buf);
    assert_int_equal(a->dst_buf, b->dst_buf);
    if (a->src_buf != PLAN_NONE)
        assert_int_equal(a->src, b->src);
    if (a->dst_buf != PLAN_NONE)
        assert_int_equal(a->dst, b->dst);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->shape, b->shape);
    assert_int_equal(a->self, b->self);
    assert_int_equal(a->send < 0, b->send < 0);
    if (a->send >= 0)
        same_conn(&p->sends[a->send], &q->sends[b->send]);
    assert_int_equal(a->nrecv, b->nrecv);
    for (int i = 0; i < a->nrecv; i++)
        same_conn(&p->recvs[p->recv_list[a->recv + i]], &q->recvs[q->recv_list[b->recv + i]]);
    assert_int_equal(a->ndep, b->ndep);
    for (int i = 0; i < a->ndep; i++) {
        assert_int_equal(p->deps[a->dep + i].lane, q->deps[b->dep + i].lane);
        assert_int_equal(p->deps[a->dep + i].step, q->deps[b->dep + i].step);
    }
}

static void same_prog(const struct plan_prog *p, const struct plan_prog *q)
{
    assert_int_equal(p->rank, q->rank);
    assert_int_equal(p->nlanes, q->nlanes);
    assert_int_equal(p->scratch_chunks, q->scratch_chunks);
    for (int l = 0; l < p->nlanes; l++) {
        assert_int_equal(p->lanes[l].nsteps, q->lanes[l].nsteps);
        for (int i = 0; i < p->lanes[l].nsteps; i++)
            same_step(p, &p->steps[p->lanes[l].first + i], q, &q->steps[q->lanes[l].first + i]);
    }
}

static void same_plan(const struct plan *a, const struct plan *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->coll, b->coll);
    assert_int_equal(a->nranks, b->nranks);
    assert_int_equal(a->parts, b->parts);
    assert_int_equal(a->channels, b->channels);
    assert_int_equal(a->root, b->root);
    assert_int_equal(a->in_place_ok, b->in_place_ok);
    assert_int_equal(a->out_of_place_ok, b->out_of_place_ok);
    assert_int_equal(a->needs_reduce, b->needs_reduce);
    assert_int_equal(a->k_claimed, b->k_claimed);
    for (int r = 0; r < a->nranks; r++) {
        struct plan_prog p, q;
        assert_int_equal(plan_rank(a, r, &p), UNO_OK);
        assert_int_equal(plan_rank(b, r, &q), UNO_OK);
        same_prog(&p, &q);
        plan_prog_free(&p);
        plan_prog_free(&q);
    }
}

static void check_json_round_trip(const struct plan *plan)
{
    struct text once = {0}, again = {0};
    struct plan *back;
    assert_int_equal(plan_to_json(plan, &once), UNO_OK);
    if (plan_from_json(once.s, once.len, "round trip", &back) != UNO_OK)
        fail_msg("%s", err_text());
    same_plan(plan, back);
    for (int r = 0; r < plan->nranks; r++)
        assert_int_equal(back->host_of[r], plan->host_of ? plan->host_of[r] : 0);
    assert_int_equal(plan_to_json(back, &again), UNO_OK);
    assert_string_equal(once.s, again.s);
    plan_free(back);
    text_free(&once);
    text_free(&again);
}

static struct plan *xml_round_trip(const struct plan *plan, bool unicast)
{
    struct text xml = {0};
    struct plan *back = NULL;
    if (plan_to_xml(plan, unicast, &xml) != UNO_OK || plan_from_xml(xml.s, xml.len, "round trip", &back) != UNO_OK)
        fail_msg("%s", err_text());
    text_free(&xml);
    return back;
}

static void every_import_reads_and_round_trips(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(imports); i++) {
        struct plan *plan = load_import(imports[i]);
        check_json_round_trip(plan);
        struct plan *back = xml_round_trip(plan, false);
        same_plan(plan, back);
        plan_free(back);
        struct text shown = {0};
        assert_int_equal(plan_print(plan, -1, &shown), UNO_OK);
        assert_true(shown.len > 100);
        text_free(&shown);
        plan_free(plan);
    }
}

static void an_import_means_what_it_says(void **state)
{
    struct plan *plan = load_import("azure/ar_hier_12_Simple");
    assert_string_equal(plan->name, "allreduce_ncv4");
    assert_int_equal(plan->coll, UNO_ALL_REDUCE);
    assert_int_equal(plan->parts, 24);
    assert_int_equal(plan->k_claimed, 2);
    assert_true(plan->in_place_ok && !plan->out_of_place_ok && plan->needs_reduce);
    const struct plan_prog *p = &plan->progs[0];
    const struct plan_step *rrc = &p->steps[p->lanes[0].first + 1], *waiting = &p->steps[p->lanes[1].first];
    assert_int_equal(rrc->op, PLAN_RECV_REDUCE_COPY);
    assert_int_equal(rrc->self, 1); /* received o src */
    assert_int_equal(rrc->dst_buf, PLAN_IN);
    assert_int_equal(waiting->ndep, 1);
    assert_int_equal(p->deps[waiting->dep].lane, 24);
    assert_int_equal(p->deps[waiting->dep].step, 2);
    assert_int_equal(p->scratch_chunks, 12);
    plan_free(plan);
    plan = load_import("rccl/allreduce-allpairs-8n-ll-32tb-op"); /* counts above 1, nops, k of LL */
    assert_int_equal(plan->k_claimed, 8);
    assert_int_equal(plan->progs[0].steps[0].op, PLAN_COPY);
    assert_int_equal(plan->progs[0].steps[0].count, 8);
    assert_int_equal(plan->progs[0].steps[1].op, PLAN_NOP);
    assert_int_equal(plan->progs[0].steps[1].ndep, 1);
    plan_free(plan);
    plan = load_import("azure/ag-1k-512k"); /* chunks are counted a block */
    assert_int_equal(plan->parts, 2);
    plan_free(plan);
}

static struct plan *generated(const char *algo, uno_coll coll, int channels, const int *host_of)
{
    struct plan_params params = {.coll = coll, .nranks = 4, .channels = channels, .host_of = host_of};
    struct plan *plan;
    snprintf(params.algo, sizeof params.algo, "%s", algo);
    uno_err err = planner_make(&params, &plan);
    if (err != UNO_OK && err != UNO_ERR_UNSUPPORTED)
        fail_msg("%s", err_text());
    return err == UNO_OK ? plan : NULL;
}

static void check_proved(const struct plan *plan, const char *what)
{
    for (int place = 0; place < 2; place++) {
        struct verify_options opt = {.in_place = place};
        struct verify_result result;
        if (!(place ? plan->in_place_ok : plan->out_of_place_ok))
            continue;
        assert_int_equal(verify_plan(plan, &opt, &result), UNO_OK);
        if (result.kind != VERIFY_OK)
            fail_msg("%s of %s %s: %s", what, plan->name, coll_name(plan->coll), result.reason);
    }
}

/* Expanded and read back, it is still right. */
static void check_unicast(const struct plan *plan)
{
    struct plan *back = xml_round_trip(plan, true);
    if (verify_label_shapes(back) != UNO_OK)
        fail_msg("%s %s: %s", plan->name, coll_name(plan->coll), err_text());
    check_proved(back, "unicast form");
    plan_free(back);
}

static void check_rotated(const struct plan *plan)
{
    struct plan *rotated, *back;
    assert_int_equal(plan_rotate(plan, 3, &rotated), UNO_OK);
    assert_int_equal(rotated->root, (plan->root + 3) % plan->nranks);
    check_proved(rotated, "rotated form");
    check_json_round_trip(rotated);
    assert_int_equal(plan_rotate(rotated, plan->nranks - 3, &back), UNO_OK); /* back again: as before but for cut steps */
    check_proved(back, "form rotated back");
    plan_free(back);
    plan_free(rotated);
}

static void generated_plans_round_trip(void **state)
{
    static const int hosts[] = {0, 0, 1, 1};
    int made = 0;
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_ALL_GATHER_V; coll++)
            for (int i = 0; i < 4; i++) {
                struct plan *plan = generated(planner_algos[a].name, (uno_coll)coll, 1 + i / 2, i % 2 ? hosts : NULL);
                if (!plan)
                    continue;
                made++;
                check_json_round_trip(plan);
                if (coll != UNO_BARRIER)
                    check_unicast(plan);
                check_rotated(plan);
                plan_free(plan);
            }
    assert_true(made >= planner_algo_count);
}

/* ---- JSON: what is refused, and sugar ------------------------------------------------------------------ */

#define JSON_HEAD "{\"unisono_plan\": 1, \"name\": \"t\", \"collective\": \"all_reduce\", \"ranks\": 2, \"parts\": 4, "
#define JSON_PLAN(lanes0) JSON_HEAD "\"programs\": [{\"rank\": 0, \"lanes\": [" lanes0 "]}, {\"rank\": 1, \"lanes\": []}]}"

static void repeats_are_expanded(void **state)
{
    static const char sugar[] = JSON_PLAN(
        "[{\"repeat\": 2, \"stride\": 2, \"wait_stride\": 1, \"steps\": ["
        "{\"op\": \"send\", \"src\": [\"in\", 0], \"send\": [1, 3], \"wait\": [[1, 0]]},"
        "{\"op\": \"recv_reduce_copy\", \"src\": [\"scratch\", 1], \"dst\": [\"scratch\", 0], \"shape\": 1,"
        " \"recv\": [[1, 0], [1, \"group\"]], \"self\": 2}]}],"
        "[{\"op\": \"nop\"}, {\"op\": \"nop\"}]");
    struct plan *plan;
    if (plan_from_json(sugar, strlen(sugar), "t", &plan) != UNO_OK)
        fail_msg("%s", err_text());
    const struct plan_prog *p = &plan->progs[0];
    assert_int_equal(p->lanes[0].nsteps, 4);
    assert_int_equal(p->steps[2].src, 2);
    assert_int_equal(p->steps[2].shape, 2);
    assert_int_equal(p->deps[p->steps[2].dep].step, 1);
    assert_int_equal(p->steps[3].dst, 2);
    assert_int_equal(p->steps[3].shape, 3);
    assert_int_equal(p->steps[3].self, 2);
    assert_int_equal(plan->channels, 4);
    check_json_round_trip(plan);
    plan_free(plan);
}

static void refused(uno_err err, struct plan *plan, const char *said)
{
    assert_null(plan);
    assert_int_equal(err, UNO_ERR_PARSE);
    if (!strstr(err_text(), said))
        fail_msg("\"%s\" does not say \"%s\"", err_text(), said);
}

static void json_refused(const char *text, const char *said)
{
    struct plan *plan;
    uno_err err = plan_from_json(text, strlen(text), "t.json", &plan);
    refused(err, plan, said);
    assert_non_null(strstr(err_text(), "t.json"));
}

static void wrong_json_is_named(void **state)
{
    json_refused("{\"unisono_plan\": 1,\n \"ranks\"", "line 2");
    json_refused("{}", "\"unisono_plan\": 1 is missing");
    json_refused("{\"unisono_plan\": 2}", "legal are 1 to 1");
    json_refused(JSON_HEAD "\"program\": []}", "did you mean \"programs\"");
    json_refused(JSON_HEAD "\"programs\": []}", "list of 2 programs");
    json_refused("{\"unisono_plan\": 1, \"name\": 7, \"collective\": \"barrier\"}", "name must be a text in quotes");
    json_refused("{\"unisono_plan\": 1, \"collective\": [\"barrier\"]}", "collective must be a text in quotes");
    json_refused("{\"unisono_plan\": 1, \"name\": \"t\"}", "\"collective\" is missing");
    json_refused("{\"unisono_plan\": 1, \"collective\": \"barrier\"}", "\"ranks\" is missing");
    json_refused("{\"unisono_plan\": 1, \"collective\": \"all_to_all_v\", \"ranks\": 2, \"parts\": 1}", "never for all_to_all_v");
    json_refused("{\"unisono_plan\": 1, \"collective\": \"all\"}", "is not a collective");
    json_refused(JSON_PLAN("[{\"op\": \"sent\"}]"), "rank 0, lane 0, step 0: unknown op \"sent\"; legal are copy");
    json_refused(JSON_PLAN("[{\"op\": \"copy\", \"src\": [\"inn\", 0], \"dst\": [\"out\", 0]}]"), "unknown buffer \"inn\"");
    json_refused(JSON_PLAN("[{\"op\": \"copy\", \"src\": [\"in\", 0]}]"), "copy needs \"dst\"");
    json_refused(JSON_PLAN("[{\"op\": \"nop\", \"src\": [\"in\", 0]}]"), "nop has no use for \"src\"");
    json_refused(JSON_PLAN("[{\"op\": \"send\", \"src\": [\"in\", 0], \"send\": [2, 0]}]"), "send rank is 2; legal are 0 to 1");
    json_refused(JSON_PLAN("[{\"op\": \"recv\", \"dst\": [\"in\", 0], \"recv\": [[1, 0], [1, 1]]}]"), "list of one connection");
    json_refused(JSON_PLAN("[{\"op\": \"nop\", \"wait\": [[1, 0]]}]"), "step 0: waits for lane 1, but the rank has 1 lanes");
    json_refused(JSON_PLAN("[{\"op\": \"nop\", \"wait\": [[0, 7]]}]"), "waits for step 7 of lane 0, which has 1 steps");
    json_refused(JSON_PLAN("[{\"repeat\": 4000000, \"steps\": [{\"repeat\": 4000000, \"steps\": [{\"op\": \"nop\"}]}]}]"),
                 "more than 4194304 steps");
    char deep[5000];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    json_refused(deep, "depth");
}

/* ---- XML ------------------------------------------------------------------------------------------------- */

#define XML_ALGO "<algo name=\"t\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"2\" ngpus=\"2\" coll=\"allreduce\" inplace=\"1\">\n"
#define XML_GPU(id, steps)                                                                                      \
    "<gpu id=\"" id "\" i_chunks=\"2\" o_chunks=\"0\" s_chunks=\"1\">\n<tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"0\">\n" steps \
    "</tb>\n</gpu>\n"
#define XML_STEP(s, type, rest) "<step s=\"" s "\" type=\"" type "\" " rest "/>\n"
#define XML_ONE(steps) XML_ALGO XML_GPU("0", steps) "<gpu id=\"1\" i_chunks=\"0\" o_chunks=\"0\" s_chunks=\"0\"/></algo>"
#define IN0 "srcbuf=\"i\" srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"1\" "

static void xml_refused(const char *text, const char *said)
{
    struct plan *plan;
    uno_err err = plan_from_xml(text, strlen(text), "t.xml", &plan);
    refused(err, plan, said);
    assert_non_null(strstr(err_text(), "t.xml line "));
}

static void a_small_xml_reads(void **state)
{
    static const char text[] = XML_ONE(XML_STEP("0", "s", IN0 "hasdep=\"1\"") XML_STEP("1", "nop", "depid=\"0\" deps=\"0\""));
    struct plan *plan;
    if (plan_from_xml(text, strlen(text), "t.xml", &plan) != UNO_OK)
        fail_msg("%s", err_text());
    assert_int_equal(plan->progs[0].nsteps, 2);
    assert_int_equal(plan->progs[1].nsteps, 0);
    plan_free(plan);
}

static void wrong_xml_is_named(void **state)
{
    xml_refused(XML_ALGO, "line 2: no element found");
    /* several faults: the first one's sentence, whole */
    xml_refused("<algo proto=\"LL\" ngpus=\"-1\" nchunksperloop=\"x\" nchannels=\"0\" coll=\"allreduce\" inplace=\"7\"/>",
                "line 1: ngpus=\"-1\" of <algo> must be a whole number from 1 to ");
    xml_refused(XML_ONE(XML_STEP("z", "ra", "srcbuf=\"i\" srcoff=\"-1\" cnt=\"y\" hasdep=\"2\"")), "line 4: unknown opcode type=\"ra\"");
    xml_refused(XML_ALGO "</algo>", "line 2: gpu 0 of 2 is missing");
    xml_refused(XML_ALGO XML_GPU("0", "") XML_GPU("0", "") "</algo>", "line 6: gpu 0 is there twice");
    xml_refused(XML_ONE(XML_STEP("0", "ra", IN0)), "line 4: unknown opcode type=\"ra\"");
    xml_refused(XML_ONE(XML_STEP("0", "rs", IN0)), "line 4: unknown opcode type=\"rs\"");
    xml_refused(XML_ONE(XML_STEP("0", "cpy", "srcbuf=\"x\" srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"1\"")),
                "line 4: unknown buffer srcbuf=\"x\"");
    xml_refused(XML_ONE(XML_STEP("0", "cpy", "srcbuf=\"s\" srcoff=\"-1\" dstbuf=\"i\" dstoff=\"0\" cnt=\"1\"")),
                "line 4: srcoff=\"-1\" of <step>");
    xml_refused(XML_ONE(XML_STEP("0", "s", IN0) XML_STEP("2", "s", IN0)), "line 5: step s=\"2\" is out of order");
    xml_refused(XML_ONE(XML_STEP("0", "r", IN0)), "line 4: a step \"r\" receives, but its tb has recv=\"-1\"");
    xml_refused(XML_ONE(XML_STEP("0", "s", IN0 "depid=\"7\" deps=\"0\"")), "line 4: gpu 0: this step waits for tb 7, which does not");
    xml_refused(XML_ONE(XML_STEP("0", "s", IN0 "depid=\"0\" deps=\"3\"")), "line 4: gpu 0: this step waits for step 3 of tb 0");
    xml_refused(XML_ONE(XML_STEP("0", "s", IN0) XML_STEP("1", "s", IN0 "depid=\"0\" deps=\"0\"")),
                "line 5: gpu 0: this step waits for step 0 of tb 0 (line 4), which says hasdep=\"0\"");
    xml_refused(XML_ONE(XML_STEP("0", "s", IN0 "depid=\"0\"")), "both or none");
    xml_refused(XML_ONE("<step s=\"0\" type=\"nop\"><step/></step>"), "<step> inside <step>");
    xml_refused("<a><b/></a>", "line 1: <a> where <algo> should stand");
    xml_refused("<!DOCTYPE a [<!ENTITY x \"xxxx\"><!ENTITY y \"&x;&x;&x;&x;\">]>\n<algo name=\"&y;\"/>",
                "line 1: a document type with entities");
    xml_refused("<algo name=\"t\" proto=\"XX\" nchannels=\"1\" nchunksperloop=\"2\" ngpus=\"2\" coll=\"allreduce\" inplace=\"1\"/>",
                "proto=\"XX\" is none of");
    xml_refused("<algo name=\"t\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"3\" ngpus=\"2\" coll=\"allgather\" inplace=\"1\"/>",
                "not a multiple of the 2 ranks");
    xml_refused("<algo name=\"t\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"3\" ngpus=\"99999999999\" coll=\"allgather\"/>",
                "ngpus=\"99999999999\"");
}

static void what_xml_cannot_say_is_refused_by_name(void **state)
{
    static const char text[] = JSON_PLAN("[{\"op\": \"send\", \"src\": [\"in\", 0], \"send\": \"group\"}]");
    struct plan *plan;
    struct text xml = {0};
    assert_int_equal(plan_from_json(text, strlen(text), "t", &plan), UNO_OK);
    assert_int_equal(plan_to_xml(plan, false, &xml), UNO_ERR_UNSUPPORTED);
    assert_non_null(strstr(err_text(), "rank 0, lane 0, step 0 (send) sends to a group"));
    text_free(&xml);
    struct plan *back = xml_round_trip(plan, true);
    assert_int_equal(back->progs[0].nsends, 1);
    assert_int_equal(back->progs[0].sends[0].peer, 1);
    assert_int_equal(back->progs[0].sends[0].channel, 1);
    plan_free(back);
    plan_free(plan);
}

/* One lane that takes from two peers, reduces in the listed order with its own part in the middle, and sends on. */
static void a_list_is_expanded_in_order(void **state)
{
    static const char text[] =
        "{\"unisono_plan\": 1, \"name\": \"t\", \"collective\": \"all_reduce\", \"ranks\": 3, \"parts\": 1, \"programs\": ["
        "{\"rank\": 0, \"lanes\": [[{\"op\": \"recv_reduce_copy_send\", \"src\": [\"in\", 0], \"dst\": [\"out\", 0],"
        "  \"recv\": [[1, 0], [2, 0]], \"self\": 1, \"send\": [1, 0], \"wait\": [[1, 0]]}],"
        " [{\"op\": \"nop\"}, {\"op\": \"nop\", \"wait\": [[0, 0], [1, 0]]}]]},"
        "{\"rank\": 1, \"lanes\": []}, {\"rank\": 2, \"lanes\": []}]}";
    static const enum plan_op ops[3][3] = {{PLAN_RECV, PLAN_REDUCE, PLAN_SEND},   /* from and to 1 */
                                           {PLAN_RECV, PLAN_REDUCE, PLAN_COPY},   /* from 2 */
                                           {PLAN_NOP, PLAN_NOP, PLAN_NOP}};       /* one more, for a second wait */
    struct plan *plan;
    assert_int_equal(plan_from_json(text, strlen(text), "t", &plan), UNO_OK);
    struct plan *back = xml_round_trip(plan, true);
    const struct plan_prog *p = &back->progs[0];
    assert_int_equal(p->nlanes, 3);
    for (int l = 0; l < 3; l++) {
        assert_int_equal(p->lanes[l].nsteps, 3);
        for (int i = 0; i < 3; i++)
            assert_int_equal(p->steps[p->lanes[l].first + i].op, ops[l][i]);
    }
    static const struct { int lane, step; struct plan_dep dep; } waits[] = {
        {0, 0, {2, 0}}, {1, 0, {0, 1}}, {0, 2, {1, 2}}, {2, 1, {0, 2}}, {2, 2, {2, 0}}};
    for (size_t i = 0; i < ARRAY_LEN(waits); i++) {
        const struct plan_step *s = &p->steps[p->lanes[waits[i].lane].first + waits[i].step];
        assert_int_equal(s->ndep, 1);
        assert_int_equal(p->deps[s->dep].lane, waits[i].dep.lane);
        assert_int_equal(p->deps[s->dep].step, waits[i].dep.step);
    }
    assert_int_equal(p->steps[1].src_buf, PLAN_IN); /* own part second, as listed */
    plan_free(back);
    plan_free(plan);
}

/* ---- files -------------------------------------------------------------------------------------------------- */

static void file_refused(const char *content, size_t bytes, const char *said)
{
    char path[] = "/tmp/unisono_plan_XXXXXX";
    struct plan *plan;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    close(fd);
    uno_err err = plan_from_file(path, &plan);
    unlink(path);
    refused(err, plan, said);
}

static void files_that_are_no_plans_are_named(void **state)
{
    struct plan *plan;
    file_refused("", 0, "is empty");
    file_refused("hello", 5, "begins neither with");
    file_refused("{", (64u << 20) + 1, "larger than 64 MB");
    assert_int_equal(plan_from_file("/nonexistent/plan.xml", &plan), UNO_ERR_SYSTEM);
    assert_non_null(strstr(err_text(), "No such file"));
    assert_int_equal(plan_from_file("/tmp", &plan), UNO_ERR_SYSTEM);
}

static void the_largest_import_is_read_fast(void **state)
{
    clock_t begin = clock(); /* processor time: the machine may be busy */
    plan_free(load_import("rccl/all-reduce-ring-ll"));
    long took_ms = (long)((clock() - begin) * 1000 / CLOCKS_PER_SEC);
    print_message("1.4 MB of XML read in %ld ms\n", took_ms);
    assert_true(took_ms < 2000); /* about 20 ms, with sanitizers 100: this is about readers that became quadratic */
}

/* ---- mutations: never a crash, and whatever is accepted can be written and read again ---------------------- */

static void mutate(struct rng *rng, char *text, size_t *bytes)
{
    size_t at = rng_below(rng, *bytes), n = 1 + rng_below(rng, 40), from = rng_below(rng, *bytes);
    n = MIN(n, *bytes - MAX(at, from));
    switch (rng_below(rng, 5)) {
    case 0: text[at] = (char)rng_next(rng); break;
    case 1: text[at] = "0123456789-\"<>[]{},"[rng_below(rng, 19)]; break;
    case 2: memmove(text + at, text + from, n); break;
    case 3: memmove(text + at, text + at + n, *bytes - at - n); *bytes -= n; break;
    default: *bytes = rng_below(rng, 4) ? *bytes : MAX(at, 1); break;
    }
}

static void try_mutant(const char *text, size_t bytes, bool xml, int *accepted)
{
    struct plan *plan, *back;
    struct text out = {0};
    uno_err err = xml ? plan_from_xml(text, bytes, "mutant", &plan) : plan_from_json(text, bytes, "mutant", &plan);
    if (err != UNO_OK) {
        assert_int_equal(err, UNO_ERR_PARSE);
        assert_null(plan);
        return;
    }
    ++*accepted;
    err = plan_to_json(plan, &out);
    assert_int_equal(err, UNO_OK);
    if (plan_from_json(out.s, out.len, "mutant again", &back) != UNO_OK)
        fail_msg("%s", err_text());
    plan_free(back);
    text_free(&out);
    err = plan_to_xml(plan, true, &out);
    assert_true(err == UNO_OK || err == UNO_ERR_PLAN || err == UNO_ERR_UNSUPPORTED);
    text_free(&out);
    plan_free(plan);
}

static void mutants_do_no_harm(void **state)
{
    const char *given = getenv("UNISONO_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : clock_ns(), end = clock_ns() + 2000000000ull;
    struct plan *plan = load_import("azure/ag_hier_4_LL");
    struct text forms[2] = {{0}, {0}};
    struct rng rng;
    int tried = 0, accepted = 0;
    print_message("seed %llu (UNISONO_TEST_SEED repeats it)\n", (unsigned long long)seed);
    rng_seed(&rng, seed);
    assert_int_equal(plan_to_xml(plan, false, &forms[0]), UNO_OK);
    assert_int_equal(plan_to_json(plan, &forms[1]), UNO_OK);
    plan_free(plan);
    for (; clock_ns() < end; tried++) {
        const struct text *form = &forms[tried % 2];
        size_t bytes = form->len;
        char *copy = malloc(bytes); /* exact size: a read behind the end is seen by the sanitizer */
        memcpy(copy, form->s, bytes);
        for (uint64_t n = 1 + rng_below(&rng, 4); n > 0 && bytes > 1; n--)
            mutate(&rng, copy, &bytes);
        try_mutant(copy, bytes, tried % 2 == 0, &accepted);
        free(copy);
    }
    print_message("%d mutants, %d accepted\n", tried, accepted);
    assert_true(tried > 10 && accepted > 0);
    text_free(&forms[0]);
    text_free(&forms[1]);
}

/* Every allocation of reading and writing fails in turn. */
static void no_memory_is_returned(void **state)
{
    struct plan *plan = load_import("rccl/alltoall-8n-0-9kb"), *back;
    struct text xml = {0}, out = {0};
    assert_int_equal(plan_to_xml(plan, false, &xml), UNO_OK);
    for (int form = 0; form < 3; form++)
        for (long n = 1;; n++) {
            fault_arm("alloc", n);
            uno_err err = form == 0   ? plan_from_xml(xml.s, xml.len, "t", &back)
                          : form == 1 ? plan_to_json(plan, &out)
                                      : plan_to_xml(plan, true, &out);
            fault_arm("alloc", 0);
            text_free(&out);
            if (err == UNO_OK) {
                assert_true(n > 5);
                if (form == 0)
                    plan_free(back);
                break;
            }
            assert_int_equal(err, UNO_ERR_MEMORY);
        }
    text_free(&xml);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_import_reads_and_round_trips), cmocka_unit_test(an_import_means_what_it_says),
        cmocka_unit_test(generated_plans_round_trip), cmocka_unit_test(repeats_are_expanded),
        cmocka_unit_test(wrong_json_is_named), cmocka_unit_test(a_small_xml_reads), cmocka_unit_test(wrong_xml_is_named),
        cmocka_unit_test(what_xml_cannot_say_is_refused_by_name), cmocka_unit_test(a_list_is_expanded_in_order),
        cmocka_unit_test(files_that_are_no_plans_are_named), cmocka_unit_test(the_largest_import_is_read_fast),
        cmocka_unit_test(mutants_do_no_harm), cmocka_unit_test(no_memory_is_returned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
