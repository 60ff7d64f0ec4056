/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - the settings: config.def as a table, strict values, and the order in which sources win. The grammars of foreign
 * names are in config_nccl.c, the report on a whole environment in config_audit.c.
 */
#include "config_table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const struct cfg_entry cfg_table[] = {
#define ROW(k, id, suffix, cmp, foreign, about) \
    .kind = CFG_KIND_##k, .offset = offsetof(struct config, id), .name = "UNISONO_" suffix, .nccl = foreign, .help = about, \
    .compare = cmp
#define CFG_BOOL(id, name, d, compare, nccl, help) {ROW(BOOL, id, name, compare, nccl, help), .dflt = d},
#define CFG_INT(id, name, d, lo, hi, compare, nccl, help) \
    {ROW(INT, id, name, compare, nccl, help), .dflt = d, .min = lo, .max = hi},
#define CFG_BYTES(id, name, d, lo, hi, compare, nccl, help) \
    {ROW(BYTES, id, name, compare, nccl, help), .dflt = d, .min = lo, .max = hi},
#define CFG_SECONDS(id, name, d, lo, hi, compare, nccl, help) \
    {ROW(SECONDS, id, name, compare, nccl, help), .dflt_seconds = d, .min_seconds = lo, .max_seconds = hi},
#define CFG_WORD(id, name, d, list, compare, nccl, help) {ROW(WORD, id, name, compare, nccl, help), .text = d, .words = list},
#define CFG_STRING(id, name, d, compare, nccl, help) {ROW(STRING, id, name, compare, nccl, help), .text = d},
#include "config.def"
#undef CFG_BOOL
#undef CFG_INT
#undef CFG_BYTES
#undef CFG_SECONDS
#undef CFG_WORD
#undef CFG_STRING
};
const size_t cfg_count = ARRAY_LEN(cfg_table);

const struct cfg_entry *cfg_find(const char *name)
{
    for (size_t i = 0; i < cfg_count; i++)
        if (strcmp(cfg_table[i].name, name) == 0)
            return &cfg_table[i];
    return NULL;
}

int cfg_word_index(const char *words, const char *word, size_t len)
{
    int at = 0;
    for (const char *w = words; *w; at++) {
        size_t n = strcspn(w, ",");
        if (n == len && strncasecmp(w, word, len) == 0)
            return at;
        w += n + (w[n] == ',');
    }
    return -1;
}

/* ---- values ------------------------------------------------------------------------------------ */

static uno_err parse_seconds(const struct cfg_entry *e, const char *s, double *v)
{
    bool negative = e->min_seconds < 0 && s[0] == '-';
    uno_err err = text_parse_seconds(s + negative, v);
    if (err != UNO_OK)
        return err;
    if (negative)
        *v = -*v;
    return *v >= e->min_seconds && *v <= e->max_seconds
               ? UNO_OK
               : err_set(UNO_ERR_PARSE, "%.40s is outside %g to %g seconds", s, e->min_seconds, e->max_seconds);
}

static uno_err parse_bytes(const struct cfg_entry *e, const char *s, uint64_t *v)
{
    char lo[32], hi[32];
    TRY(text_parse_bytes(s, v));
    return *v >= (uint64_t)e->min && *v <= (uint64_t)e->max
               ? UNO_OK
               : err_set(UNO_ERR_PARSE, "%.40s is outside %s to %s", s, text_bytes(lo, sizeof lo, (uint64_t)e->min),
                         text_bytes(hi, sizeof hi, (uint64_t)e->max));
}

/* A comma list of `legal` words, '^' before it inverts. */
static uno_err check_list(const char *s, size_t len, const char *legal)
{
    bool invert = len && s[0] == '^';
    size_t at = invert;
    uint32_t named = 0, all = 1;
    for (const char *w = legal; *w; w++)
        all = *w == ',' ? all << 1 | 1 : all;
    do {
        size_t n = strcspn(s + at, ",;");
        if (at + n > len)
            n = len - at;
        int word = cfg_word_index(legal, s + at, n);
        if (word < 0)
            return err_set(UNO_ERR_PARSE, "\"%.*s\" is not known; legal is a comma list of %s, after ^ those not wanted",
                           (int)MIN(n, 40), s + at, legal);
        named |= 1u << word;
        at += n + 1;
    } while (at <= len);
    if (invert && named == all)
        return err_set(UNO_ERR_PARSE, "\"%.*s\" leaves none of %s", (int)MIN(len, 80), s, legal);
    return UNO_OK;
}

