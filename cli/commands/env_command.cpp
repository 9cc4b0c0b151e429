// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/env_command.h"

#include "cache/cache_folder.h"
#include "cache/cache_settings.h"
#include "cache/pack.h"
#include "cache/stripe_locks.h"
#include "cli/terminal/output.h"
#include "compiler/compiler.h"
#include "compiler/disassembly.h"
#include "compiler/support/env.h"
#include "compiler/support/file.h"
#include "runtime/compile_budget.h"
#include "runtime/device.h"

#include <CLI/Version.hpp>
#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <sys/utsname.h>
#include <unistd.h>
#include <vector>

namespace moejit::cli {
namespace {

// One line of the report: its subject, and what was found or why nothing was.
struct Finding {
  std::string name;
  bool is_found = false;
  std::string text;
  const char* if_missing = "not found: ";  // printed before the text
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
  return {"GPU", true,
          fmt::format("{}, {} SMs, its driver knows CUDA {}; target {} ({})", (*device)->name(),
                      (*device)->sm_count(), (*device)->gpu_facts().cuda_version,
                      to_string((*device)->target()),
                      compiler::find_architecture((*device)->target())->evidence)};
}

// Returns which GPUs reach each other, as the ranks of a group have to.
Finding find_links() {
  const auto links = runtime::gpu_links();
  if (!links) return {"GPU links", false, links.error().message};
  return {"GPU links", true, runtime::links_text(*links)};
}

// Returns remarks on a usable folder: none if it exists and can be written.
std::vector<std::string> remarks_on(const cache::DefaultFolder& named,
                                    const cache::CacheFolder& folder) {
  std::vector<std::string> remarks;
  if (named.is_of_password_database) remarks.emplace_back("by the password database");
  if (!folder.network().empty())
    remarks.push_back(fmt::format("read-only: on a network file system, {}", folder.network()));
  else if (!folder.is_writable())
    remarks.emplace_back("read-only");
  else if (!folder.exists())
    remarks.emplace_back("will be made");
  return remarks;
}

// Returns the folder as an engine would use it, but creates nothing: the user who asks may differ
// from the user who runs the engine.
Finding find_cache() {
  const auto named = cache::default_folder();
  if (!named) return {"cache", false, named.error().message};
  if (named->path.empty()) return {"cache", false, "memory only: " + named->reason, ""};
  const auto folder =
      cache::CacheFolder::look(named->path, cache::settings_of_environment().writes_to_network);
  // An engine fails if a folder that was named is unusable, but runs without the default one.
  if (!folder)
    return {"cache", false, (named->is_explicit ? "" : "memory only: ") + folder.error().message,
            named->is_explicit ? "unusable: " : ""};
  if (folder->fault() != 0)
    return {"cache", false,
            fmt::format("memory only: cache folder {}: {}", folder->root(),
                        errno_text(folder->fault())),
            ""};
  const std::vector<std::string> remarks = remarks_on(*named, *folder);
  return {"cache", true,
          folder->root() + (remarks.empty() ? "" : fmt::format(" ({})", fmt::join(remarks, "; ")))};
}

std::string limit_text(int64_t limit) {
  return limit == cache::kUnlimited ? "none" : fmt::format("{}", limit);
}

Finding find_limits() {
  const cache::CacheSettings settings = cache::settings_of_environment();
  std::string text =
      fmt::format("{} bytes, {} files; network file systems are {}",
                  limit_text(settings.limits.max_bytes), limit_text(settings.limits.max_files),
                  settings.writes_to_network ? "written to" : "only read");
  for (const std::string& problem : settings.problems) text += "; " + problem;
  return {"cache limits", settings.problems.empty(), std::move(text)};
}

// Returns the compiler's build, which is part of every key.
Finding find_compiler_build() {
  auto text = compiler_in_keys({});
  if (!text) return {"NVRTC in keys", false, std::move(text).error().message};
  return {"NVRTC in keys", true, std::move(*text)};
}

Finding find_executable() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return {"executable", !error, error ? error.message() : path.string()};
}

Finding find_system() {
  utsname name{};
  if (::uname(&name) != 0) return {"system", false, "uname fails"};
  return {"system", true,
          fmt::format("{} {} {}, user {}", name.sysname, name.release, name.machine, ::geteuid())};
}

Finding find_build() {
  return {"built with", true,
          fmt::format("{} {}, fmt {}.{}.{}, nlohmann_json {}.{}.{}, CLI11 {}, pugixml {}.{}",
#ifdef __clang__
                      "clang",
#else
                      "g++",
#endif
                      __VERSION__, FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100,
                      NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                      NLOHMANN_JSON_VERSION_PATCH, CLI11_VERSION, PUGIXML_VERSION / 1000,
                      PUGIXML_VERSION / 10 % 100)};
}

// Returns each pack of MOEJIT_PACKS, opened as an engine would.
std::vector<Finding> find_packs() {
  const auto paths = cache::default_packs();
  if (!paths) return {{"pack", false, paths.error().message}};
  const auto trust = cache::pack_trust("");
  if (!trust) return {{"pack keys", false, trust.error().message}};
  std::vector<Finding> found;
  for (const std::string& path : *paths) {
    const std::string name = paths->size() == 1 ? "pack" : fmt::format("pack {}", found.size() + 1);
    const auto pack = cache::Pack::open(path, *trust);
    found.push_back(
        pack ? Finding{name, true,
                       fmt::format("{}, {} kernels, trusted by its {}", path, (*pack)->size(),
                                   trust->ring ? "signature" : "owner and mode")}
             : Finding{name, false, pack.error().message});
  }
  return found;
}

Finding find_compile_jobs() {
  return {"compile at a time", true, to_string(runtime::compile_budget())};
}

// Returns a line for each variable whose on or off is not understood. Everything that reads such a
// variable fails.
std::vector<Finding> find_wrong_switches() {
  std::vector<Finding> found;
  for (const Variable variable : {Variable::kFrozen, Variable::kCheckPointers})
    if (auto is_on = is_switched_on(variable); !is_on)
      found.push_back({"switch", false, std::move(is_on).error().message});
  return found;
}

Finding find_lock_files() {
  auto locks = cache::open_default_stripe_locks();
  if (locks) return {"lock files", true, (*locks)->folder()};
  return {"lock files", false, std::move(locks).error().message};
}

std::vector<Finding> findings() {
  std::vector<Finding> all = {{"moejit", true, MOEJIT_VERSION},
                              find_executable(),
                              find_build(),
                              find_system(),
                              find_toolchain("compiler of cuda", {}),
                              find_compiler_build(),
                              find_toolchain("compiler of sim", compiler::simulator_target()),
                              find_disassembler(),
                              find_gpu(),
                              find_links(),
                              find_cache(),
                              find_limits(),
                              find_compile_jobs(),
                              find_lock_files()};
  for (Finding& pack : find_packs()) all.push_back(std::move(pack));
  for (Finding& wrong : find_wrong_switches()) all.push_back(std::move(wrong));
  return all;
}

// Returns the shared libraries that this process has open, among them those that the search for
// compiler and driver opened.
std::vector<std::string> libraries_in_use() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> paths;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash != std::string::npos && line.find(".so", slash) != std::string::npos)
      paths.insert(line.substr(slash));
  }
  return {paths.begin(), paths.end()};
}

