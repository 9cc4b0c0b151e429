// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/torch_layers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace moejit::cli {
namespace {

using compiler::Layer;
using Fields = nlohmann::ordered_json;

constexpr int64_t kFewestMaxTokens = 256;

// Returns the smallest alignment of experts' rows that every pass of the recipe accepts.
int32_t splits_alignment_of(std::string_view recipe) {
  return recipe == "bf16" || recipe == "mxfp8" || recipe == "nvfp4" ? 64 : 16;
}

// Returns the fields that all calls of the model have in common.
Fields common_fields(const Layer& base) {
  Fields fields = Fields::parse(to_json(base));
  fields["experts"] = std::max(base.local_experts, base.top_k);
  fields["dispatch"] = "none";
  fields["topk_ids_dtype"] = "i64";
  fields["splits_alignment"] = splits_alignment_of(to_string(base.recipe));
  fields.erase("max_permuted_rows");
  return fields;
}

// Returns the gradients of tokens and probabilities that autograd may want. If nothing below the
// layer is trained, autograd wants no gradient of tokens. If the router is frozen too, it wants no
// gradient of probabilities.
std::vector<std::vector<std::string>> gradients_of_inputs() {
  return {{}, {"dx"}, {"dprobs"}, {"dx", "dprobs"}};
}

// Returns the gradients of weights and biases that are trained. Lists with only some of the biases
// need no other kernels.
std::vector<std::vector<std::string>> trained_weights(bool has_biases) {
  std::vector<std::vector<std::string>> lists = {{}, {"dw1"}, {"dw2"}, {"dw1", "dw2"}};
  if (has_biases) lists.push_back({"dw1", "dw2", "db1", "db2"});
  return lists;
}

// Adds the layers of calls that keep quantized weights and of calls that do not.
Result<void> add(Fields fields, std::vector<Layer>& layers) {
  for (const bool keeps : {false, true}) {
    fields["weight_checks"] = keeps;
    MOEJIT_TRY_ASSIGN(Layer layer, compiler::parse_layer(fields.dump(), "layer"));
    layers.push_back(std::move(layer));
  }
  return {};
}

// Adds the layers of calls of one size, with probabilities in one type.
Result<void> add_calls(Fields fields, std::vector<Layer>& layers) {
  fields["passes"] = {"forward"};
  MOEJIT_TRY(add(fields, layers));
  fields["passes"] = {"forward", "backward"};
  for (const std::vector<std::string>& weights : trained_weights(fields["biases"]))
    for (const std::vector<std::string>& inputs : gradients_of_inputs()) {
      std::vector<std::string> gradients = inputs;
      gradients.insert(gradients.end(), weights.begin(), weights.end());
      if (gradients.empty()) continue;  // the call without gradients above
      fields["gradients"] = gradients;
      for (const char* dtype : {"f32", "bf16"}) {
        fields["wgrad_dtype"] = dtype;
        MOEJIT_TRY(add(fields, layers));
        if (weights.empty()) break;
      }
    }
  return {};
}

}  // namespace

Result<std::vector<Layer>> layers_for_torch(const Layer& base, int64_t tokens) {
  Fields fields = common_fields(base);
  std::vector<Layer> layers;
  for (int64_t size = kFewestMaxTokens;; size *= 2) {
    fields["max_tokens"] = size;
    // Under expert parallelism transformers hands each rank ids of its own experts, and larger ones
    // for the others. Before 5.18 it does not say whether it does.
    for (const char* foreign : {"report", "ignore"})
      for (const char* dtype : {"f32", "bf16"}) {
        fields["foreign_experts"] = foreign;
        fields["topk_probs_dtype"] = dtype;
        MOEJIT_TRY(add_calls(fields, layers));
      }
    if (size >= tokens) return layers;
  }
}

}  // namespace moejit::cli
