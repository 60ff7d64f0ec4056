/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_pmix.c - PMIx (Open MPI's mpirun, PRRTE, Slurm with --mpi=pmix): rank 0 puts its id, the others get it, which waits until it is
 * there. The library is opened at run time, so that nobody depends on it who does not use it. It is finalized at exit: earlier,
 * an MPI that starts later in the same program finds nothing, and without it a process counts as a failed one.
 */
#include "boot_internal.h"

#include <stdlib.h>
#include <string.h>

#ifdef UNO_HAVE_PMIX
#include <dlfcn.h>
#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static struct {
    void *lib;
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
    pmix_status_t (*finalize)(const pmix_info_t *, size_t);
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
    pmix_status_t (*commit)(void);
    pmix_status_t (*get_nb)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_cbfunc_t, void *);
    const char *(*text)(pmix_status_t);
} pmix;

/* Opened once and kept: closing a library with threads of its own is not safe. */
static bool open_library(void)
{
    if (pmix.lib)
        return true;
    void *lib = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!lib)
        return false;
    *(void **)&pmix.init = dlsym(lib, "PMIx_Init");
    *(void **)&pmix.finalize = dlsym(lib, "PMIx_Finalize");
    *(void **)&pmix.put = dlsym(lib, "PMIx_Put");
    *(void **)&pmix.commit = dlsym(lib, "PMIx_Commit");
    *(void **)&pmix.get_nb = dlsym(lib, "PMIx_Get_nb");
    *(void **)&pmix.text = dlsym(lib, "PMIx_Error_string");
    if (!pmix.init || !pmix.finalize || !pmix.put || !pmix.commit || !pmix.get_nb || !pmix.text)
        return false;
    pmix.lib = lib;
    return true;
}

/* A request that may be answered after we have given up: the last of the two sides frees it. */
struct request {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int refs;
    bool done;
    pmix_status_t status;
    uint32_t number;
    char text[2 * UNO_ID_BYTES + 1];
    char key[64];
};

static void request_release(struct request *r)
{
    int left = --r->refs;
    pthread_mutex_unlock(&r->lock);
    if (left)
        return;
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->answered);
    free(r);
}

static void on_value(pmix_status_t status, pmix_value_t *v, void *arg)
{
    struct request *r = arg;
    pthread_mutex_lock(&r->lock);
    r->status = status;
    if (status == PMIX_SUCCESS && v && v->type == PMIX_STRING && v->data.string)
        snprintf(r->text, sizeof r->text, "%s", v->data.string);
    else if (status == PMIX_SUCCESS && v && v->type == PMIX_UINT32)
        r->number = v->data.uint32;
    else if (status == PMIX_SUCCESS && v && v->type == PMIX_UINT16)
        r->number = v->data.uint16;
    r->done = true;
    pthread_cond_signal(&r->answered);
    request_release(r);
}

static struct request *request_new(const char *key)
{
    struct request *r = mem_zalloc(sizeof *r);
    if (!r)
        return NULL;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->answered, &attr);
    pthread_condattr_destroy(&attr);
    snprintf(r->key, sizeof r->key, "%s", key);
    r->refs = 2;
    return r;
}

/* Get a key of `rank`; text and number: out, NULL = not wanted. */
static uno_err get(const pmix_proc_t *me, pmix_rank_t rank, const char *key, uint64_t deadline_ns, char *text, size_t text_bytes,
                   uint32_t *number)
{
    pmix_proc_t who = *me;
    who.rank = rank;
    struct request *r = request_new(key);
    if (!r)
        return UNO_ERR_MEMORY;
    struct timespec until = {.tv_sec = (time_t)MIN(deadline_ns / 1000000000, 1u << 30), .tv_nsec = (long)(deadline_ns % 1000000000)};
    pmix_status_t status = pmix.get_nb(&who, r->key, NULL, 0, on_value, r);
    pthread_mutex_lock(&r->lock);
    if (status != PMIX_SUCCESS) { /* then nobody calls back */
        r->refs--;
        r->done = true;
        r->status = status;
    }
    while (!r->done && pthread_cond_timedwait(&r->answered, &r->lock, &until) != ETIMEDOUT)
        ;
    uno_err err = UNO_OK;
    if (!r->done)
        err = err_set(UNO_ERR_TIMEOUT, "PMIx did not answer before the deadline; rank 0 has not come to join");
    else if (r->status != PMIX_SUCCESS)
        err = err_set(UNO_ERR_UNREACHABLE, "PMIx has no value for \"%s\": %s", key, pmix.text(r->status));
    if (err == UNO_OK && text)
        snprintf(text, text_bytes, "%s", r->text);
    if (err == UNO_OK && number)
        *number = r->number;
    request_release(r);
    return err;
}

