// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on the files of folders, without the fuzzer; ends with status 1 where there
// are none. Every file is also cut short at some places and has some of its bytes changed.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  std::size_t files = 0;
  for (int i = 1; i < argc; ++i)
    for (const auto& file : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream stream(file.path(), std::ios::binary);
      std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(stream), {}};
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      const std::size_t step = bytes.size() / 32 + 1;
      for (std::size_t at = 0; at < bytes.size(); at += step) {
        LLVMFuzzerTestOneInput(bytes.data(), at);
        bytes[at] ^= 0x10;
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        bytes[at] ^= 0x10;
      }
      ++files;
    }
  std::printf("%zu files\n", files);
  return files == 0 ? 1 : 0;
}
