// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/inspect_report.h"

#include "cli/terminal/output.h"
#include "compiler/support/table.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

namespace moejit::cli {
namespace {

using compiler::InstructionCounts;
using compiler::ResourceUsage;

// Instructions that tell how a kernel works, in one column for each group. Hopper's warpgroup
// instructions are GMMA with a letter for the type (Q: 8-bit floats, H: 16-bit, I: integers).
// mma.sync becomes HMMA and IMMA. UTMA and UBLK are copies of the tensor memory accelerator. LDL
// and STL access local memory, where spilled registers are.
struct InstructionGroup {
  const char* heading;
  std::array<std::string_view, 4> mnemonics;  // empty names fill the rest
};
constexpr std::array kGroups = {
    InstructionGroup{"WGMMA", {"QGMMA", "HGMMA", "IGMMA"}},
    InstructionGroup{"MMA", {"HMMA", "IMMA"}},
    InstructionGroup{"TMA", {"UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP"}},
    InstructionGroup{"local", {"LDL", "STL"}},
};

int64_t count_of(const InstructionCounts& counts, std::string_view mnemonic) {
  const auto found = counts.find(mnemonic);
  return found == counts.end() ? 0 : found->second;
}

std::vector<std::string> group_cells(const InspectedKernel& kernel) {
  if (!kernel.disassembly)
    return std::vector<std::string>(kGroups.size(), kernel.usage ? "?" : "-");
  const InstructionCounts counts = compiler::count_instructions(*kernel.disassembly);
  std::vector<std::string> cells;
  for (const InstructionGroup& group : kGroups) {
    int64_t sum = 0;
    for (const std::string_view mnemonic : group.mnemonics) sum += count_of(counts, mnemonic);
    cells.push_back(std::to_string(sum));
  }
  return cells;
}

nlohmann::ordered_json instructions_json(const std::string& disassembly) {
  const InstructionCounts counts = compiler::count_instructions(disassembly);
  nlohmann::ordered_json json;
  for (const InstructionGroup& group : kGroups)
    for (const std::string_view mnemonic : group.mnemonics)
      if (!mnemonic.empty()) json[std::string(mnemonic)] = count_of(counts, mnemonic);
  int64_t total = 0;
  for (const auto& [mnemonic, count] : counts) total += count;
  json["total"] = total;
  return json;
}

std::vector<std::string> usage_cells(const InspectedKernel& kernel) {
  const std::string dynamic =
      kernel.operation.empty() ? "-" : bytes_text(kernel.dynamic_shared_bytes);
  if (!kernel.usage) return {"-", "-", dynamic, "-", "-", bytes_text(std::ssize(*kernel.binary))};
  const ResourceUsage& usage = *kernel.usage;
  return {std::to_string(usage.registers),
          bytes_text(usage.static_shared_bytes),
          dynamic,
          bytes_text(usage.stack_bytes),
          kernel.has_spills ? bytes_text(usage.spill_store_bytes + usage.spill_load_bytes) : "?",
          bytes_text(usage.code_bytes)};
}

}  // namespace

std::string inspect_table(std::span<const InspectedKernel> kernels, int32_t width) {
  constexpr auto kRight = Table::Align::kRight;
  const bool has_layers = std::ranges::any_of(kernels, [&](const InspectedKernel& kernel) {
    return kernel.layer != kernels.front().layer;
  });
  std::vector<Table::Column> columns = {
      {"kernel"},        {"registers", kRight}, {"shared static", kRight}, {"dynamic", kRight},
      {"stack", kRight}, {"spills", kRight},    {"code", kRight}};
  if (has_layers) columns.insert(columns.begin(), {"layer"});
  for (const InstructionGroup& group : kGroups) columns.push_back({group.heading, kRight});
  columns.push_back({"entry"});
  Table table(std::move(columns));
  for (const InspectedKernel& kernel : kernels) {
    std::vector<std::string> cells = {kernel.operation.empty() ? "-" : kernel.operation};
    if (has_layers) cells.insert(cells.begin(), kernel.layer.empty() ? "-" : kernel.layer);
    for (std::string& cell : usage_cells(kernel)) cells.push_back(std::move(cell));
    for (std::string& cell : group_cells(kernel)) cells.push_back(std::move(cell));
    cells.push_back(kernel.entry);
    table.add(std::move(cells));
  }
  return table.text(width);
}

std::string inspect_json(std::span<const InspectedKernel> kernels, bool with_sass) {
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  for (const InspectedKernel& kernel : kernels) {
    nlohmann::ordered_json json{
        {"layer", kernel.layer}, {"operation", kernel.operation}, {"entry", kernel.entry}};
    json["dynamic_shared_bytes"] = kernel.dynamic_shared_bytes;
    json["binary_bytes"] = kernel.binary->size();
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
    if (kernel.disassembly) json["instructions"] = instructions_json(*kernel.disassembly);
    if (kernel.disassembly && with_sass) json["sass"] = *kernel.disassembly;
    report.push_back(std::move(json));
  }
  return json_output({{"kernels", report}});
}

std::string inspect_sass(std::span<const InspectedKernel> kernels) {
  std::string text;
  for (const InspectedKernel& kernel : kernels) {
    if (!kernel.disassembly) continue;
    text += fmt::format("{}// {}{}{}\n", text.empty() ? "" : "\n", kernel.operation,
                        kernel.operation.empty() ? "" : ": ", kernel.entry);
    text += *kernel.disassembly;
  }
  return text;
}

}  // namespace moejit::cli
