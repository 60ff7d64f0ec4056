/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sock.c - sockets as boot and net need them: addresses as text, listen, connect, exact reads and writes with a deadline.
 * Which interfaces are worth using is sock_iface.c. Knows nothing of ranks or frames.
 */
#include "base_sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RETRY_FIRST_NS 1000000ull  /* refused connects are tried again soon: the peer is usually about to listen */
#define RETRY_LAST_NS 50000000ull

static uint16_t port_of(const struct sock_addr *a)
{
    return ntohs(a->u.sa.sa_family == AF_INET6 ? a->u.in6.sin6_port : a->u.in.sin_port);
}

char *sock_text(const struct sock_addr *a, char *buf, size_t buf_bytes)
{
    char host[INET6_ADDRSTRLEN] = "?", scope[IF_NAMESIZE + 1] = "";
    if (a->u.sa.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a->u.in.sin_addr, host, sizeof host);
        snprintf(buf, buf_bytes, "%s:%u", host, port_of(a));
    } else if (a->u.sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->u.in6.sin6_addr)) {
        inet_ntop(AF_INET, &a->u.in6.sin6_addr.s6_addr[12], host, sizeof host);
        snprintf(buf, buf_bytes, "%s:%u", host, port_of(a));
    } else if (a->u.sa.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->u.in6.sin6_addr, host, sizeof host);
        char name[IF_NAMESIZE];
        if (a->u.in6.sin6_scope_id && if_indextoname(a->u.in6.sin6_scope_id, name))
            snprintf(scope, sizeof scope, "%%%s", name);
        snprintf(buf, buf_bytes, "[%s%s]:%u", host, scope, port_of(a));
    } else {
        snprintf(buf, buf_bytes, "a local socket");
    }
    return buf;
}

static char *peer_text(int fd, char *buf, size_t buf_bytes)
{
    struct sock_addr a = {.len = sizeof a.u};
    if (getpeername(fd, &a.u.sa, &a.len) != 0)
        a.u.sa.sa_family = AF_UNSPEC;
    if (a.u.sa.sa_family != AF_INET && a.u.sa.sa_family != AF_INET6)
        snprintf(buf, buf_bytes, "the peer");
    else
        sock_text(&a, buf, buf_bytes);
    return buf;
}

/* Split "host:port" and "[v6]:port" into two strings. */
static uno_err split_address(const char *s, char host[256], const char **port)
{
    const char *colon = strrchr(s, ':'), *start = s, *end = colon;
    if (s[0] == '[') {
        start = s + 1;
        end = strchr(s, ']');
        colon = end && end[1] == ':' ? end + 1 : NULL;
    } else if (colon && strchr(s, ':') != colon) {
        return err_set(UNO_ERR_PARSE, "\"%.80s\" has more than one colon; write an IPv6 address as [address]:port", s);
    }
    if (!colon || end == start || end - start > 255 || !colon[1])
        return err_set(UNO_ERR_PARSE, "\"%.80s\" is not an address; write host:port or [address]:port", s);
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = 0;
    *port = colon + 1;
    return UNO_OK;
}

uno_err sock_parse(const char *s, struct sock_addr *a)
{
    char host[256];
    const char *port = NULL;
    int64_t number;
    TRY(split_address(s, host, &port));
    if (text_parse_int(port, 0, 65535, &number) != UNO_OK)
        return err_set(UNO_ERR_PARSE, "\"%.80s\" has no port from 0 to 65535 after the last colon", s);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc == EAI_MEMORY)
        return err_set(UNO_ERR_MEMORY, "no memory to look up host \"%.80s\"", host);
    if (rc != 0)
        return err_set(UNO_ERR_UNREACHABLE, "host \"%.80s\" cannot be resolved: %s; check the name or give an address", host,
                       rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    uno_err err = UNO_ERR_UNREACHABLE;
    for (struct addrinfo *f = found; f && err != UNO_OK; f = f->ai_next)
        if (f->ai_family == AF_INET || f->ai_family == AF_INET6) {
            memset(a, 0, sizeof *a);
            memcpy(&a->u, f->ai_addr, f->ai_addrlen);
            a->len = f->ai_addrlen;
            err = UNO_OK;
        }
    freeaddrinfo(found);
    return err == UNO_OK ? err : err_set(err, "host \"%.80s\" has no IPv4 or IPv6 address", host);
}

