/* SPDX-License-Identifier: Apache-2.0 */
/* flight.h - one value, from JSON or a pickle, that is PyTorch's flight-recorder dump -> facts. */
#ifndef UNO_DOCTOR_FLIGHT_H
#define UNO_DOCTOR_FLIGHT_H

#include <jansson.h>

#include "model.h"

bool flight_looks(const json_t *root);
void flight_take(struct model *m, const char *file, json_t *root);

#endif
