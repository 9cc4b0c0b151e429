// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/expert_amax.h"
#include "runtime/check/kernel_checks.h"
#include "runtime/check/operand_rows.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/scales.h"
#include "runtime/trial/file_tensors.h"

#include <algorithm>
#include <fmt/core.h>
#include <span>
#include <string>

namespace moejit::check {

void check_kernel(const compiler::CastTransposeSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input") || !tensors.has("row_tokens") || !tensors.has("expert_scales")) return;
  const std::vector<uint16_t> values = permuted_rows(
      spec.zeroes_rows ? compiler::RowSource::kGathered : compiler::RowSource::kGatheredAll,
      spec.columns, tensors);
  const reference::Route route = tensors.route();
  const std::span<const float> scales = tensors.view<float>("expert_scales");
  std::vector<uint8_t> wanted(values.size());
  ExpertAmax recorded(scales.size());
  for (size_t e = 0; e < route.counts.size(); ++e)
    for (int64_t i = 0; i < route.counts[e] && route.offs[e] + i < route.rows(); ++i) {
      const auto first = static_cast<size_t>((route.offs[e] + i) * spec.columns);
      const auto row = std::span(values).subspan(first, static_cast<size_t>(spec.columns));
      std::ranges::copy(reference::cast_bf16(row, scales[e], trial::fp8_format(spec.format)),
                        wanted.begin() + static_cast<int64_t>(first));
      recorded.raise(e, reference::amax_of_bf16(row));
    }
  if (tensors.has("output")) list.codes(tensors, "output", wanted);
  if (tensors.has("output_colwise")) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(wanted));
    check_kept_bytes(tensors,
                     {spec.format, {route.rows(), spec.columns}, {bytes.begin(), bytes.end()}},
                     "output_colwise", list);
  }
  check_recorded_amax(spec.amax, recorded, tensors, list);
}

namespace {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;

std::vector<float> floats_of(const HostTensor& tensor) {
  if (tensor.dtype == compiler::DType::kF32) return copy_elements<float>(tensor);
  std::vector<float> values;
  for (const uint16_t bits : elements<uint16_t>(tensor))
    values.push_back(reference::float_from_bf16(bits));
  return values;
}

void check_bytes(const HostTensor& got, const std::string& name, const std::vector<uint8_t>& wanted,
                 CheckList& list) {
  list.add(check_of(
      name, testing::compare_e4m3({name, got.shape.back()}, elements<uint8_t>(got), wanted)));
}

void check_float(const KernelTensors& tensors, const std::string& name, float wanted,
                 CheckList& list) {
  if (const HostTensor* const got = tensors.find_named(name))
    list.add(check_of(name, testing::compare_f32({name}, elements<float>(*got), {&wanted, 1})));
}

}  // namespace

// Checks the tensors of the list, whose names are numbered: "input.0", "output.0", ...
void check_kernel(const compiler::MultiCastTransposeSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  const auto format = spec.output == compiler::DType::kF8E5M2 ? reference::Fp8Format::kE5m2
                                                              : reference::Fp8Format::kE4m3;
  for (int64_t i = 0;; ++i) {
    const auto name = [&](const char* what) { return fmt::format("{}.{}", what, i); };
    const HostTensor* const input = tensors.find_named(name("input"));
    const HostTensor* const output = tensors.find_named(name("output"));
    const HostTensor* const colwise = tensors.find_named(name("output_colwise"));
    if (input == nullptr || output == nullptr || colwise == nullptr) return;
    const HostTensor* const scale = tensors.find_named(name("scale"));
    const reference::CastTransposed wanted = reference::cast_transpose(
        floats_of(*input), input->shape[0], input->shape[1],
        scale == nullptr ? 1.0f : elements<float>(*scale).front(), format);
    check_bytes(*output, name("output"), wanted.bytes, list);
    check_bytes(*colwise, name("output_colwise"), wanted.colwise, list);
    if (output->bytes.empty()) continue;  // the kernel uses no address of a tensor without elements
    check_float(tensors, name("amax"), wanted.amax, list);
    check_float(tensors, name("scale_inv"), wanted.scale_inv, list);
  }
}

void check_kernel(const compiler::TakeScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  for (const std::string linear : {"fc1", "fc2"}) {
    const std::string scale = linear + "_scale", inverse = linear + "_scale_inv";
    if (!tensors.has(linear + "_stored") || !tensors.has(scale)) continue;
    const std::span<const float> stored = tensors.view<float>(linear + "_stored");
    std::vector<float> scales, inverses;
    for (int32_t e = 0; e < spec.experts; ++e) {
      scales.push_back(stored[static_cast<size_t>(e * spec.columns.stride + spec.columns.first)]);
      inverses.push_back(1.0F / scales.back());
    }
    list.floats(tensors, scale, scales);
    list.floats(tensors, inverse, inverses);
  }
}

void check_kernel(const compiler::UpdateScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  for (const std::string linear : {"fc1", "fc2"}) {
    const std::string history = linear + "_amax_history", scale = linear + "_scale";
    const HostTensor *const old_history = tensors.before(history), *const old_scale =
                                                                       tensors.before(scale);
    if (old_history == nullptr || old_scale == nullptr) continue;
    reference::ScaleState state{.columns = spec.columns,
                                .amax_history = copy_elements<float>(*old_history),
                                .scale = copy_elements<float>(*old_scale)};
    reference::update_scales(
        state, {.largest = spec.largest,
                .is_most_recent = spec.algorithm == compiler::AmaxComputeAlgo::kMostRecent});
    list.floats(tensors, history, state.amax_history);
    list.floats(tensors, scale, state.scale);
  }
}

}  // namespace moejit::check
