// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/tuning_records.h"
#include "compiler/compiler.h"
#include "compiler/operation.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::cli {

// Reads the text of a file, or of standard input for "-". Standard input is read once; later calls
// return the same text. A file has at most `max_bytes`. Errors: kFileNotFound, kFileRead.
struct InputText {
  std::string text;
  std::string name;  // of the source in messages
};
Result<InputText> read_input_text(const std::string& path, int64_t max_bytes);

// What a file describes.
using Description = std::variant<compiler::Layer, compiler::OperationDescription>;

// Reads and parses the description of a layer or of an operation, "-" from standard input. Errors:
// all of reading the file, and all of parse_layer() or parse_operation().
Result<Description> read_layer_or_operation(const std::string& path);

// Reads and parses the description of a layer. Errors: as above, and kUnsupported if it describes
// an operation.
Result<compiler::Layer> read_layer(const std::string& path);

// Makes the layer description of a model from its configuration: the file, or config.json in the
// folder. Errors: all of reading the file, and all of layer_from_hugging_face().
Result<compiler::HuggingFaceLayer> read_configuration(const std::string& path,
                                                      const compiler::HuggingFaceOptions& options);

Result<compiler::Plan> plan_description(const Description& description,
                                        const compiler::Target& target,
                                        const compiler::PlanOptions& options);

// Gives a layer the passes that the option --pass names: "forward", or "training" for forward and
// backward. An empty `pass` leaves the description's passes.
void choose_passes(compiler::Layer& layer, std::string_view pass);

// Returns the error (kUsage) of an option that is given for an operation, and only layers have.
tl::unexpected<Error> option_of_layers(std::string_view option,
                                       const compiler::OperationDescription& operation);

// Reads the description of a layer or of an operation and plans it. Errors: all of reading the
// file, of parse_layer() or parse_operation(), and of read_tuning_records().
Result<compiler::Plan> read_plan(const std::string& path, const PlanArguments& arguments);

// Reads and plans a file with one description or a JSON list of descriptions, as moejit layer --for
// torch writes it. Errors tell an element of a list by its number: FILE[3].
Result<std::vector<compiler::Plan>> read_plans(const std::string& path, const std::string& target,
                                               const compiler::PlanOptions& options);

}  // namespace moejit::cli
