/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_fuzz.c - every reader of the doctor and every rule on spoiled input: doctor_fuzz SECONDS SEED FILE|DIR... Files are spliced, cut, shuffled
 * and flipped at random, read and judged in this process; a crash, a hang of ten seconds or 1200 MB end it with the seed. Deterministic but
 * for the number of rounds.
 */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "doctor.h"
#include "scan.h"

enum { FILES = 2048, MOST = 96 << 10, HANG_S = 10, MEMORY_MB = 1200 }; /* a sanitizer keeps what was freed for a while */

static struct { char *data; size_t bytes; } corpus[FILES];
static int corpus_count;
static uint64_t state;

static uint32_t next(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? (uint32_t)((state >> 16) % below) : 0;
}

static void keep(const char *data, size_t bytes)
{
    bytes = bytes < MOST / 4 ? bytes : MOST / 4;
    char *copy = corpus_count < FILES && bytes ? malloc(bytes) : NULL;
    if (!copy)
        return;
    memcpy(copy, data, bytes);
    corpus[corpus_count].data = copy;
    corpus[corpus_count++].bytes = bytes;
}

/* The inputs of rules.txt, each by itself: "== RULE ..." and "@@ FILE" begin one. */
static void keep_sections(const char *text)
{
    for (const char *p = text; p && *p;) {
        const char *line = strchr(p, '\n'), *end = line;
        while (end && strncmp(end, "\n== ", 4) != 0 && strncmp(end, "\n@@ ", 4) != 0)
            end = strchr(end + 1, '\n');
        if (line)
            keep(line + 1, end ? (size_t)(end - line) : strlen(line + 1));
        p = end ? end + 1 : NULL;
    }
}

static void load(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return;
    if (S_ISDIR(st.st_mode)) {
        DIR *d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));) {
            char child[4096];
            if (e->d_name[0] != '.' && snprintf(child, sizeof child, "%s/%s", path, e->d_name) < (int)sizeof child)
                load(child);
        }
        if (d)
            closedir(d);
        return;
    }
    FILE *f = fopen(path, "rb");
    size_t most = 1 << 20, n = 0;
    char *data = f ? malloc(most + 1) : NULL;
    if (data) {
        n = fread(data, 1, most, f);
        data[n] = 0;
        if (strstr(path, "rules.txt"))
            keep_sections(data);
        else
            keep(data, n);
    }
    free(data);
    if (f)
        fclose(f);
}

/* ---- ways to spoil a text ------------------------------------------------------------------------------------------------------ */

static size_t splice(char *to, size_t n)
{
    int k = (int)next((uint32_t)corpus_count);
    if (!corpus[k].bytes)
        return n;
    size_t from = next((uint32_t)corpus[k].bytes), part = next((uint32_t)(corpus[k].bytes - from)) + 1, at = next((uint32_t)n + 1);
    if (n + part > MOST)
        return n;
    memmove(to + at + part, to + at, n - at);
    memcpy(to + at, corpus[k].data + from, part);
    return n + part;
}

static size_t insert_word(char *to, size_t n)
{
    static const char *const words[] = {"%d%s%n", "NCCL WARN ", "-1", "999999999999999999999999", "0x", "[", "]", "<", "\033[31m", "\r", "\n", "\0\0", "rank ", "comm ", "--- x ---\n", "\\\n", "\"", "'", "$(", "{", "}", "(pid=",
                                        "GPU0\t", "&#x0;", "<!ENTITY a \"b\">", "\x80\x02", "}(", "q\x00", "h\x00", "[rank-5]:", ": ", "\xff\xfe", "NaN", "1e999"};
    const char *w = words[next(sizeof words / sizeof *words)];
    size_t k = strlen(w) ? strlen(w) : 2, at = next((uint32_t)n + 1);
    if (n + k > MOST)
        return n;
    memmove(to + at + k, to + at, n - at);
    memcpy(to + at, w, k);
    return n + k;
}

static size_t drop(char *to, size_t n)
{
    size_t at = next((uint32_t)n + 1), part = next((uint32_t)(n - at) + 1);
    part = part > 200 && next(4) ? 1 + next(40) : part;
    memmove(to + at, to + at + part, n - at - part);
    return n - part;
}

static size_t double_part(char *to, size_t n)
{
    size_t at = next((uint32_t)n + 1), part = next((uint32_t)(n - at) + 1);
    if (n + part > MOST)
        return n;
    memmove(to + at + part, to + at, n - at);
    return n + part;
}

