/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.cpp - torch's collectives as calls of the library. Bodies run in order of issue, one at a time a group. */
#include "backend.hpp"
#include "issue.hpp"
#include "types.hpp"

namespace unisono {

using c10d::OpType;

void require_cpu(const char *call, const at::Tensor &tensor)
{
    TORCH_CHECK_VALUE(tensor.defined(), "unisono: ", call, ": the tensor is undefined");
    TORCH_CHECK_VALUE(tensor.device().is_cpu(), "unisono: ", call, ": a tensor is on ", tensor.device(),
                      "; this backend moves tensors of cpu (init_process_group(\"cpu:unisono,cuda:nccl\") serves both)");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "unisono: ", call, ": a tensor has layout ", tensor.layout(),
                      "; legal is strided (all_reduce also takes sparse_coo)");
}

namespace {

void require_one(const char *call, const char *what, size_t count)
{
    TORCH_CHECK_VALUE(count == 1, "unisono: ", call, " takes one ", what, ", not ", count);
}

void require_all_cpu(const char *call, const Tensors &tensors)
{
    for (const at::Tensor &t : tensors)
        require_cpu(call, t);
}

void require_type(const char *call, const Tensors &tensors, at::ScalarType type)
{
    for (const at::Tensor &t : tensors)
        TORCH_CHECK_VALUE(t.scalar_type() == type, "unisono: ", call, ": tensors of ", c10::toString(type), " and of ",
                          c10::toString(t.scalar_type()), " in one call");
}

void require_list(const char *call, const Tensors &list, int size, at::ScalarType type)
{
    TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(size), "unisono: ", call, ": a list of ", list.size(), " tensors for ", size,
                      " ranks; one each is needed");
    require_all_cpu(call, list);
    require_type(call, list, type);
}

void require_same_sizes(const char *call, const Tensors &list, const at::Tensor &one)
{
    for (size_t r = 0; r < list.size(); r++)
        TORCH_CHECK_VALUE(list[r].numel() == one.numel(), "unisono: ", call, ": the tensor for rank ", r, " has ", list[r].numel(),
                          " elements and the own one ", one.numel(), "; all need the same");
}

void require_root(const char *call, int64_t root, int size, int64_t root_tensor = 0)
{
    TORCH_CHECK_VALUE(root >= 0 && root < size, "unisono: ", call, ": root ", root, " is not a rank; legal are 0 to ", size - 1);
    TORCH_CHECK_VALUE(root_tensor == 0, "unisono: ", call, ": root tensor ", root_tensor, "; legal is 0");
}

// What the root of a gather or scatter gives: a list of one tensor a rank, each as large as `own`. The others give none.
Tensors root_list(const char *call, const char *what, const std::vector<Tensors> &given, const at::Tensor &own, int64_t root, int rank, int size)
{
    require_cpu(call, own);
    require_root(call, root, size);
    if (rank != root) {
        TORCH_CHECK_VALUE(given.empty(), "unisono: ", call, ": ", what, " on rank ", rank, ", which is not the root; legal is none");
        return {};
    }
    TORCH_CHECK_VALUE(given.size() == 1, "unisono: ", call, " takes one list of ", what, ", not ", given.size());
    require_list(call, given[0], size, own.scalar_type());
    require_same_sizes(call, given[0], own);
    return given[0];
}

bool same_sizes(const Tensors &list)
{
    for (const at::Tensor &t : list)
        if (t.numel() != list[0].numel())
            return false;
    return true;
}

std::vector<size_t> counts_of(const Tensors &list, size_t per_element)
{
    std::vector<size_t> counts;
    for (const at::Tensor &t : list)
        counts.push_back(static_cast<size_t>(t.numel()) * per_element);
    return counts;
}

void *data(const at::Tensor &t)
{
    return t.numel() ? t.mutable_data_ptr() : nullptr;
}

const void *cdata(const at::Tensor &t)
{
    return t.numel() ? t.const_data_ptr() : nullptr;
}

size_t length(const at::Tensor &t, size_t per_element)
{
    return static_cast<size_t>(t.numel()) * per_element;
}

// Does a tensor of one list share memory with one of the other?
bool share(const Tensors &some, const Tensors &others)
{
    for (const at::Tensor &a : some)
        for (const at::Tensor &b : others) {
            const auto *from = static_cast<const char *>(cdata(a)), *to = static_cast<const char *>(cdata(b));
            if (from && to && from < to + b.nbytes() && to < from + a.nbytes())
                return true;
        }
    return false;
}

