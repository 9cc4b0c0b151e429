// SPDX-License-Identifier: Apache-2.0
#include "cache/kernel_cache.h"
#include "cli/commands/commands.h"
#include "compiler/compiler.h"
#include "compiler/disassembly.h"
#include "compiler/support/env.h"
#include "runtime/device.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

// One line of the report: what it is about, and what was found or why nothing was.
struct Finding {
  std::string name;
  bool is_found = false;
  std::string text;
};

Finding find_toolchain(std::string name, const compiler::Target& target) {
  auto description = compiler::toolchain_description(target);
  if (description) return {std::move(name), true, std::move(*description)};
  return {std::move(name), false, std::move(description).error().message};
}

Finding find_disassembler() {
  auto path = compiler::disassembler_description();
  if (path) return {"disassembler", true, std::move(*path)};
  return {"disassembler", false, std::move(path).error().message};
}

Finding find_gpu() {
  auto device = runtime::open_cuda_device();
  if (!device) return {"GPU", false, std::move(device).error().message};
  return {"GPU", true, fmt::format("{}, {} SMs", (*device)->name(), (*device)->sm_count())};
}

Finding find_cache() {
  auto folder = cache::default_folder();
  if (!folder) return {"cache", false, std::move(folder).error().message};
  if (folder->path.empty()) return {"cache", false, folder->reason};
  return {"cache", true, folder->path};
}

std::vector<Finding> findings() {
  return {{"moejit", true, MOEJIT_VERSION},
          find_toolchain("compiler of cuda:sm_90a", {}),
          find_toolchain("compiler of sim", {.kind = compiler::TargetKind::kSim, .arch = "host"}),
          find_disassembler(),
          find_gpu(),
          find_cache()};
}

std::string json_report() {
  nlohmann::ordered_json json;
  for (const Finding& finding : findings())
    json[finding.name] = {{"found", finding.is_found}, {"text", finding.text}};
  for (const VariableInfo& info : variables()) {
    const std::optional<std::string> value = environment(info.variable);
    json["variables"][std::string(info.name)] = value ? nlohmann::ordered_json(*value) : nullptr;
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string text_report() {
  std::string text;
  for (const Finding& finding : findings())
    text += fmt::format("{:<25}{}{}\n", finding.name,
                        finding.is_found ? "" : "not found: ", finding.text);
  text += "\n";
  for (const VariableInfo& info : variables()) {
    const std::optional<std::string> value = environment(info.variable);
    text += fmt::format("{:<25}{}\n", info.name,
                        value ? *value : fmt::format("(not set: {})", info.default_value));
  }
  return text;
}

}  // namespace

Result<void> run_env(const EnvCommand& command, Terminal& terminal) {
  terminal.print(command.is_json ? json_report() : text_report());
  return {};
}

}  // namespace moejit::cli
