// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/planner_steps.h"
#include "compiler/work.h"

#include <algorithm>
#include <fmt/core.h>
#include <variant>

namespace moejit::compiler {
namespace {

CallRows largest_call(const CallBounds& bounds) {
  const int64_t routed = std::min(bounds.max_tokens * bounds.top_k, bounds.max_permuted_rows);
  return {.tokens = bounds.max_tokens,
          .routed = routed,
          .padded = bounds.max_permuted_rows,
          .routed_tokens = std::min(bounds.max_tokens, routed)};
}

// Returns the ranks that a kernel of an exchange is for; 1 for others.
int32_t ranks_of(const KernelSpec& spec) {
  return std::visit(
      [](const auto& own) -> int32_t {
        if constexpr (requires { own.exchange.ranks; })
          return own.exchange.ranks;
        else if constexpr (requires { own.dispatch.exchange.ranks; })
          return own.dispatch.exchange.ranks;
        else
          return 1;
      },
      spec);
}

// Says how many bytes go over the wire, and how long that takes at least.
std::string sent_reason(const KernelPlan& kernel, const CallBounds& bounds) {
  const int64_t others = ranks_of(kernel.spec) - 1;
  return fmt::format(
      "{} tokens send {} bytes to {} other rank{} in the mean, if their experts are drawn alike: "
      "no less than {:.1f} us at {:.0f} GB/s",
      bounds.max_tokens, kernel.sent_bytes / others, others == 1 ? "the" : "each",
      others == 1 ? "" : fmt::format(", {} to all {}", kernel.sent_bytes, others),
      static_cast<double>(kernel.sent_bytes) / kLinkBytesPerMicrosecond,
      1e-3 * kLinkBytesPerMicrosecond);
}

}  // namespace

void complete_kernel(KernelPlan& kernel, const CallBounds& bounds) {
  kernel.bounds = bounds;
  kernel.launch = launch_shape(kernel.spec);
  kernel.launch.max_ctas = busy_ctas(kernel.spec, bounds, bounds.max_tokens);
  kernel.numbers = kernel_numbers(kernel.spec, bounds);
  set_access(kernel);
  const Work work = count_work(kernel, largest_call(bounds));
  kernel.min_bytes = work.min_bytes;
  kernel.multiply_adds = work.multiply_adds;
  kernel.sent_bytes = work.sent_bytes;
  if (work.sent_bytes > 0) kernel.reasons.push_back(sent_reason(kernel, bounds));
}

CallBounds bounds_of_rows(int64_t rows, int64_t groups, int32_t splits_alignment) {
  return {.max_tokens = rows,
          .top_k = 1,
          .groups = static_cast<int32_t>(groups),
          .splits_alignment = splits_alignment,
          .max_permuted_rows = rows};
}

}  // namespace moejit::compiler
