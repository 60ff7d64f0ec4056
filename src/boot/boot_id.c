/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_id.c - what is inside an id: secret, job number, and where rank 0's server can be reached. An id travels through the
 * program, a file or a launcher's store; it must be kept as private as the job.
 */
#include "boot_internal.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uno_err boot_id_read(const uno_id *id, struct boot_id *out)
{
    memcpy(out, id->bytes, sizeof *out);
    if (memcmp(out->magic, BOOT_ID_MAGIC, 4) != 0)
        return err_set(UNO_ERR_ARG, "the id is not one that uno_get_id made with this version; pass rank 0's id unchanged");
    if (out->count4 > BOOT_ID_V4 || out->count6 > BOOT_ID_V6 || out->count4 + out->count6 == 0 || out->ports == 0 ||
        out->port + (out->ports - 1) * out->port_step > 65535)
        return err_set(UNO_ERR_ARG, "the id is damaged; pass rank 0's id unchanged");
    return UNO_OK;
}

void boot_id_write(const struct boot_id *in, uno_id *id)
{
    memcpy(id->bytes, in, sizeof *in);
}

void boot_id_key(const uno_id *id, struct auth_key *key, uint64_t *job)
{
    struct boot_id in;
    memcpy(&in, id->bytes, sizeof in);
    memset(key, 0, sizeof *key);
    memcpy(key->secret, in.secret, sizeof key->secret);
    key->none = in.flags & BOOT_ID_NO_AUTH;
    *job = in.job;
}

uno_err boot_id_fresh(const struct config *cfg, struct boot_id *id)
{
    memset(id, 0, sizeof *id);
    memcpy(id->magic, BOOT_ID_MAGIC, 4);
    id->ports = 1;
    TRY(auth_random(&id->job, sizeof id->job));
    TRY(auth_random(id->secret, sizeof id->secret));
    if (cfg->auth == 1) { /* UNISONO_AUTH=none */
        id->flags = BOOT_ID_NO_AUTH;
        memset(id->secret, 0, sizeof id->secret);
    }
    return UNO_OK;
}

/* Once each, as many as fit. */
static void add_address(struct boot_id *id, const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        const void *a = &((const struct sockaddr_in *)sa)->sin_addr;
        for (int i = 0; i < id->count4; i++)
            if (memcmp(id->v4[i], a, 4) == 0)
                return;
        if (id->count4 < BOOT_ID_V4)
            memcpy(id->v4[id->count4++], a, 4);
    } else if (sa->sa_family == AF_INET6) {
        const void *a = &((const struct sockaddr_in6 *)sa)->sin6_addr;
        for (int i = 0; i < id->count6; i++)
            if (memcmp(id->v6[i], a, 16) == 0)
                return;
        if (id->count6 < BOOT_ID_V6)
            memcpy(id->v6[id->count6++], a, 16);
    }
}

uno_err boot_id_local_addresses(const struct config *cfg, struct boot_id *id)
{
    static const int families[] = {0, AF_INET, AF_INET6};
    struct sock_iface *list;
    size_t n;
    TRY(sock_interfaces(cfg->socket_ifname, families[cfg->socket_family], &list, &n));
    for (size_t i = 0; i < n; i++)
        add_address(id, &list[i].addr.u.sa);
    free(list);
    return UNO_OK;
}

uno_err boot_id_resolve(const char *host, struct boot_id *id)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc != 0)
        return err_set(UNO_ERR_UNREACHABLE, "host \"%.80s\" cannot be resolved: %s; check the name or give an address", host,
                       gai_strerror(rc));
    for (struct addrinfo *f = found; f; f = f->ai_next)
        add_address(id, f->ai_addr);
    freeaddrinfo(found);
    return id->count4 + id->count6 ? UNO_OK
                                   : err_set(UNO_ERR_UNREACHABLE, "host \"%.80s\" has no IPv4 or IPv6 address", host);
}

/* A link-local address needs an interface of ours; the first usable one is the best guess there is. */
static uint32_t own_scope(void)
{
    struct sock_iface *list;
    size_t n;
    if (sock_interfaces("", AF_INET6, &list, &n) != UNO_OK)
        return 0;
    uint32_t scope = list[0].addr.u.in6.sin6_scope_id;
    free(list);
    return scope;
}

size_t boot_id_targets(const struct boot_id *id, struct sock_addr targets[BOOT_ID_TARGETS])
{
    size_t n = 0;
    for (int p = 0; p < id->ports; p++) {
        uint16_t port = htons((uint16_t)(id->port + p * id->port_step));
        for (int i = 0; i < id->count4 && n < BOOT_ID_TARGETS; i++, n++) {
            struct sock_addr *a = &targets[n];
            memset(a, 0, sizeof *a);
            a->len = sizeof a->u.in;
            a->u.in.sin_family = AF_INET;
            a->u.in.sin_port = port;
            memcpy(&a->u.in.sin_addr, id->v4[i], 4);
        }
        for (int i = 0; i < id->count6 && n < BOOT_ID_TARGETS; i++, n++) {
            struct sock_addr *a = &targets[n];
            memset(a, 0, sizeof *a);
            a->len = sizeof a->u.in6;
            a->u.in6.sin6_family = AF_INET6;
            a->u.in6.sin6_port = port;
            memcpy(&a->u.in6.sin6_addr, id->v6[i], 16);
            if (IN6_IS_ADDR_LINKLOCAL(&a->u.in6.sin6_addr))
                a->u.in6.sin6_scope_id = own_scope();
        }
    }
    return n;
}

void boot_who_am_i(struct boot_who *who, int rank, int size)
{
    memset(who, 0, sizeof *who);
    who->rank = rank;
    who->size = size;
    who->pid = (int32_t)getpid();
    if (gethostname(who->host, sizeof who->host - 1) != 0)
        snprintf(who->host, sizeof who->host, "unknown host");
}

int boot_ranges(int size, bool (*pick)(const void *arg, int rank), const void *arg, struct text *out)
{
    enum { MOST = 24 };
    int total = 0, shown = 0, ranges = 0;
    for (int r = 0; r < size; r++) {
        if (!pick(arg, r))
            continue;
        int last = r;
        while (last + 1 < size && pick(arg, last + 1))
            last++;
        total += last - r + 1;
        if (ranges < MOST) {
            text_add(out, last > r ? "%s%d-%d" : "%s%d", ranges ? ", " : "", r, last);
            shown += last - r + 1;
        }
        ranges++;
        r = last;
    }
    if (shown < total)
        text_add(out, " and %d more", total - shown);
    return total;
}

uno_err boot_make_id(const struct config *cfg, uno_id *id)
{
    struct boot_id in;
    TRY(boot_id_fresh(cfg, &in));
    TRY(boot_id_local_addresses(cfg, &in));
    TRY(boot_serve(cfg, &in, NULL, -1));
    boot_id_write(&in, id);
    return UNO_OK;
}
