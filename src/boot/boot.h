/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot.h - ranks find each other: exchange(rank, size, bytes) -> everyone's bytes. Used once per communicator made from an id
 * or the environment, by join.c; then closed. Sources of rank, size and address: an id, launchers' variables, PMIx, a file.
 */
#ifndef UNO_BOOT_H
#define UNO_BOOT_H

#include "base/base.h"
#include "base/base_auth.h"
#include "base/base_config.h"

#define BOOT_MAX_RANKS 65536

struct boot_id;   /* what is inside uno_id: version, secret, job number, port, addresses */

/* Make an id and start serving it: a thread of this process collects the blobs of all ranks and answers with all of them.
 * It ends by itself when everyone is served or join_timeout passes. Listens on the interfaces of cfg->socket_ifname. */
uno_err boot_make_id(const struct config *cfg, uno_id *id);

struct boot_place {
    int rank, size;
    int local_rank, local_size;  /* -1 = not told */
    uno_id id;                   /* complete: secret, job, address(es) of rank 0's server */
    bool serve;                  /* this process serves (rank 0): the server has been started or port is to be bound */
    const char *source;          /* row name */
    char where[128];             /* "torchrun, master 10.0.0.1:29500" for messages */
};

/* What `unisono run` gives each rank (cli/run_team.c): UNISONO_RANK, UNISONO_SIZE, UNISONO_LOCAL_RANK, UNISONO_LOCAL_SIZE,
 * UNISONO_HOST, UNISONO_ADDR = "ip:port" of rank 0 as reachable from there, UNISONO_SECRET_FD = an own sealed memfd with the
 * secret as 64 hexadecimal characters (read with pread from 0, leave it open), and to rank 0 alone UNISONO_LISTEN_FD = the
 * socket that already listens (all addresses, close-on-exec off) at UNISONO_ADDR's port: serve on it instead of binding. Other
 * hosts may have tried it: connections that close without a word are normal. */

/* One row per source, tried in this order; the first whose detect() says yes is used:
 * unisono run, UNISONO_RANK/SIZE + ADDR or FILE, torchrun (RANK WORLD_SIZE MASTER_ADDR MASTER_PORT), PMIx (feature),
 * Open MPI (OMPI_COMM_WORLD_*), MPICH/Hydra (PMI_*), Slurm (SLURM_PROCID SLURM_NTASKS SLURM_STEP_NODELIST). */
struct boot_source {
    const char *name;
    bool (*detect)(const struct config *cfg);
    /* Fill rank, size, local facts and how to reach rank 0. */
    uno_err (*find)(const struct config *cfg, struct boot_place *place);
};

extern const struct boot_source boot_sources[];
extern const int boot_source_count;
/* Find rank, size and id from the environment; UNO_ERR_USAGE when no source is there (then size is 1 by convention). */
uno_err boot_from_env(const struct config *cfg, struct boot_place *place);
/* No source is there, but variables of one say that there are more ranks: which, and what is missing beside them. false: none do. */
bool boot_half_told(char *buf, size_t buf_bytes);

struct boot;
/* Connect to the id's server as `rank` of `size`. deadline_ns covers all later calls too. */
uno_err boot_open(const uno_id *id, int rank, int size, const struct config *cfg, uint64_t deadline_ns, struct boot **boot);
/* The same, for who may hear meanwhile that waiting is in vain. check is asked every 100 ms while others are waited for, here and in
 * boot_exchange; what it returns besides UNO_OK ends the call with its sentence. Its word wins over the server's. For members of a
 * communicator: rank is a place among them, and sentences say so. */
struct boot_ask { uno_err (*check)(void *arg); void *arg; };
uno_err boot_open_asking(const uno_id *id, int rank, int size, const struct config *cfg, uint64_t deadline_ns, const struct boot_ask *ask,
                         struct boot **boot);
/* Collective: all[r * bytes] = rank r's `mine`; bytes equal on all ranks. May be called several times. On the deadline
 * UNO_ERR_TIMEOUT, the sentence lists the missing ranks (as ranges: "3, 7-9"); UNO_ERR_MISMATCH: two processes with one
 * rank, or different sizes, naming both by host and pid. */
uno_err boot_exchange(struct boot *boot, const void *mine, size_t bytes, void *all);
void boot_close(struct boot *boot);
/* Secret and job number of an id, for net and watch. */
void boot_id_key(const uno_id *id, struct auth_key *key, uint64_t *job);

#endif
