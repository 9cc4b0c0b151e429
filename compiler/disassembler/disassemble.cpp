// SPDX-License-Identifier: Apache-2.0
#include "compiler/disassembler/disassembly_text.h"
#include "compiler/disassembly.h"
#include "compiler/host/process.h"
#include "compiler/support/env.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <fmt/ranges.h>

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
