/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_post.h - when ledgers are saved (UNISONO_LEDGER_DIR). Private to src/watch, on the steward's thread only.
 */
#ifndef UNO_WATCH_POST_H
#define UNO_WATCH_POST_H

#include "base/base.h"

struct watch;
void post_soon(struct watch *w);  /* a rank of this host died, or a verdict was made: save soon, and again when more is known; the hub's task */
void post_timer(struct watch *w, uint64_t now);
uint64_t post_next_ns(const struct watch *w);
void post_end(struct watch *w);   /* the steward ends: what is due is saved now */

#endif
