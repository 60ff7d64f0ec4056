/* SPDX-License-Identifier: Apache-2.0 */
/* rules_hosts.c - several hosts that were asked at once: who does not answer, who is not reached by whom, whose clock, MTU or speed is another. */
#include <stdlib.h>
#include <string.h>

#include "rule.h"

void rule_host_lost(struct judge *j)
{
    struct names all = {0};
    EACH_FACT(j->m, F_HOST_LOST, h)
        names_add(j->m, &all, h->host);
    if (!all.n)
        return;
    const struct fact *one = first_of(j->m, F_HOST_LOST);
    struct finding *f = find(j, CAUSE, 0.95, "%s cannot be asked: %s", names_say(j->m, &all), one->value);
    explain(j, f, "A launcher that starts ranks the same way does not get there either.");
    evidence_all(j, f, F_HOST_LOST);
    remedy(j, f, "run the command by hand: ssh needs a key without a password (`ssh-copy-id %s`) and a known host; the program must be there under the same path, or under --agent-program", one->host);
}

/* ---- connections ------------------------------------------------------------------------------------------------------------------------------ */

/* The address that is meant for data: what others are told first. */
static bool is_first_address(const struct model *m, const struct fact *pair)
{
    EACH_FACT(m, F_HOST_LINK, l)
        if (same_text(l->host, pair->name) && same_text(l->value, pair->value))
            return l->c == 0;
    return true;
}

static const struct fact *pair_of(const struct model *m, const char *from, const char *to, bool connected)
{
    EACH_FACT(m, F_HOST_PAIR, p)
        if (same_text(p->host, from) && same_text(p->name, to) && (p->a == 1) == connected)
            return p;
    return NULL;
}

static bool is_timeout(const char *error)
{
    return has_nocase(error, "timed out");
}

void rule_pair_not_reached(struct judge *j)
{
    struct names from = {0}, to = {0};
    const struct fact *one = NULL;
    int n = 0, one_way = 0;
    EACH_FACT(j->m, F_HOST_PAIR, p) {
        if (p->a || !is_first_address(j->m, p))
            continue;
        one = one ? one : p;
        names_add(j->m, &from, p->host);
        names_add(j->m, &to, p->name);
        n++;
        one_way += pair_of(j->m, p->name, p->host, true) != NULL;
    }
    if (!one)
        return;
    const struct fact *other = pair_of(j->m, one->host, one->name, true);
    struct finding *f = find(j, CAUSE, 0.95, "%s cannot connect to %s at %s (%s): %s%s", names_say(j->m, &from), names_say(j->m, &to), one->value, *one->more ? one->more : "its interface", one->extra,
                             one_way == n ? "; the other way works" : "");
    if (one_way == n)
        explain(j, f, "Only one direction is closed, so the cable and the addresses are right: a firewall, or a security group, lets new connections in on one side only. A job then hangs or fails when that side happens to be the one that connects.");
    else
        explain(j, f, is_timeout(one->extra) ? "Nothing answers: a firewall drops the packets, or there is no way between the networks of the two." : "It was answered, with a refusal: a firewall that rejects, or no route.");
    if (other)
        explain(j, f, "%s is reached at %s (%s), an interface that the libraries would not take first.", one->name, other->value, other->more);
    EACH_FACT(j->m, F_HOST_PAIR, p)
        if (!p->a)
            evidence(f, p);
    evidence(f, other);
    evidence(f, pair_of(j->m, one->name, one->host, true));
    remedy(j, f, "let all TCP ports in between the hosts of a job, both ways (`firewall-cmd --zone=trusted --add-source=NETWORK`, the cloud's security group); ranks use ports that the kernel chooses");
    if (other)
        remedy(j, f, "or name the interface that works: `NCCL_SOCKET_IFNAME==%s GLOO_SOCKET_IFNAME=%s` on all hosts", other->more, other->more);
    else
        remedy(j, f, "on %s: `ip route get %s`; on %s: `iptables -nL INPUT`, `nft list ruleset`", one->host, one->value, one->name);
}

