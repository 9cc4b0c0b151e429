// SPDX-License-Identifier: Apache-2.0
#include "compiler/spec/route_spec.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const RouteSpec& s) {
  const std::string ids = s.topk_ids == DType::kI32
                              ? std::string()
                              : fmt::format(" topk_ids={}", to_string(s.topk_ids));
  return fmt::format("route local_experts={} top_k={} splits_alignment={}{} warps={}{}{}",
                     s.local_experts, s.top_k, s.splits_alignment,
                     s.has_colwise_offs ? " colwise_offs" : "", s.warps, ids,
                     s.ignores_foreign ? " ignores_foreign" : "");
}

}  // namespace moejit::compiler
