/* SPDX-License-Identifier: Apache-2.0 */
/* rules_order.c - communicators in different orders on different ranks, and time-outs that were given to another group. */
#include <stdlib.h>
#include <string.h>

#include "scene.h"

/* ---- a split that not all members call --------------------------------------------------------------------------------------------- */

/* The id of the communicator that a pointer is, on that rank's process. */
static const struct fact *parent_of(const struct model *m, const struct fact *split)
{
    EACH_FACT(m, F_INIT, f)
        if (begins(f->more, "self ") && same_text(f->more + 5, split->more) && f->pid == split->pid && same_text(f->host, split->host))
            return f;
    return NULL;
}

static bool is_split(const struct fact *f)
{
    return begins(f->extra, "ncclCommSplit") || begins(f->extra, "ncclCommShrink") || (!begins(f->more, "self ") && *f->more);
}

static bool calls_split(const struct model *m, const struct fact *member, const char *id)
{
    EACH_FACT(m, F_INIT, f)
        if (is_split(f) && f->rank == member->rank) {
            const struct fact *p = parent_of(m, f);
            if (p && same_text(p->name, id))
                return true;
        }
    return false;
}

static bool split_completes(const struct model *m, const struct fact *split)
{
    EACH_FACT(m, F_INIT, f)
        if (f->b == 1 && is_split(f) && same_text(f->more, split->more) && f->pid == split->pid)
            return true;
    return false;
}

void rule_split_order(struct judge *j)
{
    EACH_FACT(j->m, F_INIT, split) {
        const struct fact *parent = is_split(split) && split->b == 0 ? parent_of(j->m, split) : NULL;
        if (!parent || split_completes(j->m, split))
            continue;
        struct ranks in = {0}, out = {0};
        EACH_FACT(j->m, F_INIT, f)
            if (f->b == 1 && !is_split(f) && same_text(f->name, parent->name))
                ranks_add(j->m, calls_split(j->m, f, parent->name) ? &in : &out, f->rank);
        if (!out.n || !in.n)
            continue;
        struct finding *f = find(j, CAUSE + 5, 0.85, "%s is inside a split of communicator %s that %s never called", Ranks_say(j->m, &in), parent->name, ranks_say(j->m, &out));
        explain(j, f, "A split (new_group, a sub-mesh) must be called by every member of its parent, in the same order, also by those that get no place in it.");
        evidence(f, split);
        evidence(f, parent);
        const struct scene *s = scene_of(j);
        for (int i = 0; i < out.n; i++) {
            const struct wait *w = any_wait(s, out.v[i]);
            if (!w)
                continue;
            explain(j, f, "Rank %d meanwhile waits in %s%s%s.", out.v[i], operation_says(j, w), *w->site ? ", called by " : "", w->site);
            evidence(f, w->fact);
            consequence(j, f, "rank %d waits in %s for ranks that are in the split", out.v[i], operation_says(j, w));
            break;
        }
        remedy(j, f, "let all ranks call new_group (or init_device_mesh) for every group, in one order, before the first barrier");
        return;
    }
}

/* ---- groups, crossed ----------------------------------------------------------------------------------------------------------------------- */

enum { CIRCLE = 16 }; /* longer ones have a shorter one beside them, or cannot be told */

/* Somebody waits for r in w, and r has not come there: it waits elsewhere itself. */
static bool waits_for(const struct scene *s, const struct wait *w, int r)
{
    const struct wait *o = first_wait(s, r, w->group);
    return r != w->rank && ranks_has(&s->dumps, r) && (!o || o->number > w->number) && !has_completed(s, r, w->group, w->number);
}

/* Go on from the last of the circle; true when it closes. Each rank stands in one operation: its oldest. */
static bool closes(const struct scene *s, const struct wait **circle, int n, int most, int *steps)
{
    const struct wait *w = circle[n - 1];
    for (int k = 0; k < w->group->members.n && --*steps > 0; k++) {
        int r = w->group->members.v[k];
        if (!waits_for(s, w, r))
            continue;
        if (r == circle[0]->rank && n > 1)
            return circle[0]->group != w->group;
        const struct wait *next = oldest_wait(s, r);
        bool there = !next || next->p2p;
        for (int i = 0; i < n; i++)
            there = there || circle[i]->rank == r;
        if (there || n == most)
            continue;
        circle[n] = next;
        if (closes(s, circle, n + 1, most, steps))
            return true;
        circle[n + 1] = NULL;
    }
    return false;
}

static int find_circle(const struct scene *s, const struct wait **circle)
{
    for (int most = 2; most <= CIRCLE; most++) { /* the shortest is the easiest to read */
        int steps = 200000;
        for (int i = 0; i < s->waiting.n && steps > 0; i++) {
            circle[0] = oldest_wait(s, s->waiting.v[i]);
            circle[1] = NULL;
            if (!circle[0] || circle[0]->p2p || !closes(s, circle, 1, most, &steps))
                continue;
            int n = 1;
            while (n < most && circle[n])
                n++;
            return n;
        }
    }
    return 0;
}

