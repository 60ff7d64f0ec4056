/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_cfi.c - reading .eh_frame_hdr and .eh_frame (watch_cfi.h). The file may hold anything: every entry is of bounded length and read
 * within it, and what makes no sense ends it.
 */
#include "watch/watch_cfi.h"

#include <string.h>

#define MOST_ENTRY_BYTES 4096u /* of one function's table; a longer one is not read */
#define MOST_REMEMBERED 8

struct cursor {           /* over bytes that stand at `address` in the file */
    const uint8_t *p, *end;
    uint64_t address;     /* of p */
    bool bad;             /* something was not there, or is of a kind that is not known */
};

static uint64_t get(struct cursor *c, size_t bytes)
{
    uint64_t v = 0;
    if ((size_t)(c->end - c->p) < bytes) {
        c->bad = true;
        c->p = c->end;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) /* as little-endian processors write it; others are not unwound */
        v |= (uint64_t)c->p[i] << (8 * i);
    c->p += bytes;
    c->address += bytes;
    return v;
}

static int64_t get_signed(struct cursor *c, size_t bytes)
{
    unsigned shift = 64 - 8 * (unsigned)bytes;
    return (int64_t)(get(c, bytes) << shift) >> shift;
}

static uint64_t get_leb(struct cursor *c, bool is_signed)
{
    uint64_t v = 0, byte;
    unsigned shift = 0;
    do {
        byte = get(c, 1);
        if (shift < 64)
            v |= (byte & 0x7f) << shift;
        shift += 7;
    } while ((byte & 0x80) && !c->bad);
    if (is_signed && (byte & 0x40) && shift < 64)
        v |= UINT64_MAX << shift;
    return v;
}

static void skip(struct cursor *c, uint64_t bytes)
{
    if (bytes > (uint64_t)(c->end - c->p)) {
        c->bad = true;
        bytes = (uint64_t)(c->end - c->p);
    }
    c->p += bytes;
    c->address += bytes;
}

/* A pointer in one of the encodings of .eh_frame; table: what some of them count from. */
static uint64_t get_pointer(struct cursor *c, unsigned encoding, uint64_t table)
{
    uint64_t from = c->address, v = 0;
    switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c: v = get(c, 8); break;
    case 0x01: v = get_leb(c, false); break;
    case 0x02: v = get(c, 2); break;
    case 0x03: v = get(c, 4); break;
    case 0x09: v = get_leb(c, true); break;
    case 0x0a: v = (uint64_t)get_signed(c, 2); break;
    case 0x0b: v = (uint64_t)get_signed(c, 4); break;
    default: c->bad = true;
    }
    switch (encoding & 0xf0) {
    case 0x00: return v;
    case 0x10: return v + from;
    case 0x30: return v + table;
    default: c->bad = true; return 0;
    }
}

/* ---- the entry of a function -------------------------------------------------------------------------------------------- */

struct entry {                 /* what the tables say of one function */
    uint8_t common_bytes[MOST_ENTRY_BYTES], own_bytes[MOST_ENTRY_BYTES];
    struct cursor common, own; /* their instructions */
    uint64_t begin, end;       /* of the function */
    uint64_t table;            /* .eh_frame_hdr */
    uint64_t code_unit;
    int64_t data_unit;
    unsigned pointers;         /* their encoding */
    bool augmented;
    uint64_t return_register;
};

static bool read_entry(const struct symbol_file *f, uint64_t address, uint8_t *buf, struct cursor *c)
{
    uint8_t length[4];
    if (!symbol_file_read(f, address, length, sizeof length))
        return false;
    struct cursor l = {.p = length, .end = length + sizeof length};
    uint64_t bytes = get(&l, 4);
    if (bytes < 4 || bytes > MOST_ENTRY_BYTES || !symbol_file_read(f, address + 4, buf, bytes))
        return false;
    *c = (struct cursor){.p = buf, .end = buf + bytes, .address = address + 4};
    return true;
}

