/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_system.c - what machines say of themselves: kernel messages, limits, name files, interfaces, RDMA ports, PCIe bridges, services.
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
    char hca[64];        /* ibv_devinfo: the device whose ports come */
    char names[8][64];   /* files that `cat` was given, for its lines of output */
    int name_count, gpu;
};

static bool add(struct model *m, struct fact f)
{
    model_add(m, &f);
    return true;
}

static const char *keep(struct model *m, struct span s)
{
    return model_string(m, s.p, s.n);
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------------------- */

static bool kernel(struct model *m, const struct line *l, const char *s)
{
    struct span name, word;
    int64_t pid, xid;
    struct fact f;
    if (scan(s, "Killed process %d (%t)", &pid, &name) || (scan(s, "oom-kill:%*task=%t,pid=%d", &name, &pid))) {
        f = fact_at(l, F_KILLED);
        f.rank = NOBODY;
        f.pid = pid;
        f.name = keep(m, name);
        f.value = has(s, "emory cgroup") || has(s, "CONSTRAINT_MEMCG") ? "cgroup" : "machine";
        return add(m, f);
    }
    if (has(s, "Xid") && scan(s, "Xid (PCI:%t): %d", &word, &xid)) {
        const char *comma = strchr(word.p + word.n, ',');
        f = fact_at(l, F_XID);
        f.a = xid;
        f.name = keep(m, word);
        f.value = comma ? model_words(m, skip_blanks(comma + 1)) : "";
        return add(m, f);
    }
    if (has(s, "AER:") || has(s, "PCIe Bus Error")) {
        f = fact_at(l, F_AER);
        f.name = scan(s, "pcieport %w", &word) ? model_string(m, word.p, word.n - (word.p[word.n - 1] == ':')) : "";
        f.value = has(s, "Uncorrect") || has(s, "Fatal") ? "uncorrected" : "corrected";
        return add(m, f);
    }
    if (has(s, "mlx5_core") && (has(s, "Link down") || has(s, "link down") || has(s, "port_module") || has(s, "Port module event"))) {
        f = fact_at(l, F_LINK_EVENT);
        f.name = scan(s, "mlx5_core %w", &word) ? keep(m, word) : "";
        f.value = model_words(m, s);
        return add(m, f);
    }
    return false;
}

static bool cmdline(struct model *m, const struct line *l, const char *s)
{
    if (!begins(s, "BOOT_IMAGE=") && !scan(s, "Command line: BOOT_IMAGE="))
        return false;
    struct fact f = fact_at(l, F_CMDLINE);
    f.value = model_words(m, s);
    return add(m, f);
}

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
    return add(m, f);
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
        add(m, f);
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
        if (begins(state, "DOWN")) {
            struct fact f = fact_at(l, F_PORT_STATE);
            f.name = model_string(m, s, strcspn(s, "@ \t"));
            f.value = "DOWN";
            return add(m, f);
        }
        if (!is_address(a, k))
            return false;
        struct fact f = fact_at(l, F_INTERFACE);
        f.name = model_string(m, s, strcspn(s, "@ \t"));
        f.value = model_string(m, a, k);
        return add(m, f);
    }
    if (begins(s, "inet ") && scan(s, "inet %t/", &addr)) {
        const char *last = strrchr(s, ' ');
        struct fact f = fact_at(l, F_INTERFACE);
        f.name = last ? model_words(m, last + 1) : "";
        f.value = keep(m, addr);
        return add(m, f);
    }
    return false;
}

