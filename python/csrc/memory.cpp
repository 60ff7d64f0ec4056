/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.hpp"

#include <c10/core/CPUAllocator.h>

#include <unisono.h>

#include <cstring>
#include <mutex>

namespace unisono {

namespace {

constexpr size_t kLarge = 64u << 10; // below, a copy costs less than the pages

class SharedAllocator final : public c10::Allocator {
 public:
    c10::DataPtr allocate(size_t bytes) override
    {
        if (bytes < kLarge)
            return c10::GetDefaultCPUAllocator()->allocate(bytes);
        void *memory = nullptr;
        TORCH_CHECK_WITH(OutOfMemoryError, uno_mem_alloc(&memory, bytes) == UNO_OK, "unisono: shared memory for a tensor: ",
                         uno_last_error(nullptr));
        return {memory, memory, &SharedAllocator::give_back, at::Device(at::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; } // which of both it was, only its DataPtr knows
    void copy_data(void *to, const void *from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
    static void give_back(void *memory) { (void)uno_mem_free(memory); }
};

std::mutex swapping;
int depth;
c10::Allocator *before;

// torch takes an allocator of the priority in force or a higher one, does not tell which is in force, and never lowers it: the lowest
// that is enough leaves it as it was.
void put(c10::Allocator *allocator)
{
    for (int priority = 0; priority <= UINT8_MAX && c10::GetCPUAllocator() != allocator; priority++)
        c10::SetCPUAllocator(allocator, static_cast<uint8_t>(priority));
}

} // namespace

std::shared_ptr<c10::Allocator> shared_allocator()
{
    static auto *ours = new std::shared_ptr<c10::Allocator>(std::make_shared<SharedAllocator>()); // tensors may outlive everything
    return *ours;
}

void push_shared_allocator()
{
    std::lock_guard<std::mutex> lock(swapping);
    if (depth++ > 0)
        return;
    before = c10::GetCPUAllocator();
    put(shared_allocator().get());
}

void pop_shared_allocator()
{
    std::lock_guard<std::mutex> lock(swapping);
    if (--depth == 0 && c10::GetCPUAllocator() == shared_allocator().get()) // else somebody has set another one meanwhile
        put(before);
}

} // namespace unisono
