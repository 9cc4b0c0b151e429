// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

struct RouteSpec {
  int32_t local_experts = 0;
  int32_t top_k = 0;
  int32_t splits_alignment = 0;
  bool has_colwise_offs = false;  // whether starts of groups of columns are written too
  int32_t warps = 0;              // of a CTA
  DType topk_ids = DType::kI32;   // or kI64
  bool ignores_foreign = false;   // whether ids at or above local_experts are like -1
  bool operator==(const RouteSpec&) const = default;
};

std::string to_string(const RouteSpec& spec);

}  // namespace moejit::compiler
