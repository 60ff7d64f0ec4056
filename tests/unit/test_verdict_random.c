/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts on random programs: a small world in which ranks compute and call collectives of several communicators in one order, is
 * photographed at a random moment, each rank at a slightly different one, by clocks that differ. Healthy worlds raise no alarm, at
 * whatever moment; worlds with one fault at a random rank and place are told by its name. VERDICT_SEED repeats a run.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "verdict_scene.h"

#define MOST_OPS 60
#define MOST_SIM_RANKS 16
#define MOST_COMMS 5
#define NEVER 1e18

enum wrong { HEALTHY, ABSENT, DIES, STOPS, SKIPS, OTHER_COUNT, SWAPS, LEAVES, WRONGS };
static const char *const wrong_names[] = {"healthy", "absent", "dies", "stops", "skips", "other count", "swaps", "leaves"};

struct sim_op { int comm; uno_coll coll; uint64_t count; };
struct sim {
    struct rng rng;
    int nranks, ncomms, nops;
    bool member[MOST_COMMS][MOST_SIM_RANKS];
    struct sim_op ops[MOST_OPS];
    int order[MOST_SIM_RANKS][MOST_OPS], len[MOST_SIM_RANKS]; /* each rank's program: indexes of ops */
    double start[MOST_SIM_RANKS][MOST_OPS], end[MOST_SIM_RANKS][MOST_OPS]; /* by place in the program */
    double compute[MOST_SIM_RANKS][MOST_OPS]; /* before the call at that place */
    enum wrong wrong;
    int culprit, at;          /* rank; place in its program from which on it goes wrong */
    double stuck_at;          /* when it went wrong */
};

static double uniform(struct rng *r, double least, double most)
{
    return least + (most - least) * (double)rng_below(r, 1000001) / 1e6;
}

static void make_program(struct sim *w)
{
    struct rng *g = &w->rng;
    w->nranks = 2 + (int)rng_below(g, MOST_SIM_RANKS - 1);
    w->ncomms = 1 + (int)rng_below(g, MOST_COMMS);
    for (int c = 0; c < w->ncomms; c++) {
        int n = 0;
        for (int r = 0; r < w->nranks; r++)
            n += w->member[c][r] = c == 0 || rng_below(g, 2);
        w->member[c][0] = w->member[c][w->nranks - 1] = n >= 2 || w->member[c][0];
        if (n < 2)
            w->member[c][w->nranks - 1] = w->member[c][0] = true;
    }
    w->nops = 5 + (int)rng_below(g, MOST_OPS - 5);
    for (int i = 0; i < w->nops; i++)
        w->ops[i] = (struct sim_op){(int)rng_below(g, (uint64_t)w->ncomms), rng_below(g, 2) ? UNO_ALL_REDUCE : UNO_ALL_GATHER,
                                    1 + rng_below(g, 100)};
    for (int r = 0; r < w->nranks; r++)
        for (int i = 0; i < w->nops; i++)
            if (w->member[w->ops[i].comm][r]) {
                w->compute[r][w->len[r]] = rng_below(g, 30) == 0 ? uniform(g, 0, 40) : uniform(g, 0, 0.2);
                w->order[r][w->len[r]++] = i;
            }
}

/* Which call of its communicator is the one at this place of r's program? From 0. */
static int nth(const struct sim *w, int r, int place)
{
    int n = 0;
    for (int k = 0; k < place; k++)
        n += w->ops[w->order[r][k]].comm == w->ops[w->order[r][place]].comm;
    return n;
}

static int place_of(const struct sim *w, int r, int comm, int n)
{
    for (int k = 0; k < w->len[r]; k++)
        if (w->ops[w->order[r][k]].comm == comm && n-- == 0)
            return k;
    return -1;
}

static int absent_place(const struct sim *w)
{
    return w->wrong == ABSENT || w->wrong == LEAVES ? w->at : MOST_OPS;
}

