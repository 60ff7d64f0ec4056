/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing: pure, obeys the settings, keeps the limits, and its explanation says what it does. Argument: a seed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/planner_choose.h"

#define MAX_RANKS 12

static uint64_t seed;

static struct planner_settings settings_for(int nranks, const int *host_of, const char *algo)
{
    return (struct planner_settings){.algo = algo, .memory_limit = 4194304, .nranks = nranks, .host_of = host_of,
                                     .costs = topo_costs_default};
}

static struct planner *new_planner(const struct planner_settings *s)
{
    struct planner *p = NULL;
    if (planner_new(s, &p) != UNO_OK)
        fail_msg("%s", err_text());
    return p;
}

static struct choice choose(struct planner *p, uno_coll coll, size_t count, int root)
{
    struct request req = {.coll = coll, .type = UNO_FLOAT32, .count = count, .root = root};
    struct choice choice;
    if (planner_choose(p, &req, &choice) != UNO_OK)
        fail_msg("%s", err_text());
    return choice;
}

static const char *algo_for(struct planner *p, uno_coll coll, size_t count)
{
    return choose(p, coll, count, 0).plan->params.algo;
}

static bool same_choice(const struct choice *a, const struct choice *b)
{
    return id128_equal(a->plan->id, b->plan->id) && a->target == b->target && a->shift == b->shift && a->k == b->k &&
           a->tile_bytes == b->tile_bytes && a->scratch_tiles == b->scratch_tiles && a->cost_ps == b->cost_ps &&
           a->plan->copies_only == b->plan->copies_only;
}

static void random_settings(struct rng *rng, struct planner_settings *s, int *host_of)
{
    static const char *const algos[] = {"", "ring", "^flat", "tree,hd", "all_reduce:ring;broadcast:^tree", "two_level"};
    int n = 1 + (int)rng_below(rng, MAX_RANKS), hosts = 1 + (int)rng_below(rng, 3);
    for (int r = 0; r < n; r++)
        host_of[r] = (int)rng_below(rng, (uint64_t)hosts);
    *s = settings_for(n, host_of, algos[rng_below(rng, ARRAY_LEN(algos))]);
    s->buffsize = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 1 << 22);
    s->memory_limit = 65536 << rng_below(rng, 8);
    s->channels = (int)rng_below(rng, 5);
    s->small = hosts == 1;
    uint64_t *costs[] = {&s->costs.shm_latency_ps, &s->costs.shm_ps_per_kb, &s->costs.reduce_ps_per_kb,
                         &s->costs.net_latency_ps, &s->costs.net_ps_per_kb, &s->costs.step_ps};
    for (size_t i = 0; i < ARRAY_LEN(costs); i++)
        *costs[i] = *costs[i] * (1 + rng_below(rng, 400)) / 100;
    s->costs.processors = 1 + rng_below(rng, 16);
}

static struct request random_request(struct rng *rng, int n, const size_t *counts)
{
    struct request req = {.coll = (uno_coll)rng_below(rng, UNO_COLL_COUNT), .type = (uno_type)rng_below(rng, UNO_TYPE_COUNT),
                          .count = (size_t)rng_below(rng, 1ull << rng_below(rng, 36)), .root = (int)rng_below(rng, (uint64_t)n)};
    if (req.coll >= UNO_ALL_GATHER_V)
        req.counts = counts;
    return req;
}

