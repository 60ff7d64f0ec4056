/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_nccl.c - NCCL_ and RCCL_ values in the grammar of those libraries: integers end where strtoll stops ("4M" is 4, "true" is
 * 0), only the literal 1 disables, unknown words are ignored as they ignore them. Nothing here can fail a job; what deserves a
 * word is left in a note for the audit.
 */
#include "config_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NOTE(n, ...) snprintf((n)->s, sizeof (n)->s, __VA_ARGS__)
#define SMALLEST_BUFFER 4096

/* NCCL_PARAM: strtoll with base 0, the end is not looked at; only an overflow counts as unset. */
static bool nccl_int(const char *s, int64_t *v, struct cfg_note *note)
{
    char *end;
    errno = 0;
    long long n = strtoll(s, &end, 0);
    if (errno == ERANGE) {
        NOTE(note, "it does not fit 64 bits and is ignored");
        return false;
    }
    if (*end || end == s)
        NOTE(note, "NCCL reads integers up to the first other character, so this is %lld", n);
    *v = n;
    return true;
}

/* Add to a note that may say something already. */
static void note_more(struct cfg_note *note, const char *more)
{
    size_t len = strlen(note->s);
    snprintf(note->s + len, sizeof note->s - len, "%s%s", len ? "; " : "", more);
}

static bool read_buffsize(const struct cfg_entry *e, const char *s, union cfg_value *v, struct cfg_note *note)
{
    int64_t n;
    if (!nccl_int(s, &n, note) || n == -2)
        return false;
    if (n < SMALLEST_BUFFER) {
        note_more(note, "it is raised to 4096 bytes, the smallest budget here");
        n = SMALLEST_BUFFER;
    } else if (n > e->max) {
        note_more(note, "it is capped at 256 MB");
        n = e->max;
    }
    v->u = (uint64_t)n;
    return true;
}

/* Channels and sockets: values below 1 mean "unset" for some names and 1 for NCCL_MAX_N*; above the limit here = the limit. */
static bool read_count(const struct cfg_entry *e, const char *name, const char *s, union cfg_value *v, struct cfg_note *note)
{
    int64_t n;
    if (!nccl_int(s, &n, note) || n == -2)
        return false;
    if (n < 1 && strncmp(name, "NCCL_MAX_N", 10) != 0 && strcmp(name, "NCCL_MAX_RINGS") != 0) {
        note_more(note, "values below 1 are ignored");
        return false;
    }
    if (n > e->max) {
        char more[64];
        snprintf(more, sizeof more, "it is capped at %lld here", (long long)e->max);
        note_more(note, more);
    }
    v->i = MIN(MAX(n, 1), e->max);
    return true;
}

static bool read_timeout(const struct cfg_entry *e, const char *s, union cfg_value *v, struct cfg_note *note)
{
    double seconds;
    if (text_parse_seconds(s, &seconds) != UNO_OK || seconds <= 0) {
        NOTE(note, "\"%.40s\" is not a time in seconds and is ignored", s);
        return false;
    }
    if (seconds > 86400)
        NOTE(note, "the unit is seconds, so this is %.1f days; milliseconds are written 1800000ms", seconds / 86400);
    v->s = MIN(MAX(seconds, e->min_seconds), e->max_seconds);
    return true;
}

static bool read_debug(const struct cfg_entry *e, const char *s, union cfg_value *v, struct cfg_note *note)
{
    static const char legal[] = "VERSION,WARN,INFO,ABORT,TRACE";
    int word = cfg_word_index(legal, s, strlen(s)) >= 0 ? cfg_word_index(e->words, s, strlen(s)) : -1;
    if (word < 0) {
        NOTE(note, "\"%.40s\" is not one of %s, so NCCL would say nothing, and so does unisono", s, legal);
        word = cfg_word_index(e->words, "none", 4);
    }
    v->w = word;
    return true;
}