// The tensors of a list where they are: blocks behind the lowest address. Empty when some are not in one piece, or lie askew to it.
struct Blocks {
    char *base = nullptr;
    std::vector<size_t> offsets; // in the library's elements

    Blocks(const Tensors &list, Wire w)
    {
        size_t element = uno_type_bytes(w.type);
        for (const at::Tensor &t : list) {
            if (!t.is_contiguous())
                return;
            auto *at = t.numel() ? static_cast<char *>(t.mutable_data_ptr()) : nullptr;
            base = at && (!base || at < base) ? at : base;
        }
        for (const at::Tensor &t : list) {
            size_t offset = t.numel() ? static_cast<size_t>(static_cast<char *>(t.mutable_data_ptr()) - base) : 0;
            if (offset % element)
                offsets.clear();
            if (offset % element)
                return;
            offsets.push_back(offset / element);
        }
    }
    bool usable() const { return !offsets.empty(); }
};

// Lists as one piece of memory, taken from the scratch where they are not.
at::Tensor flat_in(Scratch &scratch, const Tensors &list)
{
    if (adjacent(list)) {
        for (const at::Tensor &t : list)
            if (t.numel())
                return t;
        return list[0];
    }
    at::Tensor flat = scratch.get(total(list), list[0].scalar_type());
    int64_t at = 0;
    for (const at::Tensor &t : list) {
        copy_into(flat.narrow(0, at, t.numel()), t);
        at += t.numel();
    }
    return flat;
}

at::Tensor flat_in(Scratch &scratch, const at::Tensor &t)
{
    return t.is_contiguous() ? t : flat_in(scratch, Tensors{t});
}

// Memory for what arrives; scatter_back puts it where it belongs.
at::Tensor flat_out(Scratch &scratch, const Tensors &list)
{
    if (adjacent(list)) {
        for (const at::Tensor &t : list)
            if (t.numel())
                return t;
        return list[0];
    }
    return scratch.get(total(list), list[0].scalar_type());
}

at::Tensor flat_out(Scratch &scratch, const at::Tensor &t)
{
    return t.is_contiguous() ? t : flat_out(scratch, Tensors{t});
}

void scatter_back(const Tensors &list, const at::Tensor &flat)
{
    if (adjacent(list))
        return;
    int64_t at = 0;
    for (const at::Tensor &t : list) {
        copy_into(t, flat.narrow(0, at, t.numel()));
        at += t.numel();
    }
}

void scatter_back(const at::Tensor &t, const at::Tensor &flat)
{
    if (!t.is_contiguous())
        scatter_back(Tensors{t}, flat);
}

} // namespace

/* ---- reductions ------------------------------------------------------------------------------------------------------ */

// Calls body with the library's names for the tensor's type and the reduction.
template <class Body>
void Backend::reduced(at::ScalarType type, const c10d::ReduceOp &op, const Body &body)
{
    Wire w = wire_to_reduce(type, op.op_);
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) {
        check(body(w, op_of(op.op_)));
        return;
    }
    unsigned char factor[16];
    uno_op made;
    write_factor(op, type, factor);
    check(uno_op_create_premulsum(&made, factor, w.type, comm_));
    uno_err err = body(w, made);
    std::string text = err == UNO_OK ? "" : uno_last_error(nullptr);
    (void)uno_op_destroy(made, comm_);
    if (err != UNO_OK)
        fail(err, text);
}

void Backend::all_reduce_one(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    at::Tensor wire = flat_in(scratch_in_, tensor);
    reduced(tensor.scalar_type(), op, [&](Wire w, uno_op o) {
        return uno_all_reduce(cdata(wire), data(wire), length(wire, w.per_element), w.type, o, comm_, nullptr);
    });
    scatter_back(tensor, wire);
}

WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    require_one("all_reduce", "tensor", tensors.size());
    if (tensors[0].is_sparse())
        return allreduce_sparse(tensors, opts);
    require_cpu("all_reduce", tensors[0]);
    wire_to_reduce(tensors[0].scalar_type(), opts.reduceOp.op_); // a TypeError comes from the call, not from waiting for it
    return issue({OpType::ALLREDUCE, "unisono:all_reduce", opts.timeout, is_async(opts)}, tensors, tensors,
                 [this, tensor = tensors[0], op = opts.reduceOp] { all_reduce_one(tensor, op); });
}