/* Two ranks ask the same things, one of them in another order and more: they get the same answers. */
static void every_rank_chooses_the_same(void **state)
{
    (void)state;
    struct rng rng;
    print_message("seed %llu\n", (unsigned long long)seed);
    rng_seed(&rng, seed);
    for (int round = 0; round < 60; round++) {
        struct planner_settings s;
        int host_of[MAX_RANKS];
        size_t counts[MAX_RANKS];
        random_settings(&rng, &s, host_of);
        for (int r = 0; r < MAX_RANKS; r++)
            counts[r] = (size_t)rng_below(&rng, 100000);
        struct planner *a = new_planner(&s), *b = new_planner(&s);
        struct request reqs[12];
        for (size_t i = 0; i < ARRAY_LEN(reqs); i++)
            reqs[i] = random_request(&rng, s.nranks, counts);
        struct choice in_order[12], backwards;
        for (size_t i = 0; i < ARRAY_LEN(reqs); i++)
            if (planner_choose(a, &reqs[i], &in_order[i]) != UNO_OK)
                fail_msg("%s", err_text());
        for (size_t i = ARRAY_LEN(reqs); i-- > 0;) {
            assert_int_equal(planner_choose(b, &reqs[i], &backwards), UNO_OK);
            assert_true(same_choice(&in_order[i], &backwards));
            assert_true(backwards.tile_bytes >= 64 && backwards.tile_bytes % (backwards.tile_bytes > 4096 ? 4096 : 64) == 0);
            assert_true(backwards.k >= 1 && backwards.scratch_tiles >= 1);
        }
        planner_free(a);
        planner_free(b);
    }
}

static void short_payloads_are_small(void **state)
{
    (void)state;
    struct planner_settings s = settings_for(4, NULL, "");
    s.small = true;
    struct planner *p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1024, 0).target, CHOICE_SMALL);
    assert_string_equal(algo_for(p, UNO_ALL_REDUCE, 1024), "flat");
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1025, 0).target, CHOICE_TILED);
    assert_int_equal(choose(p, UNO_ALL_TO_ALL, 256, 0).target, CHOICE_SMALL);
    assert_int_equal(choose(p, UNO_ALL_TO_ALL, 257, 0).target, CHOICE_TILED);
    assert_int_equal(choose(p, UNO_BARRIER, 0, 0).target, CHOICE_SMALL);
    planner_free(p);
    s.nranks = 9; /* many entries to read: shorter ones */
    p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 112, 0).target, CHOICE_SMALL);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 113, 0).target, CHOICE_TILED);
    planner_free(p);
    s.nranks = 4;
    s.algo = "ring";
    p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1, 0).target, CHOICE_TILED); /* the user's word counts */
    assert_int_equal(choose(p, UNO_BARRIER, 0, 0).target, CHOICE_SMALL);
    planner_free(p);
    s = settings_for(4, NULL, "");
    p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1, 0).target, CHOICE_TILED);
    planner_free(p);
    s = settings_for(1, NULL, "");
    s.small = true;
    p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1, 0).target, CHOICE_TILED);
    planner_free(p);
}

static uint64_t most_sends(const struct plan *plan)
{
    uint64_t most = 1;
    for (int r = 0; r < plan->nranks; r++) {
        struct plan_prog prog;
        assert_int_equal(plan_rank(plan, r, &prog), UNO_OK);
        most = MAX(most, (uint64_t)prog.nsends);
        plan_prog_free(&prog);
    }
    return most;
}

static void slots_keep_their_limits(void **state)
{
    (void)state;
    for (int n = 2; n <= 64; n *= 2)
        for (uint64_t limit = 65536; limit <= 1 << 24; limit *= 4) {
            struct planner_settings s = settings_for(n, NULL, "");
            s.memory_limit = limit;
            struct planner *p = new_planner(&s);
            struct choice c = choose(p, UNO_ALL_TO_ALL, 1 << 22, 0);
            assert_true(most_sends(c.plan) * c.room_bytes <= limit && (uint64_t)c.k * c.tile_bytes <= c.room_bytes);
            assert_true(c.room_bytes == 2097152 || most_sends(c.plan) * (c.room_bytes + 64) > limit);
            planner_free(p);
            s.algo = "ring";
            p = new_planner(&s);
            c = choose(p, UNO_BROADCAST, 1 << 22, 0);
            assert_true(n == 2 || c.tile_bytes < 1 << 18); /* every rank passes on while the root still writes */
            planner_free(p);
        }
    struct planner_settings s = settings_for(2, NULL, "flat");
    struct planner *p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1 << 24, 0).tile_bytes, 1048576); /* half the room */
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 65536, 0).tile_bytes, 262144);    /* both ranks do the same: one tile */
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 4096, 0).tile_bytes, 16384);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 4095, 0).tile_bytes, 16384);  /* one tile */
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 33, 0).tile_bytes, 192);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 0, 0).tile_bytes, 64);
    planner_free(p);
    s.buffsize = 1 << 20;
    p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1 << 24, 0).tile_bytes, 524288); /* the budget of both slots */
    planner_free(p);
    s.buffsize = 100;
    p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1 << 24, 0).tile_bytes, 64);
    planner_free(p);
    s.buffsize = 1 << 26;
    p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1 << 24, 0).tile_bytes, 2097152); /* capped by the memory limit */
    planner_free(p);
}

