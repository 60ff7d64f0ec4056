/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_watch_agree.c - the agreement behind shrink in a simulated world: thousands of seeds of lost, repeated, late and overtaking
 * messages, deaths between any two steps, cut networks, callers that never call. Two living ranks never decide differently; once
 * the world is quiet, whoever has a quorum decides. AGREE_SEED=n replays one seed, AGREE_SEEDS=n runs so many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "watch/watch_agree.h"

#define MS 1000000ull
#define MOST 9
#define BYTES 256
#define QUEUE 8192

struct letter { uint64_t at; int from, to; unsigned char bytes[BYTES]; };

struct world {
    struct rng rng;
    int n;
    struct agree *a[MOST];
    bool dead[MOST];
    uint64_t calls_at[MOST], dies_at[MOST], told_at[MOST][MOST]; /* told_at[r][dead] */
    int dies_after[MOST];      /* letters that it still writes; -1 = no limit */
    int side[MOST];            /* of the cut network */
    uint64_t cut_from, cut_to, calm_at;
    bool deaf;                 /* rank 0 hears rank 1 alone */
    int loss, repeats;         /* percent, until calm */
    struct letter *queue;
    int queued;
    uint64_t now;
    uint64_t seed;
};

static const struct agree_times times = {.calls_ns = 1000 * MS, .retry_ns = 50 * MS, .silence_ns = 300 * MS};
/* So short that callers are left out and passed over without reason: proposals compete and differ. */
static const struct agree_times hasty = {.calls_ns = 60 * MS, .retry_ns = 20 * MS, .silence_ns = 60 * MS};

static bool chance(struct world *w, int percent)
{
    return (int)rng_below(&w->rng, 100) < percent;
}

static void kill_rank(struct world *w, int r)
{
    if (w->dead[r])
        return;
    w->dead[r] = true;
    for (int o = 0; o < w->n; o++)
        w->told_at[o][r] = w->now + rng_below(&w->rng, 400 * MS);
}

static bool cut(const struct world *w, int a, int b)
{
    return w->now >= w->cut_from && w->now < w->cut_to && w->side[a] != w->side[b];
}

static void post(struct world *w, int from, int to, const unsigned char *bytes)
{
    bool calm = w->now >= w->calm_at;
    if (w->deaf && to == 0 && from > 1)
        return;
    if (cut(w, from, to) || (!calm && chance(w, w->loss)))
        return;
    int copies = !calm && chance(w, w->repeats) ? 2 : 1;
    while (copies-- && w->queued < QUEUE) {
        struct letter *l = &w->queue[w->queued++];
        l->at = w->now + 1 + rng_below(&w->rng, calm ? 5 * MS : chance(w, 10) ? 600 * MS : 30 * MS);
        l->from = from;
        l->to = to;
        memcpy(l->bytes, bytes, agree_message_bytes(w->n));
    }
}

/* Everything that is due; a rank may die after any of its letters. */
static void send_due(struct world *w, int r)
{
    unsigned char bytes[BYTES];
    bool to[MOST];
    if (!agree_any_due(w->a[r]))
        return;
    for (int o = 0; o < w->n; o++)
        to[o] = agree_due(w->a[r], o);
    agree_write(w->a[r], bytes);
    int first = (int)rng_below(&w->rng, (uint64_t)w->n);
    for (int i = 0; i < w->n; i++) {
        int o = (first + i) % w->n;
        if (!to[o])
            continue;
        if (w->dies_after[r] == 0) {
            kill_rank(w, r);
            return;
        }
        if (w->dies_after[r] > 0)
            w->dies_after[r]--;
        post(w, r, o, bytes);
    }
}

static void check_safe(const struct world *w)
{
    const unsigned char *first = NULL;
    for (int r = 0; r < w->n; r++) {
        const unsigned char *d = agree_decision(w->a[r]);
        if (agree_conflict(w->a[r]))
            fail_msg("seed %llu: rank %d saw two decisions", (unsigned long long)w->seed, r);
        if (w->dead[r] || !d)
            continue;
        if (first && memcmp(first, d, agree_set_bytes(w->n)) != 0)
            fail_msg("seed %llu: two living ranks decided differently", (unsigned long long)w->seed);
        first = first ? first : d;
    }
}

static void deliver(struct world *w)
{
    for (int i = 0; i < w->queued;) {
        struct letter l = w->queue[i];
        if (l.at > w->now) {
            i++;
            continue;
        }
        w->queue[i] = w->queue[--w->queued];
        if (w->dead[l.to] || cut(w, l.from, l.to))
            continue;
        assert_int_equal(agree_receive(w->a[l.to], l.bytes, agree_message_bytes(w->n), w->now), UNO_OK);
        send_due(w, l.to);
        check_safe(w);
    }
}

