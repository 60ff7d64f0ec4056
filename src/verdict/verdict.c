/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.c - the judgement: put the facts together, let every rule look, fold what only follows from something else, and tell the
 * earliest fault that is left.
 */
#include "verdict/verdict_inner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define STALL_NS 5000000000ull

static const struct { const char *name; bool fault; } kinds[VERDICT_KIND_COUNT] = {
#define VERDICT_KIND_ROW(kind, text, is_fault) [VERDICT_KIND_##kind] = {text, is_fault},
    VERDICT_KINDS(VERDICT_KIND_ROW)
#undef VERDICT_KIND_ROW
};

const char *verdict_kind_name(enum verdict_kind kind)
{
    return (unsigned)kind < VERDICT_KIND_COUNT ? kinds[kind].name : "?";
}

/* ---- what follows from what ---------------------------------------------------------------------------------------------- */

/* Nothing more specific was found. */
static bool is_vague(const struct fault *x)
{
    return x->kind == VERDICT_KIND_SLOW || x->kind == VERDICT_KIND_FAULT_OF_OURS || x->kind == VERDICT_KIND_UNKNOWN;
}

static bool is_fact(const struct fault *x)
{
    return !kinds[x->kind].fault;
}

static bool among(int rank, const struct fault *x)
{
    for (int i = 0; i < x->nculprits; i++)
        if (x->culprits[i] == rank)
            return true;
    return false;
}

static uint64_t clock_error(const struct judge *j, const struct fault *x)
{
    uint64_t error = 0;
    for (int i = 0; i < x->nculprits; i++)
        error = MAX(error, j->error_ns[x->culprits[i]]);
    return error;
}

/* Do all ranks concerned live by one clock? */
static bool one_host(const struct judge *j, const struct fault *x, const struct fault *y)
{
    const struct fault *both[] = {x, y};
    int32_t host = -1;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < both[k]->nculprits; i++) {
            int32_t h = j->f->ranks[both[k]->culprits[i]].host_index;
            if (h < 0 || (host >= 0 && h != host))
                return false;
            host = h;
        }
    return host >= 0;
}

/* Certainly later, as far as the clocks of the ranks concerned can tell. */
static bool is_later(const struct judge *j, const struct fault *x, const struct fault *than)
{
    bool same = one_host(j, x, than);
    uint64_t e = same ? 0 : clock_error(j, x), f = same ? 0 : clock_error(j, than);
    if (x->since_ns == 0 || than->since_ns == 0 || e > UINT64_MAX - f)
        return false;
    return x->since_ns > than->since_ns && x->since_ns - than->since_ns > e + f;
}

/* Its communicator had failed before it ended, and not by its own doing. */
static bool ended_after_failure(const struct judge *j, const struct fault *x)
{
    for (int i = 0; i < x->nculprits; i++)
        if (!failed_before(&j->f->ranks[x->culprits[i]]))
            return false;
    return x->nculprits > 0;
}

static bool all_reached(const struct judge *j, const struct fault *x)
{
    for (int i = 0; i < x->nculprits; i++)
        if (!j->mark[x->culprits[i]])
            return false;
    return x->nculprits > 0;
}

/* Ends of which a failed communicator is the reason. Those of the rank that it names are not. */
static bool is_aftermath(const struct judge *j, const struct fault *x, const struct fault *told)
{
    if (x->told || (x->kind != VERDICT_KIND_DEAD && x->kind != VERDICT_KIND_LEFT) || (told->nculprits && among(told->culprits[0], x)))
        return false;
    for (int i = 0; i < x->nculprits; i++) {
        const struct seat *s = seat_of(told->group, x->culprits[i]);
        if (!s || !ended_because(&j->f->ranks[x->culprits[i]], s->comm))
            return false;
    }
    return x->nculprits > 0;
}

/* What a failed communicator says is news only if nobody saw the reason. */
static bool is_told_by(const struct judge *j, const struct fault *x, const struct fault *by)
{
    if (by->told || is_fact(by) || is_aftermath(j, by, x))
        return false;
    return x->kind == by->kind || by->group == x->group || by->kind == VERDICT_KIND_DEAD || by->kind == VERDICT_KIND_UNREACHABLE ||
           (x->nculprits && among(x->culprits[0], by));
}

/* Silence of a host whose path is cut. */
static bool is_cut_off(const struct judge *j, const struct fault *x, const struct fault *by)
{
    if (x->kind != VERDICT_KIND_SILENT || by->kind != VERDICT_KIND_UNREACHABLE)
        return false;
    for (int i = 0; i < x->nculprits; i++) {
        int host = j->f->ranks[x->culprits[i]].host_index;
        if (host != by->link->from_host && host != by->link->to_host)
            return false;
    }
    return true;
}

