// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/gathered_rows.h"

#include <algorithm>

namespace moejit::check {

using runtime::copy_elements;

std::vector<uint16_t> permuted_rows(compiler::RowSource source, int64_t columns,
                                    const KernelTensors& tensors) {
  if (source == compiler::RowSource::kInOrder) return copy_elements<uint16_t>(tensors.at("input"));
  const std::span<const uint16_t> of_tokens = tensors.view<uint16_t>("input");
  const reference::Route route = tensors.route();
  const std::vector<uint8_t> is_real = reference::real_rows(route);
  const std::span<const int32_t> row_tokens = tensors.view<int32_t>("row_tokens");
  const int64_t token_count = std::ssize(of_tokens) / columns;
  std::vector<uint16_t> rows(static_cast<size_t>(route.rows() * columns));
  for (int64_t row = 0; row < route.rows(); ++row) {
    if (is_real[static_cast<size_t>(row)] == 0) continue;
    const int32_t told = row_tokens[static_cast<size_t>(row)];
    const int64_t token = told < 0 ? ~told : told;
    if (token >= token_count) continue;  // the check of its writer reports it
    if (told >= 0 || source == compiler::RowSource::kGatheredAll)
      std::copy_n(of_tokens.begin() + token * columns, columns, rows.begin() + row * columns);
  }
  return rows;
}

}  // namespace moejit::check