WorkPtr Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
    TORCH_CHECK_VALUE(!tensors.empty(), "unisono: all_reduce_coalesced: the list of tensors is empty");
    require_all_cpu("all_reduce_coalesced", tensors);
    for (const at::Tensor &t : tensors)
        wire_to_reduce(t.scalar_type(), opts.reduceOp.op_);
    return issue({OpType::ALLREDUCE_COALESCED, "unisono:all_reduce", opts.timeout, is_async(opts)}, tensors, tensors,
                 [this, tensors, op = opts.reduceOp] {
                     for (const at::Tensor &t : tensors)
                         all_reduce_one(t, op);
                 });
}

WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    require_one("reduce", "tensor", tensors.size());
    require_cpu("reduce", tensors[0]);
    require_root("reduce", opts.rootRank, size_, opts.rootTensor);
    wire_to_reduce(tensors[0].scalar_type(), opts.reduceOp.op_);
    return issue({OpType::REDUCE, "unisono:reduce", opts.timeout, is_async(opts)}, tensors, tensors,
                 [this, tensor = tensors[0], op = opts.reduceOp, root = static_cast<int>(opts.rootRank)] {
                     at::Tensor wire = flat_in(scratch_in_, tensor);
                     reduced(tensor.scalar_type(), op, [&](Wire w, uno_op o) {
                         return uno_reduce(cdata(wire), rank_ == root ? data(wire) : nullptr, length(wire, w.per_element), w.type, o,
                                           root, comm_, nullptr);
                     });
                     if (rank_ == root)
                         scatter_back(tensor, wire);
                 });
}

void Backend::reduce_scatter_one(const at::Tensor &output, const at::Tensor &input, const c10d::ReduceOp &op)
{
    at::Tensor in = flat_in(scratch_in_, input), out = flat_out(scratch_out_, output);
    reduced(output.scalar_type(), op, [&](Wire w, uno_op o) {
        return uno_reduce_scatter(cdata(in), data(out), length(output, w.per_element), w.type, o, comm_, nullptr);
    });
    scatter_back(output, out);
}

void Backend::reduce_scatter_list(const at::Tensor &output, const Tensors &inputs, const c10d::ReduceOp &op)
{
    at::Tensor in = flat_in(scratch_in_, inputs), out = flat_out(scratch_out_, output);
    bool even = same_sizes(inputs);
    reduced(output.scalar_type(), op, [&](Wire w, uno_op o) {
        if (even)
            return uno_reduce_scatter(cdata(in), data(out), length(output, w.per_element), w.type, o, comm_, nullptr);
        auto counts = counts_of(inputs, w.per_element);
        return uno_reduce_scatter_v(cdata(in), data(out), counts.data(), nullptr, w.type, o, comm_, nullptr);
    });
    scatter_back(output, out);
}

static void require_blocks(const char *call, const at::Tensor &whole, const at::Tensor &part, int size)
{
    require_all_cpu(call, {whole, part});
    require_type(call, {whole}, part.scalar_type());
    TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, "unisono: ", call, ": the larger tensor has ", whole.numel(),
                      " elements; ", size, " ranks with ", part.numel(), " each need ", part.numel() * size);
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts)
{
    require_blocks("reduce_scatter_tensor", input, output, size_);
    wire_to_reduce(output.scalar_type(), opts.reduceOp.op_);
    return issue({OpType::_REDUCE_SCATTER_BASE, "unisono:_reduce_scatter_base", opts.timeout, is_async(opts)}, {input}, {output},
                 [this, output, input, op = opts.reduceOp] { reduce_scatter_one(output, input, op); });
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts)
{
    static const char call[] = "reduce_scatter_tensor_coalesced";
    TORCH_CHECK_VALUE(inputs.size() == outputs.size(), "unisono: ", call, ": ", inputs.size(), " inputs for ", outputs.size(), " outputs");
    for (size_t i = 0; i < inputs.size(); i++) {
        require_blocks(call, inputs[i], outputs[i], size_);
        wire_to_reduce(outputs[i].scalar_type(), opts.reduceOp.op_);
    }
    return issue({kReduceScatterCoalesced, "unisono:reduce_scatter", opts.timeout, is_async(opts)}, inputs, outputs,
                 [this, outputs, inputs, op = opts.reduceOp] {
                     for (size_t i = 0; i < inputs.size(); i++)
                         reduce_scatter_one(outputs[i], inputs[i], op);
                 });
}

