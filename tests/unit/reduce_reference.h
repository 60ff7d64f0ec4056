/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_reference.h - reductions by their definition, for test_exec_reduce.c: narrow floats by comparing doubles, and every operation
 * one element at a time. Slow, and written so that it can be read.
 */
#ifndef REDUCE_REFERENCE_H
#define REDUCE_REFERENCE_H

#include "exec/exec_kernels.h"

#define REF_MOST_OPERANDS 9
#define REF_FORMATS 4

/* beyond: the code after the largest finite value; nan: the one that is made. */
struct format { uno_type type; int mant, bias; unsigned beyond, nan; };
extern const struct format ref_formats[REF_FORMATS];

const struct format *ref_format(uno_type type);    /* NULL: no narrow one */
unsigned ref_sign_bit(const struct format *f);
double ref_magnitude(const struct format *f, unsigned code);
float ref_widen(const struct format *f, unsigned code);
unsigned ref_narrow(const struct format *f, float x);
unsigned ref_code(const struct format *f, const void *p, size_t i); /* element i of an array */
/* One element of a reduction of n operands. op: UNO_OP_DYNAMIC for premulsum. */
void ref_element(uno_type t, int op, void *out, const void *const *ops, int n, const struct reduce_scale *sc);

#endif
