// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/tune/decision/race.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::tune {

// Is told what a tuner does, and may stop it.
class TuneObserver {
 public:
  TuneObserver() = default;
  TuneObserver(const TuneObserver&) = delete;
  TuneObserver& operator=(const TuneObserver&) = delete;
  virtual ~TuneObserver() = default;

  // Returns whether to stop before the next measurement. Is asked in the process that watches.
  virtual bool stops() { return false; }

  // The others are called in the process that measures.
  // Get sentences for people: what came of a problem, and what went wrong with one.
  virtual void note(std::string_view) {}
  virtual void warn(std::string_view) {}
  // Tells that a long step has done `done` of its parts. Ends with end_progress().
  virtual void show_progress(std::string_view what, int64_t done, int64_t total) {
    static_cast<void>(what), static_cast<void>(done), static_cast<void>(total);
  }
  virtual void end_progress() {}
};

// What a process that measures is doing.
enum class Doing {
  kOther,   // opens the device, compiles
  kUsual,   // opens a problem, or launches its usual version
  kMaking,  // makes a version and runs it once
  kRounds,  // times versions in turn
  kAlone,   // times one version
};

// A process that was lost, and what it was doing.
struct Loss {
  Doing doing = Doing::kOther;
  std::size_t problem = 0;
  int32_t candidate = 0;
  Fault fault = Fault::kCrashes;  // or kHangs
  std::string message;            // how it ended, in words
};

// What a process that measures and the process that watches it tell each other.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Called by the process that measures: tells what it does from now on. It counts as hanging if it
  // does that for longer than the limit. Opening and compiling may take half an hour.
  void begin(Doing doing, std::size_t problem = 0, int32_t candidate = 0,
             double limit_seconds = kOpenSeconds);
  // Tells that measuring begins, unless that was told before.
  void begin_measuring();
  // Tells that the process ends, since its device no longer works.
  void lose(const std::string& message);
  // Returns whether to stop before the next measurement.
  bool stops() const;

  // Returns when measuring began, in any of the processes; none if it has not.
  std::optional<std::chrono::steady_clock::time_point> measuring_since() const;

 private:
  friend class WatchedProcess;
  struct Shared;
  static constexpr double kOpenSeconds = 1800.0;

  Shared* shared_;  // memory of both processes
};

// Runs `work` in a child process, which may crash or hang. If it does, runs `work` in another one,
// with all losses so far. This process must have no other threads and must not have opened a GPU,
// since a child cannot use a GPU that its parent opened. Once the observer stops, the child is
// asked to stop, and no other one is started. What `work` leaves open is closed by the process's
// end, which waits for no GPU.
//
// Returns the error of `work`. kDriver: a process was lost while it did nothing with a problem, and
// so was a second one, or it hung. kInternal: no process can be started.
using WatchedWork = std::function<Result<void>(std::span<const Loss>)>;
Result<void> run_watched(Watch& watch, const WatchedWork& work, TuneObserver& observer);

}  // namespace moejit::tune
