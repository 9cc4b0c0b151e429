// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/nvrtc/compile.h"

#include <string>
#include <utility>

namespace moejit::compiler {

// A kernel that writes params.value times its thread's index, with a line of one's own in it.
inline KernelSource small_kernel(const std::string& line = "") {
  return {.entry = "moejit_small_kernel",
          .text =
              "#include \"moejit_device/ptx/memory.cuh\"\n"
              "using namespace moejit::device;\n"
              "struct SmallParams { float* out; float value; };\n"
              "MOEJIT_KERNEL(128, 1, moejit_small_kernel, SmallParams) {\n" +
              line +
              "  ptx::store(ptx::global(params.out) + ptx::thread_index(),\n"
              "             params.value * ptx::thread_index());\n"
              "}\n",
          .target = {}};
}

// Returns only the cubin; a loss is an error.
inline Result<KernelBinary> compile_with_nvrtc(const KernelSource& source) {
  MOEJIT_TRY_ASSIGN(CompiledKernel compiled, compile_with_nvrtc_and_time(source));
  if (compiled.loss) return tl::make_unexpected(std::move(*compiled.loss));
  return std::move(compiled.binary);
}

}  // namespace moejit::compiler
