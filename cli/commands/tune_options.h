// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"
#include "runtime/tune/device_measurer.h"
#include "runtime/tune/tune_problem.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

// What `moejit tune` and `moejit tuning verify` measure, and how.
struct TuneOptions {
  std::vector<std::string> layers;
  std::string gemms;                    // a file of GEMM cases
  std::string pass;                     // as of PlanCommand
  std::optional<int64_t> tokens;        // default: max_tokens
  std::string candidate_limit = "60s";  // for a candidate to be made and to run once
  tune::MeasureOptions measured;
};

// Reads the files that the options name. Errors: all of reading and parsing the files;
// kInvalidValue for
// --tokens beyond a layer's max_tokens.
Result<tune::TuneSubjects> read_subjects(const TuneOptions& options);

// Returns how to measure; if no GPU can be used, the hint of the error is `without_gpu`. Error
// kUsage: --candidate-limit is no time.
Result<tune::MeasureOptions> measure_options(const TuneOptions& options,
                                             std::string_view without_gpu);

// Returns the seconds of "90s", "20m", "1.5h" or "45" (seconds). Error kUsage names the option.
Result<double> parse_duration(std::string_view option, const std::string& text);

// Tells on a terminal what a tuner does. The first Ctrl-C stops the tuner.
class TerminalTuneObserver final : public tune::TuneObserver {
 public:
  explicit TerminalTuneObserver(const Terminal& terminal) : terminal_(terminal) {}

  bool stops() override { return signal().has_value(); }
  void note(std::string_view text) override { terminal_.note(text); }
  void warn(std::string_view text) override { terminal_.warn(text); }
  void show_progress(std::string_view what, int64_t done, int64_t total) override {
    terminal_.show_progress(what, done, total);
  }
  void end_progress() override { terminal_.clear_progress(); }

  // Returns the signal that stopped the tuner.
  std::optional<int> signal() const { return interruption_.signal(); }

 private:
  const Terminal& terminal_;
  Interruption interruption_;
};

}  // namespace moejit::cli
