/* SPDX-License-Identifier: Apache-2.0 */
/* rules_fabric.c - RDMA: paths that fail, cards that only some ranks have, GPUDirect that is off. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"

/* ---- failed completions: the earliest that is no flush -------------------------------------------------------------------------------- */

static const struct fact *first_completion(const struct model *m)
{
    const struct fact *first = NULL;
    EACH_FACT(m, F_COMPLETION, c)
        if (c->a != 5 && (!first || (c->time_s > 0 && first->time_s > 0 && c->time_s < first->time_s)))
            first = c;
    return first;
}

static const char *status_says(int64_t status)
{
    switch (status) {
    case 4: return "a local protection error: memory that is not registered as the card thinks (GPUDirect or relaxed ordering)";
    case 9: case 10: return "the other side refused the access: its memory is gone or registered otherwise";
    case 12: return "retries exhausted: the other card does not answer";
    case 13: return "the other side posted no buffer in time";
    default: return "an RDMA error";
    }
}

/* Link-local GIDs, as NCCL prints them: fe80 in network or in host order. */
static bool is_link_local(const char *gid)
{
    return begins(gid, "fe80") || begins(gid, "80FE") || begins(gid, "80fe") || begins(gid, "FE80");
}

static const struct fact *used_gid(const struct model *m, const char *host)
{
    EACH_FACT(m, F_GID_USED, g)
        if (!*host || same_text(g->host, host))
            return g;
    return NULL;
}

static bool is_roce(const struct model *m)
{
    EACH_FACT(m, F_NIC, n)
        if (same_text(n->value, "RoCE"))
            return true;
    EACH_FACT(m, F_PORT_LAYER, p)
        if (same_text(p->value, "Ethernet"))
            return true;
    return false;
}

/* The GID that is routable: RoCE v2 with an IPv4 address. */
static const struct fact *better_gid(const struct model *m)
{
    EACH_FACT(m, F_GID, g)
        if (g->b == 2 && *g->value)
            return g;
    return NULL;
}

void rule_wrong_gid(struct judge *j)
{
    const struct fact *c = first_completion(j->m), *qp = first_of(j->m, F_QUEUE_PAIR), *set = setting_of(j->m, "NCCL_IB_GID_INDEX");
    if (!c && !qp)
        return;
    const char *host = c ? c->host : qp->host;
    const struct fact *used = used_gid(j->m, host);
    bool local = (used && is_link_local(used->value)) || (qp && is_link_local(qp->value));
    int64_t index = used ? used->a : qp && qp->b >= 0 ? qp->b : set ? strtoll(set->value, NULL, 10) : NOBODY;
    const struct fact *row = NULL, *better = better_gid(j->m);
    EACH_FACT(j->m, F_GID, g)
        if (g->a == index)
            row = g;
    bool v1 = row && row->b == 1;
    if (!(local || (v1 && index >= 0)) || !(is_roce(j->m) || set || row))
        return;
    struct finding *f = find(j, CAUSE, 0.9, "RoCE uses GID index %lld, %s address%s, which no router forwards: use the RoCE v2 GID%s", (long long)index, local ? "a link-local" : "a RoCE v1", row ? row->b == 1 ? " of version v1" : " of version v2" : "",
                             better ? model_say(j->m, ", index %lld (%s)", (long long)better->a, better->value) : "");
    if (c)
        explain(j, f, "The peer %s does not answer: status %lld, %s.", c->value, (long long)c->a, status_says(c->a));
    if (set)
        explain(j, f, "NCCL_IB_GID_INDEX=%s forces it; unset, NCCL 2.21 and later choose a routable one themselves.", set->value);
    evidence(f, used);
    evidence(f, row);
    evidence(f, better);
    evidence(f, set);
    evidence(f, c ? c : qp);
    remedy(j, f, better ? "`unset NCCL_IB_GID_INDEX`, or set it to %d on every host where show_gids says the same" : "`unset NCCL_IB_GID_INDEX`, or set it to an index that show_gids lists as v2 with an IPv4 address (often %d)", better ? (int)better->a : 3);
}

