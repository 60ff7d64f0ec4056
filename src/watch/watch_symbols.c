/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_symbols.c - addresses to names by reading ELF files (watch_symbols.h). The file may be damaged or be replaced while the
 * process runs: every offset is checked against what was read of the file.
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
#define MOST_TABLE_BYTES (64u << 20) /* a symbol table beyond that is not read */

/* A file's functions: symbols and their names, copied out of it. */
struct table {
    struct table *next;
    char path[256];
    ElfW(Phdr) *segments;
    int nsegments;
    ElfW(Sym) *syms;
    size_t nsyms;
    char *names;
    size_t names_bytes;
};

struct symbols {
    int32_t pid;
    struct proc_map *maps;
    size_t nmaps;
    struct table *tables;
};

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

/* A part of the file on the heap, with a zero behind it; NULL. */
static void *part(int fd, uint64_t offset, uint64_t bytes)
{
    if (bytes == 0 || bytes > MOST_TABLE_BYTES || offset > INT64_MAX - bytes)
        return NULL;
    char *p = mem_zalloc(bytes + 1);
    if (p && pread(fd, p, bytes, (off_t)offset) != (ssize_t)bytes) {
        free(p);
        p = NULL;
    }
    return p;
}

static bool read_header(int fd, ElfW(Ehdr) *h)
{
    return pread(fd, h, sizeof *h, 0) == (ssize_t)sizeof *h && memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 &&
           h->e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) && h->e_phentsize == sizeof(ElfW(Phdr)) &&
           (h->e_shnum == 0 || h->e_shentsize == sizeof(ElfW(Shdr)));
}

/* The full table if the file has one, else the one of the dynamic linker. */
static void read_symbols(int fd, const ElfW(Ehdr) *h, struct table *t)
{
    ElfW(Shdr) *sections = part(fd, h->e_shoff, (uint64_t)h->e_shnum * sizeof *sections);
    const ElfW(Shdr) *best = NULL;
    for (int i = 0; sections && i < h->e_shnum; i++)
        if (sections[i].sh_link < h->e_shnum && sections[i].sh_entsize == sizeof(ElfW(Sym)) &&
            (sections[i].sh_type == SHT_SYMTAB || (sections[i].sh_type == SHT_DYNSYM && !best)))
            best = &sections[i];
    if (best) {
        const ElfW(Shdr) *names = &sections[best->sh_link];
        t->syms = part(fd, best->sh_offset, best->sh_size);
        t->nsyms = t->syms ? best->sh_size / sizeof(ElfW(Sym)) : 0;
        t->names = part(fd, names->sh_offset, names->sh_size);
        t->names_bytes = t->names ? names->sh_size : 0;
    }
    free(sections);
}

static struct table *table_of(struct symbols *s, const char *path)
{
    for (struct table *t = s->tables; t; t = t->next)
        if (strcmp(t->path, path) == 0)
            return t;
    struct table *t = mem_zalloc(sizeof *t);
    if (!t)
        return NULL;
    snprintf(t->path, sizeof t->path, "%s", path);
    t->next = s->tables;
    s->tables = t;
    ElfW(Ehdr) h;
    int fd = open_of(s->pid, path);
    if (fd >= 0 && read_header(fd, &h)) {
        t->segments = part(fd, h.e_phoff, (uint64_t)h.e_phnum * sizeof(ElfW(Phdr)));
        t->nsegments = t->segments ? h.e_phnum : 0;
        read_symbols(fd, &h, t);
    }
    if (fd >= 0)
        close(fd);
    return t;
}

static bool virtual_of(const struct table *t, uint64_t file_offset, uint64_t *virtual_address)
{
    for (int i = 0; i < t->nsegments; i++) {
        const ElfW(Phdr) *p = &t->segments[i];
        if (p->p_type == PT_LOAD && file_offset >= p->p_offset && file_offset - p->p_offset < p->p_filesz) {
            *virtual_address = p->p_vaddr + (file_offset - p->p_offset);
            return true;
        }
    }
    return false;
}

static void function_at(const struct table *t, uint64_t at, struct symbol_name *name)
{
    const ElfW(Sym) *best = NULL;
    for (size_t i = 0; i < t->nsyms; i++) {
        const ElfW(Sym) *s = &t->syms[i];
        int type = s->st_info & 0xf;
        if ((type == STT_FUNC || type == STT_GNU_IFUNC) && s->st_shndx != SHN_UNDEF && s->st_name < t->names_bytes &&
            at >= s->st_value && at - s->st_value < (s->st_size ? s->st_size : 4096) && (!best || s->st_value > best->st_value))
            best = s;
    }
    if (!best)
        return;
    snprintf(name->function, sizeof name->function, "%.95s", t->names + best->st_name);
    name->offset = at - best->st_value;
}

struct symbols *symbols_open(int32_t pid)
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

bool symbols_unwind_table(struct symbols *s, uint64_t address, uint64_t *table, uint64_t *table_bytes)
{
    const struct proc_map *m = map_of(s, address);
    const struct table *t = m && m->path[0] == '/' ? table_of(s, m->path) : NULL;
    uint64_t at, offset = m ? address - m->start + m->offset : 0;
    if (!t || !virtual_of(t, offset, &at))
        return false;
    for (int i = 0; i < t->nsegments; i++)
        if (t->segments[i].p_type == PT_GNU_EH_FRAME) {
            *table = address - at + t->segments[i].p_vaddr;
            *table_bytes = t->segments[i].p_memsz;
            return true;
        }
    return false;
}

void symbols_name(struct symbols *s, uint64_t address, struct symbol_name *name)
{
    const struct proc_map *m = map_of(s, address);
    *name = (struct symbol_name){.offset = address};
    if (!m)
        return;
    const char *slash = strrchr(m->path, '/');
    uint64_t at;
    snprintf(name->module, sizeof name->module, "%.63s", slash ? slash + 1 : m->path);
    name->offset = address - m->start + m->offset;
    struct table *t = m->path[0] == '/' ? table_of(s, m->path) : NULL;
    if (t && virtual_of(t, name->offset, &at))
        function_at(t, at, name);
}

void symbols_close(struct symbols *s)
{
    if (!s)
        return;
    while (s->tables) {
        struct table *t = s->tables;
        s->tables = t->next;
        free(t->segments);
        free(t->syms);
        free(t->names);
        free(t);
    }
    free(s->maps);
    free(s);
}
