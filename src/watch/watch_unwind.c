/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_unwind.c - stacks of waiting threads from outside (watch_unwind.h). The kernel tells where such a thread waits and where its
 * stack ends; the rest follows from the tables by which exceptions find their handlers, read from the process's memory. That memory
 * may hold anything: every step is bounded, and what makes no sense ends the stack.
 */
#include "watch/watch_unwind.h"

#include <string.h>
#include <sys/uio.h>

#include "watch/watch_proc.h"

#if defined(__x86_64__)
enum { REGISTERS = 17, FRAME_REGISTER = 6, STACK_REGISTER = 7, RETURN_REGISTER = 16 };
#define ADDRESS_BITS UINT64_MAX
#elif defined(__aarch64__)
enum { REGISTERS = 32, FRAME_REGISTER = 29, STACK_REGISTER = 31, RETURN_REGISTER = 30 };
#define ADDRESS_BITS ((1ull << 48) - 1) /* a return address may be signed in the bits above */
#endif

#define MOST_ENTRY_BYTES 4096u /* of one function's table; a longer one is not read */
#define MOST_REMEMBERED 8
#define SEARCH_BYTES 65536u    /* of the stack, for a frame whose register is not known */
#define MOST_FRAME_BYTES (8u << 20)
#define PAGE_BYTES 4096u

#if defined(__x86_64__) || defined(__aarch64__)

/* ---- memory of the process ---------------------------------------------------------------------------------------------- */

