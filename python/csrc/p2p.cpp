/* SPDX-License-Identifier: Apache-2.0 */
#include "p2p.hpp"

#include "errors.hpp"
#include "types.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <tuple>

namespace unisono {

namespace {

using Clock = std::chrono::steady_clock;

c10::intrusive_ptr<c10::ivalue::Future> tensors_future()
{
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

// Somebody must wait so that the callbacks run; rare enough for a thread of its own.
void finish_later(const WorkPtr &work, const c10::intrusive_ptr<c10::ivalue::Future> &future)
{
    std::thread([work, future] {
        try {
            work->wait();
            future->markCompleted(c10::IValue(work->result()));
        } catch (...) {
            future->setError(std::current_exception());
        }
    }).detach();
}

} // namespace

P2pWork::P2pWork(int rank, c10d::OpType op, const char *title, const std::optional<Tensors> &inputs, at::Tensor tensor, at::Tensor wire,
                 uint64_t sequence)
    : c10d::Work(rank, op, title, inputs), tensor_(std::move(tensor)), wire_(std::move(wire)), sequence_(sequence)
{
}

P2pWork::~P2pWork()
{
    if (request) /* its communicator is gone: what came of it stands in the request */
        std::ignore = uno_test(&request, nullptr);
}

void P2pWork::ended(uno_err err, const uno_status &status)
{
    if (err == UNO_OK) {
        source_ = status.peer;
        if (opType_ != c10d::OpType::SEND && !wire_.is_same(tensor_)) {
            at::AutoDispatchBelowADInplaceOrView below;
            at::NoGradGuard no_grad;
            copy_into(tensor_, wire_);
        }
    } else {
        exception_ = error_of(err, std::string("unisono: ") + uno_last_error(nullptr));
    }
    wire_ = at::Tensor();
    if (recordFunctionEndCallback_) {
        recordFunctionEndCallback_();
        recordFunctionEndCallback_ = nullptr;
    }
    done_.store(true, std::memory_order_release);
}

bool P2pWork::isCompleted()
{
    if (done_.load(std::memory_order_acquire))
        return true;
    if (in_signal_handler())
        return false;
    std::unique_lock<std::timed_mutex> lock(busy_, std::try_to_lock);
    if (!lock.owns_lock() || done_.load(std::memory_order_acquire))
        return done_.load(std::memory_order_acquire);
    uno_status status{};
    uno_err err = uno_test(&request, &status);
    if (err != UNO_ERR_IN_PROGRESS)
        ended(err, status);
    return err != UNO_ERR_IN_PROGRESS;
}

bool P2pWork::isSuccess() const
{
    return done_.load(std::memory_order_acquire) && !exception_;
}

std::exception_ptr P2pWork::exception() const
{
    return done_.load(std::memory_order_acquire) ? exception_ : nullptr;
}

int P2pWork::sourceRank() const
{
    TORCH_CHECK(done_.load(std::memory_order_acquire), "unisono: the source of a receive that has not ended; wait for it first");
    return source_;
}

// Another thread may wait in the library for the same request: this one still hears of signals and of its own deadline.
void P2pWork::take(std::unique_lock<std::timed_mutex> &busy, Clock::time_point end)
{
    while (!busy.try_lock_until(std::min(end, Clock::now() + kSignalPeriod)) && !done_.load(std::memory_order_acquire)) {
        if (Clock::now() >= end)
            std::rethrow_exception(error_of(UNO_ERR_TIMEOUT, "unisono: the request is not finished; it goes on"));
        look_at_signals();
    }
}

bool P2pWork::wait(Millis timeout)
{
    if (!done_.load(std::memory_order_acquire)) {
        refuse_in_signal_handler();
        bool limited = timeout != kNoTimeout;
        auto end = limited ? Clock::now() + timeout : Clock::time_point::max();
        std::unique_lock<std::timed_mutex> lock(busy_, std::defer_lock);
        take(lock, end);
        if (!done_.load(std::memory_order_acquire)) {
            uno_status status{};
            double left = std::chrono::duration<double>(end - Clock::now()).count();
            uno_err err = limited ? uno_wait_until(&request, std::max(0.0, left), &status) : uno_wait(&request, &status);
            if (err == UNO_ERR_IN_PROGRESS)
                std::rethrow_exception(error_of(UNO_ERR_TIMEOUT, c10::str("unisono: ", uno_last_error(nullptr), "; it goes on")));
            ended(err, status);
            throw_raised();
        }
    }
    if (exception_)
        std::rethrow_exception(exception_);
    return true;
}

void P2pWork::abort()
{
    TORCH_CHECK(false, "unisono: one send or receive cannot be taken back; abort() of its process group ends them all");
}

c10::intrusive_ptr<c10::ivalue::Future> P2pWork::getFuture()
{
    std::lock_guard<std::mutex> lock(mutex_);
    if (!future_) {
        future_ = tensors_future();
        finish_later(WorkPtr::reclaim_copy(this), future_);
    }
    return future_;
}

/* ---- several as one ------------------------------------------------------------------------------------------------------ */

bool AllWork::isCompleted()
{
    return std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr &w) { return w->isCompleted(); });
}

