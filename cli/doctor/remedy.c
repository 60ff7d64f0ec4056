/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remedy.c - what to do, as a sentence in which commands stand between back quotes. People paste these, and names in them come from logs that anybody may
 * have written: so what is put into a command is quoted where it is no plain word, and can neither end the command nor be an option of it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"

static const char PLAIN[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.,:/@%+=^-";

const char *shell_word(struct model *m, const char *s, bool in_quotes)
{
    char out[512];
    size_t n = 0;
    bool plain = s[strspn(s, PLAIN)] == 0;
    if (plain && *s != '-')
        return s;
    if (!in_quotes && !plain)
        out[n++] = '\'';
    for (const char *p = s; *p && n + 2 < sizeof out; p++) {
        bool bad = *p == '`' || *p == '\'' || (p == s && *p == '-') || (in_quotes && !strchr(PLAIN, *p));
        out[n++] = bad ? '?' : *p;
    }
    if (!in_quotes && !plain)
        out[n++] = '\'';
    return model_string(m, out, n);
}

/* Where the format stands: in a command, and there between quotes. */
struct place {
    bool command;
    char quote;
};

static void step(struct place *at, char c)
{
    if (c == '`')
        *at = (struct place){.command = !at->command};
    else if (at->command && (c == '\'' || c == '"') && (!at->quote || at->quote == c))
        at->quote = at->quote ? 0 : c;
}

/* A text outside commands must not begin or end one. */
static const char *plain_words(struct model *m, const char *s)
{
    char out[2048];
    size_t n = strcspn(s, "`");
    if (!s[n])
        return s;
    for (n = 0; s[n] && n < sizeof out; n++)
        out[n] = s[n] == '`' ? '\'' : s[n];
    return model_string(m, out, n);
}

/* One conversion: %s, or a number as printf writes it. */
static void put_one(FILE *f, struct model *m, const struct place *at, const char *spec, size_t bytes, va_list *ap)
{
    char one[16] = "";
    memcpy(one, spec, bytes < sizeof one ? bytes : sizeof one - 1);
    if (one[bytes - 1] == 's') {
        const char *s = va_arg(*ap, const char *);
        fputs(at->command ? shell_word(m, s, at->quote) : plain_words(m, s), f);
        return;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (strstr(one, "ll"))
        fprintf(f, one, va_arg(*ap, long long));
    else if (strchr(one, 'l'))
        fprintf(f, one, va_arg(*ap, long));
    else if (strchr("fg", one[bytes - 1]))
        fprintf(f, one, va_arg(*ap, double));
    else
        fprintf(f, one, va_arg(*ap, int));
#pragma GCC diagnostic pop
}

static const char *say(struct model *m, const char *fmt, va_list *ap)
{
    struct place at = {0};
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    for (const char *p = fmt; f && *p;) {
        size_t n = *p == '%' ? strcspn(p + 1, "sdufg%") + 2 : 0;
        if (!n || p[1] == '%') {
            step(&at, *p);
            fputc(*p, f);
            p += n ? 2 : 1;
            continue;
        }
        put_one(f, m, &at, p, n, ap);
        p += n;
    }
    if (f)
        fclose(f);
    const char *kept = text ? model_string(m, text, bytes) : "";
    free(text);
    return kept;
}

void remedy_made(struct finding *f, const char *text)
{
    if (f->remedy_count < SENTENCES)
        f->remedies[f->remedy_count++] = text;
}

void remedy(struct judge *j, struct finding *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    remedy_made(f, say(j->m, fmt, &ap));
    va_end(ap);
}
