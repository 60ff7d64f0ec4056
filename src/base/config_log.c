/* SPDX-License-Identifier: Apache-2.0 */
/* config_log.c - the settings about speaking, applied to the log. */
#include "config_table.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum log_level level_of(int word)
{
    /* In the order of config.def: none, version, warn, info, debug, trace, abort. Verdicts are said even with none. */
    static const enum log_level levels[] = {LOG_WARN, LOG_WARN, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE, LOG_INFO};
    return (size_t)word < ARRAY_LEN(levels) ? levels[word] : LOG_WARN;
}

static unsigned topics_of(const char *list)
{
    unsigned topics = 0;
    bool invert = list[0] == '^';
    if (!*list)
        return LOG_ALL_TOPICS;
    for (const char *at = list + invert; *at;) {
        size_t n = strcspn(at, ",");
        int bit = cfg_word_index(CFG_TOPICS, at, n);
        topics |= bit >= 0 ? 1u << bit : LOG_ALL_TOPICS;
        at += n + (at[n] == ',');
    }
    return invert ? LOG_ALL_TOPICS & ~topics : topics;
}

/* %h host, %p process id, %% a percent sign; anything else stays. */
static void expand(const char *pattern, struct text *out)
{
    char host[128] = "host";
    gethostname(host, sizeof host - 1);
    for (const char *p = pattern; *p; p++) {
        if (p[0] == '%' && p[1] == 'h')
            text_add(out, "%s", host);
        else if (p[0] == '%' && p[1] == 'p')
            text_add(out, "%d", (int)getpid());
        else if (p[0] == '%' && p[1] == '%')
            text_add(out, "%%");
        else {
            text_add(out, "%c", *p);
            continue;
        }
        p++;
    }
}

/* One file a process: opened once, kept; a later load with the same name goes on in it. */
static uno_err open_file(const char *pattern, FILE **file)
{
    static FILE *opened;
    static char *opened_name;
    struct text name = {0};
    uno_err err = UNO_OK;
    expand(pattern, &name);
    if (name.failed || !name.s) {
        err = UNO_ERR_MEMORY;
    } else if (!opened || strcmp(opened_name, name.s) != 0) {
        int fd = fd_above_standard(open(name.s, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
        FILE *f = fd >= 0 ? fdopen(fd, "ae") : NULL;
        if (f) {
            opened = f; /* an earlier one may be in use by another thread and stays open */
            opened_name = name.s;
            name = (struct text){0};
        } else {
            err_sys("cannot write the log to %s (DEBUG_FILE)", name.s);
            err = UNO_ERR_CONFIG;
        }
    }
    text_free(&name);
    *file = opened;
    return err;
}

uno_err config_log(const struct config *cfg, int rank)
{
    FILE *file = NULL;
    char label[32] = "";
    if (*cfg->debug_file)
        TRY(open_file(cfg->debug_file, &file));
    if (rank >= 0)
        snprintf(label, sizeof label, "rank %d", rank);
    log_configure(level_of(cfg->debug), topics_of(cfg->debug_subsys), label, file);
    return UNO_OK;
}