void rule_pair_stuck(struct judge *j)
{
    const struct fact *one = NULL;
    struct names from = {0}, to = {0};
    EACH_FACT(j->m, F_HOST_PAIR, p)
        if (p->a && p->b >= 0) {
            one = one ? one : p;
            names_add(j->m, &from, p->host);
            names_add(j->m, &to, p->name);
        }
    if (!one)
        return;
    struct finding *f = find(j, CAUSE, 0.9, "Small messages from %s reach %s, large ones do not: %lld bytes had arrived when no more came", names_say(j->m, &from), names_say(j->m, &to), (long long)one->b);
    explain(j, f, "Full packets are lost on the way: a switch, tunnel or bridge between them takes smaller ones (MTU) than the interfaces send, and does not say so. Jobs connect, and hang at the first large operation.");
    EACH_FACT(j->m, F_HOST_PAIR, p)
        if (p->a && p->b >= 0)
            evidence(f, p);
    EACH_FACT(j->m, F_HOST_LINK, l)
        if (l->c == 0 && (same_text(l->host, one->host) || same_text(l->host, one->name)))
            evidence(f, l);
    remedy(j, f, "find the size that passes: `ping -M do -s 1472 %s` (1500 bytes), -s 8972 (9000); then the same MTU on interfaces and switches: `ip link set %s mtu 1500`", one->value, *one->more ? one->more : "NAME");
}

/* What the good ones reach: a host with a bad link is in many pairs, so the middle may be bad. */
static double usual_rate(const struct model *m)
{
    enum { MOST = 1024 };
    double v[MOST];
    int n = 0;
    EACH_FACT(m, F_HOST_PAIR, p) {
        if (p->x <= 0 || n == MOST)
            continue;
        int at = n++;
        for (; at > 0 && v[at - 1] > p->x; at--)
            v[at] = v[at - 1];
        v[at] = p->x;
    }
    return n > 1 ? v[n - 1 - n / 6] : 0;
}

static bool is_slow(const struct fact *p, double usual)
{
    return p->x > 0 && p->x * 4 < usual;
}

/* The host that is in all slow pairs, when there are several; NULL = none. */
static const char *in_all(const struct model *m, double usual)
{
    const char *both[2] = {NULL, NULL};
    int n = 0;
    EACH_FACT(m, F_HOST_PAIR, p) {
        if (!is_slow(p, usual))
            continue;
        if (n++ == 0)
            both[0] = p->host, both[1] = p->name;
        for (int k = 0; k < 2; k++)
            if (both[k] && !same_text(both[k], p->host) && !same_text(both[k], p->name))
                both[k] = NULL;
    }
    return n < 2 || (both[0] && both[1]) ? NULL : both[0] ? both[0] : both[1];
}

void rule_pair_slow(struct judge *j)
{
    double usual = usual_rate(j->m);
    const struct fact *slowest = NULL;
    EACH_FACT(j->m, F_HOST_PAIR, p)
        if (is_slow(p, usual) && (!slowest || p->x < slowest->x))
            slowest = p;
    if (!slowest)
        return;
    const char *host = in_all(j->m, usual);
    struct finding *f = host ? find(j, LIKELY - 5, 0.8, "Connections of %s are slow: %.2g GB/s from %s to %s, %.2g between others", host, slowest->x, slowest->host, slowest->name, usual)
                             : find(j, LIKELY - 5, 0.75, "From %s to %s only %.2g GB/s pass, %.2g elsewhere", slowest->host, slowest->name, slowest->x, usual);
    explain(j, f, "It was measured several times, alone. One slow path sets the pace of every collective that goes over it.");
    if (slowest->d > 20)
        explain(j, f, "%lld packets had to be sent again while that was measured: they are lost on the way.", (long long)slowest->d);
    EACH_FACT(j->m, F_HOST_PAIR, p)
        if (is_slow(p, usual))
            evidence(f, p);
    remedy(j, f, "`ethtool %s` on both (speed; errors: `ethtool -S`), the cable and the switch port; iperf3 for longer than the 60 ms that were measured here", *slowest->more ? slowest->more : "NAME");
}

/* ---- what should be alike --------------------------------------------------------------------------------------------------------------------------- */

