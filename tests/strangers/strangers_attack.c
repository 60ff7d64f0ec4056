/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strangers_attack.c - attackers, each a process that goes on until it is told to stop. All but the outsider know no secret.
 */
#include "strangers.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HELD 1500 /* connections at a time, fewer where descriptors are fewer */

static const char *const names[ATTACKS] = {"idle connections", "one byte a second", "noise", "wrong secrets", "crowds", "outsiders with the secret", "tools that are none", "other users"};

const char *attack_name(enum attack a)
{
    return names[a];
}

/* ---- ports ----------------------------------------------------------------------------------------------------------- */

static bool holds(const pid_t *pids, int npids, unsigned long inode)
{
    char path[64], target[64], want[64];
    bool found = false;
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    for (int i = 0; i < npids && !found; i++) {
        snprintf(path, sizeof path, "/proc/%d/fd", (int)pids[i]);
        DIR *d = opendir(path);
        for (struct dirent *e; d && !found && (e = readdir(d));) {
            ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
            target[MAX(n, 0)] = 0;
            found = strcmp(target, want) == 0;
        }
        if (d)
            closedir(d);
    }
    return found;
}

int listening_ports(const pid_t *pids, int npids, uint16_t *ports, int most)
{
    static const char *const files[] = {"/proc/net/tcp6", "/proc/net/tcp"};
    char line[512];
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        FILE *f = fopen(files[i], "re");
        while (f && n < most && fgets(line, sizeof line, f)) {
            unsigned port, state;
            unsigned long inode;
            if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu", &port, &state, &inode) == 3 && state == 10 &&
                holds(pids, npids, inode))
                ports[n++] = (uint16_t)port;
        }
        if (f)
            fclose(f);
    }
    return n;
}

static uint16_t some_port(struct ground *g, struct rng *r)
{
    int n = atomic_load(&g->nports);
    return n ? atomic_load(&g->ports[rng_below(r, (uint64_t)n)]) : 0;
}

/* ---- connections ------------------------------------------------------------------------------------------------------- */

