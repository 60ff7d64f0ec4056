/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_api.c - unisono_plan.h for plans: public entry points of libunisono_plan, each a few calls into plan, planner and
 * verify.
 */
#include "unisono_plan.h"

#include "plan/plan.h"
#include "planner/planner.h"
#include "sim/sim.h"
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

struct uno_plan {
    struct plan *plan;
};

#define MOST_RANKS 4096 /* what plans as text can hold */

const char *uno_plan_last_error(void)
{
    return err_text();
}

void uno_text_free(char *text)
{
    free(text);
}

/* Hand a finished text over, or free it. */
static uno_err give_text(uno_err err, struct text *t, char **text)
{
    if (err == UNO_OK && t->failed)
        err = err_set(UNO_ERR_MEMORY, "no memory for the text");
    if (err != UNO_OK)
        text_free(t);
    *text = err == UNO_OK ? t->s : NULL;
    return err;
}

/* ---- making ------------------------------------------------------------------------------------- */

static uno_err bad_hosts(const char *hosts, int nranks)
{
    const char *legal = "legal are \"2x4\" (two hosts with 4 ranks each) and \"3,5\" (ranks of each host)";
    if (nranks == 0)
        return err_set(UNO_ERR_ARG, "hosts \"%.60s\" do not hold 1 to %d ranks; %s", hosts, MOST_RANKS, legal);
    return err_set(UNO_ERR_ARG, "hosts \"%.60s\" do not hold %d ranks; %s, adding up to the number of ranks", hosts, nranks, legal);
}

/* "3,5": ranks in order. Returns how many, 0 = not legal or more than `most`. */
static int listed_hosts(const char *hosts, int most, int *host_of)
{
    int rank = 0, host = 0;
    for (const char *s = hosts;; host++) {
        char *end;
        long n = strtol(s, &end, 10);
        if (end == s || n < 1 || n > most - rank || (*end && *end != ','))
            return 0;
        while (n-- > 0)
            host_of[rank++] = host;
        if (*end == 0)
            return rank;
        s = end + 1;
    }
}

/* "2x4", or a list: as listed_hosts. */
static int place_ranks(const char *hosts, int most, int *host_of)
{
    int count, each, used = 0;
    if (sscanf(hosts, "%9dx%9d%n", &count, &each, &used) != 2 || hosts[used] != 0)
        return listed_hosts(hosts, most, host_of);
    if (count < 1 || each < 1 || (long long)count * each > most)
        return 0;
    for (int r = 0; r < count * each; r++)
        host_of[r] = r / each;
    return count * each;
}

/* *host_of: out, to be freed; NULL = one host. *nranks: 0 = as many as the hosts hold. */
static uno_err parse_hosts(const char *hosts, int *nranks, int **host_of)
{
    *host_of = NULL;
    if (!hosts || *nranks < 0 || *nranks > MOST_RANKS)
        return UNO_OK; /* check_params speaks */
    int *map = mem_array((size_t)(*nranks ? *nranks : MOST_RANKS), sizeof *map);
    if (!map)
        return UNO_ERR_MEMORY;
    int held = place_ranks(hosts, *nranks ? *nranks : MOST_RANKS, map);
    if (held == 0 || (*nranks && held != *nranks)) {
        free(map);
        return bad_hosts(hosts, *nranks);
    }
    *nranks = held;
    *host_of = map;
    return UNO_OK;
}

static uno_err check_params(const uno_plan_params *p)
{
    if ((unsigned)p->coll >= UNO_COLL_COUNT)
        return err_set(UNO_ERR_ARG, "%d is not a collective", (int)p->coll);
    if (p->coll >= UNO_ALL_GATHER_V)
        return err_set(UNO_ERR_ARG, "a plan is never for %s; the v forms use the plan of the plain collective",
                       coll_name(p->coll));
    if (p->nranks < 1 || p->nranks > MOST_RANKS)
        return err_set(UNO_ERR_ARG, "%d ranks; legal are 1 to %d", p->nranks, MOST_RANKS);
    if (p->root < 0 || p->root >= p->nranks)
        return err_set(UNO_ERR_ARG, "root %d is not one of the ranks 0 to %d", p->root, p->nranks - 1);
    if (p->channels < 0)
        return err_set(UNO_ERR_ARG, "%d channels; legal are 1 and more, or 0 for the default", p->channels);
    return UNO_OK;
}

