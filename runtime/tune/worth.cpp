// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/worth.h"

#include "compiler/work.h"
#include "runtime/measure/sm_clock.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::tune {
namespace {

// SMs and clock of an H100 and H200 SXM, and the bandwidth of an H200. Sources: NVIDIA H100 Tensor
// Core GPU Architecture, which peak_multiply_adds() uses too, and NVIDIA H200 data sheet.
constexpr double kSms = 132.0, kMegahertz = 1830.0;
constexpr double kBytesPerMicrosecond = 4.8e6;
// The shares of these peaks that our kernels reach at the power limit, by docs/performance. Grouped
// GEMMs of large calls reach 0.5 to 0.6, kernels that are bound by memory 0.75 to 0.88.
constexpr double kSustainedArithmetic = 0.55, kSustainedBandwidth = 0.85;

// Returns the rows of a call that is routed evenly over all experts of all ranks.
compiler::CallRows even_call(const compiler::CallBounds& bounds, int64_t tokens) {
  const int64_t experts = std::max<int64_t>({bounds.experts, bounds.groups, 1});
  const int64_t groups = bounds.groups > 0 ? bounds.groups : experts;
  const int64_t share = std::max<int64_t>(tokens * bounds.top_k * groups / experts, 1);
  const int64_t routed = std::min(share, bounds.max_permuted_rows);
  // On average, a group ends in the middle of its last pad rows.
  const int64_t pad_rows = groups * (bounds.splits_alignment - 1) / 2;
  return {.tokens = tokens,
          .routed = routed,
          .padded = std::min(routed + pad_rows, bounds.max_permuted_rows),
          .routed_tokens = std::min(tokens, routed)};
}

Worth worth_of(const compiler::KernelPlan& kernel, const compiler::Work& work) {
  const double multiply_adds_per_us =
      kSms * kMegahertz * static_cast<double>(measure::peak_multiply_adds(kernel));
  return {.multiply_us = static_cast<double>(work.multiply_adds) /
                         (kSustainedArithmetic * multiply_adds_per_us),
          .memory_us =
              static_cast<double>(work.min_bytes) / (kSustainedBandwidth * kBytesPerMicrosecond),
          .launches = 1};
}

}  // namespace

double microseconds_of(const Worth& worth) {
  return std::max(worth.multiply_us, worth.memory_us) * static_cast<double>(worth.launches);
}

Worth worth_of(const compiler::KernelPlan& kernel) {
  return worth_of(
      kernel, compiler::Work{.min_bytes = kernel.min_bytes, .multiply_adds = kernel.multiply_adds});
}

Worth worth_of(const compiler::KernelPlan& kernel, int64_t tokens) {
  return worth_of(kernel, count_work(kernel, even_call(kernel.bounds, tokens)));
}

Worth joined(const Worth& one, const Worth& other) {
  const int64_t launches = one.launches + other.launches;
  if (launches == 0) return one;
  const double share = static_cast<double>(other.launches) / static_cast<double>(launches);
  return {.multiply_us = one.multiply_us + share * (other.multiply_us - one.multiply_us),
          .memory_us = one.memory_us + share * (other.memory_us - one.memory_us),
          .launches = launches};
}

std::string share_text(double share) {
  const double percent = 100.0 * share;
  if (percent < 0.1) return "under 0.1 %";
  return percent < 9.95 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

}  // namespace moejit::tune
