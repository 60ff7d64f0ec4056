/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner_choose.c - request -> choice. Proposes every algorithm and number of channels that the settings allow, costs
 * each, takes the cheapest; the table's order breaks ties. Plans are made once and kept; the chosen one is verified before
 * it is handed out. Called by the plan cache of a communicator.
 */
#include "planner_choose.h"
#include "planner_gen.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_CHANNELS_UNASKED 2
#define ONE_ROUND_MOST 4194304u
#define LINES_AHEAD 15 /* calls that who only writes lines may be ahead of who reads them */

uno_coll planner_plain(uno_coll coll)
{
    switch (coll) {
    case UNO_ALL_GATHER_V: return UNO_ALL_GATHER;
    case UNO_REDUCE_SCATTER_V: return UNO_REDUCE_SCATTER;
    case UNO_ALL_TO_ALL_V: return UNO_ALL_TO_ALL;
    default: return coll;
    }
}

/* ---- the allowed algorithms --------------------------------------------------------------------------- */

static uno_err illegal_list(const char *list, const char *word, size_t len)
{
    struct text legal = {0};
    for (int i = 0; i < planner_algo_count; i++)
        text_add(&legal, " %s", planner_algos[i].name);
    uno_err err = err_set(UNO_ERR_CONFIG, "UNISONO_ALGO: \"%.*s\" in \"%.80s\" is not an algorithm; legal are%s", (int)len, word,
                          list, legal.s ? legal.s : "");
    text_free(&legal);
    return err;
}

/* Words "a,b" or "^a,b" -> bits of planner_algos. */
static uno_err parse_words(const char *list, const char *s, const char *end, uint32_t *mask)
{
    bool invert = s < end && *s == '^';
    uint32_t found = 0;
    for (s += invert; s < end;) {
        const char *comma = memchr(s, ',', (size_t)(end - s));
        size_t len = (size_t)((comma ? comma : end) - s);
        int i = 0;
        while (i < planner_algo_count && (strlen(planner_algos[i].name) != len || strncasecmp(planner_algos[i].name, s, len) != 0))
            i++;
        if (len > 0 && i == planner_algo_count)
            return illegal_list(list, s, len);
        found |= len > 0 ? 1u << i : 0;
        s += len + 1;
    }
    *mask = invert ? ~found : found ? found : ~0u;
    return UNO_OK;
}

/* "ring,tree", "^flat", "all_reduce:ring;broadcast:^tree"; parts without a collective are for all the others. */
static uno_err parse_allowed(struct planner *p, const char *list)
{
    for (int c = 0; c < UNO_COLL_COUNT; c++)
        p->allowed[c] = ~0u;
    for (const char *s = list; *s;) {
        const char *end = s + strcspn(s, ";"), *colon = memchr(s, ':', (size_t)(end - s));
        uint32_t mask = 0;
        TRY(parse_words(list, colon ? colon + 1 : s, end, &mask));
        char name[32];
        uno_coll coll;
        snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - s) : 0, s);
        if (colon && coll_parse(name, &coll) != UNO_OK)
            return err_set(UNO_ERR_CONFIG, "UNISONO_ALGO: \"%s\" in \"%.80s\" is not a collective", name, list);
        for (int c = 0; c < UNO_COLL_COUNT; c++)
            if (colon ? planner_plain((uno_coll)c) == planner_plain(coll) : !p->named[c]) {
                p->allowed[c] = mask;
                p->named[c] = colon != NULL;
            }
        s = *end ? end + 1 : end;
    }
    return UNO_OK;
}

/* ---- the planner ----------------------------------------------------------------------------------------- */

