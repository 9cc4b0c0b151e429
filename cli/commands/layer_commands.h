// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/tuning_records.h"
#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"
#include "runtime/trial/open_engine.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::cli {

// The commands that look at descriptions and what becomes of them. Each has a record, which the
// command line fills (docs/cli.md), and the function that does it. Results go to the terminal's
// print().

struct LayerCommand {
  std::string file;               // a description to check, or
  std::string from_hugging_face;  // a model's config.json
  std::string recipe = "fp8_flow";
  std::string made_for;  // "torch": a list of the layers that moejit.torch asks for; empty: one
  int32_t expert_parallel = 1;
  int64_t max_tokens = 8192;
  bool router = false;  // whether a model's layer chooses experts itself
  bool shared = false;  // whether it has the model's shared experts
  std::string output;   // empty: print
};
Result<void> run_layer(const LayerCommand& command, Terminal& terminal);

struct ActivationCommand {
  std::string formula;  // over gate and up, or over logit, or the name of a preset
  bool check = false;
  bool ir = false;
  bool is_json = false;
};
Result<void> run_activation(const ActivationCommand& command, Terminal& terminal);

struct PlanCommand {
  std::vector<std::string> layers;
  PlanArguments plan;
  bool is_json = false;
  bool explain = false;
};
Result<void> run_plan(const PlanCommand& command, Terminal& terminal);

struct EmitCommand {
  std::vector<std::string> layers;
  PlanArguments plan;
  std::string operation;   // empty: all
  std::string output_dir;  // empty: print
};
Result<void> run_emit(const EmitCommand& command, Terminal& terminal);

struct InspectCommand {
  std::vector<std::string> files;  // layer descriptions, cubins and cache entries
  PlanArguments plan;
  trial::CacheOptions cache;
  bool with_sass = false;  // print the machine code
  bool is_json = false;
};
Result<void> run_inspect(const InspectCommand& command, Terminal& terminal);

}  // namespace moejit::cli
