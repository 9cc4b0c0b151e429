// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/choices.h"
#include "runtime/device.h"
#include "runtime/measure/device_values.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace moejit::measure {

// Queues the same work on the default stream each time.
using Launch = std::function<Result<void>()>;

// A kernel of a plan that can be made with several choices, and the memory that its launches write.
struct VersionedKernel {
  struct Written {
    void* address = nullptr;
    int64_t bytes = 0;         // a multiple of 4
    bool is_added_to = false;  // launches read it, too
  };

  std::string problem;                        // KernelPlan::problem
  std::vector<compiler::Choices> candidates;  // the usual choices first
  std::vector<Written> written;
  // Compiles and loads the kernel with these choices.
  std::function<Result<Launch>(const compiler::Choices&)> make;
};

// A version that ran, and the number of 4-byte words in which its results differ from the usual
// version's.
struct MadeVersion {
  Launch launch;
  int64_t differing_words = 0;
};

// Makes versions of a kernel and compares the bits of their results with the usual version's
// results. Device, engine and memory must live longer.
class VersionComparison {
 public:
  // Makes the usual version and keeps a copy of its results.
  static Result<VersionComparison> create(const VersionedKernel& kernel, runtime::Engine& engine,
                                          runtime::Device& device);

  // Makes a version, runs it once on new results, and compares them. Errors in making it, in the
  // launch, and of the device; after an error of the device nothing else may run on the GPU.
  Result<MadeVersion> make(const compiler::Choices& choices);

  const Launch& usual() const { return usual_; }

 private:
  VersionComparison(const VersionedKernel& kernel, runtime::Device& device)
      : kernel_(&kernel), device_(&device) {}
  // Fills the results with bytes that no launch leaves, or with numbers to add to.
  Result<void> renew_results();

  const VersionedKernel* kernel_;
  runtime::Device* device_;
  DifferenceCounter counter_;
  std::vector<runtime::DeviceMemory> wanted_;  // copies of the usual version's results
  Launch usual_;
};

// Launches of one version that are timed together.
struct LaunchBlock {
  const Launch* launch = nullptr;
  int64_t launches = 0;
};

// Returns how many launches take about `seconds` if one takes so many microseconds; 5 at least.
int64_t launches_for(double seconds, double microseconds);

// Runs one block after the other, without a gap in which the device could cool. Returns the
// microseconds of one launch of each block.
Result<std::vector<double>> time_blocks(std::span<const LaunchBlock> blocks,
                                        runtime::Device& device);

// Launches for at least `seconds`, until two parts in a row take the same time within 0.5 %.
// Launches for `most_seconds` at most. Returns the microseconds of one launch at the end.
Result<double> heat(const Launch& launch, runtime::Device& device, double seconds,
                    double most_seconds);

}  // namespace moejit::measure