std::string json_report() {
  nlohmann::ordered_json json;
  for (const Finding& finding : findings())
    json[finding.name] = {{"found", finding.is_found}, {"text", finding.text}};
  for (const VariableInfo& info : variables()) {
    const std::optional<std::string> value = environment(info.variable);
    json["variables"][std::string(info.name)] = value ? nlohmann::ordered_json(*value) : nullptr;
  }
  json["libraries"] = libraries_in_use();
  return json_output(json);
}

std::string text_report() {
  std::string text;
  for (const Finding& finding : findings())
    text += fmt::format("{:<25}{}{}\n", finding.name, finding.is_found ? "" : finding.if_missing,
                        finding.text);
  text += "\n";
  for (const VariableInfo& info : variables()) {
    const std::optional<std::string> value = environment(info.variable);
    text += fmt::format("{:<25}{}\n", info.name,
                        value ? *value : fmt::format("(not set: {})", info.default_value));
  }
  text += "\n";
  for (const std::string& library : libraries_in_use())
    text += fmt::format("{:<25}{}\n", "library", library);
  return text;
}

}  // namespace

Result<std::string> compiler_in_keys(const compiler::Target& target) {
  MOEJIT_TRY_ASSIGN(const auto identity,
                    compiler::toolchain_identity({.entry = {}, .text = {}, .target = target}));
  std::string text;
  for (const std::string& field : identity)
    if (!field.starts_with("header")) text += (text.empty() ? "" : ", ") + field;
  return text;
}

Result<void> run_env(const EnvCommand& command, Terminal& terminal) {
  terminal.print(command.is_json ? json_report() : text_report());
  return {};
}

}  // namespace moejit::cli
