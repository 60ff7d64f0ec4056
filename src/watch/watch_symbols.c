/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_symbols.c - what ELF files tell of addresses in other processes (watch_symbols.h). A file may be damaged or be replaced while
 * the process runs: every offset is checked against what was read of the file.
 */
#include "watch/watch_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "watch/watch_proc.h"

#define MOST_MAPS 512
#define MOST_TABLE_BYTES (32u << 20)  /* a table beyond that is not read */
#define MOST_SEGMENTS 128
#define MOST_BYTES (256u << 20)       /* of the functions of all files together */

struct function { uint64_t at; uint32_t bytes, name; }; /* name: offset in the file's names */

struct symbol_file {
    struct symbol_file *next;
    uint64_t device, inode;           /* as the kernel shows them for mappings */
    int fd;                           /* -1 = it cannot be read */
    ElfW(Ehdr) head;
    ElfW(Phdr) *segments;
    int nsegments;
    bool named;                       /* functions are read, if there are any */
    struct function *functions;       /* by address */
    size_t nfunctions;
    uint64_t names, names_bytes;      /* where they stand in the file */
};

struct symbols {
    int32_t pid;
    struct symbol_files *files;
    struct proc_map *maps;
    size_t nmaps;
};

/* ---- files -------------------------------------------------------------------------------------------------------------- */

/* Through the process's own root: containers of one host see different files under one name. */
static int open_of(int32_t pid, const char *path)
{
    char name[320];
    snprintf(name, sizeof name, "/proc/%d/root%s", (int)pid, path);
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A part of the file on the heap; NULL. */
static void *part(int fd, uint64_t offset, uint64_t bytes)
{
    if (bytes == 0 || bytes > MOST_TABLE_BYTES || offset > INT64_MAX - bytes)
        return NULL;
    char *p = mem_zalloc(bytes);
    if (p && pread(fd, p, bytes, (off_t)offset) != (ssize_t)bytes) {
        free(p);
        p = NULL;
    }
    return p;
}

static bool read_head(int fd, ElfW(Ehdr) *h)
{
    return pread(fd, h, sizeof *h, 0) == (ssize_t)sizeof *h && memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 &&
           h->e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) && h->e_phentsize == sizeof(ElfW(Phdr)) && h->e_phnum <= MOST_SEGMENTS &&
           (h->e_shnum == 0 || h->e_shentsize == sizeof(ElfW(Shdr)));
}

static struct symbol_file *file_of(const struct symbols *s, const struct proc_map *m)
{
    if (m->path[0] != '/')
        return NULL;
    struct symbol_file *f = s->files->first;
    while (f && (f->device != m->device || f->inode != m->inode))
        f = f->next;
    if (f || !(f = mem_zalloc(sizeof *f)))
        return f && f->nsegments ? f : NULL;
    f->device = m->device;
    f->inode = m->inode;
    f->next = s->files->first;
    s->files->first = f;
    f->fd = open_of(s->pid, m->path);
    if (f->fd >= 0 && read_head(f->fd, &f->head))
        f->segments = part(f->fd, f->head.e_phoff, (uint64_t)f->head.e_phnum * sizeof(ElfW(Phdr)));
    f->nsegments = f->segments ? f->head.e_phnum : 0;
    return f->nsegments ? f : NULL;
}

void symbol_files_close(struct symbol_files *files)
{
    while (files->first) {
        struct symbol_file *f = files->first;
        files->first = f->next;
        if (f->fd >= 0)
            close(f->fd);
        free(f->segments);
        free(f->functions);
        free(f);
    }
    files->bytes = 0;
}

/* The segment of the file that has this place, in it (by offset) or in memory. */
static const ElfW(Phdr) *segment_of(const struct symbol_file *f, uint64_t place, bool by_offset)
{
    for (int i = 0; i < f->nsegments; i++) {
        const ElfW(Phdr) *p = &f->segments[i];
        uint64_t from = by_offset ? p->p_offset : p->p_vaddr;
        if (p->p_type == PT_LOAD && place >= from && place - from < p->p_filesz)
            return p;
    }
    return NULL;
}

bool symbol_file_unwind_table(const struct symbol_file *f, uint64_t *at, uint64_t *bytes)
{
    for (int i = 0; i < f->nsegments; i++)
        if (f->segments[i].p_type == PT_GNU_EH_FRAME) {
            *at = f->segments[i].p_vaddr;
            *bytes = f->segments[i].p_memsz;
            return true;
        }
    return false;
}