static void step(struct world *w)
{
    w->now += 5 * MS;
    deliver(w);
    for (int r = 0; r < w->n; r++) {
        if (w->dies_at[r] && w->now >= w->dies_at[r])
            kill_rank(w, r);
        for (int d = 0; d < w->n && !w->dead[r]; d++)
            if (w->dead[d] && w->told_at[r][d] && w->now >= w->told_at[r][d]) {
                w->told_at[r][d] = 0;
                agree_gone(w->a[r], d);
            }
        if (w->dead[r])
            continue;
        if (w->calls_at[r] && w->now >= w->calls_at[r]) {
            w->calls_at[r] = 0;
            agree_call(w->a[r], NULL, w->now);
        }
        agree_tick(w->a[r], w->now);
        send_due(w, r);
    }
    check_safe(w);
}

static void world_new(struct world *w, uint64_t seed, int n, const struct agree_times *t)
{
    memset(w, 0, sizeof *w);
    rng_seed(&w->rng, seed);
    w->seed = seed;
    w->now = MS;
    w->n = n ? n : 2 + (int)rng_below(&w->rng, MOST - 1);
    w->queue = calloc(QUEUE, sizeof *w->queue);
    assert_non_null(w->queue);
    for (int r = 0; r < w->n; r++) {
        assert_int_equal(agree_new(r, w->n, t, &w->a[r]), UNO_OK);
        w->dies_after[r] = -1;
    }
}

static void world_free(struct world *w)
{
    for (int r = 0; r < w->n; r++)
        agree_free(w->a[r]);
    free(w->queue);
}

static bool lives_and_called(const struct world *w, int r)
{
    return !w->dead[r] && agree_has_called(w->a[r], r);
}

static uint64_t seeds(void)
{
    const char *s = getenv("AGREE_SEEDS");
    return s ? strtoull(s, NULL, 10) : 4000;
}

static uint64_t first_seed(void)
{
    const char *s = getenv("AGREE_SEED");
    return s ? strtoull(s, NULL, 10) : 1;
}

static uint64_t last_seed(void)
{
    return getenv("AGREE_SEED") ? first_seed() : seeds();
}

/* Chaos, then calm: every living caller decides, and the set holds who called, alive, unless a decision was made before. */
static void one_chaos(uint64_t seed)
{
    struct world w;
    world_new(&w, seed, 0, seed % 2 ? &times : &hasty);
    w.loss = (int)rng_below(&w.rng, 60);
    w.repeats = (int)rng_below(&w.rng, 40);
    w.calm_at = (500 + rng_below(&w.rng, 4000)) * MS;
    int killable = (int)rng_below(&w.rng, (uint64_t)w.n);
    for (int r = 0; r < w.n; r++) {
        if (!chance(&w, 15))
            w.calls_at[r] = w.now + 1 + rng_below(&w.rng, (chance(&w, 20) ? 3000 : 200) * MS);
        if (killable && chance(&w, 50)) {
            killable--;
            if (chance(&w, 50))
                w.dies_at[r] = w.now + rng_below(&w.rng, 4000 * MS);
            else
                w.dies_after[r] = (int)rng_below(&w.rng, 40);
        }
    }
    if (chance(&w, 50)) {
        for (int r = 0; r < w.n; r++)
            w.side[r] = chance(&w, 50);
        w.cut_from = rng_below(&w.rng, 1500 * MS);
        w.cut_to = w.calm_at;
    }
    uint64_t end = w.calm_at + 12000 * MS;
    while (w.now < end)
        step(&w);
    const unsigned char *d = NULL;
    for (int r = 0; r < w.n; r++) {
        if (!lives_and_called(&w, r))
            continue;
        d = agree_decision(w.a[r]);
        if (!d)
            fail_msg("seed %llu: rank %d of %d never learned a decision", (unsigned long long)seed, r, w.n);
    }
    for (int r = 0; r < w.n && d; r++)
        if (agree_in(d, r) && !w.dead[r] && !agree_has_called(w.a[r], r))
            fail_msg("seed %llu: rank %d is in the set and never called", (unsigned long long)seed, r);
    world_free(&w);
}

static void chaos(void **state)
{
    (void)state;
    for (uint64_t s = first_seed(); s <= last_seed(); s++)
        one_chaos(s);
}

/* A cut that never heals, all call: who has more than half, or half with rank 0, decides on itself; the others never do. */
static void halves(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 300; s++) {
        struct world w;
        world_new(&w, s, 0, &times);
        w.cut_to = UINT64_MAX;
        w.loss = 20;
        w.calm_at = UINT64_MAX;
        int count[2] = {0};
        for (int r = 0; r < w.n; r++) {
            w.side[r] = chance(&w, 50);
            count[w.side[r]]++;
            w.calls_at[r] = w.now + 1 + rng_below(&w.rng, 100 * MS);
        }
        while (w.now < 9000 * MS)
            step(&w);
        for (int r = 0; r < w.n; r++) {
            int mine = count[w.side[r]];
            bool may = 2 * mine > w.n || (2 * mine == w.n && w.side[r] == w.side[0]);
            const unsigned char *d = agree_decision(w.a[r]);
            if (may != (d != NULL))
                fail_msg("seed %llu: rank %d, %d of %d, %s", (unsigned long long)s, r, mine, w.n, d ? "decided" : "did not decide");
            for (int q = 0; q < w.n && d; q++)
                assert_int_equal(agree_in(d, q), w.side[q] == w.side[r]);
        }
        world_free(&w);
    }
}

