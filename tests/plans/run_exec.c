/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_exec.c - the real executor against the reference interpreter and against what a collective means: every plan of the
 * cases and of the published schedules as far as verify proves it, generated plans, and the small target beside the tiled
 * one. All memory of all ranks must come out with the same bits. What verify refutes must go wrong here too.
 */
#include <stdlib.h>
#include <string.h>

#include "exec_world.h"
#include "plan_case.h"

struct trial {
    const struct plan *plan;    /* executed, virtual rank v as rank v + shift */
    const struct plan *real;    /* interpreted: the same with its ranks renumbered */
    int shift, k;
    enum ref_place place;
    enum net_carrier carrier;
    bool lend, threads, small;
    uint32_t tile_bytes;
    uint64_t room_bytes;        /* 0: just k tiles */
    int scratch_tiles;
    uno_type type;
    int op;
    size_t most_count;
    uint64_t seed;
};
/* A sanitizer takes many times as long, and looks at memory, not at results: every third generated trial is enough for it. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
enum { EACH = __has_feature(address_sanitizer) ? 3 : 1 };

enum outcome { RIGHT, STUCK, WRONG_DATA, OTHER_BITS, FAILED };
static const char *const outcome_names[] = {"is right", "stands still", "gives wrong data", "differs from the interpreter", "failed"};

static uint64_t seed0 = 1;
static int trials, by_outcome[FAILED + 1];
static struct net_counts moved;

/* ---- the world, kept from trial to trial ------------------------------------------------------------------------- */

static struct world world;
static struct { const struct plan *real; enum net_carrier carrier; bool lend; } world_is;

static void drop_world(void)
{
    if (world.ranks)
        world_count(&world, &moved);
    world_free(&world);
    world_is.real = NULL;
}

/* Several trials of one plan follow each other on one communicator, so that ends are shaped anew and numbers go on. */
static uno_err world_for(const struct trial *t)
{
    if (world_is.real == t->real && world_is.carrier == t->carrier && world_is.lend == t->lend)
        return UNO_OK;
    drop_world();
    struct world_options opt = {.size = t->real->nranks, .host_of = t->real->host_of, .carrier = t->carrier, .lend = t->lend,
                                .first = t->seed % 3 ? 0 : (uint32_t)-7, .seed = t->seed};
    TRY(world_make(&world, &opt));
    world_is.real = t->real;
    world_is.carrier = t->carrier;
    world_is.lend = t->lend;
    return UNO_OK;
}

/* ---- one trial --------------------------------------------------------------------------------------------------- */

static struct ref_data data_of(const struct trial *t)
{
    struct ref_data d = {.plan = t->real, .place = t->place, .type = t->type, .op = t->op, .most_count = t->most_count,
                         .tile = t->tile_bytes / uno_type_bytes(t->type), .no_v = t->small};
    rng_seed(&d.rng, t->seed);
    return d;
}

/* What a rank has when its call returns; then its memory is overwritten at once, as its owner may. */
static void take_results(void *arg, int rank)
{
    struct ref_data *d = arg;
    for (int i = 2 * rank; i < 2 * rank + 2; i++)
        if (d->blocks[i]) {
            memcpy(d->results[i], d->blocks[i], d->block_bytes[i]);
            memset(d->blocks[i], 0xa5, d->block_bytes[i]);
        }
}

static uno_err execute(const struct trial *t, struct ref_data *d, bool *stuck)
{
    int n = t->real->nranks;
    char scalars[n][16];
    const void *scalar[n];
    for (int r = 0; r < n; r++) {
        int64_t wide = (int64_t)d->scale[r];
        int32_t narrow = (int32_t)wide;
        float f = (float)d->scale[r];
        memcpy(scalars[r], t->type == UNO_INT64 ? (void *)&wide : t->type == UNO_INT32 ? (void *)&narrow : (void *)&f, d->elem);
        scalar[r] = scalars[r];
    }
    struct world_call call = {.choice = {.plan = t->plan, .small = t->small, .shift = t->shift, .k = t->k,
                                         .tile_bytes = t->tile_bytes, .room_bytes = t->room_bytes,
                                         .scratch_tiles = t->scratch_tiles},
                              .req = &d->req, .in = d->in, .out = d->out, .scalar = t->op >= UNO_OP_DYNAMIC ? scalar : NULL,
                              .returned = take_results, .arg = d};
    TRY(world_for(t));
    TRY(world_run(&world, &call, t->threads, stuck));
    for (int i = 0; i < 2 * n; i++)
        if (d->blocks[i] && world.ranks[i / 2].result == UNO_OK)
            memcpy(d->blocks[i], d->results[i], d->block_bytes[i]);
    return UNO_OK;
}

