// SPDX-License-Identifier: Apache-2.0

#include "runtime/check/operand_rows.h"

#include "runtime/trial/file_tensors.h"

#include <algorithm>
#include <fmt/core.h>

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

using reference::kBlock;
using runtime::elements;

bool is_in_group(const reference::TransposeGroups& groups, int64_t block) {
  for (size_t e = 0; e < groups.counts.size(); ++e) {
    const int64_t first = groups.output_offs[e] / kBlock;
    if (block >= first && block < first + reference::block_count(groups.counts[e])) return true;
  }
  return false;
}

CastOperand::CastOperand(const KernelTensors& tensors, std::string_view role)
    : name_(tensors.name(role)), codes_(trial::join_column_blocks(tensors.at(role))) {
  const std::string scales_role = fmt::format("{}_scale_inv", role);
  scales_name_ = tensors.name(scales_role);
  scales_ = tensors.view<float>(scales_role);
  const reference::Route route = tensors.route();
  groups_ = {.counts = route.counts,
             .offs = route.offs,
             .output_offs = copy_elements<int32_t>(tensors.at("output_offs"))};
}

uint8_t CastOperand::code(int64_t column, int64_t output_column) const {
  return elements<uint8_t>(codes_)[static_cast<size_t>(column * output_columns() + output_column)];
}

float CastOperand::scale_inv(int64_t column, int64_t block) const {
  return scales_[static_cast<size_t>(block * columns() + column)];
}

void CastOperand::compare(reference::ColumnCast wanted, const std::string& verdict,
                          CheckList& list) const {
  for (int64_t block = 0; block < output_columns() / kBlock; ++block) {
    if (is_in_group(groups_, block)) continue;
    for (int64_t column = 0; column < columns(); ++column) {
      wanted.scale_inv[static_cast<size_t>(block * columns() + column)] = scale_inv(column, block);
      const int64_t first = column * output_columns() + block * kBlock;
      std::copy_n(elements<uint8_t>(codes_).begin() + first, kBlock, wanted.bytes.begin() + first);
    }
  }
  list.add(check_of(
      name_,
      testing::compare_e4m3({name_, output_columns()}, elements<uint8_t>(codes_), wanted.bytes),
      verdict));
  list.add(check_of(scales_name_,
                    testing::compare_f32({scales_name_, columns()}, scales_, wanted.scale_inv),
                    verdict));
}

}  // namespace moejit::check
