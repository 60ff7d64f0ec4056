/* SPDX-License-Identifier: Apache-2.0 */
/* exec_world.c - see exec_world.h. */
#include "exec_world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS 30000000000ull

static uno_err look(void *arg, uint32_t number, uint64_t deadline_ns)
{
    const struct world_rank *me = arg;
    if (clock_ns() < deadline_ns)
        return UNO_OK;
    return err_set(UNO_ERR_TIMEOUT, "rank %d: operation #%u is not done", me->env.rank, number);
}

static uno_err make_rank(struct world *w, const struct world_options *opt, int r)
{
    struct world_rank *me = &w->ranks[r];
    void *base;
    TRY(net_segment_new(net_region_bytes(w->size), "unisono-region", &me->segment, &base));
    me->region = w->regions[r] = base;
    net_region_init(me->region, w->size, opt->first);
    return UNO_OK;
}

static uno_err connect_rank(struct world *w, const struct world_options *opt, struct net_peer *peers, int r)
{
    struct world_rank *me = &w->ranks[r];
    for (int q = 0; q < w->size; q++)
        peers[q] = (struct net_peer){.carrier = q == r ? NET_SELF : opt->carrier, .region = w->regions[q],
                                     .host = opt->host_of ? opt->host_of[q] : 0};
    struct net_comm_options net = {.id = 1, .rank = r, .size = w->size, .peers = peers, .region = me->region,
                                   .lend = opt->lend, .first = opt->first};
    me->world = w;
    me->env.rank = r;
    me->env.size = w->size;
    me->env.region = me->region;
    me->env.regions = w->regions;
    me->env.crowded = true;
    me->env.cache_bytes = 65536; /* arrays of more than half of it are streamed */
    me->env.look = look;
    me->env.look_arg = me;
    me->env.ring_limit = opt->first + NET_RING_ENTRIES;
    return net_comm_new(&net, &me->env.net);
}

uno_err world_make(struct world *w, const struct world_options *opt)
{
    *w = (struct world){.size = opt->size, .number = opt->first};
    rng_seed(&w->rng, opt->seed);
    w->ranks = mem_array((size_t)w->size, sizeof *w->ranks);
    w->regions = mem_array((size_t)w->size, sizeof(struct net_region *));
    struct net_peer *peers = mem_array((size_t)w->size, sizeof *peers);
    uno_err err = w->ranks && w->regions && peers ? UNO_OK : UNO_ERR_MEMORY;
    for (int r = 0; r < w->size && err == UNO_OK; r++)
        err = make_rank(w, opt, r);
    for (int r = 0; r < w->size && err == UNO_OK; r++)
        err = connect_rank(w, opt, peers, r);
    free(peers);
    return err;
}

static void drop_programs(struct world *w)
{
    for (int r = 0; r < w->size; r++) {
        exec_program_free(w->ranks[r].program);
        free(w->ranks[r].op);
        w->ranks[r].program = NULL;
        w->ranks[r].op = NULL;
    }
}

void world_free(struct world *w)
{
    if (w->ranks)
        drop_programs(w);
    for (int r = 0; w->ranks && r < w->size; r++) {
        net_comm_free(w->ranks[r].env.net);
        free(w->ranks[r].env.scratch);
    }
    for (int r = 0; w->ranks && r < w->size; r++)
        net_segment_free(w->ranks[r].segment);
    free(w->ranks);
    free(w->regions);
    *w = (struct world){0};
}

/* ---- one operation -------------------------------------------------------------------------------------------- */

static uno_err begin(struct world *w, const struct world_call *call, int r, uint64_t deadline_ns)
{
    struct world_rank *me = &w->ranks[r];
    TRY(exec_compile(&me->env, &call->choice, call->req, NULL, &me->program));
    me->op = mem_zalloc(exec_op_bytes(me->program));
    if (!me->op)
        return UNO_ERR_MEMORY;
    me->op->program = me->program;
    me->op->env = &me->env;
    me->op->base[PLAN_IN] = call->in[r];
    me->op->base[PLAN_OUT] = call->out[r];
    exec_op_name(me->op, w->number, (uint32_t)hash_mix(w->number, 7));
    me->op->scalar = call->scalar ? call->scalar[r] : NULL;
    me->op->deadline_ns = deadline_ns;
    me->result = UNO_ERR_IN_PROGRESS;
    me->text[0] = 0;
    return UNO_OK;
}

