/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_symbols.h - the files behind another process's code: names of addresses, and the tables by which stacks are unwound. Takes no
 * lock of that process or of the loader. Private to src/watch.
 */
#ifndef UNO_WATCH_SYMBOLS_H
#define UNO_WATCH_SYMBOLS_H

#include "base/base.h"

/* Files that were read, for all processes that are looked at together: most run the same ones. Holds descriptors. Zeroed elsewhere. */
struct symbol_file;
struct symbol_files { struct symbol_file *first; uint64_t bytes; };
void symbol_files_close(struct symbol_files *files);

struct symbols;
struct symbol_name {
    char function[96];        /* "" = not known */
    char module[64];          /* file without its folder; "" = not known */
    uint64_t offset;          /* from the function, else in the file, else the address itself */
};
struct symbols *symbols_open(int32_t pid, struct symbol_files *files); /* NULL without memory, or when the process is gone */
void symbols_name(struct symbols *s, uint64_t address, struct symbol_name *name);
bool symbols_is_code(const struct symbols *s, uint64_t address); /* of a file, or of the kernel's own page */
/* The file whose code `address` is, and what its own addresses begin with in that process; NULL: none, or it cannot be read. */
struct symbol_file *symbols_file(struct symbols *s, uint64_t address, uint64_t *base);
void symbols_close(struct symbols *s);

/* In the file's own addresses: its unwind table (.eh_frame_hdr), and what stands where. False: it has none; not all of it stands there. */
bool symbol_file_unwind_table(const struct symbol_file *f, uint64_t *at, uint64_t *bytes);
bool symbol_file_read(const struct symbol_file *f, uint64_t at, void *buf, size_t bytes);

#endif