static size_t flip(char *to, size_t n)
{
    for (uint32_t k = next(8) + 1; n && k > 0; k--)
        to[next((uint32_t)n)] = (char)next(256);
    return n;
}

static size_t spoil(char *to, size_t n)
{
    static size_t (*const ways[])(char *, size_t) = {splice, insert_word, drop, double_part, flip, insert_word, flip};
    for (uint32_t k = next(6) + 1; k > 0; k--)
        n = ways[next(sizeof ways / sizeof *ways)](to, n);
    return n;
}

/* ---- rounds -------------------------------------------------------------------------------------------------------------------------- */

static void hung(int sig)
{
    static const char words[] = "doctor_fuzz: a round takes more than ten seconds\n";
    if (write(2, words, sizeof words - 1) < 0)
        _exit(3);
    abort();
}

static long memory_mb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss >> 10;
}

static void one_round(char *buf)
{
    struct doctor *d = doctor_new();
    uint32_t files = 1 + next(3);
    for (uint32_t i = 0; d && i < files; i++) {
        int k = (int)next((uint32_t)corpus_count);
        char name[64];
        snprintf(name, sizeof name, "nccl_trace_rank_%u", next(6));
        memcpy(buf, corpus[k].data, corpus[k].bytes);
        size_t n = spoil(buf, corpus[k].bytes);
        /* A copy of exactly that size, so that a step beyond it is seen. */
        char *exact = malloc(n ? n : 1);
        if (exact) {
            memcpy(exact, buf, n);
            doctor_read_text(d, name, exact, n);
        }
        free(exact);
    }
    if (d) {
        doctor_judge(d);
        doctor_report(d, next(2), next(2));
        doctor_print(d, next(2));
        doctor_print_json(d);
        doctor_write_page(d, "-");
    }
    doctor_free(d);
}

/* With the hint has() finds what strstr finds: pieces of a text in it, and pieces of another. */
static void same_found(char *buf)
{
    int k = (int)next((uint32_t)corpus_count), other = (int)next((uint32_t)corpus_count);
    size_t n = corpus[k].bytes < 4000 ? corpus[k].bytes : 4000;
    memcpy(buf, corpus[k].data, n);
    buf[n] = 0;
    n = strlen(buf);
    scan_hint(buf, n);
    for (int i = 0; i < 16; i++) {
        char part[16];
        const char *of = i % 2 ? corpus[other].data : corpus[k].data, *from = buf + next((uint32_t)n + 1);
        size_t most = i % 2 ? corpus[other].bytes : corpus[k].bytes, at = next((uint32_t)most), bytes = next(12);
        bytes = bytes < most - at ? bytes : most - at;
        memcpy(part, of + at, bytes);
        part[bytes] = 0;
        if (has(from, part) != (strstr(from, part) != NULL)) {
            fprintf(stderr, "doctor_fuzz: has() is wrong about '%s'\n", part);
            abort();
        }
    }
    scan_hint(NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: doctor_fuzz SECONDS SEED FILE|DIR...\n");
        return 2;
    }
    double seconds = atof(argv[1]);
    uint64_t seed = strtoull(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++)
        load(argv[i]);
    if (!corpus_count || !freopen("/dev/null", "w", stdout))
        return 2;
    signal(SIGALRM, hung);
    char *buf = malloc(2 * MOST);
    struct timespec t0, t;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    unsigned long rounds = 0;
    do {
        state = (seed + rounds) * 0x9e3779b97f4a7c15u + 1;
        alarm(HANG_S);
        if (rounds % 256 == 0 || getenv("DOCTOR_FUZZ_ROUNDS")) /* which one ends it: run it again with that */
            fprintf(stderr, "round %lu\n", rounds);
        one_round(buf);
        same_found(buf);
        rounds++;
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while ((double)(t.tv_sec - t0.tv_sec) + (double)(t.tv_nsec - t0.tv_nsec) / 1e9 < seconds && memory_mb() < MEMORY_MB);
    alarm(0);
    fprintf(stderr, "%lu rounds from seed %llu on %d files, %ld MB\n", rounds, (unsigned long long)seed, corpus_count, memory_mb());
    for (int i = 0; i < corpus_count; i++)
        free(corpus[i].data);
    free(buf);
    return memory_mb() < MEMORY_MB ? 0 : 1;
}
