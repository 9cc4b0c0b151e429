// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/weight_check.h"

#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/weight_check_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr int64_t kProbeBytes = 64;
constexpr int64_t kPieceBytes = 16;   // that a thread loads at once
constexpr int64_t kThreadPieces = 4;  // loads of a thread that are in flight together

// HBM answers some 40 such probes a nanosecond: 32768 of them take 0.8 us of a check's 3.
constexpr int64_t kMostProbes = 32768;

struct WeightBytes {
  int64_t w1, w2;
};

WeightBytes bytes_of(const WeightCheckSpec& spec) {
  const int64_t bytes_of_row = int64_t{2} * spec.local_experts * spec.hidden;
  return {bytes_of_row * spec.w1_rows, bytes_of_row * spec.intermediate};
}

int64_t probes_of(const WeightCheckSpec& spec) {
  const WeightBytes bytes = bytes_of(spec);
  const int64_t window = kProbeBytes * spec.window_probes;
  return ceil_div(bytes.w1, window) + ceil_div(bytes.w2, window);
}

int64_t ctas_of(const WeightCheckSpec& spec) {
  return ceil_div(probes_of(spec) * (kProbeBytes / kPieceBytes), kThreadPieces * spec.threads);
}

}  // namespace

WeightCheckSpec weight_check(int32_t local_experts, int32_t w1_rows, int32_t hidden,
                             int32_t intermediate) {
  WeightCheckSpec spec{.local_experts = local_experts,
                       .w1_rows = w1_rows,
                       .hidden = hidden,
                       .intermediate = intermediate};
  const WeightBytes bytes = bytes_of(spec);
  const int64_t window = ceil_div(bytes.w1 + bytes.w2, kProbeBytes * kMostProbes);
  spec.window_probes = static_cast<int32_t>(std::max(window, int64_t{1}));
  return spec;
}

int64_t digest_words(const WeightCheckSpec& spec) {
  return device::kDigestHeader + ctas_of(spec) * spec.threads;
}

std::string to_string(const WeightCheckSpec& s) {
  return fmt::format(
      "weight_check local_experts={} w1_rows={} hidden={} intermediate={} window_probes={} "
      "threads={}",
      s.local_experts, s.w1_rows, s.hidden, s.intermediate, s.window_probes, s.threads);
}

namespace {

using device::WeightCheckParams;
using enum Access;

constexpr std::array kWeightCheckPointers = {
    MOEJIT_POINTER(WeightCheckParams, w1, kRead),
    MOEJIT_POINTER(WeightCheckParams, w2, kRead),
    MOEJIT_POINTER(WeightCheckParams, skip, kRead),
    MOEJIT_POINTER(WeightCheckParams, status, kWrite),
    MOEJIT_POINTER(WeightCheckParams, digest, kReadWrite),
};

constexpr ParamRecord kWeightCheckRecord{
    "weight_check", sizeof(WeightCheckParams), kWeightCheckPointers, {}, {}};
static_assert(is_complete(kWeightCheckRecord));

}  // namespace

template <>
LaunchShape KernelKind<WeightCheckSpec>::shape(const WeightCheckSpec& spec) {
  return {.threads = spec.threads, .shared_bytes = 4 * (spec.threads / 32)};
}

template <>
int64_t KernelKind<WeightCheckSpec>::busy(const WeightCheckSpec& spec, const CallBounds&, int64_t) {
  return ctas_of(spec);
}

template <>
std::vector<KernelNumber> KernelKind<WeightCheckSpec>::numbers(const WeightCheckSpec&,
                                                               const CallBounds&) {
  return {};
}

template <>
Work KernelKind<WeightCheckSpec>::work(const WeightCheckSpec& spec, const CallBounds&,
                                       const CallRows&) {
  return {.min_bytes = kProbeBytes * probes_of(spec) + 4 * digest_words(spec)};
}

template <>
const ParamRecord& KernelKind<WeightCheckSpec>::record(const WeightCheckSpec&) {
  return kWeightCheckRecord;
}

template <>
KernelText KernelKind<WeightCheckSpec>::text(const WeightCheckSpec& spec) {
  return {
      .types = "bf16",
      .tile = fmt::format("e{}w{}", spec.local_experts, kProbeBytes * spec.window_probes),
      .summary = fmt::format("whether two weights have changed: 64 of every {} bytes",
                             kProbeBytes * spec.window_probes),
      .includes = {"cast/weight_check.cuh"},
      .params = "WeightCheckParams",
      .constants = {integer_constant("kExperts", spec.local_experts, "with matrices in w1 and w2"),
                    integer_constant("kW1Rows", spec.w1_rows, "of a matrix in w1"),
                    integer_constant("kHidden", spec.hidden, "columns of w1, rows of w2"),
                    integer_constant("kIntermediate", spec.intermediate, "columns of w2"),
                    integer_constant("kWindowProbes", spec.window_probes,
                                     "of 64 bytes, of which one is looked at"),
                    integer_constant("kThreads", spec.threads, "per CTA")},
      .types_used = {{"Kernel",
                      "WeightCheck",
                      {"kExperts", "kW1Rows", "kHidden", "kIntermediate", "kWindowProbes",
                       "kThreads"}}},
  };
}

}  // namespace moejit::compiler