static uno_err interpret(const struct trial *t, struct ref_data *d, struct ref_outcome *outcome)
{
    struct request req = d->req;
    req.op = t->op >= UNO_OP_DYNAMIC ? UNO_SUM : t->op;
    struct ref_run run = {.plan = t->real, .req = &req, .in = (const void *const *)d->in, .out = (void *const *)d->out,
                          .scale = t->real->needs_reduce ? d->scale : NULL, .k = t->k, .tile_elems = t->tile_bytes / d->elem,
                          .scratch_tiles = t->scratch_tiles, .lent = false, .seed = t->seed};
    return ref_interpret(&run, outcome);
}

static bool same_memory(const struct ref_data *a, const struct ref_data *b, char *why, size_t why_bytes)
{
    for (int i = 0; i < 2 * a->plan->nranks; i++)
        for (size_t at = 0; at < a->block_bytes[i]; at++)
            if (((char *)a->blocks[i])[at] != ((char *)b->blocks[i])[at]) {
                snprintf(why, why_bytes, "rank %d: byte %zu of %zu of block %d", i / 2, at, a->block_bytes[i], i % 2);
                return false;
            }
    return true;
}

static enum outcome judge(const struct trial *t, struct ref_data *a, struct ref_data *b, char *why, size_t why_bytes)
{
    bool stuck;
    struct ref_outcome ref;
    uno_err err = ref_data_make(a);
    if (err == UNO_OK)
        err = ref_data_make(b);
    if (err == UNO_OK)
        err = execute(t, a, &stuck);
    if (err == UNO_OK)
        err = interpret(t, b, &ref);
    if (err != UNO_OK) {
        snprintf(why, why_bytes, "%s", err_text());
        return FAILED;
    }
    for (int r = 0; r < world.size; r++)
        if (world.ranks[r].result != UNO_OK) {
            snprintf(why, why_bytes, "%s", world.ranks[r].text);
            return stuck && ref.stuck ? STUCK : FAILED;
        }
    if (ref.stuck) {
        snprintf(why, why_bytes, "the interpreter: %s", ref.where);
        return OTHER_BITS;
    }
    if (!ref_data_right(a, why, why_bytes))
        return WRONG_DATA;
    return same_memory(a, b, why, why_bytes) ? RIGHT : OTHER_BITS;
}

static uno_err alloc_pages(void **ptr, size_t bytes)
{
    return posix_memalign(ptr, 4096, bytes) == 0 ? UNO_OK : UNO_ERR_MEMORY;
}

static uno_err free_pages(void *ptr)
{
    free(ptr);
    return UNO_OK;
}

static enum outcome run_trial(const struct trial *t, char *why, size_t why_bytes)
{
    struct ref_data a = data_of(t), b = data_of(t);
    a.alloc = t->carrier == NET_SHM ? net_mem_alloc : alloc_pages;
    a.release = t->carrier == NET_SHM ? net_mem_free : free_pages;
    why[0] = 0;
    enum outcome o = judge(t, &a, &b, why, why_bytes);
    if (o == STUCK || o == FAILED)
        drop_world();
    ref_data_free(&a);
    ref_data_free(&b);
    trials++;
    by_outcome[o]++;
    return o;
}

static void must_be_right(const struct trial *t, const char *name)
{
    static const char *const places[] = {"out of place", "in place", "mixed"};
    char why[400];
    enum outcome o = run_trial(t, why, sizeof why);
    if (o == RIGHT)
        return;
    plan_case_failures++;
    printf("%s %s, %d ranks, shift %d, %s, %s, lend %d, copies only %d, %s, %s, k %d, tile %u, S %d, %s %s, seed %llu: %s: %s\n",
           name, coll_name(t->real->coll), t->real->nranks, t->shift, places[t->place], net_carrier_names[t->carrier], t->lend,
           t->plan->copies_only, t->threads ? "threads" : "one thread", t->small ? "small" : "tiled", t->k, t->tile_bytes,
           t->scratch_tiles, type_name(t->type), op_name(t->op), (unsigned long long)t->seed, outcome_names[o], why);
}