void rule_completion_failed(struct judge *j)
{
    const struct fact *c = first_completion(j->m);
    if (!c)
        return;
    const char *mine = begins(c->name, "::ffff:") ? c->name + 7 : c->name, *theirs = begins(c->extra, "::ffff:") ? c->extra + 7 : c->extra;
    struct finding *f = find(j, LIKELY + 5, 0.7, "RDMA from %s%s%s to %s%s%s failed: status %lld%s, %s", *c->host ? c->host : "this host", *mine ? " " : "", mine, c->value, *theirs ? " at " : "", theirs, (long long)c->a,
                             c->b ? model_say(j->m, " (vendor error %lld)", (long long)c->b) : "", status_says(c->a));
    if (c->a == 12)
        explain(j, f, "Either the process there died, or the path between these two cards is broken; only this first status counts.");
    unsigned long flushed = 0;
    EACH_FACT(j->m, F_COMPLETION, k)
        flushed += k->a == 5 ? k->count : 0;
    evidence(f, c);
    const struct fact *down = first_of(j->m, F_LINK_EVENT);
    evidence_all(j, f, F_LINK_EVENT);
    if (down)
        explain(j, f, "%s port went down%s%s%s%s: look there first.", down->time_s > 0 && c->time_s > down->time_s ? "Before it a" : "A", *down->name ? ", " : "", down->name, *down->host ? ", on " : "", down->host);
    if (flushed)
        consequence(j, f, "%lu completion%s with status 5 (flushed): what was queued behind it", flushed, flushed == 1 ? "" : "s");
    remedy(j, f, "is the process at %s alive, and what did it print before? Then try the pair: `ib_write_bw -d DEVICE -x GID_INDEX` on both ends, and ibstat, ethtool -S on the ports", c->value);
    remedy(j, f, "for congestion on a lossy RoCE network: PFC/ECN, NCCL_IB_TC, `NCCL_IB_TIMEOUT=22`");
}

/* ---- queue pairs that cannot be connected ------------------------------------------------------------------------------------------------ */

void rule_queue_pair(struct judge *j)
{
    const struct fact *q = first_of(j->m, F_QUEUE_PAIR);
    if (!q)
        return;
    const struct fact *route = NULL;
    EACH_FACT(j->m, F_NO_ROUTE, r)
        if (!*q->extra || same_text(r->value, q->extra))
            route = r;
    struct finding *f;
    const char *from = model_say(j->m, "%s%s%s%s", *q->name ? q->name : "the card", *q->value ? " (" : "", q->value, *q->value ? ")" : "");
    const char *to = *q->extra ? q->extra : "the peer";
    if (q->a == 101 || q->a == 113 || route)
        f = find(j, CAUSE, route ? 0.95 : 0.85, "There is no route from %s to %s%s%s", from, to, *q->host ? " on " : "", q->host);
    else if (q->a == 110)
        f = find(j, CAUSE - 5, 0.75, "%s does not find %s: no answer to its address request (ARP), or their rails are not joined", from, to);
    else if (q->a == 22)
        f = find(j, CAUSE - 5, 0.7, "%s refuses the connection to %s as invalid: a wrong GID index%s", from, to, q->b >= 0 ? model_say(j->m, " (%lld)", (long long)q->b) : "");
    else
        f = find(j, LIKELY, 0.6, "%s cannot be connected to %s: %s", from, to, q->more);
    if (q->a == 101 || route)
        explain(j, f, "The two cards are in different subnets, and that interface has no gateway between them.");
    explain(j, f, "ibv_modify_qp failed (%s).", q->more);
    evidence(f, q);
    evidence(f, route);
    remedy(j, f, "`ip route get %s oif INTERFACE` on that host; add the route (`ip route add SUBNET via GATEWAY dev INTERFACE`), or put the cards into one subnet", to);
    remedy(j, f, "on a rail-only network: `NCCL_CROSS_NIC=0`, and the same card order on all hosts");
}

