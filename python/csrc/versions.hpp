/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions.hpp - what the series 2.x of torch call differently, or do not have yet. The rest is written for the newest one. Names that cannot be
 * asked for here are looked for in torch's headers by setup.py, which defines UNISONO_TORCH_HAS_...
 */
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/version.h>

#include <string>
#include <type_traits>
#include <vector>

// torch's functions came one by one: only here it is checked that all of them are there.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
#define UNISONO_OVERRIDE override
#else
#define UNISONO_OVERRIDE
#endif

namespace unisono {

struct NamedOptions : c10d::Backend::Options {
    using c10d::Backend::Options::Options;
    std::string group_name, group_desc;
    std::vector<uint64_t> global_ranks_in_group;
};
template <class Options, class = void>
struct WithNames {
    using type = NamedOptions;
};
template <class Options>
struct WithNames<Options, std::void_t<decltype(Options::group_name)>> {
    using type = Options;
};
using GroupOptions = WithNames<c10d::Backend::Options>::type;

// Where a call does not tell, whoever wants it done waits for it, and then runs it himself.
template <class Options>
auto told_async(const Options &opts, int) -> decltype(opts.asyncOp)
{
    return opts.asyncOp;
}
template <class Options>
bool told_async(const Options &, long)
{
    return true;
}
template <class Options>
bool is_async(const Options &opts)
{
    return told_async(opts, 0);
}

template <class Types>
constexpr auto told_coalesced(int) -> decltype(Types::REDUCE_SCATTER_TENSOR_COALESCED)
{
    return Types::REDUCE_SCATTER_TENSOR_COALESCED;
}
template <class Types>
constexpr Types told_coalesced(long)
{
    return Types::_REDUCE_SCATTER_BASE;
}
constexpr c10d::OpType kReduceScatterCoalesced = told_coalesced<c10d::OpType>(0);

#ifdef UNISONO_TORCH_HAS_PreMulSumSupplement
using PreMulSumSupplement = c10d::PreMulSumSupplement;
#else
using PreMulSumSupplement = c10d::NCCLPreMulSumSupplement;
#endif

} // namespace unisono