/* *p: out, what was given, with the number of ranks. *host_of: as parse_hosts. */
static uno_err read_params(const uno_plan_params *given, uno_plan_params *p, int **host_of)
{
    *host_of = NULL;
    if (!given || given->size != sizeof *given)
        return err_set(UNO_ERR_ARG, "params must be initialised with UNO_PLAN_PARAMS_INIT");
    *p = *given;
    TRY(parse_hosts(p->hosts, &p->nranks, host_of));
    uno_err err = check_params(p);
    if (err != UNO_OK) {
        free(*host_of);
        *host_of = NULL;
    }
    return err;
}

/* float32, `bytes` in the larger of the two buffers. */
static struct request request_of(uno_coll coll, int nranks, int root, uint64_t bytes)
{
    bool blocks = coll >= UNO_ALL_GATHER && coll <= UNO_SCATTER; /* counts are per block */
    return (struct request){.coll = coll, .type = UNO_FLOAT32, .op = UNO_SUM, .root = root,
                            .count = (size_t)(bytes / 4 / (blocks ? (uint64_t)nranks : 1))};
}

/* This machine's costs; a file that is not followed is said by whoever shows the costs. */
static struct topo_costs tuned(void)
{
    bool found;
    struct text why = {0};
    struct topo_costs costs = topo_tune_load(getenv("UNISONO_COSTS"), &found, &why);
    text_free(&why);
    if (found)
        costs.processors = (uint64_t)topo_processors();
    return costs;
}

/* A planner with this machine's costs over the ranks as placed, and the request that params describe. */
static uno_err open_planner(const uno_plan_params *p, const int *host_of, struct planner **planner, struct request *req)
{
    struct planner_settings settings = {.algo = p->algo ? p->algo : "", .memory_limit = 2u << 20,
                                        .channels = p->channels, .small = true, .nranks = p->nranks, .host_of = host_of,
                                        .costs = tuned()};
    for (int r = 0; host_of && r < p->nranks; r++)
        settings.small = settings.small && host_of[r] == 0;
    *req = request_of(p->coll, p->nranks, p->root, p->bytes);
    return planner_new(&settings, planner);
}

/* The algorithm and channels that the planner would take. The plan itself is made again, with the root as it is: what the
 * planner chooses from has root 0, and ranks renumber themselves. */
static uno_err choose(const uno_plan_params *p, const int *host_of, struct plan_params *params)
{
    struct planner *planner;
    struct request req;
    struct choice choice;
    TRY(open_planner(p, host_of, &planner, &req));
    uno_err err = planner_choose(planner, &req, &choice);
    if (err == UNO_OK) {
        memcpy(params->algo, choice.plan->params.algo, sizeof params->algo);
        params->channels = choice.plan->params.channels;
    }
    planner_free(planner);
    return err;
}

/* Generators make trees and the like for root 0; here real ranks are wanted. Only two_level is made for its root, because
 * its shape depends on who shares a host. */
static uno_err make_rotated(const struct plan_params *params, struct plan **plan)
{
    struct plan_params virtual_params = *params;
    int n = params->nranks, *host_of = params->host_of ? mem_array((size_t)n, sizeof *host_of) : NULL;
    if (params->host_of && !host_of)
        return UNO_ERR_MEMORY;
    for (int v = 0; host_of && v < n; v++)
        host_of[v] = params->host_of[(v + params->root) % n];
    virtual_params.host_of = host_of;
    virtual_params.root = 0;
    struct plan *made = NULL;
    uno_err err = planner_make(&virtual_params, &made);
    if (err == UNO_OK)
        err = plan_rotate(made, params->root, plan);
    plan_free(made);
    free(host_of);
    return err;
}

