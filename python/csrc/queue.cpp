/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.hpp"

#include "errors.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <utility>

namespace unisono {

namespace {

constexpr auto kWakePeriod = std::chrono::milliseconds(100);
constexpr int kMostThreads = 64; // callbacks may wait for operations, which then need a thread more

// Copies between strides are not part of anybody's graph.
struct Plain {
    at::AutoDispatchBelowADInplaceOrView below;
    at::NoGradGuard no_grad;
};

std::exception_ptr run(const std::function<void()> &body)
{
    try {
        Plain plain;
        body();
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

} // namespace

const char *title_if_profiled(const char *title)
{
    return at::isRecordFunctionEnabled() && at::hasCallbacks() ? title : nullptr;
}

/* ---- work ----------------------------------------------------------------------------------------------------------- */

QueuedWork::QueuedWork(int rank, c10d::OpType op, const char *title, const std::optional<std::vector<at::Tensor>> &inputs,
                       std::vector<at::Tensor> outputs, uint64_t sequence)
    : c10d::Work(rank, op, title, inputs), outputs_(std::move(outputs)), sequence_(sequence)
{
}

bool QueuedWork::isSuccess() const
{
    return done_.load(std::memory_order_acquire) && !exception_;
}

std::exception_ptr QueuedWork::exception() const
{
    return done_.load(std::memory_order_acquire) ? exception_ : nullptr;
}

std::vector<at::Tensor> QueuedWork::result()
{
    TORCH_CHECK(isCompleted(), "unisono: the result of an operation that has not ended; wait for it first");
    return outputs_;
}

void QueuedWork::abort()
{
    TORCH_CHECK(false, "unisono: one operation cannot be taken back; abort() of its process group ends them all");
}

void QueuedWork::mark(const c10::intrusive_ptr<c10::ivalue::Future> &future)
{
    if (!future)
        return;
    if (exception_)
        future->setError(exception_);
    else
        future->markCompleted(c10::IValue(outputs_));
}

c10::intrusive_ptr<c10::ivalue::Future> QueuedWork::getFuture()
{
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (future_)
            return future_;
        future = future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        if (!completed_)
            return future;
    }
    mark(future);
    return future;
}

c10::intrusive_ptr<c10::ivalue::Future> QueuedWork::end(std::exception_ptr error)
{
    c10::intrusive_ptr<c10::ivalue::Future> future;
    std::function<void()> profiled;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        exception_ = std::move(error);
        completed_ = true;
        future = future_;
        profiled.swap(recordFunctionEndCallback_);
    }
    if (profiled)
        profiled();
    done_.store(true, std::memory_order_release);
    if (queue_) {
        std::lock_guard<std::mutex> lock(mutex_); // who has just found it undone sleeps by now
        cv_.notify_all();
    }
    return future;
}

void QueuedWork::end_unseen(std::exception_ptr error)
{
    exception_ = std::move(error);
    completed_ = true;
    if (recordFunctionEndCallback_)
        std::exchange(recordFunctionEndCallback_, nullptr)();
    done_.store(true, std::memory_order_release);
}

bool QueuedWork::wait(std::chrono::milliseconds timeout)
{
    bool limited = timeout != kNoTimeout;
    if (!isCompleted())
        refuse_in_signal_handler();
    if (!isCompleted() && queue_ && !limited)
        queue_->help(this);
    if (!isCompleted()) {
        auto end = std::chrono::steady_clock::now() + timeout;
        std::unique_lock<std::mutex> lock(mutex_);
        while (!done_.load(std::memory_order_acquire)) {
            auto now = std::chrono::steady_clock::now();
            if (limited && now >= end) {
                lock.unlock();
                std::rethrow_exception(error_of(
                    UNO_ERR_TIMEOUT, c10::str("unisono: operation #", sequence_, " has not ended after ", timeout.count(), " ms; it goes on")));
            }
            cv_.wait_until(lock, limited ? std::min(end, now + kWakePeriod) : now + kWakePeriod);
            lock.unlock();
            look_at_signals();
            lock.lock();
        }
    }
    if (exception_)
        std::rethrow_exception(exception_);
    return true;
}

/* ---- queue ---------------------------------------------------------------------------------------------------------- */

bool Queue::claim()
{
    std::lock_guard<std::mutex> lock(mutex_);
    if (running_ || stopped_ || !waiting_.empty())
        return false;
    running_ = true;
    return true;
}

void Queue::release()
{
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = false;
    if (!waiting_.empty())
        want_thread();
    else if (stopped_)
        changed_.notify_all();
}

void Queue::want_thread()
{
    if (idle_ > 0) {
        changed_.notify_all();
    } else if (threads_ < kMostThreads) {
        threads_++;
        std::thread([self = shared_from_this()] { self->thread_main(); }).detach();
    }
}

void Queue::push(const QueuedPtr &work, std::function<void()> body)
{
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!stopped_, "unisono: the process group was destroyed; nothing can be issued on it");
    work->body_ = std::move(body);
    work->queue_ = shared_from_this();
    waiting_.push_back(work);
    if (!running_)
        want_thread();
}

// Lock held, nobody runs. Callbacks come after the next one may start: they may wait for it.
void Queue::run_front(std::unique_lock<std::mutex> &lock)
{
    QueuedPtr work = std::move(waiting_.front());
    waiting_.pop_front();
    std::function<void()> body;
    body.swap(work->body_);
    running_ = true;
    lock.unlock();
    std::exception_ptr error = run(body);
    body = nullptr; // lets go of its tensors
    auto future = work->end(std::move(error));
    lock.lock();
    running_ = false;
    if (future) {
        if (!waiting_.empty())
            want_thread();
        lock.unlock();
        work->mark(future);
        lock.lock();
    }
    if (stopped_)
        changed_.notify_all();
}

void Queue::help(const QueuedWork *work)
{
    std::unique_lock<std::mutex> lock(mutex_);
    while (!running_ && !waiting_.empty() && !work->done_.load(std::memory_order_acquire))
        run_front(lock);
    if (!running_ && !waiting_.empty())
        want_thread();
}

void Queue::thread_main()
{
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        if (!running_ && !waiting_.empty()) {
            run_front(lock);
            continue;
        }
        if (stopped_ && waiting_.empty() && !running_)
            break;
        idle_++;
        changed_.wait(lock);
        idle_--;
    }
    threads_--;
    changed_.notify_all();
}

void Queue::stop()
{
    std::unique_lock<std::mutex> lock(mutex_);
    stopped_ = true;
    while (!running_ && !waiting_.empty())
        run_front(lock);
    changed_.notify_all();
    // A callback of ours may be what destroys the group: its own thread need not end first.
    while (running_ || !waiting_.empty())
        changed_.wait(lock);
}

void Queue::refuse()
{
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
}

} // namespace unisono
