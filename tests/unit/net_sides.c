/* SPDX-License-Identifier: Apache-2.0 */
/* net_sides.c - two sides of the TCP carrier, for test_net_tcp*.c. */
#include "net_sides.h"

#include <string.h>

struct side A, B;

static void on_control(void *arg, int from, const void *data, size_t bytes)
{
    struct heard *h = arg;
    uint32_t n = 0;
    memcpy(&n, data, MIN(bytes, sizeof n));
    h->disorder |= n != h->last + 1;
    h->last = n;
    h->last_bytes = bytes;
    h->controls++;
}

static void on_down(void *arg, int from, enum net_down how, const char *text)
{
    struct heard *h = arg;
    h->downs++;
    h->how = how;
    snprintf(h->text, sizeof h->text, "%s", text);
}

struct auth_key key_of(const char *secret)
{
    struct auth_key k;
    auth_derive(&k, secret, strlen(secret));
    return k;
}

void side_open_family(struct side *s, int self, int family)
{
    memset(s, 0, sizeof *s);
    s->cfg.socket_ifname = "lo";
    s->cfg.socket_family = family;
    s->cfg.socket_count = 2;
    struct net_proc_options o = {.cfg = &s->cfg, .key = key_of("right"), .job = 7, .self = self,
                                 .on_control = on_control, .on_down = on_down, .arg = &s->heard};
    assert_int_equal(net_proc_new(&o, &s->p), UNO_OK);
}

void side_open(struct side *s, int self)
{
    side_open_family(s, self, 1);
}

void join(void)
{
    struct sock_address_book book;
    net_proc_address(B.p, &book);
    assert_true(book.count >= 1);
    assert_int_equal(net_link_get(A.p, 1, &book, &A.l), UNO_OK);
    net_proc_address(A.p, &book);
    assert_int_equal(net_link_get(B.p, 0, &book, &B.l), UNO_OK);
}

int setup(void **state)
{
    side_open(&A, 0);
    side_open(&B, 1);
    join();
    return 0;
}

int teardown(void **state)
{
    net_proc_free(A.p);
    net_proc_free(B.p);
    return 0;
}

void pump(void)
{
    net_progress(A.p);
    net_progress(B.p);
}

/* ---- ends by hand: what net_end.c and the inline functions of net.h do ------------------------------------------- */

void end_open(struct net_end *e, struct side *s, bool sending, int channel, uint64_t comm)
{
    memset(e, 0, sizeof *e);
    e->carrier = NET_TCP;
    e->sending = sending;
    e->channel = channel;
    e->peer = s == &A ? 1 : 0;
    e->next = 1;
    assert_int_equal(tcp_end_new(e, s->l, comm, s == &A ? 0 : 1, e->peer), UNO_OK);
}

bool can_send(struct net_end *e)
{
    if (e->mapped && e->next - 1 - e->freed < (uint32_t)e->k)
        return true;
    return tcp_end_ready(e);
}

static unsigned char pattern(uint32_t number, size_t i) { return (unsigned char)(number * 31 + i * 7 + (i >> 9)); }

void post(struct net_end *e, uint64_t bytes, uint32_t signature)
{
    struct net_slot *h = &e->heads[e->slot];
    unsigned char *to = (unsigned char *)e->payload + (size_t)e->slot * e->stride;
    for (uint64_t i = 0; i < bytes; i++)
        to[i] = pattern(e->next, i);
    h->bytes = bytes;
    h->aux = e->next * 3ull;
    h->kind = NET_SLOT_BYTES;
    atomic_store_explicit(&h->flag, net_flag(e->next, signature), memory_order_release);
    e->next++;
    e->slot = e->slot + 1 == e->k ? 0 : e->slot + 1;
    tcp_end_post(e);
}

enum net_arrival arrived(struct net_end *e, uint32_t signature)
{
    if (!e->mapped && !tcp_end_ready(e))
        return NET_NOT_YET;
    uint64_t flag = atomic_load_explicit(&e->heads[e->slot].flag, memory_order_acquire);
    if ((uint32_t)flag != e->next)
        return NET_NOT_YET;
    return (uint32_t)(flag >> 32) == signature ? NET_ARRIVED : NET_MISMATCH;
}

void check_and_release(struct net_end *e, uint64_t bytes)
{
    struct net_slot *h = &e->heads[e->slot];
    const unsigned char *p = (unsigned char *)e->payload + (size_t)e->slot * e->stride;
    assert_int_equal(h->bytes, bytes);
    assert_int_equal(h->aux, e->next * 3ull);
    assert_int_equal(h->kind, NET_SLOT_BYTES);
    size_t bad = 0;
    for (uint64_t i = 0; i < bytes; i++)
        bad += p[i] != pattern(e->next, i);
    assert_int_equal(bad, 0);
    atomic_store_explicit(e->released[0], e->next, memory_order_release);
    e->next++;
    e->slot = e->slot + 1 == e->k ? 0 : e->slot + 1;
    tcp_end_release(e);
}

uint64_t size_of(uint32_t number, uint32_t stride)
{
    return number % 5 == 0 ? 0 : number % 7 == 0 ? stride : number * 37u % (stride + 1);
}

void stream(struct net_end *tx, struct net_end *rx, uint32_t last)
{
    uint64_t end = clock_ns() + LIMIT_NS;
    while ((int32_t)(rx->next - last) <= 0 && clock_ns() < end) {
        if ((int32_t)(tx->next - last) <= 0 && can_send(tx))
            post(tx, size_of(tx->next, tx->stride), 5);
        if (arrived(rx, 5) == NET_ARRIVED)
            check_and_release(rx, size_of(rx->next, rx->stride));
        pump();
    }
    assert_int_equal(rx->next, last + 1);
}
