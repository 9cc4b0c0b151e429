// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/choices.h"
#include "compiler/support/error.h"
#include "compiler/target.h"
#include "runtime/tune/decision/fault.h"

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
  std::string gpu;          // gpu_to_json() of the device
  std::string description;  // target_text() of the device
  std::string cuda_version;
};

// The blocks of a round in the order in which they ran: the microseconds that a launch took in
// each. Clock and power are means over all blocks.
struct TimedBlocks {
  std::vector<double> microseconds;
  std::optional<double> megahertz, watts;
};

// Runs versions of kernels for a tuner. It has a list of problems (collect_problems()), one of
// which is open at a time. A version may
// hang, or end everything that is open; loss() then says so. The next call that opens something
// starts anew, and all versions must be made again.
class Measurer {
 public:
  virtual ~Measurer() = default;

  // Start to compile all candidates in the background, and compile the candidates of one problem or
  // wait until they are compiled. A candidate that does not compile is no error here.
  virtual Result<void> prefetch() = 0;
  virtual Result<void> compile(std::size_t problem) = 0;

  // Opens a problem, unless it is open, and runs its usual version. Returns errors of the problem's
  // operands and of the usual version.
  virtual Result<void> open(std::size_t problem) = 0;
  // Makes a version of the open problem and runs it once. Returns how many 4-byte words of its
  // results differ from the usual version's results.
  virtual Result<int64_t> make(int32_t candidate) = 0;
  // Launches the usual version for at least `seconds` and until its time settles, for at most
  // `most_seconds`. Returns the microseconds of a launch.
  virtual Result<double> heat(double seconds, double most_seconds) = 0;
  // Times a block of `launches` launches for each of these versions, which must be made; 0 is the
  // usual one.
  virtual Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t launches) = 0;

  // Returns how the last call ended what was open: kCrashes or kHangs; none if nothing was lost.
  virtual std::optional<Fault> loss() const = 0;
  // Returns false once the device can no longer be opened.
  virtual bool is_usable() const = 0;
};

}  // namespace moejit::tune