bool AllWork::isSuccess() const
{
    return std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr &w) { return w->isSuccess(); });
}

std::exception_ptr AllWork::exception() const
{
    for (const WorkPtr &w : parts_)
        if (auto e = w->exception())
            return e;
    return nullptr;
}

bool AllWork::wait(Millis timeout)
{
    for (const WorkPtr &w : parts_)
        w->wait(timeout);
    return true;
}

std::vector<at::Tensor> AllWork::result()
{
    Tensors all;
    for (const WorkPtr &w : parts_)
        for (at::Tensor &t : w->result())
            all.push_back(t);
    return all;
}

c10::intrusive_ptr<c10::ivalue::Future> AllWork::getFuture()
{
    auto future = tensors_future();
    finish_later(WorkPtr::reclaim_copy(this), future);
    return future;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------ */

void Backend::reap()
{
    p2p_.erase(std::remove_if(p2p_.begin(), p2p_.end(), [](const c10::intrusive_ptr<P2pWork> &w) { return w->isCompleted(); }), p2p_.end());
}

WorkPtr Backend::post(c10d::OpType op, Tensors &tensors, int peer, int tag)
{
    bool send = op == c10d::OpType::SEND;
    const char *call = send ? "send" : "recv";
    TORCH_CHECK_VALUE(tensors.size() == 1, "unisono: ", call, " takes one tensor, not ", tensors.size());
    at::Tensor tensor = tensors[0];
    require_cpu(call, tensor);
    TORCH_CHECK_VALUE(tag >= 0, "unisono: ", call, ": tag ", tag, " is negative");
    at::AutoDispatchBelowADInplaceOrView below;
    at::NoGradGuard no_grad;
    at::Tensor wire = tensor.is_contiguous() ? tensor : send ? tensor.contiguous() : at::empty(tensor.sizes(), tensor.options());
    const char *title = title_if_profiled(send ? "unisono:send" : op == c10d::OpType::RECV ? "unisono:recv" : "unisono:recvAnySource");
    auto work = c10::make_intrusive<P2pWork>(rank_, op, title, title ? std::optional<Tensors>(tensors) : std::nullopt, tensor, wire, ++sequence_);
    Wire w = wire_to_move(wire.scalar_type());
    size_t count = static_cast<size_t>(wire.numel()) * w.per_element;
    check(send ? uno_isend(wire.const_data_ptr(), count, w.type, peer, tag, comm(), &work->request)
               : uno_irecv(count ? wire.mutable_data_ptr() : nullptr, count, w.type, peer, tag, comm(), &work->request));
    std::lock_guard<std::mutex> lock(p2p_mutex_);
    reap();
    p2p_.push_back(work);
    if (coalescing_)
        coalesced_.push_back(work);
    return work;
}

WorkPtr Backend::send(Tensors &tensors, int peer, int tag)
{
    return post(c10d::OpType::SEND, tensors, peer, tag);
}

WorkPtr Backend::recv(Tensors &tensors, int peer, int tag)
{
    return post(c10d::OpType::RECV, tensors, peer, tag);
}

WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    return post(c10d::OpType::RECVANYSOURCE, tensors, UNO_ANY, tag);
}

} // namespace unisono
