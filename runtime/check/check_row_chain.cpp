// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/expert_amax.h"
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/microscaling.h"
#include "runtime/reference/number_formats.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace moejit::check {
namespace {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;

using compiler::LoadStage;
using compiler::QuantizeStage;
using compiler::StoreStage;
using reference::QuantizedRows;

// Checks the probabilities of all rows, and the token of each real row. The tokens of pad rows are
// never written.
void check_what_moves_along(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                            const reference::Route& route, std::span<const float> probs,
                            CheckList& list) {
  if (!spec.moves_probs) return;
  std::vector<float> permuted(static_cast<size_t>(route.rows()), 0.0f);
  std::vector<int32_t> tokens;
  if (tensors.has("row_tokens")) tokens = copy_elements<int32_t>(tensors.at("row_tokens"));
  for (size_t i = 0; i < route.row_map.size(); ++i) {
    if (route.row_map[i] < 0) continue;
    const auto row = static_cast<size_t>(route.row_map[i]);
    const auto token = static_cast<int32_t>(static_cast<int64_t>(i) / spec.top_k);
    permuted[row] = probs[i];
    if (!tokens.empty()) tokens[row] = probs[i] == 0.0f ? ~token : token;
  }
  list.floats(tensors, "output_probs", permuted);
  if (tensors.has("row_tokens")) list.integers(tensors, "row_tokens", tokens);
}

// Returns rows quantized with a scale for 32 columns. The four scales of 128 columns are the bits
// of one float.
QuantizedRows grouped_rows(const HostTensor& input) {
  reference::MxMatrix rows =
      reference::quantize_mx_rows(elements<uint16_t>(input), input.shape[0], input.shape[1]);
  std::vector<float> words(rows.scale.size() / sizeof(float));
  std::memcpy(words.data(), rows.scale.data(), rows.scale.size());
  return {rows.rows, rows.cols, std::move(rows.q), std::move(words)};
}

// Returns the bf16 rows, in the order of tokens, that a kernel stores.
std::vector<uint16_t> stored_rows(const compiler::RowChainSpec& spec, const HostTensor& input) {
  if (spec.quantize != QuantizeStage::k1x32Values) return copy_elements<uint16_t>(input);
  return reference::mx_row_values(
      reference::quantize_mx_rows(elements<uint16_t>(input), input.shape[0], input.shape[1]));
}

// Returns the quantized rows in the order of tokens: codes that the kernel loaded, or else what the
// reference makes of its input.
QuantizedRows quantized_rows(const compiler::RowChainSpec& spec, const KernelTensors& tensors) {
  if (spec.load == LoadStage::kQuantizedRows) return tensors.rows("input");
  const HostTensor& input = tensors.at("input");
  if (spec.quantize == QuantizeStage::k1x32) return grouped_rows(input);
  if (has_row_scale(spec))
    return reference::quantize_rows(elements<uint16_t>(input), input.shape[0], input.shape[1],
                                    spec.epsilon);
  return reference::quantize_1x128(elements<uint16_t>(input), input.shape[0], input.shape[1],
                                   spec.epsilon,
                                   spec.quantize == QuantizeStage::k1x128Pairs ? 2 : 1);
}

// Checks permuted rows of E2M1: half as many bytes as columns, and words of four scales.
void check_two_level_rows(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                          const reference::Route& route, std::span<const float> probs,
                          CheckList& list) {
  const HostTensor& input = tensors.at("input");
  const std::span<const uint8_t> scales = tensors.view<uint8_t>("input_scale_inv");
  QuantizedRows rows{.rows = input.shape[0],
                     .cols = input.shape[1],
                     .q = copy_elements<uint8_t>(input),
                     .scale_inv = std::vector<float>(scales.size() / sizeof(float))};
  std::memcpy(rows.scale_inv.data(), scales.data(), scales.size());
  const QuantizedRows wanted = spec.moves_probs
                                   ? reference::permute_pad(rows, probs, route, spec.top_k).data
                                   : reference::permute_pad(rows, route, spec.top_k);
  std::vector<uint8_t> wanted_scales(wanted.scale_inv.size() * sizeof(float));
  std::memcpy(wanted_scales.data(), wanted.scale_inv.data(), wanted_scales.size());
  list.bytes(tensors, "output", wanted.q);
  list.bytes(tensors, "output_scale_inv", wanted_scales);
}

}  // namespace

