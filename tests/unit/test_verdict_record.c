/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of one rank's facts: what is written is read again, what is too much is left out and counted, and bytes that were cut,
 * flipped or invented are refused with a sentence and leave nothing behind. Facts of several records come together.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "verdict_scene.h"

static unsigned char buf[VERDICT_RECORD_LIMIT];

/* A rank with something in every field that can hold something. */
static void busy(struct scene *s)
{
    scene_begin(s, 8, 4, 0);
    scene_comm(s, 1, "world", 0, 1, 8);
    scene_comm(s, 2, "odd", 1, 2, 4);
    scene_history(s, 1, UNO_ALL_REDUCE, 1000, 20, 990);
    struct verdict_event *e = scene_call(s, 3, 1, UNO_BROADCAST, 5, 993, 0);
    *e = (struct verdict_event){.number = 21, .signature = 0xdeadbeef, .coll = UNO_BROADCAST, .type = UNO_BFLOAT16,
                                .state = VERDICT_RUNNING, .wait = VERDICT_WAIT_SLEEP, .blocks = VERDICT_PROGRAM_WAITS, .op = -7,
                                .root = 5, .waits_for = 6, .step = 9, .tile = 11, .count = UINT64_MAX, .bytes_moved = 1,
                                .bytes_total = 2, .start_ns = 3, .wait_since_ns = 4, .moved_ns = 5, .call_site = 6};
    snprintf(e->site, sizeof e->site, "train.py:212");
    scene_p2p(s, 3, 2, VERDICT_IRECV, UNO_ANY, -4, 64, 995)->matched = true;
    scene_queued(s, 3, 2, UNO_BARRIER, 0, 42, 996);
    s->f.ranks[3].comms[1].behind = (struct verdict_behind){.before = VERDICT_BEFORE_EVENT, .p2p = VERDICT_RECV, .comm_id = 1, .epoch = 7,
                                                            .call = {.order = 41, .coll = -1, .root = 2, .count = 64, .site = "train.py:9"}};
    scene_passed(s, 3, 2, 17, (const uint64_t[]){1, UINT64_MAX, 0, 4});
    s->f.ranks[3].comms[1].making = (struct verdict_making){.kind = VERDICT_MAKES_SHRUNK, .id = 5, .since_ns = 6, .set = {7, [15] = UINT64_MAX}};
    struct verdict_link *l = scene_link(s, 3, 1, VERDICT_PATH_REFUSED, 997);
    l->from_if_down = true;
    l->lately_bps = 11;
    l->behind_ns = 12;
    l->behind_bps = 13;
    struct verdict_rank *r = &s->f.ranks[3];
    r->status = VERDICT_DEAD;
    r->ended = VERDICT_ENDED_SIGNAL;
    r->ended_code = 9;
    r->oom_kill = true;
    r->taken_real_ns = 123;
    r->refused = 9;
    r->process.state = 'S';
    r->process.cpu_ns = 12345678901ull;
    r->children_left = 4;
    r->children[3] = 99;
    snprintf(r->process.stack, sizeof r->process.stack, "read+0x1 (libc)\nstep+0x2c (program)");
    r->comms[1].failed = UNO_ERR_MISMATCH;
    r->comms[1].failed_rank = 5;
    snprintf(r->comms[1].failed_text, sizeof r->comms[1].failed_text, "Grüße");
}