/* ---- a port that went down, and errors that other layers tell ------------------------------------------------------------------------------ */

void rule_port_down(struct judge *j)
{
    const struct fact *e = first_of(j->m, F_LINK_EVENT);
    if (!e || fact_seen(j->m, F_COMPLETION)) /* then the completion is told, with this as its evidence */
        return;
    struct finding *f = find(j, LIKELY - 5, 0.7, "A network port%s%s went down%s%s", *e->name ? ", " : "", e->name, *e->host ? " on " : "", e->host);
    explain(j, f, "It says: %s. Work that is under way over it fails or waits, on other hosts, too.", e->value);
    evidence(f, e);
    remedy(j, f, "cable, transceiver, switch port: ibstat, `mlxlink -d DEVICE -c`, `dmesg | grep mlx5`; `NCCL_IB_TIMEOUT=22` outlives short flaps");
}

void rule_gid_changed(struct judge *j)
{
    const struct fact *g = first_of(j->m, F_GID_CHANGED);
    if (!g)
        return;
    struct finding *f = find(j, LIKELY - 15, 0.6, "The addresses (GID table) of %s%s%s changed while the job ran", *g->name ? g->name : "a card", *g->host ? " on " : "", g->host);
    explain(j, f, "An interface got or lost an address: DHCP, NetworkManager, a container that was started. What was chosen by index before may be another address now, and connections that are made later fail.");
    evidence(f, g);
    evidence_all(j, f, F_COMPLETION);
    remedy(j, f, "keep such services from the cards' interfaces: `nmcli device set NAME managed no`; `show_gids` before and after");
}

/* InfiniBand and RoCE do not talk to each other. */
void rule_link_types(struct judge *j)
{
    const struct fact *t = first_of(j->m, F_LINK_TYPES);
    if (!t)
        return;
    struct names ib = {0};
    EACH_FACT(j->m, F_NIC, n)
        if (same_text(n->value, "IB"))
            names_add(j->m, &ib, n->name);
    struct finding *f = find(j, CAUSE, 0.9, "A card of InfiniBand was to be connected with one of RoCE%s%s", *t->host ? ", says " : "", t->host);
    explain(j, f, "It says: %s. Cards are paired by their order, and on some hosts a card of the other type stands at that place.", t->name);
    evidence(f, t);
    evidence_all(j, f, F_NIC);
    remedy(j, f, "name cards of one type, on all hosts: `export NCCL_IB_HCA==%s`; `ibv_devinfo | grep -E 'hca_id|link_layer'` shows which is which", ib.n ? names_list(j->m, &ib) : "mlx5_0,mlx5_1");
}

void rule_ucx(struct judge *j)
{
    const struct fact *u = first_of(j->m, F_UCX);
    if (!u)
        return;
    bool none = has(u->name, "no active messages transport") || has(u->name, "Destination is unreachable");
    struct finding *f = find(j, none ? LIKELY : SYMPTOM, none ? 0.75 : 0.5, none ? "UCX finds no transport between two processes: %s" : "UCX reports: %s", u->name);
    explain(j, f, "Its transports (UCX_TLS, UCX_NET_DEVICES) must be there on both sides, and reach each other.");
    evidence(f, u);
    remedy(j, f, "`ucx_info -d` on both hosts; `UCX_NET_DEVICES=all UCX_TLS=all` to see whether it then runs; name the devices that both have");
}

/* ---- cards that only some have ------------------------------------------------------------------------------------------------------------ */

/* Each host with the cards that its list shows. */
struct carrier {
    const char *host;
    struct names nics;
};

