// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace moejit::compiler {

// The function of gate and up that an expert computes. A is the function that the configuration
// names.
enum class ExpertFormula {
  kGated,              // A(gate) * up
  kUngated,            // A(up)
  kClampedWithOffset,  // the preset clamped_swiglu
  kClampedGate,        // A(min(gate, limit)) * clamp(up, -limit, limit)
  kClampedActivation,  // min(A(gate), limit) * clamp(up, -limit, limit), a limit for each layer
  kSoftcapped,         // softcap(gate) * sigmoid(gate) * softcap(up)
};

// How one family of models computes its experts, and how config.json names their figures. Facts and
// key names come from the modeling and configuration classes of the transformers library, version
// 5.23, and from the published files.
struct HuggingFaceFamily {
  std::string_view model_type;  // without "_text", the end of a multimodal model's language model
  std::string_view models;      // models of this type, for listings
  // The keys of the experts' width, all with the same meaning. The keys of other figures are the
  // same in all families.
  std::array<std::string_view, 2> intermediate = {"moe_intermediate_size",
                                                  "expert_ffn_hidden_size"};
  std::string_view note;  // what the description does not express, besides the facts below
  ExpertFormula formula = ExpertFormula::kGated;
  // `activation` is the key of the function A, and `default_activation` is A if the key is absent.
  // If `activation` is empty, A is always `default_activation`.
  std::string_view activation = "hidden_act";
  std::string_view default_activation = "silu";
  double limit = 0.0;  // if swiglu_limit is absent
  GateUpLayout gate_up_layout = GateUpLayout::kConcat;
  bool biases = false;
  bool has_weights_on_input = false;  // whether probabilities multiply experts' inputs
  bool has_latent_tokens = false;     // whether moe_latent_size, if present, is the width of tokens
  bool has_image_experts = false;     // whether `intermediate` is a list: of text, of image tokens
  int32_t top_k = 0;                  // if no key gives it
  std::string_view switched_by;       // the model is dense if this key is false
  std::string_view refusal;           // what its experts do that no description can express
};

// Returns the families in the order of listings.
std::span<const HuggingFaceFamily> hugging_face_families();

// Returns the family of a model_type, with or without "_text" at its end; null if it is unknown.
const HuggingFaceFamily* find_hugging_face_family(std::string_view model_type);

// Returns the names under which configurations give figures. The transformers library takes and
// writes any of them, whatever the family (attribute_map of its configuration classes).
std::span<const std::string_view> expert_count_keys();
std::span<const std::string_view> top_k_keys();
std::span<const std::string_view> hidden_keys();

// Keys of config.json for parts that a layer description does not express. They are noted if the
// value is neither 0, false, null, empty nor `unless`.
struct HuggingFaceFact {
  std::string_view key;
  std::string_view unless;
  std::string_view note;
};

std::span<const HuggingFaceFact> hugging_face_facts();

// Returns the keys that change what experts compute in some families. In a family without a use for
// such a key it gets a note; in an unknown family it is refused.
std::span<const std::string_view> expert_formula_keys();

}  // namespace moejit::compiler
