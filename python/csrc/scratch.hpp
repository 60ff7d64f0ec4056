/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch.hpp - tensors as the library wants them: one piece of memory. What already lies so is used where it is; the rest is
 * copied through memory that a group keeps between calls.
 */
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace unisono {

// Memory for one operation at a time; grows, and is given back when it was large.
class Scratch {
 public:
    ~Scratch();
    // A flat tensor of `count` elements. Valid until the next call of get or done.
    at::Tensor get(int64_t count, at::ScalarType type);
    void done();
    void forget() { memory_ = nullptr; } // in a forked child, where it is not ours

 private:
    void release();
    void *memory_ = nullptr;
    size_t bytes_ = 0;
};

// Do the tensors lie one behind the other, in order, each dense? Then the first one's data is all of them.
bool adjacent(const std::vector<at::Tensor> &tensors);
// Elementwise; one of both is in one piece, and may have another shape.
void copy_into(const at::Tensor &to, const at::Tensor &from);
int64_t total(const std::vector<at::Tensor> &tensors);

} // namespace unisono
