/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_sources.c - where a process learns its rank, the size and rank 0's address: one row per launcher, tried in order. Rank 0
 * starts the server here; the others only learn where it is.
 */
#include "boot_internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned generation;

unsigned boot_generation(void)
{
    return generation;
}

/* ---- variables ---------------------------------------------------------------------------------------------------- */

static const char *env(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

uno_err boot_env_int(const char *name, int64_t min, int64_t max, int *value)
{
    const char *s = env(name);
    int64_t v;
    if (!s)
        return err_set(UNO_ERR_CONFIG, "%s is not set", name);
    if (text_parse_int(s, min, max, &v) != UNO_OK)
        return err_wrap(UNO_ERR_CONFIG, "%s", name);
    *value = (int)v;
    return UNO_OK;
}

uno_err boot_env_int_or(const char *name, int otherwise, int *value)
{
    if (env(name))
        return boot_env_int(name, 0, BOOT_MAX_RANKS, value);
    *value = otherwise;
    return UNO_OK;
}

static uno_err env_place(const char *rank, const char *size, const char *local_rank, const char *local_size,
                         struct boot_place *place)
{
    TRY(boot_env_int(size, 1, BOOT_MAX_RANKS, &place->size));
    TRY(boot_env_int(rank, 0, place->size - 1, &place->rank));
    TRY(boot_env_int_or(local_rank, -1, &place->local_rank));
    return boot_env_int_or(local_size, -1, &place->local_size);
}

/* Each launcher's names, in the order in which they are believed. */
static const struct { const char *rank, *size, *local_rank, *local_size; } launchers[] = {
    {"UNISONO_RANK", "UNISONO_SIZE", "UNISONO_LOCAL_RANK", "UNISONO_LOCAL_SIZE"},
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};

static int launcher_now(void)
{
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++)
        if (env(launchers[i].rank) && env(launchers[i].size))
            return (int)i;
    return -1;
}

static uno_err launcher_place(struct boot_place *place)
{
    int i = launcher_now();
    if (i < 0)
        return err_set(UNO_ERR_CONFIG, "no rank and size are known; set UNISONO_RANK and UNISONO_SIZE");
    return env_place(launchers[i].rank, launchers[i].size, launchers[i].local_rank, launchers[i].local_size, place);
}

/* ---- secrets -------------------------------------------------------------------------------------------------------- */

/* What a pipe or file descriptor gave is kept: a pipe can be read once, and a process may join several times. */
static struct { bool there; char text[256]; size_t bytes; } inherited;
static pthread_mutex_t inherited_lock = PTHREAD_MUTEX_INITIALIZER;