static struct sock_addr loopback(uint16_t port)
{
    struct sock_addr a = {.len = sizeof a.u.in};
    a.u.in.sin_family = AF_INET;
    a.u.in.sin_port = htons(port);
    a.u.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

int attack_connect(uint16_t port)
{
    struct sock_addr to = loopback(port);
    int fd = -1;
    return port && sock_connect_start(&to, NULL, &fd) == UNO_OK ? fd : -1;
}

uno_err attack_shake(int fd, const struct auth_key *key, const struct auth_hello *hello)
{
    struct auth_session s;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    poll(&p, 1, 2000);
    auth_start(&s, key, true);
    s.hello = *hello;
    return auth_run(&s, fd, clock_after(2));
}

int attack_enter(uint16_t port, const struct auth_key *key, const struct auth_hello *hello)
{
    for (int tries = 0; tries < 5; tries++) { /* a busy machine may need longer than a handshake is given */
        int fd = attack_connect(port);
        if (fd >= 0 && attack_shake(fd, key, hello) == UNO_OK)
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

static void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

static int connections(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return 100;
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    return l.rlim_cur > HELD + 50 ? HELD : (int)l.rlim_cur - 50;
}

/* Has the other side ended it? */
static bool ended(int fd)
{
    char c[256];
    ssize_t n = recv(fd, c, sizeof c, 0);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* ---- attacks --------------------------------------------------------------------------------------------------------------- */

/* As many as there are descriptors for; those that are closed come again. slow: each says one byte a second of what a handshake begins with. */
static void hold(struct ground *g, enum attack kind, struct rng *r)
{
    static const unsigned char start[] = {0x55, 0x4e, 0x49, 0x4f, 1, 0, 2, 0};
    struct { int fd; size_t said; } *held;
    int n = connections();
    held = mem_array((size_t)n, sizeof *held);
    for (int i = 0; held && i < n; i++)
        held[i].fd = -1;
    for (uint64_t next = 0; held && !atomic_load(&g->stop);) {
        uint64_t now = clock_ns();
        bool say = kind == ATTACK_SLOW && now >= next;
        if (say)
            next = now + 1000000000u;
        for (int i = 0; i < n; i++) {
            if (held[i].fd >= 0 && ended(held[i].fd)) {
                close(held[i].fd);
                held[i].fd = -1;
            }
            if (held[i].fd < 0 && (held[i].fd = attack_connect(some_port(g, r))) >= 0) {
                held[i].said = 0;
                atomic_fetch_add(&g->tried[kind], 1);
            }
            if (say && held[i].fd >= 0) {
                unsigned char c = held[i].said < sizeof start ? start[held[i].said] : 0;
                held[i].said += send(held[i].fd, &c, 1, MSG_NOSIGNAL) == 1;
            }
        }
        pause_ms(50);
    }
}

static void put_hello(unsigned char *buf, struct rng *r)
{
    struct auth_hello h = {.magic = AUTH_MAGIC, .version = AUTH_VERSION, .role = (uint16_t)(1 + rng_below(r, 4)), .job = rng_next(r), .from = (int)rng_below(r, 4),
                           .to = (int)rng_below(r, 4)};
    memcpy(buf, &h, sizeof h);
}

/* One connection that says something wrong, and ends in one of several ways. */
static void make_noise(struct ground *g, struct rng *r)
{
    static unsigned char buf[1 << 16];
    int fd = attack_connect(some_port(g, r));
    if (fd < 0)
        return;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    poll(&p, 1, 1000);
    atomic_fetch_add(&g->tried[ATTACK_NOISE], 1);
    size_t bytes = rng_below(r, 4) ? rng_below(r, 300) : rng_below(r, sizeof buf);
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (unsigned char)rng_next(r);
    uint64_t kind = rng_below(r, 6);
    if (kind > 0)
        put_hello(buf, r);
    if (kind == 1) /* a handshake with a wrong byte or two */
        for (int i = 0; i < 2; i++)
            buf[rng_below(r, sizeof(struct auth_hello))] = (unsigned char)rng_next(r);
    if (kind == 2)
        bytes = rng_below(r, sizeof(struct auth_hello)); /* cut */
    if (kind >= 3)
        bytes = sizeof(struct auth_hello); /* whole, then what is no proof, or nothing */
    (void)!send(fd, buf, bytes, MSG_NOSIGNAL);
    if (kind >= 3) {
        p.events = POLLIN;
        poll(&p, 1, 100);
        (void)!recv(fd, buf + 1024, 48, 0);
    }
    if (kind == 3)
        (void)!send(fd, buf + 1024, 32, MSG_NOSIGNAL);
    if (kind == 4)
        (void)!send(fd, buf, sizeof buf, MSG_NOSIGNAL);
    if (kind == 2)
        shutdown(fd, SHUT_WR);
    if (rng_below(r, 2)) { /* RST instead of FIN */
        struct linger l = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    }
    if (rng_below(r, 20) == 0)
        pause_ms(100);
    close(fd);
}

static void guess_secret(struct ground *g, struct rng *r)
{
    struct auth_key key = {.none = rng_below(r, 8) == 0};
    uint64_t job;
    struct auth_key right;
    for (size_t i = 0; i < sizeof key.secret; i++)
        key.secret[i] = (unsigned char)rng_next(r);
    boot_id_key(&g->id, &right, &job);
    int fd = attack_connect(some_port(g, r));
    if (fd < 0)
        return;
    atomic_fetch_add(&g->tried[ATTACK_SECRET], 1);
    struct auth_hello h = {.role = (uint16_t)(1 + rng_below(r, 3)), .job = job, .from = 1, .to = 0};
    if (attack_shake(fd, &key, &h) == UNO_OK) {
        fprintf(stderr, "strangers: a handshake with a wrong secret was accepted\n");
        abort();
    }
    close(fd);
}

/* Many at once, closed at once or soon. */
static void crowd(struct ground *g, struct rng *r)
{
    enum { AT_ONCE = 200 };
    int fds[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        fds[i] = attack_connect(some_port(g, r));
        atomic_fetch_add(&g->tried[ATTACK_CROWD], fds[i] >= 0);
    }
    if (rng_below(r, 2))
        pause_ms((int)rng_below(r, 200));
    for (int i = 0; i < AT_ONCE; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pause_ms(50);
}

/* Knows the secret and is nobody of the job, or looks for somebody else, or says nothing after the handshake. */
static void come_from_outside(struct ground *g, struct rng *r)
{
    struct auth_key key;
    uint64_t job;
    unsigned char buf[4096];
    uint64_t kind = rng_below(r, 6);
    boot_id_key(&g->id, &key, &job);
    struct auth_hello h = {.role = AUTH_DATA, .job = job, .from = 1, .to = 0, .connection = (uint32_t)rng_next(r)};
    switch (kind) {
    case 0: h.job++; break;
    case 1: h.from = RANKS + (int)rng_below(r, 1 << 20); break;
    case 2: h.from = -(int)rng_below(r, 1 << 20); break;
    case 3: h.to = RANKS + (int)rng_below(r, 1000); break;
    case 4: h.from = INT32_MAX; break;
    default: h.role = (uint16_t)(AUTH_INQUIRY + rng_below(r, 1000)); break;
    }
    int fd = attack_connect(some_port(g, r));
    if (fd < 0)
        return;
    atomic_fetch_add(&g->tried[ATTACK_OUTSIDER], 1);
    if (attack_shake(fd, &key, &h) == UNO_OK) {
        for (size_t i = 0; i < sizeof buf; i++)
            buf[i] = (unsigned char)rng_next(r);
        if (rng_below(r, 2))
            (void)!send(fd, buf, sizeof buf, MSG_NOSIGNAL);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, 20);
    }
    close(fd);
}

void attack_run(struct ground *g, enum attack a, uint64_t seed)
{
    struct rng r;
    rng_seed(&r, hash_mix(seed, (uint64_t)a));
    while (!atomic_load(&g->stop) && !atomic_load(&g->nports))
        pause_ms(10);
    if (a == ATTACK_IDLE || a == ATTACK_SLOW)
        hold(g, a, &r);
    if (a == ATTACK_TOOLS || a == ATTACK_USERS)
        attack_doors(g, a, &r);
    while (!atomic_load(&g->stop))
        switch (a) {
        case ATTACK_NOISE: make_noise(g, &r); break;
        case ATTACK_SECRET: guess_secret(g, &r); break;
        case ATTACK_CROWD: crowd(g, &r); break;
        default: come_from_outside(g, &r); break;
        }
}
