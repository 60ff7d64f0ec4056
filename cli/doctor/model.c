/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - the store of facts: an arena, interned strings, and a hash so that a fact is kept once. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t used, bytes;
    char data[];
};

struct string {
    struct string *next;
    uint64_t hash;
    size_t bytes;
    char text[];
};

enum {
    BLOCK_BYTES = 256 << 10,
    STRING_SLOTS = 1 << 16,
    FACT_SLOTS = 1 << 18,
    FACTS_A_KIND = 60000,      /* ranks x groups x what is said of each, for the largest jobs; the rest is counted */
    OWN_TEXT = 240,
    ARENA_LIMIT = 96 << 20,    /* with the reader's buffers far below the 200 MB that are promised */
};

static void no_memory(void)
{
    fputs("unisono doctor: there is no memory left\n", stderr);
    exit(2);
}

static void *must(void *p)
{
    if (!p)
        no_memory();
    return p;
}

struct model *model_new(void)
{
    struct model *m = must(calloc(1, sizeof *m));
    m->string_slots = STRING_SLOTS;
    m->strings = must(calloc(m->string_slots, sizeof *m->strings));
    m->fact_slots = FACT_SLOTS;
    m->facts = must(calloc(m->fact_slots, sizeof *m->facts));
    return m;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (struct arena_block *b = m->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(m->strings);
    free(m->facts);
    free(m);
}

void *model_alloc(struct model *m, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    struct arena_block *b = m->blocks;
    if (!b || b->bytes - b->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = must(calloc(1, sizeof *b + size));
        b->bytes = size;
        b->next = m->blocks;
        m->blocks = b;
        m->arena_bytes += size;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return p;
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* Twice the slots, so that chains stay short. Without memory they only grow longer. */
static void more_string_slots(struct model *m)
{
    size_t slots = 2 * m->string_slots;
    struct string **v = calloc(slots, sizeof *v);
    if (!v)
        return;
    for (size_t i = 0; i < m->string_slots; i++)
        for (struct string *k = m->strings[i], *next; k; k = next) {
            next = k->next;
            k->next = v[k->hash & (slots - 1)];
            v[k->hash & (slots - 1)] = k;
        }
    free(m->strings);
    m->strings = v;
    m->string_slots = slots;
}

const char *model_string(struct model *m, const char *s, size_t bytes)
{
    if (bytes == 0)
        return "";
    uint64_t hash = hash_bytes(0xcbf29ce484222325u, s, bytes);
    struct string **slot = &m->strings[hash & (m->string_slots - 1)];
    for (struct string *k = *slot; k; k = k->next)
        if (k->hash == hash && k->bytes == bytes && memcmp(k->text, s, bytes) == 0)
            return k->text;
    if (m->arena_bytes > ARENA_LIMIT && !m->reading_done) /* what comes now is counted, and no more kept */
        return "";
    struct string *k = model_alloc(m, sizeof *k + bytes + 1);
    k->hash = hash;
    k->bytes = bytes;
    memcpy(k->text, s, bytes);
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)k->text[i] < 0x20 && k->text[i] != '\t')
            k->text[i] = '?';
    k->next = *slot;
    *slot = k;
    if (++m->string_count > m->string_slots)
        more_string_slots(m);
    return k->text;
}

const char *model_words(struct model *m, const char *s)
{
    return model_string(m, s, strlen(s));
}

const char *model_say(struct model *m, const char *fmt, ...)
{
    char buf[2048], *text = buf;
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof buf) {
        text = must(malloc((size_t)n + 1));
        vsnprintf(text, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    const char *kept = n < 0 ? "" : model_string(m, text, (size_t)n);
    if (text != buf)
        free(text);
    return kept;
}

struct fact fact_of(enum fact_kind kind)
{
    return (struct fact){.kind = kind, .rank = NOBODY, .peer = NOBODY, .dev = NOBODY, .pid = NOBODY, .host = "", .name = "",
                         .value = "", .extra = "", .more = "", .file = "", .text = "", .last_word = ""};
}

static uint64_t fact_hash(const struct fact *f)
{
    const uint64_t words[] = {(uintptr_t)f->host, (uintptr_t)f->name, (uintptr_t)f->value, (uintptr_t)f->extra, (uintptr_t)f->more, (uint64_t)f->kind, (uint64_t)f->rank,
                              (uint64_t)f->peer, (uint64_t)f->dev, (uint64_t)f->pid, (uint64_t)f->a, (uint64_t)f->b, (uint64_t)f->c, (uint64_t)f->d};
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

/* Strings are interned, "" aside, which any literal may be. */
static bool same_string(const char *a, const char *b)
{
    return a == b || (!*a && !*b);
}

static bool same_fact(const struct fact *f, const struct fact *g)
{
    return f->kind == g->kind && f->rank == g->rank && f->peer == g->peer && f->dev == g->dev && f->pid == g->pid && f->a == g->a &&
           f->b == g->b && f->c == g->c && f->d == g->d && same_string(f->host, g->host) && same_string(f->name, g->name) &&
           same_string(f->value, g->value) && same_string(f->extra, g->extra) && same_string(f->more, g->more);
}

static void copy_text(char *to, const char *text)
{
    size_t n = strnlen(text, OWN_TEXT - 1);
    memcpy(to, text, n);
    to[n] = 0;
}

static void renew(struct model *m, struct fact *kept, const struct fact *f)
{
    kept->x = f->x;
    kept->last_number = f->last_number;
    kept->last_count = f->last_count;
    kept->last_word = model_words(m, f->last_word);
    kept->file = f->file;
    kept->line = f->line;
    copy_text((char *)kept->text, f->text); /* its own copy, see own_text */
}

/* A text that lines alike will be written over, so it is nobody else's. */
static const char *own_text(struct model *m, const char *text)
{
    char *own = model_alloc(m, OWN_TEXT);
    copy_text(own, text);
    return own;
}

struct fact *model_add(struct model *m, const struct fact *given)
{
    struct fact f = *given;
    f.rank = f.rank < 0 ? NOBODY : f.rank; /* a torn line may say anything */
    f.peer = f.peer < 0 ? NOBODY : f.peer;
    f.host = model_words(m, f.host);
    f.name = model_words(m, f.name);
    f.value = model_words(m, f.value);
    f.extra = model_words(m, f.extra);
    f.more = model_words(m, f.more);
    struct fact **slot = &m->facts[fact_hash(&f) & (m->fact_slots - 1)];
    for (struct fact *g = *slot; g; g = g->same_hash)
        if (same_fact(&f, g)) {
            g->count++;
            if (f.newest)
                renew(m, g, &f);
            return g;
        }
    if (m->counted[f.kind] >= FACTS_A_KIND || m->arena_bytes > ARENA_LIMIT) {
        m->dropped++;
        return NULL;
    }
    struct fact *g = model_alloc(m, sizeof *g);
    *g = f;
    g->text = f.newest ? own_text(m, f.text) : model_string(m, f.text, strnlen(f.text, 500));
    g->last_word = model_words(m, f.last_word);
    g->count = 1;
    g->order = m->kept++;
    g->same_hash = *slot;
    *slot = g;
    g->next = NULL;
    if (m->last[f.kind])
        m->last[f.kind]->next = g;
    else
        m->first[f.kind] = g;
    m->last[f.kind] = g;
    m->counted[f.kind]++;
    return g;
}

void model_note(struct model *m, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct note *n = model_alloc(m, sizeof *n);
    n->text = model_words(m, text);
    if (m->last_note)
        m->last_note->next = n;
    else
        m->notes = n;
    m->last_note = n;
}
