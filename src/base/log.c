/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - one line at a time, written with one call so that lines of several ranks do not mix. */
#include "base.h"

#include <string.h>
#include <unistd.h>

enum log_level log_level_now = LOG_WARN;
unsigned log_topics_now = LOG_ALL_TOPICS;
static char log_label[64];
static FILE *log_file;

void log_configure(enum log_level level, unsigned topics, const char *label, FILE *file)
{
    log_level_now = level;
    log_topics_now = topics;
    snprintf(log_label, sizeof log_label, "%s", label ? label : "");
    log_file = file;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    static const char *const tag[] = {"", "", "", "debug: ", "trace: "};
    char line[2048];
    int n = snprintf(line, sizeof line, "unisono: %s%s%s", log_label, log_label[0] ? ": " : "", tag[level]);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    size_t len = strlen(line);
    line[len++] = '\n';
    ssize_t ignored = write(log_file ? fileno(log_file) : STDERR_FILENO, line, len);
    (void)ignored; /* a log that cannot be written must not fail the job */
}