static void same_comm(const struct verdict_comm *a, const struct verdict_comm *b)
{
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->members != NULL, b->members != NULL);
    if (a->members)
        assert_memory_equal(a->members, b->members, (size_t)a->size * sizeof *a->members);
    assert_int_equal(a->nevents, b->nevents);
    assert_int_equal(a->np2p, b->np2p);
    assert_int_equal(a->ncalls, b->ncalls);
    if (a->nevents)
        assert_memory_equal(a->events, b->events, a->nevents * sizeof *a->events);
    for (uint32_t i = 0; i < a->np2p; i++)
        assert_true(a->p2p[i].peer == b->p2p[i].peer && a->p2p[i].tag == b->p2p[i].tag && a->p2p[i].matched == b->p2p[i].matched &&
                    a->p2p[i].since_ns == b->p2p[i].since_ns && a->p2p[i].bytes == b->p2p[i].bytes && a->p2p[i].kind == b->p2p[i].kind);
    for (uint32_t i = 0; i < a->ncalls; i++)
        assert_true(a->calls[i].coll == b->calls[i].coll && a->calls[i].order == b->calls[i].order);
    assert_memory_equal(&a->behind, &b->behind, sizeof a->behind);
    assert_memory_equal(&a->making, &b->making, sizeof a->making);
    assert_int_equal(a->passed_number, b->passed_number);
    assert_int_equal(a->npassed, b->npassed);
    if (a->npassed)
        assert_memory_equal(a->passed, b->passed, a->npassed * sizeof *a->passed);
    assert_true(a->waited_ns == b->waited_ns);
    assert_true(a->sends == b->sends && a->receives == b->receives && a->sent_bytes == b->sent_bytes && a->received_bytes == b->received_bytes);
    assert_int_equal(a->failed, b->failed);
    assert_int_equal(a->failed_rank, b->failed_rank);
    assert_string_equal(a->failed_text, b->failed_text);
    assert_string_equal(a->name, b->name);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct scene s;
    busy(&s);
    const struct verdict_rank *a = &s.f.ranks[3];
    struct verdict_rank b;
    size_t bytes, told;
    struct verdict_comm *counted = &s.f.ranks[3].comms[1];
    counted->waited_ns = 1ull << 50;
    counted->sends = 3;
    counted->receives = 1ull << 40;
    counted->sent_bytes = 5;
    counted->received_bytes = UINT64_MAX;
    assert_int_equal(verdict_encode(a, buf, sizeof buf, &bytes), UNO_OK);
    assert_int_equal(verdict_record_bytes(buf, VERDICT_HEAD_BYTES, &told), UNO_OK);
    assert_int_equal(told, bytes);
    assert_int_equal(verdict_decode(buf, bytes, &b), UNO_OK);
    assert_true(b.rank == 3 && b.status == VERDICT_DEAD && b.ended == VERDICT_ENDED_SIGNAL && b.ended_code == 9 && b.oom_kill);
    assert_true(b.job == 77 && b.size == 8 && b.children_left == 4 && b.children[3] == 99 && b.taken_real_ns == 123 && b.refused == 9 && b.pid == 803);
    assert_string_equal(b.process.stack, a->process.stack);
    assert_true(b.process.state == 'S' && b.process.cpu_ns == 12345678901ull);
    assert_int_equal(b.ncomms, 2);
    for (int i = 0; i < 2; i++)
        same_comm(&a->comms[i], &b.comms[i]);
    assert_int_equal(b.nlinks, 1);
    assert_true(b.links[0].state == VERDICT_PATH_REFUSED && b.links[0].from_if_down);
    assert_true(b.links[0].lately_bps == 11 && b.links[0].behind_ns == 12 && b.links[0].behind_bps == 13);
    assert_string_equal(b.links[0].to_addr, "10.0.0.2");
    verdict_rank_free(&b);
    verdict_facts_free(&s.f);
}

/* Members in no order, and texts that would move a terminal's cursor. */
static void test_odd_contents(void **state)
{
    (void)state;
    struct scene s;
    busy(&s);
    struct verdict_rank *a = &s.f.ranks[3], b;
    static const int32_t members[4] = {7, 0, 3, 1};
    memcpy(a->comms[1].members, members, sizeof members);
    snprintf(a->host, sizeof a->host, "%s", "n\033[2J\xc2\x9b\xff!");
    size_t bytes;
    assert_int_equal(verdict_encode(a, buf, sizeof buf, &bytes), UNO_OK);
    assert_int_equal(verdict_decode(buf, bytes, &b), UNO_OK);
    assert_memory_equal(b.comms[1].members, members, sizeof members);
    assert_string_equal(b.host, "n?[2J?" "?" "?!");
    verdict_rank_free(&b);
    verdict_facts_free(&s.f);
}

/* A record for a small buffer keeps the newest events and the communicators in which something runs. */
static void test_too_much(void **state)
{
    (void)state;
    struct scene s;
    scene_begin(&s, 4, 4, 0);
    for (uint64_t id = 1; id <= 60; id++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", (int)id);
        scene_comm(&s, id, name, 0, 1, 4);
        scene_history(&s, id, UNO_ALL_REDUCE, 8, 40, 990);
    }
    scene_call(&s, 2, 55, UNO_BARRIER, 0, 991, 0);
    for (int i = 0; i < 300; i++)
        scene_p2p(&s, 2, 55, VERDICT_ISEND, 1, i, 8, 992);
    size_t bytes, whole;
    struct verdict_rank b;
    assert_int_equal(verdict_encode(&s.f.ranks[2], buf, sizeof buf, &whole), UNO_OK);
    assert_int_equal(verdict_encode(&s.f.ranks[2], buf, VERDICT_RECORD_MIN - 1, &bytes), UNO_ERR_ARG);
    assert_int_equal(verdict_encode(&s.f.ranks[2], buf, VERDICT_RECORD_MIN, &bytes), UNO_OK);
    assert_true(bytes <= VERDICT_RECORD_MIN && bytes < whole);
    assert_int_equal(verdict_decode(buf, bytes, &b), UNO_OK);
    assert_int_equal(b.ncomms + b.comms_left_out, 60);
    assert_true(b.comms_left_out > 0);
    bool found = false;
    for (uint32_t i = 0; i < b.ncomms; i++) {
        assert_true(b.comms[i].nevents >= 2);
        if (b.comms[i].id != 55)
            continue;
        found = true;
        assert_int_equal(b.comms[i].newest, 41);
        assert_int_equal(b.comms[i].events[b.comms[i].nevents - 1].coll, UNO_BARRIER);
        assert_int_equal(b.comms[i].np2p + b.comms[i].left_out, 300);
    }
    assert_true(found);
    verdict_rank_free(&b);
    verdict_facts_free(&s.f);
}

