// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/measurer.h"

#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace moejit::testing {

using tune::Fault;
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
  kHangs,            // whenever it is made
  kCrashesInRounds,  // but not when it is made
  kHangsInRounds,    // "
  kFailsInRounds,    // " and the process lives
  kFailsInCompany,   // in rounds of several, never alone
};

constexpr double kUsualUs = 100.0;

// A measurer whose candidates misbehave as they are told, in a process that dies as they do. Times
// are those of a script, so the faults alone decide.
class ScriptedMeasurer final : public Measurer {
 public:
  std::map<int32_t, Behavior> behaviors;  // of candidates that are not good
  std::map<int32_t, double> ratios;       // to the usual version's time; default: 1
  bool has_open_fault = false;
  int32_t crashes_to_come = 0;  // of the usual version, when it is heated
  int32_t starts = 0;           // of the process
  std::map<int32_t, int32_t> makes;
  std::vector<std::vector<int32_t>> calls;  // the candidates that each call timed

  Result<void> prefetch() override { return {}; }
  Result<void> compile(std::size_t) override { return {}; }

  Result<void> open(std::size_t) override {
    loss_.reset();
    if (has_open_fault) return error(ErrorCode::kTensorMismatch);
    if (!is_open_) ++starts;
    is_open_ = true;
    return {};
  }

  Result<int64_t> make(int32_t candidate) override {
    EXPECT_TRUE(is_open_);
    loss_.reset();
    ++makes[candidate];
    switch (behavior_of(candidate)) {
      case Behavior::kDoesNotCompile: return error(ErrorCode::kCompileFailed);
      case Behavior::kDoesNotLaunch: return error(ErrorCode::kDriver);
      case Behavior::kChangesBits: return 7;
      case Behavior::kCrashes: return lose(Fault::kCrashes);
      case Behavior::kHangs: return lose(Fault::kHangs);
      case Behavior::kCrashesOnce:
        if (makes[candidate] == 1) return lose(Fault::kCrashes);
        break;
      default: break;
    }
    made_.insert(candidate);
    return 0;
  }

  Result<double> heat(double, double) override {
    EXPECT_TRUE(is_open_);
    loss_.reset();
    if (crashes_to_come > 0) {
      --crashes_to_come;
      return lose(Fault::kCrashes);
    }
    return kUsualUs;
  }

  Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t) override {
    EXPECT_TRUE(is_open_);
    loss_.reset();
    calls.emplace_back(candidates.begin(), candidates.end());
    TimedBlocks timed;
    for (const int32_t candidate : candidates) {
      EXPECT_TRUE(candidate == 0 || made_.contains(candidate)) << candidate << " was not made";
      switch (behavior_of(candidate)) {
        case Behavior::kCrashesInRounds: return lose(Fault::kCrashes);
        case Behavior::kHangsInRounds: return lose(Fault::kHangs);
        case Behavior::kFailsInRounds: return error(ErrorCode::kDriver);
        case Behavior::kFailsInCompany:
          if (candidates.size() > 1) return lose(Fault::kCrashes);
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

  std::optional<Fault> loss() const override { return loss_; }
  bool is_usable() const override { return true; }

 private:
  Behavior behavior_of(int32_t candidate) const {
    const auto found = behaviors.find(candidate);
    return found == behaviors.end() ? Behavior::kGood : found->second;
  }
  static tl::unexpected<Error> error(ErrorCode code) {
    return fail(Stage::kLaunch, code, "as told");
  }
  tl::unexpected<Error> lose(Fault fault) {
    loss_ = fault;
    is_open_ = false;
    made_.clear();
    return error(ErrorCode::kDriver);
  }

  bool is_open_ = false;
  std::set<int32_t> made_;
  std::optional<Fault> loss_;
  int32_t blocks_ = 0;
};

}  // namespace moejit::testing