WorkPtr Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &opts)
{
    static const char call[] = "reduce_scatter";
    require_one(call, "output", outputs.size());
    require_one(call, "list of inputs", inputs.size());
    require_cpu(call, outputs[0]);
    require_list(call, inputs[0], size_, outputs[0].scalar_type());
    TORCH_CHECK_VALUE(inputs[0][rank_].numel() == outputs[0].numel(), "unisono: ", call, ": the output has ", outputs[0].numel(),
                      " elements and the own input ", inputs[0][rank_].numel());
    wire_to_reduce(outputs[0].scalar_type(), opts.reduceOp.op_);
    return issue({OpType::REDUCE_SCATTER, "unisono:reduce_scatter", opts.timeout, is_async(opts)}, inputs[0], outputs,
                 [this, output = outputs[0], list = inputs[0], op = opts.reduceOp] { reduce_scatter_list(output, list, op); });
}

/* ---- gathering -------------------------------------------------------------------------------------------------------- */

void Backend::all_gather_one(const at::Tensor &output, const at::Tensor &input)
{
    Wire w = wire_to_move(input.scalar_type());
    at::Tensor in = flat_in(scratch_in_, input), out = flat_out(scratch_out_, output);
    check(uno_all_gather(cdata(in), data(out), length(input, w.per_element), w.type, comm_, nullptr));
    scatter_back(output, out);
}

void Backend::all_gather_list(const Tensors &outputs, const at::Tensor &input)
{
    Wire w = wire_to_move(input.scalar_type());
    at::Tensor in = flat_in(scratch_in_, input), out = flat_out(scratch_out_, outputs);
    if (same_sizes(outputs)) {
        check(uno_all_gather(cdata(in), data(out), length(input, w.per_element), w.type, comm_, nullptr));
    } else {
        auto counts = counts_of(outputs, w.per_element);
        check(uno_all_gather_v(cdata(in), data(out), counts.data(), nullptr, w.type, comm_, nullptr));
    }
    scatter_back(outputs, out);
}

static void require_gatherable(const char *call, const Tensors &outputs, const at::Tensor &input, int rank, int size)
{
    require_cpu(call, input);
    require_list(call, outputs, size, input.scalar_type());
    TORCH_CHECK_VALUE(outputs[rank].numel() == input.numel(), "unisono: ", call, ": the input has ", input.numel(),
                      " elements and the own output ", outputs[rank].numel());
}

WorkPtr Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    static const char call[] = "all_gather";
    require_one(call, "input", inputs.size());
    require_one(call, "list of outputs", outputs.size());
    require_gatherable(call, outputs[0], inputs[0], rank_, size_);
    return issue({OpType::ALLGATHER, "unisono:all_gather", opts.timeout, is_async(opts)}, inputs, outputs[0],
                 [this, list = outputs[0], input = inputs[0]] { all_gather_list(list, input); });
}

WorkPtr Backend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts)
{
    require_blocks("all_gather_into_tensor", output, input, size_);
    return issue({OpType::_ALLGATHER_BASE, "unisono:_all_gather_base", opts.timeout, is_async(opts)}, {input}, {output},
                 [this, output, input] { all_gather_one(output, input); });
}

WorkPtr Backend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    static const char call[] = "all_gather_coalesced";
    TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_), "unisono: ", call, ": ", outputs.size(), " lists for ", size_, " ranks");
    Tensors flat;
    std::vector<Tensors> lists(inputs.size());
    for (const Tensors &of_rank : outputs) {
        TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "unisono: ", call, ": a list of ", of_rank.size(), " outputs for ",
                          inputs.size(), " inputs");
        for (size_t i = 0; i < inputs.size(); i++) {
            lists[i].push_back(of_rank[i]);
            flat.push_back(of_rank[i]);
        }
    }
    for (size_t i = 0; i < inputs.size(); i++)
        require_gatherable(call, lists[i], inputs[i], rank_, size_);
    return issue({OpType::ALLGATHER_COALESCED, "unisono:all_gather", opts.timeout, is_async(opts)}, inputs, flat,
                 [this, lists, inputs] {
                     for (size_t i = 0; i < inputs.size(); i++)
                         all_gather_list(lists[i], inputs[i]);
                 });
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    static const char call[] = "all_gather_into_tensor_coalesced";
    TORCH_CHECK_VALUE(inputs.size() == outputs.size(), "unisono: ", call, ": ", inputs.size(), " inputs for ", outputs.size(), " outputs");
    for (size_t i = 0; i < inputs.size(); i++)
        require_blocks(call, outputs[i], inputs[i], size_);
    return issue({OpType::_ALLGATHER_BASE, "unisono:all_gather", opts.timeout, is_async(opts)}, inputs, outputs, [this, outputs, inputs] {
        for (size_t i = 0; i < inputs.size(); i++)
            all_gather_one(outputs[i], inputs[i]);
    });
}

