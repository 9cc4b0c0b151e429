// SPDX-License-Identifier: Apache-2.0
// An operation's description of any bytes: parsed and, where it is one, planned for both targets.
#include "compiler/compiler.h"
#include "compiler/operation.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moejit::compiler;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  describes_operation(text);
  const auto operation = parse_operation(text, "operation.json");
  if (!operation) return 0;
  for (const char* target : {"cuda:sm_90a", "sim"})
    if (const auto plan = plan_operation(*operation, *parse_target(target)))
      print_plan(*plan, true);
  return 0;
}
