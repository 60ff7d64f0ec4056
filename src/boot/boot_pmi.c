/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_pmi.c - MPICH's process manager (Hydra): the PMI-1 wire protocol, lines of "key=value" words over the inherited descriptor
 * PMI_FD. Rank 0 puts its id, all pass one barrier, the others get it. finalize closes the descriptor, which a later communicator
 * or MPI in the same program still needs, so it is sent at exit; a process that ends without it makes Hydra end the job.
 */
#include "boot_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2048
#define KEY "unisono-id-%u"

struct pmi { int fd; uint64_t deadline_ns; char line[LINE_BYTES]; };

/* One answer line. */
static uno_err read_line(struct pmi *p, const char *what)
{
    size_t n = 0;
    while (n + 1 < sizeof p->line) {
        uint64_t now = clock_ns();
        int ms = p->deadline_ns == UINT64_MAX ? -1 : now >= p->deadline_ns ? 0 : (int)MIN((p->deadline_ns - now) / 1000000 + 1, 1000000);
        struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
        if (poll(&poll_fd, 1, ms) == 0)
            return err_set(UNO_ERR_TIMEOUT, "the process manager did not answer %s before the deadline; not every rank of the job has "
                           "come to join", what);
        ssize_t got = read(p->fd, p->line + n, 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return err_set(UNO_ERR_UNREACHABLE, "the process manager ended the connection (PMI_FD) during %s", what);
        if (p->line[n] == '\n') {
            p->line[n] = 0;
            return UNO_OK;
        }
        n++;
    }
    return err_set(UNO_ERR_PARSE, "the process manager answered %s with a line of more than %d bytes", what, LINE_BYTES);
}

/* Value of a word of the line, copied; false if it is not there. */
static bool word(const char *line, const char *key, char *out, size_t out_bytes)
{
    size_t len = strlen(key);
    for (const char *w = line; *w;) {
        size_t n = strcspn(w, " ");
        if (n > len && strncmp(w, key, len) == 0 && w[len] == '=') {
            snprintf(out, out_bytes, "%.*s", (int)(n - len - 1), w + len + 1);
            return true;
        }
        w += n;
        w += strspn(w, " ");
    }
    return false;
}

/* Send `line` and expect an answer whose cmd is `answer`, and rc=0 if it has one. */
static uno_err ask(struct pmi *p, const char *answer, const char *fmt, ...) UNO_PRINTF(3, 4);
static uno_err ask(struct pmi *p, const char *answer, const char *fmt, ...)
{
    char line[LINE_BYTES], cmd[64] = "", rc[16] = "0", what[64];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    snprintf(what, sizeof what, "%.*s", (int)strcspn(line, " \n"), line);
    for (int done = 0; done < n;) {
        ssize_t put = send(p->fd, line + done, (size_t)(n - done), MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_set(UNO_ERR_UNREACHABLE, "the process manager does not listen on PMI_FD=%d: %s; after MPI_Finalize it no longer does", p->fd, strerror(errno));
        done += (int)put;
    }
    TRY(read_line(p, what));
    word(p->line, "cmd", cmd, sizeof cmd);
    word(p->line, "rc", rc, sizeof rc);
    if (strcmp(cmd, answer) != 0 || strcmp(rc, "0") != 0)
        return err_set(UNO_ERR_PARSE, "the process manager answered %s with \"%.120s\"", what, p->line);
    return UNO_OK;
}

static int exit_fd = -1;
static pid_t exit_pid;

/* If MPI has said finalize itself, the descriptor is closed at the other side, and this fails without a word. */
static void finalize_at_exit(void)
{
    struct pmi p = {.fd = exit_fd, .deadline_ns = clock_after(1)};
    if (getpid() == exit_pid)
        (void)!ask(&p, "finalize_ack", "cmd=finalize\n");
}

static uno_err finalize_later(int fd)
{
    if (exit_pid == getpid())
        return UNO_OK;
    exit_fd = fd;
    exit_pid = getpid();
    return atexit(finalize_at_exit) == 0 ? UNO_OK : err_set(UNO_ERR_MEMORY, "no memory for an exit handler");
}

static void to_hex(const uno_id *id, char hex[2 * UNO_ID_BYTES + 1])
{
    for (int i = 0; i < UNO_ID_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", id->bytes[i]);
}

static bool from_hex(const char *hex, uno_id *id)
{
    if (strlen(hex) != 2 * UNO_ID_BYTES)
        return false;
    for (int i = 0; i < UNO_ID_BYTES; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return false;
        id->bytes[i] = (unsigned char)byte;
    }
    return true;
}

bool boot_pmi_detect(const struct config *cfg)
{
    return getenv("PMI_FD") && getenv("PMI_RANK") && getenv("PMI_SIZE");
}

static uno_err share(struct pmi *p, const struct config *cfg, struct boot_place *place)
{
    char space[256] = "", hex[2 * UNO_ID_BYTES + 1] = "";
    TRY(finalize_later(p->fd));
    TRY(ask(p, "my_kvsname", "cmd=get_my_kvsname\n"));
    word(p->line, "kvsname", space, sizeof space);
    if (place->rank == 0) {
        TRY(boot_make_id(cfg, &place->id));
        place->serve = true;
        to_hex(&place->id, hex);
        TRY(ask(p, "put_result", "cmd=put kvsname=%s key=" KEY " value=%s\n", space, boot_generation(), hex));
    }
    TRY(ask(p, "barrier_out", "cmd=barrier_in\n"));
    if (place->rank == 0)
        return UNO_OK;
    TRY(ask(p, "get_result", "cmd=get kvsname=%s key=" KEY "\n", space, boot_generation()));
    word(p->line, "value", hex, sizeof hex);
    return from_hex(hex, &place->id) ? UNO_OK : err_set(UNO_ERR_PARSE, "the process manager gave back a damaged id");
}

uno_err boot_pmi_find(const struct config *cfg, struct boot_place *place)
{
    struct pmi p = {.deadline_ns = clock_after(cfg->join_timeout)};
    TRY(boot_env_int("PMI_SIZE", 1, BOOT_MAX_RANKS, &place->size));
    TRY(boot_env_int("PMI_RANK", 0, place->size - 1, &place->rank));
    TRY(boot_env_int("PMI_FD", 0, 1 << 20, &p.fd));
    TRY(boot_env_int_or("MPI_LOCALRANKID", -1, &place->local_rank));
    TRY(boot_env_int_or("MPI_LOCALNRANKS", -1, &place->local_size));
    snprintf(place->where, sizeof place->where, "MPICH's process manager (PMI)");
    return place->size == 1 ? boot_alone(cfg, place) : share(&p, cfg, place);
}
