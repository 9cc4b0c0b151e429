// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/check/operand_rows.h"
#include "runtime/reference/transpose.h"
#include "runtime/trial/file_tensors.h"
#include "templates/moejit_device/params/status_bits.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::check {
namespace {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;

using reference::block_count;
using reference::kBlock;

// Returns permuted rows, each with the data of its token; a token with probability 0 has zeros.
reference::QuantizedRows gathered_rows(const compiler::TransposeSpec& spec,
                                       const KernelTensors& tensors) {
  const reference::QuantizedRows of_tokens = tensors.rows("input");
  const reference::Route route = tensors.route();
  const std::vector<uint8_t> is_real = reference::real_rows(route);
  const std::span<const int32_t> row_tokens = tensors.view<int32_t>("row_tokens");
  const int64_t cols = of_tokens.cols, blocks = block_count(cols);
  reference::QuantizedRows rows{.rows = route.rows(), .cols = cols, .q = {}, .scale_inv = {}};
  rows.q.resize(static_cast<size_t>(rows.rows * cols));
  rows.scale_inv.resize(static_cast<size_t>(rows.rows * blocks));
  for (int64_t row = 0; row < rows.rows; ++row) {
    if (is_real[static_cast<size_t>(row)] == 0) continue;
    const int32_t told = row_tokens[static_cast<size_t>(row)];
    const int64_t token = told < 0 ? ~told : told;
    if (token >= of_tokens.rows) continue;  // the check of its writer reports it
    std::copy_n(of_tokens.scale_inv.begin() + token * blocks, blocks,
                rows.scale_inv.begin() + row * blocks);
    if (told >= 0 || spec.source == compiler::RowSource::kGatheredAll)
      std::copy_n(of_tokens.q.begin() + token * cols, cols, rows.q.begin() + row * cols);
  }
  return rows;
}

}  // namespace

uint64_t check_transposed(const KernelTensors& tensors, const reference::QuantizedRows& rows,
                          std::string_view role, CheckList& list,
                          const compiler::TransposeSpec& spec) {
  const HostTensor codes = trial::join_column_blocks(tensors.at(role));
  const std::string scales_role = fmt::format("{}_scale_inv", role);
  const int64_t columns = codes.shape[1], tiles = columns / kBlock;
  const reference::Route route = tensors.route();
  const reference::TransposeGroups groups{
      .counts = route.counts,
      .offs = route.offs,
      .output_offs = copy_elements<int32_t>(tensors.at("output_offs"))};
  const reference::Transposed wanted = reference::transpose(
      rows, groups, columns,
      spec.format == compiler::DType::kF8E5M2 ? reference::Fp8Format::kE5m2
                                              : reference::Fp8Format::kE4m3,
      spec.rule == compiler::TransposeRule::kIdeal ? reference::TransposeRule::kIdeal
                                                   : reference::TransposeRule::kForkCompat,
      0);
  std::vector<uint8_t> bytes = copy_elements<uint8_t>(codes);
  std::vector<float> scales = copy_elements<float>(tensors.at(scales_role));
  for (int64_t tile = 0; tile < tiles; ++tile) {
    if (is_in_group(groups, tile)) continue;
    for (size_t i = static_cast<size_t>(tile); i < scales.size(); i += static_cast<size_t>(tiles))
      scales[i] = wanted.scale_inv[i];
    for (size_t row = 0; row < static_cast<size_t>(codes.shape[0]); ++row) {
      const size_t first = row * static_cast<size_t>(columns) + static_cast<size_t>(tile) * 128;
      std::copy_n(wanted.bytes.begin() + first, 128, bytes.begin() + first);
    }
  }
  const std::string_view name = tensors.name(role), scales_name = tensors.name(scales_role);
  list.add(check_of(name, testing::compare_e4m3({name, columns}, bytes, wanted.bytes)));
  list.add(
      check_of(scales_name, testing::compare_f32({scales_name, tiles}, scales, wanted.scale_inv)));
  return wanted.flushed;
}

namespace {

bool is_power_of_two_or_0(float value) {
  int exponent = 0;
  return value == 0.0f || std::frexp(value, &exponent) == 0.5f;
}

// Checks the status bit for a scale in a group's row that is not a power of two.
void check_scale_status(const KernelTensors& tensors, const reference::QuantizedRows& rows,
                        CheckList& list) {
  const std::vector<uint8_t> is_real = reference::real_rows(tensors.route());
  const int64_t blocks = block_count(rows.cols);
  bool is_bad = false;
  for (size_t i = 0; i < rows.scale_inv.size(); ++i) {
    const size_t row = i / static_cast<size_t>(blocks);
    is_bad |= row < is_real.size() && is_real[row] != 0 && !is_power_of_two_or_0(rows.scale_inv[i]);
  }
  const bool got = (tensors.view<uint32_t>("status").front() & device::kStatusBadScale) != 0;
  list.add(check_number(tensors.name("status"), got ? 1 : 0, is_bad ? 1 : 0));
}

}  // namespace

void check_kept_bytes(const KernelTensors& tensors, const HostTensor& rows, std::string_view role,
                      CheckList& list) {
  const HostTensor codes = trial::join_column_blocks(tensors.at(role));
  const reference::Route route = tensors.route();
  const std::vector<int32_t> output_offs = copy_elements<int32_t>(tensors.at("output_offs"));
  const std::span<const uint8_t> bytes = elements<uint8_t>(rows);
  const int64_t columns = codes.shape[1], width = rows.shape[1];
  std::vector<uint8_t> wanted = copy_elements<uint8_t>(codes);
  for (size_t e = 0; e < route.counts.size(); ++e)
    for (int64_t i = 0; i < block_count(route.counts[e]) * kBlock; ++i)
      for (int64_t c = 0; c < width; ++c)
        wanted[static_cast<size_t>(c * columns + output_offs[e] + i)] =
            i < route.counts[e] ? bytes[static_cast<size_t>((route.offs[e] + i) * width + c)] : 0;
  const std::string_view name = tensors.name(role);
  list.add(
      check_of(name, testing::compare_e4m3({name, columns}, elements<uint8_t>(codes), wanted)));
}

void check_kernel(const compiler::TransposeSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input")) return;
  if (spec.rule == compiler::TransposeRule::kKeepBytes)
    return check_kept_bytes(tensors, tensors.at("input"), "output", list);
  const reference::QuantizedRows rows = spec.source == compiler::RowSource::kInOrder
                                            ? tensors.rows("input")
                                            : gathered_rows(spec, tensors);
  const uint64_t flushed = check_transposed(tensors, rows, "output", list, spec);
  if (tensors.has("flushed")) {
    const HostTensor* const before = tensors.before("flushed");
    const int64_t old = before == nullptr ? 0 : elements<int64_t>(*before).front();
    list.add(check_number(tensors.name("flushed"), tensors.view<int64_t>("flushed").front(),
                          old + static_cast<int64_t>(flushed)));
  }
  if (tensors.has("status")) check_scale_status(tensors, rows, list);
}

}  // namespace moejit::check