static struct carrier *carriers_of(struct judge *j, int *count)
{
    struct names hosts = {0};
    EACH_FACT(j->m, F_NIC, n)
        names_add(j->m, &hosts, n->host);
    struct carrier *v = model_alloc(j->m, (size_t)(hosts.n + 1) * sizeof *v);
    for (int i = 0; i < hosts.n; i++)
        v[i].host = hosts.v[i];
    EACH_FACT(j->m, F_NIC, n) {
        int at = names_index(&hosts, n->host);
        if (at >= 0)
            names_add(j->m, &v[at].nics, n->name);
    }
    *count = hosts.n;
    return v;
}

void rule_devices_differ(struct judge *j)
{
    const struct fact *gone = first_of(j->m, F_NIC_GONE), *counts = first_of(j->m, F_NET_COUNTS);
    int n = 0, best = 0;
    struct carrier *v = carriers_of(j, &n);
    const char *more = NULL, *less = NULL;
    struct names of_more = {0}, of_less = {0};
    for (int i = 1; i < n; i++)
        best = v[i].nics.n > v[best].nics.n ? i : best;
    for (int i = 0; i < n && !more; i++)
        for (int k = 0; k < v[best].nics.n && !more; k++)
            if (v[i].nics.n < v[best].nics.n && !names_has(&v[i].nics, v[best].nics.v[k]))
                more = v[best].host, less = v[i].host, of_more = v[best].nics, of_less = v[i].nics;
    if (!gone && !counts && !more)
        return;
    struct names missing = {0};
    for (int i = 0; more && i < of_more.n; i++)
        if (!names_has(&of_less, of_more.v[i]))
            names_add(j->m, &missing, of_more.v[i]);
    if (!missing.n && gone)
        names_add(j->m, &missing, gone->name);
    const char *who = gone && *gone->host ? gone->host : less ? less : "A rank";
    bool one = gone && !more && !counts; /* of the others nothing is known */
    struct finding *f = find(j, one ? CAUSE - 15 : CAUSE, gone || counts ? one ? 0.8 : 0.9 : 0.7, "%s has %s%s%s", who, missing.n ? model_say(j->m, "no %s", names_say(j->m, &missing)) : "fewer network cards",
                             more ? model_say(j->m, ", which %s uses", more) : one ? ": it cannot be opened" : missing.n ? ", which others have" : " than others", counts && counts->c ? ", and NCCL_IGNORE_NET_MISMATCH hides it" : "");
    if (gone)
        explain(j, f, "%s could not be opened there: the container or cgroup was not given the device.", gone->name);
    explain(j, f, "A channel that one side puts on a card which the other side does not have is not connected: the first operation over it hangs.");
    if (counts)
        explain(j, f, "The library says so itself: between %lld and %lld devices a rank%s.", (long long)counts->a, (long long)counts->b, counts->c ? "; NCCL_IGNORE_NET_MISMATCH=1 made it go on" : "");
    evidence(f, gone);
    evidence(f, counts);
    EACH_FACT(j->m, F_NIC, card)
        if (names_has(&missing, card->name) || same_text(card->host, who))
            evidence(f, card);
    remedy(j, f, "give %s the device (`docker --device=/dev/infiniband`, a Kubernetes resource for all cards), or let all use what all have: `NCCL_IB_HCA==%s`", who, of_less.n ? names_list(j->m, &of_less) : "NAME,NAME");
    if (counts && counts->c)
        remedy(j, f, "`unset NCCL_IGNORE_NET_MISMATCH`");
}

/* ---- GPUDirect RDMA ---------------------------------------------------------------------------------------------------------------------- */

struct gdr {
    int with, without;
    const struct fact *one_with, *one_without;
};

/* How the network channels of each host go, hosts in the order of coming. */
static struct gdr *gdr_of_hosts(struct judge *j, struct names *hosts)
{
    EACH_FACT(j->m, F_PATH, p)
        if (p->a != NOBODY)
            names_add(j->m, hosts, p->host);
    struct gdr *v = model_alloc(j->m, (size_t)(hosts->n + 1) * sizeof *v);
    EACH_FACT(j->m, F_PATH, p) {
        int at = names_index(hosts, p->host);
        if (at < 0 || same_text(p->name, "local") || same_text(p->value, "NET/Socket") || p->a == NOBODY)
            continue;
        if (p->b)
            v[at].with++, v[at].one_with = p;
        else
            v[at].without++, v[at].one_without = p;
    }
    return v;
}

