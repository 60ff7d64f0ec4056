/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_advice.c - what to do, a line a kind of fault, and the evidence behind a headline, a line a rank or path.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PIDS 16 /* in one command */

/* ---- what to do ------------------------------------------------------------------------------------------------------------- */

/* "kill -CONT 811 812 on n1, 820 on n2 lets them go on" */
static void say_go_on(struct out *o, const struct judge *j, const struct fault *x)
{
    const char *host = NULL;
    int n = 0;
    say(o, "kill -CONT");
    for (int i = 0; i < x->nculprits; i++) {
        const struct verdict_rank *r = &j->f->ranks[x->culprits[i]];
        if (r->process.run != VERDICT_RUN_STOPPED)
            continue;
        if (host && strcmp(host, r->host) != 0)
            say(o, " on %s,", host);
        host = r->host;
        if (++n <= MOST_PIDS)
            say(o, " %d", r->pid);
    }
    say(o, "%s on %s lets %s go on", n > MOST_PIDS ? " ..." : "", host ? host : "its host", n > 1 ? "them" : "it");
}

/* A stack that is not to be had now is not to be had later either: of a thread that waits and may not be disturbed, or of one that runs and
 * blocks the signal. One that had no processor when it was asked may answer the next time. */
static const char *who_shows_stack(const struct verdict_rank *r)
{
    const struct verdict_process *p = r ? &r->process : NULL;
    return p && !p->stack[0] && (p->syscall[0] || (p->run == VERDICT_RUN_RUNS && p->cpu_permille >= 200)) ? "gdb -p" : "unisono why";
}

void what_next(struct out *o, const struct judge *j, const struct fault *x)
{
    const struct verdict_rank *r = x->nculprits ? &j->f->ranks[x->culprits[0]] : NULL;
    const char *host = r && r->host[0] ? r->host : "its host";
    switch (x->kind) {
    case VERDICT_KIND_NEVER_JOINED:
        say(o, "look whether %s started, and at %s first lines of output%s", x->nculprits == 1 ? "it was" : "they were", x->nculprits == 1 ? "its" : "their",
            x->sure == VERDICT_SURE ? "" : "; on other hosts of the job, ask `unisono why` there");
        break;
    case VERDICT_KIND_DEAD:
        if (r && r->oom_kill)
            say(o, "give the process more memory, or use less; dmesg and memory.events on %s tell more", host);
        else
            say(o, "read the last output of rank %d on %s; the others can go on with uno_comm_shrink", r ? r->rank : -1, host);
        break;
    case VERDICT_KIND_MISMATCH: say(o, "make the ranks' calls alike at the places named; data of this operation was not used"); break;
    case VERDICT_KIND_OFF_BY_ONE: say(o, "look for a branch before that call that this rank takes differently"); break;
    case VERDICT_KIND_ABORTED: say(o, "read the cause named; it came first"); break;
    case VERDICT_KIND_UNREACHABLE: say(o, x->told ? "read the cause named; it came first" : "look at that interface, its cable or switch port, and firewalls on both hosts"); break;
    case VERDICT_KIND_STOPPED:
        if (r && r->process.run == VERDICT_RUN_TRACED)
            say(o, "let the debugger go on (continue, or detach)");
        else if (r && r->process.run == VERDICT_RUN_FROZEN)
            say(o, "thaw its cgroup (echo 0 > cgroup.freeze, where there is none echo THAWED > freezer.state), or ask who suspended the container");
        else
            say_go_on(o, j, x);
        break;
    case VERDICT_KIND_COMM_ORDER: say(o, "use communicators in one order on all ranks, or their calls in one group"); break;
    case VERDICT_KIND_P2P_UNMATCHED:
        say(o, "post the missing partner; exchanges both ways belong in one group, or use uno_isend and uno_irecv");
        break;
    case VERDICT_KIND_LEFT: say(o, "look why this rank makes fewer calls than the others: uneven input is the usual reason"); break;
    case VERDICT_KIND_SILENT: say(o, "look on %s whether the process runs and the host answers", host); break;
    case VERDICT_KIND_RANK_ABSENT:
        if (r && replaced(r)) {
            say(o, "look for a call of exec in the program of rank %d, behind its last operation; what is run beside the job belongs into a child process", r->rank);
            break;
        }
        say(o, "look at rank %d where it stands: `%s %d` on %s shows its stack", r ? r->rank : -1, who_shows_stack(r), r ? r->pid : 0, host);
        break;
    case VERDICT_KIND_SLOW_RANK: say(o, "look what else runs on the processors of %s, and at CPU quotas and affinity", host); break;
    case VERDICT_KIND_SLOW_LINK: say(o, "look at that interface: negotiated speed, errors (ethtool -S), other traffic"); break;
    case VERDICT_KIND_COMPUTING:
        say(o, "nothing, if the program may be uneven there; `%s %d` on %s shows its stack", who_shows_stack(r), r ? r->pid : 0, host);
        break;
    case VERDICT_KIND_SLOW: say(o, "nothing, if the operation is that large"); break;
    case VERDICT_KIND_FAULT_OF_OURS: say(o, "report it with the files of `unisono why --export-flight-recorder DIR`"); break;
    default: break;
    }
}

