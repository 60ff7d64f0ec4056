/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_job.c - the job as one host is told: "key=value" items, each ended by a zero byte, so that arguments and variables may
 * contain anything. One table drives writer and reader.
 */
#include "run.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *key; size_t offset; } numbers[] = {
    {"size", offsetof(struct run_job, size)},     {"first", offsetof(struct run_job, first)},
    {"n", offsetof(struct run_job, n)},           {"nhosts", offsetof(struct run_job, nhosts)},
    {"bind", offsetof(struct run_job, bind)},     {"show_bind", offsetof(struct run_job, show_bind)},
    {"port", offsetof(struct run_job, port)},     {"direct_stdout", offsetof(struct run_job, direct_stdout)},
    {"direct_stdin", offsetof(struct run_job, direct_stdin)},
};
#define NNUMBERS (sizeof numbers / sizeof *numbers)

static int *number_at(const struct run_job *job, size_t i)
{
    return (int *)((char *)job + numbers[i].offset);
}

static void put(FILE *f, const char *key, const char *value)
{
    fprintf(f, "%s=%s", key, value);
    fputc(0, f);
}

char *run_job_encode(const struct run_job *job, size_t *bytes)
{
    char *buf = NULL, text[24];
    FILE *f = open_memstream(&buf, bytes);
    if (!f)
        return NULL;
    for (size_t i = 0; i < NNUMBERS; i++) {
        snprintf(text, sizeof text, "%d", *number_at(job, i));
        put(f, numbers[i].key, text);
    }
    put(f, "host", job->host);
    if (job->cwd)
        put(f, "cwd", job->cwd);
    for (int i = 0; i < job->nenv; i++)
        put(f, "env", job->env[i]);
    for (int i = 0; i < job->nargs; i++)
        put(f, "arg", job->args[i]);
    return fclose(f) == 0 ? buf : NULL;
}

static bool push(char ***list, int *n, const char *value)
{
    char **p = realloc(*list, ((size_t)*n + 2) * sizeof *p);
    if (!p)
        return false;
    *list = p;
    p[*n] = strdup(value);
    p[*n + 1] = NULL;
    return p[(*n)++] != NULL;
}

static bool set(char **where, const char *value)
{
    free(*where);
    return (*where = strdup(value)) != NULL;
}

static bool take(struct run_job *job, const char *key, size_t nkey, const char *value)
{
#define IS(word) (nkey == strlen(word) && memcmp(key, word, nkey) == 0)
    for (size_t i = 0; i < NNUMBERS; i++)
        if (IS(numbers[i].key)) {
            *number_at(job, i) = atoi(value);
            return true;
        }
    if (IS("host"))
        return set(&job->host, value);
    if (IS("cwd"))
        return set(&job->cwd, value);
    if (IS("env"))
        return push(&job->env, &job->nenv, value);
    if (IS("arg"))
        return push(&job->args, &job->nargs, value);
    return false; /* launcher and agent are of different versions */
#undef IS
}

bool run_job_decode(struct run_job *job, const char *data, size_t bytes)
{
    *job = (struct run_job){0};
    for (size_t at = 0; at < bytes;) {
        const char *item = data + at, *end = memchr(item, 0, bytes - at);
        const char *eq = end ? memchr(item, '=', (size_t)(end - item)) : NULL;
        if (!eq || !take(job, item, (size_t)(eq - item), eq + 1))
            return false;
        at += (size_t)(end - item) + 1;
    }
    return job->host && job->nargs > 0 && job->n >= 0 && job->first >= 0 && job->size > 0 && job->first + job->n <= job->size &&
        job->bind >= 0 && job->bind < BIND_COUNT;
}

void run_job_free(struct run_job *job)
{
    for (int i = 0; i < job->nenv; i++)
        free(job->env[i]);
    for (int i = 0; i < job->nargs; i++)
        free(job->args[i]);
    free(job->env);
    free(job->args);
    free(job->host);
    free(job->cwd);
    *job = (struct run_job){0};
}
