/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_cfi.h - how a function's caller is found from a place in it, by the tables that compilers write for exceptions. Source: DWARF 5,
 * section 6.4; LSB 5, .eh_frame. Pure: it knows files, no processes. Private to src/watch.
 */
#ifndef UNO_WATCH_CFI_H
#define UNO_WATCH_CFI_H

#include "watch/watch_symbols.h"

#define CFI_REGISTERS 33 /* of x86-64 17 with the return address, of AArch64 32 */

enum cfi_kind {
    CFI_SAME = 0,            /* the caller's register is this frame's */
    CFI_AT,                  /* it is kept in memory, `value` from the frame's base */
    CFI_BASE,                /* it is the frame's base and `value` */
    CFI_REGISTER,            /* it is in register `value` */
    CFI_LOST                 /* it is gone, or kept in a way that is not known here */
};
struct cfi_row {
    struct { uint8_t kind; int64_t value; } rule[CFI_REGISTERS];
    uint64_t base_register;  /* the frame's base is this register ... */
    int64_t base_offset;     /* ... and this */
    bool base_known;
    uint64_t return_register;
    uint64_t begin;          /* of the function, in the file's addresses */
};
/* at: in the file's addresses. False: the tables do not tell, or make no sense. */
bool cfi_row_at(const struct symbol_file *f, uint64_t at, struct cfi_row *row);

#endif