/* What the trial leaves open, from its seed. Loans need tiles of a page or more. */
static void draw(struct trial *t, size_t most_bytes)
{
    static const uno_type types[] = {UNO_INT32, UNO_INT64, UNO_FLOAT32};
    static const int ops[] = {UNO_SUM, UNO_AVG, UNO_MAX, UNO_MIN, UNO_OP_DYNAMIC};
    static const uint32_t tiles[] = {256, 512, 4096, 8192};
    struct rng rng;
    rng_seed(&rng, t->seed);
    t->type = types[rng_below(&rng, ARRAY_LEN(types))];
    t->op = t->real->needs_reduce && t->real->coll != UNO_BARRIER ? ops[rng_below(&rng, ARRAY_LEN(ops))] : UNO_SUM;
    t->tile_bytes = tiles[rng_below(&rng, 2) + (t->lend && rng_below(&rng, 4) ? 2 : 0)];
    t->scratch_tiles = 1 + (int)rng_below(&rng, 3);
    size_t most = (size_t)t->tile_bytes * (1 + rng_below(&rng, 6)) * (size_t)t->real->parts;
    t->most_count = t->real->coll == UNO_BARRIER ? 0 : MIN(most, most_bytes) / uno_type_bytes(t->type);
}

/* ---- cases and published schedules ------------------------------------------------------------------------------ */

static int seeds_healthy = 30, seeds_faulty = 60;

static struct trial trial_of(const struct check *k, const struct plan *plan, int i)
{
    struct trial t = {.plan = plan, .real = plan, .place = k->place, .k = k->k};
    t.seed = hash_mix(seed0 * 1000 + (uint64_t)i, (uint64_t)(k->place * 8 + k->lent * 4 + k->k)); /* verdicts differ */
    t.carrier = i % 2 ? NET_SHM : NET_THREAD;
    t.lend = k->lent || i / 2 % 2;
    draw(&t, 1 << 20);
    return t;
}

static void copy_where_not_proved(struct plan_case *c, const struct check *k, const struct trial *t)
{
    c->plan->copies_only = !k->lent && t->lend;
    c->plan->lends_out_of_place = false;
    if (k->place == REF_MIXED)
        (void)verify_for_use(c->plan, k->k); /* marks it; run_plans compares its verdict */
}

static void check_proved(struct plan_case *c, const struct check *k)
{
    for (int i = 0; i < seeds_healthy; i++) {
        struct trial t = trial_of(k, c->plan, i);
        copy_where_not_proved(c, k, &t);
        t.threads = i % 5 == 4 && t.real->nranks <= 8;
        must_be_right(&t, c->file);
    }
}

/* A deadlock does not depend on timing. What shows wrong data need not do so with every size. */
static void check_refuted(struct plan_case *c, const struct check *k)
{
    bool deadlock = strcmp(k->kind, "deadlock") == 0;
    bool wrong = strcmp(k->shows, "wrong_data") == 0 && strcmp(k->kind, "race") != 0;
    int most = deadlock ? 3 : wrong ? seeds_faulty : 0, stuck = 0, shown = 0;
    char why[400];
    for (int i = 0; i < most && !shown; i++) {
        struct trial t = trial_of(k, c->plan, i);
        copy_where_not_proved(c, k, &t);
        enum outcome o = run_trial(&t, why, sizeof why);
        stuck += o == STUCK;
        shown += o == WRONG_DATA;
        if (o == FAILED || (o == STUCK && !deadlock))
            complain(c, k, "executing it %s: %s", outcome_names[o], why);
    }
    if (deadlock && stuck < most)
        complain(c, k, "executed, it ends in %d of %d trials", most - stuck, most);
    if (wrong && !shown)
        complain(c, k, "executed %d times, it shows nothing wrong", most);
}

