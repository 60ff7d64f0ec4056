/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_unwind.c - stacks of waiting threads from outside (watch_unwind.h). The kernel tells where such a thread waits and where its
 * stack ends; its callers follow from the tables of its files (watch_cfi.h) and from the stack, which is read from its memory. That may
 * hold anything: the number of reads is bounded, and what makes no sense ends the stack.
 */
#include "watch/watch_unwind.h"

#include <string.h>
#include <sys/uio.h>

#include "watch/watch_cfi.h"
#include "watch/watch_proc.h"

#if defined(__x86_64__)
enum { FRAME_REGISTER = 6, STACK_REGISTER = 7 };
#define UNWINDS
#define ADDRESS_BITS UINT64_MAX
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { FRAME_REGISTER = 29, STACK_REGISTER = 31 };
#define UNWINDS
#define ADDRESS_BITS ((1ull << 48) - 1) /* a return address may be signed in the bits above */
#endif

#ifdef UNWINDS

#define PAGE_BYTES 4096u
#define MOST_READS 16384u      /* of a process and its files, for one stack */
#define SEARCH_BYTES 65536u    /* of the stack, for a frame whose register is not known */

struct unwinding {
    struct symbols *symbols;
    int32_t pid;
    unsigned reads;
    uint64_t until_ns;
    uint64_t page;             /* whose words these are; 1 = none yet */
    uint64_t words[PAGE_BYTES / 8];
    uint64_t pc;
    uint64_t value[CFI_REGISTERS]; /* the registers at pc, as far as they are known */
    bool known[CFI_REGISTERS];
};

static bool may_read(struct unwinding *u)
{
    return u->reads++ < MOST_READS && clock_ns() < u->until_ns;
}