void rule_crossed_groups(struct judge *j)
{
    const struct scene *s = scene_of(j);
    const struct wait *circle[CIRCLE + 2] = {NULL};
    int n = s->recorded ? find_circle(s, circle) : 0;
    struct ranks in = {0};
    if (!n)
        return;
    const char *where = "";
    for (int i = 0; i < n; i++) {
        ranks_add(j->m, &in, circle[i]->rank);
        where = model_say(j->m, "%s%s%d for %d (%s)", where, i ? ", " : "", circle[i]->rank, circle[(i + 1) % n]->rank, circle[i]->group->words);
    }
    struct finding *f = n == 2 ? find(j, CAUSE, 0.85, "Rank %d and rank %d wait for each other in two groups: rank %d in %s, rank %d in %s", circle[0]->rank, circle[1]->rank, circle[0]->rank, operation_says(j, circle[0]), circle[1]->rank,
                                      operation_says(j, circle[1]))
                               : find(j, CAUSE, 0.85, "%s wait for each other in a circle of groups: %s", Ranks_say(j->m, &in), where);
    explain(j, f, "Each has issued first what %s second. Operations of several groups must be issued in one order by all ranks that share them.", n == 2 ? "the other issues" : "the one it waits for issues");
    for (int i = 0; i < n; i++) {
        if (n > 2 || *circle[i]->site)
            explain(j, f, "Rank %d stands in %s%s%s.", circle[i]->rank, operation_says(j, circle[i]), *circle[i]->site ? ", called by " : "", circle[i]->site);
        evidence(f, circle[i]->fact);
    }
    remedy(j, f, "issue the operations of these groups in the same order on every rank, or wait for one before the next is issued");
}

/* ---- a record that ends before the others' ------------------------------------------------------------------------------------------------- */

/* Without a GPU an operation ends where it was called; who stands in one that the others are past did not run any more. */
void rule_record_behind(struct judge *j)
{
    const struct scene *s = scene_of(j);
    for (int i = 0; i < s->wait_count; i++) {
        const struct wait *w = &s->waits[i], *ahead = NULL;
        struct ranks past = {0};
        if (w->p2p || !w->on_host || w->group->mismatched || !needs_everyone(w->op) || w != first_wait(s, w->rank, w->group))
            continue;
        for (int k = 0; k < w->group->members.n; k++) {
            int r = w->group->members.v[k];
            if (r == w->rank || !has_completed(s, r, w->group, w->number))
                continue;
            ranks_add(j->m, &past, r);
            ahead = ahead ? ahead : first_wait(s, r, w->group);
        }
        if (!ahead)
            continue;
        struct finding *f = find(j, CAUSE - 5, 0.8, "Rank %d stands in %s, which the others have finished: %s %s in operation %lld", w->rank, operation_says(j, w), ranks_say(j->m, &past), ranks_verb(&past, "waits", "wait"), (long long)ahead->number);
        explain(j, f, "Nobody finishes it without rank %d, so it took part and did not go on: its process is stopped (SIGSTOP, a frozen container, a debugger) or gets no processor. Or its dump was written earlier than theirs.", w->rank);
        evidence(f, w->fact);
        evidence(f, ahead->fact);
        remedy(j, f, "on its host: `ps -o pid,stat,wchan:30,args -p PID`; a T in STAT is stopped, `kill -CONT PID` lets it go on");
        return;
    }
}

/* ---- time-outs that act elsewhere ------------------------------------------------------------------------------------------------------- */

static const char *seconds_say(struct model *m, int64_t ms)
{
    int64_t s = ms / 1000;
    if (s >= 3600 && s % 3600 == 0)
        return model_say(m, "%lld h", (long long)(s / 3600));
    return s >= 60 && s % 60 == 0 ? model_say(m, "%lld min", (long long)(s / 60)) : model_say(m, "%lld s", (long long)s);
}

void rule_timeout_scope(struct judge *j)
{
    const struct scene *s = scene_of(j);
    const struct fact *limit = NULL, *variable = setting_of(j->m, "NCCL_TIMEOUT");
    EACH_FACT(j->m, F_GROUP_LIMIT, l)
        if (!l->b)
            limit = l;
    for (int i = 0; i < s->wait_count; i++) {
        const struct wait *w = &s->waits[i];
        const struct fact *k = w->fact;
        if (k->kind != F_WATCHDOG || k->c <= 0)
            continue;
        bool other = limit && limit->a > 0 && limit->a * 1000 != k->c, ignored = !limit && variable && variable->value[0] && strtoll(variable->value, NULL, 10) * 1000 != k->c && k->c == 600000;
        if (!other && !ignored)
            continue;
        const char *group = *w->group->words ? w->group->words : "that group";
        struct finding *f = other ? find(j, LIKELY + 5, 0.8, "The time-out of %lld ms (%s) that ended group %s is its own: the %s given to init_process_group do not apply to it", (long long)k->c, seconds_say(j->m, k->c), group, seconds_say(j->m, limit->a * 1000))
                                  : find(j, LIKELY, 0.7, "The time-out of %lld ms (%s) that acted is PyTorch's default: NCCL_TIMEOUT=%s is read by no library", (long long)k->c, seconds_say(j->m, k->c), variable->value);
        explain(j, f, "A group made by new_group or a device mesh without timeout= has the default of its backend (10 min for NCCL), whatever the default group was given.");
        evidence(f, k);
        evidence(f, other ? limit : variable);
        if (other)
            remedy(j, f, "pass timeout= to new_group(...), or to the mesh, too; frameworks have their own: Megatron `--distributed-timeout-minutes 120`, DeepSpeed's timeout in init_distributed, verl `actor_rollout_ref.nccl_timeout=7200`");
        else
            remedy(j, f, "pass `timeout=timedelta(seconds=%s)` to init_process_group; then find out why an operation takes that long", variable->value);
        return;
    }
}