static void settings_are_obeyed(void **state)
{
    (void)state;
    struct planner_settings s = settings_for(8, NULL, "ring");
    struct planner *p = new_planner(&s);
    assert_string_equal(algo_for(p, UNO_ALL_REDUCE, 1), "ring");
    assert_string_equal(algo_for(p, UNO_BROADCAST, 1 << 20), "ring");
    assert_string_equal(algo_for(p, UNO_ALL_TO_ALL, 1), "flat"); /* a general list is set aside where it has nothing */
    planner_free(p);
    s.algo = "all_reduce:tree,hd;broadcast:^flat,flat2";
    p = new_planner(&s);
    const char *algo = algo_for(p, UNO_ALL_REDUCE, 1);
    assert_true(strcmp(algo, "tree") == 0 || strcmp(algo, "hd") == 0);
    assert_string_not_equal(algo_for(p, UNO_BROADCAST, 1), "flat");
    assert_string_equal(algo_for(p, UNO_ALL_GATHER, 1), "flat");
    planner_free(p);
    s.algo = "ring;all_reduce:flat";
    p = new_planner(&s);
    assert_string_equal(algo_for(p, UNO_ALL_REDUCE, 1 << 20), "flat");
    assert_string_equal(algo_for(p, UNO_REDUCE_SCATTER, 1 << 20), "ring");
    planner_free(p);
    s.algo = "ring";
    s.channels = 1;
    p = new_planner(&s);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1 << 20, 0).plan->params.channels, 1);
    planner_free(p);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct planner *p = NULL;
    struct planner_settings s = settings_for(4, NULL, "rings");
    assert_int_equal(planner_new(&s, &p), UNO_ERR_CONFIG);
    assert_non_null(strstr(err_text(), "legal are flat"));
    s.algo = "all_redux:ring";
    assert_int_equal(planner_new(&s, &p), UNO_ERR_CONFIG);
    s.algo = "all_to_all:ring";
    p = new_planner(&s);
    struct request req = {.coll = UNO_ALL_TO_ALL, .type = UNO_INT8, .count = 1};
    struct choice choice;
    assert_int_equal(planner_choose(p, &req, &choice), UNO_ERR_CONFIG);
    req.coll = UNO_ALL_TO_ALL_V;
    assert_int_equal(planner_choose(p, &req, &choice), UNO_ERR_CONFIG);
    req = (struct request){.coll = UNO_BROADCAST, .type = UNO_INT8, .count = 1, .root = 4};
    assert_int_equal(planner_choose(p, &req, &choice), UNO_ERR_ARG);
    planner_free(p);
    s = settings_for(0, NULL, "");
    assert_int_equal(planner_new(&s, &p), UNO_ERR_ARG);
}

static void roots_shift_ranks(void **state)
{
    (void)state;
    struct planner_settings s = settings_for(5, NULL, "tree");
    struct planner *p = new_planner(&s);
    struct choice a = choose(p, UNO_BROADCAST, 1000, 3), b = choose(p, UNO_BROADCAST, 1000, 0);
    assert_int_equal(a.shift, 3);
    assert_int_equal(b.shift, 0);
    assert_ptr_equal(a.plan, b.plan);
    assert_int_equal(a.plan->root, 0);
    assert_int_equal(choose(p, UNO_ALL_REDUCE, 1000, 3).shift, 0);
    planner_free(p);
    static const int hosts[] = {0, 0, 1, 1, 1};
    s = settings_for(5, hosts, "two_level");
    p = new_planner(&s);
    a = choose(p, UNO_BROADCAST, 1000, 3);
    assert_int_equal(a.shift, 0);
    assert_int_equal(a.plan->root, 3);
    planner_free(p);
}

