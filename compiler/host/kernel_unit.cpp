// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/host_compiler.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <string_view>

namespace moejit::compiler {
namespace {

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// Returns the lines of a text that include headers; none if it has directives that reach beyond its
// end, such as macros.
std::optional<std::string> includes_of(std::string_view text) {
  std::string includes;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || line[first] != '#') continue;
    if (line.starts_with("#include \""))
      includes.append(line) += '\n';
    else if (!line.starts_with("#line "))
      return std::nullopt;
  }
  return includes;
}

bool has_entry(std::span<const KernelSource> sources, std::span<const std::size_t> unit,
               std::string_view entry) {
  return std::ranges::any_of(unit, [&](std::size_t i) { return sources[i].entry == entry; });
}

}  // namespace

std::vector<std::vector<std::size_t>> units_of(std::span<const KernelSource> sources,
                                               std::size_t jobs) {
  using Unit = std::vector<std::size_t>;
  std::vector<Unit> units;
  std::map<std::string, Unit> groups;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto includes = includes_of(sources[i].text);
    if (includes)
      groups[*includes].push_back(i);
    else
      units.push_back({i});
  }
  const std::size_t share = divide_up(sources.size(), std::max<std::size_t>(jobs, 1));
  const std::size_t most = std::min(share, kMostKernelsOfUnit);
  for (const auto& [includes, group] : groups) {
    const std::size_t even = divide_up(group.size(), divide_up(group.size(), most));
    std::vector<Unit> parts;
    for (const std::size_t i : group) {
      const auto has_room = [&](const Unit& part) {
        return part.size() < even && !has_entry(sources, part, sources[i].entry);
      };
      auto part = std::ranges::find_if(parts, has_room);
      if (part == parts.end()) part = parts.emplace(part);
      part->push_back(i);
    }
    std::ranges::move(parts, std::back_inserter(units));
  }
  std::ranges::stable_sort(units, std::ranges::greater(), &Unit::size);
  return units;
}

std::string text_of_unit(std::span<const KernelSource> sources) {
  std::string text = includes_of(sources.front().text).value_or("");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    text += fmt::format("namespace moejit_text_{} {{\n#line 1 \"kernel.cu\"\n", i);
    text += sources[i].text;
    // The last line refuses a text that closes a brace which another text left open.
    text += fmt::format("\n}}\nnamespace moejit_alias_{0} = ::moejit_text_{0};\n", i);
  }
  return text;
}

}  // namespace moejit::compiler
