/* SPDX-License-Identifier: Apache-2.0 */
/* p2p.hpp - what torch waits for: a send or receive, which goes on beside the collectives; and several works as one. */
#pragma once

#include "backend.hpp"

namespace unisono {

class P2pWork : public c10d::Work {
 public:
    // wire: the memory that moves; into: where it goes after a receive when that lies otherwise.
    P2pWork(int rank, c10d::OpType op, const char *title, const std::optional<Tensors> &inputs, at::Tensor tensor, at::Tensor wire,
            uint64_t sequence);
    ~P2pWork() override;

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override { return {tensor_}; }
    void synchronize() override { wait(kNoTimeout); }
    bool wait(Millis timeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override { return sequence_; }

    uno_request *request = nullptr;   // under busy_ after the start

 private:
    void ended(uno_err err, const uno_status &status);
    void take(std::unique_lock<std::timed_mutex> &busy, std::chrono::steady_clock::time_point end);
    at::Tensor tensor_, wire_;
    const uint64_t sequence_;
    std::timed_mutex busy_;           // one thread asks the library at a time
    std::atomic<bool> done_{false};
    int source_ = -1;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class AllWork : public c10d::Work {
 public:
    AllWork(int rank, std::vector<WorkPtr> parts) : c10d::Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}
    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(Millis timeout) override;
    void synchronize() override { wait(kNoTimeout); }
    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
    std::vector<WorkPtr> parts_;
};

} // namespace unisono
