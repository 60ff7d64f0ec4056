/* SPDX-License-Identifier: Apache-2.0 */
/* rules_address.c - the wrong interface or address: loopback, a bridge of containers, a slow port, a firewall, a wrong name. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "interfaces.h"
#include "rule.h"

static bool is_loopback(const char *a)
{
    return begins(a, "127.") || same_text(a, "::1");
}

/* On a bridge of this host alone: by the kind of interface, or by the network that Docker and libvirt give theirs. */
static bool is_docker(const struct fact *f)
{
    return (interface_is_virtual(f->name) && !is_loopback(f->value)) || begins(f->value, "172.17.") || begins(f->value, "192.168.122.");
}

/* ---- two hosts offer one address ------------------------------------------------------------------------------------------------------ */

/* A text may begin in the middle of a line, so the host of its first is perhaps the end of the other's name. */
static bool is_torn(const struct fact *first, const struct fact *other)
{
    size_t n = strlen(first->host), whole_bytes = strlen(other->host);
    return first->line == 1 && n < whole_bytes && strcmp(other->host + whole_bytes - n, first->host) == 0;
}

void rule_same_address(struct judge *j)
{
    EACH_FACT(j->m, F_BOOTSTRAP, a)
        EACH_FACT(j->m, F_BOOTSTRAP, b) {
            if (a->order >= b->order || !same_text(a->value, b->value) || !*a->host || !*b->host || same_text(a->host, b->host) || begins(a->value, "fe80") || is_torn(a, b) || is_torn(b, a))
                continue;
            bool loop = is_loopback(a->value);
            struct finding *f = find(j, CAUSE, 0.9, "%s and %s both offer %s (%s), an address that is private to each of them", a->host, b->host, a->value,
                                     loop ? "loopback" : begins(a->name, "virbr") || begins(a->value, "192.168.122.") ? "a bridge of libvirt" : is_docker(a) ? "the bridge network of Docker" : a->name);
            explain(j, f, "Whoever connects to that address reaches itself%s.", loop ? "" : ", or a container of its own host");
            evidence(f, a);
            evidence(f, b);
            EACH_FACT(j->m, F_CONNECT, c)
                if (same_text(c->value, a->value)) {
                    evidence(f, c);
                    consequence(j, f, "%s cannot connect to %s:%lld (%s)", who_says(j->m, c), c->value, (long long)c->a, c->name);
                    break;
                }
            remedy(j, f, "give the containers the host's network (`docker run --network host`; Kubernetes hostNetwork: true), or an overlay that both hosts reach");
            remedy(j, f, "if there is a second interface that both reach, name it: `export NCCL_SOCKET_IFNAME==NAME GLOO_SOCKET_IFNAME=NAME`");
            return;
        }
}

/* ---- a host name that leads to loopback ------------------------------------------------------------------------------------------------- */

static const struct fact *loopback_name(const struct model *m)
{
    EACH_FACT(m, F_HOSTNAME_AT, h)
        if (is_loopback(h->value) && !begins(h->name, "localhost") && !begins(h->name, "ip6-"))
            return h;
    return NULL;
}

void rule_loopback_published(struct judge *j)
{
    const struct fact *failed = NULL, *name = loopback_name(j->m);
    EACH_FACT(j->m, F_CONNECT, c)
        if (is_loopback(c->value) && !failed && (c->b || !same_text(c->more, "store"))) /* the store on this very host is tried until it is there */
            failed = c;
    if (!failed)
        EACH_FACT(j->m, F_GLOO_ADDRESS, g)
            failed = same_text(g->value, "loopback") ? g : failed;
    if (!failed && !name)
        return;
    const char *host = name ? name->name : "a host", *address = failed && *failed->value && is_loopback(failed->value) ? failed->value : name ? name->value : "a loopback address";
    if (!failed) {
        bool of_job = setting_of(j->m, "MASTER_ADDR") || fact_seen(j->m, F_HOST_NAMED) || fact_seen(j->m, F_INIT);
        if (!of_job)
            return; /* many machines have that line, and only a job over several hosts minds */
    }
    struct finding *f = find(j, failed ? CAUSE : ADVICE, failed && name ? 0.95 : failed ? 0.75 : 0.4, "%s published %s, a loopback address, to the others%s", host, address, name ? model_say(j->m, ": its /etc/hosts maps %s there", name->name) : "");
    explain(j, f, "%s looks up the host's own name to find the address that it offers; /etc/hosts%s gives 127.x for it, so the others are sent to themselves.", failed && same_text(failed->more, "nccl") ? "The library" : "Gloo",
            name ? model_say(j->m, " on %s", name->name) : "");
    evidence(f, name);
    evidence(f, failed);
    remedy(j, f, "put the real address before the name in /etc/hosts%s (Debian writes 127.0.1.1 there): `sudo sed -i 's/^127\\.0\\.1\\.1[[:space:]]/ADDRESS /' /etc/hosts`; then `getent hosts $(hostname)` says it", name ? model_say(j->m, " of %s", name->name) : "");
    remedy(j, f, "or name the interface exactly: `export GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME==NAME`");
}