static uno_err start(struct world_rank *me)
{
    struct ledger_fields fields = {.state = LEDGER_RUNNING, .waits_for = -1};
    (void)ledger_begin(net_region_ledger(me->region), me->op->number, me->op->signature, &fields, NULL, 0);
    return exec_start(me->op);
}

static void finish(struct world_rank *me, uno_err err)
{
    const char *what;
    me->result = err;
    if (err == UNO_ERR_IN_PROGRESS) {
        int peer = exec_blame(me->op, &what);
        snprintf(me->text, sizeof me->text, "rank %d waits for %s rank %d", me->env.rank, what, peer);
    } else if (err != UNO_OK) {
        snprintf(me->text, sizeof me->text, "rank %d: %s", me->env.rank, err_text());
    } else if (me->world->call->returned) {
        me->world->call->returned(me->world->call->arg, me->env.rank);
    }
}

static bool poll_one(struct world_rank *me)
{
    bool moved = false;
    if (me->result != UNO_ERR_IN_PROGRESS)
        return false;
    uno_err err = exec_poll(me->op, &moved);
    if (err != UNO_ERR_IN_PROGRESS)
        finish(me, err);
    return moved || err != UNO_ERR_IN_PROGRESS;
}

/* Random ranks many times, some until they stand still, then each once; when that moved nothing three times over, nothing ever will. */
static void move_all(struct world *w)
{
    for (int idle = 0; idle < 3;) {
        bool moved = false;
        for (int i = 0; i < 2 * w->size; i++) {
            struct world_rank *any = &w->ranks[rng_below(&w->rng, (uint64_t)w->size)];
            int polls = rng_below(&w->rng, 2) ? 1 : 4;
            while (polls-- > 0 && poll_one(any))
                moved = true;
        }
        for (int r = 0; r < w->size; r++)
            moved |= poll_one(&w->ranks[r]);
        idle = moved ? 0 : idle + 1;
    }
}

static void *move_one(void *arg)
{
    struct world_rank *me = arg;
    struct exec_wait wait = {0};
    uno_err err = start(me);
    while (err == UNO_OK) {
        bool moved = false;
        err = exec_poll(me->op, &moved);
        if (err != UNO_ERR_IN_PROGRESS)
            break;
        err = UNO_OK;
        if (moved)
            exec_wait_reset(&me->env, &wait);
        else
            err = exec_pause(&me->env, &wait, me->op->number, me->op->deadline_ns, true);
    }
    exec_wait_end(&me->env, &wait);
    finish(me, err == UNO_ERR_TIMEOUT ? UNO_ERR_IN_PROGRESS : err);
    return NULL;
}

static void move_by_threads(struct world *w)
{
    pthread_t threads[w->size];
    int started = 0;
    while (started < w->size && pthread_create(&threads[started], NULL, move_one, &w->ranks[started]) == 0)
        started++;
    for (int r = 0; r < started; r++)
        pthread_join(threads[r], NULL);
}

uno_err world_run(struct world *w, const struct world_call *call, bool threads, bool *stuck)
{
    if (++w->number == 0) /* 0 marks an event that is being written */
        w->number = 1;
    drop_programs(w);
    w->call = call;
    for (int r = 0; r < w->size; r++)
        TRY(begin(w, call, r, clock_ns() + DEADLINE_NS));
    for (int r = 0; r < w->size && !threads; r++)
        TRY(start(&w->ranks[r]));
    if (threads)
        move_by_threads(w);
    else
        move_all(w);
    *stuck = false;
    for (int r = 0; r < w->size; r++) {
        struct world_rank *me = &w->ranks[r];
        *stuck = *stuck || me->result == UNO_ERR_IN_PROGRESS;
        if (me->result == UNO_ERR_IN_PROGRESS)
            finish(me, UNO_ERR_IN_PROGRESS);
        if (me->result != UNO_OK)
            exec_cancel(me->op);
    }
    return UNO_OK;
}

void world_count(const struct world *w, struct net_counts *counts)
{
    for (int r = 0; r < w->size; r++)
        net_comm_count(w->ranks[r].env.net, counts);
}