/* A call ends when all members have made it. Found by going round until nothing moves; calls that never end keep NEVER. */
static void run(struct sim *w)
{
    int next[MOST_SIM_RANKS] = {0};
    for (int r = 0; r < w->nranks; r++)
        for (int k = 0; k < w->len[r]; k++)
            w->start[r][k] = w->end[r][k] = NEVER;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < w->nranks; r++) {
            int k = next[r];
            if (k >= w->len[r] || (r == w->culprit && k >= absent_place(w)))
                continue;
            double ready = k ? w->end[r][k - 1] : 0;
            if (w->start[r][k] == NEVER && ready < NEVER) {
                w->start[r][k] = ready + w->compute[r][k];
                moved = true;
            }
            int comm = w->ops[w->order[r][k]].comm, n = nth(w, r, k);
            double all = 0;
            for (int q = 0; q < w->nranks; q++) {
                int place = w->member[comm][q] ? place_of(w, q, comm, n) : -1;
                if (w->member[comm][q])
                    all = place < 0 ? NEVER : fmax(all, w->start[q][place]);
                bool dead_inside = q == w->culprit && place >= w->at && (w->wrong == DIES || w->wrong == STOPS);
                bool differs = q == w->culprit && place == w->at && w->wrong == OTHER_COUNT;
                if (w->member[comm][q] && (dead_inside || differs))
                    all = NEVER;
            }
            if (all < NEVER && w->start[r][k] < NEVER) {
                w->end[r][k] = all + 0.01;
                next[r]++;
                moved = true;
            }
        }
    }
}

static double last_start(const struct sim *w)
{
    double t = 0;
    for (int r = 0; r < w->nranks; r++)
        for (int k = 0; k < w->len[r]; k++)
            if (w->start[r][k] < NEVER)
                t = fmax(t, w->start[r][k]);
    return t;
}

/* ---- the photograph --------------------------------------------------------------------------------------------------------- */

static void photograph(struct sim *w, struct scene *s, double when)
{
    struct rng *g = &w->rng;
    int per_host = 1 + (int)rng_below(g, (uint64_t)w->nranks);
    scene_begin(s, w->nranks, per_host, uniform(g, -1000, 1000));
    for (int c = 0; c < w->ncomms; c++) {
        int members[MOST_SIM_RANKS], n = 0;
        for (int r = 0; r < w->nranks; r++)
            if (w->member[c][r])
                members[n++] = r;
        for (int k = 0; k < n; k++) {
            scene_comm(s, 100 + (uint64_t)c, "", members[k], 1, 1);
            struct verdict_comm *m = scene_of(s, members[k], 100 + (uint64_t)c);
            free(m->members);
            m->members = malloc((size_t)n * sizeof *m->members);
            memcpy(m->members, members, (size_t)n * sizeof *members);
            m->rank = k;
            m->size = n;
            snprintf(m->name, sizeof m->name, "c%d", c);
        }
    }
    for (int r = 0; r < w->nranks; r++) {
        double t = when - uniform(g, 0, 0.05); /* reports are taken one after the other */
        bool inside = false;
        for (int k = 0; k < w->len[r] && w->start[r][k] <= t; k++) {
            const struct sim_op *op = &w->ops[w->order[r][k]];
            bool ended = w->end[r][k] <= t;
            struct verdict_event *e = scene_call(s, r, 100 + (uint64_t)op->comm, op->coll, op->count, SCENE_NOW - when + w->start[r][k],
                                                 ended ? SCENE_NOW - when + w->end[r][k] : 0);
            if (r == w->culprit && k == w->at && w->wrong == OTHER_COUNT)
                e->count += 1000;
            inside = !ended;
        }
        struct verdict_process *p = &s->f.ranks[r].process;
        p->in_library = inside;
        p->run = inside ? VERDICT_RUN_SLEEPS : VERDICT_RUN_RUNS;
        p->cpu_permille = inside ? 5 : 990;
    }
    for (int c = 0; c < w->ncomms; c++)
        scene_sign(s, 100 + (uint64_t)c);
}

/* ---- one world -------------------------------------------------------------------------------------------------------------- */

static void world(struct sim *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    rng_seed(&w->rng, seed);
    w->culprit = -1;
    make_program(w);
}