/* ---- a slow interface, chosen by name ------------------------------------------------------------------------------------------------------ */

static int64_t speed_of(const struct model *m, const char *host, const char *name)
{
    EACH_FACT(m, F_SPEED, s)
        if (same_text(s->name, name) && (!*host || !*s->host || same_text(s->host, host)))
            return s->a;
    return 0;
}

static const char *rate_says(struct model *m, int64_t mbit)
{
    return mbit >= 1000 && mbit % 1000 == 0 ? model_say(m, "%lld Gbit/s", (long long)(mbit / 1000)) : model_say(m, "%lld Mbit/s", (long long)mbit);
}

static const struct fact *fastest(const struct model *m, const char *host)
{
    const struct fact *best = NULL;
    EACH_FACT(m, F_SPEED, s)
        if ((!*host || !*s->host || same_text(s->host, host)) && (!best || s->a > best->a))
            best = s;
    return best;
}

static const struct fact *interface_with(const struct model *m, const char *address)
{
    EACH_FACT(m, F_INTERFACE, i)
        if (same_text(i->value, address))
            return i;
    return NULL;
}

static void tell_slow(struct judge *j, const struct fact *chosen, const char *name, const struct fact *best, int64_t speed, const char *why)
{
    struct finding *f = find(j, LIKELY, 0.85, "Traffic goes over %s (%s) while %s (%s) is there: %lld times slower", name, rate_says(j->m, speed), best->name, rate_says(j->m, best->a), (long long)(best->a / (speed ? speed : 1)));
    explain(j, f, "%s Gloo takes the address of the host's own name, and NCCL the first name that fits; neither looks at speed. Set GLOO_SOCKET_IFNAME=%s and NCCL_SOCKET_IFNAME==%s.", why, best->name, best->name);
    evidence(f, chosen);
    evidence(f, best);
    EACH_FACT(j->m, F_SPEED, s)
        if (same_text(s->name, name))
            evidence(f, s);
    remedy(j, f, "`export GLOO_SOCKET_IFNAME=%s NCCL_SOCKET_IFNAME==%s`", best->name, best->name);
}

void rule_slow_interface(struct judge *j)
{
    const struct fact *set = setting_of(j->m, "GLOO_SOCKET_IFNAME");
    EACH_FACT(j->m, F_BOOTSTRAP, b) {
        const struct fact *best = fastest(j->m, b->host);
        int64_t speed = speed_of(j->m, b->host, b->name);
        if (best && speed > 0 && best->a >= 5 * speed) {
            tell_slow(j, b, b->name, best, speed, model_say(j->m, "The library chose %s (%s).", b->name, b->value));
            return;
        }
    }
    EACH_FACT(j->m, F_HOSTNAME_AT, h) {
        const struct fact *i = same_text(h->extra, "resolver") && !set ? interface_with(j->m, h->value) : NULL;
        const struct fact *best = i ? fastest(j->m, h->host) : NULL;
        int64_t speed = i ? speed_of(j->m, h->host, i->name) : 0;
        if (best && speed > 0 && best->a >= 5 * speed) {
            tell_slow(j, h, i->name, best, speed, model_say(j->m, "No interface is named, and the host's name leads to %s, which is %s.", h->value, i->name));
            return;
        }
    }
}

/* ---- a connection that is not made --------------------------------------------------------------------------------------------------------- */

static const struct fact *reached(const struct model *m, const char *address)
{
    EACH_FACT(m, F_REACHED, r)
        if (same_text(r->value, address))
            return r;
    return NULL;
}

