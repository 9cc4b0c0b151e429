// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments.h"
#include "cli/commands/tuning_records.h"
#include "runtime/trial/inputs.h"
#include "runtime/trial/open_engine.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

// Shared by the files that declare commands; nothing else includes it.
namespace moejit::cli {

// Refuses names that nobody means to write to: an empty name comes from a script's unset variable,
// and "-" is standard output for other tools.
inline std::string check_name(const std::string& name) {
  if (name.empty()) return "the name is empty";
  return name == "-" ? "got -, wanted the name of a file; ./- is a file of this name" : "";
}

// Returns a subcommand whose record lives as long as the action that uses it.
template <typename Command>
std::shared_ptr<Command> add_command(CLI::App& parent, Action& action, const std::string& name,
                                     const std::string& summary, const std::string& examples,
                                     Result<void> (*run)(const Command&, Terminal&)) {
  CLI::App* sub = parent.add_subcommand(name, summary);
  sub->fallthrough();
  sub->footer("Examples:\n" + examples);
  auto command = std::make_shared<Command>();
  sub->callback([&action, command, run] {
    action = [command, run](Terminal& terminal) { return run(*command, terminal); };
  });
  return command;
}

inline constexpr const char* kTargetHelp =
    "cuda:ARCH, as cuda:sm_90a (short: cuda), or sim; docs/targets.md lists them";

// Where the kernels of a command come from.
void add_cache_options(CLI::App& sub, trial::CacheOptions& cache);

// The tuning records that a command makes its plans with.
void add_tuning_options(CLI::App& sub, TuningOptions& tuning);

// What a command plans descriptions with.
void add_plan_options(CLI::App& sub, PlanArguments& arguments);

// The passes to plan instead of the description's passes; an empty `pass` is "not given".
void add_pass_option(CLI::App& sub, std::string& pass);

// In input_arguments.cpp, what calls read: of `moejit run`, of commands that make random data
// unless the option `given` is there, and the parts of these. `usual_tokens` tells the default of
// --tokens.
void add_input_options(CLI::App& sub, trial::InputOptions& inputs);
void add_random_options(CLI::App& sub, trial::InputOptions& inputs, std::string_view usual_tokens,
                        CLI::Option* given);
CLI::Option* add_tokens_option(CLI::App& sub, std::optional<int64_t>& tokens,
                               std::string_view usual);
void add_seed_option(CLI::App& sub, uint64_t& seed);

// Each of these declares a command of moejit, with its verbs. In layer_arguments.cpp:
void add_layer(CLI::App& app, Action& action);
void add_activation(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_emit(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
// In kernel_arguments.cpp; reports of measurements repeat the command line:
void add_build(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action, const std::string& command_line);
void add_selftest(CLI::App& app, Action& action, const std::string& command_line);
// In cache_arguments.cpp and pack_arguments.cpp:
void add_cache(CLI::App& app, Action& action);
void add_pack(CLI::App& app, Action& action);
// In tuning_arguments.cpp:
void add_tune(CLI::App& app, Action& action);
void add_tuning(CLI::App& app, Action& action);

}  // namespace moejit::cli