/* j->mark holds who waits because of `by`. */
static bool follows(const struct judge *j, const struct fault *x, const struct fault *by)
{
    if (by->told && !x->told)
        return is_aftermath(j, x, by);
    if (x->told)
        return is_told_by(j, x, by);
    if (is_vague(x) && !is_vague(by))
        return true;
    if ((x->kind == VERDICT_KIND_DEAD || x->kind == VERDICT_KIND_LEFT) && !is_later(j, by, x) && by->kind != VERDICT_KIND_COMPUTING &&
        ended_after_failure(j, x) && !(by->kind == x->kind && ended_after_failure(j, by)))
        return true;
    if (is_cut_off(j, x, by))
        return true;
    if (x->kind == VERDICT_KIND_DEAD || x->kind == VERDICT_KIND_UNREACHABLE || x->kind == VERDICT_KIND_MISMATCH || x->ncycle)
        return false;
    if (x->kind == by->kind && !x->group == !by->group && by < x && all_reached(j, x)) /* the same ranks, missed elsewhere too */
        return true;
    return by->kind != x->kind && (!is_fact(by) || is_fact(x)) && by->priority <= x->priority && all_reached(j, x);
}

/* ---- the choice ------------------------------------------------------------------------------------------------------------ */

static bool before(const struct judge *j, const struct fault *a, const struct fault *b)
{
    if (is_fact(a) != is_fact(b))
        return is_fact(b);
    if (a->told != b->told)
        return b->told;
    if (is_later(j, b, a))
        return true;
    if (is_later(j, a, b))
        return false;
    return a->priority < b->priority;
}

/* Faults before facts, what was seen before what was told, the earliest first. */
static int compare_faults(const void *a, const void *b)
{
    const struct fault *x = a, *y = b;
    if (is_fact(x) != is_fact(y))
        return is_fact(x) - is_fact(y);
    if (x->told != y->told)
        return x->told - y->told;
    if (x->since_ns != y->since_ns)
        return x->since_ns - 1 < y->since_ns - 1 ? -1 : 1; /* 0, not known, is last */
    return x->priority - y->priority;
}

static void fault_free(struct fault *x)
{
    free(x->culprits);
    free(x->cycle);
}

/* When a whole cluster goes down there are many; the first ones matter. */
static void keep_earliest(struct judge *j)
{
    if (j->nfaults > 1)
        qsort(j->faults, (size_t)j->nfaults, sizeof *j->faults, compare_faults);
    for (; j->nfaults > KEPT_FAULTS; j->nfaults--)
        fault_free(&j->faults[j->nfaults - 1]);
}

static int choose(struct judge *j, bool *folded)
{
    for (int b = 0; b < j->nfaults; b++) {
        const struct fault *by = &j->faults[b];
        if (folded[b])
            continue;
        (void)reach(j, by->culprits, by->nculprits);
        for (int i = 0; i < j->nfaults; i++)
            if (i != b && !folded[i] && follows(j, &j->faults[i], by))
                folded[i] = true;
    }
    int best = -1;
    for (int i = 0; i < j->nfaults; i++)
        if (!folded[i] && (best < 0 || before(j, &j->faults[i], &j->faults[best])))
            best = i;
    return best;
}

/* ---- what comes out ----------------------------------------------------------------------------------------------------------- */

static uint64_t identity_of(const struct fault *x)
{
    uint64_t id = hash_mix(x->kind, x->kind == VERDICT_KIND_SLOW_LINK ? 0 : x->number); /* the same path in operation after operation */
    if (x->group)
        id = hash_mix(id, hash_mix(x->group->seats[0].comm->id, x->group->seats[0].comm->epoch));
    if (x->link)
        id = hash_mix(id, hash_mix((uint64_t)MIN(x->link->from_host, x->link->to_host), (uint64_t)MAX(x->link->from_host, x->link->to_host)));
    for (int i = 0; i < x->nculprits; i++)
        id = hash_mix(id, (uint64_t)x->culprits[i]);
    return id;
}

/* Since when a wait can not be explained by somebody who had not come yet. */
static uint64_t unexplained_since(const struct wait *w)
{
    return !w->p2p && w->group->nabsent == 0 ? w->group->full_ns : w->since_ns;
}

