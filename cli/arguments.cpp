// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include "cli/arguments/add_command.h"
#include "cli/commands/env_command.h"
#include "cli/terminal/output.h"
#include "compiler/compiler.h"
#include "compiler/support/json_document.h"
#include "compiler/support/nearest_name.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {
namespace {

// The command that CompileOptions::worker starts; people do not use it.
struct CompileWorkerCommand {
  int32_t parent = 0;
};

// Adds the hidden command `compile-worker`, which other processes start to compile one kernel.
void add_compile_worker(CLI::App& app, Action& action) {
  const auto command = add_command<CompileWorkerCommand>(
      app, action, "compile-worker", "Compile one kernel for another process",
      "  see MOEJIT_COMPILE_WORKER\n",
      [](const CompileWorkerCommand& worker, Terminal& /*terminal*/) {
        return compiler::serve_compile_worker(worker.parent);
      });
  CLI::App* sub = app.get_subcommand("compile-worker");
  sub->group("");
  sub->add_option("PARENT", command->parent, "Process that wants it")->required();
}

void add_env(CLI::App& app, Action& action) {
  const auto command =
      add_command<EnvCommand>(app, action, "env", "Print versions, paths, variables and GPUs",
                              "  moejit env\n  moejit env --json\n", run_env);
  app.get_subcommand("env")->add_flag("--json", command->is_json, "Print JSON");
}

// Returns the last subcommand on the line; a misspelt word is compared with its words.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* current = &app;
  while (!current->get_subcommands().empty()) current = current->get_subcommands().front();
  return *current;
}

std::vector<std::string> known_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    words.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  return words;
}

std::string command_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : command_name(*app.get_parent()) + " " + app.get_name();
}

bool has_commands(const CLI::App& app) {
  return !app.get_subcommands([](const CLI::App*) { return true; }).empty();
}

// Returns the command with this name, or null.
const CLI::App* find_command(const CLI::App& app, std::string_view name) {
  const auto found =
      app.get_subcommands([name](const CLI::App* sub) { return sub->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

// Returns a line for each command of the app. Hidden commands, which are in no group, are left out.
std::string list_commands(const CLI::App& app) {
  std::string text = "commands:\n";
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!sub->get_group().empty())
      text += fmt::format("  {:<12}{}\n", sub->get_name(), sub->get_description());
  return text;
}

Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& where = innermost(app);
  if (app.remaining(true).empty() && has_commands(where) &&
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return {
        Stage::kCommand, ErrorCode::kUsage, fmt::format("{} wants a command", command_name(where)),
        fmt::format("{} COMMAND --help describes one", command_name(where)), list_commands(where)};
  std::string message = escape_for_message(error.what(), 400);
  std::string hint = command_name(where) + " --help";
  const std::vector<std::string> extras = app.remaining(true);
  // A misspelt command also raises "a subcommand is required", but the word itself says more.
  if (!extras.empty() && (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                          dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)) {
    const bool wants_command = has_commands(where);
    const std::string& extra = extras.front();
    message =
        fmt::format("unknown {} {}",
                    extra.starts_with('-') ? "option" : (wants_command ? "command" : "argument"),
                    quote_for_message(extra));
    const std::vector<std::string> words = known_words(where);
    const std::vector<std::string_view> views(words.begin(), words.end());
    const std::string_view nearest = nearest_name(extra, views);
    if (!nearest.empty()) hint = fmt::format("did you mean {}? See {}", nearest, hint);
  }
  return {Stage::kCommand, ErrorCode::kUsage, std::move(message), std::move(hint), ""};
}

// Returns the command line, with "moejit" in place of the program's path.
std::string command_line_of(int argc, const char* const* argv) {
  std::string line = "moejit";
  for (int i = 1; i < argc; ++i) line += " " + shell_word(argv[i]);
  return line;
}

// Lists `help` and `version` among the commands; spell_out() does their work.
void add_help_and_version(CLI::App& app) {
  app.add_subcommand("help", "Print the help of a command, as --help does");
  app.add_subcommand("version", "Print the version, as --version does");
}

// Returns the words of the command line, with `moejit help plan` spelled as `moejit plan --help`
// and `moejit version` as `moejit --version`. If a word behind `help` is no command, adds no
// --help, so that the word is refused.
std::vector<const char*> spell_out(const CLI::App& app, int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "version" && argc == 2) words[1] = "--version";
  if (verb != "help") return words;
  words.erase(words.begin() + 1);
  const CLI::App* current = &app;
  for (size_t i = 1; i < words.size() && current != nullptr; ++i)
    if (words[i][0] != '-') current = find_command(*current, words[i]);
  if (current != nullptr) words.push_back("--help");
  return words;
}

Action print_action(std::string text) {
  return [text = std::move(text)](Terminal& terminal) -> Result<void> {
    terminal.print(wrap_help(text, terminal.width()));
    return {};
  };
}

}  // namespace

Result<ParsedArguments> parse_arguments(int argc, const char* const* argv) {
  CLI::App app{"Generates, compiles and runs the fused kernels of a Mixture-of-Experts layer."};
  app.name("moejit");
  app.require_subcommand(1);
  app.footer("docs/cli.md describes every command and the exit statuses.");
  app.set_version_flag("-V,--version", "moejit " MOEJIT_VERSION);
  ParsedArguments parsed;
  app.add_flag("-v,--verbose", parsed.is_verbose, "Errors with everything that is known");
  for (const auto& add : {add_layer, add_activation, add_plan, add_emit, add_build, add_run})
    add(app, parsed.action);
  for (const auto& add : {add_bench, add_selftest})
    add(app, parsed.action, command_line_of(argc, argv));
  for (const auto& add :
       {add_inspect, add_cache, add_pack, add_tune, add_tuning, add_env, add_compile_worker})
    add(app, parsed.action);
  add_help_and_version(app);
  const std::vector<const char*> words = spell_out(app, argc, argv);
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::CallForVersion& version) {
    parsed.action = print_action(std::string(version.what()) + "\n");
  } catch (const CLI::Success&) {
    parsed.action = print_action(app.help());
  } catch (const CLI::ParseError& error) {
    return tl::make_unexpected(usage_error(app, error));
  }
  return parsed;
}

}  // namespace moejit::cli
