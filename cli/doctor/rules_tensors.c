/* SPDX-License-Identifier: Apache-2.0 */
/* rules_tensors.c - tensors that Horovod waits for: it names each, and who submitted it or who did not. */
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "rule.h"

enum { BITS = 64, COMPARED = 512, MOST_RANKS = 1 << 16, MOST_MARKS = 1 << 22 };

/* Each tensor once, with two sets of ranks as bits: who submitted it, and who did not. */
struct stalled {
    struct names names;
    const struct fact **of; /* the first line about it */
    uint64_t *ready, *missing;
    size_t words; /* of a set */
    int ranks, count;
};

/* Mark what "0,1,5" names in `set`, if there is one; the highest of it, -1 = nothing. */
static long mark(uint64_t *set, const char *list)
{
    long high = -1;
    for (const char *p = list; *p;) {
        char *end;
        long r = strtol(p, &end, 10);
        if (end == p) {
            p++;
            continue;
        }
        if (r >= 0 && r < MOST_RANKS && set)
            set[r / BITS] |= (uint64_t)1 << r % BITS;
        high = r > high ? r : high;
        p = end;
    }
    return high;
}

static struct ranks ranks_of(struct model *m, const uint64_t *set, int ranks)
{
    struct ranks r = {0};
    for (int k = 0; k < ranks; k++)
        if (set[k / BITS] >> k % BITS & 1)
            ranks_add(m, &r, k);
    return r;
}

/* Who is in neither set: as many ranks there are at least as any line names. Where somebody submitted a tensor, the rest did not. */
static void fill(uint64_t *ready, uint64_t *missing, int ranks)
{
    bool told = false;
    for (int w = 0; w < (ranks + BITS - 1) / BITS; w++)
        told = told || ready[w];
    for (int r = 0; r < ranks; r++) {
        uint64_t bit = (uint64_t)1 << r % BITS;
        if (told ? !(ready[r / BITS] & bit) : !(missing[r / BITS] & bit))
            (told ? missing : ready)[r / BITS] |= bit;
    }
}

/* The first `most` tensors. All lines about one count: the newest form has one a rank. False = there are none, or more than is worth it. */
static bool take(struct model *m, struct stalled *t, int most)
{
    long high = -1;
    *t = (struct stalled){0};
    EACH_FACT(m, F_STALLED_OPS, s) {
        long a = mark(NULL, s->value), b = mark(NULL, s->extra);
        high = a > high ? a : high;
        high = b > high ? b : high;
        if (t->names.n < most)
            names_add(m, &t->names, s->name);
    }
    t->count = t->names.n;
    t->ranks = high < MOST_RANKS ? (int)high + 1 : 0;
    t->words = ((size_t)t->ranks + BITS - 1) / BITS;
    if (!t->count || !t->ranks || (size_t)t->count * (size_t)t->ranks > MOST_MARKS)
        return false;
    t->of = calloc((size_t)t->count, sizeof *t->of);
    t->ready = calloc((size_t)t->count * t->words, sizeof *t->ready);
    t->missing = calloc((size_t)t->count * t->words, sizeof *t->missing);
    if (!t->of || !t->ready || !t->missing)
        return false;
    EACH_FACT(m, F_STALLED_OPS, s) {
        int k = names_index(&t->names, s->name);
        if (k < 0)
            continue;
        t->of[k] = t->of[k] ? t->of[k] : s;
        mark(t->missing + (size_t)k * t->words, s->value);
        mark(t->ready + (size_t)k * t->words, s->extra);
    }
    for (int k = 0; k < t->count; k++)
        fill(t->ready + (size_t)k * t->words, t->missing + (size_t)k * t->words, t->ranks);
    return true;
}

static void give(struct stalled *t)
{
    free(t->of);
    free(t->ready);
    free(t->missing);
}

static bool apart(const struct stalled *t, int a, int b)
{
    uint64_t both = 0, one = 0, other = 0;
    for (size_t w = 0; w < t->words; w++) {
        uint64_t x = t->ready[(size_t)a * t->words + w], y = t->ready[(size_t)b * t->words + w];
        both |= x & y;
        one |= x;
        other |= y;
    }
    return !both && one && other;
}

/* Two tensors that nobody submitted both of: some ranks have built another graph, or take another branch. */
static int counterpart(const struct stalled *t, int a)
{
    const char *names[COMPARED];
    int of[COMPARED], n = 0;
    for (int b = 0; b < t->count; b++)
        if (b != a && apart(t, a, b)) {
            names[n] = t->of[b]->name;
            of[n++] = b;
        }
    const char *near = n ? out_nearest(t->of[a]->name, names, (size_t)n) : NULL;
    for (int i = 0; near && i < n; i++)
        if (same_text(names[i], near))
            return of[i];
    return n ? of[0] : -1;
}

static void tell_pair(struct judge *j, const struct stalled *t, int a, int b)
{
    struct ranks first = ranks_of(j->m, t->ready + (size_t)a * t->words, t->ranks), second = ranks_of(j->m, t->ready + (size_t)b * t->words, t->ranks);
    bool few = first.n <= second.n; /* the few first */
    const struct ranks *some = few ? &first : &second, *rest = few ? &second : &first;
    const struct fact *odd = t->of[few ? a : b], *other = t->of[few ? b : a];
    struct finding *f = find(j, LIKELY + 7, 0.8, "%s %s %s, and %s %s %s instead", Ranks_say(j->m, some), ranks_verb(some, "submits", "submit"), odd->name, ranks_say(j->m, rest), ranks_verb(rest, "submits", "submit"), other->name);
    explain(j, f, "Horovod pairs tensors by name alone, so each waits for the other for ever. A model that is built twice in one process gets other names the second time; a branch that only some ranks take, or a layer without gradient, does the same.");
    evidence(f, odd);
    evidence(f, other);
    remedy(j, f, "build the model once, and name what is reduced (`name=` of hvd.allreduce); print the names on two ranks and compare: `HOROVOD_LOG_LEVEL=debug`");
}

void rule_names_differ(struct judge *j)
{
    struct stalled t;
    bool good = take(j->m, &t, COMPARED);
    for (int a = 0; good && a < t.count; a++) {
        int b = counterpart(&t, a);
        if (b >= 0) {
            tell_pair(j, &t, a, b);
            break;
        }
    }
    give(&t);
}

void rule_tensor_missed(struct judge *j)
{
    struct stalled t;
    bool good = take(j->m, &t, 1);
    const struct fact *s = good ? t.of[0] : NULL;
    struct ranks ready = {0}, missing = {0};
    if (good) {
        ready = ranks_of(j->m, t.ready, t.ranks);
        missing = ranks_of(j->m, t.missing, t.ranks);
    }
    give(&t);
    if (!good)
        return;
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
