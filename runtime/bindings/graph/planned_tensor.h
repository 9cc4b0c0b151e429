// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/moejit.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace moejit::graph {

// A dimension whose size follows from the call.
enum class CallDim : uint8_t { kNone, kTokens, kRows, kColumns, kColumnBlocks };

// A tensor of the plan: `shape` for as many tokens as calls may have.
struct PlannedTensor {
  std::size_t index = 0;  // in the plan
  std::string name;
  moejit_role role = MOEJIT_ROLE_INPUT;
  DLDataType dtype{};
  std::vector<int64_t> shape;
  std::array<CallDim, 4> call_dims{};
  int64_t bytes = 0;
  int64_t quantized_block = -1;  // of moejit_tensor_info
  int64_t quantized_offset = -1;
};

PlannedTensor planned(const moejit_tensor_info& info, std::size_t index);

}  // namespace moejit::graph