uno_err sock_tune(int fd)
{
    int on = 1, flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return err_sys("cannot make a socket non-blocking");
    /* Local sockets have neither; that is no fault. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    return UNO_OK;
}

static int new_socket(int family)
{
    if (fault_hit("socket")) {
        errno = EMFILE;
        return -1;
    }
    return fd_above_standard(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/* Bind and listen on all addresses of one family; errno says why not. */
static int listen_family(int family, uint16_t port)
{
    int fd = new_socket(family), on = 1, off = 0;
    if (fd < 0)
        return -1;
    struct sock_addr a = {0};
    a.u.sa.sa_family = (sa_family_t)family;
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        a.u.in6.sin6_addr = in6addr_any;
        a.u.in6.sin6_port = htons(port);
        a.len = sizeof a.u.in6;
    } else {
        a.u.in.sin_port = htons(port);
        a.len = sizeof a.u.in;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &a.u.sa, a.len) == 0 && listen(fd, 4096) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

uno_err sock_listen(uint16_t want_port, int *fd, uint16_t *port)
{
    int s = listen_family(AF_INET6, want_port);
    if (s < 0 && errno != EADDRINUSE && errno != EMFILE && errno != ENFILE)
        s = listen_family(AF_INET, want_port); /* a host without IPv6 */
    if (s < 0)
        return want_port ? err_sys("cannot listen on port %u", want_port) : err_sys("cannot listen on any port");
    struct sock_addr a = {.len = sizeof a.u};
    if (getsockname(s, &a.u.sa, &a.len) != 0) {
        uno_err err = err_sys("cannot read the port of a listening socket");
        close(s);
        return err;
    }
    *port = port_of(&a);
    *fd = s;
    return UNO_OK;
}

uno_err sock_connect_start(const struct sock_addr *to, const struct sock_addr *from, int *fd)
{
    char text[SOCK_TEXT_BYTES], mine[SOCK_TEXT_BYTES];
    int s = new_socket(to->u.sa.sa_family), on = 1;
    if (s < 0)
        return err_sys("cannot open a socket to %s", sock_text(to, text, sizeof text));
    uno_err err = sock_tune(s);
    if (err == UNO_OK && from) {
        setsockopt(s, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        if (bind(s, &from->u.sa, from->len) != 0)
            err = err_sys("cannot bind to the local address %s", sock_text(from, mine, sizeof mine));
    }
    if (err == UNO_OK && connect(s, &to->u.sa, to->len) != 0 && errno != EINPROGRESS) {
        int saved = errno;
        err = err_set(UNO_ERR_UNREACHABLE, "cannot connect to %s: %s", sock_text(to, text, sizeof text), strerror(saved));
        errno = saved;
    }
    if (err != UNO_OK) {
        int saved = errno;
        close(s);
        errno = saved;
        return err;
    }
    *fd = s;
    return UNO_OK;
}

/* Milliseconds until the deadline for poll(), rounded up; -1 = for ever. */
static int poll_ms(uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX)
        return -1;
    uint64_t now = clock_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now + 999999) / 1000000;
    return ms > 1000000000 ? 1000000000 : (int)ms;
}

/* Wait for `events`; false when the deadline has passed. */
static bool wait_for(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, poll_ms(deadline_ns));
        if (n > 0)
            return true;
        if (clock_ns() >= deadline_ns)
            return false;
    }
}

bool sock_met_itself(int fd)
{
    struct sock_addr a = {.len = sizeof a.u}, b = {.len = sizeof b.u};
    return getsockname(fd, &a.u.sa, &a.len) == 0 && getpeername(fd, &b.u.sa, &b.len) == 0 && a.len == b.len &&
           memcmp(&a.u, &b.u, a.len) == 0;
}

