// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/measurer.h"

#include <array>
#include <atomic>
#include <csignal>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace moejit::testing {

using tune::Measurer;
using tune::TimedBlocks;

// What a candidate does. A good one does all that it is told.
enum class Behavior {
  kGood,
  kDoesNotCompile,
  kDoesNotLaunch,
  kChangesBits,
  kCrashes,          // whenever it is made
  kCrashesOnce,      // when it is first made
  kEndsTheContext,   // whenever it is made: an error after which the device no longer works
  kHangs,            // whenever it is made
  kCrashesInRounds,  // but not when it is made
  kHangsInRounds,    // "
  kFailsInRounds,    // " and the process lives
  kFailsInCompany,   // in rounds of several, never alone
};

constexpr double kUsualUs = 100.0;

// A measurer whose candidates misbehave as they are told: they kill this process, or make it hang.
// Times are those of a script, so the faults alone decide.
class ScriptedMeasurer final : public Measurer {
 public:
  std::map<int32_t, Behavior> behaviors;  // of candidates that are not good
  std::map<int32_t, double> ratios;       // to the usual version's time; default: 1
  bool has_open_fault = false;
  std::vector<std::vector<int32_t>> calls;  // the candidates that each call of this process timed

  // What all processes count.
  struct Counts {
    std::atomic<int32_t> crashes_to_come = 0;  // of the usual version, when it is heated
    std::atomic<int32_t> opened = 0;
    std::array<std::atomic<int32_t>, 8> made = {};  // by candidate
  };
  Counts& counts = *new (::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Counts;

  ~ScriptedMeasurer() override { ::munmap(&counts, sizeof(Counts)); }

  Result<void> open(std::size_t) override {
    if (has_open_fault) return error(ErrorCode::kTensorMismatch);
    ++counts.opened;
    made_.clear();
    return {};
  }

  Result<int64_t> make(int32_t candidate) override {
    const int32_t times = ++counts.made[static_cast<std::size_t>(candidate)];
    switch (behavior_of(candidate)) {
      case Behavior::kDoesNotCompile: return error(ErrorCode::kCompileFailed);
      case Behavior::kDoesNotLaunch: return error(ErrorCode::kDriver);
      case Behavior::kChangesBits: return 7;
      case Behavior::kCrashes: crash();
      case Behavior::kHangs: hang();
      case Behavior::kEndsTheContext: is_usable_ = false; return error(ErrorCode::kDriver);
      case Behavior::kCrashesOnce:
        if (times == 1) crash();
        break;
      default: break;
    }
    made_.insert(candidate);
    return 0;
  }

  Result<double> heat(double, double) override {
    if (counts.crashes_to_come-- > 0) crash();
    return kUsualUs;
  }

  Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t) override {
    calls.emplace_back(candidates.begin(), candidates.end());
    TimedBlocks timed;
    for (const int32_t candidate : candidates) {
      if (candidate != 0 && !made_.contains(candidate)) crash();
      switch (behavior_of(candidate)) {
        case Behavior::kCrashesInRounds: crash();
        case Behavior::kHangsInRounds: hang();
        case Behavior::kFailsInRounds: return error(ErrorCode::kDriver);
        case Behavior::kFailsInCompany:
          if (candidates.size() > 1) crash();
          break;
        default: break;
      }
      const auto ratio = ratios.find(candidate);
      // Blocks differ a little, as those of a GPU do.
      const double wobble = 1.0 + 1e-4 * static_cast<double>(++blocks_ % 7);
      timed.microseconds.push_back(kUsualUs * wobble *
                                   (ratio == ratios.end() ? 1.0 : ratio->second));
    }
    return timed;
  }

  bool is_usable() const override { return is_usable_; }

 private:
  Behavior behavior_of(int32_t candidate) const {
    const auto found = behaviors.find(candidate);
    return found == behaviors.end() ? Behavior::kGood : found->second;
  }
  static tl::unexpected<Error> error(ErrorCode code) {
    return fail(Stage::kLaunch, code, "as told");
  }
  // A signal that leaves no core file.
  [[noreturn]] static void crash() {
    static_cast<void>(::raise(SIGKILL));
    ::_exit(1);
  }
  [[noreturn]] static void hang() {
    while (true) ::pause();
  }

  std::set<int32_t> made_;
  bool is_usable_ = true;
  int32_t blocks_ = 0;
};

}  // namespace moejit::testing
