/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_shell.c - environment listings and the files in which people set variables: shell, Slurm, mpirun options, Python, YAML, Dockerfiles.
 * Nothing is expanded and nothing is run. Commands are in read_launch.c, other places where variables are set in read_config.c.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "shell.h"

static const char NAME[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_abcdefghijklmnopqrstuvwxyz";

bool shell_wanted(const char *name, size_t n)
{
    static const char *const prefixes[] = {
#define FAMILY(prefix, all_known) prefix,
#include "families.def"
#undef FAMILY
    };
    static const char *const names[] = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                                        "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "GPUS_PER_NODE", "ENABLE_NCCL_HEALTH_CHECK"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (n > strlen(prefixes[i]) && memcmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n == strlen(names[i]) && memcmp(name, names[i], n) == 0)
            return true;
    return false;
}

void shell_setting(struct model *m, const struct line *l, const char *name, size_t name_bytes, const char *value, size_t value_bytes, const char *how, bool blank)
{
    if (!shell_wanted(name, name_bytes))
        return;
    if (value_bytes && (value[0] == '"' || value[0] == '\'') && (value_bytes == 1 || !memchr(value + 1, value[0], value_bytes - 1)))
        return; /* what begins with a quote and does not end was cut */
    if (value_bytes >= 2 && (value[0] == '"' || value[0] == '\'') && value[value_bytes - 1] == value[0]) {
        value++;
        value_bytes -= 2;
    }
    struct fact f = fact_at(l, F_SETTING);
    f.pid = NOBODY;
    f.name = model_string(m, name, name_bytes);
    f.value = model_string(m, value, value_bytes);
    f.extra = how;
    f.a = blank;
    model_add(m, &f);
}

/* Up to where a value of the shell goes: a blank outside quotes and $(...). */
static size_t value_bytes(const char *s)
{
    char quote = 0;
    int depth = 0;
    const char *p = s;
    for (; *p; p++) {
        if (quote)
            quote = *p == quote ? 0 : quote;
        else if (*p == '"' || *p == '\'')
            quote = *p;
        else if (*p == '(')
            depth++;
        else if (*p == ')')
            depth -= depth > 0;
        else if ((isspace((unsigned char)*p) || *p == ';' || (*p == '&' && p[1] == '&')) && depth == 0)
            break;
    }
    return (size_t)(p - s);
}

/* NAME=VALUE words from s on, as long as there are some. Returns where they end. */
static const char *assignments(struct model *m, const struct line *l, const char *s, const char *how, int *count)
{
    for (;;) {
        s = skip_blanks(s);
        size_t n = strspn(s, NAME), gap = 0;
        if (n == 0 || isdigit((unsigned char)*s))
            return s;
        while (s[n + gap] == ' ')
            gap++;
        if (s[n + gap] != '=' || s[n + gap + 1] == '=' || (gap && !shell_wanted(s, n)))
            return s;
        const char *value = s + n + gap + 1;
        bool blank = gap > 0;
        if (*value == ' ' && shell_wanted(s, n)) { /* NAME= VALUE sets it to nothing, NAME = VALUE calls a program NAME */
            blank = true;
            value = skip_blanks(value);
        }
        size_t bytes = value_bytes(value);
        shell_setting(m, l, s, n, value, bytes, how, blank);
        (*count)++;
        s = value + bytes;
    }
}

/* A list of `env`: the value is all the rest of the line. */
static bool listed(struct model *m, const struct line *l, const char *s)
{
    size_t n = strspn(s, NAME), gap = 0;
    while (s[n + gap] == ' ')
        gap++;
    if (n == 0 || isdigit((unsigned char)*s) || s[n + gap] != '=' || s[n + gap + 1] == '=' || !shell_wanted(s, n))
        return false;
    const char *value = s + n + gap + 1;
    size_t bytes = strlen(value);
    while (bytes && isspace((unsigned char)value[bytes - 1]))
        bytes--;
    if (memchr(value, ' ', bytes) && value[0] != '"' && value[0] != '\'') {
        /* With a command behind it, it is the command's own. */
        int count = 0;
        const char *rest = assignments(m, l, s, "inline", &count);
        return count > 0 && !*rest;
    }
    shell_setting(m, l, s, n, value, bytes, "listed", gap > 0);
    return true;
}

/* ---- Python, YAML, JSON, Dockerfile ------------------------------------------------------------------------------------------------- */

static bool python(struct model *m, const struct line *l, const char *s)
{
    struct span name, value;
    const char *at = strstr(s, "environ");
    if (!at)
        return false;
    at = strpbrk(at, "'\"");
    if (!at || !(*at == '"' ? scan(at, "\"%t\"", &name) : scan(at, "'%t'", &name)))
        return false;
    const char *rest = name.p + name.n + 1;
    const char *quote = strpbrk(rest, "'\"");
    bool sets = has(s, "setdefault(") || (*skip_blanks(strchr(rest, ']') ? strchr(rest, ']') + 1 : "") == '=' && strchr(rest, ']')[1] != 0);
    if (!sets || !quote || !(*quote == '"' ? scan(quote, "\"%t\"", &value) : scan(quote, "'%t'", &value)))
        return false;
    shell_setting(m, l, name.p, name.n, value.p, value.n, "python", false);
    return true;
}

static size_t trim(const char *s)
{
    size_t n = strlen(s);
    while (n && (isspace((unsigned char)s[n - 1]) || s[n - 1] == ','))
        n--;
    return n;
}

static bool yaml(struct model *m, struct shell_state *st, const struct line *l, const char *s)
{
    const char *p = skip_blanks(begins(s, "- ") ? s + 2 : s);
    if (begins(p, "name:")) {
        p = skip_blanks(p + 5);
        p += *p == '"' || *p == '\'';
        size_t n = strspn(p, NAME);
        st->pending[0] = 0;
        if (n && n < sizeof st->pending && shell_wanted(p, n)) {
            memcpy(st->pending, p, n);
            st->pending[n] = 0;
            return true;
        }
        return false;
    }
    if (begins(p, "value:") && st->pending[0]) {
        p = skip_blanks(p + 6);
        shell_setting(m, l, st->pending, strlen(st->pending), p, trim(p), "yaml", false);
        st->pending[0] = 0;
        return true;
    }
    bool quoted = *p == '"';
    p += quoted;
    size_t n = strspn(p, NAME);
    if (n == 0 || !shell_wanted(p, n) || p[n + quoted] != ':' || (p[n + quoted + 1] != ' ' && p[n + quoted + 1] != '\t'))
        return false;
    const char *value = skip_blanks(p + n + quoted + 1);
    shell_setting(m, l, p, n, value, trim(value), "yaml", false);
    return true;
}

/* ---- one line ------------------------------------------------------------------------------------------------------------------------- */

static bool batch(struct model *m, const struct line *l, const char *s)
{
    if (!begins(s, "#SBATCH") && !begins(s, "#PBS") && !begins(s, "#BSUB"))
        return false;
    const char *p = skip_blanks(s + strcspn(s, " \t"));
    size_t dashes = strspn(p, "-"), n = strcspn(p + dashes, "= \t");
    struct fact f = fact_at(l, F_BATCH);
    f.name = model_string(m, p + dashes, n);
    p = skip_blanks(p + dashes + n);
    p = skip_blanks(*p == '=' ? p + 1 : p);
    f.value = model_string(m, p, strcspn(p, " \t#"));
    model_add(m, &f);
    return true;
}

/* What somebody hopes to find in a log: quoted words of a line with grep. */
static void hopes(struct model *m, const struct line *l, const char *s)
{
    if (!has(s, "grep ") && !has_nocase(s, "expect"))
        return;
    for (const char *p = s; (p = strpbrk(p, "\"'"));) {
        const char *end = strchr(p + 1, *p);
        if (!end)
            return;
        if (end - p > 4 && (memmem(p, (size_t)(end - p), "NCCL", 4) || memmem(p, (size_t)(end - p), "RCCL", 4)) && memchr(p, ' ', (size_t)(end - p))) {
            struct fact f = fact_at(l, F_GREP);
            f.name = model_string(m, p + 1, (size_t)(end - p - 1));
            model_add(m, &f);
        }
        p = end + 1;
    }
}

/* Variables of Slurm that are read: $SLURM_NAME, ${SLURM_NAME...}, environ["SLURM_NAME"]. */
static void asked(struct model *m, const struct line *l, const char *s)
{
    for (const char *p = s; (p = strstr(p, "SLURM_")); p += 6) {
        size_t n = strspn(p, NAME);
        bool read = p > s && strchr("${\"'", p[-1]) && (p[-1] == '$' || p[-1] == '{' || has(s, "environ") || has(s, "getenv"));
        if (!read)
            continue;
        struct fact f = fact_at(l, F_ASKED);
        f.name = model_string(m, p, n);
        model_add(m, &f);
    }
}

static bool one_command(struct model *m, struct shell_state *st, const struct line *l, const char *s)
{
    int count = 0;
    hopes(m, l, s);
    if (begins(s, "export ") || begins(s, "declare -x ") || begins(s, "ENV ")) {
        const char *from = s + (s[0] == 'd' ? 11 : s[0] == 'E' ? 4 : 7);
        assignments(m, l, from, "export", &count);
        size_t n = strspn(from, NAME); /* ENV NAME value */
        if (s[0] == 'E' && count == 0 && from[n] == ' ')
            shell_setting(m, l, from, n, skip_blanks(from + n), trim(skip_blanks(from + n)), "export", false);
        return count > 0;
    }
    if (begins(s, "setenv ")) {
        const char *name = skip_blanks(s + 7), *value;
        size_t n = strspn(name, NAME);
        value = skip_blanks(name + n);
        shell_setting(m, l, name, n, value, trim(value), "export", false);
        return true;
    }
    if (listed(m, l, s))
        return true;
    const char *rest = assignments(m, l, s, "inline", &count);
    return (*rest && shell_command(m, st, l, rest)) || count > 0;
}

/* Loops, commands and settings of a script: parts between ; and && outside quotes. */
static bool commands(struct model *m, struct shell_state *st, const struct line *l, char *s)
{
    bool any = false;
    char quote = 0;
    int depth = 0;
    char *from = s;
    for (char *p = s;; p++) {
        if (quote && *p) {
            quote = *p == quote ? 0 : quote;
            continue;
        }
        if (*p == '"' || *p == '\'') {
            quote = *p;
            continue;
        }
        depth += *p == '(' ? 1 : *p == ')' && depth > 0 ? -1 : 0;
        bool two = p[0] && p[0] == p[1] && (*p == '&' || *p == '|');
        if (*p && !(depth == 0 && (*p == ';' || two)))
            continue;
        char held = *p;
        *p = 0;
        any = one_command(m, st, l, skip_blanks(from)) || any;
        *p = held;
        if (!held)
            return any;
        from = p + 1 + two;
        p += two;
    }
}

/* Cheap: can this line be for this reader? */
static bool worth(const char *s)
{
    return *s == '#' || strchr(s, '=') || strchr(s, ':') || strchr(s, '$') || has(s, "srun") || has(s, "run ") || has(s, "python") || begins(s, "for ") || begins(s, "done") || has(s, "setenv") || begins(s, "ENV ") || begins(s, "set -") || has(s, "environ");
}

/* Of all lines of a log few name a variable: capitals before an underscore. */
static bool may_be_config(const char *s)
{
    for (const char *p = s; (p = strchr(p, '_')); p++)
        if (p > s && isupper((unsigned char)p[-1]))
            return true;
    return false;
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    struct shell_state *st = c->shell;
    if ((!st || !st->used) && (!worth(s) || strlen(s) > 8000) && !(*s && s[strlen(s) - 1] == '\\'))
        return false;
    if (!st)
        st = c->shell = model_alloc(m, sizeof *st);
    if (begins(s, "$ ") || begins(s, "+ "))
        s = skip_blanks(s + 2);
    size_t n = strlen(s);
    bool goes_on = n && s[n - 1] == '\\';
    if (batch(m, l, s)) {
        shell_config(m, l, s);
        return true;
    }
    if (*s == '#') {
        hopes(m, l, s);
        return false;
    }
    if (st->used == 0) {
        st->first_line = l->number;
        st->used_lines = 0;
    }
    if (st->used + n + 2 > sizeof st->joined)
        st->used = n = 0;
    memcpy(st->joined + st->used, s, n);
    st->used += n - goes_on;
    st->joined[st->used] = 0;
    st->used_lines++;
    if (goes_on)
        return true;
    st->used = 0;
    struct line at = *l;
    at.number = st->first_line;
    at.raw = st->used_lines > 1 ? model_words(m, st->joined) : l->raw;
    asked(m, &at, st->joined);
    if (python(m, &at, st->joined) || yaml(m, st, &at, st->joined) || (may_be_config(st->joined) && shell_config(m, &at, st->joined)))
        return true;
    return commands(m, st, &at, st->joined);
}

static void end(struct model *m, struct context *c, const char *file)
{
    struct shell_state *st = c->shell;
    if (st)
        st->used = 0, st->pending[0] = 0, st->loop = 0;
}

const struct reader reader_shell = {.name = "a script or a list of variables", .line = read_line, .end = end};
