/* SPDX-License-Identifier: Apache-2.0 */
/* read_kernel.c - kernel messages (dmesg, journalctl -k): the OOM killer, NVIDIA's Xid, amdgpu, mlx5, PCIe errors; the kernel's command line. */
#include <ctype.h>
#include <string.h>

#include "reader.h"

static bool killed(struct model *m, const struct line *l, const char *s)
{
    struct span name;
    int64_t pid;
    if (!scan(s, "Killed process %d (%t)", &pid, &name) && !scan(s, "oom-kill:%*task=%t,pid=%d", &name, &pid))
        return false;
    struct fact f = fact_at(l, F_KILLED);
    f.rank = NOBODY;
    f.pid = pid;
    f.name = span_words(m, name);
    f.value = has(s, "emory cgroup") || has(s, "CONSTRAINT_MEMCG") ? "cgroup" : "machine";
    return fact_add(m, f);
}

static bool xid(struct model *m, const struct line *l, const char *s)
{
    struct span word;
    int64_t number;
    if (!has(s, "Xid") || !scan(s, "Xid (PCI:%t): %d", &word, &number))
        return false;
    const char *comma = strchr(word.p + word.n, ',');
    struct fact f = fact_at(l, F_XID);
    f.a = number;
    f.name = span_words(m, word);
    f.value = comma ? model_words(m, skip_blanks(comma + 1)) : "";
    return fact_add(m, f);
}

/* "0000:33:00.0" anywhere in the line. */
static const char *bus_id(struct model *m, const char *s)
{
    for (const char *p = s; (p = strchr(p, ':')); p++)
        if (p - s >= 4 && isxdigit((unsigned char)p[1]) && p[2] && p[3] == ':' && p[4] && p[5] && p[6] == '.')
            return model_string(m, p - 4, 12);
    return "";
}

/* What the driver says when a GPU stops; its words have stayed over years. */
static bool amdgpu(struct model *m, const struct line *l, const char *s)
{
    static const struct { const char *words, *kind; } known[] = {{"GPU reset begin", "reset"}, {"uncorrectable hardware error", "uncorrectable error"}, {"page fault (src_id", "page fault"}, {"fence wait loop timeout", "queue stuck"},
                                                                 {"Failed to evict process queues", "queue stuck"}, {"unrecoverable state due to an unsuccessful queues preemption", "queue stuck"}};
    if (!has(s, "amdgpu") && !has(s, "(src_id"))
        return false;
    const char *kind = has(s, "ring ") && has(s, "timeout, signaled seq") && !has(s, "soft recovered") ? "ring timeout" : NULL;
    for (size_t i = 0; !kind && i < sizeof known / sizeof *known; i++)
        kind = has(s, known[i].words) ? known[i].kind : NULL;
    if (!kind)
        return false;
    struct fact f = fact_at(l, F_GPU_KERNEL);
    f.name = bus_id(m, s);
    f.value = kind;
    return fact_add(m, f);
}

static bool pcie(struct model *m, const struct line *l, const char *s)
{
    if (!has(s, "AER:") && !has(s, "PCIe Bus Error"))
        return false;
    struct fact f = fact_at(l, F_AER);
    f.name = bus_id(m, s);
    f.value = has(s, "Uncorrect") || has(s, "Fatal") ? "uncorrected" : "corrected";
    return fact_add(m, f);
}

static bool card(struct model *m, const struct line *l, const char *s)
{
    struct span word;
    bool down = has(s, "Link down") || has(s, "link down") || has(s, "port_module") || has(s, "Port module event"), sick = has(s, "health compromised") || has(s, "device's health") || has(s, "firmware fatal");
    if (!has(s, "mlx5_core") || !(down || sick))
        return false;
    struct fact f = fact_at(l, F_LINK_EVENT);
    f.name = scan(s, "mlx5_core %w", &word) ? model_string(m, word.p, word.n - (word.p[word.n - 1] == ':')) : "";
    f.value = model_words(m, s);
    return fact_add(m, f);
}

static bool cmdline(struct model *m, const struct line *l, const char *s)
{
    if (!begins(s, "BOOT_IMAGE=") && !scan(s, "Command line: BOOT_IMAGE="))
        return false;
    struct fact f = fact_at(l, F_CMDLINE);
    f.value = model_words(m, s);
    return fact_add(m, f);
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    if (!*s || strlen(s) > 4000)
        return false;
    return killed(m, l, s) || xid(m, l, s) || amdgpu(m, l, s) || pcie(m, l, s) || card(m, l, s) || cmdline(m, l, s);
}

const struct reader reader_kernel = {.name = "kernel messages", .line = read_line};
