/* SPDX-License-Identifier: Apache-2.0 */
/* perf_buffers.c - the buffers of one crew's ranks: how large they may be, and where they come from. */
#include "perf_sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

long sweep_status_kb(const char *path, const char *field)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kb = strtol(line + strlen(field), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static double ranks_here(const struct sweep *s)
{
    int hosts = uno_comm_hosts(s->c->all[0]);
    return ceil((double)s->c->world / (hosts > 0 ? hosts : 1));
}

/* The largest size whose buffers fit: two a rank, twice that for --limit, all ranks of this host. All crews agree. */
uno_err sweep_max_bytes(struct sweep *s)
{
    double memory = 1024.0 * (double)sweep_status_kb("/proc/meminfo", "MemAvailable:") * 0.9;
    double each = ranks_here(s) * 2.0 * (s->o->limit ? 2.0 : 1.0);
    double max_bytes = (double)s->o->max_bytes;
    while (memory > 0 && max_bytes * each > memory && max_bytes > (double)PAGE)
        max_bytes = floor(max_bytes / 2);
    double least = -max_bytes;
    TRY(perf_max(s->c, &least, 1));
    s->max_bytes = (size_t)-least;
    return UNO_OK;
}

static size_t last_cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0)
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : (size_t)32 << 20;
}

/* Cold buffers: what the ranks of a host send from, and what they receive into, is twice the last cache; at most 512 MB a buffer. */
static size_t buffer_size(const struct sweep *s)
{
    size_t bytes = s->max_bytes;
    if (s->o->buffers == BUFFERS_COLD) {
        size_t round = (size_t)(2.0 * (double)last_cache_bytes() / ranks_here(s)), most = (size_t)512 << 20;
        bytes = bytes * 2 > round ? bytes * 2 : round;
        if (bytes > most)
            bytes = most > s->max_bytes ? most : s->max_bytes;
    }
    return (bytes + (size_t)s->o->unalign * 16 + PAGE) / PAGE * PAGE + PAGE;
}

static bool get_memory(struct sweep *s, char **p)
{
    void *memory = NULL;
    if (s->o->shared_memory) {
        if (uno_mem_alloc(&memory, s->buffer_bytes) != UNO_OK)
            return false;
    } else if (posix_memalign(&memory, PAGE, s->buffer_bytes) != 0) {
        return false;
    }
    memset(memory, 0, s->buffer_bytes); /* touched before anything is timed */
    *p = memory;
    return true;
}

void sweep_buffers_free(struct sweep *s)
{
    for (int i = 0; s->buffers && i < s->c->mine; i++) {
        char *both[2] = {s->buffers[i].send, s->buffers[i].recv};
        for (int b = 0; b < 2; b++)
            if (s->o->shared_memory)
                uno_mem_free(both[b]);
            else
                free(both[b]);
    }
    free(s->buffers);
    free(s->ops);
    free(s->times);
}

int sweep_buffers(struct sweep *s)
{
    s->buffer_bytes = buffer_size(s);
    s->buffers = calloc((size_t)s->c->mine, sizeof *s->buffers);
    s->ops = calloc((size_t)s->c->mine, sizeof *s->ops);
    bool ok = s->buffers && s->ops;
    if (s->o->per_iter || s->o->percentiles) {
        s->times = calloc((size_t)s->o->iters, sizeof *s->times);
        ok = ok && s->times;
    }
    for (int i = 0; ok && i < s->c->mine; i++)
        ok = get_memory(s, &s->buffers[i].send) && get_memory(s, &s->buffers[i].recv);
    char size[32];
    return ok ? CLI_GOOD
              : perf_fail_text(s->c, "rank %d: no memory for two buffers of %s; make -e smaller", s->c->place,
                               out_bytes(size, sizeof size, s->buffer_bytes));
}