static uno_err read_descriptor(int fd)
{
    size_t n = 0;
    uint64_t deadline = clock_after(2);
    bool pipe = lseek(fd, 0, SEEK_CUR) < 0;
    while (n < sizeof inherited.text) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (pipe && poll(&p, 1, 100) == 0) { /* a writer that forgot to close: what is there must do */
            if (n || clock_ns() > deadline)
                break;
            continue;
        }
        ssize_t got = pipe ? read(fd, inherited.text + n, sizeof inherited.text - n)
                           : pread(fd, inherited.text + n, sizeof inherited.text - n, (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(UNO_ERR_AUTH, "the job's secret cannot be read from UNISONO_SECRET_FD=%d: %s; only a launcher should "
                           "set it", fd, strerror(errno));
        if (got == 0)
            break;
        n += (size_t)got;
    }
    if (n == 0)
        return err_set(UNO_ERR_AUTH, "UNISONO_SECRET_FD=%d holds no secret; only a launcher should set it", fd);
    inherited.bytes = n;
    inherited.there = true;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return UNO_OK;
}

static uno_err secret_from_descriptor(const char *number, struct boot_id *id)
{
    int64_t fd;
    if (text_parse_int(number, 0, 1 << 20, &fd) != UNO_OK)
        return err_wrap(UNO_ERR_CONFIG, "UNISONO_SECRET_FD");
    pthread_mutex_lock(&inherited_lock);
    uno_err err = inherited.there ? UNO_OK : read_descriptor((int)fd);
    if (err == UNO_OK) {
        struct auth_key key;
        auth_derive(&key, inherited.text, inherited.bytes);
        memcpy(id->secret, key.secret, sizeof id->secret);
    }
    pthread_mutex_unlock(&inherited_lock);
    return err;
}

static uno_err secret_from_file(const char *path, struct boot_id *id)
{
    char text[4096];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(UNO_ERR_AUTH, "the secret file %s cannot be opened: %s", path, strerror(errno));
    uno_err err = UNO_OK;
    ssize_t n = 0;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (st.st_mode & 077))
        err = err_set(UNO_ERR_AUTH, "the secret file %s must be a file that only its owner can read: chmod 600 it", path);
    else if ((n = read(fd, text, sizeof text)) < 0)
        err = err_set(UNO_ERR_AUTH, "the secret file %s cannot be read: %s", path, strerror(errno));
    close(fd);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    if (err == UNO_OK && n < 8)
        err = err_set(UNO_ERR_AUTH, "the secret file %s holds fewer than 8 characters; write a long random text into it", path);
    if (err == UNO_OK) {
        struct auth_key key;
        auth_derive(&key, text, (size_t)n);
        memcpy(id->secret, key.secret, sizeof id->secret);
    }
    return err;
}

uno_err boot_secret(const struct config *cfg, const char *who_lacks_it, struct boot_id *id)
{
    if (cfg->auth == 1) {
        id->flags |= BOOT_ID_NO_AUTH;
        return UNO_OK;
    }
    if (*cfg->secret_fd)
        return secret_from_descriptor(cfg->secret_fd, id);
    if (*cfg->secret_file)
        return secret_from_file(cfg->secret_file, id);
    return err_set(UNO_ERR_AUTH,
                   "%s provides no secret for the job; set UNISONO_SECRET_FILE to a file with a random text, mode 0600, readable on "
                   "every host (or, on a network you trust, UNISONO_AUTH=none); \"unisono run\" makes a secret by itself",
                   who_lacks_it);
}

/* ---- ids that every rank computes by itself -------------------------------------------------------------------------- */

/* A job number that all ranks compute alike, from what tells this job from others, and the secret. */
static uint64_t job_number(const struct boot_id *id, const char *what)
{
    char text[512];
    snprintf(text, sizeof text, "%u %s", boot_generation(), what);
    id128 h = hash128(text, strlen(text), 0x756e6f626f6f74);
    id128 k = hash128(id->secret, sizeof id->secret, h.lo);
    return hash_mix(h.lo ^ k.hi, k.lo);
}

uno_err boot_alone(const struct config *cfg, struct boot_place *place)
{
    place->serve = true;
    return boot_make_id(cfg, &place->id);
}

uno_err boot_meet_at(const struct config *cfg, const char *host, struct boot_id *id, const char *what, struct boot_place *place)
{
    memcpy(id->magic, BOOT_ID_MAGIC, 4);
    id->job = job_number(id, what);
    if (place->rank == 0) {
        static const uint8_t loopback4[4] = {127, 0, 0, 1}, loopback6[16] = {[15] = 1};
        int listen_fd = -1;
        if (*cfg->listen_fd)
            TRY(boot_env_int("UNISONO_LISTEN_FD", 0, 1 << 20, &listen_fd));
        TRY(boot_serve(cfg, id, NULL, listen_fd));
        memcpy(id->v4[id->count4++], loopback4, 4);
        memcpy(id->v6[id->count6++], loopback6, 16);
        place->serve = true;
    } else {
        TRY(boot_id_resolve(host, id));
    }
    boot_id_write(id, &place->id);
    return UNO_OK;
}

/* A few ports after the one that the launcher's own store has. All ranks compute the same list; the handshake tells which. */
static void ports_after(struct boot_id *id, int port)
{
    enum { COUNT = 8, STEP = 3 };
    id->ports = COUNT;
    id->port_step = STEP;
    id->port = (uint16_t)(port + 1 + COUNT * STEP <= 65535 ? port + 1 : port - COUNT * STEP);
}

