// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_document.h"
#include "runtime/checkpoint/expert_group.h"
#include "runtime/reference/microscaling.h"
#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>

namespace moejit::checkpoint {
namespace {

using runtime::element_count;
using runtime::HostTensor;
using runtime::shape_text;
using runtime::TensorMap;
using runtime::type_text;

using compiler::DType;

// The three projections of an expert, as families of models call them.
struct ProjectionNames {
  std::string_view gate, up, down;
};
constexpr std::array kSplitNamings = {ProjectionNames{"gate_proj", "up_proj", "down_proj"},
                                      ProjectionNames{"w1", "w3", "w2"},
                                      ProjectionNames{"fc1", "fc3", "fc2"}};

std::string weight_of(std::string_view projection) { return fmt::format("{}.weight", projection); }
std::string scale_of(std::string_view projection) {
  return fmt::format("{}.weight_scale", projection);
}
std::string token_scale_of(std::string_view projection) {
  return fmt::format("{}.input_scale", projection);
}
std::string bias_of(std::string_view projection) { return fmt::format("{}.bias", projection); }

int64_t scale_blocks(int64_t elements) { return (elements + 127) / 128; }

// One projection of an expert, as a part of the tensor of all experts.
struct ExpertPart {
  int64_t expert = 0;          // number in the checkpoint
  std::string name;            // what follows the expert's number in the tensor's name
  std::vector<int64_t> shape;  // wanted shape
  HostTensor* destination = nullptr;
  int64_t byte_offset = 0;
};

class SplitLoader {
 public:
  SplitLoader(const compiler::Layer& layer, const ExpertGroup& group, int64_t first_expert,
              ShardSet& shards)
      : layer_(layer), group_(group), first_expert_(first_expert), shards_(shards) {}

  Result<LoadedExperts> load() {
    MOEJIT_TRY(find_naming());
    MOEJIT_TRY(check_gate_and_biases());
    MOEJIT_TRY(find_dtype());
    make_destinations();
    for (int64_t expert = 0; expert < layer_.local_experts; ++expert)
      for (const ExpertPart& part : parts_of(expert)) MOEJIT_TRY(copy(part));
    return LoadedExperts{std::move(tensors_), compiler::GateUpLayout::kConcat};
  }

 private:
  std::string full_name(int64_t expert, std::string_view part) const {
    return fmt::format("{}{}.{}", group_.stem, expert, part);
  }

  tl::unexpected<Error> missing(int64_t expert, std::string_view part) const {
    const int64_t last = first_expert_ + layer_.local_experts - 1;
    std::string hint;
    if (!group_.experts.contains(expert))
      hint = fmt::format("experts {} of {} are there, wanted {} to {}", ranges_text(group_.experts),
                         escape_for_message(group_.prefix, 200), first_expert_, last);
    else if (part.ends_with("_scale_inv"))
      hint =
          "FP8 weights are read with a scale for each 128x128 block (weight_scale_inv) or for each "
          "channel (weight_scale); save others in bfloat16";
    const std::string shard = shards_.missing_shard();
    if (!shard.empty()) hint += (hint.empty() ? "" : "; ") + shard;
    return fail(Stage::kFile, ErrorCode::kMissingTensor,
                fmt::format("{}: tensor {} is missing", shards_.description(),
                            quote_for_message(full_name(expert, part), 200)),
                hint);
  }

  tl::unexpected<Error> mismatch(std::string what, std::string hint) const {
    return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                fmt::format("{}: the experts of {} {}", shards_.description(),
                            quote_for_message(group_.prefix, 200), what),
                std::move(hint));
  }

  bool has_gate() const { return compiler::has_gate(layer_.activation); }

  Result<void> find_naming() {
    for (const ProjectionNames& naming : kSplitNamings) {
      if (!group_.parts.contains(weight_of(naming.up)) &&
          !group_.parts.contains(weight_of(naming.gate)))
        continue;
      naming_ = naming;
      return {};
    }
    return mismatch(fmt::format("have tensors called {} ..., wanted gate_proj.weight, "
                                "up_proj.weight and down_proj.weight, or w1, w3 and w2",
                                quote_for_message(*group_.parts.begin())),
                    "other formats of quantized weights are not read: save the model in bfloat16");
  }

  // If the file has parts that the description leaves out, results would be silently wrong. So this
  // is an error.
  Result<void> check_gate_and_biases() const {
    if (!has_gate() && group_.parts.contains(weight_of(naming_.gate)))
      return mismatch(
          fmt::format("have a gate ({}), the layer's activation has none", weight_of(naming_.gate)),
          "give the layer description the model's activation");
    if (!layer_.biases && group_.parts.contains(bias_of(naming_.down)))
      return mismatch(fmt::format("have biases ({}), the layer has none", bias_of(naming_.down)),
                      "set \"biases\": true in the layer description");
    if (layer_.biases && !group_.parts.contains(bias_of(naming_.down)))
      return mismatch(fmt::format("have no biases ({}), the layer has some", bias_of(naming_.down)),
                      "set \"biases\": false in the layer description");
    return {};
  }

