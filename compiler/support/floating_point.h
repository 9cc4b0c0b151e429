// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace moejit {

// Has the calling thread compute as IEEE 754 does by default, and as GPUs do, until it is
// destroyed. Results are rounded to nearest, with subnormal numbers, without signals. Then the
// thread has the modes again that its program chose. Many do: torch.set_flush_denormal(),
// fesetround(), feenableexcept(), each library linked with -ffast-math. Threads that are started
// meanwhile begin with the default modes.
class DefaultFloatingPoint {
 public:
#if defined(__SSE2__)
  // fesetenv() would also set the x87 unit, which computes nothing here: 200 ns in place of 5.
  DefaultFloatingPoint() noexcept : chosen_(_mm_getcsr()) { _mm_setcsr(kDefaultModes); }
  ~DefaultFloatingPoint() { _mm_setcsr(chosen_); }
#else
  DefaultFloatingPoint() noexcept {
    std::fegetenv(&chosen_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&chosen_); }
#endif
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
#if defined(__SSE2__)
  // All exceptions are masked, and no other bit is set: the register's value when a process begins.
  static constexpr unsigned kDefaultModes = 0x1f80;
  unsigned chosen_;
#else
  std::fenv_t chosen_{};
#endif
};

}  // namespace moejit