static double best_bandwidth(const struct model *m, const struct fact **row)
{
    double best = 0;
    EACH_FACT(m, F_BENCH, b)
        if (b->a >= 64 << 20 && b->x > best)
            best = b->x, *row = b;
    return best;
}

static void tell_cards(struct judge *j, struct finding *f)
{
    struct names roce = {0}, ib = {0};
    EACH_FACT(j->m, F_NIC, n)
        names_add(j->m, same_text(n->value, "RoCE") ? &roce : &ib, n->name);
    if (!roce.n || !ib.n)
        return;
    struct names *few = roce.n < ib.n ? &roce : &ib;
    explain(j, f, "Moreover %s %s, unlike the other cards, %s and %s mixed in: exclude %s with NCCL_IB_HCA=^=...", names_say(j->m, few), few->n == 1 ? "is" : "are", few == &roce ? "RoCE (Ethernet)" : "InfiniBand", few->n == 1 ? "is" : "are", few->n == 1 ? "it" : "them");
    EACH_FACT(j->m, F_NIC, n)
        if (names_has(few, n->name)) {
            evidence(f, n);
            break;
        }
}

/* The module that lets a card reach a GPU, where somebody listed it. */
static const struct fact *module_at(const struct model *m, const char *host)
{
    EACH_FACT(m, F_MODULE, k)
        if (!*host || !*k->host || same_text(k->host, host))
            return k;
    return NULL;
}

static void tell_module(struct judge *j, struct finding *f, const struct fact *loaded)
{
    if (loaded)
        explain(j, f, "%s is loaded there and yet not used: it is not registered with the RDMA stack that runs (built against another OFED or kernel), or the distance between GPU and card is more than NCCL_NET_GDR_LEVEL allows.", loaded->name);
    evidence(f, loaded);
}

static void tell_remedies(struct judge *j, struct finding *f, const char *host)
{
    bool amd = false;
    EACH_FACT(j->m, F_VERSION, v)
        amd = amd || same_text(v->name, "RCCL");
    if (amd)
        remedy(j, f, "on %s: is ib_peer_mem or DMA-BUF support there? `grep -E 'PCI_P2PDMA|DMABUF_MOVE_NOTIFY' /boot/config-$(uname -r)`; `ls /sys/kernel/mm/memory_peers`", host);
    else
        remedy(j, f, "on %s: `sudo modprobe nvidia-peermem && lsmod | grep peermem` (or an open kernel driver, CUDA 11.7 and Linux 5.12 for DMA-BUF); then look for /GDRDMA in the channel lines", host);
    remedy(j, f, "loaded and still off? `ls /sys/kernel/mm/memory_peers`: the module must be built against the OFED that runs; and NCCL_NET_GDR_LEVEL allows the distance between GPU and card");
}

void rule_gpudirect_one_sided(struct judge *j)
{
    struct names hosts = {0};
    struct gdr *all = gdr_of_hosts(j, &hosts);
    int a = 0, b = 0;
    while (a < hosts.n && !(all[a].with && !all[a].without))
        a++;
    while (b < hosts.n && !(all[b].without && !all[b].with))
        b++;
    if (a == hosts.n || b == hosts.n)
        return;
    struct gdr on = all[a], off = all[b];
    const struct fact *loaded = module_at(j->m, hosts.v[b]);
    struct finding *f = loaded ? find(j, LIKELY + 10, 0.9, "GPUDirect RDMA is on at %s and off at %s, though the peer-memory module (%s) is loaded on %s", hosts.v[a], hosts.v[b], loaded->name, hosts.v[b])
                               : find(j, LIKELY + 10, 0.9, "GPUDirect RDMA is on at %s and off at %s: the peer-memory module (nvidia-peermem, nv_peer_mem) is not there on %s", hosts.v[a], hosts.v[b], hosts.v[b]);
    explain(j, f, "All %d of its network channels lack /GDRDMA, so its data take the way through host memory, and the whole job goes at that pace.", off.without);
    if (on.one_with->a != off.one_without->a)
        explain(j, f, "It also uses another card number (%lld against %lld) for the same place.", (long long)off.one_without->a, (long long)on.one_with->a);
    evidence(f, on.one_with);
    evidence(f, off.one_without);
    tell_module(j, f, loaded);
    tell_remedies(j, f, hosts.v[b]);
}

