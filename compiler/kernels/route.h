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
  bool overlaps = false;          // see LaunchShape
  bool operator==(const RouteSpec&) const = default;
};

std::string to_string(const RouteSpec& spec);

// Tells what RouteSpec tells of ids, from a map of bytes [T, E]. A token has at most top_k experts.
struct RouteMapSpec {
  int32_t local_experts = 0;
  int32_t top_k = 0;
  int32_t splits_alignment = 0;
  bool has_colwise_offs = false;  // whether starts of groups of columns are written too
  int32_t warps = 0;              // of a CTA
  bool operator==(const RouteMapSpec&) const = default;
};

std::string to_string(const RouteMapSpec& spec);

// Tells what RouteSpec tells of ids, of rows that lie in the order of experts already.
struct SplitRowsSpec {
  int32_t local_experts = 0;
  int32_t splits_alignment = 0;
  bool has_row_map = false;               // whether destinations are written too
  bool has_colwise_offs = false;          // whether starts of groups of columns are
  int32_t warps = 0;                      // of a CTA
  DType tokens_per_expert = DType::kI32;  // or kI64
  bool operator==(const SplitRowsSpec&) const = default;
};

std::string to_string(const SplitRowsSpec& spec);

}  // namespace moejit::compiler