static void check_case(struct plan_case *c)
{
    for (int i = 0; i < c->nchecks && c->plan; i++)
        if (strcmp(c->checks[i].kind, "ok") == 0)
            check_proved(c, &c->checks[i]);
        else
            check_refuted(c, &c->checks[i]);
    drop_world();
}

/* ---- generated plans ----------------------------------------------------------------------------------------------- */

static void check_generated(struct plan *plan, const struct plan *real, int shift)
{
    int i = 0;
    for (int k = 1; k <= 3; k++) {
        if (verify_for_use(plan, k) != UNO_OK) {
            if (k >= plan->k_claimed) {
                printf("%s\n", err_text());
                plan_case_failures++;
            }
            continue;
        }
        for (int how = 0; how < (k == 2 ? 12 : 6); how++, i++) {
            if (i % EACH)
                continue;
            struct trial t = {.plan = plan, .real = real, .shift = shift, .k = k, .place = (enum ref_place)(how % 3),
                              .carrier = how / 3 % 2 ? NET_SHM : NET_THREAD, .lend = how / 6 || (k != 2 && how % 2),
                              .threads = how % 4 == k, .seed = hash_mix(seed0 * 1000 + (uint64_t)i, plan->id.lo)};
            draw(&t, 1 << 19);
            /* Chunks cut at page boundaries, whose tiles can be offered. */
            if (how == (k == 2 ? 9 : k == 1 ? 1 : 5) && plan->coll != UNO_BARRIER) {
                t.tile_bytes = 32768;
                t.most_count = (size_t)plan->parts * 160000 / uno_type_bytes(t.type);
            }
            must_be_right(&t, plan->name);
        }
    }
}

/* Around the ends of lines, up to what the entries hold. */
static void check_small(struct plan *plan, const struct plan *real, int shift)
{
    bool blocks = plan->coll == UNO_REDUCE_SCATTER || plan->coll == UNO_ALL_TO_ALL || plan->coll == UNO_SCATTER;
    size_t most = (size_t)PLANNER_SMALL_BYTES(plan->nranks) / (size_t)(blocks ? plan->nranks : 1);
    for (int i = 0; i < 40; i += EACH) {
        struct trial t = {.plan = plan, .real = real, .shift = shift, .k = 2, .place = (enum ref_place)(i % 3), .small = true,
                          .carrier = i < 20 ? NET_SHM : NET_THREAD, .threads = i % 4 == 3,
                          .seed = hash_mix(seed0 * 1000 + (uint64_t)i, plan->id.hi)};
        draw(&t, most);
        t.most_count = plan->coll == UNO_BARRIER ? 0 : most / uno_type_bytes(t.type);
        if (plan->needs_reduce && shift) /* it reduces in the order of real ranks, the plan in that of virtual ones */
            t.op = UNO_SUM, t.type = UNO_INT32;
        must_be_right(&t, plan->name);
    }
}

static void check_params(const struct plan_params *p, int shift)
{
    struct plan *plan = NULL, *real = NULL;
    uno_err err = planner_make(p, &plan);
    if (err == UNO_ERR_UNSUPPORTED)
        return;
    if (err != UNO_OK || plan_rotate(plan, shift, &real) != UNO_OK) {
        printf("%s\n", err_text());
        plan_case_failures++;
    } else {
        plan_cases++;
        check_generated(plan, real, shift);
        if (strcmp(p->algo, "flat") == 0 && (p->coll != UNO_ALL_REDUCE || shift == 0))
            check_small(plan, real, shift);
    }
    drop_world();
    plan_free(real);
    plan_free(plan);
}

/* Operations of far more tiles than can be offered at once, with room for so many messages that no lane waits for another: places
 * are offered anew while they run. A tile has two messages each way, counted at both ends, and the second one may be placed. */