/* What many functions have in common. */
static bool read_common(const struct symbol_file *f, uint64_t address, struct entry *e)
{
    struct cursor *c = &e->common;
    if (!read_entry(f, address, e->common_bytes, c) || get(c, 4) != 0)
        return false;
    uint64_t version = get(c, 1);
    const uint8_t *letters = c->p, *zero = memchr(c->p, 0, (size_t)(c->end - c->p));
    if ((version != 1 && version != 3) || !zero)
        return false;
    skip(c, (uint64_t)(zero + 1 - c->p));
    e->code_unit = get_leb(c, false);
    e->data_unit = (int64_t)get_leb(c, true);
    e->return_register = version == 1 ? get(c, 1) : get_leb(c, false);
    e->augmented = *letters == 'z';
    e->pointers = 0;
    if (!e->augmented)
        return !c->bad && !*letters;
    uint64_t bytes = get_leb(c, false);
    struct cursor a = *c;
    skip(c, bytes);
    for (letters++; *letters && !a.bad; letters++)
        if (*letters == 'R')
            e->pointers = (unsigned)get(&a, 1);
        else if (*letters == 'L')
            (void)get(&a, 1);
        else if (*letters == 'P') {
            unsigned encoding = (unsigned)get(&a, 1);
            (void)get_pointer(&a, encoding & 0x7f, 0); /* 0x80: where it points is meant; aligned ones are refused */
        } /* the others have no data */
    return !c->bad && !a.bad && c->p >= a.p;
}

/* Where the entry for `at` lies, by the sorted table of the file; 0 = there is none. */
static uint64_t search_table(const struct symbol_file *f, uint64_t table, uint64_t table_bytes, uint64_t at)
{
    enum { ROW_BYTES = 8 };
    uint8_t head[32], bytes[ROW_BYTES];
    if (table_bytes < sizeof head || !symbol_file_read(f, table, head, sizeof head) || head[0] != 1 || head[3] != 0x3b)
        return 0; /* every linker sorts it, as pairs of 32 bits */
    struct cursor c = {.p = head + 4, .end = head + sizeof head, .address = table + 4};
    (void)get_pointer(&c, head[1], table);
    uint64_t n = get_pointer(&c, head[2], table), from = c.address, low = 0, entry = 0;
    if (c.bad || n == 0 || n > (table_bytes - (from - table)) / ROW_BYTES)
        return 0;
    for (uint64_t high = n; low < high;) { /* the last row that begins at or before it */
        uint64_t middle = low + (high - low) / 2;
        if (!symbol_file_read(f, from + middle * ROW_BYTES, bytes, sizeof bytes))
            return 0;
        struct cursor row = {.p = bytes, .end = bytes + sizeof bytes};
        if (table + (uint64_t)get_signed(&row, 4) > at) {
            high = middle;
        } else {
            entry = table + (uint64_t)get_signed(&row, 4);
            low = middle + 1;
        }
    }
    return entry;
}

static bool find_entry(const struct symbol_file *f, uint64_t at, struct entry *e)
{
    uint64_t bytes, address;
    if (!symbol_file_unwind_table(f, &e->table, &bytes) || (address = search_table(f, e->table, bytes, at)) == 0)
        return false;
    struct cursor *c = &e->own;
    if (!read_entry(f, address, e->own_bytes, c))
        return false;
    uint64_t here = c->address, back = get(c, 4);
    if (back == 0 || !read_common(f, here - back, e))
        return false;
    e->begin = get_pointer(c, e->pointers, e->table);
    e->end = e->begin + get_pointer(c, e->pointers & 0x0f, 0);
    if (e->augmented)
        skip(c, get_leb(c, false));
    return !c->bad && at >= e->begin && at < e->end;
}

/* ---- its instructions --------------------------------------------------------------------------------------------------- */

static void set_rule(struct cfi_row *r, uint64_t reg, enum cfi_kind kind, int64_t value)
{
    if (reg < CFI_REGISTERS) { /* of the vector registers nothing is wanted */
        r->rule[reg].kind = (uint8_t)kind;
        r->rule[reg].value = value;
    }
}

static void restore_rule(struct cfi_row *r, const struct cfi_row *first, uint64_t reg)
{
    if (reg < CFI_REGISTERS)
        r->rule[reg] = first->rule[reg];
}

struct walk {                  /* through instructions */
    const struct entry *e;
    struct cursor *c;
    struct cfi_row *now;
    const struct cfi_row *first; /* as the common ones left it */
    uint64_t location, at;
};

static int64_t scaled(const struct walk *w, bool is_signed)
{
    return (int64_t)(get_leb(w->c, is_signed) * (uint64_t)w->e->data_unit);
}

