/* SPDX-License-Identifier: Apache-2.0 */
/* shell.h - what the three files of the reader of scripts share. */
#ifndef UNO_DOCTOR_SHELL_H
#define UNO_DOCTOR_SHELL_H

#include "reader.h"

struct shell_state {
    char joined[LINE_BYTES]; /* a command over several lines, each ended by a backslash */
    size_t used;
    int used_lines;
    long first_line;
    int commands, loops, loop; /* numbers given so far; the loop that is open, 0 = none */
    char pending[96];          /* YAML: "- name: X" waits for "value: Y" */
};

/* True for names whose values a doctor wants to know. */
bool shell_wanted(const char *name, size_t bytes);

void shell_setting(struct model *m, const struct line *l, const char *name, size_t name_bytes, const char *value, size_t value_bytes, const char *how, bool blank);

/* Variables in dictionaries, in options of containers and launchers, in units and lists (read_config.c). True = the line was nothing else. */
bool shell_config(struct model *m, const struct line *l, const char *text);

/* Read a command line: launchers in their order, their options, loops, what is put in the background. True = it is one. */
bool shell_command(struct model *m, struct shell_state *s, const struct line *l, const char *text);

#endif