static bool read_memory(int32_t pid, uint64_t address, void *buf, size_t bytes)
{
    struct iovec here = {buf, bytes}, there = {(void *)(uintptr_t)address, bytes};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

struct cursor {           /* over bytes that were read from `address` on */
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
    memcpy(&v, c->p, bytes); /* both processors are little-endian */
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

struct entry {                /* what the tables say of one function */
    uint8_t common_bytes[MOST_ENTRY_BYTES], own_bytes[MOST_ENTRY_BYTES];
    struct cursor common, own; /* their instructions */
    uint64_t begin, end;      /* of the function */
    uint64_t code_unit;
    int64_t data_unit;
    unsigned pointers;        /* their encoding */
    bool augmented;
    uint64_t return_register;
};

static bool read_entry(int32_t pid, uint64_t address, uint8_t *buf, struct cursor *c)
{
    uint32_t bytes;
    if (!read_memory(pid, address, &bytes, sizeof bytes) || bytes < 4 || bytes > MOST_ENTRY_BYTES || !read_memory(pid, address + 4, buf, bytes))
        return false;
    *c = (struct cursor){.p = buf, .end = buf + bytes, .address = address + 4};
    return true;
}

static bool read_common(int32_t pid, uint64_t address, struct entry *e)
{
    struct cursor *c = &e->common;
    if (!read_entry(pid, address, e->common_bytes, c) || get(c, 4) != 0)
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
            (void)get_pointer(&a, encoding & 0x0f, 0);
        } /* the others have no data */
    return !c->bad && !a.bad && c->p >= a.p;
}

/* Where the entry for `at` lies, by the sorted table of the file; 0 = there is none. */
static uint64_t search(int32_t pid, uint64_t table, uint64_t table_bytes, uint64_t at)
{
    uint8_t head[32];
    struct { int32_t begin, entry; } row;
    if (table_bytes < sizeof head || !read_memory(pid, table, head, sizeof head) || head[0] != 1 || head[3] != 0x3b)
        return 0; /* every linker sorts it, as pairs of 32 bits */
    struct cursor c = {.p = head + 4, .end = head + sizeof head, .address = table + 4};
    (void)get_pointer(&c, head[1], table);
    uint64_t n = get_pointer(&c, head[2], table), from = c.address, low = 0;
    if (c.bad || n == 0 || n > (table_bytes - (from - table)) / sizeof row)
        return 0;
    for (uint64_t high = n; high - low > 1;) {
        uint64_t middle = low + (high - low) / 2;
        if (!read_memory(pid, from + middle * sizeof row, &row, sizeof row))
            return 0;
        if (table + (uint64_t)(int64_t)row.begin <= at)
            low = middle;
        else
            high = middle;
    }
    return read_memory(pid, from + low * sizeof row, &row, sizeof row) ? table + (uint64_t)(int64_t)row.entry : 0;
}

static bool find_entry(struct symbols *symbols, int32_t pid, uint64_t at, struct entry *e)
{
    uint64_t table, bytes, address;
    if (!symbols_unwind_table(symbols, at, &table, &bytes) || (address = search(pid, table, bytes, at)) == 0)
        return false;
    struct cursor *c = &e->own;
    if (!read_entry(pid, address, e->own_bytes, c))
        return false;
    uint64_t here = c->address, back = get(c, 4);
    if (back == 0 || !read_common(pid, here - back, e))
        return false;
    e->begin = get_pointer(c, e->pointers, 0);
    e->end = e->begin + get_pointer(c, e->pointers & 0x0f, 0);
    if (e->augmented)
        skip(c, get_leb(c, false));
    return !c->bad && at >= e->begin && at < e->end;
}

/* ---- its instructions --------------------------------------------------------------------------------------------------- */

enum rule_kind { RULE_SAME = 0, RULE_AT_OFFSET, RULE_OFFSET, RULE_REGISTER, RULE_UNDEFINED, RULE_UNKNOWN };
struct row {                  /* how the caller's registers follow from this frame's */
    struct { uint8_t kind; int64_t value; } rule[REGISTERS];
    uint64_t base_register;   /* the frame's address is this register ... */
    int64_t base_offset;      /* ... plus this */
    bool base_known;
};

static void set_rule(struct row *r, uint64_t reg, enum rule_kind kind, int64_t value)
{
    if (reg < REGISTERS) { /* of the vector registers nothing is wanted */
        r->rule[reg].kind = (uint8_t)kind;
        r->rule[reg].value = value;
    }
}

static void restore_rule(struct row *r, const struct row *first, uint64_t reg)
{
    if (reg < REGISTERS)
        r->rule[reg] = first->rule[reg];
}

struct run { const struct entry *e; struct cursor *c; struct row *now; const struct row *first; uint64_t location, at; };

static int64_t scaled(const struct run *r, bool is_signed)
{
    return (int64_t)(get_leb(r->c, is_signed) * (uint64_t)r->e->data_unit);
}

/* The frame's base. False: another instruction. */
static bool run_base(const struct run *r, unsigned op)
{
    struct row *now = r->now;
    switch (op) {
    case 0x0c: /* def_cfa */
    case 0x12: /* def_cfa_sf */
        now->base_register = get_leb(r->c, false);
        now->base_offset = op == 0x12 ? scaled(r, true) : (int64_t)get_leb(r->c, false);
        now->base_known = true;
        return true;
    case 0x0d: now->base_register = get_leb(r->c, false); return true;  /* def_cfa_register */
    case 0x0e: now->base_offset = (int64_t)get_leb(r->c, false); return true; /* def_cfa_offset */
    case 0x13: now->base_offset = scaled(r, true); return true; /* def_cfa_offset_sf */
    case 0x0f: /* def_cfa_expression */
        skip(r->c, get_leb(r->c, false));
        now->base_known = false;
        return true;
    default: return false;
    }
}

/* One register. False: another instruction. */
static bool run_register(const struct run *r, unsigned op)
{
    uint64_t reg;
    if (op < 0x05 || op > 0x16 || op == 0x0a || op == 0x0b)
        return false;
    reg = get_leb(r->c, false);
    switch (op) {
    case 0x05: set_rule(r->now, reg, RULE_AT_OFFSET, scaled(r, false)); return true; /* offset_extended */
    case 0x11: set_rule(r->now, reg, RULE_AT_OFFSET, scaled(r, true)); return true;  /* offset_extended_sf */
    case 0x06: restore_rule(r->now, r->first, reg); return true;                     /* restore_extended */
    case 0x07: set_rule(r->now, reg, RULE_UNDEFINED, 0); return true;
    case 0x08: set_rule(r->now, reg, RULE_SAME, 0); return true;
    case 0x09: set_rule(r->now, reg, RULE_REGISTER, (int64_t)get_leb(r->c, false)); return true;
    case 0x14: set_rule(r->now, reg, RULE_OFFSET, scaled(r, false)); return true;    /* val_offset */
    case 0x15: set_rule(r->now, reg, RULE_OFFSET, scaled(r, true)); return true;
    case 0x10: /* expression */
    case 0x16: /* val_expression */
        skip(r->c, get_leb(r->c, false));
        set_rule(r->now, reg, RULE_UNKNOWN, 0);
        return true;
    default: return false;
    }
}

/* Until the place that is wanted, or the end. */
static bool run(struct run r)
{
    struct row remembered[MOST_REMEMBERED];
    unsigned depth = 0;
    while (r.c->p < r.c->end && !r.c->bad && r.location <= r.at) {
        unsigned op = (unsigned)get(r.c, 1), low = op & 0x3f;
        if (op >> 6 == 1)
            r.location += low * r.e->code_unit;
        else if (op >> 6 == 2)
            set_rule(r.now, low, RULE_AT_OFFSET, scaled(&r, false));
        else if (op >> 6 == 3)
            restore_rule(r.now, r.first, low);
        else if (op == 0x02 || op == 0x03 || op == 0x04)
            r.location += get(r.c, (size_t)1 << (op - 2)) * r.e->code_unit;
        else if (op == 0x01)
            r.location = get_pointer(r.c, r.e->pointers, 0);
        else if (op == 0x0a && depth < MOST_REMEMBERED)
            remembered[depth++] = *r.now;
        else if (op == 0x0b && depth > 0)
            *r.now = remembered[--depth];
        else if (op == 0x2e) /* GNU_args_size */
            (void)get_leb(r.c, false);
        else if (op != 0x00 && op != 0x2d /* signed return addresses */ && !run_base(&r, op) && !run_register(&r, op))
            return false;
    }
    return !r.c->bad;
}

static bool row_at(struct entry *e, uint64_t at, struct row *r)
{
    memset(r, 0, sizeof *r);
    struct row first = *r;
    struct run common = {.e = e, .c = &e->common, .now = r, .first = &first, .at = UINT64_MAX};
    if (!run(common))
        return false;
    first = *r;
    return run((struct run){.e = e, .c = &e->own, .now = r, .first = &first, .location = e->begin, .at = at});
}

/* ---- from one frame to the next ----------------------------------------------------------------------------------------- */

struct registers { uint64_t value[REGISTERS]; bool known[REGISTERS]; };

static void set_register(struct registers *r, unsigned reg, uint64_t value)
{
    r->value[reg] = value;
    r->known[reg] = true;
}

static bool next_register(int32_t pid, const struct row *row, const struct registers *now, uint64_t base, unsigned reg, uint64_t *value)
{
    int64_t v = row->rule[reg].value;
    switch ((enum rule_kind)row->rule[reg].kind) {
    case RULE_AT_OFFSET: return read_memory(pid, base + (uint64_t)v, value, sizeof *value);
    case RULE_OFFSET: *value = base + (uint64_t)v; return true;
    case RULE_REGISTER:
        if (v < 0 || v >= REGISTERS || !now->known[v])
            return false;
        *value = now->value[v];
        return true;
    case RULE_SAME: *value = now->value[reg]; return now->known[reg];
    case RULE_UNDEFINED:
    case RULE_UNKNOWN: break;
    }
    return false;
}

static bool next_frame(int32_t pid, const struct entry *e, const struct row *row, struct registers *r)
{
    struct registers next = {0};
    if (!row->base_known || row->base_register >= REGISTERS || !r->known[row->base_register] || e->return_register >= REGISTERS)
        return false;
    uint64_t base = r->value[row->base_register] + (uint64_t)row->base_offset;
    for (unsigned i = 0; i < REGISTERS; i++)
        next.known[i] = next_register(pid, row, r, base, i, &next.value[i]);
    if (!next.known[e->return_register])
        return false;
    set_register(&next, RETURN_REGISTER, next.value[e->return_register] & ADDRESS_BITS);
    set_register(&next, STACK_REGISTER, base);
    *r = next;
    return true;
}

#if defined(__x86_64__)
/* Does the jump or call that ends at `end` go by way of a place in memory (ff 15, ff 25), and that holds the address of `callee`? */
static bool goes_through(int32_t pid, uint64_t end, const uint8_t *distance, uint64_t callee)
{
    int32_t d;
    uint64_t target;
    memcpy(&d, distance, sizeof d);
    return read_memory(pid, end + (uint64_t)(int64_t)d, &target, sizeof target) && target == callee;
}

enum call { CALL_NONE, CALL_OF_ANY, CALL_OF_IT };

/* What stands before that address: a call of the function that begins at `callee`, also by way of a linkage table? One through a pointer
 * may be of any function. */
static enum call call_before(struct symbols *symbols, int32_t pid, uint64_t address, uint64_t callee)
{
    uint8_t before[8], at[16];
    int32_t distance;
    if (!symbols_is_code(symbols, address - 1) || !read_memory(pid, address - sizeof before, before, sizeof before))
        return CALL_NONE;
    if (before[3] == 0xe8) {
        memcpy(&distance, before + 4, sizeof distance);
        uint64_t target = address + (uint64_t)(int64_t)distance;
        if (target == callee)
            return CALL_OF_IT;
        if (symbols_is_code(symbols, target) && read_memory(pid, target, at, sizeof at)) {
            size_t i = memcmp(at, "\xf3\x0f\x1e\xfa", 4) == 0 ? 4 : 0; /* endbr64 */
            i += at[i] == 0xf2;
            if (at[i] == 0xff && at[i + 1] == 0x25 && goes_through(pid, target + i + 6, at + i + 2, callee))
                return CALL_OF_IT;
        }
    }
    if (before[2] == 0xff && before[3] == 0x15)
        return goes_through(pid, address, before + 4, callee) ? CALL_OF_IT : CALL_NONE;
    if ((before[6] == 0xff && before[7] >= 0xd0 && before[7] <= 0xd7) || (before[5] == 0xff && (before[6] & 0xf8) == 0x50) ||
        (before[2] == 0xff && (before[3] & 0xf8) == 0x90)) /* call *%reg, *n(%reg) */
        return CALL_OF_ANY;
    return CALL_NONE;
}

/* The function keeps its frame's address in a register, and what was called since has not saved that one: the kernel does not tell it. The
 * frame's end is found by what must lie there, the caller's register and an address behind a call of this function. What lies about from
 * calls before looks alike where it was called through a pointer: such a place is taken only if there is no better one. */
static bool search_frame(struct symbols *symbols, int32_t pid, const struct entry *e, const struct row *row, struct registers *r)
{
    uint64_t words[PAGE_BYTES / 8 + 1], stack = r->value[STACK_REGISTER] & ~(uint64_t)15, found = 0;
    if (!row->base_known || row->base_register != FRAME_REGISTER || r->known[FRAME_REGISTER] || row->base_offset != 16 ||
        row->rule[FRAME_REGISTER].kind != RULE_AT_OFFSET || row->rule[FRAME_REGISTER].value != -16)
        return false;
    for (uint64_t from = stack, to; from < stack + SEARCH_BYTES; from = to) {
        to = MIN((from | (PAGE_BYTES - 1)) + 1, stack + SEARCH_BYTES);
        size_t n = (to - from) / 8;
        words[n] = 0;
        if (!read_memory(pid, from, words, n * 8))
            break;
        (void)read_memory(pid, to, &words[n], 8);
        for (size_t i = 0; i < n; i += 2) { /* frames are aligned */
            uint64_t frame = from + i * 8, above = words[i];
            enum call call = call_before(symbols, pid, words[i + 1], e->begin);
            if (call == CALL_OF_IT) {
                set_register(r, FRAME_REGISTER, frame);
                return true;
            }
            if (call == CALL_OF_ANY && !found && (above <= 1 || (above > frame && above < frame + MOST_FRAME_BYTES)))
                found = frame;
        }
    }
    if (found)
        set_register(r, FRAME_REGISTER, found);
    return found != 0;
}
#else
static bool search_frame(struct symbols *symbols, int32_t pid, const struct entry *e, const struct row *row, struct registers *r)
{
    return false; /* frames are found from the stack's end there */
}
#endif

static uint32_t walk(struct symbols *symbols, int32_t pid, struct registers *r, uint64_t *pc, uint32_t most)
{
    struct entry e;
    struct row row;
    uint32_t n = 0;
    for (uint64_t at = r->value[RETURN_REGISTER]; n < most && at != 0; at = r->value[RETURN_REGISTER]) {
        uint64_t stack = r->value[STACK_REGISTER], inside = at - (n > 0); /* a return address lies behind its call */
        if (!symbols_is_code(symbols, inside))
            break;
        pc[n++] = at;
        if (!find_entry(symbols, pid, inside, &e) || !row_at(&e, inside, &row))
            break;
        if (!next_frame(pid, &e, &row, r) && !(search_frame(symbols, pid, &e, &row, r) && next_frame(pid, &e, &row, r)))
            break;
        if (r->value[STACK_REGISTER] <= stack && n > 1)
            break;
    }
    return n;
}

uint32_t unwind_waiting(struct symbols *symbols, int32_t pid, int32_t tid, uint64_t *pc, uint32_t most)
{
    struct registers r = {0};
    struct proc_waits before, after;
    if (!proc_waits(pid, tid, &before))
        return 0;
    set_register(&r, STACK_REGISTER, before.stack);
    set_register(&r, RETURN_REGISTER, before.pc);
    uint32_t n = walk(symbols, pid, &r, pc, most);
    return proc_waits(pid, tid, &after) && memcmp(&before, &after, sizeof before) == 0 ? n : 0; /* else it has gone on */
}

#else

uint32_t unwind_waiting(struct symbols *symbols, int32_t pid, int32_t tid, uint64_t *pc, uint32_t most)
{
    (void)symbols, (void)pid, (void)tid, (void)pc, (void)most;
    return 0;
}

#endif
