/* SPDX-License-Identifier: Apache-2.0 */
#include "types.hpp"

#include "versions.hpp"

#include <cstring>

namespace unisono {

namespace {

// -1: the library has no such type.
int type_of(at::ScalarType type)
{
    switch (type) {
    case at::kChar: return UNO_INT8;
    case at::kByte: return UNO_UINT8;
    case at::kShort: return UNO_INT16;
    case at::kUInt16: return UNO_UINT16;
    case at::kInt: return UNO_INT32;
    case at::kUInt32: return UNO_UINT32;
    case at::kLong: return UNO_INT64;
    case at::kUInt64: return UNO_UINT64;
    case at::kHalf: return UNO_FLOAT16;
    case at::kBFloat16: return UNO_BFLOAT16;
    case at::kFloat: return UNO_FLOAT32;
    case at::kDouble: return UNO_FLOAT64;
    case at::kFloat8_e4m3fn: return UNO_FLOAT8E4M3;
    case at::kFloat8_e5m2: return UNO_FLOAT8E5M2;
    case at::kBool: return UNO_BOOL;
    case at::kComplexFloat: return UNO_COMPLEX64;
    case at::kComplexDouble: return UNO_COMPLEX128;
    default: return -1;
    }
}

const char *name_of(c10d::ReduceOp::RedOpType op)
{
    static const char *const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
    return op < sizeof names / sizeof *names ? names[op] : "this operation";
}

} // namespace

Wire wire_to_move(at::ScalarType type)
{
    int known = type_of(type);
    return known >= 0 ? Wire{static_cast<uno_type>(known), 1} : Wire{UNO_UINT8, c10::elementSize(type)};
}

uno_op op_of(c10d::ReduceOp::RedOpType op)
{
    switch (op) {
    case c10d::ReduceOp::SUM: return UNO_SUM;
    case c10d::ReduceOp::AVG: return UNO_AVG;
    case c10d::ReduceOp::PRODUCT: return UNO_PROD;
    case c10d::ReduceOp::MIN: return UNO_MIN;
    case c10d::ReduceOp::MAX: return UNO_MAX;
    case c10d::ReduceOp::BAND: return UNO_BAND;
    case c10d::ReduceOp::BOR: return UNO_BOR;
    case c10d::ReduceOp::BXOR: return UNO_BXOR;
    default: C10_THROW_ERROR(ValueError, c10::str("unisono: reduction number ", static_cast<int>(op), " is not known"));
    }
}

Wire wire_to_reduce(at::ScalarType type, c10d::ReduceOp::RedOpType op)
{
    bool premul = op == c10d::ReduceOp::PREMUL_SUM;
    if (type == at::kComplexHalf && (op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG))
        return {UNO_FLOAT16, 2};
    int known = type_of(type);
    bool defined = known >= 0 && (premul ? type != at::kBool : uno_op_check(op_of(op), static_cast<uno_type>(known)) == UNO_OK);
    if (!defined)
        C10_THROW_ERROR(TypeError, c10::str("unisono: ", name_of(op), " is not defined for tensors of ", c10::toString(type)));
    return {static_cast<uno_type>(known), 1};
}

void write_factor(const c10d::ReduceOp &op, at::ScalarType type, unsigned char buf[16])
{
    const auto *given = dynamic_cast<const PreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK_VALUE(given, "unisono: PREMUL_SUM needs a factor; make it with torch.distributed._make_nccl_premul_sum");
    at::Tensor factor = given->tensor_factor.defined() ? given->tensor_factor : at::scalar_tensor(given->double_factor, at::kDouble);
    factor = factor.to(at::kCPU, type).contiguous();
    std::memcpy(buf, factor.const_data_ptr(), factor.nbytes());
}

} // namespace unisono
