/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_make.c - the public entry points that make, divide, ask and end communicators. How is in join.c, split.c and shrink.c.
 */
#include "comm.h"

#include <string.h>

uno_err uno_get_id(uno_id *id)
{
    if (!id)
        return err_set(UNO_ERR_ARG, "uno_get_id: id is NULL");
    struct config cfg;
    TRY(config_load(&cfg, NULL));
    return boot_make_id(&cfg, id);
}

uno_err uno_comm_init_rank(uno_comm **comm, int nranks, const uno_id *id, int rank, const uno_config *config)
{
    if (!comm || !id)
        return err_set(UNO_ERR_ARG, "uno_comm_init_rank: %s is NULL", comm ? "id" : "comm");
    if (nranks < 1)
        return err_set(UNO_ERR_ARG, "uno_comm_init_rank: %d ranks; at least 1 is needed", nranks);
    if (rank < 0 || rank >= nranks)
        return err_set(UNO_ERR_ARG, "uno_comm_init_rank: rank %d of %d ranks; legal are 0 to %d", rank, nranks, nranks - 1);
    *comm = NULL;
    if (!group_open())
        return join_id(comm, nranks, id, rank, config);
    struct group_join note = {.comm = comm, .nranks = nranks, .rank = rank, .id = *id, .config = UNO_CONFIG_INIT};
    if (config)
        note.config = *config;
    return group_note_join(&note);
}

uno_err uno_comm_init_env(uno_comm **comm, const uno_config *config)
{
    if (!comm)
        return err_set(UNO_ERR_ARG, "uno_comm_init_env: comm is NULL");
    *comm = NULL;
    return join_env(comm, config);
}

uno_err uno_comm_init_all(uno_comm **comms, int n, const uno_config *config)
{
    if (!comms || n < 1)
        return err_set(UNO_ERR_ARG, "uno_comm_init_all: %s", comms ? "at least 1 rank is needed" : "comms is NULL");
    return join_all(comms, n, config);
}

static uno_err inside_group(const char *call)
{
    return err_set(UNO_ERR_USAGE, "%s inside a group: it needs answers of other ranks at once; call it after uno_group_end", call);
}

static uno_err split(uno_comm *comm, int color, int key, uno_comm **newcomm, const uno_config *config, const char *call, const void *call_site)
{
    TRY(comm_enter(comm));
    uno_err err;
    if (!newcomm)
        err = err_set(UNO_ERR_ARG, "%s: newcomm is NULL", call);
    else if (color < 0 && color != UNO_NO_COLOR)
        err = err_set(UNO_ERR_ARG, "uno_comm_split: color %d is negative and not UNO_NO_COLOR", color);
    else if (group_open())
        err = inside_group(call);
    else
        err = join_split(comm, color, key, config, call_site, newcomm);
    return comm_leave(comm, err);
}

uno_err uno_comm_split(uno_comm *comm, int color, int key, uno_comm **newcomm, const uno_config *config)
{
    return split(comm, color, key, newcomm, config, __func__, __builtin_return_address(0));
}

uno_err uno_comm_dup(uno_comm *comm, uno_comm **newcomm, const uno_config *config)
{
    return split(comm, 0, 0, newcomm, config, __func__, __builtin_return_address(0));
}

uno_err uno_comm_create_group(uno_comm *comm, const int *ranks, int nranks, const uno_id *id, uno_comm **newcomm, const uno_config *config)
{
    TRY(comm_enter_failed(comm));
    uno_err err;
    if (!ranks || !id || !newcomm)
        err = err_set(UNO_ERR_ARG, "uno_comm_create_group: %s is NULL", !ranks ? "ranks" : !id ? "id" : "newcomm");
    else if (nranks < 1 || nranks > comm->size)
        err = err_set(UNO_ERR_ARG, "uno_comm_create_group: %d ranks; legal are 1 to %d", nranks, comm->size);
    else if (group_open())
        err = inside_group("uno_comm_create_group");
    else
        err = join_create_group(comm, ranks, nranks, id, config, newcomm);
    return comm_leave(comm, err);
}

uno_err uno_comm_shrink(uno_comm *comm, const int *exclude, int nexclude, uno_comm **newcomm, const uno_config *config)
{
    TRY(comm_enter_failed(comm));
    uno_err err;
    if (!newcomm || (!exclude && nexclude > 0) || nexclude < 0)
        err = err_set(UNO_ERR_ARG, "uno_comm_shrink: %s", !newcomm ? "newcomm is NULL" : nexclude < 0 ? "nexclude is negative" : "exclude is NULL");
    else if (group_open())
        err = inside_group("uno_comm_shrink");
    else
        err = comm_shrink(comm, exclude, nexclude, config, newcomm);
    return comm_leave(comm, err);
}

