/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_rules.c - one small function a cause. Each looks at the facts by itself and adds the faults it finds; which of them comes
 * first, and which only follow from others, is decided afterwards (verdict.c). The order of the table decides between faults of
 * which the clocks do not tell which was earlier.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

#define TOGETHER_NS 200000000ull /* ends within this, in the same way, on one host, are one event */

struct fault *fault_add(struct judge *j, enum verdict_kind kind, const int32_t *culprits, int n)
{
    if (j->nfaults == MOST_FAULTS)
        return NULL;
    struct fault *x = &j->faults[j->nfaults];
    *x = (struct fault){.kind = kind, .nculprits = n};
    x->culprits = mem_array((size_t)MAX(n, 1), sizeof *x->culprits);
    if (!x->culprits) {
        j->no_memory = true;
        return NULL;
    }
    if (n > 0)
        memcpy(x->culprits, culprits, (size_t)n * sizeof *culprits);
    j->nfaults++;
    return x;
}

/* Scratch for lists of ranks; NULL sets no_memory. */
static int32_t *rank_list(struct judge *j)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    j->no_memory = j->no_memory || !list;
    return list;
}

static bool old_enough(const struct judge *j, uint64_t since_ns)
{
    return age_of(j, since_ns) >= j->stall_ns;
}

/* ---- ranks that are not there ------------------------------------------------------------------------------------------ */

static void find_never_joined(struct judge *j)
{
    int32_t *list = rank_list(j);
    uint64_t since = 0;
    int n = 0;
    for (int r = 0; list && r < j->size; r++)
        if (j->f->ranks[r].status == VERDICT_NEVER_JOINED || (j->f->joining && j->f->ranks[r].status == VERDICT_UNKNOWN)) {
            uint64_t t = at_judge(j, r, j->f->ranks[r].status_since_ns);
            since = since == 0 || (t && t < since) ? t : since;
            list[n++] = r;
        }
    struct fault *x = n ? fault_add(j, VERDICT_KIND_NEVER_JOINED, list, n) : NULL;
    if (x)
        x->since_ns = since;
    free(list);
}

static bool same_end(const struct judge *j, const struct verdict_rank *a, const struct verdict_rank *b)
{
    uint64_t ta = at_judge(j, a->rank, a->status_since_ns), tb = at_judge(j, b->rank, b->status_since_ns);
    return a->ended == b->ended && a->ended_code == b->ended_code && a->oom_kill == b->oom_kill && a->host_index == b->host_index &&
           (ta > tb ? ta - tb : tb - ta) <= TOGETHER_NS;
}

/* A process that ended after its communicators had failed ended because of that. */
static bool failed_before(const struct verdict_rank *r)
{
    for (uint32_t i = 0; i < r->ncomms; i++)
        if (r->comms[i].failed != UNO_OK && r->comms[i].failed_rank != r->rank &&
            (r->comms[i].failed_ns == 0 || r->status_since_ns == 0 || r->comms[i].failed_ns <= r->status_since_ns))
            return true;
    return false;
}

static void find_dead(struct judge *j)
{
    int32_t *list = rank_list(j);
    bool *done = mem_array((size_t)j->size, sizeof *done);
    j->no_memory = j->no_memory || !done;
    for (int r = 0; list && done && r < j->size; r++) {
        const struct verdict_rank *d = &j->f->ranks[r];
        if (d->status != VERDICT_DEAD || done[r])
            continue;
        int n = 0;
        for (int k = r; k < j->size; k++) {
            const struct verdict_rank *e = &j->f->ranks[k];
            if (e->status != VERDICT_DEAD || done[k] || !same_end(j, d, e) || failed_before(d) != failed_before(e))
                continue;
            done[k] = true;
            list[n++] = k;
        }
        struct fault *x = fault_add(j, VERDICT_KIND_DEAD, list, n);
        if (x)
            x->since_ns = at_judge(j, r, d->status_since_ns);
    }
    free(list);
    free(done);
}

/* ---- calls ----------------------------------------------------------------------------------------------------------------- */

/* All that do not call what most call; when opinions are even, everybody. */
static int minority(const struct group *g, const struct call_class *classes, int nclasses, const signed char *of, int32_t *list)
{
    bool even = classes[0].n == classes[1].n;
    int n = 0;
    for (uint32_t i = 0; i < g->nseats; i++)
        if (of[i] >= 0 && (even || of[i] > 0) && of[i] < nclasses)
            list[n++] = g->seats[i].rank;
    return n;
}