/* [list][;func:list]... */
static uno_err check_algo(const char *s)
{
    for (const char *part = s; *part;) {
        size_t len = strcspn(part, ";"), head = strcspn(part, ":;");
        if (part[head] == ':') {
            char func[40];
            uno_coll coll;
            snprintf(func, sizeof func, "%.*s", (int)head, part);
            TRY(coll_parse(func, &coll));
            TRY(check_list(part + head + 1, len - head - 1, CFG_ALGOS));
        } else {
            TRY(check_list(part, len, CFG_ALGOS));
        }
        part += len + (part[len] == ';');
    }
    return UNO_OK;
}

static uno_err check_fault(const char *s)
{
    const char *colon = strchr(s, ':');
    int64_t n;
    if (!colon || colon == s || text_parse_int(colon + 1, 1, 1000000000, &n) != UNO_OK)
        return err_set(UNO_ERR_PARSE, "\"%.40s\" is not name:n, such as alloc:3", s);
    return UNO_OK;
}

/* Strings that have a grammar of their own. */
static uno_err check_string(const struct cfg_entry *e, const char *s)
{
    if (e->offset == offsetof(struct config, algo))
        return check_algo(s);
    if (e->offset == offsetof(struct config, debug_subsys))
        return check_list(s, strlen(s), CFG_TOPICS ",all");
    if (e->offset == offsetof(struct config, fault))
        return check_fault(s);
    return UNO_OK;
}

static uno_err parse_any(const struct cfg_entry *e, const char *s, union cfg_value *value)
{
    switch (e->kind) {
    case CFG_KIND_BOOL:
        return text_parse_bool(s, &value->b);
    case CFG_KIND_INT:
        return text_parse_int(s, e->min, e->max, &value->i);
    case CFG_KIND_BYTES:
        return parse_bytes(e, s, &value->u);
    case CFG_KIND_SECONDS:
        return parse_seconds(e, s, &value->s);
    case CFG_KIND_WORD:
        value->w = cfg_word_index(e->words, s, strlen(s));
        return value->w >= 0 ? UNO_OK : err_set(UNO_ERR_PARSE, "\"%.40s\" is not known; legal are %s", s, e->words);
    default:
        value->t = s;
        return check_string(e, s);
    }
}

uno_err cfg_parse(const struct cfg_entry *e, const char *s, union cfg_value *value)
{
    uno_err err = parse_any(e, s, value);
    return err == UNO_OK ? err : err_wrap(UNO_ERR_CONFIG, "%s", e->name);
}

void cfg_print(const struct cfg_entry *e, union cfg_value value, struct text *out)
{
    switch (e->kind) {
    case CFG_KIND_BOOL:
        text_add(out, "%s", value.b ? "yes" : "no");
        break;
    case CFG_KIND_INT:
        text_add(out, "%lld", (long long)value.i);
        break;
    case CFG_KIND_BYTES:
        text_add(out, "%llu", (unsigned long long)value.u);
        break;
    case CFG_KIND_SECONDS:
        text_add(out, "%.12g", value.s);
        break;
    case CFG_KIND_WORD: {
        const char *w = e->words;
        for (int i = 0; i < value.w; i++)
            w += strcspn(w, ",") + 1;
        text_add(out, "%.*s", (int)strcspn(w, ","), w);
        break;
    }
    default:
        text_add(out, "%s", value.t);
    }
}

static union cfg_value default_of(const struct cfg_entry *e)
{
    union cfg_value v = {0};
    switch (e->kind) {
    case CFG_KIND_BOOL:
        v.b = e->dflt;
        break;
    case CFG_KIND_INT:
        v.i = e->dflt;
        break;
    case CFG_KIND_BYTES:
        v.u = (uint64_t)e->dflt;
        break;
    case CFG_KIND_SECONDS:
        v.s = e->dflt_seconds;
        break;
    case CFG_KIND_WORD:
        v.w = cfg_word_index(e->words, e->text, strlen(e->text));
        break;
    default:
        v.t = e->text;
    }
    return v;
}

