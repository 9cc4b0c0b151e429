// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/dlpack_dtype.h"

#include <fmt/core.h>

namespace moejit::bindings {
namespace {

using compiler::DType;

// kDLBool, kDLFloat8_e4m3fn, kDLFloat8_e5m2, kDLFloat8_e8m0fnu and kDLFloat4_e2m1fn of DLPack 1.1;
// older headers lack the names.
constexpr uint8_t kBool = 6;
constexpr uint8_t kFloat8E4M3Fn = 10;
constexpr uint8_t kFloat8E5M2 = 12;
constexpr uint8_t kFloat8E8M0Fnu = 14;
constexpr uint8_t kFloat4E2M1Fn = 17;

bool is_equal(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

DLDataType one_lane(uint8_t code, uint8_t bits) { return {.code = code, .bits = bits, .lanes = 1}; }

std::string element_name(DLDataType dtype) {
  switch (dtype.code) {
    case kDLInt: return fmt::format("int{}", dtype.bits);
    case kDLUInt: return fmt::format("uint{}", dtype.bits);
    case kDLFloat: return fmt::format("float{}", dtype.bits);
    case kDLBfloat: return fmt::format("bfloat{}", dtype.bits);
    case kDLComplex: return fmt::format("complex{}", dtype.bits);
    case kBool: return "bool";
    case kFloat8E4M3Fn: return "float8_e4m3fn";
    case kFloat8E5M2: return "float8_e5m2";
    case kFloat8E8M0Fnu: return "float8_e8m0fnu";
    case kFloat4E2M1Fn: return "float4_e2m1fn";
    default: return fmt::format("DLPack's dtype of code {} and {} bits", dtype.code, dtype.bits);
  }
}

}  // namespace

DLDataType dl_data_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return one_lane(kDLBfloat, 16);
    case DType::kF16: return one_lane(kDLFloat, 16);
    case DType::kF32: return one_lane(kDLFloat, 32);
    case DType::kF8E4M3: return one_lane(kFloat8E4M3Fn, 8);
    case DType::kF8E5M2: return one_lane(kFloat8E5M2, 8);
    case DType::kI32: return one_lane(kDLInt, 32);
    case DType::kI64: return one_lane(kDLInt, 64);
    case DType::kU8: return one_lane(kDLUInt, 8);
    case DType::kU32: return one_lane(kDLUInt, 32);
    case DType::kF8E8M0: return one_lane(kFloat8E8M0Fnu, 8);
    case DType::kF4E2M1x2: return {.code = kFloat4E2M1Fn, .bits = 4, .lanes = 2};
  }
  return {};
}

bool stands_for(DLDataType given, DType wanted) {
  if (is_equal(given, dl_data_type(wanted))) return true;
  switch (wanted) {
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
    case DType::kF4E2M1x2: return is_equal(given, one_lane(kDLUInt, 8));
    case DType::kU8: return is_equal(given, one_lane(kBool, 8));
    case DType::kU32: return is_equal(given, one_lane(kDLInt, 32));
    default: return false;
  }
}

std::string to_string(DLDataType dtype) {
  const std::string element = element_name(dtype);
  return dtype.lanes == 1 ? element : fmt::format("{}x{}", element, dtype.lanes);
}

}  // namespace moejit::bindings
