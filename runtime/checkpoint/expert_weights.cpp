// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/expert_weights.h"

#include "compiler/support/json_document.h"
#include "runtime/checkpoint/expert_group.h"
#include "runtime/checkpoint/four_bit_format.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"

#include <array>
#include <cmath>
#include <fmt/core.h>

namespace moejit::checkpoint {
namespace {

using runtime::elements;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

constexpr int64_t kScaleBlock = 128;

int64_t blocks_of(int64_t elements) { return (elements + kScaleBlock - 1) / kScaleBlock; }

// Returns whether scales [E, rows] belong to channels, else they belong to blocks.
bool has_channels(const HostTensor& scales) { return scales.shape.size() == 2; }

// Dequantizes consecutive matrices [rows, columns] of codes, each with scales [blocks of rows,
// blocks of columns], or [rows].
HostTensor dequantized(const HostTensor& codes, const HostTensor& scales,
                       std::vector<int64_t> shape, int64_t rows, int64_t columns) {
  const auto from = elements<uint8_t>(codes);
  const auto factors = elements<float>(scales);
  const int64_t across = blocks_of(columns), down = blocks_of(rows);
  std::vector<uint16_t> values(from.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / columns,
                  column = static_cast<int64_t>(i) % columns;
    const int64_t block_row = row / rows * down + row % rows / kScaleBlock;
    const int64_t place = has_channels(scales) ? row : block_row * across + column / kScaleBlock;
    values[i] = reference::bf16_from_float(reference::decode_e4m3(from[i]) *
                                           factors[static_cast<size_t>(place)]);
  }
  return make_tensor(compiler::DType::kBF16, std::move(shape), values);
}

}  // namespace

void dequantize_weights(const compiler::Layer& layer, TensorMap& tensors) {
  const int64_t e = layer.local_experts, h = layer.hidden, i = layer.intermediate;
  tensors["w1"] = dequantized(tensors["w1_q"], tensors["w1_scale_inv"],
                              {e, compiler::w1_sections(layer) * i, h}, i, h);
  tensors["w2"] = dequantized(tensors["w2_q"], tensors["w2_scale_inv"], {e, h, i}, h, i);
  for (const char* name : {"w1_q", "w1_scale_inv", "w2_q", "w2_scale_inv"}) tensors.erase(name);
}

namespace {

constexpr uint8_t kNanScale = 255;
constexpr int kScaleBias = 127;
constexpr std::array<float, 16> kValues = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

}  // namespace

std::optional<std::size_t> decode_mxfp4(std::span<const std::uint8_t> codes,
                                        std::span<const std::uint8_t> scales,
                                        std::span<std::uint16_t> values) {
  for (std::size_t block = 0; block < scales.size(); ++block) {
    if (scales[block] == kNanScale) return block;
    std::array<uint16_t, kValues.size()> decoded;
    for (std::size_t code = 0; code < kValues.size(); ++code)
      decoded[code] = reference::bf16_from_float(
          std::ldexp(kValues[code], static_cast<int>(scales[block]) - kScaleBias));
    for (std::size_t i = 0; i < kMxfp4Block; ++i) {
      const uint8_t byte = codes[block * kMxfp4BlockBytes + i / 2];
      const uint16_t value = decoded[i % 2 == 0 ? byte & 0xF : byte >> 4];
      if (!std::isfinite(reference::float_from_bf16(value))) return block;
      values[block * kMxfp4Block + i] = value;
    }
  }
  return std::nullopt;
}

namespace {

using compiler::GateUpLayout;

// Puts gate and up of a tensor with `columns` columns into the layer's order.
void reorder(HostTensor& tensor, GateUpLayout wanted, int64_t half, int64_t columns) {
  const auto values = elements<uint16_t>(tensor);
  tensor = make_tensor(tensor.dtype, tensor.shape,
                       wanted == GateUpLayout::kInterleaved
                           ? reference::interleaved<uint16_t>(values, half, columns)
                           : reference::gate_first<uint16_t>(values, half, columns));
}

// Puts w1_gate and w1_up in the place of w1, if there is one.
void separate_gate_up(const compiler::Layer& layer, TensorMap& tensors) {
  const auto found = tensors.find("w1");
  if (found == tensors.end()) return;
  const HostTensor w1 = std::move(tensors.extract(found).mapped());
  const int64_t i = layer.intermediate, h = layer.hidden;
  for (const auto& [name, section] : {std::pair("w1_gate", 0), std::pair("w1_up", 1)})
    tensors[name] = make_tensor(w1.dtype, {w1.shape.front(), i, h},
                                reference::section_of<uint16_t>(elements<uint16_t>(w1), section,
                                                                static_cast<size_t>(i * h)));
}

// Returns whether the layer reads such codes as they are. dgrad multiplies with columns of the
// weights: of 128x128 blocks they are the same codes, else they are quantized from bf16. Blocks of
// a checkpoint share no scales.
bool takes_codes(const compiler::Layer& layer, const TensorMap& tensors) {
  const compiler::ScaleOf scale = layer.recipe.weights.scale;
  if (has_channels(tensors.at("w1_scale_inv")))
    return scale == compiler::ScaleOf::kRow && !compiler::has_backward(layer);
  return scale == compiler::ScaleOf::k128x128 &&
         (layer.scale_sharing_k == 1 || !compiler::has_backward(layer));
}

Result<LoadedExperts> load(const compiler::Layer& layer, const CheckpointOptions& options,
                           const ExpertGroup& group, ShardSet& shards) {
  const compiler::PackedFormat format = layer.recipe.weights.packed;
  const bool is_four_bit = four_bit_format(format).has_value();
  if (is_four_bit && has_split_experts(group))
    return load_packed_experts(layer, group, options.first_expert, shards);
  if (is_four_bit)
    return fail(Stage::kFile, ErrorCode::kUnsupported,
                fmt::format("{}: the experts of {} are one tensor, wanted tensors of each expert "
                            "for {}, whose weight_format is {}",
                            shards.description(), quote_for_message(group.prefix, 200),
                            named_layer(layer), to_string(format)),
                "pack with the operation pack_weights, and use --input");
  if (has_split_experts(group) && is_packed(layer.recipe.weights))
    return fail(
        Stage::kFile, ErrorCode::kUnsupported,
        fmt::format("{}: the experts of {} have tensors of their own, wanted MXFP4 of all experts "
                    "for {}, whose weight_format is {}",
                    shards.description(), quote_for_message(group.prefix, 200), named_layer(layer),
                    to_string(weight_format(layer))),
        "leave weight_format out, or pack with the operation pack_weights and use --input");
  if (has_split_experts(group))
    return load_split_experts(layer, group, options.first_expert, shards);
  if (has_fused_experts(group)) return load_fused_experts(layer, group, options, shards);
  return fail(Stage::kFile, ErrorCode::kTensorMismatch,
              fmt::format("{}: the experts of {} have tensors called {} ..., wanted "
                          "N.gate_proj.weight and so on, or gate_up_proj and down_proj",
                          shards.description(), quote_for_message(group.prefix, 200),
                          quote_for_message(*group.fused.begin())),
              "other names are not read: rename the tensors, or hand them over with --input");
}

}  // namespace

Result<TensorMap> load_expert_weights(const compiler::Layer& layer,
                                      const CheckpointOptions& options) {
  if (has_shared(layer))
    return fail(Stage::kFile, ErrorCode::kUnsupported,
                fmt::format("{}: got shared experts, wanted a layer without them to read a "
                            "checkpoint",
                            named_layer(layer)),
                "a checkpoint has them in tensors apart: give w1 and w2 of all experts, the shared "
                "ones last, in an input file");
  MOEJIT_TRY_ASSIGN(ShardSet shards, ShardSet::open(options.shards));
  MOEJIT_TRY_ASSIGN(const ExpertGroup group, choose_expert_group(shards, options));
  MOEJIT_TRY_ASSIGN(LoadedExperts loaded, load(layer, options, group, shards));
  if (loaded.tensors.contains("w1_q") && !is_packed(layer.recipe.weights) &&
      !takes_codes(layer, loaded.tensors))
    dequantize_weights(layer, loaded.tensors);
  const GateUpLayout order = joined_layout(layer);
  // Biases have one column. Quantized weights are not reordered: gate comes first in all layouts.
  for (const auto& [name, columns] : {std::pair("w1", layer.hidden), std::pair("b1", 1)})
    if (const auto found = loaded.tensors.find(name);
        found != loaded.tensors.end() && loaded.layout != order)
      reorder(found->second, order, layer.intermediate, columns);
  if (has_separate_gate_up(layer)) separate_gate_up(layer, loaded.tensors);
  return std::move(loaded.tensors);
}

}  // namespace moejit::checkpoint
