// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/graph/planned_tensor.h"

#include <algorithm>
#include <string_view>

namespace moejit::graph {
namespace {

CallDim call_dim(std::string_view symbol) {
  if (symbol == "T") return CallDim::kTokens;
  if (symbol == "P") return CallDim::kRows;
  if (symbol == "C") return CallDim::kColumns;
  return symbol == "C/128" ? CallDim::kColumnBlocks : CallDim::kNone;
}

}  // namespace

PlannedTensor planned(const moejit_tensor_info& info, std::size_t index) {
  PlannedTensor tensor{.index = index,
                       .name = info.name,
                       .role = info.role,
                       .dtype = info.dtype,
                       .shape = {info.shape, info.shape + info.ndim},
                       .bytes = info.bytes,
                       .quantized_block = info.quantized_block,
                       .quantized_offset = info.quantized_offset};
  for (int32_t i = 0; i < std::min<int32_t>(info.ndim, 4); ++i)
    tensor.call_dims[static_cast<std::size_t>(i)] = call_dim(info.symbols[i]);
  return tensor;
}

}  // namespace moejit::graph
