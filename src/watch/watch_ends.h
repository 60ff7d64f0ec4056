/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_ends.h - the reader's side of the table in which a launcher tells how processes ended (uno_ends in unisono_watch.h; the
 * writer's side stands in watch.h). A steward maps it and asks when it saw an end and nobody else says how. Private to src/watch.
 */
#ifndef UNO_WATCH_ENDS_H
#define UNO_WATCH_ENDS_H

#include "base/base.h"
#include "unisono_watch.h"

struct ends; /* one mapping */
/* descriptor: what UNISONO_ENDS_FD says, "" or NULL = nothing. Returns NULL: there is no table; why is said at INFO. */
struct ends *ends_open(const char *descriptor);
void ends_close(struct ends *e); /* NULL is allowed */
/* The calling process, to which the launcher gave the number `launched`, says whose memory.events count its kills, and how many so
 * far: only it knows where it went, and after a SIGKILL nobody does. Nothing where there is no such number. */
void ends_note(const struct ends *e, int launched, const char *cgroup, uint64_t oom_kills);
/* A launcher that asks for it sees what this process shows of itself before it can end: wakes it, and waits for a moment. */
void ends_show(const struct ends *e, int launched);
/* Changes whenever something new stands there. e may be NULL, here and below. */
uint32_t ends_changes(const struct ends *e);
/* What is told of the process that the launcher gave this number, if that is process pid. false: nothing (yet). */
bool ends_find(const struct ends *e, int launched, int32_t pid, uno_end *end);
/* Does the launcher's process on this host end its ranks by itself? *signal: which one ended it, 0 = it lost its launcher. */
bool ends_begun(const struct ends *e, int *signal);
/* As words behind a subject: "was killed by signal 9 (SIGKILL)". At most 400 bytes. Returns buf. */
char *ends_text(const uno_end *end, char *buf, size_t buf_bytes);

#endif
