// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/checkpoint/safetensors_file.h"

namespace moejit::checkpoint {

// Bytes of the longest header that the format allows.
inline constexpr int64_t kLongestSafetensorsHeader = 100'000'000;

// Reads the JSON header of the file `path`, whose data are `data_bytes` bytes from `data_offset`
// on. Error kInvalidFile, unless all of this holds:
// - Names are unique, dtypes are known and dimensions are not negative.
// - Sizes do not overflow, and shape and dtype give exactly the bytes between the offsets.
// - Offsets lie inside the file, and no two tensors overlap. Holes are allowed.
Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view json,
                                                               const std::string& path,
                                                               int64_t data_offset,
                                                               int64_t data_bytes);

}  // namespace moejit::checkpoint
