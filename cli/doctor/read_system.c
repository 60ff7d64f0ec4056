/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_system.c - what machines say of themselves: limits, name files, interfaces, PCIe bridges, services. Kernel messages are in
 * read_kernel.c, RDMA ports in read_rdma.c.
 * A pasted command ("$ ulimit -l") says what its output is, where the output alone does not.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

struct system_state {
    char command[256];   /* the last pasted command */
    int answers;         /* lines of output since */
    char bridge[24];     /* lspci: the bridge whose capabilities come */
    char names[8][64];   /* files that `cat` was given, for its lines of output */
    int name_count, gpu;
    char unit[64];       /* systemctl status: whose state comes */
};

/* ---- PCIe ------------------------------------------------------------------------------------------------------------------------- */

static bool lspci(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    if (isxdigit((unsigned char)s[0]) && (has(s, " PCI bridge: ") || has(s, "bridge"))) {
        size_t n = strspn(s, "0123456789abcdefABCDEF:.");
        snprintf(st->bridge, sizeof st->bridge, "%.*s", (int)n, s);
        return true;
    }
    if (!has(s, "ACSCtl:"))
        return false;
    struct fact f = fact_at(l, F_ACS);
    f.name = model_words(m, st->bridge);
    f.a = has(s, "ReqRedir+");
    f.b = has(s, "CmpltRedir+");
    return fact_add(m, f);
}

/* ---- names and addresses ------------------------------------------------------------------------------------------------------------- */

static bool is_address(const char *s, size_t n)
{
    int dots = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] == '.')
            dots++;
        else if (!isdigit((unsigned char)s[i]))
            return false;
    return dots == 3 && n >= 7 && n <= 15;
}

/* A line of /etc/hosts, or of getent hosts. */
static bool hosts_file(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    size_t n = strcspn(s, " \t");
    bool resolver = has(st->command, "getent");
    if (!is_address(s, n) || !s[n])
        return false;
    bool any = false;
    for (const char *p = skip_blanks(s + n); *p && *p != '#'; p = skip_blanks(p)) {
        size_t k = strcspn(p, " \t#");
        if (k == 0 || k > 253 || (!isalpha((unsigned char)*p) && !resolver))
            return any;
        for (size_t i = 0; i < k; i++)
            if (!isalnum((unsigned char)p[i]) && !strchr(".-_", p[i]))
                return any;
        struct fact f = fact_at(l, F_HOSTNAME_AT);
        f.name = model_string(m, p, k);
        f.value = model_string(m, s, n);
        f.extra = resolver ? "resolver" : "hosts";
        fact_add(m, f);
        any = true;
        p += k;
    }
    return any;
}

/* ip -br addr: "eth0  UP  10.0.0.1/24"; ip addr: "    inet 10.0.0.1/24 ... eth0" */
static bool ip_addr(struct model *m, const struct line *l, const char *s)
{
    struct span addr;
    size_t n = strcspn(s, " \t");
    const char *state = skip_blanks(s + n);
    if (n && n < 20 && (begins(state, "UP ") || begins(state, "UNKNOWN ") || begins(state, "DOWN"))) {
        const char *a = skip_blanks(state + strcspn(state, " \t"));
        size_t k = strcspn(a, "/ ");
        if (begins(state, "DOWN"))
            return true;
        if (!is_address(a, k))
            return false;
        struct fact f = fact_at(l, F_INTERFACE);
        f.name = model_string(m, s, strcspn(s, "@ \t"));
        f.value = model_string(m, a, k);
        return fact_add(m, f);
    }
    int64_t mtu;
    const char *flags = strstr(s, ": <"), *name = s + (isdigit((unsigned char)*s) ? strcspn(s, " ") + 1 : 0); /* the number may have been taken for a task's */
    if (flags && flags > name && flags - name < 24 && scan(flags, "mtu %d", &mtu)) { /* "2: eth0: <BROADCAST,UP,LOWER_UP> mtu 9000 ..." */
        struct fact f = fact_at(l, F_HOST_LINK);
        f.name = model_string(m, name, strcspn(name, "@: "));
        f.a = mtu;
        f.b = f.c = -1;
        if (has(flags, "LOWER_UP") && !has(flags, "LOOPBACK"))
            model_add(m, &f);
        return true;
    }
    if (begins(s, "inet ") && scan(s, "inet %t/", &addr)) {
        const char *last = strrchr(s, ' ');
        struct fact f = fact_at(l, F_INTERFACE);
        f.name = last ? model_words(m, last + 1) : "";
        f.value = span_words(m, addr);
        return fact_add(m, f);
    }
    return false;
}

