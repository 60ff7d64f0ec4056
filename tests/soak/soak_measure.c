/* SPDX-License-Identifier: Apache-2.0 */
/* soak_measure.c - what a process holds: memory and descriptors. */
#include "soak.h"

#include <dirent.h>
#include <malloc.h>

/* Private and shared memory, without files. */
static long memory_kb(void)
{
    char line[256];
    long sum = 0, kb;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %ld", &kb) == 1 || sscanf(line, "RssShmem: %ld", &kb) == 1)
            sum += kb;
    if (f)
        fclose(f);
    return sum;
}

static long descriptors(void)
{
    long n = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n - 1; /* without the one that looks */
}

struct soak_measure soak_held(void)
{
    malloc_trim(0);
    return (struct soak_measure){memory_kb(), descriptors()};
}

uno_err soak_measure(struct soak *s, struct soak_measure *m)
{
    TRY(soak_calm(s));
    TRY(uno_barrier(s->places[0].comm, NULL));
    *m = soak_held();
    return uno_barrier(s->places[0].comm, NULL);
}
