/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c - runs the rules and orders what they found: what is nearest to the root first; what is only seen of it from elsewhere is folded
 * into it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rule.h"

const struct rule rules[] = {
#define RULE(kind, function, what, source) {kind, #function, what, source, function},
#include "rules.def"
#undef RULE
    {NULL, NULL, NULL, NULL, NULL}};

static const char *say(struct model *m, const char *fmt, va_list ap)
{
    char text[4096];
    vsnprintf(text, sizeof text, fmt, ap);
    return model_words(m, text);
}

struct finding *find(struct judge *j, int weight, double confidence, const char *headline, ...)
{
    struct finding *f = model_alloc(j->m, sizeof *f);
    va_list ap;
    va_start(ap, headline);
    f->headline = say(j->m, headline, ap);
    va_end(ap);
    f->kind = j->rule->kind;
    f->rule = j->rule->name;
    f->explanation = "";
    f->weight = weight;
    f->confidence = confidence;
    if (j->last)
        j->last->next = f;
    else
        j->first = f;
    j->last = f;
    j->count++;
    return f;
}

void explain(struct judge *j, struct finding *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *more = say(j->m, fmt, ap);
    va_end(ap);
    f->explanation = *f->explanation ? model_say(j->m, "%s %s", f->explanation, more) : more;
}

void evidence(struct finding *f, const struct fact *fact)
{
    if (!fact)
        return;
    for (int i = 0; i < f->evidence_count; i++)
        if (f->evidence[i]->file == fact->file && f->evidence[i]->line == fact->line && strcmp(f->evidence[i]->text, fact->text) == 0)
            return;
    if (f->evidence_count < EVIDENCE)
        f->evidence[f->evidence_count++] = fact;
    else
        f->evidence_more++;
}

void evidence_all(const struct judge *j, struct finding *f, enum fact_kind kind)
{
    EACH_FACT(j->m, kind, k)
        evidence(f, k);
}

void consequence(struct judge *j, struct finding *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (f->consequence_count < SENTENCES)
        f->consequences[f->consequence_count++] = say(j->m, fmt, ap);
    va_end(ap);
}

/* ---- order --------------------------------------------------------------------------------------------------------------------- */

static double earliest(const struct finding *f)
{
    double t = 0;
    for (int i = 0; i < f->evidence_count; i++)
        if (f->evidence[i]->time_s > 0 && (t == 0 || f->evidence[i]->time_s < t))
            t = f->evidence[i]->time_s;
    return t;
}

static bool before(const struct finding *a, const struct finding *b)
{
    if (a->weight != b->weight)
        return a->weight > b->weight;
    if (a->confidence != b->confidence)
        return a->confidence > b->confidence;
    double ta = earliest(a), tb = earliest(b);
    return ta > 0 && tb > 0 && ta < tb;
}

/* Insertion into an ordered list; there are few. */
static void sort(struct judge *j)
{
    struct finding *sorted = NULL;
    for (struct finding *f = j->first, *next; f; f = next) {
        next = f->next;
        struct finding **at = &sorted;
        while (*at && !before(f, *at))
            at = &(*at)->next;
        f->next = *at;
        *at = f;
    }
    j->first = sorted;
}

/* A symptom needs no line of its own beside what causes it. */
static void fold(struct judge *j)
{
    struct finding *top = j->first;
    if (!top || top->weight < LIKELY)
        return;
    struct finding **at = &top->next;
    while (*at) {
        struct finding *f = *at;
        if (f->weight >= SYMPTOM && f->weight < LIKELY) {
            consequence(j, top, "%s", f->headline);
            *at = f->next;
            j->count--;
        } else {
            at = &f->next;
        }
    }
}

/* What else is wrong stands in one sentence under the first finding, so that nobody who reads only that misses it. */
static void besides(struct judge *j)
{
    struct finding *top = j->first;
    if (!top || !top->next)
        return;
    const char *text = "Besides:";
    int n = 0;
    for (const struct finding *f = top->next; f && n < 3; f = f->next, n++)
        text = model_say(j->m, "%s %s%s", text, f->headline, f->next && n < 2 ? ";" : ".");
    explain(j, top, "%s", text);
}

/* No rule knows them, and there is nothing else: then they are shown as they are. */
static void tell_warnings(struct judge *j)
{
    enum { SHOWN = 3 };
    int n = 0;
    EACH_FACT(j->m, F_WARNED, w)
        if (n++ < SHOWN)
            model_note(j->m, "%s:%ld: a warning of the library that no rule knows: %s", w->file, w->line, w->name);
    if (n > SHOWN)
        model_note(j->m, "%d more such warnings", n - SHOWN);
}

bool anything_found(const struct judge *j)
{
    for (const struct finding *f = j->first; f; f = f->next)
        if (f->weight >= SYMPTOM && f->rule != j->rule->name)
            return true;
    return false;
}

void judge_all(struct judge *j, struct model *m)
{
    *j = (struct judge){.m = m};
    m->reading_done = true;
    for (const struct rule *r = rules; r->kind; r++) {
        j->rule = r;
        r->run(j);
    }
    sort(j);
    fold(j);
    besides(j);
    if (!j->count)
        tell_warnings(j);
}