static void store(struct config *cfg, const struct cfg_entry *e, union cfg_value v)
{
    void *at = (char *)cfg + e->offset;
    switch (e->kind) {
    case CFG_KIND_BOOL:
        *(bool *)at = v.b;
        break;
    case CFG_KIND_INT:
        *(int64_t *)at = v.i;
        break;
    case CFG_KIND_BYTES:
        *(uint64_t *)at = v.u;
        break;
    case CFG_KIND_SECONDS:
        *(double *)at = v.s;
        break;
    case CFG_KIND_WORD:
        *(int *)at = v.w;
        break;
    default:
        *(const char **)at = v.t;
    }
}

static union cfg_value fetch(const struct config *cfg, const struct cfg_entry *e)
{
    union cfg_value v = {0};
    const void *at = (const char *)cfg + e->offset;
    switch (e->kind) {
    case CFG_KIND_BOOL:
        v.b = *(const bool *)at;
        break;
    case CFG_KIND_INT:
        v.i = *(const int64_t *)at;
        break;
    case CFG_KIND_BYTES:
        v.u = *(const uint64_t *)at;
        break;
    case CFG_KIND_SECONDS:
        v.s = *(const double *)at;
        break;
    case CFG_KIND_WORD:
        v.w = *(const int *)at;
        break;
    default:
        v.t = *(const char *const *)at;
    }
    return v;
}

/* ---- strings that stay ---------------------------------------------------------------------------- */

static struct kept { struct kept *next; char s[]; } *kept_list;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

const char *cfg_keep(const char *s)
{
    size_t bytes = strlen(s) + 1;
    pthread_mutex_lock(&kept_lock);
    struct kept *k = kept_list;
    while (k && strcmp(k->s, s) != 0)
        k = k->next;
    if (!k && (k = mem_zalloc(sizeof *k + bytes))) {
        memcpy(k->s, s, bytes);
        k->next = kept_list;
        kept_list = k;
    }
    pthread_mutex_unlock(&kept_lock);
    return k ? k->s : NULL;
}

/* ---- order of sources ------------------------------------------------------------------------------ */

static const char *set_value(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL; /* empty = unset, as shells clear a variable */
}

uno_err cfg_read_nccl(bool *yes)
{
    const struct cfg_entry *e = cfg_find("UNISONO_READ_NCCL");
    const char *s = set_value(e->name);
    union cfg_value v = default_of(e);
    if (s)
        TRY(cfg_parse(e, s, &v));
    *yes = v.b;
    return UNO_OK;
}

static bool from_program(const struct cfg_entry *e, const struct config_program *program, struct cfg_source *out)
{
    double v = -1;
    if (program && e->offset == offsetof(struct config, timeout))
        v = program->timeout_s;
    else if (program && e->offset == offsetof(struct config, join_timeout))
        v = program->join_timeout_s;
    if (!(v >= 0))
        return false;
    out->name = "program";
    out->value.s = MIN(MAX(v, e->min_seconds), e->max_seconds);
    return true;
}

static void first_word(char *out, size_t out_bytes, const char *s, const char *ends)
{
    size_t n = MIN(strcspn(s, ends), out_bytes - 1);
    memcpy(out, s, n);
    out[n] = 0;
}

static bool from_foreign(const struct cfg_entry *e, struct cfg_source *out)
{
    for (const char *n = e->nccl; *n; n += strcspn(n, ","), n += *n == ',') {
        char name[64];
        struct cfg_note note;
        first_word(name, sizeof name, n, ",");
        const char *s = set_value(name);
        if (s && cfg_foreign(e, name, s, &out->value, &note)) {
            out->name = cfg_keep(name);
            return out->name != NULL;
        }
    }
    return false;
}

uno_err cfg_resolve(const struct cfg_entry *e, const struct config_program *program, bool read_nccl, struct cfg_source *out)
{
    const char *s = set_value(e->name);
    out->name = e->name;
    if (s)
        return cfg_parse(e, s, &out->value);
    if (from_program(e, program, out) || (read_nccl && from_foreign(e, out)))
        return UNO_OK;
    out->name = "default";
    out->value = default_of(e);
    return UNO_OK;
}