uno_err uno_comm_finalize(uno_comm *comm)
{
    TRY(interrupt_check());
    if (comm && comm->magic == COMM_MAGIC && comm->fork_generation == fork_generation() && comm_adopt(comm) != UNO_OK) {
        atomic_store(&comm->finalized, 1);
        engine_fail_all(comm);
        return UNO_OK; /* failed: nothing can be finished, and the cause was told by the failing call */
    }
    TRY(comm_enter(comm));
    if (group_holds(comm))
        return comm_leave(comm, err_set(UNO_ERR_USAGE, "uno_comm_finalize: the open group holds calls of this communicator"));
    uno_err err = engine_drain(comm);
    atomic_store(&comm->finalized, 1);
    atomic_store_explicit(&comm->region->goodbye, NET_GOODBYE_FINALIZED, memory_order_release); /* pairs with the acquire in said_goodbye */
    return comm_leave(comm, err);
}

uno_err uno_comm_destroy(uno_comm *comm)
{
    if (!comm)
        return UNO_OK;
    if (fork_generation() > 0 && comm->magic == COMM_MAGIC && comm->fork_generation != fork_generation())
        return UNO_OK; /* the parent owns it; memory of a forked child goes with the child */
    if (!job_knows(comm)) /* looked up, not looked into: it may be freed */
        return err_set(UNO_ERR_ARG, "uno_comm_destroy: not a communicator of this process (destroyed before?)");
    TRY(interrupt_check());
    if (group_holds(comm))
        return err_set(UNO_ERR_USAGE, "uno_comm_destroy: the open group holds calls of this communicator");
    if (!atomic_load(&comm->finalized) || comm_adopt(comm) != UNO_OK)
        (void)uno_comm_finalize(comm);
    if (atomic_load_explicit(&comm->region->goodbye, memory_order_relaxed) == 0) /* it had failed; release: as in finalize */
        atomic_store_explicit(&comm->region->goodbye, NET_GOODBYE_FINALIZED, memory_order_release);
    atomic_fetch_add_explicit(&comm->aborts, 1, memory_order_relaxed);
    job_unlist(comm); /* first: whom jobs_snapshot still finds, it may hold again */
    engine_wait_unused(comm);
    if (engine_busy(comm)) { /* by a thread that called while this one finalized */
        (void)comm_fail(comm, UNO_ERR_ABORTED, comm->rank, true, "the communicator was destroyed before the operation began");
        engine_fail_all(comm);
    }
    requests_orphan(comm);
    comm_free(comm);
    return UNO_OK;
}

uno_err uno_comm_abort(uno_comm *comm)
{
    if (!comm || comm->magic != COMM_MAGIC)
        return err_set(UNO_ERR_ARG, "uno_comm_abort: not a communicator");
    if (comm->fork_generation != fork_generation())
        return err_set(UNO_ERR_USAGE, "uno_comm_abort in a forked child");
    char name[100], text[128];
    comm_rank_name(comm, comm->rank, name, sizeof name);
    snprintf(text, sizeof text, "%s called uno_comm_abort", name);
    (void)comm_fail(comm, UNO_ERR_ABORTED, comm->rank, true, text);
    atomic_fetch_add_explicit(&comm->aborts, 1, memory_order_relaxed); /* a number that shrink_run looks at */
    engine_kick();
    return UNO_OK;
}

uno_err uno_comm_async_error(uno_comm *comm, uno_err *async)
{
    if (!comm || comm->magic != COMM_MAGIC || !async)
        return err_set(UNO_ERR_ARG, "uno_comm_async_error: %s", async ? "not a communicator" : "async is NULL");
    *async = comm_adopt(comm);
    if (*async != UNO_OK)
        comm_keep_error(comm);
    return UNO_OK;
}

uno_err uno_comm_set_timeout(uno_comm *comm, double timeout_s)
{
    struct config cfg;
    TRY(comm_enter_failed(comm));
    if (!(timeout_s > 0 || timeout_s < 0))
        return comm_leave(comm, err_set(UNO_ERR_ARG, "uno_comm_set_timeout: %g s; legal is more than 0, or less for the default", timeout_s));
    uno_err err = config_load(&cfg, &(struct config_program){.timeout_s = timeout_s, .join_timeout_s = -1});
    if (err == UNO_OK)
        comm_timeout_set(comm, cfg.timeout);
    return comm_leave(comm, err);
}

int uno_comm_rank(const uno_comm *comm)
{
    return comm && comm->magic == COMM_MAGIC ? comm->rank : -1;
}

int uno_comm_size(const uno_comm *comm)
{
    return comm && comm->magic == COMM_MAGIC ? comm->size : -1;
}
