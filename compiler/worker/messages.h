// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace moejit::compiler {

// A request to a compile worker. `key` is the key under which the kernel will be stored. The worker
// may be a moejit of another version, and must compute the same key.
struct WorkerRequest {
  KernelSource source;
  Digest key;
  bool operator==(const WorkerRequest&) const = default;
};

// Encode and decode the request: a line of JSON. Decoding takes any bytes, and returns none if they
// are no such message.
std::vector<std::byte> encode_request(const WorkerRequest& request);
std::optional<WorkerRequest> decode_request(std::span<const std::byte> bytes);

// Encode and decode the answer about `source`: a kernel for it, or an error. Behind the line of
// JSON comes the machine code. Bytes of texts that are not UTF-8 become U+FFFD.
std::vector<std::byte> encode_reply(const Result<CompiledKernel>& reply);
std::optional<Result<CompiledKernel>> decode_reply(std::span<const std::byte> bytes,
                                                   const KernelSource& source);

}  // namespace moejit::compiler
