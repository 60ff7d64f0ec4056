/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_journal.c - a long walk in pieces: a file says which walk it is and how far it came; the next start goes on there. Rank 0
 * writes it, whoever starts the ranks reads it before.
 */
#include "conform.h"

#include <string.h>

static const char form[] = "%79[^:]: next %zu, %ld passed, %ld failed\n";

uno_err journal_read(struct journal *j, const char *path, const char *carrier, int ranks, uint64_t seed, size_t cases)
{
    char walk[80];
    *j = (struct journal){.path = path, .cases = cases};
    snprintf(j->walk, sizeof j->walk, "%d ranks, %s, seed %llu, %zu cases", ranks, carrier, (unsigned long long)seed, cases);
    FILE *f = fopen(path, "re");
    if (!f)
        return UNO_OK;
    int n = fscanf(f, form, walk, &j->next, &j->passed, &j->failed);
    fclose(f);
    if (n != 4 || strcmp(walk, j->walk) != 0 || j->next > cases)
        return err_set(UNO_ERR_CONFIG, "%s is not of this walk (%s); remove it to begin anew", path, j->walk);
    return UNO_OK;
}

void journal_note(struct journal *j, bool now)
{
    char temp[4096];
    uint64_t ns = clock_ns();
    if (!now && ns - j->written_ns < 1000000000u)
        return;
    j->written_ns = ns;
    snprintf(temp, sizeof temp, "%s.new", j->path);
    FILE *f = fopen(temp, "we");
    bool ok = f && fprintf(f, "%s: next %zu, %ld passed, %ld failed\n", j->walk, j->next, j->passed, j->failed) > 0;
    ok = f && fclose(f) == 0 && ok;
    if (!ok || rename(temp, j->path) != 0)
        fprintf(stderr, "conform: %s cannot be written; the walk will begin anew\n", j->path);
}
