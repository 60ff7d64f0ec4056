/* SPDX-License-Identifier: Apache-2.0 */
/* torch.h - what the two files of the PyTorch reader share. */
#ifndef UNO_DOCTOR_TORCH_H
#define UNO_DOCTOR_TORCH_H

#include "reader.h"

/* How programs end: exit codes, tracebacks, exceptions, torchrun's summary, progress bars of what a rank did last. True = known. */
bool torch_ends(struct model *m, struct context *c, const struct line *l);
void torch_ends_file(struct model *m, struct context *c, const char *file);

#endif