bool symbol_file_read(const struct symbol_file *f, uint64_t at, void *buf, size_t bytes)
{
    const ElfW(Phdr) *p = segment_of(f, at, false);
    uint64_t offset = p ? p->p_offset + (at - p->p_vaddr) : 0;
    return p && bytes <= p->p_filesz - (at - p->p_vaddr) && offset <= INT64_MAX && pread(f->fd, buf, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* ---- names -------------------------------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    const struct function *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static void keep_functions(struct symbol_files *files, struct symbol_file *f, const ElfW(Sym) *syms, size_t n)
{
    f->functions = files->bytes + n * sizeof *f->functions <= MOST_BYTES ? mem_array(n, sizeof *f->functions) : NULL;
    if (!f->functions)
        return;
    files->bytes += n * sizeof *f->functions;
    for (size_t i = 0; i < n; i++) {
        int type = syms[i].st_info & 0xf;
        if ((type == STT_FUNC || type == STT_GNU_IFUNC) && syms[i].st_shndx != SHN_UNDEF && syms[i].st_name < f->names_bytes)
            f->functions[f->nfunctions++] = (struct function){syms[i].st_value, (uint32_t)MIN(syms[i].st_size, UINT32_MAX), syms[i].st_name};
    }
    qsort(f->functions, f->nfunctions, sizeof *f->functions, by_address);
}

/* Of the full table if the file has one, else of the dynamic linker's. */
static void read_functions(struct symbol_files *files, struct symbol_file *f)
{
    f->named = true;
    ElfW(Shdr) *sections = part(f->fd, f->head.e_shoff, (uint64_t)f->head.e_shnum * sizeof *sections);
    const ElfW(Shdr) *best = NULL;
    for (int i = 0; sections && i < f->head.e_shnum; i++)
        if (sections[i].sh_link < f->head.e_shnum && sections[i].sh_entsize == sizeof(ElfW(Sym)) &&
            (sections[i].sh_type == SHT_SYMTAB || (sections[i].sh_type == SHT_DYNSYM && !best)))
            best = &sections[i];
    ElfW(Sym) *syms = best ? part(f->fd, best->sh_offset, best->sh_size) : NULL;
    if (syms) {
        f->names = sections[best->sh_link].sh_offset;
        f->names_bytes = sections[best->sh_link].sh_size;
        keep_functions(files, f, syms, best->sh_size / sizeof *syms);
    }
    free(syms);
    free(sections);
}

/* The last one that begins at or before the place, and goes so far. Functions may lie in each other (entries, parts): not many. */
static const struct function *function_at(const struct symbol_file *f, uint64_t at)
{
    enum { NESTED = 16 };
    size_t low = 0, high = f->nfunctions;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->functions[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t back = 0; back < NESTED && low > 0; back++) {
        const struct function *x = &f->functions[--low];
        if (at - x->at < (x->bytes ? x->bytes : 4096))
            return x;
    }
    return NULL;
}

static void name_function(const struct symbol_file *f, const struct function *x, char *name, size_t name_bytes)
{
    uint64_t room = MIN(f->names_bytes - x->name, name_bytes - 1), offset = f->names + x->name;
    ssize_t n = offset <= INT64_MAX ? pread(f->fd, name, room, (off_t)offset) : -1;
    name[n > 0 ? n : 0] = 0;
    text_clean(name, strlen(name), false);
}

/* ---- a process ---------------------------------------------------------------------------------------------------------- */

struct symbols *symbols_open(int32_t pid, struct symbol_files *files)
{
    struct symbols *s = mem_zalloc(sizeof *s);
    char process[16];
    snprintf(process, sizeof process, "%d", (int)pid);
    if (s)
        s->maps = mem_array(MOST_MAPS, sizeof *s->maps);
    if (!s || !s->maps) {
        free(s);
        return NULL;
    }
    s->pid = pid;
    s->files = files;
    s->nmaps = proc_maps(process, s->maps, MOST_MAPS);
    return s;
}

static const struct proc_map *map_of(const struct symbols *s, uint64_t address)
{
    for (size_t i = 0; i < s->nmaps; i++)
        if (address >= s->maps[i].start && address < s->maps[i].end)
            return &s->maps[i];
    return NULL;
}

bool symbols_is_code(const struct symbols *s, uint64_t address)
{
    return map_of(s, address) != NULL;
}

struct symbol_file *symbols_file(struct symbols *s, uint64_t address, uint64_t *base)
{
    const struct proc_map *m = map_of(s, address);
    struct symbol_file *f = m ? file_of(s, m) : NULL;
    uint64_t offset = m ? address - m->start + m->offset : 0;
    const ElfW(Phdr) *p = f ? segment_of(f, offset, true) : NULL;
    *base = p ? address - (p->p_vaddr + (offset - p->p_offset)) : 0;
    return p ? f : NULL;
}

void symbols_name(struct symbols *s, uint64_t address, struct symbol_name *name)
{
    const struct proc_map *m = map_of(s, address);
    *name = (struct symbol_name){.offset = address};
    if (!m)
        return;
    const char *slash = strrchr(m->path, '/');
    uint64_t base;
    snprintf(name->module, sizeof name->module, "%.63s", slash ? slash + 1 : m->path);
    text_clean(name->module, strlen(name->module), false);
    name->offset = address - m->start + m->offset;
    struct symbol_file *f = symbols_file(s, address, &base);
    if (f && !f->named)
        read_functions(s->files, f);
    const struct function *x = f ? function_at(f, address - base) : NULL;
    if (!x)
        return;
    name_function(f, x, name->function, sizeof name->function);
    if (name->function[0])
        name->offset = address - base - x->at;
}

void symbols_close(struct symbols *s)
{
    if (s)
        free(s->maps);
    free(s);
}
