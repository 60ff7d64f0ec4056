/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_stack.h - native stacks of threads that run, or wait in ways that a signal does not cut short. The process that is asked installs one handler for a real-time signal
 * that nobody has taken; who asks claims a place on its board, sends the signal to one thread, reads the addresses and names them.
 * Needs no thread and no socket of the process that is asked. Private to src/watch.
 */
#ifndef UNO_WATCH_STACK_H
#define UNO_WATCH_STACK_H

#include "watch/watch_board.h"
#include "watch/watch_proc.h"
#include "watch/watch_symbols.h"

/* The owner's side. serve: install the handler once a process, answer requests on this page. */
void stack_serve(struct board_page *p);
void stack_forget(struct board_page *p);
void stack_forked(void);
void stack_check(struct board_page *p); /* now and then: has the program taken the signal after all? Then no more requests */

/* The asker's side, in two steps, so that many can be asked before one waits. place: 0 = the thread that calls us, 1 = main.
 * before: what proc_spot said a moment ago; NULL = it waits inside a call of ours, which takes an interruption. False: not asked, also
 * when the signal could end a sleep or a timed wait of the program early. */
bool stack_ask(struct board_page *p, int place, int32_t tid, const struct proc_spot *before);
bool stack_ready(struct board_page *p, int place);
uint32_t stack_take(struct board_page *p, int place, uint64_t pc[BOARD_FRAMES]); /* top first; gives the place back. 0: no answer */

/* Append "function+0x2c (program)\n", "? function+0x2c (program)\n" if it is not sure. returns: pc lies behind a call. False: no room.
 * in_library: set where it is sure, and of ours. */
bool stack_name(struct symbols *symbols, uint64_t pc, bool returns, bool sure, char *buf, size_t buf_bytes, bool *in_library);

#endif
