/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - what every room of the house stands on: errors with sentences, log, clock, random numbers, text, hashing,
 * memory with fault points. Knows nothing of communication.
 */
#ifndef UNO_BASE_H
#define UNO_BASE_H

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "unisono.h"

#define UNO_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CACHE_LINE 64
/* Fetch a line that will be written soon, out of the others' caches. The compiler's own prefetch for writing becomes one for reading
 * on processors that it takes for old. */
static inline void prefetch_to_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}
#define NOINLINE __attribute__((noinline)) /* seldom run: kept out of the short function that calls it */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
/* a * b / c, UINT64_MAX if it is more; without 128-bit integers as exact as a long double. */
static inline uint64_t mul_div(uint64_t a, uint64_t b, uint64_t c)
{
#ifdef __SIZEOF_INT128__
    unsigned __int128 v = (unsigned __int128)a * b / c;
    return v > UINT64_MAX ? UINT64_MAX : (uint64_t)v;
#else
    long double v = (long double)a * b / c;
    return v >= 0x1p64L ? UINT64_MAX : (uint64_t)v;
#endif
}

/* ---- errors (base/err.c) --------------------------------------------------------------------
 * Every failing function sets the calling thread's sentence and returns the code. The sentence says who, where, how
 * long, what next; wrap adds context in front as it rises. Nothing is printed here. */
#define ERR_TEXT_BYTES 1024

/* Set this thread's sentence; returns `code`. */
uno_err err_set(uno_err code, const char *fmt, ...) UNO_PRINTF(2, 3);
/* As err_set, and appends ": <strerror(errno)>". */
uno_err err_sys(const char *fmt, ...) UNO_PRINTF(1, 2);
/* Put "<context>: " in front of the current sentence; returns `code`. */
uno_err err_wrap(uno_err code, const char *fmt, ...) UNO_PRINTF(2, 3);
/* The thread's sentence; never NULL, "" if there was none. */
const char *err_text(void);
/* Return from the calling function when `expr` fails. */
#define TRY(expr)                          \
    do {                                   \
        uno_err try_err_ = (expr);         \
        if (try_err_ != UNO_OK)            \
            return try_err_;               \
    } while (0)

/* ---- log (base/log.c) ------------------------------------------------------------------------
 * One line on stderr (or log file) each. WARN only for verdicts, first causes, settings without effect. */
enum log_level { LOG_NONE = 0, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };
enum log_topic { /* bit numbers, for the subsystem filter */
    LOG_INIT = 1 << 0, LOG_COLL = 1 << 1, LOG_P2P = 1 << 2, LOG_NET = 1 << 3, LOG_PLAN = 1 << 4,
    LOG_ENV = 1 << 5, LOG_MEM = 1 << 6, LOG_BOOT = 1 << 7, LOG_WATCH = 1 << 8, LOG_TOPO = 1 << 9,
    LOG_ALL_TOPICS = 0x3ff
};
extern enum log_level log_level_now; /* written once by log_configure, while other threads may log: relaxed */
extern unsigned log_topics_now;
/* Set level, topics (bits), a label put in every line ("rank 3"; copied) and a file (NULL = stderr). */
void log_configure(enum log_level level, unsigned topics, const char *label, FILE *file);
void log_write(enum log_level level, const char *fmt, ...) UNO_PRINTF(2, 3);
uint64_t log_identity(void); /* of the file that lines go to: equal = the same one; 0 = a terminal, a pipe, or none */
#define LOG(level, topic, ...)                                                       \
    do {                                                                             \
        if ((level) <= __atomic_load_n(&log_level_now, __ATOMIC_RELAXED) &&          \
            ((level) == LOG_WARN || ((topic) & __atomic_load_n(&log_topics_now, __ATOMIC_RELAXED)))) \
            log_write((level), __VA_ARGS__);                                         \
    } while (0)

/* ---- clock (base/clock.c) ---------------------------------------------------------------------- */
uint64_t clock_ns(void);                 /* CLOCK_MONOTONIC */
uint64_t clock_coarse_ns(void);          /* the same, a few milliseconds behind, for a fraction of the price */
uint64_t clock_after(double seconds);    /* now + seconds, saturating; < 0 or huge = UINT64_MAX (never) */

/* ---- random (base/rng.c): xoshiro256**, seeded, not for secrets ------------------------------- */
struct rng { uint64_t s[4]; };
void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n); /* 0 .. n-1, n > 0 */

/* ---- words as bytes: little-endian, the low `bytes` of v (1 to 8) ---------------------------------------- */
static inline void put_le(unsigned char *at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(v >> (8 * i));
}
static inline uint64_t get_le(const unsigned char *at, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

/* ---- hashing (base/hash.c): for ids and tables, not for secrets ---------------------------------- */
typedef struct id128 { uint64_t lo, hi; } id128;
id128 hash128(const void *data, size_t bytes, uint64_t seed);
static inline bool id128_equal(id128 a, id128 b) { return a.lo == b.lo && a.hi == b.hi; }
/* Mix two words into one; the base of chained signatures. */
static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
    x ^= x >> 32;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 29);
}

