// SPDX-License-Identifier: Apache-2.0

#include "runtime/check/check_activation.h"
#include "runtime/check/expert_amax.h"
#include "runtime/check/kernel_checks.h"
#include "runtime/check/operand_rows.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/two_level.h"
#include "runtime/trial/file_tensors.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <iterator>

namespace moejit::check {

using runtime::elements;
using runtime::HostTensor;

void check_recorded_amax(const compiler::AmaxColumns& columns, const ExpertAmax& experts,
                         const KernelTensors& tensors, CheckList& list) {
  if (!is_recorded(columns) || !tensors.has("amax")) return;
  const HostTensor* const before = tensors.before("amax");
  if (before == nullptr) return;
  const std::span<const float> old = elements<float>(*before), got = tensors.view<float>("amax");
  const auto width = static_cast<size_t>(before->shape.back());
  std::vector<float> recorded;
  std::vector<double> wanted, bounds;
  for (size_t row = 0; row < old.size(); row += width)
    for (size_t e = 0; e < experts.amax.size(); ++e) {
      const size_t column =
          e * static_cast<size_t>(columns.stride) + static_cast<size_t>(columns.first);
      const bool is_this_step = row == 0;
      recorded.push_back(got[row + column]);
      wanted.push_back(is_this_step ? std::max<double>(old[column], experts.amax[e])
                                    : double{old[row + column]});
      bounds.push_back(is_this_step ? experts.bound[e] : 0.0);
    }
  const std::string_view name = tensors.name("amax");
  const testing::Comparison comparison = testing::compare_f32_within(
      {name, static_cast<int64_t>(experts.amax.size())}, recorded, wanted, bounds);
  const bool is_exact = std::ranges::all_of(bounds, [](double bound) { return bound == 0.0; });
  list.add_part(is_exact ? check_of(name, comparison) : check_within(name, comparison));
}

namespace {

using runtime::copy_elements;

constexpr int64_t kSet = 512;  // columns of a row whose largest magnitude is kept

// Returns the expert of each row, or -1 for rows that are not real.
std::vector<int64_t> experts_of_rows(const reference::Route& route) {
  std::vector<int64_t> experts(static_cast<size_t>(route.rows()), -1);
  for (size_t e = 0; e < route.counts.size(); ++e)
    for (int64_t i = 0; i < route.counts[e] && route.offs[e] + i < route.rows(); ++i)
      experts[static_cast<size_t>(route.offs[e] + i)] = static_cast<int64_t>(e);
  return experts;
}

// Returns the largest magnitude of each set of columns of a row.
std::vector<float> amax_of_sets(std::span<const uint16_t> row) {
  std::vector<float> amax;
  for (size_t first = 0; first < row.size(); first += kSet)
    amax.push_back(
        reference::amax_of_bf16(row.subspan(first, std::min<size_t>(kSet, row.size() - first))));
  return amax;
}

std::span<const uint16_t> row_of(std::span<const uint16_t> rows, int64_t row, int64_t columns) {
  return rows.subspan(static_cast<size_t>(row * columns), static_cast<size_t>(columns));
}

}  // namespace

void check_permuted_amax(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                         CheckList& list) {
  const std::span<const uint16_t> input = tensors.view<uint16_t>("input");
  const std::vector<float> probs = tensors.probs();
  const std::span<const int32_t> row_map = tensors.view<int32_t>("row_map");
  // Pad rows are never written.
  std::vector<float> wanted = copy_elements<float>(tensors.at("output"));
  const int64_t sets = (spec.columns + kSet - 1) / kSet;
  for (size_t i = 0; i < row_map.size(); ++i) {
    if (row_map[i] < 0) continue;
    std::vector<float> amax =
        amax_of_sets(row_of(input, static_cast<int64_t>(i) / spec.top_k, spec.columns));
    if (!probs.empty() && probs[i] == 0.0f) std::ranges::fill(amax, 0.0f);
    std::ranges::copy(amax, wanted.begin() + row_map[i] * sets);
  }
  list.floats(tensors, "output", wanted);
}

void check_rows_amax(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                     CheckList& list) {
  const std::span<const uint16_t> input = tensors.view<uint16_t>("input");
  const std::vector<int64_t> experts = experts_of_rows(tensors.route());
  // Rows that belong to no group are never written.
  std::vector<float> wanted = copy_elements<float>(tensors.at("output"));
  const int64_t sets = (spec.columns + kSet - 1) / kSet;
  for (size_t row = 0; row < experts.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    std::vector<float> amax = amax_of_sets(row_of(input, at, spec.columns));
    if (experts[row] < 0) std::ranges::fill(amax, 0.0f);
    std::ranges::copy(amax, wanted.begin() + at * sets);
  }
  list.floats(tensors, "output", wanted);
}

void check_permuted_cast(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                         CheckList& list) {
  const std::span<const uint16_t> input = tensors.view<uint16_t>("input");
  const std::vector<float> probs = tensors.probs();
  const reference::Route route = tensors.route();
  const std::vector<int64_t> experts = experts_of_rows(route);
  const std::span<const float> scales = tensors.view<float>("expert_scales");
  std::vector<uint8_t> wanted(experts.size() * static_cast<size_t>(spec.columns));
  ExpertAmax recorded(scales.size());
  for (size_t i = 0; i < route.row_map.size(); ++i) {
    const int64_t row = route.row_map[i];
    if (row < 0 || (!probs.empty() && probs[i] == 0.0f)) continue;
    const auto expert = static_cast<size_t>(experts[static_cast<size_t>(row)]);
    const std::span<const uint16_t> values =
        row_of(input, static_cast<int64_t>(i) / spec.top_k, spec.columns);
    const std::vector<uint8_t> codes =
        reference::cast_bf16(values, scales[expert], trial::fp8_format(spec.format));
    std::ranges::copy(codes, wanted.begin() + row * spec.columns);
    recorded.raise(expert, reference::amax_of_bf16(values));
  }
  list.codes(tensors, "output", wanted);
  check_recorded_amax(spec.amax, recorded, tensors, list);
}

void check_values_amax(const ValueRows& values, const KernelTensors& tensors, CheckList& list) {
  const HostTensor& output = tensors.at("output");
  const int64_t sets = output.shape.back();
  const std::vector<int64_t> experts = experts_of_rows(tensors.route());
  std::vector<double> wanted, bounds;
  for (const float amax : elements<float>(output)) {
    wanted.push_back(amax);
    bounds.push_back(0.0);
  }
  for (size_t row = 0; row < experts.size(); ++row)
    for (int64_t set = 0; set < sets; ++set) {
      const size_t at = row * static_cast<size_t>(sets) + static_cast<size_t>(set);
      double amax = 0.0;
      for (int64_t part = 0; part < values.parts && experts[row] >= 0; ++part)
        for (int64_t i = set * kSet; i < std::min((set + 1) * kSet, values.columns); ++i) {
          const double value = std::fabs(values.at(static_cast<int64_t>(row), part, i));
          if (value > amax) amax = value;
        }
      wanted[at] = amax;
      // A kernel may round a value to another bf16 neighbor; what it stores is still a bf16 value.
      const bool is_bf16 = (reference::bits_of(elements<float>(output)[at]) & 0xffffU) == 0;
      bounds[at] = is_bf16 ? 0x1p-7 * amax + 0x1p-126 : 0.0;
    }
  const std::string_view name = tensors.name("output");
  list.add(check_within(
      name, testing::compare_f32_within({name, sets}, elements<float>(output), wanted, bounds)));
}

void check_values_cast(const ValueRows& values, compiler::DType format,
                       const compiler::AmaxColumns& amax, const KernelTensors& tensors,
                       CheckList& list) {
  const HostTensor& output = tensors.at("output");
  const int64_t width = output.shape.back(), pitch = width / values.parts;
  const std::vector<int64_t> experts = experts_of_rows(tensors.route());
  const std::span<const float> scales = tensors.view<float>("expert_scales");
  std::vector<uint8_t> wanted(experts.size() * static_cast<size_t>(width));
  ExpertAmax recorded(scales.size());
  for (size_t row = 0; row < experts.size(); ++row) {
    if (experts[row] < 0) continue;
    const auto expert = static_cast<size_t>(experts[row]);
    const float scale = scales[expert];
    for (int64_t part = 0; part < values.parts; ++part)
      for (int64_t i = 0; i < values.columns; ++i) {
        const float rounded = reference::float_from_bf16(
            reference::bf16_from_float(values.at(static_cast<int64_t>(row), part, i)));
        recorded.raise(expert, std::fabs(rounded));
        const float product = rounded * scale;
        wanted[row * static_cast<size_t>(width) + static_cast<size_t>(part * pitch + i)] =
            reference::encode_fp8(product, trial::fp8_format(format));
      }
  }
  std::vector<uint8_t> got = copy_elements<uint8_t>(output);
  got.resize(wanted.size());
  const std::string_view name = tensors.name("output");
  list.add(check_of(name, testing::compare_e4m3_within_one_code({name, width}, got, wanted),
                    "within one code"));
  for (size_t e = 0; e < recorded.amax.size(); ++e)
    recorded.bound[e] = 0x1p-7 * recorded.amax[e] + 0x1p-126;
  check_recorded_amax(amax, recorded, tensors, list);
}

void check_kernel(const compiler::MatrixAmaxSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input")) return;
  const HostTensor& output = tensors.at("output");
  const auto piece = static_cast<size_t>(spec.threads) * 64;
  const size_t elements_of_matrix =
      static_cast<size_t>(spec.rows) * static_cast<size_t>(spec.columns);
  const std::span<const uint16_t> input = tensors.view<uint16_t>("input");
  std::vector<float> wanted;
  for (size_t matrix = 0; matrix < static_cast<size_t>(output.shape[0]); ++matrix)
    for (size_t first = 0; first < elements_of_matrix; first += piece)
      wanted.push_back(reference::amax_of_bf16(input.subspan(
          matrix * elements_of_matrix + first, std::min(piece, elements_of_matrix - first))));
  list.floats(tensors, "output", wanted);
}

void check_kernel(const compiler::ExpertScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("amax") || !tensors.has("scale")) return;
  const std::span<const float> amax = tensors.view<float>("amax");
  const reference::Route route = tensors.route();
  std::vector<float> scales, inverses;
  for (size_t e = 0; e < static_cast<size_t>(tensors.at("scale").shape[0]); ++e) {
    const size_t first = spec.has_rows ? static_cast<size_t>(route.offs[e]) : e;
    const size_t count = spec.has_rows ? static_cast<size_t>(route.counts[e]) : 1;
    float largest = 0.0f;
    for (size_t i = first * static_cast<size_t>(spec.magnitudes);
         i < std::min((first + count) * static_cast<size_t>(spec.magnitudes), amax.size()); ++i)
      largest = std::max(largest, amax[i]);
    const reference::ExpertScale scale =
        spec.format == compiler::DType::kF4E2M1x2
            ? reference::two_level_expert_scale(largest)
            : reference::expert_scale(largest, trial::fp8_format(spec.format),
                                      spec.is_power_of_two);
    scales.push_back(scale.scale);
    inverses.push_back(scale.scale_inv);
  }
  list.floats(tensors, "scale", scales);
  list.floats(tensors, "scale_inv", inverses);
}

}  // namespace moejit::check