/* A disagreement exists from the moment the last of the classes was called. */
static uint64_t disagree_since(const struct judge *j, const struct group *g, uint32_t number, int nclasses, const signed char *of)
{
    uint64_t since = 0;
    for (int k = 0; k < nclasses; k++) {
        uint64_t first = 0;
        for (uint32_t i = 0; i < g->nseats; i++) {
            const struct verdict_event *e = of[i] == k ? event_at(g->seats[i].comm, number) : NULL;
            uint64_t t = e ? at_judge(j, g->seats[i].rank, e->start_ns) : 0;
            first = first == 0 || (t && t < first) ? t : first;
        }
        since = MAX(since, first);
    }
    return since;
}

static void sort_ranks(int32_t *list, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && list[k] < list[k - 1]; k--) {
            int32_t keep = list[k];
            list[k] = list[k - 1];
            list[k - 1] = keep;
        }
}

static void mismatch_in(struct judge *j, struct group *g, signed char *of, int32_t *list)
{
    bool by_signature, strong = false;
    uint32_t number = first_difference(g, &by_signature);
    if (number == 0)
        return;
    struct call_class classes[MOST_CLASSES];
    int n = classes_of(g, number, by_signature, classes, of);
    if (n < 2)
        return;
    int culprits = minority(g, classes, n, of, list);
    sort_ranks(list, culprits);
    int shift = n == 2 && classes[0].n > classes[1].n ? shifted(classes[1].seat->comm, classes[0].seat->comm, number, &strong) : 0;
    struct fault *x = fault_add(j, shift ? VERDICT_KIND_OFF_BY_ONE : VERDICT_KIND_MISMATCH, list, culprits);
    if (!x)
        return;
    g->mismatched = true;
    x->group = g;
    x->number = number;
    x->shift = shift;
    x->since_ns = disagree_since(j, g, number, n, of);
    x->sure = by_signature || (shift && !strong) ? VERDICT_LIKELY : VERDICT_SURE;
}

static void find_mismatches(struct judge *j)
{
    signed char *of = mem_array((size_t)j->size, 1);
    int32_t *list = rank_list(j);
    j->no_memory = j->no_memory || !of;
    for (uint32_t i = 0; of && list && i < j->ngroups; i++)
        if (j->groups[i].nseats > 1)
            mismatch_in(j, &j->groups[i], of, list);
    free(of);
    free(list);
}

static enum verdict_kind kind_of_error(int32_t err)
{
    return err == UNO_ERR_PEER_DEAD ? VERDICT_KIND_DEAD : err == UNO_ERR_UNREACHABLE ? VERDICT_KIND_UNREACHABLE
           : err == UNO_ERR_MISMATCH ? VERDICT_KIND_MISMATCH : VERDICT_KIND_ABORTED;
}

/* Communicators that have failed: the earliest cause of each, as its rank told it. Counts where no rule sees the reason itself. */
static void find_failed(struct judge *j)
{
    for (uint32_t i = 0; i < j->ngroups; i++) {
        struct group *g = &j->groups[i];
        const struct seat *first = NULL;
        uint64_t since = 0;
        for (uint32_t k = 0; k < g->nseats; k++) {
            uint64_t t = at_judge(j, g->seats[k].rank, g->seats[k].comm->failed_ns);
            if (g->seats[k].comm->failed != UNO_OK && (!first || (t && t < since))) {
                first = &g->seats[k];
                since = t;
            }
        }
        if (!first)
            continue;
        int32_t rank = first->comm->failed_rank;
        bool known = rank >= 0 && rank < j->size;
        struct fault *x = fault_add(j, kind_of_error(first->comm->failed), &rank, known ? 1 : 0);
        if (!x)
            return;
        x->told = true;
        x->group = g;
        x->failed = first->comm;
        x->since_ns = since;
        x->sure = VERDICT_LIKELY;
    }
}

/* ---- paths ------------------------------------------------------------------------------------------------------------------- */

/* Does everything of this host stand, so that its silence says nothing of the network? */
static bool host_stands(const struct judge *j, int host)
{
    bool any = false;
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host) {
            if (!stands(&j->f->ranks[r]))
                return false;
            any = true;
        }
    return any;
}

static bool pair_known(const struct judge *j, const struct verdict_link *l)
{
    for (int i = 0; i < j->nfaults; i++) {
        const struct verdict_link *o = j->faults[i].kind == VERDICT_KIND_UNREACHABLE ? j->faults[i].link : NULL;
        if (o && ((o->from_host == l->from_host && o->to_host == l->to_host) ||
                  (o->from_host == l->to_host && o->to_host == l->from_host)))
            return true;
    }
    return false;
}

