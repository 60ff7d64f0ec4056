/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_matrix.c - tables of devices against devices: `nvidia-smi topo -m`, `rocm-smi --showtopo` and its parts, `amd-smi topology`. A header row
 * names the columns; each row after it begins with the name of a device.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

enum { COLUMNS = 96 };

struct matrix_state {
    char names[COLUMNS][24];
    int columns;
    int first_extra; /* columns from here on are not devices: CPU affinity, NUMA affinity */
    bool tabs;
    bool by_busid;    /* amd-smi: devices are called "0000:0c:00.0" */
    const char *kind; /* links, weight, hops, type, access, bandwidth */
};

static bool is_busid(const char *s, size_t n)
{
    static const char form[] = "xxxx:xx:xx.x";
    for (size_t i = 0; i < n && n == sizeof form - 1; i++)
        if (form[i] == 'x' ? !isxdigit((unsigned char)s[i]) : s[i] != form[i])
            return false;
    return n == sizeof form - 1;
}

static bool is_device(const struct matrix_state *x, const char *s, size_t n)
{
    if (x && x->by_busid)
        return is_busid(s, n);
    static const char *const prefixes[] = {"GPU", "NIC", "mlx5_", "mlx4_", "bnxt_re", "irdma", "rocep", "efa", "ib"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t k = strlen(prefixes[i]);
        if (n > k && n < 20 && memcmp(s, prefixes[i], k) == 0 && isdigit((unsigned char)s[n - 1]))
            return true;
    }
    return false;
}

/* Fields: separated by tabs where there are tabs (a name such as "CPU Affinity" has a blank), else by blanks. */
static int fields(const char *s, bool tabs, struct span *at, int most)
{
    int n = 0;
    while (*s && n < most) {
        size_t bytes = tabs ? strcspn(s, "\t") : strcspn(s, " \t");
        struct span f = {s, bytes};
        while (f.n && f.p[0] == ' ')
            f.p++, f.n--;
        while (f.n && isspace((unsigned char)f.p[f.n - 1]))
            f.n--;
        if (tabs || f.n)
            at[n++] = f;
        s += bytes + (s[bytes] != 0);
    }
    return n;
}

static bool header(struct context *c, const char *s, struct model *m)
{
    struct span at[COLUMNS + 8];
    bool tabs = strchr(s, '\t') != NULL;
    int n = fields(s, tabs, at, COLUMNS);
    int from = 0;
    while (from < n && at[from].n == 0)
        from++;
    int devices = 0;
    while (from + devices < n && is_device(c->matrix, at[from + devices].p, at[from + devices].n))
        devices++;
    if (devices < 2 && !(devices == 1 && has(s, "Affinity")))
        return false;
    for (int i = from + devices; i < n; i++) /* a row of values is no header */
        if (at[i].n && !memmem(at[i].p, at[i].n, "Affinity", 8) && !memmem(at[i].p, at[i].n, "CPU", 3) && !memmem(at[i].p, at[i].n, "NUMA", 4))
            return false;
    struct matrix_state *x = c->matrix;
    if (!x) {
        x = c->matrix = model_alloc(m, sizeof *x);
        x->kind = "links";
    }
    x->columns = devices;
    x->tabs = tabs;
    for (int i = 0; i < devices; i++) {
        memcpy(x->names[i], at[from + i].p, at[from + i].n);
        x->names[i][at[from + i].n] = 0;
    }
    return true;
}

static bool matrix_row(struct model *m, struct context *c, const struct line *l, const char *s)
{
    struct matrix_state *x = c->matrix;
    struct span at[COLUMNS + 8];
    if (!x || x->columns == 0 || !(x->by_busid ? isxdigit((unsigned char)*skip_blanks(s)) : isalpha((unsigned char)*skip_blanks(s))))
        return false;
    int n = fields(s, x->tabs, at, COLUMNS + 8);
    if (n < x->columns + 1 || !is_device(x, at[0].p, at[0].n))
        return false;
    for (int i = 0; i < x->columns; i++) {
        struct span v = at[i + 1];
        struct fact f = fact_at(l, F_MATRIX);
        f.name = model_string(m, at[0].p, at[0].n);
        f.value = model_words(m, x->names[i]);
        if (strcmp(f.name, f.value) == 0)
            continue;
        f.extra = model_string(m, v.p, v.n);
        f.more = x->kind;
        size_t digits = strcspn(f.extra, "0123456789");
        f.a = f.extra[digits] ? atoi(f.extra + digits) : 0;
        model_add(m, &f);
    }
    if (n > x->columns + 1 && at[x->columns + 1].n) {
        struct fact f = fact_at(l, F_CPU_OF);
        f.name = model_string(m, at[0].p, at[0].n);
        f.value = model_string(m, at[x->columns + 1].p, at[x->columns + 1].n);
        f.a = n > x->columns + 2 && at[x->columns + 2].n && isdigit((unsigned char)at[x->columns + 2].p[0]) ? atoi(at[x->columns + 2].p) : NOBODY;
        model_add(m, &f);
    }
    return true;
}

/* rocm-smi frames its titles with '=', amd-smi ends them with a colon; what follows a title that is not known here is left out. */
static bool title(struct model *m, struct context *c, const char *s)
{
    static const struct { const char *words, *kind; } titles[] = {{"Weight between two GPUs", "weight"}, {"Hops between two GPUs", "hops"}, {"Link Type between two GPUs", "type"}, {"Numa Nodes", "numa"},
                                                                  {"ACCESS TABLE:", "access"}, {"WEIGHT TABLE:", "weight"}, {"HOPS TABLE:", "hops"}, {"LINK TYPE TABLE:", "type"}, {"NUMA BW TABLE:", "bandwidth"}, {" TABLE:", ""}};
    bool amd_smi = s[0] && strlen(s) > 7 && strlen(s) < 40 && strcmp(s + strlen(s) - 7, " TABLE:") == 0;
    if (s[0] != '=' && !amd_smi)
        return false;
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        if (has(s, titles[i].words)) {
            if (!c->matrix)
                c->matrix = model_alloc(m, sizeof *c->matrix);
            c->matrix->kind = titles[i].kind;
            c->matrix->columns = 0;
            c->matrix->by_busid = amd_smi;
            return true;
        }
    return false;
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = l->text;
    int64_t gpu, node;
    if (title(m, c, s))
        return true;
    if (!has(s, "GPU") && !(c->matrix && (c->matrix->columns || c->matrix->by_busid)))
        return false;
    if (c->matrix && c->matrix->by_busid && !*c->matrix->kind) /* coherency, atomics, ... */
        return is_busid(skip_blanks(s), strcspn(skip_blanks(s), " "));
    struct span device;
    if (begins(skip_blanks(s), "NIC") && scan(s, "NIC%d: %w", &gpu, &device)) { /* the legend of nvidia-smi */
        struct fact f = fact_at(l, F_NIC_CALLED);
        f.name = model_say(m, "NIC%d", (int)gpu);
        f.value = model_string(m, device.p, device.n);
        model_add(m, &f);
        return true;
    }
    if (scan(s, "GPU[%d]%*Numa Node: %d", &gpu, &node)) {
        struct fact f = fact_at(l, F_CPU_OF);
        f.name = model_say(m, "GPU%d", (int)gpu);
        f.a = node;
        model_add(m, &f);
        return true;
    }
    return header(c, s, m) || matrix_row(m, c, l, s);
}

static void end(struct model *m, struct context *c, const char *file)
{
    if (c->matrix)
        *c->matrix = (struct matrix_state){.kind = "links"};
}

const struct reader reader_matrix = {.name = "a table of links", .line = read_line, .end = end};
