/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.h - the command that starts this program on another host: ssh, or what --launcher says, {host} standing for the name. For `unisono run`
 * and `unisono doctor --hosts`; what the two say to each other then is theirs.
 */
#ifndef UNISONO_CLI_REMOTE_H
#define UNISONO_CLI_REMOTE_H

#include <stdbool.h>

struct remote_command {
    char **word;  /* NULL-terminated, for execvp */
    int n;
    char *shown;  /* "ssh -T ... nodeB", for sentences; NULL without memory */
};

/* Fill *c with the command that runs `program first second` on `host`. launcher: NULL = ssh; program: NULL = the path of this one. False
 * without memory, or when a quote in the path cannot be given to a remote shell. Freed with remote_free in any case. */
bool remote_make(struct remote_command *c, const char *launcher, const char *program, const char *host, const char *first, const char *second);
void remote_free(struct remote_command *c);

/* In the child that fork made: stand in its own group with default signals and these descriptors, and become the command. */
_Noreturn void remote_become(char **word, int in, int out, int err);

#endif
