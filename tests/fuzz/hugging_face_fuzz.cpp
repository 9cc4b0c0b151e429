// SPDX-License-Identifier: Apache-2.0
// A model's config.json of any bytes.
#include "compiler/compiler.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)moejit::compiler::layer_from_hugging_face(text, "config.json", {.expert_parallel = 4});
  return 0;
}
