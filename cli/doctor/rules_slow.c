/* SPDX-License-Identifier: Apache-2.0 */
/* rules_slow.c - slow, with nothing that is set wrongly: what could be expected, and what there is. */
#include <string.h>

#include "rule.h"

/* What each process sends for a byte of payload (gloo docs/algorithms.md); 0 = not known of that algorithm. */
static double sent_a_byte(const struct fact *b)
{
    static const struct { const char *algorithm; bool whole; } known[] = {
        {"allreduce_ring", true}, {"allreduce_ring_chunked", false}, {"new_allreduce_ring", false}, {"allreduce_halving_doubling", false}, {"cuda_allreduce_ring", true}, {"cuda_allreduce_ring_chunked", false},
        {"cuda_allreduce_halving_doubling", false}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (b->c > 1 && same_text(b->name, known[i].algorithm))
            return known[i].whole ? (double)(b->c - 1) : 2.0 * (double)(b->c - 1) / (double)b->c;
    return 0;
}

/* One row tells little: the fastest of all against what the interface carries. */
void rule_gloo_slow(struct judge *j)
{
    enum { LARGE = 1 << 20 };
    const struct fact *device = first_of(j->m, F_GLOO_DEVICE), *best = NULL;
    EACH_FACT(j->m, F_GLOO_BENCH, b) {
        if (b->a < LARGE)
            continue;
        if (sent_a_byte(b) == 0)
            return;
        best = !best || b->x * sent_a_byte(b) > best->x * sent_a_byte(best) ? b : best;
    }
    if (!device || !best || device->a < 1000) /* loopback has no speed */
        return;
    double line = (double)device->a / 8000, sent = best->x * sent_a_byte(best);
    if (sent > line / 2)
        return;
    struct finding *f = find(j, LIKELY - 10, 0.7, "Gloo moves %.2f of about %.2f GB/s over %s (%s)", sent, line * 0.94, device->name, device->a % 1000 ? model_say(j->m, "%lld Mbit/s", (long long)device->a) : model_say(j->m, "%lld Gbit/s", (long long)device->a / 1000));
    explain(j, f, "That is %.0f %% of the link, counting what each of %lld processes sends. Gloo has one TCP connection a pair of ranks, and one thread that copies for all of them: a processor is at its limit long before such a link is, more so if the process is bound to one core.", 100 * sent / line, (long long)best->c);
    evidence(f, device);
    evidence(f, best);
    EACH_FACT(j->m, F_BINDING, b)
        evidence(f, b);
    remedy(j, f, "is it the link or the one connection? `iperf3 -c HOST -P 1` against `iperf3 -c HOST -P 8`; do not bind the process to a core (`mpirun --bind-to none ...`)");
    remedy(j, f, "then several groups at once, each with a part of the data (dist.new_group), or a backend that uses several connections; large frames: `sudo ip link set %s mtu 9000` on both sides and the switch", device->name);
}

/* What RCCL knows by heart of a kind of machine, it knows for even numbers of them. */
void rule_odd_hosts(struct judge *j)
{
    const struct fact *o = first_of(j->m, F_ODD_HOSTS);
    if (!o)
        return;
    struct finding *f = find(j, ADVICE + 8, 0.75, "RCCL does not use its rings for this kind of machine, since the number of hosts is odd");
    explain(j, f, "These rings lead in and out by cards that are paired between hosts; for an odd number it searches as on a machine that it does not know, with fewer channels, so three hosts can be slower than two or four.");
    evidence_all(j, f, F_ODD_HOSTS);
    EACH_FACT(j->m, F_BENCH, b)
        if (!b->next)
            evidence(f, b);
    remedy(j, f, "an even number of hosts, and compare: `mpirun -np 16 ./build/all_reduce_perf -b 1G -e 1G -g 1`; which channels there are: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH`");
}
