// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace moejit::tune {

// Is told what a tuner does, and may stop it. All calls come from the thread that tunes.
class TuneObserver {
 public:
  TuneObserver() = default;
  TuneObserver(const TuneObserver&) = delete;
  TuneObserver& operator=(const TuneObserver&) = delete;
  virtual ~TuneObserver() = default;

  // Is called when the device is open. What is measured from here on is kept.
  virtual void begin() {}
  // Returns whether to stop before the next measurement.
  virtual bool stops() { return false; }
  // Get sentences for people: what came of a problem, and what went wrong with one.
  virtual void note(std::string_view) {}
  virtual void warn(std::string_view) {}
  // Tells that a long step has done `done` of its parts. Ends with end_progress().
  virtual void show_progress(std::string_view what, int64_t done, int64_t total) {
    static_cast<void>(what), static_cast<void>(done), static_cast<void>(total);
  }
  virtual void end_progress() {}
};

}  // namespace moejit::tune
