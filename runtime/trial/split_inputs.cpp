// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/split_inputs.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace moejit::trial {

using runtime::HostTensor;
using runtime::TensorMap;

HostTensor slice_rows(const HostTensor& tensor, int64_t first, int64_t count) {
  HostTensor slice{tensor.dtype, tensor.shape, {}};
  const int64_t rows = tensor.shape.front();
  const int64_t row_bytes = rows == 0 ? 0 : std::ssize(tensor.bytes) / rows;
  slice.shape.front() = count;
  const auto begin = tensor.bytes.begin() + first * row_bytes;
  slice.bytes.assign(begin, begin + count * row_bytes);
  return slice;
}

std::vector<TensorMap> split_inputs(const compiler::Layer& layer, const TensorMap& inputs,
                                    std::span<const int64_t> tokens) {
  constexpr std::array kOfTokens =
      std::to_array<std::string_view>({"x", "topk_ids", "topk_probs", "dy"});
  std::vector<TensorMap> ranks;
  int64_t first_token = 0;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    TensorMap& own = ranks.emplace_back();
    for (const auto& [name, tensor] : inputs) {
      const bool is_of_tokens = std::ranges::find(kOfTokens, name) != kOfTokens.end();
      own[name] = is_of_tokens
                      ? slice_rows(tensor, first_token, tokens[rank])
                      : slice_rows(tensor, static_cast<int64_t>(rank) * layer.local_experts,
                                   layer.local_experts);
    }
    first_token += tokens[rank];
  }
  return ranks;
}

}  // namespace moejit::trial