static bool network_answers(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    struct span addr, dev;
    int64_t port;
    if (scan(s, "Connection to %w %d port %*succeeded", &addr, &port)) {
        struct fact f = fact_at(l, F_REACHED);
        f.value = keep(m, addr);
        f.a = port;
        return add(m, f);
    }
    if (begins(s, "RTNETLINK answers: Network is unreachable") && scan(st->command, "ip route get %w", &addr)) {
        struct fact f = fact_at(l, F_NO_ROUTE);
        f.value = keep(m, addr);
        f.extra = scan(st->command, "oif %w", &dev) ? keep(m, dev) : "";
        return add(m, f);
    }
    if (has(st->command, "firewall-cmd --list") && isdigit((unsigned char)*s) && strchr(s, '/')) {
        struct fact f = fact_at(l, F_FIREWALL);
        f.value = model_words(m, s);
        return add(m, f);
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
    return add(m, f);
}

/* ---- RDMA ---------------------------------------------------------------------------------------------------------------------------- */

static bool rdma(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    struct span v;
    if (scan(s, "hca_id: %w", &v)) {
        snprintf(st->hca, sizeof st->hca, "%.*s", (int)v.n, v.p);
        return true;
    }
    if (scan(s, "link_layer: %w", &v)) {
        struct fact f = fact_at(l, F_PORT_LAYER);
        f.name = model_words(m, st->hca);
        f.value = keep(m, v);
        return add(m, f);
    }
    if (st->hca[0] && scan(s, "state: PORT_%w", &v) && !span_is(v, "ACTIVE")) {
        struct fact f = fact_at(l, F_PORT_STATE);
        f.name = model_words(m, st->hca);
        f.value = keep(m, v);
        return add(m, f);
    }
    /* show_gids: device port index gid [address] v1|v2 interface */
    struct span at[8];
    int n = 0;
    for (const char *p = s; *p && n < 8; p = skip_blanks(p + at[n - 1].n))
        at[n++] = (struct span){p, strcspn(p, " \t")};
    if (n >= 5 && at[3].n == 39 && memchr(at[3].p, ':', at[3].n)) {
        struct span ver = at[n - 2];
        struct fact f = fact_at(l, F_GID);
        f.name = keep(m, at[0]);
        f.a = strtol(at[2].p, NULL, 10);
        f.b = ver.n == 2 && ver.p[0] == 'v' ? ver.p[1] - '0' : 0;
        f.value = n >= 7 || is_address(at[4].p, at[4].n) ? keep(m, at[4]) : "";
        f.extra = keep(m, at[3]);
        return add(m, f);
    }
    return false;
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
        return add(m, f);
    }
    if (has(st->command, "nvidia-smi") && begins(s, "State") && scan(s, "State : %t", &words)) {
        struct fact f = fact_at(l, F_GPU_FABRIC);
        f.value = keep(m, words);
        return add(m, f);
    }
    if (scan(s, "Test CUDA failure%*'%t'", &words) || scan(s, "Test HIP failure%*'%t'", &words) || scan(s, "CUDA error: %t", &words)) {
        struct fact f = fact_at(l, F_GPU_FAILURE);
        f.name = keep(m, words);
        f.value = "program";
        return add(m, f);
    }
    return false;
}

static bool answers(struct model *m, struct system_state *st, const struct line *l, const char *s)
{
    struct span v;
    int64_t kib;
    if (has(st->command, "systemctl is-active") && scan(st->command, "is-active %w", &v)) {
        struct fact f = fact_at(l, F_SERVICE);
        f.name = keep(m, v);
        f.value = model_words(m, s);
        st->command[0] = 0;
        return add(m, f);
    }
    if (scan(s, "max locked memory %*) %w", &v) || (has(s, "Max locked memory") && scan(s, "Max locked memory %w", &v))) {
        struct fact f = fact_at(l, F_LIMIT);
        f.name = "memlock";
        f.a = span_is(v, "unlimited") ? -1 : strtoll(v.p, NULL, 10) / (begins(s, "Max") ? 1024 : 1);
        return add(m, f);
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
        return add(m, f);
    }
    if (has(st->command, "stat -f") && has(st->command, "/dev/shm") && st->answers == 0 && !s[strspn(s, "0123456789abcdefx")]) {
        struct fact f = fact_at(l, F_SHM_ID);
        f.name = model_words(m, s);
        st->answers++;
        return add(m, f);
    }
    if (strlen(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && !s[strspn(s, "0123456789abcdef-")]) {
        struct fact f = fact_at(l, F_BOOT_ID);
        f.name = model_words(m, s);
        return add(m, f);
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
        return add(m, f);
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
    return kernel(m, l, s) || cmdline(m, l, s) || lspci(m, st, l, s) || gpus(m, st, l, s) || rdma(m, st, l, s) || network_answers(m, st, l, s) ||
           speeds(m, st, l, s) || answers(m, st, l, s) || ip_addr(m, l, s) || hosts_file(m, st, l, s);
}

static void end(struct model *m, struct context *c, const char *file)
{
    if (c->system)
        *c->system = (struct system_state){.gpu = NOBODY};
}

const struct reader reader_system = {.name = "output of a system tool", .line = read_line, .end = end};
