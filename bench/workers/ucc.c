/* SPDX-License-Identifier: Apache-2.0 */
/* ucc.c - the worker of UCC over UCX. A request is made for each call, as a program does that does not know its next one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucc/api/ucc.h>

#include "worker.h"

static ucc_lib_h lib;
static ucc_context_h context;
static ucc_team_h team;
static int me, n;

static ucc_status_t exchange(void *mine, void *all, size_t bytes, void *unused, void **request)
{
    (void)unused;
    *request = &me;
    return worker_exchange(me, n, mine, bytes, all) == 0 ? UCC_OK : UCC_ERR_NO_MESSAGE;
}

static ucc_status_t exchange_done(void *request)
{
    (void)request;
    return UCC_OK;
}

static ucc_oob_coll_t out_of_band(void)
{
    return (ucc_oob_coll_t){.allgather = exchange, .req_test = exchange_done, .req_free = exchange_done, .coll_info = &me,
                            .n_oob_eps = (uint32_t)n, .oob_ep = (uint32_t)me};
}

static int failed(const char *what, ucc_status_t s)
{
    if (s < 0)
        fprintf(stderr, "ucc: rank %d: %s: %s\n", me, what, ucc_status_string(s));
    return s < 0;
}

static ucc_status_t make_context(void)
{
    ucc_lib_config_h lib_config;
    ucc_context_config_h config;
    ucc_lib_params_t lib_params = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE, .thread_mode = UCC_THREAD_SINGLE};
    ucc_context_params_t params = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB, .oob = out_of_band()};
    ucc_status_t s = ucc_lib_config_read(NULL, NULL, &lib_config);
    if (s == UCC_OK)
        s = ucc_init(&lib_params, lib_config, &lib);
    if (s == UCC_OK)
        s = ucc_context_config_read(lib, NULL, &config);
    return s == UCC_OK ? ucc_context_create(lib, &params, config, &context) : s;
}

int peer_join(int *rank, int *size)
{
    me = *rank;
    n = *size;
    if (failed("context", make_context()))
        return -1;
    ucc_team_params_t params = {.mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB,
                                .ep = (uint64_t)me, .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG, .oob = out_of_band()};
    ucc_status_t s = ucc_team_create_post(&context, 1, &params, &team);
    while (s >= 0 && (s = ucc_team_create_test(team)) == UCC_INPROGRESS)
        ucc_context_progress(context);
    return failed("team", s) ? -1 : 0;
}

static ucc_coll_args_t arguments(const struct call *c)
{
    static const ucc_coll_type_t types[COLLS] = {UCC_COLL_TYPE_ALLREDUCE, UCC_COLL_TYPE_ALLGATHER, UCC_COLL_TYPE_REDUCE_SCATTER,
                                                 UCC_COLL_TYPE_BCAST, UCC_COLL_TYPE_ALLTOALL, UCC_COLL_TYPE_LAST,
                                                 UCC_COLL_TYPE_BARRIER};
    size_t blocks_in = c->coll == REDUCE_SCATTER || c->coll == ALL_TO_ALL ? (size_t)n : 1;
    size_t blocks_out = c->coll == ALL_GATHER || c->coll == ALL_TO_ALL ? (size_t)n : 1;
    ucc_coll_args_t a = {.coll_type = types[c->coll], .op = UCC_OP_SUM, .root = 0};
    a.src.info = (ucc_coll_buffer_info_t){(void *)c->send, c->count * blocks_in, UCC_DT_FLOAT32, UCC_MEMORY_TYPE_HOST};
    a.dst.info = (ucc_coll_buffer_info_t){c->recv, c->count * blocks_out, UCC_DT_FLOAT32, UCC_MEMORY_TYPE_HOST};
    if (c->in_place) {
        a.mask |= UCC_COLL_ARGS_FIELD_FLAGS;
        a.flags |= UCC_COLL_ARGS_FLAG_IN_PLACE;
    }
    if (c->in_place && c->coll == REDUCE_SCATTER) /* there dst is the whole vector */
        a.dst.info = (ucc_coll_buffer_info_t){(void *)c->send, c->count * (size_t)n, UCC_DT_FLOAT32, UCC_MEMORY_TYPE_HOST};
    if (c->coll == BROADCAST && me != 0)
        a.src.info.buffer = c->recv;
    return a;
}

const char *peer_prepare(const struct call *c)
{
    return c->coll == SEND_RECV ? "UCC has no send and receive" : c->coll == ALL_TO_ALL && c->in_place ? "in place" : NULL;
}

int peer_call(const struct call *c)
{
    ucc_coll_args_t a = arguments(c);
    ucc_coll_req_h request;
    ucc_status_t s = ucc_collective_init(&a, &request, team);
    if (failed("init", s))
        return -1;
    s = ucc_collective_post(request);
    while (s >= 0 && (s = ucc_collective_test(request)) == UCC_INPROGRESS)
        ucc_context_progress(context);
    ucc_collective_finalize(request);
    return failed("collective", s) ? -1 : 0;
}

void peer_barrier(void)
{
    struct call barrier = {.coll = BARRIER};
    if (peer_call(&barrier) != 0)
        exit(1);
}

const char *peer_version(void)
{
    static char text[128];
    snprintf(text, sizeof text, "UCC %s", ucc_get_version_string());
    return text;
}

void peer_leave(void)
{
    exit(0);
}
