/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gloo.cpp - the worker of Gloo. BENCH_GLOO=poll takes the older interface with pairs that are polled by the caller (its
 * fastest way for small messages); else the newer one with its loop thread. Made with whichever Gloo is installed; GLOO_NAME
 * says which. The loop thread stands on the processor after the rank's: on the same one both lose whole time slices.
 */
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "worker.h"

#ifndef GLOO_NAME
#define GLOO_NAME "Gloo"
#endif

static std::shared_ptr<gloo::rendezvous::Context> context;
static std::unique_ptr<gloo::Algorithm> barrier, algorithm; /* of the older interface */
static std::unique_ptr<gloo::transport::UnboundBuffer> out, in;
static float word;
static bool poll;

static void keep_loop_thread_away(int rank)
{
    cpu_set_t set;
    int n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&set);
    CPU_SET((rank + 1) % n, &set);
    sched_setaffinity(0, sizeof set, &set);
}

int peer_join(int *rank, int *size)
{
    cpu_set_t mine;
    gloo::transport::tcp::attr attr;
    attr.iface = worker_setting("IFACE", "lo");
    poll = strcmp(worker_setting("GLOO", "loop"), "poll") == 0;
    sched_getaffinity(0, sizeof mine, &mine);
    keep_loop_thread_away(*rank);
    auto device = gloo::transport::tcp::CreateDevice(attr);
    sched_setaffinity(0, sizeof mine, &mine);
    gloo::rendezvous::FileStore files(worker_setting("FOLDER", "/tmp"));
    context = std::make_shared<gloo::rendezvous::Context>(*rank, *size);
    std::shared_ptr<gloo::rendezvous::Store> store(&files, [](void *) {});
    context->connectFullMesh(store, device);
    if (poll) {
        for (int i = 0; i < *size; i++)
            if (i != *rank)
                context->getPair(i)->setSync(true, true);
        barrier.reset(new gloo::AllreduceHalvingDoubling<float>(context, {&word}, 1)); /* its barriers want a loop thread */
    }
    return 0;
}

static const char *prepare_poll(const struct call *c)
{
    std::vector<float *> data{c->recv};
    if (c->coll == ALL_REDUCE)
        algorithm.reset(new gloo::AllreduceHalvingDoubling<float>(context, data, (int)c->count));
    else if (c->coll == REDUCE_SCATTER) {
        std::vector<int> counts(context->size, (int)c->count);
        algorithm.reset(new gloo::ReduceScatterHalvingDoubling<float>(context, {(float *)c->send}, (int)c->count * context->size,
                                                                      counts));
    } else
        return "not with polled pairs"; /* what is left of the older interface wants a loop thread */
    return NULL;
}

const char *peer_prepare(const struct call *c)
{
    if (c->coll == ALL_TO_ALL && c->in_place)
        return "in place";
    if (c->coll == ALL_GATHER && c->in_place)
        return "all_gather in place";
    if (poll)
        return prepare_poll(c);
    if (c->coll == REDUCE_SCATTER)
        return "reduce_scatter is in the older interface only";
    if (c->coll == SEND_RECV) {
        out = context->createUnboundBuffer((void *)c->send, c->count * sizeof(float));
        in = context->createUnboundBuffer(c->recv, c->count * sizeof(float));
    }
    return NULL;
}

static void sum(void *a, const void *b, const void *c, size_t n)
{
    gloo::sum<float>((float *)a, (const float *)b, (const float *)c, n);
}

static void call_poll(const struct call *c)
{
    if (!c->in_place && c->coll == ALL_REDUCE)
        memcpy(c->recv, c->send, c->count * sizeof(float)); /* this interface works in place */
    algorithm->run();
    if (!c->in_place && c->coll == REDUCE_SCATTER)
        memcpy(c->recv, c->send, c->count * sizeof(float));
}

static void all_reduce(const struct call *c)
{
    gloo::AllreduceOptions o(context);
    /* Its two algorithms cross over at about 1 MB here. */
    o.setAlgorithm(c->count <= 262144 ? gloo::AllreduceOptions::Algorithm::BCUBE : gloo::AllreduceOptions::Algorithm::RING);
    if (!c->in_place)
        o.setInput((float *)c->send, c->count);
    o.setOutput(c->recv, c->count);
    o.setReduceFunction(sum);
    gloo::allreduce(o);
}

static void send_recv(void)
{
    int n = context->size, me = context->rank;
    out->send((me + 1) % n, 7);
    in->recv((me + n - 1) % n, 7);
    out->waitSend();
    in->waitRecv();
}

int peer_call(const struct call *c)
{
    size_t n = (size_t)context->size;
    if (poll) {
        call_poll(c);
        return 0;
    }
    if (c->coll == ALL_REDUCE)
        all_reduce(c);
    else if (c->coll == ALL_GATHER) {
        gloo::AllgatherOptions o(context);
        o.setInput((float *)c->send, c->count);
        o.setOutput(c->recv, c->count * n);
        gloo::allgather(o);
    } else if (c->coll == BROADCAST) {
        gloo::BroadcastOptions o(context);
        o.setRoot(0);
        o.setOutput(context->rank == 0 ? (float *)c->send : c->recv, c->count);
        gloo::broadcast(o);
    } else if (c->coll == ALL_TO_ALL) {
        gloo::AlltoallOptions o(context);
        o.setInput((float *)c->send, c->count * n);
        o.setOutput(c->recv, c->count * n);
        gloo::alltoall(o);
    } else if (c->coll == SEND_RECV)
        send_recv();
    else {
        gloo::BarrierOptions o(context);
        gloo::barrier(o);
    }
    return 0;
}

void peer_barrier(void)
{
    if (poll)
        barrier->run();
    else {
        gloo::BarrierOptions o(context);
        gloo::barrier(o);
    }
}

const char *peer_version(void)
{
    return GLOO_NAME;
}

void peer_leave(void)
{
    _exit(0); /* its destructors wait for peers that have gone */
}