void rule_gpudirect_off(struct judge *j)
{
    const struct fact *off = NULL, *path = NULL, *row = NULL;
    EACH_FACT(j->m, F_GDR_STATE, g)
        if (!g->a && !same_text(g->value, "distance"))
            off = off ? off : g;
    bool any_on = false;
    EACH_FACT(j->m, F_PATH, p) {
        any_on = any_on || p->b;
        if (p->a != NOBODY && !p->b && !same_text(p->value, "NET/Socket") && !same_text(p->name, "local"))
            path = path ? path : p;
    }
    if (any_on || (!off && !(path && fact_seen(j->m, F_BENCH))) || !(path || off))
        return;
    if (!path && fact_seen(j->m, F_PATH))
        return; /* one host: nothing goes over the network */
    double gbs = best_bandwidth(j->m, &row);
    const char *host = off && *off->host ? off->host : path ? path->host : "this host";
    struct finding *f = find(j, LIKELY - 5, off ? 0.85 : 0.7, "GPUDirect RDMA is off%s%s%s", *host ? " on " : "", host, gbs > 0 ? model_say(j->m, ": %.0f GB/s of bus bandwidth", gbs) : "");
    struct names cards = {0};
    EACH_FACT(j->m, F_NIC, n)
        names_add(j->m, &cards, n->name);
    explain(j, f, "No channel line has /GDRDMA: every byte goes through host memory twice.");
    if (gbs > 0 && cards.n)
        explain(j, f, "A 200 Gbit/s card gives about 23 GB/s with it; with %d cards a node %.0f GB/s says that most of them do not carry what they could.", cards.n, gbs);
    evidence(f, off);
    evidence(f, path);
    evidence(f, row);
    tell_cards(j, f);
    tell_module(j, f, module_at(j->m, host));
    tell_remedies(j, f, host);
}

/* Sockets though there are RDMA cards. */
void rule_network_socket(struct judge *j)
{
    const struct fact *socket = NULL;
    EACH_FACT(j->m, F_NETWORK, n)
        if (same_text(n->name, "Socket"))
            socket = socket ? socket : n;
    if (!socket)
        return;
    const struct fact *nic = NULL, *disabled = setting_of(j->m, "NCCL_IB_DISABLE");
    EACH_FACT(j->m, F_NIC, n)
        if (same_text(n->host, socket->host))
            nic = n;
    EACH_FACT(j->m, F_PORT_LAYER, p)
        nic = nic ? nic : p;
    EACH_FACT(j->m, F_PATH, p)
        if (same_text(p->value, "NET/Socket") && nic) {
            struct finding *f = find(j, LIKELY - 10, 0.75, "%s uses sockets between hosts though it has %s, an RDMA card", *socket->host ? socket->host : "A host", nic->name);
            explain(j, f, "%s", disabled && strtoll(disabled->value, NULL, 0) ? "NCCL_IB_DISABLE is set." : "No card matched NCCL_IB_HCA, or the verbs library is not in the container.");
            evidence(f, socket);
            evidence(f, nic);
            evidence(f, disabled);
            remedy(j, f, "`ibv_devinfo` inside the container; `unset NCCL_IB_DISABLE`; `NCCL_NET=IB` makes it fail instead of falling back");
            return;
        }
}
