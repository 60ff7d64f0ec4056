/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - this machine as far as a job would mind: what the kernel shows, and probes of milliseconds. Each check is one line; what files
 * could say, too, is also given as text, so that the same rules judge it.
 */
#ifndef UNO_DOCTOR_MACHINE_H
#define UNO_DOCTOR_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

enum check_state { CHECK_GOOD, CHECK_NOTE, CHECK_BAD };

struct check {
    char name[40], value[240], advice[240]; /* advice: "" when good */
    enum check_state state;
};

struct machine {
    struct check checks[64];
    int count;
    char *text; /* what the readers are given */
    size_t text_bytes;
};

/* Look at everything. Needs no root; what only root may see is skipped. Frees with machine_free. */
void machine_look(struct machine *m);
void machine_free(struct machine *m);

#endif
