/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - findings for people (what, evidence, what follows, what to do) and for programs. */
#include <stdio.h>
#include <string.h>

#include "output.h"
#include "print.h"
#include "variables.h"

enum { WIDTH = 118 };

static void wrapped(const char *text, int indent)
{
    int column = indent;
    printf("%*s", indent, "");
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        if (column + n > WIDTH && column > indent) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        printf("%.*s", n, p);
        column += n;
        p += n;
        if (*p) {
            if (column < WIDTH)
                putchar(' ');
            column++;
            p++;
        }
    }
    putchar('\n');
}

static void title(const char *words)
{
    printf("  %s%s%s\n", out_colour(stdout, OUT_DIM), words, out_colour(stdout, OUT_PLAIN));
}

static void print_evidence(const struct finding *f, bool verbose)
{
    int shown = verbose ? f->evidence_count : f->evidence_count < 4 ? f->evidence_count : 4;
    if (!f->evidence_count)
        return;
    title("seen in");
    for (int i = 0; i < shown; i++) {
        const struct fact *e = f->evidence[i];
        char place[512];
        snprintf(place, sizeof place, e->line ? "%s:%ld" : "%s", e->file, e->line);
        printf("    %s\n      %s%.*s%s%s\n", place, out_colour(stdout, OUT_DIM), verbose ? 500 : 180, e->text, !verbose && strlen(e->text) > 180 ? "..." : "", out_colour(stdout, OUT_PLAIN));
    }
    int rest = f->evidence_count - shown + f->evidence_more;
    if (rest)
        printf("    and %d more%s\n", rest, verbose ? "" : " (-v)");
}

static void print_list(const char *words, const char *const *list, int n)
{
    if (!n)
        return;
    title(words);
    for (int i = 0; i < n; i++)
        wrapped(list[i], 4);
}

const char *sureness(double c)
{
    return c >= 0.9 ? "sure" : c >= 0.7 ? "rather sure" : c >= 0.5 ? "likely" : "possible";
}

static void print_finding(const struct finding *f, bool first, bool verbose)
{
    printf("%s%s%s  %s(%s, %s)%s\n", out_colour(stdout, f->weight >= SYMPTOM ? OUT_RED : OUT_YELLOW), f->headline, out_colour(stdout, OUT_PLAIN), out_colour(stdout, OUT_DIM), f->kind, sureness(f->confidence),
           out_colour(stdout, OUT_PLAIN));
    if (!first && !verbose)
        return;
    if (*f->explanation)
        wrapped(f->explanation, 2);
    print_evidence(f, verbose);
    print_list("what follows from it", f->consequences, f->consequence_count);
    print_list("what to do", f->remedies, f->remedy_count);
    putchar('\n');
}

static void print_notes(const struct model *m, bool verbose)
{
    int n = 0;
    for (const struct note *k = m->notes; k; k = k->next, n++)
        if (verbose || n < 8)
            printf("%snote:%s %s\n", out_colour(stdout, OUT_DIM), out_colour(stdout, OUT_PLAIN), k->text);
    if (n > 8 && !verbose)
        printf("note: and %d more of this kind (-v)\n", n - 8);
    if (m->dropped)
        printf("note: %lu facts were counted and not kept: there are more of one kind than anybody needs\n", m->dropped);
}

void print_people(const struct judge *j, bool verbose)
{
    const struct model *m = j->m;
    bool first = true;
    for (const struct finding *f = j->first; f; f = f->next, first = false)
        print_finding(f, first, verbose);
    if (!j->count)
        printf("%sNo fault found%s in %lu file%s, %lu line%s.%s\n", out_colour(stdout, OUT_GREEN), out_colour(stdout, OUT_PLAIN), m->files, m->files == 1 ? "" : "s", m->lines, m->lines == 1 ? "" : "s",
               m->kept ? "" : " Nothing in it was recognised.");
    else if (j->count > 1 && !verbose)
        printf("(%zu findings, the first is the cause or nearest to it; -v says all of each)\n", j->count);
    print_notes(m, verbose);
}

/* ---- for programs --------------------------------------------------------------------------------------------------------------- */

