// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/host_tensor.h"

#include <map>
#include <string>

namespace moejit::checkpoint {

// Writes the tensors as a safetensors file. Larger element types come first, then names in order,
// so that every tensor is aligned and equal tensors give equal files. `metadata` goes into the
// header as it is. A temporary file is renamed at the end; a failure (kFileWrite) leaves nothing
// behind.
Result<void> write_safetensors(const std::string& path, const runtime::TensorMap& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// Returns the length of the header and the header itself, padded to a multiple of 8 bytes.
std::string safetensors_header(const runtime::TensorMap& tensors,
                               const std::map<std::string, std::string>& metadata);

// Checks, before the work is done, whether a file can probably be written at `path`.
Result<void> check_writable(const std::string& path);

}  // namespace moejit::checkpoint
