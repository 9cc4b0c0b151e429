// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/check/operand_rows.h"
#include "runtime/reference/microscaling.h"
#include "runtime/reference/two_level.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::check {
namespace {

using runtime::copy_elements;
using runtime::HostTensor;

using compiler::CastResult;
using compiler::TwoLevelCastSpec;
using reference::TwoLevelBlocks;
using reference::TwoLevelMatrix;

// Rows with one scale above the scales of their blocks.
struct Part {
  int64_t first = 0;
  int64_t rows = 0;
};

// Returns the rows of each expert, pad rows included, or the rows of each matrix.
std::vector<Part> parts_of(const TwoLevelCastSpec& spec, const KernelTensors& tensors) {
  std::vector<Part> parts;
  if (spec.matrix_rows > 0) {
    for (int64_t e = 0; e < spec.local_experts; ++e)
      parts.push_back({.first = e * spec.matrix_rows, .rows = spec.matrix_rows});
  } else if (spec.local_experts == 0) {
    parts.push_back({.first = 0, .rows = tensors.at("input").shape.front()});
  } else {
    const reference::Route route = tensors.route();
    for (size_t e = 0; e < route.counts.size(); ++e)
      parts.push_back({.first = route.offs[e], .rows = route.offs[e + 1] - route.offs[e]});
  }
  return parts;
}

// Returns the rows that a kernel casts. If there are groups, their pad rows are zeros, and rows end
// with the last group.
std::vector<uint16_t> values_of(const TwoLevelCastSpec& spec, const KernelTensors& tensors) {
  if (spec.matrix_rows > 0 || spec.local_experts == 0)
    return copy_elements<uint16_t>(tensors.at("input"));
  const reference::Route route = tensors.route();
  std::vector<uint16_t> rows = permuted_rows(spec.source, spec.columns, tensors);
  rows.resize(static_cast<size_t>(route.rows() * spec.columns));
  return reference::with_zero_pads(rows, spec.columns, route.counts, route.offs);
}

// Returns all parts, each quantized with its own scale, one after the other.
TwoLevelMatrix quantize(const TwoLevelCastSpec& spec, const KernelTensors& tensors,
                        TwoLevelBlocks blocks) {
  const std::vector<uint16_t> values = values_of(spec, tensors);
  const std::span<const float> scales = tensors.view<float>("expert_scales");
  TwoLevelMatrix all{.rows = 0, .cols = spec.columns, .codes = {}, .scales = {}};
  for (size_t e = 0; const Part& part : parts_of(spec, tensors)) {
    const TwoLevelMatrix one = reference::quantize_two_levels(
        std::span(values).subspan(static_cast<size_t>(part.first * spec.columns),
                                  static_cast<size_t>(part.rows * spec.columns)),
        part.rows, spec.columns, scales[e++], spec.has_tiles ? TwoLevelBlocks::kTiles : blocks);
    all.rows += one.rows;
    all.codes.insert(all.codes.end(), one.codes.begin(), one.codes.end());
    all.scales.insert(all.scales.end(), one.scales.begin(), one.scales.end());
  }
  return all;
}

void check_bytes(std::string_view role, std::vector<uint8_t> wanted, const KernelTensors& tensors,
                 CheckList& list) {
  const HostTensor& tensor = tensors.at(role);
  const std::span<const uint8_t> got = tensors.view<uint8_t>(role);
  // Bytes that belong to no row are not written.
  if (wanted.size() < got.size())
    wanted.insert(wanted.end(), got.begin() + std::ssize(wanted), got.end());
  const std::string_view name = tensors.name(role);
  list.add(check_of(name, testing::compare_bytes({name, tensor.shape.back()}, got, wanted)));
}

void check_rows(const TwoLevelMatrix& wanted, const KernelTensors& tensors, CheckList& list) {
  check_bytes("output", reference::packed_row_codes(wanted), tensors, list);
  check_bytes("output_scale_inv", reference::row_scales(wanted), tensors, list);
}

// Compares the first bytes of each row of a tensor with the columns of `wanted`. Nothing writes the
// bytes behind them.
void check_columns(std::string_view role, const std::vector<uint8_t>& wanted, int64_t width,
                   const KernelTensors& tensors, CheckList& list) {
  std::vector<uint8_t> all = copy_elements<uint8_t>(tensors.at(role));
  const int64_t pitch = tensors.at(role).shape.back();
  for (int64_t column = 0; width > 0 && column < std::ssize(wanted) / width; ++column)
    std::copy_n(wanted.begin() + column * width, width, all.begin() + column * pitch);
  check_bytes(role, std::move(all), tensors, list);
}

// Checks transposed codes and scales, of matrices one after the other.
void check_colwise(const TwoLevelCastSpec& spec, const TwoLevelMatrix& wanted,
                   const KernelTensors& tensors, CheckList& list) {
  const int64_t matrices = spec.matrix_rows > 0 ? spec.local_experts : 1;
  const int64_t rows = wanted.rows / matrices;
  const int64_t pitch = compiler::two_level_pitch(rows);
  std::vector<uint8_t> codes, scales;
  for (int64_t i = 0; i < matrices; ++i) {
    const auto first = i * rows * spec.columns, end = first + rows * spec.columns;
    const TwoLevelMatrix one{
        .rows = rows,
        .cols = spec.columns,
        .codes = {wanted.codes.begin() + first, wanted.codes.begin() + end},
        .scales = {wanted.scales.begin() + first, wanted.scales.begin() + end}};
    const std::vector<uint8_t> of_codes = reference::packed_column_codes(one, pitch, 0);
    const std::vector<uint8_t> of_scales = reference::column_scales(one, pitch, 0);
    codes.insert(codes.end(), of_codes.begin(), of_codes.end());
    scales.insert(scales.end(), of_scales.begin(), of_scales.end());
  }
  check_columns("output_colwise", codes, pitch / 2, tensors, list);
  check_columns("output_colwise_scale_inv", scales, pitch / reference::kTwoLevelBlock, tensors,
                list);
}

}  // namespace

void check_kernel(const TwoLevelCastSpec& spec, const KernelTensors& tensors, CheckList& list) {
  if (!tensors.has("input") || !tensors.has("expert_scales")) return;
  const bool has_values = spec.result == CastResult::kValues;
  if (spec.casts_rows && tensors.has("output")) {
    const TwoLevelMatrix wanted = quantize(spec, tensors, TwoLevelBlocks::kRows);
    if (has_values)
      list.bf16(tensors, "output", reference::two_level_values(wanted));
    else
      check_rows(wanted, tensors, list);
  }
  if (spec.casts_columns && tensors.has("output_colwise")) {
    const TwoLevelMatrix wanted = quantize(spec, tensors, TwoLevelBlocks::kColumns);
    if (has_values)
      list.bf16(tensors, "output_colwise", reference::two_level_values(wanted));
    else
      check_colwise(spec, wanted, tensors, list);
  }
}

}  // namespace moejit::check