static void json_field(const char *key, const char *value)
{
    printf("\"%s\": ", key);
    out_json_string(stdout, value);
}

static void json_list(const char *key, const char *const *list, int n)
{
    printf(",\n   \"%s\": [", key);
    for (int i = 0; i < n; i++) {
        fputs(i ? ", " : "", stdout);
        out_json_string(stdout, list[i]);
    }
    putchar(']');
}

static void json_finding(const struct finding *f)
{
    printf("  {");
    json_field("kind", f->kind);
    fputs(",\n   ", stdout);
    json_field("headline", f->headline);
    fputs(",\n   ", stdout);
    json_field("explanation", f->explanation);
    printf(",\n   \"evidence\": [");
    for (int i = 0; i < f->evidence_count; i++) {
        const struct fact *e = f->evidence[i];
        printf("%s\n    {", i ? "," : "");
        json_field("file", e->file);
        printf(", \"line\": %ld, ", e->line);
        json_field("text", e->text);
        putchar('}');
    }
    putchar(']');
    json_list("consequences", f->consequences, f->consequence_count);
    json_list("remedies", f->remedies, f->remedy_count);
    printf(",\n   \"confidence\": %.2f}", f->confidence);
}

static const char *const states[] = {"good", "note", "bad"};

void print_checks(const struct machine *here)
{
    static const enum out_colour colours[] = {OUT_GREEN, OUT_YELLOW, OUT_RED};
    for (int i = 0; i < here->count; i++) {
        const struct check *c = &here->checks[i];
        printf("  %s%-4s%s  %-24s %s\n", out_colour(stdout, colours[c->state]), states[c->state], out_colour(stdout, OUT_PLAIN), c->name, c->value);
        if (*c->advice)
            wrapped(c->advice, 33);
    }
    putchar('\n');
}

static void json_checks(struct model *m, const struct machine *here)
{
    for (int i = 0; i < here->count; i++) {
        const struct check *c = &here->checks[i];
        printf("%s\n  {", i ? "," : " \"checks\": [");
        json_field("name", c->name);
        fputs(", ", stdout);
        json_field("state", states[c->state]);
        fputs(", ", stdout);
        json_field("value", c->value);
        fputs(", ", stdout);
        json_field("advice", c->advice);
        putchar('}');
    }
    if (here->count)
        printf("],\n");
    if (here->hosts)
        printf(" \"hosts\": %s,\n", here->hosts);
    if (here->topologies)
        printf(" \"topologies\": %s,\n", here->topologies);
    if (here->variables) {
        printf(" \"variables\": ");
        variables_json(m, stdout);
        printf(",\n");
    }
}

void print_json(const struct judge *j, const struct machine *here)
{
    printf("{\"version\": 1,\n");
    json_checks(j->m, here);
    printf(" \"findings\": [");
    for (const struct finding *f = j->first; f; f = f->next) {
        fputs(f == j->first ? "\n" : ",\n", stdout);
        json_finding(f);
    }
    printf("],\n \"notes\": [");
    for (const struct note *n = j->m->notes; n; n = n->next) {
        fputs(n == j->m->notes ? "" : ", ", stdout);
        out_json_string(stdout, n->text);
    }
    printf("],\n \"read\": {\"files\": %lu, \"lines\": %lu, \"facts\": %lu}}\n", j->m->files, j->m->lines, j->m->kept);
}

void print_rules(bool json)
{
    if (json)
        printf("{\"version\": 1, \"rules\": [");
    for (const struct rule *r = rules; r->kind; r++) {
        if (!json) {
            printf("%s%-18s%s %s\n%19s%s%s%s\n", out_colour(stdout, OUT_BOLD), r->kind, out_colour(stdout, OUT_PLAIN), r->what, "", out_colour(stdout, OUT_DIM), r->source, out_colour(stdout, OUT_PLAIN));
            continue;
        }
        printf("%s\n  {", r == rules ? "" : ",");
        json_field("kind", r->kind);
        fputs(", ", stdout);
        json_field("what", r->what);
        fputs(", ", stdout);
        json_field("source", r->source);
        putchar('}');
    }
    if (json)
        printf("]}\n");
}
