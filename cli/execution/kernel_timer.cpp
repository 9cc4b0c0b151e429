// SPDX-License-Identifier: Apache-2.0
#include "cli/execution/kernel_timer.h"

namespace moejit::cli {

KernelTimer::~KernelTimer() { release_marks(); }

Result<void> KernelTimer::before(size_t kernel_index) {
  Span& span = spans_.emplace_back(Span{kernel_index, nullptr, nullptr});
  MOEJIT_TRY_ASSIGN(span.start, device_.record_mark(nullptr));
  return {};
}

Result<void> KernelTimer::after(size_t /*kernel_index*/) {
  MOEJIT_TRY_ASSIGN(spans_.back().end, device_.record_mark(nullptr));
  return {};
}

Result<std::vector<KernelTimer::Sample>> KernelTimer::take_samples() {
  MOEJIT_TRY(device_.synchronize(nullptr));
  std::vector<Sample> samples;
  for (const Span& span : spans_) {
    MOEJIT_TRY_ASSIGN(const double elapsed, device_.microseconds_between(span.start, span.end));
    samples.push_back({span.kernel_index, elapsed});
  }
  release_marks();
  return samples;
}

void KernelTimer::release_marks() {
  for (const Span& span : spans_)
    for (void* mark : {span.start, span.end})
      if (mark != nullptr) device_.release_mark(mark);
  spans_.clear();
}

}  // namespace moejit::cli