/* ---- memory (base/mem.c): malloc with a fault point, so that tests can let the n-th one fail ------ */
void *mem_alloc(size_t bytes);                      /* as it comes; NULL sets the sentence (UNO_ERR_MEMORY) */
void *mem_zalloc(size_t bytes);                     /* zeroed; NULL sets the sentence (UNO_ERR_MEMORY) */
void *mem_array(size_t count, size_t each_bytes);   /* zeroed, overflow-checked */
/* Grow *array so that it holds `need` elements, doubling; keeps contents; new part is not zeroed. */
uno_err mem_grow(void *array_ptr, size_t *cap, size_t need, size_t each_bytes);
size_t mem_page(void);                              /* bytes of a page of the kernel: 4096, or 16 or 64 KB; "page" */
/* Fault points: true when a test asked (UNISONO_FAULT="name:n" or fault_arm) that this call fail. */
bool fault_hit(const char *name);
long fault_value(const char *name);                 /* n of "name:n" for points that are values, 0 when not armed */
void fault_arm(const char *name, long nth);         /* nth call from now fails; <= 0 disarms */
void fault_arm_here(const char *name, long nth);    /* nth call of this thread alone, whatever others do meanwhile */

/* ---- descriptors (base/fd.c) ------------------------------------------------------------------------------
 * A program may have closed stdin, stdout or stderr. A descriptor of ours that took such a number would get what the program prints. */
/* Give up fd for one above 2 (close-on-exec); other fds, and -1, come back as they are. -1 and errno when none is free: fd is closed. */
int fd_above_standard(int fd);
/* Between the two, growing or writing a file beyond the program's `ulimit -f` fails with EFBIG, without the SIGXFSZ that would end it;
 * shared memory counts as a file there. errno passes through the second. */
struct fd_hold { sigset_t old, xfsz; bool was_there; };
void fd_hold_signal(struct fd_hold *h);
void fd_release_signal(const struct fd_hold *h);
/* Give a memfd its size. Never raises SIGXFSZ; the sentence names the limit if it was that. UNO_ERR_SYSTEM. */
uno_err fd_resize(int fd, size_t bytes);

/* ---- text (base/text.c) ------------------------------------------------------------------------------ */
/* A growing string. After a failed allocation `failed` is set and further calls do nothing. */
struct text { char *s; size_t len, cap; bool failed; };
void text_add(struct text *t, const char *fmt, ...) UNO_PRINTF(2, 3);
void text_free(struct text *t);
/* What a terminal might obey, and what is no UTF-8, becomes '?': for text that others wrote. lines: line ends stay. */
void text_clean(char *text, size_t n, bool lines);
/* "8", "4K", "1.5M", "256 MB", "1GiB" -> bytes (binary units). UNO_ERR_PARSE with a sentence. */
uno_err text_parse_bytes(const char *s, uint64_t *bytes);
/* "10", "10s", "5m", "250ms" -> seconds. */
uno_err text_parse_seconds(const char *s, double *seconds);
uno_err text_parse_int(const char *s, int64_t min, int64_t max, int64_t *value);
uno_err text_parse_bool(const char *s, bool *value); /* 1 0 true false yes no on off */
/* Format bytes as people write them: "8 B", "4 KB", "1.5 MB" (binary). Writes into buf, returns buf. */
char *text_bytes(char *buf, size_t buf_bytes, uint64_t bytes);
/* Edit distance for "did you mean"; returns the nearest of `names` or NULL if none is near. */
const char *text_nearest(const char *word, const char *const *names, size_t count);

/* ---- names of public enums (base/names.c) --------------------------------------------------------------- */
const char *type_name(uno_type type);   /* "float32"; "?" if unknown */
const char *op_name(int op);            /* "sum"; "premulsum" for dynamic ones */
/* In ledgers only: split or dup of a communicator. Its gathers are calls of their own, unlike the program's. */
#define COLL_SPLIT UNO_COLL_COUNT
#define COLL_NAMED (UNO_COLL_COUNT + 1)
const char *coll_name(uno_coll coll);   /* "all_reduce"; also of COLL_SPLIT */
bool coll_has_root(uno_coll coll);
bool coll_reduces(uno_coll coll);       /* has a reduction operator */
bool coll_is_v(uno_coll coll);          /* has counts per rank */
uno_err type_parse(const char *s, uno_type *type); /* also nccl-tests' words: float, half, double, ... */
uno_err coll_parse(const char *s, uno_coll *coll); /* also "allreduce", "all-reduce", "all_reduce_perf" */

#endif
