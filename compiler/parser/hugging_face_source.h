// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/parser/hugging_face_families.h"
#include "compiler/support/json_document.h"
#include "compiler/support/json_view.h"

#include <optional>
#include <string>
#include <vector>

namespace moejit::compiler {

// Reads JSON as parse_json() does, and as Python's json module writes it: NaN, Infinity and
// -Infinity, which the standard does not have, become null. Configurations that older versions of
// the transformers library saved have them.
Result<JsonDocument> parse_python_json(std::string_view text, const JsonOptions& options);

// The hint when no description can be made of a configuration.
inline constexpr std::string_view kWriteByHand =
    "write the layer description by hand: docs/layer-description.md";

// The object of a configuration that holds the figures of the experts, and the family that says how
// to read them.
struct HuggingFaceSource {
  std::string model_type;  // for a known family its record's; may be empty
  HuggingFaceFamily family;
  bool is_known = false;  // false: `family` was made up from the keys
  JsonView config;
  std::optional<JsonView> parent;   // of a `config` without a model_type; its keys are read too
  std::vector<std::string> others;  // paths of further objects with experts
};

// Finds the experts of a configuration: at its top, in its text_config, in its
// thinker_config.text_config, or in another object within. Errors: kMissingKey without a
// model_type, kUnsupported for a model without experts.
Result<HuggingFaceSource> find_hugging_face_source(const JsonView& root);

}  // namespace moejit::compiler
