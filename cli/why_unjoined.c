/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why_unjoined.c - of a job that is still joining: processes of this host that its launcher has started as a rank, and that have not called
 * the library yet. They show nothing of themselves; the environment they were started with tells whose they are.
 */
#include "job.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "output.h"

/* The environment that pid was started with, variables ended by zero bytes; NULL: it cannot be read. */
static char *environment(int pid, size_t *bytes)
{
    char path[40], *text = NULL, piece[8192];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *from = fopen(path, "re"), *to = from ? open_memstream(&text, bytes) : NULL;
    for (size_t n; to && (n = fread(piece, 1, sizeof piece, from)) > 0;)
        fwrite(piece, 1, n, to);
    if (from)
        fclose(from);
    if (to && fclose(to) != 0) {
        free(text);
        text = NULL;
    }
    return text;
}

/* NULL: there is no such variable. What open_memstream wrote ends with a zero byte. */
static const char *variable(const char *env, size_t bytes, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = env; env && at < env + bytes; at += strlen(at) + 1)
        if (strncmp(at, name, len) == 0 && at[len] == '=')
            return at + len + 1;
    return NULL;
}

/* Its rank, if it was started for the job whose ranks meet at `meets`; else -1. */
static int rank_of(int pid, const char *meets, int size)
{
    size_t bytes = 0;
    int64_t rank = -1;
    char *env = environment(pid, &bytes);
    const char *where = variable(env, bytes, "UNISONO_ADDR"), *word = variable(env, bytes, "UNISONO_RANK");
    if (!where || !word || strcmp(where, meets) != 0 || !out_parse_int(word, 0, size - 1, &rank))
        rank = -1;
    free(env);
    return (int)rank;
}

static void note(int pid, const char *meets, int size, int *pids)
{
    int rank = rank_of(pid, meets, size);
    /* What a rank has started has its environment; the rank itself was started by somebody without. */
    if (rank >= 0 && (pids[rank] == 0 || pid < pids[rank]) && rank_of(job_process_parent(pid), meets, size) != rank)
        pids[rank] = pid;
}

/* Where do its ranks meet? malloc'ed; NULL: its launcher has not told them by a variable. */
static char *meeting_place(const uno_job *job)
{
    char *meets = NULL;
    for (int r = 0; r < job->size && !meets; r++) {
        size_t bytes = 0;
        char *env = job->ranks[r].pid > 0 ? environment(job->ranks[r].pid, &bytes) : NULL;
        const char *where = variable(env, bytes, "UNISONO_ADDR");
        meets = where ? strdup(where) : NULL;
        free(env);
    }
    return meets;
}

int *why_unjoined(const struct job_found *found, const uno_verdict *v)
{
    if (!found->live || strcmp(v->kind, "never_joined") != 0)
        return NULL;
    int *pids = calloc((size_t)found->job->size, sizeof *pids);
    char *meets = pids ? meeting_place(found->job) : NULL;
    DIR *d = meets ? opendir("/proc") : NULL;
    for (struct dirent *e; d && (e = readdir(d));)
        if (isdigit((unsigned char)e->d_name[0]))
            note((int)strtol(e->d_name, NULL, 10), meets, found->job->size, pids);
    if (d)
        closedir(d);
    free(meets);
    for (int r = 0; pids && r < found->job->size; r++)
        if (!job_unheard(&found->job->ranks[r]))
            pids[r] = 0;
    return pids;
}

char *why_program(int pid, char *buf, size_t buf_bytes)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(buf, (int)buf_bytes, f))
        snprintf(buf, buf_bytes, "?");
    if (f)
        fclose(f);
    buf[strcspn(buf, "\n")] = 0;
    return buf;
}
