// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/parser/hugging_face_source.h"
#include "compiler/router.h"

#include <array>
#include <span>
#include <string_view>

namespace moejit::compiler {

// A field of "router" in the routers of a family. `value` is its JSON where the configuration says
// nothing; the configuration's `key` goes before it. A key of true or false turns `normalize` on.
struct HuggingFaceRouterField {
  std::string_view name = {};
  std::string_view value = {};
  std::string_view key = {};
};

// How the modules of some families choose experts, with the defaults of their configuration
// classes. Facts come from the transformers library, version 5.23; docs/router.md has them as a
// table.
struct HuggingFaceRouter {
  std::string_view model_types;  // separated by blanks
  std::array<HuggingFaceRouterField, 8> fields = {};
  std::string_view refusal = {};  // what it does that no formula expresses
};

std::span<const HuggingFaceRouter> hugging_face_routers();

// Returns the other names of a key, itself among them.
std::span<const std::string_view> router_key_names(std::string_view key);

// Returns how a model chooses `top_k` of `experts` experts, zero experts left out of their number.
// Errors: kUnsupported for a router that no formula expresses, with the reason, and the errors of
// read_router().
Result<RouterFormula> read_hugging_face_router(const HuggingFaceSource& source, int32_t experts,
                                               int32_t top_k);

}  // namespace moejit::compiler