static bool host_silent(const struct judge *j, int host)
{
    bool any = false;
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host) {
            if (!gone(&j->f->ranks[r]))
                return false;
            any = true;
        }
    return any;
}

/* The ranks of a pair's silent host; none when both sides speak. */
static int silent_side(const struct judge *j, const struct verdict_link *l, int32_t *list)
{
    int n = 0;
    int host = host_silent(j, l->to_host) ? l->to_host : host_silent(j, l->from_host) ? l->from_host : -1;
    for (int r = 0; host >= 0 && r < j->size; r++)
        if (j->f->ranks[r].host_index == host)
            list[n++] = r;
    return n;
}

static void find_unreachable(struct judge *j)
{
    int32_t *list = rank_list(j);
    for (int r = 0; list && r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++) {
            const struct verdict_link *l = &j->f->ranks[r].links[i];
            if (l->state == VERDICT_PATH_OK || l->state == VERDICT_PATH_MUTE || pair_known(j, l) || host_stands(j, l->to_host))
                continue;
            struct fault *x = fault_add(j, VERDICT_KIND_UNREACHABLE, list, silent_side(j, l, list));
            if (!x)
                break;
            x->link = l;
            x->link_reporter = r;
            x->since_ns = at_judge(j, r, l->since_ns);
        }
    free(list);
}

/* ---- circles ------------------------------------------------------------------------------------------------------------------ */

static void add_cycle(struct judge *j, struct wait **cycle, int n, int32_t *list)
{
    bool messages = false;
    uint64_t since = 0;
    for (int i = 0; i < n; i++) {
        messages = messages || cycle[i]->p2p;
        since = MAX(since, cycle[i]->since_ns); /* it is closed with its last wait */
        list[i] = cycle[i]->rank;
    }
    sort_ranks(list, n);
    struct fault *x = fault_add(j, messages ? VERDICT_KIND_P2P_UNMATCHED : VERDICT_KIND_COMM_ORDER, list, n);
    if (!x) {
        free(cycle);
        return;
    }
    x->since_ns = since;
    x->cycle = cycle;
    x->ncycle = n;
    x->group = cycle[0]->group;
    x->number = cycle[0]->p2p ? 0 : cycle[0]->group->number;
}

static void find_cycles(struct judge *j)
{
    bool *used = mem_array((size_t)j->size, sizeof *used);
    int32_t *list = rank_list(j);
    j->no_memory = j->no_memory || !used;
    for (int round = 0; used && list && round < 4; round++) {
        struct wait **cycle;
        int n;
        if (find_cycle(j, used, &cycle, &n) != UNO_OK)
            j->no_memory = true;
        if (n == 0)
            break;
        for (int i = 0; i < n; i++)
            used[cycle[i]->rank] = true;
        add_cycle(j, cycle, n, list);
    }
    free(used);
    free(list);
}

/* ---- ranks that others wait for and that wait for nobody -------------------------------------------------------------------- */

static bool destroyed(const struct group *g, int rank)
{
    const struct seat *s = seat_of(g, rank);
    return s && s->comm->destroyed;
}

/* Is it ready to run and gets no processor? */
static bool starved(const struct verdict_process *p)
{
    return p->sample_ns > 0 && p->queue_permille >= 500;
}

/* What keeps this rank, seen by itself. in_p2p: a send or receive waits for it. */
static enum verdict_kind classify(const struct judge *j, const struct group *g, int rank, bool in_p2p)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    if (r->status == VERDICT_DEAD)
        return VERDICT_KIND_DEAD;
    if (r->status == VERDICT_NEVER_JOINED)
        return VERDICT_KIND_NEVER_JOINED;
    if (r->status == VERDICT_LEFT || destroyed(g, rank))
        return VERDICT_KIND_LEFT;
    if (stands(r))
        return VERDICT_KIND_STOPPED;
    if (gone(r))
        return VERDICT_KIND_SILENT;
    if (starved(&r->process))
        return VERDICT_KIND_SLOW_RANK;
    if (r->process.run == VERDICT_RUN_RUNS && !r->process.in_library && (r->process.sample_ns == 0 || r->process.cpu_permille >= 200))
        return VERDICT_KIND_COMPUTING;
    return in_p2p ? VERDICT_KIND_P2P_UNMATCHED : VERDICT_KIND_RANK_ABSENT;
}