/* UNISONO_FAULT is armed by the first load only, so that one run has one fault. */
static void arm_fault_once(const char *s)
{
    static atomic_flag armed = ATOMIC_FLAG_INIT; /* partner: itself, among threads that load at once */
    if (!*s || atomic_flag_test_and_set(&armed))
        return;
    char name[32];
    first_word(name, sizeof name, s, ":");
    fault_arm(name, atol(strchr(s, ':') + 1));
}

uno_err config_load(struct config *cfg, const struct config_program *program)
{
    bool read_nccl;
    TRY(cfg_read_nccl(&read_nccl));
    memset(cfg, 0, sizeof *cfg);
    for (size_t i = 0; i < cfg_count; i++) {
        const struct cfg_entry *e = &cfg_table[i];
        struct cfg_source from;
        TRY(cfg_resolve(e, program, read_nccl, &from));
        if (e->kind == CFG_KIND_STRING && !(from.value.t = cfg_keep(from.value.t)))
            return UNO_ERR_MEMORY;
        store(cfg, e, from.value);
    }
    arm_fault_once(cfg->fault);
    return UNO_OK;
}

/* ---- seen from outside ------------------------------------------------------------------------------ */

static const char *const kind_names[] = {"bool", "int", "bytes", "seconds", "word", "string"};

static void legal_text(const struct cfg_entry *e, struct text *t)
{
    char lo[32], hi[32];
    switch (e->kind) {
    case CFG_KIND_BOOL:
        text_add(t, "1 0 true false yes no on off");
        break;
    case CFG_KIND_INT:
        text_add(t, "%lld to %lld", (long long)e->min, (long long)e->max);
        break;
    case CFG_KIND_BYTES:
        text_add(t, "%s to %s, with K M G T", text_bytes(lo, sizeof lo, (uint64_t)e->min),
                 text_bytes(hi, sizeof hi, (uint64_t)e->max));
        break;
    case CFG_KIND_SECONDS:
        text_add(t, "%g to %g seconds, or with ms s m h", e->min_seconds, e->max_seconds);
        break;
    case CFG_KIND_WORD:
        text_add(t, "%s", e->words);
        break;
    default:
        text_add(t, "%s", e->offset == offsetof(struct config, algo) ? "[^]list of " CFG_ALGOS "; func:list"
                          : e->offset == offsetof(struct config, debug_subsys) ? "[^]list of " CFG_TOPICS ",all" : "any text");
    }
}

static struct config_row shown_rows[ARRAY_LEN(cfg_table)];
static size_t shown_count;

static void fill_rows(void)
{
    for (size_t i = 0; i < cfg_count; i++) {
        const struct cfg_entry *e = &cfg_table[i];
        struct text dflt = {0}, legal = {0};
        cfg_print(e, default_of(e), &dflt);
        legal_text(e, &legal);
        const char *d = dflt.s ? cfg_keep(dflt.s) : "", *l = legal.s ? cfg_keep(legal.s) : "";
        shown_rows[i] = (struct config_row){e->name, kind_names[e->kind], d ? d : "", l ? l : "", e->nccl, e->help, e->compare};
        text_free(&dflt);
        text_free(&legal);
    }
    shown_count = cfg_count;
}

size_t config_rows(const struct config_row **rows)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_rows);
    *rows = shown_rows;
    return shown_count;
}

uno_err config_show(size_t row, struct text *value, const char **source)
{
    if (row >= cfg_count)
        return err_set(UNO_ERR_ARG, "there is no setting number %zu", row);
    bool read_nccl;
    struct cfg_source from;
    TRY(cfg_read_nccl(&read_nccl));
    TRY(cfg_resolve(&cfg_table[row], NULL, read_nccl, &from));
    cfg_print(&cfg_table[row], from.value, value);
    *source = from.name;
    return value->failed ? UNO_ERR_MEMORY : UNO_OK;
}

uno_err config_fingerprint(const struct config *cfg, struct text *out)
{
    for (size_t i = 0; i < cfg_count; i++)
        if (cfg_table[i].compare) {
            text_add(out, "%s=", cfg_table[i].name);
            cfg_print(&cfg_table[i], fetch(cfg, &cfg_table[i]), out);
            text_add(out, "\n");
        }
    return out->failed ? UNO_ERR_MEMORY : UNO_OK;
}