/* ---- UNISONO_ADDR (unisono run sets it), UNISONO_FILE ------------------------------------------------------------------ */

static bool addr_detect(const struct config *cfg)
{
    return *cfg->addr && (*cfg->rank || *cfg->size || launcher_now() >= 0);
}

static uno_err addr_split(const char *addr, char host[256], int *port)
{
    const char *colon = strrchr(addr, ':'), *end = colon;
    int64_t number;
    if (addr[0] == '[' && colon && colon > addr && colon[-1] == ']') {
        addr++;
        end = colon - 1;
    } else if (colon && strchr(addr, ':') != colon) {
        colon = NULL;
    }
    if (!colon || end == addr || end - addr > 255 || text_parse_int(colon + 1, 1, 65535, &number) != UNO_OK)
        return err_set(UNO_ERR_CONFIG, "UNISONO_ADDR=\"%.80s\" is not host:port or [address]:port with a port from 1 to 65535",
                       getenv("UNISONO_ADDR"));
    memcpy(host, addr, (size_t)(end - addr));
    host[end - addr] = 0;
    *port = (int)number;
    return UNO_OK;
}

static uno_err addr_find(const struct config *cfg, struct boot_place *place)
{
    char host[256];
    int port = 0;
    struct boot_id id = {.ports = 1};
    TRY(launcher_place(place));
    TRY(addr_split(cfg->addr, host, &port));
    snprintf(place->where, sizeof place->where, "UNISONO_ADDR=%.100s", cfg->addr);
    if (place->size == 1)
        return boot_alone(cfg, place);
    TRY(boot_secret(cfg, "UNISONO_ADDR", &id));
    id.port = (uint16_t)port;
    return boot_meet_at(cfg, host, &id, "addr", place);
}

static bool file_detect(const struct config *cfg)
{
    return *cfg->file && (*cfg->rank || *cfg->size || launcher_now() >= 0);
}

static uno_err file_find(const struct config *cfg, struct boot_place *place)
{
    TRY(launcher_place(place));
    snprintf(place->where, sizeof place->where, "UNISONO_FILE=%.100s", cfg->file);
    return place->size == 1 ? boot_alone(cfg, place) : boot_file_find(cfg, cfg->file, place);
}

/* ---- UNISONO_RANK and UNISONO_SIZE alone --------------------------------------------------------------------------------- */

static bool bare_detect(const struct config *cfg)
{
    return *cfg->rank || *cfg->size;
}

static uno_err bare_find(const struct config *cfg, struct boot_place *place)
{
    TRY(launcher_place(place));
    snprintf(place->where, sizeof place->where, "UNISONO_RANK and UNISONO_SIZE");
    if (place->size == 1)
        return boot_alone(cfg, place);
    return err_set(UNO_ERR_CONFIG, "UNISONO_RANK and UNISONO_SIZE are set, but not where rank 0 is; set UNISONO_ADDR to host:port of "
                   "rank 0, or UNISONO_FILE to a path that all ranks share");
}

/* ---- torchrun ------------------------------------------------------------------------------------------------------------ */

static bool torchrun_detect(const struct config *cfg)
{
    return env("RANK") && env("WORLD_SIZE") && env("MASTER_ADDR") && env("MASTER_PORT");
}

static uno_err torchrun_find(const struct config *cfg, struct boot_place *place)
{
    int port = 0;
    char what[256];
    struct boot_id id = {0};
    const char *run = env("TORCHELASTIC_RUN_ID"), *restart = env("TORCHELASTIC_RESTART_COUNT");
    TRY(env_place("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", place));
    TRY(boot_env_int("MASTER_PORT", 1, 65535, &port));
    snprintf(place->where, sizeof place->where, "torchrun, master %.80s:%d", env("MASTER_ADDR"), port);
    if (place->size == 1)
        return boot_alone(cfg, place);
    TRY(boot_secret(cfg, "torchrun", &id));
    ports_after(&id, port);
    snprintf(what, sizeof what, "torch %d %.100s %.20s", port, run ? run : "", restart ? restart : "");
    return boot_meet_at(cfg, env("MASTER_ADDR"), &id, what, place);
}