/* A quiet network: how soon, and who is left out. */
static void quiet(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++)
        for (int missing = -1; missing < (n > 1 ? n : 0); missing++) {
            struct world w;
            world_new(&w, (uint64_t)n, n, &times);
            for (int r = 0; r < n; r++)
                w.calls_at[r] = r == missing ? 0 : w.now + 1;
            uint64_t limit = w.now + (missing >= 0 ? times.calls_ns : 0) + 400 * MS;
            while (w.now < limit)
                step(&w);
            for (int r = 0; r < n; r++) {
                const unsigned char *d = agree_decision(w.a[r]);
                /* one of two that never calls still answers: its steward does */
                assert_non_null(d);
                for (int q = 0; q < n; q++)
                    assert_int_equal(agree_in(d, q), q != missing);
            }
            world_free(&w);
        }
}

/* The leader is heard by all and hears one of four: too few for it to decide, and the others must not wait for it. */
static void deaf(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 100; s++) {
        struct world w;
        world_new(&w, s, 5, &times);
        w.deaf = true;
        for (int r = 0; r < w.n; r++)
            w.calls_at[r] = w.now + 1 + rng_below(&w.rng, 100 * MS);
        while (w.now < 6000 * MS)
            step(&w);
        for (int r = 0; r < w.n; r++)
            if (!agree_decision(w.a[r]))
                fail_msg("seed %llu: rank %d did not decide", (unsigned long long)s, r);
        world_free(&w);
    }
}

/* All others have ended, one after the other: the last one needs nobody. */
static void alone(void **state)
{
    (void)state;
    struct world w;
    world_new(&w, 5, 4, &times);
    w.calls_at[2] = w.now + 1;
    for (int r = 0; r < 4; r++)
        if (r != 2)
            w.dies_at[r] = (uint64_t)(r + 1) * 100 * MS;
    while (w.now < 1500 * MS)
        step(&w);
    const unsigned char *d = agree_decision(w.a[2]);
    assert_non_null(d);
    assert_int_equal(d[0], 1 << 2);
    world_free(&w);
}

/* Ranks of an exclude list are not waited for, and not taken although they call. */
static void excluded(void **state)
{
    (void)state;
    struct world w;
    world_new(&w, 6, 4, &times);
    unsigned char exclude[1] = {1 << 1 | 1 << 3};
    agree_call(w.a[0], exclude, w.now);
    agree_call(w.a[2], exclude, w.now);
    w.calls_at[3] = w.now + 1;
    uint64_t limit = w.now + 400 * MS;
    while (w.now < limit)
        step(&w);
    for (int r = 0; r < 4; r++) {
        assert_non_null(agree_decision(w.a[r]));
        assert_int_equal(agree_decision(w.a[r])[0], 1 << 0 | 1 << 2);
    }
    world_free(&w);
}

/* A thread that read the clock before another one called: no time has passed, nobody is left out. */
static void clock_of_another_thread(void **state)
{
    (void)state;
    struct agree *a;
    assert_int_equal(agree_new(0, 3, &times, &a), UNO_OK);
    agree_call(a, NULL, 1000 * MS);
    agree_tick(a, 999 * MS);
    unsigned char bytes[BYTES];
    agree_write(a, bytes);
    assert_int_equal(bytes[12], 0); /* it proposes nothing */
    agree_free(a);
}

/* Nothing of a message is believed before it is checked. */
static void nonsense(void **state)
{
    (void)state;
    struct agree *a, *b;
    unsigned char good[BYTES], bad[BYTES];
    assert_int_equal(agree_new(0, 3, &times, &a), UNO_OK);
    assert_int_equal(agree_new(1, 3, &times, &b), UNO_OK);
    agree_call(b, NULL, MS);
    agree_write(b, good);
    size_t n = agree_message_bytes(3);
    for (size_t cut_at = 0; cut_at < n; cut_at++)
        assert_int_equal(agree_receive(a, good, cut_at, MS), UNO_ERR_PARSE);
    static const size_t wrong[] = {0, 2, 4, 8, 12};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        memcpy(bad, good, n);
        bad[wrong[i]] = 99;
        assert_int_equal(agree_receive(a, bad, n, MS), UNO_ERR_PARSE);
    }
    struct rng rng;
    rng_seed(&rng, 1);
    for (int i = 0; i < 100000; i++) {
        memcpy(bad, good, n);
        for (int k = 0; k < 4; k++)
            bad[rng_below(&rng, n)] = (unsigned char)rng_next(&rng);
        (void)agree_receive(a, bad, n, MS);
        agree_tick(a, MS);
    }
    agree_free(a);
    agree_free(b);
    assert_int_equal(agree_new(0, AGREE_MAX_RANKS + 1, &times, &a), UNO_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet), cmocka_unit_test(alone),    cmocka_unit_test(excluded),
        cmocka_unit_test(halves), cmocka_unit_test(chaos),   cmocka_unit_test(deaf),
        cmocka_unit_test(nonsense), cmocka_unit_test(clock_of_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
