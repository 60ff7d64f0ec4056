/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.c - `unisono doctor --html FILE`: what the text says, as one page to send and to print: the cause, what shows it, what to do, then the pictures,
 * the other findings, what was read. It needs nothing but itself.
 */
#include "page.h"

#include <time.h>

#include "print.h"
#include "unisono.h"

enum { FINDINGS = 100, NOTES = 50, HEADLINE = 600, EXPLANATION = 4000, LINE = 500, APART = 4 /* lines that stand open */ };

static void put_line(FILE *f, const struct fact *k)
{
    put(f, "<div class=\"place\">%s", k->file);
    if (k->line)
        put(f, ":%ld", k->line);
    put(f, "</div><pre>");
    put_cut(f, k->text, LINE);
    put(f, "</pre>\n");
}

static void put_evidence(FILE *f, const struct finding *x)
{
    if (!x->evidence_count)
        return;
    put(f, "<h3>Seen in</h3>\n");
    for (int i = 0; i < x->evidence_count && i < APART; i++)
        put_line(f, x->evidence[i]);
    if (x->evidence_count <= APART)
        return;
    put(f, "<details><summary>and %d more line%s</summary>\n", x->evidence_count - APART + x->evidence_more, x->evidence_count - APART + x->evidence_more == 1 ? "" : "s");
    for (int i = APART; i < x->evidence_count; i++)
        put_line(f, x->evidence[i]);
    put(f, x->evidence_more ? "<p class=\"soft\">and %d that are not kept</p></details>\n" : "</details>\n", x->evidence_more);
}

static void put_rest(FILE *f, const struct finding *x)
{
    if (*x->explanation) {
        put(f, "<p>");
        put_cut(f, x->explanation, EXPLANATION);
        put(f, "</p>\n");
    }
    if (x->remedy_count)
        put(f, "<h3>What to do</h3><ol class=\"remedies\">\n");
    for (int i = 0; i < x->remedy_count; i++) {
        put(f, "<li>");
        put_advice(f, x->remedies[i]);
        put(f, "</li>\n");
    }
    put(f, x->remedy_count ? "</ol>\n" : "");
    put_evidence(f, x);
    if (x->consequence_count)
        put(f, "<details class=\"follows\"><summary>What only follows from it (%d)</summary><ul>\n", x->consequence_count);
    for (int i = 0; i < x->consequence_count; i++)
        put(f, "<li>%s</li>\n", x->consequences[i]);
    put(f, x->consequence_count ? "</ul></details>\n" : "");
}

static void put_badges(FILE *f, const struct finding *x)
{
    put(f, "<span class=\"kind\">%s</span> <small>%s, %.0f %%</small>", x->kind, sureness(x->confidence), 100 * x->confidence);
}

static void put_first(FILE *f, const struct judge *j)
{
    const struct finding *x = j->first;
    if (!x) {
        put(f, "<div class=\"card first well\"><h1>No fault found</h1><p>In %lu file%s, %lu line%s.%s</p></div>\n", j->m->files, j->m->files == 1 ? "" : "s", j->m->lines, j->m->lines == 1 ? "" : "s", j->m->kept ? "" : " Nothing in it was recognised.");
        return;
    }
    put(f, "<article class=\"card first%s\" id=\"cause\">", x->weight >= SYMPTOM ? "" : " mild");
    put_badges(f, x);
    put(f, "<h1>");
    put_cut(f, x->headline, HEADLINE);
    put(f, "</h1>\n");
    put_rest(f, x);
    put(f, "</article>\n");
}

static void put_others(FILE *f, const struct judge *j)
{
    int n = 0;
    const struct finding *x = j->first ? j->first->next : NULL;
    if (!x)
        return;
    put(f, "<section id=\"others\"><h2>Also found</h2>\n");
    for (; x && n < FINDINGS; x = x->next, n++) {
        put(f, "<details class=\"finding\"><summary>");
        put_cut(f, x->headline, HEADLINE);
        put(f, " ");
        put_badges(f, x);
        put(f, "</summary>\n");
        put_rest(f, x);
        put(f, "</details>\n");
    }
    if (x)
        put(f, "<p class=\"soft\">And %d more; --json has them all.</p>\n", (int)j->count - 1 - n);
    put(f, "</section>\n");
}

static void put_checks(FILE *f, const struct machine *here)
{
    static const char *const looks[][2] = {{"done", "good"}, {"called", "note"}, {"error", "bad"}};
    if (!here->count)
        return;
    put(f, "<section id=\"checks\"><h2>This machine</h2><div class=\"card\"><table class=\"checks\"><tbody>\n");
    for (int i = 0; i < here->count; i++) {
        const struct check *c = &here->checks[i];
        put(f, "<tr><td><span class=\"chip t-%s\">%s</span></td><td>%s</td><td>%s", looks[c->state][0], looks[c->state][1], c->name, c->value);
        put(f, *c->advice ? "<br><small>" : "");
        put_advice(f, c->advice);
        put(f, *c->advice ? "</small></td></tr>\n" : "</td></tr>\n");
    }
    put(f, "</tbody></table></div></section>\n");
}

static void put_notes(FILE *f, const struct model *m)
{
    int n = 0;
    if (!m->notes && !m->dropped)
        return;
    put(f, "<section id=\"notes\"><h2>What was not read</h2><ul>\n");
    for (const struct note *k = m->notes; k; k = k->next, n++)
        if (n < NOTES)
            put(f, "<li>%s</li>\n", k->text);
    if (n > NOTES)
        put(f, "<li>and %d more of this kind</li>\n", n - NOTES);
    if (m->dropped)
        put(f, "<li>%lu facts were counted and not kept: there are more of one kind than anybody needs</li>\n", m->dropped);
    put(f, "</ul></section>\n");
}

static void put_head(FILE *f, const struct judge *j)
{
    put(f, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;\">\n"
           "<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    put_cut(f, j->first ? j->first->headline : "No fault found", 120);
    put(f, "</title>\n<style>\n");
    fputs(page_style, f);
    put(f, "</style></head>\n<body><main>\n");
}

static void put_foot(FILE *f, const struct model *m)
{
    char when[40] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &utc);
    put(f, "<footer>unisono doctor %d.%d.%d, %s: %lu file%s, %lu line%s, %lu facts. This page fetches nothing and runs nothing.</footer>\n</main></body></html>\n", UNO_VERSION_MAJOR, UNO_VERSION_MINOR, UNO_VERSION_PATCH, when, m->files,
        m->files == 1 ? "" : "s", m->lines, m->lines == 1 ? "" : "s", m->kept);
}

bool page_write(FILE *f, struct judge *j, const struct machine *here)
{
    put_head(f, j);
    put_first(f, j);
    page_ranks(f, j);
    put_others(f, j);
    page_machines(f, j->m);
    page_links(f, j->m);
    put_checks(f, here);
    put_notes(f, j->m);
    put_foot(f, j->m);
    return fflush(f) == 0 && !ferror(f);
}
