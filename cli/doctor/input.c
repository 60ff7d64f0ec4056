/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.c - files, folders and standard input: what is it, and who reads it? What could not be read is said, never left out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "input.h"
#include "reader.h"

enum {
    HEAD_BYTES = 4096,
    WHOLE_BYTES = 64 << 20, /* formats that must be read whole: dumps and machines are far smaller */
    DEPTH = 8,
};
static const unsigned long long UNPACKED_MOST = 16ull << 30; /* of a packed file, which may hold more than any disk */

const struct reader *const readers[] = {
#define READER(variable, text) &variable,
#include "readers.def"
#undef READER
    NULL};

extern char **environ;

/* A source of bytes whose beginning was looked at already. */
struct source {
    FILE *file;
    const char *head;
    size_t head_bytes, head_used;
    unsigned long long most, used; /* most: 0 = no end; bytes after which no more is read */
};

static size_t source_more(void *from, char *to, size_t bytes)
{
    struct source *s = from;
    size_t left = s->head_bytes - s->head_used;
    if (left) {
        size_t n = left < bytes ? left : bytes;
        memcpy(to, s->head + s->head_used, n);
        s->head_used += n;
        return n;
    }
    if (s->most && s->used >= s->most)
        return 0;
    size_t n = s->file ? fread(to, 1, bytes, s->file) : 0;
    s->used += n;
    return n;
}

/* Everything that is left, or NULL when it is more than may be read whole. */
static char *source_all(struct source *s, size_t *bytes)
{
    size_t cap = 64 << 10, used = 0;
    char *all = malloc(cap + 1);
    while (all) {
        if (used == cap) {
            char *bigger = cap >= WHOLE_BYTES ? NULL : realloc(all, cap * 2 + 1);
            if (!bigger) {
                free(all);
                return NULL;
            }
            all = bigger;
            cap *= 2;
        }
        size_t n = source_more(s, all + used, cap - used);
        if (n == 0)
            break;
        used += n;
    }
    if (all)
        all[used] = 0;
    *bytes = used;
    return all;
}

static const struct reader *who_reads(const char *data, size_t bytes)
{
    char head[HEAD_BYTES + 1]; /* ended, for those who search in it */
    bytes = bytes < HEAD_BYTES ? bytes : HEAD_BYTES;
    memcpy(head, data, bytes);
    head[bytes] = 0;
    for (size_t i = 0; readers[i]; i++)
        if (readers[i]->sniff && readers[i]->sniff(head, bytes))
            return readers[i];
    return NULL;
}

/* Logs that were packed away: the usual program unpacks them, and what it writes is read as it comes. */
static const struct packing { const char *magic; size_t bytes; const char *program; } packings[] = {
    {"\x1f\x8b", 2, "gzip"}, {"\x28\xb5\x2f\xfd", 4, "zstd"}, {"\xfd" "7zXZ", 5, "xz"}, {"BZh", 3, "bzip2"}, {"\x04\x22\x4d\x18", 4, "lz4"}};

static const struct packing *packing_of(const char *head, size_t bytes)
{
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        if (bytes >= packings[i].bytes && memcmp(head, packings[i].magic, packings[i].bytes) == 0)
            return &packings[i];
    return NULL;
}

