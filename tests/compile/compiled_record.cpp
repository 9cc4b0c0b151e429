// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/compiled_record.h"

#include <fstream>
#include <sstream>

namespace moejit::testing {
namespace {

// Enough of a digest to tell kernels apart, and short enough to read a difference.
std::string short_key(const Digest& key) { return key.hex().substr(0, 32); }

}  // namespace

CompiledRecord CompiledRecord::read(const std::string& path) {
  CompiledRecord record;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    std::string entry;
    Line line;
    if (words >> entry >> line.key >> line.registers) record.lines_[entry] = line;
  }
  return record;
}

void CompiledRecord::add(const std::string& entry, const Digest& key, int32_t registers) {
  lines_[entry] = {short_key(key), registers};
}

std::optional<int32_t> CompiledRecord::registers(const std::string& entry,
                                                 const Digest& key) const {
  const auto line = lines_.find(entry);
  if (line == lines_.end() || line->second.key != short_key(key)) return std::nullopt;
  return line->second.registers;
}

void CompiledRecord::write(const std::string& path) const {
  std::ofstream file(path);
  file << "# Entry, key and registers of each kernel of every_kernel_compiles_test, which writes "
          "it.\n";
  for (const auto& [entry, line] : lines_)
    file << entry << ' ' << line.key << ' ' << line.registers << '\n';
}

}  // namespace moejit::testing
