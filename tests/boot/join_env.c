/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join_env.c - what the conformance test starts under each launcher: joins from the environment, exchanges, twice, and prints
 * one line "joined RANK SIZE LOCAL_RANK SOURCE", or the error's name and sentence. Exit status 0 = joined.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boot/boot_internal.h"

/* PMIx leaks a little; its leaks are not ours. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libpmix";
}
const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}

static uno_err join_once(const struct config *cfg, struct boot_place *place)
{
    struct boot *boot;
    TRY(boot_from_env(cfg, place));
    TRY(boot_open(&place->id, place->rank, place->size, cfg, clock_after(cfg->join_timeout), &boot));
    int mine = place->rank * 7 + 1, *all = mem_array((size_t)place->size, sizeof *all);
    uno_err err = UNO_OK;
    for (int round = 0; round < 3 && err == UNO_OK; round++) {
        err = boot_exchange(boot, &mine, sizeof mine, all);
        for (int r = 0; r < place->size && err == UNO_OK; r++)
            if (all[r] != r * 7 + 1)
                err = err_set(UNO_ERR_INTERNAL, "rank %d is said to have contributed %d", r, all[r]);
    }
    free(all);
    boot_close(boot);
    return err;
}

int main(int argc, char **argv)
{
    struct config cfg;
    struct boot_place place = {0}, again = {0};
    uno_err err = config_load(&cfg, NULL);
    if (err == UNO_OK)
        err = join_once(&cfg, &place);
    if (err == UNO_OK)
        err = join_once(&cfg, &again); /* a second communicator of the same processes */
    if (err == UNO_OK && (again.rank != place.rank || again.size != place.size))
        err = err_set(UNO_ERR_INTERNAL, "the second place is another");
    char line[1500];
    if (err == UNO_OK)
        snprintf(line, sizeof line, "joined %d %d %d %s\n", place.rank, place.size, place.local_rank, place.source);
    else
        snprintf(line, sizeof line, "%s %s\n", uno_err_name(err), err_text());
    fputs(line, stdout); /* one write, so that lines of several processes do not mix */
    fflush(stdout);
    return err == UNO_OK ? 0 : 1;
}
