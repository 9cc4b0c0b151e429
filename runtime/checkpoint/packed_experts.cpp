// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_document.h"
#include "runtime/checkpoint/expert_group.h"
#include "runtime/checkpoint/four_bit_format.h"
#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>

namespace moejit::checkpoint {
namespace {

using runtime::element_count;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::shape_text;
using runtime::type_text;

using compiler::DType;
using compiler::PackedFormat;

constexpr int64_t kWordCodes = 8;  // of INT4, in an int32
constexpr uint8_t kSymmetric = 8;  // the zero point of codes without zero points

// What families call the three projections of an expert.
constexpr std::array<std::array<std::string_view, 3>, 2> kProjections = {
    {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}}};

// What the tensors of a projection are called behind its name.
struct PackedNames {
  PackedFormat format;
  std::string_view codes, factor;
  bool is_reciprocal = false;  // whether the file has 1 / factor
};
constexpr std::array kPackedNames = {
    PackedNames{PackedFormat::kNvfp4, "weight", "weight_scale_2"},  // ModelOpt
    PackedNames{PackedFormat::kNvfp4, "weight_packed", "weight_global_scale", true},
    PackedNames{PackedFormat::kInt4, "weight_packed", ""}};
constexpr std::string_view kScales = "weight_scale", kZeros = "weight_zero_point";

float float_from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return bits >= 0x8000 ? -magnitude : magnitude;
}

// The weights of all experts of w1 or w2, as the reference packs them.
struct Matrices {
  std::vector<uint8_t> codes, scales, zeros;
  std::vector<float> row_scales, factors;
};

class PackedLoader {
 public:
  PackedLoader(const compiler::Layer& layer, const ExpertGroup& group, int64_t first_expert,
               ShardSet& shards)
      : layer_(layer), group_(group), first_expert_(first_expert), shards_(shards) {}

  Result<LoadedExperts> load() {
    MOEJIT_TRY(find_names());
    const int64_t h = layer_.hidden, i = layer_.intermediate;
    const bool has_gate = compiler::has_gate(layer_.activation);
    Matrices w1, w2;
    for (int64_t expert = 0; expert < layer_.local_experts; ++expert) {
      if (has_gate) MOEJIT_TRY(read(expert, (*projections_)[0], i, h, w1));
      MOEJIT_TRY(read(expert, (*projections_)[1], i, h, w1));
      MOEJIT_TRY(read(expert, (*projections_)[2], h, i, w2));
    }
    LoadedExperts loaded;
    MOEJIT_TRY(pack("w1", w1, compiler::w1_sections(layer_) * i, h, compiler::w1_sections(layer_),
                    loaded.tensors));
    MOEJIT_TRY(pack("w2", w2, h, i, 1, loaded.tensors));
    return loaded;
  }

 private:
  PackedFormat format() const { return layer_.recipe.weights.packed; }
  bool is_int4() const { return format() == PackedFormat::kInt4; }

