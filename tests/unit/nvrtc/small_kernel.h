// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"

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

}  // namespace moejit::compiler
