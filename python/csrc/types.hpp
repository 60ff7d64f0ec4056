/* SPDX-License-Identifier: Apache-2.0 */
/* types.hpp - what a tensor's elements and torch's reductions are called in the library. */
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <unisono.h>

namespace unisono {

// Elements of the library that make one element of the tensor: complex numbers may be pairs of reals, and what the library
// has no type for moves as bytes.
struct Wire {
    uno_type type;
    size_t per_element;
};
Wire wire_to_move(at::ScalarType type);
// TypeError where the reduction is not defined for the type.
Wire wire_to_reduce(at::ScalarType type, c10d::ReduceOp::RedOpType op);
uno_op op_of(c10d::ReduceOp::RedOpType op);
// The factor of a premul sum, as one element of `type` in `buf`.
void write_factor(const c10d::ReduceOp &op, at::ScalarType type, unsigned char buf[16]);

} // namespace unisono
