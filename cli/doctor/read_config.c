/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_config.c - variables that stand in something else than a shell's assignment: dictionaries of Python and JSON, YAML written in one line, options
 * of docker, kubectl, srun and horovodrun, units of systemd, lists of compose, fish.
 */
#include <ctype.h>
#include <string.h>

#include "shell.h"

static const char NAME[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_abcdefghijklmnopqrstuvwxyz";

/* A value in quotes, or up to what ends it in a dictionary. */
static size_t value_of(const char *s, const char **value)
{
    if (*s == '"' || *s == '\'') {
        const char *end = strchr(s + 1, *s);
        *value = s + 1;
        return end ? (size_t)(end - s - 1) : strlen(s + 1);
    }
    *value = s;
    return strcspn(s, ",}] \t");
}

/* "NAME": "VALUE" anywhere in the line, with either quote. */
static bool quoted_pairs(struct model *m, const struct line *l, const char *s)
{
    bool any = false;
    for (const char *p = s; (p = strpbrk(p, "'\"")); p++) {
        size_t n = strspn(p + 1, NAME);
        const char *rest = p[1 + n] == *p ? skip_blanks(p + 2 + n) : "", *value;
        if (n == 0 || *rest != ':' || !shell_wanted(p + 1, n))
            continue;
        size_t bytes = value_of(skip_blanks(rest + 1), &value);
        shell_setting(m, l, p + 1, n, value, bytes, "python", false);
        any = true;
    }
    return any;
}

/* {name: NAME, value: VALUE} of Kubernetes, in one line. */
static bool flow(struct model *m, const struct line *l, const char *s)
{
    const char *at = strchr(s, '{'), *name = at ? strstr(at, "name:") : NULL, *with = name ? strstr(name, "value:") : NULL, *value;
    if (!with)
        return false;
    name = skip_blanks(name + 5);
    name += *name == '"' || *name == '\'';
    size_t n = strspn(name, NAME), bytes = value_of(skip_blanks(with + 6), &value);
    shell_setting(m, l, name, n, value, bytes, "yaml", false);
    return shell_wanted(name, n);
}

static void pair_at(struct model *m, const struct line *l, const char *p, const char *ends, const char *how)
{
    p += *p == '"' || *p == '\'';
    size_t n = strspn(p, NAME);
    if (p[n] == '=' && shell_wanted(p, n))
        shell_setting(m, l, p, n, p + n + 1, strcspn(p + n + 1, ends), how, false);
}

/* docker run -e NAME=VALUE, --env NAME=VALUE, --env=NAME=VALUE; kubectl set env OBJECT NAME=VALUE; horovodrun -x NAME=VALUE. */
static void options(struct model *m, const struct line *l, const char *s)
{
    static const char *const words[] = {" -e ", " --env ", " --env=", " -x ", " --envvars ", "set env "};
    bool runs = has(s, "docker ") || has(s, "podman ") || has(s, "nerdctl ") || has(s, "kubectl ") || has(s, "horovodrun") || has(s, "singularity ") || has(s, "apptainer ");
    for (size_t i = 0; runs && i < sizeof words / sizeof *words; i++)
        for (const char *p = s; (p = strstr(p, words[i]));) {
            p = skip_blanks(p + strlen(words[i]));
            pair_at(m, l, p, " \t\"'", "-x");
        }
    for (const char *p = strstr(s, "set env "); runs && p && (p = strchr(p, ' '));) {
        p = skip_blanks(p);
        pair_at(m, l, p, " \t\"'", "-x");
    }
}

/* --export=ALL,NAME=VALUE of srun and sbatch. */
static void exported(struct model *m, const struct line *l, const char *s)
{
    const char *p = strstr(s, "--export=");
    if (!p)
        return;
    for (const char *end = p + strcspn(p, " \t\"'"); p < end; p += strcspn(p, ", \t")) {
        p += *p == ',';
        p += begins(p, "--export=") ? 9 : 0;
        pair_at(m, l, p, ", \t\"'", "export");
    }
}

/* Environment="NAME=VALUE" "NAME=VALUE" of systemd. */
static bool unit(struct model *m, const struct line *l, const char *s)
{
    if (!begins(s, "Environment="))
        return false;
    for (const char *p = s + strlen("Environment="); *p; p = skip_blanks(p + strcspn(p, " \t")))
        pair_at(m, l, p, " \t\"'", "export");
    return true;
}

/* - NAME=VALUE, a list in a compose file. */
static bool list_item(struct model *m, const struct line *l, const char *s)
{
    const char *p = begins(s, "- ") ? skip_blanks(s + 2) : s;
    size_t quote = *p == '"' || *p == '\'', n = strspn(p + quote, NAME);
    if (p == s || p[quote + n] != '=' || !shell_wanted(p + quote, n))
        return false;
    pair_at(m, l, p, quote ? "\"'" : " \t#", "yaml");
    return true;
}

/* set -x NAME VALUE, set -gx NAME VALUE of fish. */
static bool fish(struct model *m, const struct line *l, const char *s)
{
    if (!begins(s, "set -x ") && !begins(s, "set -gx ") && !begins(s, "set -Ux "))
        return false;
    const char *p = skip_blanks(strchr(s + 4, ' ')), *value;
    size_t n = strspn(p, NAME), bytes = p[n] == ' ' ? value_of(skip_blanks(p + n), &value) : 0;
    if (bytes)
        shell_setting(m, l, p, n, value, bytes, "export", false);
    return bytes > 0;
}

bool shell_config(struct model *m, const struct line *l, const char *s)
{
    options(m, l, s);
    exported(m, l, s);
    return quoted_pairs(m, l, s) || flow(m, l, s) || unit(m, l, s) || list_item(m, l, s) || fish(m, l, s);
}
