/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - what main.c and the subcommands share. Tools see the public headers and this folder, nothing of src/.
 * Exit statuses of every subcommand: 0 = done and good, 1 = done and the answer is bad (wrong results, a refuted plan,
 * a failed rank), 2 = not done: bad options, bad input, or an error, with a sentence on stderr.
 */
#ifndef UNO_CLI_H
#define UNO_CLI_H

enum { CLI_GOOD = 0, CLI_BAD = 1, CLI_ERROR = 2 };

#define COMMAND(name, help) int cmd_##name(int argc, char **argv);
#include "commands.def"
#undef COMMAND

#endif
