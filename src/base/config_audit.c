/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_audit.c - what each UNISONO_, NCCL_ and RCCL_ variable of the environment does here: one finding each, with a sentence.
 * Names come from config.def and tables/known_env.def.
 */
#include "config_table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum reader { BOTH, NCCL, RCCL, UNUSED, PLUGIN, SHARP, CONTRIB, TESTS, PYTORCH };
static const char *const reader_text[] = {
    [BOTH] = "NCCL and RCCL read it", [NCCL] = "NCCL reads it", [RCCL] = "RCCL reads it",
    [UNUSED] = "NCCL or RCCL declares it and never uses it", [PLUGIN] = "plugins of NCCL read it",
    [SHARP] = "the SHARP plugin of HPC-X reads it, NCCL itself does not", [CONTRIB] = "contributed code beside NCCL reads it",
    [TESTS] = "nccl-tests reads it", [PYTORCH] = "PyTorch's NCCL process group reads it, NCCL itself does not"};

static const struct { const char *name; enum reader reader; } known[] = {
#define KNOWN(n, who, type, dflt, meaning) {n, who},
#include "known_env.def"
#undef KNOWN
};

/* Names that articles recommend and no library reads, and what to do here instead. */
static const struct { const char *name, *advice; } myths[] = {
    {"NCCL_IB_MTU", "the MTU is taken from the network port"},
    {"RCCL_NET_PLUGIN", "RCCL reads NCCL_NET_PLUGIN"},
    {"RCCL_ENABLE_XGMI", "xGMI links are always used when they exist"},
    {"NCCL_TREE_THRESHOLD", "NCCL removed it; algorithms are chosen with NCCL_ALGO, here with UNISONO_ALGO"},
    {"NCCL_LL_THRESHOLD", "NCCL removed it; protocols are chosen with NCCL_PROTO"},
    {"NCCL_SINGLE_RING_THRESHOLD", "NCCL removed it"},
    {"NCCL_IB_CUDA_SUPPORT", "NCCL removed it; NCCL_NET_GDR_LEVEL took its place"},
    {"NCCL_CHECKS_DISABLE", "NCCL no longer reads it"},
    {"NCCL_ABORT_ON_ERROR", "errors are returned by the call, with a sentence"},
    {"NCCL_SOCKET_TIMEOUT", "UNISONO_TIMEOUT and UNISONO_JOIN_TIMEOUT are the deadlines here"},
    {"NCCL_TIMEOUT_MINUTES", "UNISONO_TIMEOUT is the deadline here, in seconds"},
    {"NCCL_MAX_P2P_PEERS", "NCCL reads NCCL_P2P_MAX_PEERS"},
};

/* Why a family of names has nothing to act on here. First match. */
static const struct { const char *prefix, *why; } families[] = {
    {"NCCL_IB_", "InfiniBand verbs are not used here"}, {"NCCL_PROTO", "there are no protocols to choose between here"},
    {"NCCL_P2P_", "it is about copies between GPUs"}, {"NCCL_NVLS", "it is about NVLink switches"},
    {"NCCL_COLLNET", "it is about reductions in switches"}, {"NCCL_CUMEM", "it is about GPU memory"},
    {"NCCL_NET_GDR", "it is about GPU memory and network cards"}, {"NCCL_GDR", "it is about GPU memory and network cards"},
    {"NCCL_MNNVL", "it is about NVLink between hosts"}, {"NCCL_GRAPH", "it is about CUDA graphs or NCCL's topology search"},
    {"NCCL_NET_PLUGIN", "plugins of NCCL are not loaded here"}, {"NCCL_TUNER", "plugins of NCCL are not loaded here"},
    {"NCCL_PROFILE", "plugins of NCCL are not loaded here"}, {"NCCL_RAS", "unisono watches a job by itself"},
    {"RCCL_MSCCL", "imported plans are not run yet"}, {"NCCL_", "it has no meaning in unisono"},
    {"RCCL_", "it has no meaning in unisono"}};

static const char *why_not_here(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (strncmp(name, families[i].prefix, strlen(families[i].prefix)) == 0)
            return families[i].why;
    return "it has no meaning in unisono";
}

static bool is_ours(const char *name)
{
    return strncmp(name, "UNISONO_", 8) == 0;
}

static const char *nearest(const char *name)
{
    const char *names[ARRAY_LEN(known) + ARRAY_LEN(myths) + 128];
    size_t n = 0;
    if (is_ours(name)) {
        for (size_t i = 0; i < cfg_count; i++)
            names[n++] = cfg_table[i].name;
    } else {
        for (size_t i = 0; i < ARRAY_LEN(known); i++)
            if (strncmp(known[i].name + 1, "CCL_", 4) == 0) /* of NCCL and RCCL, as all that is asked about */
                names[n++] = known[i].name;
    }
    return text_nearest(name, names, n);
}

#define SAY(f, kind, ...) ((f)->what = (kind), (void)snprintf((f)->text, sizeof (f)->text, __VA_ARGS__))

static void audit_unknown(struct config_finding *f)
{
    const char *near = nearest(f->name), *who = is_ours(f->name) ? "no setting of unisono has this name" : "nobody reads this name";
    if (near)
        SAY(f, CONFIG_UNKNOWN, "%s; did you mean %s?", who, near);
    else if (is_ours(f->name))
        SAY(f, CONFIG_UNKNOWN, "%s; \"unisono doctor --env\" lists them", who);
    else
        SAY(f, CONFIG_UNKNOWN, "%s: not unisono, NCCL, RCCL or PyTorch as far as is known", who);
}

