/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_unwind.h - the native stack of a thread that waits in the kernel, read from outside: nothing is sent to it, so nothing that it
 * waits for ends early. Where a thread runs, a signal asks it (watch_stack.h). Private to src/watch; no threads, no sockets.
 */
#ifndef UNO_WATCH_UNWIND_H
#define UNO_WATCH_UNWIND_H

#include "watch/watch_symbols.h"

/* The addresses at which that thread waits and to which its calls will return, top first; symbols: of its process. Returns how many of at
 * most `most`; the first *sure of them are certain, what follows goes by a frame that was searched for. 0: it runs, has gone on
 * meanwhile, waits for a disk, may not be read, or is on a processor whose frames are not known here. Ends early where a frame cannot
 * be read (code made at run time, a file that was deleted, a handler of a signal), and at until_ns. May hang where the process's files or memory do. */
uint32_t unwind_waiting(struct symbols *symbols, int32_t pid, int32_t tid, uint64_t *pc, uint32_t most, uint32_t *sure,
                        uint64_t until_ns);

#endif
