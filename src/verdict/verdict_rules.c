/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_rules.c - one small function a cause. Each looks at the facts by itself and adds the faults it finds; which of them comes
 * first, and which only follow from others, is decided afterwards (verdict.c). The order of the table decides between faults of
 * which the clocks do not tell which was earlier.
 */
#include "verdict/verdict_inner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS 50000000ull      /* a sample shorter than this tells no share of processor time */
#define SHORT_NS 200000000ull    /* of a sample */
#define MOMENT_NS 500000000ull   /* a shorter one says nothing of what will be */
#define TOGETHER_NS 200000000ull /* ends within this, in the same way, on one host, are one event */

struct fault *fault_add(struct judge *j, enum verdict_kind kind, const int32_t *culprits, int n)
{
    if (mem_grow(&j->faults, &j->cap_faults, (size_t)j->nfaults + 1, sizeof *j->faults) != UNO_OK) {
        j->no_memory = true;
        return NULL;
    }
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
int32_t *rank_list(struct judge *j)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    j->no_memory = j->no_memory || !list;
    return list;
}

bool old_enough(const struct judge *j, uint64_t since_ns)
{
    return age_of(j, since_ns) >= j->stall_ns;
}

void sort_ranks(int32_t *list, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && list[k] < list[k - 1]; k--) {
            int32_t keep = list[k];
            list[k] = list[k - 1];
            list[k - 1] = keep;
        }
}

/* Is it ready to run and gets no processor? */
bool starved(const struct verdict_process *p)
{
    return p->sample_ns > 0 && p->queue_permille >= 500;
}

bool somebody_waits(const struct judge *j, const struct group *g)
{
    for (uint32_t i = 0; i < j->nwaits; i++)
        if (j->waits[i].group == g && !j->waits[i].p2p)
            return true;
    return false;
}

/* ---- ranks that are not there ------------------------------------------------------------------------------------------ */

/* The first since when of those that are so. */
static uint64_t first_since(const struct judge *j, bool (*so)(const struct verdict_rank *r))
{
    uint64_t since = 0;
    for (int r = 0; r < j->size; r++) {
        uint64_t t = so(&j->f->ranks[r]) ? at_judge(j, r, j->f->ranks[r].status_since_ns) : 0;
        since = since == 0 || (t && t < since) ? t : since;
    }
    return since;
}

uint64_t first_joining(const struct judge *j)
{
    return first_since(j, joins);
}

static bool never_joined(const struct verdict_rank *r)
{
    return r->status == VERDICT_NEVER_JOINED;
}

/* Records of joining ranks, and of none that has a communicator: who is not seen may have come on another host, or not at all. */
static bool records_join(const struct judge *j)
{
    bool any = false;
    for (int r = 0; r < j->size; r++) {
        if (j->f->ranks[r].ncomms || j->f->ranks[r].comms_left_out)
            return false;
        any = any || joins(&j->f->ranks[r]);
    }
    return any;
}

/* All have come, and some stand. */
static void find_stopped_joining(struct judge *j, int32_t *list)
{
    int n = 0;
    for (int r = 0; r < j->size; r++)
        if (joins(&j->f->ranks[r]) && stands(&j->f->ranks[r]))
            list[n++] = r;
    struct fault *x = n && old_enough(j, first_joining(j)) ? fault_add(j, VERDICT_KIND_STOPPED, list, n) : NULL;
    if (x)
        x->since_ns = first_joining(j);
}

static void find_never_joined(struct judge *j)
{
    int32_t *list = rank_list(j);
    int n = 0;
    j->joining = j->f->joining || records_join(j);
    for (int r = 0; list && r < j->size; r++)
        if (never_joined(&j->f->ranks[r]) || (j->joining && j->f->ranks[r].status == VERDICT_UNKNOWN))
            list[n++] = r;
    bool known = j->f->joining || (n && never_joined(&j->f->ranks[list[0]]));
    uint64_t since = known ? first_since(j, never_joined) : first_joining(j);
    struct fault *x = n && (known || old_enough(j, since)) ? fault_add(j, VERDICT_KIND_NEVER_JOINED, list, n) : NULL;
    if (x) {
        x->since_ns = since;
        x->sure = known ? VERDICT_SURE : VERDICT_LIKELY;
    }
    if (list && j->joining && n == 0)
        find_stopped_joining(j, list);
    free(list);
}

static bool same_end(const struct judge *j, const struct verdict_rank *a, const struct verdict_rank *b)
{
    uint64_t ta = at_judge(j, a->rank, a->status_since_ns), tb = at_judge(j, b->rank, b->status_since_ns);
    return a->ended == b->ended && a->ended_code == b->ended_code && a->oom_kill == b->oom_kill && a->host_index == b->host_index &&
           (ta > tb ? ta - tb : tb - ta) <= TOGETHER_NS;
}

