// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.h"
#include "cli/commands/inspect_report.h"
#include "cli/commands/layer_commands.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_records.h"
#include "cli/terminal/output.h"
#include "compiler/support/file.h"
#include "runtime/trial/open_engine.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <future>
#include <iterator>
#include <map>

namespace moejit::cli {
namespace {

using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

Result<std::vector<InspectedKernel>> inspect_cubin(std::vector<std::byte> bytes,
                                                   const std::string& path) {
  const auto cubin = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  auto entries = compiler::cubin_entries(*cubin);
  if (!entries)
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{}: not a cubin: {}", path, entries.error().message));
  std::vector<InspectedKernel> kernels;
  for (const std::string& entry : *entries) {
    auto usage = compiler::cubin_resource_usage(*cubin, entry);
    if (!usage)
      return fail(Stage::kFile, ErrorCode::kInvalidFile,
                  fmt::format("{}: {}", path, usage.error().message));
    kernels.push_back({.entry = entry, .binary = cubin, .usage = *usage, .has_spills = false});
  }
  if (kernels.empty())
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{}: an ELF file without kernels, wanted a cubin", path));
  return kernels;
}

// Inspects a cache entry. The digest that it must match is stored in it.
Result<std::vector<InspectedKernel>> inspect_entry(std::span<const std::byte> bytes,
                                                   const std::string& path) {
  constexpr size_t kKeyOffset = 16;
  Digest key{};
  if (bytes.size() >= kKeyOffset + sizeof(key))
    std::memcpy(&key, bytes.data() + kKeyOffset, sizeof(key));
  auto entry = cache::decode_entry(bytes, key);
  if (!entry)
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{}: {}", path, entry.error().message));
  return inspect_cubin(std::move(entry->payload), path);
}

Result<std::vector<InspectedKernel>> inspect_layer(const InspectCommand& command,
                                                   const std::string& path,
                                                   const Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(path, command.plan));
  trial::CacheOptions cache = command.cache;
  cache.build_arguments = shell_word(path) + (command.plan.pass.empty() ? "" : " --variants all") +
                          tuning_words(command.plan.tuning);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(cache, terminal.warner()));
  std::vector<InspectedKernel> kernels;
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelSource source,
                      compiler::emit_kernel(kernel, plan.target));
    MOEJIT_TRY_ASSIGN(const auto binary, engine->binary(source));
    kernels.push_back({.layer = name_of(plan),
                       .operation = kernel.operation,
                       .entry = source.entry,
                       .binary = SharedBytes(binary, &binary->bytes),
                       .usage = binary->usage,
                       .dynamic_shared_bytes = kernel.launch.shared_bytes});
  }
  return kernels;
}

using Disassembled = Result<std::vector<compiler::KernelDisassembly>>;

// Disassembles each binary once, all in parallel: a disassembler needs a second to start.
std::map<SharedBytes, Disassembled> disassemble_all(std::span<const InspectedKernel> kernels) {
  std::map<SharedBytes, std::future<Disassembled>> running;
  for (const InspectedKernel& kernel : kernels)
    if (kernel.usage && !running.contains(kernel.binary))  // only machine code of a GPU has it
      running.emplace(kernel.binary, std::async(std::launch::async, [binary = kernel.binary] {
                        return compiler::disassemble(*binary);
                      }));
  std::map<SharedBytes, Disassembled> done;
  for (auto& [binary, future] : running) done.emplace(binary, future.get());
  return done;
}

// Adds the disassembler's findings. Without a disassembler, prints a note.
Result<void> add_disassembly(std::vector<InspectedKernel>& kernels, const Terminal& terminal) {
  const std::map<SharedBytes, Disassembled> disassembled = disassemble_all(kernels);
  for (InspectedKernel& kernel : kernels) {
    const auto found = disassembled.find(kernel.binary);
    if (found == disassembled.end()) continue;
    const Disassembled& result = found->second;
    if (!result && result.error().code == ErrorCode::kCompilerMissing) {
      terminal.note(
          fmt::format("instructions are not counted: {}{}{}", result.error().message,
                      result.error().hint.empty() ? "" : "; hint: ", result.error().hint));
      return {};
    }
    if (!result) return tl::make_unexpected(result.error());
    const auto text = std::ranges::find(*result, kernel.entry, &compiler::KernelDisassembly::entry);
    if (text != result->end()) kernel.disassembly = text->text;
  }
  return {};
}

Result<std::vector<InspectedKernel>> inspect(const InspectCommand& command, const std::string& path,
                                             const Terminal& terminal) {
  if (path == "-") return inspect_layer(command, path, terminal);
  MOEJIT_TRY_ASSIGN(std::vector<std::byte> bytes, read_file(path));
  if (starts_with(bytes,
                  "\x7f"
                  "ELF"))
    return inspect_cubin(std::move(bytes), path);
  if (starts_with(bytes, "moejit\x1a\n")) return inspect_entry(bytes, path);
  return inspect_layer(command, path, terminal);
}

}  // namespace

Result<void> run_inspect(const InspectCommand& command, Terminal& terminal) {
  std::vector<InspectedKernel> kernels;
  for (const std::string& path : command.files) {
    MOEJIT_TRY_ASSIGN(std::vector<InspectedKernel> more, inspect(command, path, terminal));
    std::ranges::move(more, std::back_inserter(kernels));
  }
  MOEJIT_TRY(add_disassembly(kernels, terminal));
  terminal.print(command.is_json     ? inspect_json(kernels, command.with_sass)
                 : command.with_sass ? inspect_sass(kernels)
                                     : inspect_table(kernels, terminal.width()));
  return {};
}

}  // namespace moejit::cli
