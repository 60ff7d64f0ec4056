/* SPDX-License-Identifier: Apache-2.0 */
/* rules_trace.c - what counting shows: RAS, which asks the processes how many operations they have launched, and the newest line of each collective trace. */
#include "scene.h"

/* ---- RAS: some do not answer ------------------------------------------------------------------------------------------------------------- */

/* "process 5003 on n3" of those that no rank is told of. */
static const char *processes_say(struct judge *j)
{
    struct names all = {0};
    EACH_FACT(j->m, F_RAS_MISSING, r)
        if (r->rank == NOBODY && r->pid != NOBODY)
            names_add(j->m, &all, model_say(j->m, "process %lld%s%s", (long long)r->pid, *r->host ? " on " : "", r->host));
    return names_say(j->m, &all);
}

void rule_ras_missing(struct judge *j)
{
    struct ranks missing = {0};
    const struct fact *one = NULL;
    int64_t uncounted = 0;
    bool dead = false;
    EACH_FACT(j->m, F_RAS_MISSING, r) {
        ranks_add(j->m, &missing, r->rank);
        one = one ? one : r;
        dead = dead || same_text(r->value, "dead");
        uncounted = r->rank == NOBODY && r->pid == NOBODY && r->b > uncounted ? r->b : uncounted;
    }
    if (!one)
        return;
    const char *processes = missing.n ? "" : processes_say(j);
    const char *who = missing.n ? Ranks_say(j->m, &missing) : *processes ? processes : model_say(j->m, "%lld process%s", (long long)uncounted, uncounted == 1 ? "" : "es");
    bool single = missing.n ? missing.n == 1 : *processes ? !has(processes, " and ") : uncounted == 1;
    struct finding *f = find(j, LIKELY, dead ? 0.85 : 0.7, "%s %s to RAS: %s", who, single ? "does not answer" : "do not answer", dead ? "considered dead" : "ended, or cut off");
    explain(j, f, "RAS asks the processes themselves; who does not answer has ended, stands still as a whole, or cannot be reached.");
    evidence_all(j, f, F_RAS_MISSING);
    if (one->pid != NOBODY && *one->host)
        remedy(j, f, "is it there, and what did it do last? `ssh %s 'ps -o pid,stat,etime,args -p %lld; sudo dmesg -T | tail -30'`", one->host, (long long)one->pid);
    remedy(j, f, "look at those processes and their hosts; `ncclras -v` lists them with host and process number");
}

/* RUNNING and INIT beside each other, or an error that some ranks report. */
void rule_ras_state(struct judge *j)
{
    static const char *const order[] = {"NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT"};
    const struct fact *low = NULL, *high = NULL, *error = NULL;
    int lowest = 0, highest = 0;
    EACH_FACT(j->m, F_RAS_STATE, s) {
        int at = -1;
        for (int i = 0; i < 5; i++)
            at = same_text(s->value, order[i]) ? i : at;
        error = s->a && !error ? s : error;
        if (s->a || at < 0 || (low && !same_text(s->name, low->name)))
            continue;
        if (!low || at < lowest)
            low = s, lowest = at;
        if (!high || at > highest)
            high = s, highest = at;
    }
    struct ranks behind = {0};
    const struct fact *one = error ? error : low;
    if (!one || (!error && low == high))
        return;
    ranks_add_list(j->m, &behind, one->extra);
    const char *who = behind.n ? Ranks_say(j->m, &behind) : model_say(j->m, "%lld ranks of communicator %s", (long long)one->b, one->name);
    struct finding *f = error ? find(j, LIKELY, 0.8, "%s reported an error to RAS: %s", who, error->value)
                              : find(j, LIKELY - 2, 0.75, "%s still %s in state %s of communicator %s, others in %s", who, behind.n == 1 ? "stands" : "stand", low->value, low->name, high->value);
    explain(j, f, error ? "RAS asks each process for its communicator's own error; what others report is that they wait." : highest == 4 ? "Some have given the communicator up already, and whoever is in it still waits for them." : "Those behind have not come as far; the others wait for them.");
    evidence_all(j, f, F_RAS_STATE);
    remedy(j, f, "read the logs of %s from their first warning on; `ncclras -v` names host and process of each", behind.n ? ranks_say(j->m, &behind) : "those ranks");
}

/* ---- RAS: some are behind ------------------------------------------------------------------------------------------------------------ */

