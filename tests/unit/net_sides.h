/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_sides.h - the TCP carrier by itself: two net_procs in this process over 127.0.0.1, ends made by hand. Most tests drive
 * both sides from one thread, so that what happens between two rounds is decided there.
 */
#ifndef UNO_TEST_NET_SIDES_H
#define UNO_TEST_NET_SIDES_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/net_tcp_inner.h"

#define LIMIT_NS 20000000000ull

struct heard { int controls, downs; enum net_down how; uint32_t last; size_t last_bytes; bool disorder; char text[512]; };
struct side { struct net_proc *p; struct net_link *l; struct heard heard; struct config cfg; };
extern struct side A, B;

struct auth_key key_of(const char *secret);
void side_open_family(struct side *s, int self, int family);
void side_open(struct side *s, int self);
void join(void);  /* each learns the other's addresses */
int setup(void **state);
int teardown(void **state);
void pump(void);  /* one round of both */
#define PUMP_UNTIL(cond)                                   \
    do {                                                   \
        uint64_t end_ = clock_ns() + LIMIT_NS;             \
        while (!(cond) && clock_ns() < end_)               \
            pump();                                        \
        assert_true(cond);                                 \
    } while (0)

/* ---- ends by hand: what net_end.c and the inline functions of net.h do ------------------------------------------- */
void end_open(struct net_end *e, struct side *s, bool sending, int channel, uint64_t comm);
bool can_send(struct net_end *e);
void post(struct net_end *e, uint64_t bytes, uint32_t signature);
enum net_arrival arrived(struct net_end *e, uint32_t signature);
void check_and_release(struct net_end *e, uint64_t bytes);
uint64_t size_of(uint32_t number, uint32_t stride); /* of message `number` in a stream */
void stream(struct net_end *tx, struct net_end *rx, uint32_t last); /* send and receive until both have passed message `last` */

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
