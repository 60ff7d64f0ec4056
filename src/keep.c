/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.c - the public names of the keeper and of the table of ends (unisono_watch.h), which live in src/watch.
 */
#include "unisono_watch.h"
#include "watch/watch.h"

static struct watch_keeper *inner(uno_keeper *k)
{
    return (struct watch_keeper *)k;
}

uno_err uno_keeper_new(uno_keeper **keeper)
{
    if (!keeper)
        return err_set(UNO_ERR_ARG, "uno_keeper_new: keeper is NULL");
    struct watch_keeper *k = NULL;
    uno_err err = keeper_new(&k);
    *keeper = (uno_keeper *)k;
    return err;
}

uno_err uno_keeper_look(uno_keeper *keeper, int pid)
{
    return keeper ? keeper_look(inner(keeper), pid) : err_set(UNO_ERR_ARG, "uno_keeper_look: keeper is NULL");
}

size_t uno_keeper_pids(int *pids, size_t most)
{
    return pids ? keeper_pids(pids, most) : 0;
}

uno_err uno_keeper_look_around(uno_keeper *keeper, int pid)
{
    return keeper ? keeper_look_around(inner(keeper), pid) : err_set(UNO_ERR_ARG, "uno_keeper_look_around: keeper is NULL");
}

void uno_keeper_ended(uno_keeper *keeper, int pid, int status)
{
    if (keeper)
        keeper_ended(inner(keeper), pid, status);
}

uno_err uno_keeper_facts(uno_keeper *keeper, int look, void **data, size_t *bytes)
{
    if (!keeper || !data || !bytes)
        return err_set(UNO_ERR_ARG, "uno_keeper_facts: %s is NULL", !keeper ? "keeper" : data ? "bytes" : "data");
    return keeper_facts(inner(keeper), look != 0, data, bytes);
}

uno_err uno_keeper_gather(uno_keeper *keeper, void **data, size_t *bytes)
{
    if (!keeper || !data || !bytes)
        return err_set(UNO_ERR_ARG, "uno_keeper_gather: %s is NULL", !keeper ? "keeper" : data ? "bytes" : "data");
    return keeper_gather(inner(keeper), data, bytes);
}

uno_err uno_keeper_ask(uno_keeper *keeper)
{
    return keeper ? keeper_ask(inner(keeper)) : err_set(UNO_ERR_ARG, "uno_keeper_ask: keeper is NULL");
}

uno_err uno_keeper_answer(uno_keeper *keeper, void **data, size_t *bytes)
{
    if (!keeper || !data || !bytes)
        return err_set(UNO_ERR_ARG, "uno_keeper_answer: %s is NULL", !keeper ? "keeper" : data ? "bytes" : "data");
    return keeper_answer(inner(keeper), data, bytes);
}

uno_err uno_keeper_save(uno_keeper *keeper, const char *dir, char *path, size_t path_bytes)
{
    if (!keeper || !dir || !path)
        return err_set(UNO_ERR_ARG, "uno_keeper_save: %s is NULL", !keeper ? "keeper" : dir ? "path" : "dir");
    return keeper_save(inner(keeper), dir, path, path_bytes);
}

uno_err uno_keeper_said(uno_keeper *keeper, char *text, size_t text_bytes)
{
    if (!keeper || !text || !text_bytes)
        return err_set(UNO_ERR_ARG, "uno_keeper_said: %s", !keeper ? "keeper is NULL" : text ? "text_bytes is 0" : "text is NULL");
    return keeper_said(inner(keeper), text, text_bytes);
}

void uno_keeper_free(uno_keeper *keeper)
{
    keeper_free(inner(keeper));
}

/* ---- ends ------------------------------------------------------------------------------------------------------------------- */

uno_err uno_ends_new(int size, uno_ends **ends)
{
    if (!ends)
        return err_set(UNO_ERR_ARG, "uno_ends_new: ends is NULL");
    struct ends *e = NULL;
    uno_err err = ends_new(size, &e);
    *ends = (uno_ends *)e;
    return err;
}

int uno_ends_fd(const uno_ends *ends)
{
    return ends ? ends_fd((const struct ends *)ends) : -1;
}

void uno_ends_ask(uno_ends *ends, int signal)
{
    if (ends)
        ends_ask((struct ends *)ends, signal);
}

void uno_ends_looked(uno_ends *ends, int rank)
{
    if (ends)
        ends_looked((struct ends *)ends, rank);
}

void uno_ends_begin(uno_ends *ends, int signal)
{
    if (ends)
        ends_begin((struct ends *)ends, signal);
}

void uno_ends_seen(uno_ends *ends, int rank, int pid, int status, uno_end *end)
{
    if (end)
        ends_seen((struct ends *)ends, rank, pid, status, end);
}

uno_err uno_ends_put(uno_ends *ends, const uno_end *end)
{
    if (!end)
        return err_set(UNO_ERR_ARG, "uno_ends_put: end is NULL");
    return ends ? ends_put((struct ends *)ends, end) : UNO_OK;
}

void uno_ends_free(uno_ends *ends)
{
    ends_free((struct ends *)ends);
}
