/* SPDX-License-Identifier: Apache-2.0 */
/* issue.hpp - how a call gets the thread that runs it. */
#pragma once

#include "backend.hpp"
#include "errors.hpp"
#include "position.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

namespace unisono {

template <class Body>
WorkPtr Backend::issue(const Call &call, const Tensors &inputs, Tensors outputs, Body body)
{
    comm();
    const char *title = title_if_profiled(call.title);
    auto work = c10::make_intrusive<QueuedWork>(rank_, call.op, title, title ? std::optional<Tensors>(inputs) : std::nullopt,
                                                std::move(outputs), ++sequence_);
    bool own_deadline = call.timeout != c10d::kUnsetTimeout && call.timeout != options_->timeout;
    auto whole = [this, own_deadline, timeout = call.timeout, site = own_call_site(), body = std::move(body)] {
        called_at(site);
        Undo after{*this, own_deadline}; // also of a body that throws, whose group may go on
        if (own_deadline)
            set_deadline(timeout);
        body();
        throw_raised();
    };
    if (!call.async && queue_->claim()) {
        std::exception_ptr error;
        try {
            at::AutoDispatchBelowADInplaceOrView below;
            at::NoGradGuard no_grad;
            whole();
        } catch (...) {
            error = std::current_exception();
        }
        queue_->release();
        work->end_unseen(std::move(error));
    } else {
        queue_->push(work, std::move(whole));
    }
    if (coalescing_.load(std::memory_order_relaxed)) {
        std::lock_guard<std::mutex> lock(p2p_mutex_);
        coalesced_.push_back(work);
    }
    return work;
}

} // namespace unisono