/* One attempt. Returns 0 or the errno of the connect; other failures have err_set and return -1. */
static int connect_once(const struct sock_addr *to, uint64_t deadline_ns, int *fd)
{
    int s, soerr = 0;
    socklen_t len = sizeof soerr;
    uno_err err = sock_connect_start(to, NULL, &s);
    if (err != UNO_OK)
        return err == UNO_ERR_UNREACHABLE ? errno : -1;
    if (!wait_for(s, POLLOUT, deadline_ns))
        soerr = ETIMEDOUT;
    else if (getsockopt(s, SOL_SOCKET, SO_ERROR, &soerr, &len) == 0 && soerr == 0 && sock_met_itself(s))
        soerr = ECONNREFUSED;
    if (soerr) {
        close(s);
        return soerr;
    }
    *fd = s;
    return 0;
}

/* Errors that another try may not meet again: the peer starts later, a network comes up. */
static bool may_pass(int why)
{
    return why == ECONNREFUSED || why == ECONNRESET || why == ETIMEDOUT || why == EHOSTUNREACH || why == ENETUNREACH ||
           why == ENETDOWN || why == EADDRNOTAVAIL || why == EAGAIN;
}

uno_err sock_connect(const struct sock_addr *to, uint64_t deadline_ns, int *fd)
{
    char text[SOCK_TEXT_BYTES];
    uint64_t start = clock_ns(), pause = RETRY_FIRST_NS;
    for (;;) {
        int why = connect_once(to, deadline_ns, fd);
        if (why == 0)
            return UNO_OK;
        if (why < 0)
            return UNO_ERR_SYSTEM;
        uint64_t now = clock_ns();
        if (!may_pass(why) || now >= deadline_ns || deadline_ns - now <= pause)
            return err_set(UNO_ERR_UNREACHABLE, "cannot connect to %s within %.1f s: %s", sock_text(to, text, sizeof text),
                           (double)(now - start) / 1e9, strerror(why));
        struct timespec ts = {.tv_nsec = (long)pause};
        nanosleep(&ts, NULL);
        pause = MIN(pause * 2, RETRY_LAST_NS);
    }
}

static uno_err io_failed(int fd, const char *verb, size_t done, size_t bytes)
{
    char text[SOCK_TEXT_BYTES];
    int saved = errno;
    return err_set(UNO_ERR_UNREACHABLE, "%s %s failed after %zu of %zu bytes: %s", verb,
                   peer_text(fd, text, sizeof text), done, bytes, strerror(saved));
}

static uno_err io_late(int fd, const char *verb, size_t done, size_t bytes)
{
    char text[SOCK_TEXT_BYTES];
    return err_set(UNO_ERR_TIMEOUT, "%s %s: the deadline passed after %zu of %zu bytes", verb,
                   peer_text(fd, text, sizeof text), done, bytes);
}

uno_err sock_send_all(int fd, const void *data, size_t bytes, uint64_t deadline_ns)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            return io_failed(fd, "sending to", done, bytes);
        else if (n < 0 && errno == EAGAIN && !wait_for(fd, POLLOUT, deadline_ns))
            return io_late(fd, "sending to", done, bytes);
    }
    return UNO_OK;
}

uno_err sock_recv_all(int fd, void *data, size_t bytes, uint64_t deadline_ns)
{
    char text[SOCK_TEXT_BYTES];
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(fd, (char *)data + done, bytes - done, 0);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return err_set(UNO_ERR_UNREACHABLE, "%s ended the connection after %zu of %zu bytes",
                           peer_text(fd, text, sizeof text), done, bytes);
        else if (errno != EAGAIN && errno != EINTR)
            return io_failed(fd, "receiving from", done, bytes);
        else if (errno == EAGAIN && !wait_for(fd, POLLIN, deadline_ns))
            return io_late(fd, "receiving from", done, bytes);
    }
    return UNO_OK;
}