uno_err planner_new(const struct planner_settings *settings, struct planner **planner)
{
    *planner = NULL;
    if (settings->nranks < 1)
        return err_set(UNO_ERR_ARG, "a planner needs at least 1 rank, not %d", settings->nranks);
    struct planner *p = mem_zalloc(sizeof *p);
    if (!p)
        return UNO_ERR_MEMORY;
    p->settings = *settings;
    int *host_of = mem_array((size_t)settings->nranks, sizeof *host_of);
    p->settings.host_of = host_of;
    char *algo = mem_zalloc(strlen(settings->algo ? settings->algo : "") + 1);
    p->settings.algo = algo;
    uno_err err = host_of && algo ? UNO_OK : UNO_ERR_MEMORY;
    if (err == UNO_OK) {
        if (settings->host_of)
            memcpy(host_of, settings->host_of, (size_t)settings->nranks * sizeof *host_of);
        strcpy(algo, settings->algo ? settings->algo : "");
        err = parse_allowed(p, algo);
    }
    if (err != UNO_OK) {
        planner_free(p);
        return err;
    }
    *planner = p;
    return UNO_OK;
}

void planner_free(struct planner *planner)
{
    if (!planner)
        return;
    for (size_t i = 0; i < planner->nkept; i++) {
        plan_free(planner->kept[i]->plan);
        free(planner->kept[i]);
    }
    free(planner->kept);
    free((void *)planner->settings.host_of);
    free((void *)planner->settings.algo);
    free(planner);
}

/* The kept plan, made when first asked for. *kept = NULL: it does not fit. */
static uno_err keep(struct planner *p, int algo, uno_coll coll, int channels, int root, struct planner_kept **kept)
{
    *kept = NULL;
    for (size_t i = 0; i < p->nkept; i++) {
        struct planner_kept *k = p->kept[i];
        if (k->algo == algo && k->coll == coll && k->channels == channels && k->root == root) {
            *kept = k->plan ? k : NULL;
            return UNO_OK;
        }
    }
    TRY(mem_grow(&p->kept, &p->cap, p->nkept + 1, sizeof *p->kept));
    struct planner_kept *fresh = mem_zalloc(sizeof *fresh);
    if (!fresh)
        return UNO_ERR_MEMORY;
    *fresh = (struct planner_kept){.algo = algo, .coll = coll, .channels = channels, .root = root};
    struct plan_params params = {.coll = coll, .nranks = p->settings.nranks, .channels = channels, .root = root,
                                 .host_of = p->settings.host_of};
    snprintf(params.algo, sizeof params.algo, "%s", planner_algos[algo].name);
    uno_err err = planner_make(&params, &fresh->plan);
    if (err == UNO_OK)
        err = planner_load(fresh->plan, &fresh->load);
    if (err != UNO_OK && err != UNO_ERR_UNSUPPORTED) {
        plan_free(fresh->plan);
        free(fresh);
        return err;
    }
    p->kept[p->nkept++] = fresh;
    *kept = fresh->plan ? fresh : NULL;
    return UNO_OK;
}

/* ---- candidates --------------------------------------------------------------------------------------------- */

/* Bytes of the longest block, for the V forms of the longest that any rank has; unknown for all_to_all_v. */
static uint64_t block_bytes(const struct planner *p, const struct request *req)
{
    size_t elem = uno_type_bytes(req->type), count = req->count;
    if (req->coll == UNO_ALL_TO_ALL_V)
        return UINT64_MAX / 2;
    if (req->coll == UNO_BARRIER)
        return 0;
    if (req->coll != planner_plain(req->coll) && req->counts) {
        count = 0;
        for (int r = 0; r < p->settings.nranks; r++)
            count = MAX(count, req->counts[r]);
    }
    uint64_t bytes;
    return __builtin_mul_overflow((uint64_t)count, (uint64_t)elem, &bytes) ? UINT64_MAX / 2 : bytes;
}

/* As plan_chunks cuts them: in units of 64 bytes, of pages when chunks are long. */
static uint64_t chunk_bytes(uint64_t block, int parts)
{
    uint64_t n = (uint64_t)parts, unit = block / n > 65536 ? 4096 : 64;
    uint64_t units = block / unit + (block % unit != 0);
    return MIN(block, (units + n - 1) / n * unit);
}

