/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_keep.c - what the ranks of this host show of themselves is held by the launcher too, so that it can be saved when all of them
 * end at once. Only where UNISONO_LEDGER_DIR names a place for it.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unisono_watch.h>

#define LOOK_S 0.5
#define EAGER_LOOK_S 0.05  /* while a rank has not been seen: a job may fail as soon as it has joined */
#define EAGER_S 10.0       /* ... but not for ever, for it may be no program of this library */

struct run_keep {
    uno_keeper *keeper;
    const char *dir;
    double begun, looked;
    bool unseen;           /* a process of the last look has not joined */
    bool failed;           /* said once */
    char path[1100];       /* "" = nothing was saved */
};

/* The directory as the ranks see it: given with -x, or inherited. */
static const char *ledger_dir(const struct run_job *job)
{
    static const char name[] = "UNISONO_LEDGER_DIR=";
    const char *dir = getenv("UNISONO_LEDGER_DIR");
    for (int i = 0; i < job->nenv; i++)
        if (strncmp(job->env[i], name, sizeof name - 1) == 0)
            dir = job->env[i] + sizeof name - 1;
    return dir && dir[0] ? dir : NULL;
}

struct run_keep *keep_new(const struct run_job *job)
{
    const char *dir = ledger_dir(job);
    struct run_keep *k = dir ? calloc(1, sizeof *k) : NULL;
    if (!k)
        return NULL;
    k->dir = dir;
    k->begun = run_now();
    k->unseen = true;
    if (uno_keeper_new(&k->keeper) != UNO_OK) {
        free(k);
        return NULL;
    }
    return k;
}

static bool eager(const struct run_keep *k)
{
    return k->unseen && run_now() < k->begun + EAGER_S;
}

bool keep_due(struct run_keep *k)
{
    if (!k || run_now() < k->looked + (eager(k) ? EAGER_LOOK_S : LOOK_S))
        return false;
    k->looked = run_now();
    k->unseen = false;
    return true;
}

int keep_wait_ms(const struct run_keep *k)
{
    return !k ? -1 : eager(k) ? (int)(EAGER_LOOK_S * 1000) : 100;
}

bool keep_look(struct run_keep *k, pid_t pid)
{
    bool seen = uno_keeper_look(k->keeper, (int)pid) == UNO_OK;
    k->unseen = k->unseen || !seen; /* not joined yet, or no program of this library */
    return seen;
}

void keep_ended(struct run_keep *k, pid_t pid, int status)
{
    if (k)
        uno_keeper_ended(k->keeper, (int)pid, status);
}

bool keep_save(struct run_keep *k, char *text, size_t text_bytes)
{
    uno_err err = uno_keeper_save(k->keeper, k->dir, k->path, sizeof k->path);
    if (err == UNO_OK || err == UNO_ERR_IN_PROGRESS)
        return false;
    k->path[0] = 0;
    snprintf(text, text_bytes, "%s", uno_last_error(NULL));
    bool first = !k->failed;
    k->failed = true;
    return first;
}

const char *keep_path(const struct run_keep *k)
{
    return k ? k->path : "";
}

void keep_free(struct run_keep *k)
{
    if (k)
        uno_keeper_free(k->keeper);
    free(k);
}