/* From outside, for which a failed communicator may be no reason. */
static bool killed(const struct verdict_rank *r)
{
    return r->ended == VERDICT_ENDED_AGENT || (r->ended == VERDICT_ENDED_SIGNAL && r->ended_code != SIGABRT && r->ended_code != SIGTERM);
}

/* A kill that is seen a moment after a communicator failed may have come before: its own reason. */
static bool failed_first(const struct verdict_rank *r, const struct verdict_comm *c)
{
    if (c->failed == UNO_OK || c->failed_rank == r->rank)
        return false;
    if (c->failed_ns == 0 || r->status_since_ns == 0)
        return !killed(r);
    return c->failed_ns <= r->status_since_ns && (!killed(r) || r->status_since_ns - c->failed_ns > TOGETHER_NS);
}

bool failed_before(const struct verdict_rank *r)
{
    bool failed = false;
    for (uint32_t i = 0; i < r->ncomms; i++)
        failed = failed || failed_first(r, &r->comms[i]);
    return failed;
}

/* It has gone on without those who were missing: made a smaller communicator. */
static bool went_on(const struct verdict_rank *r, const struct verdict_comm *c)
{
    for (uint32_t i = 0; i < r->ncomms; i++)
        if (r->comms[i].epoch > c->epoch)
            return true;
    return false;
}

bool ended_because(const struct verdict_rank *r, const struct verdict_comm *c)
{
    return failed_first(r, c) && !killed(r) && !went_on(r, c);
}

static bool anybody_lives(const struct judge *j)
{
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].status != VERDICT_DEAD && j->f->ranks[r].status != VERDICT_LEFT)
            return true;
    return false;
}

/* Ended in a way that nobody wants. Who left in order with a failing status counts when the whole job is over: others may not have needed it. */
static bool ended_badly(const struct verdict_rank *r, bool over)
{
    return r->status == VERDICT_DEAD ||
           (over && r->status == VERDICT_LEFT && r->ended == VERDICT_ENDED_EXIT && r->ended_code != 0);
}

static bool ended_by_launcher(const struct verdict_rank *r)
{
    return r->ended == VERDICT_ENDED_SIGNAL && r->ended_code == SIGTERM;
}

/* A rank that was ended because another one had ended before is that one's consequence. */
static bool ended_after(const struct judge *j, const struct verdict_rank *r, bool over)
{
    for (int k = 0; ended_by_launcher(r) && k < j->size; k++) {
        const struct verdict_rank *e = &j->f->ranks[k];
        if (ended_badly(e, over) && !ended_by_launcher(e) && !failed_before(e) &&
            at_judge(j, k, e->status_since_ns) <= at_judge(j, r->rank, r->status_since_ns))
            return true;
    }
    return false;
}