/* Some servers wait until rank 0 has put the key, others say at once that it is not there. */
static uno_err get_when_there(const pmix_proc_t *me, const char *key, uint64_t deadline_ns, char *text, size_t text_bytes)
{
    for (long pause_ns = 1000000;; pause_ns = MIN(pause_ns * 2, 50000000)) {
        uno_err err = get(me, 0, key, deadline_ns, text, text_bytes, NULL);
        if (err != UNO_ERR_UNREACHABLE || clock_ns() + (uint64_t)pause_ns > deadline_ns)
            return err;
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    }
}

static uno_err put(const char *key, const uno_id *id)
{
    char hex[2 * UNO_ID_BYTES + 1];
    for (int i = 0; i < UNO_ID_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", id->bytes[i]);
    pmix_value_t v = {.type = PMIX_STRING};
    v.data.string = hex;
    pmix_status_t status = pmix.put(PMIX_GLOBAL, key, &v);
    if (status == PMIX_SUCCESS)
        status = pmix.commit();
    return status == PMIX_SUCCESS ? UNO_OK
                                  : err_set(UNO_ERR_UNREACHABLE, "PMIx does not take the id of rank 0: %s", pmix.text(status));
}

static uno_err share(const struct config *cfg, const pmix_proc_t *me, struct boot_place *place)
{
    char key[64], hex[2 * UNO_ID_BYTES + 1];
    uint64_t deadline = clock_after(cfg->join_timeout);
    uint32_t size = 0, local = 0;
    TRY(get(me, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, deadline, NULL, 0, &size));
    place->rank = (int)me->rank;
    place->size = (int)size;
    if (get(me, me->rank, PMIX_LOCAL_RANK, deadline, NULL, 0, &local) == UNO_OK)
        place->local_rank = (int)local;
    if (get(me, PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, deadline, NULL, 0, &local) == UNO_OK)
        place->local_size = (int)local;
    snprintf(key, sizeof key, "unisono.id.%u", boot_generation());
    if (place->size == 1)
        return boot_alone(cfg, place);
    if (place->rank == 0) {
        place->serve = true;
        TRY(boot_make_id(cfg, &place->id));
        return put(key, &place->id);
    }
    TRY(get_when_there(me, key, deadline, hex, sizeof hex));
    for (int i = 0; i < UNO_ID_BYTES; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return err_set(UNO_ERR_PARSE, "PMIx gave back a damaged id");
        place->id.bytes[i] = (unsigned char)byte;
    }
    return UNO_OK;
}

bool boot_pmix_detect(const struct config *cfg)
{
    return getenv("PMIX_RANK") && getenv("PMIX_NAMESPACE") && open_library();
}

static pmix_proc_t self;
static pid_t self_pid;

static void finalize_at_exit(void)
{
    if (getpid() == self_pid) /* not in a forked child */
        pmix.finalize(NULL, 0);
}

static uno_err init_once(void)
{
    if (self_pid == getpid())
        return UNO_OK;
    pmix_status_t status = pmix.init(&self, NULL, 0);
    if (status != PMIX_SUCCESS)
        return err_set(UNO_ERR_UNREACHABLE, "PMIX_RANK is set, but PMIx cannot be initialised: %s", pmix.text(status));
    self_pid = getpid();
    atexit(finalize_at_exit);
    return UNO_OK;
}

uno_err boot_pmix_find(const struct config *cfg, struct boot_place *place)
{
    TRY(init_once());
    snprintf(place->where, sizeof place->where, "PMIx, job %.80s", self.nspace);
    return share(cfg, &self, place);
}

#else /* built without the feature: Open MPI on one host still works through its session directory */

bool boot_pmix_detect(const struct config *cfg)
{
    return false;
}

uno_err boot_pmix_find(const struct config *cfg, struct boot_place *place)
{
    return err_set(UNO_ERR_UNSUPPORTED, "this library was built without PMIx");
}
#endif