/* Of what was asked, the interface that others are told first; of pasted lists, the one of the same name. */
static bool comparable(const struct fact *a, const struct fact *b)
{
    return !same_text(a->host, b->host) && a->a > 0 && b->a > 0 && ((a->c == 0 && b->c == 0) || (a->c == -1 && b->c == -1 && *a->host && *b->host && same_text(a->name, b->name)));
}

void rule_mtu_differs(struct judge *j)
{
    const struct fact *big = NULL, *small = NULL;
    struct names small_ones = {0};
    enum { COMPARED = 2000 };
    if (j->m->counted[F_HOST_LINK] > COMPARED) /* each with each */
        return;
    EACH_FACT(j->m, F_HOST_LINK, a)
        EACH_FACT(j->m, F_HOST_LINK, b)
            if (comparable(a, b) && a->a > b->a && (!big || a->a - b->a > big->a - small->a))
                big = a, small = b;
    if (!big)
        return;
    EACH_FACT(j->m, F_HOST_LINK, l)
        if (l->a == small->a && (comparable(l, big) || l == small))
            names_add(j->m, &small_ones, l->host);
    struct finding *f = find(j, LIKELY - 10, 0.8, "The MTU differs: %lld on %s (%s), %lld on %s (%s)", (long long)small->a, names_say(j->m, &small_ones), small->name, (long long)big->a, big->host, big->name);
    explain(j, f, "TCP agrees on the smaller of the two; datagrams and RoCE do not, and a switch with the smaller one drops full packets without a word.");
    evidence(f, small);
    evidence(f, big);
    remedy(j, f, "one MTU on all hosts and switches: `ip link set %s mtu %lld` (and in the network's configuration)", small->name, (long long)big->a);
}

void rule_clocks_differ(struct judge *j)
{
    enum { APART_US = 50000 };
    const struct fact *early = NULL, *late = NULL;
    EACH_FACT(j->m, F_HOST_CLOCK, c) {
        early = !early || c->b < early->b ? c : early;
        late = !late || c->b > late->b ? c : late;
    }
    if (!early || late->b - early->b < APART_US + early->a + late->a)
        return;
    double apart = (double)(late->b - early->b) / 1e6;
    struct finding *f = find(j, apart > 2 ? LIKELY - 15 : ADVICE, 0.9, "The clock of %s is %.2f s ahead of that of %s", late->host, apart, early->host);
    explain(j, f, "Times in logs and dumps of these hosts cannot be compared, so what came first looks as if it came last; certificates, tickets and leases of schedulers may fail, too.");
    evidence(f, late);
    evidence(f, early);
    remedy(j, f, "`chronyc tracking` (or `timedatectl`) on both; `sudo systemctl enable --now chronyd; chronyc makestep`");
}

/* Locked memory has its own rule. */
void rule_limits_differ(struct judge *j)
{
    static const struct { const char *name, *words, *option; int64_t enough; } kinds[] = {{"nofile", "open files", "-n", 16384}, {"nproc", "processes", "-u", 4096}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct fact *low = NULL, *high = NULL;
        EACH_FACT(j->m, F_LIMIT, l)
            if (same_text(l->name, kinds[i].name) && *l->host) {
                if (l->a >= 0 && (!low || l->a < low->a))
                    low = l;
                if (!high || l->a < 0 || (high->a >= 0 && l->a > high->a))
                    high = l;
            }
        if (!low || low->a >= kinds[i].enough || (high->a >= 0 && high->a < 4 * low->a))
            continue;
        struct finding *f = find(j, ADVICE, 0.7, "The limit of %s is %lld on %s, %s on %s", kinds[i].words, (long long)low->a, low->host, high->a < 0 ? "none" : model_say(j->m, "%lld", (long long)high->a), high->host);
        explain(j, f, "What runs on one host fails on the other, and the rank there is the one that is lost.");
        evidence(f, low);
        evidence(f, high);
        remedy(j, f, "`ulimit %s` in what starts ranks there (limits.conf, systemd's Limit of slurmd or sshd)", kinds[i].option);
    }
}
