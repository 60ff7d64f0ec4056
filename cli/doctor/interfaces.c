/* SPDX-License-Identifier: Apache-2.0 */
/* interfaces.c - see interfaces.h. */
#include "interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"

const char *const library_names[LIBRARIES] = {"Unisono", "NCCL", "RCCL", "Gloo"};

bool interface_is_virtual(const char *name)
{
    static const char *const prefixes[] = {"lo", "docker", "podman", "veth", "virbr", "br-", "cni", "cali", "flannel", "vxlan", "tun", "tap", "wg", "tailscale", "lxc", "nerdctl", "ifb", "dummy"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* ---- what there is ------------------------------------------------------------------------------------------------------------------- */

static void from_sysfs(const char *root, struct interface *i)
{
    i->mbit = kernel_number(root, -1, "/sys/class/net/%s/speed", i->name);
    i->mtu = kernel_number(root, -1, "/sys/class/net/%s/mtu", i->name);
    if (i->mbit <= 0)
        i->mbit = -1;
}

static int in_copy(const char *root, struct interface *v)
{
    char names[INTERFACES][KERNEL_NAME], state[32];
    int n = kernel_names(root, names, INTERFACES, "/sys/class/net"), kept = 0;
    long order[INTERFACES];
    for (int k = 0; k < n; k++) {
        kernel_line(root, state, sizeof state, "/sys/class/net/%s/operstate", names[k]);
        if (strlen(names[k]) >= INTERFACE_NAME || strcmp(state, "down") == 0)
            continue;
        struct interface i = {.running = true, .loopback = strcmp(names[k], "lo") == 0};
        memcpy(i.name, names[k], strlen(names[k]) + 1);
        from_sysfs(root, &i);
        long at = kernel_number(root, 1 << 20, "/sys/class/net/%s/ifindex", i.name);
        int place = kept++;
        for (; place > 0 && order[place - 1] > at; place--)
            v[place] = v[place - 1], order[place] = order[place - 1];
        v[place] = i, order[place] = at;
    }
    return kept;
}

static struct interface *known(struct interface *v, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0)
            return &v[i];
    return NULL;
}

int interfaces_of(const char *root, struct interface v[INTERFACES])
{
    struct ifaddrs *list = NULL;
    int n = 0;
    if (*root)
        return in_copy(root, v);
    if (getifaddrs(&list) != 0)
        return 0;
    for (int pass = 0; pass < 2; pass++)
        for (struct ifaddrs *a = list; a; a = a->ifa_next) {
            int family = pass == 0 ? AF_INET : AF_INET6;
            if (!a->ifa_addr || a->ifa_addr->sa_family != family || !(a->ifa_flags & IFF_UP) || strlen(a->ifa_name) >= INTERFACE_NAME || n == INTERFACES || known(v, n, a->ifa_name))
                continue;
            struct interface i = {.running = a->ifa_flags & IFF_RUNNING, .loopback = a->ifa_flags & IFF_LOOPBACK};
            memcpy(i.name, a->ifa_name, strlen(a->ifa_name) + 1);
            if (family == AF_INET) {
                i.ip = ((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr.s_addr;
                i.mask = a->ifa_netmask ? ((struct sockaddr_in *)(void *)a->ifa_netmask)->sin_addr.s_addr : 0;
                inet_ntop(AF_INET, &i.ip, i.address, sizeof i.address);
            } else {
                const struct in6_addr *six = &((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr;
                if (IN6_IS_ADDR_LINKLOCAL(six) || i.loopback)
                    continue;
                inet_ntop(AF_INET6, six, i.address, sizeof i.address);
            }
            from_sysfs("", &i);
            v[n++] = i;
        }
    freeifaddrs(list);
    return n;
}

/* ---- which of them --------------------------------------------------------------------------------------------------------------------- */

/* A list with NCCL's grammar: prefixes, ^ in front excludes all of it, = means whole names. Which element takes the name: -1 = none. */
static int position(const char *name, const char *list, bool exact)
{
    int at = 0;
    for (const char *e = list; *e; at++) {
        size_t word = strcspn(e, ",:"), all = strcspn(e, ",");
        if (word && strncmp(name, e, word) == 0 && (!exact || strlen(name) == word))
            return at;
        e += all + (e[all] != 0);
    }
    return -1;
}

static bool matches(const char *name, const char *filter)
{
    bool exclude = *filter == '^';
    filter += exclude;
    bool exact = *filter == '=';
    return (position(name, filter + exact, exact) >= 0) != exclude;
}

static void take(struct choice *c, const struct interface *v, int n, const char *filter)
{
    for (int i = 0; i < n && c->n < 16; i++)
        if (matches(v[i].name, filter))
            c->chosen[c->n++] = i;
}

/* NCCL_COMM_ID=address:port: an interface in that subnet. */
static void take_subnet(struct choice *c, const struct interface *v, int n, const char *id)
{
    char address[64];
    struct in_addr wanted;
    snprintf(address, sizeof address, "%.*s", (int)strcspn(id, ":"), id);
    for (int i = 0; inet_pton(AF_INET, address, &wanted) == 1 && c->n == 0 && i < n; i++)
        if (v[i].ip && (v[i].ip & v[i].mask) == (wanted.s_addr & v[i].mask))
            c->chosen[c->n++] = i, c->why = "NCCL_COMM_ID";
}

static struct choice of_nccl(enum library lib, const struct interface *v, int n)
{
    static const char *const steps[2][4] = {{"^docker,lo,virbr", "docker", "lo", "virbr"}, {"^docker,lo", "docker", "lo", ""}};
    const char *env = getenv("NCCL_SOCKET_IFNAME"), *id = getenv("NCCL_COMM_ID");
    struct choice c = {.why = ""};
    if (env && strlen(env) > 1) {
        c.why = "NCCL_SOCKET_IFNAME";
        snprintf(c.wanted, sizeof c.wanted, "%s", env);
        take(&c, v, n, env);
        return c;
    }
    take(&c, v, n, "ib");
    if (c.n == 0 && id && strlen(id) > 1)
        take_subnet(&c, v, n, id);
    for (int s = 0; c.n == 0 && s < 4; s++)
        if (*steps[lib == LIBRARY_RCCL][s])
            take(&c, v, n, steps[lib == LIBRARY_RCCL][s]);
    return c;
}

/* All that are left by the same grammar, in the list's order, then the faster first. */
static struct choice of_unisono(const struct interface *v, int n)
{
    const char *env = getenv("UNISONO_SOCKET_IFNAME"), *name = "UNISONO_SOCKET_IFNAME", *ignore = getenv("UNISONO_READ_NCCL");
    if (!(env && *env) && !(ignore && strcmp(ignore, "0") == 0))
        env = getenv("NCCL_SOCKET_IFNAME"), name = "NCCL_SOCKET_IFNAME";
    bool listed = env && *env, exclude = listed && *env == '^';
    int ranks[16];
    struct choice c = {.why = listed ? name : ""};
    if (listed)
        snprintf(c.wanted, sizeof c.wanted, "%s", env);
    for (int i = 0; i < n && c.n < 16; i++) {
        bool own = strncmp(v[i].name, "docker", 6) == 0 || strncmp(v[i].name, "virbr", 5) == 0 || v[i].loopback;
        if (!v[i].running || (listed ? !matches(v[i].name, env) || (exclude && own) : own))
            continue;
        int place = c.n++, rank = listed && !exclude ? position(v[i].name, env + (*env == '='), *env == '=') : 0;
        for (; place > 0 && (ranks[place - 1] > rank || (ranks[place - 1] == rank && v[c.chosen[place - 1]].mbit < v[i].mbit)); place--)
            c.chosen[place] = c.chosen[place - 1], ranks[place] = ranks[place - 1];
        c.chosen[place] = i, ranks[place] = rank;
    }
    if (!listed && c.n == 0)
        take(&c, v, n, "=lo");
    return c;
}

/* Names as they are, one or a list; else whichever has the address that the own name resolves to, else loopback. */
static struct choice of_gloo(const struct interface *v, int n)
{
    const char *env = getenv("GLOO_SOCKET_IFNAME");
    struct choice c = {.why = ""};
    if (env && *env) {
        c.why = "GLOO_SOCKET_IFNAME";
        for (const char *e = env; *e;) {
            size_t k = strcspn(e, ",");
            bool there = false;
            for (int i = 0; i < n && c.n < 16; i++)
                if (strlen(v[i].name) == k && memcmp(v[i].name, e, k) == 0)
                    c.chosen[c.n++] = i, there = true;
            if (!there)
                snprintf(c.wanted, sizeof c.wanted, "%.*s", (int)k, e);
            e += k + (e[k] != 0);
        }
        c.n = *c.wanted ? 0 : c.n;
        return c;
    }
    char name[256] = "";
    struct addrinfo *list = NULL, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    c.by_name = true;
    if (gethostname(name, sizeof name - 1) == 0 && getaddrinfo(name, NULL, &hints, &list) == 0)
        for (struct addrinfo *a = list; a && c.n == 0; a = a->ai_next)
            for (int i = 0; i < n && c.n == 0; i++)
                if (a->ai_family == AF_INET && (v[i].ip == ((struct sockaddr_in *)(void *)a->ai_addr)->sin_addr.s_addr || (v[i].loopback && (ntohl(((struct sockaddr_in *)(void *)a->ai_addr)->sin_addr.s_addr) >> 24) == 127)))
                    c.chosen[c.n++] = i;
    if (list)
        freeaddrinfo(list);
    if (c.n == 0)
        take(&c, v, n, "=lo");
    return c;
}

struct choice interface_choice(enum library lib, const struct interface *v, int n)
{
    return lib == LIBRARY_UNISONO ? of_unisono(v, n) : lib == LIBRARY_GLOO ? of_gloo(v, n) : of_nccl(lib, v, n);
}
