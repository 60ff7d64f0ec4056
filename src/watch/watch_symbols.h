/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_symbols.h - names of addresses in another process of this host, from its mappings and the symbol tables of the files behind
 * them. Takes no lock of that process or of the loader. Private to src/watch.
 */
#ifndef UNO_WATCH_SYMBOLS_H
#define UNO_WATCH_SYMBOLS_H

#include "base/base.h"

struct symbols;
struct symbol_name {
    char function[96];        /* "" = not known */
    char module[64];          /* file without its folder; "" = not known */
    uint64_t offset;          /* from the function, else in the file, else the address itself */
};
struct symbols *symbols_open(int32_t pid); /* NULL without memory, or when the process is gone */
void symbols_name(struct symbols *s, uint64_t address, struct symbol_name *name);
bool symbols_is_code(const struct symbols *s, uint64_t address); /* of a file */
/* Where, in that process's memory, the unwind table (.eh_frame_hdr) of the file lies to which `address` belongs; false: it has none. */
bool symbols_unwind_table(struct symbols *s, uint64_t address, uint64_t *table, uint64_t *table_bytes);
void symbols_close(struct symbols *s);

#endif
