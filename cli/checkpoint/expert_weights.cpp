// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/expert_weights.h"

#include "cli/checkpoint/shard_set.h"
#include "compiler/support/json_document.h"
#include "tests/support/reference/gate_up_layout.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using compiler::DType;

// The three projections of an expert, as families of models call them.
struct ProjectionNames {
  std::string_view gate, up, down;
};
constexpr std::array kNamings = {ProjectionNames{"gate_proj", "up_proj", "down_proj"},
                                 ProjectionNames{"w1", "w3", "w2"}};

int64_t scale_blocks(int64_t elements) { return (elements + 127) / 128; }

// Where in a tensor of all experts the part of one projection goes.
struct Part {
  std::string name;            // in the checkpoint
  std::vector<int64_t> shape;  // wanted
  HostTensor* destination = nullptr;
  int64_t byte_offset = 0;
};

class ExpertLoader {
 public:
  ExpertLoader(const compiler::Layer& layer, const CheckpointOptions& options,
               const ShardSet& shards)
      : layer_(layer), options_(options), shards_(shards) {}

  Result<TensorMap> load() {
    MOEJIT_TRY(find_naming());
    make_destinations();
    for (int64_t expert = 0; expert < layer_.local_experts; ++expert)
      for (const Part& part : parts_of(expert)) MOEJIT_TRY(copy(part));
    interleave_if_wanted();
    return std::move(tensors_);
  }

 private:
  std::string tensor_name(int64_t expert, std::string_view projection,
                          std::string_view kind) const {
    std::string_view prefix = options_.prefix;
    while (prefix.ends_with('.')) prefix.remove_suffix(1);
    return fmt::format("{}{}experts.{}.{}.{}", prefix, prefix.empty() ? "" : ".",
                       options_.first_expert + expert, projection, kind);
  }

  tl::unexpected<Error> missing(const std::string& name) const {
    std::string hint;
    const std::vector<std::string> prefixes = shards_.expert_prefixes();
    if (prefixes.empty()) {
      hint = "no tensor there is called PREFIX.experts.N...";
    } else {
      hint = fmt::format("experts there are under {}", escape_for_message(prefixes.front()));
      if (prefixes.size() > 1) hint += fmt::format(" ... {}", escape_for_message(prefixes.back()));
    }
    return fail(Stage::kFile, ErrorCode::kMissingTensor,
                fmt::format("{}: tensor {} is missing", shards_.description(),
                            quote_for_message(name, 200)),
                hint);
  }

  bool has_gate() const { return compiler::has_gate(layer_.activation); }
  std::string_view first_projection(const ProjectionNames& naming) const {
    return has_gate() ? naming.gate : naming.up;
  }

  // The first expert decides on names and format; the others must agree.
  Result<void> find_naming() {
    for (const ProjectionNames& naming : kNamings) {
      const std::string name = tensor_name(0, first_projection(naming), "weight");
      const ShardEntry found = shards_.find(name);
      if (!found) continue;
      naming_ = naming;
      const std::optional<DType> dtype = found.entry->dtype;
      if (dtype == DType::kBF16 || dtype == DType::kF8E4M3) {
        dtype_ = *dtype;
        return {};
      }
      return fail(
          Stage::kFile, ErrorCode::kTensorMismatch,
          fmt::format("{}: tensor {} has the dtype {}, wanted BF16 or F8_E4M3", found.file->path(),
                      quote_for_message(name, 200), found.entry->dtype_name));
    }
    return missing(tensor_name(0, first_projection(kNamings.front()), "weight"));
  }

  // Of bf16 weights. Quantised ones have all of gate first in either layout.
  void interleave_if_wanted() {
    if (layer_.gate_up_layout != compiler::GateUpLayout::kInterleaved) return;
    if (b1_ != nullptr)
      *b1_ = make_tensor(
          b1_->dtype, b1_->shape,
          reference::interleaved<uint16_t>(elements<uint16_t>(*b1_), layer_.intermediate, 1));
    if (is_quantized()) return;
    *w1_ = make_tensor(w1_->dtype, w1_->shape,
                       reference::interleaved<uint16_t>(elements<uint16_t>(*w1_),
                                                        layer_.intermediate, layer_.hidden));
  }

  bool is_quantized() const { return dtype_ == DType::kF8E4M3; }

