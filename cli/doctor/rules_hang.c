/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_hang.c - ranks that wait: who is absent, behind, different, crossed between groups, or stands still on its GPU. Ranks are compared
 * with each other; who says nothing where others wait is the one to look at.
 */
#include <stdio.h>
#include <string.h>

#include "scene.h"

/* What a collective's members must have alike. All-to-all and rooted ones may differ in what goes in. */
static bool sizes_must_agree(const char *op)
{
    static const char *const ops[] = {"all_reduce", "allreduce", "ALLREDUCE", "AllReduce", "_all_gather_base", "all_gather", "_reduce_scatter_base", "reduce_scatter", "broadcast",
                                      "reduce", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "allgather_into_tensor", "AllGather", "ReduceScatter", "Broadcast"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (same_text(op, ops[i]))
            return true;
    return false;
}

bool needs_everyone(const char *op)
{
    return sizes_must_agree(op) ? !strcasestr(op, "broadcast") && strcasecmp(op, "reduce") != 0 : strcasestr(op, "all_to_all") || strcasestr(op, "barrier") || strcasestr(op, "alltoall");
}

/* ---- mismatch --------------------------------------------------------------------------------------------------------------------- */

static void ranks_with(struct judge *j, const struct scene *s, const struct group *g, int64_t number, const char *op, int64_t elements, struct ranks *out)
{
    for (int i = g->from; i < g->to; i++) {
        const struct wait *w = &s->waits[i];
        if (w->number == number && !w->p2p && same_text(w->op, op) && w->elements == elements)
            ranks_add(j->m, out, w->rank);
    }
    EACH_FACT(j->m, F_OP, o) /* who was let go has passed it as well */
        if (o->c == 2 && o->a == number && o->name == g->name && !(o->d & 1) && o->b == elements && same_text(o->value, op))
            ranks_add(j->m, out, o->rank);
}

static bool differ(const struct wait *a, const struct wait *b)
{
    if (!same_text(a->op, b->op))
        return true;
    return a->elements != b->elements && a->elements != NOBODY && b->elements != NOBODY && sizes_must_agree(a->op);
}

static void tell_mismatch(struct judge *j, const struct scene *s, const struct group *g, const struct wait *a, const struct wait *b)
{
    struct ranks with_a = {0}, with_b = {0};
    ranks_with(j, s, g, a->number, a->op, a->elements, &with_a);
    ranks_with(j, s, g, b->number, b->op, b->elements, &with_b);
    if (with_a.n > with_b.n || (with_a.n == with_b.n && with_a.v[0] > with_b.v[0])) { /* the few first */
        const struct wait *w = a;
        struct ranks r = with_a;
        a = b, with_a = with_b;
        b = w, with_b = r;
    }
    bool same_op = same_text(a->op, b->op);
    struct finding *f = same_op ? find(j, CAUSE, 0.95, "O%s: %s %s %lld elements, %s %s %lld", operation_says(j, a) + 1, ranks_say(j->m, &with_a), ranks_verb(&with_a, "passes", "pass"), (long long)a->elements, ranks_say(j->m, &with_b),
                                          ranks_verb(&with_b, "passes", "pass"), (long long)b->elements)
                                : find(j, CAUSE, 0.95, "Operation %lld of group %s differs: %s %s %s (%lld elements), %s %s %s (%lld elements)", (long long)a->number, g->words, ranks_say(j->m, &with_a), ranks_verb(&with_a, "calls", "call"), a->op,
                                       (long long)a->elements, ranks_say(j->m, &with_b), ranks_verb(&with_b, "calls", "call"), b->op, (long long)b->elements);
    explain(j, f, "All members of a group must call the same operations with the same sizes in the same order; nothing checks it, so the data never match and everybody waits.");
    if (*a->site || *b->site)
        explain(j, f, "Called by %s on %s%s%s%s.", *a->site ? a->site : "an unknown place", ranks_say(j->m, &with_a), same_text(a->site, b->site) ? ", and by the same place on the others" : ", by ",
                same_text(a->site, b->site) ? "" : b->site, same_text(a->site, b->site) ? "" : " on the others");
    evidence(f, a->fact);
    evidence(f, b->fact);
    remedy(j, f, same_op ? "compare what the two sides pass at that call: a last batch that is shorter, padding that differs, a parameter that only some ranks have"
                         : "compare the order of calls on both sides: a branch that depends on the rank, or an extra call on some of them");
    remedy(j, f, "run with `TORCH_DISTRIBUTED_DEBUG=DETAIL`, which compares every call before it is made");
}

/* The operation of a group in which somebody stands, and nobody stands before it. */
static const struct wait *lowest_wait(const struct scene *s, const struct group *g)
{
    for (int i = g->from; i < g->to; i++)
        if (!s->waits[i].p2p && s->waits[i].number == g->lowest)
            return &s->waits[i];
    return NULL;
}

/* A wait that differs from it, NULL if none. One against all others is enough. */
static const struct wait *odd_wait(const struct scene *s, const struct group *g, const struct wait *a)
{
    for (int i = g->from; a && i < g->to; i++)
        if (s->waits[i].number == a->number && !s->waits[i].p2p && differ(a, &s->waits[i]))
            return &s->waits[i];
    return NULL;
}

void rule_mismatch_waits(struct judge *j)
{
    const struct scene *s = scene_of(j);
    for (struct group *g = s->groups; g; g = g->next) {
        const struct wait *a = lowest_wait(s, g), *b = odd_wait(s, g, a);
        g->mismatched = b != NULL;
        if (b)
            tell_mismatch(j, s, g, a, b);
    }
    EACH_FACT(j->m, F_OP, o) { /* against those who were let go */
        struct wait b = ended_there(s, o);
        if (o->c != 2 || b.p2p || !b.group || b.group->mismatched || b.number != b.group->lowest)
            continue;
        const struct wait *a = lowest_wait(s, b.group);
        b.group->mismatched = a && differ(a, &b);
        if (b.group->mismatched)
            tell_mismatch(j, s, b.group, a, &b);
    }
}

/* "271, 1, 1083, 16" against "271, 1, 1084, 16" -> the dimensions that differ. */
static const char *shapes_differ(struct model *m, const char *a, const char *b)
{
    const char *out = "";
    int dim = 0;
    while (*a && *b) {
        size_t na = strcspn(a, ",x"), nb = strcspn(b, ",x");
        if (na != nb || memcmp(a, b, na) != 0)
            out = model_say(m, "%s%sdimension %d (%.*s against %.*s)", out, *out ? ", " : "", dim, (int)na, a, (int)nb, b);
        a += na + strspn(a + na, ",x ");
        b += nb + strspn(b + nb, ",x ");
        dim++;
    }
    return *a || *b ? model_say(m, "%s%sthe number of dimensions", out, *out ? " and " : "") : out;
}

/* NCCL's own check names a place and no side. */
void rule_calls_differ(struct judge *j)
{
    const struct fact *c = first_of(j->m, F_CALLS_DIFFER);
    if (!c)
        return;
    struct finding *f = find(j, LIKELY, 0.75, "The library finds that ranks make different calls%s", c->rank != NOBODY ? model_say(j->m, ", at or near rank %d", c->rank) : "");
    explain(j, f, "It sees another size, or another order, than a neighbour has, and does not say which of the two is wrong.");
    evidence_all(j, f, F_CALLS_DIFFER);
    remedy(j, f, "trace the calls of all ranks: `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL NCCL_DEBUG_FILE=/tmp/coll.%%h.%%p`, then `unisono doctor /tmp/coll.*` names the first that differs; with PyTorch: `TORCH_DISTRIBUTED_DEBUG=DETAIL`");
}

/* PyTorch's debug wrapper says both sides in one line. */
void rule_mismatch_wrapper(struct judge *j)
{
    const struct fact *w = first_of(j->m, F_FINGERPRINT);
    if (!w)
        return;
    struct finding *f;
    if (w->peer == NOBODY) {
        f = find(j, CAUSE, 0.8, "Rank %d calls %s (%s), and others call something else there", w->rank, w->name, w->extra);
    } else if (!same_text(w->name, w->value)) {
        f = find(j, CAUSE, 0.95, "Rank %d calls %s where rank %d calls %s", w->rank, w->name, w->peer, w->value);
    } else if (!same_text(w->extra, w->more)) {
        f = find(j, CAUSE, 0.95, "%s: rank %d and rank %d pass shapes that differ in %s", w->name, w->rank, w->peer, shapes_differ(j->m, w->extra, w->more));
        explain(j, f, "Rank %d has [%s], rank %d has [%s]; the operation and the rest are the same.", w->rank, w->extra, w->peer, w->more);
    } else if (w->a != w->b) {
        f = find(j, CAUSE, 0.7, "Rank %d is at call %lld where rank %d is at call %lld: one of them made a call more", w->rank, (long long)w->a, w->peer, (long long)w->b);
    } else {
        f = find(j, CAUSE, 0.8, "%s is called differently by rank %d and rank %d (type of the elements, or device)", w->name, w->rank, w->peer);
    }
    evidence(f, w);
    EACH_FACT(j->m, F_EXCEPTION, e)
        if (e->rank == w->rank && *e->extra) {
            explain(j, f, "The call is at %s.", e->extra);
            evidence(f, e);
            break;
        }
    remedy(j, f, "make that dimension the same everywhere before the call: pad to a multiple of the group's size, or drop the last incomplete batch");
}

/* ---- device-stalled ---------------------------------------------------------------------------------------------------------------- */

struct stalled {
    struct ranks ranks, others;
    const struct wait *one;
    const struct fact *other;
};

/* Everybody has called it; on some it runs, on this one it has never begun. */
static void never_started(struct judge *j, const struct scene *s, struct stalled *out)
{
    for (int i = 0; i < s->wait_count; i++) {
        const struct wait *w = &s->waits[i];
        if (w->state != 0 || w->p2p || w->on_host || w->group->mismatched || w != first_wait(s, w->rank, w->group))
            continue;
        for (int k = w->group->from; k < w->group->to; k++) {
            const struct wait *o = &s->waits[k];
            if (o->number == w->number && o->state == 1 && !o->p2p && !differ(w, o)) {
                ranks_add(j->m, &out->ranks, w->rank);
                ranks_add(j->m, &out->others, o->rank);
                out->one = out->one ? out->one : w;
                out->other = out->other ? out->other : o->fact;
            }
        }
    }
}

/* It has ended on others, who cannot end it without this one, and not here. */
static void never_ended(struct judge *j, const struct scene *s, struct stalled *out)
{
    for (int i = 0; i < s->wait_count; i++) {
        const struct wait *w = &s->waits[i];
        if (w->p2p || w->on_host || w->group->mismatched || !needs_everyone(w->op) || w != first_wait(s, w->rank, w->group))
            continue;
        for (int k = 0; k < w->group->members.n; k++) {
            int r = w->group->members.v[k];
            if (r == w->rank || !has_completed(s, r, w->group, w->number))
                continue;
            ranks_add(j->m, &out->ranks, w->rank);
            ranks_add(j->m, &out->others, r);
            out->one = out->one ? out->one : w;
            const struct wait *o = first_wait(s, r, w->group);
            out->other = out->other ? out->other : o ? o->fact : NULL;
        }
    }
}

void rule_device_stalled(struct judge *j)
{
    const struct scene *s = scene_of(j);
    struct stalled began = {0}, ended = {0};
    never_started(j, s, &began);
    never_ended(j, s, &ended);
    struct stalled *x = ended.one ? &ended : &began;
    if (!x->one)
        return;
    for (int i = x->others.n; i-- > 0;) /* who stands still itself is no witness */
        if (ranks_has(&x->ranks, x->others.v[i]))
            memmove(&x->others.v[i], &x->others.v[i + 1], (size_t)(--x->others.n - i) * sizeof(int));
    bool all_entered = x == &began;
    struct finding *f = find(j, CAUSE, !s->recorded ? 0.7 : all_entered ? 0.85 : 0.9, "The GPU%s of %s stopped executing: %s %s", x->ranks.n == 1 ? "" : "s", ranks_say(j->m, &x->ranks), operation_says(j, x->one),
                             all_entered ? "was issued everywhere, and never began there" : "and later ones were issued there and never ended, though the others of the group are past it");
    explain(j, f, "%s %s; the program issued the same work, with the same sizes, on %s. What stands still is the device (or earlier work on its stream), not the application's logic and not the network.",
            x->others.n ? Ranks_say(j->m, &x->others) : "Others", all_entered ? ranks_verb(&x->others, "runs it", "run it") : ranks_verb(&x->others, "has finished it", "have finished it"), ranks_say(j->m, &x->ranks));
    evidence(f, x->one->fact);
    evidence(f, x->other);
    evidence_all(j, f, F_XID);
    consequence(j, f, "every other wait in these records ends at %s", ranks_say(j->m, &x->ranks));
    remedy(j, f, "on the host%s of %s: `dmesg | grep -iE 'xid|nvrm|amdgpu'`; `nvidia-smi -q -d ECC,PAGE_RETIREMENT,CLOCK` (AMD: `rocm-smi --showras`)", x->ranks.n == 1 ? "" : "s", ranks_say(j->m, &x->ranks));
    remedy(j, f, "take %s out of the job and run it again; if it passes, replace the GPU", x->ranks.n == 1 ? "that GPU" : "those GPUs");
}

/* ---- absent ------------------------------------------------------------------------------------------------------------------------ */

/* Members of a group where others wait who have not come there, though they are heard of. */
static void absent_from(struct judge *j, const struct scene *s, const struct group *g, int64_t number, struct ranks *absent, struct ranks *waiting)
{
    for (int i = 0; i < g->members.n; i++) {
        int r = g->members.v[i];
        const struct wait *w = first_wait(s, r, g);
        if (w && w->number <= number)
            ranks_add(j->m, waiting, r);
        else if (!w && !has_completed(s, r, g, number) && (!s->recorded || ranks_has(&s->dumps, r)) && last_issued(s, r, g) < number)
            ranks_add(j->m, absent, r);
    }
}

/* Ranks that wait for nobody, and for whom others wait. */
static void culprits(struct judge *j, const struct scene *s, struct ranks *out, const struct wait **where)
{
    for (const struct group *g = s->groups; g; g = g->next) {
        int64_t number = g->lowest;
        struct ranks absent = {0}, waiting = {0};
        if (number == NOBODY)
            continue;
        absent_from(j, s, g, number, &absent, &waiting);
        /* Where only log lines are known, those who are silent must be fewer than those who speak: else it is their logs that are missing. */
        bool said = false;
        for (int i = 0; i < absent.n; i++)
            said = said || ranks_has(&s->speakers, absent.v[i]);
        if (!waiting.n || (!s->recorded && !said && (waiting.n < 2 || absent.n >= waiting.n)))
            continue;
        for (int i = 0; i < absent.n; i++)
            if (!ranks_has(&s->waiting, absent.v[i])) {
                ranks_add(j->m, out, absent.v[i]);
                if (!*where || (*where)->group->members.n > g->members.n)
                    *where = first_wait(s, waiting.v[0], g);
            }
    }
}

static void tell_busy(struct judge *j, struct finding *f, const struct ranks *r)
{
    EACH_FACT(j->m, F_BUSY, b)
        if (b->rank == NOBODY || ranks_has(r, b->rank)) {
            explain(j, f, "Something is still at work in user code: \"%s\" stands at %.0f %%.", b->name, b->x);
            evidence(f, b);
            remedy(j, f, "do that work before the group is made, or once and for all beforehand (tokenise or preprocess the data set offline, more workers), or give the group a longer time-out");
            return;
        }
}

static void tell_waiters(struct judge *j, const struct scene *s, struct finding *f, const struct wait *at)
{
    struct ranks waiting = {0};
    for (int i = at->group->from; i < at->group->to; i++)
        if (s->waits[i].number == at->number && !s->waits[i].p2p) {
            ranks_add(j->m, &waiting, s->waits[i].rank);
            evidence(f, s->waits[i].fact);
        }
    const struct fact *w = at->fact;
    const char *limit = w->kind == F_WATCHDOG && w->c ? model_say(j->m, ", until their time-out of %lld s", (long long)w->c / 1000) : "";
    consequence(j, f, "%s wait%s in it%s; they are its victims, not its cause", ranks_say(j->m, &waiting), waiting.n == 1 ? "s" : "", limit);
}

void rule_rank_absent(struct judge *j)
{
    const struct scene *s = scene_of(j);
    struct ranks missing = {0};
    const struct wait *at = NULL;
    culprits(j, s, &missing, &at);
    if (!missing.n)
        return;
    struct finding *f = find(j, LIKELY + 10, s->recorded ? 0.9 : 0.8, "%s never entered %s", Ranks_say(j->m, &missing), operation_says(j, at));
    int64_t last = last_issued(s, missing.v[0], at->group);
    if (last != NOBODY)
        explain(j, f, "What %s had issued there before, up to operation %lld, is complete: the program itself did not come to the next call. It is no fault of the network.", missing.n == 1 ? "it" : "they", (long long)last);
    else
        explain(j, f, "%s for nobody: the program itself did not come to that call (it is in user code, in a data loader, or gone). It is no fault of the network.", missing.n == 1 ? "It waits" : "They wait");
    if (at->elements == 1)
        explain(j, f, "An all-reduce of one element is what a barrier is.");
    if (*at->site)
        explain(j, f, "The others call it at %s.", at->site);
    tell_waiters(j, s, f, at);
    EACH_FACT(j->m, F_PROGRESS, p)
        if (p->rank == missing.v[0])
            evidence(f, p);
    struct ranks idle = {0};
    EACH_FACT(j->m, F_DUMP, d)
        if (ranks_has(&missing, d->rank) && d->a == 0) {
            ranks_add(j->m, &idle, d->rank);
            evidence(f, d);
        }
    if (idle.n)
        explain(j, f, "The dumps of %s have nothing unfinished in them: the thread there issues nothing more (a lock such as Python's GIL, I/O, a sleep).", ranks_say(j->m, &idle));
    tell_busy(j, f, &missing);
    EACH_FACT(j->m, F_PROCESS, p)
        if (*p->value && ranks_has(&missing, p->rank)) {
            explain(j, f, "Rank %d was at %s when its process was looked at.", p->rank, p->value);
            evidence(f, p);
        }
    remedy(j, f, "look at what %s doing: `py-spy dump --pid PID` (or `gdb -p PID`) on %s host", missing.n == 1 ? "it is" : "they are", missing.n == 1 ? "its" : "their");
    remedy(j, f, "if ranks may have different numbers of batches: drop the last ones, or use `torch.distributed.algorithms.join.Join`");
}

/* ---- dumps that are missing --------------------------------------------------------------------------------------------------------- */

void rule_dump_missing(struct judge *j)
{
    const struct scene *s = scene_of(j);
    struct ranks missing = {0};
    const struct wait *at = NULL;
    if (!s->recorded)
        return;
    for (const struct group *g = s->groups; g; g = g->next)
        for (int i = 0; (g->whole || g->everyone) && i < g->members.n; i++)
            if (g->lowest != NOBODY && !ranks_has(&s->dumps, g->members.v[i])) {
                ranks_add(j->m, &missing, g->members.v[i]);
                for (int k = g->from; k < g->to && !at; k++)
                    at = !s->waits[k].p2p ? &s->waits[k] : NULL;
            }
    if (!missing.n || !at)
        return;
    bool most = missing.n > s->dumps.n; /* then files were lost or not given, which says little of any rank */
    struct finding *f = find(j, most ? ADVICE : LIKELY, most ? 0.3 : 0.75, "%s wrote no dump, while %s %s in %s", Ranks_say(j->m, &missing), ranks_say(j->m, &s->dumps), ranks_verb(&s->dumps, "waits", "wait"), operation_says(j, at));
    explain(j, f, "A rank that has died, or that is blocked in its tear-down after an exception, writes none; so the missing file points at %s.", ranks_say(j->m, &missing));
    if (most)
        explain(j, f, "Most are missing, so they may simply not have been given: read them all together.");
    evidence(f, at->fact);
    EACH_FACT(j->m, F_GROUP, g)
        if (same_text(g->name, at->group->name))
            evidence(f, g);
    remedy(j, f, "read the last lines of %s, and its host's dmesg; set `TORCH_NCCL_DUMP_ON_TIMEOUT=1` on all ranks", ranks_say(j->m, &missing));
}

/* ---- others who say who is missing -------------------------------------------------------------------------------------------------- */

void rule_barrier_missed(struct judge *j)
{
    const struct fact *b = first_of(j->m, F_BARRIER_MISS);
    struct ranks missing = {0};
    if (b)
        ranks_add_list(j->m, &missing, b->name);
    if (!missing.n)
        return;
    struct finding *f = find(j, LIKELY + 5, 0.85, "%s did not come to a monitored barrier", Ranks_say(j->m, &missing));
    explain(j, f, "All others were there%s.", b->a ? model_say(j->m, " for %lld s", (long long)b->a / 1000) : "");
    evidence(f, b);
    tell_busy(j, f, &missing);
    remedy(j, f, "look at what %s doing: `py-spy dump --pid PID`; a branch that only some ranks take, or uneven input", missing.n == 1 ? "it is" : "they are");
}

/* Gloo says how long it waited, and not for whom. */
void rule_gloo_waited(struct judge *j)
{
    const struct fact *g = first_of(j->m, F_GLOO_TIMEOUT);
    struct ranks waiting = {0};
    if (!g)
        return;
    EACH_FACT(j->m, F_GLOO_TIMEOUT, k)
        ranks_add(j->m, &waiting, k->rank);
    struct finding *f = find(j, SYMPTOM + 3, 0.5, "%s waited %lld s in Gloo for a peer that did not %s", waiting.n ? Ranks_say(j->m, &waiting) : "A rank", (long long)g->a / 1000, same_text(g->value, "send") ? "take what was sent" : "send");
    explain(j, f, "The line does not say for whom. Who printed nothing, or something else, is to be looked at: uneven numbers of batches, or a rank still at work.");
    evidence(f, g);
    struct ranks none = {0};
    tell_busy(j, f, &none);
    remedy(j, f, "compare how many steps each rank has made; on the ranks that did not print this: `py-spy dump --pid PID`");
}

/* Communicators that were begun by some, where something says that the job stands. */
void rule_init_absent(struct judge *j)
{
    bool stands = fact_seen(j->m, F_WATCHDOG) || fact_seen(j->m, F_CONNECT) || fact_seen(j->m, F_EXCEPTION) || fact_seen(j->m, F_EXIT) || fact_seen(j->m, F_HEARTBEAT);
    const struct fact *one = first_of(j->m, F_INIT);
    struct ranks begun = {0}, missing = {0};
    if (!stands || !one || one->a > 1 << 16)
        return;
    EACH_FACT(j->m, F_INIT, i)
        if (same_text(i->name, one->name)) {
            if (i->b)
                return;
            ranks_add(j->m, &begun, i->rank);
        }
    for (int r = 0; r < one->a; r++)
        if (!ranks_has(&begun, r))
            ranks_add(j->m, &missing, r);
    if (!missing.n || missing.n > begun.n)
        return;
    struct finding *f = find(j, SYMPTOM + 8, 0.55, "%s of %lld never began communicator %s, in which the others wait", Ranks_say(j->m, &missing), (long long)one->a, one->name);
    explain(j, f, "Those that began it printed Init START and no COMPLETE; the library waits for the rest without a limit.");
    evidence(f, one);
    remedy(j, f, "read the logs of %s from the start: did they get that far, on which GPU, with which address of rank 0? `grep -nE 'Bootstrap|Init START|NCCL WARN' FILE`", ranks_say(j->m, &missing));
}

/* ---- all are there and nothing moves ---------------------------------------------------------------------------------------------------- */

static bool all_alike(const struct scene *s, const struct group *g, int64_t number, const struct wait **one, int *started)
{
    int n = 0;
    for (int i = g->from; i < g->to; i++) {
        const struct wait *w = &s->waits[i];
        if (w->number != number || w->p2p)
            continue;
        if (*one && differ(*one, w))
            return false;
        *one = w;
        *started += w->state == 1;
        n++;
    }
    return n > 1 && n == g->members.n;
}

void rule_stalled_in_flight(struct judge *j)
{
    const struct scene *s = scene_of(j);
    for (const struct group *g = s->groups; g; g = g->next) {
        int64_t number = g->lowest;
        const struct wait *one = NULL;
        int started = 0;
        if (number == NOBODY || !(g->whole || !*g->name || g->everyone) || !all_alike(s, g, number, &one, &started))
            continue;
        bool run = started == g->members.n;
        bool timed_out = one->fact->kind == F_WATCHDOG;
        if (!run && !timed_out)
            continue;
        struct finding *f = find(j, SYMPTOM + 5, run ? 0.8 : 0.6, "All %d ranks entered %s with the same size, and the data stopped", g->members.n, operation_says(j, one));
        explain(j, f, "Nobody is missing and nobody differs: what is left is the path between them (a NIC, a cable, a switch, a GPU link) or a GPU that stopped while it ran.");
        for (int i = g->from; i < g->to; i++)
            if (s->waits[i].number == number)
                evidence(f, s->waits[i].fact);
        remedy(j, f, "on every host: `sudo dmesg -T | grep -iE 'xid|mlx5|link|aer'`, and the error counters of ports before and after: `perfquery -x`, `ethtool -S NAME | grep -iE 'err|drop|discard'`");
        remedy(j, f, "run it on halves of the hosts until it fails on two, which have the path: `mpirun --host HOST,HOST -np 2 ./build/all_reduce_perf -b 1M -e 1G -f 2 -g 1`");
        return;
    }
}

/* ---- when nothing nearer is found -------------------------------------------------------------------------------------------------------- */

/* Watchdogs of one group that stand in different operations: whoever is at the lower has not come to the higher. */
void rule_apart(struct judge *j)
{
    const struct scene *s = scene_of(j);
    for (const struct group *g = s->groups; g && !anything_found(j); g = g->next) {
        const struct wait *low = NULL, *high = NULL;
        struct ranks behind = {0}, ahead = {0};
        for (int i = g->from; i < g->to; i++) {
            const struct wait *w = &s->waits[i];
            if (w->p2p || w->fact->kind != F_WATCHDOG)
                continue;
            low = !low || w->number < low->number ? w : low;
            high = !high || w->number > high->number ? w : high;
        }
        if (!low || low->number == high->number || low->rank == high->rank)
            continue;
        for (int i = g->from; i < g->to; i++)
            if (!s->waits[i].p2p)
                ranks_add(j->m, s->waits[i].number == low->number ? &behind : &ahead, s->waits[i].rank);
        struct finding *f = find(j, SYMPTOM + 6, 0.6, "%s %s in %s, and %s %s on already, in %s", Ranks_say(j->m, &behind), ranks_verb(&behind, "stands", "stand"), operation_says(j, low), ranks_say(j->m, &ahead), ranks_verb(&ahead, "is", "are"), operation_says(j, high));
        explain(j, f, "The root of a broadcast may leave it first; then its data was lost on the way. Else the two have counted differently, so one of them made a call that the other did not.");
        evidence(f, low->fact);
        evidence(f, high->fact);
        remedy(j, f, "the path between the two: `sudo dmesg -T | grep -iE 'xid|mlx5|link|aer'` on both hosts; the calls: run with `TORCH_DISTRIBUTED_DEBUG=DETAIL`, which compares each before it is made");
    }
}

/* Somebody waited in vain, and the input does not say for whom. */
void rule_timed_out(struct judge *j)
{
    const struct scene *s = scene_of(j);
    const struct wait *one = NULL;
    struct ranks waiting = {0};
    for (int i = 0; i < s->wait_count; i++)
        if (s->waits[i].fact->kind == F_WATCHDOG) {
            one = one ? one : &s->waits[i];
            if (same_text(s->waits[i].group->name, one->group->name) && s->waits[i].number == one->number)
                ranks_add(j->m, &waiting, s->waits[i].rank);
        }
    if (!one || anything_found(j))
        return;
    struct finding *f = find(j, SYMPTOM, 0.4, "%s waited in %s until the time-out, and nothing here says for whom", Ranks_say(j->m, &waiting), operation_says(j, one));
    explain(j, f, "A rank that says nothing is the one to look at: it did not come, it ended, or what it sends does not arrive.");
    evidence(f, one->fact);
    remedy(j, f, "give the logs of all ranks at once, and flight-recorder dumps: `export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1`; while it stands: `py-spy dump --pid PID` on the ranks that print nothing");
}