/* Is a wait on the way from this rank, through all it waits for, a young one? Then the whole chain moves on. */
static bool chain_moves(struct judge *j, int rank)
{
    memset(j->mark, 0, (size_t)j->size);
    j->mark[rank] = 1;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < j->nwaits; i++) {
            const struct wait *w = &j->waits[i];
            if (j->mark[w->rank] != 1)
                continue;
            if (age_of(j, unexplained_since(w)) < j->stall_ns)
                return true;
            for (int k = 0; k < (w->p2p ? 1 : w->group->nabsent); k++) {
                int to = w->p2p ? w->on : w->group->absent[k];
                more = more || (to >= 0 && !j->mark[to]);
                if (to >= 0 && !j->mark[to])
                    j->mark[to] = 1;
            }
        }
    }
    return false;
}

/* All are there, or have not waited for long. */
static void say_starting(struct judge *j, struct verdict *v, struct out *o)
{
    v->age_ns = age_of(j, first_joining(j));
    say(o, "nothing is wrong yet: the job has been starting for ");
    say_age(o, v->age_ns);
    say(o, ": ");
    say_joining(o, j);
}

/* Nothing was found: nothing is wrong, or somebody waits very long and nobody can tell why. */
static void say_nothing_found(struct judge *j, struct verdict *v)
{
    const struct wait *longest = NULL;
    for (uint32_t i = 0; i < j->nwaits; i++)
        if (!longest || unexplained_since(&j->waits[i]) < unexplained_since(longest))
            longest = &j->waits[i];
    struct out o = out_of(v->headline, sizeof v->headline);
    uint64_t age = longest ? age_of(j, unexplained_since(longest)) : 0;
    if (age >= 2 * j->stall_ns && !chain_moves(j, longest->rank)) {
        v->kind = VERDICT_KIND_UNKNOWN;
        v->sure = VERDICT_GUESS;
        v->fault = true;
        v->age_ns = age;
        say_rank(&o, j, longest->rank);
        say(&o, " waits for ");
        say_age(&o, age);
        say(&o, " in ");
        if (longest->p2p)
            say_p2p(&o, j, longest);
        else
            say_operation(&o, j, longest->group, longest->group->number);
        say(&o, ", and what was reported does not tell why");
        v->identity = hash_mix(VERDICT_KIND_UNKNOWN, (uint64_t)longest->rank);
        return;
    }
    if (j->joining) {
        say_starting(j, v, &o);
        return;
    }
    int reported = 0, standing = -1;
    for (int r = j->size - 1; r >= 0; r--) {
        reported += !gone(&j->f->ranks[r]);
        standing = stands(&j->f->ranks[r]) ? r : standing;
    }
    say(&o, "nothing is wrong%s: %d of %d ranks reported", standing >= 0 ? " yet" : "", reported, j->size);
    if (longest) {
        say(&o, ", the longest wait lasts ");
        say_age(&o, age);
    } else {
        say(&o, ", nobody waits");
    }
    if (standing >= 0) {
        say(&o, "; but ");
        say_rank(&o, j, standing);
        say(&o, " ");
        say_doing(&o, j, standing);
    }
}

static void tell(struct judge *j, const bool *folded, int best, struct verdict *v)
{
    const struct fault *x = &j->faults[best];
    v->kind = x->kind;
    v->sure = x->sure;
    v->fault = kinds[x->kind].fault;
    v->identity = identity_of(x);
    v->comm_id = x->group ? x->group->seats[0].comm->id : 0;
    v->number = x->number;
    v->age_ns = age_of(j, x->since_ns);
    v->nculprits = x->nculprits;
    memcpy(v->culprits, x->culprits, (size_t)MIN(x->nculprits, VERDICT_MAX_CULPRITS) * sizeof *v->culprits);
    struct out o = out_of(v->headline, sizeof v->headline);
    headline(&o, j, x);
    o = out_of(v->what_next, sizeof v->what_next);
    what_next(&o, j, x);
    v->nvictims = x->maker ? reach_making(j, x) : reach(j, x->culprits, x->nculprits);
    o = out_of(v->victims, sizeof v->victims);
    victims(&o, j, x->nculprits);
    evidence(v, j, x);
    for (int i = 0; i < j->nfaults && v->nothers < (int)ARRAY_LEN(v->others); i++)
        if (i != best && !folded[i]) {
            o = out_of(v->others[v->nothers++], sizeof v->others[0]);
            headline(&o, j, &j->faults[i]);
        }
}

static uno_err judge(struct judge *j, struct verdict *v)
{
    TRY(graph_build(j));
    rules_run(j);
    if (j->no_memory)
        return UNO_ERR_MEMORY;
    keep_earliest(j);
    bool folded[KEPT_FAULTS] = {false};
    int best = choose(j, folded);
    if (best < 0)
        say_nothing_found(j, v);
    else
        tell(j, folded, best, v);
    return UNO_OK;
}

