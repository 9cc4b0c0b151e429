// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/emitter.h"

#include "compiler/support/digest.h"

#include <algorithm>
#include <bit>
#include <fmt/core.h>
#include <variant>

namespace moejit::compiler {
namespace {

constexpr std::size_t kLineLength = 100;

// Returns the words as comment lines of at most kLineLength characters.
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

// Returns `head`, the arguments and `tail`. Arguments share a line while they fit; further lines
// start below the first argument.
std::string argument_lines(std::string_view head, const std::vector<std::string>& arguments,
                           std::string_view tail) {
  std::string text(head);
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument =
        fmt::format("{}{}", arguments[i], i + 1 == arguments.size() ? tail : ",");
    if (i > 0 && text.size() - line_start + 1 + argument.size() > kLineLength) {
      text += "\n";
      line_start = text.size();
      text += std::string(head.size(), ' ');
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

NamedConstant bool_constant(std::string_view name, bool value, std::string_view comment) {
  return {"bool", std::string(name), value ? "true" : "false", std::string(comment)};
}

NamedConstant float_bits_constant(std::string_view name, float value, std::string_view comment) {
  return {"uint32_t", std::string(name), fmt::format("0x{:08x}u", std::bit_cast<uint32_t>(value)),
          fmt::format("{:g}: {}", value, comment)};
}

void set_threads_per_sm(KernelText& text, int32_t threads_per_sm) {
  if (threads_per_sm == 0) return;
  text.constants.push_back(
      integer_constant("kThreadsPerSm", threads_per_sm, "that registers are left for"));
  text.ctas_per_sm = "kThreadsPerSm / kThreads";
}

void make_overlap(KernelText& text) {
  text.awaits_kernel_before = true;
  text.includes.emplace_back("ptx/overlap.cuh");
  std::ranges::sort(text.includes);
}

std::string render(const KernelPlan& kernel, const KernelText& text, std::string_view entry) {
  std::string out = comment_lines(fmt::format("{}: {}", kernel.operation, text.summary));
  out += comment_lines(to_string(kernel.spec));
  for (const std::string& include : text.includes)
    out += fmt::format("#include \"moejit_device/{}\"\n", include);
  out += "\nusing namespace moejit::device;\n\n";
  out += constant_lines(text.constants) + "\n";
  if (!text.own_type.empty()) out += text.own_type + "\n";
  for (const ComposedType& type : text.types_used)
    out += argument_lines(fmt::format("using {} = {}<", type.name, type.template_name),
                          type.arguments, ">;");
  std::vector<std::string> arguments = {"Kernel::kThreads", text.ctas_per_sm, std::string(entry),
                                        text.params};
  const bool is_cluster = !text.cluster_ctas.empty();
  if (is_cluster) arguments.insert(arguments.begin(), text.cluster_ctas);
  out += "\n" +
         argument_lines(is_cluster ? "MOEJIT_CLUSTER_KERNEL(" : "MOEJIT_KERNEL(", arguments, ") {");
  if (text.awaits_kernel_before)
    out += "  ptx::await_kernel_before();\n  ptx::start_kernel_behind();\n";
  return out + "  Kernel::run(params);\n}\n";
}

namespace {

bool is_identifier_part(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

Result<KernelSource> emit(const KernelPlan& kernel, const Target& target) {
  if (!is_identifier_part(kernel.operation)) {
    return fail(Stage::kEmit, ErrorCode::kInternal,
                fmt::format("operation \"{}\": wanted lower-case letters, digits and underscores",
                            kernel.operation));
  }
  const KernelText text = kernel_text(kernel.spec);
  // The name ends with a digest of the text in which the name is left empty. So kernels with
  // different texts never share a name in a profile.
  const std::string digest = sha256(render(kernel, text, "")).hex().substr(0, 8);
  const std::string entry =
      fmt::format("moejit_{}_{}_{}_{}", kernel.operation, text.types, text.tile, digest);
  return KernelSource{.entry = entry, .text = render(kernel, text, entry), .target = target};
}

}  // namespace moejit::compiler