void check_rows(const compiler::RowChainSpec& spec, const KernelTensors& tensors, CheckList& list) {
  if (!tensors.has("input")) return;
  if (spec.quantize == QuantizeStage::kAmax)
    return spec.store == StoreStage::kGroupedRows ? check_rows_amax(spec, tensors, list)
                                                  : check_permuted_amax(spec, tensors, list);
  if (spec.quantize == QuantizeStage::kExpert) {
    check_permuted_cast(spec, tensors, list);
    return check_what_moves_along(spec, tensors, tensors.route(), tensors.probs(), list);
  }
  if (spec.store == StoreStage::kRows && stores_bf16(spec))
    return list.bf16(tensors, "output", stored_rows(spec, tensors.at("input")));
  if (spec.store == StoreStage::kRows)
    return list.rows(tensors, "output", quantized_rows(spec, tensors));
  const reference::Route route = tensors.route();
  const std::vector<float> probs = tensors.probs();
  if (spec.load == LoadStage::kTwoLevelRows) {
    check_two_level_rows(spec, tensors, route, probs, list);
  } else if (stores_bf16(spec)) {
    const std::vector<uint16_t> rows = stored_rows(spec, tensors.at("input"));
    if (tensors.has("kept_output")) list.bf16(tensors, "kept_output", rows);
    list.bf16(tensors, "output",
              reference::permute_pad_bf16(rows, spec.columns, probs, route, spec.top_k));
  } else {
    const QuantizedRows rows = quantized_rows(spec, tensors);
    if (tensors.has("kept_output")) list.rows(tensors, "kept_output", rows);
    list.rows(tensors, "output",
              spec.moves_probs ? reference::permute_pad(rows, probs, route, spec.top_k).data
                               : reference::permute_pad(rows, route, spec.top_k));
  }
  check_what_moves_along(spec, tensors, route, probs, list);
}

namespace {

void check_matrix_rows(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                       CheckList& list) {
  if (!tensors.has("input")) return;
  std::vector<uint16_t> values = copy_elements<uint16_t>(tensors.at("input"));
  if (spec.is_interleaved)
    values = reference::gate_first<uint16_t>(values, spec.section_rows, spec.columns);
  list.rows(tensors, "output",
            reference::quantize_rows(values, std::ssize(values) / spec.columns, spec.columns,
                                     spec.epsilon));
}

}  // namespace

void check_unpermute(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                     CheckList& list) {
  if (tensors.has("input") && tensors.has("output")) {
    const HostTensor& row_map = tensors.at("row_map");
    list.bf16(tensors, "output",
              reference::unpermute(tensors.view<uint16_t>("input"), elements<int32_t>(row_map),
                                   row_map.shape[0], spec.top_k, spec.columns));
  }
  if (spec.store == StoreStage::kRowsAndProbs) check_dprobs(tensors, list);
}

// Checks dprobs. If they are bf16, each sum is rounded once.
void check_dprobs(const KernelTensors& tensors, CheckList& list) {
  const HostTensor& parts = tensors.at("dprobs_blocks");
  const std::span<const float> sums = elements<float>(parts);
  const int64_t blocks = parts.shape.back();
  const std::vector<int32_t> row_map = copy_elements<int32_t>(tensors.at("row_map"));
  std::vector<float> wanted;
  if (tensors.has("bias_dprobs")) {
    const std::span<const float> biases = tensors.view<float>("bias_dprobs");
    std::vector<float> all;
    for (size_t row = 0; row < biases.size(); ++row) {
      const auto first = sums.begin() + static_cast<int64_t>(row) * blocks;
      all.insert(all.end(), first, first + blocks);
      all.push_back(biases[row]);
    }
    wanted = reference::unpermute_dprobs(all, row_map, blocks + 1);
  } else {
    wanted = reference::unpermute_dprobs(sums, row_map, blocks);
  }
  if (tensors.at("dprobs").dtype == compiler::DType::kF32)
    return list.floats(tensors, "dprobs", wanted);
  std::vector<uint16_t> rounded;
  std::ranges::transform(wanted, std::back_inserter(rounded), reference::bf16_from_float);
  list.bf16(tensors, "dprobs", rounded);
}

void check_kernel(const compiler::UnpermuteDprobsSpec&, const KernelTensors& tensors,
                  CheckList& list) {
  check_dprobs(tensors, list);
}

void check_kernel(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  switch (spec.load) {
    case LoadStage::kMatrixRows: return check_matrix_rows(spec, tensors, list);
    case LoadStage::kRows:
    case LoadStage::kQuantizedRows:
    case LoadStage::kTwoLevelRows: return check_rows(spec, tensors, list);
    case LoadStage::kCombinedRows: return check_unpermute(spec, tensors, list);
    case LoadStage::kGatedRows:
    case LoadStage::kUpRows: return check_activation(spec, tensors, list);
    case LoadStage::kGatedGradientRows:
    case LoadStage::kUpGradientRows: return check_activation_gradient(spec, tensors, list);
  }
}

}  // namespace moejit::check