WorkPtr Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts)
{
    static const char call[] = "gather";
    require_one(call, "input", inputs.size());
    Tensors list = root_list(call, "outputs", outputs, inputs[0], opts.rootRank, rank_, size_);
    return issue({OpType::GATHER, "unisono:gather", opts.timeout, is_async(opts)}, inputs, list,
                 [this, list, input = inputs[0], root = static_cast<int>(opts.rootRank)] {
                     Wire w = wire_to_move(input.scalar_type());
                     at::Tensor in = flat_in(scratch_in_, input), out;
                     if (rank_ == root)
                         out = flat_out(scratch_out_, list);
                     check(uno_gather(cdata(in), rank_ == root ? data(out) : nullptr, length(in, w.per_element), w.type, root, comm_, nullptr));
                     if (rank_ == root)
                         scatter_back(list, out);
                 });
}

/* ---- from one to all, and all to all --------------------------------------------------------------------------------------- */

WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    require_one("broadcast", "tensor", tensors.size());
    require_cpu("broadcast", tensors[0]);
    require_root("broadcast", opts.rootRank, size_, opts.rootTensor);
    return issue({OpType::BROADCAST, "unisono:broadcast", opts.timeout, is_async(opts)}, tensors, tensors,
                 [this, tensor = tensors[0], root = static_cast<int>(opts.rootRank)] {
                     Wire w = wire_to_move(tensor.scalar_type());
                     at::Tensor wire = rank_ == root ? flat_in(scratch_in_, tensor) : flat_out(scratch_in_, tensor);
                     check(uno_broadcast(cdata(wire), data(wire), length(wire, w.per_element), w.type, root, comm_, nullptr));
                     if (rank_ != root)
                         scatter_back(tensor, wire);
                 });
}

WorkPtr Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts)
{
    static const char call[] = "scatter";
    require_one(call, "output", outputs.size());
    Tensors list = root_list(call, "inputs", inputs, outputs[0], opts.rootRank, rank_, size_);
    return issue({OpType::SCATTER, "unisono:scatter", opts.timeout, is_async(opts)}, list, outputs,
                 [this, list, output = outputs[0], root = static_cast<int>(opts.rootRank)] {
                     Wire w = wire_to_move(output.scalar_type());
                     at::Tensor out = flat_out(scratch_out_, output), in;
                     if (rank_ == root)
                         in = flat_in(scratch_in_, list);
                     check(uno_scatter(rank_ == root ? cdata(in) : nullptr, data(out), length(out, w.per_element), w.type, root, comm_, nullptr));
                     scatter_back(output, out);
                 });
}

WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts)
{
    static const char call[] = "all_to_all";
    TORCH_CHECK_VALUE(!inputs.empty(), "unisono: ", call, ": the list of inputs is empty");
    at::ScalarType type = inputs[0].scalar_type();
    require_list(call, inputs, size_, type);
    require_list(call, outputs, size_, type);
    return issue({OpType::ALLTOALL, "unisono:all_to_all", opts.timeout, is_async(opts)}, inputs, outputs, [this, outputs, inputs, type] {
        Wire w = wire_to_move(type);
        auto sent = counts_of(inputs, w.per_element), received = counts_of(outputs, w.per_element);
        Blocks from(inputs, w), to(outputs, w);
        // Whether all counts are equal is known to no rank alone.
        if (from.usable() && to.usable() && !share(inputs, outputs)) {
            check(uno_all_to_all_v(from.base, sent.data(), from.offsets.data(), to.base, received.data(), to.offsets.data(), w.type, comm_,
                                   nullptr));
            return;
        }
        at::Tensor in = flat_in(scratch_in_, inputs), out = flat_out(scratch_out_, outputs);
        check(uno_all_to_all_v(cdata(in), sent.data(), nullptr, data(out), received.data(), nullptr, w.type, comm_, nullptr));
        scatter_back(outputs, out);
    });
}

