// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.h"
#include "cli/commands/commands.h"
#include "cli/commands/layer_file.h"
#include "cli/execution/open_engine.h"
#include "cli/terminal/table.h"
#include "compiler/support/file.h"

#include <cstring>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::ResourceUsage;

struct InspectedKernel {
  std::string operation;  // empty where the plan is not known
  std::string entry;
  std::optional<ResourceUsage> usage;
  int64_t dynamic_shared_bytes = 0;
  bool has_spills = true;  // a bare cubin does not tell
  int64_t binary_bytes = 0;
};

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

Result<std::vector<InspectedKernel>> inspect_cubin(std::span<const std::byte> cubin,
                                                   const std::string& path) {
  auto entries = compiler::cubin_entries(cubin);
  if (!entries)
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{}: not a cubin: {}", path, entries.error().message));
  std::vector<InspectedKernel> kernels;
  for (const std::string& entry : *entries) {
    auto usage = compiler::cubin_resource_usage(cubin, entry);
    if (!usage)
      return fail(Stage::kFile, ErrorCode::kInvalidFile,
                  fmt::format("{}: {}", path, usage.error().message));
    kernels.push_back({"", entry, *usage, 0, false, static_cast<int64_t>(cubin.size())});
  }
  if (kernels.empty())
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{}: an ELF file without kernels, wanted a cubin", path));
  return kernels;
}

// A cache entry holds the digest it was stored under.
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
  return inspect_cubin(entry->payload, path);
}

Result<std::vector<InspectedKernel>> inspect_layer(const InspectCommand& command,
                                                   const Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(command.file, command.target));
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    open_engine(command.cache, terminal));
  std::vector<InspectedKernel> kernels;
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelSource source,
                      compiler::emit_kernel(kernel, plan.target));
    MOEJIT_TRY_ASSIGN(const auto binary, engine->binary(source));
    kernels.push_back({kernel.operation, source.entry, binary->usage, kernel.launch.shared_bytes,
                       true, static_cast<int64_t>(binary->bytes.size())});
  }
  return kernels;
}

std::string json_report(const std::vector<InspectedKernel>& kernels) {
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  for (const InspectedKernel& kernel : kernels) {
    nlohmann::ordered_json json{{"operation", kernel.operation}, {"entry", kernel.entry}};
    json["dynamic_shared_bytes"] = kernel.dynamic_shared_bytes;
    json["binary_bytes"] = kernel.binary_bytes;
    if (kernel.usage) {
      json["registers"] = kernel.usage->registers;
      json["static_shared_bytes"] = kernel.usage->static_shared_bytes;
      json["stack_bytes"] = kernel.usage->stack_bytes;
      json["code_bytes"] = kernel.usage->code_bytes;
      if (kernel.has_spills) {
        json["spill_store_bytes"] = kernel.usage->spill_store_bytes;
        json["spill_load_bytes"] = kernel.usage->spill_load_bytes;
      }
    }
    report.push_back(std::move(json));
  }
  return nlohmann::ordered_json{{"kernels", report}}.dump(
             2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string text_report(const std::vector<InspectedKernel>& kernels) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"kernel"},
               {"registers", kRight},
               {"shared static", kRight},
               {"dynamic", kRight},
               {"stack", kRight},
               {"spills", kRight},
               {"code", kRight},
               {"entry"}});
  for (const InspectedKernel& kernel : kernels) {
    const std::string name = kernel.operation.empty() ? "-" : kernel.operation;
    const std::string dynamic =
        kernel.operation.empty() ? "-" : bytes_text(kernel.dynamic_shared_bytes);
    if (!kernel.usage) {
      table.add({name, "-", "-", dynamic, "-", "-", bytes_text(kernel.binary_bytes), kernel.entry});
      continue;
    }
    const ResourceUsage& usage = *kernel.usage;
    table.add(
        {name, std::to_string(usage.registers), bytes_text(usage.static_shared_bytes), dynamic,
         bytes_text(usage.stack_bytes),
         kernel.has_spills ? bytes_text(usage.spill_store_bytes + usage.spill_load_bytes) : "?",
         bytes_text(usage.code_bytes), kernel.entry});
  }
  return table.text();
}

Result<std::vector<InspectedKernel>> inspect(const InspectCommand& command,
                                             const Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(command.file));
  if (starts_with(bytes,
                  "\x7f"
                  "ELF"))
    return inspect_cubin(bytes, command.file);
  if (starts_with(bytes, "moejit\x1a\n")) return inspect_entry(bytes, command.file);
  return inspect_layer(command, terminal);
}

}  // namespace

Result<void> run_inspect(const InspectCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const std::vector<InspectedKernel> kernels, inspect(command, terminal));
  terminal.print(command.is_json ? json_report(kernels) : text_report(kernels));
  return {};
}

}  // namespace moejit::cli
