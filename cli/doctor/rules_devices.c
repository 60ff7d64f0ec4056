/* SPDX-License-Identifier: Apache-2.0 */
/* rules_devices.c - what tools and the kernel say of devices: ports of RDMA cards, AMD GPUs, PCIe errors; and errors of libfabric. */
#include <string.h>

#include "rule.h"

/* ---- ports of RDMA cards ------------------------------------------------------------------------------------------------------------------ */

static bool is_up(const struct fact *p)
{
    return same_text(p->value, "ACTIVE");
}

static const struct fact *same_port_elsewhere(const struct model *m, const struct fact *p)
{
    EACH_FACT(m, F_PORT, q)
        if (q != p && same_text(q->name, p->name) && q->a == p->a && !same_text(q->host, p->host) && *q->host && *p->host)
            return q;
    return NULL;
}

/* One that waits for a subnet manager; one that is down where another host has it up, or where there is no other. */
void rule_port_state(struct judge *j)
{
    int up = 0, all = 0;
    EACH_FACT(j->m, F_PORT, p)
        up += is_up(p), all++;
    EACH_FACT(j->m, F_PORT, p) {
        const struct fact *like = same_port_elsewhere(j->m, p);
        bool init = begins(p->value, "INIT"), missed = (like && is_up(like)) || up == 0;
        if (is_up(p) || !(init || missed))
            continue;
        struct finding *f = find(j, LIKELY - 5, init ? 0.85 : 0.75, "Port %lld of %s%s%s is %s%s%s", (long long)p->a, p->name, *p->host ? " on " : "", p->host, p->value, *p->more ? ", " : "", p->more);
        explain(j, f, init ? "The cable is right and no subnet manager has configured the port, so nothing can be sent over it." : has_nocase(p->more, "disabled") ? "The port is switched off." : "There is no link: no cable, a bad one, or the switch port is off.");
        if (like && is_up(like))
            explain(j, f, "On %s the same port is up, and a job that takes it on both hosts fails or waits.", like->host);
        evidence(f, p);
        evidence(f, like);
        remedy(j, f, init ? "start a subnet manager (the switch's, or `systemctl start opensm` on one host); `sminfo` shows whether one answers" : "cable and switch port: `mlxlink -d %s`; until then `NCCL_IB_HCA=^=%s`", p->name, p->name);
        return;
    }
}

static bool comparable_ports(const struct fact *a, const struct fact *b)
{
    return is_up(a) && is_up(b) && same_text(a->extra, b->extra) && a != b;
}

/* The one that came up slower than all its like: a cable that makes only part of its lanes. */
void rule_port_unlike(struct judge *j)
{
    enum { COMPARED = 2000 };
    if (j->m->counted[F_PORT] > COMPARED) /* each with each */
        return;
    EACH_FACT(j->m, F_PORT, p) {
        int alike = 0, faster = 0, larger = 0;
        const struct fact *other = NULL;
        EACH_FACT(j->m, F_PORT, q)
            if (comparable_ports(p, q)) {
                alike++;
                faster += p->b > 0 && q->b >= 2 * p->b;
                larger += p->c > 0 && q->c > p->c;
                other = q;
            }
        bool slow = faster == alike;
        if (!alike || (alike < 2 && !same_text(p->name, other->name)) || (!slow && larger != alike))
            continue;
        struct finding *f = slow ? find(j, LIKELY - 10, 0.75, "Port %lld of %s%s%s runs at %lld Gbit/s, its like at %lld", (long long)p->a, p->name, *p->host ? " on " : "", p->host, (long long)p->b, (long long)other->b)
                                 : find(j, ADVICE + 10, 0.7, "Port %lld of %s%s%s has an active MTU of %lld, its like %lld", (long long)p->a, p->name, *p->host ? " on " : "", p->host, (long long)p->c, (long long)other->c);
        explain(j, f, slow ? "It came up with fewer lanes, or at a lower speed, than the cable and the switch could; every ring over it is that slow." : "Connections between the two use the smaller one, or fail where the library asks for the larger.");
        evidence(f, p);
        evidence(f, other);
        if (slow)
            remedy(j, f, "reseat or exchange the cable; `mlxlink -d %s -p %lld -c` shows lanes, speed and errors", p->name, (long long)p->a);
        else
            remedy(j, f, "one MTU on all hosts (RoCE: of the interface, `ip link set NAME mtu 9000`; InfiniBand: of the subnet manager's partition)");
        return;
    }
}