static const char *known_binary(const unsigned char *h, size_t n)
{
    static const struct { const char *magic; size_t bytes; const char *what; } kinds[] = {
        {"%PDF-", 5, "a PDF; copy the text out of it"},
        {"\x89PNG", 4, "a picture; copy the text instead"}, {"\xff\xd8\xff", 3, "a picture; copy the text instead"}, {"PK\x03\x04", 4, "a zip archive (a PyTorch checkpoint is one); unpack it first"},
        {"\xff\xfe", 2, "text in UTF-16; convert it first: iconv -f UTF-16 -t UTF-8"}, {"\xfe\xff", 2, "text in UTF-16; convert it first: iconv -f UTF-16 -t UTF-8"},
        {"\x7f" "ELF", 4, "a program or core file"},                      {"SQLite", 6, "an SQLite database (an Nsight report is one)"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n >= kinds[i].bytes && memcmp(h, kinds[i].magic, kinds[i].bytes) == 0)
            return kinds[i].what;
    size_t odd = 0;
    for (size_t i = 0; i < n; i++)
        odd += h[i] < 9 || (h[i] > 13 && h[i] < 27);
    if (n > 262 && memcmp(h + 257, "ustar", 5) == 0)
        return "a tar archive; unpack it first: tar -xf";
    return n >= 16 && odd * 25 > n ? "binary, and of no kind that is known here" : NULL;
}

static bool read_as_lines(struct model *m, const char *name, struct source *s)
{
    lines_read(m, name, source_more, s);
    return true;
}

static bool read_source(struct model *m, const char *name, struct source *s)
{
    if (s->head_bytes >= 3 && memcmp(s->head, "\xef\xbb\xbf", 3) == 0) /* a byte order mark */
        s->head += 3, s->head_bytes -= 3;
    const struct reader *r = who_reads(s->head, s->head_bytes);
    const char *binary = r ? NULL : known_binary((const unsigned char *)s->head, s->head_bytes);
    const struct packing *packed = packing_of(s->head, s->head_bytes);
    if (packed) {
        model_note(m, "%s: not read: it is compressed with %s; unpack it first: %s -d", name, packed->program, packed->program);
        return false;
    }
    if (binary) {
        model_note(m, "%s: not read: it is %s", name, binary);
        return false;
    }
    if (!r)
        return read_as_lines(m, name, s);
    size_t bytes = 0;
    char why[512] = "", *all = source_all(s, &bytes);
    if (!all) {
        model_note(m, "%s: not read: it looks like %s, and is larger than %d MB", name, r->name, WHOLE_BYTES >> 20);
        return false;
    }
    bool good = r->read(m, name, all, bytes, why, sizeof why);
    if (!good) {
        /* What only looked like it, or was cut, may still have lines that say something. */
        struct source text = {.head = all, .head_bytes = bytes};
        unsigned long before = m->kept;
        good = !known_binary((const unsigned char *)all, bytes < HEAD_BYTES ? bytes : HEAD_BYTES) && read_as_lines(m, name, &text) && m->kept > before;
        model_note(m, "%s: it looks like %s, but %s; %s", name, r->name, why, good ? "read as lines of text" : "nothing was read from it");
    }
    free(all);
    return good;
}

/* A pipe that the unpacking program writes what it reads from `in` into; NULL when there is no such program. */
static FILE *unpack(const struct packing *p, int in, pid_t *child)
{
    int pipes[2];
    char *words[] = {(char *)p->program, "-dc", NULL};
    posix_spawn_file_actions_t actions;
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int error = posix_spawnp(child, p->program, &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    FILE *from = error ? NULL : fdopen(pipes[0], "rb");
    if (!from)
        close(pipes[0]);
    return from;
}

/* Takes `in`, and closes it. */
static bool read_packed(struct model *m, const char *name, int in, const struct packing *p)
{
    char head[HEAD_BYTES];
    pid_t child = -1;
    int status = 0;
    FILE *from = unpack(p, in, &child);
    close(in);
    struct source s = {.file = from, .head = head, .most = UNPACKED_MOST};
    s.head_bytes = from ? fread(head, 1, sizeof head, from) : 0;
    bool any = s.head_bytes > 0 && read_source(m, name, &s), all = s.used < s.most;
    if (from)
        fclose(from);
    if (child > 0) {
        kill(child, SIGTERM);
        waitpid(child, &status, 0);
    }
    if (!s.head_bytes)
        model_note(m, "%s: not read: it is compressed with %s, which %s; unpack it first", name, p->program, from ? "gave nothing" : "is not installed here");
    else if (!all)
        model_note(m, "%s: only the first %llu GB of what is in it were read", name, UNPACKED_MOST >> 30);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        model_note(m, "%s: it is cut or damaged; what %s could unpack was read", name, p->program);
    return any;
}

static bool read_packed_file(struct model *m, const char *name, FILE *file, const struct packing *p)
{
    int in = fseek(file, 0, SEEK_SET) == 0 ? fcntl(fileno(file), F_DUPFD_CLOEXEC, 3) : -1;
    if (in < 0 || lseek(in, 0, SEEK_SET) != 0) {
        model_note(m, "%s: not read: it is compressed with %s, and cannot be begun anew; unpack it first: %s -d", name, p->program, p->program);
        if (in >= 0)
            close(in);
        return false;
    }
    return read_packed(m, name, in, p);
}

static bool write_all(int to, const char *p, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(to, p, bytes);
        if (n <= 0)
            return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Standard input need not be a file that another program can begin anew: a process of ours hands on what was looked at, and then the rest, which so
 * takes no room anywhere. It ends with 1 when reading fails. Returns the end to read from, -1 when there is none. */
static int hand_on(const char *head, size_t head_bytes, FILE *from, pid_t *feeder)
{
    char chunk[64 << 10];
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return -1;
    *feeder = fork();
    if (*feeder == 0) {
        signal(SIGPIPE, SIG_IGN); /* the program may have enough */
        close(pipes[0]);
        bool good = write_all(pipes[1], head, head_bytes);
        for (size_t n; good && (n = fread(chunk, 1, sizeof chunk, from)) > 0;)
            good = write_all(pipes[1], chunk, n);
        _exit(ferror(from) != 0);
    }
    close(pipes[1]);
    if (*feeder < 0)
        close(pipes[0]);
    return *feeder < 0 ? -1 : pipes[0];
}

static bool read_packed_stdin(struct model *m, const char *name, const struct source *s, const struct packing *p)
{
    pid_t feeder = -1;
    int status = 0, in = hand_on(s->head, s->head_bytes, s->file, &feeder);
    if (in < 0) {
        model_note(m, "%s: not read: it is compressed with %s, and no process can be started to hand it on: %s", name, p->program, strerror(errno));
        return false;
    }
    bool any = read_packed(m, name, in, p);
    kill(feeder, SIGTERM);
    waitpid(feeder, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        model_note(m, "%s: reading it failed before its end", name);
    return any;
}

static bool read_stream(struct model *m, const char *name, FILE *file)
{
    char head[HEAD_BYTES];
    struct source s = {.file = file, .head = head};
    s.head_bytes = fread(head, 1, sizeof head, file);
    if (s.head_bytes == 0) {
        model_note(m, ferror(file) ? "%s: not read: %s" : "%s: it is empty", name, strerror(errno));
        return false;
    }
    m->files++;
    const struct packing *p = packing_of(head, s.head_bytes);
    if (p)
        return file == stdin ? read_packed_stdin(m, name, &s, p) : read_packed_file(m, name, file, p);
    bool any = read_source(m, name, &s);
    if (ferror(file))
        model_note(m, "%s: reading it failed before its end: %s", name, strerror(errno));
    return any;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool read_path(struct model *m, const char *path, int depth);

static bool read_folder(struct model *m, const char *path, int depth)
{
    DIR *dir = opendir(path);
    if (!dir || depth >= DEPTH) {
        model_note(m, "%s: not read: %s", path, dir ? "too deep a folder" : strerror(errno));
        if (dir)
            closedir(dir);
        return false;
    }
    char **names = NULL;
    size_t count = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        char **more = realloc(names, (count + 1) * sizeof *names);
        if (!more || asprintf(&more[count], "%s/%s", path, e->d_name) < 0) {
            names = more ? more : names;
            break;
        }
        names = more;
        count++;
    }
    closedir(dir);
    bool any = false;
    if (count)
        qsort(names, count, sizeof *names, by_name);
    else
        model_note(m, "%s: an empty folder", path);
    for (size_t i = 0; i < count; i++) {
        any = read_path(m, names[i], depth + 1) || any;
        free(names[i]);
    }
    free(names);
    return any;
}

static bool read_path(struct model *m, const char *path, int depth)
{
    const char *name = model_words(m, path);
    struct stat st;
    if (stat(path, &st) != 0) {
        model_note(m, "%s: not read: %s", path, strerror(errno));
        return false;
    }
    if (S_ISDIR(st.st_mode))
        return read_folder(m, path, depth);
    /* A folder may hold named pipes of a recorder; opening one would wait for its writer. */
    if (depth > 0 && !S_ISREG(st.st_mode)) {
        model_note(m, "%s: not read: not a file", path);
        return false;
    }
    FILE *file = fopen(path, "rb");
    if (!file) {
        model_note(m, "%s: not read: %s", path, strerror(errno));
        return false;
    }
    bool any = read_stream(m, name, file);
    fclose(file);
    return any;
}

bool input_read(struct model *m, const char *path)
{
    bool any = strcmp(path, "-") == 0 ? read_stream(m, "standard input", stdin) : read_path(m, path, 0);
    m->unreadable += !any;
    return any;
}

bool input_read_text(struct model *m, const char *name, const char *text, size_t bytes)
{
    struct source s = {.head = text, .head_bytes = bytes};
    m->files++;
    return read_source(m, model_words(m, name), &s);
}
