// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/choices.h"
#include "compiler/support/error.h"
#include "compiler/target.h"
#include "runtime/tune/decision/fault.h"
#include "runtime/tune/decision/step_choice.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moejit::tune {

// The device that a tuner measures on.
struct MeasuredDevice {
  compiler::Target target;
  std::string gpu;          // gpu_to_json() of it
  std::string description;  // target_text() of it
  std::string cuda_version;
};

// The blocks of a round: microseconds of a launch of each, in the order in which they ran, and the
// mean clock and power of all.
struct TimedBlocks {
  std::vector<double> microseconds;
  std::optional<double> megahertz, watts;
};

// Runs versions of kernels for a tuner, which has a list of problems (collect_problems()) and of
// layers (TuneSubjects). One problem or the step of one layer is open at a time. A version may end
// everything that is open, or hang; loss() then says so, the next call that opens something starts
// anew, and all versions have to be made again.
class Measurer {
 public:
  virtual ~Measurer() = default;

  // Starts to compile all candidates in the background, and waits for those of one problem. A
  // candidate that does not compile is no error here.
  virtual Result<void> prefetch() = 0;
  virtual Result<void> compile(std::size_t problem) = 0;

  // Opens a problem, unless it is open, and runs its usual version. Errors: of the problem's
  // operands and of the usual version.
  virtual Result<void> open(std::size_t problem) = 0;
  // Makes a version of the open problem, runs it once, and returns in how many 4-byte words its
  // results differ from those of the usual one.
  virtual Result<int64_t> make(int32_t candidate) = 0;
  // Launches the usual version until its time settles, for `seconds` at least; returns the
  // microseconds of a launch.
  virtual Result<double> heat(double seconds, double most_seconds) = 0;
  // Times blocks of so many launches of versions that were made; 0 is the usual one.
  virtual Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t launches) = 0;

  // Opens the whole step of a layer and runs it with the usual choices; heat() is then of this
  // step.
  virtual Result<void> open_step(std::size_t layer) = 0;
  // Times four blocks of so many steps: with the usual choices, twice with these, and with the
  // usual ones again.
  virtual Result<TimedBlocks> time_step(std::span<const StepChoice> tuned, int64_t launches) = 0;

  // Returns how the last call ended what was open: kCrashes or kHangs; none if it did not.
  virtual std::optional<Fault> loss() const = 0;
  // Returns false once the device cannot be opened any more.
  virtual bool is_usable() const = 0;
};

}  // namespace moejit::tune