/* ---- what the kernel says --------------------------------------------------------------------------------------------------------------------- */

void rule_gpu_kernel(struct judge *j)
{
    const struct fact *first = NULL;
    EACH_FACT(j->m, F_GPU_KERNEL, g) /* what comes after a reset is its consequence; of what has no time the first line counts */
        if (!first || (g->time_s > 0 && g->time_s < first->time_s))
            first = g;
    if (!first)
        return;
    bool fault = same_text(first->value, "page fault"), hardware = same_text(first->value, "uncorrectable error");
    struct finding *f = find(j, CAUSE, hardware ? 0.9 : 0.8, "The kernel reports of the AMD GPU%s%s%s%s: %s", *first->name ? " at " : "", first->name, *first->host ? " on " : "", first->host, first->value);
    explain(j, f, fault ? "A kernel of the program, or of a library, touched memory that is not mapped for that GPU; its process ends, and all others wait for it."
                        : hardware ? "Its memory or a unit of it is damaged; results are not to be trusted and the driver resets it." : "The GPU stopped working on its queue; the driver gives it up or resets it, the process on it ends, and all others wait for it.");
    evidence_all(j, f, F_GPU_KERNEL);
    if (fault)
        remedy(j, f, "find the program's access: `AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1`; buffers that are freed while a collective uses them are the usual cause");
    else
        remedy(j, f, "`rocm-smi --showrasinfo all`, `amd-smi bad-pages`; run without that GPU, and replace it if it happens again; drivers and firmware of one release");
}

void rule_pcie_errors(struct judge *j)
{
    const struct fact *bad = NULL, *many = NULL;
    EACH_FACT(j->m, F_AER, a) {
        bad = !bad && same_text(a->value, "uncorrected") ? a : bad;
        many = a->count >= 10 && !many ? a : many;
    }
    const struct fact *a = bad ? bad : many;
    if (!a)
        return;
    struct finding *f = find(j, bad ? LIKELY : ADVICE, bad ? 0.8 : 0.6, "The kernel reports PCIe errors of %s%s%s, %s", *a->name ? a->name : "a device", *a->host ? " on " : "", a->host, bad ? "uncorrected" : "corrected, but many");
    explain(j, f, bad ? "A transfer was lost; the device is reset or gone, and what waits for it does not end." : "Each is sent again, which costs time; a slot, riser or cable that gets worse.");
    evidence(f, a);
    remedy(j, f, "`lspci -s %s -vv` names the device; reseat card and riser, look at its link (LnkSta); firmware", *a->name ? a->name : "ID");
}

/* ---- libfabric ------------------------------------------------------------------------------------------------------------------------------------ */

void rule_libfabric(struct judge *j)
{
    const struct fact *first = NULL, *failed = NULL;
    EACH_FACT(j->m, F_LIBFABRIC, l) {
        first = first ? first : l;
        failed = !failed && same_text(l->extra, "completion") ? l : failed;
    }
    if (!first)
        return;
    const struct fact *l = failed ? failed : first;
    bool unreachable = has_nocase(l->name, "unreachable") || has_nocase(l->name, "unresponsive") || has(l->name, "Not a directory") || l->a == 20, none = has(l->name, "empty list") || has_nocase(l->name, "no data available") || l->a == 61;
    struct finding *f = failed ? find(j, LIKELY, 0.75, "A transfer over libfabric (%s) failed%s: %s", l->value, *l->host ? model_say(j->m, " on %s", l->host) : "", l->name)
                               : find(j, LIKELY - 5, 0.7, none ? "libfabric finds no provider (%s)%s: %s" : "libfabric (%s) cannot be set up%s: %s", l->value, *l->host ? model_say(j->m, " on %s", l->host) : "", l->name);
    explain(j, f, unreachable ? "The other side is not reached: on EFA its security group lets the traffic of its own members not in or out, or its process is gone." : none ? "The device is not in the container, its driver is not loaded, or FI_PROVIDER names another." : "The first such line is the nearest to the cause; errors that follow on the same connection only flush it.");
    evidence(f, l);
    evidence(f, first);
    remedy(j, f, unreachable ? "a security group that allows all traffic in and out from and to itself; the same subnet; `fi_pingpong -p efa` between the two hosts" : "`fi_info -p efa` (or the provider that is meant) inside the container; /dev/infiniband in it; `FI_LOG_LEVEL=warn` shows more");
}
