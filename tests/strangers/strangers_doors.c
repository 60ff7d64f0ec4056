/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strangers_doors.c - attackers of the sockets at which stewards serve tools (watch_door.h): of the same user they hold places, say what
 * is no question, ask and do not read; other users do the same, and must not get a byte.
 */
#include "strangers.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "watch/watch_door.h"

#define NOBODY 65534
#define HELD 24
#define NAMES 3 /* a rank that joins once more has a second door for a while */

static uint32_t owner; /* of the job */

static int knock(struct ground *g, struct rng *r)
{
    struct sockaddr_un a;
    socklen_t len = door_address(&a, owner, g->ranks[rng_below(r, RANKS)], rng_below(r, 3) ? 0 : (int)rng_below(r, NAMES));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, len) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void hold_places(struct ground *g, enum attack kind, struct rng *r)
{
    int fds[HELD];
    for (int i = 0; i < HELD; i++) {
        fds[i] = knock(g, r);
        atomic_fetch_add(&g->tried[kind], fds[i] >= 0);
    }
    poll(NULL, 0, (int)rng_below(r, 1500));
    for (int i = 0; i < HELD; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void put_ask(unsigned char *buf, struct rng *r)
{
    struct door_ask ask = {.magic = DOOR_MAGIC, .version = DOOR_VERSION};
    if (rng_below(r, 2))
        ask.token[0] = rng_next(r);
    if (rng_below(r, 4) == 0)
        ask.version = (uint32_t)rng_next(r);
    memcpy(buf, &ask, sizeof ask);
}

static void say_something(struct ground *g, enum attack kind, enum attack as, struct rng *r)
{
    unsigned char buf[4096], got[512];
    int fd = knock(g, r);
    if (fd < 0)
        return;
    atomic_fetch_add(&g->tried[kind], 1);
    size_t bytes = rng_below(r, 3) ? sizeof(struct door_ask) : 1 + rng_below(r, sizeof buf - 1);
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (unsigned char)rng_next(r);
    if (rng_below(r, 4) && bytes >= sizeof(struct door_ask))
        put_ask(buf, r);
    bool reads = rng_below(r, 2), goes_on = true;
    for (uint64_t n = rng_below(r, 3) ? 1 : rng_below(r, 200); n > 0 && goes_on; n--) {
        goes_on = send(fd, buf, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN;
        if (reads && as == ATTACK_TOOLS)
            (void)!recv(fd, got, sizeof got, MSG_DONTWAIT);
    }
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (as == ATTACK_USERS && poll(&p, 1, 100) > 0 && recv(fd, got, sizeof got, MSG_DONTWAIT) > 0) {
        fprintf(stderr, "strangers: another user was answered\n");
        abort();
    }
    close(fd);
}

void attack_doors(struct ground *g, enum attack kind, struct rng *r)
{
    enum attack as = kind;
    owner = (uint32_t)geteuid();
    if (kind == ATTACK_USERS && (geteuid() != 0 || setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        as = ATTACK_TOOLS; /* nobody else can be had */
    while (!atomic_load(&g->stop)) {
        if (rng_below(r, 20) == 0)
            hold_places(g, kind, r);
        else
            say_something(g, kind, as, r);
        if (rng_below(r, 4) == 0)
            poll(NULL, 0, (int)rng_below(r, 20));
    }
}