static void machines_get_what_suits_them(void **state)
{
    (void)state;
    static const int hosts[] = {0, 0, 0, 0, 1, 1, 1, 1};
    struct planner_settings s = settings_for(8, hosts, "");
    struct planner *p = new_planner(&s);
    assert_string_equal(algo_for(p, UNO_ALL_REDUCE, 1 << 24), "two_level");
    assert_string_equal(algo_for(p, UNO_ALL_GATHER, 1 << 20), "two_level");
    assert_string_equal(algo_for(p, UNO_ALL_TO_ALL, 1 << 20), "flat"); /* the same bytes between hosts, and more inside */
    planner_free(p);
    int many_hosts[32];
    for (int r = 0; r < 32; r++)
        many_hosts[r] = r % 4;
    s = settings_for(32, many_hosts, "");
    p = new_planner(&s);
    assert_string_equal(algo_for(p, UNO_BARRIER, 0), "two_level");
    planner_free(p);
    s = settings_for(8, NULL, "");
    p = new_planner(&s);
    assert_string_equal(algo_for(p, UNO_ALL_REDUCE, 128), "flat");
    assert_string_not_equal(algo_for(p, UNO_ALL_REDUCE, 1 << 20), "flat"); /* eight times the work */
    assert_string_equal(algo_for(p, UNO_BROADCAST, 1 << 24), "flat");      /* written once, read by all */
    planner_free(p);
    /* More ranks than processors: the prediction grows with what the host has to do. */
    s.costs.processors = 2;
    p = new_planner(&s);
    struct choice few = choose(p, UNO_ALL_REDUCE, 1 << 20, 0);
    planner_free(p);
    s.costs.processors = 8;
    p = new_planner(&s);
    assert_true(few.cost_ps > 3 * choose(p, UNO_ALL_REDUCE, 1 << 20, 0).cost_ps);
    planner_free(p);
}

static uint64_t hops_of(struct planner *p, uno_coll coll, const char *algo)
{
    struct request req = {.coll = coll, .type = UNO_FLOAT32, .count = 1024};
    struct planner_candidates list;
    assert_int_equal(planner_propose(p, &req, &list), UNO_OK);
    for (int i = 0; i < list.count; i++)
        if (strcmp(planner_algos[list.c[i].algo].name, algo) == 0)
            return list.c[i].parts.ps[PART_HOPS];
    fail_msg("%s is no candidate", algo);
    return 0;
}

/* Ranks of a processor take turns: all of them at each hand-over, half of them in a ring, and a share of a turn where a sender runs ahead. */
static void ranks_take_turns(void **state)
{
    (void)state;
    struct planner_settings s = settings_for(8, NULL, "");
    s.memory_limit = 2097152;
    s.costs.processors = 2;
    s.costs.shm_latency_ps = 1000;
    s.costs.switch_ps = 100000;
    struct planner *p = new_planner(&s);
    assert_int_equal(hops_of(p, UNO_ALL_REDUCE, "flat"), 401000);
    assert_int_equal(hops_of(p, UNO_ALL_REDUCE, "flat2"), 2 * 401000);
    assert_int_equal(hops_of(p, UNO_ALL_REDUCE, "ring"), 14 * 201000);
    assert_int_equal(hops_of(p, UNO_BROADCAST, "flat"), 1000 + 400000 / (2097152 / 7 / 4096)); /* its slots, which seven others map */
    planner_free(p);
    s.costs.processors = 8;
    p = new_planner(&s);
    assert_int_equal(hops_of(p, UNO_ALL_REDUCE, "ring"), 14 * 1000);
    planner_free(p);
}

