// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace moejit::testing {

// Kernels that compiled without spills, and the registers that a thread of each takes: a text file
// with a line for each, "ENTRY KEY REGISTERS". The key covers text, headers, options and compiler
// (compiler/kernel_source.h), so a line holds for those very bytes alone.
class CompiledRecord {
 public:
  // Reads a file; lines that are no such line, and a file that is not there, hold nothing.
  static CompiledRecord read(const std::string& path);

  void add(const std::string& entry, const Digest& key, int32_t registers);
  // Returns the registers of a kernel, or none where the record does not have it under this key.
  std::optional<int32_t> registers(const std::string& entry, const Digest& key) const;
  void write(const std::string& path) const;

 private:
  struct Line {
    std::string key;
    int32_t registers = 0;
  };
  std::map<std::string, Line> lines_;  // by entry
};

}  // namespace moejit::testing