static void refused(const void *data, size_t bytes, const char *because)
{
    struct verdict_rank r;
    memset(&r, 0xa5, sizeof r);
    assert_int_equal(verdict_decode(data, bytes, &r), UNO_ERR_PARSE);
    if (!strstr(err_text(), because))
        fail_msg("\"%s\" does not say \"%s\"", err_text(), because);
    assert_null(r.comms);
    assert_int_equal(r.ncomms, 0);
}

static void test_refused(void **state)
{
    (void)state;
    struct scene s;
    busy(&s);
    size_t bytes;
    static unsigned char bad[VERDICT_RECORD_MIN * 4];
    assert_int_equal(verdict_encode(&s.f.ranks[3], buf, sizeof bad, &bytes), UNO_OK);
    for (size_t n = 0; n < bytes; n += n < 64 ? 1 : 97)
        refused(buf, n, "is cut off");
    memcpy(bad, buf, bytes);
    bad[0] = 'X';
    refused(bad, bytes, "is not a record");
    memcpy(bad, buf, bytes);
    bad[8] = VERDICT_RECORD_VERSION + 1;
    refused(bad, bytes, "has version 10");
    memcpy(bad, buf, bytes);
    refused(bad, bytes + 8, "behind its end");
    for (size_t at = VERDICT_HEAD_BYTES; at < bytes; at += 131) {
        memcpy(bad, buf, bytes);
        bad[at] ^= 0x40;
        refused(bad, bytes, "checksum");
    }
    verdict_facts_free(&s.f);
}

static void seal(unsigned char *record, size_t bytes)
{
    uint64_t hash = hash128(record + VERDICT_HEAD_BYTES, bytes - VERDICT_HEAD_BYTES, VERDICT_RECORD_VERSION).lo;
    for (int i = 0; i < 8; i++) {
        record[16 + i] = (unsigned char)((uint64_t)bytes >> (8 * i));
        record[24 + i] = (unsigned char)(hash >> (8 * i));
    }
}

/* Whatever a record says, it can be judged. Takes *r over. */
static void judge_it(struct verdict_rank *r)
{
    static struct verdict v;
    static char text[16384];
    struct verdict_facts f;
    if (r->size > 64) {
        verdict_rank_free(r);
        return;
    }
    assert_int_equal(verdict_facts_new(&f, r->size), UNO_OK);
    f.now_ns = SEC(SCENE_NOW);
    assert_int_equal(verdict_facts_take(&f, r), UNO_OK);
    assert_int_equal(verdict_judge(&f, &v), UNO_OK);
    assert_true(v.headline[0] != 0 && verdict_print(&v, text, sizeof text) > 0);
    verdict_facts_free(&f);
}

/* Liars know the checksum: fields are changed at random and sealed again. It is read, or refused; never more. */
static void test_fuzz(void **state)
{
    (void)state;
    struct scene s;
    busy(&s);
    struct rng rng;
    uint64_t seed = getenv("VERDICT_SEED") ? strtoull(getenv("VERDICT_SEED"), NULL, 0) : clock_ns();
    print_message("seed %llu (VERDICT_SEED)\n", (unsigned long long)seed);
    rng_seed(&rng, seed);
    static unsigned char good[VERDICT_RECORD_MIN * 4], bad[VERDICT_RECORD_MIN * 4];
    size_t bytes;
    assert_int_equal(verdict_encode(&s.f.ranks[3], good, sizeof good, &bytes), UNO_OK);
    static const uint64_t values[] = {0, 1, 2, 7, 8, 1024, 1025, UINT32_MAX, 1ull << 20, UINT64_MAX, 1ull << 63};
    size_t read = 0, refusals = 0;
    for (int round = 0; round < 40000; round++) {
        memcpy(bad, good, bytes);
        size_t n = bytes;
        for (uint64_t k = rng_below(&rng, 3) + 1; k > 0; k--) {
            size_t at = VERDICT_HEAD_BYTES + 8 * rng_below(&rng, (bytes - VERDICT_HEAD_BYTES) / 8);
            uint64_t v = rng_below(&rng, 2) ? values[rng_below(&rng, ARRAY_LEN(values))] : rng_next(&rng);
            if (rng_below(&rng, 3) == 0)
                bad[at + rng_below(&rng, 8)] = (unsigned char)v;
            else
                memcpy(bad + at, &v, 8);
        }
        if (rng_below(&rng, 8) == 0)
            n = VERDICT_HEAD_BYTES + rng_below(&rng, bytes - VERDICT_HEAD_BYTES);
        seal(bad, n);
        struct verdict_rank r;
        uno_err err = verdict_decode(bad, n, &r);
        assert_true(err == UNO_OK || err == UNO_ERR_PARSE);
        refusals += err != UNO_OK;
        if (err != UNO_OK)
            continue;
        read++;
        assert_true(strnlen(r.host, sizeof r.host) < sizeof r.host && r.rank >= 0 && r.rank < r.size);
        size_t again; /* what was read can be written */
        assert_int_equal(verdict_encode(&r, buf, sizeof buf, &again), UNO_OK);
        judge_it(&r);
    }
    assert_true(read > 100 && refusals > 100); /* both sides were tried */
    verdict_facts_free(&s.f);
}

