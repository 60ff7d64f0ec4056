/* SPDX-License-Identifier: Apache-2.0 */
/* machine_net.c - the own name, interfaces, and which of them Unisono, NCCL, RCCL and Gloo would take. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "interfaces.h"
#include "machine.h"

static void own_name(struct machine *m, const struct interface *v, int n)
{
    char name[256] = "", at[64];
    if (!machine_is_here(m) || gethostname(name, sizeof name - 1) != 0)
        return;
    struct addrinfo *list = NULL, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    int rc = getaddrinfo(name, NULL, &hints, &list);
    if (rc != 0) {
        machine_advise(machine_check(m, CHECK_BAD, "own host name", "%.120s does not resolve: %s", name, gai_strerror(rc)), "Gloo looks it up; put it into /etc/hosts, or name the interface: GLOO_SOCKET_IFNAME");
        return;
    }
    struct in_addr ip = ((struct sockaddr_in *)(void *)list->ai_addr)->sin_addr;
    inet_ntop(AF_INET, &ip, at, sizeof at);
    freeaddrinfo(list);
    bool loop = ntohl(ip.s_addr) >> 24 == 127, mine = loop;
    for (int i = 0; i < n; i++)
        mine = mine || v[i].ip == ip.s_addr;
    struct check *c = machine_check(m, loop || !mine ? CHECK_NOTE : CHECK_GOOD, "own host name", "%.120s is %s%s", name, at, mine ? "" : ", which no interface here has");
    if (loop)
        machine_advise(c, "with several hosts Gloo would offer this loopback address to the others: correct /etc/hosts, or set GLOO_SOCKET_IFNAME");
    else if (!mine)
        machine_advise(c, "Gloo cannot listen there: correct /etc/hosts or the name service, or set GLOO_SOCKET_IFNAME");
    machine_tell(m, "$ getent hosts %s\n%s %s\n", name, at, name);
}

static void one_interface(struct machine *m, const struct interface *i)
{
    char speed[48] = "speed not told", mtu[24] = "?";
    if (i->mbit > 0)
        snprintf(speed, sizeof speed, "%ld Mbit/s", i->mbit);
    if (i->mtu > 0)
        snprintf(mtu, sizeof mtu, "%ld", i->mtu);
    bool small = i->mbit >= 25000 && i->mtu > 0 && i->mtu <= 1500;
    struct check *c = machine_check(m, small ? CHECK_NOTE : CHECK_GOOD, "interface", "%s%s%s, %s, MTU %s%s%s", i->name, *i->address ? " " : "", i->address, speed, mtu, i->running ? "" : ", no carrier",
                                    interface_is_virtual(i->name) ? ", not for a job's data" : "");
    if (small)
        machine_advise(c, "packets of 9000 bytes cost sockets a third of the work at this speed; only if the switch and all hosts have them: `sudo ip link set %s mtu 9000`", i->name);
    if (i->ip)
        machine_tell(m, "%s UP %s/24\n", i->name, i->address);
    if (i->mbit > 0)
        machine_tell(m, "$ cat /sys/class/net/%s/speed\n%ld\n", i->name, i->mbit);
}

static long fastest(const struct interface *v, int n, int *which)
{
    long best = -1;
    for (int i = 0; i < n; i++)
        if (!interface_is_virtual(v[i].name) && v[i].mbit > best)
            best = v[i].mbit, *which = i;
    return best;
}

static const char *variable_of(enum library lib)
{
    return lib == LIBRARY_GLOO ? "GLOO_SOCKET_IFNAME=" : lib == LIBRARY_UNISONO ? "UNISONO_SOCKET_IFNAME==" : "NCCL_SOCKET_IFNAME==";
}

static void one_choice(struct machine *m, enum library lib, const struct interface *v, int n)
{
    struct choice c = interface_choice(lib, v, n);
    char name[40], list[120] = "", why[60] = "";
    snprintf(name, sizeof name, "interface for %s", library_names[lib]);
    if (c.n == 0) {
        machine_advise(machine_check(m, CHECK_BAD, name, "none: %s=%s names nothing that is here", c.why, c.wanted), "names of this machine: `ip -br addr`; %s",
                       lib == LIBRARY_GLOO ? "Gloo takes whole names, a comma between them, no ^ and no =" : "a prefix, =NAME, or ^NAME to leave out");
        return;
    }
    for (int i = 0; i < c.n; i++) {
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", v[c.chosen[i]].name);
    }
    if (*c.why)
        snprintf(why, sizeof why, " (%s)", c.why);
    const struct interface *first = &v[c.chosen[0]];
    int quick = 0;
    long best = fastest(v, n, &quick);
    bool slow = first->mbit > 0 && best >= 4 * first->mbit, odd = interface_is_virtual(first->name) && !first->loopback;
    struct check *k = machine_check(m, slow || odd || first->loopback ? CHECK_NOTE : CHECK_GOOD, name, "%s%s%s", list, c.by_name ? ", by the address of the own name" : "", why);
    if (first->loopback)
        machine_advise(k, "only jobs on this host can run%s%s", lib == LIBRARY_GLOO && best >= 0 ? "; name the interface: GLOO_SOCKET_IFNAME=" : "", lib == LIBRARY_GLOO && best >= 0 ? v[quick].name : "");
    else if (odd)
        machine_advise(k, "%s belongs to containers or a tunnel of this host, others may not reach it: %sNAME", first->name, variable_of(lib));
    else if (slow)
        machine_advise(k, "%s has %ld Mbit/s, %s has %ld: %s%s on all hosts, if they meet there", first->name, first->mbit, v[quick].name, best, variable_of(lib), v[quick].name);
}

void machine_net(struct machine *m)
{
    struct interface v[INTERFACES];
    int n = interfaces_of(m->root, v);
    own_name(m, v, n);
    for (int i = 0; i < n; i++)
        one_interface(m, &v[i]);
    for (enum library lib = 0; lib < LIBRARIES && n; lib++)
        if (machine_is_here(m) || lib != LIBRARY_GLOO) /* a copy has no name to look up */
            one_choice(m, lib, v, n);
}