static uno_err make(const uno_plan_params *p, const int *host_of, struct plan **plan)
{
    bool rooted = coll_has_root(p->coll);
    struct plan_params params = {.coll = p->coll, .nranks = p->nranks, .channels = p->channels ? p->channels : 1,
                                 .root = rooted ? p->root : 0, .host_of = host_of};
    if (!p->algo)
        TRY(choose(p, host_of, &params));
    else if (strlen(p->algo) < sizeof params.algo)
        strcpy(params.algo, p->algo);
    else
        memcpy(params.algo, p->algo, sizeof params.algo - 1); /* none is that long: planner_make lists the legal ones */
    if (params.root == 0 || strcmp(params.algo, "two_level") == 0)
        return planner_make(&params, plan);
    return make_rotated(&params, plan);
}

uno_err uno_plan_make(const uno_plan_params *params, uno_plan **plan)
{
    uno_plan_params settled;
    int *host_of;
    if (!plan)
        return err_set(UNO_ERR_ARG, "plan is NULL");
    *plan = NULL;
    TRY(read_params(params, &settled, &host_of));
    uno_plan *p = mem_zalloc(sizeof *p);
    uno_err err = p ? make(&settled, host_of, &p->plan) : UNO_ERR_MEMORY;
    free(host_of);
    if (err != UNO_OK)
        uno_plan_free(p);
    else
        *plan = p;
    return err;
}

uno_err uno_plan_explain(const uno_plan_params *params, char **text)
{
    uno_plan_params settled;
    int *host_of;
    struct planner *planner = NULL;
    struct request req;
    struct text t = {0};
    if (!text)
        return err_set(UNO_ERR_ARG, "text is NULL");
    *text = NULL;
    TRY(read_params(params, &settled, &host_of));
    uno_err err = open_planner(&settled, host_of, &planner, &req);
    if (err == UNO_OK)
        err = planner_explain(planner, &req, true, &t);
    planner_free(planner);
    free(host_of);
    return give_text(err, &t, text);
}

/* ---- loading, showing, facts ------------------------------------------------------------------------ */

uno_err uno_plan_load(const char *path, uno_plan **plan)
{
    if (!path || !plan)
        return err_set(UNO_ERR_ARG, "%s is NULL", path ? "plan" : "path");
    *plan = NULL;
    uno_plan *p = mem_zalloc(sizeof *p);
    uno_err err = p ? plan_from_file(path, &p->plan) : UNO_ERR_MEMORY;
    if (err == UNO_OK) {
        err = verify_label_shapes(p->plan);
        if (err != UNO_ERR_MEMORY)
            err = UNO_OK; /* what cannot be labelled is wrong or too large, which is for uno_plan_verify to say */
    }
    if (err != UNO_OK)
        uno_plan_free(p);
    else
        *plan = p;
    return err;
}

void uno_plan_free(uno_plan *plan)
{
    if (!plan)
        return;
    plan_free(plan->plan);
    free(plan);
}

uno_err uno_plan_algo(int index, uno_plan_algo_info *algo)
{
    if (index < 0 || index >= planner_algo_count || !algo)
        return err_set(UNO_ERR_ARG, "there are algorithms 0 to %d and no %d", planner_algo_count - 1, index);
    const struct planner_algo *a = &planner_algos[index];
    *algo = (uno_plan_algo_info){.name = a->name, .help = a->help, .colls = a->colls};
    return UNO_OK;
}

const char *uno_plan_coll_name(uno_coll coll)
{
    return coll_name(coll);
}

