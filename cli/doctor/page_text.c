/* SPDX-License-Identifier: Apache-2.0 */
/* page_text.c - how text gets into a page: escaped, always; and the one style sheet. */
#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "output.h"
#include "page.h"

static void put_bytes(FILE *f, const char *s, size_t bytes)
{
    for (const char *end = s + bytes; s < end && *s;) {
        int n = out_utf8_bytes(s);
        if (n == 0 || n > end - s || (n == 1 && iscntrl((unsigned char)*s) && *s != '\n' && *s != '\t'))
            fputs("\xef\xbf\xbd", f), n = 1;
        else if (strchr("&<>\"'", *s))
            fprintf(f, "&#%d;", *s);
        else
            fwrite(s, 1, (size_t)n, f);
        s += n;
    }
}

void put_cut(FILE *f, const char *s, size_t most)
{
    size_t n = strlen(s);
    while (n > most && most > 0 && ((unsigned char)s[most] & 0xc0) == 0x80)
        most--;
    put_bytes(f, s, n > most ? most : n);
    if (n > most)
        fputs("...", f);
}

/* Numbers as printf writes them; the conversions that markup uses are few. */
static void put_number(FILE *f, const char *spec, size_t bytes, va_list *ap)
{
    char one[16];
    memcpy(one, spec, bytes);
    one[bytes] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (one[bytes - 1] == 'f' || one[bytes - 1] == 'g')
        fprintf(f, one, va_arg(*ap, double));
    else if (strstr(one, "ll"))
        fprintf(f, one, va_arg(*ap, long long));
    else if (strchr(one, 'l'))
        fprintf(f, one, va_arg(*ap, long));
    else if (strchr(one, 'z'))
        fprintf(f, one, va_arg(*ap, size_t));
    else
        fprintf(f, one, va_arg(*ap, int));
#pragma GCC diagnostic pop
}

void put(FILE *f, const char *markup, ...)
{
    va_list ap;
    va_start(ap, markup);
    for (const char *p = markup; *p;) {
        size_t plain = strcspn(p, "%");
        fwrite(p, 1, plain, f);
        p += plain;
        if (!*p)
            break;
        size_t n = strcspn(p + 1, "sdufgx%") + 2;
        if (p[n - 1] == '%') {
            putc('%', f);
        } else if (p[n - 1] == 's') {
            const char *s = va_arg(ap, const char *);
            put_bytes(f, s, strlen(s));
        } else {
            put_number(f, p, n, &ap);
        }
        p += n;
    }
    va_end(ap);
}

void put_advice(FILE *f, const char *s)
{
    for (bool command = false; *s; command = !command) {
        size_t n = strcspn(s, "`");
        const char *end = strchr(s + n + (s[n] != 0), '`');
        if (!command && s[n] && !end) /* one that is never closed is a mark like others */
            n = strlen(s);
        fputs(command ? "<code class=\"cmd\">" : "", f);
        put_bytes(f, s, n);
        fputs(command ? "</code>" : "", f);
        s += n + (s[n] != 0);
    }
}