static bool port_let_in(const struct model *m, int64_t port)
{
    EACH_FACT(m, F_FIREWALL, w)
        for (const char *p = w->value; *p; p += strspn(p, " "), p += strcspn(p, " ")) {
            char *end;
            long from = strtol(p + strspn(p, " "), &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
            if (port >= from && port <= to)
                return true;
            if (!*p)
                break;
        }
    return false;
}

static bool is_store_port(const struct model *m, const struct fact *c)
{
    const struct fact *p = setting_of(m, "MASTER_PORT");
    return same_text(c->more, "store") || (p && strtoll(p->value, NULL, 10) == c->a);
}

static const struct fact *offered_by_dead_bridge(const struct model *m, const char *address)
{
    EACH_FACT(m, F_BOOTSTRAP, b)
        if (same_text(b->value, address) && is_docker(b))
            return b;
    return NULL;
}

/* What the tries said before one gave up: that only says how long it took. */
static const char *why_not(const struct model *m, const struct fact *given_up)
{
    EACH_FACT(m, F_CONNECT, k)
        if (!k->b && k->a == given_up->a && same_text(k->more, given_up->more) && *k->name && !has(k->name, "timed out"))
            return k->name;
    EACH_FACT(m, F_NO_ADDRESS, n)
        if (same_text(n->value, given_up->value)) /* of one family; where the other one had none either, nothing was tried */
            return n->name;
    return given_up->name;
}

void rule_not_reached(struct judge *j)
{
    const struct fact *c = NULL;
    EACH_FACT(j->m, F_CONNECT, k)
        if (same_text(k->extra, "connect") && !is_loopback(k->value) && (!c || (k->b && !c->b)))
            c = k;
    if (!c || !c->b)
        return;
    const char *why = why_not(j->m, c);
    bool no_route = has(why, "No route"), refused = has(why, "refused"), unreachable = has(why, "unreachable");
    bool unknown = has(why, "not known") || has(why, "name resolution") || has(why, "No address");
    const struct fact *ok = reached(j->m, c->value), *wall = first_of(j->m, F_FIREWALL);
    bool walled = wall && !port_let_in(j->m, c->a);
    const struct fact *bridge = offered_by_dead_bridge(j->m, c->value);
    struct finding *f;
    if (no_route || walled)
        f = find(j, CAUSE - 5, walled || ok ? 0.9 : 0.65, "%s rejects port %lld: a firewall%s", c->value, (long long)c->a, ok ? model_say(j->m, ", for its port %lld is reached", (long long)ok->a) : "");
    else if (refused)
        f = find(j, SYMPTOM + 10, 0.55, "Nobody listens at %s port %lld: the process there is gone, or that address is not its own", c->value, (long long)c->a);
    else if (unknown)
        f = find(j, LIKELY + 4, 0.85, "The name %s has no address there: %s", c->value, why);
    else
        f = find(j, LIKELY, 0.6, "%s port %lld is not reached: %s", c->value, (long long)c->a, why);
    if (no_route || walled)
        explain(j, f, "'%s' for a TCP connection is what a firewall's reject says (an ICMP answer); data connections use ephemeral ports, so an open master port is not enough.", why);
    else if (unreachable)
        explain(j, f, "This host has no route to that network.");
    else if (unknown)
        explain(j, f, "Nobody was asked for a connection, since it is not known where: a service or host that is not there yet (or has another name, or name space), or the resolver of that container.");
    else if (!refused)
        explain(j, f, "No answer at all: packets are dropped on the way (a firewall, a security group, another VLAN), or the host is down.");
    if (bridge)
        explain(j, f, "%s is on %s, a bridge for containers, which other hosts do not reach.", c->value, bridge->name);
    evidence(f, c);
    evidence(f, ok);
    evidence(f, wall);
    evidence(f, bridge);
    if (unknown)
        remedy(j, f, "where it failed: `getent ahosts %s`; Kubernetes: `kubectl get svc,endpoints`, and MASTER_ADDR with its name space: NAME.NAMESPACE.svc", c->value);
    else if (is_store_port(j->m, c))
        remedy(j, f, "it is the store's port: is rank 0 running on %s, and does MASTER_ADDR name an address of it? There: `ss -ltnp | grep :%lld`, `ip -br addr`", c->value, (long long)c->a);
    remedy(j, f, "let the hosts of the job reach each other on all ports (`firewall-cmd --zone=trusted --add-source=SUBNET`, or a security group), or narrow the range, and open that: `sudo sysctl -w net.ipv4.ip_local_port_range=\"50000 60999\"`");
    remedy(j, f, "try the very port: on %s: `nc -l %lld`; here: `nc -zv %s %lld`", c->value, (long long)c->a, c->value, (long long)c->a);
}

/* ---- names that match nothing ------------------------------------------------------------------------------------------------------------------ */

void rule_no_interface(struct judge *j)
{
    EACH_FACT(j->m, F_CONNECT, c)
        if (same_text(c->extra, "choose")) {
            const struct fact *set = setting_of(j->m, "NCCL_SOCKET_IFNAME");
            struct finding *f = find(j, CAUSE, 0.85, "%s found no interface%s", who_says(j->m, c), set ? model_say(j->m, " that NCCL_SOCKET_IFNAME=%s matches", set->value) : *c->value ? model_say(j->m, " in the network of %s", c->value) : "");
            explain(j, f, "Names are prefixes; = in front asks for exact names, ^ excludes. Interfaces may be named differently on each host.");
            evidence(f, c);
            evidence(f, set);
            remedy(j, f, "list them there: `ip -br addr`; set a name that every host has, or exclude: `NCCL_SOCKET_IFNAME=^lo,docker0`");
            return;
        }
    EACH_FACT(j->m, F_GLOO_ADDRESS, g)
        if (*g->name) {
            bool foreign = g->name[0] == '^' || g->name[0] == '=' || strchr(g->name, ',');
            struct finding *f = find(j, CAUSE, 0.85, "Gloo has no address for '%s'", g->name);
            explain(j, f, foreign ? "Gloo wants one exact interface name; ^, = and lists are NCCL's syntax." : "It is no interface of that host with an address, or a host name that does not resolve there.");
            evidence(f, g);
            remedy(j, f, "set GLOO_SOCKET_IFNAME to a name that `ip -br addr` lists there, or let the host's name resolve");
            return;
        }
}
