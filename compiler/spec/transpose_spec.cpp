// SPDX-License-Identifier: Apache-2.0
#include "compiler/spec/transpose_spec.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string_view to_string(TransposeRule rule) {
  switch (rule) {
    case TransposeRule::kIdeal: return "ideal";
    case TransposeRule::kForkCompat: return "fork_compat";
  }
  return "unknown";
}

std::string_view to_string(RowSource source) {
  switch (source) {
    case RowSource::kInOrder: return "in_order";
    case RowSource::kGathered: return "gathered";
    case RowSource::kGatheredAll: return "gathered_all";
  }
  return "unknown";
}

std::string to_string(const TransposeSpec& s) {
  return fmt::format(
      "transpose format={} rule={}{} local_experts={} columns={} counts_flushed={} "
      "threads={}",
      to_string(s.format), to_string(s.rule),
      s.source == RowSource::kInOrder ? std::string()
                                      : fmt::format(" source={}", to_string(s.source)),
      s.local_experts, s.columns, s.counts_flushed, s.threads);
}

std::string to_string(const GatedGradientSpec& s) {
  return fmt::format(
      "gated_gradient local_experts={} columns={} activation={} epsilon={:g} threads={}{}{}{}",
      s.local_experts, s.columns, to_string(s.activation), s.epsilon, s.threads,
      s.stores_rows ? "" : " without_rows", s.tells_dprobs ? "" : " without_dprobs",
      s.transposes_gradient ? "" : " without_transposed_gradient");
}

}  // namespace moejit::compiler