/* NCCL's subsystem -> topics here. NULL = nothing here corresponds. */
static const struct { const char *nccl, *ours; } subsystems[] = {
    {"INIT", "init"}, {"COLL", "coll"}, {"P2P", "p2p"}, {"SHM", "net"}, {"NET", "net"}, {"GRAPH", "topo"}, {"TUNING", "plan"},
    {"ENV", "env"}, {"ALLOC", "mem"}, {"ALLOC_HOST", "mem"}, {"CALL", "coll"}, {"PROXY", "net"}, {"NVLS", NULL},
    {"BOOTSTRAP", "boot"}, {"REG", "mem"}, {"PROFILE", NULL}, {"RAS", "watch"}, {"DESTROY", "init"}, {"ALL", "all"}};

static bool read_subsys(const char *s, union cfg_value *v, struct cfg_note *note)
{
    struct text out = {0};
    bool invert = s[0] == '^';
    text_add(&out, "%s", invert ? "^" : "");
    for (const char *at = s + invert; *at;) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < ARRAY_LEN(subsystems) && !(strlen(subsystems[i].nccl) == n && strncasecmp(subsystems[i].nccl, at, n) == 0))
            i++;
        if (i == ARRAY_LEN(subsystems)) {
            NOTE(note, "\"%.*s\" is not a subsystem of NCCL, which then ignores the whole list", (int)MIN(n, 40), at);
            text_free(&out);
            return false;
        }
        if (subsystems[i].ours)
            text_add(&out, "%s%s", out.len > invert ? "," : "", subsystems[i].ours);
        at += n + (at[n] == ',');
    }
    v->t = out.len > invert && out.s ? cfg_keep(out.s) : NULL;
    if (!v->t)
        NOTE(note, "none of these subsystems exists here");
    text_free(&out);
    return v->t != NULL;
}

/* ---- NCCL_ALGO -------------------------------------------------------------------------------------------- */

static const struct { const char *word; enum { ALGO_RING = 1, ALGO_TREE = 2, ALGO_OTHER = 4 } bit; } algos[] = {
    {"Tree", ALGO_TREE}, {"Ring", ALGO_RING}, {"CollNetDirect", ALGO_OTHER}, {"CollNetChain", ALGO_OTHER},
    {"CollNet", ALGO_OTHER}, {"NVLS", ALGO_OTHER}, {"NVLSTree", ALGO_OTHER}, {"PAT", ALGO_OTHER}};
#define ALL_ALGOS (ALGO_RING | ALGO_TREE | ALGO_OTHER)
/* NCCL's functions; only all-reduce has a tree there, so Tree says nothing about the others. */
static const struct { const char *nccl, *ours; unsigned has; } functions[] = {
    {"Broadcast", "broadcast", ALGO_RING}, {"Reduce", "reduce", ALGO_RING}, {"AllGather", "all_gather", ALGO_RING},
    {"ReduceScatter", "reduce_scatter", ALGO_RING}, {"AllReduce", "all_reduce", ALGO_RING | ALGO_TREE}};

/* The algorithms a list allows. */
static unsigned algo_list(const char *s, size_t len, struct cfg_note *note)
{
    bool invert = len && s[0] == '^';
    unsigned named = 0;
    for (size_t at = invert; at < len;) {
        size_t n = strcspn(s + at, ",;"), i = 0;
        n = MIN(n, len - at);
        while (i < ARRAY_LEN(algos) && !(strlen(algos[i].word) == n && strncasecmp(algos[i].word, s + at, n) == 0))
            i++;
        if (i == ARRAY_LEN(algos))
            NOTE(note, "\"%.*s\" is not an algorithm of NCCL and is ignored", (int)MIN(n, 40), s + at);
        else if (algos[i].bit == ALGO_OTHER)
            NOTE(note, "%s exists only on GPUs and switches and is ignored", algos[i].word);
        if (i < ARRAY_LEN(algos))
            named |= algos[i].bit;
        at += n + 1;
    }
    named &= ALGO_RING | ALGO_TREE;
    return invert ? ALL_ALGOS & ~named : named ? named : ALL_ALGOS;
}