/* The frame's base. False: another instruction. */
static bool change_base(const struct walk *w, unsigned op)
{
    struct cfi_row *now = w->now;
    switch (op) {
    case 0x0c: /* def_cfa */
    case 0x12: /* def_cfa_sf */
        now->base_register = get_leb(w->c, false);
        now->base_offset = op == 0x12 ? scaled(w, true) : (int64_t)get_leb(w->c, false);
        now->base_known = true;
        return true;
    case 0x0d: now->base_register = get_leb(w->c, false); return true;  /* def_cfa_register */
    case 0x0e: now->base_offset = (int64_t)get_leb(w->c, false); return true; /* def_cfa_offset */
    case 0x13: now->base_offset = scaled(w, true); return true; /* def_cfa_offset_sf */
    case 0x0f: /* def_cfa_expression */
        skip(w->c, get_leb(w->c, false));
        now->base_known = false;
        return true;
    default: return false;
    }
}

/* One register. False: another instruction. */
static bool change_register(const struct walk *w, unsigned op)
{
    uint64_t reg;
    if (op < 0x05 || op > 0x16 || op == 0x0a || op == 0x0b)
        return false;
    reg = get_leb(w->c, false);
    switch (op) {
    case 0x05: set_rule(w->now, reg, CFI_AT, scaled(w, false)); return true; /* offset_extended */
    case 0x11: set_rule(w->now, reg, CFI_AT, scaled(w, true)); return true;  /* offset_extended_sf */
    case 0x06: restore_rule(w->now, w->first, reg); return true;                     /* restore_extended */
    case 0x07: set_rule(w->now, reg, CFI_LOST, 0); return true;
    case 0x08: set_rule(w->now, reg, CFI_SAME, 0); return true;
    case 0x09: set_rule(w->now, reg, CFI_REGISTER, (int64_t)get_leb(w->c, false)); return true;
    case 0x14: set_rule(w->now, reg, CFI_BASE, scaled(w, false)); return true;    /* val_offset */
    case 0x15: set_rule(w->now, reg, CFI_BASE, scaled(w, true)); return true;
    case 0x10: /* expression */
    case 0x16: /* val_expression */
        skip(w->c, get_leb(w->c, false));
        set_rule(w->now, reg, CFI_LOST, 0);
        return true;
    default: return false;
    }
}

/* Until the place that is wanted, or the end. */
static bool walk(struct walk w)
{
    struct cfi_row remembered[MOST_REMEMBERED];
    unsigned depth = 0;
    while (w.c->p < w.c->end && !w.c->bad && w.location <= w.at) {
        unsigned op = (unsigned)get(w.c, 1), low = op & 0x3f;
        if (op >> 6 == 1)
            w.location += low * w.e->code_unit;
        else if (op >> 6 == 2)
            set_rule(w.now, low, CFI_AT, scaled(&w, false));
        else if (op >> 6 == 3)
            restore_rule(w.now, w.first, low);
        else if (op == 0x02 || op == 0x03 || op == 0x04)
            w.location += get(w.c, (size_t)1 << (op - 2)) * w.e->code_unit;
        else if (op == 0x01)
            w.location = get_pointer(w.c, w.e->pointers, 0);
        else if (op == 0x0a && depth < MOST_REMEMBERED)
            remembered[depth++] = *w.now;
        else if (op == 0x0b && depth > 0)
            *w.now = remembered[--depth];
        else if (op == 0x2e) /* GNU_args_size */
            (void)get_leb(w.c, false);
        else if (op != 0x00 && op != 0x2d && op != 0x2c /* signed return addresses */ && !change_base(&w, op) && !change_register(&w, op))
            return false;
    }
    return !w.c->bad;
}

bool cfi_row_at(const struct symbol_file *f, uint64_t at, struct cfi_row *row)
{
    struct entry e;
    memset(row, 0, sizeof *row);
    struct cfi_row first = *row;
    if (!find_entry(f, at, &e) || !walk((struct walk){.e = &e, .c = &e.common, .now = row, .first = &first, .at = UINT64_MAX}))
        return false;
    first = *row;
    row->return_register = e.return_register;
    row->begin = e.begin;
    return walk((struct walk){.e = &e, .c = &e.own, .now = row, .first = &first, .location = e.begin, .at = at});
}
