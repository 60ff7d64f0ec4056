/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw.c - what one TCP connection between two ranks allows, with nothing above it: the limit that libraries are compared with
 * between hosts. Both directions at once, one thread that polls. all_reduce is the limit "both directions, with a sum over half
 * of the bytes on the same thread": what has come is summed and is what is sent next.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "floor_kernels.h"
#include "worker.h"

enum { CHUNK_MAX = 1 << 20 };
static size_t chunk; /* BENCH_CHUNK: most bytes of one system call */
static int me, wire = -1;

static int own_address(struct sockaddr_in *a)
{
    struct ifaddrs *all, *i;
    int found = -1;
    if (getifaddrs(&all) != 0)
        return -1;
    for (i = all; i && found < 0; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !(i->ifa_flags & IFF_LOOPBACK)) {
            memcpy(a, i->ifa_addr, sizeof *a);
            found = 0;
        }
    freeifaddrs(all);
    return found;
}

int peer_join(int *rank, int *size)
{
    struct sockaddr_in mine = {0}, all[2];
    socklen_t length = sizeof mine;
    me = *rank;
    chunk = strtoul(worker_setting("CHUNK", "65536"), NULL, 10);
    if (chunk == 0 || chunk > CHUNK_MAX || chunk % sizeof(float)) {
        fprintf(stderr, "raw: BENCH_CHUNK is a number of whole floats up to %d bytes\n", CHUNK_MAX);
        return -1;
    }
    if (*size != 2 || own_address(&mine) != 0) {
        fprintf(stderr, "raw: two ranks with an interface each are needed\n");
        return -1;
    }
    mine.sin_port = 0;
    int door = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (bind(door, (struct sockaddr *)&mine, sizeof mine) != 0 || listen(door, 1) != 0 ||
        getsockname(door, (struct sockaddr *)&mine, &length) != 0 || worker_exchange(me, 2, &mine, sizeof mine, all) != 0)
        return -1;
    wire = me == 0 ? accept(door, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
    if (wire < 0 || (me == 1 && connect(wire, (struct sockaddr *)&all[0], sizeof all[0]) != 0)) {
        fprintf(stderr, "raw: %s\n", strerror(errno));
        return -1;
    }
    close(door);
    setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fcntl(wire, F_SETFL, O_NONBLOCK);
}

const char *peer_prepare(const struct call *c)
{
    (void)c;
    return NULL;
}

/* Bytes moved; 0 = none at the moment; ends the program when the peer is gone. */
static size_t some(ssize_t n)
{
    if (n > 0)
        return (size_t)n;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    fprintf(stderr, "raw: rank %d: %s\n", me, n == 0 ? "the peer closed" : strerror(errno));
    exit(1);
}

static size_t at_most(size_t bytes)
{
    return bytes < chunk ? bytes : chunk;
}

static void both_ways(const char *out, size_t out_bytes, char *in, size_t in_bytes)
{
    size_t sent = 0, got = 0;
    while (sent < out_bytes || got < in_bytes) {
        if (sent < out_bytes)
            sent += some(send(wire, out + sent, at_most(out_bytes - sent), MSG_NOSIGNAL));
        if (got < in_bytes)
            got += some(recv(wire, in + got, at_most(in_bytes - got), 0));
    }
}

/* The peer's half goes out first, then one's own as far as it is summed; in comes one's own half, then the peer's sums. */
static void sum_both_ways(const struct call *c)
{
    static float piece[CHUNK_MAX / sizeof(float)];
    size_t bytes = c->count * sizeof(float), first = c->count / 2 * sizeof(float);
    size_t mine = me == 0 ? first : bytes - first, theirs = bytes - mine, mine_at = me == 0 ? 0 : first, theirs_at = first - mine_at;
    const char *send_at = (const char *)c->send;
    char *recv_at = (char *)c->recv;
    size_t sent = 0, got = 0, in_piece = 0, summed = 0;
    while (sent < bytes || got < bytes) {
        if (sent < theirs)
            sent += some(send(wire, send_at + theirs_at + sent, at_most(theirs - sent), MSG_NOSIGNAL));
        else if (sent < theirs + summed)
            sent += some(send(wire, recv_at + mine_at + (sent - theirs), at_most(theirs + summed - sent), MSG_NOSIGNAL));
        if (got < mine) {
            size_t want = at_most(mine - summed);
            size_t n = some(recv(wire, (char *)piece + in_piece, want - in_piece, 0));
            got += n;
            in_piece += n;
            if (in_piece == want) {
                float *to = (float *)(recv_at + mine_at + summed);
                const float *own = (const float *)(send_at + mine_at + summed);
                floor_sum(&to, 1, (const float *const[]){own, piece}, 2, want / sizeof(float), false);
                summed += want;
                in_piece = 0;
            }
        } else if (got < bytes)
            got += some(recv(wire, recv_at + theirs_at + (got - mine), at_most(bytes - got), 0));
    }
}

int peer_call(const struct call *c)
{
    size_t bytes = c->count * sizeof(float);
    char byte = 0, other;
    switch (c->coll) {
    case ALL_REDUCE: sum_both_ways(c); break;
    case ALL_GATHER:
        memcpy(c->recv + (size_t)me * c->count, c->send, bytes);
        both_ways((const char *)c->send, bytes, (char *)(c->recv + (size_t)(1 - me) * c->count), bytes);
        break;
    case SEND_RECV: both_ways((const char *)c->send, bytes, (char *)c->recv, bytes); break;
    case BROADCAST: both_ways((const char *)c->send, me == 0 ? bytes : 0, (char *)c->recv, me == 0 ? 0 : bytes); break;
    default: both_ways(&byte, 1, &other, 1);
    }
    return 0;
}

void peer_barrier(void)
{
    struct call barrier = {.coll = BARRIER};
    peer_call(&barrier);
}

const char *peer_version(void)
{
    return "TCP";
}

void peer_leave(void)
{
    close(wire);
}
