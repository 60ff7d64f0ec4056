/* SPDX-License-Identifier: Apache-2.0 */
/* hosts_pair.c - a connection between two agents: there and back with little, then much one way; and the side that answers. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "hosts.h"

enum { ROUNDS = 20, PIECE = 256 << 10, MUCH = 32 << 20, CONNECT_MS = 2000, PATIENCE_MS = 1500, FEW_MS = 60 };

double hosts_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- bytes with patience ----------------------------------------------------------------------------------------------------------------- */

static bool wait_for(int fd, short what, int ms)
{
    struct pollfd p = {.fd = fd, .events = what};
    int n;
    while ((n = poll(&p, 1, ms)) < 0 && errno == EINTR)
        ;
    if (n == 0)
        errno = ETIMEDOUT;
    return n == 1;
}

/* *sent, where wanted, grows by what the kernel took, also when not all of it was. */
static bool send_counted(int fd, const void *data, size_t bytes, int64_t *sent)
{
    for (const char *p = data; bytes;) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_for(fd, POLLOUT, PATIENCE_MS))
                return false;
            continue;
        }
        if (n <= 0)
            return false;
        p += n, bytes -= (size_t)n;
        if (sent)
            *sent += n;
    }
    return true;
}

static bool send_all(int fd, const void *data, size_t bytes)
{
    return send_counted(fd, data, bytes, NULL);
}

static bool recv_all(int fd, void *data, size_t bytes)
{
    for (char *p = data; bytes;) {
        ssize_t n = recv(fd, p, bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_for(fd, POLLIN, PATIENCE_MS))
                return false;
            continue;
        }
        if (n == 0)
            errno = ECONNRESET;
        if (n <= 0)
            return false;
        p += n, bytes -= (size_t)n;
    }
    return true;
}

/* ---- the side that answers ------------------------------------------------------------------------------------------------------------------ */

struct served {
    int fd;
    char token[HOSTS_TOKEN];
};

static bool same_token(const char *a, const char *b)
{
    unsigned differ = 0;
    for (int i = 0; i < HOSTS_TOKEN; i++)
        differ |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return differ == 0;
}

/* Small messages come back; then a number of pieces, whose sum is told. */
static void answer(int fd, const char *token)
{
    char theirs[HOSTS_TOKEN], piece[16 << 10];
    uint64_t word, sum = 0;
    if (!recv_all(fd, theirs, sizeof theirs) || !same_token(theirs, token) || !send_all(fd, "k", 1))
        return;
    for (int i = 0; i < ROUNDS; i++)
        if (!recv_all(fd, &word, sizeof word) || !send_all(fd, &word, sizeof word))
            return;
    for (;;) {
        if (!wait_for(fd, POLLIN, PATIENCE_MS))
            return;
        ssize_t n = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            return;
        if (n == 0)
            break; /* the other side sends no more */
        sum += (uint64_t)n;
    }
    (void)send_all(fd, &sum, sizeof sum);
}

static void *serve_one(void *arg)
{
    struct served *s = arg;
    answer(s->fd, s->token);
    close(s->fd);
    free(s);
    return NULL;
}

static void *serve(void *arg)
{
    struct served *listener = arg;
    for (;;) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
            return NULL;
        struct served *s = fd >= 0 ? malloc(sizeof *s) : NULL;
        pthread_t t;
        if (s) {
            *s = *listener;
            s->fd = fd;
        }
        if (s && pthread_create(&t, NULL, serve_one, s) == 0) {
            pthread_detach(t);
        } else if (fd >= 0) {
            close(fd);
            free(s);
        }
    }
}

int pair_serve(const char *token)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (!good) { /* a host without IPv6 */
        if (fd >= 0)
            close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        good = fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof four) == 0;
    }
    static struct served listener;
    pthread_t t;
    listener.fd = fd;
    memcpy(listener.token, token, HOSTS_TOKEN);
    if (!good || listen(fd, 64) != 0 || getsockname(fd, (struct sockaddr *)&at, &size) != 0 || pthread_create(&t, NULL, serve, &listener) != 0)
        return -1;
    pthread_detach(t);
    return ntohs(at.sin6_port); /* at the same place in both */
}

/* ---- the side that measures -------------------------------------------------------------------------------------------------------------------- */

static int connect_to(const char *address, int port)
{
    char service[16];
    struct addrinfo *list = NULL, hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &list) != 0) {
        errno = EINVAL;
        return -1;
    }
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0, one = 1;
    socklen_t size = sizeof error;
    bool good = fd >= 0 && (connect(fd, list->ai_addr, list->ai_addrlen) == 0 || (errno == EINPROGRESS && wait_for(fd, POLLOUT, CONNECT_MS)));
    freeaddrinfo(list);
    if (good && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        return fd;
    }
    int why = error ? error : errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return -1;
}

int hosts_by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool little(int fd, double *ms)
{
    double took[ROUNDS];
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t back;
        double t0 = hosts_now_ms();
        if (!send_all(fd, &i, sizeof i) || !recv_all(fd, &back, sizeof back))
            return false;
        took[i] = (hosts_now_ms() - t0) / 2;
    }
    qsort(took, ROUNDS, sizeof *took, hosts_by_size);
    *ms = took[ROUNDS / 2];
    return true;
}

/* Bytes of `sent` that the other kernel has acknowledged. */
static int64_t arrived(int fd, int64_t sent)
{
    int waiting = 0;
    return ioctl(fd, SIOCOUTQ, &waiting) == 0 ? sent - waiting : sent;
}

/* As much as goes in FEW_MS, at most MUCH, at least a piece. True when all of it was acknowledged by the program at the other end. */
static bool much(int fd, double *gbs, int64_t *stuck)
{
    char *piece = calloc(1, PIECE);
    int64_t sent = 0;
    uint64_t got = 0;
    bool good = piece != NULL;
    double t0 = hosts_now_ms();
    while (good && sent < MUCH && (sent == 0 || hosts_now_ms() - t0 < FEW_MS))
        good = send_counted(fd, piece, PIECE, &sent);
    free(piece);
    good = good && shutdown(fd, SHUT_WR) == 0 && recv_all(fd, &got, sizeof got) && got == (uint64_t)sent;
    double took = hosts_now_ms() - t0;
    if (good)
        *gbs = (double)sent / took / 1e6;
    else
        *stuck = arrived(fd, sent);
    return good;
}

static void path_facts(int fd, json_t *to)
{
    struct tcp_info i = {0};
    socklen_t size = sizeof i;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &size) != 0)
        return;
    json_object_set_new(to, "mtu", json_integer(i.tcpi_pmtu));
    json_object_set_new(to, "retransmits", json_integer(i.tcpi_total_retrans));
}

json_t *pair_measure(const char *address, int port, const char *token)
{
    json_t *a = json_object();
    int fd = connect_to(address, port);
    char yes = 0;
    double ms = 0, gbs = 0;
    int64_t stuck = -1;
    bool known = fd >= 0 && send_all(fd, token, HOSTS_TOKEN) && recv_all(fd, &yes, 1) && little(fd, &ms), all = known && much(fd, &gbs, &stuck);
    const char *why = all ? "" : fd >= 0 && errno == ECONNRESET && !yes ? "who answers there is no agent of this run" : strerror(errno);
    json_object_set_new(a, "connected", json_boolean(known));
    json_object_set_new(a, "error", json_string(why));
    json_object_set_new(a, "ms", json_real(ms));
    json_object_set_new(a, "gbs", json_real(gbs));
    json_object_set_new(a, "stuck", json_integer(stuck));
    if (fd >= 0) {
        path_facts(fd, a);
        close(fd);
    }
    return a;
}
