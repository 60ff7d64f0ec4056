/* SPDX-License-Identifier: Apache-2.0 */
/* report_print.c - reports of communication topology for people and for programs (report.h). */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "output.h"
#include "query.h"
#include "report.h"

enum { TABLE_GPUS = 16 }; /* more do not fit side by side */

static const char *told_word(enum told t, const char *yes, const char *no)
{
    return t == TOLD_YES ? yes : t == TOLD_NO ? no : "";
}

static const struct report_pair *pair_at(const struct report *r, const char *a, const char *b)
{
    for (int i = 0; i < r->pair_count; i++)
        if ((same_text(r->pairs[i].a, a) && same_text(r->pairs[i].b, b)) || (same_text(r->pairs[i].a, b) && same_text(r->pairs[i].b, a)))
            return &r->pairs[i];
    return NULL;
}

static int width_of(const struct report *r)
{
    size_t most = 6;
    for (int i = 0; i < r->gpu_count; i++)
        most = strlen(r->gpus[i]) > most ? strlen(r->gpus[i]) : most;
    return (int)most;
}

static void print_table(const struct report *r)
{
    int w = width_of(r);
    printf("  %*s", w, "");
    for (int b = 0; b < r->gpu_count; b++)
        printf(" %*s", w, r->gpus[b]);
    for (int a = 0; a < r->gpu_count; a++) {
        printf("\n  %-*s", w, r->gpus[a]);
        for (int b = 0; b < r->gpu_count; b++) {
            const struct report_pair *p = a == b ? NULL : pair_at(r, r->gpus[a], r->gpus[b]);
            printf(" %*s", w, a == b ? "X" : p ? p->word : "-");
        }
        if (r->gpu_notes)
            printf("   %s%s%s", out_colour(stdout, OUT_DIM), r->gpu_notes[a], out_colour(stdout, OUT_PLAIN));
    }
    putchar('\n');
}

static bool alike(const struct report_pair *p, const struct report_pair *q)
{
    return same_text(p->word, q->word) && same_text(p->over, q->over) && p->gbs == q->gbs && p->direct == q->direct;
}

/* "GPU0-GPU1" is long where there are many. */
static void print_members(const struct report *r, int first, bool verbose)
{
    enum { SHOWN = 12 };
    int n = 0;
    for (int i = first; i < r->pair_count; i++) {
        if (!alike(&r->pairs[first], &r->pairs[i]))
            continue;
        if (n < SHOWN || verbose)
            printf("%s%s-%s", n % 8 == 0 ? "\n      " : "  ", r->pairs[i].a, r->pairs[i].b);
        n++;
    }
    if (n > SHOWN && !verbose)
        printf("\n      and %d more (-v)", n - SHOWN);
    putchar('\n');
}

static void print_pairs(const struct report *r, bool verbose)
{
    printf("\n  Between GPUs, one way\n");
    for (int i = 0; i < r->pair_count; i++) {
        const struct report_pair *p = &r->pairs[i];
        int n = 0;
        bool told = false;
        for (int k = 0; k < i && !told; k++)
            told = alike(&r->pairs[k], p);
        for (int k = i; k < r->pair_count; k++)
            n += alike(&r->pairs[k], p);
        if (told)
            continue;
        printf("    %s%s%s: %d pair%s over %s", out_colour(stdout, OUT_BOLD), p->word, out_colour(stdout, OUT_PLAIN), n, n == 1 ? "" : "s", p->over);
        if (p->gbs > 0)
            printf(", about %.4g GB/s", p->gbs);
        if (p->direct != NOT_TOLD)
            printf(", %s", told_word(p->direct, "direct", "through host memory"));
        print_members(r, i, verbose);
    }
}

static void print_cards(const struct report *r, bool verbose)
{
    printf("\n  Network cards%s\n", verbose ? "" : " that each GPU takes");
    int w = width_of(r);
    for (int i = 0; i < r->card_count; i++) {
        const struct report_card *c = &r->cards[i];
        if (!c->nearest && !verbose)
            continue;
        printf("    %-*s  %-10s %s", w, c->gpu, c->card, c->word);
        if (c->gbs > 0)
            printf(", about %.4g GB/s", c->gbs);
        if (c->port_gbs > c->gbs && c->gbs > 0)
            printf(" of the port's %.4g", c->port_gbs);
        printf("%s%s%s\n", c->gpudirect == NOT_TOLD ? "" : ", ", told_word(c->gpudirect, "GPUDirect", "no GPUDirect"), c->nearest && verbose ? "  <- takes it" : "");
    }
}

void report_print(const struct report *first, bool verbose)
{
    for (const struct report *r = first; r; r = r->next) {
        printf("%s%s%s\n  %s\n\n", out_colour(stdout, OUT_BOLD), r->source, out_colour(stdout, OUT_PLAIN), r->what);
        if (r->gpu_count > 1 && r->gpu_count <= TABLE_GPUS)
            print_table(r);
        if (r->pair_count)
            print_pairs(r, verbose);
        if (r->card_count)
            print_cards(r, verbose);
        putchar('\n');
    }
    if (!first)
        printf("No communication topology: what was read has no GPUs. Give it a topology file (NCCL_TOPO_DUMP_FILE), nvidia-smi topo -m,\nrocm-smi --showtopo, or logs with NCCL_DEBUG=INFO.\n\n");
}

/* ---- for programs ------------------------------------------------------------------------------------------------------------------------- */

static json_t *told_json(enum told t)
{
    return t == NOT_TOLD ? json_null() : json_boolean(t == TOLD_YES);
}

static json_t *real_or_null(double v)
{
    return v > 0 ? json_real(v) : json_null();
}

static json_t *one_report(const struct report *r)
{
    json_t *gpus = json_array(), *pairs = json_array(), *cards = json_array();
    for (int i = 0; i < r->gpu_count; i++)
        json_array_append_new(gpus, json_pack("{s:s, s:s}", "name", r->gpus[i], "what", r->gpu_notes ? r->gpu_notes[i] : ""));
    for (int i = 0; i < r->pair_count; i++) {
        const struct report_pair *p = &r->pairs[i];
        json_array_append_new(pairs, json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "a", p->a, "b", p->b, "path", p->word, "over", p->over, "gbs", real_or_null(p->gbs), "direct", told_json(p->direct)));
    }
    for (int i = 0; i < r->card_count; i++) {
        const struct report_card *c = &r->cards[i];
        json_array_append_new(cards, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:b}", "gpu", c->gpu, "card", c->card, "path", c->word, "gbs", real_or_null(c->gbs), "port_gbs", real_or_null(c->port_gbs), "gpudirect",
                                                told_json(c->gpudirect), "takes", c->nearest));
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "source", r->source, "what", r->what, "gpus", gpus, "pairs", pairs, "cards", cards);
}

char *report_json(const struct report *first)
{
    json_t *all = json_array();
    for (const struct report *r = first; r; r = r->next)
        json_array_append_new(all, one_report(r));
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(all);
    return text;
}
