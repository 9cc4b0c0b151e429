// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <algorithm>
#include <bit>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::size_t kLineLength = 100;

// Words as comment lines of at most kLineLength characters.
std::string comment_lines(std::string_view text) {
  std::string lines;
  std::string line = "//";
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (line.size() + 1 + word.size() > kLineLength) {
      lines += line + "\n";
      line = "//  ";
    }
    line += fmt::format(" {}", word);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines + line + "\n";
}

std::string constant_lines(const std::vector<NamedConstant>& constants) {
  std::vector<std::string> definitions;
  std::size_t width = 0;
  for (const NamedConstant& constant : constants) {
    definitions.push_back(
        fmt::format("constexpr {} {} = {};", constant.type, constant.name, constant.value));
    width = std::max(width, definitions.back().size());
  }
  std::string lines;
  for (std::size_t i = 0; i < constants.size(); ++i) {
    lines += fmt::format("{:<{}}  // {}\n", definitions[i], width, constants[i].comment);
  }
  return lines;
}

// Arguments share a line while they fit; further lines start below the first argument.
std::string using_line(const ComposedType& type) {
  std::string text = fmt::format("using {} = {}<", type.name, type.template_name);
  const std::size_t indent = text.size();
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < type.arguments.size(); ++i) {
    const bool is_last = i + 1 == type.arguments.size();
    const std::string argument = type.arguments[i] + (is_last ? ">;" : ",");
    if (i > 0 && text.size() - line_start + 1 + argument.size() > kLineLength) {
      text += "\n";
      line_start = text.size();
      text += std::string(indent, ' ');
    } else if (i > 0) {
      text += " ";
    }
    text += argument;
  }
  return text + "\n";
}

}  // namespace

NamedConstant integer_constant(std::string_view name, int32_t value, std::string_view comment) {
  return {"int32_t", std::string(name), fmt::format("{}", value), std::string(comment)};
}

NamedConstant float_bits_constant(std::string_view name, float value, std::string_view comment) {
  return {"uint32_t", std::string(name), fmt::format("0x{:08x}u", std::bit_cast<uint32_t>(value)),
          fmt::format("{:g}: {}", value, comment)};
}

std::string render(const KernelPlan& kernel, const KernelText& text, std::string_view entry) {
  std::string out = comment_lines(fmt::format("{}: {}", kernel.operation, text.summary));
  out += comment_lines(to_string(kernel.spec));
  out += fmt::format("#include \"moejit_device/{}\"\n\n", text.include);
  out += "using namespace moejit::device;\n\n";
  out += constant_lines(text.constants) + "\n";
  for (const ComposedType& type : text.types_used) out += using_line(type);
  const std::string head = fmt::format("MOEJIT_KERNEL(kThreads, Kernel::kCtasPerSm, {},", entry);
  const bool fits = head.size() + 1 + text.params.size() + 3 <= kLineLength;
  out += fmt::format("\n{}{}{}) {{\n  Kernel::run(params);\n}}\n", head,
                     fits ? " " : "\n              ", text.params);
  return out;
}

}  // namespace moejit::compiler
