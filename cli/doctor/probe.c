/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - shared memory is written, connections go both ways, ports are free, four ranks add up. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "interfaces.h"
#include "unisono.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void broken(struct machine *m, const char *name, const char *what, const char *advice)
{
    struct check *c = machine_check(m, CHECK_BAD, name, "%s: %s", what, strerror(errno));
    snprintf(c->advice, sizeof c->advice, "%s", advice);
}

static void shared_memory(struct machine *m)
{
    enum { BYTES = 4 << 20 };
    int fd = memfd_create("unisono doctor", MFD_CLOEXEC);
    char *p = fd >= 0 && ftruncate(fd, BYTES) == 0 ? mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p == MAP_FAILED) {
        broken(m, "shared memory", "a memfd cannot be made or mapped", "a memory limit, or a seccomp filter of the container");
    } else {
        double t0 = now();
        memset(p, 1, BYTES);
        machine_check(m, CHECK_GOOD, "shared memory", "4 MiB made, mapped and written in %.1f ms", (now() - t0) * 1e3);
        munmap(p, BYTES);
    }
    if (fd >= 0)
        close(fd);
}

/* One byte each way over a connection to one of our own addresses, to a port that the kernel chooses. */
static bool there_and_back(int a, int b)
{
    char c = 'u';
    struct pollfd wait[2] = {{.fd = b, .events = POLLIN}, {.fd = a, .events = POLLIN}};
    return send(a, &c, 1, MSG_NOSIGNAL) == 1 && poll(&wait[0], 1, 1000) == 1 && recv(b, &c, 1, 0) == 1 && send(b, &c, 1, MSG_NOSIGNAL) == 1 && poll(&wait[1], 1, 1000) == 1 && recv(a, &c, 1, 0) == 1;
}

/* A packet that is dropped is never answered, so the kernel's patience must not be ours. */
static bool connect_soon(int fd, const struct sockaddr_in *at)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) == 0)
        return true;
    if (errno != EINPROGRESS)
        return false;
    if (poll(&wait, 1, 1000) != 1) {
        errno = ETIMEDOUT;
        return false;
    }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    return error == 0;
}

static void connection(struct machine *m, const char *name, struct in_addr ip, const char *advice)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = ip};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), from = -1;
    double t0 = now();
    bool good = listener >= 0 && to >= 0 && bind(listener, (struct sockaddr *)&at, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &size) == 0 &&
                connect_soon(to, &at) && (from = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 && there_and_back(to, from);
    if (good)
        machine_check(m, CHECK_GOOD, name, "made, and a byte went both ways, in %.2f ms", (now() - t0) * 1e3);
    else
        broken(m, name, "it cannot be made or used", advice);
    int all[] = {listener, to, from};
    for (int i = 0; i < 3; i++)
        if (all[i] >= 0)
            close(all[i]);
}

static void connections(struct machine *m)
{
    struct interface v[INTERFACES];
    int n = interfaces_of("", v);
    struct choice c = interface_choice(LIBRARY_UNISONO, v, n);
    connection(m, "loopback connection", (struct in_addr){htonl(INADDR_LOOPBACK)}, "is lo up, and does a firewall filter it?");
    if (c.n && !v[c.chosen[0]].loopback && v[c.chosen[0]].ip) {
        char name[40];
        snprintf(name, sizeof name, "connection over %s", v[c.chosen[0]].name);
        connection(m, name, (struct in_addr){v[c.chosen[0]].ip}, "ranks of one host meet at that address, too: does a firewall filter it?");
    }
}

static void port_range(struct machine *m)
{
    char line[64], counts[256];
    int from, to, used = 0, waiting = 0;
    if (!kernel_line("", line, sizeof line, "/proc/sys/net/ipv4/ip_local_port_range") || sscanf(line, "%d %d", &from, &to) != 2)
        return;
    if (kernel_field("", "/proc/net/sockstat", "TCP", counts, sizeof counts)) {
        const char *tw = strstr(counts, "tw ");
        used = strncmp(counts, "inuse ", 6) == 0 ? atoi(counts + 6) : 0;
        waiting = tw ? atoi(tw + 3) : 0;
    }
    bool few = to - from < 4000 || used + waiting > (to - from) / 2;
    struct check *c = machine_check(m, few ? CHECK_NOTE : CHECK_GOOD, "ports for connections", "%d to %d, %d in use; firewalls between hosts must let them through", from, to, used + waiting);
    if (few)
        machine_advise(c, "few: `sudo sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\"`; what uses them: `ss -tan`");
}

/* ---- four ranks of this process add up --------------------------------------------------------------------------------------------- */

enum { RANKS = 4, COUNT = 1000 };

struct rank {
    uno_comm *comm;
    uno_err err;
    char why[160];
    int wrong;
};

static void *add_up(void *arg)
{
    struct rank *r = arg;
    float mine[COUNT], sum[COUNT];
    int rank = uno_comm_rank(r->comm);
    for (int i = 0; i < COUNT; i++)
        mine[i] = (float)(rank + i);
    r->err = uno_all_reduce(mine, sum, COUNT, UNO_FLOAT32, UNO_SUM, r->comm, NULL);
    if (r->err != UNO_OK)
        snprintf(r->why, sizeof r->why, "%s", uno_last_error(r->comm));
    for (int i = 0; r->err == UNO_OK && i < COUNT; i++)
        r->wrong += sum[i] != (float)(6 + 4 * i); /* 0+1+2+3, and i four times */
    return NULL;
}

static void collective(struct machine *m)
{
    uno_comm *comms[RANKS] = {0};
    struct rank ranks[RANKS] = {0};
    pthread_t threads[RANKS];
    double t0 = now();
    if (uno_comm_init_all(comms, RANKS, NULL) != UNO_OK) {
        struct check *c = machine_check(m, CHECK_BAD, "a collective of 4 ranks", "cannot begin");
        snprintf(c->advice, sizeof c->advice, "%s", uno_last_error(NULL));
        return;
    }
    int started = 0, wrong = 0;
    const char *why = "";
    for (int i = 0; i < RANKS; i++)
        ranks[i].comm = comms[i];
    while (started < RANKS && pthread_create(&threads[started], NULL, add_up, &ranks[started]) == 0)
        started++;
    for (int i = started; i < RANKS; i++)
        uno_comm_abort(comms[i]);
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        wrong += ranks[i].wrong;
        why = ranks[i].err != UNO_OK ? ranks[i].why : why;
    }
    bool good = started == RANKS && !wrong && !*why;
    struct check *c = machine_check(m, good ? CHECK_GOOD : CHECK_BAD, "a collective of 4 ranks", good ? "begun, added up, right, in %.0f ms" : "failed after %.0f ms", (now() - t0) * 1e3);
    if (!good)
        snprintf(c->advice, sizeof c->advice, "%s", *why ? why : wrong ? "the sums are wrong" : "threads cannot be started: ulimit -u, pids.max");
    for (int i = 0; i < RANKS; i++)
        if (uno_comm_destroy(comms[i]) != UNO_OK)
            return;
}

void probe_all(struct machine *m)
{
    shared_memory(m);
    connections(m);
    port_range(m);
    collective(m);
}