static bool read_memory(struct unwinding *u, uint64_t address, void *buf, size_t bytes)
{
    struct iovec here = {buf, bytes}, there = {(void *)(uintptr_t)address, bytes};
    return may_read(u) && process_vm_readv(u->pid, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* A word of the stack: a page at a time. */
static bool read_word(struct unwinding *u, uint64_t address, uint64_t *word)
{
    uint64_t page = address & ~(uint64_t)(PAGE_BYTES - 1);
    if (address % 8 != 0)
        return read_memory(u, address, word, sizeof *word);
    if (u->page != page && !read_memory(u, page, u->words, sizeof u->words)) {
        u->page = 1;
        return false;
    }
    u->page = page;
    *word = u->words[(address - page) / 8];
    return true;
}

static void set_register(struct unwinding *u, unsigned reg, uint64_t value)
{
    u->value[reg] = value;
    u->known[reg] = true;
}

static bool next_register(struct unwinding *u, const struct cfi_row *row, uint64_t base, unsigned reg, uint64_t *value)
{
    int64_t v = row->rule[reg].value;
    switch ((enum cfi_kind)row->rule[reg].kind) {
    case CFI_AT: return read_word(u, base + (uint64_t)v, value);
    case CFI_BASE: *value = base + (uint64_t)v; return true;
    case CFI_REGISTER:
        if (v < 0 || v >= CFI_REGISTERS || !u->known[v])
            return false;
        *value = u->value[v];
        return true;
    case CFI_SAME: *value = u->value[reg]; return u->known[reg];
    case CFI_LOST: break;
    }
    return false;
}

/* From a frame to its caller's. */
static bool next_frame(struct unwinding *u, const struct cfi_row *row)
{
    uint64_t value[CFI_REGISTERS] = {0};
    bool known[CFI_REGISTERS];
    if (!row->base_known || row->base_register >= CFI_REGISTERS || !u->known[row->base_register] || row->return_register >= CFI_REGISTERS)
        return false;
    uint64_t base = u->value[row->base_register] + (uint64_t)row->base_offset;
    for (unsigned i = 0; i < CFI_REGISTERS; i++)
        known[i] = next_register(u, row, base, i, &value[i]);
    if (!known[row->return_register])
        return false;
    u->pc = value[row->return_register] & ADDRESS_BITS;
    memcpy(u->value, value, sizeof value);
    memcpy(u->known, known, sizeof known);
    set_register(u, STACK_REGISTER, base);
    return true;
}

/* ---- a frame that is searched for ----------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum call { CALL_NONE, CALL_OF_ANY, CALL_OF_IT };

static bool holds(struct unwinding *u, uint64_t place, uint64_t callee)
{
    uint64_t target;
    return read_memory(u, place, &target, sizeof target) && target == callee;
}

static int32_t distance_at(const uint8_t *p)
{
    int32_t d;
    memcpy(&d, p, sizeof d);
    return d;
}

static bool read_code(struct unwinding *u, uint64_t address, uint8_t *buf, size_t bytes)
{
    uint64_t base;
    const struct symbol_file *f = symbols_file(u->symbols, address, &base);
    return f && may_read(u) && symbol_file_read(f, address - base, buf, bytes);
}

/* Is the code at `target` the callee, or an entry of a linkage table that leads to it? */
static bool leads_to(struct unwinding *u, uint64_t target, uint64_t callee)
{
    uint8_t at[16];
    if (target == callee)
        return true;
    if (!read_code(u, target, at, sizeof at))
        return false;
    size_t i = memcmp(at, "\xf3\x0f\x1e\xfa", 4) == 0 ? 4 : 0; /* endbr64 */
    i += at[i] == 0xf2;
    return at[i] == 0xff && at[i + 1] == 0x25 && holds(u, target + i + 6 + (uint64_t)(int64_t)distance_at(at + i + 2), callee);
}

/* How long `call` by a register or memory is, from its second byte on: ff /2. */
static size_t call_bytes(uint8_t modrm, uint8_t sib)
{
    unsigned mod = modrm >> 6, rm = modrm & 7;
    size_t bytes = 2 + (mod == 1) + (mod == 2 ? 4u : 0u);
    if (mod != 3 && rm == 4)
        bytes += 1 + (mod == 0 && (sib & 7) == 5 ? 4u : 0u);
    return bytes + (mod == 0 && rm == 5 ? 4u : 0u);
}

/* What ends before that address: a call of the function that begins at `callee`? One through a pointer may be of any function. */
static enum call call_before(struct unwinding *u, uint64_t address, uint64_t callee)
{
    uint8_t b[8];
    if (!read_code(u, address - sizeof b, b, sizeof b))
        return CALL_NONE;
    if (b[3] == 0xe8 && leads_to(u, address + (uint64_t)(int64_t)distance_at(b + 4), callee))
        return CALL_OF_IT;
    if (b[2] == 0xff && b[3] == 0x15)
        return holds(u, address + (uint64_t)(int64_t)distance_at(b + 4), callee) ? CALL_OF_IT : CALL_NONE;
    for (size_t n = 2; n <= 7; n++)
        if (b[8 - n] == 0xff && ((b[9 - n] >> 3) & 7) == 2 && call_bytes(b[9 - n], n > 2 ? b[10 - n] : 0) == n)
            return CALL_OF_ANY;
    return CALL_NONE;
}

/* The function keeps its frame's address in a register, and what was called since has not saved that one: the kernel does not tell it. The
 * frame's end is searched for by what must lie there, an address behind a call of this function. What lies about from calls before may look
 * alike, so this is a guess; a call of this function is preferred to one through a pointer, which may be of any. */
static bool search_frame(struct unwinding *u, const struct cfi_row *row, uint64_t base_of_file)
{
    uint64_t stack = u->value[STACK_REGISTER] & ~(uint64_t)15, found = 0, address;
    if (!row->base_known || row->base_register != FRAME_REGISTER || u->known[FRAME_REGISTER] || row->base_offset != 16 ||
        row->rule[FRAME_REGISTER].kind != CFI_AT || row->rule[FRAME_REGISTER].value != -16)
        return false;
    for (uint64_t frame = stack; frame < stack + SEARCH_BYTES; frame += 16) { /* frames are aligned */
        if (!read_word(u, frame + 8, &address))
            break;
        if (!symbols_is_code(u->symbols, address - 1))
            continue;
        enum call call = call_before(u, address, row->begin + base_of_file);
        if (call == CALL_OF_IT) {
            found = frame;
            break;
        }
        if (call == CALL_OF_ANY && !found)
            found = frame;
    }
    if (found)
        set_register(u, FRAME_REGISTER, found);
    return found != 0;
}
#else
static bool search_frame(struct unwinding *u, const struct cfi_row *row, uint64_t base_of_file)
{
    (void)u, (void)row, (void)base_of_file;
    return false; /* most functions save the register there */
}
#endif

/* ---- frame by frame ------------------------------------------------------------------------------------------------------- */

static uint32_t walk(struct unwinding *u, uint64_t *pc, uint32_t most, uint32_t *sure)
{
    struct cfi_row row;
    uint32_t n = 0;
    *sure = most;
    while (n < most && u->pc != 0) {
        uint64_t stack = u->value[STACK_REGISTER], inside = u->pc - (n > 0), base; /* a return address lies behind its call */
        if (!symbols_is_code(u->symbols, inside))
            break;
        pc[n++] = u->pc;
        const struct symbol_file *f = symbols_file(u->symbols, inside, &base);
        if (!f || !cfi_row_at(f, inside - base, &row))
            break;
        if (!next_frame(u, &row)) {
            *sure = MIN(*sure, n);
            if (!search_frame(u, &row, base) || !next_frame(u, &row))
                break;
        }
        if (u->value[STACK_REGISTER] <= stack && n > 1)
            break;
    }
    *sure = MIN(*sure, n);
    return n;
}

uint32_t unwind_waiting(struct symbols *symbols, int32_t pid, int32_t tid, uint64_t *pc, uint32_t most, uint32_t *sure, uint64_t until_ns)
{
    struct unwinding u = {.symbols = symbols, .pid = pid, .until_ns = until_ns, .page = 1};
    struct proc_waits before, after;
    char state = proc_state(pid, tid);
    *sure = 0;
    if ((state != 'S' && state != 'T' && state != 't') || !proc_waits(pid, tid, &before)) /* memory of who waits for a disk may wait, too */
        return 0;
    set_register(&u, STACK_REGISTER, before.stack);
    u.pc = before.pc;
    uint32_t n = walk(&u, pc, most, sure);
    return proc_waits(pid, tid, &after) && memcmp(&before, &after, sizeof before) == 0 ? n : 0; /* else it has gone on */
}

#else

uint32_t unwind_waiting(struct symbols *symbols, int32_t pid, int32_t tid, uint64_t *pc, uint32_t most, uint32_t *sure, uint64_t until_ns)
{
    (void)symbols, (void)pid, (void)tid, (void)pc, (void)most, (void)until_ns;
    *sure = 0;
    return 0;
}

#endif
