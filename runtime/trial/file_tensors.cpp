// SPDX-License-Identifier: Apache-2.0

#include "runtime/trial/file_tensors.h"

#include "runtime/reference/layouts.h"

#include <fmt/core.h>
#include <string_view>

namespace moejit::trial {

namespace {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

constexpr std::string_view kOperands[] = {"x", "act", "grad", "dh1"};
constexpr int64_t kTile = 128;

// The columns of one expert in an operand of wgrad.
struct Slice {
  int64_t expert = 0;
  int64_t first = 0;  // a multiple of 128
  int64_t count = 0;
};

HostTensor codes_of(const HostTensor& all, const Slice& slice) {
  const int64_t rows = all.shape[0], columns = all.shape[1];
  const std::span<const uint8_t> from = elements<uint8_t>(all);
  std::vector<uint8_t> codes;
  codes.reserve(static_cast<size_t>(rows * slice.count));
  for (int64_t row = 0; row < rows; ++row) {
    const auto start = from.begin() + row * columns + slice.first;
    codes.insert(codes.end(), start, start + slice.count);
  }
  return make_tensor(all.dtype, {rows, slice.count}, codes);
}

// Returns the scales of the operand's `rows` rows from [C / 128, rows].
HostTensor row_scales_of(const HostTensor& scales, int64_t rows, const Slice& slice) {
  const int64_t blocks = (slice.count + kTile - 1) / kTile;
  const auto first = elements<float>(scales).begin() + slice.first / kTile * rows;
  return make_tensor(scales.dtype, {blocks, rows},
                     std::vector<float>(first, first + blocks * rows));
}

// Returns the scales of the operand's `rows` rows, repeating each scale of `tiles` for 128 rows.
HostTensor scales_of(const HostTensor& tiles, int64_t rows, const Slice& slice) {
  const bool has_one_for_each_row = tiles.shape[1] == rows && tiles.shape[0] != (rows + 127) / 128;
  if (has_one_for_each_row) return row_scales_of(tiles, rows, slice);
  const int64_t pitch = tiles.shape[1], blocks = (slice.count + kTile - 1) / kTile;
  const std::span<const float> from = elements<float>(tiles);
  std::vector<float> scales;
  scales.reserve(static_cast<size_t>(blocks * rows));
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t row = 0; row < rows; ++row)
      scales.push_back(
          from[static_cast<size_t>(row / kTile * pitch + slice.first / kTile + block)]);
  return make_tensor(tiles.dtype, {blocks, rows}, scales);
}

}  // namespace

HostTensor join_column_blocks(const HostTensor& blocks) {
  const int64_t columns = blocks.shape[0] * kTile;
  if (columns == 0) return {blocks.dtype, {blocks.shape[1], 0}, {}};
  return make_tensor(blocks.dtype, {blocks.shape[1], columns},
                     reference::from_column_blocks(copy_elements<uint8_t>(blocks), columns));
}

void slice_colwise(TensorMap& tensors) {
  const auto offs =
      tensors.contains("colwise_offs") ? tensors.find("colwise_offs") : tensors.find("offs");
  auto counts = tensors.find("rows_per_expert");  // of layers with a router
  if (counts == tensors.end()) counts = tensors.find("counts");
  if (offs == tensors.end() || counts == tensors.end()) return;
  const std::vector<int32_t> starts = copy_elements<int32_t>(offs->second);
  const std::vector<int32_t> sizes = copy_elements<int32_t>(counts->second);
  for (const std::string_view operand : kOperands) {
    const auto rows = tensors.find(fmt::format("{}_colwise_q", operand));
    if (rows != tensors.end() && rows->second.dtype == compiler::DType::kBF16) continue;  // stays
    const auto blocks = tensors.extract(fmt::format("{}_colwise_q", operand));
    auto scales = tensors.extract(fmt::format("{}_colwise_scale_inv", operand));
    if (blocks.empty()) continue;
    const HostTensor codes = join_column_blocks(blocks.mapped());
    for (size_t e = 0; e < sizes.size(); ++e) {
      const Slice slice{static_cast<int64_t>(e), starts[e], sizes[e]};
      tensors.emplace(fmt::format("{}_colwise_q.{}", operand, e), codes_of(codes, slice));
      if (scales.empty()) continue;  // the row-wise operand has the same scales
      tensors.emplace(fmt::format("{}_colwise_scale_inv.{}", operand, e),
                      scales_of(scales.mapped(), codes.shape[0], slice));
    }
  }
}

namespace {

// Returns the dimension that holds gate and up, or -1 if the tensor does not have both.
int32_t halves_of(std::string_view name, const HostTensor& tensor) {
  const auto last = static_cast<int32_t>(tensor.shape.size()) - 1;
  if (name == "dh1_q" || name == "w1_colwise_q") return last;
  if (name.starts_with("dh1_colwise_scale_inv.")) return last;
  return name.starts_with("dh1_colwise_q.") ? 0 : -1;
}

HostTensor without_padding(const HostTensor& tensor, size_t dimension, int64_t columns,
                           int64_t padded) {
  int64_t inner = compiler::size_bytes(tensor.dtype);  // bytes for one index of the dimension
  for (size_t i = dimension + 1; i < tensor.shape.size(); ++i) inner *= tensor.shape[i];
  HostTensor result{tensor.dtype, tensor.shape, {}};
  result.shape[dimension] = tensor.shape[dimension] / padded * columns;
  if (inner == 0) return result;
  for (auto half = tensor.bytes.begin(); half != tensor.bytes.end(); half += padded * inner)
    result.bytes.insert(result.bytes.end(), half, half + columns * inner);
  return result;
}

}  // namespace

void drop_padding_of_halves(TensorMap& tensors, int64_t columns, int64_t padded) {
  if (columns == padded) return;
  for (auto& [name, tensor] : tensors) {
    const int32_t dimension = halves_of(name, tensor);
    if (dimension >= 0)
      tensor = without_padding(tensor, static_cast<size_t>(dimension), columns, padded);
  }
}

void put_gate_first(TensorMap& tensors, int64_t columns) {
  for (const std::string_view name : {"h1", "dh1", "dh1_q", "dh1_colwise_q"}) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) continue;
    HostTensor& tensor = found->second;
    tensor = make_tensor(tensor.dtype, tensor.shape,
                         reference::gate_first<uint16_t>(elements<uint16_t>(tensor), columns, 1));
  }
}

}  // namespace moejit::trial
