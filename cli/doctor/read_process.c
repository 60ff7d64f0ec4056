/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_process.c - what tools say of one process: which files of the library are mapped into it (/proc/PID/maps, lsof, LD_DEBUG), where it may run
 * (/proc/PID/status, taskset), and which package of the library is installed (pip). A listing of what could be found (ldconfig -p, ls, find) says
 * nothing of a process and is left alone.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

/* ---- the library ----------------------------------------------------------------------------------------------------------------------------- */

/* "libnccl.so.2.28.3" at the end of a path: the library itself, and none of its plugins. */
static const char *library_in(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    return begins(file, "libnccl.so") ? "libnccl" : begins(file, "librccl.so") ? "librccl" : NULL;
}

static bool is_mapping(const char *s)
{
    size_t a = strspn(s, "0123456789abcdef"), b = a && s[a] == '-' ? strspn(s + a + 1, "0123456789abcdef") : 0;
    return a >= 6 && b >= 6 && s[a + 1 + b] == ' ';
}

/* The process that a line is of: "/proc/4242/maps:" of grep, the second column of lsof, "4242: calling init:" of the loader. */
static int64_t process_of(const struct line *l, const char *s, bool *mapped)
{
    int64_t pid = NOBODY;
    struct span user;
    if (scan(l->raw, "/proc/%d/maps:", &pid)) {
        *mapped = true;
        return pid;
    }
    if (has(s, "calling init:")) {
        *mapped = true;
        return scan(l->raw, "%d: calling init:", &pid) ? pid : l->task != NOBODY ? l->task : l->pid;
    }
    if ((has(s, " mem ") || has(s, " DEL ")) && has(s, " REG ") && scan(s, "%w %d %w ", &user, &pid, &user)) {
        *mapped = true;
        return pid;
    }
    *mapped = is_mapping(s);
    return l->pid;
}

static bool library(struct model *m, const struct line *l, const char *s)
{
    char path[1024];
    bool mapped;
    int64_t pid = process_of(l, s, &mapped);
    const char *from = begins(s, "/proc/") ? strchr(s, ':') : s, *at = mapped && from ? strchr(from, '/') : NULL;
    if (!at)
        return false;
    size_t n = strcspn(at, " \t");
    if (n >= sizeof path)
        return false;
    memcpy(path, at, n);
    path[n] = 0;
    const char *name = library_in(path);
    if (!name)
        return false;
    struct fact f = fact_at(l, F_LIBRARY);
    f.name = name;
    f.value = model_words(m, path);
    f.pid = pid;
    return fact_add(m, f);
}

/* "nvidia-nccl-cu12   2.30.4" of pip list, "nvidia-nccl-cu12==2.30.4" of pip freeze. */
static bool package(struct model *m, const struct line *l, const char *s)
{
    size_t name = name_bytes(s, "-_.");
    const char *version = s + name + strspn(s + name, " =");
    if (!begins(s, "nvidia-nccl") || version == s + name || !isdigit((unsigned char)*version))
        return false;
    struct fact f = fact_at(l, F_PACKAGE);
    f.name = model_string(m, s, name);
    f.value = model_string(m, version, strspn(version, "0123456789."));
    f.pid = NOBODY;
    return fact_add(m, f);
}

/* ---- where it may run ------------------------------------------------------------------------------------------------------------------------- */

static bool may_run_on(struct model *m, const struct line *l, const char *s)
{
    struct span list;
    int64_t pid = NOBODY;
    if (!scan(s, "Cpus_allowed_list: %w", &list) && !scan(s, "pid %d's current affinity list: %t", &pid, &list))
        return false;
    struct fact f = fact_at(l, F_AFFINITY);
    f.name = model_string(m, list.p, strspn(list.p, "0123456789,-"));
    f.a = numbers_listed(f.name);
    f.value = "process";
    if (pid != NOBODY || scan(l->raw, "/proc/%d/status:", &pid))
        f.pid = pid;
    return f.a > 0 && !l->cut && fact_add(m, f);
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    if (has(s, "ccl.so") && library(m, l, s))
        return true;
    return (has(s, "nvidia-nccl") && package(m, l, s)) || ((has(s, "Cpus_allowed_list") || has(s, "affinity list")) && may_run_on(m, l, s));
}

const struct reader reader_process = {.name = "what is told of a process", .line = read_line};
