/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - one line at a time, written with one call so that lines of several ranks do not mix. */
#include "base.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum log_level log_level_now = LOG_WARN;
unsigned log_topics_now = LOG_ALL_TOPICS;
/* Published with release, read with acquire in log_write: other threads may log while the process is being configured. */
static _Atomic(const char *) log_label;
static _Atomic(FILE *) log_file;

void log_configure(enum log_level level, unsigned topics, const char *label, FILE *file)
{
    static char labels[2][64]; /* one in force, one for the next */
    char *fresh = atomic_load_explicit(&log_label, memory_order_relaxed) == labels[0] ? labels[1] : labels[0];
    snprintf(fresh, sizeof labels[0], "%s", label ? label : "");
    atomic_store_explicit(&log_label, fresh, memory_order_release);
    atomic_store_explicit(&log_file, file, memory_order_release);
    __atomic_store_n(&log_level_now, level, __ATOMIC_RELAXED);
    __atomic_store_n(&log_topics_now, topics, __ATOMIC_RELAXED);
}

static int log_fd(void)
{
    FILE *file = atomic_load_explicit(&log_file, memory_order_acquire);
    return file ? fileno(file) : STDERR_FILENO;
}

uint64_t log_identity(void)
{
    struct stat st;
    if (fstat(log_fd(), &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    uint64_t h = hash_mix(hash_mix(1, (uint64_t)st.st_dev), (uint64_t)st.st_ino);
    return h ? h : 1;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    static const char *const tag[] = {"", "", "", "debug: ", "trace: "};
    char line[2048];
    const char *label = atomic_load_explicit(&log_label, memory_order_acquire);
    label = label ? label : "";
    int n = snprintf(line, sizeof line, "unisono: %s%s%s", label, label[0] ? ": " : "", tag[level]);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    size_t len = strlen(line);
    line[len++] = '\n';
    ssize_t ignored = write(log_fd(), line, len);
    (void)ignored; /* a log that cannot be written must not fail the job */
}
