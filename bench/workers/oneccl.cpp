/* SPDX-License-Identifier: Apache-2.0 */
/* oneccl.cpp - the worker of oneCCL, for processors, without SYCL. Its key-value store's address goes through the driver. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <oneapi/ccl.hpp>
#include <unistd.h>
#include <vector>

#include "worker.h"

/* The static library calls a profiler's hooks through these pointers where they are set. */
extern "C" {
#define HOOK(name) void *__itt_##name##_ptr__3_0 = nullptr
HOOK(string_handle_create);
HOOK(task_begin);
HOOK(metadata_add);
HOOK(thread_set_name);
HOOK(task_end);
HOOK(event_start);
HOOK(event_end);
HOOK(event_create);
HOOK(domain_create);
}

static std::unique_ptr<ccl::communicator> comm;
static int me, n;

static void join(int rank, int size)
{
    ccl::init();
    std::shared_ptr<ccl::kvs> store;
    ccl::kvs::address_type address{};
    std::vector<char> all(address.size() * (size_t)size);
    if (rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    if (worker_exchange(rank, size, address.data(), address.size(), all.data()) != 0)
        throw std::runtime_error("no exchange of addresses");
    memcpy(address.data(), all.data(), address.size());
    if (rank != 0)
        store = ccl::create_kvs(address);
    comm.reset(new ccl::communicator(ccl::create_communicator(size, rank, store)));
}

int peer_join(int *rank, int *size)
{
    me = *rank;
    n = *size;
    try {
        join(me, n);
    } catch (const std::exception &why) {
        fprintf(stderr, "oneccl: rank %d: %s\n", me, why.what());
        return -1;
    }
    return 0;
}

const char *peer_prepare(const struct call *c)
{
    return c->coll == ALL_TO_ALL && c->in_place ? "in place" : NULL;
}

static void send_recv(const struct call *c)
{
    ccl::group_start();
    ccl::event out = ccl::send((void *)c->send, c->count, ccl::datatype::float32, (me + 1) % n, *comm);
    ccl::event in = ccl::recv(c->recv, c->count, ccl::datatype::float32, (me + n - 1) % n, *comm);
    ccl::group_end();
    out.wait();
    in.wait();
}

static void dispatch(const struct call *c)
{
    const auto type = ccl::datatype::float32;
    switch (c->coll) {
    case ALL_REDUCE: ccl::allreduce(c->send, c->recv, c->count, type, ccl::reduction::sum, *comm).wait(); break;
    case ALL_GATHER: ccl::allgather(c->send, c->recv, c->count, type, *comm).wait(); break;
    case REDUCE_SCATTER: ccl::reduce_scatter(c->send, c->recv, c->count, type, ccl::reduction::sum, *comm).wait(); break;
    case BROADCAST: ccl::broadcast(me == 0 ? (void *)c->send : c->recv, c->count, type, 0, *comm).wait(); break;
    case ALL_TO_ALL: ccl::alltoall(c->send, c->recv, c->count, type, *comm).wait(); break;
    case SEND_RECV: send_recv(c); break;
    default: ccl::barrier(*comm).wait();
    }
}

int peer_call(const struct call *c)
{
    try {
        dispatch(c);
    } catch (const std::exception &why) {
        fprintf(stderr, "oneccl: rank %d: %s\n", me, why.what());
        return -1;
    }
    return 0;
}

void peer_barrier(void)
{
    struct call barrier = {BARRIER, NULL, NULL, 0, 0};
    if (peer_call(&barrier) != 0)
        exit(1);
}

const char *peer_version(void)
{
    static char text[64];
    auto v = ccl::get_library_version();
    snprintf(text, sizeof text, "oneCCL %u.%u.%u", v.major, v.minor, v.update);
    return text;
}

void peer_leave(void)
{
    _exit(0);
}