static bool network_answers(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    struct span addr, dev;
    int64_t port;
    if (scan(s, "Connection to %w %d port %*succeeded", &addr, &port)) {
        struct fact f = fact_at(l, F_REACHED);
        f.value = span_words(m, addr);
        f.a = port;
        return fact_add(m, f);
    }
    if (begins(s, "RTNETLINK answers: Network is unreachable") && scan(st->command, "ip route get %w", &addr)) {
        struct fact f = fact_at(l, F_NO_ROUTE);
        f.value = span_words(m, addr);
        f.extra = scan(st->command, "oif %w", &dev) ? span_words(m, dev) : "";
        return fact_add(m, f);
    }
    if (has(st->command, "firewall-cmd --list") && isdigit((unsigned char)*s) && strchr(s, '/')) {
        struct fact f = fact_at(l, F_FIREWALL);
        f.value = model_words(m, s);
        return fact_add(m, f);
    }
    return false;
}

/* cat of /sys/class/net/IF/speed files: one number a file, in their order. */
static bool speeds(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    int64_t v;
    if (st->answers >= st->name_count || !scan(s, "%d", &v) || s[strspn(s, "-0123456789 ")])
        return false;
    struct fact f = fact_at(l, F_SPEED);
    f.name = model_words(m, st->names[st->answers]);
    f.a = v;
    st->answers++;
    return fact_add(m, f);
}

/* ---- GPUs, services, limits ------------------------------------------------------------------------------------------------------------- */

static bool gpus(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    int64_t gpu, link;
    double rate;
    struct span words;
    if (begins(s, "GPU ") && scan(s, "GPU %d:", &gpu)) {
        st->gpu = (int)gpu;
        return true;
    }
    if (begins(s, "Link ") && scan(s, "Link %d:", &link)) {
        struct fact f = fact_at(l, F_NVLINK);
        f.dev = st->gpu;
        f.a = link;
        f.b = !has_nocase(s, "inactive");
        f.x = scan(strchr(s, ':'), ": %f", &rate) ? rate : 0;
        return fact_add(m, f);
    }
    if (has(st->command, "nvidia-smi") && begins(s, "State") && scan(s, "State : %t", &words)) {
        struct fact f = fact_at(l, F_GPU_FABRIC);
        f.value = span_words(m, words);
        return fact_add(m, f);
    }
    if (begins(s, "Memory access fault by GPU node-") || begins(s, "HW Exception by GPU node-")) { /* of ROCm's runtime, at the end of a process */
        struct fact f = fact_at(l, F_GPU_FAILURE);
        f.name = model_words(m, s);
        f.value = "program";
        return fact_add(m, f);
    }
    if (has(s, "cudaGetDeviceCount") && scan(s, "Error %d: %t", &gpu, &words)) { /* PyTorch's words for what its first call returned */
        struct fact f = fact_at(l, F_GPU_FAILURE);
        f.name = span_words(m, words);
        f.value = "program";
        return fact_add(m, f);
    }
    if (scan(s, "Test CUDA failure%*'%t'", &words) || scan(s, "Test HIP failure%*'%t'", &words) || scan(s, "CUDA error: %t", &words)) {
        struct fact f = fact_at(l, F_GPU_FAILURE);
        f.name = span_words(m, words);
        f.value = "program";
        return fact_add(m, f);
    }
    return false;
}