  // Finds the format. The first expert decides it; the other experts must agree.
  Result<void> find_dtype() {
    const std::string part = weight_of(has_gate() ? naming_.gate : naming_.up);
    if (!shards_.has(full_name(first_expert_, part))) return missing(first_expert_, part);
    MOEJIT_TRY_ASSIGN(const ShardEntry found, shards_.find(full_name(first_expert_, part)));
    const std::optional<DType> dtype = found.entry->dtype;
    if (dtype == DType::kBF16 || dtype == DType::kF8E4M3) {
      dtype_ = *dtype;
      return holds_codes() ? find_scales() : Result<void>();
    }
    return fail(
        Stage::kFile, ErrorCode::kTensorMismatch,
        fmt::format("{}: tensor {} has the dtype {}, wanted BF16 or F8_E4M3", found.file->path(),
                    quote_for_message(full_name(first_expert_, part), 200),
                    found.entry->dtype_name),
        "save the model in bfloat16: model.to(torch.bfloat16).save_pretrained(...)");
  }

  // Finds what has a scale. Scales of tokens that the checkpoint fixes are no part of any recipe.
  Result<void> find_scales() {
    if (group_.parts.contains(token_scale_of(naming_.up)))
      return mismatch(
          fmt::format("have fixed scales of tokens ({}), wanted none", token_scale_of(naming_.up)),
          "recipes find the scales of tokens themselves; save the model in bfloat16");
    has_channels_ = group_.parts.contains(scale_of(naming_.up));
    return {};
  }

  bool holds_codes() const { return dtype_ == DType::kF8E4M3; }

  HostTensor* add(std::string_view name, DType dtype, std::vector<int64_t> shape) {
    HostTensor tensor{dtype, std::move(shape), {}};
    tensor.bytes.resize(
        static_cast<size_t>(element_count(tensor.shape) * compiler::size_bytes(dtype)));
    return &tensors_.emplace(name, std::move(tensor)).first->second;
  }

  void make_destinations() {
    const int64_t e = layer_.local_experts, h = layer_.hidden, i = layer_.intermediate;
    const int64_t sections = compiler::w1_sections(layer_);
    w1_ = add(holds_codes() ? "w1_q" : "w1", dtype_, {e, sections * i, h});
    w2_ = add(holds_codes() ? "w2_q" : "w2", dtype_, {e, h, i});
    if (layer_.biases) {
      b1_ = add("b1", DType::kBF16, {e, sections * i});
      b2_ = add("b2", DType::kBF16, {e, h});
    }
    if (!holds_codes()) return;
    if (has_channels_) {
      w1_scales_ = add("w1_scale_inv", DType::kF32, {e, sections * i});
      w2_scales_ = add("w2_scale_inv", DType::kF32, {e, h});
      return;
    }
    w1_scales_ = add("w1_scale_inv", DType::kF32, {e, sections * scale_blocks(i), scale_blocks(h)});
    w2_scales_ = add("w2_scale_inv", DType::kF32, {e, scale_blocks(h), scale_blocks(i)});
  }

  std::vector<ExpertPart> parts_of(int64_t expert) const {
    const int64_t h = layer_.hidden, i = layer_.intermediate;
    std::vector<ExpertPart> parts = parts_in(expert, "weight", *w1_, {i, h}, *w2_, {h, i});
    if (layer_.biases)
      std::ranges::move(parts_in(expert, "bias", *b1_, {i}, *b2_, {h}), std::back_inserter(parts));
    if (!holds_codes()) return parts;
    if (has_channels_) {
      std::ranges::move(parts_in(expert, "weight_scale", *w1_scales_, {i, 1}, *w2_scales_, {h, 1}),
                        std::back_inserter(parts));
      return parts;
    }
    const int64_t hb = scale_blocks(h), ib = scale_blocks(i);
    std::ranges::move(
        parts_in(expert, "weight_scale_inv", *w1_scales_, {ib, hb}, *w2_scales_, {hb, ib}),
        std::back_inserter(parts));
    return parts;
  }

  std::vector<ExpertPart> parts_in(int64_t expert, std::string_view kind, HostTensor& w1,
                                   const std::vector<int64_t>& w1_half, HostTensor& w2,
                                   const std::vector<int64_t>& w2_whole) const {
    const auto name = [&](std::string_view projection) {
      return fmt::format("{}.{}", projection, kind);
    };
    const int64_t half = element_count(w1_half) * compiler::size_bytes(w1.dtype);
    const int64_t whole = element_count(w2_whole) * compiler::size_bytes(w2.dtype);
    const int64_t sections = compiler::w1_sections(layer_), number = first_expert_ + expert;
    std::vector<ExpertPart> parts = {
        {number, name(naming_.up), w1_half, &w1, (sections * (expert + 1) - 1) * half},
        {number, name(naming_.down), w2_whole, &w2, expert * whole},
    };
    if (has_gate())
      parts.insert(parts.begin(),
                   {number, name(naming_.gate), w1_half, &w1, sections * expert * half});
    return parts;
  }

