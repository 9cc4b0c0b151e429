// SPDX-License-Identifier: Apache-2.0
// Both tools write an instruction as
//         /*00b0*/              @!P0 BRA `(.L_x_0) ;
// and cuobjdump adds its encoding, "/* 0x0000000000148947 */", with a blank behind the asterisk.
// They differ in the line that starts a kernel k:
//   nvdisasm   //--------------------- .text.k                   --------------------------
//   cuobjdump  Function : k
#include "compiler/disassembler/disassembly_text.h"

#include <algorithm>
#include <optional>

namespace moejit::compiler {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Calls `use` with each line.
template <typename Use>
void for_each_line(std::string_view text, Use use) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    use(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Returns the section that a line of nvdisasm starts, without its rulers; none if it starts none.
std::optional<std::string_view> started_section(std::string_view line) {
  line = trim(line);
  if (!consume(line, "//-----")) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of('-'), line.size()));
  return trim(line.substr(0, line.find(" -----")));
}

// Returns the instruction that a line holds: its mnemonic without modifiers, or empty.
std::string_view mnemonic_of(std::string_view line) {
  line = trim(line);
  if (!consume(line, "/*")) return {};
  const std::size_t end = line.find("*/");
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  if (end == 0 || end == std::string_view::npos || line.find_first_not_of(kHexDigits) != end)
    return {};
  line = trim(line.substr(end + 2));
  if (line.starts_with('@')) line = trim(line.substr(std::min(line.find(' '), line.size())));
  return line.substr(0, line.find_first_of(" .;\t"));
}

}  // namespace

std::vector<KernelDisassembly> split_disassembly(std::string_view output) {
  std::vector<KernelDisassembly> kernels;
  bool is_inside = false;
  for_each_line(output, [&](std::string_view line) {
    std::string_view name = trim(line);
    if (const auto section = started_section(line)) {
      name = *section;
      is_inside = consume(name, ".text.");
      if (is_inside) kernels.push_back({std::string(name), {}});
    } else if (consume(name, "Function : ")) {
      is_inside = true;
      kernels.push_back({std::string(name), {}});
    } else if (is_inside) {
      kernels.back().text.append(line).push_back('\n');
    }
  });
  return kernels;
}

InstructionCounts count_instructions(std::string_view disassembly) {
  InstructionCounts counts;
  for_each_line(disassembly, [&](std::string_view line) {
    const std::string_view mnemonic = mnemonic_of(line);
    if (!mnemonic.empty()) ++counts[std::string(mnemonic)];
  });
  return counts;
}

}  // namespace moejit::compiler
