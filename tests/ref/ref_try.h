/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref_try.h - run the reference interpreter on made-up data and compare with what the collective means.
 */
#ifndef UNO_REF_TRY_H
#define UNO_REF_TRY_H

#include "ref_data.h"
#include "ref_interp.h"

struct ref_case {
    const struct plan *plan;
    enum ref_place place;
    bool lent;
    int k;
    uint64_t seed;  /* data, sizes (several tiles, uneven chunks, V forms), schedule, and which ranks are in place */
};
enum ref_fault { REF_RIGHT, REF_STUCK, REF_WRONG_DATA };
/* *fault is filled; why says where, in words. Errors: memory. */
uno_err ref_try(const struct ref_case *c, enum ref_fault *fault, char *why, size_t why_bytes);
/* Try seeds first, first + 1, ... until one shows a fault or `count` of them did not; the first fault is left. */
uno_err ref_try_many(struct ref_case c, int count, enum ref_fault *fault, char *why, size_t why_bytes);

#endif