/* Those who will never come need not be waited for long. */
static bool is_final(enum verdict_kind kind)
{
    return kind == VERDICT_KIND_DEAD || kind == VERDICT_KIND_LEFT || kind == VERDICT_KIND_NEVER_JOINED;
}

/* Its calls stand at other places of the program than the others', by one. */
static uint32_t site_shift_of(const struct group *g, int rank, int *shift)
{
    const struct seat *s = seat_of(g, rank);
    for (uint32_t i = 0; s && i < g->nseats; i++)
        if (running(g->seats[i].comm) && g->seats[i].rank != rank)
            return site_shift(s->comm, g->seats[i].comm, shift);
    return 0;
}

static void absent_of_kind(struct judge *j, struct group *g, enum verdict_kind kind, int32_t *list)
{
    int n = 0;
    for (int i = 0; i < g->nabsent; i++)
        if (!j->blocked[g->absent[i]] && classify(j, g, g->absent[i], false) == kind)
            list[n++] = g->absent[i];
    if (n == 0 || (!is_final(kind) && !old_enough(j, g->since_ns)))
        return;
    sort_ranks(list, n);
    int shift = 0;
    bool by_program = kind == VERDICT_KIND_RANK_ABSENT || kind == VERDICT_KIND_COMPUTING || kind == VERDICT_KIND_LEFT;
    uint32_t from = n == 1 && by_program ? site_shift_of(g, list[0], &shift) : 0;
    struct fault *x = fault_add(j, from ? VERDICT_KIND_OFF_BY_ONE : kind, list, n);
    if (!x)
        return;
    x->group = g;
    x->number = from ? from : g->number;
    x->shift = shift;
    x->since_ns = g->since_ns;
    x->sure = from || kind == VERDICT_KIND_SILENT ? VERDICT_LIKELY : VERDICT_SURE;
}

static bool somebody_waits(const struct judge *j, const struct group *g)
{
    for (uint32_t i = 0; i < j->nwaits; i++)
        if (j->waits[i].group == g && !j->waits[i].p2p)
            return true;
    return false;
}

static void find_absent_ranks(struct judge *j)
{
    static const enum verdict_kind kinds[] = {VERDICT_KIND_LEFT, VERDICT_KIND_STOPPED, VERDICT_KIND_SILENT, VERDICT_KIND_SLOW_RANK,
                                              VERDICT_KIND_RANK_ABSENT, VERDICT_KIND_COMPUTING};
    int32_t *list = rank_list(j);
    for (uint32_t i = 0; list && i < j->ngroups; i++) {
        struct group *g = &j->groups[i];
        if (g->nabsent == 0 || g->mismatched || !somebody_waits(j, g))
            continue;
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
            absent_of_kind(j, g, kinds[k], list);
    }
    free(list);
}

/* A send or receive whose peer waits for nobody, or that waits for anybody. */
static void find_unmatched(struct judge *j)
{
    for (uint32_t i = 0; i < j->nwaits; i++) {
        const struct wait *w = &j->waits[i];
        if (!w->p2p || (w->on >= 0 && j->blocked[w->on]))
            continue;
        enum verdict_kind kind = w->on >= 0 ? classify(j, w->group, w->on, true) : VERDICT_KIND_P2P_UNMATCHED;
        if (kind == VERDICT_KIND_DEAD || (!is_final(kind) && !old_enough(j, w->since_ns)))
            continue;
        int32_t who[2] = {w->rank, w->on};
        if (w->on >= 0 && w->on < w->rank) {
            who[0] = w->on;
            who[1] = w->rank;
        }
        bool pair = kind == VERDICT_KIND_P2P_UNMATCHED;
        struct fault *x = fault_add(j, kind, pair ? who : &w->on, pair && w->on >= 0 && w->on != w->rank ? 2 : 1);
        if (!x)
            return;
        x->wait = w;
        x->group = w->group;
        x->since_ns = w->since_ns;
        x->sure = pair ? VERDICT_LIKELY : VERDICT_SURE;
    }
}

/* ---- all have called, and it does not end -------------------------------------------------------------------------------------- */

static bool all_inside(const struct judge *j, const struct group *g)
{
    return g->number != 0 && g->nabsent == 0 && !g->mismatched && g->nseats == (uint32_t)g->size && somebody_waits(j, g) &&
           old_enough(j, g->since_ns);
}

