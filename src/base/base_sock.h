/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base_sock.h - sockets as boot and net need them: interfaces worth using, addresses as text and bytes, connect and
 * exact reads with a deadline. IPv4 and IPv6. All descriptors are close-on-exec; SIGPIPE never arises.
 */
#ifndef UNO_BASE_SOCK_H
#define UNO_BASE_SOCK_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base.h"

struct sock_addr {
    union { struct sockaddr sa; struct sockaddr_in in; struct sockaddr_in6 in6; } u;
    socklen_t len;
};
#define SOCK_TEXT_BYTES 80

char *sock_text(const struct sock_addr *a, char *buf, size_t buf_bytes); /* "10.0.0.1:4000", "[fe80::1%eth0]:4000" */
/* "host:port", "[v6]:port"; resolves names. UNO_ERR_PARSE / UNO_ERR_UNREACHABLE with a sentence. */
uno_err sock_parse(const char *s, struct sock_addr *a);

struct sock_iface {
    char name[16];
    struct sock_addr addr;    /* port 0 */
    uint64_t rate_bps;        /* bytes per second from sysfs; 0 = unknown */
    int numa_node;            /* -1 = unknown */
    bool loopback, up;
};
/* Interfaces in order of preference: filter has NCCL_SOCKET_IFNAME's syntax (prefix list, ^, =); empty = all but docker*,
 * virbr*, lo; those without a carrier if none has one, lo alone if nothing else is up. family: 0 any, AF_INET, AF_INET6.
 * UNO_ERR_UNREACHABLE when the filter leaves nothing; the sentence lists what there is. *ifaces: caller frees. */
uno_err sock_interfaces(const char *filter, int family, struct sock_iface **ifaces, size_t *count);
/* Does name match a filter of that syntax? Empty filter: the default exclusions. */
bool sock_iface_match(const char *name, const char *filter);

/* Listen on all addresses (dual stack where possible), port 0 = any. *port: out. */
uno_err sock_listen(uint16_t want_port, int *fd, uint16_t *port);
/* Start a non-blocking connect, optionally bound to a local interface address (NULL = any). */
uno_err sock_connect_start(const struct sock_addr *to, const struct sock_addr *from, int *fd);
/* A connect to a free port of this host may have met itself (simultaneous open); such a socket is no peer. */
bool sock_met_itself(int fd);
/* Blocking connect with deadline, retrying refused connections until then. */
uno_err sock_connect(const struct sock_addr *to, uint64_t deadline_ns, int *fd);
uno_err sock_send_all(int fd, const void *data, size_t bytes, uint64_t deadline_ns);
uno_err sock_recv_all(int fd, void *data, size_t bytes, uint64_t deadline_ns); /* UNO_ERR_UNREACHABLE on end of file */
uno_err sock_tune(int fd);   /* nodelay, keep-alive, non-blocking, close-on-exec */

/* Where a process can be reached: what travels at join. */
#define SOCK_MAX_ADDRS 8
struct sock_address_book { /* travels */
    uint16_t count;
    struct sock_addr addr[SOCK_MAX_ADDRS];
    _Alignas(8) uint64_t rate_bps[SOCK_MAX_ADDRS];
};

#endif
