/* SPDX-License-Identifier: Apache-2.0 */
/* verdict_judged.c - scenes and their verdicts, for test_verdict_judge*.c. */
#include "verdict_judged.h"

struct scene s;
struct verdict v;

/* The same facts, but every rank's record was encoded and decoded. */
static void over_the_wire(struct verdict *out)
{
    static unsigned char buf[VERDICT_RECORD_LIMIT];
    struct verdict_facts f;
    size_t bytes;
    assert_int_equal(verdict_facts_new(&f, s.f.size), UNO_OK);
    f.now_ns = s.f.now_ns;
    f.now_real_ns = s.f.now_real_ns;
    f.stall_ns = s.f.stall_ns;
    f.joining = s.f.joining;
    memcpy(f.what_job, s.f.what_job, sizeof f.what_job);
    for (int i = 0; i < s.f.size; i++) {
        const struct verdict_rank *r = &s.f.ranks[i];
        f.offsets[i] = s.f.offsets[i];
        if (r->reporter < 0) { /* what the judge knows itself */
            verdict_facts_note(&f, i, (enum verdict_status)r->status,
                               r->status_since_ns ? (uint64_t)((int64_t)r->status_since_ns + s.skew_ns[i]) : 0, r->host, r->host_index,
                               r->pid);
            continue;
        }
        assert_int_equal(verdict_encode(r, buf, sizeof buf, &bytes), UNO_OK);
        if (verdict_facts_add(&f, buf, bytes) != UNO_OK)
            fail_msg("%s", err_text());
    }
    assert_int_equal(verdict_judge(&f, out), UNO_OK);
    verdict_facts_free(&f);
}

void judged(void)
{
    static struct verdict wired;
    static char text[16384];
    assert_int_equal(verdict_judge(&s.f, &v), UNO_OK);
    over_the_wire(&wired);
    assert_string_equal(v.headline, wired.headline);
    assert_int_equal(v.identity, wired.identity);
    if (getenv("VERDICT_SHOW")) {
        verdict_print(&v, text, sizeof text);
        print_message("[%s%s] %s", verdict_kind_name(v.kind), v.fault ? "" : ", a fact", text);
    }
    verdict_facts_free(&s.f);
}

void must_say(enum verdict_kind kind, int culprit, ...)
{
    va_list ap;
    judged();
    if (v.kind != kind)
        fail_msg("%s instead of %s: %s", verdict_kind_name(v.kind), verdict_kind_name(kind), v.headline);
    if (culprit >= 0 && (v.nculprits < 1 || v.culprits[0] != culprit))
        fail_msg("rank %d instead of %d: %s", v.nculprits ? v.culprits[0] : -1, culprit, v.headline);
    va_start(ap, culprit);
    for (const char *word = va_arg(ap, const char *); word; word = va_arg(ap, const char *))
        if (!strstr(v.headline, word))
            fail_msg("it does not say \"%s\": %s", word, v.headline);
    va_end(ap);
    assert_true(kind == VERDICT_KIND_NONE || kind == VERDICT_KIND_UNKNOWN || v.what_next[0] != 0);
    for (const char *c = v.headline; *c; c++)
        assert_true((unsigned char)*c >= 0x20);
    assert_null(strstr(v.headline, "; ;"));
    assert_null(strstr(v.headline, "  "));
}

void quiet(void)
{
    judged();
    if (v.kind != VERDICT_KIND_NONE)
        fail_msg("a false alarm, %s: %s", verdict_kind_name(v.kind), v.headline);
    assert_int_equal(v.nculprits, 0);
    assert_non_null(strstr(v.headline, "nothing is wrong"));
}

const char *fmt(const char *f, ...)
{
    static char bufs[8][256];
    static int next;
    char *buf = bufs[next++ % 8];
    va_list ap;
    va_start(ap, f);
    vsnprintf(buf, sizeof bufs[0], f, ap);
    va_end(ap);
    return buf;
}

const char *name(int rank)
{
    return fmt("rank %d (pid %d on n%d)", rank, 800 + rank, rank / s.ranks_per_host);
}

const struct stage stages[6] = {
    {8, 0, -1}, {4, 0, -1}, {2, 5000, -1}, {1, -100, -1}, {4, 12345, 7}, {8, 0, 7},
};
const int some_ranks[4] = {0, 1, 3, 6};

void open_stage(const struct stage *st)
{
    scene_begin(&s, 8, st->per_host, st->skew);
    scene_comm(&s, WORLD, "dp", 0, 1, 8);
    scene_history(&s, WORLD, UNO_ALL_REDUCE, 1024, 16, SCENE_NOW - 61.4);
}

void close_stage(const struct stage *st)
{
    scene_sign(&s, WORLD);
    if (st->lost >= 0)
        scene_lost(&s, st->lost, VERDICT_UNKNOWN, 0);
}

void all_but(int culprit)
{
    for (int r = 0; r < 8; r++)
        if (r != culprit)
            scene_call(&s, r, WORLD, UNO_ALL_REDUCE, 1024, SCENE_NOW - 6.2 + 0.01 * r, 0);
}