/* ---- evidence ----------------------------------------------------------------------------------------------------------------- */

static struct verdict_line *line_add(struct verdict *v, int rank, uint64_t age_ns, struct out *o)
{
    if (v->nlines == VERDICT_MAX_LINES)
        return NULL;
    struct verdict_line *l = &v->lines[v->nlines++];
    l->rank = rank;
    l->age_ns = age_ns;
    *o = out_of(l->text, sizeof l->text);
    return l;
}

static void say_stack(struct out *o, const char *stack)
{
    say(o, "; stack: ");
    for (const char *s = stack; *s; s++)
        if (*s != '\n')
            say(o, "%c", *s);
        else if (s[1])
            say(o, " < ");
}

static void culprit_line(struct verdict *v, const struct judge *j, int rank)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    struct out o;
    if (!line_add(v, rank, age_of(j, at_judge(j, rank, r->status_since_ns)), &o))
        return;
    say_rank(&o, j, rank);
    say(&o, " ");
    if (r->status == VERDICT_DEAD || r->status == VERDICT_LEFT)
        say_ended(&o, j, r, 1);
    else if (r->status == VERDICT_NEVER_JOINED)
        say(&o, "never joined");
    else if (gone(r) && r->process.run == VERDICT_RUN_UNKNOWN)
        say_silent(&o, j, rank);
    else
        say_doing(&o, j, rank);
    if (r->ncomms) {
        say(&o, "; ");
        say_last(&o, j, rank);
    }
    if (r->process.stack[0])
        say_stack(&o, r->process.stack);
}

static void victim_lines(struct verdict *v, const struct judge *j, int most)
{
    int told = -1;
    for (uint32_t i = 0; i < j->nwaits && most > 0; i++) {
        const struct wait *w = &j->waits[i];
        struct out o;
        if (j->mark[w->rank] != 1 || w->rank == told || !line_add(v, w->rank, age_of(j, w->since_ns), &o))
            continue;
        told = w->rank;
        most--;
        say_rank(&o, j, w->rank);
        say(&o, " waits in ");
        say_wait(&o, j, w);
        say(&o, " for ");
        say_age(&o, age_of(j, w->since_ns));
    }
}

static void link_lines(struct verdict *v, const struct judge *j)
{
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++) {
            const struct verdict_link *l = &j->f->ranks[r].links[i];
            uint64_t age = age_of(j, at_judge(j, r, l->since_ns));
            struct out o;
            if (l->state == VERDICT_PATH_OK || !line_add(v, -1, age, &o))
                continue;
            say(&o, "rank %d says: path between ", r);
            say_pair(&o, j, l);
            say(&o, l->state == VERDICT_PATH_MUTE ? " acknowledges, nobody answers" : " is cut");
            if (age) {
                say(&o, " for ");
                say_age(&o, age);
            }
        }
}

static void missing_line(struct verdict *v, const struct judge *j)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    int n = 0;
    for (int r = 0; list && r < j->size; r++)
        if (j->f->ranks[r].status == VERDICT_UNKNOWN || j->f->ranks[r].status == VERDICT_SILENT)
            list[n++] = r;
    struct out o;
    if (n > 0 && line_add(v, n == 1 ? list[0] : -1, 0, &o)) {
        say(&o, "no report of ");
        say_ranks(&o, j, list, n);
    }
    free(list);
}

void evidence(struct verdict *v, struct judge *j, const struct fault *x)
{
    for (int i = 0; i < MIN(x->nculprits, 6) && !(x->kind == VERDICT_KIND_NEVER_JOINED && x->sure != VERDICT_SURE); i++)
        if (!x->ncycle || j->f->ranks[x->culprits[i]].process.stack[0])
            culprit_line(v, j, x->culprits[i]);
    for (int i = 0; i < MIN(x->ncycle, 6); i++) {
        struct out o;
        if (!line_add(v, x->cycle[i]->rank, age_of(j, x->cycle[i]->since_ns), &o))
            break;
        say_rank(&o, j, x->cycle[i]->rank);
        say(&o, " waits in ");
        say_wait(&o, j, x->cycle[i]);
        say(&o, " for ");
        say_age(&o, age_of(j, x->cycle[i]->since_ns));
    }
    if (x->nculprits)
        (void)reach(j, x->culprits, x->nculprits);
    else
        memset(j->mark, 0, (size_t)j->size);
    victim_lines(v, j, 4);
    link_lines(v, j);
    missing_line(v, j);
}
