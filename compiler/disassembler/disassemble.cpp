// SPDX-License-Identifier: Apache-2.0
// Both tools write an instruction as
//         /*00b0*/              @!P0 BRA `(.L_x_0) ;
// and cuobjdump adds its encoding, "/* 0x0000000000148947 */", with a blank behind the asterisk.
// They differ in the line that starts a kernel k:
//   nvdisasm   //--------------------- .text.k                   --------------------------
//   cuobjdump  Function : k
#include "compiler/disassembly.h"
#include "compiler/host/process.h"
#include "compiler/support/env.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <fmt/ranges.h>
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

#ifndef MOEJIT_DEFAULT_DISASSEMBLER_DIR
#define MOEJIT_DEFAULT_DISASSEMBLER_DIR ""
#endif

namespace moejit::compiler {
namespace {

namespace fs = std::filesystem;

// nvdisasm comes first: cuobjdump of some releases is only a front end to it.
constexpr std::array<std::string_view, 2> kPrograms = {"nvdisasm", "cuobjdump"};

// Returns the folders that are searched after the PATH.
std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  const auto add = [&folders](std::string folder) {
    if (std::ranges::find(folders, folder) == folders.end()) folders.push_back(std::move(folder));
  };
  for (const Variable variable : {Variable::kCudaHome, Variable::kCudaPath})
    if (const auto root = environment(variable)) add(*root + "/bin");
  // Set if the build found the wheel that .ci/setup fetches.
  if (const std::string folder = MOEJIT_DEFAULT_DISASSEMBLER_DIR; !folder.empty()) add(folder);
  add("/usr/local/cuda/bin");
  return folders;
}

Result<fs::path> find_disassembler() {
  if (const auto named = environment(Variable::kDisassembler)) {
    if (const auto path = find_program(*named)) return *path;
    return fail(Stage::kCompile, ErrorCode::kCompilerMissing,
                fmt::format("MOEJIT_DISASSEMBLER names {}, which is not a program", *named));
  }
  const std::vector<std::string> folders = toolkit_folders();
  for (const std::string_view program : kPrograms) {
    if (const auto path = find_program(program)) return *path;
    for (const std::string& folder : folders)
      if (const auto path = find_program(fmt::format("{}/{}", folder, program))) return *path;
  }
  return fail(Stage::kCompile, ErrorCode::kCompilerMissing,
              fmt::format("no disassembler: looked for {} on the PATH and in {}",
                          fmt::join(kPrograms, " and "), fmt::join(folders, ", ")),
              "python3 -m pip install --target FOLDER nvidia-cuda-nvdisasm, then "
              "MOEJIT_DISASSEMBLER=FOLDER/nvidia/cu13/bin/nvdisasm; or install a CUDA toolkit's");
}

}  // namespace

Result<std::vector<KernelDisassembly>> disassemble(std::span<const std::byte> cubin) {
  MOEJIT_TRY_ASSIGN(const fs::path program, find_disassembler());
  MOEJIT_TRY_ASSIGN(const TemporaryFolder folder, TemporaryFolder::create());
  MOEJIT_TRY(write_temporary_file(
      folder.path() / "kernel.cubin",
      std::string_view(reinterpret_cast<const char*>(cubin.data()), cubin.size())));
  const bool is_cuobjdump = program.filename().string().find("cuobjdump") != std::string::npos;
  MOEJIT_TRY_ASSIGN(const ProcessResult result,
                    run_process({program.string(), is_cuobjdump ? "-sass" : "-c", "kernel.cubin"},
                                folder.path()));
  std::vector<KernelDisassembly> kernels = split_disassembly(result.output);
  if (result.exit_code == 0 && !kernels.empty()) return kernels;
  return fail(
      Stage::kCompile, ErrorCode::kCompileFailed,
      fmt::format("{} ended with exit code {} and listed {} kernels, wanted 0 and at least 1",
                  program.string(), result.exit_code, kernels.size()),
      "set MOEJIT_DISASSEMBLER to nvdisasm or cuobjdump of CUDA 12.4 or newer", result.output);
}

Result<std::string> disassembler_description() {
  MOEJIT_TRY_ASSIGN(const fs::path program, find_disassembler());
  return program.string();
}

}  // namespace moejit::compiler
