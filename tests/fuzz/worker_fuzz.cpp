// SPDX-License-Identifier: Apache-2.0
// What goes to a compile worker and what comes from it, of any bytes. What is understood is
// understood in the same way once it is written anew.
#include "compiler/worker/messages.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moejit;
  using namespace moejit::compiler;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto request = decode_request(bytes))
    if (decode_request(encode_request(*request)) != request) std::abort();
  const KernelSource source{.entry = "f", .text = {}, .target = {}};
  const auto reply = decode_reply(bytes, source);
  if (!reply) return 0;
  if (*reply && (*reply)->binary.usage) {
    const ResourceUsage& usage = *(*reply)->binary.usage;
    for (const std::int32_t count :
         {usage.registers, usage.static_shared_bytes, usage.stack_bytes, usage.spill_store_bytes,
          usage.spill_load_bytes, usage.code_bytes})
      if (count < 0) std::abort();
  }
  const auto again = decode_reply(encode_reply(*reply), source);
  if (!again || again->has_value() != reply->has_value()) std::abort();
  const bool is_same = *reply ? (**again).binary == (**reply).binary
                              : to_string(again->error()) == to_string(reply->error());
  if (!is_same) std::abort();
  return 0;
}
