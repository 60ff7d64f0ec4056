/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.hpp - the operations of one group, in order of issue. One runs at a time: in the caller's thread when nothing stands
 * before it, else in whichever thread comes first, one of the queue's or the one that waits for it. Who waits does not sleep while
 * there is something that it could run itself.
 */
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace unisono {

class Queue;

// A collective: what torch waits for, and, until it has run, what is to be done.
class QueuedWork : public c10d::Work {
 public:
    QueuedWork(int rank, c10d::OpType op, const char *title, const std::optional<std::vector<at::Tensor>> &inputs,
               std::vector<at::Tensor> outputs, uint64_t sequence);

    bool isCompleted() override { return done_.load(std::memory_order_acquire); }
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override { wait(kNoTimeout); }
    bool wait(std::chrono::milliseconds timeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override { return sequence_; }

    // It has ended: who waits for it goes on. Its future, if somebody has one, is the caller's to mark.
    c10::intrusive_ptr<c10::ivalue::Future> end(std::exception_ptr error);
    // It ran before anybody else could see it.
    void end_unseen(std::exception_ptr error);
    // Runs callbacks of that future, in this thread; nothing for NULL.
    void mark(const c10::intrusive_ptr<c10::ivalue::Future> &future);

 private:
    friend class Queue;
    std::vector<at::Tensor> outputs_;
    const uint64_t sequence_;
    std::function<void()> body_;      // under the queue's lock until it is taken
    std::shared_ptr<Queue> queue_;    // NULL: it ran at once
    c10::intrusive_ptr<c10::ivalue::Future> future_; // under mutex_
    std::atomic<bool> done_{false};   // release after everything above; pairs with isCompleted
};
using QueuedPtr = c10::intrusive_ptr<QueuedWork>;

class Queue : public std::enable_shared_from_this<Queue> {
 public:
    // May the caller run an operation now? Then nobody else does until release().
    bool claim();
    void release();
    void push(const QueuedPtr &work, std::function<void()> body);
    // The caller waits for `work`: run what is queued up to it, as long as nobody else runs.
    void help(const QueuedWork *work);
    // What is queued is run, then the threads end; later claims and pushes are refused.
    void stop();
    // As stop, but waits for nobody.
    void refuse();
    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

 private:
    void thread_main();
    void run_front(std::unique_lock<std::mutex> &lock);
    void want_thread();               // lock held: somebody must come to run the queue

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<QueuedPtr> waiting_;
    bool running_ = false;
    std::atomic<bool> stopped_{false}; // written under mutex_; alone it is only a first look, claim() and push() decide
    int threads_ = 0, idle_ = 0;
};

// "unisono:all_reduce" for the profiler, when one listens; else nothing, which costs nothing.
const char *title_if_profiled(const char *title);

} // namespace unisono
