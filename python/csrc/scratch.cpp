/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.hpp"

#include <unisono.h>

#include <cstring>

namespace unisono {

namespace {
constexpr size_t kKept = 64u << 20; // more than this is given back after the operation
}

Scratch::~Scratch()
{
    release();
}

void Scratch::release()
{
    (void)uno_mem_free(memory_);
    memory_ = nullptr;
    bytes_ = 0;
}

at::Tensor Scratch::get(int64_t count, at::ScalarType type)
{
    size_t need = static_cast<size_t>(count) * c10::elementSize(type);
    if (need > bytes_) {
        release();
        size_t bytes = (need + need / 4 + 4095) & ~static_cast<size_t>(4095);
        TORCH_CHECK(uno_mem_alloc(&memory_, bytes) == UNO_OK, "unisono: ", uno_last_error(nullptr));
        bytes_ = bytes;
    }
    return at::from_blob(memory_, {count}, at::TensorOptions().dtype(type));
}

void Scratch::done()
{
    if (bytes_ > kKept)
        release();
}

bool adjacent(const std::vector<at::Tensor> &tensors)
{
    const char *at = nullptr;
    for (const at::Tensor &t : tensors) {
        if (!t.is_contiguous())
            return false;
        if (t.numel() == 0)
            continue;
        const char *here = static_cast<const char *>(t.const_data_ptr());
        if (at && here != at)
            return false;
        at = here + t.nbytes();
    }
    return true;
}

void copy_into(const at::Tensor &to, const at::Tensor &from)
{
    if (to.scalar_type() == from.scalar_type() && to.is_contiguous() && from.is_contiguous() && to.numel() == from.numel()) {
        if (to.numel() && to.data_ptr() != from.const_data_ptr())
            std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
        return;
    }
    if (to.is_contiguous())
        to.view(from.sizes()).copy_(from);
    else
        to.copy_(from.view(to.sizes()));
}

int64_t total(const std::vector<at::Tensor> &tensors)
{
    int64_t n = 0;
    for (const at::Tensor &t : tensors)
        n += t.numel();
    return n;
}

} // namespace unisono