static void find_dead(struct judge *j)
{
    bool over = !anybody_lives(j);
    int32_t *list = rank_list(j);
    bool *done = mem_array((size_t)j->size, sizeof *done);
    j->no_memory = j->no_memory || !done;
    for (int r = 0; done && r < j->size; r++)
        done[r] = !ended_badly(&j->f->ranks[r], over) || ended_after(j, &j->f->ranks[r], over);
    for (int r = 0; list && done && r < j->size; r++) {
        const struct verdict_rank *d = &j->f->ranks[r];
        if (done[r])
            continue;
        int n = 0;
        for (int k = r; k < j->size; k++) {
            const struct verdict_rank *e = &j->f->ranks[k];
            if (done[k] || !same_end(j, d, e) || failed_before(d) != failed_before(e))
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

/* ---- circles ------------------------------------------------------------------------------------------------------------------ */

/* A circle is told from its first send or receive on, for that is what is wrong. */
static void turn_to_message(struct wait **cycle, int n)
{
    for (int turns = 0; turns < n && !cycle[0]->p2p; turns++) {
        struct wait *first = cycle[0];
        memmove(cycle, cycle + 1, (size_t)(n - 1) * sizeof *cycle);
        cycle[n - 1] = first;
    }
}

static void add_cycle(struct judge *j, struct wait **cycle, int n, int32_t *list)
{
    turn_to_message(cycle, n);
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

/* Are so many ranks one and the same want, that of a job which is large for its machines? */
bool job_wants(int alike, int all)
{
    return alike > 1 && 3 * alike >= all;
}

/* ... while others get theirs? When others of its host, or a third of all, are short of processors, too, the job is oversubscribed, and
 * nobody is slow. */
static bool starved_alone(const struct judge *j, const struct verdict_rank *r)
{
    if (!starved(&r->process) || shares_quota(j, r) || r->process.queue_permille < 700) /* half of one is what a second program takes */
        return false;
    int alike = 1, all = 1;
    for (int i = 0; i < j->size; i++) {
        const struct verdict_rank *o = &j->f->ranks[i];
        if (o == r || o->process.sample_ns == 0)
            continue;
        bool like = 2 * o->process.queue_permille >= r->process.queue_permille;
        if (like && o->host_index == r->host_index)
            return false;
        all++;
        alike += like;
    }
    return !job_wants(alike, all);
}

/* Does it run, outside of us? Over a short sample the state counts: processor times are counted in ticks of 10 ms. */
static bool computes(const struct verdict_process *p)
{
    return p->run == VERDICT_RUN_RUNS && !p->in_library &&
           (p->sample_ns < SHORT_NS || p->cpu_permille >= 200 || p->cpu_permille + p->queue_permille >= 500);
}

/* Does the thread that calls us wait for others of its process that compute, as in pthread_join, or while a child of it is awaited? */
bool others_compute(const struct verdict_process *p)
{
    static const char *const waits[] = {"futex", "wait4", "waitid"};
    bool so = false;
    for (size_t i = 0; i < ARRAY_LEN(waits); i++)
        so = so || strcmp(p->syscall, waits[i]) == 0;
    return so && p->run == VERDICT_RUN_SYSCALL && !p->in_library && p->sample_ns >= LOOK_NS && p->cpu_permille >= 500;
}

/* Has it begun or ended an operation of any communicator lately? Then it is late, but moves on. */
static bool moves_on(const struct judge *j, const struct verdict_rank *r)
{
    for (uint32_t i = 0; i < r->ncomms; i++) {
        const struct verdict_comm *c = &r->comms[i];
        const struct verdict_event *e = c->nevents ? &c->events[c->nevents - 1] : NULL;
        if (e && !old_enough(j, at_judge(j, r->rank, MAX(e->start_ns, e->end_ns))))
            return true;
    }
    return false;
}

/* in_p2p: a send or receive waits for it. */
enum verdict_kind absent_kind(const struct judge *j, const struct group *g, int rank, bool in_p2p)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    if (r->status == VERDICT_DEAD)
        return VERDICT_KIND_DEAD;
    if (r->status == VERDICT_NEVER_JOINED)
        return VERDICT_KIND_NEVER_JOINED;
    if (r->status == VERDICT_LEFT || destroyed(g, rank))
        return VERDICT_KIND_LEFT;
    if (replaced(r))
        return in_p2p ? VERDICT_KIND_P2P_UNMATCHED : VERDICT_KIND_RANK_ABSENT;
    if (stands(r))
        return VERDICT_KIND_STOPPED;
    if (gone(r))
        return VERDICT_KIND_SILENT;
    if (starved_alone(j, r))
        return VERDICT_KIND_SLOW_RANK;
    if (computes(&r->process) || others_compute(&r->process))
        return VERDICT_KIND_COMPUTING;
    if (!in_p2p && moves_on(j, r))
        return VERDICT_KIND_COMPUTING;
    return in_p2p ? VERDICT_KIND_P2P_UNMATCHED : VERDICT_KIND_RANK_ABSENT;
}

/* Those who will never come need not be waited for long. */
static bool is_final(enum verdict_kind kind)
{
    return kind == VERDICT_KIND_DEAD || kind == VERDICT_KIND_LEFT || kind == VERDICT_KIND_NEVER_JOINED;
}

/* Is it known for a moment only, or not at all, what these ranks do? In the next one it may be something else. */
static bool hardly_seen(const struct judge *j, enum verdict_kind kind, const int32_t *list, int n)
{
    for (int i = 0; i < n; i++) {
        const struct verdict_process *p = &j->f->ranks[list[i]].process;
        if ((kind == VERDICT_KIND_SLOW_RANK && p->sample_ns < MOMENT_NS) ||
            (kind == VERDICT_KIND_RANK_ABSENT && p->run == VERDICT_RUN_UNKNOWN))
            return true;
    }
    return false;
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

/* Does anybody who waits for these ranks, directly or through others, wait for long? */
static bool long_missed(struct judge *j, const int32_t *list, int n)
{
    (void)reach(j, list, n);
    for (uint32_t i = 0; i < j->nwaits; i++)
        if (j->mark[j->waits[i].rank] == 1 && old_enough(j, j->waits[i].since_ns))
            return true;
    return false;
}

/* When one rank alone waits for most, it may be the one that made a call too many. */
static bool lone_caller(struct judge *j, struct group *g, const int32_t *list, int n)
{
    const struct seat *lone = NULL;
    int callers = 0, shift = 0;
    for (uint32_t i = 0; i < g->nseats; i++)
        if (running(g->seats[i].comm) && running(g->seats[i].comm)->number == g->number) {
            lone = &g->seats[i];
            callers++;
        }
    const struct seat *other = callers == 1 && n > 1 ? seat_of(g, list[0]) : NULL;
    uint32_t from = other ? site_shift(lone->comm, other->comm, &shift) : 0;
    if (from == 0)
        return false;
    int32_t rank = lone->rank;
    struct fault *x = fault_add(j, VERDICT_KIND_OFF_BY_ONE, &rank, 1);
    if (x) {
        x->group = g;
        x->number = from;
        x->shift = shift;
        x->since_ns = g->since_ns;
        x->sure = VERDICT_LIKELY;
    }
    return true;
}

/* Its answer may only be late, over a path that is slow: silence of a moment is none. */
static bool hardly_silent(const struct judge *j, int rank)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    return r->status == VERDICT_SILENT && r->status_since_ns && 4 * age_of(j, at_judge(j, rank, r->status_since_ns)) < 3 * j->stall_ns;
}

static void absent_of_kind(struct judge *j, struct group *g, enum verdict_kind kind, int32_t *list)
{
    int n = 0;
    for (int i = 0; i < g->nabsent; i++)
        if (!j->blocked[g->absent[i]] && absent_kind(j, g, g->absent[i], false) == kind && (kind != VERDICT_KIND_SILENT || !hardly_silent(j, g->absent[i])))
            list[n++] = g->absent[i];
    if (n == 0)
        return;
    if (!is_final(kind) && !old_enough(j, g->since_ns)) { /* at most one link of a chain that moves on */
        if (!long_missed(j, list, n))
            return;
        kind = VERDICT_KIND_COMPUTING;
    }
    sort_ranks(list, n);
    int shift = 0;
    bool by_program = kind == VERDICT_KIND_RANK_ABSENT || kind == VERDICT_KIND_COMPUTING || kind == VERDICT_KIND_LEFT;
    uint32_t from = n == 1 && by_program ? site_shift_of(g, list[0], &shift) : 0;
    if (by_program && lone_caller(j, g, list, n))
        return;
    struct fault *x = fault_add(j, from ? VERDICT_KIND_OFF_BY_ONE : kind, list, n);
    if (!x)
        return;
    x->group = g;
    x->number = from ? from : g->number;
    x->shift = shift;
    x->since_ns = g->since_ns;
    x->sure = from || kind == VERDICT_KIND_SILENT || kind == VERDICT_KIND_RANK_ABSENT ? VERDICT_LIKELY : VERDICT_SURE;
    if (!from && hardly_seen(j, kind, list, n))
        x->sure = VERDICT_GUESS;
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
        enum verdict_kind kind = w->on >= 0 ? absent_kind(j, w->group, w->on, true) : VERDICT_KIND_P2P_UNMATCHED;
        if (kind == VERDICT_KIND_DEAD || (!is_final(kind) && !old_enough(j, w->since_ns)) ||
            (kind == VERDICT_KIND_SILENT && hardly_silent(j, w->on)))
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
        if (w->on >= 0 && (hardly_seen(j, kind, (int32_t[]){w->on}, 1) || (pair && moves_on(j, &j->f->ranks[w->on]))))
            x->sure = VERDICT_GUESS; /* a stage of a pipeline may come yet */
    }
}

/* Nobody waits where all are stopped. Of whom nothing was heard nothing is claimed. */
static void find_all_stopped(struct judge *j)
{
    int32_t *list = rank_list(j);
    int n = 0, reported = 0;
    uint64_t since = 0;
    for (int r = 0; list && r < j->size; r++) {
        const struct verdict_rank *rank = &j->f->ranks[r];
        reported += !gone(rank);
        if (gone(rank) || !stands(rank))
            continue;
        since = MAX(since, at_judge(j, r, rank->process.run_since_ns));
        list[n++] = r;
    }
    bool known = false;
    for (int i = 0; i < j->nfaults; i++)
        known = known || j->faults[i].kind == VERDICT_KIND_STOPPED;
    struct fault *x = n && n == reported && !known ? fault_add(j, VERDICT_KIND_STOPPED, list, n) : NULL;
    if (x)
        x->since_ns = since;
    free(list);
}

/* ---- the table -------------------------------------------------------------------------------------------------------------------- */

static const struct rule { const char *looks_for; void (*find)(struct judge *j); } rules[] = {
    {"ranks that never joined", find_never_joined},
    {"processes that ended", find_dead},
    {"calls that do not fit together", find_mismatches},
    {"paths that are cut", find_unreachable},
    {"circles of waits", find_cycles},
    {"ranks that get no processor and hold all others up", find_starved},
    {"paths that are slow and hold all others up", find_behind},
    {"ranks that do not come to a collective", find_absent_ranks},
    {"ranks that do not come to the making of a communicator", find_making},
    {"sends and receives without partner", find_unmatched},
    {"operations that all have called and that do not end", find_inside},
    {"communicators that have failed", find_failed},
    {"jobs of which nobody runs", find_all_stopped},
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