static bool read_algo(const char *s, union cfg_value *v, struct cfg_note *note)
{
    unsigned allowed[ARRAY_LEN(functions)];
    for (size_t f = 0; f < ARRAY_LEN(functions); f++)
        allowed[f] = ALL_ALGOS;
    for (const char *part = s; *part;) {
        size_t len = strcspn(part, ";"), head = strcspn(part, ":;"), f = 0, skip = part[head] == ':' ? head + 1 : 0;
        unsigned list = algo_list(part + skip, len - skip, note);
        while (skip && f < ARRAY_LEN(functions) &&
               !(strlen(functions[f].nccl) == head && strncasecmp(functions[f].nccl, part, head) == 0))
            f++;
        if (skip && f == ARRAY_LEN(functions))
            NOTE(note, "\"%.*s\" is not a function of NCCL and is ignored", (int)MIN(head, 40), part);
        else if (skip)
            allowed[f] = list;
        else
            for (f = 0; f < ARRAY_LEN(functions); f++)
                allowed[f] = list;
        part += len + (part[len] == ';');
    }
    struct text out = {0};
    for (size_t f = 0; f < ARRAY_LEN(functions); f++) {
        unsigned want = allowed[f] & functions[f].has, no = functions[f].has & ~allowed[f];
        const char *sep = out.len ? ";" : "", *func = functions[f].ours;
        if (allowed[f] & ALGO_OTHER && no) /* an inverted list: everything but these */
            text_add(&out, "%s%s:^%s%s%s", sep, func, no & ALGO_RING ? "ring" : "", no == 3 ? "," : "", no & ALGO_TREE ? "tree" : "");
        else if (!(allowed[f] & ALGO_OTHER) && want)
            text_add(&out, "%s%s:%s%s%s", sep, func, want & ALGO_RING ? "ring" : "", want == 3 ? "," : "",
                     want & ALGO_TREE ? "tree" : "");
    }
    v->t = out.len ? cfg_keep(out.s) : NULL;
    text_free(&out);
    if (!v->t && !*note->s)
        NOTE(note, "it excludes nothing that exists here");
    return v->t != NULL;
}

/* ---- which grammar belongs to which row ------------------------------------------------------------------------ */

static bool read_one(const struct cfg_entry *e, const char *name, const char *s, union cfg_value *v, struct cfg_note *note)
{
    int64_t n = 0;
    switch (e->offset) {
    case offsetof(struct config, timeout):
        return read_timeout(e, s, v, note);
    case offsetof(struct config, debug):
        return read_debug(e, s, v, note);
    case offsetof(struct config, debug_subsys):
        return read_subsys(s, v, note);
    case offsetof(struct config, algo):
        return read_algo(s, v, note);
    case offsetof(struct config, buffsize):
        return read_buffsize(e, s, v, note);
    case offsetof(struct config, channels):
    case offsetof(struct config, socket_count):
        return read_count(e, name, s, v, note);
    case offsetof(struct config, shm_disable):
        v->b = nccl_int(s, &n, note) && n == 1;
        if (n != 1 && strcmp(s, "0") != 0)
            note_more(note, "only the number 1 disables, in NCCL and here");
        return true;
    case offsetof(struct config, socket_family):
        v->w = strcmp(s, "AF_INET") == 0 ? 1 : strcmp(s, "AF_INET6") == 0 ? 2 : 0;
        if (v->w == 0)
            NOTE(note, "\"%.40s\" is neither AF_INET nor AF_INET6 and is ignored", s);
        return v->w != 0;
    case offsetof(struct config, socket_ifname):
        v->t = s;
        if (s[1] == 0)
            NOTE(note, "NCCL ignores a value of one character");
        return s[1] != 0;
    default:
        v->t = s;
        return e->kind == CFG_KIND_STRING;
    }
}

bool cfg_foreign(const struct cfg_entry *e, const char *name, const char *s, union cfg_value *value, struct cfg_note *note)
{
    note->s[0] = 0;
    return read_one(e, name, s, value, note);
}
