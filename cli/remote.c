/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c - see remote.h. */
#include "remote.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool words_add(struct remote_command *w, const char *text, size_t len)
{
    char **p = realloc(w->word, ((size_t)w->n + 2) * sizeof *p);
    if (!p)
        return false;
    w->word = p;
    p[w->n] = strndup(text, len);
    p[w->n + 1] = NULL;
    return p[w->n++] != NULL;
}

/* One word of the template with {host} replaced. */
static bool add_filled(struct remote_command *w, const char *text, size_t len, const char *host)
{
    char *buf = NULL;
    size_t bytes;
    FILE *f = open_memstream(&buf, &bytes);
    if (!f)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (len - i >= 6 && strncmp(text + i, "{host}", 6) == 0) {
            fputs(host, f);
            i += 5;
        } else if (text[i] != '\'' && text[i] != '"') {
            fputc(text[i], f);
        }
    }
    bool ok = fclose(f) == 0 && words_add(w, buf, bytes);
    free(buf);
    return ok;
}

/* Cut at blanks outside quotes. */
static bool split_template(struct remote_command *w, const char *template, const char *host)
{
    for (const char *p = template; *p;) {
        while (*p == ' ' || *p == '\t')
            p++;
        const char *start = p;
        for (char quote = 0; *p && (quote || (*p != ' ' && *p != '\t')); p++)
            if (quote ? *p == quote : *p == '\'' || *p == '"')
                quote = quote ? 0 : *p;
        if (p > start && !add_filled(w, start, (size_t)(p - start), host))
            return false;
    }
    return true;
}

static char *joined(const struct remote_command *w)
{
    char *buf = NULL;
    size_t bytes;
    FILE *f = open_memstream(&buf, &bytes);
    if (!f)
        return NULL;
    for (int i = 0; i < w->n; i++)
        fprintf(f, "%s%s", i ? " " : "", w->word[i]);
    fclose(f);
    return buf;
}

static void own_path(char *buf, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", buf, bytes - 1);
    if (n <= 0)
        n = snprintf(buf, bytes, "unisono");
    buf[n] = 0;
}

/* A shell of the other host reads the command, so the path stands in quotes and may have none. */
static bool add_ssh(struct remote_command *c, const char *program, const char *host, const char *first, const char *second)
{
    static const char *const ssh[] = {"ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--"};
    char quoted[4400];
    bool ok = !strchr(program, '\'');
    for (size_t i = 0; i < sizeof ssh / sizeof *ssh; i++)
        ok = ok && words_add(c, ssh[i], strlen(ssh[i]));
    snprintf(quoted, sizeof quoted, "exec '%s' %s %s", program, first, second);
    ok = ok && words_add(c, host, strlen(host));
    c->shown = joined(c);
    return ok && words_add(c, quoted, strlen(quoted));
}

bool remote_make(struct remote_command *c, const char *launcher, const char *program, const char *host, const char *first, const char *second)
{
    char path[4096];
    *c = (struct remote_command){0};
    own_path(path, sizeof path);
    program = program ? program : path;
    if (!launcher)
        return add_ssh(c, program, host, first, second);
    bool ok = split_template(c, launcher, host);
    c->shown = joined(c);
    return ok && words_add(c, program, strlen(program)) && words_add(c, first, strlen(first)) && words_add(c, second, strlen(second));
}

void remote_free(struct remote_command *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->word[i]);
    free(c->word);
    free(c->shown);
    *c = (struct remote_command){0};
}

_Noreturn void remote_become(char **word, int in, int out, int err)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    setpgid(0, 0); /* a terminal's SIGINT is the caller's to pass on */
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    execvp(word[0], word);
    fprintf(stderr, "cannot start %s: %s\n", word[0], strerror(errno));
    _exit(127);
}
