/* SPDX-License-Identifier: Apache-2.0 */
/* memory.hpp - tensors in memory that the other ranks of the host can map, so that collectives on them need no copies. */
#pragma once

#include <c10/core/Allocator.h>

#include <memory>

namespace unisono {

// For large tensors; small ones come from torch's own.
std::shared_ptr<c10::Allocator> shared_allocator();
// Make it torch's allocator for the CPU, in the whole process, or put back what was there before. Calls nest.
void push_shared_allocator();
void pop_shared_allocator();

} // namespace unisono