  HostTensor* add(std::string_view name, DType dtype, std::vector<int64_t> shape) {
    HostTensor tensor{dtype, std::move(shape), {}};
    tensor.bytes.resize(
        static_cast<size_t>(element_count(tensor.shape) * compiler::size_bytes(dtype)));
    return &tensors_.emplace(name, std::move(tensor)).first->second;
  }

  void make_destinations() {
    const int64_t e = layer_.local_experts, h = layer_.hidden, i = layer_.intermediate;
    const int64_t sections = compiler::w1_sections(layer_);
    w1_ = add(is_quantized() ? "w1_q" : "w1", dtype_, {e, sections * i, h});
    w2_ = add(is_quantized() ? "w2_q" : "w2", dtype_, {e, h, i});
    if (layer_.biases) {
      b1_ = add("b1", DType::kBF16, {e, sections * i});
      b2_ = add("b2", DType::kBF16, {e, h});
    }
    if (!is_quantized()) return;
    w1_scales_ = add("w1_scale_inv", DType::kF32, {e, sections * scale_blocks(i), scale_blocks(h)});
    w2_scales_ = add("w2_scale_inv", DType::kF32, {e, scale_blocks(h), scale_blocks(i)});
  }

  std::vector<Part> parts_of(int64_t expert) const {
    const int64_t h = layer_.hidden, i = layer_.intermediate;
    std::vector<Part> parts = parts_in(expert, "weight", *w1_, {i, h}, *w2_, {h, i});
    if (layer_.biases)
      std::ranges::move(parts_in(expert, "bias", *b1_, {i}, *b2_, {h}), std::back_inserter(parts));
    if (!is_quantized()) return parts;
    const int64_t hb = scale_blocks(h), ib = scale_blocks(i);
    std::ranges::move(
        parts_in(expert, "weight_scale_inv", *w1_scales_, {ib, hb}, *w2_scales_, {hb, ib}),
        std::back_inserter(parts));
    return parts;
  }

  std::vector<Part> parts_in(int64_t expert, std::string_view kind, HostTensor& w1,
                             const std::vector<int64_t>& w1_half, HostTensor& w2,
                             const std::vector<int64_t>& w2_whole) const {
    const int64_t half = element_count(w1_half) * compiler::size_bytes(w1.dtype);
    const int64_t whole = element_count(w2_whole) * compiler::size_bytes(w2.dtype);
    const int64_t sections = compiler::w1_sections(layer_);
    std::vector<Part> parts = {
        {tensor_name(expert, naming_.up, kind), w1_half, &w1, (sections * (expert + 1) - 1) * half},
        {tensor_name(expert, naming_.down, kind), w2_whole, &w2, expert * whole},
    };
    if (has_gate())
      parts.insert(parts.begin(), {tensor_name(expert, naming_.gate, kind), w1_half, &w1,
                                   sections * expert * half});
    return parts;
  }

  Result<void> copy(const Part& part) const {
    const ShardEntry found = shards_.find(part.name);
    if (!found) return missing(part.name);
    const SafetensorsEntry& entry = *found.entry;
    const DType dtype = part.destination->dtype;
    if (entry.dtype != dtype || entry.shape != part.shape)
      return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                  fmt::format("{}: tensor {} is {} {}, wanted {}", found.file->path(),
                              quote_for_message(part.name, 200), entry.dtype_name,
                              shape_text(entry.shape), type_text(dtype, part.shape)),
                  entry.dtype != dtype ? "all experts of a layer must have one dtype" : "");
    return found.file->read_into(entry, std::span(part.destination->bytes)
                                            .subspan(static_cast<size_t>(part.byte_offset),
                                                     static_cast<size_t>(entry.bytes)));
  }

  const compiler::Layer& layer_;
  const CheckpointOptions& options_;
  const ShardSet& shards_;
  ProjectionNames naming_ = kNamings.front();
  DType dtype_ = DType::kBF16;
  TensorMap tensors_;
  HostTensor* w1_ = nullptr;
  HostTensor* w2_ = nullptr;
  HostTensor* b1_ = nullptr;
  HostTensor* b2_ = nullptr;
  HostTensor* w1_scales_ = nullptr;
  HostTensor* w2_scales_ = nullptr;
};

}  // namespace

Result<TensorMap> load_expert_weights(const compiler::Layer& layer,
                                      const CheckpointOptions& options) {
  MOEJIT_TRY_ASSIGN(const ShardSet shards, ShardSet::open(options.shards));
  return ExpertLoader(layer, options, shards).load();
}

}  // namespace moejit::cli