/* Records are put together: who saw the end wins, what only the rank itself told stays. */
static void test_merge(void **state)
{
    (void)state;
    struct scene s;
    struct verdict_facts f;
    size_t bytes;
    busy(&s);
    struct verdict_rank *own = &s.f.ranks[3];
    own->status = VERDICT_REPORTED;
    own->ended = VERDICT_ENDED_UNKNOWN;
    own->ended_code = 0;
    assert_int_equal(verdict_facts_new(&f, 8), UNO_OK);
    assert_int_equal(verdict_encode(own, buf, sizeof buf, &bytes), UNO_OK);
    assert_int_equal(verdict_facts_add(&f, buf, bytes), UNO_OK);
    struct verdict_rank hub = {.rank = 3, .size = 8, .job = 77, .status = VERDICT_DEAD, .ended = VERDICT_ENDED_SIGNAL, .ended_code = 9,
                               .host_index = -1, .reporter = 0, .taken_ns = own->taken_ns + 5, .status_since_ns = 4};
    assert_int_equal(verdict_encode(&hub, buf, sizeof buf, &bytes), UNO_OK);
    assert_int_equal(verdict_facts_add(&f, buf, bytes), UNO_OK);
    const struct verdict_rank *r = &f.ranks[3];
    assert_true(r->status == VERDICT_DEAD && r->ended_code == 9 && r->ncomms == 2 && r->nlinks == 1 && r->pid == 803);
    assert_string_equal(r->host, "n0");
    verdict_facts_note(&f, 3, VERDICT_SILENT, 1, "elsewhere", 7, 1);
    assert_true(r->status == VERDICT_DEAD && r->pid == 803);
    verdict_facts_note(&f, 5, VERDICT_SILENT, 99, "n1", 1, 805);
    assert_true(f.ranks[5].status == VERDICT_SILENT && f.ranks[5].status_since_ns == 99 && f.ranks[5].host_index == 1);

    hub.job = 78;
    assert_int_equal(verdict_encode(&hub, buf, sizeof buf, &bytes), UNO_OK);
    assert_int_equal(verdict_facts_add(&f, buf, bytes), UNO_ERR_PARSE);
    assert_non_null(strstr(err_text(), "another job"));
    hub.job = 77;
    hub.size = 9;
    assert_int_equal(verdict_encode(&hub, buf, sizeof buf, &bytes), UNO_OK);
    assert_int_equal(verdict_facts_add(&f, buf, bytes), UNO_ERR_PARSE);
    verdict_facts_free(&f);
    verdict_facts_free(&s.f);
}

/* Memory that ends at any moment. */
static void test_memory(void **state)
{
    (void)state;
    struct scene s;
    size_t bytes;
    busy(&s);
    assert_int_equal(verdict_encode(&s.f.ranks[3], buf, sizeof buf, &bytes), UNO_OK);
    int failures = 0;
    for (long nth = 1;; nth++) {
        struct verdict_facts f;
        fault_arm("alloc", nth);
        uno_err err = verdict_facts_new(&f, 8);
        if (err == UNO_OK)
            err = verdict_facts_add(&f, buf, bytes);
        fault_arm("alloc", 0);
        verdict_facts_free(&f);
        if (err == UNO_OK)
            break;
        assert_int_equal(err, UNO_ERR_MEMORY);
        failures++;
    }
    assert_true(failures >= 8);
    verdict_facts_free(&s.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_odd_contents), cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_fuzz), cmocka_unit_test(test_merge), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
