/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_slurm.c - a step of Slurm: rank 0 runs on the first host of the step's node list. Ports come from the step's reserved ones,
 * else from the job's number. Slurm hands out no secret.
 */
#include "boot_internal.h"

#include <stdlib.h>
#include <string.h>

static const char *env(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

bool boot_slurm_first_host(const char *list, char *host, size_t host_bytes)
{
    size_t n = 0;
    for (const char *p = list; *p && *p != ','; p++) {
        if (*p == '[') { /* the first of "07-09,12" */
            const char *close = strchr(p, ']');
            size_t digits = strcspn(p + 1, "-,]");
            if (!close || digits == 0 || n + digits >= host_bytes)
                return false;
            memcpy(host + n, p + 1, digits);
            n += digits;
            p = close;
            continue;
        }
        if (n + 1 >= host_bytes || *p == ']' || *p == ' ')
            return false;
        host[n++] = *p;
    }
    host[n] = 0;
    return n > 0;
}

static const char *step_id(void)
{
    return env("SLURM_STEP_ID") ? env("SLURM_STEP_ID") : env("SLURM_STEPID");
}

/* In a batch script SLURM_PROCID is 0 too, but no step is running: that is one process, not a job of many. */
bool boot_slurm_detect(const struct config *cfg)
{
    return env("SLURM_PROCID") && (env("SLURM_STEP_NUM_TASKS") || env("SLURM_NTASKS")) && step_id();
}

/* "12345-12350", or a range computed from the job's number. */
static void choose_ports(struct boot_id *id, const char *job, const char *step)
{
    const char *reserved = env("SLURM_STEP_RESV_PORTS");
    int first = 0, last = 0, n = reserved ? sscanf(reserved, "%d-%d", &first, &last) : 0;
    if (n == 1)
        last = first;
    if (n >= 1 && first > 0 && last >= first && last <= 65535) {
        id->port = (uint16_t)first;
        id->ports = (uint8_t)MIN(last - first + 1, 8);
        id->port_step = 1;
        return;
    }
    char text[128];
    snprintf(text, sizeof text, "%.60s.%.60s", job, step);
    id->port = (uint16_t)(20000 + hash128(text, strlen(text), 0).lo % 12000); /* below what Linux hands out by itself */
    id->ports = 8;
    id->port_step = 3;
}

uno_err boot_slurm_find(const struct config *cfg, struct boot_place *place)
{
    char host[256], what[160];
    struct boot_id id = {0};
    const char *nodes = env("SLURM_STEP_NODELIST") ? env("SLURM_STEP_NODELIST") : env("SLURM_JOB_NODELIST");
    const char *job = env("SLURM_JOB_ID") ? env("SLURM_JOB_ID") : "0", *step = step_id();
    TRY(boot_env_int(env("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", 1, BOOT_MAX_RANKS, &place->size));
    TRY(boot_env_int("SLURM_PROCID", 0, place->size - 1, &place->rank));
    TRY(boot_env_int_or("SLURM_LOCALID", -1, &place->local_rank));
    if (place->size == 1)
        return boot_alone(cfg, place);
    if (!nodes || !boot_slurm_first_host(nodes, host, sizeof host))
        return err_set(UNO_ERR_CONFIG, "SLURM_STEP_NODELIST=\"%.100s\" names no host", nodes ? nodes : "");
    snprintf(place->where, sizeof place->where, "Slurm, rank 0 on %.80s", host);
    TRY(boot_secret(cfg, "Slurm", &id));
    choose_ports(&id, job, step);
    snprintf(what, sizeof what, "slurm %.60s.%.60s", job, step);
    return boot_meet_at(cfg, host, &id, what, place);
}
