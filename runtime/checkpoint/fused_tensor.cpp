// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/fused_tensor.h"

#include "compiler/support/file.h"
#include "compiler/support/json_document.h"
#include "runtime/checkpoint/expert_weights.h"
#include "runtime/reference/packed_weights.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/core.h>

namespace moejit::checkpoint {
namespace {

using compiler::GateUpLayout;

struct Family {
  std::string_view model_type;
  GateUpLayout layout;
};

// Families whose checkpoints may have fused tensors. Their expert classes in transformers tell the
// layout (is_concatenated).
constexpr std::array kFamilies = {
    Family{"gpt_oss", GateUpLayout::kInterleaved},
    Family{"openai_privacy_filter", GateUpLayout::kConcat},
    Family{"aria_text", GateUpLayout::kConcat},
    Family{"granitemoe", GateUpLayout::kConcat},
    Family{"granitemoeshared", GateUpLayout::kConcat},
    Family{"granitemoehybrid", GateUpLayout::kConcat},
    Family{"llama4", GateUpLayout::kConcat},
    Family{"llama4_text", GateUpLayout::kConcat},
    Family{"mixtral", GateUpLayout::kConcat},
    Family{"qwen2_moe", GateUpLayout::kConcat},
    Family{"qwen3_moe", GateUpLayout::kConcat},
    Family{"qwen3_next", GateUpLayout::kConcat},
    Family{"qwen3_vl_moe", GateUpLayout::kConcat},
    Family{"qwen3_vl_moe_text", GateUpLayout::kConcat},
    Family{"qwen3_5_moe", GateUpLayout::kConcat},
    Family{"qwen3_5_moe_text", GateUpLayout::kConcat},
    Family{"deepseek_v2", GateUpLayout::kConcat},
    Family{"deepseek_v3", GateUpLayout::kConcat},
    Family{"glm4_moe", GateUpLayout::kConcat},
    Family{"olmoe", GateUpLayout::kConcat},
    Family{"minimax_m2", GateUpLayout::kConcat},
};

const JsonValue* find(const JsonValue& object, std::string_view key) {
  for (const JsonMember& member : object.members)
    if (member.key == key) return &member.value;
  return nullptr;
}

}  // namespace

std::optional<GateUpLayout> family_gate_up_layout(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  const auto text = read_text_file(path);
  if (!text) return std::nullopt;
  const auto document = parse_json(*text, {.source_name = path});
  if (!document) return std::nullopt;
  const JsonValue* inner = find(document->root, "text_config");
  const JsonValue* type = inner == nullptr ? nullptr : find(*inner, "model_type");
  if (type == nullptr) type = find(document->root, "model_type");
  if (type == nullptr) return std::nullopt;
  const auto* const family = std::ranges::find(kFamilies, type->text, &Family::model_type);
  return family == kFamilies.end() ? std::nullopt : std::optional(family->layout);
}

namespace {

using runtime::HostTensor;
using runtime::make_tensor;
using runtime::shape_text;
using runtime::type_text;

using compiler::DType;

constexpr std::string_view kWeightEnding = ".weight";

std::string with_ending(std::string_view projection, std::string_view ending) {
  if (!projection.ends_with(kWeightEnding)) return fmt::format("{}_{}", projection, ending);
  projection.remove_suffix(kWeightEnding.size());
  return fmt::format("{}.{}", projection, ending);
}

tl::unexpected<Error> wrong_type(const ShardEntry& found, const std::string& wanted,
                                 std::string hint) {
  return fail(Stage::kFile, ErrorCode::kTensorMismatch,
              fmt::format("{}: tensor {} is {} {}, wanted {}", found.file->path(),
                          quote_for_message(found.entry->name, 200), found.entry->dtype_name,
                          shape_text(found.entry->shape), wanted),
              std::move(hint));
}

std::string hint_about(const ShardEntry& found, DType wanted) {
  if (found.entry->dtype == wanted)
    return "hidden and intermediate of the layer description give the shape";
  return "save the model in bfloat16: model.to(torch.bfloat16).save_pretrained(...)";
}

// Returns the shape of one expert. Fails if the tensor has fewer experts than are wanted.
Result<std::vector<int64_t>> expert_shape(const FusedTensorSource& source,
                                          const ShardEntry& found) {
  const std::vector<int64_t>& shape = found.entry->shape;
  const int64_t end = source.first_expert + source.experts;
  if (!shape.empty() && shape.front() < end)
    return fail(Stage::kFile, ErrorCode::kMissingTensor,
                fmt::format("{}: tensor {} has {} experts, wanted {} to {}", found.file->path(),
                            quote_for_message(found.entry->name, 200), shape.front(),
                            source.first_expert, end - 1),
                "local_experts of the layer description and --first-expert say which are wanted");
  return std::vector<int64_t>(shape.begin() + (shape.empty() ? 0 : 1), shape.end());
}

// Reads the bytes of the wanted experts.
Result<void> read_experts(const FusedTensorSource& source, const ShardEntry& found,
                          std::span<std::byte> destination) {
  const int64_t bytes_each = static_cast<int64_t>(destination.size()) / source.experts;
  return found.file->read_into(*found.entry, destination, source.first_expert * bytes_each);
}

// Turns [columns, rows] into [rows, columns], square by square so that each fits into the cache.
void transpose(std::span<const uint16_t> from, int64_t rows, int64_t columns,
               std::span<uint16_t> to) {
  constexpr int64_t kSquare = 32;
  for (int64_t row = 0; row < rows; row += kSquare)
    for (int64_t column = 0; column < columns; column += kSquare)
      for (int64_t r = row; r < std::min(rows, row + kSquare); ++r)
        for (int64_t c = column; c < std::min(columns, column + kSquare); ++c)
          to[static_cast<size_t>(r * columns + c)] = from[static_cast<size_t>(c * rows + r)];
}

Result<FusedMatrices> check_mxfp4(const FusedTensorSource& source, FusedMatrices matrices) {
  const int64_t blocks = matrices.columns / kMxfp4Block;
  const std::vector<int64_t> scales = {matrices.rows, blocks};
  const std::vector<int64_t> codes = {matrices.rows, blocks, kMxfp4BlockBytes};
  const auto wanted = [&](std::vector<int64_t> shape) {
    shape.insert(shape.begin(), source.first_expert + source.experts);
    return type_text(DType::kU8, shape);
  };
  constexpr const char* kHint = "MXFP4 has 32 elements in a block: [E, rows, columns / 32, 16]";
  MOEJIT_TRY_ASSIGN(const std::vector<int64_t> values, expert_shape(source, matrices.values));
  if (matrices.values.entry->dtype != DType::kU8 || matrices.columns % kMxfp4Block != 0 ||
      values != codes)
    return wrong_type(matrices.values, wanted(codes), kHint);
  MOEJIT_TRY_ASSIGN(const std::vector<int64_t> factors, expert_shape(source, matrices.scales));
  if (matrices.scales.entry->dtype != DType::kU8 || factors != scales)
    return wrong_type(matrices.scales, wanted(scales), kHint);
  matrices.order = FusedOrder::kOutputFirst;
  return matrices;
}

struct Mxfp4Blocks {
  std::vector<uint8_t> codes, scales;
};

Result<Mxfp4Blocks> read_blocks(const FusedTensorSource& source, const FusedMatrices& matrices) {
  const auto blocks =
      static_cast<size_t>(source.experts * matrices.rows * matrices.columns / kMxfp4Block);
  Mxfp4Blocks read{std::vector<uint8_t>(blocks * kMxfp4BlockBytes), std::vector<uint8_t>(blocks)};
  MOEJIT_TRY(read_experts(source, matrices.values, std::as_writable_bytes(std::span(read.codes))));
  MOEJIT_TRY(read_experts(source, matrices.scales, std::as_writable_bytes(std::span(read.scales))));
  return read;
}

Result<HostTensor> read_mxfp4(const FusedTensorSource& source, const FusedMatrices& matrices) {
  MOEJIT_TRY_ASSIGN(const Mxfp4Blocks read, read_blocks(source, matrices));
  const auto& [codes, scales] = read;
  const size_t blocks = scales.size();
  std::vector<uint16_t> values(blocks * kMxfp4Block);
  if (const auto bad = decode_mxfp4(codes, scales, values))
    return fail(
        Stage::kFile, ErrorCode::kInvalidFile,
        fmt::format(
            "{}: tensor {} has the scale {} in block {} of expert {}, wanted one "
            "whose products bf16 holds",
            matrices.scales.file->path(), quote_for_message(matrices.scales.entry->name, 200),
            scales[*bad], *bad % (blocks / static_cast<size_t>(source.experts)),
            source.first_expert +
                static_cast<int64_t>(*bad / (blocks / static_cast<size_t>(source.experts)))),
        "a scale s means 2^(s - 127), and 255 no number: is the file damaged?");
  return make_tensor(DType::kBF16, {source.experts, matrices.rows, matrices.columns}, values);
}

}  // namespace

std::string bias_name(std::string_view projection) { return with_ending(projection, "bias"); }
std::string blocks_name(std::string_view projection) { return with_ending(projection, "blocks"); }
std::string scales_name(std::string_view projection) { return with_ending(projection, "scales"); }

Result<FusedMatrices> find_fused_matrices(const FusedTensorSource& source,
                                          std::string_view projection, int64_t rows,
                                          int64_t columns, ShardSet& shards) {
  FusedMatrices matrices{fmt::format("{}{}", source.stem, projection), rows, columns};
  if (const std::string blocks = source.stem + blocks_name(projection); shards.has(blocks)) {
    MOEJIT_TRY_ASSIGN(matrices.values, shards.find(blocks));
    MOEJIT_TRY_ASSIGN(matrices.scales, shards.find(source.stem + scales_name(projection)));
    return check_mxfp4(source, std::move(matrices));
  }
  MOEJIT_TRY_ASSIGN(matrices.values, shards.find(matrices.name));
  MOEJIT_TRY_ASSIGN(const std::vector<int64_t> shape, expert_shape(source, matrices.values));
  const bool is_output_first = shape == std::vector{rows, columns};
  const bool is_input_first = shape == std::vector{columns, rows};
  if (matrices.values.entry->dtype != DType::kBF16 || (!is_output_first && !is_input_first)) {
    const int64_t experts = source.first_expert + source.experts;
    return wrong_type(
        matrices.values,
        fmt::format("{} or {}", type_text(DType::kBF16, std::vector{experts, rows, columns}),
                    shape_text(std::vector{experts, columns, rows})),
        hint_about(matrices.values, DType::kBF16));
  }
  if (is_output_first && is_input_first) return matrices;
  matrices.order = is_output_first ? FusedOrder::kOutputFirst : FusedOrder::kInputFirst;
  return matrices;
}

Result<HostTensor> read_fused_matrices(const FusedTensorSource& source,
                                       const FusedMatrices& matrices, FusedOrder order) {
  if (matrices.scales.entry != nullptr) return read_mxfp4(source, matrices);
  const int64_t size = matrices.rows * matrices.columns;
  std::vector<uint16_t> values(static_cast<size_t>(source.experts * size));
  MOEJIT_TRY(read_experts(source, matrices.values, std::as_writable_bytes(std::span(values))));
  if (order == FusedOrder::kInputFirst) {
    std::vector<uint16_t> matrix(static_cast<size_t>(size));
    for (int64_t expert = 0; expert < source.experts; ++expert) {
      const auto place =
          std::span(values).subspan(static_cast<size_t>(expert * size), matrix.size());
      transpose(place, matrices.rows, matrices.columns, matrix);
      std::ranges::copy(matrix, place.begin());
    }
  }
  return make_tensor(DType::kBF16, {source.experts, matrices.rows, matrices.columns}, values);
}

Result<void> read_packed_matrices(const FusedTensorSource& source, const FusedMatrices& matrices,
                                  int64_t sections, bool is_interleaved, const std::string& name,
                                  runtime::TensorMap& tensors) {
  if (matrices.scales.entry == nullptr)
    return wrong_type(matrices.values, "MXFP4, since the layer's weight_format is mxfp4",
                      "leave weight_format out: the recipe then quantizes bf16 weights");
  MOEJIT_TRY_ASSIGN(const Mxfp4Blocks read, read_blocks(source, matrices));
  const reference::PackedWeights packed = reference::pack_weights({.experts = source.experts,
                                                                   .rows = matrices.rows,
                                                                   .cols = matrices.columns,
                                                                   .sections = sections,
                                                                   .is_interleaved = is_interleaved,
                                                                   .codes = read.codes,
                                                                   .scales = read.scales});
  if (packed.bad_group) {
    const int64_t groups = matrices.columns / kMxfp4Block, row = *packed.bad_group / groups;
    return fail(
        Stage::kFile, ErrorCode::kInvalidFile,
        fmt::format("{}: tensor {} has the scale {} in block {} of row {} of expert {}, "
                    "wanted one at most 14 below the largest of its 128x128 tile",
                    matrices.scales.file->path(),
                    quote_for_message(matrices.scales.entry->name, 200),
                    read.scales[static_cast<size_t>(*packed.bad_group)], *packed.bad_group % groups,
                    row % matrices.rows, source.first_expert + row / matrices.rows),
        "leave weight_format out: the recipe then quantizes the checkpoint's values; the "
        "scale 255 is no number");
  }
  std::vector<int64_t> shape = {source.experts,
                                sections * reference::block_count(matrices.rows / sections),
                                reference::block_count(matrices.columns)};
  tensors[name + "_scale_inv"] = make_tensor(DType::kF32, shape, packed.scale_inv);
  shape.push_back(reference::kPackedTileBytes);
  tensors[name + "_q"] = make_tensor(DType::kU8, std::move(shape), packed.tiles);
  return {};
}

Result<HostTensor> read_fused_rows(const FusedTensorSource& source, std::string_view name,
                                   int64_t columns, ShardSet& shards) {
  MOEJIT_TRY_ASSIGN(const ShardEntry found, shards.find(fmt::format("{}{}", source.stem, name)));
  MOEJIT_TRY_ASSIGN(const std::vector<int64_t> shape, expert_shape(source, found));
  if (found.entry->dtype != DType::kBF16 || shape != std::vector{columns})
    return wrong_type(
        found, type_text(DType::kBF16, std::vector{source.first_expert + source.experts, columns}),
        hint_about(found, DType::kBF16));
  std::vector<uint16_t> values(static_cast<size_t>(source.experts * columns));
  MOEJIT_TRY(read_experts(source, found, std::as_writable_bytes(std::span(values))));
  return make_tensor(DType::kBF16, {source.experts, columns}, values);
}

}  // namespace moejit::checkpoint
