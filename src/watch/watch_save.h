/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_save.h - facts of this host's ranks as files, for who asks after the end: in a folder of ours under UNISONO_LEDGER_DIR, one
 * file a job and host, which holds one record a rank (verdict_encode), one behind the other. Private to src/watch.
 */
#ifndef UNO_WATCH_SAVE_H
#define UNO_WATCH_SAVE_H

#include "base/base.h"

#define SAVE_MOST_FILES 64
#define SAVE_MOST_BYTES (256ull << 20) /* of all files together; the oldest are removed */

/* Write `bytes` of data to <dir>/unisono-<uid>/<name> so that readers see the old file or the new one; then remove the oldest files beyond
 * the limits. The folder is made with 0700 and must be a folder of this user that nobody else may write, no link; files have 0600.
 * path: where it is. May block as long as the file system does. UNO_ERR_SYSTEM, UNO_ERR_USAGE with a sentence; nothing half written stays. */
uno_err save_file(const char *dir, const char *name, const void *data, size_t bytes, char *path, size_t path_bytes);

#endif
