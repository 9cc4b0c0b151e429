// SPDX-License-Identifier: Apache-2.0
#include "compiler/dtype.h"

#include <array>

namespace moejit::compiler {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array kDTypes = {
    DTypeRow{DType::kBF16, "BF16", 2},
    DTypeRow{DType::kF16, "F16", 2},
    DTypeRow{DType::kF32, "F32", 4},
    DTypeRow{DType::kF8E4M3, "F8_E4M3", 1},
    DTypeRow{DType::kF8E5M2, "F8_E5M2", 1},
    DTypeRow{DType::kI32, "I32", 4},
    DTypeRow{DType::kI64, "I64", 8},
    DTypeRow{DType::kU8, "U8", 1},
    DTypeRow{DType::kU32, "U32", 4},
    DTypeRow{DType::kF8E8M0, "F8_E8M0", 1},
    DTypeRow{DType::kF4E2M1x2, "F4_E2M1X2", 1},
};

const DTypeRow& row_of(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view to_string(DType dtype) { return row_of(dtype).name; }

std::optional<DType> dtype_from_string(std::string_view name) {
  for (const DTypeRow& row : kDTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

int64_t size_bytes(DType dtype) { return row_of(dtype).bytes; }

}  // namespace moejit::compiler
