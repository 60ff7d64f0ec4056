/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_meet.c - where the ranks will meet. The agent of rank 0's host opens the listening socket and rank 0 inherits it, so that
 * no port is guessed and none can be taken in between; every other host finds out which of its addresses it can reach.
 */
#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int open_listener(int family, int port)
{
    struct sockaddr_storage addr = {.ss_family = (sa_family_t)family};
    socklen_t len = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (family == AF_INET6)
        ((struct sockaddr_in6 *)&addr)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&addr)->sin_port = htons((uint16_t)port);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0, on = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (struct sockaddr *)&addr, len) == 0 && listen(fd, 1024) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

int meet_listen(int port, int *bound_port, char *err, size_t err_bytes)
{
    int fd = open_listener(AF_INET6, port);
    if (fd < 0 && errno != EADDRINUSE)
        fd = open_listener(AF_INET, port);
    if (fd < 0) {
        if (errno == EADDRINUSE)
            snprintf(err, err_bytes, "port %d is in use on the host of rank 0; give another one with --port, or leave it out", port);
        else
            snprintf(err, err_bytes, "cannot listen on port %d for the joining of the ranks: %s", port, strerror(errno));
        return -1;
    }
    struct sockaddr_in6 got;
    socklen_t len = sizeof got;
    getsockname(fd, (struct sockaddr *)&got, &len);
    *bound_port = ntohs(got.sin6_port); /* at the same place for IPv4 */
    return fd;
}

int meet_free_port(void)
{
    char err[200];
    int port = 0, fd = meet_listen(0, &port, err, sizeof err);
    if (fd >= 0)
        close(fd);
    return port;
}

static bool usable(const struct ifaddrs *i)
{
    static const char *const never[] = {"docker", "virbr", "veth-", "br-", "cni", "flannel", "cali"};
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    if (i->ifa_addr->sa_family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
    for (size_t k = 0; k < sizeof never / sizeof *never; k++)
        if (strncmp(i->ifa_name, never[k], strlen(never[k])) == 0)
            return false;
    return i->ifa_addr->sa_family == AF_INET;
}

/* A namespace begins with its loopback interface down; what it keeps of addresses says nothing. */
static bool loopback_works(int family)
{
    struct ifaddrs *all = NULL;
    bool ok = false;
    if (getifaddrs(&all) != 0)
        return true; /* not known: let the ranks say it */
    for (struct ifaddrs *i = all; i; i = i->ifa_next)
        ok = ok || ((i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP) && i->ifa_addr && i->ifa_addr->sa_family == family);
    freeifaddrs(all);
    return ok;
}

char *meet_addresses(int port, bool only_here, size_t *bytes)
{
    char *buf = NULL, host[NI_MAXHOST];
    FILE *f = open_memstream(&buf, bytes);
    struct ifaddrs *all = NULL;
    if (!f)
        return NULL;
    if (!only_here && getifaddrs(&all) == 0)
        for (int family = 0; family < 2; family++) /* IPv4 first */
            for (struct ifaddrs *i = all; i; i = i->ifa_next) {
                bool six = i->ifa_addr && i->ifa_addr->sa_family == AF_INET6;
                socklen_t len = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
                if (!usable(i) || six != family || getnameinfo(i->ifa_addr, len, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
                    continue;
                fprintf(f, six ? "[%s]:%d" : "%s:%d", host, port);
                fputc(0, f);
            }
    if (all)
        freeifaddrs(all);
    if (only_here) {
        fprintf(f, loopback_works(AF_INET) ? "127.0.0.1:%d" : "[::1]:%d", port);
        fputc(0, f);
    }
    return fclose(f) == 0 ? buf : NULL;
}

static bool reach(const char *address, double seconds)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    if (!colon || (size_t)(colon - address) >= sizeof host)
        return false;
    bool brackets = address[0] == '[';
    snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * brackets, address + brackets);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *info = NULL;
    if (getaddrinfo(host, colon + 1, &hints, &info) != 0)
        return false;
    bool ok = false;
    for (struct addrinfo *a = info; a && !ok; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
        socklen_t len = sizeof err;
        if (fd < 0)
            continue;
        ok = connect(fd, a->ai_addr, a->ai_addrlen) == 0;
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (!ok && errno == EINPROGRESS && poll(&p, 1, (int)(seconds * 1000)) == 1)
            ok = getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0;
        close(fd);
    }
    freeaddrinfo(info);
    return ok;
}

const char *meet_choose(const char *list, size_t bytes, bool only_here, char *err, size_t err_bytes)
{
    if (!loopback_works(AF_INET) && !loopback_works(AF_INET6)) {
        snprintf(err, err_bytes, "the loopback interface is down here, so that ranks of one host cannot meet; `ip link set lo up` helps");
        return NULL;
    }
    if (only_here)
        return list; /* nothing to choose; rank 0's queue stays free of trials */
    for (size_t at = 0; at < bytes; at += strlen(list + at) + 1)
        if (reach(list + at, 2.0))
            return list + at;
    int used = snprintf(err, err_bytes, "it reaches the host of rank 0 at none of its addresses (");
    for (size_t at = 0; at < bytes && used < (int)err_bytes; at += strlen(list + at) + 1)
        used += snprintf(err + used, err_bytes - (size_t)used, "%s%s", at ? ", " : "", list + at);
    if (used < (int)err_bytes)
        snprintf(err + used, err_bytes - (size_t)used, "); open the port in the firewall, or choose one with --port");
    return NULL;
}