  Result<void> copy(const ExpertPart& part) {
    const std::string name = full_name(part.expert, part.name);
    if (!shards_.has(name)) return missing(part.expert, part.name);
    MOEJIT_TRY_ASSIGN(const ShardEntry found, shards_.find(name));
    const SafetensorsEntry& entry = *found.entry;
    const DType dtype = part.destination->dtype;
    const bool is_scale = dtype == DType::kF32;
    const bool fits = entry.dtype == dtype || (is_scale && is_narrow_scale(entry));
    if (!fits || entry.shape != part.shape)
      return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                  fmt::format("{}: tensor {} is {} {}, wanted {}", found.file->path(),
                              quote_for_message(name, 200), entry.dtype_name,
                              shape_text(entry.shape), type_text(dtype, part.shape)),
                  is_scale ? "FP8 weights are read with a scale for each 128x128 block "
                             "(weight_scale_inv) or for each channel (weight_scale), in F32, BF16 "
                             "or F8_E8M0; save others in bfloat16"
                  : fits   ? "hidden and intermediate of the layer description give the shape"
                           : "all experts of a layer must have one dtype");
    const auto place =
        std::span(part.destination->bytes)
            .subspan(static_cast<size_t>(part.byte_offset),
                     static_cast<size_t>(element_count(part.shape) * compiler::size_bytes(dtype)));
    if (!is_scale) return found.file->read_into(entry, place);
    MOEJIT_TRY_ASSIGN(const std::vector<float> scales, read_scales(found));
    std::ranges::copy(std::as_bytes(std::span(scales)), place.begin());
    return {};
  }

  // Some families store scales in BF16 or E8M0, whose values F32 holds exactly.
  static bool is_narrow_scale(const SafetensorsEntry& entry) {
    return entry.dtype == DType::kBF16 || entry.dtype_name == "F8_E8M0";
  }

  static Result<std::vector<float>> read_scales(const ShardEntry& found) {
    const SafetensorsEntry& entry = *found.entry;
    std::vector<float> scales(static_cast<size_t>(element_count(entry.shape)));
    if (entry.dtype == DType::kF32) {
      MOEJIT_TRY(found.file->read_into(entry, std::as_writable_bytes(std::span(scales))));
    } else if (entry.dtype == DType::kBF16) {
      std::vector<uint16_t> bits(scales.size());
      MOEJIT_TRY(found.file->read_into(entry, std::as_writable_bytes(std::span(bits))));
      std::ranges::transform(bits, scales.begin(), reference::float_from_bf16);
    } else {
      std::vector<uint8_t> codes(scales.size());
      MOEJIT_TRY(found.file->read_into(entry, std::as_writable_bytes(std::span(codes))));
      constexpr uint8_t kNan = 255;
      std::ranges::transform(codes, scales.begin(), [](uint8_t code) {
        return code == kNan ? std::nanf("") : reference::e8m0_value(code);
      });
    }
    const auto bad =
        std::ranges::find_if_not(scales, [](float scale) { return std::isfinite(scale); });
    if (bad == scales.end()) return scales;
    const auto columns = entry.shape.empty() ? 1 : entry.shape.back();
    const auto block = bad - scales.begin();
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{}: tensor {} has the scale {} at [{}, {}], wanted a finite number",
                            found.file->path(), quote_for_message(entry.name, 200), *bad,
                            block / columns, block % columns),
                "is the file damaged, or did a conversion divide by 0?");
  }

  const compiler::Layer& layer_;
  const ExpertGroup& group_;
  int64_t first_expert_;
  ShardSet& shards_;
  ProjectionNames naming_ = kSplitNamings.front();
  DType dtype_ = DType::kBF16;
  bool has_channels_ = false;  // whether each row of codes has a scale, else each 128x128 block
  TensorMap tensors_;
  HostTensor* w1_ = nullptr;
  HostTensor* w2_ = nullptr;
  HostTensor* b1_ = nullptr;
  HostTensor* b2_ = nullptr;
  HostTensor* w1_scales_ = nullptr;
  HostTensor* w2_scales_ = nullptr;
};

}  // namespace

bool has_split_experts(const ExpertGroup& group) { return !group.experts.empty(); }

Result<LoadedExperts> load_split_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         int64_t first_expert, ShardSet& shards) {
  return SplitLoader(layer, group, first_expert, shards).load();
}

}  // namespace moejit::checkpoint