/* The closed form leads to what the simulation finds good, within 1.5 times, and agrees with it on long payloads. */
static void simulation_agrees(void **state)
{
    (void)state;
    static const int two_hosts[] = {0, 0, 0, 0, 1, 1, 1, 1};
    static const struct { int n; const int *hosts; } machines[] = {{2, NULL}, {4, NULL}, {8, NULL}, {8, two_hosts}};
    for (size_t m = 0; m < ARRAY_LEN(machines); m++) {
        struct planner_settings s = settings_for(machines[m].n, machines[m].hosts, "");
        struct planner *p = new_planner(&s);
        for (int coll = 0; coll <= UNO_BARRIER; coll++)
            for (size_t count = 64; count <= (coll == UNO_BARRIER ? 64 : 1 << 20); count *= 128) {
                struct request req = {.coll = (uno_coll)coll, .type = UNO_FLOAT32, .count = count};
                struct planner_candidates list;
                assert_int_equal(planner_propose(p, &req, &list), UNO_OK);
                uint64_t best = UINT64_MAX, chosen = 0;
                for (int i = 0; i < list.count; i++) {
                    struct sim_options opt = {.costs = s.costs, .k = list.c[i].slots.k, .tile_bytes = list.c[i].slots.tile_bytes};
                    struct sim_result result;
                    assert_int_equal(sim_run(list.c[i].kept->plan, &req, &opt, &result), UNO_OK);
                    best = MIN(best, result.total_ps);
                    if (i == list.best)
                        chosen = result.total_ps;
                }
                if (chosen > best + best / 2)
                    fail_msg("%s of %zu on %d ranks: chosen %llu ps, best %llu ps", coll_name((uno_coll)coll), count,
                             machines[m].n, (unsigned long long)chosen, (unsigned long long)best);
                uint64_t predicted = list.c[list.best].cost_ps;
                assert_true(count < 1 << 20 || (predicted < 2 * chosen && chosen < 2 * predicted));
            }
        planner_free(p);
    }
}

/* The parts of a predicted time add up to it, so that the one that decided can be named. */
static void parts_add_up(void **state)
{
    (void)state;
    static const int two_hosts[] = {0, 0, 0, 0, 1, 1, 1, 1};
    for (int hosts = 0; hosts < 2; hosts++) {
        struct planner_settings s = settings_for(8, hosts ? two_hosts : NULL, "");
        s.costs.processors = 2;
        struct planner *p = new_planner(&s);
        for (int coll = 0; coll <= UNO_BARRIER; coll++)
            for (size_t count = 1; count <= 1 << 24; count *= 64) {
                struct request req = {.coll = (uno_coll)coll, .type = UNO_FLOAT32, .count = count};
                struct planner_candidates list;
                struct text t = {0};
                assert_int_equal(planner_propose(p, &req, &list), UNO_OK);
                for (int i = 0; i < list.count; i++) {
                    uint64_t sum = 0;
                    for (int k = 0; k < PLANNER_PARTS; k++)
                        sum += list.c[i].parts.ps[k];
                    assert_int_equal(sum, list.c[i].cost_ps);
                }
                assert_int_equal(planner_explain(p, &req, false, &t), UNO_OK);
                assert_non_null(strstr(t.s, "; decided by "));
                text_free(&t);
            }
        struct request large = {.coll = UNO_ALL_REDUCE, .type = UNO_FLOAT32, .count = 1 << 22};
        struct text t = {0};
        assert_int_equal(planner_explain(p, &large, false, &t), UNO_OK);
        assert_non_null(strstr(t.s, hosts ? "decided by bytes over the link between hosts" : "decided by copies and sums"));
        text_free(&t);
        planner_free(p);
    }
}

static void all_to_all_v_is_fixed(void **state)
{
    (void)state;
    struct planner_settings s = settings_for(4, NULL, "");
    s.small = true;
    struct planner *p = new_planner(&s);
    size_t some[] = {1, 2, 3, 4}, none[] = {0, 0, 0, 0};
    struct request a = {.coll = UNO_ALL_TO_ALL_V, .type = UNO_INT8, .counts = some}, b = a;
    b.counts = none;
    struct choice ca, cb;
    assert_int_equal(planner_choose(p, &a, &ca), UNO_OK);
    assert_int_equal(planner_choose(p, &b, &cb), UNO_OK);
    assert_true(same_choice(&ca, &cb));
    assert_int_equal(ca.target, CHOICE_TILED);
    planner_free(p);
    /* Whatever a list says of all_to_all, pairs of different lengths have the one plan. */
    static const int hosts[] = {0, 0, 1, 1};
    static const char *const lists[] = {"", "two_level", "all_to_all:two_level", "^flat", "ring"};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        s = settings_for(4, hosts, lists[i]);
        p = new_planner(&s);
        assert_int_equal(planner_choose(p, &a, &ca), UNO_OK);
        assert_string_equal(ca.plan->params.algo, "flat");
        if (i > 0 && i < 4)
            assert_string_equal(algo_for(p, UNO_ALL_TO_ALL, 1000), "two_level");
        planner_free(p);
    }
}