static void check_offers_go_on(enum net_carrier carrier)
{
    struct plan_params p = {.coll = UNO_ALL_REDUCE, .nranks = 2, .channels = 1, .algo = "flat2"};
    struct plan *plan = NULL;
    const struct net_counts before = moved;
    uno_err err = planner_make(&p, &plan);
    for (uint64_t i = 0; i < 6 && err == UNO_OK; i++) {
        struct trial t = {.plan = plan, .real = plan, .k = 2, .place = REF_OUT_OF_PLACE, .carrier = carrier, .lend = true,
                          .tile_bytes = 4096, .room_bytes = 2 << 20, .scratch_tiles = 2, .type = UNO_FLOAT32, .op = UNO_SUM,
                          .most_count = 800 * 4096 / sizeof(float), .seed = seed0 + i};
        must_be_right(&t, plan->name);
    }
    drop_world();
    uint64_t placed = moved.placements - before.placements, most = (moved.messages[carrier] - before.messages[carrier]) / 4;
    if (err != UNO_OK || placed <= most / 4) {
        printf("%s: %llu of %llu messages were written where they were offered\n", net_carrier_names[carrier],
               (unsigned long long)placed, (unsigned long long)most);
        plan_case_failures++;
    }
    plan_free(plan);
}

/* two_level knows who shares a host with whom, so it is made for every root; the others are renumbered. */
static void run_algo(const char *algo, uno_coll coll, int n, const int *host_of, int root)
{
    bool two_level = strcmp(algo, "two_level") == 0;
    for (int channels = 1; channels <= 2; channels++) {
        struct plan_params p = {.coll = coll, .nranks = n, .channels = channels, .host_of = host_of, .root = two_level ? root : 0};
        snprintf(p.algo, sizeof p.algo, "%s", algo);
        check_params(&p, two_level || host_of ? 0 : root);
    }
}

static void run_generated(const char *only)
{
    static const int sizes[] = {1, 2, 3, 4, 8}, uneven[] = {0, 0, 1, 1, 0, 1, 2, 2}, dealt[] = {0, 1, 0, 1, 0, 1, 0, 1};
    for (int a = 0; a < planner_algo_count; a++)
        for (int coll = 0; coll < UNO_COLL_COUNT; coll++)
            for (size_t s = 0; s < ARRAY_LEN(sizes) && planner_algos[a].colls & 1u << coll; s++) {
                const char *algo = planner_algos[a].name;
                int n = sizes[s], root = coll_has_root((uno_coll)coll) ? (int)((seed0 + s) % (uint64_t)n) : 0;
                if (only && !strstr(algo, only))
                    continue;
                run_algo(algo, (uno_coll)coll, n, NULL, root);
                if (n > 2)
                    run_algo(algo, (uno_coll)coll, n, uneven, root);
                if (n > 2 && strcmp(algo, "two_level") == 0)
                    run_algo(algo, (uno_coll)coll, n, dealt, root);
            }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (getenv("UNISONO_TEST_SEED"))
        seed0 = strtoull(getenv("UNISONO_TEST_SEED"), NULL, 0);
    net_doze_register();
    bool ok = true;
    if (strcmp(what, "--generated") == 0) {
        run_generated(argv[2]);
    } else if (strcmp(what, "--offers") == 0) {
        check_offers_go_on(NET_SHM);
        check_offers_go_on(NET_THREAD);
    } else if (strcmp(what, "--imports") == 0 && argc > 2) {
        seeds_healthy = 3;
        seeds_faulty = 12 / EACH;
        each_import(argv[2], check_case);
    } else {
        ok = argc > 1 && each_plan_case(argv[1], argv + 2, argc - 2, check_case);
    }
    if (!ok) {
        fprintf(stderr, "usage: run_exec DIRECTORY [CASE...] | --imports DIRECTORY | --generated [ALGORITHM] | --offers\n");
        return 2;
    }
    printf("seed %llu: %d plans, %d trials (%d right, %d stood still, %d with wrong data as they must), %llu bytes moved, "
           "%llu lent or placed, %d failures\n", (unsigned long long)seed0, plan_cases, trials, by_outcome[RIGHT],
           by_outcome[STUCK], by_outcome[WRONG_DATA], (unsigned long long)(moved.bytes[NET_SHM] + moved.bytes[NET_THREAD]) / 2,
           (unsigned long long)moved.lent_bytes / 2, plan_case_failures);
    return plan_case_failures > 0 || trials == 0 || by_outcome[RIGHT] == 0 || moved.lent_bytes == 0;
}