static void audit_ours(struct config_finding *f, const char *s)
{
    const struct cfg_entry *e = cfg_find(f->name);
    union cfg_value v;
    if (!e)
        audit_unknown(f);
    else if (!*s)
        SAY(f, CONFIG_NO_EFFECT, "it is empty, which counts as not set");
    else if (cfg_parse(e, s, &v) != UNO_OK)
        SAY(f, CONFIG_ILLEGAL, "%s", err_text());
    else
        SAY(f, CONFIG_USED, "%s", e->help);
}

/* The row that a foreign name is mapped to. */
static const struct cfg_entry *mapped(const char *name)
{
    for (size_t i = 0; i < cfg_count; i++)
        if (*cfg_table[i].nccl && cfg_word_index(cfg_table[i].nccl, name, strlen(name)) >= 0)
            return &cfg_table[i];
    return NULL;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i].name, name) == 0)
            return true;
    return false;
}

static void audit_mapped(struct config_finding *f, const char *s, const struct cfg_entry *e, bool read_nccl)
{
    struct cfg_source from = {0};
    struct cfg_note note = {0};
    union cfg_value v;
    /* Such as NCCL_TIMEOUT: it works here because articles say so, and nowhere else. */
    const char *only_here = is_known(f->name) ? "" : "; NCCL and RCCL never read this name";
    if (!read_nccl) {
        SAY(f, CONFIG_NO_EFFECT, "it is ignored because of UNISONO_READ_NCCL");
        return;
    }
    if (!*s) {
        SAY(f, CONFIG_NO_EFFECT, "it is empty, which counts as not set");
        return;
    }
    if (!cfg_foreign(e, f->name, s, &v, &note)) {
        SAY(f, CONFIG_NO_EFFECT, "%.240s%s", *note.s ? note.s : "this value means the default", only_here);
        return;
    }
    bool resolved = cfg_resolve(e, NULL, read_nccl, &from) == UNO_OK;
    if (!resolved || strcmp(from.name, f->name) != 0) {
        SAY(f, CONFIG_OVERRIDDEN, "%s is set too and wins", resolved ? from.name : e->name);
        return;
    }
    struct text value = {0};
    cfg_print(e, v, &value);
    const char *shown = value.s && *value.s ? value.s : "any";
    SAY(f, CONFIG_USED, "it acts as %s=%.120s%s%.150s%s", e->name, shown, *note.s ? "; " : "", note.s, only_here);
    text_free(&value);
}

static void audit_foreign(struct config_finding *f, const char *s, bool read_nccl)
{
    const struct cfg_entry *e = mapped(f->name);
    if (e) {
        audit_mapped(f, s, e, read_nccl);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i].name, f->name) == 0) {
            SAY(f, CONFIG_NO_EFFECT, "%s; here it has no effect: %s", reader_text[known[i].reader], why_not_here(f->name));
            return;
        }
    for (size_t i = 0; i < ARRAY_LEN(myths); i++)
        if (strcmp(myths[i].name, f->name) == 0) {
            SAY(f, CONFIG_NO_EFFECT, "no library reads it, unless your own script does: %s", myths[i].advice);
            return;
        }
    audit_unknown(f);
}

static bool audited(const char *pair)
{
    return strchr(pair, '=') && (strncmp(pair, "UNISONO_", 8) == 0 || strncmp(pair, "NCCL_", 5) == 0 ||
                                 strncmp(pair, "RCCL_", 5) == 0);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct config_finding *)a)->name, ((const struct config_finding *)b)->name);
}

uno_err config_audit(struct config_finding **findings, size_t *count)
{
    size_t n = 0, total = 0;
    bool read_nccl;
    if (cfg_read_nccl(&read_nccl) != UNO_OK)
        read_nccl = true; /* its own finding says that it is illegal */
    for (char **p = environ; p && *p; p++)
        total += audited(*p);
    struct config_finding *list = mem_array(total, sizeof *list);
    if (!list)
        return UNO_ERR_MEMORY;
    for (char **p = environ; p && *p && n < total; p++) {
        if (!audited(*p))
            continue;
        struct config_finding *f = &list[n++];
        const char *s = strchr(*p, '=') + 1;
        snprintf(f->name, sizeof f->name, "%.*s", (int)(s - 1 - *p), *p);
        snprintf(f->value, sizeof f->value, "%s", s);
        if (is_ours(f->name))
            audit_ours(f, s);
        else
            audit_foreign(f, s, read_nccl);
    }
    qsort(list, n, sizeof *list, by_name);
    *findings = list;
    *count = n;
    return UNO_OK;
}

static bool warns(const struct config_finding *f)
{
    return is_ours(f->name) && (f->what == CONFIG_UNKNOWN || f->what == CONFIG_NO_EFFECT);
}

uint64_t config_warnings(void)
{
    struct config_finding *list;
    size_t n;
    uint64_t h = 0;
    if (config_audit(&list, &n) != UNO_OK)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (warns(&list[i]))
            h = hash_mix(h + 1, hash128(list[i].name, strlen(list[i].name), 5).lo);
    free(list);
    return h;
}

void config_report(void)
{
    struct config_finding *list;
    size_t n;
    if (config_audit(&list, &n) != UNO_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        if (warns(&list[i]))
            LOG(LOG_WARN, LOG_ENV, "%s has no effect: %s", list[i].name, list[i].text);
        else
            LOG(LOG_INFO, LOG_ENV, "%s=%s: %s", list[i].name, list[i].value, list[i].text);
    }
    free(list);
}
