// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file of any bytes, with 4096 bytes of data behind it. What is
// accepted has to lie inside of them.
#include "runtime/checkpoint/safetensors_file.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kData = 4096;
  const std::int64_t offset = 8 + static_cast<std::int64_t>(size);
  const auto entries = moejit::checkpoint::parse_safetensors_header(
      std::string_view(reinterpret_cast<const char*>(data), size), "x.safetensors", offset, kData);
  if (!entries) return 0;
  for (const moejit::checkpoint::SafetensorsEntry& entry : *entries)
    if (entry.bytes < 0 || entry.offset < offset || entry.offset + entry.bytes > offset + kData)
      std::abort();
  return 0;
}
