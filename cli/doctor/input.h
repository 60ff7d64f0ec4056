/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - reading files, folders, standard input and texts into a model. True = something of it was read. */
#ifndef UNO_DOCTOR_INPUT_H
#define UNO_DOCTOR_INPUT_H

#include "model.h"

bool input_read(struct model *m, const char *path);
bool input_read_text(struct model *m, const char *name, const char *text, size_t bytes);

#endif
