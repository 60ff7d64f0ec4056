/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.hpp - the class that PyTorch's process groups call. It maps tensors, types and reductions to calls of unisono.h, and
 * decides in which thread they run; everything that moves data is in the C library.
 */
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <unisono.h>
#include <unisono_watch.h>

#include "memory.hpp"
#include "queue.hpp"
#include "scratch.hpp"
#include "versions.hpp"

namespace unisono {

using Tensors = std::vector<at::Tensor>;
using Millis = std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr const char *kName = "unisono";
constexpr auto kSignalPeriod = Millis(100);

inline double seconds(Millis t)
{
    return static_cast<double>(t.count()) / 1000.0;
}

class P2pWork;
class Backend;

// Of a group that is made of ranks of another one, in its job.
struct Family {
    c10::intrusive_ptr<Backend> parent; // null: a job of its own
    std::vector<int> ranks;             // of the parent
};

// ValueError for tensors that are not dense ones of the CPU.
void require_cpu(const char *call, const at::Tensor &tensor);

void program_failed(); // an exception reached the top of the program; any thread

class Backend : public c10d::Backend {
 public:
    // Joins the other ranks through the store: rank 0 leaves an id there. Blocks until all have joined; looks at signals.
    Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<GroupOptions> options, const Family &family = {});
    // Takes over a communicator that exists (shrink).
    Backend(c10::intrusive_ptr<c10d::Store> store, uno_comm *comm, c10::intrusive_ptr<GroupOptions> options);
    ~Backend() override;

    const std::string getBackendName() const override { return kName; }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() UNISONO_OVERRIDE { return options_; }
    bool supportsSplitting() const override { return true; }
    bool supportsShrinking() const UNISONO_OVERRIDE { return true; }
    void setTimeout(Millis limit) UNISONO_OVERRIDE;

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;

    // Over the store, so that it works also when the communicator does not: says which ranks have not come.
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;

    void startCoalescing() override;
    WorkPtr endCoalescing() override;
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override { return sequence_; }
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<GroupOptions> &opts) UNISONO_OVERRIDE;
    c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store> &store,
                                            const c10::intrusive_ptr<GroupOptions> &opts, const int &rank,
                                            const int &size) UNISONO_OVERRIDE;
    c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t> &ranks_to_exclude, int flags,
                                             const c10::intrusive_ptr<GroupOptions> &opts) UNISONO_OVERRIDE;
    std::shared_ptr<c10::Allocator> getMemAllocator() UNISONO_OVERRIDE { return shared_allocator(); }
    bool supportsTensorAlloc(c10::DeviceIndex) UNISONO_OVERRIDE { return true; }
    at::Tensor allocateTensor(long size, at::TensorOptions options) UNISONO_OVERRIDE;
    void count(uno_counts *counts);
    // Makes a communicator of these ranks in this group's job. The sentence of an error is uno_last_error's.
    uno_err create_group(const std::vector<int> &ranks, const uno_id &id, const uno_config &config, uno_comm **made);
#ifdef UNISONO_TORCH_HAS_ErrorType
    c10d::ErrorType getError() UNISONO_OVERRIDE;
#endif
    void abort() UNISONO_OVERRIDE;
    void shutdown() UNISONO_OVERRIDE;

 private:
    // What is called, for the Work that torch gets and for its profiler.
    struct Call {
        c10d::OpType op;
        const char *title;         // "unisono:all_reduce"
        Millis timeout;
        bool async;
    };
    // Runs body() now, in this thread, when it may and must; else on a thread of the queue, in order of issue.
    template <class Body>
    WorkPtr issue(const Call &call, const Tensors &inputs, Tensors outputs, Body body);
    // What an operation leaves behind is put back: the group's deadline, and large scratch memory.
    struct Undo {
        Backend &of;
        bool deadline;
        ~Undo();
    };
    void end_in_handler();         // abort, without waiting for the call below
    WorkPtr post(c10d::OpType op, Tensors &tensors, int peer, int tag);
    uno_comm *comm();              // throws after shutdown
    void check(uno_err err);       // throws the library's sentence
    [[noreturn]] void fail(uno_err err, const std::string &text);
    void called_at(const char *site); // of own_call_site, for the library's reports
    void set_deadline(Millis limit); // of operations that begin from now on
    template <class Body>
    void reduced(at::ScalarType type, const c10d::ReduceOp &op, const Body &body);
    // The following run as bodies of issue().
    void all_reduce_one(const at::Tensor &tensor, const c10d::ReduceOp &op);
    void reduce_scatter_one(const at::Tensor &output, const at::Tensor &input, const c10d::ReduceOp &op);
    void reduce_scatter_list(const at::Tensor &output, const Tensors &inputs, const c10d::ReduceOp &op);
    void all_gather_one(const at::Tensor &output, const at::Tensor &input);
    void all_gather_list(const Tensors &outputs, const at::Tensor &input);
    at::Tensor sparse_sum(const at::Tensor &input);
    void reap();                   // forget sends and receives that have ended

    c10::intrusive_ptr<c10d::Store> store_;
    c10::intrusive_ptr<GroupOptions> options_;
    std::atomic<uno_comm *> comm_{nullptr};
    std::shared_ptr<Queue> queue_;
    Scratch scratch_in_, scratch_out_; // of whoever runs an operation of this group
    const char *site_ = nullptr;   // last told; of whoever runs an operation
    std::atomic<uint64_t> sequence_{0};
    std::atomic<uint64_t> barriers_{0};
    std::mutex p2p_mutex_;
    std::vector<c10::intrusive_ptr<P2pWork>> p2p_; // their tensors are needed until they end, even if nobody waits
    std::atomic<bool> coalescing_{false};
    std::vector<WorkPtr> coalesced_;
    bool kept_ = false;            // by end_in_handler
    const int pid_;                // a forked child owns nothing of this
};

} // namespace unisono
