/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - looks at everything (see machine.h), and reads the kernel's small files, from here or from a copy. */
#include "machine.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

extern char **environ;

/* ---- checks ------------------------------------------------------------------------------------------------------------------------- */

struct check *machine_check(struct machine *m, enum check_state state, const char *name, const char *fmt, ...)
{
    struct check *c = &m->checks[m->count < CHECKS - 1 ? m->count++ : CHECKS - 1];
    va_list ap;
    *c = (struct check){.state = state};
    snprintf(c->name, sizeof c->name, "%s", name);
    va_start(ap, fmt);
    vsnprintf(c->value, sizeof c->value, fmt, ap);
    va_end(ap);
    return c;
}

void machine_advise(struct check *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->advice, sizeof c->advice, fmt, ap);
    va_end(ap);
}

void machine_tell(struct machine *m, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (m->out)
        vfprintf(m->out, fmt, ap);
    va_end(ap);
}

/* ---- the kernel's files --------------------------------------------------------------------------------------------------------------- */

static FILE *open_below(const char *root, const char *fmt, va_list ap)
{
    char path[4096];
    size_t n = (size_t)snprintf(path, sizeof path, "%s", root);
    if (n >= sizeof path)
        return NULL;
    vsnprintf(path + n, sizeof path - n, fmt, ap);
    return fopen(path, "re");
}

static bool first_line(FILE *f, char *to, size_t bytes)
{
    bool good = f && fgets(to, (int)bytes, f);
    if (f)
        fclose(f);
    if (good)
        to[strcspn(to, "\n")] = 0;
    else
        to[0] = 0;
    return good;
}

bool kernel_line(const char *root, char *to, size_t bytes, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    bool good = first_line(open_below(root, fmt, ap), to, bytes);
    va_end(ap);
    return good;
}

long kernel_number(const char *root, long otherwise, const char *fmt, ...)
{
    char line[64], *end;
    va_list ap;
    va_start(ap, fmt);
    bool good = first_line(open_below(root, fmt, ap), line, sizeof line);
    va_end(ap);
    long v = good ? strtol(line, &end, 0) : 0;
    return good && end != line ? v : otherwise;
}

bool kernel_has(const char *root, const char *path)
{
    char full[4096];
    snprintf(full, sizeof full, "%s%s", root, path);
    return access(full, F_OK) == 0;
}

bool kernel_field(const char *root, const char *path, const char *key, char *to, size_t bytes)
{
    char full[4096], line[4096];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "re");
    size_t n = strlen(key);
    bool good = false;
    while (f && !good && fgets(line, sizeof line, f)) {
        const char *at = line + n;
        if (strncmp(line, key, n) != 0 || !strchr(": \t", *at))
            continue;
        at += strspn(at, ": \t");
        snprintf(to, bytes, "%.*s", (int)strcspn(at, "\n"), at);
        good = true;
    }
    if (f)
        fclose(f);
    if (!good)
        to[0] = 0;
    return good;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

int kernel_names(const char *root, char names[][KERNEL_NAME], int most, const char *fmt, ...)
{
    char path[4096];
    size_t used = (size_t)snprintf(path, sizeof path, "%s", root);
    if (used >= sizeof path)
        return 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(path + used, sizeof path - used, fmt, ap);
    va_end(ap);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && n < most && (e = readdir(d));)
        if (e->d_name[0] != '.' && strlen(e->d_name) < KERNEL_NAME)
            memcpy(names[n++], e->d_name, strlen(e->d_name) + 1);
    if (d)
        closedir(d);
    qsort(names, (size_t)n, KERNEL_NAME, by_name);
    return n;
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------------------- */

static void environment(struct machine *m)
{
    for (char **e = environ; *e; e++)
        if (!strchr(*e, '\n'))
            machine_tell(m, "%s\n", *e);
}

void machine_look(struct machine *m, const char *root)
{
    *m = (struct machine){.root = root};
    m->out = open_memstream(&m->text, &m->text_bytes);
    machine_pci(m);
    machine_host(m);
    machine_net(m);
    if (machine_is_here(m))
        environment(m);
    if (m->out)
        fclose(m->out);
    m->out = NULL;
    if (machine_is_here(m))
        probe_all(m);
}

void machine_free(struct machine *m)
{
    free(m->text);
    free(m->hosts);
    free(m->topologies);
    m->text = m->hosts = m->topologies = NULL;
}
