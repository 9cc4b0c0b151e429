// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moejit::tune {

// The blocks of a round in the order in which they ran: the microseconds that a launch took in
// each. Clock and power are means over all blocks.
struct TimedBlocks {
  std::vector<double> microseconds;
  std::optional<double> megahertz, watts;
};

// Runs versions of kernels for a tuner. It has a list of problems (collect_problems()), one of
// which is open at a time. A version may end or hang this process.
class Measurer {
 public:
  virtual ~Measurer() = default;

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

  // Returns false once the device no longer works. This process then can measure no more.
  virtual bool is_usable() const = 0;
};

}  // namespace moejit::tune