static void explanations_say_what_is_chosen(void **state)
{
    (void)state;
    struct planner_settings s = settings_for(4, NULL, "");
    s.small = true;
    struct planner *p = new_planner(&s);
    for (size_t count = 1; count <= 1 << 24; count *= 16) {
        struct request req = {.coll = UNO_ALL_REDUCE, .type = UNO_FLOAT32, .count = count};
        struct choice c;
        struct text line = {0}, table = {0};
        char expected[64];
        assert_int_equal(planner_choose(p, &req, &c), UNO_OK);
        assert_int_equal(planner_explain(p, &req, false, &line), UNO_OK);
        assert_null(strchr(line.s, '\n'));
        snprintf(expected, sizeof expected, "on 4 ranks, 1 host: %s,", c.plan->params.algo);
        assert_non_null(strstr(line.s, expected));
        assert_true((strstr(line.s, "small target") != NULL) == (c.target == CHOICE_SMALL));
        assert_non_null(strstr(line.s, "predicted"));
        assert_int_equal(planner_explain(p, &req, true, &table), UNO_OK);
        assert_memory_equal(table.s, line.s, line.len);
        for (int a = 0; a < planner_algo_count; a++) {
            snprintf(expected, sizeof expected, " %s ", planner_algos[a].name);
            assert_true((strstr(table.s + line.len, expected) != NULL) ==
                        (planner_algos[a].colls >> UNO_ALL_REDUCE & 1 && strcmp(planner_algos[a].name, "two_level") != 0));
        }
        text_free(&line);
        text_free(&table);
    }
    planner_free(p);
    s.algo = "Ring"; /* as the settings' own check takes it */
    p = new_planner(&s);
    struct request req = {.coll = UNO_GATHER, .type = UNO_FLOAT32, .count = 1000};
    struct text line = {0};
    assert_int_equal(planner_explain(p, &req, false, &line), UNO_OK);
    assert_non_null(strstr(line.s, "UNISONO_ALGO=\"Ring\" names none that fits"));
    text_free(&line);
    planner_free(p);
}

static void choosing_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct planner_settings s = settings_for(5, NULL, "");
    struct request req = {.coll = UNO_ALL_REDUCE, .type = UNO_FLOAT32, .count = 100000};
    int n = 0;
    for (uno_err err = UNO_ERR_MEMORY; err != UNO_OK; n++) {
        struct planner *p = NULL;
        struct choice c;
        fault_arm("alloc", n + 1);
        err = planner_new(&s, &p);
        if (err == UNO_OK)
            err = planner_choose(p, &req, &c);
        fault_arm("alloc", 0);
        assert_true(err == UNO_OK || err == UNO_ERR_MEMORY);
        if (err != UNO_OK && p)
            assert_int_equal(planner_choose(p, &req, &c), UNO_OK); /* nothing is left half done */
        planner_free(p);
    }
    assert_true(n > 20);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : clock_ns();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_chooses_the_same), cmocka_unit_test(short_payloads_are_small),
        cmocka_unit_test(slots_keep_their_limits), cmocka_unit_test(settings_are_obeyed),
        cmocka_unit_test(what_cannot_be_is_refused), cmocka_unit_test(roots_shift_ranks),
        cmocka_unit_test(machines_get_what_suits_them),
        cmocka_unit_test(ranks_take_turns), cmocka_unit_test(simulation_agrees), cmocka_unit_test(parts_add_up), cmocka_unit_test(all_to_all_v_is_fixed),
        cmocka_unit_test(explanations_say_what_is_chosen), cmocka_unit_test(choosing_survives_every_failed_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