uint64_t planner_payload(const struct planner *p, const struct request *req)
{
    uint64_t n = (uint64_t)p->settings.nranks, block = block_bytes(p, req);
    bool blocks = req->coll == UNO_REDUCE_SCATTER || req->coll == UNO_ALL_TO_ALL || req->coll == UNO_SCATTER;
    return blocks && block < UINT64_MAX / 2 / n ? block * n : block;
}

static uno_err candidate(struct planner *p, const struct request *req, int algo, int channels, struct planner_candidate *c)
{
    uno_coll coll = planner_plain(req->coll);
    bool root_given = strcmp(planner_algos[algo].name, "two_level") == 0; /* its shape depends on who shares a host */
    int root = coll_has_root(coll) ? req->root : 0;
    *c = (struct planner_candidate){.channels = channels, .algo = algo};
    TRY(keep(p, algo, coll, channels, root_given ? root : 0, &c->kept));
    if (!c->kept)
        return UNO_OK;
    uint64_t chunk = chunk_bytes(block_bytes(p, req), c->kept->plan->parts);
    c->shift = root_given ? 0 : root;
    uint64_t payload = planner_payload(p, req), ranks = MAX(1, c->kept->load.host_ranks);
    struct topo_costs costs = topo_costs_at(&p->settings.costs, payload < UINT64_MAX / 2 / ranks ? payload * ranks : payload, req->lent);
    c->cost_ps = planner_slots(&c->kept->load, &p->settings, &costs, chunk, &c->slots, &c->parts);
    return UNO_OK;
}

/* The V form of all_to_all has one fixed plan, a lane a peer and direction: no other serves pairs of different lengths. */
static uint32_t fitting(uno_coll asked)
{
    uint32_t mask = 0;
    for (int a = 0; a < planner_algo_count; a++)
        if (asked != UNO_ALL_TO_ALL_V || strcmp(planner_algos[a].name, "flat") == 0)
            mask |= planner_algos[a].colls & 1u << planner_plain(asked) ? 1u << a : 0;
    return mask;
}

static uno_err add_candidates(struct planner *p, const struct request *req, int algo, struct planner_candidates *list)
{
    int most = p->settings.channels ? p->settings.channels : MOST_CHANNELS_UNASKED;
    for (int channels = 1; channels <= MIN(most, GEN_MAX_CHANNELS) && list->count < PLANNER_CANDIDATES; channels *= 2) {
        struct planner_candidate *c = &list->c[list->count];
        TRY(candidate(p, req, algo, channels, c));
        if (!c->kept)
            break;
        /* The closed form is not good for less than a hundredth: that is a tie, and the table's order breaks it. */
        if (list->best < 0 || c->cost_ps + c->cost_ps / 100 < list->c[list->best].cost_ps)
            list->best = list->count;
        list->count++;
    }
    return UNO_OK;
}

static uno_err propose_of(struct planner *p, const struct request *req, uint32_t mask, struct planner_candidates *list)
{
    for (int a = 0; a < planner_algo_count; a++)
        if (mask & 1u << a)
            TRY(add_candidates(p, req, a, list));
    return UNO_OK;
}

/* Two ranks of one host all-reduce. Each reads all of the other's input: that stays in the caches of both, and can be read where
 * it lies. In two rounds they would hand each other fresh results, line by line out of the other's cache, which where processors
 * share none takes several times as long. Not for memory that both map, of which they write as well as read a half each, and not
 * for what no cache holds. */
static void prefer_one_round(const struct planner *p, const struct request *req, struct planner_candidates *list)
{
    if (req->coll != UNO_ALL_REDUCE || req->lent || p->settings.nranks != 2 || p->settings.host_of[0] != p->settings.host_of[1] ||
        planner_payload(p, req) > ONE_ROUND_MOST)
        return;
    for (int i = 0; i < list->count; i++)
        if (strcmp(planner_algos[list->c[i].algo].name, "flat") == 0) {
            list->one_round = list->best != i;
            list->best = i;
        }
}