uno_err uno_plan_coll_parse(const char *name, uno_coll *coll)
{
    return name && coll ? coll_parse(name, coll) : err_set(UNO_ERR_ARG, "name or coll is NULL");
}

void uno_plan_facts_of(const uno_plan *plan, uno_plan_facts *facts)
{
    const struct plan *p = plan->plan;
    int hosts = 0;
    for (int r = 0; p->host_of && r < p->nranks; r++)
        hosts = MAX(hosts, p->host_of[r]);
    *facts = (uno_plan_facts){.name = p->name, .coll = p->coll, .nranks = p->nranks, .hosts = hosts + 1, .parts = p->parts,
                              .channels = p->channels, .root = p->root, .slots = p->k_claimed, .in_place = p->in_place_ok,
                              .out_of_place = p->out_of_place_ok, .imported = p->params.algo[0] == 0,
                              .id = {p->id.lo, p->id.hi}};
}

uno_err uno_plan_show(const uno_plan *plan, uno_plan_form form, int rank, char **text)
{
    struct text t = {0};
    if (!plan || !text)
        return err_set(UNO_ERR_ARG, "%s is NULL", plan ? "text" : "plan");
    *text = NULL;
    if (rank >= 0 && form != UNO_PLAN_TEXT)
        return err_set(UNO_ERR_ARG, "one rank alone can be shown as text only: JSON and XML hold whole plans");
    switch (form) {
    case UNO_PLAN_TEXT: return give_text(plan_print(plan->plan, rank, &t), &t, text);
    case UNO_PLAN_JSON: return give_text(plan_to_json(plan->plan, &t), &t, text);
    case UNO_PLAN_XML: return give_text(plan_to_xml(plan->plan, false, &t), &t, text);
    case UNO_PLAN_XML_UNICAST: return give_text(plan_to_xml(plan->plan, true, &t), &t, text);
    }
    return err_set(UNO_ERR_ARG, "%d is not a form", (int)form);
}

/* ---- verifying, simulating ----------------------------------------------------------------------------------------- */

uno_err uno_plan_verify(const uno_plan *plan, const uno_plan_verify_options *options, uno_plan_verdict *verdict)
{
    static const uno_plan_verify_options usual = UNO_PLAN_VERIFY_INIT;
    const uno_plan_verify_options *o = options ? options : &usual;
    struct verify_result r;
    if (!plan || !verdict)
        return err_set(UNO_ERR_ARG, "%s is NULL", plan ? "verdict" : "plan");
    if (o->size != sizeof *o || o->slots < 0)
        return err_set(UNO_ERR_ARG, "options must be initialised with UNO_PLAN_VERIFY_INIT, and slots must not be negative");
    struct verify_options opt = {.k = o->slots, .in_place = o->in_place, .lent = o->lent};
    TRY(verify_plan(plan->plan, &opt, &r));
    *verdict = (uno_plan_verdict){.proved = r.kind == VERIFY_OK, .kind = verify_kind_names[r.kind], .rank = r.rank,
                                  .lane = r.lane, .step = r.step};
    if (!verdict->proved)
        snprintf(verdict->reason, sizeof verdict->reason, "%s", r.reason);
    return UNO_OK;
}

uno_err uno_plan_simulate(const uno_plan *plan, uint64_t bytes, uno_plan_time *time)
{
    struct sim_result r;
    if (!plan || !time)
        return err_set(UNO_ERR_ARG, "%s is NULL", plan ? "time" : "plan");
    const struct plan *p = plan->plan;
    struct request req = request_of(p->coll, p->nranks, p->root, bytes);
    struct sim_options opt = {.costs = topo_costs_default, .tile_bytes = 65536};
    TRY(sim_run(p, &req, &opt, &r));
    *time = (uno_plan_time){.total_ps = r.total_ps, .shm_bytes = r.bytes_shm, .net_bytes = r.bytes_net,
                            .critical_rank = r.critical_rank};
    return UNO_OK;
}
