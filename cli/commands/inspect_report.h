// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/disassembly.h"
#include "compiler/kernel_binary.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moejit::cli {

// What is known of a kernel's binary.
struct InspectedKernel {
  std::string layer;      // empty if the plan is not known
  std::string operation;  // empty if the plan is not known
  std::string entry;
  std::shared_ptr<const std::vector<std::byte>> binary;
  std::optional<compiler::ResourceUsage> usage;  // none for simulator binaries
  int64_t dynamic_shared_bytes = 0;
  bool has_spills = true;                  // a bare cubin does not tell
  std::optional<std::string> disassembly;  // none without a disassembler
};

// Returns a line for each kernel, with the layer if there are several. "?" means that this machine
// or file does not tell, "-" that the kernel does not have it.
std::string inspect_table(std::span<const InspectedKernel> kernels, int32_t width = 0);
// Returns the kernels as a JSON object; `with_sass` adds the disassembly.
std::string inspect_json(std::span<const InspectedKernel> kernels, bool with_sass);
// Returns the disassembly of each kernel that has one, under its name.
std::string inspect_sass(std::span<const InspectedKernel> kernels);

}  // namespace moejit::cli
