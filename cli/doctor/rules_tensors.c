/* SPDX-License-Identifier: Apache-2.0 */
/* rules_tensors.c - tensors that Horovod waits for: it names each, and who submitted it or who did not. */
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "rule.h"

/* Ranks that any of its lines names: as many there are at least. */
static int ranks_named(struct model *m)
{
    struct ranks all = {0};
    EACH_FACT(m, F_STALLED_OPS, s) {
        ranks_add_list(m, &all, s->value);
        ranks_add_list(m, &all, s->extra);
    }
    return all.n ? all.v[all.n - 1] + 1 : 0;
}

/* Who submitted a tensor, and who did not. All lines about it count: the newest form has one a rank. */
static void sides(struct model *m, const struct fact *of, int ranks, struct ranks *ready, struct ranks *missing)
{
    EACH_FACT(m, F_STALLED_OPS, s)
        if (same_text(s->name, of->name)) {
            ranks_add_list(m, missing, s->value);
            ranks_add_list(m, ready, s->extra);
        }
    bool told = ready->n > 0;
    for (int r = 0; r < ranks; r++)
        if (told ? !ranks_has(ready, r) : !ranks_has(missing, r))
            ranks_add(m, told ? missing : ready, r);
}

static bool apart(const struct ranks *a, const struct ranks *b)
{
    for (int i = 0; i < a->n; i++)
        if (ranks_has(b, a->v[i]))
            return false;
    return a->n > 0 && b->n > 0;
}

/* Two tensors that nobody submitted both of: some ranks have built another graph, or take another branch. */
static const struct fact *counterpart(struct model *m, const struct fact *a, int ranks)
{
    enum { COMPARED = 256 };
    const char *names[COMPARED];
    const struct fact *of[COMPARED];
    struct ranks ready = {0}, missing = {0};
    size_t n = 0;
    sides(m, a, ranks, &ready, &missing);
    EACH_FACT(m, F_STALLED_OPS, b) {
        struct ranks there = {0}, not_there = {0};
        if (same_text(a->name, b->name) || n == COMPARED)
            continue;
        sides(m, b, ranks, &there, &not_there);
        if (apart(&ready, &there)) {
            names[n] = b->name;
            of[n++] = b;
        }
    }
    const char *near = n ? out_nearest(a->name, names, n) : NULL;
    for (size_t i = 0; near && i < n; i++)
        if (same_text(names[i], near))
            return of[i];
    return n ? of[0] : NULL;
}

void rule_names_differ(struct judge *j)
{
    enum { STALLED = 512 };
    int ranks = ranks_named(j->m);
    if (j->m->counted[F_STALLED_OPS] > STALLED || ranks > 1 << 16) /* each with each */
        return;
    EACH_FACT(j->m, F_STALLED_OPS, a) {
        const struct fact *b = counterpart(j->m, a, ranks);
        struct ranks first = {0}, second = {0}, rest = {0}, others = {0};
        if (!b)
            continue;
        sides(j->m, a, ranks, &first, &rest);
        sides(j->m, b, ranks, &second, &others);
        bool few = first.n <= second.n; /* the few first */
        const struct fact *odd = few ? a : b, *other = few ? b : a;
        struct finding *f = find(j, LIKELY + 7, 0.8, "%s %s %s, and %s %s %s instead", Ranks_say(j->m, few ? &first : &second), ranks_verb(few ? &first : &second, "submits", "submit"), odd->name, ranks_say(j->m, few ? &second : &first),
                                 ranks_verb(few ? &second : &first, "submits", "submit"), other->name);
        explain(j, f, "Horovod pairs tensors by name alone, so each waits for the other for ever. A model that is built twice in one process gets other names the second time; a branch that only some ranks take, or a layer without gradient, does the same.");
        evidence(f, odd);
        evidence(f, other);
        remedy(j, f, "build the model once, and name what is reduced (`name=` of hvd.allreduce); print the names on two ranks and compare: `HOROVOD_LOG_LEVEL=debug`");
        return;
    }
}

void rule_tensor_missed(struct judge *j)
{
    const struct fact *s = first_of(j->m, F_STALLED_OPS);
    int ranks = ranks_named(j->m);
    struct ranks ready = {0}, missing = {0};
    if (!s || ranks > 1 << 16)
        return;
    sides(j->m, s, ranks, &ready, &missing);
    struct finding *f = missing.n ? find(j, LIKELY + 5, 0.85, "%s did not come to the reduction of %s", Ranks_say(j->m, &missing), s->name)
                                  : find(j, SYMPTOM + 8, 0.6, "Of all ranks only %s came to the reduction of %s", ranks_say(j->m, &ready), s->name);
    if (missing.n && *s->extra)
        explain(j, f, "%s had submitted it; the line does not say how many there are, so there may be more that did not.", Ranks_say(j->m, &ready));
    else if (missing.n)
        explain(j, f, "All others had submitted it.");
    struct names tensors = {0};
    EACH_FACT(j->m, F_STALLED_OPS, k)
        names_add(j->m, &tensors, k->name);
    if (tensors.n > 1)
        explain(j, f, "So it is with %d tensors.", tensors.n);
    evidence(f, s);
    const struct fact *busy = NULL;
    EACH_FACT(j->m, F_BUSY, b)
        busy = b->rank != NOBODY && ranks_has(&missing, b->rank) ? b : busy;
    if (busy)
        explain(j, f, "Rank %d is at '%s' then.", busy->rank, busy->name);
    evidence(f, busy);
    remedy(j, f, "look at what %s doing: `py-spy dump --pid PID`; a branch that only some ranks take, or uneven input", missing.n == 1 ? "it is" : "they are");
}