// Rows for each rank as counts of the library's elements.
static std::vector<size_t> split_counts(const char *what, const std::vector<int64_t> &splits, const at::Tensor &t, int size, size_t per_element)
{
    static const char call[] = "all_to_all_single";
    int64_t rows = t.dim() ? t.size(0) : t.numel(), sum = 0;
    size_t row = rows ? static_cast<size_t>(t.numel() / rows) * per_element : 0;
    std::vector<size_t> counts;
    if (splits.empty()) {
        TORCH_CHECK_VALUE(rows % size == 0, "unisono: ", call, ": dimension 0 of the ", what, " (", rows, ") does not divide equally by ",
                          size, " ranks");
        return std::vector<size_t>(static_cast<size_t>(size), static_cast<size_t>(rows / size) * row);
    }
    TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "unisono: ", call, ": ", splits.size(), " sizes of the ", what, " for ",
                      size, " ranks");
    for (int64_t s : splits) {
        TORCH_CHECK_VALUE(s >= 0, "unisono: ", call, ": a size of the ", what, " is negative: ", s);
        sum += s;
        counts.push_back(static_cast<size_t>(s) * row);
    }
    TORCH_CHECK_VALUE(sum == rows, "unisono: ", call, ": the sizes of the ", what, " add up to ", sum, " and its dimension 0 is ", rows);
    return counts;
}

WorkPtr Backend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                               std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts)
{
    static const char call[] = "all_to_all_single";
    require_all_cpu(call, {output, input});
    require_type(call, {output}, input.scalar_type());
    Wire w = wire_to_move(input.scalar_type());
    bool even = output_splits.empty() && input_splits.empty();
    auto sent = split_counts("input", input_splits, input, size_, w.per_element);
    auto received = split_counts("output", output_splits, output, size_, w.per_element);
    TORCH_CHECK_VALUE(!even || input.numel() == output.numel(), "unisono: ", call, ": ", input.numel(), " elements in, ",
                      output.numel(), " out; without sizes both need the same");
    return issue({OpType::ALLTOALL_BASE, "unisono:all_to_all", opts.timeout, is_async(opts)}, {input}, {output},
                 [this, output, input, even, w, sent = std::move(sent), received = std::move(received)] {
                     at::Tensor in = flat_in(scratch_in_, input), out = flat_out(scratch_out_, output);
                     check(even ? uno_all_to_all(cdata(in), data(out), sent[0], w.type, comm_, nullptr)
                                : uno_all_to_all_v(cdata(in), sent.data(), nullptr, data(out), received.data(), nullptr, w.type, comm_, nullptr));
                     scatter_back(output, out);
                 });
}

WorkPtr Backend::barrier(const c10d::BarrierOptions &opts)
{
    return issue({OpType::BARRIER, "unisono:barrier", opts.timeout, is_async(opts)}, {}, {}, [this] { check(uno_barrier(comm_, nullptr)); });
}

/* ---- sparse ------------------------------------------------------------------------------------------------------------------ */

// Every rank gets everyone's indices and values and adds them up, in order of rank: the same bits everywhere.
at::Tensor Backend::sparse_sum(const at::Tensor &given)
{
    at::Tensor input = given.coalesce(), indices = input.indices().contiguous(), values = input.values().contiguous();
    at::Tensor mine = at::empty({1}, at::kLong), all = at::empty({size_}, at::kLong);
    mine.fill_(input._nnz());
    all_gather_one(all, mine);
    Tensors their_indices, their_values;
    for (int r = 0; r < size_; r++) {
        int64_t nnz = all[r].item<int64_t>();
        std::vector<int64_t> shape = values.sizes().vec();
        shape[0] = nnz;
        their_indices.push_back(at::empty({indices.size(0), nnz}, indices.options()));
        their_values.push_back(at::empty(shape, values.options()));
    }
    all_gather_list(their_indices, indices);
    all_gather_list(their_values, values);
    return at::sparse_coo_tensor(at::cat(their_indices, 1), at::cat(their_values, 0), input.sizes(), input.options()).coalesce();
}

WorkPtr Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    static const char call[] = "all_reduce of a sparse tensor";
    require_one(call, "tensor", tensors.size());
    TORCH_CHECK_VALUE(tensors[0].is_sparse() && tensors[0].device().is_cpu(), "unisono: ", call, ": legal is sparse_coo on cpu, not ",
                      tensors[0].layout(), " on ", tensors[0].device());
    TORCH_CHECK_VALUE(opts.reduceOp.op_ == c10d::ReduceOp::SUM, "unisono: ", call, " is defined for SUM only");
    return issue({OpType::_ALLREDUCE_SPARSE, "unisono:sparse_all_reduce", opts.timeout, is_async(opts)}, tensors, tensors,
                 [this, tensor = tensors[0]] { tensor.copy_(sparse_sum(tensor)); });
}

} // namespace unisono
