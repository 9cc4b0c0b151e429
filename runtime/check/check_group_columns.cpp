// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/check/operand_rows.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/layouts.h"
#include "runtime/trial/file_tensors.h"

#include <algorithm>

namespace moejit::check {
namespace {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;

using compiler::ColumnPass;
using compiler::GroupColumnsSpec;
using reference::kBlock;

// Returns the matrices [E, rows, columns] of the input, transposed.
std::vector<uint16_t> transposed_matrices(const GroupColumnsSpec& spec,
                                          const KernelTensors& tensors) {
  const HostTensor& input = tensors.at("input");
  std::vector<uint16_t> values = copy_elements<uint16_t>(input);
  if (spec.is_interleaved)
    values = reference::gate_first<uint16_t>(values, spec.section_rows, spec.columns);
  const int64_t matrices = input.shape[0], rows = input.shape[1], columns = input.shape[2];
  std::vector<uint16_t> transposed;
  transposed.reserve(values.size());
  for (int64_t e = 0; e < matrices; ++e)
    for (int64_t column = 0; column < columns; ++column)
      for (int64_t row = 0; row < rows; ++row)
        transposed.push_back(values[static_cast<size_t>((e * rows + row) * columns + column)]);
  return transposed;
}

void check_matrices(const GroupColumnsSpec& spec, const KernelTensors& tensors, CheckList& list) {
  const int64_t rows = int64_t{spec.sections} * spec.section_rows;
  const reference::QuantizedRows wanted = reference::quantize_rows(
      transposed_matrices(spec, tensors), int64_t{spec.local_experts} * spec.columns, rows,
      spec.pass == ColumnPass::kScales ? spec.epsilon : reference::kRowEps);
  if (spec.pass == ColumnPass::kScales)
    return list.floats(tensors, "output_scale_inv", wanted.scale_inv);
  list.codes(tensors, "output", wanted.q);
}

// Compares the columns of an operand. Columns that belong to no group are never written, so they
// are skipped.
void check_cast(const GroupColumnsSpec& spec, const KernelTensors& tensors,
                const std::vector<uint16_t>& rows, const reference::TransposeGroups& groups,
                CheckList& list) {
  const HostTensor codes = trial::join_column_blocks(tensors.at("output"));
  const std::span<const uint8_t> got = elements<uint8_t>(codes);
  const int64_t output_columns = codes.shape[1];
  std::vector<uint8_t> wanted = reference::cast_columns(
      rows, spec.columns, groups, tensors.view<float>("input_scale_inv"), output_columns, 0);
  std::vector<bool> is_written(static_cast<size_t>(output_columns));
  for (size_t e = 0; e < groups.counts.size(); ++e)
    std::fill_n(is_written.begin() + groups.output_offs[e],
                reference::block_count(groups.counts[e]) * kBlock, true);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!is_written[i % static_cast<size_t>(output_columns)]) wanted[i] = got[i];
  const std::string_view name = tensors.name("output");
  list.add(check_of(name, testing::compare_e4m3({name, output_columns}, got, wanted)));
}

}  // namespace

namespace {

// Compares scales with the scales that the largest magnitudes of tiles give.
void check_scales_of_magnitudes(const GroupColumnsSpec& spec, const KernelTensors& tensors,
                                CheckList& list) {
  const reference::Route route = tensors.route();
  reference::TransposeGroups tiles;
  for (const int32_t offset : tensors.view<int32_t>("output_offs"))
    tiles.offs.push_back(offset / static_cast<int32_t>(kBlock));
  for (const int32_t count : route.counts)
    tiles.counts.push_back(static_cast<int32_t>(reference::block_count(count)));
  list.floats(tensors, "output_scale_inv",
              reference::group_column_scales(tensors.view<uint16_t>("input"), spec.columns, tiles,
                                             spec.epsilon));
}

}  // namespace

void check_kernel(const GroupColumnsSpec& spec, const KernelTensors& tensors, CheckList& list) {
  if (!tensors.has("input")) return;
  if (has_matrices(spec)) return check_matrices(spec, tensors, list);
  if (spec.has_amax_rows) return check_scales_of_magnitudes(spec, tensors, list);
  const reference::Route route = tensors.route();
  reference::TransposeGroups groups{.counts = route.counts, .offs = route.offs, .output_offs = {}};
  const std::vector<uint16_t> rows = permuted_rows(spec.source, spec.columns, tensors);
  if (spec.pass == ColumnPass::kScales)
    return list.floats(tensors, "output_scale_inv",
                       reference::group_column_scales(rows, spec.columns, groups, spec.epsilon));
  groups.output_offs = copy_elements<int32_t>(tensors.at("output_offs"));
  check_cast(spec, tensors, rows, groups, list);
}

}  // namespace moejit::check