  tl::unexpected<Error> mismatch(std::string what, std::string hint) const {
    return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                fmt::format("{}: the experts of {} {}", shards_.description(),
                            quote_for_message(group_.prefix, 200), what),
                std::move(hint));
  }

  Result<void> find_names() {
    for (const auto& projections : kProjections)
      for (const PackedNames& names : kPackedNames) {
        const auto has = [&](std::string_view kind) {
          return group_.parts.contains(fmt::format("{}.{}", projections[1], kind));
        };
        if (names.format != format() || !has(names.codes) ||
            (!names.factor.empty() && !has(names.factor)))
          continue;
        projections_ = &projections;
        names_ = names;
        if (layer_.biases || has("bias"))
          return mismatch("are read without biases, wanted none in the layer and in the file",
                          "pack with the operation pack_weights, and use --input");
        if (has("weight_g_idx"))
          return mismatch("have groups in another order (weight_g_idx), wanted 128 neighbors",
                          "quantize without activation order (desc_act, actorder)");
        return {};
      }
    return mismatch(
        fmt::format("have tensors called {} ..., wanted {} for {}, whose weight_format is {}",
                    quote_for_message(*group_.parts.begin(), 100),
                    is_int4() ? "up_proj.weight_packed and up_proj.weight_scale"
                              : "up_proj.weight, up_proj.weight_scale and up_proj.weight_scale_2",
                    named_layer(layer_), to_string(format())),
        is_int4() ? "qweight, qzeros and scales of AWQ and GPTQ are read by "
                    "moejit.torch.int4_weights()"
                  : "leave weight_format out for bf16 and FP8 weights");
  }

  // Reads a tensor whose dtype and shape are known.
  Result<void> read(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                    std::span<std::byte> bytes) {
    MOEJIT_TRY_ASSIGN(const ShardEntry found, find(name));
    if (found.entry->dtype != dtype || found.entry->shape != shape)
      return wrong_type(found, type_text(dtype, shape));
    return found.file->read_into(*found.entry, bytes);
  }
  Result<ShardEntry> find(const std::string& name) {
    if (shards_.has(name)) return shards_.find(name);
    return fail(Stage::kFile, ErrorCode::kMissingTensor,
                fmt::format("{}: tensor {} is missing", shards_.description(),
                            quote_for_message(name, 200)),
                shards_.missing_shard());
  }
  static tl::unexpected<Error> wrong_type(const ShardEntry& found, const std::string& wanted) {
    return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                fmt::format("{}: tensor {} is {} {}, wanted {}", found.file->path(),
                            quote_for_message(found.entry->name, 200), found.entry->dtype_name,
                            shape_text(found.entry->shape), wanted),
                "hidden and intermediate of the layer description give the shape; groups of INT4 "
                "have 128 elements");
  }

  // Appends `count` elements of a tensor.
  template <typename T>
  Result<void> append(const std::string& name, DType dtype, std::vector<int64_t> shape,
                      int64_t count, std::vector<T>& to) {
    const size_t first = to.size();
    to.resize(first + static_cast<size_t>(count));
    return read(name, dtype, shape, std::as_writable_bytes(std::span(to).subspan(first)));
  }

  // Appends a projection [rows, columns] of an expert.
  Result<void> read(int64_t expert, std::string_view projection, int64_t rows, int64_t columns,
                    Matrices& to) {
    const auto name = [&](std::string_view kind) {
      return fmt::format("{}{}.{}.{}", group_.stem, first_expert_ + expert, projection, kind);
    };
    const int64_t groups = columns / packed_tile(format()).group;
    if (is_int4()) {
      MOEJIT_TRY(append(name(names_.codes), DType::kI32, {rows, columns / kWordCodes},
                        rows * columns / 2, to.codes));
      to.factors.push_back(1.0F);
      MOEJIT_TRY(read_row_scales(name(kScales), {rows, groups}, to.row_scales));
      return read_zeros(name(kZeros), rows, groups, to.zeros);
    }
    MOEJIT_TRY(
        append(name(names_.codes), DType::kU8, {rows, columns / 2}, rows * columns / 2, to.codes));
    MOEJIT_TRY(append(name(kScales), DType::kF8E4M3, {rows, groups}, rows * groups, to.scales));
    return read_factor(name(names_.factor), to.factors);
  }

  Result<void> read_factor(const std::string& name, std::vector<float>& to) {
    MOEJIT_TRY_ASSIGN(const ShardEntry found, find(name));
    if (found.entry->dtype != DType::kF32 || element_count(found.entry->shape) != 1)
      return wrong_type(found, "F32 with one element");
    float factor = 0;
    MOEJIT_TRY(found.file->read_into(*found.entry, std::as_writable_bytes(std::span(&factor, 1))));
    to.push_back(names_.is_reciprocal ? 1.0F / factor : factor);
    return {};
  }

  Result<void> read_row_scales(const std::string& name, const std::vector<int64_t>& shape,
                               std::vector<float>& to) {
    MOEJIT_TRY_ASSIGN(const ShardEntry found, find(name));
    const bool is_f16 = found.entry->dtype == DType::kF16;
    if ((found.entry->dtype != DType::kBF16 && !is_f16) || found.entry->shape != shape)
      return wrong_type(found, fmt::format("BF16 or F16 {}", shape_text(shape)));
    std::vector<uint16_t> bits(static_cast<size_t>(element_count(shape)));
    MOEJIT_TRY(found.file->read_into(*found.entry, std::as_writable_bytes(std::span(bits))));
    for (const uint16_t each : bits)
      to.push_back(is_f16 ? float_from_f16(each) : reference::float_from_bf16(each));
    return {};
  }

  // Zero points of eight rows are in a word, the first row lowest; symmetric files have none.
  Result<void> read_zeros(const std::string& name, int64_t rows, int64_t groups,
                          std::vector<uint8_t>& to) {
    if (!shards_.has(name)) {
      to.insert(to.end(), static_cast<size_t>(rows * groups), kSymmetric);
      return {};
    }
    std::vector<uint32_t> words;
    MOEJIT_TRY(
        append(name, DType::kI32, {rows / kWordCodes, groups}, rows / kWordCodes * groups, words));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t group = 0; group < groups; ++group)
        to.push_back(
            static_cast<uint8_t>(words[static_cast<size_t>(row / kWordCodes * groups + group)] >>
                                     (4 * (row % kWordCodes)) &
                                 15u));
    return {};
  }

  Result<void> pack(const std::string& name, const Matrices& from, int64_t rows, int64_t columns,
                    int64_t sections, runtime::TensorMap& tensors) const {
    const int64_t experts = layer_.local_experts;
    const reference::PackedBf16Weights packed =
        reference::pack_four_bit({.format = four_bit_format(format()).value(),
                                  .experts = experts,
                                  .rows = rows,
                                  .cols = columns,
                                  .sections = sections,
                                  .codes = from.codes,
                                  .scales = from.scales,
                                  .row_scales = from.row_scales,
                                  .zeros = from.zeros});
    const auto bad =
        std::ranges::find_if_not(from.factors, [](float factor) { return std::isfinite(factor); });
    if (packed.is_bad || bad != from.factors.end())
      return fail(Stage::kFile, ErrorCode::kInvalidFile,
                  fmt::format("{}: the experts of {} have a scale of {} that is NaN or infinite, "
                              "wanted numbers",
                              shards_.description(), quote_for_message(group_.prefix, 200), name),
                  "is the file damaged?");
    const compiler::PackedTile& tile = packed_tile(format());
    tensors[name + "_scale_inv"] = make_tensor(DType::kF32, {experts, sections}, from.factors);
    tensors[name + "_q"] = make_tensor(DType::kU8,
                                       {experts, sections * reference::block_count(rows / sections),
                                        (columns + tile.columns - 1) / tile.columns, tile.bytes},
                                       packed.tiles);
    return {};
  }

  const compiler::Layer& layer_;
  const ExpertGroup& group_;
  int64_t first_expert_;
  ShardSet& shards_;
  const std::array<std::string_view, 3>* projections_ = &kProjections.front();
  PackedNames names_ = kPackedNames.front();
};

}  // namespace

Result<LoadedExperts> load_packed_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                          int64_t first_expert, ShardSet& shards) {
  return PackedLoader(layer, group, first_expert, shards).load();
}

}  // namespace moejit::checkpoint
