/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_internal.h - private to src/boot: what is inside an id, the frames between a rank and the server, and the helpers of
 * the sources.
 */
#ifndef UNO_BOOT_INTERNAL_H
#define UNO_BOOT_INTERNAL_H

#include "base/base_sock.h"
#include "boot.h"

/* ---- the id (boot_id.c): 128 bytes, little-endian ------------------------------------------------------------- */
#define BOOT_ID_MAGIC "uno\1"
#define BOOT_ID_NO_AUTH 1      /* flags */
#define BOOT_ID_V4 7
#define BOOT_ID_V6 3
struct boot_id {
    char magic[4];
    uint8_t flags;
    uint8_t count4, count6;    /* addresses of the server, any of them */
    uint8_t ports;             /* the server has one of `ports` ports: port, port + port_step, ... Never 0 */
    uint64_t job;              /* two jobs with one secret never meet */
    uint8_t secret[AUTH_SECRET_BYTES];
    uint16_t port;
    uint16_t port_step;
    uint8_t v4[BOOT_ID_V4][4];
    uint8_t v6[BOOT_ID_V6][16];
};
_Static_assert(sizeof(struct boot_id) == UNO_ID_BYTES, "an id is what the public header says");

/* UNO_ERR_ARG when the bytes are no id of this version. */
uno_err boot_id_read(const uno_id *id, struct boot_id *out);
void boot_id_write(const struct boot_id *in, uno_id *id);
/* Random secret and job; none if cfg says so. */
uno_err boot_id_fresh(const struct config *cfg, struct boot_id *id);
/* Put this host's addresses in. */
uno_err boot_id_local_addresses(const struct config *cfg, struct boot_id *id);
/* Put the addresses of `host` in; UNO_ERR_UNREACHABLE when it does not resolve. */
uno_err boot_id_resolve(const char *host, struct boot_id *id);
/* All (address, port) pairs to try, best first; at most BOOT_ID_TARGETS. */
#define BOOT_ID_TARGETS 32
size_t boot_id_targets(const struct boot_id *id, struct sock_addr targets[BOOT_ID_TARGETS]);

/* ---- frames ---------------------------------------------------------------------------------------------------------- */
enum boot_frame_type {
    BOOT_JOIN = 1,    /* rank -> server, after the handshake: struct boot_who */
    BOOT_WELCOME,     /* server -> rank: struct boot_who of the server */
    BOOT_OTHER,       /* server -> rank: another job (or an earlier communicator) is served here; try again */
    BOOT_PUT,         /* rank -> server: its contribution to `round` */
    BOOT_ALL,         /* server -> rank: everyone's */
    BOOT_LATE,        /* rank -> server: my deadline has passed; who is missing? */
    BOOT_ERROR,       /* server -> rank: `code` and a sentence; the last frame */
    BOOT_BYE,         /* rank -> server: this rank needs nothing more; with a code: it gave up, and nobody needs to wait for it */
    BOOT_FRAME_TYPES
};
struct boot_frame {
    uint32_t type, code;
    uint64_t round, bytes; /* bytes that follow */
};
struct boot_who {
    int32_t rank, size, pid;
    char host[64];
    uint8_t by_place;      /* it joins members of a communicator, and rank is its place among them (boot_open_asking) */
    uint8_t reserved[3];
};
void boot_who_am_i(struct boot_who *who, int rank, int size);
#define BOOT_MAX_BYTES (1u << 20)  /* a rank's contribution */
#define BOOT_MAX_REPLY (1u << 30)
#define BOOT_SHORT_NS 2000000000ull /* a want of descriptors or memory that lasts longer does not pass by itself */
#define BOOT_HALF_OPEN 64

/* "3, 7-9" of the ranks for which pick() says yes; after `most` ranges "and 12 more". Returns how many. */
int boot_ranges(int size, bool (*pick)(const void *arg, int rank), const void *arg, struct text *out);

/* ---- server (boot_server.c) ----------------------------------------------------------------------------------------- */
/* Bind one of id's ports (0 = any), start the thread, and leave in *id the port that was bound. unlink_path: removed when
 * the server ends, if it still holds this id; NULL = none. listen_fd: a listening socket to use instead; -1 = none; it stays open. */
uno_err boot_serve(const struct config *cfg, struct boot_id *id, const char *unlink_path, int listen_fd);
/* Servers of this process that are still running; for tests, and for who wants to bind a port again. */
int boot_servers_running(void);

/* ---- client (boot_client.c) --------------------------------------------------------------------------------------------- */
/* Is this id's job served? One handshake, then closed. */
uno_err boot_probe(const struct boot_id *id, uint64_t deadline_ns);

/* ---- sources -------------------------------------------------------------------------------------------------------------- */
/* How often this process has joined from the environment; keeps a second communicator apart from the first. */
unsigned boot_generation(void);
/* An integer variable; UNO_ERR_CONFIG names it when it is no number in [min, max]. */
uno_err boot_env_int(const char *name, int64_t min, int64_t max, int *value);
/* As boot_env_int; an unset variable gives `otherwise`. */
uno_err boot_env_int_or(const char *name, int otherwise, int *value);
/* The secret the settings provide (descriptor, file, or none); UNO_ERR_AUTH explains what to do when there is none. */
uno_err boot_secret(const struct config *cfg, const char *who_lacks_it, struct boot_id *id);
/* The shared file of one job. Rank 0 makes the id and publishes it; others wait for one that is served. */
uno_err boot_file_find(const struct config *cfg, const char *path, struct boot_place *place);
/* The end of a find() for size 1: an id of its own, no secret needed. */
uno_err boot_alone(const struct config *cfg, struct boot_place *place);

/* Rank 0 serves on one of id's ports; the others resolve `host`. All ranks compute the same job number from `what`. */
uno_err boot_meet_at(const struct config *cfg, const char *host, struct boot_id *id, const char *what, struct boot_place *place);

/* boot_pmi.c: the PMI-1 wire protocol over PMI_FD. Rank 0's id goes to everybody. */
bool boot_pmi_detect(const struct config *cfg);
uno_err boot_pmi_find(const struct config *cfg, struct boot_place *place);
/* boot_pmix.c: PMIx, loaded at run time. Without the feature detect() says no. */
bool boot_pmix_detect(const struct config *cfg);
uno_err boot_pmix_find(const struct config *cfg, struct boot_place *place);
/* boot_slurm.c: first host of a node list such as "gpu[07-09,12],login"; false when it has no meaning. */
bool boot_slurm_first_host(const char *list, char *host, size_t host_bytes);
bool boot_slurm_detect(const struct config *cfg);
uno_err boot_slurm_find(const struct config *cfg, struct boot_place *place);

#endif