static struct fault *inside_fault(struct judge *j, struct group *g, enum verdict_kind kind, const int32_t *culprits, int n)
{
    struct fault *x = fault_add(j, kind, culprits, n);
    if (x) {
        x->group = g;
        x->number = g->number;
        x->since_ns = g->since_ns;
        x->sure = VERDICT_LIKELY;
    }
    return x;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Ranks that get far fewer processors than the group's others. */
static bool slow_ranks_inside(struct judge *j, struct group *g)
{
    int32_t *list = rank_list(j);
    uint64_t *share = mem_array(g->nseats, sizeof *share);
    int n = 0;
    bool found = false;
    j->no_memory = j->no_memory || !share;
    if (list && share) {
        for (uint32_t i = 0; i < g->nseats; i++)
            share[i] = j->f->ranks[g->seats[i].rank].process.queue_permille;
        qsort(share, g->nseats, sizeof *share, compare_u64);
        uint64_t median = share[(g->nseats - 1) / 2];
        for (uint32_t i = 0; i < g->nseats; i++) {
            const struct verdict_process *p = &j->f->ranks[g->seats[i].rank].process;
            if (starved(p) && p->queue_permille >= 3 * median)
                list[n++] = g->seats[i].rank;
        }
        sort_ranks(list, n);
        found = n > 0 && inside_fault(j, g, VERDICT_KIND_SLOW_RANK, list, n);
    }
    free(list);
    free(share);
    return found;
}

/* Median of what paths move, so that one slow path stands out even where nothing is known of what it should do. */
static uint64_t usual_rate(const struct judge *j)
{
    uint64_t rates[256];
    size_t n = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks && n < ARRAY_LEN(rates); i++)
            if (j->f->ranks[r].links[i].measured_bps)
                rates[n++] = j->f->ranks[r].links[i].measured_bps;
    qsort(rates, n, sizeof *rates, compare_u64);
    return n >= 3 ? rates[n / 2] : 0;
}

static bool host_in(const struct judge *j, const struct group *g, int host)
{
    for (uint32_t i = 0; i < g->nseats; i++)
        if (j->f->ranks[g->seats[i].rank].host_index == host)
            return true;
    return false;
}

static bool slow_link_of(struct judge *j, struct group *g, uint64_t usual)
{
    const struct verdict_link *worst = NULL;
    double worst_share = 1.0 / 3;
    int reporter = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++) {
            const struct verdict_link *l = &j->f->ranks[r].links[i];
            if (l->measured_bps == 0 || !host_in(j, g, l->from_host) || !host_in(j, g, l->to_host))
                continue;
            uint64_t should = MAX(l->expected_bps, usual);
            double share = should ? (double)l->measured_bps / (double)should : 1;
            if (share < worst_share) {
                worst_share = share;
                worst = l;
                reporter = r;
            }
        }
    struct fault *x = worst ? inside_fault(j, g, VERDICT_KIND_SLOW_LINK, NULL, 0) : NULL;
    if (x) {
        x->link = worst;
        x->link_reporter = reporter;
    }
    return x != NULL;
}

static void find_inside(struct judge *j)
{
    uint64_t usual = usual_rate(j);
    for (uint32_t i = 0; i < j->ngroups; i++) {
        struct group *g = &j->groups[i];
        if (!all_inside(j, g) || slow_ranks_inside(j, g) || slow_link_of(j, g, usual))
            continue;
        bool still = g->moved_ns && old_enough(j, g->moved_ns);
        inside_fault(j, g, still ? VERDICT_KIND_FAULT_OF_OURS : VERDICT_KIND_SLOW, NULL, 0);
    }
}

/* ---- the table -------------------------------------------------------------------------------------------------------------------- */

static const struct rule { const char *looks_for; void (*find)(struct judge *j); } rules[] = {
    {"ranks that never joined", find_never_joined},
    {"processes that ended", find_dead},
    {"calls that do not fit together", find_mismatches},
    {"paths that are cut", find_unreachable},
    {"circles of waits", find_cycles},
    {"ranks that do not come to a collective", find_absent_ranks},
    {"sends and receives without partner", find_unmatched},
    {"operations that all have called and that do not end", find_inside},
    {"communicators that have failed", find_failed},
};

void rules_run(struct judge *j)
{
    for (size_t i = 0; i < ARRAY_LEN(rules) && !j->no_memory; i++) {
        int before = j->nfaults;
        rules[i].find(j);
        for (int k = before; k < j->nfaults; k++)
            j->faults[k].priority = (int)i;
    }
}
