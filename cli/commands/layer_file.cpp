// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/layer_file.h"

#include "compiler/support/file.h"

namespace moejit::cli {

Result<compiler::Layer> read_layer(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(path));
  return compiler::parse_layer(text, path);
}

Result<compiler::Plan> read_plan(const std::string& path, const std::string& target,
                                 const compiler::PlanOptions& options) {
  MOEJIT_TRY_ASSIGN(const compiler::Target parsed, compiler::parse_target(target));
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, read_layer(path));
  return compiler::plan_layer(layer, parsed, options);
}

}  // namespace moejit::cli
