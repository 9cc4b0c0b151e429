// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_document.h"
#include "runtime/checkpoint/expert_group.h"
#include "runtime/checkpoint/fused_tensor.h"

#include <array>
#include <fmt/core.h>

namespace moejit::checkpoint {
namespace {

using runtime::HostTensor;

using compiler::DType;
using compiler::GateUpLayout;

// Names of the tensors of all experts: gate and up together, up alone if there is no gate, and
// down. Families append suffixes to these names for biases, blocks and scales.
struct FusedNames {
  std::string_view gate_up, up, down;
};
constexpr std::array kFusedNamings = {
    FusedNames{"gate_up_proj", "up_proj", "down_proj"},
    FusedNames{"gate_up_proj.weight", "up_proj.weight", "down_proj.weight"},
    FusedNames{"input_linear.weight", "", "output_linear.weight"},  // Granite
    FusedNames{"fc1.weight", "", "fc2.weight"},                     // Aria
};

bool has_projection(const ExpertGroup& group, std::string_view name) {
  return !name.empty() &&
         (group.fused.contains(std::string(name)) || group.fused.contains(blocks_name(name)));
}

const FusedNames* find_naming(const ExpertGroup& group) {
  for (const FusedNames& naming : kFusedNamings)
    if (has_projection(group, naming.gate_up) || has_projection(group, naming.up)) return &naming;
  return nullptr;
}

class FusedLoader {
 public:
  FusedLoader(const compiler::Layer& layer, const ExpertGroup& group,
              const CheckpointOptions& options, ShardSet& shards)
      : layer_(layer),
        group_(group),
        options_(options),
        shards_(shards),
        naming_(*find_naming(group)) {}

  Result<LoadedExperts> load() {
    MOEJIT_TRY(check_gate_and_biases());
    LoadedExperts loaded;
    MOEJIT_TRY_ASSIGN(loaded.layout, find_layout());
    const FusedTensorSource source{layer_.local_experts, options_.first_expert, group_.stem};
    const int64_t rows = compiler::w1_sections(layer_) * layer_.intermediate;
    MOEJIT_TRY_ASSIGN(const FusedMatrices w1,
                      find_fused_matrices(source, first(), rows, layer_.hidden, shards_));
    MOEJIT_TRY_ASSIGN(
        const FusedMatrices w2,
        find_fused_matrices(source, naming_.down, layer_.hidden, layer_.intermediate, shards_));
    if (is_packed(layer_.recipe.weights))
      MOEJIT_TRY(pack(source, w1, w2, loaded));
    else
      MOEJIT_TRY(read(source, w1, w2, loaded));
    if (!layer_.biases) return loaded;
    MOEJIT_TRY_ASSIGN(HostTensor b1, read_fused_rows(source, bias_name(first()), rows, shards_));
    loaded.tensors.emplace("b1", std::move(b1));
    MOEJIT_TRY_ASSIGN(HostTensor b2,
                      read_fused_rows(source, bias_name(naming_.down), layer_.hidden, shards_));
    loaded.tensors.emplace("b2", std::move(b2));
    return loaded;
  }

 private:
  // Adds w1 and w2.
  static Result<void> read(const FusedTensorSource& source, const FusedMatrices& w1,
                           const FusedMatrices& w2, LoadedExperts& loaded) {
    // At most one of the two tensors is square, so the other one decides. If both are (no gate and
    // I == H), they are read as transformers stores them, with a row for each output.
    const FusedOrder order = w1.order != FusedOrder::kEither ? w1.order : w2.order;
    MOEJIT_TRY_ASSIGN(HostTensor w1_values, read_fused_matrices(source, w1, order));
    loaded.tensors.emplace("w1", std::move(w1_values));
    const FusedOrder down_order = w2.order != FusedOrder::kEither ? w2.order : w1.order;
    MOEJIT_TRY_ASSIGN(HostTensor w2_values, read_fused_matrices(source, w2, down_order));
    loaded.tensors.emplace("w2", std::move(w2_values));
    return {};
  }

  // Adds w1 and w2 in packed tiles, gate first, whatever the file's order is.
  Result<void> pack(const FusedTensorSource& source, const FusedMatrices& w1,
                    const FusedMatrices& w2, LoadedExperts& loaded) const {
    MOEJIT_TRY(read_packed_matrices(source, w1, compiler::w1_sections(layer_),
                                    loaded.layout == GateUpLayout::kInterleaved, "w1",
                                    loaded.tensors));
    return read_packed_matrices(source, w2, 1, false, "w2", loaded.tensors);
  }

  bool has_gate() const { return compiler::has_gate(layer_.activation); }
  std::string_view first() const { return has_gate() ? naming_.gate_up : naming_.up; }

  tl::unexpected<Error> mismatch(std::string what, std::string hint) const {
    return fail(Stage::kFile, ErrorCode::kTensorMismatch,
                fmt::format("{}: the fused experts of {} {}", shards_.description(),
                            quote_for_message(group_.prefix, 200), what),
                std::move(hint));
  }

  // If the file has parts that the description leaves out, results would be silently wrong. So this
  // is an error.
  Result<void> check_gate_and_biases() const {
    if (!has_gate() && has_projection(group_, naming_.gate_up))
      return mismatch(
          fmt::format("have a gate ({}), the layer's activation has none", naming_.gate_up),
          "give the layer description the model's activation");
    if (has_gate() && !has_projection(group_, naming_.gate_up))
      return mismatch(
          fmt::format("have no gate ({} alone), the layer's activation has one", naming_.up),
          "give the layer description the model's activation");
    if (layer_.biases == has_biases()) return {};
    return mismatch(
        fmt::format("have {} ({}), the layer has {}", has_biases() ? "biases" : "no biases",
                    bias_name(first()), has_biases() ? "none" : "some"),
        fmt::format("set \"biases\": {} in the layer description",
                    has_biases() ? "true" : "false"));
  }

  bool has_biases() const { return group_.fused.contains(bias_name(first())); }

  // Finds the layout of gate and up, which shapes do not tell. Without config.json, tensors with
  // biases or in MXFP4 are taken for gpt-oss's. Other tensors have gate first, if the description
  // agrees.
  Result<GateUpLayout> find_layout() const {
    if (!has_gate()) return GateUpLayout::kConcat;
    if (options_.gate_up_layout) return *options_.gate_up_layout;
    if (const auto known = family_gate_up_layout(shards_.folder())) return *known;
    if (group_.fused.contains(blocks_name(first()))) return GateUpLayout::kInterleaved;
    const auto usual = has_biases() ? GateUpLayout::kInterleaved : GateUpLayout::kConcat;
    if (joined_layout(layer_) == usual) return usual;
    return fail(
        Stage::kFile, ErrorCode::kInvalidValue,
        fmt::format("{}: tensor {} has gate and up in an order that the file does not tell",
                    shards_.description(),
                    quote_for_message(group_.stem + std::string(first()), 200)),
        "use --gate-up-layout concat if gate comes first, interleaved if they alternate; or put "
        "the model's config.json beside the file");
  }

  const compiler::Layer& layer_;
  const ExpertGroup& group_;
  const CheckpointOptions& options_;
  ShardSet& shards_;
  FusedNames naming_;
};

}  // namespace

bool has_fused_experts(const ExpertGroup& group) { return find_naming(group) != nullptr; }

Result<LoadedExperts> load_fused_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         const CheckpointOptions& options, ShardSet& shards) {
  return FusedLoader(layer, group, options, shards).load();
}

}  // namespace moejit::checkpoint
