/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sock_iface.c - which network interfaces are worth using, in which order. The filter has NCCL_SOCKET_IFNAME's syntax; what
 * belongs to containers and virtual machines of this host (docker*, virbr*) and loopback are used only when asked for,
 * loopback also when there is nothing else.
 */
#include "base_sock.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

static bool private_name(const char *name)
{
    return strncmp(name, "docker", 6) == 0 || strncmp(name, "virbr", 5) == 0 || strcmp(name, "lo") == 0;
}

/* Position of the list element that matches, -1 if none. An element may carry ":port", which means nothing here. */
static int list_position(const char *name, const char *list, bool exact)
{
    int at = 0;
    for (const char *e = list; *e; at++) {
        size_t len = strcspn(e, ","), word = strcspn(e, ",:");
        if (word && strncmp(name, e, word) == 0 && (!exact || strlen(name) == word))
            return at;
        e += len;
        if (*e)
            e++;
    }
    return -1;
}

struct filter { bool exclude, exact; const char *list; };

static struct filter read_filter(const char *text)
{
    struct filter f = {.list = text ? text : ""};
    if (*f.list == '^') {
        f.exclude = true;
        f.list++;
    }
    if (*f.list == '=') {
        f.exact = true;
        f.list++;
    }
    return f;
}

bool sock_iface_match(const char *name, const char *filter)
{
    struct filter f = read_filter(filter);
    if (!*f.list)
        return !private_name(name);
    bool listed = list_position(name, f.list, f.exact) >= 0;
    /* Excluding one thing does not ask for docker0. */
    return f.exclude ? !listed && !private_name(name) : listed;
}

static long sysfs_number(const char *iface, const char *file, long otherwise)
{
    char path[128];
    long v = otherwise;
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", iface, file);
    FILE *f = fopen(path, "re");
    if (!f)
        return otherwise;
    if (fscanf(f, "%ld", &v) != 1)
        v = otherwise;
    fclose(f);
    return v;
}

static bool link_local(const struct sock_addr *a)
{
    return a->u.sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->u.in6.sin6_addr);
}

struct found { struct sock_iface iface; int rank; size_t order; };

/* Smaller = better: the user's order, link-local last, faster first, then the kernel's order. */
static int compare_found(const void *pa, const void *pb)
{
    const struct found *a = pa, *b = pb;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    bool la = link_local(&a->iface.addr), lb = link_local(&b->iface.addr);
    if (la != lb)
        return la ? 1 : -1;
    if (a->iface.rate_bps != b->iface.rate_bps)
        return a->iface.rate_bps > b->iface.rate_bps ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

/* What is taken, in this order, until there is something: loopback reaches nobody on another host, whereas a link without a carrier may be
 * one that was made a moment ago, and its address reaches this host in any case. */
enum pass { PASS_RUNNING, PASS_UP, PASS_LOOPBACK };

static bool usable(const struct ifaddrs *i, int family, enum pass pass)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (pass != PASS_UP && !(i->ifa_flags & IFF_RUNNING)) || strlen(i->ifa_name) > 15)
        return false;
    int f = i->ifa_addr->sa_family;
    return (f == AF_INET || f == AF_INET6) && (family == 0 || family == f);
}

static void describe(const struct ifaddrs *i, struct sock_iface *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->name, i->ifa_name, strlen(i->ifa_name) + 1);
    out->addr.len = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(&out->addr.u, i->ifa_addr, out->addr.len);
    long mbit = sysfs_number(i->ifa_name, "speed", -1);
    out->rate_bps = mbit > 0 && mbit < 100000000 ? (uint64_t)mbit * 125000u : 0;
    out->numa_node = (int)sysfs_number(i->ifa_name, "device/numa_node", -1);
    out->loopback = i->ifa_flags & IFF_LOOPBACK;
    out->up = true;
}

/* Take what the filter allows. */
static size_t collect(const struct ifaddrs *all, const char *filter, int family, enum pass pass, struct found *out)
{
    struct filter f = read_filter(filter);
    bool listing = *f.list && !f.exclude;
    size_t n = 0;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!usable(i, family, pass))
            continue;
        bool loopback = i->ifa_flags & IFF_LOOPBACK;
        if (pass == PASS_LOOPBACK ? !loopback || list_position(i->ifa_name, f.list, f.exact) >= 0
                          : !sock_iface_match(i->ifa_name, filter) || (loopback && !listing))
            continue;
        describe(i, &out[n].iface);
        out[n].rank = listing ? list_position(i->ifa_name, f.list, f.exact) : 0;
        out[n].order = n;
        n++;
    }
    return n;
}

static uno_err nothing_left(const struct ifaddrs *all, const char *filter, int family)
{
    struct text have = {0};
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        text_add(&have, "%s%s (%s%s)", have.len ? ", " : "", i->ifa_name,
                 i->ifa_addr->sa_family == AF_INET ? "IPv4" : "IPv6", i->ifa_flags & IFF_UP ? "" : ", down");
    }
    const char *only = family == AF_INET ? " for IPv4" : family == AF_INET6 ? " for IPv6" : "";
    uno_err err = err_set(UNO_ERR_UNREACHABLE, "no network interface is usable%s%s%.60s%s; this host has %.600s", only,
                          filter && *filter ? " with UNISONO_SOCKET_IFNAME (or NCCL_SOCKET_IFNAME) = \"" : "", filter ? filter : "",
                          filter && *filter ? "\"" : "", have.len ? have.s : "no interface with an address");
    text_free(&have);
    return err;
}

uno_err sock_interfaces(const char *filter, int family, struct sock_iface **ifaces, size_t *count)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return err_sys("cannot list the network interfaces");
    size_t total = 0, n = 0, kept = 0;
    for (struct ifaddrs *i = all; i; i = i->ifa_next)
        total++;
    struct found *found = mem_array(total, sizeof *found);
    struct sock_iface *out = mem_array(total, sizeof *out);
    uno_err err = found && out ? UNO_OK : UNO_ERR_MEMORY;
    if (err == UNO_OK) {
        struct filter f = read_filter(filter);
        n = collect(all, filter, family, PASS_RUNNING, found);
        for (enum pass pass = PASS_UP; n == 0 && pass <= PASS_LOOPBACK && (f.exclude || !*f.list); pass++)
            n = collect(all, filter, family, pass, found);
        if (n == 0)
            err = nothing_left(all, filter, family);
    }
    if (err == UNO_OK) {
        qsort(found, n, sizeof *found, compare_found);
        bool routable = false;
        for (size_t i = 0; i < n; i++)
            routable |= !link_local(&found[i].iface.addr);
        for (size_t i = 0; i < n; i++) /* a link-local address means something else on every host: last resort */
            if (!routable || !link_local(&found[i].iface.addr))
                out[kept++] = found[i].iface;
    }
    freeifaddrs(all);
    free(found);
    if (err != UNO_OK) {
        free(out);
        return err;
    }
    *ifaces = out;
    *count = kept;
    return UNO_OK;
}