static uno_err judge_facts(const struct verdict_facts *f, struct verdict *v)
{
    struct judge *j = mem_zalloc(sizeof *j);
    if (!j)
        return UNO_ERR_MEMORY;
    j->f = f;
    j->size = f->size;
    j->stall_ns = f->stall_ns ? f->stall_ns : STALL_NS;
    uno_err err = judge(j, v);
    for (int i = 0; i < j->nfaults; i++)
        fault_free(&j->faults[i]);
    free(j->faults);
    graph_free(j);
    free(j);
    return err;
}

/* ---- a job that was ended from outside --------------------------------------------------------------------------------- */

/* All ranks by one signal, as a launcher or a person ends a job, as far as there is a record of them; 0 = not so. A launcher that sees the
 * first ones end may be faster with its SIGTERM; but where one rank ended in another way, that is a fault of its own. */
static int ended_by(const struct verdict_facts *f)
{
    static const int from_outside[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGKILL};
    int sig = 0, n = 0, others = 0;
    bool outside = false;
    for (int r = 0; r < f->size; r++) {
        const struct verdict_rank *e = &f->ranks[r];
        if (e->status == VERDICT_DEAD && e->ended == VERDICT_ENDED_UNKNOWN && e->ncomms == 0)
            continue;
        bool term = e->ended_code == SIGTERM;
        if (e->status != VERDICT_DEAD || e->ended != VERDICT_ENDED_SIGNAL || e->oom_kill || (sig && !term && sig != e->ended_code))
            return 0;
        sig = term ? sig : e->ended_code;
        others += !term;
        n++;
    }
    sig = sig ? sig : SIGTERM;
    for (size_t i = 0; i < ARRAY_LEN(from_outside); i++)
        outside = outside || sig == from_outside[i];
    return outside && n > 1 && others != 1 ? sig : 0;
}

/* What stood still until then is the reason, if something did: judged as if all lived at the moment when they were ended. */
static uno_err judge_until(const struct verdict_facts *f, int sig, struct verdict *v)
{
    struct verdict_facts then = *f;
    then.ranks = mem_array((size_t)f->size, sizeof *then.ranks);
    if (!then.ranks)
        return UNO_ERR_MEMORY;
    memcpy(then.ranks, f->ranks, (size_t)f->size * sizeof *then.ranks);
    for (int r = 0; r < f->size; r++) {
        struct verdict_rank *t = &then.ranks[r];
        t->status = t->ncomms ? VERDICT_REPORTED : VERDICT_UNKNOWN;
        t->ended = VERDICT_ENDED_UNKNOWN;
        uint64_t since = t->status_since_ns && t->status_since_ns < t->taken_ns ? t->taken_ns - t->status_since_ns : 0;
        t->taken_ns -= since;
        t->taken_real_ns -= MIN(since, t->taken_real_ns);
        t->status_since_ns = 0;
    }
    uno_err err = judge_facts(&then, v);
    free(then.ranks);
    if (err != UNO_OK || !v->fault)
        return err;
    char was[sizeof v->headline], name[32];
    snprintf(was, sizeof was, "%s", v->headline);
    snprintf(v->headline, sizeof v->headline, "before all ranks were ended by %s: %.*s", verdict_signal_text(name, sizeof name, sig),
             (int)sizeof v->headline - 80, was);
    snprintf(v->what_next, sizeof v->what_next, "the job is over: what is said of each rank is where it stood when it was ended");
    return UNO_OK;
}

uno_err verdict_judge(const struct verdict_facts *f, struct verdict *v)
{
    memset(v, 0, sizeof *v);
    if (f->size < 1 || !f->ranks)
        return err_set(UNO_ERR_ARG, "there are no facts to judge");
    int sig = ended_by(f);
    if (sig) {
        TRY(judge_until(f, sig, v));
        if (v->fault)
            return UNO_OK;
        memset(v, 0, sizeof *v);
    }
    return judge_facts(f, v);
}

int verdict_print(const struct verdict *v, char *buf, size_t buf_bytes)
{
    size_t len = 0;
#define PRINT(...) len += (size_t)snprintf(len < buf_bytes ? buf + len : NULL, len < buf_bytes ? buf_bytes - len : 0, __VA_ARGS__)
    PRINT("%s\n", v->headline);
    for (int i = 0; i < v->nlines; i++)
        PRINT("  %s\n", v->lines[i].text);
    if (v->what_next[0])
        PRINT("  what to do: %s\n", v->what_next);
    for (int i = 0; i < v->nothers; i++)
        PRINT("  also: %s\n", v->others[i]);
#undef PRINT
    return (int)len;
}
