// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace moejit::compiler {

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

}  // namespace moejit::compiler
