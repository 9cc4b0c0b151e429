// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <string>
#include <vector>

namespace moejit::runtime {

// Tells for each GPU of this process, by ordinal, whether its kernels can reach the memory of each
// GPU: links[a][b]. A GPU reaches itself. Opens no context. Errors: kDriverMissing, kNoDevice.
Result<std::vector<std::vector<bool>>> gpu_links();

// Returns the links in words, such as "all 8 GPUs reach each other" or "1 GPU, no peers". Otherwise
// it lists the peers of each GPU: "0: 1; 1: 0; 2: none".
std::string links_text(const std::vector<std::vector<bool>>& links);

}  // namespace moejit::runtime