void rule_rank_behind(struct judge *j)
{
    const struct fact *low = NULL, *high = NULL;
    EACH_FACT(j->m, F_RAS_COUNT, f) {
        if (low && (!same_text(f->name, low->name) || !same_text(f->value, low->value)))
            continue;
        low = !low || f->a < low->a ? f : low;
        high = !high || f->a > high->a ? f : high;
    }
    if (!low || low == high)
        return;
    struct ranks behind = {0}, ahead = {0};
    ranks_add_list(j->m, &behind, low->extra);
    ranks_add_list(j->m, &ahead, high->extra);
    const char *who = behind.n ? Ranks_say(j->m, &behind) : model_say(j->m, "%lld ranks that the report does not list", (long long)low->b);
    struct finding *f = find(j, CAUSE, 0.85, "%s stand%s at %s %lld of communicator %s; %s already at %lld", who, behind.n == 1 ? "s" : "", low->value, (long long)low->a, low->name,
                             ahead.n ? model_say(j->m, "%s %s", ranks_say(j->m, &ahead), ahead.n == 1 ? "is" : "are") : model_say(j->m, "%lld others are", (long long)high->b), (long long)high->a);
    explain(j, f, "The %lld rank%s with the lowest count are behind, those ahead only wait for them.", (long long)low->b, low->b == 1 ? "" : "s");
    if (!behind.n && ahead.n)
        explain(j, f, "The report lists the smaller set, and that is the wrong one here: %s are ahead and not at fault.", ranks_say(j->m, &ahead));
    explain(j, f, "RAS counts launches: who is behind has not made the call.");
    evidence(f, low);
    evidence(f, high);
    remedy(j, f, "ask for all of them: `ncclras -v`, or `ncclras -f json`, and look at those at operation %lld: py-spy dump, gdb, their logs", (long long)low->a);
}

/* ---- collective traces: the newest operation of each process ---------------------------------------------------------------------- */

struct traced {
    const struct fact *low, *high, *odd, *like;
    struct ranks behind, ahead, of_odd;
};

/* The id of the communicator that a process traces by its pointer, and the rank it has there. */
static const char *traced_in(const struct model *m, const struct fact *o, int *rank)
{
    EACH_FACT(m, F_INIT, i)
        if (begins(i->more, "self ") && same_text(i->more + 5, o->name) && i->pid == o->pid && same_text(i->host, o->host)) {
            *rank = i->rank;
            return i->name;
        }
    *rank = rank_of(m, o->host, o->pid, o->dev);
    return "";
}

static bool take_traces(struct judge *j, struct traced *t)
{
    const char *id = NULL;
    int processes = 0;
    EACH_FACT(j->m, F_LAST_OP, o) {
        int rank;
        const char *in = traced_in(j->m, o, &rank);
        if ((id && !same_text(id, in)) || !*in)
            continue;
        id = in;
        processes++;
        t->low = !t->low || o->last_number < t->low->last_number ? o : t->low;
        t->high = !t->high || o->last_number > t->high->last_number ? o : t->high;
    }
    EACH_FACT(j->m, F_LAST_OP, o) {
        int rank;
        if (!id || !same_text(traced_in(j->m, o, &rank), id))
            continue;
        ranks_add(j->m, o->last_number == t->low->last_number ? &t->behind : &t->ahead, rank);
        bool other = !same_text(o->last_word, t->high->last_word) || o->last_count != t->high->last_count;
        if (o->last_number == t->high->last_number && other) {
            ranks_add(j->m, &t->of_odd, rank);
            t->odd = o;
        }
    }
    return processes > 1;
}

void rule_trace_mismatch(struct judge *j)
{
    struct traced t = {0};
    if (!take_traces(j, &t) || !t.odd || t.low->last_number != t.high->last_number)
        return;
    struct finding *f = find(j, CAUSE - 5, 0.8, "In operation %lld %s calls %s of %lld elements, others %s of %lld", (long long)t.high->last_number, ranks_say(j->m, &t.of_odd), t.odd->last_word, (long long)t.odd->last_count,
                             t.high->last_word, (long long)t.high->last_count);
    explain(j, f, "The newest line of each rank's trace is compared; all must make the same calls with the same counts.");
    evidence(f, t.odd);
    evidence(f, t.high);
    remedy(j, f, "compare the calls of both sides before that one; `TORCH_DISTRIBUTED_DEBUG=DETAIL` names the first that differs");
}

/* A trace may be cut anywhere, so who is behind in it is told only where something says that the job stands. */
void rule_trace_behind(struct judge *j)
{
    struct traced t = {0};
    bool stands = fact_seen(j->m, F_WATCHDOG) || fact_seen(j->m, F_HEARTBEAT) || fact_seen(j->m, F_GLOO_TIMEOUT) || fact_seen(j->m, F_STALLED_OPS) || fact_seen(j->m, F_RAS_MISSING);
    if (!stands || !take_traces(j, &t) || t.low->last_number == t.high->last_number)
        return;
    struct finding *f = find(j, LIKELY, 0.75, "%s stand%s at operation %lld, %s at %lld", Ranks_say(j->m, &t.behind), t.behind.n == 1 ? "s" : "", (long long)t.low->last_number, ranks_say(j->m, &t.ahead), (long long)t.high->last_number);
    explain(j, f, "By their collective traces; those with the lower number did not make the next call, the others wait for them.");
    evidence(f, t.low);
    evidence(f, t.high);
    remedy(j, f, "`py-spy dump --pid PID` on the hosts of %s", ranks_say(j->m, &t.behind));
}