/* Entries of lines or a block: one hand-over, then each other rank's entry is read; unless all goes one way, by every rank, in turn on its
 * processor. No tiles, no slots. */
static void cost_small(const struct planner *p, const struct request *req, struct planner_candidate *c)
{
    const struct topo_costs *costs = &p->settings.costs;
    const struct plan_load *load = &c->kept->load;
    uint64_t n = (uint64_t)p->settings.nranks, readers = load->one_way ? 1 : MAX(1, n / MAX(1, costs->processors));
    uint64_t payload = planner_payload(p, req), bytes_ps = payload > PLANNER_LINES_BYTES ? topo_work_ps(costs, 0, n, 0, payload) : 0;
    uint64_t hop = planner_hop_ps(load, costs, LINES_AHEAD), work = readers * ((n - 1) * costs->small_ps + bytes_ps);
    c->cost_ps = hop + work;
    c->parts = (struct planner_parts){{[PART_HOPS] = hop, [PART_WORK] = work}};
}

uno_err planner_propose(struct planner *p, const struct request *req, struct planner_candidates *list)
{
    *list = (struct planner_candidates){.best = -1};
    if ((unsigned)req->coll >= UNO_COLL_COUNT)
        return err_set(UNO_ERR_ARG, "%d is not a collective", (int)req->coll);
    if (coll_has_root(req->coll) && (req->root < 0 || req->root >= p->settings.nranks))
        return err_set(UNO_ERR_ARG, "root %d is not one of the ranks 0 to %d", req->root, p->settings.nranks - 1);
    uno_coll coll = planner_plain(req->coll);
    TRY(propose_of(p, req, fitting(req->coll) & p->allowed[coll], list));
    bool meant = req->coll != UNO_ALL_TO_ALL_V || !(fitting(coll) & p->allowed[coll]); /* not: for all_to_all alone */
    if (list->count == 0 && p->named[coll] && meant)
        return err_set(UNO_ERR_CONFIG, "UNISONO_ALGO=\"%.80s\" leaves no algorithm for %s on these %d ranks", p->settings.algo,
                       coll_name(coll), p->settings.nranks);
    if (list->count == 0) { /* a general list speaks of what it can serve; barriers and the like go on */
        list->set_aside = true;
        TRY(propose_of(p, req, fitting(req->coll), list));
    }
    if (list->count == 0)
        return err_set(UNO_ERR_INTERNAL, "no algorithm fits %s on %d ranks", coll_name(coll), p->settings.nranks);
    prefer_one_round(p, req, list);
    /* Short payloads on one host: the small target, whatever the closed form says of tiles. */
    if (p->settings.small && p->settings.nranks > 1 && coll == req->coll &&
        strcmp(planner_algos[list->c[0].algo].name, "flat") == 0 && planner_payload(p, req) <= PLANNER_SMALL_BYTES(p->settings.nranks)) {
        list->small = true;
        list->best = 0;
        cost_small(p, req, &list->c[0]);
    }
    return UNO_OK;
}

static uno_err prove(struct planner_kept *kept, int k)
{
    if (kept->proved)
        return UNO_OK;
    if (!planner_is_proved(kept->plan))
        TRY(verify_for_use(kept->plan, k));
    kept->proved = true;
    return UNO_OK;
}

uno_err planner_choose(struct planner *planner, const struct request *req, struct choice *choice)
{
    struct planner_candidates list;
    TRY(planner_propose(planner, req, &list));
    const struct planner_candidate *c = &list.c[list.best];
    TRY(prove(c->kept, c->slots.k));
    *choice = (struct choice){.plan = c->kept->plan, .target = list.small ? CHOICE_SMALL : CHOICE_TILED, .shift = c->shift,
                              .k = c->slots.k, .tile_bytes = c->slots.tile_bytes, .room_bytes = c->slots.room_bytes, .scratch_tiles = 2, .cost_ps = c->cost_ps};
    return UNO_OK;
}