/* Judged as it is, or from records as files hold them: without offsets, by the wall clock, some time later. */
static void judge_world(struct sim *w, struct scene *s, struct verdict *v)
{
    static unsigned char buf[VERDICT_RECORD_LIMIT];
    struct verdict_facts f;
    if (rng_below(&w->rng, 2)) {
        assert_int_equal(verdict_judge(&s->f, v), UNO_OK);
        verdict_facts_free(&s->f);
        return;
    }
    assert_int_equal(verdict_facts_new(&f, s->f.size), UNO_OK);
    f.stall_ns = s->f.stall_ns;
    for (int r = 0; r < f.size; r++) {
        size_t bytes;
        s->f.ranks[r].taken_real_ns = SEC(1.7e9 + SCENE_NOW + uniform(&w->rng, 0, 0.02));
        if (s->f.ranks[r].status == VERDICT_UNKNOWN)
            continue;
        assert_int_equal(verdict_encode(&s->f.ranks[r], buf, sizeof buf, &bytes), UNO_OK);
        if (verdict_facts_add(&f, buf, bytes) != UNO_OK)
            fail_msg("%s", err_text());
    }
    assert_int_equal(verdict_judge(&f, v), UNO_OK);
    verdict_facts_free(&f);
    verdict_facts_free(&s->f);
}

static uint64_t first_seed(void)
{
    uint64_t seed = getenv("VERDICT_SEED") ? strtoull(getenv("VERDICT_SEED"), NULL, 0) : clock_ns();
    print_message("seed %llu (VERDICT_SEED)\n", (unsigned long long)seed);
    return seed;
}

static void test_healthy(void **state)
{
    (void)state;
    static struct sim w;
    static struct scene s;
    static struct verdict v;
    int facts = 0, quiet = 0;
    uint64_t seed = first_seed();
    for (int i = 0; i < 3000; i++) {
        world(&w, seed + (uint64_t)i);
        run(&w);
        photograph(&w, &s, uniform(&w.rng, 0, last_start(&w) + 100));
        judge_world(&w, &s, &v);
        if (v.fault)
            fail_msg("seed %llu: a false alarm, %s: %s", (unsigned long long)(seed + (uint64_t)i), verdict_kind_name(v.kind), v.headline);
        facts += v.kind == VERDICT_KIND_COMPUTING;
        quiet += v.kind == VERDICT_KIND_NONE;
        assert_true(v.kind == VERDICT_KIND_COMPUTING || v.kind == VERDICT_KIND_NONE);
    }
    print_message("%d quiet, %d facts\n", quiet, facts);
    assert_true(facts > 50 && quiet > 500); /* both were met */
}

/* Let it go wrong at a place that somebody will miss; false: nobody would. */
static bool spoil(struct sim *w, enum wrong wrong)
{
    struct rng *g = &w->rng;
    w->wrong = wrong;
    w->culprit = (int)rng_below(g, (uint64_t)w->nranks);
    int r = w->culprit;
    if (w->len[r] < 4)
        return false;
    w->at = (int)rng_below(g, (uint64_t)w->len[r] - 2);
    if (wrong == SKIPS) {
        memmove(&w->order[r][w->at], &w->order[r][w->at + 1], (size_t)(w->len[r] - w->at - 1) * sizeof w->order[r][0]);
        w->len[r]--;
    }
    if (wrong == SWAPS) { /* calls of two communicators that share another rank */
        int *order = w->order[r], a = w->ops[order[w->at]].comm, b = w->ops[order[w->at + 1]].comm, shared = 0;
        for (int q = 0; q < w->nranks; q++)
            shared += q != r && w->member[a][q] && w->member[b][q];
        if (a == b || shared == 0)
            return false;
        int keep = order[w->at];
        order[w->at] = order[w->at + 1];
        order[w->at + 1] = keep;
    }
    return true;
}

static void dress(struct sim *w, struct scene *s, double when, double at)
{
    struct verdict_process *p = &s->f.ranks[w->culprit].process;
    if (w->wrong == ABSENT) {
        p->run = VERDICT_RUN_SYSCALL;
        snprintf(p->syscall, sizeof p->syscall, "read");
    } else if (w->wrong == STOPS) {
        p->run = VERDICT_RUN_STOPPED;
    } else if (w->wrong == DIES) {
        scene_ended(s, w->culprit, VERDICT_DEAD, VERDICT_ENDED_SIGNAL, 9, SCENE_NOW - when + at);
    } else if (w->wrong == LEAVES) {
        scene_ended(s, w->culprit, VERDICT_LEFT, VERDICT_ENDED_EXIT, 0, SCENE_NOW - when + at);
    }
}

