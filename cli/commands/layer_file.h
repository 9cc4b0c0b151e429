// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

#include <string>

namespace moejit::cli {

// The text of a file, or for "-" what standard input holds, which is read once: a command may come
// back to it. A file has at most `max_bytes`. Errors: kFileNotFound, kFileRead.
struct InputText {
  std::string text;
  std::string name;  // of the source in messages
};
Result<InputText> read_input_text(const std::string& path, int64_t max_bytes);

// Reads and parses a layer description, "-" from standard input. Errors: of the file, and all of
// parse_layer().
Result<compiler::Layer> read_layer(const std::string& path);

// Makes the description of a model's configuration: of the file, or of config.json in the folder.
// Errors: of the file, and all of layer_from_hugging_face().
Result<compiler::HuggingFaceLayer> read_configuration(const std::string& path,
                                                      const compiler::HuggingFaceOptions& options);

// Reads a layer description and plans it for a target by name.
Result<compiler::LayerPlan> read_plan(const std::string& path, const std::string& target,
                                      const compiler::PlanOptions& options = {});

}  // namespace moejit::cli
