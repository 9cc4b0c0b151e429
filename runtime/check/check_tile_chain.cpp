// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/expert_amax.h"
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/scales.h"

#include <algorithm>

namespace moejit::check {
namespace {

using runtime::copy_elements;
using runtime::HostTensor;

// Returns the rows with zeros appended to each section, up to a multiple of 128 columns.
std::vector<uint8_t> fill_up(const std::vector<uint8_t>& rows, int64_t section_columns) {
  const int64_t padded = reference::block_count(section_columns) * reference::kBlock;
  std::vector<uint8_t> all;
  for (auto section = rows.begin(); section != rows.end(); section += section_columns) {
    all.insert(all.end(), section, section + section_columns);
    all.resize(all.size() + static_cast<size_t>(padded - section_columns));
  }
  return all;
}

// Returns the values of the matrices, gate first.
std::vector<uint16_t> input_of(const compiler::TileChainSpec& spec, const KernelTensors& tensors) {
  const std::span<const uint16_t> input = tensors.view<uint16_t>("input");
  if (spec.is_separate)
    return reference::join_sections<uint16_t>(
        input, tensors.view<uint16_t>("input_up"),
        static_cast<size_t>(int64_t{spec.section_rows} * spec.columns));
  if (spec.is_interleaved)
    return reference::gate_first<uint16_t>(input, spec.section_rows, spec.columns);
  return {input.begin(), input.end()};
}

// Checks matrices that each have one known scale.
void check_known_scales(const compiler::TileChainSpec& spec, const KernelTensors& tensors,
                        CheckList& list) {
  const HostTensor& output = tensors.at("output");
  if (tensors.has("input") && tensors.has("expert_scales")) {
    const std::vector<uint16_t> rows = input_of(spec, tensors);
    std::vector<uint8_t> wanted;
    const std::span<const float> scales = tensors.view<float>("expert_scales");
    const size_t size = rows.size() / scales.size();
    ExpertAmax recorded(scales.size());
    for (size_t e = 0; e < scales.size(); ++e) {
      const std::span<const uint16_t> matrix = std::span(rows).subspan(e * size, size);
      const std::vector<uint8_t> codes =
          reference::cast_bf16(matrix, scales[e], reference::Fp8Format::kE4m3);
      wanted.insert(wanted.end(), codes.begin(), codes.end());
      recorded.raise(e, reference::amax_of_bf16(matrix));
    }
    list.codes(tensors, "output", wanted);
    check_recorded_amax(spec.amax, recorded, tensors, list);
  }
  if (!tensors.has("output_colwise")) return;
  reference::QuantizedWeights weights{.experts = output.shape[0],
                                      .rows = output.shape[1],
                                      .cols = output.shape[2],
                                      .sections = spec.sections,
                                      .q = copy_elements<uint8_t>(output),
                                      .scale_inv = {}};
  weights.scale_inv.resize(static_cast<size_t>(weights.experts * weights.scale_rows() *
                                               reference::block_count(weights.cols)));
  const std::vector<uint8_t> wanted = reference::transpose(weights).q;
  list.codes(tensors, "output_colwise",
             spec.sections > 1 ? fill_up(wanted, spec.section_rows) : wanted);
}

}  // namespace

// Checks quantized weights and their transposes. If the weights came quantized, there is no input;
// the transposes are then compared with these codes.
void check_kernel(const compiler::TileChainSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (spec.has_expert_scale) return check_known_scales(spec, tensors, list);
  reference::QuantizedWeights rows;
  if (tensors.has("input")) {
    rows = reference::quantize_128x128(input_of(spec, tensors), tensors.at("input").shape[0],
                                       int64_t{spec.sections} * spec.section_rows, spec.columns,
                                       spec.sections, spec.tiles_per_scale);
    if (spec.writes_rows) {
      list.codes(tensors, "output", rows.q);
      list.floats(tensors, "output_scale_inv", rows.scale_inv);
    }
  }
  if (!tensors.has("output_colwise")) return;
  if (spec.writes_rows) rows = tensors.weights("output", spec.sections);
  const reference::ColwiseWeights wanted = reference::transpose(rows);
  list.codes(tensors, "output_colwise",
             spec.sections > 1 ? fill_up(wanted.q, spec.section_rows) : wanted.q);
  list.floats(tensors, "output_colwise_scale_inv", wanted.scale_inv);
}

}  // namespace moejit::check
