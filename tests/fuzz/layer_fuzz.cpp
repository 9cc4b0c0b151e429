// SPDX-License-Identifier: Apache-2.0
// A layer description of any bytes: parsed and, where it is one, planned for both targets.
#include "compiler/compiler.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moejit::compiler;
  const auto layer =
      parse_layer(std::string_view(reinterpret_cast<const char*>(data), size), "layer.json");
  if (!layer) return 0;
  for (const char* target : {"cuda:sm_90a", "sim"})
    if (const auto plan = plan_layer(*layer, *parse_target(target))) print_plan(*plan, true);
  return 0;
}
