/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_launch.c - how a script starts a job: srun, mpirun, torchrun and others in the order in which each starts the next, with their
 * options; loops, and what is put in the background. Whether a `$NAME` is expanded by the script or by the task that it starts
 * decides what it is, so that is kept.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell.h"

struct words {
    struct {
        char *text;
        bool later; /* in single quotes: expanded where the command runs */
    } at[256];
    int count;
    bool background;
};

/* Shell words of s, into `buf`; quotes are taken off. */
static void split(const char *s, char *buf, size_t bytes, bool later, struct words *w)
{
    char *to = buf, *stop = buf + bytes - 2;
    w->count = 0;
    w->background = false;
    while (*s && w->count < 256 && to < stop) {
        s = skip_blanks(s);
        if (!*s || *s == '#')
            break;
        if (*s == '&' && (s[1] == 0 || s[1] == ' ')) {
            w->background = true;
            break;
        }
        if (*s == '|' || *s == '<' || (*s == '>') || (isdigit((unsigned char)*s) && s[1] == '>'))
            break;
        w->at[w->count].text = to;
        w->at[w->count].later = later;
        char quote = 0;
        int depth = 0;
        for (; *s && to < stop; s++) {
            if (!quote && depth == 0 && isspace((unsigned char)*s))
                break;
            if (!quote && (*s == '\'' || *s == '"')) {
                quote = *s;
                if (*s == '\'')
                    w->at[w->count].later = true;
            } else if (quote && *s == quote) {
                quote = 0;
            } else {
                depth += *s == '(' ? 1 : *s == ')' && depth ? -1 : 0;
                *to++ = *s;
            }
        }
        *to++ = 0;
        w->count++;
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *launcher_of(const struct words *w, int i)
{
    static const char *const names[] = {"srun", "mpirun", "mpiexec", "torchrun", "accelerate", "deepspeed", "numactl", "taskset", "horovodrun", "ray", "vllm", "sglang"};
    const char *word = base_name(w->at[i].text);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strcmp(word, names[k]) == 0)
            return names[k];
    if (begins(word, "python")) {
        for (int k = i + 1; k < w->count && k < i + 4; k++)
            if (begins(w->at[k].text, "torch.distributed.run") || begins(w->at[k].text, "torch.distributed.launch"))
                return "torchrun";
        return "python";
    }
    return NULL;
}

static bool takes_value(const struct words *w, int i)
{
    return i + 1 < w->count && w->at[i + 1].text[0] != '-';
}

static void option(struct model *m, const struct line *l, int command, const char *name, size_t n, const char *value, bool later)
{
    struct fact f = fact_at(l, F_LAUNCH_OPTION);
    f.name = model_string(m, name, n);
    f.value = model_words(m, value);
    f.a = command;
    f.b = later;
    model_add(m, &f);
}

/* One option at word i; returns how many words it took. */
static int take_option(struct model *m, const struct line *l, int command, const char *launcher, const struct words *w, int i)
{
    const char *word = w->at[i].text;
    size_t dashes = strspn(word, "-"), n = strcspn(word + dashes, "=");
    bool mpi = strcmp(launcher, "mpirun") == 0 || strcmp(launcher, "mpiexec") == 0;
    if (mpi && (strcmp(word, "-x") == 0 || strcmp(word, "-genv") == 0) && i + 1 < w->count) {
        const char *set = w->at[i + 1].text, *eq = strchr(set, '=');
        if (eq)
            shell_setting(m, l, set, (size_t)(eq - set), eq + 1, strlen(eq + 1), "-x", false);
        return 2;
    }
    if (dashes == 1 && n > 1 && isdigit((unsigned char)word[2])) { /* -N1 */
        option(m, l, command, word + 1, 1, word + 2, w->at[i].later);
        return 1;
    }
    if (word[dashes + n] == '=') {
        option(m, l, command, word + dashes, n, word + dashes + n + 1, w->at[i].later);
        return 1;
    }
    bool with = takes_value(w, i);
    option(m, l, command, word + dashes, n, with ? w->at[i + 1].text : "", with ? w->at[i + 1].later : w->at[i].later);
    return with && !launcher_of(w, i + 1) ? 2 : 1;
}

static bool chain(struct model *m, struct shell_state *s, const struct line *l, const struct words *w, int parent, bool background);

/* bash -c '...': the words inside are a command of their own. */
static bool inner_shell(struct model *m, struct shell_state *s, const struct line *l, const struct words *w, int i, int parent, bool background)
{
    if (i + 2 >= w->count || !(strcmp(base_name(w->at[i].text), "bash") == 0 || strcmp(base_name(w->at[i].text), "sh") == 0) || !has(w->at[i + 1].text, "c"))
        return false;
    char *buf = malloc(LINE_BYTES);
    struct words *inner = malloc(sizeof *inner);
    bool any = false;
    if (buf && inner) {
        split(w->at[i + 2].text, buf, LINE_BYTES, w->at[i + 2].later, inner);
        any = chain(m, s, l, inner, parent, background);
    }
    free(inner);
    free(buf);
    return any;
}

static int begin_launcher(struct model *m, struct shell_state *s, const struct line *l, const char *name, int parent, bool background)
{
    struct fact f = fact_at(l, F_LAUNCHER);
    f.name = name;
    f.a = ++s->commands;
    f.b = parent;
    f.c = background;
    f.d = s->loop;
    model_add(m, &f);
    return s->commands;
}

static bool chain(struct model *m, struct shell_state *s, const struct line *l, const struct words *w, int parent, bool background)
{
    const char *launcher = NULL;
    bool program = false;
    int command = NOBODY;
    for (int i = 0; i < w->count;) {
        const char *name = program ? NULL : launcher_of(w, i);
        if (name) {
            command = begin_launcher(m, s, l, name, launcher ? command : parent, background);
            launcher = name;
            i++;
        } else if (launcher && !program && inner_shell(m, s, l, w, i, command, background)) {
            return true;
        } else if (launcher && w->at[i].text[0] == '-' && w->at[i].text[1]) {
            i += take_option(m, l, command, launcher, w, i);
        } else if (!launcher) {
            const char *eq = strchr(w->at[i].text, '=');
            if (eq)
                shell_setting(m, l, w->at[i].text, (size_t)(eq - w->at[i].text), eq + 1, strlen(eq + 1), "inline", false);
            else if (i == 0 && strcmp(w->at[i].text, "nohup") != 0 && strcmp(w->at[i].text, "exec") != 0 && strcmp(w->at[i].text, "env") != 0 && strcmp(w->at[i].text, "sudo") != 0 && strcmp(w->at[i].text, "time") != 0)
                return false;
            i++;
        } else {
            const char *word = w->at[i].text, *eq = strchr(word, '=');
            if (has(word, ".py") || has(word, "."))
                program = program || !eq;
            if (eq && program && shell_wanted(word, (size_t)(eq - word))) {
                struct fact f = fact_at(l, F_AFTER_PROGRAM);
                f.name = model_string(m, word, (size_t)(eq - word));
                f.value = model_words(m, eq + 1);
                model_add(m, &f);
            } else if (eq) {
                option(m, l, command, word, (size_t)(eq - word), eq + 1, w->at[i].later);
            }
            i++;
        }
    }
    return launcher != NULL;
}

/* for g in {0..7} | for g in 0 1 2 3 | for g in $(seq 8) | $(seq 0 7) */
static bool loop(struct model *m, struct shell_state *s, const struct line *l, const char *text)
{
    struct span name;
    int64_t from, to;
    const char *in = strstr(text, " in ");
    if (!in || !scan(text, "for %w in ", &name))
        return false;
    struct fact f = fact_at(l, F_LOOP);
    const char *list = in + 4;
    if (scan(list, "{%d..%d}", &from, &to) || scan(list, "seq %d %d", &from, &to))
        f.b = llabs(to - from) + 1;
    else if (scan(list, "seq %d", &to))
        f.b = to;
    else
        for (const char *p = skip_blanks(list); *p && *p != ';'; p = skip_blanks(p + strcspn(p, " \t;")))
            f.b++;
    f.name = model_string(m, name.p, name.n);
    s->loop = ++s->loops;
    f.a = s->loop;
    model_add(m, &f);
    return true;
}

bool shell_command(struct model *m, struct shell_state *s, const struct line *l, const char *text)
{
    if (begins(text, "for "))
        return loop(m, s, l, text);
    if (begins(text, "done")) {
        s->loop = 0;
        return true;
    }
    static const char *const shell_words[] = {"do ", "then ", "else "};
    for (size_t i = 0; i < sizeof shell_words / sizeof *shell_words; i++)
        if (begins(text, shell_words[i]))
            text = skip_blanks(text + strlen(shell_words[i]));
    char *buf = malloc(LINE_BYTES);
    struct words *w = malloc(sizeof *w);
    bool any = false;
    if (buf && w) {
        split(text, buf, LINE_BYTES, false, w);
        any = w->count > 0 && chain(m, s, l, w, NOBODY, w->background);
    }
    free(w);
    free(buf);
    return any;
}
