// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <span>
#include <string_view>

namespace moejit::compiler {

// How one family of models names the figures of its MoE layers in config.json. Key names as in the
// configuration classes of the transformers library and in the published files.
struct HuggingFaceFamily {
  std::string_view model_type;
  std::string_view models;        // that it is the type of, for listings
  std::string_view nested;        // object that holds the keys; empty: the top level
  std::string_view experts;       // the keys of ...
  std::string_view intermediate;  // ... these figures
  std::string_view clamp;         // the limit of clamped_swiglu; empty: the next key tells
  std::string_view note;          // what the description cannot express, beside the facts below
  std::string_view activation = "hidden_act";  // the activation of the experts
  bool has_gate = true;                        // which has a gate or not
  GateUpLayout gate_up_layout = GateUpLayout::kConcat;
  bool biases = false;
};

// In the order of listings.
std::span<const HuggingFaceFamily> hugging_face_families();

// Keys of config.json that tell of parts which a layer description does not express. The note is
// given where the value is neither 0, false, null, empty nor `unless`.
struct HuggingFaceFact {
  std::string_view key;
  std::string_view unless;
  std::string_view note;
};

std::span<const HuggingFaceFact> hugging_face_facts();

}  // namespace moejit::compiler
