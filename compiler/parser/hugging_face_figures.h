// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/parser/hugging_face_source.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Reads figures of a configuration and remembers which key gave what. It must not outlive the
// source.
class FigureReader {
 public:
  explicit FigureReader(const HuggingFaceSource& source) : source_(&source) {}

  // Reads the whole number under any of `keys`, which have the same meaning; `field` is its name in
  // a layer. If the value is a list with a number for each decoder layer, all must be equal. With
  // `has_image_experts` it is a list for text and images, and the first number is read. Errors:
  // kMissingKey, and kInvalidValue if two keys disagree.
  Result<int32_t> read(std::span<const std::string_view> keys, std::string_view field,
                       const IntRange& range, bool has_image_experts = false);

  // Returns the value of a key, or none if it is absent or null.
  std::optional<JsonView> find(std::string_view key) const;

  // Remembers that the key was understood, and what it gave.
  void note_use(const JsonView& view, std::string_view field, std::string_view value);
  void note(std::string text) { notes.push_back(std::move(text)); }
  bool has_read(std::string_view key) const;

  std::vector<std::string> used_keys;  // "hidden_size -> hidden = 4096"
  std::vector<std::string> notes;

 private:
  std::vector<JsonView> find_all(std::span<const std::string_view> keys) const;

  const HuggingFaceSource* source_;
  std::vector<std::string> read_keys_;
};

// Returns a path as used keys and notes print it: text_config.hidden_size.
std::string_view short_path(const JsonView& view);

// Returns the activation of a configuration's experts: the function that its key names, in the
// formula of the family, with the given limits. Errors: kUnsupported for a function that has no
// formula here, and for keys that change the formula of an unknown family.
Result<Activation> read_hugging_face_activation(const HuggingFaceSource& source,
                                                FigureReader& reader);

}  // namespace moejit::compiler