static bool right(const struct sim *w, const struct verdict *v)
{
    static const enum verdict_kind kinds[WRONGS] = {
        [ABSENT] = VERDICT_KIND_RANK_ABSENT, [DIES] = VERDICT_KIND_DEAD, [STOPS] = VERDICT_KIND_STOPPED,
        [OTHER_COUNT] = VERDICT_KIND_MISMATCH, [SWAPS] = VERDICT_KIND_COMM_ORDER, [LEAVES] = VERDICT_KIND_LEFT};
    bool named = false;
    for (int i = 0; i < v->nculprits; i++)
        named = named || v->culprits[i] == w->culprit;
    if (w->wrong == SKIPS) /* the next call of that communicator differs, or it is missed in the last one */
        return named && (v->kind == VERDICT_KIND_MISMATCH || v->kind == VERDICT_KIND_OFF_BY_ONE || v->kind == VERDICT_KIND_COMPUTING ||
                         v->kind == VERDICT_KIND_COMM_ORDER);
    if (w->wrong == SWAPS && v->kind != VERDICT_KIND_COMM_ORDER) /* seen by a third rank as calls in the wrong order */
        return false;
    return named && v->kind == kinds[w->wrong];
}

static void test_faults(void **state)
{
    (void)state;
    static struct sim w;
    static struct scene s;
    static struct verdict v;
    int tried[WRONGS] = {0}, lost_ones = 0, hidden = 0;
    uint64_t seed = first_seed();
    for (int i = 0; i < 4000; i++) {
        world(&w, seed + (uint64_t)i);
        enum wrong wrong = ABSENT + (enum wrong)(i % (WRONGS - 1));
        if (!spoil(&w, wrong))
            continue;
        run(&w);
        double stuck = NEVER; /* the first wait that never ends */
        for (int r = 0; r < w.nranks; r++)
            for (int k = 0; k < w.len[r]; k++)
                if (r != w.culprit || wrong == SWAPS || wrong == SKIPS)
                    stuck = w.start[r][k] < NEVER && w.end[r][k] == NEVER ? fmin(stuck, w.start[r][k]) : stuck;
        if (stuck == NEVER)
            continue; /* nobody misses it */
        double begun = w.at > 0 && w.end[w.culprit][w.at - 1] < NEVER ? w.end[w.culprit][w.at - 1] : 0;
        double when = fmax(last_start(&w), stuck) + uniform(&w.rng, 11, 60);
        photograph(&w, &s, when);
        dress(&w, &s, when, begun);
        int lost = -1; /* one report does not come; it may be the one that would tell */
        if (rng_below(&w.rng, 4) == 0 && (lost = (int)rng_below(&w.rng, (uint64_t)w.nranks)) != w.culprit) {
            scene_lost(&s, lost, VERDICT_UNKNOWN, 0);
            lost_ones++;
        } else {
            lost = -1;
        }
        judge_world(&w, &s, &v);
        bool is_hidden = lost >= 0 && !right(&w, &v);
        bool said_so = v.kind == VERDICT_KIND_UNKNOWN || v.kind == VERDICT_KIND_NONE;
        for (int k = 0; k < v.nculprits; k++)
            said_so = said_so || v.culprits[k] == lost || v.culprits[k] == w.culprit;
        hidden += is_hidden;
        if (is_hidden ? !said_so : !right(&w, &v))
            fail_msg("seed %llu: rank %d of %d %s at its call %d, told as %s: %s", (unsigned long long)(seed + (uint64_t)i), w.culprit,
                     w.nranks, wrong_names[wrong], w.at, verdict_kind_name(v.kind), v.headline);
        tried[wrong]++;
    }
    print_message("%d reports lost, which hid the cause %d times\n", lost_ones, hidden);
    assert_true(lost_ones > 100 && hidden < lost_ones / 3);
    for (int k = ABSENT; k < WRONGS; k++) {
        print_message("%s: %d\n", wrong_names[k], tried[k]);
        assert_true(tried[k] > 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_healthy), cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