/* ulimit -a of bash, zsh and dash; /proc/PID/limits. */
static bool limits(struct model *m, const struct line *l, const char *s)
{
    struct span v;
    if (scan(s, "max locked memory %*) %w", &v) || (has(s, "Max locked memory") && scan(s, "Max locked memory %w", &v))) {
        struct fact f = fact_at(l, F_LIMIT);
        f.name = "memlock";
        f.a = span_is(v, "unlimited") ? -1 : strtoll(v.p, NULL, 10) / (begins(s, "Max") ? 1024 : 1);
        return fact_add(m, f);
    }
    static const struct { const char *words, *name; } more[] = {{"open files %*) %w", "nofile"}, {"max user processes %*) %w", "nproc"}, {"-n: file descriptors %w", "nofile"}, {"-u: processes %w", "nproc"},
                                                                {"-l: locked-in-memory size (kbytes) %w", "memlock"}, {"locked memory(kbytes) %w", "memlock"}, {"nofiles %w", "nofile"}, {"Max open files %w", "nofile"}, {"Max processes %w", "nproc"}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (begins(s, "-") == (more[i].words[0] == '-') && *s == more[i].words[0] && scan(s, more[i].words, &v) && (isdigit((unsigned char)*v.p) || span_is(v, "unlimited"))) {
            struct fact f = fact_at(l, F_LIMIT);
            f.name = more[i].name;
            f.a = span_is(v, "unlimited") ? -1 : strtoll(v.p, NULL, 10);
            return fact_add(m, f);
        }
    return false;
}

/* "nvidia_peermem         16384  0", a line of lsmod; the modules that let a card reach a GPU. */
static bool module(struct model *m, const struct line *l, const char *s)
{
    static const char *const names[] = {"nvidia_peermem ", "nv_peer_mem ", "ib_peer_mem "};
    bool one = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        one = one || begins(s, names[i]);
    if (!one || !isdigit((unsigned char)*skip_blanks(s + strcspn(s, " "))))
        return false;
    struct fact f = fact_at(l, F_MODULE);
    f.name = model_string(m, s, strcspn(s, " "));
    return fact_add(m, f);
}

/* systemctl status: "* NAME.service - ..." and, below, "Active: failed (...)". */
static bool unit_status(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    struct span v;
    const char *service = strstr(s, ".service - ");
    if (service) {
        const char *from = service;
        while (from > s && from[-1] != ' ')
            from--;
        snprintf(st->unit, sizeof st->unit, "%.*s", (int)(service - from), from);
        return true;
    }
    if (!*st->unit || !begins(s, "Active: ") || !scan(s, "Active: %w", &v))
        return false;
    struct fact f = fact_at(l, F_SERVICE);
    f.name = model_words(m, st->unit);
    f.value = span_words(m, v);
    st->unit[0] = 0;
    return fact_add(m, f);
}

static bool answers(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    struct span v;
    int64_t kib;
    if (unit_status(m, st, l, s))
        return true;
    if (has(st->command, "systemctl is-active") && scan(st->command, "is-active %w", &v)) {
        struct fact f = fact_at(l, F_SERVICE);
        f.name = span_words(m, v);
        f.value = model_words(m, s);
        st->command[0] = 0;
        return fact_add(m, f);
    }
    /* "$(hostname) $(ulimit -l)" of several hosts */
    if (has(st->command, "ulimit -l")) {
        size_t n = strcspn(s, " \t");
        const char *value = skip_blanks(s + n);
        bool alone = !*value;
        const char *number = alone ? s : value;
        if (!begins(number, "unlimited") && !(scan(number, "%d", &kib) && !number[strspn(number, "0123456789 ")]))
            return false;
        struct fact f = fact_at(l, F_LIMIT);
        f.name = "memlock";
        f.a = begins(number, "unlimited") ? -1 : kib;
        if (!alone)
            f.host = model_string(m, s, n);
        return fact_add(m, f);
    }
    if (has(st->command, "stat -f") && has(st->command, "/dev/shm") && st->answers == 0 && !s[strspn(s, "0123456789abcdefx")]) {
        struct fact f = fact_at(l, F_SHM_ID);
        f.name = model_words(m, s);
        st->answers++;
        return fact_add(m, f);
    }
    if (strlen(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && !s[strspn(s, "0123456789abcdef-")]) {
        struct fact f = fact_at(l, F_BOOT_ID);
        f.name = model_words(m, s);
        return fact_add(m, f);
    }
    if (has(s, "/dev/shm") && (begins(s, "tmpfs") || begins(s, "shm"))) { /* df: file system, blocks, used, free */
        struct fact f = fact_at(l, F_DISK);
        char unit = 0;
        double all = 0, used, left = 0;
        char u[3] = {0};
        if (sscanf(s, "%*s %lf%c %lf%c %lf%c", &all, &u[0], &used, &u[1], &left, &u[2]) < 5)
            return false;
        unit = u[0];
        double scale = unit == 'G' ? 1 << 20 : unit == 'M' ? 1 << 10 : 1;
        f.name = "/dev/shm";
        f.a = whole(all * scale);
        f.b = whole(left * (u[2] == 'G' ? 1 << 20 : u[2] == 'M' ? 1 << 10 : 1));
        return fact_add(m, f);
    }
    return false;
}

static void command(struct system_state *st, const char *s)
{
    snprintf(st->command, sizeof st->command, "%s", s);
    st->answers = st->name_count = 0;
    for (const char *p = s; (p = strstr(p, "/sys/class/net/")) && st->name_count < 8;) {
        p += strlen("/sys/class/net/");
        size_t n = strcspn(p, "/ ");
        if (begins(p + n, "/speed"))
            snprintf(st->names[st->name_count++], sizeof st->names[0], "%.*s", (int)n, p);
    }
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    if (!*s || strlen(s) > 2000)
        return false;
    struct system_state *st = c->system;
    if (!st) {
        st = c->system = model_alloc(m, sizeof *st);
        st->gpu = NOBODY;
    }
    if (begins(s, "$ ") || begins(s, "# ")) {
        command(st, s + 2);
        return false; /* the command itself may say how a job is started */
    }
    return lspci(m, st, l, s) || gpus(m, st, l, s) || network_answers(m, st, l, s) ||
           speeds(m, st, l, s) || limits(m, l, s) || module(m, l, s) || answers(m, st, l, s) || ip_addr(m, l, s) || hosts_file(m, st, l, s);
}

static void end(struct model *m, struct context *c, const char *file)
{
    if (c->system)
        *c->system = (struct system_state){.gpu = NOBODY};
}

const struct reader reader_system = {.name = "output of a system tool", .line = read_line, .end = end};