/* ---- Open MPI without PMIx: the session directory of one host -------------------------------------------------------------- */

static bool ompi_detect(const struct config *cfg)
{
    return env("OMPI_COMM_WORLD_RANK") && env("OMPI_COMM_WORLD_SIZE");
}

static uno_err ompi_find(const struct config *cfg, struct boot_place *place)
{
    char path[4096];
    const char *dir = env("PMIX_SERVER_TMPDIR"), *job = env("PMIX_NAMESPACE");
    TRY(env_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", place));
    snprintf(place->where, sizeof place->where, "Open MPI's session directory");
    if (place->size == 1)
        return boot_alone(cfg, place);
    if (place->local_size != place->size || !dir)
        return err_set(UNO_ERR_UNSUPPORTED, "this Open MPI job spans hosts, and PMIx is not usable here; install libpmix (libpmix2), or "
                       "set UNISONO_FILE to a path on a file system that all ranks share");
    snprintf(path, sizeof path, "%s/unisono-%s", dir, job ? job : "job");
    return boot_file_find(cfg, path, place);
}

/* ---- the table -------------------------------------------------------------------------------------------------------------- */

const struct boot_source boot_sources[] = {
    {"address", addr_detect, addr_find},        {"file", file_detect, file_find},
    {"variables", bare_detect, bare_find},      {"torchrun", torchrun_detect, torchrun_find},
    {"PMIx", boot_pmix_detect, boot_pmix_find}, {"Open MPI", ompi_detect, ompi_find},
    {"PMI", boot_pmi_detect, boot_pmi_find},    {"Slurm", boot_slurm_detect, boot_slurm_find}};
const int boot_source_count = ARRAY_LEN(boot_sources);

uno_err boot_from_env(const struct config *cfg, struct boot_place *place)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < boot_source_count; i++) {
        const struct boot_source *s = &boot_sources[i];
        if (!s->detect(cfg))
            continue;
        memset(place, 0, sizeof *place);
        place->local_rank = place->local_size = -1;
        place->source = s->name;
        pthread_mutex_lock(&lock);
        generation++;
        uno_err err = s->find(cfg, place);
        pthread_mutex_unlock(&lock);
        if (err == UNO_OK)
            LOG(LOG_INFO, LOG_BOOT, "rank %d of %d, from %s", place->rank, place->size, place->where[0] ? place->where : s->name);
        return err == UNO_OK ? err : err_wrap(err, "finding rank 0 (%s)", s->name);
    }
    return err_set(UNO_ERR_USAGE, "no launcher is there: no UNISONO_RANK, torchrun, PMIx, Open MPI, MPICH or Slurm variables");
}

/* Slurm's variables stand in batch scripts, too, where one process is right. */
bool boot_half_told(char *buf, size_t buf_bytes)
{
    static const struct { const char *rank, *size, *needs[2]; } halves[] = {{"RANK", "WORLD_SIZE", {"MASTER_ADDR", "MASTER_PORT"}},
                                                                           {"PMI_RANK", "PMI_SIZE", {"PMI_FD", "PMI_FD"}}};
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
        const char *rank = env(halves[i].rank), *size = env(halves[i].size);
        int64_t ranks;
        if (!rank || !size || text_parse_int(size, 2, BOOT_MAX_RANKS, &ranks) != UNO_OK)
            continue;
        const char *missing = env(halves[i].needs[0]) ? halves[i].needs[1] : halves[i].needs[0];
        snprintf(buf, buf_bytes, "%s=%.20s and %s=%.20s have no effect: %s is not set, so this process is a job of one rank", halves[i].rank, rank,
                 halves[i].size, size, missing);
        return true;
    }
    return false;
}
